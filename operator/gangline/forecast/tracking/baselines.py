"""Baselines for forecasts: estimates that need no model. Points are in seconds, NaN without data."""

from __future__ import annotations

import math
from array import array
from bisect import bisect_left, insort
from collections import deque
from collections.abc import Hashable
from dataclasses import dataclass, field
from typing import Final

from gangline.forecast.history.runs import Run, fold
from gangline.forecast.quantiles import LEVELS
from gangline.forecast.tracking.tracker import Tracker

#: classes for "same user": by user if users are known, else by queue, else by size
_OWNERS = ("user", "queue", "size")
_SAME = ("name", "user-size", "queue-size", "size")


def last_two(run: Run, tracker: Tracker) -> float:
    """Mean of the last two finished runs of the same user (Tsafrir et al.); without users, of the same queue or size."""
    known = tracker.stats(run)
    chosen = next((known[name] for name in _OWNERS if name in known), None)
    return chosen.last_two_seconds() if chosen else math.nan


def last_two_alike(run: Run, tracker: Tracker) -> float:
    """Mean of the last two finished runs of the most similar class: same name, else same owner and size."""
    known = tracker.stats(run)
    chosen = next((known[name] for name in _SAME if name in known), None)
    return chosen.last_two_seconds() if chosen else math.nan


def request(run: Run) -> float:
    """The user's estimate: the runtime hint, else the limit."""
    return run.hint or run.limit or math.nan


def class_median(run: Run, tracker: Tracker) -> float:
    """Median of the most specific class that has finished runs."""
    found = tracker.class_of(run)
    return math.exp(found[1].median()) if found else math.nan


# --- quantiles --------------------------------------------------------------------------------------------------------

#: finished runs of which quantiles are taken, the latest ones; and how few there may be
ALIKE_RUNS: Final = 300
_FEWEST: Final = 5


@dataclass(slots=True)
class _Latest:
    """The log runtimes of the latest finished runs of a kind, in order of their ends and in order of size."""

    ended: deque[float] = field(default_factory=lambda: deque[float](maxlen=ALIKE_RUNS))
    ordered: array[float] = field(default_factory=lambda: array("d"))

    def add(self, log: float) -> None:
        if len(self.ended) == ALIKE_RUNS:
            del self.ordered[bisect_left(self.ordered, self.ended[0])]
        self.ended.append(log)
        insort(self.ordered, log)


class AlikeRuns:
    """Quantiles of the last finished runs of the same task name, else of the same owner, and of the same size.

    These few lines are what a model has to beat. Call `finished` for each run in the order of their ends.
    """

    def __init__(self) -> None:
        self._latest: dict[Hashable, _Latest] = {}

    def finished(self, run: Run) -> None:
        for key in _kinds(run):
            self._latest.setdefault(key, _Latest()).add(run.log_seconds)

    def quantiles(self, run: Run) -> list[float]:
        """The quantiles at LEVELS in log seconds, of the narrowest kind with enough runs; NaN if there is none."""
        found = (self._latest.get(key) for key in _kinds(run))
        known = next((each.ordered for each in found if each is not None and len(each.ordered) >= _FEWEST), None)
        if known is None:
            return [math.nan] * len(LEVELS)
        return [known[min(len(known), math.ceil(level * (len(known) + 1))) - 1] for level in LEVELS]


def _kinds(run: Run) -> list[Hashable]:
    """The kinds of a run, the narrowest first."""
    owner = (run.namespace, run.user or run.queue)
    named = [(owner, run.gpus, fold(run.name))] if run.name else []
    owned = [(owner, run.gpus)] if any(owner) else []
    return [*named, *owned, run.gpus, ""]
