"""The stack that `up` and `run` start: a cluster, Gangline's CRDs on it, and the webhooks and the operator as processes."""

from __future__ import annotations

import asyncio
import signal
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlsplit

from gangline.console.stack.processes import Services
from gangline.devcluster.clusters import NamedCluster, clusters_root
from gangline.devcluster.components import ControlPlaneOptions
from gangline.devcluster.connect import ClusterChoice, connect
from gangline.devcluster.connection import Connection
from gangline.devcluster.progress import narrate
from gangline.devcluster.real.network import HUB
from gangline.install.kinds import install_kinds, install_roles
from gangline.ui import front_end

Say = Callable[[str], None]

NO_WEBHOOKS = """! no webhooks: a remote cluster can't reach this machine without --webhook-url. Without webhooks
  - a job that names a queue may start before the operator suspends it, and defaults are not filled in;
  - v1beta1 manifests of ClusterQueue, LocalQueue and Workload lose fields: use v1beta2;
  - invalid queues are reported by conditions instead of being rejected.
  To run the webhooks, give an address that the API server reaches: --webhook-url https://HOST:PORT"""


@dataclass(frozen=True, slots=True)
class Stack:
    """`dashboard`: the link that opens it, in one browser; "" without one."""

    connection: Connection
    services: Services
    dashboard: str = ""


#: runs JobSets on clusters without the JobSet controller
JOBSET_STAND_IN = (sys.executable, "-m", "gangline.devcluster.jobset")
DASHBOARD = (sys.executable, "-m", "gangline.console.cli", "ui")


@dataclass(frozen=True, slots=True)
class Wishes:
    """Options of the stack.

    `webhook_url`: URL at which a remote cluster reaches the webhooks; `jobset`: start the stand-in for JobSet; `track_fields`:
    Workloads keep their metadata.managedFields; `configuration`: Kueue's configuration file.
    """

    webhook_url: str | None = None
    jobset: bool = False
    track_fields: bool = False
    configuration: Path | None = None


@contextmanager
def standing(choice: ClusterChoice, say: Say, wishes: Wishes) -> Iterator[Stack]:
    """Run the stack inside the block; everything that was started for it ends with the block.

    Raises DevClusterError, InstallError, LoginError or ApiError, each with a message for the user.
    """
    with connect(choice) as connection:
        say(f"✓ {where(connection)}")
        services = services_of(connection)
        try:
            yield bring_up(connection, services, say, wishes)
        finally:
            services.stop()


def services_of(connection: Connection, *, detached: bool = False) -> Services:
    """Gangline's processes beside this cluster."""
    return Services(services_directory(connection), detached=detached, enter=connection.enter)


@contextmanager
def named(name: str, say: Say, wishes: Wishes, local: ControlPlaneOptions | None = None) -> Iterator[Stack]:
    """Run the stack inside the block, as `standing` does, on the named local control plane. Its data are kept; it is stopped only
    if it was down before.
    """
    cluster = NamedCluster(name)
    was_up = cluster.status().up
    try:
        connection = start_named(cluster, say, local)
        services = services_of(connection)
        try:
            yield bring_up(connection, services, say, wishes)
        finally:
            services.stop()
    finally:
        if not was_up:
            cluster.down(forget=False)


def start_named(cluster: NamedCluster, say: Say, local: ControlPlaneOptions | None = None) -> Connection:
    cluster.up(
        local,
        waiting=lambda pid: say(f"waiting for process {pid}, which is starting or stopping the same control plane"),
    )
    connection = cluster.connection()
    say(f"✓ {where(connection)}")
    return connection


def bring_up(connection: Connection, services: Services, say: Say, wishes: Wishes) -> Stack:
    """Start CRDs, webhooks and operator in this order, because each needs the one before; the stand-in for JobSet in parallel."""
    jobset = wishes.jobset and connection.source == "local"
    both = ["--track-fields"] if wishes.track_fields else []
    if wishes.configuration is not None:
        both += ["--config", str(wishes.configuration.absolute())]
    if jobset:
        services.launch("jobset", [*JOBSET_STAND_IN, *login(connection)])
    with narrate("Installing Gangline's CRDs"):
        kinds = asyncio.run(_install(connection))
    say(f"✓ {len(kinds)} kinds are served")
    address = _webhook_address(connection, wishes.webhook_url)
    if address is None:
        say(NO_WEBHOOKS)
    else:
        with narrate("Starting the webhooks"):
            arguments = [*login(connection), "--mode", "url", *address, "--unregister-on-exit", *both]
            services.start("webhooks", arguments)
        say("✓ the webhooks are ready")
    with narrate("Starting the operator"):
        network = [*_election(connection), *_listen(connection, wishes), *_visibility(connection)]
        arguments = [*network, *_storage(connection, services), *both]
        services.start("operator", [*login(connection), *arguments])
    say("✓ the operator is ready")
    dashboard = "" if connection.enter else _dashboard(connection, services, say)
    if jobset:
        services.wait("jobset")
        say("✓ JobSets are run by a stand-in for JobSet, until JobSet itself is installed")
    return Stack(connection, services, dashboard)


def _dashboard(connection: Connection, services: Services, say: Say) -> str:
    """Start the dashboard. Returns the link that opens it, in one browser; "" where its pages were not built."""
    try:
        front_end.built()
    except front_end.NotBuiltError as error:
        say(f"! no dashboard: {error}")
        return ""
    named = ["--cluster", "local cluster"] if connection.source == "local" else []
    services.launch("ui", [*DASHBOARD, *login(connection), *named, "--listen", "127.0.0.1:0"])
    services.wait("ui")
    say("✓ the dashboard is ready")
    return services.ready("ui")["url"]


def dashboard_hint(standing: Stack) -> str:
    """Text that says where the dashboard is."""
    if not standing.dashboard:
        return "The dashboard: gangline ui"
    return f"See it in a browser (the link is for one, `gangline ui` makes another):\n  {standing.dashboard}\n"


async def _install(connection: Connection) -> list[str]:
    async with connection.client() as api:
        kinds = await install_kinds(api)
        if connection.source != "kubeconfig":  # there they belong to an installation, or to Kueue
            await install_roles(api)
        return kinds


def login(connection: Connection) -> list[str]:
    context = ["--context", connection.context] if connection.context else []
    return ["--kubeconfig", str(connection.kubeconfig), *context]


def _election(connection: Connection) -> list[str]:
    """The operator's argument about leader election, which is used only with --kubeconfig: our own clusters have one operator,
    which need not wait for a stale Lease.
    """
    return [] if connection.source == "kubeconfig" else ["--no-leader-election"]


def _listen(connection: Connection, wishes: Wishes) -> list[str]:
    """The arguments for the operator's port, where only a certain one is reached from this machine; pods reach it at the hub's
    address. The port that a configuration names is that of a pod.
    """
    port = connection.service_port
    if not port and wishes.configuration is not None:
        return ["--listen", "127.0.0.1:0"]
    return ["--listen", f"127.0.0.1:{port}", "--progress-url", f"http://{HUB}:{port}"] if port else []


def _visibility(connection: Connection) -> list[str]:
    """Arguments that serve Kueue's visibility API, if the API server can reach this machine."""
    if connection.host_address is None:
        return []
    listen = "127.0.0.1" if connection.source == "local" else "0.0.0.0"
    return ["--visibility-listen", f"{listen}:0", "--visibility-host", connection.host_address]


def _storage(connection: Connection, services: Services) -> list[str]:
    """Arguments for a history per cluster, and on a local cluster for an audit record."""
    audit = ["--audit", str(record(services))] if connection.source == "local" else []
    return ["--history", str(services.directory / "history.db"), *audit]


def record(services: Services) -> Path:
    """Path of the operator's audit record, for `gangline admin audit`."""
    return services.directory / "audit.jsonl"


def _webhook_address(connection: Connection, url: str | None) -> list[str] | None:
    """Arguments with the address at which the API server reaches the webhooks; None if it is unknown."""
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


def where(connection: Connection) -> str:
    match connection.source:
        case "local":
            kind = "real nodes beside simulated ones" if connection.enter else "simulated nodes"
            return f"local control plane: etcd, API server, controllers, scheduler, {kind}"
        case "kind":
            return f"kind cluster {connection.context}"
        case _:
            return f"cluster of context {connection.context} in {connection.kubeconfig}"


def services_directory(connection: Connection) -> Path:
    """Directory of the processes' logs and pid files: beside a local control plane, else in the user's state directory."""
    if connection.source == "local":
        return connection.kubeconfig.parent / "services"
    return clusters_root().parent / "services" / (connection.context or "default").replace("/", "_")


@contextmanager
def ended_by_signals() -> Iterator[None]:
    """Raise KeyboardInterrupt on SIGTERM and SIGHUP inside the block, as on Ctrl-C, so that everything is cleaned up."""
    handled = (signal.SIGTERM, signal.SIGHUP)
    before = [signal.signal(number, signal.default_int_handler) for number in handled]
    try:
        yield
    finally:
        for number, handler in zip(handled, before, strict=True):
            signal.signal(number, handler)
