"""Baselines for forecasts: point estimates that need no model, in seconds; NaN without data."""

from __future__ import annotations

import math

from gangline.forecast.history.runs import Run
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
