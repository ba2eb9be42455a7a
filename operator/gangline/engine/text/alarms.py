"""Alarms: times at which a subject has to be looked at again.

An alarm that another one has replaced stays in the heap until its time comes or until too many stale ones have gathered; the
caller's `stands` tells whether it still counts.
"""

from __future__ import annotations

from collections.abc import Callable
from heapq import heapify, heappop, heappush
from typing import Final, Generic, TypeVar

from gangline.engine.model import Millis

#: This many stale alarms are tolerated.
FEW: Final = 64

T = TypeVar("T")


class Alarms(Generic[T]):
    """A heap of alarms. `stands` tells whether an alarm for this time and subject still counts; `living()` is the number of
    subjects.

    Most alarms are set for times long after their subject is gone: they must not keep it in memory.
    """

    def __init__(self, stands: Callable[[Millis, T], bool], living: Callable[[], int]) -> None:
        self._stands = stands
        self._living = living
        #: (when, name, subject): the name decides between equal times, since it can be compared
        self._heap: list[tuple[Millis, str, T]] = []

    def __len__(self) -> int:
        """The number of alarms, stale ones included."""
        return len(self._heap)

    def set(self, when: Millis, name: str, subject: T) -> None:
        heappush(self._heap, (when, name, subject))
        if len(self._heap) > 2 * self._living() + FEW:
            standing = {each[:2]: each for each in self._heap if self._stands(each[0], each[2])}
            self._heap[:] = standing.values()
            heapify(self._heap)

    def next(self) -> Millis | None:
        """The time of the first alarm."""
        heap = self._heap
        while heap and not self._stands(heap[0][0], heap[0][2]):
            heappop(heap)
        return heap[0][0] if heap else None

    def due(self, now: Millis) -> T | None:
        """Take out the first alarm that is due by now; None when there is none."""
        when = self.next()
        return heappop(self._heap)[2] if when is not None and when <= now else None

    def clear(self) -> None:
        self._heap.clear()
