"""`gangline queue`: lists running and pending workloads, as squeue does."""

from __future__ import annotations

import json
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import click

from gangline.console.views import access, asking, own_rights, table, times
from gangline.control.answers import items
from gangline.control.answers.snapshot import FINISHED, State
from gangline.control.answers.words import age
from gangline.kube.client import ApiClient
from gangline.kube.resources import Json


@dataclass(frozen=True, slots=True)
class _Wish:
    """The options. `namespace` is the context's unless it is `given`."""

    namespace: str
    given: bool
    everywhere: bool
    cluster_queue: str | None
    times: bool
    finished: bool

    @property
    def anywhere(self) -> bool:
        return self.everywhere or (self.cluster_queue is not None and not self.given)

    @property
    def where(self) -> str:
        if self.cluster_queue:
            return f"ClusterQueue {self.cluster_queue}"
        return "all namespaces" if self.everywhere else f"namespace {self.namespace} (-A: all)"


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

    async def work() -> tuple[list[Json], _Wish]:
        async with access.client(kubeconfig, context) as api:
            where = namespace or api.login.namespace
            wish = _Wish(where, namespace is not None, all_namespaces, cluster_queue, with_times, finished)
            return await _jobs(api, wish), wish

    shown, wish = access.run(work())
    if output == "json":
        click.echo(json.dumps([_as_json(item, with_times) for item in shown], indent=2))
        return
    if not shown:
        click.echo(f"No {'' if finished else 'running or pending '}workloads in {wish.where}.", err=True)
        return
    show(shown, time.time(), wide=output == "wide", with_times=with_times)


async def _jobs(api: ApiClient, wish: _Wish) -> list[Json]:
    query: dict[str, str | bool | int] = {"finished": wish.finished, "times": wish.times}
    query["clusterQueue"] = wish.cluster_queue or ""
    own = f"/namespaces/{wish.namespace}/queuedjobs"
    try:
        if not wish.anywhere:
            found = await asking.listed(api, own, query)
            return [item for item in found if item["namespace"] == wish.namespace]
        try:
            return await asking.listed(api, "/queuedjobs", query)
        except asking.NotAllowedError:
            if not wish.cluster_queue:
                click.echo(f"(you may not ask about all namespaces: this is namespace {wish.namespace})", err=True)
            return await asking.listed(api, own, query)
    except own_rights.NoOperator as error:
        return await _own(api, wish, error)


async def _own(api: ApiClient, wish: _Wish, error: Exception) -> list[Json]:
    """Where no operator answers."""
    if wish.times:
        from gangline.console.views import own_answers

        return await own_answers.jobs(api, wish.namespace, wish.anywhere, wish.cluster_queue, wish.finished, error)
    seen = await own_rights.look(api, wish.namespace, error)
    if wish.cluster_queue and seen.complete and not seen.queue(wish.cluster_queue):
        known = ", ".join(q.name for q in seen.queues) or "none"
        raise click.ClickException(f"there is no ClusterQueue {wish.cluster_queue!r} (there is: {known})")
    return own_rights.rows(
        [
            view
            for view in seen.workloads
            if (wish.anywhere or view.namespace == wish.namespace)
            and wish.cluster_queue in (None, view.cluster_queue)
            and (wish.finished or view.state not in FINISHED)
        ]
    )


def show(shown: Sequence[Json], now: float, *, wide: bool, with_times: bool) -> None:
    """Print a coloured table on a terminal, aligned plain text in a pipe."""
    rows = table.workload_rows(map(items.of_json, shown), now, wide=wide, brief=not wide)
    if with_times:
        cells = [_times(item, now) for item in shown]
        rows = table.with_columns(rows, ("ELAPSED", "RUNS FOR", "STARTS IN"), cells)
    table.echo(rows)


def _times(item: Json, now: float) -> tuple[str, str, str]:
    """Elapsed runtime, forecast total runtime (p50 – p90), and expected start (p50 – p90)."""
    elapsed, waits = item.get("elapsedSeconds"), item["state"] == State.PENDING
    return (
        age(elapsed) if elapsed is not None else "",
        times.runtime_text(item),
        times.start_text(item, now) if waits else "",
    )


def _as_json(item: Json, with_times: bool) -> Json:
    known = {name: item.get(name) for name in times.TIMES} if with_times else {}
    return items.as_json(items.of_json(item)) | known
