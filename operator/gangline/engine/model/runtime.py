"""Remaining runtime: arithmetic on forecast quantiles, conditional on the time that a run has already taken.

A forecast gives a few quantiles of the runtime. Between two of them the logarithm of the time is linear in the level; below the
first one the times fall to a tenth of it; beyond the last one survival falls as a power of time (a Pareto tail through the last
two points), so that the longer a run has outlived its forecast, the longer it is expected to continue.

A run that has lasted `elapsed` is past level u = F(elapsed); its remaining time at level p ends at level u + p·(1 - u).
Evaluated on every tick, that estimate would creep. So it is a staircase: it is computed anew only when the run passes one of
the forecast's points or the estimate itself. The steps depend on nothing but the forecast, never on the time of evaluation.

All times are milliseconds.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from itertools import pairwise
from math import exp, log
from typing import NamedTuple

from gangline.engine.model import Millis, RuntimeForecast

#: No end is known: longer than any other time.
NEVER: Millis = 1 << 62

#: An estimate looks at least this far ahead; also the smallest step of a staircase.
TICK: Millis = 1000

#: Bounds of the tail's exponent: 0.5 makes the median remaining time three times the elapsed one, 8 lets the run end soon.
_TAIL_HEAVIEST, _TAIL_LIGHTEST = 0.5, 8.0
#: Beyond the last point the staircase has a step each time the run has grown by this factor.
_STEP = 1.5
#: Quantiles cached per run; policies ask for a few.
_KNOWN = 4
_SHORTEST = 0.1  # of the first quantile: the time at level 0


class Estimate(NamedTuple):
    """When a run will have ended, as time since its start, and up to which elapsed time that answer holds."""

    end: Millis
    until: Millis


class Runtime:
    """The distribution of one run's length; `limit` is enforced, so that no run lasts longer."""

    __slots__ = ("_alpha", "_index", "_known", "_levels", "_logs", "_stair", "_times", "limit")

    def __init__(self, quantiles: Sequence[tuple[float, Millis]], limit: Millis | None = None) -> None:
        """ValueError unless there are quantiles, levels rise strictly within (0, 1), and times do not fall."""
        levels = [level for level, _ in quantiles]
        if not levels:
            raise ValueError("quantiles: at least one is needed")
        if any(b <= a for a, b in zip([0.0, *levels], [*levels, 1.0], strict=True)):
            raise ValueError(f"quantiles: levels must rise strictly between 0 and 1, not {levels}")
        times = [max(TICK, time) for _, time in quantiles]
        if any(b < a for a, b in pairwise(times)):
            raise ValueError(f"quantiles: times must not fall, not {times}")
        self.limit = limit
        self._levels = [0.0, *levels]
        self._times = [times[0] * _SHORTEST, *times]
        self._logs = [log(time) for time in self._times]
        self._alpha = self._tail()
        self._index = 0.0  #: 0 = not computed yet
        #: quantiles computed before
        self._known: dict[float, Millis] = {}
        #: the step computed last, by level: where it begins, and the estimate there
        self._stair: dict[float, tuple[Millis, Estimate]] = {}

    @classmethod
    def of(cls, forecast: RuntimeForecast | None, limit: Millis | None, flavors: Iterable[str] = ()) -> Runtime | None:
        """The distribution of a run on these flavors, as slow as the slowest of them; a limit alone is a run of that length.

        None = nothing is known, the run may last for ever.
        """
        if forecast is not None and forecast.by_flavor:
            known = [forecast.by_flavor[flavor] for flavor in flavors if forecast.by_flavor.get(flavor)]
            if known:
                return max((cls(_made_valid(quantiles), limit) for quantiles in known), key=_median)
        if forecast is not None and forecast.quantiles:
            return cls(_made_valid(forecast.quantiles), limit)
        return None if limit is None else cls(((0.5, max(TICK, limit)),), limit)

    def _tail(self) -> float:
        """The exponent of the power law through the last two points."""
        a, b = self._levels[-2], self._levels[-1]
        rise = self._logs[-1] - self._logs[-2]
        if rise <= 0:
            return _TAIL_LIGHTEST
        return min(_TAIL_LIGHTEST, max(_TAIL_HEAVIEST, log((1 - a) / (1 - b)) / rise))

    def quantile(self, level: float) -> Millis:
        """The runtime that is not exceeded with this probability; never more than the limit."""
        known = self._known.get(level)
        if known is None:
            known = self._quantile(level)
            if len(self._known) < _KNOWN:
                self._known[level] = known
        return known

    def _quantile(self, level: float) -> Millis:
        levels, logs = self._levels, self._logs
        last = levels[-1]
        if level >= 1.0:
            time = NEVER
        elif level > last:
            time = _millis(logs[-1] + log((1 - last) / (1 - level)) / self._alpha)
        else:
            high = max(1, bisect_left(levels, level))
            share = (level - levels[high - 1]) / (levels[high] - levels[high - 1])
            time = _millis(logs[high - 1] + share * (logs[high] - logs[high - 1]))
        return time if self.limit is None else min(time, self.limit)

    def index(self) -> float:
        """The Gittins index of a run that has not begun, as a time: the time spent on such runs per completed run, if each is
        given up after some time t, and t is chosen best.

        The least of E[min(X, t)] / P(X <= t) (Aalto, Ayesta and Righter, "On the Gittins index in the M/G/1 queue", 2009), over
        the points of the forecast. On one server, serving the least index first has the least mean wait where runs may be
        stopped at any time.
        """
        if not self._index:
            self._index = min(self._spent_per_end())
        return self._index if self.limit is None else min(self._index, self.limit)

    def _spent_per_end(self) -> Iterator[float]:
        """A value for each point: the mean time that runs take until then, divided by the share of runs that end by then."""
        ended = 0.0  # time taken by the runs that have ended, over all runs
        points = zip(self._times, self._levels, strict=True)
        for (before, below), (time, level) in pairwise(points):
            # the mean of times whose logarithm is uniformly distributed
            mean = (time - before) / log(time / before) if time > before else time
            ended += (level - below) * mean
            yield (ended + (1 - level) * time) / level

    def level(self, elapsed: Millis) -> float:
        """The probability that a run has ended by `elapsed`, by the forecast alone."""
        if elapsed <= self._times[0]:
            return 0.0
        at, levels, logs = log(elapsed), self._levels, self._logs
        if at >= logs[-1]:
            return 1 - (1 - levels[-1]) * exp(-self._alpha * (at - logs[-1]))
        high = bisect_right(logs, at)
        return levels[high - 1] + (levels[high] - levels[high - 1]) * (at - logs[high - 1]) / (
            logs[high] - logs[high - 1]
        )

    def total(self, elapsed: Millis, p: float) -> Millis:
        """The total length of a run that has lasted `elapsed`, at level `p`: later than `elapsed`, unless the limit has
        passed.
        """
        found = max(elapsed + _ahead(elapsed), self._given(elapsed, p))
        return found if self.limit is None else min(found, max(self.limit, elapsed + TICK))

    def _given(self, elapsed: Millis, p: float) -> Millis:
        """The quantile among runs that last longer than `elapsed`."""
        if p < 1.0 and elapsed >= self._times[-1]:
            # a power law is scale-free; computed by levels, which get too close to 1, the result would lose all digits
            return _millis(log(elapsed) - log(1 - p) / self._alpha)
        u = self.level(elapsed)
        return self.quantile(u + p * (1 - u))

    def estimate(self, elapsed: Millis, p: float) -> Estimate:
        """The step of the staircase for a run that has lasted `elapsed`."""
        at, stair = self._stair.get(p, _NO_STAIR)
        if at > elapsed or stair.until == 0:
            at, stair = 0, self._step(0, p)
        while stair.until <= elapsed:
            if self.limit is not None and stair.until >= self.limit:
                return Estimate(elapsed + TICK, elapsed + TICK)
            at = max(stair.until, at + TICK)
            stair = self._step(at, p)
        self._stair[p] = at, stair
        return stair

    def _step(self, at: Millis, p: float) -> Estimate:
        """The step that begins at an elapsed time of `at`."""
        end = self.total(at, p)
        return Estimate(end, min(end, self._next_point(at)))

    def _next_point(self, elapsed: Millis) -> Millis:
        """The forecast's next point after `elapsed`; beyond the last one, the next of a geometric series."""
        times = self._times
        if elapsed < times[-1]:
            for time in times[1:]:
                if time > elapsed:
                    return round(time)
        step = times[-1] * _STEP
        while step <= elapsed:
            step *= _STEP
        return round(step) + 1


def of_the_rest(forecast: RuntimeForecast, ran: Millis, saved: Millis) -> RuntimeForecast:
    """The forecast of a workload that was stopped after it had run for `ran`, of which `saved` is not to be done again."""

    def rest(quantiles: Sequence[tuple[float, Millis]]) -> tuple[tuple[float, Millis], ...]:
        runtime = Runtime(_made_valid(quantiles))
        return tuple((level, runtime.total(ran, level) - saved) for level, _ in quantiles)

    by_flavor = {flavor: rest(quantiles) for flavor, quantiles in forecast.by_flavor.items()}
    return replace(forecast, quantiles=rest(forecast.quantiles), by_flavor=by_flavor)


_NO_STAIR = 0, Estimate(0, 0)


def _median(runtime: Runtime) -> Millis:
    return runtime.quantile(0.5)


def _ahead(elapsed: Millis) -> Millis:
    """The least distance of an estimate: a hundredth of the elapsed time, so that there are never many steps."""
    return max(TICK, elapsed // 100)


def _millis(logarithm: float) -> Millis:
    return NEVER if logarithm > 42.0 else round(exp(logarithm))


def _made_valid(quantiles: Sequence[tuple[float, Millis]]) -> list[tuple[float, Millis]]:
    """Quantiles made valid, since forecasts are facts from outside: levels sorted, levels out of range dropped, falling times
    raised.
    """
    cleaned: list[tuple[float, Millis]] = []
    for level, time in sorted(set(quantiles)):
        if not 0.0 < level < 1.0:
            continue
        longest = max(cleaned[-1][1] if cleaned else TICK, time)
        if cleaned and cleaned[-1][0] == level:
            cleaned.pop()
        cleaned.append((level, longest))
    return cleaned or [(0.5, TICK)]
