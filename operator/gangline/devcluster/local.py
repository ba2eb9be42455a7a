"""A real control plane on this machine: etcd, kube-apiserver, controller manager, scheduler, and kwok for the nodes."""

from __future__ import annotations

import json
import os
import shutil
import signal
import ssl
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Sequence
from dataclasses import asdict
from pathlib import Path
from types import TracebackType
from typing import Self

from gangline.devcluster import build
from gangline.devcluster.certs import Authority, Pair
from gangline.devcluster.components import (
    ADMIN,
    COMPONENTS,
    MASTERS,
    Component,
    Layout,
    Options,
    Ports,
    arguments,
    create_certificates,
    environment,
)
from gangline.devcluster.errors import DevClusterError, StartError
from gangline.devcluster.kubeconfig import write_kubeconfig
from gangline.devcluster.locks import FileLock, PortReservation, locked, private_directory
from gangline.devcluster.process import ProcessId
from gangline.devcluster.progress import narrate

CONTEXT = "gangline"
LOG_TAIL_LINES = 25
LOG_KEPT_BYTES = 64 * 1024 * 1024  # a log longer than this starts afresh with its component
POLL_SECONDS = 0.03
START_ATTEMPTS = 3
IDENTITIES: dict[Component, tuple[str, tuple[str, ...]]] = {
    "kube-controller-manager": ("system:kube-controller-manager", ()),
    "kube-scheduler": ("system:kube-scheduler", ()),
    "kwok": ("kwok", (MASTERS,)),
}


class PortTakenError(StartError):
    """Somebody took a port between our choosing it and the server's binding it."""


class LocalControlPlane:
    """One control plane. As a context manager it is up inside the block; `start` and `stop` may also be called by hand.

    Its programs die with this process, however that ends, unless `Options.detached`. Not for use from several threads.
    """

    def __init__(self, options: Options | None = None) -> None:
        self.options = options if options is not None else Options()
        if self.options.detached and self.options.directory is None:
            raise ValueError("Options.directory: a detached control plane needs one, so that it can be found again")
        self._layout: Layout | None = None
        self._lock: FileLock | None = None
        self._reserved = PortReservation()
        self._ports: Ports | None = None
        self._children: dict[Component, subprocess.Popen[bytes]] = {}
        self._watchdog: subprocess.Popen[bytes] | None = None
        self._binaries: Path | None = None

    # -- what others use ----------------------------------------------------------------------------------------------

    @property
    def directory(self) -> Path:
        """Where its state, certificates and logs are."""
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

    def log(self, component: Component) -> Path:
        return self._files.log(component)

    def issue_kubeconfig(self, user: str, groups: Sequence[str] = ()) -> Path:
        """A kubeconfig for somebody else than the administrator: RBAC, and fair queueing (429s), apply to them."""
        path = self.directory / f"user-{user.replace(':', '-').replace('/', '-')}.kubeconfig"
        self._write_kubeconfig(path, user, groups)
        return path

    def start(self) -> Self:
        """Starts everything and returns when pods can be created. Raises BuildError or StartError."""
        self._binaries = build.ensure_servers()
        self._open_directory()
        try:
            with narrate("Starting the local control plane"):
                self._start_all()
        except BaseException:
            self.stop()
            raise
        return self

    def stop(self) -> None:
        """Ends everything, and removes a temporary directory. Does nothing when it is not running."""
        if self._layout is None:
            return
        temporary = self.options.directory is None
        for component in reversed(COMPONENTS):
            self.stop_component(component, patience=0.0 if temporary else 5.0)
        self._end_watchdog()
        self._reserved.release()
        directory, self._layout = self._layout.directory, None
        if temporary:
            shutil.rmtree(directory, ignore_errors=True)
        if self._lock is not None:
            self._lock.release()
            self._lock = None

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    # -- for fault tests ----------------------------------------------------------------------------------------------

    def kill(self, component: Component) -> None:
        """kill -9; returns when the process is gone."""
        self.stop_component(component, patience=0.0)

    def stop_component(self, component: Component, *, patience: float = 5.0) -> None:
        """SIGTERM, after `patience` seconds SIGKILL; returns when the process is gone. Nothing if it isn't running."""
        pid_file = self._files.pid_file(component)
        process = ProcessId.read(pid_file)
        if process is not None:
            process.end(patience=patience)
            self._tell_watchdog("-", process.pid)
            pid_file.unlink(missing_ok=True)
        child = self._children.pop(component, None)
        if child is not None:
            child.wait()

    def pause(self, component: Component) -> None:
        """Freezes a component (SIGSTOP): it keeps its connections but does not answer."""
        self._process(component).signal(signal.SIGSTOP)

    def resume(self, component: Component) -> None:
        self._process(component).signal(signal.SIGCONT)

    def start_component(self, component: Component) -> None:
        """Starts one component again on its old ports and data, and waits until it serves."""
        if self.running(component):
            return
        if component == "kwok":
            self._forget_node_leases()
        self._spawn(component)
        if component == "kube-apiserver":
            self._wait("kube-apiserver", self._api_ready)

    def restart_apiserver(self, *, graceful: bool = False, down: float = 0.0) -> None:
        """Kills (or, `graceful`, terminates) the API server and starts it `down` seconds later; returns when ready."""
        self.stop_component("kube-apiserver", patience=60.0 if graceful else 0.0)
        time.sleep(down)
        self.start_component("kube-apiserver")

    def running(self, component: Component) -> bool:
        """Whether the component's process is alive."""
        if self._layout is None:
            return False
        process = ProcessId.read(self._layout.pid_file(component))
        return process is not None and process.alive()

    # -- starting -----------------------------------------------------------------------------------------------------

    @property
    def _files(self) -> Layout:
        if self._layout is None:
            raise DevClusterError("the local control plane has not been started")
        return self._layout

    def _open_directory(self) -> None:
        if self._layout is not None:
            raise DevClusterError("the local control plane is already started")
        wanted = self.options.directory
        directory, self._lock = _temporary_directory() if wanted is None else _named_directory(wanted)
        self._layout = Layout(directory)
        end_leftovers(self._layout)

    def _start_all(self) -> None:
        layout = self._files
        create_certificates(layout)
        if not self.options.detached:
            self._start_watchdog()
        for attempt in range(1, START_ATTEMPTS + 1):
            self._choose_ports()
            try:
                return self._start_components()
            except PortTakenError:
                end_leftovers(layout)
                self._children.clear()
                layout.ports.unlink(missing_ok=True)
                if attempt == START_ATTEMPTS:
                    raise
        return None

    def _start_components(self) -> None:
        self._write_kubeconfig(self.kubeconfig, ADMIN, (MASTERS,))
        for component, (user, groups) in IDENTITIES.items():
            self._write_kubeconfig(self._files.component_kubeconfig(component), user, groups)
        self._spawn("etcd")
        self._spawn("kube-apiserver")  # waits for etcd by itself
        self._wait("kube-apiserver", self._api_ready)
        self._forget_node_leases()
        for component in ("kube-controller-manager", "kube-scheduler", "kwok"):
            self._spawn(component)
        self._wait("kube-controller-manager", self._default_service_account)

    def _choose_ports(self) -> None:
        """Fresh ports, or for a named control plane its old ones, so that kubeconfigs in use stay right."""
        self._reserved.release()
        known = _read_ports(self._files.ports)
        if known is not None and all(self._reserved.take_exactly(port) for port in asdict(known).values()):
            self._ports = known
            return
        self._reserved.release()
        self._ports = Ports(*(self._reserved.take() for _ in range(5)))
        self._files.ports.write_text(json.dumps(asdict(self._ports)))

    def _write_kubeconfig(self, path: Path, user: str, groups: Sequence[str]) -> None:
        authority = Authority.load(self._files.certificates, "ca")
        client: Pair = authority.issue_client(user, groups)
        write_kubeconfig(
            path, name=CONTEXT, server=self.server, authority=authority.pair.certificate, user=user, client=client
        )

    def _spawn(self, component: Component) -> None:
        assert self._binaries is not None and self._ports is not None
        command = [str(self._binaries / component), *arguments(component, self._files, self._ports, self.options)]
        with _open_log(self._files.log(component), command) as log:
            child = subprocess.Popen(
                command,
                cwd=self.directory,
                env=environment(component, self.options),
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,  # Ctrl-C is for us; we end our children in order
            )
        self._children[component] = child
        self._tell_watchdog("+", child.pid)
        process = ProcessId.of(child.pid)
        if process is not None:  # else it died at once, which whoever waits for it will report
            process.write(self._files.pid_file(component))

    def _wait(self, component: Component, ready: Callable[[], bool]) -> None:
        deadline = time.monotonic() + self.options.ready_timeout
        while not ready():
            for name, child in self._children.items():
                if child.poll() is not None:
                    raise self._failure(name, f"ended with status {child.returncode}")
            if time.monotonic() > deadline:
                raise self._failure(component, f"was not ready after {self.options.ready_timeout:g} s")
            time.sleep(POLL_SECONDS)

    def _failure(self, component: Component, what: str) -> StartError:
        lines = self._files.log(component).read_text(errors="replace").splitlines()[-LOG_TAIL_LINES:]
        text = "\n".join(line[:500] for line in lines)
        kind = PortTakenError if "address already in use" in text else StartError
        return kind(f"{component} {what}. The end of its log ({self._files.log(component)}):\n{text}")

    # -- talking to the API server -------------------------------------------------------------------------------------

    def _api_ready(self) -> bool:
        return self._request("GET", "/readyz") is not None

    def _default_service_account(self) -> bool:
        return self._request("GET", "/api/v1/namespaces/default/serviceaccounts/default") is not None

    def _forget_node_leases(self) -> None:
        """Lets a new kwok take over at once the nodes of an earlier one, which held their leases under another name."""
        self._request("DELETE", "/apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases")

    def _request(self, method: str, path: str) -> bytes | None:
        """The answer's body, or None while the server isn't there or refuses."""
        request = urllib.request.Request(self.server + path, method=method)
        try:
            with self._opener().open(request, timeout=10) as answer:
                return answer.read()
        except OSError:  # URLError, HTTPError, time-outs
            return None

    def _opener(self) -> urllib.request.OpenerDirector:
        context = ssl.create_default_context(cafile=str(self.ca))
        context.load_cert_chain(self._admin_certificate(), self._files.key("admin"))
        return urllib.request.build_opener(
            urllib.request.ProxyHandler({}), urllib.request.HTTPSHandler(context=context)
        )

    def _admin_certificate(self) -> Path:
        path = self._files.certificate("admin")
        if not path.exists():
            authority = Authority.load(self._files.certificates, "ca")
            authority.issue_client(ADMIN, (MASTERS,)).save(self._files.certificates, "admin")
        return path

    # -- children and their watchdog -----------------------------------------------------------------------------------

    def _process(self, component: Component) -> ProcessId:
        process = ProcessId.read(self._files.pid_file(component))
        if process is None:
            raise DevClusterError(f"{component} is not running")
        return process

    def _start_watchdog(self) -> None:
        script = Path(__file__).with_name("watchdog.py")
        self._watchdog = subprocess.Popen(
            [sys.executable, "-I", "-S", str(script)],
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )

    def _tell_watchdog(self, what: str, pid: int) -> None:
        if self._watchdog is not None and self._watchdog.stdin is not None:
            try:
                self._watchdog.stdin.write(f"{what}{pid}\n".encode())
                self._watchdog.stdin.flush()
            except BrokenPipeError:  # somebody ended the watchdog; pid files still tell the next run what to clean
                self._watchdog = None

    def _end_watchdog(self) -> None:
        if self._watchdog is not None:
            self._watchdog.communicate()
            self._watchdog = None


def end_leftovers(layout: Layout) -> None:
    """Ends what still runs from an earlier life of this directory, etcd last. Only processes we know by start time."""
    for component in reversed(COMPONENTS):
        pid_file = layout.pid_file(component)
        process = ProcessId.read(pid_file)
        if process is not None:
            process.end(patience=5.0 if component == "etcd" else 0.0)
        pid_file.unlink(missing_ok=True)


def sweep_temporary() -> list[Path]:
    """Removes the temporary control planes whose owners died, and whatever of them still runs; returns their places."""
    root = private_directory("planes")
    swept: list[Path] = []
    with locked(root / "lock"):
        for directory in root.iterdir():
            lock = FileLock(directory / "lock")
            if directory.is_dir() and lock.try_acquire():  # else its owner lives
                end_leftovers(Layout(directory))
                shutil.rmtree(directory, ignore_errors=True)
                lock.release()
                swept.append(directory)
    return swept


def _temporary_directory() -> tuple[Path, FileLock]:
    sweep_temporary()
    root = private_directory("planes")
    with locked(root / "lock"):  # nobody sweeps a directory that isn't locked yet
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
    try:
        return Ports(**json.loads(path.read_text()))
    except (OSError, ValueError, TypeError):
        return None


def _open_log(path: Path, command: Sequence[str]):
    """Opens a component's log for appending; one that has grown too long starts afresh."""
    if path.exists() and path.stat().st_size > LOG_KEPT_BYTES:
        path.unlink()
    fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    log = os.fdopen(fd, "ab")
    log.write(f"\n=== {' '.join(command)}\n".encode())
    log.flush()
    return log
