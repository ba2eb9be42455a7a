"""A real control plane on this machine: etcd, kube-apiserver, controller manager, scheduler, and kwok for the nodes."""

from __future__ import annotations

import json
import signal
import ssl
import tempfile
import time
import urllib.request
from collections.abc import Sequence
from dataclasses import asdict, fields, replace
from pathlib import Path
from types import TracebackType
from typing import Self

from gangline.devcluster.building import build
from gangline.devcluster.building.build import NEWEST, VERSIONS, default_version
from gangline.devcluster.certs import Authority
from gangline.devcluster.components import (
    ADMIN,
    COMPONENTS,
    MASTERS,
    Component,
    ControlPlaneOptions,
    Layout,
    Ports,
    arguments,
    create_certificates,
    environment,
)
from gangline.devcluster.errors import DevClusterError, StartError
from gangline.devcluster.kubeconfig import write_kubeconfig
from gangline.devcluster.locks import FileLock, PortReservation, locked, private_directory
from gangline.devcluster.processes.supervisor import PortTakenError, Supervisor, end_leftovers, read_json
from gangline.devcluster.progress import narrate
from gangline.devcluster.real import network, nodes
from gangline.devcluster.real.nodes import RealNodes
from gangline.devcluster.real.settings import RealPool

CONTEXT = "gangline"
START_ATTEMPTS = 3
ETCD_PATIENCE = 5.0  # seconds for etcd to end by itself if its data is kept
#: the users of what the hub of real nodes runs
HUB_IDENTITIES: dict[str, tuple[str, tuple[str, ...]]] = {
    "kube-proxy": ("system:kube-proxy", ()),
    "dns": ("system:coredns", (MASTERS,)),
}
IDENTITIES: dict[Component, tuple[str, tuple[str, ...]]] = {
    "kube-controller-manager": ("system:kube-controller-manager", ()),
    "kube-scheduler": ("system:kube-scheduler", ()),
    "kwok": ("kwok", (MASTERS,)),
}


class LocalControlPlane:
    """One control plane. As a context manager it is up inside the block; `start` and `stop` may also be called directly.

    Its programs end with this process, however that ends, unless `ControlPlaneOptions.detached`. Not thread-safe.
    """

    def __init__(self, options: ControlPlaneOptions | None = None) -> None:
        self.options = options if options is not None else ControlPlaneOptions()
        if self.options.detached and self.options.directory is None:
            raise ValueError(
                "ControlPlaneOptions.directory: a detached control plane needs one, so that it can be found again"
            )
        self._layout: Layout | None = None
        self._lock: FileLock | None = None
        self._reserved = PortReservation()
        self._ports: Ports | None = None
        self._supervisor: Supervisor | None = None
        self._binaries: dict[str, Path] = {}
        self._real: RealNodes | None = None

    # -- what others use ----------------------------------------------------------------------------------------------

    @property
    def directory(self) -> Path:
        """The directory of the control plane's state, certificates and logs."""
        return self._files.directory

    @property
    def kubeconfig(self) -> Path:
        """An administrator's kubeconfig, with everything embedded."""
        return self._files.kubeconfig

    @property
    def server(self) -> str:
        """The API server's URL."""
        if self._ports is None:
            raise DevClusterError("the local control plane has not been started")
        return f"https://127.0.0.1:{self._ports.apiserver}"

    @property
    def ca(self) -> Path:
        """The certificate of the CA that signed the API server's certificate."""
        return self._files.certificate("ca")

    @property
    def version(self) -> str:
        """The version of Kubernetes that it runs, such as 1.36."""
        return self.options.version or default_version()

    @property
    def real(self) -> RealNodes | None:
        """The real nodes; None without any."""
        return self._real

    @property
    def inner_server(self) -> str:
        """The API server's URL for nodes and pods."""
        return self.server.replace("127.0.0.1", network.HUB)

    @property
    def service_port(self) -> int:
        """A port of 127.0.0.1 that leads to the same port in the network of the real nodes."""
        if self._ports is None:
            raise DevClusterError("the local control plane has not been started")
        return self._ports.service

    def enter(self) -> list[str]:
        """The prefix of a command that reaches the control plane's network; with simulated nodes there is none."""
        return self._real.enter_hub() if self._real is not None else []

    def log(self, component: Component) -> Path:
        return self._running.log(component)

    def issue_kubeconfig(self, user: str, groups: Sequence[str] = ()) -> Path:
        """A kubeconfig of a user other than the administrator, to whom RBAC and fair queueing (429s) apply."""
        path = self.directory / f"user-{user.replace(':', '-').replace('/', '-')}.kubeconfig"
        self._write_kubeconfig(path, user, groups)
        return path

    def start(self) -> Self:
        """Start everything. Returns when pods can be created. Raises BuildError or StartError.

        Processes of an earlier run in the directory are ended first (see `adopt`).
        """
        self._open()
        self._files.version.write_text(self.version)
        end_leftovers(self.directory, reversed(COMPONENTS), patience=ETCD_PATIENCE)
        nodes.end(self.directory)
        try:
            if self._real is not None:
                self._real.prepare()
            with narrate("Starting the local control plane"):
                create_certificates(self._files)
                self._start_all()
        except BaseException:
            self.stop()
            raise
        return self

    def adopt(self) -> Self:
        """Take over a detached control plane that another process started, as far as it still runs."""
        self._open()
        ports = _read_ports(self._files.ports)
        if ports is None or not self.kubeconfig.exists():
            directory = self.directory
            self._close()
            raise DevClusterError(f"there is no control plane in {directory}")
        self._ports = ports
        return self

    def leave(self) -> None:
        """Leave a detached control plane running without tracking it."""
        if not self.options.detached:
            raise DevClusterError("only a detached control plane can be left running")
        self._close()

    def stop(self) -> None:
        """End everything, and remove a temporary directory. Does nothing if it is not running."""
        if self._layout is None:
            return
        temporary = self.options.directory is None
        for component in reversed(COMPONENTS):
            keeps_data = component == "etcd" and not temporary
            self.stop_component(component, patience=ETCD_PATIENCE if keeps_data else 0.0)
        directory = self.directory
        if self._real is not None:
            self._real.stop()
        if temporary:
            nodes.remove_files(directory)
        self._close()

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    def running(self, component: Component) -> bool:
        """Whether the component's process is alive."""
        return self._supervisor is not None and self._supervisor.process(component) is not None

    def ready(self) -> bool:
        """Whether everything runs and the API server reports that it is ready."""
        hub = self._real is None or self._real.hub_runs
        return hub and all(self.running(component) for component in COMPONENTS) and self._api_ready()

    # -- for fault tests ----------------------------------------------------------------------------------------------

    def kill(self, component: Component) -> None:
        """kill -9; returns when the process is gone."""
        self.stop_component(component, patience=0.0)

    def stop_component(self, component: Component, *, patience: float = 5.0) -> None:
        """SIGTERM, after `patience` seconds SIGKILL. Returns when the process is gone. Does nothing if it is not running."""
        self._running.stop(component, patience=patience)

    def pause(self, component: Component) -> None:
        """Freeze a component (SIGSTOP): it keeps its connections but does not answer."""
        self._running.signal(component, signal.SIGSTOP)

    def resume(self, component: Component) -> None:
        self._running.signal(component, signal.SIGCONT)

    def start_component(self, component: Component) -> None:
        """Start a component again on its old ports and data. On return the API server is ready. Does nothing if it runs."""
        if self.running(component):
            return
        if component == "kwok":
            self._forget_node_leases()
        self._spawn(component)
        if component == "kube-apiserver":
            self._wait_for_api()

    def restart_apiserver(self, *, graceful: bool = False, down: float = 0.0) -> None:
        """Kill (or, with `graceful`, terminate) the API server and start it `down` seconds later. Returns when it is ready."""
        self.stop_component("kube-apiserver", patience=60.0 if graceful else 0.0)
        time.sleep(down)
        self.start_component("kube-apiserver")

    # -- starting -----------------------------------------------------------------------------------------------------

    @property
    def _files(self) -> Layout:
        if self._layout is None:
            raise DevClusterError("the local control plane has not been started")
        return self._layout

    @property
    def _running(self) -> Supervisor:
        if self._supervisor is None:
            raise DevClusterError("the local control plane has not been started")
        return self._supervisor

    def _open(self) -> None:
        if self._layout is not None:
            raise DevClusterError("the local control plane is already started")
        wanted = self.options.directory
        self.options = replace(self.options, version=_version(self.options))
        self._binaries = build.ensure_servers(self.version)
        directory, self._lock = _temporary_directory() if wanted is None else _named_directory(wanted)
        self._layout = Layout(directory)
        self._supervisor = Supervisor(directory, detached=self.options.detached)
        pool = self.options.real or RealPool.load(directory)
        if pool is not None:
            self.options = replace(self.options, real=pool, node_lease=pool.lease)
            self._real = RealNodes(self._layout, self._supervisor, pool)

    def _close(self) -> None:
        self._reserved.release()
        if self._supervisor is not None:
            self._supervisor.close()
        if self._lock is not None:
            self._lock.release()
        self._layout = self._lock = self._supervisor = self._real = None

    def _start_all(self) -> None:
        for attempt in range(1, START_ATTEMPTS + 1):
            self._choose_ports()
            try:
                self._start_components()
                return
            except PortTakenError:
                if attempt == START_ATTEMPTS:
                    raise
                for component in reversed(COMPONENTS):
                    self.kill(component)
                if self._real is not None:
                    self._real.stop()
                self._files.ports.unlink(missing_ok=True)

    def _start_components(self) -> None:
        for component, (user, groups) in IDENTITIES.items():
            self._write_kubeconfig(self._files.component_kubeconfig(component), user, groups)
        self._write_kubeconfig(self.kubeconfig, ADMIN, (MASTERS,))  # last: where it exists, all other files do
        if self._real is not None:
            self._start_hub(self._real)
        self._spawn("etcd")
        self._spawn("kube-apiserver")  # waits for etcd by itself
        self._wait_for_api()
        self._forget_node_leases()
        for component in ("kube-controller-manager", "kube-scheduler", "kwok"):
            self._spawn(component)
        self._running.wait("kube-controller-manager", self._default_service_account, self.options.ready_timeout)
        self._running.wait("kube-scheduler", self._scheduler_ready, self.options.ready_timeout)
        if self._real is not None:
            self._start_nodes(self._real)

    def _start_hub(self, real: RealNodes) -> None:
        """The network of the control plane and the nodes; from outside, its ports are reached at the same numbers."""
        assert self._ports is not None
        ports = self._ports
        real.start_hub(
            [ports.apiserver, ports.controller_manager, ports.scheduler, ports.service], inward=ports.service
        )

    def start_real_nodes(self) -> None:
        """Start the real nodes that don't run, with what they need in the hub. On return they are Ready."""
        if self._real is not None:
            self._start_nodes(self._real)

    def start_real_node(self, name: str) -> None:
        """Start a real node, or reconnect it; on return it is Ready. Raises DevClusterError."""
        if self._real is not None:
            self._real.start_node(name, self.inner_server)
            nodes.await_nodes(self.kubeconfig, self._real.pool, [name])

    def _start_nodes(self, real: RealNodes) -> None:
        users: dict[str, Path] = {}
        for name, (user, groups) in HUB_IDENTITIES.items():
            users[name] = self._files.component_kubeconfig(name)
            self._write_kubeconfig(users[name], user, groups)
        real.start_services(users)
        names = real.start_nodes(self.inner_server)
        nodes.await_nodes(self.kubeconfig, real.pool, names)

    def _choose_ports(self) -> None:
        """Free ports, or for a named control plane its old ones, so that existing kubeconfigs stay valid."""
        self._reserved.release()
        known = _read_ports(self._files.ports)
        if known is not None and all(self._reserved.take_exactly(port) for port in asdict(known).values()):
            self._ports = known
            return
        self._reserved.release()
        self.kubeconfig.unlink(missing_ok=True)  # the file has the old ports
        self._ports = Ports(*(self._reserved.take() for _ in fields(Ports)))
        self._files.ports.write_text(json.dumps(asdict(self._ports)))

    def _write_kubeconfig(self, path: Path, user: str, groups: Sequence[str]) -> None:
        authority = Authority.load(self._files.certificates, "ca")
        client = authority.issue_client(user, groups)
        trusted = authority.pair.certificate
        write_kubeconfig(path, name=CONTEXT, server=self.server, authority=trusted, user=user, client=client)

    def _spawn(self, component: Component) -> None:
        assert self._ports is not None
        program = [str(self._binaries[component]), *arguments(component, self._files, self._ports, self.options)]
        command = [*self.enter(), *program]
        self._running.spawn(component, command, environment(component, self.options))

    # -- talking to the API server -------------------------------------------------------------------------------------

    def _wait_for_api(self) -> None:
        self._running.wait("kube-apiserver", self._api_ready, self.options.ready_timeout)

    def _api_ready(self) -> bool:
        return self._request("GET", "/readyz")

    def _default_service_account(self) -> bool:
        return self._request("GET", "/api/v1/namespaces/default/serviceaccounts/default")

    def _scheduler_ready(self) -> bool:
        assert self._ports is not None
        return self._request("GET", "/readyz", server=f"https://127.0.0.1:{self._ports.scheduler}")

    def _forget_node_leases(self) -> None:
        """Let a new kwok take over at once the nodes of an earlier one, which held their leases under another name."""
        self._request("DELETE", "/apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases")

    def _request(self, method: str, path: str, *, server: str | None = None) -> bool:
        """Whether the (API) server answered with success; false if it is not reachable or refuses."""
        context = ssl.create_default_context(cafile=str(self.ca))
        context.load_cert_chain(self._files.certificate("admin"), self._files.key("admin"))
        opener = urllib.request.build_opener(
            urllib.request.ProxyHandler({}), urllib.request.HTTPSHandler(context=context)
        )
        request = urllib.request.Request((server or self.server) + path, method=method)
        try:
            with opener.open(request, timeout=10):
                return True
        except OSError:  # refused, timed out, or an HTTP error
            return False


def sweep_temporary() -> list[Path]:
    """Remove the temporary control planes of dead owners, with the processes that still run. Returns their directories."""
    root = private_directory("planes")
    swept: list[Path] = []
    with locked(root / "lock"):
        for directory in root.iterdir():
            lock = FileLock(directory / "lock")
            if directory.is_dir() and lock.try_acquire():  # else its owner is alive
                end_leftovers(directory, reversed(COMPONENTS))
                nodes.end(directory)
                nodes.remove_files(directory)
                lock.release()
                swept.append(directory)
    return swept


def _version(options: ControlPlaneOptions) -> str:
    """The version to run. Raises StartError where it doesn't fit the data or the nodes of the control plane."""
    directory = options.directory
    stored = Layout(directory).stored_version() if directory is not None else None
    version = options.version or stored or default_version()
    if stored is not None and VERSIONS.index(version) < VERSIONS.index(stored):
        raise StartError(
            f"the objects in {directory} were stored by Kubernetes {stored}, and {version} may not know them; "
            "`gangline dev cluster down` forgets them"
        )
    real = options.real or (RealPool.load(directory) if directory is not None else None)
    if real is not None and version != NEWEST:
        raise StartError(f"real nodes are of Kubernetes {NEWEST}, and a control plane must not be older than its nodes")
    return version


def _temporary_directory() -> tuple[Path, FileLock]:
    sweep_temporary()
    root = private_directory("planes")
    with locked(root / "lock"):  # a directory that is not locked yet is never removed
        directory = Path(tempfile.mkdtemp(dir=root, prefix="cp-"))
        lock = FileLock(directory / "lock")
        lock.acquire()
    return directory, lock


def _named_directory(directory: Path) -> tuple[Path, FileLock]:
    directory = directory.expanduser().absolute()
    directory.mkdir(mode=0o700, parents=True, exist_ok=True)
    lock = FileLock(directory / "lock")
    if not lock.try_acquire():
        raise StartError(f"another process uses the control plane in {directory}")
    return directory, lock


def _read_ports(path: Path) -> Ports | None:
    known = read_json(path)
    try:
        return Ports(**{name: int(str(port)) for name, port in known.items()}) if known else None
    except (TypeError, ValueError):
        return None
