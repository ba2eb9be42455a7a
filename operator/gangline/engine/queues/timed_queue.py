"""The pending workloads of a ClusterQueue whose policy uses time: any order, reservations, and backfill.

As in `pending_queue`, workloads of one shape share a bucket. A bucket is *inadmissible* when its shape does not fit now, and
*held back* up to a *horizon* when it fits but would delay a reservation that starts then: of a bucket that is held back only
workloads are offered that would end by the horizon, or that precede every reserved workload.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from heapq import merge
from itertools import islice
from typing import TypeAlias, cast

from gangline.engine.model import Millis
from gangline.engine.queues.demand import Demand
from gangline.engine.queues.ordering import ANYWHERE, AT_ONCE, LAST, Flavors, Ranking
from gangline.engine.queues.pending_queue import PendingQueue
from gangline.engine.queues.quick_check import Question, could_fit
from gangline.engine.queues.ranked_index import FirstPlaces, RankedIndex, RankedPlace
from gangline.engine.queues.states import LifecycleState
from gangline.engine.queues.workload_parts import WorkloadShape
from gangline.engine.queues.workload_state import Bucket, WorkloadState

#: (-priority, usage of its LocalQueue, rank, since, uid)
Turn: TypeAlias = tuple[int, float, float, Millis, str]


#: A new reason is reported to all of a shape at most this often: reasons may change with every start and end.
RETELL: Millis = 600_000


class TimedBucket(Bucket):
    __slots__ = (
        "candidates",
        "horizon",
        "key",
        "line",
        "local_queue",
        "on",
        "question",
        "reported",
        "reported_at",
        "representative",
        "shape",
        "varying",
    )

    def __init__(self, key: tuple[str, WorkloadShape], apart: bool) -> None:
        super().__init__()
        self.key = key
        self.local_queue, self.shape = key
        self.line = RankedIndex()
        #: the same workloads in the order of backfill candidates, where that is another order
        self.candidates = RankedIndex() if apart else self.line
        self.horizon: Millis | None = None
        #: the flavors that its estimates are for: those on which one of them was held back last
        self.on: Flavors = ANYWHERE
        #: its workloads whose estimates depend on the flavors, by uid
        self.varying: dict[str, WorkloadState] = {}
        #: the workload whose failed attempt keeps the bucket inadmissible or held back
        self.representative: WorkloadState | None = None
        #: the reason reported for every workload in it, "" if one arrived since
        self.reported = ""
        self.reported_at: Millis = -RETELL
        #: what `quick_check` has to count for its shape, None = not computed yet
        self.question: Question | None = None

    @property
    def blocked(self) -> bool:
        return self.inadmissible or self.horizon is not None


class TimedQueue(PendingQueue):
    """See the module's docstring. `now` has to be set before anything is popped."""

    def __init__(self, ranking: Ranking) -> None:
        super().__init__()
        self.ranking = ranking
        #: what LocalQueues ask for, where that is their order
        self.demand: Demand | None = None
        self.now: Millis = 0
        #: the workloads with a reservation, and whether the policy allows no more of them
        self.reserved: tuple[WorkloadState, ...] = ()
        self.all_reserved = False
        #: reserved workloads whose start has come, to be tried whatever holds their shape back
        self.due: list[WorkloadState] = []
        #: one grows with everything that may change which workloads wait here, the other with what may change which are
        #: blocked
        self.version = 0
        self.blocked_version = 0
        #: computes what `quick_check` counts for a shape; None = no quick check
        self.question_of: Callable[[WorkloadState], Question] | None = None
        self._table: dict[tuple[str, WorkloadShape], TimedBucket] = {}
        self._of_shape: dict[WorkloadShape, dict[TimedBucket, None]] = {}
        #: those that are blocked, and those of them that are held back
        self._blocked: dict[TimedBucket, None] = {}
        self._held_back: dict[TimedBucket, None] = {}
        #: what was last reserved, and when: it decides what buckets that are held back offer
        self._seen: tuple[Turn | None, tuple[WorkloadState, ...], Millis] = (None, (), 0)
        #: first workloads: of buckets that are not blocked; of those held back that may be tried; in the order of candidates; of
        #: blocked ones
        self._untried = FirstPlaces[TimedBucket](lambda bucket: None if bucket.blocked else bucket.line.first())
        self._offered = FirstPlaces(self._offer_of_held_back)
        self._candidates = FirstPlaces(self._candidate_of)
        self._waiting = FirstPlaces[TimedBucket](lambda bucket: bucket.line.first() if bucket.blocked else None)

    def go_on_from(self, other: TimedQueue) -> None:
        """Take the place of another queue, whose workloads follow."""
        self.now, self.reserved, self.all_reserved = other.now, other.reserved, other.all_reserved
        self.version, self.blocked_version = other.version + 1, other.blocked_version + 1

    def _note(self, bucket: TimedBucket) -> None:
        """The bucket has other workloads, or is blocked in another way."""
        blocked = self._blocked
        if bucket.blocked and bucket.line.size:
            blocked[bucket] = None
        else:
            blocked.pop(bucket, None)
        if bucket.horizon is not None and not bucket.inadmissible and bucket.line.size:
            self._held_back[bucket] = None
        else:
            self._held_back.pop(bucket, None)
        for firsts in (self._untried, self._offered, self._waiting):
            firsts.change(bucket)
        if self.ranking.candidate_rank is not None:
            self._candidates.change(bucket)

    def configure(self, *, strict: bool, hashing: bool, usage_of: Callable[[str], float] | None) -> None:
        """Reservations keep heads from starving, so a strict queue is not blocked by its head."""
        del strict, hashing
        regroup = (usage_of is None) != (self.usage_of is None)
        gangs = [place.gang for bucket in self._table.values() for place in bucket.line] if regroup else []
        for gang in gangs:
            self.take_out(gang)
        self.usage_of = usage_of
        for gang in gangs:
            self.arrive(gang)

    def ask(self, question_of: Callable[[WorkloadState], Question]) -> None:
        """Set the function that computes what `quick_check` counts for a shape."""
        self.question_of = question_of
        for bucket in self._table.values():
            bucket.question = None

    def total(self) -> int:
        return sum(bucket.line.size for bucket in self._table.values()) + len(self._inadmissible_alone)

    @property
    def lanes(self) -> int:
        return self._untried.local_queues + self._offered.local_queues + self._waiting.local_queues

    # --- in and out ---------------------------------------------------------------------------------------------------

    def arrive(self, gang: WorkloadState) -> None:
        """Queue a workload by order; its bucket keeps its state."""
        self.version += 1
        ranking = self.ranking
        key = (gang.local_queue if self.usage_of is not None else "", gang.shape)
        bucket = self._table.get(key)
        if bucket is None:
            bucket = self._table[key] = TimedBucket(key, ranking.candidate_rank is not None)
            mates = self._of_shape.setdefault(gang.shape, {})
            mate = next(iter(mates), None)
            if mate is not None:
                bucket.inadmissible, bucket.horizon = mate.inadmissible, mate.horizon
                bucket.representative, bucket.on = mate.representative, mate.on
            mates[bucket] = None
        _, rank, estimate, second_rank = self._ranked(gang)
        if ranking.varies(gang):
            bucket.varying[gang.uid] = gang
            estimate = ranking.estimate(gang, bucket.on)
        place = second = RankedPlace((-gang.priority, rank, gang.since, gang.uid), estimate, gang)
        bucket.line.add(place)
        if bucket.candidates is not bucket.line:
            second = RankedPlace((-gang.priority, second_rank, gang.since, gang.uid), estimate, gang)
            bucket.candidates.add(second)
        gang.bucket, gang.entry = bucket, (place, second)
        gang.enter(LifecycleState.PENDING)
        if self.demand is not None:
            self.demand.wait(gang)
        if bucket.blocked:
            self.blocked_version += 1
        else:
            bucket.reported = ""
            self.active += 1
        self._note(bucket)

    def _ranked(self, gang: WorkloadState) -> tuple[object, float, Millis, float]:
        ranking = self.ranking
        if gang.ranked is None or gang.ranked[0] is not ranking:
            second = ranking.second_rank(gang)
            gang.ranked = ranking, ranking.rank(gang), ranking.estimate(gang), second
        return gang.ranked

    def take_out(self, gang: WorkloadState, into: LifecycleState = LifecycleState.MOVING) -> None:
        bucket = cast("TimedBucket | None", gang.bucket)
        if self.demand is not None and into is not LifecycleState.NOMINATED:
            self.demand.leave(gang)
        if bucket is not None:
            place, second = gang.entry
            self.version += 1
            gang.bucket = gang.entry = None
            gang.enter(into)
            bucket.varying.pop(gang.uid, None)
            bucket.line.remove(place)
            if bucket.candidates is not bucket.line:
                bucket.candidates.remove(second)
            if bucket.blocked:
                self.blocked_version += 1
            else:
                self.active -= 1
            if not bucket.line.size:
                self._drop(bucket)
            self._note(bucket)
        else:
            self._let_go(gang)

    def _drop(self, bucket: TimedBucket) -> None:
        """The last workload of its shape has left. What was found out about the shape is dropped with it."""
        del self._table[bucket.key]
        mates = self._of_shape[bucket.shape]
        del mates[bucket]
        if not mates:
            del self._of_shape[bucket.shape]

    def rank_again(self, gang: WorkloadState) -> None:
        """Put the workload at its place after its forecast has changed, or time has passed."""
        gang.ranked = None
        if gang.bucket is not None:
            self.take_out(gang)
            self.arrive(gang)

    def rank_all_again(self) -> None:
        waiting = [place.gang for bucket in self._table.values() for place in bucket.line]
        for gang in [*waiting, *self._inadmissible_alone.values()]:
            self.rank_again(gang)

    # --- the head -----------------------------------------------------------------------------------------------------

    def turn(self, gang: WorkloadState) -> Turn:
        """The workload's position in the queue's order, even where it is not in the queue."""
        return (-gang.priority, self._usage_of(gang), self._ranked(gang)[1], gang.since, gang.uid)

    def turn_with(self, gang: WorkloadState, length: Millis) -> Turn:
        """The position that it would have here if it were expected to run for `length`."""
        rank = self.ranking.rank_with(gang, length)
        return (-gang.priority, self._usage_of(gang), rank, gang.since, gang.uid)

    def head(self) -> WorkloadState | None:
        sticky = self._sticky()
        if sticky is not None:
            return sticky
        while self.due:
            gang = self.due.pop(0)
            bucket = cast("TimedBucket | None", gang.bucket)
            if bucket is not None and not bucket.inadmissible:
                return gang
        self._regard_reserved()
        fence = self._seen[0]
        offers = (*self._untried.firsts(), *self._offered.firsts())
        first = min((self._turn_at(bucket, place) for bucket, place in offers), default=None, key=_first)
        if first is None:
            return None
        if self.ranking.candidate_rank is None or fence is None or not self.all_reserved or first[0] <= fence:
            return first[1]
        candidates = [place for _, place in self._candidates.firsts()]
        return min(candidates, key=_order_of).gang if candidates else None

    def _regard_reserved(self) -> None:
        """Where time has passed, or others are reserved a start, buckets that are held back may offer something else."""
        seen = (max((self.turn(gang) for gang in self.reserved), default=None), self.reserved, self.now)
        if seen != self._seen:
            self._seen = seen
            for bucket in self._held_back:
                self._offered.change(bucket)
                self._candidates.change(bucket)

    def _sticky(self) -> WorkloadState | None:
        for gang in (*self.returning.values(), self.held, self.preemptor):
            bucket = cast("TimedBucket | None", gang.bucket) if gang is not None else None
            if bucket is not None and not bucket.blocked:
                return gang
        return None

    def _offer_of_held_back(self, bucket: TimedBucket) -> RankedPlace | None:
        """The first workload that precedes all reserved ones (`fence` is the turn of their last), or that would end in time."""
        if bucket.inadmissible or bucket.horizon is None:
            return None
        fence, reserved, now = self._seen
        place = next((place for place in bucket.line if place.gang not in reserved), None)
        if place is None or fence is None or self._turn_at(bucket, place)[0] > fence:
            place = bucket.line.first(bucket.horizon - now)
        return place

    def _candidate_of(self, bucket: TimedBucket) -> RankedPlace | None:
        if bucket.inadmissible:
            return None
        return bucket.candidates.first(None if bucket.horizon is None else bucket.horizon - self._seen[2])

    def _turn_at(self, bucket: TimedBucket, place: RankedPlace) -> tuple[Turn, WorkloadState]:
        order = place.order
        return (order[0], self._usage_of(place.gang), order[1], order[2], order[3]), place.gang

    def _usage_of(self, gang: WorkloadState) -> float:
        if gang.goes_after:
            return LAST
        return AT_ONCE if self.ranking.precedes_all(gang) else self._usage(gang.local_queue)

    def _usage(self, local_queue: str) -> float:
        return self.usage_of(local_queue) if self.usage_of is not None else 0.0

    # --- aside and back -----------------------------------------------------------------------------------------------

    def mark_inadmissible(self, gang: WorkloadState) -> bool:
        return self._block(gang, None)

    def hold_back(self, gang: WorkloadState, horizon: Millis, on: Flavors = ANYWHERE) -> bool:
        """Hold back workloads of a shape (in flight: `gang`) that would delay a reservation that starts at `horizon`, on the
        flavors that they would be given now. False if there are no others of the shape.
        """
        others = self._block(gang, horizon)
        for bucket in self._of_shape[gang.shape]:
            self._limit_to(bucket, on)
        return others

    def _limit_to(self, bucket: TimedBucket, on: Flavors) -> None:
        """Offer only workloads of this bucket from now on that would end soon enough on these flavors."""
        if bucket.on == on:
            return
        bucket.on = on
        for gang in bucket.varying.values():
            estimate = self.ranking.estimate(gang, on)
            place, second = gang.entry
            bucket.line.remove(place)
            place = place._replace(estimate=estimate)
            bucket.line.add(place)
            if bucket.candidates is bucket.line:
                second = place
            else:
                bucket.candidates.remove(second)
                second = second._replace(estimate=estimate)
                bucket.candidates.add(second)
            gang.entry = (place, second)
        self._note(bucket)

    def _block(self, gang: WorkloadState, horizon: Millis | None) -> bool:
        self.arrive(gang)
        self.blocked_version += 1
        mine, others = cast("TimedBucket", gang.bucket), False
        for bucket in self._of_shape[gang.shape]:
            if not bucket.blocked:
                self.active -= bucket.line.size
            others = others or bucket.line.size > 1 or bucket is not mine
            bucket.inadmissible, bucket.horizon, bucket.representative = horizon is None, horizon, gang
            self._note(bucket)
        return others

    def representative(self, gang: WorkloadState) -> WorkloadState:
        bucket = cast("TimedBucket | None", gang.bucket)
        if bucket is None or not bucket.blocked or bucket.representative is None:
            return gang
        return bucket.representative

    def flush(self, may_try: Callable[[WorkloadState], bool]) -> bool:
        moved = self._unblock([bucket for bucket in self._blocked if self._could_fit(bucket)])
        return self._bring_back(may_try) or moved

    def _bring_shape_back(self, shape: WorkloadShape) -> bool:
        return self._unblock([bucket for bucket in self._of_shape.get(shape, ()) if bucket.inadmissible])

    @property
    def keeps_back(self) -> bool:
        return self.blocks_any()

    def _could_fit(self, bucket: TimedBucket) -> bool:
        if not bucket.inadmissible or self.question_of is None or bucket.representative is None:
            return True
        if bucket.question is None:
            bucket.question = self.question_of(bucket.representative)
        return could_fit(bucket.question)

    def release_held(self) -> bool:
        """Reservations changed: held back buckets may be tried again."""
        return self._unblock(list(self._held_back))

    def _unblock(self, buckets: Iterable[TimedBucket]) -> bool:
        moved = False
        self.version += 1
        for bucket in buckets:
            if bucket.blocked:
                bucket.inadmissible, bucket.horizon, bucket.representative = False, None, None
                self.active += bucket.line.size
                self._note(bucket)
                moved = True
        return moved

    # --- looking ------------------------------------------------------------------------------------------------------

    def blocked(self, most: int, can_never_fit: Callable[[WorkloadState], bool]) -> list[WorkloadState]:
        """The first workloads that were tried and cannot start now, in queue order, without shapes that can never fit."""
        while True:
            buckets = [bucket for bucket, _ in self._waiting.firsts(most)]
            hopeless = [bucket for bucket in buckets if bucket.representative and can_never_fit(bucket.representative)]
            if not hopeless:
                lines = [self._turns(bucket) for bucket in buckets]
                return [gang for _, gang in islice(merge(*lines, key=_first), most)]
            for bucket in hopeless:
                self._waiting.leave_out(bucket)

    def blocks_any(self) -> bool:
        """Whether some were tried and cannot start now."""
        return bool(self._blocked)

    def first_untried(self, others: Iterable[WorkloadState]) -> Turn | None:
        """The turn of the first workload that has not been tried yet, these (in flight) included."""
        firsts = [self.turn(gang) for gang in others]
        firsts += [self._turn_at(bucket, place)[0] for bucket, place in self._untried.firsts()]
        return min(firsts, default=None)

    def _turns(self, bucket: TimedBucket) -> Iterator[tuple[Turn, WorkloadState]]:
        usage, precedes_all = self._usage(bucket.local_queue), self.ranking.precedes_all
        for place in bucket.line:
            order, gang = place.order, place.gang
            used = self._usage_of(gang) if gang.goes_after or precedes_all(gang) else usage
            yield (order[0], used, order[1], order[2], order[3]), gang

    def in_heap(self) -> list[WorkloadState]:
        return self._in_order(bucket for bucket in self._table.values() if not bucket.blocked)

    def inadmissible(self) -> list[WorkloadState]:
        return self._in_order(
            (bucket for bucket in self._table.values() if bucket.blocked), self._inadmissible_alone.values()
        )

    def in_queue_order(self) -> list[WorkloadState]:
        everyone = self._in_order(self._table.values(), self._inadmissible_alone.values())
        return everyone if self.in_flight is None else [self.in_flight, *everyone]

    def waiting(self) -> list[WorkloadState]:
        """All workloads that may be tried, blocked or not, in queue order."""
        return self._in_order(self._table.values())

    def _in_order(self, buckets: Iterable[TimedBucket], others: Iterable[WorkloadState] = ()) -> list[WorkloadState]:
        gangs = [turn for bucket in buckets for turn in self._turns(bucket)]
        gangs += [(self.turn(gang), gang) for gang in others]
        sticky = self._sticky()
        return [gang for _, gang in sorted(gangs, key=lambda each: (each[1] is not sticky, each[0]))]

    def one_of_each(self) -> Iterator[WorkloadState]:
        for bucket in self._table.values():
            first = bucket.line.first()
            if first is not None:
                yield first.gang
        yield from self._inadmissible_alone.values()

    def note_reported(self, gang: WorkloadState) -> None:
        """Note that a reason was reported: in this queue, reasons are reported again from time to time (`RETELL`)."""

    def unreported_mates(self, gang: WorkloadState, reason: str) -> Iterator[WorkloadState]:
        """The workloads of the same shape to which the reason has to be reported, as in any queue; but a reason that was reported
        lately is not replaced so soon.
        """
        for bucket in self._of_shape.get(gang.shape, ()):
            if not bucket.blocked or bucket.reported == reason:
                continue
            due = self.now >= bucket.reported_at + RETELL
            if due:
                bucket.reported_at = self.now
            bucket.reported = reason
            for place in bucket.line:
                reported = place.gang.attempts.reported[0]
                if place.gang is not gang and reported != reason and (due or not reported):
                    yield place.gang


def _order_of(place: RankedPlace) -> tuple[int, float, Millis, str]:
    return place.order


def _first(offer: tuple[Turn, WorkloadState]) -> Turn:
    return offer[0]
