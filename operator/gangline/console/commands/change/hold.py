"""`gangline hold` and `gangline release`: jobs that wait are kept from starting, and queues from starting anything."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path

import click

from gangline.api import dependencies, names
from gangline.console.output import terminal
from gangline.console.views import access, completing, denied, targets
from gangline.console.views.targets import JobChoice, SeenVersions
from gangline.control.answers.workloads.snapshot import FINISHED, HOLDING, JobState
from gangline.kube.client import ApiClient
from gangline.kube.errors import Forbidden
from gangline.kube.resources import WORKLOADS, Json


class NotHeldError(click.ClickException):
    """Says that the state of a job does not allow the change."""


_dry_run = click.option("--dry-run", is_flag=True, help="Only check whether the change could be made.")
_chosen = targets.options("JOB|QUEUE…", completing.held)


@click.command("hold")
@_chosen
@access.cluster_options
@click.option("--stop", is_flag=True, help="Also hold jobs that run: they are stopped, and start anew once released.")
@_dry_run
def hold(
    choice: JobChoice,
    kubeconfig: Path | None,
    context: str | None,
    namespace: str | None,
    stop: bool,
    dry_run: bool,
) -> None:
    """Keep jobs from starting until `gangline release`.

    Their Workloads become inactive (spec.active: false). For whoever may change jobs and not Workloads, as researchers, the job
    gets the annotation gangline.io/hold instead.

    A queue (localqueue/NAME, clusterqueue/NAME) then starts no job (spec.stopPolicy: Hold). Of jobs that are chosen by user,
    state or queue, those that run are left out unless --stop is given.
    """

    async def work() -> None:
        async with access.client(kubeconfig, context) as api:
            where = namespace or api.login.namespace
            among = (*(HOLDING if stop else ()), JobState.PENDING)
            found = await choice.found(api, where, "Hold and stop" if stop else "Hold", dry_run=dry_run, among=among)
            await _each(found, choice, lambda name: held(api, where, name, stop=stop, dry_run=dry_run), dry_run=dry_run)

    access.run(work())


@click.command("release")
@_chosen
@access.cluster_options
@_dry_run
def release(
    choice: JobChoice, kubeconfig: Path | None, context: str | None, namespace: str | None, dry_run: bool
) -> None:
    """Queue held jobs again, and let held queues start jobs again."""

    async def work() -> None:
        async with access.client(kubeconfig, context) as api:
            where = namespace or api.login.namespace
            found = await choice.found(api, where, "Release", dry_run=dry_run, among=(JobState.INACTIVE,))
            await _each(found, choice, lambda name: released(api, where, name, dry_run=dry_run), dry_run=dry_run)

    access.run(work())


async def _each(
    found: Sequence[str], choice: JobChoice, change: Callable[[str], Awaitable[str]], *, dry_run: bool
) -> None:
    """Change one after the other, and say what was done. Of those that filters chose, one that started, ended or was deleted
    meanwhile is reported and costs the others nothing.
    """
    for name in found:
        try:
            terminal.say(await change(name) + (" (dry run: nothing is changed)" if dry_run else ""))
        except (NotHeldError, targets.NoSuchJob) as error:
            if not choice.by_filters:
                raise
            terminal.say(error.message, err=True)


async def held(
    api: ApiClient,
    namespace: str,
    name: str,
    *,
    stop: bool = False,
    dry_run: bool = False,
    as_seen: SeenVersions | None = None,
) -> str:
    """Hold a job or a queue. Returns what was done, as a sentence. Raises click.ClickException for what runs, without `stop`, and
    for a job that is not `as_seen` any more.
    """
    if (queue := targets.queue_of(name)) is not None:
        return await targets.stop_policy(api, namespace, *queue, "HoldAndDrain" if stop else "Hold", dry_run=dry_run)

    async def attempt() -> str:
        target = await targets.find(api, namespace, name, as_seen)
        workload = _workload(target)
        if target.state is JobState.INACTIVE or _by_author(target):
            return f"{target.title} is held already"
        if target.state in FINISHED:
            raise NotHeldError(f"{target.title} has ended: there is nothing to hold")
        if target.holds and not stop:
            raise NotHeldError(
                f"{target.title} {target.what_it_does()}: to hold it would stop it. --stop does so; it starts anew once released"
            )
        try:
            await targets.patch(api, WORKLOADS, workload, {"spec": {"active": False}}, dry_run=dry_run)
        except Forbidden as error:
            if target.holds or target.job is None or target.resource is None:
                raise click.ClickException(denied.said(error)) from error
            await targets.patched(api, target.resource, target.job, _annotated("true"), dry_run=dry_run)
        return f"{target.title} is held" + (", and stops" if target.holds else "")

    return await targets.until_unchanged(attempt)


async def released(
    api: ApiClient, namespace: str, name: str, *, dry_run: bool = False, as_seen: SeenVersions | None = None
) -> str:
    """Release a job or a queue. Returns what was done, as a sentence. Raises click.ClickException for a job that is not `as_seen`
    any more.
    """
    if (queue := targets.queue_of(name)) is not None:
        return await targets.stop_policy(api, namespace, *queue, "None", dry_run=dry_run)

    async def attempt() -> str:
        target = await targets.find(api, namespace, name, as_seen)
        workload, released_by_author = _workload(target), False
        if target.job is not None and target.resource is not None and _by_author(target):
            await targets.patched(api, target.resource, target.job, _annotated(None), dry_run=dry_run)
            released_by_author = True
        if workload["spec"].get("active") is False:
            await targets.patched(api, WORKLOADS, workload, {"spec": {"active": True}}, dry_run=dry_run)
        elif not released_by_author:
            return f"{target.title} is not held: it {target.what_it_does()}{_for_others(target, workload)}"
        return f"{target.title} is queued again"

    return await targets.until_unchanged(attempt)


def _by_author(target: targets.Target) -> bool:
    """Whether the job's own annotation holds it."""
    return target.job is not None and names.is_held(target.job["metadata"].get("annotations") or {})


def _for_others(target: targets.Target, workload: Json) -> str:
    """How a job that waits for other jobs gets into its queue without them; "" for one that does not."""
    meta = workload["metadata"]
    if target.holds or not dependencies.waits_for(meta.get("annotations") or {}):
        return ""
    command = f"kubectl annotate {target.title} -n {meta['namespace']} {names.AFTER}-"
    return f" for other jobs, which its annotation names: `{command}` ends that"


def _annotated(value: str | None) -> Json:
    return {"metadata": {"annotations": {names.HOLD: value}}}


def _workload(target: targets.Target) -> Json:
    if target.workload is None:
        raise click.ClickException(
            f"{target.title} has no Workload, so it is in no queue: `gangline why` says what it lacks"
        )
    return target.workload
