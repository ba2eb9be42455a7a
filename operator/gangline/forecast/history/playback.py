"""Plays past runs to a listener in time order, so that at each instant the listener has only what was known then."""

from __future__ import annotations

import heapq
import math
from collections.abc import Iterable, Iterator
from dataclasses import replace
from typing import Protocol, TypeAlias

from gangline.forecast.history.runs import Run


def known_at(run: Run, now: float) -> Run:
    """The run as known at `now`, without a later start or finish."""
    if run.start is not None and run.start >= now:
        return replace(run, start=None, finish=None)
    if run.finish is not None and run.finish >= now:
        return replace(run, finish=None)
    return run


class Listener(Protocol):
    """Receiver of runs' events in time order: a Tracker or a Forecaster."""

    def submitted(self, run: Run) -> None: ...
    def started(self, uid: str, at: float, flavor: str = "") -> None: ...
    def finished(self, uid: str, at: float) -> Run | None: ...


def play(runs: Iterable[Run], listener: Listener) -> Iterator[Run]:
    """Yield runs in order of submission; at each run the listener has received exactly the events known by then.

    A run counts as running from its start on and as finished after its finish. After the last run the listener has received
    all events.
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
    """Pass events before `now`, and starts at exactly `now`, to the listener."""
    while events and events[0][:2] < (now, _FINISH):
        at, what, number, run = heapq.heappop(events)
        if what == _FINISH:
            listener.finished(run.uid, at)
            continue
        listener.started(run.uid, at, run.flavor)
        if run.finish is not None:
            heapq.heappush(events, (max(run.finish, at), _FINISH, number, run))
