"""A sorted index of workloads that finds the first one whose estimate is short enough without looking at all of them."""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Callable, Iterator
from heapq import heapify, heappop, heappush
from typing import Generic, NamedTuple, Protocol, TypeAlias, TypeVar

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


# --- first places -----------------------------------------------------------------------------------------------------
# What each of many buckets offers, with the first offers at hand: only buckets that changed are asked again.


class Lined(Protocol):
    """A bucket, and the LocalQueue whose workloads it has ("" where LocalQueues do not matter)."""

    local_queue: str


B = TypeVar("B", bound=Lined)
#: order of the place, a number that tells entries apart, bucket, place
Entry: TypeAlias = tuple[Order, int, B, RankedPlace]


class FirstPlaces(Generic[B]):
    """The buckets that offer something, in the order of what they offer, by LocalQueue."""

    def __init__(self, offer: Callable[[B], RankedPlace | None]) -> None:
        """`offer` returns the place that a bucket offers, None for one that offers none."""
        self._offer = offer
        self._changed: dict[B, None] = {}
        self._entries: dict[B, Entry[B]] = {}
        self._heaps: dict[str, list[Entry[B]]] = {}
        #: how often a bucket was asked
        self.asked = 0

    @property
    def local_queues(self) -> int:
        """How many LocalQueues are compared to find the first of all."""
        return len(self._heaps)

    def change(self, bucket: B) -> None:
        """The bucket may offer something else from now on."""
        self._changed[bucket] = None
        if len(self._changed) > 2 * len(self._entries) + 64:
            self._catch_up()

    def leave_out(self, bucket: B) -> None:
        """What the bucket offers does not count until it changes."""
        self._entries.pop(bucket, None)

    def firsts(self, most: int = 1) -> Iterator[tuple[B, RankedPlace]]:
        """The first `most` offers of each LocalQueue, in order."""
        self._catch_up()
        for local_queue in list(self._heaps):
            heap = self._heaps[local_queue]
            found: list[Entry[B]] = []
            while heap and len(found) < most:
                entry = heappop(heap)
                if self._entries.get(entry[2]) is entry:
                    found.append(entry)
            for entry in found:
                heappush(heap, entry)
            if not heap:
                del self._heaps[local_queue]
            for entry in found:
                yield entry[2], entry[3]

    def _catch_up(self) -> None:
        for bucket in self._changed:
            self.asked += 1
            place, known = self._offer(bucket), self._entries.get(bucket)
            if place is None:
                self._entries.pop(bucket, None)
            elif known is None or known[3] is not place:
                entry = self._entries[bucket] = (place.order, self.asked, bucket, place)
                heappush(self._heaps.setdefault(bucket.local_queue, []), entry)
        self._changed.clear()
        if sum(map(len, self._heaps.values())) > 2 * len(self._entries) + 64:
            self._compact()

    def _compact(self) -> None:
        """Leave out entries that no longer count."""
        self._heaps.clear()
        for entry in self._entries.values():
            self._heaps.setdefault(entry[2].local_queue, []).append(entry)
        for heap in self._heaps.values():
            heapify(heap)
