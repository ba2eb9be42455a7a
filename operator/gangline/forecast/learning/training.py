"""Training: builds a Model from finished runs. Equal runs, settings and instant give an identical model, byte for byte."""

from __future__ import annotations

import math
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from gangline.forecast.errors import TooFewRunsError
from gangline.forecast.history.playback import known_at, play
from gangline.forecast.history.runs import Run, StartedRun
from gangline.forecast.learning.calibration import group_of
from gangline.forecast.learning.guard import Validation
from gangline.forecast.learning.quantile_model import Ensemble, QuantileModel, lightgbm
from gangline.forecast.learning.settings import DEFAULTS, LearningSettings
from gangline.forecast.learning.shifts import censoring_weights
from gangline.forecast.quantiles import LEVELS
from gangline.forecast.tracking import baselines, features, flavors
from gangline.forecast.tracking.flavors import FlavorScale
from gangline.forecast.tracking.tracker import Tracker

# --- dataset ----------------------------------------------------------------------------------------------------------
#
# Training table of past runs, built by playing them through a tracker in time order, so that no future data leaks.


@dataclass(frozen=True, slots=True)
class Table:
    """One row per run, in order of submission."""

    runs: tuple[Run, ...]
    matrix: NDArray[np.float32]  #: columns as in features.NAMES
    target: NDArray[np.float64]  #: log seconds on the average flavor, NaN for runs that have not finished
    baseline: NDArray[
        np.float64
    ]  #: the last-two estimate at submission, in log seconds on the average flavor; NaN without data

    def __len__(self) -> int:
        return len(self.runs)

    def known_at(self, now: float) -> Table:
        """The table as known at `now`: runs submitted before, without later starts and finishes."""
        table = self.where(np.array([run.submit < now for run in self.runs], dtype=bool))
        runs = tuple(known_at(run, now) for run in table.runs)
        ended = np.array([run.finish is not None for run in runs], dtype=bool)
        return Table(runs, table.matrix, np.where(ended, table.target, np.nan), table.baseline)

    def last(self, rows: int) -> Table:
        """The table with the last rows only."""
        return Table(self.runs[-rows:], self.matrix[-rows:], self.target[-rows:], self.baseline[-rows:])

    def finished(self) -> Table:
        """The table with the finished runs only."""
        return self.where(np.array([run.finish is not None for run in self.runs], dtype=bool))

    def where(self, mask: NDArray[np.bool_]) -> Table:
        """The table with the rows only where `mask` is true."""
        runs = tuple(run for run, kept in zip(self.runs, mask, strict=True) if kept)
        return Table(runs, self.matrix[mask], self.target[mask], self.baseline[mask])


def build(runs: Sequence[Run], tracker: Tracker, rows: int | None = None) -> Table:
    """The table of the last `rows` runs (all by default); earlier ones only fill the tracker."""
    skip = 0 if rows is None else max(0, len(runs) - rows)
    kept: list[Run] = []
    matrix = np.full((len(runs) - skip, len(features.NAMES)), np.nan, dtype=np.float32)
    target = np.full(len(runs) - skip, np.nan)
    baseline = np.full(len(runs) - skip, np.nan)
    for number, run in enumerate(play(runs, tracker)):
        row = number - skip
        if row >= 0:
            kept.append(run)
            matrix[row] = features.vector(run, tracker, run.submit)
            if run.seconds is not None:
                target[row] = run.log_seconds - tracker.scale.offset(run.flavor)
            baseline[row] = math.log(baselines.last_two(run, tracker))
    return Table(tuple(kept), matrix, target, baseline)


#: minimum number of finished runs
MIN_RUNS: Final = 200
#: share of training runs whose hint (or limit) is removed
_MASKED_SHARE: Final = 0.1
#: the largest whole number that LightGBM takes for a gradient
_LARGEST: Final = 127
#: weights whose largest is at most this many times the least make no difference, but half of a training's work
_EVEN: Final = 1.1


def train(runs: Sequence[Run], now: float, settings: LearningSettings = DEFAULTS) -> QuantileModel:
    """Train on what is known at `now`: runs submitted before, finished ones as samples, running ones as censored.

    Raises TooFewRunsError.
    """
    known = [known_at(run, now) for run in runs if run.submit < now]
    scale = flavors.learn(run for run in known if run.seconds is not None)
    return fit(build(known, Tracker(scale), settings.rows), scale, now, settings)


def fit(table: Table, scale: FlavorScale, now: float, settings: LearningSettings = DEFAULTS) -> QuantileModel:
    """Train on a table as known at `now`; see `train`."""
    started = table.where(np.array([run.start is not None for run in table.runs], dtype=bool))
    done = ~np.isnan(started.target)
    if done.sum() < MIN_RUNS:
        raise TooFewRunsError(f"{int(done.sum())} finished runs; a model needs {MIN_RUNS}")
    submit = np.array([run.submit for run in started.runs])
    cut = max(float(np.quantile(submit, 1 - settings.holdout)), float(submit[-1]) - settings.holdout_seconds)
    seen, unseen = submit < cut, submit >= cut
    rows = np.flatnonzero(seen & done)
    columns = _used_columns(started.matrix, rows)
    weights = _weights(started, done, now)[seen[done]]
    ensemble = _ensemble(_masked(started.matrix, rows, columns, settings.seed), started.target[rows], weights, settings)
    model = QuantileModel(
        ensemble=ensemble,
        columns=tuple(int(c) for c in columns),
        scale=scale,
        trained_at=now,
        samples=int((seen & done).sum()),
        hints=sum(run.hint is not None for run, k in zip(started.runs, seen & done, strict=True) if k),
        limits=sum(run.limit is not None for run, k in zip(started.runs, seen & done, strict=True) if k),
        validation=None,
    )
    return _validated(model, started.where(unseen))


def _used_columns(matrix: NDArray[np.float32], rows: NDArray[np.intp]) -> NDArray[np.intp]:
    """The columns that have a value in some of these rows. Most show it in the first ones."""
    used = np.asarray((~np.isnan(matrix[rows[:1000]])).any(axis=0))
    for column in np.flatnonzero(~used):
        used[column] = not np.isnan(matrix[rows, column]).all()
    return np.flatnonzero(used)


def _masked(
    matrix: NDArray[np.float32], rows: NDArray[np.intp], columns: NDArray[np.intp], seed: int
) -> NDArray[np.float32]:
    """The chosen rows and columns, with some hints and limits removed, so that the model learns to handle missing values."""
    masked = matrix[np.ix_(rows, columns)]
    gone = np.flatnonzero(np.random.default_rng(seed).random(len(matrix))[rows] < _MASKED_SHARE)
    for name in ("hint", "limit"):
        masked[np.ix_(gone, np.flatnonzero(columns == features.NAMES.index(name)))] = np.nan
    return masked


def _weights(table: Table, done: NDArray[np.bool_], now: float) -> NDArray[np.float64]:
    """Weights of the finished runs (inverse probability of censoring): recent long runs have mostly not finished yet."""
    age = now - np.array([run.start or 0.0 for run in table.runs])
    seconds = np.array([run.seconds or 0.0 for run in table.runs])[done]
    return censoring_weights(age, np.ones(len(age)), np.minimum(seconds, age[done]))


def _ensemble(
    matrix: NDArray[np.float32], target: NDArray[np.float64], weights: NDArray[np.float64], settings: LearningSettings
) -> Ensemble:
    min_leaf = max(10, min(settings.min_leaf, len(target) // 50))
    common: dict[str, Any] = {
        "objective": "quantile",
        "num_leaves": settings.leaves,
        "learning_rate": settings.rate,
        "min_data_in_leaf": min_leaf,
        "max_bin": settings.bins,
        "num_threads": 1,  # quantiles are trained in parallel; threads within one would only contend
        "seed": settings.seed,
        "deterministic": True,
        "force_row_wise": True,
        "verbose": -1,
    }
    even = float(weights.max()) <= _EVEN * float(weights.min())  # a leaf's quantile is then found without sorting it
    data = lightgbm.Dataset(matrix, target, weight=None if even else weights, params=common, free_raw_data=False)
    data.construct()

    def booster(level: float) -> lightgbm.Booster:
        exact = _in_whole_numbers(level) if even else {}
        return lightgbm.train({**common, "alpha": level, **exact}, data, settings.rounds)

    with ThreadPoolExecutor(settings.threads) as pool:
        return Ensemble(tuple(pool.map(booster, LEVELS)))


def _in_whole_numbers(level: float) -> dict[str, Any]:
    """Parameters with which gradients are summed as whole numbers: faster by a sixth, and without rounding errors.

    Without weights a quantile's gradient is one of two values. That is exact if one is a multiple of the other.
    """
    multiple = max(level, 1 - level) / min(level, 1 - level)
    if multiple > _LARGEST or abs(multiple - round(multiple)) > 1e-9:
        return {}
    return {"use_quantized_grad": True, "num_grad_quant_bins": 2 * round(multiple), "stochastic_rounding": False}


def _validated(model: QuantileModel, unseen: Table) -> QuantileModel:
    """The model with its predictions for the held-out runs and its validation."""
    if not len(unseen):
        return model
    logs = model.predict(unseen.matrix)
    seeds = tuple(
        StartedRun(
            run.uid,
            run.start or 0.0,
            tuple(float(v) for v in row),
            _or_nan(run.finish),
            float(target),
            group_of(run),
        )
        for run, row, target in zip(unseen.runs, logs, unseen.target, strict=True)
    )
    known = ~np.isnan(unseen.target) & ~np.isnan(unseen.baseline)
    if not known.any():
        return replace(model, seeds=seeds)
    submit = np.array([run.submit for run in unseen.runs])[known]
    validation = Validation(
        runs=int(known.sum()),
        first=float(submit.min()),
        last=float(submit.max()),
        error=float(np.abs(logs[known, 1] - unseen.target[known]).mean()),
        last_two=float(np.abs(unseen.baseline[known] - unseen.target[known]).mean()),
    )
    return replace(model, validation=validation, seeds=seeds)


def _or_nan(value: float | None) -> float:
    return float("nan") if value is None else value
