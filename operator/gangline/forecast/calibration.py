"""Split-conformal correction of quantiles: shift each so that it covers what it says of the latest runs.

Recent runs that have finished are the short ones. Each therefore stands for those that are as long but still run: its weight
is one over the share of recent runs that have had the time to take that long (inverse probability of censoring). Recent runs
count more than older ones, so that the correction follows a drift that the model has not been trained on.

Queues err each in its own way, but a queue's few latest runs say little of its next ones: a group's own correction counts as far
as there are runs to base it on. Small groups corrected on their own would cover less than they say.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Final

from gangline.forecast.runs import StartedRun

if TYPE_CHECKING:
    from gangline.forecast.shifts import Corrections, Floats, Ledger

_MAX_RUNS: Final = 8000
REFRESH: Final = 1800.0  # seconds for which shifts are good


def group_of(queue: str, gpus: int) -> str:
    """The group that a run is calibrated with: its queue and whether it is small (one GPU), a node's, or larger."""
    return f"{queue}/{'1' if gpus <= 1 else '8' if gpus <= 8 else 'more'}"


class Calibrator:
    """Keeps the shifts (in log seconds, one per level of LEVELS) that make the latest forecasts right."""

    def __init__(self) -> None:
        self._ledger: Ledger | None = None
        self._running: dict[str, int] = {}
        self._corrections: Corrections | None = None
        self._due = -math.inf

    def __len__(self) -> int:
        return len(self._ledger) if self._ledger is not None else 0

    def add(self, record: StartedRun) -> None:
        """A run has started. Told twice, the first stays: it was forecast before it was known."""
        if record.uid in self._running:
            return
        number = self._made().append(record)
        if math.isnan(record.finish):
            self._running[record.uid] = number

    def finished(self, uid: str, at: float, target: float) -> None:
        number = self._running.pop(uid, None)
        if number is not None:
            self._made().finish(number, at, target)

    def forget(self, uid: str) -> None:
        """It was stopped: how long it would have taken will not be known."""
        number = self._running.pop(uid, None)
        if number is not None:
            self._made().strike(number)

    def shifts(self, now: float, group: str = "") -> Floats:
        """The correction as of `now`, at most REFRESH seconds old: of a group, or of all where the group is not known."""
        if self._corrections is None or not self._due - REFRESH <= now < self._due:
            self._due = now + REFRESH
            self._corrections = self._made().corrections(now)
        return self._corrections.of(group)

    def _made(self) -> Ledger:
        if self._ledger is None:
            from gangline.forecast.shifts import Ledger  # late: who asks has a model, and numpy with it

            self._ledger = Ledger(_MAX_RUNS)
        return self._ledger
