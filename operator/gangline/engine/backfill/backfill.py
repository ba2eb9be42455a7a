"""Backfill: which workloads get a reservation, which may start before their turn, and which are preempted again.

The first workloads of a queue that were tried and cannot start are *reserved* a start (`timeline`). A workload after them may
start at once if it will have ended by then, or fits beside them. `docs/backfill.md` says what is promised.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from gangline.engine.backfill import checkpoint_preemption
from gangline.engine.backfill.flavor_choice import FlavorChoice
from gangline.engine.backfill.head_delay import HeadDelayLedger
from gangline.engine.backfill.idle_budget import IdleBudget
from gangline.engine.backfill.loss_budget import Losses
from gangline.engine.backfill.reservation import (
    FAR,
    Reservation,
    follows,
    held_back_text,
    hold_of,
    preempted_for_text,
    start_text,
)
from gangline.engine.backfill.revocation import DelayCauses, Revoking
from gangline.engine.backfill.timeline import Timeline
from gangline.engine.cycle.attempt import Attempt, Objection
from gangline.engine.flavors.assignment import WAITING, Assignment, Mode, verdict_of
from gangline.engine.flavors.flavor_assigner import Assigner
from gangline.engine.model import UNLIMITED, Backfill, Decision, Millis
from gangline.engine.model.runtime import NEVER
from gangline.engine.preemption.preemptor import without_victims
from gangline.engine.queues.cluster_queue import ClusterQueueState, cluster_queues_of, queue_of
from gangline.engine.queues.ordering import Estimates, Flavors, working_flavors
from gangline.engine.queues.promises import FLOOR, IDLE_BUDGET, NEW_HEAD, PREEMPTION
from gangline.engine.queues.timed_queue import TimedQueue
from gangline.engine.queues.workload_parts import NO_NAMES
from gangline.engine.queues.workload_state import WorkloadState
from gangline.engine.quota.quota_ledger import QuotaNode
from gangline.engine.state.overrun import trusted
from gangline.engine.state.store import Store

#: Reservations kept per queue where a policy asks for all.
MOST_RESERVATIONS = 64


class BackfillPlanner:
    """The engine's one planner. It costs a look at a flag while no queue has backfill."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self.estimates: Estimates = store.estimates
        self.timeline = Timeline(store, self.estimates)
        self._idle_budget = IdleBudget(store, self.timeline)
        self.delays = HeadDelayLedger()
        self._plain = without_victims(store.settings, store.topology, store.capacity, store.quotas_ahead)
        self.losses = Losses(store.preemptions)
        self.flavors = FlavorChoice(store, self.timeline)
        self._revoking = Revoking(store, self.timeline, self.estimates, self.losses, self._fits, self._leaving)
        self._checkpoint_preemption = checkpoint_preemption.VictimsAtCheckpoints(
            self.timeline, self.estimates, self.losses, self._fits, self._leaving
        )
        self._causes = DelayCauses(store, self.timeline, self._revoking, self._fits, self._leaving)
        self._now: Millis = 0
        #: workloads of queues without a policy that are held back, by root
        self._held: dict[int, dict[str, WorkloadState]] = {}
        #: grows when reservations come or go; and by queue, the value when its heads were last looked up
        self._changes = 0
        self._settled: dict[str, tuple[int, int]] = {}
        #: attempts to backfill in this `decide`, by queue
        self._tried: dict[str, int] = {}

    # --- a decide -----------------------------------------------------------------------------------------------------

    def begin(self, now: Millis) -> list[Decision]:
        """Prepare the cycles: advance time, move reservations, and revoke backfill that delays them."""
        self._now = now
        self._tried.clear()
        self._idle_budget.begin()
        for queue in self._store.timed:
            pending = queue.pending
            assert isinstance(pending, TimedQueue)
            pending.now = now
            if pending.ranking.renew(now):
                pending.rank_all_again()
        queues = self._store.reserving
        self.losses.keep(queues, now)
        if not queues:
            self._end_all()
            self._settle_promises()
            self.flavors.begin(now)
            return []
        self.timeline.level = max(_policy(queue).running for queue in queues)
        decisions = self._update_reservations(now)
        self._settle_promises()
        self.flavors.begin(now)
        return decisions

    def end(self, now: Millis) -> list[Decision]:
        """Finish the cycles: preempt at checkpoints for the present heads, and count the delay that backfill causes."""
        if not self._store.reserving:
            return []
        decisions = self._update_reservations(now)
        if self._store.settings.counts_delays:
            self._note_delays(now)
        return decisions

    def _update_reservations(self, now: Millis) -> list[Decision]:
        """Bring reservations in line with the present state, and preempt what delays them."""
        self.timeline.keep_up(now)
        self._drop_done(now)
        for queue in self._store.reserving:
            self._reserve_heads(queue, [])
        self._move_reservations(now)
        return self._revoke(now)

    def _settle_promises(self) -> None:
        """Heads that have started in a tree which reserves nothing any more."""
        for key in list(self._store.promises.open):
            gang = self._store.gangs.get(key)
            queue = queue_of(gang) if gang is not None and gang.holds else None
            if gang is not None and queue is not None:
                self._started(gang, queue, gang.quota.reserved_at)

    def _end_all(self) -> None:
        for reservation in list(self.timeline.reservations):
            self._drop(reservation)
        if self._store.choosing:  # the timeline is of use without reservations
            return
        self.timeline.close()
        self._store.moved_holders.clear()
        self._store.capacity.moved.clear()

    def next_due(self, now: Millis) -> Millis | None:
        """When next a reserved start comes, a backfilled workload is overdue, or victims may be found that were not found
        before.
        """
        starts = [r.start for r in self.timeline.reservations if now < r.start < FAR]
        starts += self._revoking.overdue_times(now)
        again = self._checkpoint_preemption.next_due(now), self._revoking.next_due(now)
        starts += [at for at in again if at is not None]
        starts += self.flavors.due_times(now)
        return min(starts, default=None)

    def guards(self, root: QuotaNode) -> bool:
        """Whether this tree has reservations to enforce."""
        return any(queue.root is root for queue in self._store.reserving)

    # --- reservations -------------------------------------------------------------------------------------------------

    def _drop_done(self, now: Millis) -> None:
        """A workload that started, or left the queue, needs no reservation any more; nor one whose queue lost its policy."""
        for reservation in list(self.timeline.reservations):
            gang, queue = reservation.gang, self._store.queues.get(reservation.queue)
            waits = self._store.gangs.get(gang.key) is gang and gang.queue is queue and not gang.holds
            if queue is None or not queue.reserves or not waits:
                if gang.holds and queue is not None and gang.queue is queue:
                    self._started(gang, queue, now)
                elif not gang.holds and (queue is None or queue.reserves):
                    self._store.promises.forget(gang.key)
                gang.backfill.preempted_for_it = NO_NAMES
                self._drop(reservation)

    def _drop(self, reservation: Reservation) -> None:
        self._changes += 1
        self.timeline.cancel(reservation)
        queue = self._store.queues.get(reservation.queue)
        if queue is not None:
            self._release_held_back(queue.root)

    def _move_reservations(self, now: Millis) -> None:
        """Move the reservations that are out of date, in order: the workload that precedes the others is reserved first."""
        for reservation in self.timeline.reservations:
            stale = reservation.worse or reservation.better or reservation.start <= now
            if not stale:
                continue
            moved = self.timeline.reserve(reservation, now)
            if self._store.promises.breaks(reservation.gang, reservation.start):
                self._store.promises.blame(reservation.gang, self._cause(reservation))
            self._idle_budget.planned(reservation, now)
            if moved:
                queue = self._store.queues[reservation.queue]
                self._release_held_back(queue.root)
                if reservation.start <= now:
                    self._store.flush(queue.root)
        for queue in self._store.reserving:
            if isinstance(queue.pending, TimedQueue):
                due = [r.gang for r in self.timeline.reservations if r.queue == queue.name and r.start <= now]
                queue.pending.due = due if len(due) < len(self.timeline.reservations) else []

    def _release_held_back(self, root: QuotaNode) -> None:
        """Reservations changed: held back workloads may be tried again."""
        moved = False
        for queue in cluster_queues_of(root):
            if isinstance(queue.pending, TimedQueue):
                self._set_reserved(queue)
                moved = queue.pending.release_held() or moved
        for gang in self._held.pop(id(root), {}).values():
            queue = queue_of(gang)
            if queue is not None and gang.inadmissible_alone and not gang.holds:
                queue.pending.take_out(gang)
                queue.pending.arrive(gang)
                moved = True
        if moved:
            self._store.touched[id(root)] = root

    def _set_reserved(self, queue: ClusterQueueState) -> None:
        """Set in its queue which workloads are reserved a start."""
        pending, policy = queue.pending, queue.config.backfill
        assert isinstance(pending, TimedQueue)
        pending.reserved = tuple(r.gang for r in self.timeline.reservations if r.queue == queue.name)
        pending.all_reserved = policy is not None and len(pending.reserved) >= _depth(policy)

    def nominated(self, root: QuotaNode, attempts: Sequence[Attempt]) -> None:
        """Heads were tried alone: those that cannot start are reserved a start, up to the policy's depth."""
        self._drop_done(self._now)
        for queue in cluster_queues_of(root):
            if queue.reserves:
                failing = [
                    a.gang
                    for a in attempts
                    if a.queue is queue and a.assignment.mode is not Mode.FIT and a.gang.backfill.waits_for is None
                ]
                can_never_fit = [
                    a.gang for a in attempts if a.queue is queue and self._can_never_fit(a.gang, a.assignment)
                ]
                fitting = [a.gang for a in attempts if a.queue is queue and a.assignment.mode is Mode.FIT]
                self._reserve_heads(queue, [gang for gang in failing if gang not in can_never_fit], fitting)

    def _reserve_heads(
        self, queue: ClusterQueueState, failing: Sequence[WorkloadState], fitting: Sequence[WorkloadState] = ()
    ) -> None:
        """Reserve starts for the first blocked workloads, except where others that precede them have not been tried yet."""
        pending, depth = queue.pending, _depth(_policy(queue))
        assert isinstance(pending, TimedQueue)
        # with all reservations made, only a newly blocked workload can replace one of them
        version = pending.blocked_version if pending.all_reserved else pending.version
        state = (version, self._changes)
        known = self._settled.get(queue.name) == state and (pending.all_reserved or not fitting)
        if known and not failing and not pending.ranking.by_local_queue:
            return
        present = [r for r in self.timeline.reservations if r.queue == queue.name]
        if not (failing or present or pending.blocks_any()):
            return
        self._settled[queue.name] = state
        candidates = {id(r.gang): r.gang for r in present}
        untried = pending.first_untried(fitting)
        for gang in (*failing, *pending.blocked(depth, self._gang_can_never_fit)):
            if untried is None or pending.turn(gang) < untried:
                candidates[id(gang)] = gang
        heads = sorted(candidates.values(), key=pending.turn)[:depth]
        if heads == [r.gang for r in present]:
            return
        self._changes += 1
        self.timeline.sync(self._now)
        for reservation in present:
            if reservation.gang not in heads:
                self._drop(reservation)
        for gang in heads:
            if not any(r.gang is gang for r in present):
                length = self.estimates.length(gang, self.timeline.level)
                reservation = Reservation(gang, queue.name, length)
                reservation.may_move(NEW_HEAD)  # if it was reserved before, another head has taken its place meanwhile
                self.timeline.reservations.append(reservation)
        self._put_in_order()
        self._move_reservations(self._now)
        self._set_reserved(queue)

    def _can_never_fit(self, gang: WorkloadState, assignment: Assignment) -> bool:
        """Whether the workload would not fit even without all others, nor after the windows that keep it from nodes now."""
        if assignment.mode is not Mode.NO_FIT or assignment.severity == WAITING:
            return False
        windows, queue = self._store.windows, queue_of(gang)
        if not windows or queue is None or not windows.barring(gang):
            return True
        with windows.at_start(gang, FAR):
            later = Assigner(gang, queue, self._plain).assign(None)
        return later.mode is Mode.NO_FIT and later.severity != WAITING

    def _gang_can_never_fit(self, gang: WorkloadState) -> bool:
        return (verdict := verdict_of(gang)) is not None and self._can_never_fit(gang, verdict)

    def _put_in_order(self) -> None:
        """Sort the reservations: within a queue by turn, among queues by priority and age of their heads."""

        def turn(reservation: Reservation) -> tuple[object, ...]:
            queue = self._store.queues[reservation.queue]
            pending = queue.pending
            assert isinstance(pending, TimedQueue)
            heads = [r.gang for r in self.timeline.reservations if r.queue == reservation.queue]
            first = min(heads, key=pending.turn)
            return (-first.priority, first.since, reservation.queue, pending.turn(reservation.gang))

        self.timeline.reservations[:] = sorted(self.timeline.reservations, key=turn)

    def remark(self, gang: WorkloadState) -> str:
        """What is added to the reason of a workload with a reservation; "" for others."""
        reservation = next((r for r in self.timeline.reservations if r.gang is gang), None)
        if reservation is None:
            return ""
        promised = self._store.promises.promised(gang)
        return start_text(reservation, self._idle_budget.holds_back(reservation), promised)

    def reserved_gangs(self) -> list[WorkloadState]:
        return [reservation.gang for reservation in self.timeline.reservations]

    # --- candidates ---------------------------------------------------------------------------------------------------

    def objection(self, attempt: Attempt) -> Objection | None:
        """Why a gang that fits may not start now; None if it may."""
        subject = [r for r in self.timeline.reservations if self._yields(attempt, r)]
        if not subject:
            return None
        gang, queue = attempt.gang, attempt.queue
        for reservation in subject:
            if gang.uid in reservation.gang.backfill.preempted_for_it:
                return Objection(reservation.start, preempted_for_text(reservation), alone=True)
        self.timeline.sync(self._now)
        subject = [r for r in subject if self._idle_budget.holds_back_at(r, self._now)]
        if not subject:
            return None
        policy = queue.config.backfill or _policy(self._store.queues[subject[0].queue])
        tried = self._tried[queue.name] = self._tried.get(queue.name, 0) + 1
        level = policy.candidate if trusted(gang) else 1.0
        length = self.estimates.length(gang, level, _flavors(attempt.assignment))
        horizon = NEVER
        collides: Reservation | None = subject[0]
        if tried <= policy.max_candidates:
            hold = hold_of(attempt.assignment, queue.name)
            end, later = self.timeline.if_begun(gang, hold, length, self._now)
            if later or end > self._now + length:  # alone it may be short enough: it is not offered again all the same
                horizon = self._now + length - 1
            collides = self.timeline.collision(gang.key, hold, end, subject, later)
        if collides is None:
            # In the timeline, what is being stopped is gone. It still holds its quota: the head may need what is free now.
            collides = next((r for r in subject if r.start <= self._now and self._fits(r)), None)
        if collides is None:
            attempt.backfilled = True
            for reservation in subject:
                reservation.gang.backfill.pass_by(gang.key)
            return None
        return Objection(min(collides.start, horizon), held_back_text(collides))

    def _yields(self, attempt: Attempt, reservation: Reservation) -> bool:
        """Whether the gang must not delay this reservation: it follows it in its queue, or it borrows from another queue."""
        gang, queue, head = attempt.gang, attempt.queue, reservation.gang
        if gang is head:
            return False
        if queue.name == reservation.queue:
            pending = queue.pending
            return not isinstance(pending, TimedQueue) or pending.turn(gang) > pending.turn(head)
        owner = self._store.queues.get(reservation.queue)
        if owner is None or owner.root is not queue.root or attempt.assignment.borrowing == 0:
            return False
        if not self._borrows(owner, reservation):
            return True
        return follows(gang, head)

    def _borrows(self, owner: ClusterQueueState, reservation: Reservation) -> bool:
        hold = reservation.hold
        if hold is None:
            return False
        return any(owner.cell(fr).nominal < amount for fr, amount in hold.usage.items())

    def reserved(self, attempt: Attempt) -> None:
        """The gang has its quota: pass its assignment on to the timeline."""
        gang = attempt.gang
        gang.backfill.backfilled = attempt.backfilled
        if self._store.promises.of(gang) is not None and all(r.gang is not gang for r in self.timeline.reservations):
            self._started(gang, attempt.queue, self._now)
        self._store.note_moved(gang.key)

    def preempts(self, gang: WorkloadState) -> None:
        """Others are preempted for it."""
        gang.backfill.made_room = True

    def _started(self, gang: WorkloadState, queue: ClusterQueueState, now: Millis) -> None:
        """A workload that is, or was, reserved a start holds its quota."""
        gang.backfill.holds_back, gang.backfill.passed_by = False, NO_NAMES
        self._store.promises.start(gang, queue.name, now, self._mode_cause(gang, queue) or NEW_HEAD)

    def _cause(self, reservation: Reservation) -> str:
        """What has moved the start of a head, as far as that is known (`queues.promises`)."""
        head, newcomer, queue = reservation.gang, reservation.newcomer, self._store.queues[reservation.queue]
        if cause := self._mode_cause(head, queue):
            return cause
        if newcomer is None or newcomer.backfill.backfilled:
            return reservation.cause
        if newcomer.backfill.made_room:
            return PREEMPTION
        pending = queue.pending
        if not isinstance(pending, TimedQueue) or newcomer.queue is not queue:
            return NEW_HEAD
        return IDLE_BUDGET if pending.turn(newcomer) > pending.turn(head) else NEW_HEAD

    def _mode_cause(self, head: WorkloadState, queue: ClusterQueueState) -> str:
        planned = self._store.promises.of(head)
        return FLOOR if planned is not None and planned.mode != queue.config.fallen_back else ""

    def hold_back(self, attempt: Attempt, objection: Objection) -> bool:
        """Hold it back until it may start. Returns whether others of its shape were held back with it."""
        gang, pending = attempt.gang, attempt.queue.pending
        if isinstance(pending, TimedQueue) and not objection.alone:
            return pending.hold_back(gang, objection.horizon, _flavors(attempt.assignment))
        if pending.strict:
            pending.arrive(gang)
            return False
        pending.set_alone_inadmissible(gang)
        self._held.setdefault(id(attempt.queue.root), {})[gang.uid] = gang
        return False

    # --- revoking -----------------------------------------------------------------------------------------------------

    def _revoke(self, now: Millis) -> list[Decision]:
        """The first head of each queue that only backfilled workloads keep from starting preempts these."""
        decisions: list[Decision] = []
        for reservation in self._first_of_each_queue():
            queue = self._store.queues[reservation.queue]
            policy = _policy(queue)
            head = reservation.gang
            if head.closed_gates:
                continue
            gone: list[WorkloadState] = []
            if policy.revoke != "Never":
                gone = self._revoking.victims(reservation, policy.revoke == "Any", head.backfill.preempted_for_it, now)
                decisions += [self._revoking.decision(gang, head, now) for gang in gone]
            if not gone and policy.checkpoint_preemption is not None:
                gone = self._checkpoint_preemption.victims(
                    reservation, queue, policy.checkpoint_preemption, head.backfill.preempted_for_it, now
                )
                decisions += [checkpoint_preemption.decision(gang, head) for gang in gone]
            self.losses.pay(gone, queue, now)
            for gang in gone:
                self._preempt_for(gang, head, queue)
        if decisions:
            self.timeline.sync(now)
            self._move_reservations(now)
        return decisions

    def _preempt_for(self, gang: WorkloadState, head: WorkloadState, queue: ClusterQueueState) -> None:
        head.backfill.preempted_for_it |= {gang.uid}
        self.preempts(head)
        gang.evict(f"Preempted so that {head.key} starts as planned", "Preempt")
        self._store.touch(queue)
        self._store.note_moved(gang.key)

    def _first_of_each_queue(self) -> Iterator[Reservation]:
        seen: set[str] = set()
        for reservation in self.timeline.reservations:
            if reservation.queue not in seen:
                seen.add(reservation.queue)
                yield reservation

    def _leaving(self, reservation: Reservation) -> list[WorkloadState]:
        """The workloads of the head's tree that are being evicted: it gets their quota when their pods have ended."""
        root = self._store.queues[reservation.queue].root
        return [gang for queue in cluster_queues_of(root) for gang in queue.holders.values() if gang.evicting]

    def _fits(self, reservation: Reservation) -> bool:
        """Whether the head could start in the present ledger: it fits, and follows no other reserved workload."""
        queue = self._store.queues[reservation.queue]
        assignment = Assigner(reservation.gang, queue, self._plain).assign(None)
        if assignment.mode is not Mode.FIT:
            return False
        attempt = Attempt(reservation.gang, queue, assignment, [], queue.generation)
        return not any(self._yields(attempt, other) for other in self.timeline.reservations)

    # --- accounting ---------------------------------------------------------------------------------------------------

    def heads(self) -> dict[str, str]:
        """ClusterQueue -> the workload that is reserved first."""
        return {reservation.queue: reservation.gang.key for reservation in self._first_of_each_queue()}

    def starts(self) -> dict[str, Millis | None]:
        """The reserved workloads, in the order of their reservations, and when each starts; None: nobody knows."""
        return {r.gang.key: r.start if r.start < FAR else None for r in self.timeline.reservations}

    def ends(self) -> dict[str, Millis]:
        """The backfilled workloads on whose end the first reservation of a queue counts, and that reservation's start."""
        found: dict[str, Millis] = {}
        for reservation in self._first_of_each_queue():
            if reservation.start < FAR:
                for gang in self._revoking.awaited_by(reservation):
                    found[gang.key] = min(reservation.start, found.get(gang.key, reservation.start))
        return found

    def _note_delays(self, now: Millis) -> None:
        waiting: dict[str, str] = {}
        for reservation in self._first_of_each_queue():
            cause = self._causes.of(reservation, now)
            if cause:
                waiting[reservation.queue] = cause
        self.delays.note(now, waiting)


def _policy(queue: ClusterQueueState) -> Backfill:
    assert queue.config.backfill is not None
    return queue.config.backfill


def _depth(policy: Backfill) -> int:
    return MOST_RESERVATIONS if policy.depth >= UNLIMITED else min(policy.depth, MOST_RESERVATIONS)


def _flavors(assignment: Assignment) -> Flavors:
    """The flavors that determine the gang's pace with this assignment."""
    return working_flavors(pod_set.flavors for pod_set in assignment.pod_sets)
