"""Forecast runtimes and expected starts of workloads, as values and as JSON."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from gangline.control.answers.sight import Sight
from gangline.control.answers.source import Source
from gangline.control.forecasting.runtime_facts import fact
from gangline.engine import ExpectedStart, Outlook, Runtime
from gangline.engine.model import Admission, Workload
from gangline.forecast.quantiles import LEVELS, Forecast


@dataclass(frozen=True, slots=True)
class Times:
    """Forecast and expected start of one workload; instants in seconds since the epoch, durations in seconds."""

    forecast: Forecast | None = None  # of the total runtime; for a running workload conditional on its elapsed runtime
    elapsed: float | None = None  # seconds since its start
    start: float | None = None  # p50 of the start
    latest: float | None = None  # p90 of the start
    because: str = ""
    flavor: str = ""  # flavor of the forecast; "" if it makes no difference or is not known
    record: Mapping[str, Any] | None = None  # how starts of its ClusterQueue have come true; None: there were none


def times(
    source: Source,
    seen: Outlook,
    admissions: Mapping[str, Admission],
    keys: Iterable[str],
    sight: Sight,
    jobs: Mapping[str, str],
) -> dict[str, Times]:
    """Times by the key of the workload. `admissions`: those of the outlook; `jobs`: names of jobs by the keys of their Workloads,
    for texts.
    """
    found = {key: times_of(source, seen.starts.get(key), admissions.get(key), key) for key in keys}
    return {key: replace(each, because=sight.text(each.because, jobs)) for key, each in found.items()}


def admissions_of(seen: Outlook, wanted: frozenset[str]) -> dict[str, Admission]:
    """The admission of each wanted workload's first run in the outlook, by the workload's key."""
    return {each.workload: each.admission for each in reversed(seen.stretches) if each.workload in wanted}


def times_of(source: Source, start: ExpectedStart | None, admission: Admission | None, key: str) -> Times:
    """The times of one workload; `because` names other workloads by their keys."""
    value = source.mirror.workload_value(key)
    if value is not None and value.admission is not None:
        admission = value.admission
    forecast, flavor = source.expected(key, admission)
    if value is not None and value.admitted and not value.finished:
        elapsed = max(0.0, (source.now() - value.admitted_at) / 1000)
        return Times(given(value, forecast, elapsed) if forecast is not None else None, elapsed, flavor=flavor)
    if start is None:
        return Times(forecast, flavor=flavor)
    latest = start.p90 / 1000 if start.p90 is not None else None
    return Times(forecast, None, start.p50 / 1000, latest, start.because, flavor)


def given(value: Workload, forecast: Forecast, elapsed: float) -> Forecast:
    """The forecast conditional on the elapsed runtime, computed as the engine does for its decisions."""
    limit = value.max_execution_seconds
    left = None if limit is None else max(0, limit - value.past_execution_seconds) * 1000
    runtime = Runtime.of(fact(value.key, forecast), left)
    if runtime is None:
        return forecast
    totals = (runtime.total(round(elapsed * 1000), level) / 1000 for level in LEVELS)
    return Forecast(*totals, source=forecast.source, samples=forecast.samples)


def expected_end(source: Source, key: str) -> tuple[float, float] | None:
    """p50 and p90 of the end of a running workload; None if it does not run or has no forecast."""
    value = source.mirror.workload_value(key)
    if value is None or not value.admitted or value.finished:
        return None
    forecast, _ = source.expected(key, value.admission)
    if forecast is None:
        return None
    began = value.admitted_at / 1000
    total = given(value, forecast, max(0.0, source.now() / 1000 - began))
    return began + total.q50, began + total.q90


def as_json(known: Times) -> dict[str, Any]:
    """The times of an item, null if unknown: instants in Unix seconds."""
    forecast = known.forecast
    return {
        "elapsedSeconds": known.elapsed,
        "expectedStart": None if known.start is None else {"p50": known.start, "p90": known.latest},
        "because": known.because,
        "record": known.record,
        "forecast": None
        if forecast is None
        else {
            "p50": forecast.q50,
            "p90": forecast.q90,
            "source": forecast.source,
            "samples": forecast.samples,
            "flavor": known.flavor or None,
        },
    }
