"""The search for domains of one pod set (or a leader with its workers): choose a level, then descend to the leaves."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from gangline.engine.occupancy.power_ledger import MOST_NAMED, POWER_OF
from gangline.engine.topology.balanced import DealtShare, LevelCounts, balanced_start
from gangline.engine.topology.domain_counts import Counts
from gangline.engine.topology.placement_request import Goal, Unplaceable

# --- placement failures -----------------------------------------------------------------------------------------------
# Why a topology request fails, in Kueue's words.


def no_domains(level: str) -> str:
    return f"no topology domains at level: {level}"


def stale_domain(host: str) -> str:
    return (
        "Cannot replace the node, because the existing topologyAssignment is invalid, "
        f"as it contains the stale domain {host}"
    )


def no_replacement(host: str) -> str:
    return f"cannot find replacement assignment for unhealthy node: {host}"


def over_power(topology: str) -> str:
    return f'topology "{topology}" has room, but not within the caps of power for a leader and its workers together'


def does_not_fit(
    counts: Counts, goal: Goal, fitting: int, *, level: int, topology: str, levels: Sequence[str], hostnames: bool
) -> str:
    """`fitting` slices have room at `level`; with several slice layers, the numbers of each layer are given instead."""
    if len(goal.layers) > 1:
        text = f'topology "{topology}" doesn\'t allow to fit' + _layers_fitting(counts, goal, level, levels, hostnames)
    else:
        unit = "pod" if goal.slice_size == 1 else "slice"
        found = f"allows to fit only {fitting} out of" if fitting else "doesn't allow to fit any of"
        text = f'topology "{topology}" {found} {goal.slices} {unit}(s)'
    return text + _exclusions(counts)


def _exclusions(counts: Counts) -> str:
    tally = {reason: leaves for reason, leaves in counts.tally.items() if leaves}
    by_power = sorted(reason for reason in tally if reason.startswith(POWER_OF))
    if len(by_power) > MOST_NAMED:
        rest = sum(tally.pop(reason) for reason in by_power[MOST_NAMED:])
        tally[f"{POWER_OF}{len(by_power) - MOST_NAMED} other domains"] = rest
    reasons = sorted(f"{reason}: {leaves}" for reason, leaves in tally.items())
    return f". Total nodes: {len(counts.reasons)}; excluded: {', '.join(reasons)}" if reasons else ""


def _layers_fitting(counts: Counts, goal: Goal, level: int, levels: Sequence[str], hostnames: bool) -> str:
    """What fits into the domain that holds most slices, per slice layer."""
    tree, slices = counts.tree, counts.slices[level]

    def rank(position: int) -> tuple[int, str]:
        path = tree.paths[level][position]
        name = path[-1] if hostnames and level == tree.lowest else ",".join(path)
        return -slices[position], name

    best = min(range(tree.size(level)), key=rank)
    text = ""
    for layer_level, size in goal.layers:
        domains = [best]
        for step in range(level, layer_level):
            domains = tree.children_of_all(step, domains)
        fitting = sum(counts.pods[layer_level][position] // size for position in domains)
        text += f"; {fitting}/{goal.count // size} slice(s) fit on level {levels[layer_level]}"
    return text


# --- domain search ----------------------------------------------------------------------------------------------------


class Search:
    """One request against filled counts. `place` returns a share of pods for every leaf used."""

    __slots__ = (
        "_balanced",
        "_counts",
        "_goal",
        "_hostnames",
        "_leaders",
        "_leaf_scores",
        "_levels",
        "_topology",
        "_tree",
    )

    def __init__(
        self,
        counts: Counts,
        goal: Goal,
        *,
        topology: str,
        levels: Sequence[str],
        hostnames: bool,
        balanced: bool,
        leaf_scores: Sequence[int] | None = None,
    ) -> None:
        """`leaf_scores`: what a policy says of the leaves; inside a domain the best ones are taken first."""
        self._counts = counts
        self._tree = counts.tree
        self._goal = goal
        self._leaders = 0 if counts.leads is None else 1
        self._topology = topology
        self._levels = levels
        self._hostnames = hostnames
        self._balanced = balanced
        self._leaf_scores = leaf_scores

    def place(self) -> list[DealtShare]:
        """Pods (and the leader) per leaf, in path order. Raises Unplaceable with Kueue's text if they do not fit."""
        shares = self._place_evenly() if self._balanced and self._goal.climbs else None
        if shares is None:
            level, shares = self._start()
            level, shares = self._descend_across(shares, level)
            shares = self._descend_inside(self._counts, shares, level)
            if not self._complete(shares):
                raise self._too_small(level, 0)
        return sorted(share for share in shares if share.units or share.leaders)

    def _place_evenly(self) -> list[DealtShare] | None:
        start = balanced_start(self._counts, self._goal, self._leaders)
        if start is None:
            return None
        shares = self._descend_inside(start.counts, start.shares, start.level)
        return shares if self._complete(shares) else None

    def _complete(self, shares: list[DealtShare]) -> bool:
        """Whether all units and leaders are dealt out, since there are no partial gangs: balancing disregards inner slice layers
        and may lose pods on the way down.
        """
        units, leaders = sum(share.units for share in shares), sum(share.leaders for share in shares)
        return units == self._goal.slices * self._goal.slice_size and leaders == self._leaders

    # --- choosing the first domains -----------------------------------------------------------------------------------

    def _start(self) -> tuple[int, list[DealtShare]]:
        """The level and the domains at which to start, with whole slices dealt out to them."""
        level, chosen = self._choose(self._goal.level)
        floor = self._floor(level)
        return level, floor.deal(chosen, self._goal.slices, self._leaders, self._goal.best_fit)

    def _choose(self, level: int) -> tuple[int, list[int]]:
        goal, leaders = self._goal, self._leaders
        positions = range(self._tree.size(level))
        if not positions:
            raise Unplaceable(no_domains(self._levels[level]))
        floor = self._floor(level)
        one = floor.one_for_all(
            positions,
            goal.slices,
            leaders,
            any_score=goal.required or not goal.best_fit or self._leaf_scores is not None,
        )
        if one is not None:
            return level, [one]
        if goal.required:
            first = floor.ordered_to_lead(positions, goal.best_fit)[0]
            raise self._too_small(level, floor.slices[first] if floor.slices is not None else 0)
        if goal.climbs and level > 0:
            return self._choose(level - 1)
        return level, self._several(floor, level, positions)

    def _several(self, floor: LevelCounts, level: int, positions: Sequence[int]) -> list[int]:
        """Enough domains for everything: the leader's first, then the others in their own order."""
        goal, best_fit = self._goal, self._goal.best_fit
        needed = goal.slices
        order = floor.ordered_to_lead(positions, best_fit)
        chosen: list[int] = []
        if self._leaders:
            order = floor.leader_first(order, needed)
            if not floor.can_lead(order[0]):
                raise self._too_small(level, 0)
            chosen.append(order[0])
            needed -= floor.led[order[0]]
            order = floor.ordered(order[1:], best_fit)
        if level == self._tree.lowest:
            order = [position for position in order if floor.units[position]]
        for index, position in enumerate(order):
            if needed <= 0:
                break
            if best_fit and floor.units[position] >= needed:
                position = floor.tightest(order[index:], needed, 0)
            chosen.append(position)
            needed -= floor.units[position]
        if needed > 0:
            raise self._too_small(level, goal.slices - needed)
        return chosen

    def _too_small(self, level: int, fitting: int) -> Unplaceable:
        text = does_not_fit(
            self._counts, self._goal, fitting, level=level, topology=self._topology, levels=self._levels,
            hostnames=self._hostnames,
        )  # fmt: skip
        return Unplaceable(text)

    # --- going down ---------------------------------------------------------------------------------------------------

    def _descend_across(self, shares: list[DealtShare], level: int) -> tuple[int, list[DealtShare]]:
        """Descend to the slice level: all slices are dealt out again over the children of all chosen domains."""
        goal = self._goal
        while level < goal.slice_level:
            children = self._tree.children_of_all(level, (share.position for share in shares))
            level += 1
            floor = self._floor(level)
            shares = self._deal_among(floor, children, goal.slices, self._leaders)
        return level, [DealtShare(position, slices * goal.slice_size, leaders) for position, slices, leaders in shares]

    def _descend_inside(self, counts: Counts, shares: list[DealtShare], level: int) -> list[DealtShare]:
        """Descend to the leaves: every domain deals its own pods out to its own children."""
        for step in range(level, self._tree.lowest):
            unit = self._unit_below(step)
            floor = self._by_policy(LevelCounts.of_multiples(counts, step + 1, unit), step + 1)
            dealt: list[DealtShare] = []
            for position, pods, leaders in shares:
                children = self._tree.children(step, position)
                below = self._deal_among(floor, children, pods // unit, leaders)
                dealt += [DealtShare(child, units * unit, leads) for child, units, leads in below]
            shares = dealt
        return shares

    def _floor(self, level: int) -> LevelCounts:
        return self._by_policy(LevelCounts.of_slices(self._counts, level), level)

    def _by_policy(self, floor: LevelCounts, level: int) -> LevelCounts:
        """The leaves in the policy's order; preferred affinity goes first."""
        by_policy = self._leaf_scores
        if by_policy is None or level != self._tree.lowest:
            return floor
        if floor.scores is None:
            return replace(floor, scores=by_policy)
        most = len(by_policy) + 1
        return replace(floor, scores=[score * most + own for score, own in zip(floor.scores, by_policy, strict=True)])

    def _unit_below(self, level: int) -> int:
        """How many pods stay together in a child of a domain at this level."""
        if level < self._goal.slice_level:
            return self._goal.slice_size
        return self._goal.inner_sizes.get(level + 1, 1)

    def _deal_among(self, floor: LevelCounts, positions: Sequence[int], needed: int, leaders: int) -> list[DealtShare]:
        best_fit = self._goal.best_fit
        if best_fit and not leaders and floor.slices is floor.units:
            one = floor.one_for_all(positions, needed, 0, any_score=self._leaf_scores is not None)
            if one is not None:
                return [DealtShare(one, needed, 0)]
        return floor.deal(floor.ordered(positions, best_fit), needed, leaders, best_fit)
