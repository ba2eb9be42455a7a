"""`gangline queue`: who runs and who waits, as squeue shows it."""

from __future__ import annotations

import json
import time
from collections.abc import Iterable
from dataclasses import asdict
from pathlib import Path
from typing import Any

import click
from rich.console import Console

from gangline.console import access, table
from gangline.console.snapshot import FINISHED, State, WorkloadView


@click.command("queue")
@access.cluster_options
@click.option("-A", "--all-namespaces", is_flag=True, help="Workloads of all namespaces.")
@click.option("-q", "--cluster-queue", default=None, help="Only workloads of this ClusterQueue, of any namespace.")
@click.option("--finished", is_flag=True, help="Show what has ended as well.")
@click.option("-o", "--output", type=click.Choice(["wide", "json"]), default=None, help="More columns, or JSON.")
def command(
    kubeconfig: Path | None,
    context: str | None,
    namespace: str | None,
    all_namespaces: bool,
    cluster_queue: str | None,
    finished: bool,
    output: str | None,
) -> None:
    """Show running and pending workloads: place in line, GPUs, and why they wait."""
    views, where = access.run(_views(kubeconfig, context, namespace, all_namespaces, cluster_queue))
    shown = [v for v in views if finished or v.state not in FINISHED]
    if output == "json":
        click.echo(json.dumps([as_json(v) for v in shown], indent=2))
        return
    if not shown:
        click.echo(f"No {'' if finished else 'running or pending '}workloads in {where}.", err=True)
        return
    show(shown, time.time(), wide=output == "wide")


async def _views(
    kubeconfig: Path | None, context: str | None, namespace: str | None, everywhere: bool, cluster_queue: str | None
) -> tuple[list[WorkloadView], str]:
    async with access.client(kubeconfig, context) as api:
        wanted = namespace or api.login.namespace
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
    return views, where


def show(views: Iterable[WorkloadView], now: float, *, wide: bool) -> None:
    """A coloured table on a terminal, aligned plain text in a pipe."""
    rows = table.workload_rows(views, now, wide=wide, brief=not wide)
    console = Console()
    if console.is_terminal:
        console.print(table.draw(rows, console.size.width))
    else:
        click.echo(table.plain(rows))


def as_json(view: WorkloadView) -> dict[str, Any]:
    """A workload for scripts: stable names, plain values; `position` counts from 0 as Kueue's visibility API does."""
    fields = asdict(view) | {
        "state": str(view.state),
        "gpus": view.gpus,
        "neverFits": view.never_fits,
        "why": table.why(view) if view.state is not State.SUCCEEDED else "",
        "held": [{"flavor": f, "resource": r, "amount": table.amount(n, r)} for (f, r), n in view.held.items()],
        "amounts": {r: table.amount(n, r) for r, n in view.amounts.items()},
    }
    return {_camel(name): value for name, value in fields.items()}


def _camel(name: str) -> str:
    first, *rest = name.split("_")
    return first + "".join(word.capitalize() for word in rest)
