"""Statistics of one class of runs: its latest runtimes and its running runs."""

from __future__ import annotations

import math
from bisect import bisect_left, insort
from collections import deque
from typing import Final

WINDOW: Final = 30  # number of finished runs kept per class
_EWMA: Final = 0.3
NAN: Final = math.nan

#: columns that one key adds to a feature vector
COLUMNS: Final = (
    "last", "second", "ewma", "mean", "std", "median", "p90", "count",
    "since", "since_finish", "running", "oldest", "recent", "recent_running",
)  # fmt: skip
_EMPTY: Final = [NAN] * len(COLUMNS)


def empty() -> list[float]:
    """The columns for a key that the run lacks."""
    return _EMPTY


class ClassStats:
    """Log runtimes of the last `window` runs of one class. Times are seconds; finishes arrive in time order."""

    __slots__ = (
        "_ewma", "_finished_at", "_last", "_last_submit", "_last_uid", "_last_value", "_logs", "_second", "_sorted",
        "_started", "_sum", "_sum_squares", "count",
    )  # fmt: skip

    def __init__(self, window: int = WINDOW) -> None:
        self.count = 0
        self._logs: deque[float] = deque(maxlen=window)
        self._sorted: list[float] = []
        self._sum = 0.0
        self._sum_squares = 0.0
        self._last = self._second = self._ewma = NAN
        self._finished_at = NAN
        self._last_submit = NAN
        self._last_uid = ""
        self._last_value = NAN  # log runtime of the last submitted run, once it has finished
        self._started: dict[str, float] = {}  # running runs: uid -> start, in order of start

    def submitted(self, uid: str, at: float) -> None:
        self._last_submit, self._last_uid, self._last_value = at, uid, NAN

    def started(self, uid: str, at: float) -> None:
        self._started[uid] = at

    def stopped(self, uid: str) -> None:
        """The run stopped before it finished; its elapsed runtime is not used."""
        self._started.pop(uid, None)

    def finished(self, uid: str, at: float, log: float) -> None:
        self._started.pop(uid, None)
        self.count += 1
        self._second, self._last, self._finished_at = self._last, log, at
        self._ewma = log if self.count == 1 else self._ewma + _EWMA * (log - self._ewma)
        if uid == self._last_uid:
            self._last_value = log
        self._remember(log)

    def _remember(self, log: float) -> None:
        if len(self._logs) == self._logs.maxlen:
            oldest = self._logs[0]
            del self._sorted[bisect_left(self._sorted, oldest)]
            self._sum -= oldest
            self._sum_squares -= oldest * oldest
        self._logs.append(log)
        insort(self._sorted, log)
        self._sum += log
        self._sum_squares += log * log

    @property
    def mean(self) -> float:
        return self._sum / len(self._logs) if self._logs else NAN

    @property
    def variance(self) -> float:
        """Sample variance of the kept log runtimes; NaN with fewer than two."""
        n = len(self._logs)
        return max(0.0, (self._sum_squares - self._sum * self._sum / n) / (n - 1)) if n > 1 else NAN

    @property
    def remembered(self) -> int:
        return len(self._logs)

    def last_two_seconds(self) -> float:
        """Mean runtime in seconds of the last two finished runs (or of the only one); NaN without any."""
        if math.isnan(self._second):
            return math.exp(self._last)
        return (math.exp(self._last) + math.exp(self._second)) / 2

    def median(self) -> float:
        return self._sorted[len(self._sorted) // 2] if self._sorted else NAN

    def quantile(self, level: float, unseen: int = 0) -> float:
        """The kept log runtime that so large a share of them, and of so many `unseen` runs, does not exceed; NaN without any."""
        n = len(self._sorted)
        return self._sorted[min(n, math.ceil(level * (n + unseen))) - 1] if n else NAN

    def columns(self, now: float) -> list[float]:
        """The values of COLUMNS as known at `now`."""
        n = len(self._sorted)
        if n:
            mean = self._sum / n
            std = math.sqrt(max(0.0, self._sum_squares / n - mean * mean))
            median, p90 = self._sorted[n // 2], self._sorted[(n * 9) // 10]
        else:
            mean = std = median = p90 = NAN
        started = self._started
        oldest = math.log1p(max(0.0, now - next(iter(started.values())))) if started else NAN
        begun = started.get(self._last_uid)
        recent = self._last_value if begun is None else math.log1p(max(0.0, now - begun))
        return [
            self._last, self._second, self._ewma, mean, std, median, p90, math.log1p(self.count),
            math.log1p(max(0.0, now - self._last_submit)), math.log1p(max(0.0, now - self._finished_at)),
            len(started), oldest, recent, 0.0 if begun is None else 1.0,
        ]  # fmt: skip
