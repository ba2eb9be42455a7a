"""The choice among candidates: Kueue's choice, and those that a policy may ask for instead.

Kueue takes the least valuable first until there is room, and then spares those that are not needed. `LeastLostWork` values
gangs of one priority by the work that is lost with them; `FewestGangs` looks for the smallest set. None of them preempts a
workload in vain.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cmp_to_key
from heapq import heappushpop
from operator import attrgetter
from typing import Any, Final, Generic, NamedTuple, TypeAlias, TypeVar

from gangline.engine.model import Millis, is_accelerator
from gangline.engine.model.units import seconds
from gangline.engine.nodes.capacity_request import CapacityRequest
from gangline.engine.preemption.simulated_removal import SimulatedRemoval
from gangline.engine.queues.cluster_queue import ClusterQueueState
from gangline.engine.queues.protection import protected_until
from gangline.engine.queues.workload_state import WorkloadState
from gangline.engine.quota.quota_ledger import Cell, FlavorResource, QuotaNode
from gangline.engine.topology.placement import Placing

# --- fewest victims ---------------------------------------------------------------------------------------------------
# The smallest sufficient set of candidates: an exact search where it is cheap, given up where it is not.
#
# Sets are tried by size, and those of one size in the order of the candidates. The amount that each candidate frees bounds the
# search: where one resource is missing and every candidate's amount counts in full, the first set that is tried is the answer.


K = TypeVar("K", bound=Hashable)

#: Number of candidates taken before the search is given up.
STEPS = 400
#: Sets larger than this are not searched for.
LARGEST = 64


class FewestSearch(Generic[K]):
    """`take` takes a candidate by its index and returns whether it may be taken (if not, nothing is taken).

    `give_back` undoes the last `take`; `enough` says whether the taken ones suffice: once they do, they do with more taken.
    `frees` is an upper bound of what each candidate frees of each resource of `lacking`.
    """

    def __init__(
        self,
        frees: Sequence[Mapping[K, int]],
        lacking: Mapping[K, int],
        take: Callable[[int], bool],
        give_back: Callable[[int], None],
        enough: Callable[[], bool],
    ) -> None:
        self._frees = frees
        self._lacking = {key: amount for key, amount in lacking.items() if amount > 0}
        self._take = take
        self._give_back = give_back
        self._enough = enough
        self._steps = 0
        #: there may be a smaller set than the one found
        self.gave_up = False
        #: (key, size) -> for every index, the most that so many candidates from there on free of it
        self._most: dict[tuple[K, int], list[int]] = {}

    def below(self, limit: int) -> list[int] | None:
        """The indices of the first smallest set of fewer than `limit` candidates; None if there is none, or it was not found.

        Nothing is taken afterwards.
        """
        for size in range(1, min(limit, LARGEST + 1)):
            if self._could(0, size, self._lacking):
                found = self._search(0, size, self._lacking)
                self.gave_up = found is None and self._steps > STEPS
                if found is not None or self.gave_up:
                    return found
        self.gave_up = limit > LARGEST + 1
        return None

    def _search(self, start: int, size: int, lacking: Mapping[K, int]) -> list[int] | None:
        """Find `size` candidates from `start` on, in order."""
        for place in range(start, len(self._frees) - size + 1):
            if not self._could(place, size, lacking):
                return None
            frees = self._frees[place]
            rest = {key: amount - frees.get(key, 0) for key, amount in lacking.items()}
            if not self._could(place + 1, size - 1, rest):
                continue
            self._steps += 1
            if self._steps > STEPS:
                return None
            if not self._take(place):
                continue
            try:
                if size == 1:
                    if self._enough():
                        return [place]
                elif (others := self._search(place + 1, size - 1, rest)) is not None:
                    return [place, *others]
            finally:
                self._give_back(place)
        return None

    def _could(self, start: int, size: int, lacking: Mapping[K, int]) -> bool:
        return all(amount <= 0 or self._most_of(key, size)[start] >= amount for key, amount in lacking.items())

    def _most_of(self, key: K, size: int) -> list[int]:
        """The most that `size` candidates from an index on free, for every index up to the end; -1 = there are not as many."""
        known = self._most.get((key, size))
        if known is None:
            known = self._most[key, size] = [0] * (len(self._frees) + 1) if size == 0 else self._sums(key, size)
        return known

    def _sums(self, key: K, size: int) -> list[int]:
        sums = [-1] * (len(self._frees) + 1)
        largest: list[int] = []
        total = 0
        for place in range(len(self._frees) - 1, -1, -1):
            amount = self._frees[place].get(key, 0)
            if len(largest) < size:
                largest.append(amount)
                total += amount
                if len(largest) == size:
                    largest.sort()
            else:
                total += amount - heappushpop(largest, amount)
            if len(largest) == size:
                sums[place] = total
        return sums


# --- victim search ----------------------------------------------------------------------------------------------------


LEAST_LOST_WORK: Final = "LeastLostWork"
FEWEST_GANGS: Final = "FewestGangs"

#: Number of gangs that are tried alone before several are taken together.
SINGLES: Final = 100

#: What it takes to simulate that a gang is gone, as so many looks at a room; and where nodes matter, besides those looked at.
_EFFORT: Final = 5
_EFFORT_ON_NODES: Final = 50

#: The value of a gang: the least valuable is preempted first.
Value: TypeAlias = Callable[[WorkloadState], tuple[Any, ...]]
#: lowest priority, then newest
_KUEUES_VALUE: Final[Value] = attrgetter("victim_key")


def _converged_before_others(gang: WorkloadState) -> tuple[Any, ...]:
    return gang.priority, not gang.workload.converged, *gang.victim_key


class Victim(NamedTuple):
    gang: WorkloadState
    reason: str


@dataclass(slots=True)
class Need:
    """What a gang needs from its victims: room for `requests`, of which `frs` are missing.

    `removal` simulates that victims are gone, as far as `fits` looks: nodes are freed only when nodes are examined, since quota
    mostly decides before that.
    """

    gang: WorkloadState
    queue: ClusterQueueState
    frs: tuple[FlavorResource, ...]
    requests: Mapping[Cell, int]
    placing: Placing | None = None
    capacity_request: CapacityRequest | None = None
    now: Millis = 0
    #: when the protection of passed-over workloads ends; None = none was passed over
    spared: list[Millis] | None = None
    #: choose as Kueue does, whatever the queue's policy says
    as_kueue: bool = False
    #: how much the search took so far, in looks at a node (`NodeLedger.looks`)
    effort: int = 0
    removal: SimulatedRemoval = field(init=False)

    def __post_init__(self) -> None:
        self.removal = SimulatedRemoval(places=self.asks_for_places, lazily=True)

    def spares(self, holder: WorkloadState) -> bool:
        """Whether a holder is protected, which is recorded. Only for queues whose policy protects victims."""
        if self.spared is None:
            return False
        until = protected_until(holder, self.now)
        if until:
            self.spared.append(until)
        return until > 0

    @property
    def asks_for_places(self) -> bool:
        """Whether the workload needs room on nodes besides quota."""
        return self.placing is not None or self.capacity_request is not None

    def fits(self, *, may_borrow: bool = True) -> bool:
        self.effort += _EFFORT_ON_NODES if self.asks_for_places else _EFFORT
        for cell, amount in self.requests.items():
            if amount > cell.available() or (not may_borrow and cell.usage + amount > cell.nominal):
                return False
        self.removal.free_nodes()
        found = self.placing.now() if self.placing is not None else None
        if found is not None and not found.ok:
            return False
        if self.capacity_request is None or self.placing is None or found is None:
            return self.capacity_request is None or self.capacity_request.lacks() is None
        with self.placing.beside(found.assignments):
            return self.capacity_request.lacks() is None


class Candidate(NamedTuple):
    gang: WorkloadState
    reason: str
    common: QuotaNode | None = None  # lowest common ancestor with the preemptor; None = same queue
    only_without_borrowing: bool = False


# --- the order of candidates --------------------------------------------------------------------------------------------


def value_of(need: Need) -> Value:
    """Lowest priority first, then Kueue's order or that of the preemptor's policy."""
    now, converged_first = need.now, _converged_first(need)
    if choice_of(need) != LEAST_LOST_WORK:
        return _converged_before_others if converged_first else _KUEUES_VALUE
    return lambda gang: (
        gang.priority,
        converged_first and not gang.workload.converged,
        lost_work(gang, now),
        -gang.quota.reserved_at,
        gang.uid,
    )


def _converged_first(need: Need) -> bool:
    policy = need.queue.config.victims
    return policy is not None and policy.converged_first and not need.as_kueue


def _all_converged(need: Need, victims: Iterable[Victim]) -> bool:
    """Whether a policy puts converged workloads first, and all that stay are."""
    return _converged_first(need) and all(gang.workload.converged for gang in _staying(victims))


def lost_work(gang: WorkloadState, now: Millis) -> float:
    """The work lost by stopping it now, in device-seconds (without devices, in core-seconds)."""
    devices = sum(amount for (_, resource), amount in gang.quota.usage.items() if is_accelerator(resource))
    cores = sum(amount for (_, resource), amount in gang.quota.usage.items() if resource == "cpu") / 1000
    return (devices or cores) * seconds(gang.unsaved(now))


def in_order(gangs: list[WorkloadState], need: Need) -> list[WorkloadState]:
    """The order of candidates: evicted first, other queues before the own, then the least valuable."""
    own, value = need.queue, value_of(need)
    if any(gang.queue is not None and gang.queue.fair_usage for gang in gangs):
        return sorted(gangs, key=cmp_to_key(lambda a, b: _compare(a, b, own, value)))
    return sorted(gangs, key=lambda gang: (not gang.evicting, gang.queue is own, value(gang)))


def _compare(a: WorkloadState, b: WorkloadState, own: ClusterQueueState, value: Value) -> int:
    """Compare two workloads by the order in which they are preempted. With admission fair sharing, the LocalQueue that used most
    is first inside one queue.
    """
    first, second = (not a.evicting, a.queue is own), (not b.evicting, b.queue is own)
    queue = a.queue if a.queue is b.queue else None
    if first == second and queue is not None and queue.fair_usage:
        mine, theirs = queue.fair_usage(a.local_queue), queue.fair_usage(b.local_queue)
        if mine != theirs:
            return -1 if mine > theirs else 1
    left, right = (first, value(a)), (second, value(b))
    return (left > right) - (left < right)


def sorted_candidates(candidates: list[Candidate], need: Need) -> list[Candidate]:
    if len(candidates) < 2:
        return candidates
    own, value = need.queue, value_of(need)
    if any(candidate.gang.queue is not None and candidate.gang.queue.fair_usage for candidate in candidates):
        return sorted(candidates, key=cmp_to_key(lambda a, b: _compare(a.gang, b.gang, own, value)))
    return sorted(candidates, key=lambda candidate: (not candidate.gang.evicting, value(candidate.gang)))


# --- the choice ---------------------------------------------------------------------------------------------------------


def greedy_attempt(need: Need, candidates: Iterable[Candidate], may_borrow: bool) -> list[Victim]:
    """The first candidates that make room, without those that are not needed after all."""
    victims: list[Victim] = []
    with need.removal as removal:
        for candidate in candidates:
            if not still_valid(need, candidate, may_borrow=may_borrow):
                continue
            removal.remove(candidate.gang)
            victims.append(Victim(candidate.gang, candidate.reason))
            if need.fits(may_borrow=may_borrow):
                return fill_back(need, victims, may_borrow=may_borrow)
    return []


def still_valid(need: Need, candidate: Candidate, *, may_borrow: bool) -> bool:
    """Whether a candidate may still be taken: a workload of another queue only while that queue, and all cohorts below the common
    one, are above quota.
    """
    if candidate.common is None:
        return True
    if may_borrow and candidate.only_without_borrowing:
        return False
    node: QuotaNode | None = candidate.gang.queue
    while node is not None and node is not candidate.common:
        if not node.over_quota(need.frs):
            return False
        node = node.parent
    return True


def fill_back(need: Need, victims: list[Victim], *, may_borrow: bool) -> list[Victim]:
    """Spare those that are not needed, from the last but one to the first. The last one made it fit: it is always needed."""
    kept = [victims[-1]]
    for victim in reversed(victims[:-1]):
        need.removal.put_back(victim.gang)
        if not need.fits(may_borrow=may_borrow):
            need.removal.remove(victim.gang)
            kept.append(victim)
    kept.reverse()
    return kept


# --- what a policy asks for ---------------------------------------------------------------------------------------------


def choice_of(need: Need) -> str:
    """The choice that the preemptor's policy asks for; "" = Kueue's choice."""
    policy = need.queue.config.victims
    return "" if policy is None or policy.choice == "Kueue" or need.as_kueue else policy.choice


def best_attempt(need: Need, candidates: Sequence[Candidate], may_borrow: bool) -> list[Victim]:
    """Victims by the preemptor's policy; only if Kueue finds victims, too. `candidates` start with those already on their way
    out.
    """
    found = greedy_attempt(need, candidates, may_borrow)
    choice = choice_of(need)
    if not choice or count_staying(found) < 2 or _all_converged(need, found):
        return found
    search = _one_for_all if choice == LEAST_LOST_WORK else _fewest
    return search(need, candidates, may_borrow, found)


def count_staying(victims: Iterable[Victim]) -> int:
    return len(_staying(victims))


def _staying(victims: Iterable[Victim]) -> list[WorkloadState]:
    """The victims that are not on their way out already."""
    return [victim.gang for victim in victims if not victim.gang.evicting]


def _one_for_all(need: Need, candidates: Sequence[Candidate], may_borrow: bool, found: list[Victim]) -> list[Victim]:
    """A single gang that loses less than all of those found: the order alone would never find it."""
    staying, now = _staying(found), need.now
    price = max(gang.priority for gang in staying), sum(lost_work(gang, now) for gang in staying)
    spares_own = all(victim.gang.queue is not need.queue for victim in found)
    leaving = [candidate for candidate in candidates if candidate.gang.evicting]
    prices = [
        ((candidate.gang.priority, lost_work(candidate.gang, now)), place)
        for place, candidate in enumerate(candidates)
        if not candidate.gang.evicting and not (spares_own and candidate.gang.queue is need.queue)
    ]
    for _, place in sorted(each for each in prices if each[0] < price)[:SINGLES]:
        alone = greedy_attempt(need, [*leaving, candidates[place]], may_borrow)
        if alone:
            return alone
    return found


def _fewest(need: Need, candidates: Sequence[Candidate], may_borrow: bool, found: list[Victim]) -> list[Victim]:
    """Fewer victims than those found, if possible: in the order of the candidates, or largest first where that takes too
    long.
    """
    leaving = [candidate for candidate in candidates if candidate.gang.evicting]
    others = [candidate for candidate in candidates if not candidate.gang.evicting]

    def take(candidate: Candidate) -> bool:
        if not still_valid(need, candidate, may_borrow=may_borrow):
            return False
        need.removal.remove(candidate.gang)
        return True

    with need.removal:
        for candidate in leaving:
            take(candidate)
        lacking = _lacking(need)
        search = FewestSearch(
            [other.gang.quota.usage for other in others],
            lacking,
            lambda place: take(others[place]),
            lambda place: need.removal.put_back(others[place].gang),
            lambda: need.fits(may_borrow=may_borrow),
        )
        places = search.below(count_staying(found))
    if places is not None:
        return greedy_attempt(need, [*leaving, *(others[place] for place in places)], may_borrow)
    if search.gave_up:
        largest = sorted(others, key=lambda other: -_share(other.gang, lacking))
        return min(found, greedy_attempt(need, [*leaving, *largest], may_borrow) or found, key=count_staying)
    return found


def largest_first(gangs: Sequence[WorkloadState], need: Need) -> list[WorkloadState]:
    """The workloads in order: those on their way out first, then by the amount of missing resources that each frees."""
    lacking = _lacking(need)
    return sorted(gangs, key=lambda gang: (not gang.evicting, 0.0 if gang.evicting else -_share(gang, lacking)))


def _lacking(need: Need) -> dict[FlavorResource, int]:
    return {cell.fr: amount - cell.available() for cell, amount in need.requests.items()}


def _share(gang: WorkloadState, lacking: Mapping[FlavorResource, int]) -> float:
    """How much of what is missing it frees; of the whole request, where room on nodes is missing."""
    wanted = [(fr, amount) for fr, amount in lacking.items() if amount > 0]
    if not wanted:
        return float(sum(gang.quota.usage.get(fr, 0) for fr in lacking))
    return sum(min(1.0, gang.quota.usage.get(fr, 0) / amount) for fr, amount in wanted)
