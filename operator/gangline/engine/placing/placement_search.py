"""A search for the places of a gang, where the usual way of placing finds none, or leaves its pods farther apart than need be.

The usual way places one group of pod sets after the other, each as well as it can. A *plan* changes what it starts from: the
order of the groups, the domains that are closed to a group, and whether the policy orders the leaves for it. Places are then
found as without a plan, so that all of them obey every filter, whatever the plan says. Simulated annealing goes from plan to
plan. It begins with the usual places, and others are taken only where they are better.

Two pods are as many *hops* apart as levels of the topology separate them: none on one host, one on two hosts of a rack. The hops
of a gang are the sum over all pairs of pods that ask to be near each other.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from math import exp
from random import Random
from typing import Final, NamedTuple

from gangline.engine.model import PlacementSearch
from gangline.engine.topology.domain_counts import Counts
from gangline.engine.topology.placement import Placing
from gangline.engine.topology.placement_request import (
    DomainAt,
    Goal,
    PlacementRequest,
    PlacementResult,
    Unplaceable,
)

#: a ClusterQueue may try so many times as many placements as each of its namespaces
_SHARES_OF_QUEUE: Final = 4
#: steps that all searches of a decision may take together; one gang may take a quarter of those that are left
MOST_STEPS: Final = 24_000
_PART_OF_STEPS: Final = 4
#: a placement takes a step for each host with pods, and one for so many hosts that are looked at
_LOOKED_AT: Final = 20
#: the part of the first cost by which a plan may be worse at first and be taken, as a divisor
_WARMTH: Final = 20


class SearchBudget:
    """How many placements searches have tried in a decision, in each namespace of a ClusterQueue and in each ClusterQueue, and
    how many steps all of them have taken.
    """

    def __init__(self) -> None:
        self._tried: Counter[tuple[str, ...]] = Counter()
        self._steps = 0

    def start_over(self) -> None:
        """A new decision begins."""
        self._tried.clear()
        self._steps = 0

    def left(self, queue: str, namespace: str, budget: int, steps: int) -> int:
        """How many placements of so many steps may still be tried for a gang of the namespace, by the policy of its queue."""
        tried = self._tried
        own, whole = budget - tried[queue, namespace], _SHARES_OF_QUEUE * budget - tried[queue,]
        return max(0, min(own, whole, (MOST_STEPS - self._steps) // _PART_OF_STEPS // steps))

    def note(self, queue: str, namespace: str, tried: int, steps: int) -> None:
        for each in ((queue, namespace), (queue,)):
            self._tried[each] += tried
        self._steps += tried * steps


@dataclass(frozen=True, slots=True)
class PlaceFinder:
    """Finds places for a gang, by a search where its policy wants one and the budget allows it (None: it does not)."""

    budget: SearchBudget | None = None
    queue: str = ""
    namespace: str = ""

    def places(self, placing: Placing, all_placed: Callable[[], bool]) -> tuple[PlacementResult, str]:
        """Where the pods can be placed now, and how a search has found these places, "" = without one.

        `all_placed` says whether no pod set of the gang needs room on nodes without being placed. Where one does, the usual
        places are not replaced by closer ones, which might leave less room for its pods.
        """
        found = placing.now()
        rules, budget = placing.search, self.budget
        if rules is None or budget is None or (found.ok and (rules.improve is None or not all_placed())):
            return found, ""
        annealing = _Annealing(placing, found, rules)
        if annealing.is_good_enough or not annealing.may_help:
            return found, ""
        steps = annealing.steps
        better = annealing.run(budget.left(self.queue, self.namespace, rules.budget, steps))
        budget.note(self.queue, self.namespace, annealing.tried, steps)
        return (found, "") if better is None else (better, annealing.text())


#: places are taken as they are found first
NO_SEARCH: Final = PlaceFinder()


class _Group(NamedTuple):
    """Pod sets that are placed together on one flavor."""

    flavor: str
    members: list[PlacementRequest]
    pods: int
    #: whether its pods ask to be near each other
    keeps_together: bool

    @classmethod
    def of(cls, flavor: str, members: list[PlacementRequest]) -> _Group:
        asked = (member.pod_set.topology for member in members)
        together = any(each is not None and bool(each.required or each.preferred) for each in asked)
        return cls(flavor, members, sum(member.pod_set.count for member in members), together)


@dataclass(frozen=True, slots=True)
class _Plan:
    """One try: the order in which groups are placed (by their numbers), what is closed to each group, and the groups whose leaves
    are taken in the topology's own order.
    """

    order: tuple[int, ...]
    closed: tuple[frozenset[DomainAt], ...]
    unranked: frozenset[int] = frozenset()


class _Cost(NamedTuple):
    """What a placement costs; less is better."""

    unplaced: int
    hops: int


class _Annealing:
    """Simulated annealing over plans for one gang, from the places that were found without a plan."""

    def __init__(self, placing: Placing, found: PlacementResult, rules: PlacementSearch) -> None:
        self._placing = placing
        self._rules = rules
        self._random = Random(rules.seed)
        self._groups = [_Group.of(flavor, members) for flavor, members in placing.groups()]
        self._first = self._best = self._cost(found)
        #: what a pod without a place costs, in hops: more than all pods that have one
        self._of_unplaced = 1 + sum(len(placing.tree(each.flavor).paths) * each.pods**2 for each in self._groups)
        self._found = found
        self._least, self.may_help = self._judge()
        self.tried = 0

    @property
    def is_good_enough(self) -> bool:
        """Whether all pods have places, and their hops are as near to the least possible as the policy asks."""
        if self._best.unplaced:
            return False
        improve = self._rules.improve
        return improve is None or 100 * self._best.hops <= (100 + improve) * self._least

    @property
    def steps(self) -> int:
        """How many steps a placement takes."""
        hosts = [(each.pods, len(self._placing.tree(each.flavor).paths[-1])) for each in self._groups]
        return 1 + sum(min(pods, number) + number // _LOOKED_AT for pods, number in hosts)

    def run(self, most: int) -> PlacementResult | None:
        """Better places than the usual ones, None if so many tries find none."""
        plan = _Plan(tuple(range(len(self._groups))), tuple(frozenset[DomainAt]() for _ in self._groups))
        result, cost, better = self._found, self._first, None
        while self.tried < most and not self.is_good_enough:
            changed = self._changed(plan, result)
            if changed is None:
                break
            cooled = 1 - self.tried / most
            self.tried += 1
            other = self._placing.now(self._requests(changed))
            its_cost = self._cost(other)
            if its_cost < self._best and not its_cost.unplaced:
                self._best, better = its_cost, other
            if self._accepts(self._hops_of(its_cost) - self._hops_of(cost), cooled):
                plan, result, cost = changed, other, its_cost
        return better

    def text(self) -> str:
        """What the search found."""
        tried = f"{self.tried} placement(s) tried"
        if self._first.unplaced:
            return f"a search found places for all pods, where placing one pod set after the other found none; {tried}"
        hops = f"{self._best.hops} instead of {self._first.hops} hops between them, of at least {self._least}"
        return f"a search keeps pods closer together: {hops}; {tried}"

    # --- costs --------------------------------------------------------------------------------------------------------

    def _cost(self, result: PlacementResult) -> _Cost:
        unplaced = hops = 0
        for group in self._groups:
            if any(member.pod_set.name not in result.assignments for member in group.members):
                unplaced += group.pods
            elif group.keeps_together:
                tree = self._placing.tree(group.flavor)
                for level in range(tree.depth):
                    pods: Counter[int] = Counter()
                    for leaf, count in self._leaves(group, result):
                        pods[tree.ancestor(leaf, level)] += count
                    hops += _apart(pods.values())
        return _Cost(unplaced, hops)

    def _leaves(self, group: _Group, result: PlacementResult) -> Iterator[tuple[int, int]]:
        """The leaves on which pods of a group are, with the number of pods."""
        for member in group.members:
            assignment = result.assignments.get(member.pod_set.name)
            if assignment is not None:
                yield from self._placing.positions(group.flavor, assignment)

    def _hops_of(self, cost: _Cost) -> int:
        return cost.unplaced * self._of_unplaced + cost.hops

    def _judge(self) -> tuple[int, bool]:
        """The least hops that are possible, and whether each group by itself would find room."""
        least = 0
        for group in self._groups:
            try:
                goal, counts = self._placing.room_for(group.flavor, group.members)
            except Unplaceable:
                return 0, False
            if not _has_room(goal, counts):
                return 0, False
            if group.keeps_together:
                least += sum(_apart(_fullest(counts.pods[level], group.pods)) for level in range(counts.tree.depth))
        return least, True

    # --- plans --------------------------------------------------------------------------------------------------------

    def _requests(self, plan: _Plan) -> dict[str, list[PlacementRequest]]:
        requests: dict[str, list[PlacementRequest]] = {}
        for number in plan.order:
            group, closed = self._groups[number], plan.closed[number]
            unranked = number in plan.unranked
            requests.setdefault(group.flavor, []).extend(
                replace(each, closed=closed, unranked=unranked) for each in group.members
            )
        return requests

    def _changed(self, plan: _Plan, result: PlacementResult) -> _Plan | None:
        """The plan with one change, None if nothing can be changed."""
        placed = [number for number, group in enumerate(self._groups) if next(self._leaves(group, result), None)]
        near = [number for number in placed if self._groups[number].keeps_together]
        shut = [number for number, closed in enumerate(plan.closed) if closed]
        ways: list[Callable[[], _Plan]] = []
        if len(self._groups) > 1:
            ways.append(lambda: self._swap(plan))
        if placed:
            ways.append(lambda: self._close(plan, result, self._random.choice(placed)))
        if near:
            ways.append(lambda: replace(plan, unranked=plan.unranked ^ {self._random.choice(near)}))
        if shut:
            ways.append(lambda: self._open(plan, self._random.choice(shut)))
        return self._random.choice(ways)() if ways else None

    def _swap(self, plan: _Plan) -> _Plan:
        """Two groups change places in the order."""
        order = list(plan.order)
        one, other = self._random.sample(range(len(order)), 2)
        order[one], order[other] = order[other], order[one]
        return replace(plan, order=tuple(order))

    def _close(self, plan: _Plan, result: PlacementResult, number: int) -> _Plan:
        """A domain that a group uses is closed to it."""
        group = self._groups[number]
        tree = self._placing.tree(group.flavor)
        leaf, _ = self._random.choice(list(self._leaves(group, result)))
        level = self._random.randrange(tree.depth)
        return _with_closed(plan, number, plan.closed[number] | {(level, tree.ancestor(leaf, level))})

    def _open(self, plan: _Plan, number: int) -> _Plan:
        """A domain that is closed to a group is opened again."""
        domain = self._random.choice(sorted(plan.closed[number]))
        return _with_closed(plan, number, plan.closed[number] - {domain})

    def _accepts(self, more: int, cooled: float) -> bool:
        """Whether to go on from a plan that costs so much more. `cooled` goes from 1 down to 0."""
        if more <= 0:
            return True
        warmth = cooled * self._hops_of(self._first) / _WARMTH
        return warmth > 0 and self._random.random() < exp(-more / warmth)


def _with_closed(plan: _Plan, number: int, closed: frozenset[DomainAt]) -> _Plan:
    return replace(plan, closed=(*plan.closed[:number], closed, *plan.closed[number + 1 :]))


def _apart(pods: Iterable[int]) -> int:
    """How many pairs of pods are in different ones of the domains that have so many pods each."""
    each = list(pods)
    return (sum(each) ** 2 - sum(count * count for count in each)) // 2


def _fullest(room: Sequence[int], pods: int) -> list[int]:
    """So many pods on as few domains as possible, by how many each has room for. A leader goes where most of the others are."""
    dealt: list[int] = []
    for fitting in sorted(room, reverse=True):
        if pods <= 0 or not fitting:
            break
        dealt.append(min(fitting, pods))
        pods -= dealt[-1]
    if dealt:
        dealt[0] += pods
    return dealt


def _has_room(goal: Goal, counts: Counts) -> bool:
    """Whether the workers of a group find room by themselves: all in one domain, where that is required."""
    if goal.required:
        return max(counts.led_slices[goal.level], default=0) >= goal.slices
    return sum(counts.slices[goal.level]) >= goal.slices
