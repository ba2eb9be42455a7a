"""Balanced placement: a preferred request spread evenly over as few domains as possible.

The threshold is the number of slices that every domain in use can be given at least. The siblings under one parent with the
highest threshold win; a dynamic program picks the subset of the needed size with the least excess capacity; each member
gets the threshold and the first ones what is left over.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from math import log2
from typing import NamedTuple

from gangline.engine.topology.domain_counts import Counts
from gangline.engine.topology.placement_request import Goal

# --- dealing ----------------------------------------------------------------------------------------------------------
# Dealing pods out to the domains of one level: the orders, the tightest fit, and the leader's place.
#
# Two profiles: *best fit* starts with the roomiest domain and ends with the tightest one that holds the rest; *least free*
# starts with the smallest and keeps the roomy ones whole.


class DealtShare(NamedTuple):
    """What a domain was dealt: its position, units (slices or pods, as the dealer counts), and leaders (0 or 1)."""

    position: int
    units: int
    leaders: int


@dataclass(frozen=True, slots=True)
class LevelCounts:
    """One level of the counts: what is dealt out there (`units`), beside a leader (`led`), and what decides the order.

    `slices` and `led_slices` are None where no slice counts are known (below the slice levels).
    """

    units: Sequence[int]
    led: Sequence[int]
    pods: Sequence[int]
    led_pods: Sequence[int]
    slices: Sequence[int] | None
    led_slices: Sequence[int] | None
    leads: Sequence[int] | None
    scores: Sequence[int] | None

    @classmethod
    def of_slices(cls, counts: Counts, level: int) -> LevelCounts:
        """Whole slices are dealt out at this level."""
        slices, led_slices = counts.slices[level], counts.led_slices[level]
        return cls(
            slices, led_slices, counts.pods[level], counts.led_pods[level], slices, led_slices, *_rest(counts, level)
        )

    @classmethod
    def of_multiples(cls, counts: Counts, level: int, size: int) -> LevelCounts:
        """Groups of `size` pods are dealt out. The order uses the slices of the slice level, if known."""
        pods, led_pods = counts.pods[level], counts.led_pods[level]
        units, led = pods, led_pods
        if size > 1:
            units = [count // size for count in pods]
            led = units if led_pods is pods else [count // size for count in led_pods]
        known = level <= counts.demand.slice_level
        slices, led_slices = (counts.slices[level], counts.led_slices[level]) if known else (None, None)
        return cls(units, led, pods, led_pods, slices, led_slices, *_rest(counts, level))

    def can_lead(self, position: int) -> int:
        return self.leads[position] if self.leads is not None else 0

    # --- orders -------------------------------------------------------------------------------------------------------

    def ordered(self, positions: Iterable[int], best_fit: bool) -> list[int]:
        """Affinity score descending, slices (descending for best fit), pods ascending, path."""
        return self._sorted(positions, self.slices, self.pods, best_fit)

    def ordered_to_lead(self, positions: Iterable[int], best_fit: bool) -> list[int]:
        """Domains where the leader fits first, then as `ordered`, by what is left beside a leader."""
        order = self._sorted(positions, self.led_slices, self.led_pods, best_fit)
        if self.leads is not None:
            order.sort(key=self.leads.__getitem__, reverse=True)
        return order

    def _sorted(
        self, positions: Iterable[int], slices: Sequence[int] | None, pods: Sequence[int], best_fit: bool
    ) -> list[int]:
        """Stable sorts from the weakest criterion to the strongest, since each of them alone runs without Python code."""
        order = sorted(positions)
        if slices is not pods:
            order.sort(key=pods.__getitem__)
        if slices is not None:
            order.sort(key=slices.__getitem__, reverse=best_fit)
        if self.scores is not None:
            order.sort(key=self.scores.__getitem__, reverse=True)
        return order

    # --- one domain for everything ------------------------------------------------------------------------------------

    def one_for_all(self, positions: Iterable[int], needed: int, leaders: int, *, any_score: bool) -> int | None:
        """The tightest domain that holds everything, None if none does. `positions` come in path order.

        `any_score` considers all domains, best score first; otherwise only those of the top score.
        """
        units, pods = (self.led, self.led_pods) if leaders else (self.units, self.pods)
        candidates = positions
        if leaders and self.leads is not None:
            leads = self.leads
            candidates = [position for position in positions if leads[position]]
        if self.scores is not None and not any_score:
            candidates = _top_scored(list(candidates), self.scores)
        holding = [position for position in candidates if units[position] >= needed]
        if self.scores is not None:
            holding = _top_scored(holding, self.scores)
        if not holding:
            return None
        fewest = min(map(units.__getitem__, holding))
        tight = [position for position in holding if units[position] == fewest]
        return tight[0] if pods is units else min(tight, key=pods.__getitem__)

    def tightest(self, order: Sequence[int], needed: int, leaders: int) -> int:
        """The first domain with the fewest sufficient units, among those in `order` with the score of its first one."""
        scores, leads = self.scores, self.leads
        units = self.led if leaders else self.units
        best, best_units = order[0], -1
        for position in order:
            if scores is not None and scores[position] != scores[order[0]]:
                break
            if leaders and leads is not None and not leads[position]:
                continue
            if units[position] >= needed and (best_units < 0 or units[position] < best_units):
                best, best_units = position, units[position]
        return best

    # --- many domains -------------------------------------------------------------------------------------------------

    def leader_first(self, order: list[int], needed: int) -> list[int]:
        """Move to the front the first domain that can lead at a cost that all of them together can afford."""
        if self.leads is None or len(order) < 2:
            return order
        spare = sum(self.units[position] for position in order) - needed
        for index, position in enumerate(order):
            if self.leads[position] and self.units[position] - self.led[position] <= spare:
                return [position, *order[:index], *order[index + 1 :]] if index else order
        return order

    def deal(self, order: list[int], needed: int, leaders: int, best_fit: bool) -> list[DealtShare]:
        """Deal `needed` units and at most one leader out over the domains in this order; [] if they do not suffice."""
        if leaders:
            order = self.leader_first(order, needed)
        shares: list[DealtShare] = []
        for index, position in enumerate(order):
            units = self.led if leaders else self.units
            leads = self.can_lead(position) if leaders else 0
            if best_fit and units[position] >= needed and leads == leaders:
                position = self.tightest(order[index:], needed, leaders)
                leads = leaders
            taken = min(units[position], needed)
            shares.append(DealtShare(position, taken, leads))
            if taken == needed and leads == leaders:
                return shares
            needed -= taken
            leaders -= leads
        return []


def _rest(counts: Counts, level: int) -> tuple[Sequence[int] | None, Sequence[int] | None]:
    leads = counts.leads[level] if counts.leads is not None else None
    scores = counts.scores[level] if counts.scores is not None else None
    return leads, scores


def _top_scored(positions: list[int], scores: Sequence[int]) -> list[int]:
    top = max(map(scores.__getitem__, positions), default=0)
    return [position for position in positions if scores[position] == top]


# --- balanced ---------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class BalancedStart:
    """Pods dealt out evenly at `level`, and the pruned counts with which the search continues."""

    counts: Counts
    level: int
    shares: list[DealtShare]


@dataclass(frozen=True, slots=True)
class _Greedy:
    """The roomiest-first choice: how many domains it takes, and the last ones."""

    taken: int
    last_leader: int | None
    last_worker: int | None


@dataclass(frozen=True, slots=True)
class _Candidate:
    counts: Counts
    siblings: Sequence[int]
    threshold: int
    taken: int


def balanced_start(counts: Counts, goal: Goal, leaders: int) -> BalancedStart | None:
    """Deal pods out evenly. None if balancing is not possible: the ordinary search then decides."""
    if goal.slices <= 0 or not counts.tree.size(goal.level):
        return None
    best: _Candidate | None = None
    for siblings in _sibling_sets(counts, goal.level):
        found = _evaluate(counts, goal, leaders, siblings, best.threshold if best else 1)
        if found and (best is None or (found.threshold, -found.taken) > (best.threshold, -best.taken)):
            best = found
    return _spread(best, goal, leaders) if best else None


def _sibling_sets(counts: Counts, level: int) -> list[range]:
    tree = counts.tree
    if level == 0:
        return [range(tree.size(0))]
    return [tree.children(level - 1, parent) for parent in range(tree.size(level - 1))]


# --- the threshold ----------------------------------------------------------------------------------------------------


def _evaluate(counts: Counts, goal: Goal, leaders: int, siblings: Sequence[int], least: int) -> _Candidate | None:
    """The siblings, pruned to what reaches their threshold, if that is at least `least` and they still suffice."""
    above_slices = goal.level < goal.slice_level
    level = goal.level + 1 if above_slices else goal.level
    positions = counts.tree.children_of_all(goal.level, siblings) if above_slices else siblings
    floor = LevelCounts.of_slices(counts, level)
    greedy = _take_greedily(floor, positions, goal.slices, leaders)
    if greedy is None:
        return None
    threshold = goal.slices // greedy.taken
    if greedy.last_leader is not None:
        threshold = min(threshold, floor.led[greedy.last_leader])
    if greedy.last_worker is not None:
        threshold = min(threshold, floor.units[greedy.last_worker])
    thresholds = [threshold]
    if leaders and greedy.last_worker is not None and floor.led[greedy.last_worker] < threshold:
        thresholds.append(floor.led[greedy.last_worker])
    for attempt in thresholds:
        if attempt < least:
            return None
        pruned = _prune(counts, goal.level, siblings, attempt)
        again = _take_greedily(LevelCounts.of_slices(pruned, goal.level), siblings, goal.slices, leaders)
        if again is not None:
            return _Candidate(pruned, siblings, attempt, again.taken)
    return None


def _take_greedily(floor: LevelCounts, positions: Sequence[int], needed: int, leaders: int) -> _Greedy | None:
    order = floor.ordered_to_lead(positions, best_fit=True)
    last_leader = last_worker = None
    taken = 0
    if leaders:
        if not order or not floor.can_lead(order[0]):
            return None
        last_leader, taken = order[0], 1
        needed -= floor.led[last_leader]
        order = floor.ordered(order[1:], best_fit=True)
    for position in order:
        if needed <= 0 or floor.units[position] <= 0:
            break
        last_worker = position
        taken += 1
        needed -= floor.units[position]
    return _Greedy(taken, last_leader, last_worker) if needed <= 0 else None


def _prune(counts: Counts, level: int, siblings: Sequence[int], threshold: int) -> Counts:
    pruned = counts.clone()
    # Summing up again changes nothing where nothing was dropped, unless inner slice layers had rounded the sums down.
    always = bool(counts.demand.inner_sizes)
    if level < counts.tree.lowest:
        for sibling in siblings:
            if _drop_below(pruned, level + 1, counts.tree.children(level, sibling), threshold) or always:
                pruned.recount(level, sibling)
    _drop_below(pruned, level, siblings, threshold)
    return pruned


def _drop_below(counts: Counts, level: int, positions: Sequence[int], threshold: int) -> bool:
    """Empty domains with fewer slices than the threshold, and bar the leader where it would cause that. True if anything
    changed.
    """
    slices, pods = counts.slices[level], counts.pods[level]
    if counts.leads is None:
        poor = [position for position in positions if slices[position] < threshold and pods[position]]
        crowded: list[int] = []
    else:
        leads, led_slices = counts.leads[level], counts.led_slices[level]
        poor = [p for p in positions if slices[p] < threshold and (pods[p] or leads[p])]
        crowded = [p for p in positions if slices[p] >= threshold > led_slices[p] and leads[p]]
    for position in poor:
        counts.empty(level, position)
    for position in crowded:
        counts.bar_leader(level, position)
    return bool(poor or crowded)


# --- the domains ------------------------------------------------------------------------------------------------------


def _spread(best: _Candidate, goal: Goal, leaders: int) -> BalancedStart | None:
    counts, level = best.counts, goal.level
    positions: Sequence[int] | None = best.siblings
    if level < goal.slice_level:
        positions = _optimal_subset(counts, level, _by_entropy(counts, level, positions), goal, leaders)
        if positions is None:
            return None
        positions = counts.tree.children_of_all(level, positions)
        level += 1
    chosen = _optimal_subset(counts, level, sorted(positions), goal, leaders)
    if chosen is None:
        return None
    shares = _even_shares(LevelCounts.of_slices(counts, level), chosen, goal, leaders, best.threshold)
    return BalancedStart(counts, level, shares) if shares is not None else None


def _optimal_subset(
    counts: Counts, level: int, order: Sequence[int], goal: Goal, leaders: int
) -> tuple[int, ...] | None:
    """The domains that hold everything with the least excess, as many as the greedy choice takes; None if there are none.

    `reached[n]` maps (leaders left, pods left) to the first choice of n domains, in `order`, that leaves so much.
    """
    greedy = _take_greedily(LevelCounts.of_slices(counts, level), order, goal.slices, leaders)
    if greedy is None:
        return None
    pods, led_pods, slices = counts.pods[level], counts.led_pods[level], counts.slices[level]
    leads = counts.leads[level] if counts.leads is not None else None
    reached: list[dict[tuple[int, int], tuple[int, ...]]] = [{} for _ in range(greedy.taken + 1)]
    reached[0][leaders, goal.slices * goal.slice_size] = ()
    useful = [p for p in order if slices[p] > 0 or (leads is not None and leads[p])]
    for position in useful:
        for used in range(greedy.taken, 0, -1):
            target = reached[used]
            for leaders_left, pods_left in sorted(reached[used - 1]):
                if leaders_left <= 0 and pods_left <= 0:
                    continue
                choice = (*reached[used - 1][leaders_left, pods_left], position)
                if leaders_left > 0 and leads is not None and leads[position]:
                    target.setdefault((leaders_left - 1, pods_left - led_pods[position]), choice)
                if slices[position] > 0:
                    target.setdefault((leaders_left, pods_left - pods[position]), choice)
    complete = [state for state in reached[greedy.taken] if state[0] == 0 and state[1] <= 0]
    return reached[greedy.taken][max(complete)] if complete else None


def _by_entropy(counts: Counts, level: int, positions: Sequence[int]) -> list[int]:
    led_slices = counts.led_slices[level]
    leads = counts.leads[level] if counts.leads is not None else None

    def rank(position: int) -> tuple[int, int, float, int]:
        leading = leads[position] if leads is not None else 0
        below = [counts.pods[level + 1][child] for child in counts.tree.children(level, position)]
        return -leading, -led_slices[position], -_entropy(below), position

    return sorted(positions, key=rank)


def _entropy(amounts: Sequence[int]) -> float:
    """The entropy of the amounts in bits: how evenly they are distributed."""
    total = sum(amounts)
    if not total:
        return 0.0
    parts = [amount / total for amount in amounts if amount > 0]
    return sum(-part * log2(part) for part in parts)


def _even_shares(
    floor: LevelCounts, chosen: Sequence[int], goal: Goal, leaders: int, threshold: int
) -> list[DealtShare] | None:
    """The threshold for each, the rest to the first ones up to their capacity; None if something is left over."""
    extra = goal.slices - len(chosen) * threshold
    if extra < 0:
        return None
    shares: list[DealtShare] = []
    for position in floor.ordered_to_lead(chosen, best_fit=True):
        room = floor.led[position] if leaders else floor.units[position]
        more = min(room - threshold, extra)
        shares.append(DealtShare(position, (threshold + more) * goal.slice_size, leaders))
        extra -= more
        leaders = 0
    return shares if extra == 0 else None
