"""The timeline: one ledger of what is available over time, and the reservations in it.

Holders leave at their estimated ends. The `TimelineWorld` is what will be held at one moment, the *cursor*; moving the cursor
removes holders or puts them back, so a question about a moment costs what lies between it and the last one asked about. A
reservation is a gang with a start and everything that it will hold then: it is made by placing the whole gang in the world of
that moment, quota and nodes, never by counting.

Nothing is computed again that cannot have changed: a reservation is examined again when a holder that was to be gone by its
start stays, or when a holder leaves earlier than expected. Estimates are staircases (`runtime`), so time alone changes nothing
between two steps.
"""

from __future__ import annotations

from bisect import bisect_right, insort
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import chain

from gangline.engine.backfill.reservation import (
    FAR,
    BackfilledHolders,
    HeldCapacity,
    PlannedStart,
    Reservation,
    TimelineWorld,
    hold_of,
)
from gangline.engine.backfill.timeline_outlook import Spot, Stays, TimelineOutlook, enough_quota, fewest_releases
from gangline.engine.interference.work_paths import ENDLESS
from gangline.engine.model import Millis
from gangline.engine.model.runtime import NEVER
from gangline.engine.occupancy.fitting import add
from gangline.engine.queues.cluster_queue import ClusterQueueState
from gangline.engine.queues.ordering import Estimates, flavors_of
from gangline.engine.queues.promises import FORECAST, NODES, QUEUES
from gangline.engine.queues.workload_parts import WorkloadShape
from gangline.engine.queues.workload_state import WorkloadState
from gangline.engine.quota.quota_ledger import FlavorResource, QuotaNode
from gangline.engine.state.slowed_runs import ExpectedEnd, PlannedRun, seats_of
from gangline.engine.state.store import Store
from gangline.engine.text.alarms import Alarms
from gangline.engine.text.change_log import ChangeLog

#: Outlooks cached for shapes that may be reserved again.
_OUTLOOKS_KEPT = 32
#: Number of changed holders that are collected while no start is reserved.
_PUT_OFF = 256
#: all holders end as planned
NOBODY_LATER: Mapping[str, Millis] = {}
#: Moments at which an expected start is looked for, among other starts.
_MOST_MOMENTS = 64


class Tenant:
    """A holder in the timeline."""

    __slots__ = ("end", "gang", "hold", "review", "spots")

    def __init__(
        self, gang: WorkloadState, hold: HeldCapacity, end: Millis, review: Millis, spots: dict[Spot, Mapping[str, int]]
    ) -> None:
        self.gang = gang
        self.hold = hold
        #: the nodes and topology leaves that it uses, and how much of them
        self.spots = spots
        #: its expected end
        self.end = end
        #: when its end has to be estimated again
        self.review = review


class Timeline:
    """The timeline, kept only while some queue has reservations; `touch` is called for every holder that comes, leaves or
    changes.
    """

    def __init__(self, store: Store, estimates: Estimates) -> None:
        self._store = store
        self._estimates = estimates
        self._world: TimelineWorld | None = None
        self._tenants: dict[str, Tenant] = {}
        #: (end, key), sorted
        self._ends: list[tuple[Millis, str]] = []
        self._reviews = Alarms[str](self._to_review, lambda: len(self._tenants))
        self._cursor: Millis = 0
        self._stays = Stays()
        #: by queue and shape; least recently used first
        self._outlooks: dict[tuple[str, WorkloadShape], TimelineOutlook] = {}
        self.backfilled_holders = BackfilledHolders()
        #: the version of the nodes that was processed
        self._nodes = -1
        self._capacity_nodes = -1
        #: the end of the log of slowed runs that was processed; and the ends of such runs, as computed in this `sync`
        self._slowed_seen = ChangeLog.UNREAD
        self._ends_in_company: dict[str, ExpectedEnd] = {}
        #: by the workload that is left out: those whom reserved workloads will slow down; and what that was computed from
        self._delayed: dict[WorkloadState | None, Mapping[str, Millis]] = {}
        self._delayed_of: tuple[object, ...] = ()
        #: holders that the world at the cursor has although they would have ended without these delays
        self._overstaying: list[str] = []
        #: counts changes of holders
        self._version = 0
        self._now: Millis = 0
        self.reservations: list[Reservation] = []
        #: starts that others are expected to have: nobody is held back for them, and reservations do not regard them
        self.planned: list[PlannedStart] = []
        #: those of them that are regarded in the answer to the present question
        self._regarded: frozenset[PlannedStart] = _NO_STARTS
        #: the quantile at which holders are expected to end
        self.level = 0.5

    # --- keeping up ---------------------------------------------------------------------------------------------------

    def close(self) -> None:
        """Forget everything: no workload has a reservation any more."""
        self._world = None
        self._tenants.clear()
        self._ends.clear()
        self._overstaying.clear()
        self._delayed.clear()
        self._reviews.clear()
        self.reservations.clear()
        self.planned.clear()

    def keep_up(self, now: Millis) -> None:
        """`sync`, postponed while no start is reserved: holders that come and leave meanwhile cost nothing."""
        store = self._store
        if self.reservations or self.planned or len(store.moved_holders) + len(store.capacity.moved) >= _PUT_OFF:
            self.sync(now)

    def sync(self, now: Millis) -> None:
        """Process changes since the last call, and estimates that have expired."""
        store, self._now = self._store, now
        if store.slowed.on:
            self._follow_company(now)
        if self._world is None or store.trees_rebuilt or store.capacity.nodes_version != self._capacity_nodes:
            self._rebuild(now)
            return
        if store.capacity.moved:
            store.moved_holders.update(store.capacity.moved)
            store.capacity.moved = {}
        if store.node_ledger.version != self._nodes:
            self._note_nodes()
        if store.moved_holders:
            moved, store.moved_holders = store.moved_holders, {}
            for key in moved:
                self._renew(key, now)
        while (key := self._reviews.due(now)) is not None:
            for each in sorted(store.slowed.concerned((key,))) if store.slowed.on else (key,):
                self._renew(each, now)

    def _follow_company(self, now: Millis) -> None:
        """Note the holders whose company changed, and those whose ends depend on theirs."""
        self._ends_in_company.clear()
        self._slowed_seen, changed = self._store.slowed.changed_since(self._slowed_seen, now)
        self._store.moved_holders.update(dict.fromkeys(changed))

    def _rebuild(self, now: Millis) -> None:
        """The configuration changed: everything is built again, and all reservations are examined."""
        store = self._store
        cause = QUEUES if store.trees_rebuilt else NODES
        store.trees_rebuilt, store.moved_holders, store.capacity.moved = False, {}, {}
        self._capacity_nodes = store.capacity.nodes_version
        self._world = TimelineWorld(store)
        self._tenants, self._ends, self._cursor = {}, [], now
        self._overstaying.clear()
        self._reviews.clear()
        self._stays = Stays()
        self.backfilled_holders.start_over()
        for reservation in chain(self.reservations, self.planned):
            reservation.hold = None
        self._note_nodes(cause)
        for queue in store.queues.values():
            for gang in queue.holders.values():
                self._renew(gang.key, now)

    def _note_nodes(self, cause: str = NODES) -> None:
        """Nodes came, left or changed: every reservation is examined again, and counts are void."""
        self._nodes = self._store.node_ledger.version
        self._outlooks.clear()
        for reservation in chain(self.reservations, self.planned):
            reservation.may_move(cause)
            reservation.outlook = None

    def _renew(self, key: str, now: Millis) -> None:
        """Bring one holder in line with the present state."""
        world = self._world
        assert world is not None
        self._version += 1
        if self._overstaying:
            self._send_home(world)
        old = self._tenants.pop(key, None)
        if old is not None:
            self._ends.pop(bisect_right(self._ends, (old.end, key)) - 1)
            world.drop(key)
            self._stays.drop(key, old.spots)
        gang = self._store.gangs.get(key)
        before = old.end if old is not None else 0
        if gang is None or gang.quota.admission is None or gang.queue is None:
            self.backfilled_holders.drop(key)
            self._note(before, 0, key)
            return
        if gang.backfill.backfilled:
            self.backfilled_holders.put(key, gang)
        else:
            self.backfilled_holders.drop(key)
        end, review = self._end_of(gang, now)
        on_nodes = self._store.capacity.holding(gang)
        members, assigned = (on_nodes.members, on_nodes.assigned) if on_nodes is not None else ((), None)
        same = (
            old is not None
            and old.hold.usage == gang.quota.usage
            and old.hold.places == gang.quota.admission
            and (old.hold.assigned is assigned or old.hold.assigned == assigned)
        )
        needs = gang.node_needs(gang.quota.admission)
        hold = HeldCapacity(gang.queue.name, dict(gang.quota.usage), gang.quota.admission, members, assigned, needs)
        if old is not None and same:
            hold = old.hold
        spots = old.spots if same and old is not None else dict(world.placed(hold))
        tenant = self._tenants[key] = Tenant(gang, hold, end, review, spots)
        self._stays.put(key, spots, end)
        insort(self._ends, (end, key))
        if review < NEVER:
            self._reviews.set(review, key, key)
        if tenant.end > self._cursor:
            world.put(key, hold)
        self._note(before if same or old is None else NEVER, end, key)
        if old is not None and not same:
            self._note(0, end, key)

    def _to_review(self, when: Millis, key: str) -> bool:
        tenant = self._tenants.get(key)
        return tenant is not None and tenant.review == when

    def _note(self, before: Millis, after: Millis, key: str) -> None:
        """Record the reservations that this may move: later if a holder stays beyond it, earlier if one leaves earlier."""
        delayed = bool(self._delayed) and any(key in each for each in self._delayed.values())
        for reservation in chain(self.reservations, self.planned):
            if after > before and before <= reservation.start < after and key not in reservation.beside:
                reservation.may_move(FORECAST, None if before else self._store.gangs.get(key))
            elif after < before:
                reservation.better = True
            elif delayed and after > before:
                reservation.may_move(FORECAST)

    def _end_of(self, gang: WorkloadState, now: Millis) -> tuple[Millis, Millis]:
        """The expected end of a holder, and when to estimate it again."""
        if gang.evicting:
            return 0, NEVER
        stopped = self._stop_of(gang)
        runtime = self._estimates.of(gang)
        if runtime is None:
            return min(stopped, NEVER if gang.backfill.backfilled else FAR), NEVER
        if self._store.slowed.on and (found := self._end_in_company(gang, now)) is not None:
            return min(FAR, found.end), found.until
        start = gang.started_at
        estimate = runtime.estimate(max(0, now - start), self.level)
        return min(stopped, FAR, start + estimate.end), min(NEVER, start + estimate.until)

    def _stop_of(self, gang: WorkloadState) -> Millis:
        """When a holder is stopped for a window or for quotas that change."""
        ahead = self._store.capacity.window_ahead(gang)
        return min(ahead[0].begin if ahead is not None else NEVER, self._store.quotas_ahead.stop_of(gang))

    def _end_in_company(self, gang: WorkloadState, now: Millis) -> ExpectedEnd | None:
        """The expected end of a holder that has company, or had some."""
        if gang.key not in self._ends_in_company:
            self._ends_in_company.update(self._store.slowed.expected(gang, now, self._work_of, self._stop_of))
        return self._ends_in_company.get(gang.key)

    def _work_of(self, gang: WorkloadState, done: Millis) -> tuple[float, float]:
        runtime = self._estimates.of(gang)
        return runtime.estimate(done, self.level) if runtime is not None else (ENDLESS, ENDLESS)

    def has_run_for(self, gang: WorkloadState, length: Millis) -> Millis:
        """When a holder will have done what takes it so long alone."""
        if not self._store.slowed.on:
            return gang.started_at + length

        def work_of(each: WorkloadState, done: Millis) -> tuple[float, float]:
            return (length, length) if each is gang else self._work_of(each, done)

        found = self._store.slowed.expected(gang, self._now, work_of, self._stop_of)
        return found[gang.key].end if found else gang.started_at + length

    def if_begun(
        self, gang: WorkloadState, hold: HeldCapacity, length: Millis, begins: Millis
    ) -> tuple[Millis, dict[str, Millis]]:
        """When a workload that waits will have ended if it begins then with this hold, and takes `length` alone; and the later
        ends of those that it slows down: holders, and other reserved workloads.
        """
        world, slowed, end = self._world, self._store.slowed, min(NEVER, begins + length)
        if world is None or not slowed.on or begins >= FAR:
            return end, {}
        found = self._ends_if_begun(PlannedRun(gang, world.placed(hold), begins), length, self._heads(gang))
        later = {
            key: until
            for key, each in found.items()
            if key != gang.key and (until := min(FAR, each)) > self._end_beside(key, gang)
        }
        return found.get(gang.key, end), later

    def _ends_if_begun(self, run: PlannedRun, length: Millis, heads: Sequence[Reservation]) -> dict[str, Millis]:
        """The ends of a workload that takes `length` alone and of those whose ends depend on its, if it began so, and the `heads`
        as they are planned. Nothing where it has no company.
        """
        world = self._world
        assert world is not None
        lengths = {run.gang.key: length} | {each.gang.key: self._length_alone(each, each.hold) for each in heads}

        def work_of(each: WorkloadState, done: Millis) -> tuple[float, float]:
            alone = lengths.get(each.key)
            if alone is None:
                return self._work_of(each, done)
            return (alone, alone) if alone < FAR else (ENDLESS, ENDLESS)

        def stop_of(each: WorkloadState) -> Millis:
            return NEVER if each.key in lengths else self._stop_of(each)

        beside = [
            PlannedRun(each.gang, world.placed(each.hold), max(each.start, self._now))
            for each in heads
            if each.hold is not None
        ]
        found = self._store.slowed.expected_if_begun(run, self._now, work_of, stop_of, beside)
        return {key: each.end for key, each in found.items()}

    # --- delays by reserved workloads ---------------------------------------------------------------------------------

    def _heads(self, leaving_out: WorkloadState | None) -> list[Reservation]:
        """The reserved workloads, except one, that may be company of others. Where one start is reserved, nobody has to know
        them: whom that workload slows down is still there when it starts.
        """
        if not self._store.slowed.on or len(self.reservations) + len(self._regarded) < 2:
            return []
        return [
            each
            for each in chain(self.reservations, self._regarded)
            if each.gang is not leaving_out and each.hold is not None and each.start < FAR
        ]

    def _delays(self, leaving_out: WorkloadState | None) -> Mapping[str, Millis]:
        """The ends, by key, of those that the reserved workloads, except one, are going to slow down: holders, and reserved
        workloads themselves.
        """
        heads = self._heads(None)
        if not heads:
            return NOBODY_LATER
        of = (self._now, self._version, self._store.pair_speeds, *((each, each.start, each.hold) for each in heads))
        if of != self._delayed_of:
            self._delayed_of, self._delayed = of, {}
        known = self._delayed.get(leaving_out)
        if known is None:
            known = self._delayed[leaving_out] = self._delays_by(self._heads(leaving_out))
        return known

    def _delays_by(self, heads: Sequence[Reservation]) -> dict[str, Millis]:
        world = self._world
        assert world is not None
        found: dict[str, Millis] = {}
        for each in heads:
            if each.gang.key not in found and each.hold is not None:
                run = PlannedRun(each.gang, world.placed(each.hold), max(each.start, self._now))
                others = [other for other in heads if other is not each]
                found |= self._ends_if_begun(run, self._length_alone(each, each.hold), others)
        return {key: end for key, each in found.items() if (end := min(FAR, each)) > self._end_alone(key)}

    def _delays_at(self, moment: Millis, leaving_out: Reservation | None) -> Mapping[str, Millis]:
        """The same, if some of these reserved workloads start before a moment."""
        gang = leaving_out.gang if leaving_out is not None else None
        return self._delays(gang) if any(each.start < moment for each in self._heads(gang)) else NOBODY_LATER

    def _end_beside(self, key: str, leaving_out: WorkloadState | None) -> Millis:
        """The expected end of a holder or a reserved workload, beside all reserved workloads except one."""
        return max(self._end_alone(key), self._delays(leaving_out).get(key, 0))

    def _end_alone(self, key: str) -> Millis:
        """The expected end of a holder without those that wait; of a reserved workload, as it was planned."""
        known = self._tenants.get(key) or self._reserved(key)
        return known.end if known is not None else NEVER

    def _hold_of(self, key: str) -> HeldCapacity | None:
        known = self._tenants.get(key) or self._reserved(key)
        return known.hold if known is not None else None

    def _reserved(self, key: str) -> Reservation | None:
        return next((each for each in chain(self.reservations, self._regarded) if each.gang.key == key), None)

    def _send_home(self, world: TimelineWorld) -> None:
        """The world has nobody any more who is there only since reserved workloads have slowed it down."""
        for key in self._overstaying:
            world.drop(key)
        self._overstaying.clear()

    def end_of(self, key: str) -> Millis:
        """The expected end of a holder; 0 if it is unknown."""
        tenant = self._tenants.get(key)
        return tenant.end if tenant is not None else 0

    def releases(self, root: QuotaNode, fr: FlavorResource, until: Millis) -> Iterator[tuple[Millis, int]]:
        """The expected ends of holders of this tree up to a time, in order, and how much each releases of this."""
        for end, key in self._ends[: bisect_right(self._ends, (until, _LAST))]:
            tenant = self._tenants[key]
            amount = tenant.hold.usage.get(fr, 0)
            if amount and tenant.gang.queue is not None and tenant.gang.queue.root is root:
                yield end, amount

    # --- the cursor ---------------------------------------------------------------------------------------------------

    def at(self, moment: Millis, leaving_out: Reservation | None = None) -> TimelineWorld:
        """The world at a moment, with all reservations that hold then except one."""
        world = self._world
        assert world is not None
        if self._overstaying:
            self._send_home(world)
        delays = self._delays_at(moment, leaving_out) if self._store.slowed.on else NOBODY_LATER
        if moment != self._cursor:
            low, high = min(moment, self._cursor), max(moment, self._cursor)
            first, last = (bisect_right(self._ends, (end, _LAST)) for end in (low, high))
            for end, key in self._ends[first:last]:
                if moment >= end:
                    world.drop(key)
                else:
                    world.put(key, self._tenants[key].hold)
            self._cursor = moment
        world.set_quotas_of(moment)
        for reservation in chain(self.reservations, self.planned):
            hold = reservation.hold
            wanted = (
                hold is not None
                and reservation is not leaving_out
                and reservation.start <= moment < max(reservation.end, delays.get(reservation.gang.key, 0))
                and (not isinstance(reservation, PlannedStart) or reservation in self._regarded)
            )
            if world.holds(reservation.key) and (not wanted or world.hold(reservation.key) is not hold):
                world.drop(reservation.key)
            if wanted and hold is not None and not world.holds(reservation.key):
                world.put(reservation.key, hold)
        for key, end in delays.items():
            if (tenant := self._tenants.get(key)) is not None and tenant.end <= moment < end:
                world.put(key, tenant.hold)
                self._overstaying.append(key)
        return world

    # --- reserving ----------------------------------------------------------------------------------------------------

    def reserve(self, reservation: Reservation, now: Millis) -> bool:
        """Find the earliest start of a workload among the present reservations. Returns whether it changed."""
        before = reservation.start
        bound = max(now, self._bound(reservation))
        kept = not reservation.worse and reservation.hold is not None and now < before <= bound
        reservation.worse = reservation.better = False
        if kept and len(self.reservations) == 1:
            return False
        reservation.beside.clear()
        start, hold = self._earliest(reservation, now, bound)
        reservation.hold_from(start, hold, self._length(reservation, hold, start))
        if start != before and self._store.slowed.on:  # others may be slowed down less, or no longer
            for other in self.reservations:
                other.better |= other is not reservation
        return start != before

    def _bound(self, reservation: Reservation) -> Millis:
        """A lower bound of the workload's start: 0 = perhaps now, NEVER = never."""
        world, store = self._world, self._store
        assert world is not None
        queue, real = world.queue(reservation.queue), store.queues.get(reservation.queue)
        if queue is None or real is None:
            return NEVER
        outlook = reservation.outlook
        if outlook is None:
            outlook = reservation.outlook = self._outlook(reservation.gang, queue, world)
        by_quota = enough_quota(outlook.needs, real, self._ends, self._usage)
        if by_quota and (changes := store.quotas_ahead.instants(real.root)):  # quota may grow before it is released
            by_quota = min(by_quota, changes[0])
        return max(by_quota, outlook.places(self._stays))

    def _outlook(self, gang: WorkloadState, queue: ClusterQueueState, world: TimelineWorld) -> TimelineOutlook:
        """The outlook, which workloads of one shape share."""
        key = (queue.name, gang.shape)
        outlook = self._outlooks.pop(key, None) or TimelineOutlook(gang, queue, world.topologies)
        self._outlooks[key] = outlook  # the most recently used one is last
        if len(self._outlooks) > _OUTLOOKS_KEPT:
            del self._outlooks[next(iter(self._outlooks))]
        return outlook

    def _usage(self, key: str) -> Mapping[FlavorResource, int]:
        return self._tenants[key].hold.usage

    def might_fit_without(self, reservation: Reservation, gone: Iterable[WorkloadState]) -> bool:
        """Whether, by counting, the workload could start now if these had left. No is final; yes has to be tried."""
        self._bound(reservation)
        tenants = [tenant for gang in gone if (tenant := self._tenants.get(gang.key)) is not None]
        outlook = reservation.outlook
        if outlook is None or not tenants:
            return bool(tenants)
        real = self._store.queues[reservation.queue]
        if fewest_releases(outlook.needs, real, [tenant.hold.usage for tenant in tenants]) is None:
            return False
        return outlook.might_fit_without({tenant.gang.key: tenant.spots for tenant in tenants}, self._stays)

    def fewest_without(self, reservation: Reservation, gone: Sequence[WorkloadState]) -> int | None:
        """How many of these have to leave, in their order, until it could start now, by counting. None: all are too few."""
        self._bound(reservation)
        outlook = reservation.outlook
        if outlook is None:
            return 0
        tenants = [self._tenants.get(gang.key) for gang in gone]
        spots = ((gang.key, tenant.spots if tenant else ()) for gang, tenant in zip(gone, tenants, strict=True))
        by_places = outlook.fewest_without(spots, self._stays)
        if by_places is None:
            return None
        releases = [tenant.hold.usage if tenant else _NOTHING for tenant in tenants]
        by_quota = fewest_releases(outlook.needs, self._store.queues[reservation.queue], releases)
        return None if by_quota is None else max(by_places, by_quota)

    def _earliest(self, reservation: Reservation, now: Millis, bound: Millis) -> tuple[Millis, HeldCapacity | None]:
        if bound >= NEVER:
            return NEVER, None
        firm = (other for other in self.reservations if other is not reservation)
        others = [other for other in (*firm, *self._regarded) if other.hold is not None]
        if others or self._store.looks_ahead:  # windows and changes of quotas take room away and give it back
            moments = self._moments(bound, others, self._delays(reservation.gang))
            for moment in moments[:_MOST_MOMENTS] if isinstance(reservation, PlannedStart) else moments:
                hold = self._fits_through(reservation, moment, others)
                if hold is not None:
                    return moment, hold
            return NEVER, None
        return self._first_fit(reservation, self._moments(bound, ()))

    def _first_fit(self, reservation: Reservation, moments: Sequence[Millis]) -> tuple[Millis, HeldCapacity | None]:
        """Room only grows with time: try the bound, then ever longer steps, then bisect the last one."""
        found: tuple[Millis, HeldCapacity | None] = (NEVER, None)
        low, high, step = 0, len(moments) - 1, 0
        while low <= high:
            middle = min(low + step, high) if found[1] is None else (low + high) // 2
            hold = self._fits_at(reservation, moments[middle])
            if hold is None:
                low, step = middle + 1, 2 * step + 1
            else:
                found, high = (moments[middle], hold), middle - 1
        return found

    def _moments(
        self, first: Millis, others: Iterable[Reservation], delays: Mapping[str, Millis] = NOBODY_LATER
    ) -> list[Millis]:
        """The moments from the first one on at which something is released: a gang that cannot start before can start only
        then.
        """
        later = self._ends[bisect_right(self._ends, (first, _LAST)) :]
        store = self._store
        ends = (
            *(other.end for other in others),
            *delays.values(),
            *store.windows.ends(),
            *store.quotas_ahead.instants(),
        )
        return sorted({first, *(end for end, _ in later), *(end for end in ends if end > first)})

    def _fits_at(self, reservation: Reservation, moment: Millis) -> HeldCapacity | None:
        world = self.at(moment, reservation)
        if not self._store.windows:
            assignment = world.fit(reservation.gang, reservation.queue)
        else:
            with self._store.windows.at_start(reservation.gang, moment):
                assignment = world.fit(reservation.gang, reservation.queue)
        return None if assignment is None else hold_of(assignment, reservation.queue)

    def _fits_through(self, reservation: Reservation, moment: Millis, others: list[Reservation]) -> HeldCapacity | None:
        """What the workload would hold from a moment on for as long as it runs: that must stay free while others start. None if
        it does not fit.
        """
        hold = self._fits_at(reservation, moment)
        if hold is None:
            return None
        end, later = self._run(reservation, hold, moment)
        if later and not self._lets_start(reservation, later, others):
            return None
        starts = {other.start for other in others if moment < other.start < end}
        if self._store.quotas_ahead:
            root = self._store.queues[reservation.queue].root
            changes = self._store.quotas_ahead.instants(root, recalls=True)
            starts.update(change for change in changes if moment < change < end)
        starts = sorted(starts)
        if all(self.at(start, reservation).has_room(hold) for start in starts):
            return hold
        return None

    def _lets_start(self, reservation: Reservation, later: Mapping[str, Millis], others: Iterable[Reservation]) -> bool:
        """Whether others can start as planned though those whom this one slows down end later."""
        for other in others:
            staying = self._staying_longer(other, later, reservation)
            if staying and other.hold is not None:
                world = self.at(other.start, reservation)
                if not self._have_room(world, staying) or self._would_be_company(other.hold, staying):
                    return False
        return True

    def _run(self, reservation: Reservation, hold: HeldCapacity, start: Millis) -> tuple[Millis, Mapping[str, Millis]]:
        """The end of the reserved workload with this hold, from this start on, and the later ends of those that it slows down."""
        return self.if_begun(reservation.gang, hold, self._length_alone(reservation, hold), start)

    def _length(self, reservation: Reservation, hold: HeldCapacity | None, start: Millis) -> Millis:
        """The runtime of the reserved workload with this hold, from this start on."""
        if hold is None or not self._store.slowed.on:
            return self._length_alone(reservation, hold)
        return self._run(reservation, hold, start)[0] - start

    def _length_alone(self, reservation: Reservation, hold: HeldCapacity | None) -> Millis:
        """The runtime of the reserved workload with this hold, without company."""
        gang = reservation.gang
        if hold is None or not self._estimates.varies(gang):
            return reservation.length
        return self._estimates.length(gang, self.level, flavors_of(hold.places))

    def cancel(self, reservation: Reservation) -> None:
        """Remove a reservation that is not needed any more: what it held is free for those after it."""
        self.reservations.remove(reservation)
        if self._world is not None:
            self._world.drop(reservation.key)
        for other in self.reservations:
            other.better = True

    # --- expecting ----------------------------------------------------------------------------------------------------

    def expect(self, planned: PlannedStart, now: Millis, ahead: Iterable[PlannedStart]) -> None:
        """Find the start that a workload can be expected to have among all reservations, and after these."""
        planned.worse = planned.better = False
        self._regarded = frozenset(ahead)
        try:
            bound = max(now, self._bound(planned))
            start, hold = self._earliest(planned, now, bound)
        finally:
            self._regarded = _NO_STARTS
        planned.hold_from(start, hold, self._length(planned, hold, start))

    def forget(self, planned: PlannedStart) -> None:
        """An expected start that counts no more."""
        self.planned.remove(planned)
        if self._world is not None:
            self._world.drop(planned.key)

    # --- testing ------------------------------------------------------------------------------------------------------

    def collision(
        self,
        key: str,
        hold: HeldCapacity,
        end: Millis,
        with_: Iterable[Reservation],
        later: Mapping[str, Millis] = NOBODY_LATER,
    ) -> Reservation | None:
        """The first of these reservations that could not be kept if `key` held this until `end`, and other holders what they have
        until `later` than planned; None if all can.
        """
        world = self._world
        assert world is not None
        moved: list[tuple[Reservation, HeldCapacity]] = []
        passed: list[tuple[Reservation, list[str]]] = []
        for reservation in sorted(with_, key=lambda each: each.start):
            staying = self._staying_longer(reservation, later)
            if end > reservation.start or end >= FAR:
                staying.append((key, hold))
            if reservation.hold is None or not staying:
                continue
            world = self.at(reservation.start)
            if self._have_room(world, staying) and not self._would_be_company(reservation.hold, staying):
                passed.append((reservation, [each for each, _ in staying]))
                continue
            spots: dict[Spot, dict[str, int]] = {}
            for _, held in staying:
                for spot, amounts in world.placed(held):
                    add(spots.setdefault(spot, {}), amounts)
            if reservation.outlook is not None and not reservation.outlook.fits_beside(
                reservation.start, spots, self._stays
            ):
                return reservation
            world.drop(reservation.key)
            other: HeldCapacity | None = None
            if self._have_room(world, staying):
                for each, held in staying:
                    world.put(each, held)
                with self._store.windows.at_start(reservation.gang, reservation.start):
                    assignment = world.fit(reservation.gang, reservation.queue)
                for each, _ in staying:
                    world.drop(each)
                other = None if assignment is None else hold_of(assignment, reservation.queue)
            world.put(reservation.key, reservation.hold)
            if other is None:
                return reservation
            moved.append((reservation, other))
            passed.append((reservation, [each for each, _ in staying]))
        for reservation, other in moved:
            if not self._may_move(reservation, other, (key, hold)):
                return reservation
        for reservation, other in moved:
            start = reservation.start
            reservation.hold_from(start, other, self._length(reservation, other, start))
        for reservation, keys in passed:
            reservation.beside.update(keys)
        return None

    def _may_move(self, reservation: Reservation, hold: HeldCapacity, candidate: tuple[str, HeldCapacity]) -> bool:
        """Whether a reserved workload may have another place beside a candidate: it slows nobody whose room others count on. How
        long a candidate without a reserved start would be slowed down is not foreseen.
        """
        others = [other for other in self._heads(reservation.gang) if other.gang.key != candidate[0]]
        if not others:
            return True
        if self._would_be_company(hold, [candidate]) and self._reserved(candidate[0]) is None:
            return False
        return self._lets_start(reservation, self._run(reservation, hold, reservation.start)[1], others)

    def _staying_longer(
        self, reservation: Reservation, later: Mapping[str, Millis], leaving_out: Reservation | None = None
    ) -> list[tuple[str, HeldCapacity]]:
        """Those of the workloads that end later than planned which would still be there at the reserved start."""
        before = leaving_out.gang if leaving_out is not None else None
        return [
            (key, hold)
            for key, end in later.items()
            if key not in reservation.beside
            and self._end_beside(key, before) <= reservation.start < end
            and (hold := self._hold_of(key)) is not None
        ]

    def _would_be_company(self, hold: HeldCapacity, others: Iterable[tuple[str, HeldCapacity]]) -> bool:
        """Whether some of these would share a card or a node with it, so that it might not be allowed there."""
        world = self._world
        if world is None or not self._store.slowed.on:
            return False
        on_nodes = self._store.pair_speeds.has_nodes
        mine = {seat for seat in seats_of(world.placed(hold)) if seat[1] or on_nodes}
        return any(not mine.isdisjoint(seats_of(world.placed(other))) for _, other in others)

    @staticmethod
    def _have_room(world: TimelineWorld, holds: Sequence[tuple[str, HeldCapacity]]) -> bool:
        """Whether all of this could be held as well."""
        *others, (_, last) = holds
        tried: list[str] = []
        try:
            for key, hold in others:
                if not world.has_room(hold):
                    return False
                world.put(key, hold)
                tried.append(key)
            return world.has_room(last)
        finally:
            for key in tried:
                world.drop(key)


#: after every key
_LAST = "\U0010ffff"
_NOTHING: Mapping[FlavorResource, int] = {}
_NO_STARTS: frozenset[PlannedStart] = frozenset()
