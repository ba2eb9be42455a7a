"""A sorted index of workloads that finds the first one whose estimate is short enough without looking at all of them."""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Iterator
from typing import NamedTuple, TypeAlias

from gangline.engine.model import Millis
from gangline.engine.queues.workload_state import WorkloadState

#: (-priority, rank, since, uid): a workload's position among all that wait in its queue; the lowest is first
Order: TypeAlias = tuple[int, float, Millis, str]

#: A stretch is split in two when it gets longer than this.
_LONGEST = 96


class RankedPlace(NamedTuple):
    order: Order
    estimate: Millis
    gang: WorkloadState


class RankedIndex:
    """A sorted list in stretches; the shortest estimate of each stretch is known."""

    __slots__ = ("_shortest", "_stretches", "size")

    def __init__(self) -> None:
        self._stretches: list[list[RankedPlace]] = []
        self._shortest: list[Millis] = []
        self.size = 0

    def add(self, place: RankedPlace) -> None:
        stretches = self._stretches
        self.size += 1
        if not stretches:
            stretches.append([place])
            self._shortest.append(place.estimate)
            return
        index = self._find(place.order)
        stretch = stretches[index]
        insort(stretch, place, key=_order)
        self._shortest[index] = min(self._shortest[index], place.estimate)
        if len(stretch) > _LONGEST:
            half = len(stretch) // 2
            stretches[index : index + 1] = [stretch[:half], stretch[half:]]
            self._shortest[index : index + 1] = [_shortest(stretch[:half]), _shortest(stretch[half:])]

    def remove(self, place: RankedPlace) -> None:
        index = self._find(place.order)
        stretch = self._stretches[index]
        at = bisect_left(stretch, place.order, key=_order)
        if at == len(stretch) or stretch[at].gang is not place.gang:
            raise KeyError(place.gang.key)
        del stretch[at]
        self.size -= 1
        if not stretch:
            del self._stretches[index], self._shortest[index]
        elif self._shortest[index] == place.estimate:
            self._shortest[index] = _shortest(stretch)

    def first(self, longest: Millis | None = None) -> RankedPlace | None:
        """The first workload, or the first one whose estimate is at most `longest`."""
        if longest is None:
            return self._stretches[0][0] if self._stretches else None
        for stretch, shortest in zip(self._stretches, self._shortest, strict=True):
            if shortest <= longest:
                return next(place for place in stretch if place.estimate <= longest)
        return None

    def __iter__(self) -> Iterator[RankedPlace]:
        for stretch in self._stretches:
            yield from stretch

    def _find(self, order: Order) -> int:
        """The stretch that contains this order, or would."""
        low, high = 0, len(self._stretches) - 1
        while low < high:
            middle = (low + high) // 2
            if self._stretches[middle][-1].order < order:
                low = middle + 1
            else:
                high = middle
        return low


def _order(place: RankedPlace) -> Order:
    return place.order


def _shortest(stretch: list[RankedPlace]) -> Millis:
    return min(place.estimate for place in stretch)
