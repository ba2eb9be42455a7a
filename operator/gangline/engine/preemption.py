"""Who has to go so that a gang fits: the smallest set of victims, least valuable first.

This module chooses candidates and victims the classic way, by priority and by who borrows; `fair_victims` does it by shares.
Every what-if runs on the ledger itself: victims are taken out, one by one, and all are put back before the answer is given.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import cmp_to_key
from typing import TYPE_CHECKING, NamedTuple

from gangline.engine.fixes import PODS_IN_SEARCH
from gangline.engine.flavors import Assignment, Grade, Mode
from gangline.engine.gang import Gang
from gangline.engine.model import PreemptionPolicy, Settings
from gangline.engine.placement import Placing
from gangline.engine.quota import Cell, FlavorResource, Node
from gangline.engine.topology import Topologies

if TYPE_CHECKING:
    from gangline.engine.capacity import Capacity
    from gangline.engine.cluster_queue import ClusterQueueState
    from gangline.engine.want import Want

IN_QUEUE = "InClusterQueue"
RECLAMATION = "InCohortReclamation"
WHILE_BORROWING = "InCohortReclaimWhileBorrowing"
FAIR_SHARING = "InCohortFairSharing"


class Victim(NamedTuple):
    gang: Gang
    reason: str


class Need(NamedTuple):
    """What a gang asks of the victims: room for `requests`, of which `frs` are those that it lacks."""

    gang: Gang
    queue: ClusterQueueState
    frs: tuple[FlavorResource, ...]
    requests: Mapping[Cell, int]
    placing: Placing | None = None
    want: Want | None = None

    def fits(self, *, may_borrow: bool = True) -> bool:
        for cell, amount in self.requests.items():
            if amount > cell.available() or (not may_borrow and cell.usage + amount > cell.nominal):
                return False
        if self.placing is not None and not self.placing.now().ok:
            return False
        return self.want is None or self.want.lacks() is None


class Candidate(NamedTuple):
    gang: Gang
    reason: str
    common: Node | None = None  # lowest common ancestor with the preemptor; None = same queue
    only_without_borrowing: bool = False


class Preemptor:
    """Answers the scheduler's two questions about preemption; `find` is the way in which victims are chosen.

    For a gang that lacks one resource and asks for no other both questions are the same: it is answered once.
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
        self._find = find
        self._answered: tuple[Gang, Cell, int, list[Victim]] | None = None

    def possibility(self, gang: Gang, queue: ClusterQueueState, cell: Cell, amount: int) -> Grade:
        """How preemption could free `amount` of one flavor and resource, and how high the gang would borrow then."""
        victims = self._find(Need(gang, queue, (cell.fr,), {cell: amount}))
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
        return self._find(Need(gang, queue, frs, requests, assignment.placing, assignment.want))

    def for_room(self, gang: Gang, queue: ClusterQueueState, requests: Mapping[Cell, int], want: Want) -> list[Victim]:
        """The victims that make room on the nodes of one flavor, where quota is not what is missing."""
        return self._find(Need(gang, queue, tuple(cell.fr for cell in requests), requests, None, want))


def take_out(gangs: Iterable[Gang]) -> None:
    for gang in gangs:
        gang.out = True
        for cell, amount in gang.cells:
            cell.remove(amount)
        if gang.placed is not None:
            gang.placed.remove_holder(gang.key)
        if gang.seated is not None:
            gang.seated.lift(gang)


def put_back(gangs: Iterable[Gang]) -> None:
    for gang in gangs:
        gang.out = False
        for cell, amount in gang.cells:
            cell.add(amount)
        if gang.placed is not None and gang.admission is not None:
            gang.placed.put_holder(gang.key, gang.admission)
        if gang.seated is not None:
            gang.seated.restore(gang)


# --- candidates -------------------------------------------------------------------------------------------------------


def preemptible(gang: Gang, queue: ClusterQueueState, policy: str, frs: Sequence[FlavorResource]) -> Iterator[Gang]:
    """The holders of `queue` that `gang` may preempt under a policy and that use what it lacks, lowest priority first."""
    if policy == "Never":
        return
    for holder in queue.by_priority:
        if policy != "Any":
            if holder.priority > gang.priority:
                return
            if holder.priority == gang.priority and (
                policy != "LowerOrNewerEqualPriority" or holder.since <= gang.since
            ):
                continue
        if not holder.out and not holder.usage.keys().isdisjoint(frs):
            yield holder


def in_order(gangs: list[Gang], own: ClusterQueueState) -> list[Gang]:
    """As candidates go: evicted first, other queues before the own, then the least valuable."""
    if any(gang.queue is not None and gang.queue.fair_usage for gang in gangs):
        return sorted(gangs, key=cmp_to_key(lambda a, b: _compare(a, b, own)))
    return sorted(gangs, key=lambda gang: (not gang.evicting, gang.queue is own, gang.victim_key))


def _compare(a: Gang, b: Gang, own: ClusterQueueState) -> int:
    """With admission fair sharing: inside one queue, who comes from the LocalQueue that used most goes first."""
    first, second = (not a.evicting, a.queue is own), (not b.evicting, b.queue is own)
    if first == second and a.queue is b.queue and a.queue is not None and a.queue.fair_usage:
        mine, theirs = a.queue.fair_usage(a.local_queue), a.queue.fair_usage(b.local_queue)
        if mine != theirs:
            return -1 if mine > theirs else 1
    left, right = (first, a.victim_key), (second, b.victim_key)
    return (left > right) - (left < right)


# --- the classic way --------------------------------------------------------------------------------------------------


def classic_victims(need: Need) -> list[Victim]:
    queue, policy = need.queue, need.queue.config.preemption
    own = [Candidate(gang, IN_QUEUE) for gang in preemptible(need.gang, queue, policy.within_cluster_queue, need.frs)]
    by_right, by_priority = _candidates_elsewhere(need)
    if not (own or by_right or by_priority):
        return []
    groups = [_sorted(group, queue) for group in (by_right, by_priority, own)]
    evicted = [candidate for group in groups for candidate in group if candidate.gang.evicting]
    others = [candidate for group in groups for candidate in group if not candidate.gang.evicting]
    for may_borrow in _attempts(need, bool(by_right), bool(by_priority)):
        victims = _attempt(need, evicted + others, may_borrow)
        if victims:
            return victims
    return []


def _sorted(candidates: list[Candidate], own: ClusterQueueState) -> list[Candidate]:
    if len(candidates) < 2:
        return candidates
    if any(candidate.gang.queue is not None and candidate.gang.queue.fair_usage for candidate in candidates):
        return sorted(candidates, key=cmp_to_key(lambda a, b: _compare(a.gang, b.gang, own)))
    return sorted(candidates, key=lambda candidate: (not candidate.gang.evicting, candidate.gang.victim_key))


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


def _attempt(need: Need, candidates: Sequence[Candidate], may_borrow: bool) -> list[Victim]:
    victims: list[Victim] = []
    for candidate in candidates:
        if not _still_valid(need, candidate, may_borrow):
            continue
        take_out((candidate.gang,))
        victims.append(Victim(candidate.gang, candidate.reason))
        if need.fits(may_borrow=may_borrow):
            victims = fill_back(need, victims, may_borrow=may_borrow)
            put_back(victim.gang for victim in victims)
            return victims
    put_back(victim.gang for victim in victims)
    return []


def _still_valid(need: Need, candidate: Candidate, may_borrow: bool) -> bool:
    """Others' gangs are taken only while they, and all cohorts below the common one, are above their quota."""
    if candidate.common is None:
        return True
    if may_borrow and candidate.only_without_borrowing:
        return False
    node: Node | None = candidate.gang.queue
    while node is not None and node is not candidate.common:
        if not node.over_quota(need.frs):
            return False
        node = node.parent
    return True


def fill_back(need: Need, victims: list[Victim], *, may_borrow: bool) -> list[Victim]:
    """Spare those that need not go, from the last but one to the first. The last one made it fit: it always goes."""
    kept = [victims[-1]]
    for victim in reversed(victims[:-1]):
        put_back((victim.gang,))
        if not need.fits(may_borrow=may_borrow):
            take_out((victim.gang,))
            kept.append(victim)
    kept.reverse()
    return kept


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
            for gang in preemptible(need.gang, queue, policy.reclaim_within_cohort, need.frs):
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
