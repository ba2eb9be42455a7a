"""Priors of pairs that nobody measured, fitted to pairs that somebody did; and how they do on families that they never saw.

A prior is a ridge regression of the speed on what is known of both classes. It is used only where it is better than a constant
on families of jobs that it was not fitted to: each family is left out once, with all its pairs.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from itertools import pairwise
from typing import Any, Final, NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray

from gangline.engine import FEATURES, PairSpeeds, by_prior, features_of, within
from gangline.engine.model import CompanyPrior, Device, JobProfile, Mode

Floats: TypeAlias = NDArray[np.float64]

#: how strongly weights are drawn to 0, as so many pairs
_RIDGE: Final = 20.0
#: a prior is judged from so many families on
LEAST_FAMILIES: Final = 3
#: the rule that precision and recall are about: both keep at least this speed, and the sum is at least that
BOTH, TOGETHER = 0.6, 1.1
#: bounds of the expected speeds by which calibration is shown
_BINS: Final = (0.0, 0.4, 0.5, 0.6, 0.7, 0.8, 2.0)


class Direction(NamedTuple):
    """One measured direction of a pair."""

    mine: str
    beside: str
    speed: float


def directions(profiles: Mapping[str, JobProfile], gpu: str, mode: Mode = "") -> list[Direction]:
    """The measured directions on one model of card, by name."""
    return [
        Direction(name, pair.beside, within(pair.speed))
        for name, profile in sorted(profiles.items())
        for pair in sorted(profile.pairs, key=lambda each: each.beside)
        if pair.gpu == gpu and pair.mode == mode and not (pair.on_node or pair.out_of_memory)
    ]


def settings_of(profiles: Iterable[JobProfile]) -> list[tuple[str, Mode]]:
    """The models of cards and ways of sharing in which pairs were measured."""
    return sorted({(pair.gpu, pair.mode) for profile in profiles for pair in profile.pairs if not pair.on_node})


def fit(
    profiles: Mapping[str, JobProfile], rows: Sequence[Direction], gpu: str, mode: Mode = "", name: str = ""
) -> CompanyPrior:
    """The prior for these directions. Raises ValueError without any."""
    if not rows:
        raise ValueError(f"no pair was measured on {gpu or 'any card'}")
    speeds = np.array([row.speed for row in rows])
    known = {each: features_of(profiles.get(each), gpu, mode) for row in rows for each in row[:2]}
    table = np.array([[np.nan if value is None else value for value in known[each]] for each in sorted(known)])
    counted = ~np.isnan(table)
    usual = np.where(counted.any(0), np.where(counted, table, 0.0).sum(0) / np.maximum(counted.sum(0), 1), 0.0)
    filled = {each: np.where(np.isnan(row), usual, row) for each, row in zip(sorted(known), table, strict=True)}
    sides = np.array([[*filled[row.mine], *filled[row.beside]] for row in rows])
    middle, spread = sides.mean(0), sides.std(0)
    scaled = (sides - middle) / np.where(spread > 1e-9, spread, 1.0)
    gram = scaled.T @ scaled + _RIDGE * np.eye(scaled.shape[1])
    weights = np.linalg.solve(gram, scaled.T @ (speeds - speeds.mean()))
    weights = np.where(spread > 1e-9, weights / np.where(spread > 1e-9, spread, 1.0), 0.0)
    half = len(FEATURES)
    return CompanyPrior(
        name or f"{gpu}/{mode}",
        gpu,
        mode,
        float(speeds.mean() - weights @ middle),
        tuple(map(float, weights[:half])),
        tuple(map(float, weights[half:])),
        tuple(map(float, usual)),
    )


# --- judging ----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class JoinScore:
    """How often the rule is right: of the pairs that it would join, and of those that should be joined. None = there are none."""

    pairs: int
    should: int
    would: int
    right: int

    @property
    def precision(self) -> float | None:
        return self.right / self.would if self.would else None

    @property
    def recall(self) -> float | None:
        return self.right / self.should if self.should else None


@dataclass(frozen=True, slots=True)
class CalibrationBin:
    """Pairs whose expected speed is in [low, high): the mean of what was expected, and of what was measured."""

    low: float
    high: float
    pairs: int
    expected: float
    measured: float


@dataclass(frozen=True, slots=True)
class PairScore:
    """How near estimates came on families that they never saw, on one model of card. Errors are mean absolute ones of speeds."""

    gpu: str
    mode: Mode
    pairs: int
    families: int
    constant: float
    #: 1 / the sum of both utilisations
    by_utilisation: float
    prior: float
    #: the same, with nothing known of the unseen family from pairs: not how it runs beside itself
    prior_without_own: float
    join: JoinScore
    join_constant: JoinScore
    calibration: tuple[CalibrationBin, ...]

    @property
    def used(self) -> bool:
        """Whether the prior may be used: it beats a constant on unseen families."""
        return self.families >= LEAST_FAMILIES and self.prior < self.constant

    @property
    def verdict(self) -> str:
        where = f"{self.gpu or 'any card'}{f', {self.mode}' if self.mode else ''}"
        if self.families < LEAST_FAMILIES:
            return f"{where}: the prior is not used: {self.families} families were measured, it takes {LEAST_FAMILIES}"
        compared = f"its error on unseen families is {self.prior:.3f}, that of a constant {self.constant:.3f}"
        return f"{where}: the prior is {'used' if self.used else 'not used'}: {compared}"

    def as_json(self) -> dict[str, Any]:
        return {**asdict(self), "used": self.used, "verdict": self.verdict} | {
            name: {**asdict(join), "precision": join.precision, "recall": join.recall}
            for name, join in (("join", self.join), ("join_constant", self.join_constant))
        }


def judge(
    profiles: Mapping[str, JobProfile],
    families: Mapping[str, str],
    gpu: str,
    mode: Mode = "",
    *,
    judged_on: Mapping[str, JobProfile] | None = None,
) -> PairScore:
    """Leave each family out once: fit to the pairs of the others, and predict the pairs with it.

    `judged_on`: other measurements of the same classes, on which predictions are judged; each family is left out all the same.
    Raises ValueError if there is nothing to judge.
    """
    rows = directions(profiles, gpu, mode)
    tested = rows if judged_on is None else directions(judged_on, gpu, mode)
    found: list[_Predicted] = []
    for family in sorted({families.get(row.mine, row.mine) for row in rows}):
        kept = [row for row in rows if family not in _families(row, families)]
        held = [row for row in tested if family in _families(row, families)]
        if kept and held:
            found += _predict(profiles, families, family, kept, held, gpu, mode)
    if not found:
        raise ValueError(f"too few families of jobs were measured on {gpu or 'any card'} to leave one out")
    speeds = np.array([each.row.speed for each in found])

    def error(name: str) -> float:
        return float(np.abs(speeds - np.array([getattr(each, name) for each in found])).mean())

    return PairScore(
        gpu=gpu,
        mode=mode,
        pairs=len(found),
        families=len({families.get(row.mine, row.mine) for row in rows}),
        constant=error("constant"),
        by_utilisation=error("by_utilisation"),
        prior=error("prior"),
        prior_without_own=error("without_own"),
        join=_joined(found, "prior"),
        join_constant=_joined(found, "constant"),
        calibration=_calibration(found),
    )


class _Predicted(NamedTuple):
    family: str
    row: Direction
    constant: float
    by_utilisation: float
    prior: float
    without_own: float


def _families(row: Direction, families: Mapping[str, str]) -> set[str]:
    return {families.get(row.mine, row.mine), families.get(row.beside, row.beside)}


def _predict(
    profiles: Mapping[str, JobProfile],
    families: Mapping[str, str],
    family: str,
    kept: Sequence[Direction],
    held: Sequence[Direction],
    gpu: str,
    mode: Mode,
) -> list[_Predicted]:
    prior = fit(profiles, kept, gpu, mode)
    constant = float(np.median([row.speed for row in kept]))
    found: list[_Predicted] = []
    for row in held:
        mine, theirs = (features_of(profiles.get(name), gpu, mode) for name in row[:2])
        without_own = [(None, *each[1:]) if families.get(name, name) == family else each
                for name, each in zip(row[:2], (mine, theirs), strict=True)]  # fmt: skip
        used = sum(1.0 if each[1] is None else each[1] for each in (mine, theirs))
        # a pair of a class with itself is not predicted by itself
        expected = by_prior(prior, *((mine, theirs) if row.mine != row.beside else without_own))
        found.append(
            _Predicted(
                family,
                row,
                constant,
                1 / max(1.0, used),
                within(expected),
                within(by_prior(prior, *without_own)),
            )
        )
    return found


def _joined(found: Sequence[_Predicted], name: str) -> JoinScore:
    """The joining rule on pairs of which both directions are known."""
    expected = {(each.family, each.row.mine, each.row.beside): getattr(each, name) for each in found}
    measured = {(each.family, each.row.mine, each.row.beside): each.row.speed for each in found}
    pairs = should = would = right = 0
    for family, mine, beside in measured:
        back = family, beside, mine
        if mine > beside or back not in measured:
            continue
        wanted = _joins(measured[family, mine, beside], measured[back])
        predicted = _joins(expected[family, mine, beside], expected[back])
        pairs, should, would, right = pairs + 1, should + wanted, would + predicted, right + (wanted and predicted)
    return JoinScore(pairs, should, would, right)


def _joins(one: float, other: float) -> bool:
    return one + other >= TOGETHER and min(one, other) >= BOTH


def _calibration(found: Sequence[_Predicted]) -> tuple[CalibrationBin, ...]:
    bins: list[CalibrationBin] = []
    for low, high in pairwise(_BINS):
        inside = [each for each in found if low <= each.prior < high]
        if inside:
            bins.append(
                CalibrationBin(
                    low,
                    high,
                    len(inside),
                    float(np.mean([each.prior for each in inside])),
                    float(np.mean([each.row.speed for each in inside])),
                )
            )
    return tuple(bins)


# --- what is used -----------------------------------------------------------------------------------------------------


class Learned(NamedTuple):
    """The priors that may be used, and the score of each model of card and way of sharing."""

    priors: tuple[CompanyPrior, ...]
    scores: tuple[PairScore, ...]
    #: why others could not be judged
    refused: tuple[str, ...] = ()


def learn(profiles: Mapping[str, JobProfile], families: Mapping[str, str]) -> Learned:
    """Fit and judge a prior for each model of card and way of sharing."""
    priors: list[CompanyPrior] = []
    scores: list[PairScore] = []
    refused: list[str] = []
    for gpu, mode in settings_of(profiles.values()):
        try:
            score = judge(profiles, families, gpu, mode)
        except ValueError as error:
            refused.append(str(error))
            continue
        scores.append(score)
        if score.used:
            priors.append(fit(profiles, directions(profiles, gpu, mode), gpu, mode))
    return Learned(tuple(priors), tuple(scores), tuple(refused))


def after_probes(
    profiles: Mapping[str, JobProfile],
    families: Mapping[str, str],
    gpu: str,
    probes: int,
    rng: np.random.Generator,
    mode: Mode = "",
) -> float:
    """The mean absolute error for a class of an unseen family, once so many of its directions are measured (drawn by `rng`)."""
    rows = directions(profiles, gpu, mode)
    device = Device("", "", model=gpu, mode=mode)
    errors: list[float] = []
    for family in sorted({families.get(row.mine, row.mine) for row in rows}):
        kept = [row for row in rows if family not in _families(row, families)]
        held = [row for row in rows if family in _families(row, families)]
        if not kept or len(held) <= probes:
            continue
        shown = {held[place] for place in rng.permutation(len(held))[:probes].tolist()}
        seen = {*kept, *shown}
        known = {
            name: JobProfile(
                name,
                tuple(
                    pair
                    for pair in profile.pairs
                    if pair.gpu == gpu and Direction(name, pair.beside, within(pair.speed)) in seen
                ),
                profile.alone,
            )
            for name, profile in profiles.items()
        }
        speeds = PairSpeeds(known, (fit(known, kept, gpu, mode),))
        for row in held:
            expected = speeds.on_card(row.mine, row.beside, device)
            if row not in shown and expected is not None:
                errors.append(abs(expected.speed - row.speed))
    return float(np.mean(errors))
