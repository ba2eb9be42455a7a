"""Times at which something is to be looked at again.

An alarm that is overtaken by another stays where it is until its time comes or until too many like it have gathered: who set it
says whether it still stands.
"""

from __future__ import annotations

from collections.abc import Callable
from heapq import heapify, heappop, heappush
from typing import Final, Generic, TypeVar

from gangline.engine.model import Millis

#: So many stale alarms don't matter.
FEW: Final = 64

T = TypeVar("T")


class Alarms(Generic[T]):
    """`stands` says whether an alarm for this time and subject still counts; `living()` how many subjects there are.

    Most alarms are set for times long after their subject has gone: they must not keep it.
    """

    def __init__(self, stands: Callable[[Millis, T], bool], living: Callable[[], int]) -> None:
        self._stands = stands
        self._living = living
        #: (when, name, subject): names, which decide between equal times, can be compared
        self._heap: list[tuple[Millis, str, T]] = []

    def __len__(self) -> int:
        """Those that stand no more, but have not come up yet, included."""
        return len(self._heap)

    def set(self, when: Millis, name: str, subject: T) -> None:
        heappush(self._heap, (when, name, subject))
        if len(self._heap) > 2 * self._living() + FEW:
            standing = {each[:2]: each for each in self._heap if self._stands(each[0], each[2])}
            self._heap[:] = standing.values()
            heapify(self._heap)

    def next(self) -> Millis | None:
        """When the first is due."""
        heap = self._heap
        while heap and not self._stands(heap[0][0], heap[0][2]):
            heappop(heap)
        return heap[0][0] if heap else None

    def due(self, now: Millis) -> T | None:
        """Take out the first that is due by now; None when there is none (left)."""
        when = self.next()
        return heappop(self._heap)[2] if when is not None and when <= now else None

    def clear(self) -> None:
        self._heap.clear()
