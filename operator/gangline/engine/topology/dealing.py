"""Dealing pods out to the domains of one level: the orders, the tightest fit, and the leader's place.

Two profiles: *best fit* starts with the roomiest domain and ends with the tightest one that holds the rest; *least free*
starts with the smallest and keeps the roomy ones whole.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from gangline.engine.topology.domain_counts import Counts


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
