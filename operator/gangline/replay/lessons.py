"""Training data of a replay's forecaster: its past, and the jobs of the window so far."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from gangline.forecast import Run
from gangline.forecast.learning.dataset import Table
from gangline.forecast.tracking.flavors import FlavorScale


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
