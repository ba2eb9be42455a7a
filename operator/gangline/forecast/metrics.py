"""Accuracy of forecasts. All errors are of natural logarithms of seconds: a factor of two is 0.69 either way."""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gangline.forecast.quantiles import LEVELS

Floats = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class PointScore:
    """Scores of a point estimate, over the runs that have one."""

    runs: int
    error: float  #: mean absolute log error
    spearman: float  #: rank correlation with the runtime
    within_two: float  #: share within a factor of two
    under: float  #: share that was underestimated


@dataclass(frozen=True, slots=True)
class QuantileScore:
    """Scores of the five quantiles, by name (q10 … q95)."""

    runs: int
    coverage: dict[str, float]  #: share of runs that took no longer than the quantile
    pinball: dict[str, float]  #: mean pinball loss
    width: float  #: mean of log(q90 / q10)

    @property
    def mean_pinball(self) -> float:
        """The mean loss over all quantiles."""
        return sum(self.pinball.values()) / len(self.pinball)


def names() -> list[str]:
    return [f"q{round(level * 100)}" for level in LEVELS]


def point(estimate: Floats, actual: Floats) -> PointScore | None:
    """Scores of an estimate (log seconds; NaN for a missing one); None if all are missing."""
    known = ~np.isnan(estimate)
    if not known.any():
        return None
    off = estimate[known] - actual[known]
    return PointScore(
        runs=int(known.sum()),
        error=float(np.abs(off).mean()),
        spearman=spearman(estimate[known], actual[known]),
        within_two=float((np.abs(off) <= math.log(2)).mean()),
        under=float((off < 0).mean()),
    )


def quantiles(logs: Floats, actual: Floats) -> QuantileScore:
    """Scores of the columns of `logs` against the actual runtimes."""
    levels = np.array(LEVELS)
    off = actual[:, None] - logs
    loss = np.where(off > 0, levels * off, (levels - 1) * off)
    return QuantileScore(
        runs=len(actual),
        coverage=dict(zip(names(), (off <= 1e-9).mean(axis=0).tolist(), strict=True)),
        pinball=dict(zip(names(), loss.mean(axis=0).tolist(), strict=True)),
        width=float((logs[:, LEVELS.index(0.9)] - logs[:, LEVELS.index(0.1)]).mean()),
    )


def gain(estimate: Floats, baseline: Floats, actual: Floats) -> float:
    """Relative reduction of the baseline's error by the estimate, over the runs that have both; NaN without any."""
    known = ~np.isnan(estimate) & ~np.isnan(baseline)
    worst = float(np.abs(baseline[known] - actual[known]).mean()) if known.any() else 0.0
    return 1 - float(np.abs(estimate[known] - actual[known]).mean()) / worst if worst else math.nan


def spearman(a: Floats, b: Floats) -> float:
    """Spearman rank correlation; NaN if one side is constant."""
    x, y = _ranks(a), _ranks(b)
    x, y = x - x.mean(), y - y.mean()
    spread = math.sqrt(float((x @ x) * (y @ y)))
    return float(x @ y) / spread if spread else math.nan


def _ranks(values: Floats) -> Floats:
    """Ranks from 0; equal values share their mean rank."""
    _, inverse, counts = np.unique(values, return_inverse=True, return_counts=True)
    last = np.cumsum(counts) - 1
    return (last - (counts - 1) / 2)[inverse]


def as_json(score: PointScore | QuantileScore | None) -> Any:
    return None if score is None else asdict(score)
