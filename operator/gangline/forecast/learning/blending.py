"""Blends the model's quantiles with those of the last runs that are alike.

A calibration group for which the blend is no better on held-out runs than the runs that are alike gets these alone.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

import numpy as np
from numpy.typing import NDArray

from gangline.forecast import metrics
from gangline.forecast.learning.shifts import weighted_quantile
from gangline.forecast.quantiles import LEVELS

Floats = NDArray[np.float64]

#: the share of the runs that are alike in a blend, and where they are alone
SHARE: Final = 0.3
ALONE: Final = 1.0
#: weight of the loss over all runs in that of a group, in runs: a small group is judged like all
_PRIOR: Final = 500.0


def blended(logs: Floats, alike: Floats, share: Floats | float) -> Floats:
    """Quantiles in log seconds: one row per run, one column per level, ascending as in `logs` and `alike`.

    `share`: of the runs that are alike, one for each row or one for all. A row without such runs (NaN) stays the model's.
    """
    part = np.where(np.isnan(alike), 0.0, np.broadcast_to(share, len(logs))[:, None])
    return (1.0 - part) * logs + part * np.nan_to_num(alike)


def share_of(shares: Mapping[str, float], group: str) -> float:
    """The share for a calibration group."""
    return shares.get(group, SHARE)


def chosen(
    logs: Floats, alike: Floats, target: Floats, weights: Floats, groups: NDArray[np.str_]
) -> Mapping[str, float]:
    """The shares of those groups that have another one than SHARE, by the pinball loss on held-out runs.

    `target`: the runtimes in log seconds; `weights`: of the runs. Each quantile is first shifted to its coverage over all these
    runs, since the forecaster does so, too. Runs without any that are alike do not count.
    """
    known = ~np.isnan(alike).any(axis=1)
    logs, alike, target, weights, groups = logs[known], alike[known], target[known], weights[known], groups[known]
    if not known.any():
        return {}
    more = _losses(alike, target, weights) - _losses(blended(logs, alike, SHARE), target, weights)
    usual = _PRIOR * more.sum() / weights.sum()
    return {name: ALONE for name in np.unique(groups).tolist() if more[groups == name].sum() + usual <= 0}


def _losses(logs: Floats, target: Floats, weights: Floats) -> Floats:
    """The weighted loss of each run, with each quantile shifted to its coverage over all."""
    left = target[:, None] - logs
    shift = [weighted_quantile(left[:, number], weights, level) for number, level in enumerate(LEVELS)]
    return metrics.losses(logs + np.array(shift), target).mean(axis=1) * weights
