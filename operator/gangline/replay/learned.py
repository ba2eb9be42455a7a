"""The product's forecaster in a replay: it gets submissions, starts and ends as they happen, and is trained again on the
way.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Final

import numpy as np
from numpy.typing import NDArray

from gangline.engine import Alarms
from gangline.engine.model import Millis, RuntimeForecast
from gangline.forecast.errors import TooFewRunsError
from gangline.forecast.forecaster import Forecaster
from gangline.forecast.history.runs import Run
from gangline.forecast.learning import training
from gangline.forecast.learning.training import Table
from gangline.forecast.quantiles import Forecast
from gangline.forecast.tracking import flavors
from gangline.forecast.tracking.baselines import AlikeRuns
from gangline.forecast.tracking.flavors import FlavorScale
from gangline.forecast.tracking.tracker import Tracker
from gangline.replay.foresight import quantiles_of, run_of
from gangline.replay.replayed import ReplayedJob

# --- training data of a replay's forecaster: its past, and the jobs of the window so far ------------------------------


@dataclass(slots=True)
class _Lesson:
    """A job of the window."""

    run: Run
    vector: NDArray[np.float32]  #: features as of its submission
    last_two: float
    start: float | None = None  #: Unix seconds; None while it waits
    target: float = math.nan  #: log seconds on the average flavor, once it has finished


class Lessons:
    """The rows of a table of runs. Each job's row is computed when something happens to it, so that a table only has to be
    copied.
    """

    def __init__(self, past: Table, scale: FlavorScale) -> None:
        self._past = past
        self._scale = scale
        self._lessons: dict[int, _Lesson] = {}  # by job number, in the order of submission

    def submitted(self, number: int, run: Run, vector: list[float], last_two: float) -> None:
        """The features of a run at its submission; `last_two` in log seconds."""
        self._lessons[number] = _Lesson(run, np.array(vector, dtype=np.float32), last_two)

    def started(self, number: int, at: float | None) -> None:
        """Note when a job started; None: it was stopped, and waits again."""
        self._lessons[number].start = at

    def waits(self, number: int) -> bool:
        """Whether the job does not run (any more)."""
        return self._lessons[number].start is None

    def finished(self, number: int, run: Run) -> None:
        lesson = self._lessons[number]
        lesson.run, lesson.target = run, run.log_seconds - self._scale.offset(run.flavor)

    def table(self, rows: int) -> Table:
        """The last `rows` runs, those of the window after those of the past."""
        past, window = self._past, list(self._lessons.values())[-rows:]
        if not window:
            return past.last(rows)
        runs = tuple(
            each.run if each.run.finish is not None else replace(each.run, start=each.start) for each in window
        )
        return Table(
            past.runs + runs,
            np.concatenate([past.matrix, [each.vector for each in window]], dtype=np.float32),
            np.concatenate([past.target, [each.target for each in window]]),
            np.concatenate([past.baseline, [each.last_two for each in window]]),
        ).last(rows)


#: number of estimates made at a time when no job waits for them
_BATCH: Final = 256
#: A waiting job is forecast again, as in the operator, when it has waited for this long, and then whenever the wait has grown
#: by this share: similar jobs may have finished.
_FIRST_RENEWAL: Final[Millis] = 600_000
_RENEWAL_SHARE: Final = 0.25


@dataclass(slots=True)
class Schooling:
    """A forecaster at the beginning of a replay, and the runs for its further training."""

    forecaster: Forecaster
    past: Table  #: the finished runs of its training: the replay knows no others
    scale: FlavorScale
    settings: training.LearningSettings
    note: str = ""  #: why there is no model, if there is none


def school(
    runs: Sequence[Run], until: float, first: float, settings: training.LearningSettings = training.DEFAULTS
) -> Schooling:
    """Trained on the runs known at `until`, with the history of all runs known at `first` (Unix seconds).

    Without a model if these are too few.
    """
    known = [training.known_at(run, until) for run in runs if run.submit < until]
    scale = flavors.learn(run for run in known if run.seconds is not None)
    table = training.build(known, Tracker(scale), settings.rows)
    forecaster, note = Forecaster(), ""
    # the replay's cluster is empty at first: runs still in progress would never end in it
    forecaster.restore(run for run in runs if run.finish is not None and run.finish < first)
    try:
        forecaster.use(training.fit(table, scale, until, settings))
    except TooFewRunsError as error:
        note = str(error)
    return Schooling(forecaster, table.finished(), scale, settings, note)


class Learned:
    """Forecasts by the product's forecaster, see `foresight.Foresight`. `retrain` is in milliseconds; None = the model stays the
    same, calibration continues.
    """

    def __init__(self, schooling: Schooling, retrain: Millis | None = None) -> None:
        self._forecasts: dict[int, Forecast] = {}
        self.compared: dict[int, float] = {}
        self.alike: dict[int, list[float]] = {}
        self._alike = AlikeRuns()
        for run in sorted(schooling.past.runs, key=lambda run: run.finish or 0.0):
            self._alike.finished(run)
        self.models = 1 if schooling.forecaster.model is not None else 0
        self._forecaster = schooling.forecaster
        self._schooling = schooling
        self._retrain = retrain
        self._due: Millis | None = None
        self._lessons = Lessons(schooling.past, schooling.scale)
        self._renewal: dict[str, Millis] = {}  # when a job is to be forecast again if it still waits
        self._unforecast: dict[str, ReplayedJob] = {}
        self._open: dict[str, ReplayedJob] = {}
        self._news: list[RuntimeForecast] = []
        self._renewals = Alarms[ReplayedJob](self._to_renew, lambda: len(self._open))
        #: evicted jobs: how much of their work was done by then, and how much of that was saved
        self._done: dict[int, tuple[Millis, Millis]] = {}

    @property
    def forecasts(self) -> Mapping[int, Forecast]:
        self._forecaster.catch_up()
        return self._forecasts

    # --- facts --------------------------------------------------------------------------------------------------------

    def submitted(self, job: ReplayedJob, now: Millis) -> None:
        run, forecaster = run_of(job), self._forecaster
        if self._retrain is not None:
            if self._due is None:
                self._due = now + self._retrain
            elif now >= self._due:
                self._learn(now)
        forecaster.submitted(run)
        vector, last_two = forecaster.asked(run.uid)
        self._lessons.submitted(job.number, run, vector, last_two)
        self.compared[job.number] = last_two
        self.alike[job.number] = self._alike.quantiles(run)
        self._unforecast[run.uid] = self._open[run.uid] = job
        self._renew_at(now + _FIRST_RENEWAL, job)

    def started(self, job: ReplayedJob, now: Millis) -> None:
        """Work saved in an earlier run counts as if it had been done directly before."""
        start = (now - self._done.get(job.number, (0, 0))[1]) / 1000
        self._lessons.started(job.number, start)
        self._forecaster.started(job.key, start)

    def stopped(self, job: ReplayedJob, ran: Millis, saved: Millis, now: Millis) -> None:
        """Note that the job was stopped, so that it will take longer than it ran: that much is known of it."""
        self._tell(now)
        self._done[job.number] = ran, saved
        self._lessons.started(job.number, None)
        self._forecaster.stopped(job.key)
        self._tell_again([job], now)
        self._renew_at(now + _FIRST_RENEWAL, job)

    def finished(self, job: ReplayedJob, now: Millis) -> None:
        unforecast = self._unforecast.pop(job.key, None) is not None
        del self._open[job.key], self._renewal[job.key]
        note = partial(self._forecasts.__setitem__, job.number) if unforecast else None
        run = self._forecaster.finished(job.key, now / 1000, note)
        assert run is not None, job  # it was started
        self._lessons.finished(job.number, run)
        self._alike.finished(run)

    # --- estimates ----------------------------------------------------------------------------------------------------

    def news(self, now: Millis, wanted: bool) -> Iterable[RuntimeForecast]:
        if wanted or len(self._unforecast) >= _BATCH:
            self._tell(now)
            self._renew(now)
        news, self._news = self._news, []
        return news

    def _tell(self, now: Millis) -> None:
        if not self._unforecast:
            return
        jobs, self._unforecast = self._unforecast, {}
        forecasts = self._forecaster.forecasts(jobs, now / 1000, conditional=False)
        for uid, forecast in forecasts.items():
            job = jobs[uid]
            self._forecasts[job.number] = forecast
            self._news.append(RuntimeForecast(job.key, quantiles_of(forecast), forecast.source, forecast.samples))

    def _tell_again(self, jobs: Iterable[ReplayedJob], now: Millis) -> None:
        by_key = {job.key: job for job in jobs}
        for key, forecast in self._forecaster.forecasts(by_key, now / 1000, conditional=False).items():
            ran, saved = self._done.get(by_key[key].number, (0, 0))
            quantiles = quantiles_of(forecast.after(ran / 1000), saved)
            self._news.append(RuntimeForecast(key, quantiles, forecast.source, forecast.samples))

    def _renew_at(self, when: Millis, job: ReplayedJob) -> None:
        self._renewal[job.key] = when
        self._renewals.set(when, job.key, job)

    def _to_renew(self, when: Millis, job: ReplayedJob) -> bool:
        return self._renewal.get(job.key) == when and self._lessons.waits(job.number)

    def _renew(self, now: Millis) -> None:
        """Forecast jobs again that have waited for long."""
        due: list[ReplayedJob] = []
        while (job := self._renewals.due(now)) is not None:
            due.append(job)
            self._renew_at(now + max(_FIRST_RENEWAL, round(_RENEWAL_SHARE * (now - job.submit))), job)
        if due:
            self._forecaster.renew(job.key for job in due)
            self._tell_again(due, now)

    # --- learning -----------------------------------------------------------------------------------------------------

    def _learn(self, now: Millis) -> None:
        """Train again on the past and on the events of the window; all open jobs are forecast again."""
        assert self._retrain is not None and self._due is not None
        while self._due <= now:
            self._due += self._retrain
        schooling = self._schooling
        table = self._lessons.table(schooling.settings.rows)
        try:
            model = training.fit(table, schooling.scale, now / 1000, schooling.settings)
        except TooFewRunsError:
            return
        self._forecaster.use(model)
        self.models += 1
        self._tell(now)
        self._tell_again(self._open.values(), now)
