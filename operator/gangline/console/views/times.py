"""Forecast runtimes and expected starts of workloads, from a local simulation with the cluster's engine."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from gangline.console.views.snapshot import Snapshot, WorkloadView, snapshot
from gangline.console.views.table import age
from gangline.console.views.world import ClusterFacts
from gangline.control.forecasting.runtime_facts import fact
from gangline.engine import ExpectedStart, Outlook, Runtime
from gangline.engine.model import Admission, Workload
from gangline.forecast import LEVELS, Forecast
from gangline.kube import resources as kube


@dataclass(frozen=True, slots=True)
class Times:
    """Forecast and expected start of one workload; instants in seconds since the epoch, durations in seconds."""

    forecast: Forecast | None = None  # of the total runtime; for a running workload conditional on its elapsed runtime
    elapsed: float | None = None  # seconds since its start
    start: float | None = None  # p50 of the start
    latest: float | None = None  # p90 of the start
    because: str = ""
    flavor: str = ""  # flavor of the forecast; "" if it makes no difference or is not known


def view_of(here: ClusterFacts) -> Snapshot:
    """The cluster as the snapshot that other commands show."""
    objects = here.mirror.objects
    return snapshot(
        objects[kube.WORKLOADS].values(), objects[kube.CLUSTER_QUEUES].values(), objects[kube.LOCAL_QUEUES].values()
    )


def key_of(view: WorkloadView) -> str:
    return f"{view.namespace}/{view.name}"


def times(here: ClusterFacts, seen: Outlook, views: Iterable[WorkloadView]) -> dict[str, Times]:
    """Times by the UID of the workload."""
    views = list(views)
    jobs = {key_of(view): view.job_name for view in views}
    admissions = admissions_of(seen)
    return {
        view.uid: _times(here, seen.starts.get(key_of(view)), admissions.get(key_of(view)), view, jobs)
        for view in views
    }


def admissions_of(seen: Outlook) -> dict[str, Admission]:
    """The admission of each workload's first run in the outlook, by the workload's key."""
    return {stretch.workload: stretch.admission for stretch in reversed(seen.stretches)}


def _times(
    here: ClusterFacts,
    start: ExpectedStart | None,
    admission: Admission | None,
    view: WorkloadView,
    jobs: Mapping[str, str],
) -> Times:
    value = here.mirror.workload_value(key_of(view))
    if value is not None and value.admission is not None:
        admission = value.admission
    forecast, flavor = here.expected(key_of(view), admission)
    if value is not None and value.admitted and not value.finished:
        elapsed = max(0.0, (here.now - value.admitted_at) / 1000)
        return Times(_given(value, forecast, elapsed) if forecast is not None else None, elapsed, flavor=flavor)
    if start is None:
        return Times(forecast, flavor=flavor)
    latest = start.p90 / 1000 if start.p90 is not None else None
    return Times(forecast, None, start.p50 / 1000, latest, named(start.because, jobs), flavor)


def _given(value: Workload, forecast: Forecast, elapsed: float) -> Forecast:
    """The forecast conditional on the elapsed runtime, computed as the engine does for its decisions."""
    limit = value.max_execution_seconds
    left = None if limit is None else max(0, limit - value.past_execution_seconds) * 1000
    runtime = Runtime.of(fact(value.key, forecast), left)
    if runtime is None:
        return forecast
    totals = (runtime.total(round(elapsed * 1000), level) / 1000 for level in LEVELS)
    return Forecast(*totals, source=forecast.source, samples=forecast.samples)


def named(because: str, jobs: Mapping[str, str]) -> str:
    """The text with the names of jobs in place of the keys of their Workloads."""
    for key in sorted(jobs, key=len, reverse=True):
        because = because.replace(key, jobs[key])
    return because


def start_text(known: Times, now: float) -> str:
    """`12m – 1h5m`, or `now`, or `?` if no start is expected within the horizon."""
    if known.start is None:
        return "?"
    first, last = known.start - now, known.latest - now if known.latest is not None else None
    if last is not None and last < 1:
        return "now"
    return f"{age(first)} – {'?' if last is None else age(last)}"


def runtime_text(forecast: Forecast | None, flavor: str = "") -> str:
    """`p50 – p90`, with the flavor if it makes a difference."""
    if forecast is None:
        return ""
    return f"{age(forecast.q50)} – {age(forecast.q90)}{f' on {flavor}' if flavor else ''}"


def as_json(view: WorkloadView, known: Times) -> dict[str, Any]:
    """The times as JSON, for scripts: instants in Unix seconds, null if unknown."""
    forecast = known.forecast
    return {
        "namespace": view.namespace,
        "name": view.job_name,
        "kind": view.job_kind,
        "workload": view.name,
        "clusterQueue": view.cluster_queue,
        "state": str(view.state),
        "elapsedSeconds": known.elapsed,
        "expectedStart": None if known.start is None else {"p50": known.start, "p90": known.latest},
        "because": known.because,
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
