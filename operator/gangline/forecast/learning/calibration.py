"""Split-conformal correction of quantiles: each is shifted so that it has its nominal coverage on the latest runs.

Among recent runs, mostly short ones have finished. The weight of a finished run is therefore one over the share of recent runs
that have had time to run that long (inverse probability of censoring). Recent runs count more than older ones, so that the
correction follows a drift that the model has not been trained on.

Errors differ by queue, but a queue's few latest runs predict its next ones poorly: the more runs a group has, the more its own
correction counts. Small groups corrected by their own runs alone would have less than nominal coverage. The upper quantiles of
a queue are only ever widened by its own runs.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Final

from gangline.forecast.history.runs import Run, StartedRun

if TYPE_CHECKING:
    from gangline.forecast.learning.shifts import Corrections, Floats, LatestRuns

_MAX_RUNS: Final = 8000
REFRESH: Final = 1800.0  # seconds for which shifts are reused at least
_AT_MOST: Final = 6 * 3600.0  # … and at most
_NEWS: Final = 0.03  # between these, until the runs that have finished since are this share of those that counted


def group_of(run: Run) -> str:
    """The calibration group of a run: its queue, of its namespace, and its size class (one GPU, up to eight, more)."""
    queue, gpus = f"{run.namespace}/{run.queue}" if run.namespace else run.queue, run.gpus
    return f"{queue}/{'1' if gpus <= 1 else '8' if gpus <= 8 else 'more'}"


class Calibrator:
    """Computes the shifts (in log seconds, one per level of LEVELS) that correct the latest forecasts."""

    def __init__(self) -> None:
        self._ledger: LatestRuns | None = None
        self._running: dict[str, int] = {}
        self._corrections: Corrections | None = None
        self._at = -math.inf  # as of when they are
        self._finished = 0  # runs that have finished since

    def __len__(self) -> int:
        return len(self._ledger) if self._ledger is not None else 0

    def add(self, record: StartedRun) -> None:
        """Add a run that has started. A second record of a run is ignored, because the first forecast is unbiased."""
        if record.uid in self._running:
            return
        number = self._ledger_made().append(record)
        if math.isnan(record.finish):
            self._running[record.uid] = number

    def finished(self, uid: str, at: float, target: float) -> None:
        number = self._running.pop(uid, None)
        if number is not None:
            self._ledger_made().finish(number, at, target)
            self._finished += 1

    def forget(self, uid: str) -> None:
        """Remove a run that was stopped: its runtime will not be known."""
        number = self._running.pop(uid, None)
        if number is not None:
            self._ledger_made().strike(number)

    def shifts(self, now: float, group: str = "") -> Floats:
        """The correction about as of `now`: of a group, or of all runs if the group is unknown."""
        if self._corrections is None or self._outdated(self._corrections, now):
            self._at, self._finished = now, 0
            self._corrections = self._ledger_made().corrections(now)
        return self._corrections.of(group)

    def _outdated(self, corrections: Corrections, now: float) -> bool:
        age = now - self._at
        if not REFRESH <= age < _AT_MOST:
            return not 0 <= age < REFRESH
        return self._finished >= _NEWS * corrections.effective

    def _ledger_made(self) -> LatestRuns:
        if self._ledger is None:
            from gangline.forecast.learning.shifts import (
                LatestRuns,  # imported late: a process without a model doesn't load numpy
            )

            self._ledger = LatestRuns(_MAX_RUNS)
        return self._ledger
