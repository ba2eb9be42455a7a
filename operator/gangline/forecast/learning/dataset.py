"""Training table of past runs, built by playing them through a tracker in time order, so that no future data leaks."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from gangline.forecast.history.playback import known_at, play
from gangline.forecast.history.runs import Run
from gangline.forecast.tracking import baselines, features
from gangline.forecast.tracking.tracker import Tracker


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
