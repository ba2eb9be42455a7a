"""`gangline eta`: expected start times of pending workloads, and the accuracy of earlier forecasts."""

from __future__ import annotations

import json
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import click

from gangline.console.views import access, reach, table, world
from gangline.console.views.lookup import find
from gangline.console.views.snapshot import Snapshot, State, WorkloadView
from gangline.console.views.table import Rows, age
from gangline.console.views.times import Times, as_json, key_of, runtime_text, start_text, times, view_of
from gangline.console.views.world import ClusterFacts
from gangline.engine import Outlook


@click.command("eta")
@click.argument("job", metavar="[JOB]", required=False)
@access.cluster_options
@click.option("-A", "--all-namespaces", is_flag=True, help="Workloads of all namespaces.")
@click.option(
    "--accuracy", is_flag=True, help="Show how accurate the operator's forecasts and expected starts have been."
)
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
    """Show when JOB, or every pending job, is expected to start: the p50 and the p90 of the start time.

    The command reads the cluster and simulates the engine's decisions locally, with the operator's runtime forecasts if
    the operator can be reached.
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
        click.echo("No job is pending.", err=True)
        return
    show(views, found, here.now / 1000)
    click.echo(f"({_source(here)})", err=True)


async def _look(
    kubeconfig: Path | None, context: str | None, namespace: str | None, everywhere: bool, job: str | None
) -> tuple[Snapshot, ClusterFacts, list[WorkloadView]]:
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


def _clock(known: Times, now: float) -> str:
    if known.start is None:
        return ""
    at = time.localtime(known.start)
    return time.strftime("%H:%M" if known.start - now < 86400 else "%a %H:%M" if known.start - now < 6e5 else "%F", at)


def _why(view: WorkloadView, known: Times) -> str:
    if view.state is not State.PENDING:
        return f"the job is {view.state.lower()}"
    if known.start is None:
        return table.why(view) or "no start within the horizon"
    return known.because


def _source(here: ClusterFacts) -> str:
    if here.from_operator:
        return "with the operator's forecasts"
    return (
        "the operator could not be reached: forecasts come from finished workloads in the cluster and hints of the jobs"
    )


# --- accuracy -----------------------------------------------------------------------------------------------------------


async def _accuracy(kubeconfig: Path | None, context: str | None) -> dict[str, Any]:
    async with access.client(kubeconfig, context) as api:
        accuracy = await reach.ask(api, "/accuracy")
    if accuracy is None:
        raise click.ClickException(
            "accuracy is kept by the running operator, and the operator can't be reached from here"
        )
    return accuracy


def _show_accuracy(accuracy: Mapping[str, Any], output: str | None) -> None:
    if output == "json":
        click.echo(json.dumps({key: value for key, value in accuracy.items() if key != "cluster"}, indent=2))
        return
    runtimes, starts = accuracy.get("runtimes") or [], accuracy.get("starts") or {}
    click.echo(accuracy.get("model", {}).get("reason", ""))
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
            f"\n{starts['starts']} expected starts were checked: {starts['withinP50']:.0%} before the p50, "
            f"{starts['withinP90']:.0%} before the p90; median error {age(starts['medianErrorSeconds'])}"
        )
    if not runtimes and not starts.get("starts"):
        click.echo("no forecast could be checked yet: no workload has finished since the operator started counting")
    elif accuracy.get("since"):
        click.echo(f"\ncounted since {time.strftime('%Y-%m-%d %H:%M', time.localtime(accuracy['since']))}")
