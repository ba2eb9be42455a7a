"""The calibration groups for which a model is no better on held-out runs than the last runs that are alike.

Forecasts of these groups are the quantiles of the runs that are alike.
"""

from __future__ import annotations

from typing import Final

import numpy as np
from numpy.typing import NDArray

from gangline.forecast import metrics
from gangline.forecast.learning.shifts import weighted_quantile
from gangline.forecast.quantiles import LEVELS

Floats = NDArray[np.float64]

#: weight of the loss over all runs in that of a group, in runs: a small group is judged like all
_PRIOR: Final = 500.0


def chosen(logs: Floats, alike: Floats, target: Floats, weights: Floats, groups: NDArray[np.str_]) -> frozenset[str]:
    """These groups, by the pinball loss on held-out runs.

    `logs` and `alike`: quantiles in log seconds of the model and of the runs that are alike, one row per run and one column per
    level; `target`: the runtimes in log seconds; `weights`: of the runs. Each quantile is first shifted to its coverage over all
    these runs, since the forecaster does so, too. Runs without any that are alike (NaN) do not count.
    """
    known = ~np.isnan(alike).any(axis=1)
    logs, alike, target, weights, groups = logs[known], alike[known], target[known], weights[known], groups[known]
    if not known.any():
        return frozenset()
    more = _losses(alike, target, weights) - _losses(logs, target, weights)
    usual = _PRIOR * more.sum() / weights.sum()
    return frozenset(name for name in np.unique(groups).tolist() if more[groups == name].sum() + usual <= 0)


def _losses(logs: Floats, target: Floats, weights: Floats) -> Floats:
    """The weighted loss of each run, with each quantile shifted to its coverage over all."""
    left = target[:, None] - logs
    shift = [weighted_quantile(left[:, number], weights, level) for number, level in enumerate(LEVELS)]
    return metrics.losses(logs + np.array(shift), target).mean(axis=1) * weights
