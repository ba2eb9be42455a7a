"""`gangline cancel`: deletes jobs, as Slurm's scancel does."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import click

from gangline.console.output import terminal
from gangline.console.views import access, completing, denied, targets
from gangline.console.views.targets import JobChoice, SeenVersions
from gangline.kube.client import ApiClient
from gangline.kube.errors import Conflict, Forbidden, NotFound
from gangline.kube.resources import LEADER_WORKER_SETS, PODS, WORKLOADS, controller_of


class MadeAgainError(click.ClickException):
    """Says that an object would be made again as soon as it is deleted."""


@click.command("cancel")
@targets.options("JOB…", completing.jobs)
@access.cluster_options
@click.option("--dry-run", is_flag=True, help="Only say what would be deleted.")
def command(
    choice: JobChoice, kubeconfig: Path | None, context: str | None, namespace: str | None, dry_run: bool
) -> None:
    """Delete jobs of one namespace, by name or by user, state and queue: those that wait and those that run."""

    async def work() -> None:
        async with access.client(kubeconfig, context) as api:
            where = namespace or api.login.namespace
            found = await choice.found(api, where, "Delete", dry_run=dry_run)
            missing = await cancel(api, where, found, tell_missing=not choice.by_filters, dry_run=dry_run)
            if missing:
                raise click.ClickException("\n".join(missing))

    access.run(work())


async def cancel(
    api: ApiClient, namespace: str, found: Sequence[str], *, tell_missing: bool = True, dry_run: bool = False
) -> list[str]:
    """Cancel each job. Returns a sentence about each that was not; of one that does not exist only if `tell_missing`.

    A job may end, or be deleted, at any time.
    """
    messages: list[str] = []
    for name in found:
        try:
            terminal.say(await cancelled(api, namespace, name, dry_run=dry_run))
        except targets.NoSuchJob as error:
            messages += [error.message] if tell_missing else []
        except MadeAgainError as error:
            messages.append(error.message)
    return messages


async def cancelled(
    api: ApiClient, namespace: str, name: str, *, dry_run: bool = False, as_seen: SeenVersions | None = None
) -> str:
    """Cancel a job. Returns what was done, as a sentence. The object that is deleted is the one that was looked at. Raises
    targets.NoSuchJob, and targets.ChangedSinceError for a job that is not `as_seen` any more.
    """
    target = await targets.find(api, namespace, name, as_seen)
    says = f"{target.title} {'would be' if dry_run else 'is'} cancelled (it {target.what_it_does()})"
    if target.workload is not None and target.resource == LEADER_WORKER_SETS:
        raise MadeAgainError(
            f"{target.title} is one group of a LeaderWorkerSet, which makes it again: give that fewer replicas, or cancel "
            f"leaderworkerset/{target.job['metadata']['name'] if target.job is not None else 'NAME'}"
        )
    if target.resource == PODS and target.job is not None and (owner := controller_of(target.job)) is not None:
        says += f"; the {owner['kind']} {owner['name']} that made it makes another"
    if dry_run:
        return says
    try:
        if target.job is not None and target.resource is not None:
            meta = target.job["metadata"]
            version = as_seen.of_job[1] if as_seen is not None else ""
            await api.delete(
                target.resource,
                namespace,
                meta["name"],
                propagation="Background",
                uid=meta["uid"],
                resource_version=version,
            )
        elif target.workload is not None:
            pods = await targets.members(api, target.workload)
            for pod in pods:
                meta = pod["metadata"]
                await api.delete(PODS, namespace, meta["name"], uid=meta["uid"])
            if not pods:
                meta = target.workload["metadata"]
                await api.delete(WORKLOADS, namespace, meta["name"], uid=meta["uid"])
    except Forbidden as error:
        raise click.ClickException(denied.said(error)) from error
    except Conflict as error:  # it was deleted, or has changed, after it was looked at
        raise (
            targets.NoSuchJob(namespace, name) if as_seen is None else targets.ChangedSinceError(target.title)
        ) from error
    except NotFound as error:  # it was deleted after it was looked at
        raise targets.NoSuchJob(namespace, name) from error
    return says
