"""A training table from past runs: their history is played through a tracker in the order of time, so nothing leaks."""

from __future__ import annotations

import heapq
import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Protocol, TypeAlias

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
    target: NDArray[np.float64]  #: log seconds on the average flavor, NaN for runs that have not finished
    baseline: NDArray[np.float64]  #: the last-two estimate at submission, likewise; NaN where there was none

    def __len__(self) -> int:
        return len(self.runs)

    def known_at(self, now: float) -> Table:
        """Only what was known at `now`: runs submitted before, without the ends (and starts) that came later."""
        table = self.where(np.array([run.submit < now for run in self.runs], dtype=bool))
        runs = tuple(known_at(run, now) for run in table.runs)
        ended = np.array([run.finish is not None for run in runs], dtype=bool)
        return Table(runs, table.matrix, np.where(ended, table.target, np.nan), table.baseline)

    def last(self, rows: int) -> Table:
        """Only the last rows."""
        return Table(self.runs[-rows:], self.matrix[-rows:], self.target[-rows:], self.baseline[-rows:])

    def where(self, mask: NDArray[np.bool_]) -> Table:
        """Only the rows where `mask` is true."""
        runs = tuple(run for run, kept in zip(self.runs, mask, strict=True) if kept)
        return Table(runs, self.matrix[mask], self.target[mask], self.baseline[mask])


def known_at(run: Run, now: float) -> Run:
    """The run as it was known at `now`: what came later is taken away."""
    if run.start is not None and run.start >= now:
        return replace(run, start=None, finish=None)
    if run.finish is not None and run.finish >= now:
        return replace(run, finish=None)
    return run


class Listener(Protocol):
    """Who is told of runs, in the order of time: a Tracker or a Forecaster."""

    def submitted(self, run: Run) -> None: ...
    def started(self, uid: str, at: float, flavor: str = "") -> None: ...
    def finished(self, uid: str, at: float) -> Run | None: ...


def build(runs: Sequence[Run], tracker: Tracker, rows: int | None = None) -> Table:
    """The table of the last `rows` runs (all by default); earlier ones only fill the tracker."""
    skip = 0 if rows is None else max(0, len(runs) - rows)
    kept: list[Run] = []
    matrix = np.full((len(runs) - skip, len(features.NAMES)), np.nan, dtype=np.float32)
    target = np.full(len(runs) - skip, np.nan)
    baseline = np.full(len(runs) - skip, np.nan)
    for number, run in enumerate(play(runs, tracker)):
        row = number - skip
        if row >= 0:
            kept.append(run)
            matrix[row] = features.vector(run, tracker, run.submit)
            if run.seconds is not None:
                target[row] = run.log_seconds - tracker.scale.offset(run.flavor)
            baseline[row] = math.log(baselines.last_two(run, tracker))
    return Table(tuple(kept), matrix, target, baseline)


def play(runs: Iterable[Run], listener: Listener) -> Iterator[Run]:
    """Yield runs in the order of submission; at each one the listener has been told exactly what was known then.

    A run counts as running from its start on and as finished once its finish has passed. After the last one the listener has
    been told everything.
    """
    events: list[_Event] = []
    for number, run in enumerate(sorted(runs, key=lambda r: r.submit)):
        _advance(listener, events, run.submit)
        yield run
        listener.submitted(run)
        if run.start is not None:
            heapq.heappush(events, (run.start, _START, number, run))
    _advance(listener, events, math.inf)


_START, _FINISH = 0, 1
_Event: TypeAlias = tuple[float, int, int, Run]


def _advance(listener: Listener, events: list[_Event], now: float) -> None:
    """Tell the listener what happened before `now`, and who starts at that very instant."""
    while events and events[0][:2] < (now, _FINISH):
        at, what, number, run = heapq.heappop(events)
        if what == _FINISH:
            listener.finished(run.uid, at)
            continue
        listener.started(run.uid, at, run.flavor)
        if run.finish is not None:
            heapq.heappush(events, (max(run.finish, at), _FINISH, number, run))
