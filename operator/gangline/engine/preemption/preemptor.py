"""The preemptor: finds the workloads that have to be preempted so that a gang fits, no more than needed, least valuable first.

This module chooses victims the classic way, by priority and borrowing; `fair_victims` does it by shares. A policy may protect
workloads (`protection`) and set which of the others are chosen (`victim_search`). Every trial runs on the ledger itself:
victims are removed, one by one, and all are put back before the answer is given.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import chain
from typing import NamedTuple, TypeAlias

from gangline.engine.flavors.assignment import Assignment, Grade, Mode
from gangline.engine.model import Millis, Settings
from gangline.engine.model.settings import PODS_IN_SEARCH
from gangline.engine.nodes.capacity import Capacity
from gangline.engine.nodes.capacity_request import CapacityRequest
from gangline.engine.occupancy.node_ledger import NOWHERE, NodeLedger
from gangline.engine.preemption.simulated_removal import simulate
from gangline.engine.preemption.victim_search import (
    LEAST_LOST_WORK,
    Candidate,
    Need,
    Victim,
    best_attempt,
    choice_of,
    greedy_attempt,
    sorted_candidates,
    still_valid,
)
from gangline.engine.queues.cluster_queue import ClusterQueueState
from gangline.engine.queues.preemption_log import MOVED, PreemptionLog
from gangline.engine.queues.protection import Waits
from gangline.engine.queues.quotas_ahead import QuotasAhead
from gangline.engine.queues.workload_state import WorkloadState
from gangline.engine.quota.quota_ledger import Cell, FlavorResource, QuotaNode
from gangline.engine.topology.topologies import Topologies

# --- candidates -------------------------------------------------------------------------------------------------------
# Candidates of classic preemption: in the own queue by priority, in other queues of the tree the holders above quota.
#
# In a cohort of 100 queues, every release makes 100 heads look for victims, mostly among the same workloads. So the list of
# candidates of other queues is kept (`Known`) for as long as no queue of the tree gets more than it had. Until then the list is
# complete and in the right order, but may have workloads that a trial removed or whose queue is no longer above its quota:
# `still_candidate` filters those.


IN_QUEUE = "InClusterQueue"
RECLAMATION = "InCohortReclamation"
WHILE_BORROWING = "InCohortReclaimWhileBorrowing"
FAIR_SHARING = "InCohortFairSharing"

#: What makes two preemptors find the same candidates at a cohort: the cohort, the missing resources, priority, and the
#: policy.
Key: TypeAlias = tuple[object, ...]


class Candidates(NamedTuple):
    """Candidates of preemption: those that leave already, and those that stay; each in the order in which they would be
    preempted.
    """

    leaving: Sequence[Candidate] = ()
    staying: Sequence[Candidate] = ()

    def any(self, need: Need) -> bool:
        """Whether there is a candidate, though perhaps not for a preemptor that borrows."""
        return any(
            still_candidate(need, candidate) and still_valid(need, candidate, may_borrow=False)
            for part in self
            for candidate in part
        )


NO_CANDIDATES = Candidates()

Known: TypeAlias = dict[Key, Candidates]


class _Level(NamedTuple):
    """A cohort above the preemptor's queue; `seen` is the part below it that was searched before."""

    cohort: QuotaNode
    seen: QuotaNode
    by_right: bool


def still_candidate(need: Need, candidate: Candidate) -> bool:
    """Whether a candidate may still be chosen: no workload is chosen twice, and a list made for another queue may contain the own
    queue's workloads.
    """
    gang = candidate.gang
    return not gang.quota.removed and (candidate.common is None or gang.queue is not need.queue)


def preemptible(need: Need, queue: ClusterQueueState, policy: str) -> Iterator[WorkloadState]:
    """The holders of `queue` that a policy allows to preempt and that use what is missing, lowest priority first."""
    if policy == "Never":
        return
    gang, frs = need.gang, need.frs
    protects = queue.config.victims is not None
    equals = policy == "LowerOrNewerEqualPriority"
    for holder in queue.by_priority:
        need.effort += 1
        if policy != "Any":
            if holder.priority > gang.priority or (holder.priority == gang.priority and not equals):
                return
            if holder.priority == gang.priority and holder.since <= gang.since:
                continue
        if gang.replaces and holder.key == gang.replaces:
            continue
        if holder.quota.removed or holder.quota.usage.keys().isdisjoint(frs) or (protects and need.spares(holder)):
            continue
        yield holder


def own_candidates(need: Need) -> Candidates:
    policy = need.queue.config.preemption.within_cluster_queue
    if policy == "Never":
        return NO_CANDIDATES
    return _in_order([Candidate(gang, IN_QUEUE) for gang in preemptible(need, need.queue, policy)], need)


def candidates_of_other_queues(need: Need, known: Known) -> tuple[Candidates, Candidates]:
    """Candidates in other queues, from the parent cohort upward: those that may be reclaimed by right, and those for which
    priority has to decide.

    By right means that below the common ancestor the preemptor would stay within quota: it asks for what its queue owns.
    """
    if need.queue.parent is None or need.queue.config.preemption.reclaim_within_cohort == "Never":
        return NO_CANDIDATES, NO_CANDIDATES
    by_right: list[Candidates] = []
    by_priority: list[Candidates] = []
    for level in _levels(need):
        found = _candidates_at(level, need, known)
        if found is not NO_CANDIDATES:
            (by_right if level.by_right else by_priority).append(found)
    return _merged(by_right, need), _merged(by_priority, need)


def reached_nominal(need: Need) -> bool:
    return any(cell.usage >= cell.nominal for cell in map(need.queue.cell, need.frs))


def _levels(need: Need) -> Iterator[_Level]:
    policy = need.queue.config.preemption
    remaining = {cell.fr: amount for cell, amount in need.requests.items()}
    seen: QuotaNode = need.queue
    cohort: QuotaNode | None = need.queue.parent
    rightful = _fits_in_quota(seen, remaining)
    # borrowing is the only attempt then, and without right or priority no workload may be preempted for it
    only_by_right = policy.borrow_within_cohort == "Never" and reached_nominal(need)
    while cohort is not None:
        if only_by_right and not rightful:
            rightful = _fits_in_quota(cohort, remaining)
        else:
            yield _Level(cohort, seen, rightful)
            rightful = _fits_in_quota(cohort, remaining) or rightful
        seen, cohort = cohort, cohort.parent


def _candidates_at(level: _Level, need: Need, known: Known) -> Candidates:
    """The candidates of one level. A kept list leaves out no candidate but those of `seen`, if that is a cohort."""
    policy = need.queue.config.preemption
    seen = level.seen if level.seen is not need.queue else None
    limit = None if policy.reclaim_within_cohort == "Any" else need.gang.priority
    terms = None
    if not level.by_right and policy.borrow_within_cohort != "Never":
        terms = need.gang.priority, policy.max_priority_threshold
    key = level.cohort, seen, need.frs, limit, level.by_right, terms
    found = known.get(key)
    if found is None:
        queues = list(_over_quota_below(level.cohort, seen, need.frs))
        alike = need.queue.config.victims is None and all(_orders_as_usual(queue) for queue in queues)
        if not alike:
            queues = [queue for queue in queues if queue is not need.queue]
        found = _in_order([candidate for queue in queues for candidate in _candidates_of(queue, level, need)], need)
        if alike:
            known[key] = found
    return found


def _orders_as_usual(queue: ClusterQueueState) -> bool:
    """Whether the policy's protection depends neither on the time nor on the preemptor."""
    return queue.config.victims is None and not queue.fair_usage


def _candidates_of(queue: ClusterQueueState, level: _Level, need: Need) -> Iterator[Candidate]:
    policy = need.queue.config.preemption
    for gang in preemptible(need, queue, policy.reclaim_within_cohort):
        if level.by_right:
            yield Candidate(gang, RECLAMATION, level.cohort)
        elif (
            policy.borrow_within_cohort != "Never"
            and gang.priority < need.gang.priority
            and (policy.max_priority_threshold is None or gang.priority <= policy.max_priority_threshold)
        ):
            yield Candidate(gang, WHILE_BORROWING, level.cohort)
        else:
            yield Candidate(gang, RECLAMATION, level.cohort, only_without_borrowing=True)


def _in_order(found: list[Candidate], need: Need) -> Candidates:
    if not found:
        return NO_CANDIDATES
    found = sorted_candidates(found, need)
    leaving = sum(candidate.gang.evicting for candidate in found)
    return Candidates(found[:leaving], found[leaving:])


def _merged(levels: Sequence[Candidates], need: Need) -> Candidates:
    if len(levels) < 2:
        return levels[0] if levels else NO_CANDIDATES
    return _in_order([candidate for level in levels for part in level for candidate in part], need)


def _fits_in_quota(node: QuotaNode, remaining: dict[FlavorResource, int]) -> bool:
    """Whether the rest of the request is within the node's quota; what its local part covers is subtracted from the rest."""
    fits = True
    for fr, amount in remaining.items():
        cell = node.cell(fr)
        if cell.usage + amount > cell.subtree:
            fits = False
        remaining[fr] = max(0, amount - max(0, cell.local - cell.usage))
    return fits


def _over_quota_below(
    cohort: QuotaNode, seen: QuotaNode | None, frs: Sequence[FlavorResource]
) -> Iterator[ClusterQueueState]:
    """ClusterQueues outside the part already searched that use more than their quota, below cohorts that all do."""
    for child in cohort.cohorts:
        if child is not seen and child.over_quota(frs):
            yield from _over_quota_below(child, seen, frs)
    for queue in cohort.queues:
        if isinstance(queue, ClusterQueueState) and queue.in_service and queue.over_quota(frs):
            yield queue


# --- preemptor --------------------------------------------------------------------------------------------------------


class Preemptor:
    """Answers the scheduler's two questions about preemption; `find` is the algorithm that chooses victims.

    For a gang that lacks one resource and asks for no other, both questions are the same: the answer is computed once. `now`
    has to be set before any question.
    """

    def __init__(
        self,
        settings: Settings,
        topologies: Topologies,
        find: Callable[[Need], list[Victim]],
        capacity: Capacity,
        known: Known | None = None,
        log: PreemptionLog | None = None,
        quotas_ahead: QuotasAhead | None = None,
    ) -> None:
        self.settings = settings
        #: quotas that change later; None = they do not matter
        self.quotas_ahead = quotas_ahead
        #: what was preempted lately, and whether more may be
        self.log = log if log is not None else PreemptionLog()
        self.topologies = topologies
        #: room on healthy nodes
        self.capacity = capacity
        #: candidates that `find` keeps; to be cleared when a queue of the tree gets more than it had
        self.known: Known = {} if known is None else known
        self.now: Millis = 0
        #: gangs that found no victims because these are protected, by queue
        self.waits = Waits()
        #: some gang found no victims because of protection: when the first one ends; reset by the caller
        self.protected_until: Millis | None = None
        self._find = find
        self._answered: tuple[WorkloadState, Cell, int, list[Victim]] | None = None

    @property
    def node_ledger(self) -> NodeLedger:
        return self.topologies.node_ledger

    def take_room(self, key: str, assignment: Assignment, queue: str) -> None:
        """An assignment takes its room on nodes, until the assumption of that `key` ends."""
        admission, request = assignment.admission(queue), assignment.capacity_request
        placed = self.topologies.taken(admission, assignment.node_needs(admission)) if assignment.placements() else ()
        self.node_ledger.assume(key, placed, request.takes() if request is not None else NOWHERE)

    def possibility(self, gang: WorkloadState, queue: ClusterQueueState, cell: Cell, amount: int) -> Grade:
        """How preemption could free `amount` of one flavor and resource, and how high the gang would borrow then."""
        victims = self._search(Need(gang, queue, (cell.fr,), {cell: amount}, None, None, self.now, []))
        self._answered = gang, cell, amount, victims
        if not victims:
            return Grade(Mode.NO_CANDIDATES, cell.height(amount)[0])
        with simulate(removed=(victim.gang for victim in victims), places=False):
            borrow = cell.height(amount)[0]
        own = any(victim.gang.queue is queue for victim in victims)
        return Grade(Mode.PREEMPT if own else Mode.RECLAIM, borrow)

    def victims(self, gang: WorkloadState, queue: ClusterQueueState, assignment: Assignment) -> list[Victim]:
        """The victims that make room for the whole assignment; none if that is impossible."""
        answered, self._answered = self._answered, None
        cells, requests = assignment.needed(), assignment.requests(with_pods=PODS_IN_SEARCH in queue.fixes)
        if answered is not None and len(cells) == 1 and not assignment.asks_for_places:
            known, cell, amount, victims = answered
            if known is gang and cell is cells[0] and requests == {cell: amount}:
                return victims
        frs = tuple(cell.fr for cell in cells)
        return self._search(
            Need(gang, queue, frs, requests, assignment.placing, assignment.capacity_request, self.now, [])
        )

    def for_room(
        self,
        gang: WorkloadState,
        queue: ClusterQueueState,
        requests: Mapping[Cell, int],
        capacity_request: CapacityRequest,
    ) -> list[Victim]:
        """The victims that make room on the nodes of one flavor, where quota is not missing."""
        frs = tuple(cell.fr for cell in requests)
        return self._search(Need(gang, queue, frs, requests, None, capacity_request, self.now, []))

    def _search(self, need: Need) -> list[Victim]:
        """The victims; if there are none because of protection, record when that ends, and whether it matters."""
        victims = self._chosen(need)
        if not victims and need.spared:
            first = min(need.spared)
            self.waits.note(need.queue.name, first)
            if self._chosen(replace(need, spared=None)):
                known = self.protected_until
                self.protected_until = first if known is None else min(first, known)
        return victims

    def _chosen(self, need: Need) -> list[Victim]:
        """The victims by the queue's policy, or else in Kueue's order: earlier victims decide which ones may follow."""
        victims = _awaited(need) or self._found(need)
        if victims or choice_of(need) != LEAST_LOST_WORK:
            return victims
        return self._found(replace(need, as_kueue=True))

    def _found(self, need: Need) -> list[Victim]:
        """What the search finds; what it takes counts for the round, as looks at rooms do."""
        before = need.effort
        try:
            return self._find(need)
        finally:
            self.node_ledger.looks += need.effort - before


def without_victims(
    settings: Settings, topologies: Topologies, capacity: Capacity, quotas_ahead: QuotasAhead | None
) -> Preemptor:
    """Answers as if nothing could be preempted: for trials of what fits by itself."""
    return Preemptor(settings, topologies, lambda need: [], capacity, quotas_ahead=quotas_ahead)


def _awaited(need: Need) -> list[Victim]:
    """The victims that stop for the workload already, if it needs no others. A rule by which one of them could not be chosen any
    more, now that another one has stopped, must not make their stopping vain.
    """
    hold = need.queue.quota_holds.get(need.gang.uid)
    leaving = [gang for gang in hold.victims if gang.holds and gang.evicting and not gang.quota.removed] if hold else []
    if not leaving:
        return []
    with need.removal as removal:
        removal.remove(*leaving)
        if not need.fits():
            return []
        if hold is not None and hold.moving:
            return [Victim(gang, MOVED) for gang in leaving]
        return [Victim(gang, IN_QUEUE if gang.queue is need.queue else RECLAMATION) for gang in leaving]


# --- the classic way --------------------------------------------------------------------------------------------------


def classic_victims(need: Need, known: Known) -> list[Victim]:
    queue = need.queue
    own = own_candidates(need)
    by_right, by_priority = candidates_of_other_queues(need, known)
    groups = (by_right, by_priority, own)
    if own is NO_CANDIDATES and by_right is NO_CANDIDATES and by_priority is NO_CANDIDATES:
        return []
    rights, priorities = by_right.any(need), by_priority.any(need)
    if not (rights or priorities or own.any(need)):
        return []
    for may_borrow in _attempts(need, rights, priorities):
        parts = chain((group.leaving for group in groups), (group.staying for group in groups))
        candidates = (candidate for part in parts for candidate in part if still_candidate(need, candidate))
        if queue.config.victims is not None:
            victims = best_attempt(need, list(candidates), may_borrow)
        else:
            victims = greedy_attempt(need, candidates, may_borrow)
        if victims:
            return victims
    return []


def _attempts(need: Need, by_right: bool, by_priority: bool) -> tuple[bool, ...]:
    """Whether borrowing is allowed, attempt by attempt."""
    no_borrowing_victims = need.queue.config.preemption.borrow_within_cohort == "Never"
    if not (by_right or by_priority):
        return (True,)
    if no_borrowing_victims and reached_nominal(need):
        return (True,)
    if no_borrowing_victims and not by_right:
        return (False, True)
    return (True, False)
