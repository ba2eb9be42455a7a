"""Fallback estimator, without a model: from the author's hint, the limit, finished runs of the class, or all finished runs."""

from __future__ import annotations

import math
from typing import Final

from gangline.forecast.history.runs import Run
from gangline.forecast.quantiles import Forecast, ForecastSource, log_normal, of_logs
from gangline.forecast.tracking.stats import ClassStats
from gangline.forecast.tracking.tracker import Tracker

CLASS_RUNS: Final = 3  # a class with fewer finished runs is not used
_PRIOR_RUNS: Final = 5.0  # weight of the usual spread, in runs
_USUAL: Final = 1.5  # the usual standard deviation of log runtimes within a class

#: a standard deviation of log(runtime / declared) up to which an author counts as one who keeps what is declared
_PUNCTUAL: Final = 0.02
#: the least standard deviation of a forecast: a percent
_FINEST: Final = 0.01

#: prior ratios runtime / hint and runtime / limit by level, until finished runs give learned ratios
_HINT_RATIOS: Final = (0.3, 1.0, 1.5, 2.0, 3.0)
_LIMIT_RATIOS: Final = (0.01, 0.25, 0.7, 0.95, 1.0)
_DEFAULT: Final = (30.0, 600.0, 3600.0, 4 * 3600.0, 24 * 3600.0)


def forecast(run: Run, tracker: Tracker) -> Forecast:
    """The forecast of a run without a model, on the average flavor: from hint, limit, class or all runs, in this order.

    Hint and limit count only while the run's own class has no history, or if their author keeps what is declared.
    """
    return declared(run, tracker) or _from_author(run, tracker) or _class(run, tracker) or _all(tracker)


def without_hints(run: Run, tracker: Tracker) -> Forecast:
    """The forecast from history alone, without hint and limit."""
    return _class(run, tracker) or _all(tracker)


def _from_author(run: Run, tracker: Tracker) -> Forecast | None:
    if knows_itself(run, tracker):
        return None
    for source, kind, seconds, ratios in (
        (ForecastSource.HINT, "hint", run.hint, _HINT_RATIOS),
        (ForecastSource.LIMIT, "limit", run.limit, _LIMIT_RATIOS),
    ):
        if seconds:
            learned = tracker.ratio(kind, run)
            if learned is None:
                return of_logs([math.log(seconds * ratio) for ratio in ratios], source, 0)
            mean, deviation = _spread(learned)
            return log_normal(math.log(seconds) + mean, deviation, source, learned.remembered)
    return None


def declared(run: Run, tracker: Tracker) -> Forecast | None:
    """The forecast by an author whose runs have always taken what was declared, or always the same part of it: a promise.

    It holds whatever the history of similar runs says, which is never as exact.
    """
    for source, kind, seconds in ((ForecastSource.HINT, "hint", run.hint), (ForecastSource.LIMIT, "limit", run.limit)):
        ratios = tracker.own_ratio(kind, run) if seconds else None
        if seconds and ratios is not None and (deviation := math.sqrt(ratios.variance)) <= _PUNCTUAL:
            return log_normal(math.log(seconds) + ratios.mean, max(deviation, _FINEST), source, ratios.remembered)
    return None


def knows_itself(run: Run, tracker: Tracker) -> bool:
    """Whether similar runs have finished: of the same name, command or image, or of the same owner and size."""
    known = tracker.stats(run)
    return any(name in known and known[name].count >= CLASS_RUNS for name in ("name", "command", "image", "user-size"))


def _class(run: Run, tracker: Tracker) -> Forecast | None:
    found = tracker.class_of(run, CLASS_RUNS)
    if found is None:
        return None
    mean, deviation = _spread(found[1])
    return log_normal(mean, deviation, ForecastSource.HISTORY, found[1].remembered)


def _all(tracker: Tracker) -> Forecast:
    known = tracker.everything()
    if known is None or known.remembered < CLASS_RUNS:
        return Forecast(*_DEFAULT, source=ForecastSource.DEFAULT.value, samples=0)
    mean, deviation = _spread(known)
    return log_normal(mean, deviation, ForecastSource.GLOBAL, known.remembered)


def _spread(stats: ClassStats) -> tuple[float, float]:
    """Mean and standard deviation for a forecast: shrunk to the usual spread for few runs, and widened for an uncertain mean."""
    n = stats.remembered
    variance = 0.0 if n < 2 else stats.variance
    pooled = ((n - 1) * variance + _PRIOR_RUNS * _USUAL**2) / (n - 1 + _PRIOR_RUNS)
    return stats.mean, math.sqrt(pooled * (1 + 1 / n))
