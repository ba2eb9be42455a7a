"""`gangline move` and `gangline top`: a waiting job gets another place, in another queue or before others."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

import click

from gangline.api import names
from gangline.console.output import terminal
from gangline.console.views import access, completing, denied, targets
from gangline.console.views.targets import Target
from gangline.control.answers.workloads.snapshot import FINISHED, JobState, WorkloadView, snapshot
from gangline.kube.client import ApiClient
from gangline.kube.errors import Forbidden
from gangline.kube.resources import LOCAL_QUEUES, WORKLOAD_PRIORITY_CLASSES, WORKLOADS, Json
from gangline.objects import WorkloadObject

_dry_run = click.option("--dry-run", is_flag=True, help="Only check whether the change could be made.")


@click.command("move")
@click.argument("job", metavar="JOB", shell_complete=completing.jobs)
@click.argument("queue", metavar="LOCALQUEUE", shell_complete=completing.local_queues)
@access.cluster_options
@_dry_run
def move(
    job: str, queue: str, kubeconfig: Path | None, context: str | None, namespace: str | None, dry_run: bool
) -> None:
    """Move a waiting JOB to another LocalQueue of its namespace. Its age goes with it."""

    async def work() -> None:
        async with access.client(kubeconfig, context) as api:
            terminal.say(await moved(api, namespace or api.login.namespace, job, queue, dry_run=dry_run))

    access.run(work())


async def moved(api: ApiClient, namespace: str, name: str, queue: str, *, dry_run: bool = False) -> str:
    """Move a waiting job to another LocalQueue. Returns what was done, as a sentence. Raises click.ClickException for a job that
    does not wait, and for a queue that does not exist.
    """
    found = await targets.existing(api, LOCAL_QUEUES, namespace, queue)
    stopped = (found["spec"].get("stopPolicy") or "None") != "None"

    async def attempt() -> str:
        target = await targets.find(api, namespace, name)
        obj = _waiting(target, "moved")
        before = (obj["metadata"].get("labels") or {}).get(names.QUEUE_NAME) or ""
        if before == queue:
            return f"{target.title} is in LocalQueue {queue} already"
        assert target.resource is not None
        label = {"metadata": {"labels": {names.QUEUE_NAME: queue}}}
        await targets.patched(api, target.resource, obj, label, dry_run=dry_run)
        source = f" from {before}" if before else ""
        held = f" (LocalQueue {queue} is stopped: nothing starts from it)" if stopped else ""
        return f"{target.title} {'would move' if dry_run else 'moves'}{source} to LocalQueue {queue}{held}"

    return await targets.until_unchanged(attempt)


@click.command("top")
@click.argument("job", metavar="JOB", shell_complete=completing.jobs)
@access.cluster_options
@click.option("--class", "class_name", default="", help="This WorkloadPriorityClass, and not the lowest that suffices.")
@_dry_run
def top(
    job: str,
    kubeconfig: Path | None,
    context: str | None,
    namespace: str | None,
    class_name: str,
    dry_run: bool,
) -> None:
    """Put a waiting JOB before all others of its LocalQueue, by the lowest WorkloadPriorityClass that does so.

    The ClusterQueue's other jobs of less priority are then behind it, too.
    """

    async def work() -> None:
        async with access.client(kubeconfig, context) as api:
            terminal.say(await topped(api, namespace or api.login.namespace, job, class_name, dry_run=dry_run))

    access.run(work())


async def topped(api: ApiClient, namespace: str, name: str, class_name: str = "", *, dry_run: bool = False) -> str:
    """Put a waiting job first in its LocalQueue, or give it a class. Returns what was done, as a sentence. Raises
    click.ClickException where no class is high enough, and for a class that does not exist.
    """
    if class_name:
        with suppress(Forbidden):  # who may not read it finds out by the write
            await targets.existing(api, WORKLOAD_PRIORITY_CLASSES, None, class_name)

    async def attempt() -> str:
        target = await targets.find(api, namespace, name)
        obj = _waiting(target, "put first")
        if target.view is None or target.resource is None:
            raise click.ClickException(
                f"{target.title} has no Workload, so it is in no queue: `gangline why` says what it lacks"
            )
        first = _first(await _others(api, target.view))
        first = None if first is not None and _is_ahead(target.view, first) else first
        has = (obj["metadata"].get("labels") or {}).get(names.PRIORITY_CLASS) or ""
        already = f"before all others of LocalQueue {target.view.queue} already"
        if first is None and class_name in ("", has):
            return f"{target.title} is {already}" + (f", with WorkloadPriorityClass {has}" if class_name else "")
        chosen = class_name or _lowest(await _classes(api), target.view, first)
        label = {"metadata": {"labels": {names.PRIORITY_CLASS: chosen}}}
        await targets.patched(api, target.resource, obj, label, dry_run=dry_run)
        gets = f"{target.title} {'would get' if dry_run else 'gets'} WorkloadPriorityClass {chosen}"
        return f"{gets}; it was {already}" if first is None else f"{gets}, to be before {first.job}"

    return await targets.until_unchanged(attempt)


async def _others(api: ApiClient, view: WorkloadView) -> list[WorkloadView]:
    """Waiting jobs of the same LocalQueue."""
    listed = (await api.list(WORKLOADS, view.namespace)).items
    seen = snapshot(map(WorkloadObject, listed), [], [], complete=False)
    return [
        each
        for each in seen.workloads
        if each.uid != view.uid and each.queue == view.queue and each.state is JobState.PENDING
    ]


def _first(views: Sequence[WorkloadView]) -> WorkloadView | None:
    return min(views, key=lambda view: (-view.priority, view.created, view.uid), default=None)


def _is_ahead(view: WorkloadView, other: WorkloadView) -> bool:
    return (-view.priority, view.created, view.uid) < (-other.priority, other.created, other.uid)


async def _classes(api: ApiClient) -> list[Json]:
    try:
        return (await api.list(WORKLOAD_PRIORITY_CLASSES)).items
    except Forbidden as error:
        raise click.ClickException(
            f"{denied.said(error)}\nor name the class: --class NAME (an administrator knows which there are)"
        ) from error


def _lowest(classes: Sequence[Json], view: WorkloadView, first: WorkloadView | None) -> str:
    """The lowest class with which the job is before that one; "" where there is none."""
    if first is None:
        return ""
    older = (view.created, view.uid) < (first.created, first.uid)
    enough = [each for each in classes if each["value"] > first.priority or (older and each["value"] == first.priority)]
    if not enough:
        known = ", ".join(f"{each['metadata']['name']} ({each['value']})" for each in classes) or "none"
        raise click.ClickException(
            f"no WorkloadPriorityClass is above {first.job} with priority {first.priority} (there is: {known})"
        )
    return min(enough, key=lambda each: (each["value"], each["metadata"]["name"]))["metadata"]["name"]


def _waiting(target: Target, done: str) -> Json:
    """The job's object. Raises click.ClickException for a job that does not wait."""
    if target.state in FINISHED or target.holds:
        raise click.ClickException(f"{target.title} {target.what_it_does()}: only a job that waits can be {done}")
    if target.job is None:
        raise click.ClickException(f"{target.title} is no single object, but a group of pods: these can't be {done}")
    return target.job
