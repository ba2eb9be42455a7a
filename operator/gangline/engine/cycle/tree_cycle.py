"""One scheduling cycle of one cohort tree, as Kueue runs it.

    nominate every head alone → order them → process one by one, each seeing what the earlier ones took → put back the rest

Nothing is copied: the cycle works on the ledger, and its assumptions are undone at its end. Only reservations
remain. Trees share no quota, so the cycles of different trees don't depend on each other.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from sys import maxsize
from typing import Protocol, TypeAlias

from gangline.engine.cycle import variants
from gangline.engine.cycle.attempt import (
    ADMISSION_GATED,
    FAILED,
    GATED,
    HELD_BACK,
    MIGRATING,
    MISCONFIGURED,
    NEEDS_GATE,
    NO_CANDIDATES,
    NO_FIT,
    NO_LONGER_FITS,
    NOT_READY,
    OVERLAP,
    PENDING,
    PREEMPTION_LIMITED,
    STILL_THERE,
    WAIT_READY,
    WAITS_ITS_TURN,
    Attempt,
    Objection,
)
from gangline.engine.cycle.cycle_ledger import CycleLedger
from gangline.engine.cycle.tournament import Tournament
from gangline.engine.flavors import partial_admission
from gangline.engine.flavors.assignment import Assignment, Mode
from gangline.engine.flavors.flavor_assigner import Assigner, Restriction
from gangline.engine.model import STILL_HELD, Settings, TopologyAssignment
from gangline.engine.model.units import whole_second
from gangline.engine.occupancy.node_ledger import NOWHERE
from gangline.engine.placing.placement_search import NO_SEARCH, PlaceFinder, SearchBudget
from gangline.engine.preemption.moves import RoomByMoving
from gangline.engine.preemption.preemptor import Preemptor
from gangline.engine.preemption.simulated_removal import SimulatedRemoval
from gangline.engine.preemption.victim_search import Victim
from gangline.engine.queues.cluster_queue import (
    OLD_IS_OF_ANOTHER,
    OLD_IS_STOPPED,
    ClusterQueueState,
    names_another_job,
    queue_of,
)
from gangline.engine.queues.preemption_log import MOVED, LimitReached
from gangline.engine.queues.quota_holds import (
    end_quota_hold,
    give_way,
    hold_quota_for,
    preempted_for,
    quota_holds_of,
    set_aside,
)
from gangline.engine.queues.states import LifecycleState
from gangline.engine.queues.workload_parts import NO_NAMES, LastScan, ScanProgress
from gangline.engine.queues.workload_state import WorkloadState
from gangline.engine.quota.quota_ledger import Cell, QuotaNode
from gangline.engine.topology.placement_request import has_placements


class ReservationGuard(Protocol):
    """Enforces reservations (`engine.backfill.backfill`)."""

    def nominated(self, root: QuotaNode, attempts: Sequence[Attempt]) -> None: ...
    def objection(self, attempt: Attempt) -> Objection | None: ...
    def reserved(self, attempt: Attempt) -> None: ...
    def preempts(self, gang: WorkloadState) -> None: ...
    def hold_back(self, attempt: Attempt, objection: Objection) -> bool: ...


class FlavorChooser(Protocol):
    """Chooses one of several flavors (`engine.backfill.flavor_choice`)."""

    def choose(self, gang: WorkloadState, queue: ClusterQueueState, preemptor: Preemptor) -> None: ...


@dataclass(slots=True)
class Nomination:
    """The assignment of a nominated head, and where its scan of flavors began."""

    tried: ScanProgress
    assignment: Assignment
    victims: list[Victim]
    places: Mapping[str, TopologyAssignment]  # as found; the attempt may end with others
    searched: str = ""


_NOWHERE: Mapping[str, TopologyAssignment] = {}

#: uid of a workload that may start or preempt -> its nomination, which stays the same while nothing changes in its tree
Nominations: TypeAlias = dict[str, Nomination]


class TreeCycle:
    """Runs one cycle. `attempts` then has every head's attempt in the order of processing."""

    def __init__(
        self,
        root: QuotaNode,
        heads: Sequence[WorkloadState],
        settings: Settings,
        preemptor: Preemptor,
        now: int,
        may_reserve: Callable[[Sequence[Attempt]], bool],
        guard: ReservationGuard | None = None,
        known: Nominations | None = None,
        supersede: Callable[[WorkloadState, WorkloadState], None] | None = None,
        moves: RoomByMoving | None = None,
        searches: SearchBudget | None = None,
        chooser: FlavorChooser | None = None,
    ) -> None:
        """`may_reserve`: whether a workload may start beside what these attempts reserved. `supersede(old, new)`: a slice holds
        nothing any more, since the one that replaces it does. `chooser` says which flavors a head may get, where its queue has a
        policy for that.
        """
        self._root = root
        self._known = known
        self._supersede = supersede
        self._moves = moves
        self._searches = searches
        self._chooser = chooser
        self._may_reserve = may_reserve
        self._guard = guard
        self._settings = settings
        self._preemptor = preemptor
        self._now = whole_second(now)
        self._heads = heads
        self._quota_holds = quota_holds_of(root)
        lasting = settings.fair_sharing is None and guard is None
        self._ledger = CycleLedger(preemptor, self._quota_holds, lasting=lasting)
        self.attempts: list[Attempt] = []
        #: the head being processed, for an error message
        self.subject: WorkloadState | None = None

    def run(self, most: int = maxsize) -> list[Attempt]:
        """Run the cycle. After `most` reservations and victims the remaining heads stay heads, as if they had not been
        popped.
        """
        self._root.rounds += 1
        attempts: list[Attempt] = []
        for head in self._heads:
            self.subject = head
            attempts.append(self._nominate(head))
        self.subject = None
        if self._guard is not None:
            self._guard.nominated(self._root, attempts)
        granted = 0
        for attempt in self._ordered(attempts):
            if granted >= most:
                attempt.gang.leave_out(NO_NAMES)
                attempt.queue.pending.unpop(attempt.gang)
                continue
            self.attempts.append(attempt)
            self.subject = attempt.gang
            if self._quota_holds:
                with self._ledger.as_seen_by(attempt.gang):
                    self._process(attempt)
            else:
                self._process(attempt)
            granted += attempt.reserved + len(attempt.new_victims)
        self.subject = None
        self._ledger.close()
        for attempt in self.attempts:
            self._put_back(attempt)
        return self.attempts

    def _gate(self, name: str, default: bool = True) -> bool:
        return self._settings.gates.get(name, default)

    # --- nominate -----------------------------------------------------------------------------------------------------

    def _nominate(self, gang: WorkloadState) -> Attempt:
        queue = queue_of(gang)
        assert queue is not None, gang
        if gang.workload.violation:
            return Attempt(gang, queue, Assignment.nothing(), [], queue.generation)
        tried = self._progress(gang, queue)
        if not tried:  # what it kept is void: this scan continues none
            gang.attempts.progress = None
        if self._quota_holds:
            with self._ledger.as_seen_by(gang):
                self._ledger.forget_candidates()
                return Attempt(gang, queue, *self._choose(gang, queue, tried), queue.generation)
        known = self._known.get(gang.uid) if self._known is not None else None
        if known is not None and known.tried == tried:
            if known.places:
                known.assignment.take_places(known.places, known.searched)
            return Attempt(gang, queue, known.assignment, known.victims, queue.generation)
        assignment, victims = self._choose(gang, queue, tried)
        if self._known is not None and (victims or assignment.mode is Mode.FIT):
            places = assignment.placements() if assignment.placing is not None else _NOWHERE
            self._known[gang.uid] = Nomination(tried, assignment, victims, places, assignment.searched)
        return Attempt(gang, queue, assignment, victims, queue.generation)

    def _progress(self, gang: WorkloadState, queue: ClusterQueueState) -> ScanProgress:
        """The flavors after which the scan continues; none if the workload or the queue has changed since the last scan."""
        progress = gang.attempts.progress
        if progress is None or progress.shape != gang.shape:
            return ()
        if progress.cycle < self._root.rounds - 1 and queue.generation > progress.generation:
            return ()
        return progress.tried

    def _choose(
        self, gang: WorkloadState, queue: ClusterQueueState, tried: ScanProgress
    ) -> tuple[Assignment, list[Victim]]:
        """The assignment of a head, on the flavor that is chosen for it where its queue has a policy for that."""
        if queue.config.flavors is None or self._chooser is None:
            return self._assign(gang, queue, tried, None)
        self._chooser.choose(gang, queue, self._preemptor)
        found, victims = self._assign(gang, queue, () if gang.left_out else tried, None)
        if gang.backfill.waits_for is not None:
            found.remark = gang.backfill.waits_for.text
        return found, victims

    def _assign(
        self, gang: WorkloadState, queue: ClusterQueueState, tried: ScanProgress, restriction: Restriction | None
    ) -> tuple[Assignment, list[Victim]]:
        """Flavors for all pods, or else for as many as partial admission allows; with victims where they are needed."""
        assigner = Assigner(
            gang, queue, self._preemptor, tried=tried, restriction=restriction, search=self._search(gang, queue)
        )
        self._preemptor.protected_until = None
        full, victims = self._with_victims(assigner, gang, queue, None)
        full.protected_until = self._preemptor.protected_until
        if full.mode is Mode.FIT or victims or not gang.shrinks or not self._gate("PartialAdmission"):
            return full, victims

        def fewer(counts: Sequence[int]) -> tuple[Assignment, list[Victim]] | None:
            assignment, victims = self._with_victims(assigner, gang, queue, counts)
            return (assignment, victims) if assignment.mode is Mode.FIT or victims else None

        return partial_admission.search(gang.demands, fewer) or (full, victims)

    def _search(self, gang: WorkloadState, queue: ClusterQueueState) -> PlaceFinder:
        """Finds places for the workload, by a search where a policy wants one."""
        policy = queue.placement or queue.preview
        if policy is None or policy.search is None or self._searches is None:
            return NO_SEARCH
        return PlaceFinder(self._searches, queue.name, gang.workload.namespace)

    def _with_victims(
        self, assigner: Assigner, gang: WorkloadState, queue: ClusterQueueState, counts: Sequence[int] | None
    ) -> tuple[Assignment, list[Victim]]:
        assignment = assigner.assign(counts)
        if assignment.mode is not Mode.PREEMPT or gang.backfill.waits_for is not None:
            return assignment, []
        victims = self._preemptor.victims(gang, queue, assignment)
        if not victims and queue.config.moves is not None and self._moves is not None and counts is None:
            victims = self._moves.victims(gang, queue, assignment)
        return assignment, victims

    # --- order --------------------------------------------------------------------------------------------------------

    def _ordered(self, attempts: list[Attempt]) -> Iterator[Attempt]:
        if len(attempts) < 2:
            return iter(attempts)
        if self._settings.fair_sharing is not None:
            prefer = self._gate("FairSharingPrioritizeNonBorrowing")
            return Tournament(self._root, attempts, prefer_not_borrowing=prefer, goes_first=self._goes_first).picks()
        by_priority = self._gate("PrioritySortingWithinCohort")
        return iter(
            sorted(
                attempts,
                key=lambda attempt: (
                    not self._goes_first(attempt),
                    attempt.assignment.borrowing,
                    -attempt.gang.priority if by_priority else 0,
                    attempt.gang.since,
                    attempt.gang.uid,
                ),
            )
        )

    def _goes_first(self, attempt: Attempt) -> bool:
        return attempt.queue.pending.held is attempt.gang or self._awaits_victims(attempt)

    def _awaits_victims(self, attempt: Attempt) -> bool:
        """Whether victims of an earlier cycle stop for the workload, and with the gate what they leave is not for others."""
        return (
            self._gate("PrioritizePreemptorWorkloads", default=False)
            and attempt.queue.pending.preemptor is attempt.gang
        )

    # --- process ------------------------------------------------------------------------------------------------------

    def _process(self, attempt: Attempt) -> None:
        if self._overlaps(attempt) and self._gate("RecomputeAssignmentUponPreemptionTargetsOverlap"):
            self._recompute(attempt)
        mode = attempt.assignment.mode
        awaited = preempted_for(attempt.gang, attempt.queue, self._quota_holds)
        attempt.gang.attempts.yielding = False  # it may have waited for a workload that has started since
        if attempt.gang.workload.violation:
            attempt.blocked = MISCONFIGURED
            self._skip(attempt, attempt.gang.workload.violation)
        elif attempt.assignment.replaces is not None and attempt.assignment.replaces.evicting:
            self._set_aside(attempt, WAITS_ITS_TURN, OLD_IS_STOPPED)
        elif names_another_job(attempt.gang, attempt.queue):
            self._set_aside(attempt, WAITS_ITS_TURN, OLD_IS_OF_ANOTHER)
        elif attempt.gang.variant and (why := variants.forbidden(attempt.gang, attempt.queue)):
            self._set_aside(attempt, WAITS_ITS_TURN, why)
        elif awaited is not None and mode is not Mode.NO_FIT:
            attempt.gang.attempts.yielding = True
            self._skip(attempt, f"Workload was preempted for {awaited.key} and waits until that workload has started")
        elif attempt.deferred:
            attempt.requeue_reason = PENDING
            self._assume(attempt, attempt.assignment.usage)
        elif mode is Mode.NO_FIT:
            attempt.requeue_reason = NO_FIT
        elif mode is Mode.PREEMPT and not attempt.victims:
            attempt.requeue_reason = NO_CANDIDATES
            self._reserve_capacity(attempt)
        elif mode is Mode.PREEMPT and attempt.gang.closed_gates:
            self._set_aside(attempt, ADMISSION_GATED, NEEDS_GATE)
        elif self._overlaps(attempt):
            self._skip(attempt, OVERLAP)
        elif not self._still_fits(attempt):
            self._skip(attempt, NO_LONGER_FITS)
        elif mode is Mode.PREEMPT and (limit := self._limit(attempt)) is not None:
            self._wait_for(attempt, limit)
        elif mode is Mode.PREEMPT and self._moves_others(attempt) and self._is_held_back(attempt):
            pass  # others would move in vain
        elif mode is Mode.PREEMPT and not self._find_homes(attempt):
            self._skip(attempt, NO_LONGER_FITS)
        elif mode is Mode.PREEMPT:
            self._preempt(attempt)
        elif not self._fits_beside_victims(attempt):
            self._skip(attempt, STILL_THERE)
        elif not self._may_reserve(self.attempts):
            attempt.blocked = NOT_READY
            self._skip(attempt, WAIT_READY)
        elif self._is_held_back(attempt):
            pass
        elif attempt.gang.variant and (running := variants.admitted_sibling(attempt.gang, attempt.queue)) is not None:
            self._migrate(attempt, running)
        else:
            self._reserve(attempt)

    def _is_held_back(self, attempt: Attempt) -> bool:
        """Whether the workload may not start since it would delay a reservation. One that was moved only goes on, and one for
        which others have moved has been asked before they did.
        """
        if self._guard is None:
            return False
        hold = attempt.queue.quota_holds.get(attempt.gang.uid)
        if hold is not None and hold.returns:
            return False  # nobody's reserved start counted on its end
        objection = self._guard.objection(attempt)
        if objection is None or (hold is not None and hold.moving):
            return False
        attempt.objection = objection
        attempt.blocked = HELD_BACK
        self._skip(attempt, objection.message)
        return True

    def _moves_others(self, attempt: Attempt) -> bool:
        """Whether workloads would be moved for it now."""
        return any(each.reason == MOVED and not each.gang.evicting for each in attempt.victims)

    def _limit(self, attempt: Attempt) -> LimitReached | None:
        """The limit that does not permit its preemptions now; what stops already has been counted."""
        new = [victim.gang for victim in attempt.victims if not victim.gang.evicting]
        return self._preemptor.log.obstacle(new, attempt.queue, self._preemptor.now) if new else None

    def _wait_for(self, attempt: Attempt, limit: LimitReached) -> None:
        """Let the workload wait until a limit permits its preemptions; others of its shape may need other ones."""
        self._preemptor.waits.note(attempt.queue.name, limit.until)
        attempt.blocked = PREEMPTION_LIMITED
        attempt.skipped = limit.text
        attempt.requeue_reason = GATED

    def _overlaps(self, attempt: Attempt) -> bool:
        if not self._ledger.victims:
            return False
        if attempt.assignment.replaces in self._ledger.victims:
            return True
        return any(victim.gang in self._ledger.victims for victim in attempt.victims)

    def _recompute(self, attempt: Attempt) -> None:
        """Earlier attempts evict some of its victims: what does it need then? Only the flavors nominated before count."""
        nominated = [pod_set.flavors for pod_set in attempt.assignment.pod_sets]
        with self._ledger.without_victims():
            if self._quota_holds or self._guard is not None:
                self._ledger.forget_candidates()
            attempt.assignment, attempt.victims = self._assign(attempt.gang, attempt.queue, (), nominated)
        attempt.recomputed = True
        attempt.deferred = attempt.assignment.mode is Mode.FIT

    def _still_fits(self, attempt: Attempt) -> bool:
        """Whether the attempt still fits with all victims gone, those of earlier attempts included, and with what these attempts
        take.
        """
        assignment, ahead = attempt.assignment, self._preemptor.quotas_ahead
        if ahead and any(
            ahead.short(attempt.gang, attempt.queue, cell, amount) for cell, amount in assignment.usage.items()
        ):
            return False
        if not self._ledger.victims and not attempt.victims:
            return self._fits(attempt, None)
        with (
            self._ledger.without_victims(),
            SimulatedRemoval(places=assignment.asks_for_places, lazily=True) as removal,
        ):
            removal.remove(*(victim.gang for victim in attempt.victims))
            return self._fits(attempt, removal)

    def _fits(self, attempt: Attempt, removal: SimulatedRemoval | None) -> bool:
        """Whether the assignment still fits: quota first; only then the nodes, without the removed workloads."""
        for cell, amount in attempt.assignment.usage.items():
            if amount > max(0, cell.available()):
                return False
        if removal is not None:
            removal.free_nodes()
        return self._has_places(attempt) and attempt.assignment.has_room()

    def _fits_beside_victims(self, attempt: Attempt) -> bool:
        """Whether the attempt fits while the victims chosen so far hold what they have. What their preemptors rely on is free
        until these start.
        """
        if not self._ledger.victims or STILL_HELD not in attempt.queue.fixes:
            return True
        self._ledger.with_victims()
        with self._ledger.without_assumptions():
            fits = all(amount <= cell.available() for cell, amount in attempt.assignment.usage.items())
        wanted = attempt.assignment.placing
        fits = fits and (wanted is None or wanted.still_free(attempt.assignment.placements()))
        return fits and attempt.assignment.has_room()

    def _has_places(self, attempt: Attempt) -> bool:
        """Whether the assignment has its places. Earlier attempts may have taken them: then find others."""
        assignment = attempt.assignment
        wanted = assignment.placing
        if wanted is None or (assignment.mode is Mode.FIT and wanted.still_free(assignment.placements())):
            return True
        if assignment.mode is Mode.FIT and not self._gate("TASRecomputeAssignmentWithinSchedulingCycle"):
            return False
        if assignment.mode is Mode.FIT:
            search = self._search(attempt.gang, attempt.queue)
            found, searched = search.places(wanted, assignment.places_everything)
        else:
            found, searched = wanted.now(), ""
        if found.ok:
            assignment.take_places(found.assignments, searched)
        return found.ok

    def _skip(self, attempt: Attempt, why: str) -> None:
        attempt.skipped = why
        attempt.requeue_reason = FAILED

    def _set_aside(self, attempt: Attempt, reason: str, why: str) -> None:
        """Let the workload wait for something else than quota, for which others of its shape do not wait."""
        attempt.blocked, attempt.skipped = reason, why
        attempt.requeue_reason = GATED

    def _migrate(self, attempt: Attempt, running: WorkloadState) -> None:
        """Stop the variant that runs on a less preferred flavor, since this one fits: it starts when the other is gone."""
        self._assume(attempt, attempt.assignment.usage)
        if not running.evicting:
            running.evict(f"Moves to a more preferred flavor as {attempt.gang.key}", "Evict")
            attempt.migrates = running
        attempt.requeue_reason = MIGRATING
        usage = {cell.fr: amount for cell, amount in attempt.assignment.usage.items()}
        hold_quota_for(attempt.gang, attempt.queue, usage, [running], self._preemptor.node_ledger)

    def _assume(self, attempt: Attempt, usage: Mapping[Cell, int]) -> None:
        """Count its usage for the rest of the cycle, if the cycle goes on.

        What a slice will give back is not free before it starts.
        """
        if len(self._heads) > 1:
            self._ledger.assume(attempt, {cell: max(0, amount) for cell, amount in usage.items()})

    def _reserve_capacity(self, attempt: Attempt) -> None:
        """Reserve quota for a workload that no victim can help: other workloads do not get it in this cycle, unless the workload
        may reclaim it anyway.
        """
        reclaims = attempt.queue.config.preemption.reclaim_within_cohort == "Any" and not self._awaits_victims(attempt)
        if reclaims and attempt.assignment.protected_until is None:
            return
        self._ledger.with_victims()
        assignment = attempt.assignment
        self._assume(
            attempt, {cell: _kept(cell, amount, assignment.borrowing > 0) for cell, amount in assignment.usage.items()}
        )

    def _find_homes(self, attempt: Attempt) -> bool:
        """Find room for those that move. Whether all have some that do not move already."""
        movers = [each.gang for each in attempt.victims if each.reason == MOVED and not _is_kept_room(each.gang)]
        if not movers or self._moves is None:
            return True
        self._ledger.with_victims()
        attempt.homes = self._moves.homes(attempt.assignment, attempt.queue, movers)
        return all(mover in attempt.homes or mover.evicting for mover in movers)

    def _preempt(self, attempt: Attempt) -> None:
        self._assume(attempt, attempt.assignment.usage)
        for victim in attempt.victims:
            self._ledger.choose(victim.gang)
            if not victim.gang.evicting:
                moved = victim.reason == MOVED
                self._preemptor.log.note(victim.gang, attempt.queue, self._preemptor.now, moved=moved)
                victim.gang.evict(f"Preempted for {attempt.gang.key} ({victim.reason})", "Preempt")
                attempt.new_victims.append(victim)
        if attempt.new_victims and self._guard is not None:
            self._guard.preempts(attempt.gang)
        attempt.requeue_reason = PENDING
        usage = {cell.fr: amount for cell, amount in attempt.assignment.usage.items()}
        victims, request = [victim.gang for victim in attempt.victims], attempt.assignment.capacity_request
        # found by `_still_fits`, without all victims
        room = request.takes() if request is not None else NOWHERE
        set_aside(attempt.gang, attempt.queue)
        ledger, moving = self._preemptor.node_ledger, all(each.reason == MOVED for each in attempt.victims)
        placed = self._moves.room_of(attempt.assignment, attempt.queue).placed if moving and self._moves else ()
        hold = attempt.queue.quota_holds.get(attempt.gang.uid)
        if hold is not None and hold.moving and hold.has_room and not attempt.new_victims:
            room, placed = hold.room, hold.placed  # other room may be where one of those goes that move for it
        hold_quota_for(attempt.gang, attempt.queue, usage, victims, ledger, room, placed, moving=moving)
        for mover, (its_room, its_places) in attempt.homes.items():
            if (queue := queue_of(mover)) is not None:
                its_usage = dict(mover.quota.usage)
                hold_quota_for(mover, queue, its_usage, [mover], ledger, its_room, its_places)
                queue.quota_holds[mover.uid].hold_room()

    def _reserve(self, attempt: Attempt) -> None:
        gang, queue, old = attempt.gang, attempt.queue, attempt.assignment.replaces
        gang.attempts.verdict = gang.attempts.progress = None
        set_aside(gang, queue)
        queue.pending.take_out(gang)
        queue.pending.forget_precedence(gang)
        admission = attempt.assignment.admission(queue.name)
        request = attempt.assignment.capacity_request
        assigned = request.assigned if request is not None else None
        if old is not None and self._supersede is not None:
            assigned = self._preemptor.capacity.with_places_of(old, assigned)
            self._supersede(old, gang)
        queue.hold(gang, admission, attempt.assignment.total(), self._now)
        gang.enter(LifecycleState.RESERVED, f"Quota reserved in ClusterQueue {queue.name}", "Admit")
        self._ledger.forget_candidates()
        if has_placements(admission):
            self._preemptor.topologies.put_holder(gang.key, admission, gang.node_needs(admission))
        self._preemptor.capacity.take(gang, admission, assigned)
        give_way(gang, self._quota_holds)
        if self._guard is not None:
            self._guard.reserved(attempt)
        if old is not None:
            self._ledger.choose(old)  # nor is the slice that it replaces, which holds nothing any more
        gang.quota.protect(True)  # not a victim in the cycle in which it was reserved
        attempt.reserved = True

    # --- put back -----------------------------------------------------------------------------------------------------

    def _put_back(self, attempt: Attempt) -> None:
        chosen = bool(attempt.gang.left_out)
        if chosen:
            attempt.gang.leave_out(NO_NAMES)
        if attempt.reserved:
            attempt.gang.quota.protect(False)
            end_quota_hold(attempt.gang, attempt.queue)
            return
        gang, pending, reason = attempt.gang, attempt.queue.pending, attempt.requeue_reason
        pending.take_out(gang)
        if attempt.blocked == NOT_READY:
            pending.held = gang
        elif pending.held is gang:
            pending.held = None
        pending.returning.pop(gang.uid, None)
        if gang.workload.violation and (gang.workload.overtaken or not pending.strict):
            pending.set_alone_inadmissible(gang)
            return
        gang.attempts.verdict = attempt.assignment
        continued = gang.attempts.progress
        attempt.outdated = continued is not None and (continued.overtaken or continued.began != self._root.flushes)
        gang.attempts.progress = None if chosen else self._kept_progress(attempt, continued)
        if reason == PENDING:
            pending.preemptor = gang
            if (hold := attempt.queue.quota_holds.get(gang.uid)) is not None:
                hold.hold_room()
        if reason in (NO_FIT, NO_CANDIDATES):
            end_quota_hold(gang, attempt.queue)
        if (gang.attempts.yielding or reason in (GATED, MIGRATING)) and not pending.strict:
            pending.set_alone_inadmissible(gang)
            return
        gang.attempts.yielding = False
        if gang.backfill.waits_for is not None:
            pending.set_alone_inadmissible(gang)
            return
        if attempt.objection is not None and self._guard is not None and gang.attempts.progress is None:
            attempt.others_inadmissible = self._guard.hold_back(attempt, attempt.objection)
            return
        reported_pending = reason in (NO_FIT, NO_CANDIDATES) and not pending.strict
        if reported_pending and gang.attempts.progress is None:
            attempt.others_inadmissible = pending.mark_inadmissible(gang)
        else:
            pending.arrive(gang)

    def _kept_progress(self, attempt: Attempt, continued: LastScan | None) -> LastScan | None:
        """The state of the flavor scan, with which the next one continues; None if the next one starts at the first flavor, as it
        does when no flavor is left to try. `continued`: where this scan went on.
        """
        kept = attempt.requeue_reason in (NO_FIT, NO_CANDIDATES) or (
            attempt.requeue_reason == FAILED and self._gate("FlavorFungibilityPreserveScanProgress")
        )
        # where pods have to be ready first, no flavor refused it: Kueue's scheduler stands still until they are
        if not kept or not attempt.assignment.flavors_left() or attempt.blocked == NOT_READY:
            return None
        return LastScan(
            attempt.assignment.progress(),
            attempt.gang.shape,
            self._root.rounds,
            attempt.generation,
            self._root.flushes if continued is None else continued.began,
            attempt.requeue_reason == FAILED or (continued is not None and continued.overtaken),
        )


def _is_kept_room(gang: WorkloadState) -> bool:
    """Whether room is kept for a workload where it moves."""
    queue = queue_of(gang)
    return queue is not None and gang.uid in queue.quota_holds


def _kept(cell: Cell, amount: int, borrowing: bool) -> int:
    """The quota that a waiting workload keeps from others: up to nominal quota, or up to the borrowing limit if it borrows."""
    if not borrowing:
        return max(0, min(amount, cell.nominal - cell.usage))
    if cell.borrowing_limit is None:
        return amount
    return min(amount, cell.nominal + cell.borrowing_limit - cell.usage)
