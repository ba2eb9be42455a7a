"""Candidates of classic preemption: in the own queue by priority, elsewhere in the tree the holders of queues above quota.

In a cohort of 100 queues, every release makes 100 heads look for victims, mostly among the same workloads. So the list of
candidates elsewhere is kept (`Known`) for as long as no queue of the tree gets more than it had. Until then the list is
complete and in the right order, but may have workloads that a trial removed or whose queue is no longer above its quota:
`still_candidate` filters those.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple, TypeAlias

from gangline.engine.preemption.victim_search import Candidate, Need, sorted_candidates, still_valid
from gangline.engine.queues.cluster_queue import ClusterQueueState
from gangline.engine.queues.workload_state import WorkloadState
from gangline.engine.quota.quota_ledger import FlavorResource, QuotaNode

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
    return not gang.removed and (candidate.common is None or gang.queue is not need.queue)


def preemptible(need: Need, queue: ClusterQueueState, policy: str) -> Iterator[WorkloadState]:
    """The holders of `queue` that a policy allows to preempt and that use what is missing, lowest priority first."""
    if policy == "Never":
        return
    gang, frs = need.gang, need.frs
    protects = queue.config.victims is not None
    for holder in queue.by_priority:
        need.effort += 1
        if policy != "Any":
            if holder.priority > gang.priority:
                return
            if holder.priority == gang.priority and (
                policy != "LowerOrNewerEqualPriority" or holder.since <= gang.since
            ):
                continue
        if gang.replaces and holder.key == gang.replaces:
            continue
        if holder.removed or holder.usage.keys().isdisjoint(frs) or (protects and need.spares(holder)):
            continue
        yield holder


def own_candidates(need: Need) -> Candidates:
    policy = need.queue.config.preemption.within_cluster_queue
    if policy == "Never":
        return NO_CANDIDATES
    return _in_order([Candidate(gang, IN_QUEUE) for gang in preemptible(need, need.queue, policy)], need)


def candidates_elsewhere(need: Need, known: Known) -> tuple[Candidates, Candidates]:
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
