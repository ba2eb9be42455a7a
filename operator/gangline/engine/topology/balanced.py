"""Balanced placement: a preferred request spread evenly over as few domains as possible.

The threshold is the number of slices that every domain in use can be given at least. The siblings under one parent with the
highest threshold win; a dynamic program picks the subset of the needed size with the least excess capacity; each member
gets the threshold and the first ones what is left over.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import log2

from gangline.engine.topology.dealing import DealtShare, LevelCounts
from gangline.engine.topology.domain_counts import Counts
from gangline.engine.topology.placement_request import Goal


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
