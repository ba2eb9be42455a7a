"""The jobs of a replay as they will be learned from when the forecaster is trained anew."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Final

import numpy as np

from gangline.forecast import Run, features
from gangline.forecast.dataset import Table
from gangline.forecast.flavors import FlavorScale

_ROOM: Final = 1024  # rows that there is room for at first


class Lessons:
    """One row per job, in the order of submission, filled in as things happen: a table is then a matter of copying."""

    def __init__(self, scale: FlavorScale) -> None:
        self._scale = scale
        self._rows: dict[int, int] = {}  # job number -> row
        self._runs: list[Run] = []
        self._started: list[float | None] = []  # of runs that have not finished, Unix seconds
        self._matrix = np.empty((_ROOM, len(features.NAMES)), dtype=np.float32)
        self._target = np.empty(_ROOM)
        self._last_two = np.empty(_ROOM)

    def submitted(self, number: int, run: Run, vector: list[float], last_two: float) -> None:
        """What was known of a run when it was submitted; `last_two` in log seconds."""
        row = self._rows[number] = len(self._runs)
        if row == len(self._matrix):
            self._matrix, self._target, self._last_two = map(_doubled, (self._matrix, self._target, self._last_two))
        self._runs.append(run)
        self._started.append(None)
        self._matrix[row], self._target[row], self._last_two[row] = vector, math.nan, last_two

    def started(self, number: int, at: float | None) -> None:
        """None: it was stopped, and waits again."""
        self._started[self._rows[number]] = at

    def waits(self, number: int) -> bool:
        """It does not run (any more)."""
        return self._started[self._rows[number]] is None

    def finished(self, number: int, run: Run) -> None:
        row = self._rows[number]
        self._runs[row] = run
        self._target[row] = run.log_seconds - self._scale.offset(run.flavor)

    def table(self, rows: int) -> Table:
        """The last `rows` jobs."""
        end = len(self._runs)
        first = max(0, end - rows)
        runs = zip(self._runs[first:], self._started[first:], strict=True)
        return Table(
            tuple(run if run.finish is not None else replace(run, start=started) for run, started in runs),
            self._matrix[first:end].copy(),
            self._target[first:end].copy(),
            self._last_two[first:end].copy(),
        )


def _doubled(array: np.ndarray) -> np.ndarray:
    return np.concatenate([array, np.empty_like(array)])


def joined(past: Table, window: Table) -> Table:
    """One after the other. Runs of the past that had not finished are left out: the replay does not know of them."""
    past = past.where(np.array([run.finish is not None for run in past.runs], dtype=bool))
    if not len(window):
        return past
    return Table(
        past.runs + window.runs,
        np.concatenate([past.matrix, window.matrix]),
        np.concatenate([past.target, window.target]),
        np.concatenate([past.baseline, window.baseline]),
    )
