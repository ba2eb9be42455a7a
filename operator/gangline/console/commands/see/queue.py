"""`gangline queue`: lists running and pending workloads, as squeue does."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import click

from gangline.console.output import presenting, remarks
from gangline.console.output.presenting import Presentation
from gangline.console.output.selection import folded
from gangline.console.views import access, asking, completing, jobs, own_rights
from gangline.control.answers.workloads.snapshot import FINISHED
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
@click.option(
    "-q",
    "--cluster-queue",
    default=None,
    help="Only workloads of this ClusterQueue, of any namespace.",
    shell_complete=completing.cluster_queues,
)
@click.option(
    "-t",
    "--times",
    "with_times",
    is_flag=True,
    help="Show forecast runtimes, and expected start times of pending workloads.",
)
@click.option("--finished", is_flag=True, help="Show finished workloads too.")
@presenting.options("user", "state", "queue")
def command(
    kubeconfig: Path | None,
    context: str | None,
    namespace: str | None,
    all_namespaces: bool,
    cluster_queue: str | None,
    with_times: bool,
    finished: bool,
    shape: Presentation,
) -> None:
    """Show running and pending workloads: position in the queue, GPUs, and why they are pending."""
    finished = finished or any(folded(name) in map(folded, FINISHED) for name in shape.selection.states)

    async def work() -> None:
        async with access.client(kubeconfig, context) as api:
            where = namespace or api.login.namespace
            wish = _Wish(where, namespace is not None, all_namespaces, cluster_queue, with_times, finished)
            empty = f"No {'' if finished else 'running or pending '}workloads in {wish.where}."

            async def look() -> list[jobs.ListedJob]:
                return jobs.of_items(await _jobs(api, wish))

            listing = jobs.listing(with_times=with_times, own=not wish.anywhere, empty=empty)
            if not shape.watch:
                await presenting.present(listing, shape, look)
                return
            from gangline.console.views import watch

            async with watch.following(api, None if wish.anywhere else where, cluster_queue or "") as signal:
                await presenting.present(listing, shape, look, signal.wait)

    access.run(work())


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
                remarks.remark(f"you may not ask about all namespaces: this is namespace {wish.namespace}")
            return await asking.listed(api, own, query)
    except own_rights.NoOperator as error:
        return await _own(api, wish, error)


async def _own(api: ApiClient, wish: _Wish, error: Exception) -> list[Json]:
    """The jobs as the user's own rights show them, where no operator answers."""
    if wish.times:
        from gangline.console.views import own_answers

        return await own_answers.jobs(api, wish.namespace, wish.anywhere, wish.cluster_queue, wish.finished, error)
    seen = await own_rights.look(api, wish.namespace, error)
    if wish.cluster_queue and seen.complete and not seen.queue(wish.cluster_queue):
        known = ", ".join(q.name for q in seen.queues) or "none"
        raise click.ClickException(f"there is no ClusterQueue {wish.cluster_queue!r} (there is: {known})")
    warned = await own_rights.warned(api, None if wish.anywhere else wish.namespace)
    views = own_rights.with_warnings(seen.workloads, warned)
    without = await own_rights.held(api, warned, seen) if not wish.cluster_queue else []
    return own_rights.rows(
        [
            view
            for view in (*views, *without)
            if (wish.anywhere or view.namespace == wish.namespace)
            and wish.cluster_queue in (None, view.cluster_queue)
            and (wish.finished or view.state not in FINISHED)
        ]
    )
