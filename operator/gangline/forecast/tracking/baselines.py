"""Baselines for forecasts: estimates that need no model. Points are in seconds, NaN without data."""

from __future__ import annotations

import math
from collections.abc import Hashable
from typing import Final

from gangline.forecast.history.runs import Run, fold
from gangline.forecast.quantiles import LEVELS
from gangline.forecast.tracking.stats import ClassStats
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


class AlikeRuns:
    """Quantiles of the last finished runs of the same task name, else of the same owner, and of the same size.

    These few lines are what a model has to beat. Call `finished` for each run in the order of their ends.
    """

    def __init__(self) -> None:
        self._latest: dict[Hashable, ClassStats] = {}

    def finished(self, run: Run) -> None:
        for key in _kinds(run):
            self._latest.setdefault(key, ClassStats(ALIKE_RUNS)).finished(run.uid, run.finish or 0.0, run.log_seconds)

    def quantiles(self, run: Run) -> list[float]:
        """The quantiles at LEVELS in log seconds, of the narrowest kind with enough runs; NaN if there is none."""
        found = (self._latest.get(key) for key in _kinds(run))
        known = next((each for each in found if each is not None and each.remembered >= _FEWEST), None)
        return [math.nan if known is None else known.quantile(level, unseen=1) for level in LEVELS]


def _kinds(run: Run) -> list[Hashable]:
    """The kinds of a run, the narrowest first."""
    owner = (run.namespace, run.user or run.queue)
    named = [(owner, run.gpus, fold(run.name))] if run.name else []
    owned = [(owner, run.gpus)] if any(owner) else []
    return [*named, *owned, run.gpus, ""]
