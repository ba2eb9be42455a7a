"""Training: finished runs in, a Model out. The same runs, settings and instant give the same model, byte for byte."""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from gangline.forecast import dataset, features, flavors
from gangline.forecast.boosting import Ensemble, lightgbm
from gangline.forecast.calibration import group_of
from gangline.forecast.dataset import Table
from gangline.forecast.errors import TooFewRunsError
from gangline.forecast.flavors import FlavorScale
from gangline.forecast.quantile_model import Model, Validation
from gangline.forecast.quantiles import LEVELS
from gangline.forecast.runs import Run, StartedRun
from gangline.forecast.settings import DEFAULTS, Settings
from gangline.forecast.shifts import censoring_weights
from gangline.forecast.tracker import Tracker

#: fewer finished runs make no model
MIN_RUNS: Final = 200
#: share of the runs that a model learns from as if nothing had been said of them
_UNHEARD: Final = 0.1


def train(runs: Sequence[Run], now: float, settings: Settings = DEFAULTS) -> Model:
    """A model of what is known at `now`: runs submitted before, finished ones to learn from, running ones as censored.

    Raises TooFewRunsError.
    """
    known = [dataset.known_at(run, now) for run in runs if run.submit < now]
    scale = flavors.learn(run for run in known if run.seconds is not None)
    return fit(dataset.build(known, Tracker(scale), settings.rows), scale, now, settings)


def fit(table: Table, scale: FlavorScale, now: float, settings: Settings = DEFAULTS) -> Model:
    """A model from a table of what is known at `now`; see `train`."""
    started = table.where(np.array([run.start is not None for run in table.runs], dtype=bool))
    done = ~np.isnan(started.target)
    if done.sum() < MIN_RUNS:
        raise TooFewRunsError(f"{int(done.sum())} finished runs; a model needs {MIN_RUNS}")
    submit = np.array([run.submit for run in started.runs])
    cut = max(float(np.quantile(submit, 1 - settings.holdout)), float(submit[-1]) - settings.holdout_seconds)
    seen, unseen = submit < cut, submit >= cut
    columns = np.flatnonzero(~np.all(np.isnan(started.matrix[seen & done]), axis=0))
    weights = _weights(started, done, now)
    matrix = _half_heard(started.matrix, settings.seed)
    ensemble = _ensemble(matrix[seen & done][:, columns], started.target[seen & done], weights[seen[done]], settings)
    model = Model(
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


def _half_heard(matrix: NDArray[np.float32], seed: int) -> NDArray[np.float32]:
    """Some rows without what was said of them: a model that has always seen a hint would take a missing one for a second."""
    heard = matrix.copy()
    for name in ("hint", "limit"):
        heard[np.random.default_rng(seed).random(len(heard)) < _UNHEARD, features.NAMES.index(name)] = np.nan
    return heard


def _weights(table: Table, done: NDArray[np.bool_], now: float) -> NDArray[np.float64]:
    """Of the finished runs: long ones that began lately have mostly not finished, so those that have count for them."""
    age = now - np.array([run.start or 0.0 for run in table.runs])
    seconds = np.array([run.seconds or 0.0 for run in table.runs])[done]
    return censoring_weights(age, np.ones(len(age)), np.minimum(seconds, age[done]))


def _ensemble(
    matrix: NDArray[np.float32], target: NDArray[np.float64], weights: NDArray[np.float64], settings: Settings
) -> Ensemble:
    min_leaf = max(10, min(settings.min_leaf, len(target) // 50))
    common: dict[str, Any] = {
        "objective": "quantile",
        "num_leaves": settings.leaves,
        "learning_rate": settings.rate,
        "min_data_in_leaf": min_leaf,
        "max_bin": settings.bins,
        "num_threads": 1,  # the quantiles are trained side by side: threads within one would wait for each other
        "seed": settings.seed,
        "deterministic": True,
        "force_row_wise": True,
        "verbose": -1,
    }
    data = lightgbm.Dataset(matrix, target, weight=weights, params=common, free_raw_data=False)
    data.construct()
    with ThreadPoolExecutor(settings.threads) as pool:
        return Ensemble(
            tuple(pool.map(lambda q: lightgbm.train({**common, "alpha": q}, data, settings.rounds), LEVELS))
        )


def _validated(model: Model, unseen: Table) -> Model:
    """The model with what it forecasts for runs that it has not seen, and how well."""
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
            group_of(run.queue, run.gpus),
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
