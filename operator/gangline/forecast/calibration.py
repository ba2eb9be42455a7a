"""Split-conformal correction of quantiles: shift each so that it covers what it says of the latest runs.

Recent runs that have finished are the short ones. Each therefore stands for those that are as long but still run: its weight
is one over the share of recent runs that have had the time to take that long (inverse probability of censoring). Recent runs
count more than older ones, so that the correction follows a drift that the model has not been trained on.

Queues err each in its own way, but a queue's few latest runs say little of its next ones: a group's own correction counts as far
as there are runs to base it on. Small groups corrected on their own would cover less than they say.
"""

from __future__ import annotations

import math
from collections import defaultdict, deque
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

from gangline.forecast.quantiles import LEVELS

Floats = NDArray[np.float64]

HALF_LIFE: Final = 86400.0  # seconds after which a run counts half
_WINDOW: Final = 8  # half-lives that are looked back on
_MAX_HALF_LIFE: Final = 16 * 86400.0
_ENOUGH: Final = 200.0  # effective runs: below, the half-life is doubled
_PRIOR: Final = 20.0  # effective runs that speak for no correction
_GROUP_PRIOR: Final = 1000.0  # effective runs that speak for a group being like all others
_MAX_WEIGHT: Final = 20.0
_MAX_RUNS: Final = 8000
REFRESH: Final = 600.0  # seconds for which shifts are good


def group_of(queue: str, gpus: int) -> str:
    """The group that a run is calibrated with: its queue and whether it is small (one GPU), a node's, or larger."""
    return f"{queue}/{'1' if gpus <= 1 else '8' if gpus <= 8 else 'more'}"


def censoring_weights(at_risk: Floats, decay: Floats, durations: Floats) -> Floats:
    """One over the share (weighted by `decay`) of all runs that have been at risk for as long as each duration."""
    order = np.argsort(at_risk, kind="stable")
    beyond = np.append(np.cumsum(decay[order][::-1])[::-1], 0.0) / decay.sum()
    share = beyond[np.searchsorted(at_risk[order], durations, side="left")]
    return np.minimum(1.0 / np.maximum(share, 1e-9), _MAX_WEIGHT)


def weighted_quantile(values: Floats, weights: Floats, level: float) -> float:
    """The smallest value that `level` of all weight does not exceed."""
    order = np.argsort(values, kind="stable")
    cumulated = np.cumsum(weights[order])
    return float(values[order][min(len(values) - 1, int(np.searchsorted(cumulated, level * cumulated[-1])))])


@dataclass(slots=True)
class Record:
    """A run that has started: what was forecast for it (log seconds by level), and how long it took once that is known."""

    uid: str
    start: float
    logs: tuple[float, ...]
    finish: float = math.nan
    target: float = math.nan  #: log seconds
    group: str = ""  #: runs that may be wrong in a way of their own: a queue's of one size class


class Calibrator:
    """Keeps the shifts (in log seconds, one per level of LEVELS) that make the latest forecasts right."""

    def __init__(self) -> None:
        self._records: deque[Record] = deque(maxlen=_MAX_RUNS)
        self._running: dict[str, Record] = {}
        self._shifts: dict[str, Floats] = {}
        self._due = -math.inf

    def __len__(self) -> int:
        return len(self._records)

    def add(self, record: Record) -> None:
        """A run has started. Told twice, the first stays: it was forecast before it was known."""
        if record.uid in self._running:
            return
        self._records.append(record)
        if math.isnan(record.finish):
            self._running[record.uid] = record

    def finished(self, uid: str, at: float, target: float) -> None:
        record = self._running.pop(uid, None)
        if record is not None:
            record.finish, record.target = at, target

    def forget(self, uid: str) -> None:
        """It was stopped: how long it would have taken will not be known."""
        record = self._running.pop(uid, None)
        if record is not None:
            record.start = math.nan

    def shifts(self, now: float, group: str = "") -> Floats:
        """The correction as of `now`, at most REFRESH seconds old: of a group, or of all where the group is not known."""
        if not self._due - REFRESH <= now < self._due:
            self._due = now + REFRESH
            self._shifts = self._compute(now)
        found = self._shifts.get(group)
        return self._shifts[""] if found is None else found

    def _compute(self, now: float) -> dict[str, Floats]:
        records = [r for r in self._records if now - _WINDOW * _MAX_HALF_LIFE <= r.start <= now]
        evidence = Evidence(
            age=np.array([now - r.start for r in records]),
            done=np.array([r.finish <= now for r in records], dtype=bool),
            target=np.array([r.target for r in records]),
            logs=np.array([r.logs for r in records]).reshape(-1, len(LEVELS)),
        )
        overall = shifts(evidence, np.zeros(len(LEVELS)), _PRIOR)
        members: dict[str, list[int]] = defaultdict(list)
        for number, record in enumerate(records):
            members[record.group].append(number)
        groups = {name: shifts(evidence.of(rows), overall, _GROUP_PRIOR) for name, rows in members.items() if name}
        return {"": overall, **groups}


@dataclass(frozen=True, slots=True)
class Evidence:
    """Runs that have started: one row each."""

    age: Floats  #: seconds since its start
    done: NDArray[np.bool_]  #: whether it has finished
    target: Floats  #: log seconds, if so
    logs: Floats  #: what was forecast, one column per level

    def of(self, rows: Sequence[int]) -> Evidence:
        return Evidence(self.age[rows], self.done[rows], self.target[rows], self.logs[rows])


def shifts(evidence: Evidence, usual: Floats, prior: float) -> Floats:
    """How far each column of logs has to move to cover what it says; with few runs it stays near `usual`."""
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
                return trust * np.array(found) + (1 - trust) * usual
        elif last:
            return usual
        half_life *= 2


def _weights(
    age: Floats, recent: NDArray[np.bool_], kept: NDArray[np.bool_], target: Floats, half_life: float
) -> Floats:
    decay = 0.5 ** (age[recent] / half_life)
    durations = np.minimum(np.exp(target[kept]), age[kept])
    return 0.5 ** (age[kept] / half_life) * censoring_weights(age[recent], decay, durations)
