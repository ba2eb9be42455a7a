"""Residuals of the latest runs' forecasts: the arithmetic of `calibration`."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

from gangline.forecast.history.runs import StartedRun
from gangline.forecast.quantiles import LEVELS

Floats = NDArray[np.float64]

HALF_LIFE: Final = 86400.0  # seconds after which a run's weight is halved
_WINDOW: Final = 8  # length of the window in half-lives
_MAX_HALF_LIFE: Final = 16 * 86400.0
_ENOUGH: Final = 200.0  # effective runs: with fewer, the half-life is doubled
_PRIOR: Final = 20.0  # weight of a zero correction, in effective runs
_GROUP_PRIOR: Final = 1000.0  # weight of the overall correction in a group's, in effective runs
_MAX_WEIGHT: Final = 20.0
_MANY: Final = (
    1000  # number of values from which on a sample brackets the quantile, so that only values in the bracket are sorted
)
_EVERY: Final = 16  # sampling interval
_UPPER: Final = [number for number, level in enumerate(LEVELS) if level > 0.5]
_TENANT_HALF_LIFE: Final = 4 * 86400.0
_TENANT_PRIOR: Final = 20.0  # weight of the overall correction in a tenant's widening, in effective runs
_FEW: Final = 10  # a tenant with fewer runs is not corrected apart
_AROUND: Final = 0.08  # half-width of the bracket, as a share of the total weight


def censoring_weights(at_risk: Floats, decay: Floats, durations: Floats) -> Floats:
    """A weight per duration: one over the share (weighted by `decay`) of runs that have been at risk for at least that long."""
    order = np.argsort(at_risk, kind="stable")
    beyond = np.append(np.cumsum(decay[order][::-1])[::-1], 0.0) / decay.sum()
    share = beyond[np.searchsorted(at_risk[order], durations, side="left")]
    return np.minimum(1.0 / np.maximum(share, 1e-9), _MAX_WEIGHT)


def weighted_quantile(values: Floats, weights: Floats, level: float) -> float:
    """The smallest value with at least `level` of the total weight at or below it.

    With many values, only those in a bracket from a sample are sorted, if the answer lies in the bracket.
    """
    goal = level * float(weights.sum())
    if len(values) >= _MANY:
        sample, weight = values[::_EVERY], weights[::_EVERY]
        low, high = (_answer(sample, weight, (level + d) * weight.sum()) for d in (-_AROUND, _AROUND))
        below, inside = values < low, (values >= low) & (values <= high)
        lighter = float(weights[below].sum())
        if lighter < goal <= lighter + float(weights[inside].sum()):
            return _answer(values[inside], weights[inside], goal - lighter)
    return _answer(values, weights, goal)


def _answer(values: Floats, weights: Floats, goal: float) -> float:
    """The smallest value whose cumulative weight reaches `goal`, clamped to the first and last value."""
    order = np.argsort(values)  # no stable sort needed: only the value counts
    place = int(np.searchsorted(np.cumsum(weights[order]), goal))
    return float(values[order[min(len(values) - 1, place)]])


@dataclass(frozen=True, slots=True)
class StartedRuns:
    """Runs that have started, one row per run."""

    age: Floats  #: seconds since its start
    done: NDArray[np.bool_]  #: whether it has finished
    target: Floats  #: log seconds, if so
    logs: Floats  #: forecasts, one column per level

    def of(self, rows: NDArray[np.intp]) -> StartedRuns:
        return StartedRuns(self.age[rows], self.done[rows], self.target[rows], self.logs[rows])


class Corrections:
    """Shifts as of one instant; a group's shifts are computed on first use.

    The upper ones are never below those that the runs of its queue alone call for: who promises by them must not be wrong about
    one tenant for the sake of an average over all.
    """

    def __init__(
        self,
        evidence: StartedRuns,
        groups: NDArray[np.int32],
        codes: Mapping[str, int],
        queues: Mapping[str, list[int]],
    ) -> None:
        """`codes`: the code of each group; `queues`: the codes of the groups of each queue."""
        self._evidence = evidence
        self._groups = groups
        self._codes = codes
        self._queues = queues
        self._least: dict[str, Floats | None] = {}
        #: the effective number of runs that counted
        self._usual, self.effective = shifts(evidence, np.zeros(len(LEVELS)), _PRIOR)
        self._known: dict[str, Floats] = {"": self._usual}

    def of(self, group: str) -> Floats:
        """The shifts of a group; those of all runs for "" and for an unknown group."""
        found = self._known.get(group)
        if found is None:
            rows = np.flatnonzero(self._groups == self._codes.get(group, -1))
            found = shifts(self._evidence.of(rows), self._usual, _GROUP_PRIOR)[0] if rows.size else self._usual
            least = self._of_queue(_queue_of(group))
            if least is not None:
                found = found.copy()
                found[_UPPER] = np.maximum(found[_UPPER], least[_UPPER])
            self._known[group] = found
        return found

    def _of_queue(self, queue: str) -> Floats | None:
        """The least shifts of a queue's runs; None if there are too few to tell, or so many that they are the usual ones."""
        if queue not in self._least:
            rows = np.flatnonzero(np.isin(self._groups, self._queues.get(queue, ())))
            apart = queue and _FEW <= rows.size <= self._groups.size / 2
            self._least[queue] = widening(self._evidence.of(rows), self._usual) if apart else None
        return self._least[queue]


class LatestRuns:
    """Ring buffer of the latest runs, by column. Runs are numbered in order; a run's row is its number modulo the length."""

    def __init__(self, length: int) -> None:
        self._length = length
        self._number = 0
        self._start = np.full(length, math.nan)
        self._finish = np.full(length, math.nan)
        self._target = np.full(length, math.nan)
        self._logs = np.full((length, len(LEVELS)), math.nan)
        self._group = np.zeros(length, dtype=np.int32)
        self._codes: dict[str, int] = {}
        self._queues: dict[str, list[int]] = {}  # … of the groups of each queue

    def __len__(self) -> int:
        return min(self._number, self._length)

    def append(self, record: StartedRun) -> int:
        """Add a run. Returns its number."""
        row = self._number % self._length
        self._start[row], self._finish[row], self._target[row] = record.start, record.finish, record.target
        self._logs[row] = record.logs
        self._group[row] = self._code(record.group)
        self._number += 1
        return self._number - 1

    def _code(self, group: str) -> int:
        code = self._codes.get(group)
        if code is None:
            code = self._codes[group] = len(self._codes)
            self._queues.setdefault(_queue_of(group), []).append(code)
        return code

    def finish(self, number: int, at: float, target: float) -> None:
        """The run ended after exp(`target`) seconds."""
        if number >= self._number - self._length:
            self._finish[number % self._length], self._target[number % self._length] = at, target

    def strike(self, number: int) -> None:
        """Exclude the run from calibration."""
        if number >= self._number - self._length:
            self._start[number % self._length] = math.nan

    def corrections(self, now: float) -> Corrections:
        """The corrections from the runs that had started by `now`."""
        rows = np.arange(max(0, self._number - self._length), self._number) % self._length
        start = self._start[rows]
        rows = rows[(now - _WINDOW * _MAX_HALF_LIFE <= start) & (start <= now)]
        evidence = StartedRuns(now - self._start[rows], self._finish[rows] <= now, self._target[rows], self._logs[rows])
        return Corrections(evidence, self._group[rows], self._codes, self._queues)


def _queue_of(group: str) -> str:
    return group.rpartition("/")[0]


def shifts(evidence: StartedRuns, usual: Floats, prior: float) -> tuple[Floats, float]:
    """The shift that gives each column of logs its nominal coverage, with few runs shrunk towards `usual`; and the effective
    number of runs.
    """
    half_life = HALF_LIFE
    while True:
        recent = evidence.age <= _WINDOW * half_life
        kept = recent & evidence.done
        last = half_life >= _MAX_HALF_LIFE
        if kept.any():
            weights = _weights(evidence.age, recent, kept, evidence.target, half_life)
            effective = float(weights.sum() ** 2 / (weights**2).sum())
            if last or effective >= _ENOUGH:
                residuals = evidence.target[kept][:, None] - evidence.logs[kept]
                found = [weighted_quantile(residuals[:, i], weights, level) for i, level in enumerate(LEVELS)]
                trust = effective / (effective + prior)
                return trust * np.array(found) + (1 - trust) * usual, effective
        elif last:
            return usual, 0.0
        half_life *= 2


def widening(evidence: StartedRuns, usual: Floats) -> Floats | None:
    """The shifts that give a tenant's quantiles their nominal coverage on its own runs; None if too few have come out.

    A run that outlives its q90 has come out in so far as it is longer: it counts by the time that it has run. The level is a
    little higher than nominal where there are few runs, as split-conformal prediction has it.
    """
    ran = np.log(np.maximum(evidence.age, 1.0))
    beyond = ~evidence.done & (ran > evidence.logs[:, _UPPER[1]] + usual[_UPPER[1]])
    target = np.where(beyond, ran, evidence.target)
    recent = evidence.age <= _WINDOW * _TENANT_HALF_LIFE
    kept = recent & (evidence.done | beyond)
    if np.count_nonzero(kept) < _FEW:
        return None
    weights = _weights(evidence.age, recent, kept, target, _TENANT_HALF_LIFE)
    effective = float(weights.sum() ** 2 / (weights**2).sum())
    residuals = target[kept][:, None] - evidence.logs[kept]
    levels = [min(1.0, level * (1 + 1 / effective)) for level in LEVELS]
    found = [weighted_quantile(residuals[:, i], weights, level) for i, level in enumerate(levels)]
    trust = effective / (effective + _TENANT_PRIOR)
    return trust * np.array(found) + (1 - trust) * usual


def _weights(
    age: Floats, recent: NDArray[np.bool_], kept: NDArray[np.bool_], target: Floats, half_life: float
) -> Floats:
    decay = 0.5 ** (age[recent] / half_life)
    durations = np.minimum(np.exp(target[kept]), age[kept])
    return 0.5 ** (age[kept] / half_life) * censoring_weights(age[recent], decay, durations)
