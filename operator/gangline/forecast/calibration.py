"""Split-conformal correction of quantiles: shift each so that it covers what it says of the latest runs.

Recent runs that have finished are the short ones. Each therefore stands for those that are as long but still run: its weight
is one over the share of recent runs that have had the time to take that long (inverse probability of censoring). Recent runs
count more than older ones, so that the correction follows a drift that the model has not been trained on.

Queues err each in its own way, but a queue's few latest runs say little of its next ones: a group's own correction counts as far
as there are runs to base it on. Small groups corrected on their own would cover less than they say.
"""

from __future__ import annotations

import math
from collections import deque
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from gangline.forecast.shifts import Floats

_MAX_RUNS: Final = 8000
REFRESH: Final = 600.0  # seconds for which shifts are good


def group_of(queue: str, gpus: int) -> str:
    """The group that a run is calibrated with: its queue and whether it is small (one GPU), a node's, or larger."""
    return f"{queue}/{'1' if gpus <= 1 else '8' if gpus <= 8 else 'more'}"


@dataclass(slots=True)
class Record:
    """A run that has started: what was forecast for it (log seconds by level), and how long it took once that is known."""

    uid: str
    start: float
    logs: tuple[float, ...]
    finish: float = math.nan
    target: float = math.nan  #: log seconds
    group: str = ""  #: runs that may be wrong in a way of their own: a queue's of one size class


class Calibrator:
    """Keeps the shifts (in log seconds, one per level of LEVELS) that make the latest forecasts right."""

    def __init__(self) -> None:
        self._records: deque[Record] = deque(maxlen=_MAX_RUNS)
        self._running: dict[str, Record] = {}
        self._shifts: dict[str, Floats] = {}
        self._due = -math.inf

    def __len__(self) -> int:
        return len(self._records)

    def add(self, record: Record) -> None:
        """A run has started. Told twice, the first stays: it was forecast before it was known."""
        if record.uid in self._running:
            return
        self._records.append(record)
        if math.isnan(record.finish):
            self._running[record.uid] = record

    def finished(self, uid: str, at: float, target: float) -> None:
        record = self._running.pop(uid, None)
        if record is not None:
            record.finish, record.target = at, target

    def forget(self, uid: str) -> None:
        """It was stopped: how long it would have taken will not be known."""
        record = self._running.pop(uid, None)
        if record is not None:
            record.start = math.nan

    def shifts(self, now: float, group: str = "") -> Floats:
        """The correction as of `now`, at most REFRESH seconds old: of a group, or of all where the group is not known."""
        if not self._due - REFRESH <= now < self._due:
            from gangline.forecast import shifts  # late: who asks has a model, and numpy with it

            self._due = now + REFRESH
            self._shifts = shifts.corrections(self._records, now)
        found = self._shifts.get(group)
        return self._shifts[""] if found is None else found
