"""Everything that `up` and `run` bring up: a cluster, Gangline's kinds on it, the webhooks and the operator beside it."""

from __future__ import annotations

import asyncio
import signal
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlsplit

from gangline.console.stack.kinds_install import install_kinds
from gangline.console.stack.processes import Services
from gangline.devcluster.clusters import NamedCluster, clusters_root
from gangline.devcluster.connect import Choice, Connection, connect
from gangline.devcluster.progress import narrate

Say = Callable[[str], None]

NO_WEBHOOKS = """! no webhooks: a cluster elsewhere can't reach this machine unless you say how. Without them
  - a job that names a queue may start before the operator suspends it, and defaults are not filled in;
  - v1beta1 manifests of ClusterQueue, LocalQueue and Workload lose fields: use v1beta2;
  - mistakes in queues show as conditions, not as refusals.
  With an address that the API server reaches: --webhook-url https://HOST:PORT"""


@dataclass(frozen=True, slots=True)
class Stack:
    connection: Connection
    services: Services


#: plays JobSet's part where nobody installs JobSet itself
JOBSET_STAND_IN = (sys.executable, "-m", "gangline.devcluster.jobset")


@dataclass(frozen=True, slots=True)
class Wishes:
    """What may be chosen of the stack. `webhook_url`: where a cluster elsewhere reaches the webhooks; `jobset`: with the
    stand-in for JobSet; `track_fields`: Workloads keep their metadata.managedFields."""

    webhook_url: str | None = None
    jobset: bool = False
    track_fields: bool = False


@contextmanager
def standing(choice: Choice, say: Say, wishes: Wishes) -> Iterator[Stack]:
    """All of it up inside the block; what was started for it ends with the block.

    Raises DevClusterError, InstallError, LoginError or ApiError, each with words for the user.
    """
    with connect(choice) as connection:
        say(f"✓ {_where(connection)}")
        services = Services(services_directory(connection))
        try:
            yield bring_up(connection, services, say, wishes)
        finally:
            services.stop()


@contextmanager
def named(name: str, say: Say, wishes: Wishes) -> Iterator[Stack]:
    """As `standing`, on the local control plane of that name, whose data stay; it is ended only if it was down before."""
    cluster = NamedCluster(name)
    was_up = cluster.status().up
    try:
        connection = start_named(cluster, say)
        services = Services(services_directory(connection))
        try:
            yield bring_up(connection, services, say, wishes)
        finally:
            services.stop()
    finally:
        if not was_up:
            cluster.down(forget=False)


def start_named(cluster: NamedCluster, say: Say) -> Connection:
    cluster.up(waiting=lambda pid: say(f"waiting for process {pid}, which is busy with the same control plane"))
    connection = Connection(cluster.kubeconfig, None, "local", "127.0.0.1")
    say(f"✓ {_where(connection)}")
    return connection


def bring_up(connection: Connection, services: Services, say: Say, wishes: Wishes) -> Stack:
    """Kinds, webhooks, operator, in this order: each needs the one before. The stand-in for JobSet starts beside them."""
    jobset = wishes.jobset and connection.source == "local"
    tracking = ["--track-fields"] if wishes.track_fields else []
    if jobset:
        services.launch("jobset", [*JOBSET_STAND_IN, *_login(connection)])
    with narrate("Installing Gangline's kinds"):
        kinds = asyncio.run(_install(connection))
    say(f"✓ {len(kinds)} kinds are served")
    address = _webhook_address(connection, wishes.webhook_url)
    if address is None:
        say(NO_WEBHOOKS)
    else:
        with narrate("Starting the webhooks"):
            told = [*_login(connection), "--mode", "url", *address, "--unregister-on-exit", *tracking]
            services.start("webhooks", told)
        say("✓ the webhooks answer")
    with narrate("Starting the operator"):
        told = [*_election(connection), *_visibility(connection), *_kept(connection, services), *tracking]
        services.start("operator", [*_login(connection), *told])
    say("✓ the operator decides")
    if jobset:
        services.wait("jobset")
        say("✓ JobSets are run by a stand-in for JobSet, until JobSet itself is installed")
    return Stack(connection, services)


async def _install(connection: Connection) -> list[str]:
    async with connection.client() as api:
        return await install_kinds(api)


def _login(connection: Connection) -> list[str]:
    context = ["--context", connection.context] if connection.context else []
    return ["--kubeconfig", str(connection.kubeconfig), *context]


def _election(connection: Connection) -> list[str]:
    """On a cluster of our own there is no other operator to agree with, and no lease of a killed one to wait for."""
    return [] if connection.source == "kubeconfig" else ["--no-leader-election"]


def _visibility(connection: Connection) -> list[str]:
    """Where the API server reaches the operator, it passes on what is asked of Kueue's visibility API."""
    if connection.host_address is None:
        return []
    listen = "127.0.0.1" if connection.source == "local" else "0.0.0.0"
    return ["--visibility-listen", f"{listen}:0", "--visibility-host", connection.host_address]


def _kept(connection: Connection, services: Services) -> list[str]:
    """What runs on this cluster is remembered with it, apart from what others have run; on one of our own, all is recorded."""
    audit = ["--audit", str(record(services))] if connection.source == "local" else []
    return ["--history", str(services.directory / "history.db"), *audit]


def record(services: Services) -> Path:
    """What the operator was told and what it decided, for `gangline audit`."""
    return services.directory / "audit.jsonl"


def _webhook_address(connection: Connection, url: str | None) -> list[str] | None:
    """How the webhooks are told where the API server reaches them; None where that can't be known."""
    if url is not None:
        host, port = parse_webhook_url(url)
        return ["--url-host", host, "--listen", f"0.0.0.0:{port}"]
    if connection.host_address is None:
        return None
    listen = "127.0.0.1" if connection.source == "local" else "0.0.0.0"
    return ["--url-host", connection.host_address, "--listen", f"{listen}:0"]


def parse_webhook_url(url: str) -> tuple[str, int]:
    """Host and port of `https://HOST[:PORT]`. Raises ValueError for anything else."""
    parts = urlsplit(url)
    if parts.scheme != "https" or not parts.hostname or parts.path not in ("", "/") or parts.query:
        raise ValueError(f"{url!r} is not of the form https://HOST[:PORT]")
    return parts.hostname, parts.port or 443


def _where(connection: Connection) -> str:
    match connection.source:
        case "local":
            return "local control plane: etcd, API server, controllers, scheduler, simulated nodes"
        case "kind":
            return f"kind cluster {connection.context}"
        case _:
            return f"cluster of context {connection.context} in {connection.kubeconfig}"


def services_directory(connection: Connection) -> Path:
    """Where logs and pid files of our processes are: with the control plane if it is ours, else in the user's state."""
    if connection.source == "local":
        return connection.kubeconfig.parent / "services"
    return clusters_root().parent / "services" / (connection.context or "default").replace("/", "_")


@contextmanager
def ended_by_signals() -> Iterator[None]:
    """SIGTERM and SIGHUP end the block as Ctrl-C does: by KeyboardInterrupt, so that everything is cleaned up."""
    handled = (signal.SIGTERM, signal.SIGHUP)
    before = [signal.signal(number, signal.default_int_handler) for number in handled]
    try:
        yield
    finally:
        for number, handler in zip(handled, before, strict=True):
            signal.signal(number, handler)
