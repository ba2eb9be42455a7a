"""When runs end that slow one another down: how much work each has done at which time, piece by piece.

A *work path* belongs to one run. Its work is counted in milliseconds of a run that is alone: at a speed of 0.5, ten seconds do
five seconds of work. Between two arrivals or ends of companions the speed is constant, so the path has one piece more than there
are such moments. Instants are milliseconds.
"""

from __future__ import annotations

import math
from bisect import bisect_right
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass
from typing import Final, TypeAlias

from gangline.engine.model import Millis

#: work of a run whose end is not known
ENDLESS: Final = math.inf
#: a run ends in the millisecond in which its work is done, up to this part of it
_ROUNDING: Final = 0.01


@dataclass(frozen=True, slots=True)
class RunAhead:
    """A run that goes on, or begins, at `since`, when it has done `done` of its `work`; it is stopped at `stop` at the latest."""

    key: str
    since: Millis
    done: float
    work: float
    stop: float = ENDLESS


#: The speed of each of the runs that are there together, by key: a part of the speed alone.
SpeedsOf: TypeAlias = Callable[[Collection[str]], Mapping[str, float]]


class WorkPath:
    """How much a run has done at which time. The last piece goes on for ever."""

    __slots__ = ("_done", "_speeds", "_times")

    def __init__(self, since: float, done: float) -> None:
        self._times, self._done, self._speeds = [since], [done], [1.0]

    def go_on(self, at: float, speed: float) -> None:
        """Go on at another speed from `at` on, which is not before the last piece began."""
        if speed == self._speeds[-1]:
            return
        if at > self._times[-1]:
            self._done.append(self.done_at(at))
            self._times.append(at)
            self._speeds.append(speed)
        else:
            self._speeds[-1] = speed

    def done_at(self, at: float) -> float:
        """The work that is done at `at`."""
        piece = max(0, bisect_right(self._times, at) - 1)
        return self._done[piece] + (at - self._times[piece]) * self._speeds[piece]

    def reaches(self, work: float) -> float:
        """The instant at which so much work is done."""
        piece = max(0, bisect_right(self._done, work) - 1)
        return self._times[piece] + (work - self._done[piece]) / self._speeds[piece]

    def end(self, work: float) -> Millis | None:
        """The millisecond in which so much work is done; None = never."""
        found = self.reaches(work)
        return None if found == ENDLESS else math.ceil(found - _ROUNDING)


def play(runs: Iterable[RunAhead], speeds_of: SpeedsOf) -> dict[str, WorkPath]:
    """The paths of runs by key, each of which leaves when its work is done. Speeds are above 0.

    There are at most twice as many pieces as runs.
    """
    coming = sorted(runs, key=lambda run: run.since, reverse=True)
    there: dict[str, RunAhead] = {}
    paths: dict[str, WorkPath] = {}
    now: float = coming[-1].since if coming else ENDLESS
    while now < ENDLESS:
        while coming and coming[-1].since <= now:
            run = coming.pop()
            there[run.key], paths[run.key] = run, WorkPath(run.since, run.done)
        speeds = speeds_of(there)
        for key in there:
            paths[key].go_on(now, speeds[key])
        ends = {key: min(run.stop, paths[key].reaches(run.work)) for key, run in there.items()}
        now = max(now, min([*ends.values(), *(run.since for run in coming[-1:])], default=ENDLESS))
        there = {key: run for key, run in there.items() if ends[key] > now}
        if not there and not coming:
            break
    return paths
