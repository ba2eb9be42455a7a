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
from gangline.engine.queues.estimates import ANYWHERE, Flavors
from gangline.engine.queues.ordering import Ranking
from gangline.engine.queues.pending_queue import PendingQueue
from gangline.engine.queues.quick_check import Question, could_fit
from gangline.engine.queues.ranked_index import Place, RankedIndex
from gangline.engine.queues.states import State
from gangline.engine.queues.workload_state import Bucket, Shape, WorkloadState

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
        "representative",
        "shape",
        "told_at",
        "varying",
    )

    def __init__(self, key: tuple[str, Shape], apart: bool) -> None:
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
        self.told_at: Millis = -RETELL
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
        self._table: dict[tuple[str, Shape], TimedBucket] = {}
        self._of_shape: dict[Shape, list[TimedBucket]] = {}

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

    # --- in and out ---------------------------------------------------------------------------------------------------

    def arrive(self, gang: WorkloadState) -> None:
        """Queue a workload by order; its bucket keeps its state."""
        self.version += 1
        ranking = self.ranking
        key = (gang.local_queue if self.usage_of is not None else "", gang.shape)
        bucket = self._table.get(key)
        if bucket is None:
            bucket = self._table[key] = TimedBucket(key, ranking.candidate_rank is not None)
            mates = self._of_shape.setdefault(gang.shape, [])
            if mates:
                bucket.inadmissible, bucket.horizon = mates[0].inadmissible, mates[0].horizon
                bucket.representative, bucket.on = mates[0].representative, mates[0].on
            mates.append(bucket)
        _, rank, estimate, second_rank = self._ranked(gang)
        if ranking.varies(gang):
            bucket.varying[gang.uid] = gang
            estimate = ranking.estimate(gang, bucket.on)
        place = second = Place((-gang.priority, rank, gang.since, gang.uid), estimate, gang)
        bucket.line.add(place)
        if bucket.candidates is not bucket.line:
            second = Place((-gang.priority, second_rank, gang.since, gang.uid), estimate, gang)
            bucket.candidates.add(second)
        gang.bucket, gang.entry = bucket, (place, second)
        gang.enter(State.PENDING)
        if bucket.blocked:
            self.blocked_version += 1
        else:
            bucket.reported = ""
            self.active += 1

    def _ranked(self, gang: WorkloadState) -> tuple[object, float, Millis, float]:
        ranking = self.ranking
        if gang.ranked is None or gang.ranked[0] is not ranking:
            second = ranking.candidate_rank(gang) if ranking.candidate_rank is not None else 0.0
            gang.ranked = ranking, ranking.rank(gang), ranking.estimate(gang), second
        return gang.ranked

    def take_out(self, gang: WorkloadState, into: State = State.MOVING) -> None:
        bucket = cast("TimedBucket | None", gang.bucket)
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
        else:
            self._let_go(gang)

    def _drop(self, bucket: TimedBucket) -> None:
        """The last workload of its shape has left. What was found out about the shape is dropped with it."""
        del self._table[bucket.key]
        mates = self._of_shape[bucket.shape]
        mates.remove(bucket)
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
        return (-gang.priority, self._usage(gang.local_queue), self._ranked(gang)[1], gang.since, gang.uid)

    def turn_with(self, gang: WorkloadState, length: Millis) -> Turn:
        """The position that it would have here if it were expected to run for `length`."""
        rank = self.ranking.rank_with(gang, length)
        return (-gang.priority, self._usage(gang.local_queue), rank, gang.since, gang.uid)

    def head(self) -> WorkloadState | None:
        sticky = self._sticky()
        if sticky is not None:
            return sticky
        while self.due:
            gang = self.due.pop(0)
            bucket = cast("TimedBucket | None", gang.bucket)
            if bucket is not None and not bucket.inadmissible:
                return gang
        #: the turn of the last workload with a reservation: a workload that precedes it is no backfill candidate
        fence = max((self.turn(gang) for gang in self.reserved), default=None)
        first = min(self._offers(fence), default=None, key=_first)
        if first is None:
            return None
        if self.ranking.candidate_rank is None or fence is None or not self.all_reserved or first[0] <= fence:
            return first[1]
        best = min(self._candidates(), default=None, key=_first)
        return best[1] if best else None

    def _sticky(self) -> WorkloadState | None:
        for gang in (self.held, self.preemptor):
            bucket = cast("TimedBucket | None", gang.bucket) if gang is not None else None
            if bucket is not None and not bucket.blocked:
                return gang
        return None

    def _offers(self, fence: Turn | None) -> Iterator[tuple[Turn, WorkloadState]]:
        """The first workload of every bucket that may be tried."""
        for bucket in self._table.values():
            if bucket.inadmissible:
                continue
            usage = self._usage(bucket.local_queue)
            if bucket.horizon is None:
                place = bucket.line.first()
            else:
                place = next((place for place in bucket.line if place.gang not in self.reserved), None)
                if place is None or fence is None or not _ahead(place, usage, fence):
                    place = bucket.line.first(bucket.horizon - self.now)
            if place is not None:
                order = place.order
                yield (order[0], usage, order[1], order[2], order[3]), place.gang

    def _candidates(self) -> Iterator[tuple[Turn, WorkloadState]]:
        for bucket in self._table.values():
            if bucket.inadmissible:
                continue
            place = bucket.candidates.first(None if bucket.horizon is None else bucket.horizon - self.now)
            if place is not None:
                order = place.order
                yield (order[0], 0.0, order[1], order[2], order[3]), place.gang

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

    def _block(self, gang: WorkloadState, horizon: Millis | None) -> bool:
        self.arrive(gang)
        self.blocked_version += 1
        mine, others = cast("TimedBucket", gang.bucket), False
        for bucket in self._of_shape[gang.shape]:
            if not bucket.blocked:
                self.active -= bucket.line.size
            others = others or bucket.line.size > 1 or bucket is not mine
            bucket.inadmissible, bucket.horizon, bucket.representative = horizon is None, horizon, gang
        return others

    def representative(self, gang: WorkloadState) -> WorkloadState:
        bucket = cast("TimedBucket | None", gang.bucket)
        if bucket is None or not bucket.blocked or bucket.representative is None:
            return gang
        return bucket.representative

    def flush(self, may_try: Callable[[WorkloadState], bool]) -> bool:
        moved = self._unblock(bucket for bucket in self._table.values() if bucket.blocked and self._could_fit(bucket))
        return self._bring_back(may_try) or moved

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
        return self._unblock([bucket for bucket in self._table.values() if bucket.horizon is not None])

    def _unblock(self, buckets: Iterable[TimedBucket]) -> bool:
        moved = False
        self.version += 1
        for bucket in buckets:
            if bucket.blocked:
                bucket.inadmissible, bucket.horizon, bucket.representative = False, None, None
                self.active += bucket.line.size
                moved = True
        return moved

    # --- looking ------------------------------------------------------------------------------------------------------

    def blocked(self, most: int, can_never_fit: Callable[[WorkloadState], bool]) -> list[WorkloadState]:
        """The first workloads that were tried and cannot start now, in queue order, without shapes that can never fit."""
        lines = [
            self._turns(bucket)
            for bucket in self._table.values()
            if bucket.blocked and (bucket.representative is None or not can_never_fit(bucket.representative))
        ]
        if most == 1:
            firsts = [next(line) for line in lines]
            return [min(firsts, key=_first)[1]] if firsts else []
        return [gang for _, gang in islice(merge(*lines, key=_first), most)]

    def blocks_any(self) -> bool:
        """Whether some were tried and cannot start now."""
        return any(bucket.blocked for bucket in self._table.values())

    def first_untried(self, others: Iterable[WorkloadState]) -> Turn | None:
        """The turn of the first workload that has not been tried yet, these (in flight) included."""
        firsts = [self.turn(gang) for gang in others]
        for bucket in self._table.values():
            place = None if bucket.blocked else bucket.line.first()
            if place is not None:
                firsts.append(self.turn(place.gang))
        return min(firsts, default=None)

    def _turns(self, bucket: TimedBucket) -> Iterator[tuple[Turn, WorkloadState]]:
        usage = self._usage(bucket.local_queue)
        for place in bucket.line:
            order = place.order
            yield (order[0], usage, order[1], order[2], order[3]), place.gang

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
            due = self.now >= bucket.told_at + RETELL
            if due:
                bucket.told_at = self.now
            bucket.reported = reason
            for place in bucket.line:
                told = place.gang.reported[0]
                if place.gang is not gang and told != reason and (due or not told):
                    yield place.gang


def _ahead(place: Place, usage: float, fence: Turn) -> bool:
    order = place.order
    return (order[0], usage, order[1], order[2], order[3]) <= fence


def _first(offer: tuple[Turn, WorkloadState]) -> Turn:
    return offer[0]
