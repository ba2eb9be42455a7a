"""The waiting writes of one object: at most one is in progress, and a create precedes all others."""

from __future__ import annotations

from dataclasses import dataclass, field

from gangline.control.writes.outgoing import Write


@dataclass(slots=True)
class Waiting:
    """A waiting write: `rank` and `not_before` are the most urgent of all that it replaced."""

    write: Write
    slot: str
    age: int
    rank: int
    not_before: float
    retry_at: float = 0.0
    failures: int = 0
    #: urgent, and ready to be sent: `Writer.urgent` counts these
    counted: bool = False
    #: in no heap: its turn came while another write of its object was in progress
    deferred: bool = False

    @property
    def due(self) -> float:
        return max(self.not_before, self.retry_at)


@dataclass(slots=True)
class Lane:
    """The writes of one object."""

    waiting: dict[str, Waiting] = field(default_factory=dict[str, Waiting])
    busy: Waiting | None = None

    def blocked(self, item: Waiting) -> bool:
        """Whether this write has to wait for another one of the same object."""
        if self.busy is not None:
            return True
        return item.write.verb != "create" and any(other.write.verb == "create" for other in self.waiting.values())
