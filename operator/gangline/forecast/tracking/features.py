"""The feature vector of a run: its own attributes, its submission time, and the statistics of its classes at that time."""

from __future__ import annotations

import math
from typing import Final

from gangline.forecast.history.runs import KEYS, Run
from gangline.forecast.tracking.stats import COLUMNS
from gangline.forecast.tracking.tracker import Tracker

#: increase it with every change of NAMES or of their meaning: models of another version are not used
VERSION: Final = 3
_OWN: Final = ("gpus", "pods", "gpus_per_pod", "limit", "hint", "hour", "weekday")
NAMES: Final = (*_OWN, *(f"{key}.{column}" for key in KEYS for column in COLUMNS))
_DAY: Final = 86400.0
_THURSDAY: Final = 3  # the day of the week of 1970-01-01, Monday being 0


def vector(run: Run, tracker: Tracker, now: float) -> list[float]:
    """The values of NAMES as known at `now`; NaN if unknown."""
    pods = max(1, run.pods)
    return [
        math.log2(1 + run.gpus),
        math.log2(pods),
        math.log2(1 + run.gpus / pods),
        math.log(run.limit) if run.limit else math.nan,
        tracker.believed(run),
        (run.submit % _DAY) / 3600,
        (run.submit // _DAY + _THURSDAY) % 7,
        *tracker.columns(run, now),
    ]
