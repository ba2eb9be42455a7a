"""A training table from past runs: their history is played through a tracker in the order of time, so nothing leaks."""

from __future__ import annotations

import heapq
import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from gangline.forecast import baselines, features
from gangline.forecast.runs import Run
from gangline.forecast.tracker import Tracker


@dataclass(frozen=True, slots=True)
class Table:
    """One row per run, in the order of submission."""

    runs: tuple[Run, ...]
    matrix: NDArray[np.float32]  #: columns as in features.NAMES
    baseline: NDArray[np.float64]  #: log of the last-two estimate at submission, NaN where there was none


def build(runs: Sequence[Run], tracker: Tracker, rows: int | None = None) -> Table:
    """The table of the last `rows` runs (all by default); earlier ones only fill the tracker."""
    skip = 0 if rows is None else max(0, len(runs) - rows)
    kept: list[Run] = []
    matrix = np.full((len(runs) - skip, len(features.NAMES)), np.nan, dtype=np.float32)
    baseline = np.full(len(runs) - skip, np.nan)
    for number, run in enumerate(play(runs, tracker)):
        row = number - skip
        if row >= 0:
            kept.append(run)
            matrix[row] = features.vector(run, tracker, run.submit)
            baseline[row] = math.log(baselines.last_two(run, tracker))
    return Table(tuple(kept), matrix, baseline)


def play(runs: Iterable[Run], tracker: Tracker) -> Iterator[Run]:
    """Yield runs in the order of submission; at each one the tracker knows exactly what was known then.

    A run counts as running from its start on and as finished once its finish has passed. After the last one the tracker has
    seen everything.
    """
    events: list[_Event] = []
    for number, run in enumerate(sorted(runs, key=lambda r: r.submit)):
        _advance(tracker, events, run.submit)
        yield run
        tracker.submitted(replace(run, start=None, finish=None))
        if run.start is not None:
            heapq.heappush(events, (run.start, _START, number, run))
    _advance(tracker, events, math.inf)


_START, _FINISH = 0, 1
_Event: TypeAlias = tuple[float, int, int, Run]


def _advance(tracker: Tracker, events: list[_Event], now: float) -> None:
    """Tell the tracker what happened before `now`, and who starts at that very instant."""
    while events and events[0][:2] < (now, _FINISH):
        at, what, number, run = heapq.heappop(events)
        if what == _FINISH:
            tracker.finished(run.uid, at)
            continue
        tracker.started(run.uid, at, run.flavor)
        if run.finish is not None:
            heapq.heappush(events, (max(run.finish, at), _FINISH, number, run))
