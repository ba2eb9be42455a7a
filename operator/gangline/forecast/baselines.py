"""What a forecast has to beat: estimates that need no model. All are seconds, NaN where there is nothing to go by."""

from __future__ import annotations

import math

from gangline.forecast.runs import Run
from gangline.forecast.tracker import Tracker

#: "the same user" where users are known; else the same tenant; else the same size
_OWNERS = ("user", "queue", "size")
_SAME = ("name", "user-size", "queue-size", "size")


def last_two(run: Run, tracker: Tracker) -> float:
    """The mean of the last two finished runs of the same user (Tsafrir et al.); without users, of the same queue, or size."""
    known = tracker.stats(run)
    chosen = next((known[name] for name in _OWNERS if name in known), None)
    return chosen.last_two_seconds() if chosen else math.nan


def last_two_alike(run: Run, tracker: Tracker) -> float:
    """The same over the runs most alike: of the same name, else of the same owner and size."""
    known = tracker.stats(run)
    chosen = next((known[name] for name in _SAME if name in known), None)
    return chosen.last_two_seconds() if chosen else math.nan


def request(run: Run) -> float:
    """What the user said: the expected runtime, else the limit."""
    return run.hint or run.limit or math.nan


def class_median(run: Run, tracker: Tracker) -> float:
    """The median of the finest class that has finished runs."""
    found = tracker.class_of(run)
    return math.exp(found[1].median()) if found else math.nan
