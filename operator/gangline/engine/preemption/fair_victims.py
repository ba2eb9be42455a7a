"""Victims by fair sharing: repeatedly the queue with the highest share gives one up, if that is fair to it.

All shares are computed as if the preemptor already ran. Fair means (strategies, in the configured order): the preemptor's side
ends no higher than the victim's side without the victim (LessThanOrEqualToFinalShare), or lower than the victim's side is now
(LessThanInitialShare).
"""

from __future__ import annotations

from gangline.engine.model import FairSharing, Settings
from gangline.engine.preemption.preemptor import (
    FAIR_SHARING,
    IN_QUEUE,
    RECLAMATION,
    candidates_of_other_queues,
    own_candidates,
    preemptible,
)
from gangline.engine.preemption.simulated_removal import simulate
from gangline.engine.preemption.victim_search import (
    FEWEST_GANGS,
    Candidate,
    Need,
    Victim,
    best_attempt,
    choice_of,
    count_staying,
    fill_back,
    in_order,
    largest_first,
)
from gangline.engine.queues.cluster_queue import ClusterQueueState, cluster_queues_of
from gangline.engine.queues.workload_state import WorkloadState
from gangline.engine.quota.quota_ledger import DominantShare, QuotaNode, standing

FINAL, INITIAL = "LessThanOrEqualToFinalShare", "LessThanInitialShare"


def fair_victims(need: Need, settings: Settings) -> list[Victim]:
    candidates = in_order(_candidates(need), need)
    if not candidates:
        return []
    if choice_of(need) and (leaving := _enough_leaving(need, candidates)):
        return leaving
    if choice_of(need) and all(gang.queue is need.queue for gang in candidates):
        return best_attempt(need, [Candidate(gang, IN_QUEUE) for gang in candidates], True)
    found = _by_shares(need, candidates, settings)
    if choice_of(need) == FEWEST_GANGS and count_staying(found) > 1:
        found = min(found, _by_shares(need, largest_first(candidates, need), settings) or found, key=count_staying)
    return found


def _enough_leaving(need: Need, candidates: list[WorkloadState]) -> list[Victim]:
    """Workloads already on their way out, if they suffice: by shares others might be chosen the next time, and stopped as
    well.
    """
    leaving = [Victim(gang, FAIR_SHARING) for gang in candidates if gang.evicting]
    with need.removal as removal:
        removal.remove(*(victim.gang for victim in leaving))
        return fill_back(need, leaving, may_borrow=True) if leaving and need.fits() else []


def _by_shares(need: Need, candidates: list[WorkloadState], settings: Settings) -> list[Victim]:
    strategies = (settings.fair_sharing or FairSharing()).strategies or FairSharing().strategies
    within_nominal = settings.gates.get("FairSharingPreemptWithinNominal", True)
    search = _Search(need)
    with need.removal:
        search.add_preemptor()
        fits = search.first_pass(candidates, strategies[0], within_nominal=within_nominal)
        if not fits and len(strategies) > 1:
            fits = search.second_pass()
        search.remove_preemptor()
        return fill_back(need, search.victims, may_borrow=True) if fits else []


def _candidates(need: Need) -> list[WorkloadState]:
    """Workloads of the own queue by its policy; and by the reclaim policy those of every queue of the tree that borrows what is
    needed.
    """
    policy = need.queue.config.preemption
    found = list(preemptible(need, need.queue, policy.within_cluster_queue))
    if need.queue.parent is None or policy.reclaim_within_cohort == "Never":
        return found
    for queue in cluster_queues_of(need.queue.root):
        if queue is not need.queue and queue.in_service and queue.over_quota(need.frs):
            found.extend(preemptible(need, queue, policy.reclaim_within_cohort))
    return found


def preemptible_for(need: Need, *, fair: bool) -> list[WorkloadState]:
    """All workloads that the policies allow to be preempted for this one, whether or not that would be enough."""
    if fair:
        return _candidates(need)
    groups = (own_candidates(need), *candidates_of_other_queues(need, {}))
    return list({candidate.gang: None for group in groups for part in group for candidate in part})


class _Search:
    """One choice of victims; the ledger is without those chosen so far."""

    def __init__(self, need: Need) -> None:
        self.need = need
        self.victims: list[Victim] = []
        self._retry: list[WorkloadState] = []

    def add_preemptor(self) -> None:
        for cell, amount in self.need.requests.items():
            cell.add(amount)

    def remove_preemptor(self) -> None:
        for cell, amount in self.need.requests.items():
            cell.remove(amount)

    def first_pass(self, candidates: list[WorkloadState], strategy: str, *, within_nominal: bool) -> bool:
        need = self.need
        by_right = within_nominal and not need.queue.over_quota(need.frs)
        targets = _Targets(need, candidates)
        while (target := targets.next()) is not None:
            if target is need.queue:
                if self._take(targets.pop(target), IN_QUEUE):
                    return True
            elif by_right:
                if self._take(targets.pop(target), RECLAMATION):
                    return True
            else:
                preemptor, old = self._shares(target)
                while targets.has(target):
                    gang = targets.pop(target)
                    if strategy == INITIAL:
                        fair = preemptor < old
                    else:
                        fair = preemptor <= self._share_without(gang, target)
                    if fair:
                        if self._take(gang, FAIR_SHARING):
                            return True
                        break
                    self._retry.append(gang)
        return False

    def second_pass(self) -> bool:
        """Try the candidates that failed the first strategy: at most one per queue."""
        targets = _Targets(self.need, self._retry)
        while (target := targets.next()) is not None:
            preemptor, old = self._shares(target)
            if preemptor < old and self._take(targets.pop(target), FAIR_SHARING):
                return True
            targets.drop(target)
        return False

    def _take(self, gang: WorkloadState, reason: str) -> bool:
        """Take a victim; True if the preemptor fits now."""
        self.need.removal.remove(gang)
        self.victims.append(Victim(gang, reason))
        self.remove_preemptor()
        fits = self.need.fits()
        self.add_preemptor()
        return fits

    def _shares(self, target: QuotaNode) -> tuple[DominantShare, DominantShare]:
        """The shares of the preemptor's side and of the target's, right below their lowest common ancestor."""
        mine, theirs = _sides(self.need.queue, target)
        return standing(mine).share, standing(theirs).share

    def _share_without(self, gang: WorkloadState, target: QuotaNode) -> DominantShare:
        _, theirs = _sides(self.need.queue, target)
        with simulate(removed=(gang,), places=False):
            return standing(theirs).share


def _sides(preemptor: QuotaNode, target: QuotaNode) -> tuple[QuotaNode, QuotaNode]:
    above: dict[int, QuotaNode] = {}
    node = preemptor
    while node.parent is not None:
        above[id(node.parent)] = node
        node = node.parent
    while target.parent is not None and id(target.parent) not in above:
        target = target.parent
    return above[id(target.parent)], target


class _Targets:
    """Which queue gives up a workload next: from the root down, always the child with the highest share.

    A node that does not borrow is never considered again, except for the preemptor's ancestors; nor is one without candidates.
    """

    def __init__(self, need: Need, candidates: list[WorkloadState]) -> None:
        self._need = need
        self._own_line = set(map(id, need.queue.path()))
        self._waiting: dict[int, list[WorkloadState]] = {}
        self._rank = {id(gang): place for place, gang in enumerate(candidates)}
        for gang in reversed(candidates):
            self._waiting.setdefault(id(gang.queue), []).append(gang)
        self._pruned: set[int] = set()

    def has(self, queue: QuotaNode) -> bool:
        return bool(self._waiting.get(id(queue)))

    def pop(self, queue: QuotaNode) -> WorkloadState:
        return self._waiting[id(queue)].pop()

    def drop(self, queue: QuotaNode) -> None:
        self._waiting.pop(id(queue), None)

    def next(self) -> QuotaNode | None:
        root = self._need.queue.root
        if root is self._need.queue:
            return root if self.has(root) else None
        while id(root) not in self._pruned:
            found = self._highest(root)
            if found is not None:
                return found
        return None

    def _highest(self, cohort: QuotaNode) -> QuotaNode | None:
        """One way down; None if it ended in a cohort without candidates (which is then pruned)."""
        queue, queue_share = self._highest_queue(cohort)
        child, child_share = self._highest_cohort(cohort)
        if child is not None and (queue is None or child_share >= queue_share):
            return self._highest(child)
        if queue is None:
            self._pruned.add(id(cohort))
        return queue

    def _highest_queue(self, cohort: QuotaNode) -> tuple[QuotaNode | None, DominantShare]:
        best: QuotaNode | None = None
        best_share = DominantShare(False, -1.0)
        for queue in cohort.queues:
            if id(queue) in self._pruned or not (isinstance(queue, ClusterQueueState) and queue.in_service):
                continue
            borrows, share = standing(queue)
            if not self.has(queue) or (not borrows and queue is not self._need.queue):
                self._pruned.add(id(queue))
            elif best is None or share > best_share or (share == best_share and self._goes_first(queue, best)):
                best, best_share = queue, share
        return best, best_share

    def _goes_first(self, queue: QuotaNode, other: QuotaNode) -> bool:
        return self._rank[id(self._waiting[id(queue)][-1])] < self._rank[id(self._waiting[id(other)][-1])]

    def _highest_cohort(self, cohort: QuotaNode) -> tuple[QuotaNode | None, DominantShare]:
        best: QuotaNode | None = None
        best_share = DominantShare(False, -1.0)
        for child in cohort.cohorts:
            if id(child) in self._pruned:
                continue
            borrows, share = standing(child)
            if not borrows and id(child) not in self._own_line:
                self._pruned.add(id(child))
            elif share >= best_share:
                best, best_share = child, share
        return best, best_share
