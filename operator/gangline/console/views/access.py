"""Cluster access for commands that read a cluster: shared options, and error messages with a remedy."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any, Final, TypeVar

import click

from gangline.console.output import terminal
from gangline.console.views import denied
from gangline.control.answers.workloads.snapshot import AnswerSnapshot, snapshot
from gangline.kube import config
from gangline.kube.client import ApiClient, ApiError, Forbidden, NotFound, Unauthorized, Unavailable
from gangline.kube.resources import CLUSTER_QUEUES, LOCAL_QUEUES, WORKLOADS, Json, Resource
from gangline.kube.transport import Call
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


#: seconds without any answer after which a server is taken for silent
SILENCE: Final = 10.0


class AttendedClient(ApiClient):
    """A client of a server that has to show that it is there: one that accepts connections and says nothing is an error soon,
    while an answer that takes long is waited for.
    """

    _heard = False

    async def exchange(self, call: Call) -> bytes:
        if self._heard:
            return await super().exchange(call)
        answer = asyncio.create_task(self._answer(call))
        try:
            done, _ = await asyncio.wait({answer}, timeout=SILENCE / 2)
            if not done and not await self._is_there():
                raise Unavailable(0, "Silent", f"nothing came from {self.login.server} for {SILENCE:g} s")
            return await answer
        finally:
            answer.cancel()

    async def _answer(self, call: Call) -> bytes:
        try:
            body = await super().exchange(call)
        except ApiError as error:
            self._heard |= error.status > 0
            raise
        self._heard = True
        return body

    async def _is_there(self) -> bool:
        """Whether the server answers a question that costs it nothing, whatever it answers."""
        with suppress(ApiError):
            await self._answer(Call("get", Resource("", "", "version"), "GET", "/version", within=SILENCE / 2))
        return self._heard


@asynccontextmanager
async def client(kubeconfig: Path | None, context: str | None) -> AsyncIterator[ApiClient]:
    """An open client. Raises click.ClickException for an unusable kubeconfig."""
    try:
        login = config.load(kubeconfig or own_cluster(context), context)
    except config.NoClusterError as error:
        raise click.ClickException(f"{error}\n{_NO_CLUSTER}") from error
    except config.LoginError as error:
        raise click.ClickException(str(error)) from error
    async with AttendedClient(login) as opened:
        yield opened


class Outage:
    """Waits out an API server that is away, for commands that go on for long. What is wrong is said once, on stderr."""

    def __init__(self) -> None:
        self._said = ""

    def endure(self, error: ApiError) -> None:
        """Say what is wrong, unless it was said last. Raises an error that does not pass by itself."""
        if not error.retryable:
            raise error
        if self._said != str(error):
            self._said = str(error)
            terminal.say(f"({self._said})", err=True)


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


_NO_CLUSTER: Final = "Is there a cluster? `gangline up` starts a local one."


def _say(error: ApiError) -> str:
    match error:
        case Unavailable():
            words = f"the API server does not answer: {error.message}"
            return f"{words}\n{_NO_CLUSTER}" if error.unreached else words
        case Unauthorized():
            return f"the API server does not accept these credentials: {error.message}"
        case NotFound():
            advice = "Is Gangline installed on this cluster? `gangline admin doctor --cluster` says what is missing."
            return f"{error.message}\n{advice}" if error.kind_is_unknown else error.message
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
