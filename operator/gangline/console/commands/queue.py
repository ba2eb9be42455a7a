"""`gangline queue`: lists running and pending workloads, as squeue does."""

from __future__ import annotations

import json
import time
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from gangline.console.views import access, table
from gangline.console.views.json_rows import as_json
from gangline.console.views.snapshot import FINISHED, State, WorkloadView

if TYPE_CHECKING:  # what takes a second to load, for who asks for times
    from gangline.console.views.times import Times
    from gangline.console.views.world import ClusterFacts


@click.command("queue")
@access.cluster_options
@click.option("-A", "--all-namespaces", is_flag=True, help="Workloads of all namespaces.")
@click.option("-q", "--cluster-queue", default=None, help="Only workloads of this ClusterQueue, of any namespace.")
@click.option(
    "-t",
    "--times",
    "with_times",
    is_flag=True,
    help="Show forecast runtimes, and expected start times of pending workloads.",
)
@click.option("--finished", is_flag=True, help="Show finished workloads too.")
@click.option("-o", "--output", type=click.Choice(["wide", "json"]), default=None, help="More columns, or JSON.")
def command(
    kubeconfig: Path | None,
    context: str | None,
    namespace: str | None,
    all_namespaces: bool,
    cluster_queue: str | None,
    with_times: bool,
    finished: bool,
    output: str | None,
) -> None:
    """Show running and pending workloads: position in the queue, GPUs, and why they are pending."""
    views, where, here = access.run(_views(kubeconfig, context, namespace, all_namespaces, cluster_queue, with_times))
    shown = [v for v in views if finished or v.state not in FINISHED]
    known = _known(here, views) if here is not None else None
    if output == "json":
        click.echo(json.dumps([as_json(v) | _times_json(v, known) for v in shown], indent=2))
        return
    if not shown:
        click.echo(f"No {'' if finished else 'running or pending '}workloads in {where}.", err=True)
        return
    show(shown, time.time(), wide=output == "wide", known=known)


async def _views(
    kubeconfig: Path | None,
    context: str | None,
    namespace: str | None,
    everywhere: bool,
    cluster_queue: str | None,
    with_times: bool,
) -> tuple[list[WorkloadView], str, ClusterFacts | None]:
    async with access.client(kubeconfig, context) as api:
        wanted = namespace or api.login.namespace
        here: ClusterFacts | None = None
        if with_times:
            from gangline.console.views import times, world

            here = await world.load(api)
            seen = times.view_of(here)
        else:
            seen = await access.look(api, wanted)
    if cluster_queue and not seen.queue(cluster_queue):
        known = ", ".join(q.name for q in seen.queues) or "none"
        raise click.ClickException(f"there is no ClusterQueue {cluster_queue!r} (there is: {known})")
    anywhere = everywhere or (cluster_queue is not None and namespace is None)
    views = [
        v
        for v in seen.workloads
        if (anywhere or v.namespace == wanted) and (cluster_queue is None or v.cluster_queue == cluster_queue)
    ]
    where = (
        f"ClusterQueue {cluster_queue}"
        if cluster_queue
        else "all namespaces"
        if everywhere
        else f"namespace {wanted} (-A: all)"
    )
    return views, where, here


def show(views: Iterable[WorkloadView], now: float, *, wide: bool, known: Mapping[str, Times] | None = None) -> None:
    """Print a coloured table on a terminal, aligned plain text in a pipe."""
    views = list(views)
    rows = table.workload_rows(views, now, wide=wide, brief=not wide)
    if known is not None:
        rows = table.with_columns(rows, ("ELAPSED", "RUNS FOR", "STARTS IN"), [_times(v, known, now) for v in views])
    table.echo(rows)


def _known(here: ClusterFacts, views: Iterable[WorkloadView]) -> Mapping[str, Times]:
    from gangline.console.views import times

    return times.times(here, here.outlook(), views)


def _times(view: WorkloadView, known: Mapping[str, Times], now: float) -> tuple[str, str, str]:
    """Elapsed runtime, forecast total runtime (p50 – p90), and expected start (p50 – p90)."""
    from gangline.console.views import times

    mine = known.get(view.uid, times.Times())
    waits = view.state is State.PENDING
    elapsed = table.age(mine.elapsed) if mine.elapsed is not None else ""
    return elapsed, times.runtime_text(mine.forecast, mine.flavor), times.start_text(mine, now) if waits else ""


def _times_json(view: WorkloadView, known: Mapping[str, Times] | None) -> dict[str, Any]:
    if known is None:
        return {}
    from gangline.console.views import times

    body = times.as_json(view, known.get(view.uid, times.Times()))
    return {field: body[field] for field in ("elapsedSeconds", "expectedStart", "because", "forecast")}
