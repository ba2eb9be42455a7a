"""Runtime estimates during a replay: stand-ins for the product's forecaster (which is in `learned`).

Every estimate is of the time from a job's next start to its end. A job that was evicted is known to take longer than it ran;
work that it saved by then is not repeated.
"""

from __future__ import annotations

import math
import random
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Final, Protocol

from gangline.engine.model import Millis, RuntimeForecast
from gangline.forecast.history.runs import Run, from_trace
from gangline.forecast.quantiles import Forecast, ForecastSource, log_normal
from gangline.forecast.tracking.baselines import last_two
from gangline.forecast.tracking.tracker import Tracker
from gangline.replay.replayed import ReplayedJob

#: of an estimate that is one number: all quantiles up to the second level are that number
_POINT: Final = (0.5, 0.99)
#: standard deviation of log runtimes around the drawn medians
_SPREAD: Final = 1.5


class Foresight(Protocol):
    """Gets all events of the replay in the order of time; never future ones."""

    @property
    def forecasts(self) -> Mapping[int, Forecast]:
        """The forecasts by job number: those of its submission, or of a little later, but never of after its end."""
        ...

    #: the mean of the owner's last two runtimes at that time, in log seconds; NaN or absent without one
    compared: dict[int, float]
    #: the quantiles at that time of the last runs that are alike, in log seconds; absent where nothing is compared with them
    alike: dict[int, list[float]]

    def submitted(self, job: ReplayedJob, now: Millis) -> None: ...

    def started(self, job: ReplayedJob, now: Millis) -> None: ...

    def stopped(self, job: ReplayedJob, ran: Millis, saved: Millis, now: Millis) -> None:
        """Note that the job was evicted after `ran` of its work was done, in all its runs; `saved` of that is not repeated."""
        ...

    def finished(self, job: ReplayedJob, now: Millis) -> None: ...

    def news(self, now: Millis, wanted: bool) -> Iterable[RuntimeForecast]:
        """Estimates that are new or have changed. `wanted`: jobs wait for them; they may come later otherwise."""
        ...


class Blind:
    """Forecasts nothing."""

    def __init__(self) -> None:
        self.forecasts: dict[int, Forecast] = {}
        self.compared: dict[int, float] = {}
        self.alike: dict[int, list[float]] = {}

    def submitted(self, job: ReplayedJob, now: Millis) -> None: ...

    def started(self, job: ReplayedJob, now: Millis) -> None: ...

    def stopped(self, job: ReplayedJob, ran: Millis, saved: Millis, now: Millis) -> None: ...

    def finished(self, job: ReplayedJob, now: Millis) -> None: ...

    def news(self, now: Millis, wanted: bool) -> Iterable[RuntimeForecast]:
        return ()


class _Spoken(Blind):
    """Estimates a job at submission, and again after each eviction."""

    def __init__(self) -> None:
        super().__init__()
        self._news: list[RuntimeForecast] = []

    def submitted(self, job: ReplayedJob, now: Millis) -> None:
        self._say(job, self._total(job, now))

    def stopped(self, job: ReplayedJob, ran: Millis, saved: Millis, now: Millis) -> None:
        self._say(job, self._left(job, ran, saved))

    def news(self, now: Millis, wanted: bool) -> Iterable[RuntimeForecast]:
        news, self._news = self._news, []
        return news

    def _say(self, job: ReplayedJob, quantiles: tuple[tuple[float, Millis], ...]) -> None:
        self._news.append(RuntimeForecast(job.key, quantiles))

    def _total(self, job: ReplayedJob, now: Millis) -> tuple[tuple[float, Millis], ...]:
        raise NotImplementedError

    def _left(self, job: ReplayedJob, ran: Millis, saved: Millis) -> tuple[tuple[float, Millis], ...]:
        raise NotImplementedError


class Truth(_Spoken):
    """Knows every duration: the best that is attainable."""

    def __init__(self, restart: Millis = 0) -> None:
        super().__init__()
        self._restart = restart

    def _total(self, job: ReplayedJob, now: Millis) -> tuple[tuple[float, Millis], ...]:
        return _point(job.duration)

    def _left(self, job: ReplayedJob, ran: Millis, saved: Millis) -> tuple[tuple[float, Millis], ...]:
        return _point(job.duration - saved + self._restart)


class RequestedTimes(_Spoken):
    """A job's requested time; `default` for jobs without one. A job that outlives it is given as long again."""

    def __init__(self, default: Millis) -> None:
        super().__init__()
        self._default = default

    def _total(self, job: ReplayedJob, now: Millis) -> tuple[tuple[float, Millis], ...]:
        return _point(job.limit or self._default)

    def _left(self, job: ReplayedJob, ran: Millis, saved: Millis) -> tuple[tuple[float, Millis], ...]:
        return _point(max(1000, (job.limit or self._default) - saved))


class LastTwo(_Spoken):
    """The mean of the last two finished runs of the same owner, at most what the job requests (EASY++)."""

    def __init__(self, history: Sequence[Run], default: Millis) -> None:
        super().__init__()
        self._default = default
        self._tracker = Tracker()
        for run in history:
            if run.start is not None and run.finish is not None:
                self._tracker.submitted(run)
                self._tracker.started(run.uid, run.start)
                self._tracker.finished(run.uid, run.finish)

    def _total(self, job: ReplayedJob, now: Millis) -> tuple[tuple[float, Millis], ...]:
        run = run_of(job)
        seconds = last_two(run, self._tracker)
        self._tracker.submitted(run)
        limit = job.limit or self._default
        return _point(limit if math.isnan(seconds) else min(limit, round(seconds * 1000)))

    def _left(self, job: ReplayedJob, ran: Millis, saved: Millis) -> tuple[tuple[float, Millis], ...]:
        limit = job.limit or self._default
        return _point(max(1000, min(limit, 2 * ran) - saved))

    def started(self, job: ReplayedJob, now: Millis) -> None:
        self._tracker.started(job.key, now / 1000)

    def finished(self, job: ReplayedJob, now: Millis) -> None:
        self._tracker.finished(job.key, now / 1000)


class Drawn(_Spoken):
    """Medians drawn at random, with the same wide spread around each."""

    def __init__(self, seed: int) -> None:
        super().__init__()
        self._random = random.Random(seed)
        self._drawn: dict[int, Forecast] = {}

    def _total(self, job: ReplayedJob, now: Millis) -> tuple[tuple[float, Millis], ...]:
        median = max(1.0, self._median(job.duration / 1000))
        forecast = log_normal(math.log(median), _SPREAD, ForecastSource.DEFAULT, 0)
        self._drawn[job.number] = self.forecasts[job.number] = forecast
        return quantiles_of(forecast)

    def _left(self, job: ReplayedJob, ran: Millis, saved: Millis) -> tuple[tuple[float, Millis], ...]:
        return quantiles_of(self._drawn[job.number].after(ran / 1000), saved)

    def _median(self, seconds: float) -> float:
        raise NotImplementedError


class Guess(Drawn):
    """Pure chance: the median is the duration of any job of the past."""

    def __init__(self, seed: int, past: Sequence[float]) -> None:
        super().__init__(seed)
        self._past = past

    def _median(self, seconds: float) -> float:
        del seconds
        return self._random.choice(self._past)


class Noisy(Drawn):
    """The truth with the random errors of the Helios artifact."""

    #: (share of jobs, least and greatest error)
    CLASSES: Final = ((0.1, 0.0, 0.1), (0.4, 0.1, 0.5), (0.2, 0.5, 1.0), (0.2, 1.0, 10.0), (0.1, 10.0, 100.0))

    def _median(self, seconds: float) -> float:
        shares = [share for share, _, _ in self.CLASSES]
        _, least, greatest = self._random.choices(self.CLASSES, shares)[0]
        factor = 1 + self._random.uniform(least, greatest)
        return seconds * factor if self._random.random() < 0.5 else seconds / factor


def run_of(job: ReplayedJob) -> Run:
    """The job as a run of the forecaster: submitted, neither started nor ended."""
    assert job.trace is not None, job
    return replace(from_trace(job.trace), uid=job.key, submit=job.submit / 1000, start=None, finish=None)


def quantiles_of(forecast: Forecast, saved: Millis = 0) -> tuple[tuple[float, Millis], ...]:
    """The quantiles of a forecast of the whole runtime (seconds) as milliseconds that are left after `saved` was done."""
    return tuple((level, max(1000, round(value * 1000) - saved)) for level, value in forecast.points)


def _point(millis: Millis) -> tuple[tuple[float, Millis], ...]:
    return tuple((level, millis) for level in _POINT)
