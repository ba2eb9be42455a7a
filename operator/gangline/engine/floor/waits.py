"""How long workloads wait in reality and in each counterfactual, and how these compare."""

from __future__ import annotations

import random
from bisect import bisect_left, insort
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from heapq import nsmallest
from math import log
from statistics import median
from typing import Final, NamedTuple, TypeAlias

from gangline.engine.floor.modes import MODES, PLAIN, POLICY, Mode
from gangline.engine.model import Millis, RuntimeForecast, Workload, accelerators_of
from gangline.engine.model.runtime import NEVER, Runtime
from gangline.engine.model.units import SECOND
from gangline.engine.queues.ordering import flavors_of

#: of the lists in a `WorkloadWaits`: reality, then one counterfactual for each mode
REAL: Final = 0
LANE: Final[Mapping[Mode, int]] = {mode: number + 1 for number, mode in enumerate(MODES)}
_LANES: Final = 1 + len(MODES)
#: the tail is the mean of this share of the longest waits
_TAIL: Final = 0.02
#: waits are compared as if all were longer by this, in milliseconds: seconds do not matter; the tail by ten times as much
_SLACK: Final[Millis] = 30_000
#: a mode may cost this many times the better plain mode
TOLERATED: Final = 1.05
_NOT: Final[Millis] = -1
_WORDS: Final[Mapping[Mode, str]] = {"Policy": "their policy", "BestEffort": "best effort", "Easy": "EASY"}


@dataclass(slots=True)
class WorkloadWaits:
    """A workload and its waits. `since`: since when it waits, by lane."""

    workload: Workload
    root: str
    submitted: Millis
    waited: list[Millis] = field(default_factory=lambda: [0] * _LANES)
    since: list[Millis] = field(default_factory=lambda: [_NOT] * _LANES)
    #: it has started at least once in some lane
    started: bool = False
    #: in reality: since when it runs, None = it waits, or is over; the work before that is not repeated
    runs_since: Millis | None = None
    saved: Millis = 0
    #: what its work came to, None = it is not over
    length: Millis | None = None
    #: see `quantile`; None = not drawn yet
    level: float | None = None

    def quantile(self) -> float:
        """The level of what is forecast for it at which it is taken to end: its own."""
        if self.level is None:
            self.level = random.Random(self.workload.uid).uniform(0.02, 0.98)
        return self.level

    def ran(self, now: Millis) -> Millis:
        """The real work that is done by now and will not be repeated, in milliseconds."""
        return self.saved + (now - self.runs_since if self.runs_since is not None else 0)

    def starts(self, lane: int, now: Millis) -> None:
        if self.since[lane] != _NOT:
            self.waited[lane] += max(0, now - self.since[lane])
            self.since[lane] = _NOT
        self.started = True

    def stops(self, lane: int, now: Millis, lost: Millis) -> None:
        self.waited[lane] += max(0, lost)
        self.since[lane] = now

    def wait(self, lane: int, now: Millis) -> Millis:
        since = self.since[lane]
        return self.waited[lane] + (max(0, now - since) if since != _NOT else 0)


@dataclass(frozen=True, slots=True)
class Figures:
    """The mean wait, and the mean of the longest waits, of the jobs that started in at least one lane, in milliseconds."""

    jobs: int
    mean: float
    tail: float


@dataclass(frozen=True, slots=True)
class Comparison:
    """The figures of every mode, at a time."""

    at: Millis
    by_mode: Mapping[Mode, Figures]

    @property
    def plain(self) -> Mode:
        """The better one of the plain modes: of those whose mean is near the shorter one, that with the shorter tail."""
        means = {mode: self.by_mode[mode].mean + _SLACK for mode in PLAIN}
        near: list[Mode] = [mode for mode in PLAIN if means[mode] <= TOLERATED * min(means.values())]
        return min(near, key=lambda mode: (self.by_mode[mode].tail, PLAIN.index(mode)))

    def cost(self, mode: Mode) -> float:
        """The larger one of two ratios to the better plain mode: that of the means, and that of the tails."""
        mine, other = self.by_mode[mode], self.by_mode[self.plain]
        means = (mine.mean + _SLACK) / (other.mean + _SLACK)
        return max(means, (mine.tail + 10 * _SLACK) / (other.tail + 10 * _SLACK))

    def why(self, left: Mode, taken: Mode) -> str:
        """Why one mode is left for another, in words."""
        mine, other = self.by_mode[left], self.by_mode[taken]
        return (
            f"{mine.jobs} workloads would have waited {_lasting(mine.mean)} on average and {_lasting(mine.tail)} in the longest "
            f"fiftieth under {_WORDS[left]}, {_lasting(other.mean)} and {_lasting(other.tail)} under {_WORDS[taken]}"
        )

    @property
    def jobs(self) -> int:
        return self.by_mode[POLICY].jobs


def figures(jobs: Sequence[WorkloadWaits], lane: int, now: Millis) -> Figures:
    waits = [
        job.waited[lane] if (since := job.since[lane]) == _NOT else job.waited[lane] + max(0, now - since)
        for job in jobs
    ]
    waits.sort(reverse=True)
    worst = waits[: max(1, round(_TAIL * len(waits)))]
    return Figures(len(waits), _mean(waits), _mean(worst))


def without_each_spell(
    jobs: Sequence[WorkloadWaits], lane: int, other: int, now: Millis, spell: Millis
) -> Iterator[list[WorkloadWaits]]:
    """The jobs without those submitted in one spell, for every spell; first the spell in which the waits of these lanes differ
    most.
    """
    difference: dict[int, Millis] = {}
    for job in jobs:
        number = job.submitted // spell
        difference[number] = difference.get(number, 0) + job.wait(lane, now) - job.wait(other, now)
    for number in sorted(difference, key=lambda each: -abs(difference[each])):
        yield [job for job in jobs if job.submitted // spell != number]


def _lasting(millis: float) -> str:
    seconds = round(millis / 1000)
    if seconds < 120:
        return f"{seconds} s"
    return f"{seconds // 60} min" if seconds < 7200 else f"{seconds / 3600:.1f} h"


def _mean(values: Iterable[Millis]) -> float:
    found = list(values)
    return sum(found) / len(found) if found else 0.0


# --- lengths ----------------------------------------------------------------------------------------------------------
# How long workloads really run: known once they have ended, else drawn from what those alike came to.
#
# A draw must not rest on the forecast that is on trial. A policy holds back what it expects to be long; so those workloads have
# not run in reality when the counterfactuals need their lengths, and if forecasts are worthless, they are not long at all. So a
# draw is a length of one of the workloads that are most alike in size and forecast: where forecasts are good, that says the same
# as they do; where they are worthless, it is what workloads of that size take.


#: how many workloads alike a length is drawn from
ALIKE: Final = 30

#: so much more than a forecast tells the size, which is known
SIZE: Final = 2
_ROUNDING: Final = 1e-9

#: a run so far, in milliseconds, and whether that was all
Observed: TypeAlias = tuple[Millis, bool]


class _Kind(NamedTuple):
    """The logarithms of the median that was forecast (0 = none), and of the accelerators, the latter in whole doublings."""

    expected: float
    size: float

    def distance(self, other: _Kind) -> float:
        return abs(self.expected - other.expected) + abs(self.size - other.size)


class Lengths:
    """`jobs`: all that is known of workloads, by key."""

    def __init__(self, jobs: Mapping[str, WorkloadWaits]) -> None:
        self._jobs = jobs
        self._forecasts: dict[str, RuntimeForecast] = {}
        self._runtimes: dict[str, Runtime | None] = {}
        #: workloads that have started, by size, in the order of what was forecast
        self._started: dict[float, list[tuple[float, str]]] = {}
        self._kinds: dict[str, _Kind] = {}
        #: what was drawn, of workloads that have not ended
        self._drawn: dict[str, Millis] = {}

    def put_forecast(self, forecast: RuntimeForecast) -> None:
        self._forecasts[forecast.workload] = forecast
        self._runtimes.pop(forecast.workload, None)

    def started(self, key: str) -> None:
        """Note that a workload has started in reality: its length will say something about the lengths of others."""
        if key not in self._kinds:
            kind = self._kinds[key] = self._kind(key)
            insort(self._started.setdefault(kind.size, []), (kind.expected, key))

    def forget(self, key: str) -> None:
        self._forecasts.pop(key, None)
        self._runtimes.pop(key, None)
        self._drawn.pop(key, None)
        kind = self._kinds.pop(key, None)
        if kind is not None:
            self._started[kind.size].remove((kind.expected, key))

    def ended(self, key: str) -> None:
        """Note that a workload has ended: no length is drawn for it any more."""
        self._drawn.pop(key, None)

    def ran(self, key: str, now: Millis) -> Millis | None:
        """How long the workload has really run so far; None = its length is known."""
        job = self._jobs.get(key)
        return None if job is None or job.length is not None else job.ran(now)

    def length(self, key: str, least: Millis, now: Millis) -> Millis | None:
        """The total runtime of a workload, as far as it is known; else a draw, given that it is longer than `least`. None =
        nobody knows.
        """
        job = self._jobs.get(key)
        if job is None:
            return None
        if job.length is not None:
            return job.length
        least = max(least, job.ran(now))
        drawn = self._drawn.get(key, 0)
        if drawn <= least:
            drawn = self._drawn[key] = self._draw(key, job, least, now)
        return None if drawn >= NEVER else drawn

    def error(self, keys: Iterable[str]) -> float | None:
        """The median error of the forecasts of workloads that have ended, as a logarithm; None = there was none."""
        known = ((self._kinds.get(key), self._jobs[key].length) for key in keys)
        errors = [abs(log(length) - kind.expected) for kind, length in known if kind and kind.expected and length]
        return median(errors) if errors else None

    def _draw(self, key: str, job: WorkloadWaits, least: Millis, now: Millis) -> Millis:
        observed = [_observed(each, now) for each in self._workloads_like(key)]
        drawn, runtime = draw(observed, least, job.quantile()), self._runtime(key)
        if runtime is None:
            return NEVER if drawn is None else drawn
        if drawn is None:
            return runtime.total(max([least, *(ran for ran, _ in observed)]), job.quantile())
        return drawn if runtime.limit is None else min(drawn, max(runtime.limit, least + SECOND))

    def _runtime(self, key: str) -> Runtime | None:
        if key not in self._runtimes:
            workload = self._jobs[key].workload
            left = workload.execution_left
            limit = None if left is None else max(SECOND, left)
            self._runtimes[key] = Runtime.of(self._forecasts.get(key), limit, flavors_of(workload.admission))
        return self._runtimes[key]

    def _kind(self, key: str) -> _Kind:
        runtime = self._runtime(key)
        doublings = accelerators_of(self._jobs[key].workload.pod_sets).bit_length()
        return _Kind(0.0 if runtime is None else log(runtime.quantile(0.5)), SIZE * doublings * log(2))

    def _workloads_like(self, key: str) -> Iterator[WorkloadWaits]:
        """The workloads that have started and are most like this one."""
        kind = self._kinds.get(key) or self._kind(key)
        found: list[tuple[float, str]] = []
        for size in sorted(self._started, key=lambda each: abs(each - kind.size)):
            if len(found) == ALIKE and found[-1][0] <= abs(size - kind.size):
                break
            near = (
                (kind.distance(self._kinds[each]), each) for each in self._nearest(size, kind.expected) if each != key
            )
            found = nsmallest(ALIKE, (*found, *near))
        return (self._jobs[each] for _, each in found)

    def _nearest(self, size: float, expected: float) -> Iterator[str]:
        """The nearest ones of this size, and some that are further off."""
        line = self._started[size]
        at = bisect_left(line, (expected, ""))
        return (key for _, key in line[max(0, at - ALIKE) : at + ALIKE])


def _observed(job: WorkloadWaits, now: Millis) -> Observed:
    return (job.ran(now), False) if job.length is None else (job.length, True)


def draw(observed: Iterable[Observed], least: Millis, level: float) -> Millis | None:
    """The length at this level of runs that last longer than `least` (Kaplan and Meier 1958: a run that has not ended says only
    that it lasted so long). None = it is longer than any that ended.
    """
    longer = sorted(each for each in observed if each[0] > least)
    survive = 1.0
    for number, (ran, ended) in enumerate(longer):
        if ended:
            survive *= 1 - 1 / (len(longer) - number)
            if survive <= 1 - level + _ROUNDING:
                return ran
    return None
