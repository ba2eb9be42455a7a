"""Evaluation on past runs: plays them through the operator's forecaster and requests a forecast at each submission.

No future data leaks: the model is trained on what was known at its instant, and class histories and calibration receive only
finished runs. The forecasts of runs submitted in the test window are scored.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from gangline.forecast import metrics
from gangline.forecast.forecaster import Forecaster
from gangline.forecast.history.runs import Run
from gangline.forecast.learning import training
from gangline.forecast.learning.guard import ModelVerdict
from gangline.forecast.learning.settings import DEFAULTS, LearningSettings
from gangline.forecast.learning.training import Table
from gangline.forecast.quantiles import LEVELS, Forecast
from gangline.forecast.tracking import baselines, flavors
from gangline.forecast.tracking.tracker import Tracker

Floats: TypeAlias = NDArray[np.float64]
Progress: TypeAlias = Callable[[str], None]

#: baselines that the model is compared with: name -> estimate at a run's submission, in seconds
BASELINES: dict[str, Callable[[Run, Tracker], float]] = {
    "last-two": baselines.last_two,
    "last-two-alike": baselines.last_two_alike,
    "class-median": baselines.class_median,
    "request": lambda run, _: baselines.request(run),
}
#: the median of the quantiles of runs that are alike, among the estimates
ALIKE = "alike"
_SIZES = ((1, 1, "1 GPU"), (2, 8, "2-8 GPUs"), (9, 2**62, ">8 GPUs"))


@dataclass(frozen=True, slots=True)
class Window:
    """Times of an evaluation in Unix seconds: trains on what is known at `train_until`, tests runs submitted in [first, last)."""

    train_until: float
    first: float
    last: float
    retrain_every: float | None = None  #: seconds; None = once

    def __post_init__(self) -> None:
        if not self.train_until <= self.first < self.last:
            raise ValueError("the training must end before the test window begins, and the window must not be empty")


@dataclass(frozen=True, slots=True)
class Scores:
    """Scores of one group of runs."""

    forecast: metrics.QuantileScore
    points: dict[str, metrics.PointScore | None]  #: "forecast" (its median) and each baseline
    gains: dict[str, float]  #: relative reduction of a baseline's error by the forecast, on the same runs
    #: of the quantiles of the last runs that are alike; None if some run has none
    alike: metrics.QuantileScore | None = None


@dataclass(frozen=True, slots=True)
class Report:
    window: Window
    trained_on: int
    models: int
    sources: dict[str, int]
    verdict: ModelVerdict
    overall: Scores
    by_size: dict[str, Scores]
    by_queue: dict[str, Scores]

    def as_json(self) -> dict[str, Any]:
        groups = {"by_size": self.by_size, "by_queue": self.by_queue}
        return {
            "train_until": self.window.train_until,
            "from": self.window.first,
            "to": self.window.last,
            "trained_on": self.trained_on,
            "models": self.models,
            "sources": self.sources,
            "in_use": self.verdict.trusted,
            "verdict": self.verdict.reason,
            "overall": _scores_json(self.overall),
            **{name: {k: _scores_json(v) for k, v in group.items()} for name, group in groups.items()},
        }


def _scores_json(scores: Scores) -> dict[str, Any]:
    return {
        "forecast": metrics.as_json(scores.forecast),
        "alike": metrics.as_json(scores.alike),
        "points": {name: metrics.as_json(score) for name, score in scores.points.items()},
        "gains": {name: None if math.isnan(gain) else gain for name, gain in scores.gains.items()},
    }


def evaluate(
    runs: Sequence[Run], window: Window, settings: LearningSettings = DEFAULTS, progress: Progress = lambda _: None
) -> Report:
    """Train, play, score. Raises TooFewRunsError with too few runs to train on, ValueError without runs to test."""
    runs = [run for run in runs if run.submit < window.last]
    progress(f"features of {len(runs)} runs")
    known = [training.known_at(run, window.train_until) for run in runs if run.submit < window.train_until]
    scale = flavors.learn(run for run in known if run.seconds is not None)
    table = training.build(runs, Tracker(scale))
    trial = _Trial(table, scale, window, settings, progress)
    return trial.run(runs)


class _Trial:
    """One evaluation in progress."""

    def __init__(
        self, table: Table, scale: flavors.FlavorScale, window: Window, settings: LearningSettings, progress: Progress
    ) -> None:
        self._table, self._scale, self._window, self._settings = table, scale, window, settings
        self._progress = progress
        self._forecaster = Forecaster()
        self._row = {run.uid: number for number, run in enumerate(table.runs)}
        self._tested: list[Run] = []
        self._forecasts: list[Forecast] = []
        self._baselines: list[list[float]] = []
        self._alike = baselines.AlikeRuns()
        self._of_alike: list[list[float]] = []
        self._predicted: dict[str, tuple[float, ...]] = {}
        self._trained_on = 0
        self._models = 0

    def run(self, runs: Sequence[Run]) -> Report:
        window, forecaster = self._window, self._forecaster
        due = window.train_until
        for run in training.play(runs, self):
            if run.submit >= due:
                self._train(due)
                due = due + window.retrain_every if window.retrain_every else math.inf
            if run.submit >= window.train_until:
                self._submit(run)
        if not self._tested:
            raise ValueError("no finished run was submitted in the test window")
        return self._report(forecaster.status(window.last))

    def submitted(self, run: Run) -> None:
        self._forecaster.submitted(run)

    def started(self, uid: str, at: float, flavor: str = "") -> None:
        self._forecaster.started(uid, at, flavor)

    def finished(self, uid: str, at: float) -> Run | None:
        run = self._forecaster.finished(uid, at)
        if run is not None:
            self._alike.finished(run)
        return run

    def _train(self, now: float) -> None:
        self._progress(f"training model {self._models + 1}")
        table = self._table.known_at(now).last(self._settings.rows)
        model = training.fit(table, self._scale, now, self._settings)
        self._forecaster.use(model)
        self._trained_on, self._models = model.samples, self._models + 1
        until = now + (self._window.retrain_every or math.inf)
        rows = [n for n, run in enumerate(self._table.runs) if run.submit < until and _open_at(run, now)]
        logs = model.predict(self._table.matrix[rows])
        self._predicted = {self._table.runs[n].uid: tuple(row) for n, row in zip(rows, logs.tolist(), strict=True)}
        self._forecaster.set_predictions(self._predicted)

    def _submit(self, run: Run) -> None:
        forecaster = self._forecaster
        tracker = forecaster.tracker
        compared = [baseline(run, tracker) for baseline in BASELINES.values()]
        forecaster.submitted(run)
        forecaster.set_predictions({run.uid: self._predicted[run.uid]})
        forecast = forecaster.forecast(run.uid, run.submit)
        if run.submit >= self._window.first and run.seconds is not None and forecast is not None:
            self._tested.append(run)
            self._forecasts.append(forecast)
            self._baselines.append(compared)
            self._of_alike.append(self._alike.quantiles(run))

    def _report(self, verdict: ModelVerdict) -> Report:
        actual = np.array([run.log_seconds for run in self._tested])
        logs = np.log(np.array([forecast.values for forecast in self._forecasts]))
        alike = np.array(self._of_alike)
        compared = np.log(np.maximum(np.array(self._baselines), 1.0))
        compared = np.column_stack([compared, alike[:, LEVELS.index(0.5)]])

        def scores(mask: NDArray[np.bool_]) -> Scores:
            return _scores(actual[mask], logs[mask], compared[mask], alike[mask])

        sizes = np.array([run.gpus for run in self._tested])
        queues = np.array([run.queue or run.namespace for run in self._tested])
        groups = {name: (sizes >= low) & (sizes <= high) for low, high, name in _SIZES}
        return Report(
            window=self._window,
            trained_on=self._trained_on,
            models=self._models,
            sources=dict(Counter(forecast.source for forecast in self._forecasts).most_common()),
            verdict=verdict,
            overall=scores(np.ones(len(actual), dtype=bool)),
            by_size={name: scores(mask) for name, mask in groups.items() if mask.any()},
            by_queue={name: scores(queues == name) for name, _ in Counter(queues.tolist()).most_common() if name},
        )


def _open_at(run: Run, now: float) -> bool:
    return run.finish is None or run.finish >= now


def _scores(actual: Floats, logs: Floats, compared: Floats, alike: Floats) -> Scores:
    median = logs[:, LEVELS.index(0.5)]
    columns = {name: compared[:, number] for number, name in enumerate((*BASELINES, ALIKE))}
    return Scores(
        forecast=metrics.quantiles(logs, actual),
        alike=None if np.isnan(alike).any() else metrics.quantiles(alike, actual),
        points={"forecast": metrics.point(median, actual)}
        | {name: metrics.point(column, actual) for name, column in columns.items()},
        gains={name: metrics.gain(median, column, actual) for name, column in columns.items()},
    )
