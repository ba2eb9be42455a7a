"""The pipeline: the best place for a pod among many hosts, and what excludes the others.

For each kind of pod there is a table of hosts: evaluated once, then only where something changed.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Final, TypeAlias

from gangline.engine.placing.hosts import FILTERS, Host, HostPlace, PodRequest, places
from gangline.engine.placing.scorers import MOST, POINT, SCORERS, Args, Field, Scorer
from gangline.engine.text.change_log import ChangeLog

# --- profiles ---------------------------------------------------------------------------------------------------------
# Profiles: which filters and which tiers of scorers decide, by name.


@dataclass(frozen=True, slots=True)
class Score:
    """A scorer in a tier: 0 decides first."""

    name: str
    tier: int = 0
    weight: int = 1
    args: Args = field(default_factory=dict[str, object])
    #: its whole measure counts, not rounded to points: the last word between places
    fine: bool = False


@dataclass(frozen=True, slots=True)
class PlacingProfile:
    filters: tuple[str, ...]
    scores: tuple[Score, ...]

    def __post_init__(self) -> None:
        for name in self.filters:
            if name not in FILTERS:
                raise ValueError(f"filter {name!r} is not known")
        for score in self.scores:
            if score.name not in SCORERS:
                raise ValueError(f"score {score.name!r} is not known")

    def tiers(self) -> list[list[Score]]:
        """The scores by tier, the first tier first."""
        numbers = sorted({score.tier for score in self.scores})
        return [[score for score in self.scores if score.tier == number] for number in numbers]


def _profile(*tiers: Iterable[Score | str]) -> PlacingProfile:
    scores = [
        Score(each, tier) if isinstance(each, str) else replace(each, tier=tier)
        for tier, names in enumerate(tiers)
        for each in names
    ]
    return PlacingProfile(("Fits", "NodeSelector"), tuple(scores))


#: between places that fragment equally: least left, in the unit of the largest host
_TIGHTEST: Final = Score("BestFit", args={"weights": {"cpu": 2, "gpu": 3}}, fine=True)

#: By name; those that need no cards are in QueuePolicy.spec.placement.profile.
PROFILES: Final[Mapping[str, PlacingProfile]] = {
    # full hosts and full cards first: whole hosts stay free
    "Pack": _profile(["Pack"], ["CardPack"]),
    # empty hosts first: gangs share as little as possible
    "Spread": _profile(["Spread"], ["CardBalance"]),
    # as little free GPU as possible that typical pods cannot use
    "Fragmentation": _profile(["Fragmentation"], [_TIGHTEST]),
    # cards with the same kind of work only
    "Standalone": _profile(["ClassAffinity"], ["Pack"]),
    # cards whose pods use least
    "Balance": _profile(["CardBalance"], ["Spread"]),
    # where all pods together are fastest, then full hosts and cards
    "Interference": _profile(["Interference"], ["Pack"], ["CardPack"]),
    # few watts more for the pod: cards and hosts at work and sparing ones, as far as that fragments little (the weight, of six,
    # by the fill benchmark on 900 pods and 200 nodes of openb and three seeds)
    "Green": _profile(["Power", Score("Fragmentation", weight=8)], [_TIGHTEST]),
    # near first, then empty
    "Edge": _profile(["NetworkCost"], ["ImageLocality", "DataLocality"], ["Spread"]),
}
#: the profile of the fill benchmark's best column, and of a policy that names none
DEFAULT: Final = "Fragmentation"


# --- pipeline ---------------------------------------------------------------------------------------------------------


#: kinds of pods whose tables are kept, unless somebody says otherwise
_TABLES_KEPT: Final = 512
_LOG_LENGTH: Final = 1 << 16

#: What a place is worth by tier, in ten thousandths of a point.
Rank: TypeAlias = tuple[int, ...]


@dataclass(frozen=True, slots=True)
class _Weighted:
    scorer: Scorer
    weight: int
    fine: bool

    def worth(self, measure: int) -> int:
        return self.weight * (measure if self.fine else measure - measure % POINT)


@dataclass(slots=True)
class _Table:
    """What is known of each host: why it is excluded, or its best place with its rank (and the costs that relative scorers
    compare).
    """

    reasons: list[str]
    places: list[HostPlace | None]
    ranks: list[Rank]
    costs: list[tuple[int, ...]]
    tally: Counter[str] = field(default_factory=Counter[str])
    seen: int = ChangeLog.UNREAD


@dataclass(frozen=True, slots=True)
class BestPlace:
    """The best place for a pod, with its points by tier."""

    position: int
    place: HostPlace
    points: tuple[int, ...]


class Pipeline:
    """Places on `hosts` by a profile. Whoever changes what is free on a host says so (`changed`)."""

    def __init__(
        self, profile: PlacingProfile, hosts: Sequence[Host], known: Field | None = None, kept: int = _TABLES_KEPT
    ) -> None:
        self.hosts = hosts
        self.field = known if known is not None else Field()
        for host in hosts:
            self.field.grow(host)
        self._filters = [FILTERS[name] for name in profile.filters]
        self._tiers = [
            [_Weighted(SCORERS[score.name](score.args), score.weight, score.fine) for score in tier]
            for tier in profile.tiers()
        ]
        self._relative = [each.scorer for tier in self._tiers for each in tier if each.scorer.relative]
        self._tables: dict[PodRequest, _Table] = {}
        self._kept = kept
        self._log: ChangeLog[int] = ChangeLog(_LOG_LENGTH)
        #: how often a host was looked at for a pod
        self.looks = 0

    def changed(self, position: int) -> None:
        """Something is different on this host."""
        self._log.append(position)

    def best(self, ask: PodRequest) -> BestPlace | None:
        """The best place, of equal ones the first; None if no host may get the pod."""
        table = self._table(ask)
        ranks = self._compared(table) if self._relative else table.ranks
        best = max(ranks, default=_EXCLUDED)
        if best == _EXCLUDED:
            return None
        position = ranks.index(best)
        place = table.places[position]
        assert place is not None
        return BestPlace(position, place, tuple(worth // POINT for worth in best))

    def any(self, ask: PodRequest, choose: Callable[[Sequence[int]], int]) -> BestPlace | None:
        """A place on a host that somebody else chooses of those that may get the pod."""
        table = self._table(ask)
        open_hosts = [position for position, rank in enumerate(table.ranks) if rank != _EXCLUDED]
        if not open_hosts:
            return None
        position = choose(open_hosts)
        place = table.places[position]
        assert place is not None
        return BestPlace(position, place, tuple(worth // POINT for worth in table.ranks[position]))

    def ranks(self, ask: PodRequest) -> Sequence[Rank]:
        """The rank of every host, () where it is excluded."""
        table = self._table(ask)
        return self._compared(table) if self._relative else table.ranks

    def reasons(self, ask: PodRequest) -> Counter[str]:
        """How many hosts each reason excludes."""
        return Counter({reason: count for reason, count in self._table(ask).tally.items() if count})

    # --- tables -------------------------------------------------------------------------------------------------------

    def _table(self, ask: PodRequest) -> _Table:
        table = self._tables.pop(ask, None)
        size = len(self.hosts)
        changed: Iterable[int] | None = None
        if table is None:
            while len(self._tables) >= self._kept:
                del self._tables[next(iter(self._tables))]
            table = _Table([""] * size, [None] * size, [_EXCLUDED] * size, [()] * size)
        else:
            changed = self._log.since(table.seen)
        for position in set(changed) if changed is not None else range(size):
            self._look(table, ask, position)
        table.seen = self._log.end
        self._tables[ask] = table
        return table

    def _look(self, table: _Table, ask: PodRequest, position: int) -> None:
        self.looks += 1
        host, before = self.hosts[position], table.reasons[position]
        reason, place, rank, costs = self._evaluate(ask, host)
        table.reasons[position], table.places[position] = reason, place
        table.ranks[position], table.costs[position] = rank, costs
        if before != reason:
            if before:
                table.tally[before] -= 1
            if reason:
                table.tally[reason] += 1

    def _evaluate(self, ask: PodRequest, host: Host) -> tuple[str, HostPlace | None, Rank, tuple[int, ...]]:
        for each in self._filters:
            reason = each(ask, host)
            if reason:
                return reason, None, _EXCLUDED, ()
        offered = places(host, ask)
        if not offered:
            return "no cards of the node suffice together", None, _EXCLUDED, ()
        if len(offered) == 1:
            return "", offered[0], self._rank(ask, offered[0]), self._costs(ask, offered[0])
        (rank, _), place = max((((self._rank(ask, each), _unequal(each, ask)), each) for each in offered), key=_first)
        return "", place, rank, self._costs(ask, place)

    def _rank(self, ask: PodRequest, place: HostPlace) -> Rank:
        """The worth of a place by tier, apart from relative scorers."""
        return tuple(
            sum(each.worth(each.scorer.measure(ask, place, self.field)) for each in tier if not each.scorer.relative)
            for tier in self._tiers
        )

    def _costs(self, ask: PodRequest, place: HostPlace) -> tuple[int, ...]:
        return tuple(scorer.measure(ask, place, self.field) for scorer in self._relative)

    def _compared(self, table: _Table) -> list[Rank]:
        """Ranks with the points of relative scorers, which depend on all hosts that are not excluded."""
        admitted = [costs for costs, rank in zip(table.costs, table.ranks, strict=True) if rank != _EXCLUDED]
        ranges = [(min(column), max(column)) for column in zip(*admitted, strict=True)]
        return [
            _EXCLUDED if rank == _EXCLUDED else self._with_points(rank, costs, ranges)
            for rank, costs in zip(table.ranks, table.costs, strict=True)
        ]

    def _with_points(self, rank: Rank, costs: tuple[int, ...], ranges: Sequence[tuple[int, int]]) -> Rank:
        found = list(rank)
        given = iter(zip(costs, ranges, strict=True))
        for number, tier in enumerate(self._tiers):
            for each in tier:
                if each.scorer.relative:
                    cost, (least, most) = next(given)
                    found[number] += each.worth(MOST * (most - cost) // (most - least) if most > least else MOST)
        return tuple(found)


def _unequal(place: HostPlace, ask: PodRequest) -> int:
    """How unequally full its cards would be: between equal places, the one that leaves large parts of cards."""
    return sum(left * left for left in place.milli_after(ask))


def _first(pair: tuple[tuple[Rank, int], HostPlace]) -> tuple[Rank, int]:
    return pair[0]


#: the rank of an excluded host, below all others
_EXCLUDED: Final[Rank] = ()
