"""How far forecasts of the latest runs were off: the arithmetic behind `calibration`."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import numpy as np
from numpy.typing import NDArray

from gangline.forecast.quantiles import LEVELS

if TYPE_CHECKING:
    from gangline.forecast.calibration import Record

Floats = NDArray[np.float64]

HALF_LIFE: Final = 86400.0  # seconds after which a run counts half
_WINDOW: Final = 8  # half-lives that are looked back on
_MAX_HALF_LIFE: Final = 16 * 86400.0
_ENOUGH: Final = 200.0  # effective runs: below, the half-life is doubled
_PRIOR: Final = 20.0  # effective runs that speak for no correction
_GROUP_PRIOR: Final = 1000.0  # effective runs that speak for a group being like all others
_MAX_WEIGHT: Final = 20.0


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


@dataclass(frozen=True, slots=True)
class Evidence:
    """Runs that have started: one row each."""

    age: Floats  #: seconds since its start
    done: NDArray[np.bool_]  #: whether it has finished
    target: Floats  #: log seconds, if so
    logs: Floats  #: what was forecast, one column per level

    def of(self, rows: Sequence[int]) -> Evidence:
        return Evidence(self.age[rows], self.done[rows], self.target[rows], self.logs[rows])


def corrections(records: Iterable[Record], now: float) -> dict[str, Floats]:
    """Shifts by group, as of `now`; "" stands for all together."""
    records = [r for r in records if now - _WINDOW * _MAX_HALF_LIFE <= r.start <= now]
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
