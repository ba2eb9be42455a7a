"""`gangline eta`: when those who wait will start, and how right that has been so far."""

from __future__ import annotations

import json
import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import click

from gangline.console.commands.why import find
from gangline.console.views import access, reach, table, world
from gangline.console.views.snapshot import Snapshot, State, WorkloadView, snapshot
from gangline.console.views.table import Rows, age
from gangline.console.views.world import World
from gangline.control.forecasting.runtime_facts import fact
from gangline.engine.model import Admission, Workload
from gangline.engine.model.runtime import Runtime
from gangline.engine.simulation import ExpectedStart, Outlook
from gangline.forecast import LEVELS, Forecast
from gangline.kube import resources as kube


@dataclass(frozen=True, slots=True)
class Times:
    """What is known of one workload's time, in seconds since the epoch and seconds."""

    forecast: Forecast | None = None  # of the whole run; of a running one, given that it runs for as long as it does
    elapsed: float | None = None  # since its start
    start: float | None = None  # it starts as likely before as after this
    latest: float | None = None  # … and before this with a chance of nine in ten
    because: str = ""
    flavor: str = ""  # for which the forecast is; "" where it makes no difference or is not known


@click.command("eta")
@click.argument("job", metavar="[JOB]", required=False)
@access.cluster_options
@click.option("-A", "--all-namespaces", is_flag=True, help="Workloads of all namespaces.")
@click.option("--accuracy", is_flag=True, help="How right the operator's forecasts and expected starts have been.")
@click.option("-o", "--output", type=click.Choice(["json"]), default=None)
def command(
    job: str | None,
    kubeconfig: Path | None,
    context: str | None,
    namespace: str | None,
    all_namespaces: bool,
    accuracy: bool,
    output: str | None,
) -> None:
    """Say when JOB, or everybody who waits, will start: as likely as not before the first time, nine times in ten before
    the second.

    The cluster is read and the operator's own rules are played forward here, with its forecasts where it can be reached.
    """
    if accuracy:
        _show_accuracy(access.run(_accuracy(kubeconfig, context)), output)
        return
    seen, here, views = access.run(_look(kubeconfig, context, namespace, all_namespaces, job))
    waiting = [view for view in views if view.state is State.PENDING]
    wanted = frozenset(map(key_of, waiting)) if job else None
    ahead = here.outlook(wanted) if waiting else Outlook(here.now, {}, (), 0)
    found = times(here, ahead, seen.workloads)
    if output == "json":
        click.echo(json.dumps([as_json(view, found.get(view.uid, Times())) for view in views], indent=2))
        return
    if not views:
        click.echo("Nobody waits.", err=True)
        return
    show(views, found, here.now / 1000)
    click.echo(f"({_source(here)})", err=True)


async def _look(
    kubeconfig: Path | None, context: str | None, namespace: str | None, everywhere: bool, job: str | None
) -> tuple[Snapshot, World, list[WorkloadView]]:
    async with access.client(kubeconfig, context) as api:
        where = namespace or api.login.namespace
        here = await world.load(api)
    seen = view_of(here)
    if job is None:
        waiting = [v for v in seen.workloads if v.state is State.PENDING and (everywhere or v.namespace == where)]
        return seen, here, waiting
    found = find(seen, where, job)
    if found is None:
        raise click.ClickException(f"no job {job!r} in namespace {where}")
    return seen, here, [found]


def view_of(here: World) -> Snapshot:
    """The same cluster as every other command shows it."""
    objects = here.mirror.objects
    return snapshot(
        objects[kube.WORKLOADS].values(), objects[kube.CLUSTER_QUEUES].values(), objects[kube.LOCAL_QUEUES].values()
    )


def key_of(view: WorkloadView) -> str:
    return f"{view.namespace}/{view.name}"


def times(here: World, seen: Outlook, views: Iterable[WorkloadView]) -> dict[str, Times]:
    """By the UID of the workload."""
    views = list(views)
    jobs = {key_of(view): view.job_name for view in views}
    admissions = admissions_of(seen)
    return {
        view.uid: _times(here, seen.starts.get(key_of(view)), admissions.get(key_of(view)), view, jobs)
        for view in views
    }


def admissions_of(seen: Outlook) -> dict[str, Admission]:
    """As what each workload will start next, by its key; those that run already are as they were admitted."""
    return {stretch.workload: stretch.admission for stretch in reversed(seen.stretches)}


def _times(
    here: World,
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
    """Given that it runs for as long as it does: by the engine's own arithmetic, so that what is shown is what is decided on."""
    limit = value.max_execution_seconds
    left = None if limit is None else max(0, limit - value.past_execution_seconds) * 1000
    runtime = Runtime.of(fact(value.key, forecast), left)
    if runtime is None:
        return forecast
    totals = (runtime.total(round(elapsed * 1000), level) / 1000 for level in LEVELS)
    return Forecast(*totals, source=forecast.source, samples=forecast.samples)


def named(because: str, jobs: Mapping[str, str]) -> str:
    """Jobs instead of Workloads."""
    for key in sorted(jobs, key=len, reverse=True):
        because = because.replace(key, jobs[key])
    return because


# --- showing ------------------------------------------------------------------------------------------------------------


def show(views: list[WorkloadView], found: Mapping[str, Times], now: float) -> None:
    rows = _rows(views, found, now)
    table.echo(rows)


def _rows(views: list[WorkloadView], found: Mapping[str, Times], now: float) -> Rows:
    header = ("NAMESPACE", "NAME", "QUEUE", "GPUS", "WAITED", "STARTS IN", "AT", "RUNS FOR", "BECAUSE")
    cells: list[tuple[str, ...]] = []
    for view in sorted(views, key=lambda v: (found.get(v.uid, Times()).start or float("inf"), v.created)):
        known = found.get(view.uid, Times())
        cells.append(
            (
                view.namespace,
                view.job_name,
                view.cluster_queue or f"{view.queue}?",
                str(view.gpus) if view.gpus else "–",
                age(now - view.created),
                start_text(known, now),
                _clock(known, now),
                runtime_text(known.forecast, known.flavor),
                _why(view, known),
            )
        )
    return Rows(header, tuple(cells), (), frozenset({"GPUS", "WAITED"}))


def start_text(known: Times, now: float) -> str:
    """`12m – 1h5m`, or `now`, or `?` where no start is in sight."""
    if known.start is None:
        return "?"
    first, last = known.start - now, known.latest - now if known.latest is not None else None
    if last is not None and last < 1:
        return "now"
    return f"{age(first)} – {'?' if last is None else age(last)}"


def runtime_text(forecast: Forecast | None, flavor: str = "") -> str:
    """`p50 – p90`, and on which flavor where that makes a difference."""
    if forecast is None:
        return ""
    return f"{age(forecast.q50)} – {age(forecast.q90)}{f' on {flavor}' if flavor else ''}"


def _clock(known: Times, now: float) -> str:
    if known.start is None:
        return ""
    at = time.localtime(known.start)
    return time.strftime("%H:%M" if known.start - now < 86400 else "%a %H:%M" if known.start - now < 6e5 else "%F", at)


def _why(view: WorkloadView, known: Times) -> str:
    if view.state is not State.PENDING:
        return f"it is {view.state.lower()}"
    if known.start is None:
        return table.why(view) or "no start is in sight"
    return known.because


def _source(here: World) -> str:
    if here.from_operator:
        return "with the operator's forecasts"
    return "the operator could not be asked: forecasts are made here, from what has finished and what jobs say"


def as_json(view: WorkloadView, known: Times) -> dict[str, Any]:
    """For scripts: times as Unix seconds, null where nothing is known."""
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


# --- accuracy -----------------------------------------------------------------------------------------------------------


async def _accuracy(kubeconfig: Path | None, context: str | None) -> dict[str, Any]:
    async with access.client(kubeconfig, context) as api:
        told = await reach.ask(api, "/accuracy")
    if told is None:
        raise click.ClickException(
            "only the running operator knows how right it was, and it can't be reached from here"
        )
    return told


def _show_accuracy(told: Mapping[str, Any], output: str | None) -> None:
    if output == "json":
        click.echo(json.dumps({key: value for key, value in told.items() if key != "cluster"}, indent=2))
        return
    runtimes, starts = told.get("runtimes") or [], told.get("starts") or {}
    click.echo(told.get("model", {}).get("reason", ""))
    if runtimes:
        header = ("RUNTIME FORECAST BY", "RUNS", "WITHIN P50", "WITHIN P90", "TYPICAL FACTOR")
        cells = tuple(
            (
                row["source"],
                str(row["runs"]),
                f"{row['within']['0.5']:.0%}",
                f"{row['within']['0.9']:.0%}",
                f"{row['factor']:.2f}×",
            )
            for row in runtimes
        )
        click.echo(f"\n{table.plain(Rows(header, cells, (), frozenset(header[1:])))}")
    if starts.get("starts"):
        click.echo(
            f"\n{starts['starts']} expected starts came true or not: {starts['withinP50']:.0%} before their p50, "
            f"{starts['withinP90']:.0%} before their p90; off by {age(starts['medianErrorSeconds'])} in the median"
        )
    if not runtimes and not starts.get("starts"):
        click.echo("nothing that was forecast has come true yet")
    elif told.get("since"):
        click.echo(f"\ncounted since {time.strftime('%Y-%m-%d %H:%M', time.localtime(told['since']))}")
