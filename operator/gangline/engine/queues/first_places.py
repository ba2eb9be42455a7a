"""What each of many buckets offers, with the first offers at hand: only buckets that changed are asked again."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from heapq import heapify, heappop, heappush
from typing import Generic, Protocol, TypeAlias, TypeVar

from gangline.engine.queues.ranked_index import Order, RankedPlace


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
