"""Pending workloads of one ClusterQueue, in order.

A workload is in one of three places: in the heap, inadmissible, or in flight (the head of the present cycle). Workloads of one
shape are interchangeable, so they share a *bucket*: when one of them cannot be admitted all become inadmissible in one step,
and so do later arrivals of that shape, until something is released (`flush`).

Order: [usage of the LocalQueue, in fair-sharing queues] → workloads that were moved → the workload held until others' pods are
ready → the sticky preemptor (not in StrictFIFO) → priority, highest first → time, oldest first → uid.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from heapq import heapify, heappop, heappush
from operator import attrgetter
from typing import Final, TypeAlias

from gangline.engine.queues.states import LifecycleState
from gangline.engine.queues.workload_parts import WorkloadShape
from gangline.engine.queues.workload_state import Bucket, WorkloadState

#: (since, uid, gang)
Entry: TypeAlias = tuple[int, str, WorkloadState]
#: (-priority, since, uid, bucket): the key of a bucket's first workload
Listing: TypeAlias = "tuple[int, int, str, ShapeBucket]"


class ShapeBucket(Bucket):
    """Waiting workloads of one shape, in order. Entries of workloads that left are dropped when they come to the top."""

    __slots__ = ("entries", "lane", "listing", "reported", "shape", "size")

    def __init__(self, shape: WorkloadShape, lane: BucketOrder, inadmissible: bool) -> None:
        super().__init__(inadmissible=inadmissible)
        self.shape = shape
        self.lane = lane
        self.entries: list[Entry] = []
        self.size = 0
        #: the reason reported for every workload in it, "" if one arrived since
        self.reported = ""
        #: its one valid entry in the lane's heap
        self.listing: Listing | None = None

    def __lt__(self, other: ShapeBucket) -> bool:
        return False  # entries that are equal so far belong to one workload: any order will do

    def top(self) -> Entry | None:
        entries = self.entries
        while entries and entries[0][2].entry is not entries[0]:
            heappop(entries)
        return entries[0] if entries else None

    def live(self) -> Iterator[WorkloadState]:
        return (entry[2] for entry in self.entries if entry[2].entry is entry)


class BucketOrder:
    """Buckets that compete by priority and time: all of a ClusterQueue, or one LocalQueue's where usage orders those."""

    __slots__ = ("buckets", "heap", "name")

    def __init__(self, name: str) -> None:
        self.name = name
        self.buckets: dict[WorkloadShape, ShapeBucket] = {}
        self.heap: list[Listing] = []

    def list_bucket(self, bucket: ShapeBucket) -> None:
        """Make sure that the heap has an entry for the bucket's first workload."""
        top = bucket.top()
        if top is None or bucket.inadmissible:
            return
        gang = top[2]
        listing: Listing = (-gang.priority, top[0], top[1], bucket)
        if bucket.listing is None or listing < bucket.listing:
            bucket.listing = listing
            heappush(self.heap, listing)
            self._compact()

    def drop_bucket(self, bucket: ShapeBucket) -> None:
        """The last workload of its shape has left."""
        del self.buckets[bucket.shape]
        bucket.listing = None
        self._compact()

    def _compact(self) -> None:
        """Entries that no longer count are removed when they are many: behind a blocked head none comes to the top."""
        if len(self.heap) > 2 * len(self.buckets) + 16:
            self.heap = [listing for listing in self.heap if listing[3].listing is listing]
            heapify(self.heap)

    def top(self) -> WorkloadState | None:
        while self.heap:
            listing = self.heap[0]
            bucket = listing[3]
            if bucket.listing is listing:
                first = None if bucket.inadmissible else bucket.top()
                if first is not None and first[0] == listing[1] and first[1] == listing[2]:
                    return first[2]
                bucket.listing = None
                heappop(self.heap)
                self.list_bucket(bucket)
            else:
                heappop(self.heap)
        return None


class PendingQueue:
    """See the module's docstring. `usage_of`, if given, orders LocalQueues: the one that has used least is first."""

    def __init__(self) -> None:
        self.strict = False
        #: equal shapes become inadmissible together
        self.hashing = True
        self.usage_of: Callable[[str], float] | None = None
        self.preemptor: WorkloadState | None = None
        #: it fits, and waits for nothing but the pods of others to become ready: it is tried first, as in Kueue, whose cycle
        #: stops at it until they are
        self.held: WorkloadState | None = None
        #: workloads that were moved, for which room is kept, by uid: they are tried before all others
        self.returning: dict[str, WorkloadState] = {}
        self.in_flight: WorkloadState | None = None
        #: uid of the head that was tried last
        self.tried = ""
        #: number of workloads in the heap
        self.active = 0
        #: those with buckets, and the buckets of each shape
        self._lanes: dict[str, BucketOrder] = {}
        self._mates: dict[WorkloadShape, dict[BucketOrder, ShapeBucket]] = {}
        #: shape -> the workload whose attempt failed
        self._inadmissible_shapes: dict[WorkloadShape, WorkloadState] = {}
        self._inadmissible_alone: dict[str, WorkloadState] = {}

    def configure(self, *, strict: bool, hashing: bool, usage_of: Callable[[str], float] | None) -> None:
        """Set the queue's order and sort what waits in it."""
        regroup = hashing != self.hashing or (usage_of is None) != (self.usage_of is None)
        gangs = [gang for gang in self.everyone() if not gang.inadmissible_alone] if regroup else []
        for gang in gangs:
            self.take_out(gang)
        self.strict, self.hashing, self.usage_of = strict, hashing, usage_of
        for gang in gangs:
            self.arrive(gang)

    def total(self) -> int:
        return sum(bucket.size for lane in self._lanes.values() for bucket in lane.buckets.values()) + len(
            self._inadmissible_alone
        )

    @property
    def lanes(self) -> int:
        """How many LocalQueues are compared to find the head."""
        return len(self._lanes)

    # --- in and out ---------------------------------------------------------------------------------------------------

    def arrive(self, gang: WorkloadState) -> None:
        """Queue a workload by order; it is inadmissible if its shape is."""
        lane = self._lane_of(gang)
        shape = gang.shape if self.hashing else WorkloadShape(gang.uid)
        bucket = lane.buckets.get(shape)
        if bucket is None:
            bucket = lane.buckets[shape] = ShapeBucket(shape, lane, shape in self._inadmissible_shapes)
            self._mates.setdefault(shape, {})[lane] = bucket
        entry: Entry = (gang.since, gang.uid, gang)
        gang.bucket, gang.entry = bucket, entry
        gang.enter(LifecycleState.PENDING)
        heappush(bucket.entries, entry)
        bucket.size += 1
        if not bucket.inadmissible:
            self.note_reported(gang)
            self.active += 1
            if bucket.entries[0] is entry:
                lane.list_bucket(bucket)

    def set_alone_inadmissible(self, gang: WorkloadState, cause: str = "") -> None:
        """Make one workload inadmissible, whatever its shape."""
        self._inadmissible_alone[gang.uid] = gang
        gang.enter(LifecycleState.INADMISSIBLE, cause)

    def take_out(self, gang: WorkloadState, into: LifecycleState = LifecycleState.MOVING) -> None:
        """Remove a workload that is gone or moves to another queue. Does nothing if it is not here."""
        bucket = _bucket_of(gang)
        if bucket is not None:
            gang.bucket = gang.entry = None
            gang.enter(into)
            bucket.size -= 1
            if not bucket.inadmissible:
                self.active -= 1
            if not bucket.size:
                self._drop_shape(bucket)
            elif len(bucket.entries) > 2 * bucket.size + 16:
                bucket.entries = [entry for entry in bucket.entries if entry[2].entry is entry]
                heapify(bucket.entries)
        else:
            self._let_go(gang)

    def _drop_shape(self, bucket: ShapeBucket) -> None:
        """The last workload of its shape has left the lane. Few shapes are remembered of which none waits any more."""
        lane, mates = bucket.lane, self._mates[bucket.shape]
        lane.drop_bucket(bucket)
        del mates[lane]
        if not mates:
            del self._mates[bucket.shape]
            if len(self._inadmissible_shapes) > 2 * len(self._mates) + 16:
                known = self._inadmissible_shapes.items()
                self._inadmissible_shapes = {shape: gang for shape, gang in known if shape in self._mates}
        if not lane.buckets:
            del self._lanes[lane.name]

    def _let_go(self, gang: WorkloadState) -> None:
        """Release a workload that is in no bucket: inadmissible alone, in flight, or not here."""
        if gang.inadmissible_alone:
            del self._inadmissible_alone[gang.uid]
            gang.enter(LifecycleState.MOVING)
        elif self.in_flight is gang:
            self.in_flight = None

    def forget_precedence(self, gang: WorkloadState) -> None:
        if self.preemptor is gang:
            self.preemptor = None
        if self.held is gang:
            self.held = None
        self.returning.pop(gang.uid, None)

    def _lane_of(self, gang: WorkloadState) -> BucketOrder:
        name = gang.workload.queue if self.usage_of is not None else ""
        if name and self.usage_of is not None:
            name = f"{gang.workload.namespace}/{name}"
        lane = self._lanes.get(name)
        if lane is None:
            lane = self._lanes[name] = BucketOrder(name)
        return lane

    # --- the head -----------------------------------------------------------------------------------------------------

    def head(self) -> WorkloadState | None:
        if not self.active:
            return None
        lane = self._lanes.get("") if self.usage_of is None else self._least_used_lane()
        if lane is None:
            return None
        first = lane.top()
        sticky = self._sticky()
        if sticky is not None and (bucket := _bucket_of(sticky)) is not None and bucket.lane is lane:
            return sticky
        return first

    def _sticky(self) -> WorkloadState | None:
        """The workload in the heap that precedes higher priorities: one that moved, the held one, or else the preemptor."""
        for gang in (*self.returning.values(), self.held, None if self.strict else self.preemptor):
            if gang is not None and gang.bucket is not None and not gang.bucket.inadmissible:
                return gang
        return None

    def _least_used_lane(self) -> BucketOrder | None:
        best: tuple[tuple[bool, float, int, int, int, str], BucketOrder] | None = None
        sticky = self._sticky()
        for name, lane in self._lanes.items():
            gang = lane.top()
            if gang is None:
                continue
            if sticky is not None and (bucket := _bucket_of(sticky)) is not None and bucket.lane is lane:
                gang = sticky
            rank = (gang.goes_after, self.usage_of(name) if self.usage_of else 0.0, *self._rank(gang))
            if best is None or rank < best[0]:
                best = rank, lane
        return best[1] if best else None

    def _rank(self, gang: WorkloadState) -> tuple[int, int, int, str]:
        return (0 if gang is self._sticky() else 1, -gang.priority, gang.since, gang.uid)

    def pop(self) -> WorkloadState | None:
        gang = self.head()
        if gang is not None:
            self.take_out(gang, LifecycleState.NOMINATED)
            self.in_flight = gang
            self.tried = gang.uid
        return gang

    def unpop(self, gang: WorkloadState) -> None:
        """The reverse of `pop`, for a head that was not tried."""
        self.take_out(gang)
        self.arrive(gang)

    def exchange(self, gang: WorkloadState, other: WorkloadState) -> WorkloadState:
        """Another workload of the heap is the head in place of the one that was popped. Returns it."""
        if other is not gang:
            self.unpop(gang)
            self.take_out(other, LifecycleState.NOMINATED)
            self.in_flight = other
        return other

    # --- aside and back -----------------------------------------------------------------------------------------------

    def mark_inadmissible(self, gang: WorkloadState) -> bool:
        """Make `gang` (in flight until now) and all of its shape inadmissible. False if there was no other one."""
        if not self.hashing:
            self.set_alone_inadmissible(gang)
            return False
        self._inadmissible_shapes[gang.shape] = gang
        others = False
        for bucket in self._mates.get(gang.shape, {}).values():
            if not bucket.inadmissible:
                bucket.inadmissible = True
                self.active -= bucket.size
                others = True
        self.arrive(gang)
        return others

    def representative(self, gang: WorkloadState) -> WorkloadState:
        """The workload whose failed attempt makes the gang's whole shape inadmissible; the gang itself if none does."""
        if gang.bucket is None or not gang.bucket.inadmissible:
            return gang
        return self._inadmissible_shapes.get(gang.shape, gang)

    def flush(self, may_try: Callable[[WorkloadState], bool]) -> bool:
        """Something was released: every workload that `may_try` returns to the heap. False if nothing moved."""
        moved = False
        for shape in list(self._inadmissible_shapes):
            moved = self._bring_shape_back(shape) or moved
        return self._bring_back(may_try) or moved

    def try_shape_again(self, gang: WorkloadState) -> None:
        """Workloads of this one's shape return to the heap, if they are inadmissible."""
        if gang.uid in self._inadmissible_alone:
            self.take_out(gang)
            self.arrive(gang)
        self._bring_shape_back(gang.shape)

    def _bring_shape_back(self, shape: WorkloadShape) -> bool:
        """Workloads of a shape that is inadmissible are queued again. False if there were none."""
        buckets = self._mates.get(shape, {}) if self._inadmissible_shapes.pop(shape, None) is not None else {}
        for lane, bucket in buckets.items():
            bucket.inadmissible = False
            self.active += bucket.size
            lane.list_bucket(bucket)
        return bool(buckets)

    @property
    def keeps_back(self) -> bool:
        """Whether some shapes are not even tried after a `flush`."""
        return False

    def _bring_back(self, may_try: Callable[[WorkloadState], bool]) -> bool:
        """Workloads that are inadmissible alone and `may_try` are queued again. False if there were none."""
        gangs = [gang for gang in self._inadmissible_alone.values() if may_try(gang)]
        for gang in gangs:
            self.take_out(gang)
            self.arrive(gang)
        return bool(gangs)

    # --- looking ------------------------------------------------------------------------------------------------------

    def in_heap(self) -> list[WorkloadState]:
        """The workloads of the heap, in queue order."""
        return self._sorted([gang for bucket in self._buckets() if not bucket.inadmissible for gang in bucket.live()])

    def in_queue_order(self) -> list[WorkloadState]:
        """All waiting workloads in queue order, inadmissible ones included: positions are counted in it."""
        return self._sorted(self.everyone())

    def _sorted(self, gangs: list[WorkloadState]) -> list[WorkloadState]:
        sticky = self._sticky()
        if self.usage_of is None:
            return sorted(gangs, key=lambda gang: (gang is not sticky, -gang.priority, gang.since, gang.uid))
        usage = {name: self.usage_of(name) for name in {gang.local_queue for gang in gangs}}
        return sorted(gangs, key=lambda gang: (gang.goes_after, usage[gang.local_queue], *self._rank(gang)))

    def inadmissible(self) -> list[WorkloadState]:
        """Inadmissible workloads, in the order in which they would be in the heap."""
        inadmissible = [gang for bucket in self._buckets() if bucket.inadmissible for gang in bucket.live()]
        return sorted((*inadmissible, *self._inadmissible_alone.values()), key=self._rank)

    def position(self, gang: WorkloadState) -> int:
        """The number of workloads before it, inadmissible ones included."""
        everyone = self.in_queue_order()
        return everyone.index(gang) if gang in everyone else len(everyone)

    def unreported_mates(self, gang: WorkloadState, reason: str) -> Iterator[WorkloadState]:
        """The others of its shape, inadmissible with it, to which this reason was not reported; from now on it counts as
        reported.
        """
        for bucket in tuple(self._mates.get(gang.shape, {}).values()):
            if bucket.inadmissible and bucket.reported != reason:
                bucket.reported = reason
                yield from (mate for mate in bucket.live() if mate is not gang and mate.attempts.reported[0] != reason)

    def note_reported(self, gang: WorkloadState) -> None:
        """A workload arrived, or a reason was reported for it: its bucket may no longer share one reason."""
        bucket = _bucket_of(gang)
        if bucket is not None and bucket.reported != gang.attempts.reported[0]:
            bucket.reported = ""

    def rank_again(self, gang: WorkloadState) -> None:
        """Do nothing after a change of the workload's forecast, which has no effect on this order."""

    def one_of_each(self) -> Iterator[WorkloadState]:
        """One waiting workload of every shape, in no particular order, and those that are inadmissible alone."""
        for bucket in self._buckets():
            first = bucket.top()
            if first is not None:
                yield first[2]
        yield from self._inadmissible_alone.values()

    def everyone(self) -> list[WorkloadState]:
        gangs = [*self.in_heap(), *self.inadmissible()]
        return gangs if self.in_flight is None else [self.in_flight, *gangs]

    def _buckets(self) -> Iterator[ShapeBucket]:
        for lane in self._lanes.values():
            yield from lane.buckets.values()


#: The bucket of a workload in this kind of queue, None if it has none.
_bucket_of: Final[Callable[[WorkloadState], ShapeBucket | None]] = attrgetter("bucket")
