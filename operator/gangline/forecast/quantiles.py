"""A runtime distribution: five quantiles, a tail, interpolation between and beyond them, and conditioning on elapsed runtime.

The logarithm of the runtime is linear in the probability's normal score between adjacent quantiles: a piecewise log-normal.
Beyond q95 come the quantiles of the tail, as far as known: what all runs take that outlive this q95 (`Tracker.survival`).
Beyond the last known quantile the tail is Pareto's, as steep as the quantiles before it: the expected remaining runtime of a run
that exceeded its estimate grows with its elapsed runtime, as observed for runaway jobs. All times are seconds.

The engine uses its own arithmetic on the same five numbers (`engine.model.runtime`), a step function so that time alone changes
nothing; commands show its results. This one is smooth: for single forecasts, and for evicted jobs in a replay.
"""

from __future__ import annotations

import math
from bisect import bisect_right
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from statistics import NormalDist
from typing import Final

LEVELS: Final = (0.1, 0.5, 0.8, 0.9, 0.95)
#: of the tail; a forecast knows the first few of them, or none
TAIL_LEVELS: Final = (0.965, 0.98, 0.99, 0.995, 0.998)

_NORMAL: Final = NormalDist()
_KNOWN: Final = len(LEVELS)
_EVERY: Final = (*LEVELS, *TAIL_LEVELS)
_SCORES: Final = tuple(_NORMAL.inv_cdf(level) for level in _EVERY)
_MIN_SLOPE: Final = 0.02  # of log seconds per normal score: keeps quantiles distinct, so that probabilities are defined
_MIN_TAIL: Final = (
    0.1  # exponent of Pareto's tail: the expected remaining runtime beyond it is at least 7 % of the elapsed one
)
_NEARLY_ONE: Final = 1.0 - 1e-12
_MAX_LOG: Final = math.log(100 * 365 * 86400.0)  # forecasts are capped at a century


class ForecastSource(StrEnum):
    """The basis of a forecast."""

    MODEL = "Model"
    HINT = "Hint"
    LIMIT = "Limit"
    HISTORY = "History"  #: finished runs of the same class
    GLOBAL = "Global"  #: all finished runs
    DEFAULT = "Default"  #: no data


@dataclass(frozen=True, slots=True)
class Forecast:
    """Quantiles of a run's total runtime in seconds, based on `samples` finished runs."""

    q10: float
    q50: float
    q80: float
    q90: float
    q95: float
    source: str
    samples: int
    tail: tuple[float, ...] = ()  #: the quantiles at the first of TAIL_LEVELS

    @property
    def values(self) -> tuple[float, float, float, float, float]:
        return (self.q10, self.q50, self.q80, self.q90, self.q95)

    @property
    def points(self) -> tuple[tuple[float, float], ...]:
        """Every level with its quantile, those of the tail included, in rising order."""
        return tuple(zip(_EVERY, (*self.values, *self.tail), strict=False))

    @classmethod
    def of_values(cls, values: Sequence[float], source: str, samples: int) -> Forecast:
        """A forecast from the quantiles of `points`. Raises ValueError for a wrong number of them."""
        if not _KNOWN <= len(values) <= len(_EVERY):
            raise ValueError(f"a forecast has {_KNOWN} to {len(_EVERY)} quantiles, not {len(values)}")
        return cls(*values[:_KNOWN], source=source, samples=samples, tail=tuple(values[_KNOWN:]))

    def with_tail(self, tail: Sequence[float]) -> Forecast:
        return replace(self, tail=tuple(tail)) if tail else self

    def at(self, level: float) -> float:
        """The quantile of the runtime at `level`, 0 < level < 1. Raises ValueError for another level."""
        if not 0.0 < level < 1.0:
            raise ValueError(f"quantile must lie between 0 and 1, not {level!r}")
        return math.exp(_log_at(self._logs(), 1.0 - level))

    def chance_within(self, seconds: float) -> float:
        """The probability that the run takes no longer than this."""
        return 1.0 - _survival(self._logs(), math.log(seconds)) if seconds > 0 else 0.0

    def after(self, elapsed: float) -> Forecast:
        """The forecast of the total runtime, conditional on `elapsed` seconds having passed; never less than `elapsed`."""
        if elapsed <= 0:
            return self
        logs = self._logs()
        left = _survival(logs, math.log(elapsed))
        values = [max(elapsed, math.exp(_log_at(logs, left * (1.0 - level)))) for level, _ in self.points]
        return self._of(_rising(values))

    def less(self, done: float) -> Forecast:
        """What is left of the run once so many seconds of it are done, at least one."""
        return self._of(max(1.0, value - done) for _, value in self.points) if done > 0 else self

    def capped(self, limit: float | None, elapsed: float = 0.0) -> Forecast:
        """The forecast with no quantile above a hard limit, or above `elapsed` if the run has exceeded the limit."""
        if limit is None or limit <= 0:
            return self
        top = max(limit, elapsed)
        return self._of(min(value, top) for _, value in self.points)

    def scaled(self, factor: float) -> Forecast:
        return self._of(value * factor for _, value in self.points)

    def because(self, source: ForecastSource, samples: int) -> Forecast:
        return replace(self, source=source.value, samples=samples)

    def _of(self, values: Iterable[float]) -> Forecast:
        return Forecast.of_values(list(values), self.source, self.samples)

    def _logs(self) -> list[float]:
        logs = [math.log(max(value, 1e-3)) for _, value in self.points]
        for i in range(1, len(logs)):
            logs[i] = max(logs[i], logs[i - 1] + _MIN_SLOPE * (_SCORES[i] - _SCORES[i - 1]))
        return logs


def of_logs(logs: Sequence[float], source: ForecastSource, samples: int) -> Forecast:
    """A forecast from the logarithms of its five quantiles, in any order."""
    values = [math.exp(min(max(log, 0.0), _MAX_LOG)) for log in sorted(logs)]
    return Forecast.of_values(values, source.value, samples)


def log_normal(mean: float, deviation: float, source: ForecastSource, samples: int) -> Forecast:
    """A forecast from mean and standard deviation of log seconds."""
    return of_logs([mean + score * deviation for score in _SCORES[:_KNOWN]], source, samples)


def _segment(position: int, count: int) -> tuple[int, int]:
    """The indices of the two quantiles to interpolate between; below the first quantile the lowest segment is extended."""
    right = min(max(position, 1), count - 1)
    return right - 1, right


def _beyond(logs: Sequence[float]) -> tuple[float, float]:
    """Pareto's tail after the last quantile: the probability that is left there, and its exponent, from q80 or q95 on."""
    last = len(logs) - 1
    first = _KNOWN - 1 if last >= _KNOWN else LEVELS.index(0.8)
    left = 1.0 - _EVERY[last]
    return left, max(_MIN_TAIL, (logs[last] - logs[first]) / math.log((1.0 - _EVERY[first]) / left))


def _log_at(logs: Sequence[float], survival: float) -> float:
    """The log runtime that is exceeded with this probability."""
    tail, exponent = _beyond(logs)
    if survival < tail:
        return min(logs[-1] + exponent * math.log(tail / survival), _MAX_LOG)
    score = -_NORMAL.inv_cdf(min(survival, _NEARLY_ONE))
    left, right = _segment(bisect_right(_SCORES, score, 0, len(logs)), len(logs))
    slope = (logs[right] - logs[left]) / (_SCORES[right] - _SCORES[left])
    return min(logs[left] + slope * (score - _SCORES[left]), _MAX_LOG)


def _survival(logs: Sequence[float], log: float) -> float:
    """The probability that the run takes longer than this log runtime; never 0."""
    if log > logs[-1]:
        tail, exponent = _beyond(logs)
        return max(tail * math.exp((logs[-1] - log) / exponent), 1e-280)
    left, right = _segment(bisect_right(logs, log), len(logs))
    slope = (logs[right] - logs[left]) / (_SCORES[right] - _SCORES[left])
    return 1.0 - _NORMAL.cdf(_SCORES[left] + (log - logs[left]) / slope)


def _rising(values: list[float]) -> list[float]:
    for i in range(1, len(values)):
        values[i] = max(values[i], values[i - 1])
    return values
