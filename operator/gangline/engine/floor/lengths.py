"""How long workloads really run: known once they have ended, else drawn from what those alike came to.

A draw must not rest on the forecast that is on trial. A policy holds back what it expects to be long; so those workloads have not
run in reality when the counterfactuals need their lengths, and if forecasts are worthless, they are not long at all. So a draw is
a length of one of the workloads that are most alike in size and forecast: where forecasts are good, that says the same as they
do; where they are worthless, it is what workloads of that size take.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Iterable, Iterator, Mapping
from heapq import nsmallest
from math import log
from statistics import median
from typing import Final, NamedTuple, TypeAlias

from gangline.engine.floor.waits import WorkloadWaits
from gangline.engine.model import Millis, RuntimeForecast
from gangline.engine.model.runtime import NEVER, Runtime
from gangline.engine.model.units import SECOND
from gangline.engine.queues.estimates import flavors_of
from gangline.engine.text.accelerators import accelerators_of

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
