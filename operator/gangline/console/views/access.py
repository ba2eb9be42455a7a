"""Cluster access for commands that read a cluster: shared options, and error messages with a remedy."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, TypeVar

import click

from gangline.console.output import terminal
from gangline.console.views import denied
from gangline.control.answers.workloads.snapshot import AnswerSnapshot, snapshot
from gangline.kube import config
from gangline.kube.client import ApiClient, ApiError, Forbidden, NotFound, Unauthorized, Unavailable
from gangline.kube.resources import CLUSTER_QUEUES, LOCAL_QUEUES, WORKLOADS, Json, Resource
from gangline.objects import LocalQueueObject, Stored, WorkloadObject

T = TypeVar("T")


def cluster_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Add `--kubeconfig`, `--context` and `-n`, as in kubectl."""
    namespace = click.option("-n", "--namespace", default=None, help="Namespace (default: the context's).")
    return login_options(namespace(command))


def login_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Add `--kubeconfig` and `--context`."""
    for option in (
        click.option("--context", default=None, help="Context in the kubeconfig."),
        click.option(
            "--kubeconfig",
            type=click.Path(dir_okay=False, path_type=Path),
            help="Default: $KUBECONFIG, ~/.kube/config, the pod's service account.",
        ),
    ):
        command = option(command)
    return command


@asynccontextmanager
async def client(kubeconfig: Path | None, context: str | None) -> AsyncIterator[ApiClient]:
    """An open client. Raises click.ClickException for an unusable kubeconfig."""
    try:
        login = config.load(kubeconfig or own_cluster(context), context)
    except config.LoginError as error:
        raise click.ClickException(f"{error}\nIs there a cluster? `gangline up` starts a local one.") from error
    async with ApiClient(login) as opened:
        yield opened


def own_cluster(context: str | None) -> Path | None:
    """The kubeconfig of the one local control plane that runs here, if no other cluster is configured. Says so."""
    if context is not None or config.is_configured():
        return None
    from gangline.devcluster.clusters import NamedCluster, names

    running = [each for each in map(NamedCluster, names()) if not each.status().down]
    if len(running) != 1 or not running[0].kubeconfig.exists():
        return None
    terminal.say(f"(local cluster {running[0].name}: there is no kubeconfig)", err=True)
    return running[0].kubeconfig


def run(work: Awaitable[T]) -> T:
    """Run a command's coroutine; report an API error as one message and exit status 1."""

    async def guarded() -> T:
        try:
            return await work
        except ApiError as error:
            raise click.ClickException(_say(error)) from error

    return asyncio.run(guarded())


def _say(error: ApiError) -> str:
    match error:
        case Unavailable():
            return f"the API server does not answer: {error.message}"
        case Unauthorized():
            return f"the API server does not accept these credentials: {error.message}"
        case NotFound():
            return f"{error.message}\nIs Gangline installed on this cluster? `gangline up` installs it."
        case Forbidden():
            return denied.said(error)
        case _:
            return str(error)


async def look(api: ApiClient, namespace: str) -> AnswerSnapshot:
    """A snapshot of all workloads and queues. It is incomplete if the user may read only some of them, and then those of
    `namespace` where need be.
    """
    lists = await asyncio.gather(
        _visible(api, WORKLOADS, namespace), _visible(api, LOCAL_QUEUES, namespace), _visible(api, CLUSTER_QUEUES, None)
    )
    (workloads, all_workloads), (local_queues, all_local), (cluster_queues, all_queues) = lists
    return snapshot(
        map(WorkloadObject, workloads),
        map(Stored, cluster_queues),
        map(LocalQueueObject, local_queues),
        complete=all_workloads and all_local and all_queues,
    )


async def _visible(api: ApiClient, resource: Resource, fallback: str | None) -> tuple[list[Json], bool]:
    """The objects, and whether these are all of them."""
    try:
        return (await api.list(resource)).items, True
    except Forbidden:
        return (await api.list(resource, fallback)).items if fallback else [], False
