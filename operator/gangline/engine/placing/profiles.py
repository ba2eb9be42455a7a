"""Profiles: which filters and which tiers of scorers decide, by name."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Final

from gangline.engine.placing.filters import FILTERS
from gangline.engine.placing.scorers import SCORERS, Args


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
    # near first, then empty
    "Edge": _profile(["NetworkCost"], ["ImageLocality", "DataLocality"], ["Spread"]),
}
#: the profile of the fill benchmark's best column, and of a policy that names none
DEFAULT: Final = "Fragmentation"
