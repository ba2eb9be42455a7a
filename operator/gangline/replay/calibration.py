"""The accuracy of a replay's forecasts, as they were made at submission. Errors are of natural logarithms of seconds."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from gangline.forecast import metrics as scores
from gangline.forecast.quantiles import LEVELS
from gangline.replay.foresight import Foresight
from gangline.replay.replayed import ReplayedJob

Floats = NDArray[np.float64]

#: groups with fewer jobs are not judged: tenants are left out, sizes are shown
LEAST: Final = 200


def of(jobs: Sequence[ReplayedJob], believed: Foresight) -> dict[str, Any]:
    """Scores of all jobs with a forecast; empty without any."""
    forecasts, compared = believed.forecasts, believed.compared
    forecast_jobs = [job for job in jobs if job.number in forecasts]
    if not forecast_jobs:
        return {}
    actual = np.log(np.array([max(1.0, job.duration / 1000) for job in forecast_jobs]))
    logs = np.log(np.array([forecasts[job.number].values for job in forecast_jobs]))
    gpus = np.array([job.gpus for job in forecast_jobs])
    last_two = np.array([compared.get(job.number, math.nan) for job in forecast_jobs])
    alike = np.array([believed.alike.get(job.number, [math.nan] * len(LEVELS)) for job in forecast_jobs])
    found = _scores(logs, actual, last_two, alike, np.log(gpus))
    sizes = {"1": gpus == 1, "2-8": (gpus >= 2) & (gpus <= 8), ">8": gpus > 8}
    found["by_size"] = {
        name: _scores(logs[mask], actual[mask], last_two[mask], alike[mask], np.log(gpus[mask]))
        for name, mask in sizes.items()
        if mask.any()
    }
    tenants = np.array([job.tenant for job in forecast_jobs])
    names, counts = np.unique(tenants, return_counts=True)
    found["by_tenant"] = {
        str(name): _scores(*(part[tenants == name] for part in (logs, actual, last_two, alike, np.log(gpus))))
        for name, count in zip(names, counts, strict=True)
        if count >= LEAST and len(names) > 1
    }
    groups = {f"{size} GPUs": scores for size, scores in found["by_size"].items()} | found["by_tenant"]
    found["least_covered"] = least_covered(groups)
    sources: dict[str, int] = {}
    for job in forecast_jobs:
        source = str(forecasts[job.number].source)
        sources[source] = sources.get(source, 0) + 1
    return {**found, "sources": sources}


def least_covered(groups: Mapping[str, dict[str, Any]]) -> dict[str, Any] | None:
    """The group with the lowest coverage of its q90, of those with enough jobs."""
    judged = [
        (scores["coverage"]["q90"], name, scores["jobs"]) for name, scores in groups.items() if scores["jobs"] >= LEAST
    ]
    if not judged:
        return None
    covered, name, jobs = min(judged)
    return {"group": name, "jobs": jobs, "q90": covered}


def _scores(logs: Floats, actual: Floats, last_two: Floats, alike: Floats, log_gpus: Floats) -> dict[str, Any]:
    median = logs[:, LEVELS.index(0.5)]
    quantile, point = scores.quantiles(logs, actual), scores.point(median, actual)
    naive = scores.point(last_two, actual)
    assert point is not None  # there is a median for every job
    off = np.abs(np.expm1(median - actual))
    known = ~np.isnan(alike[:, 0])
    both = (
        [scores.quantiles(part[known], actual[known]).mean_pinball for part in (logs, alike)] if known.any() else None
    )
    return {
        "jobs": len(actual),
        "coverage": quantile.coverage,
        "pinball": quantile.pinball,
        "mean_pinball": quantile.mean_pinball,
        "alike_mean_pinball": both[1] if both else None,
        "gain_over_alike": _number(1 - both[0] / both[1]) if both and both[1] else None,
        "width": quantile.width,
        "mean_abs_log_error": point.error,
        "median_ape": float(np.median(off)),
        "within_two": point.within_two,
        "under": point.under,
        "spearman": _number(point.spearman),
        "spearman_gpu_time": _number(scores.spearman(median + log_gpus, actual + log_gpus)),
        "last_two_mean_abs_log_error": naive.error if naive else None,
        "last_two_spearman": _number(naive.spearman) if naive else None,
        "gain_over_last_two": _number(scores.gain(median, last_two, actual)),
    }


def _number(value: float) -> float | None:
    return value if math.isfinite(value) else None
