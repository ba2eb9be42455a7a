"""Who has to go so that a gang fits: no more than needed, least valuable first.

This module chooses candidates and victims the classic way, by priority and by who borrows; `fair_victims` does it by shares.
A policy may protect gangs from being chosen (`protection`), and say which of the others are chosen (`victim_choice`).
Every what-if runs on the ledger itself: victims are taken out, one by one, and all are put back before the answer is given.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

from gangline.engine.assignment import Assignment, Grade, Mode
from gangline.engine.fixes import PODS_IN_SEARCH
from gangline.engine.gang import Gang
from gangline.engine.model import Millis, PreemptionPolicy, Settings
from gangline.engine.protection import Waits
from gangline.engine.quota import Cell, FlavorResource, Node
from gangline.engine.topology import Topologies
from gangline.engine.victim_choice import (
    Candidate,
    Need,
    Victim,
    best_attempt,
    greedy_attempt,
    put_back,
    sorted_candidates,
    take_out,
)

if TYPE_CHECKING:
    from gangline.engine.capacity import Capacity
    from gangline.engine.cluster_queue import ClusterQueueState
    from gangline.engine.want import Want

IN_QUEUE = "InClusterQueue"
RECLAMATION = "InCohortReclamation"
WHILE_BORROWING = "InCohortReclaimWhileBorrowing"
FAIR_SHARING = "InCohortFairSharing"


class Preemptor:
    """Answers the scheduler's two questions about preemption; `find` is the way in which victims are chosen.

    For a gang that lacks one resource and asks for no other both questions are the same: it is answered once. `now` is to be
    set before anything is asked.
    """

    def __init__(
        self,
        settings: Settings,
        topologies: Topologies,
        find: Callable[[Need], list[Victim]],
        capacity: Capacity | None = None,
    ) -> None:
        self.settings = settings
        self.topologies = topologies
        #: what healthy nodes have room for; None = quota alone counts
        self.capacity = capacity
        self.now: Millis = 0
        #: those who were turned away since others are protected, by queue
        self.waits = Waits()
        #: some were turned away only since others are protected: until when the first of these are; to be reset by who asks
        self.protected_until: Millis | None = None
        self._find = find
        self._answered: tuple[Gang, Cell, int, list[Victim]] | None = None

    def possibility(self, gang: Gang, queue: ClusterQueueState, cell: Cell, amount: int) -> Grade:
        """How preemption could free `amount` of one flavor and resource, and how high the gang would borrow then."""
        victims = self._search(Need(gang, queue, (cell.fr,), {cell: amount}, None, None, self.now, []))
        self._answered = gang, cell, amount, victims
        if not victims:
            return Grade(Mode.NO_CANDIDATES, cell.height(amount)[0])
        take_out(victim.gang for victim in victims)
        borrow = cell.height(amount)[0]
        put_back(victim.gang for victim in victims)
        own = any(victim.gang.queue is queue for victim in victims)
        return Grade(Mode.PREEMPT if own else Mode.RECLAIM, borrow)

    def victims(self, gang: Gang, queue: ClusterQueueState, assignment: Assignment) -> list[Victim]:
        """The victims that make room for the whole assignment; none if that can't be."""
        answered, self._answered = self._answered, None
        cells, requests = assignment.needed(), assignment.requests(with_pods=PODS_IN_SEARCH in queue.fixes)
        if answered is not None and len(cells) == 1 and assignment.placing is None and assignment.want is None:
            known, cell, amount, victims = answered
            if known is gang and cell is cells[0] and requests == {cell: amount}:
                return victims
        frs = tuple(cell.fr for cell in cells)
        return self._search(Need(gang, queue, frs, requests, assignment.placing, assignment.want, self.now, []))

    def for_room(self, gang: Gang, queue: ClusterQueueState, requests: Mapping[Cell, int], want: Want) -> list[Victim]:
        """The victims that make room on the nodes of one flavor, where quota is not what is missing."""
        frs = tuple(cell.fr for cell in requests)
        return self._search(Need(gang, queue, frs, requests, None, want, self.now, []))

    def _search(self, need: Need) -> list[Victim]:
        """The victims; if there are none since others are protected, it is noted when that ends, and whether it matters."""
        victims = self._find(need)
        if not victims and need.spared:
            first = min(need.spared)
            self.waits.note(need.queue.name, first)
            if self._find(need._replace(spared=None)):
                known = self.protected_until
                self.protected_until = first if known is None else min(first, known)
        return victims


# --- candidates -------------------------------------------------------------------------------------------------------


def preemptible(need: Need, queue: ClusterQueueState, policy: str) -> Iterator[Gang]:
    """The holders of `queue` that may be preempted under a policy and that use what is lacking, lowest priority first."""
    if policy == "Never":
        return
    gang, frs = need.gang, need.frs
    protects = queue.config.victims is not None
    for holder in queue.by_priority:
        if policy != "Any":
            if holder.priority > gang.priority:
                return
            if holder.priority == gang.priority and (
                policy != "LowerOrNewerEqualPriority" or holder.since <= gang.since
            ):
                continue
        if holder.out or holder.usage.keys().isdisjoint(frs) or (protects and need.spares(holder)):
            continue
        yield holder


# --- the classic way --------------------------------------------------------------------------------------------------


def classic_victims(need: Need) -> list[Victim]:
    queue, policy = need.queue, need.queue.config.preemption
    own = [Candidate(gang, IN_QUEUE) for gang in preemptible(need, queue, policy.within_cluster_queue)]
    by_right, by_priority = _candidates_elsewhere(need)
    if not (own or by_right or by_priority):
        return []
    groups = [sorted_candidates(group, need) for group in (by_right, by_priority, own)]
    evicted = [candidate for group in groups for candidate in group if candidate.gang.evicting]
    others = [candidate for group in groups for candidate in group if not candidate.gang.evicting]
    attempt = best_attempt if queue.config.victims is not None else greedy_attempt
    for may_borrow in _attempts(need, bool(by_right), bool(by_priority)):
        victims = attempt(need, evicted + others, may_borrow)
        if victims:
            return victims
    return []


def _attempts(need: Need, by_right: bool, by_priority: bool) -> tuple[bool, ...]:
    """Whether borrowing is allowed, attempt by attempt."""
    no_borrowing_victims = need.queue.config.preemption.borrow_within_cohort == "Never"
    if not (by_right or by_priority):
        return (True,)
    if no_borrowing_victims and _reached_nominal(need):
        return (True,)
    if no_borrowing_victims and not by_right:
        return (False, True)
    return (True, False)


def _reached_nominal(need: Need) -> bool:
    return any(cell.usage >= cell.nominal for cell in map(need.queue.cell, need.frs))


def _candidates_elsewhere(need: Need) -> tuple[list[Candidate], list[Candidate]]:
    """From the parent cohort upward: those that may be reclaimed by right, and those where priority has to decide.

    By right means that below the common ancestor the gang would stay within quota: what it asks for is its own to take.
    """
    by_right: list[Candidate] = []
    by_priority: list[Candidate] = []
    policy = need.queue.config.preemption
    if need.queue.parent is None or policy.reclaim_within_cohort == "Never":
        return by_right, by_priority
    remaining = {cell.fr: amount for cell, amount in need.requests.items()}
    seen: Node = need.queue
    cohort: Node | None = need.queue.parent
    rightful = _fits_in_quota(seen, remaining)
    # borrowing is the only attempt then, and without right or priority nobody may be preempted for it
    only_by_right = policy.borrow_within_cohort == "Never" and _reached_nominal(need)
    while cohort is not None:
        if only_by_right and not rightful:
            rightful = _fits_in_quota(cohort, remaining)
            seen, cohort = cohort, cohort.parent
            continue
        for queue in _over_quota_below(cohort, seen, need.frs):
            for gang in preemptible(need, queue, policy.reclaim_within_cohort):
                if rightful:
                    by_right.append(Candidate(gang, RECLAMATION, cohort))
                else:
                    by_priority.append(_by_priority(need.gang, gang, cohort, policy))
        rightful = _fits_in_quota(cohort, remaining) or rightful
        seen, cohort = cohort, cohort.parent
    return by_right, by_priority


def _by_priority(gang: Gang, victim: Gang, common: Node, policy: PreemptionPolicy) -> Candidate:
    threshold = policy.max_priority_threshold
    while_borrowing = (
        policy.borrow_within_cohort != "Never"
        and victim.priority < gang.priority
        and (threshold is None or victim.priority <= threshold)
    )
    if while_borrowing:
        return Candidate(victim, WHILE_BORROWING, common)
    return Candidate(victim, RECLAMATION, common, only_without_borrowing=True)


def _fits_in_quota(node: Node, remaining: dict[FlavorResource, int]) -> bool:
    """Whether the rest of the request is within the node's quota; what its local part covers is taken off the rest."""
    fits = True
    for fr, amount in remaining.items():
        cell = node.cell(fr)
        if cell.usage + amount > cell.subtree:
            fits = False
        remaining[fr] = max(0, amount - max(0, cell.local - cell.usage))
    return fits


def _over_quota_below(cohort: Node, seen: Node, frs: Sequence[FlavorResource]) -> Iterator[ClusterQueueState]:
    """ClusterQueues outside the part already seen that use more than their quota, down paths that all do."""
    for child in cohort.cohorts:
        if child is not seen and child.over_quota(frs):
            yield from _over_quota_below(child, seen, frs)
    for queue in cohort.queues:
        if queue is not seen and queue.in_service and queue.over_quota(frs):
            yield queue
