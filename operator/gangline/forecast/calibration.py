"""Split-conformal correction of quantiles: shift each so that it covers what it says of the latest runs.

Recent runs that have finished are the short ones. Each therefore stands for those that are as long but still run: its weight
is one over the share of recent runs that have had the time to take that long (inverse probability of censoring). Recent runs
count more than older ones, so that the correction follows a drift that the model has not been trained on.
"""

from __future__ import annotations

import math
from collections import deque
from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

from gangline.forecast.quantiles import LEVELS

Floats = NDArray[np.float64]

HALF_LIFE: Final = 86400.0  # seconds after which a run counts half
_WINDOW: Final = 8  # half-lives that are looked back on
_MAX_HALF_LIFE: Final = 16 * 86400.0
_ENOUGH: Final = 200.0  # effective runs: below, the half-life is doubled
_PRIOR: Final = 20.0  # effective runs that speak for no correction
_MAX_WEIGHT: Final = 20.0
_MAX_RUNS: Final = 8000
REFRESH: Final = 600.0  # seconds for which shifts are good


def censoring_weights(at_risk: Floats, decay: Floats, durations: Floats) -> Floats:
    """One over the share (weighted by `decay`) of all runs that have been at risk for as long as each duration."""
    order = np.argsort(at_risk, kind="stable")
    beyond = np.append(np.cumsum(decay[order][::-1])[::-1], 0.0) / decay.sum()
    share = beyond[np.searchsorted(at_risk[order], durations, side="left")]
    return np.minimum(1.0 / np.maximum(share, 1e-9), _MAX_WEIGHT)


def weighted_quantile(values: Floats, weights: Floats, level: float) -> float:
    """The smallest value that `level` of all weight does not exceed."""
    order = np.argsort(values, kind="stable")
    cumulated = np.cumsum(weights[order])
    return float(values[order][min(len(values) - 1, int(np.searchsorted(cumulated, level * cumulated[-1])))])


@dataclass(slots=True)
class Record:
    """A run that has started: what was forecast for it (log seconds by level), and how long it took once that is known."""

    uid: str
    start: float
    logs: tuple[float, ...]
    finish: float = math.nan
    target: float = math.nan  #: log seconds


class Calibrator:
    """Keeps the shifts (in log seconds, one per level of LEVELS) that make the latest forecasts right."""

    def __init__(self) -> None:
        self._records: deque[Record] = deque(maxlen=_MAX_RUNS)
        self._running: dict[str, Record] = {}
        self._shifts = np.zeros(len(LEVELS))
        self._due = -math.inf

    def __len__(self) -> int:
        return len(self._records)

    def add(self, record: Record) -> None:
        """A run has started. Told twice, the first stays: it was forecast before it was known."""
        if record.uid in self._running:
            return
        self._records.append(record)
        if math.isnan(record.finish):
            self._running[record.uid] = record

    def finished(self, uid: str, at: float, target: float) -> None:
        record = self._running.pop(uid, None)
        if record is not None:
            record.finish, record.target = at, target

    def forget(self, uid: str) -> None:
        """It was stopped: how long it would have taken will not be known."""
        record = self._running.pop(uid, None)
        if record is not None:
            record.start = math.nan

    def shifts(self, now: float) -> Floats:
        """The correction as of `now`, at most REFRESH seconds old."""
        if not self._due - REFRESH <= now < self._due:
            self._due = now + REFRESH
            self._shifts = self._compute(now)
        return self._shifts

    def _compute(self, now: float) -> Floats:
        records = [r for r in self._records if now - _WINDOW * _MAX_HALF_LIFE <= r.start <= now]
        if not any(r.finish <= now for r in records):
            return np.zeros(len(LEVELS))
        start = np.array([r.start for r in records])
        done = np.array([r.finish <= now for r in records])
        target = np.array([r.target for r in records])
        logs = np.array([r.logs for r in records])
        return shifts(now - start, done, target, logs)


def shifts(age: Floats, done: NDArray[np.bool_], target: Floats, logs: Floats) -> Floats:
    """How far each column of `logs` has to move to cover what it says; `age` is the time since each run's start."""
    half_life = HALF_LIFE
    while True:
        recent = age <= _WINDOW * half_life
        kept = recent & done
        if kept.any():
            decay = 0.5 ** (age[recent] / half_life)
            durations = np.minimum(np.exp(target[kept]), age[kept])
            weights = decay[done[recent]] * censoring_weights(age[recent], decay, durations)
            effective = float(weights.sum() ** 2 / (weights**2).sum())
            if effective >= _ENOUGH or half_life >= _MAX_HALF_LIFE:
                trust = effective / (effective + _PRIOR)
                residuals = target[kept][:, None] - logs[kept]
                columns = range(len(LEVELS))
                return trust * np.array([weighted_quantile(residuals[:, i], weights, LEVELS[i]) for i in columns])
        elif half_life >= _MAX_HALF_LIFE:
            return np.zeros(len(LEVELS))
        half_life *= 2
