"""The writes of one object that wait: slots, of which the newest write counts. And whose turn it is: that of each namespace."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final

from gangline.control.writes.outgoing import Write

#: namespaces whose last turn is remembered before those that have had it are forgotten
_MANY: Final = 10_000


@dataclass(slots=True)
class WaitingWrite:
    """A waiting write: `rank` and `not_before` are the most urgent of all writes that it replaced.

    `turn`: its place among the writes of `turn_of`, a rank; `low_turn`: its place among all of low priority. None while unknown.
    """

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
    turn: int | None = None
    turn_of: int = -1
    low_turn: int | None = None

    @property
    def due(self) -> float:
        return max(self.not_before, self.retry_at)


@dataclass(slots=True)
class ObjectLane:
    """The writes of one object."""

    waiting: dict[str, WaitingWrite] = field(default_factory=dict[str, WaitingWrite])
    busy: WaitingWrite | None = None

    def blocked(self, item: WaitingWrite) -> bool:
        """Whether this write must wait for another write of the same object."""
        if self.busy is not None:
            return True
        return item.write.verb != "create" and any(other.write.verb == "create" for other in self.waiting.values())


class NamespaceTurns:
    """Places in a queue in which namespaces take turns, however many writes of each of them wait (start-time fair queuing)."""

    def __init__(self) -> None:
        self._now = 0
        self._last: dict[str, int] = {}

    def next(self, namespace: str) -> int:
        """The place of one more write: behind the other ones of its namespace, and not behind all of others."""
        turn = self._last[namespace] = max(self._now, self._last.get(namespace, -1) + 1)
        if len(self._last) > _MANY:
            self._last = {name: last for name, last in self._last.items() if last >= self._now}
        return turn

    def reached(self, turn: int) -> None:
        """The write in this place is sent."""
        self._now = max(self._now, turn)
