"""The writes of one object that wait for their turn: slots, of which the newest write counts."""

from __future__ import annotations

from dataclasses import dataclass, field

from gangline.control.writes.outgoing import Write


@dataclass(slots=True)
class WaitingWrite:
    """A waiting write: `rank` and `not_before` are the most urgent of all writes that it replaced."""

    write: Write
    slot: str
    age: int
    rank: int
    not_before: float
    retry_at: float = 0.0
    failures: int = 0
    #: urgent and ready to be sent: counted by `Writer.urgent`
    counted: bool = False
    #: in no heap: its turn came while another write of its object was in the way
    parked: bool = False

    @property
    def due(self) -> float:
        return max(self.not_before, self.retry_at)


@dataclass(slots=True)
class Lane:
    """The writes of one object."""

    waiting: dict[str, WaitingWrite] = field(default_factory=dict[str, WaitingWrite])
    busy: WaitingWrite | None = None

    def blocked(self, item: WaitingWrite) -> bool:
        """Whether this write must wait for another write of the same object."""
        if self.busy is not None:
            return True
        return item.write.verb != "create" and any(other.write.verb == "create" for other in self.waiting.values())
