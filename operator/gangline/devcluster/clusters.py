"""Named local control planes that keep running in the background: `gangline dev cluster up|down|status|kubeconfig`."""

from __future__ import annotations

import os
import re
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

from gangline.devcluster.components import COMPONENTS, ControlPlaneOptions, Layout
from gangline.devcluster.connection import Connection, local_connection
from gangline.devcluster.errors import DevClusterError
from gangline.devcluster.local import LocalControlPlane
from gangline.devcluster.locks import locked
from gangline.devcluster.processes.process import ProcessId
from gangline.devcluster.real import nodes
from gangline.devcluster.real.settings import RealPool

DEFAULT_NAME = "gangline"
NAME = re.compile(r"^[a-z0-9]([a-z0-9-]{0,38}[a-z0-9])?$")


@dataclass(frozen=True, slots=True)
class Status:
    """The state of a named control plane."""

    name: str
    directory: Path
    kubeconfig: Path | None  # None: it has never been started
    pids: dict[str, int | None]  # by program; None: not running

    @property
    def up(self) -> bool:
        return all(pid is not None for pid in self.pids.values())

    @property
    def down(self) -> bool:
        return all(pid is None for pid in self.pids.values())

    @property
    def hub_is_down(self) -> bool:
        """Whether the network of real nodes, and so of the control plane, is gone."""
        return self.pids.get(nodes.HUB, 0) is None


class NamedCluster:
    """One control plane in the user's state directory. Every method may be called from several processes at once."""

    def __init__(self, name: str = DEFAULT_NAME) -> None:
        if not NAME.fullmatch(name):
            raise DevClusterError(f"--name: {name!r} must be 1 to 40 lower-case letters, digits and dashes")
        self.name = name
        self.directory = clusters_root() / name

    @property
    def kubeconfig(self) -> Path:
        return Layout(self.directory).kubeconfig

    def stored_version(self) -> str | None:
        """The version of Kubernetes that last wrote to its data; None if there are none."""
        return Layout(self.directory).stored_version()

    def up(self, options: ControlPlaneOptions | None = None, waiting: Callable[[str], object] | None = None) -> Status:
        """Start the cluster, or the missing parts of it; nothing if it is up. Raises BuildError or StartError."""
        chosen = replace(
            options if options is not None else ControlPlaneOptions(), directory=self.directory, detached=True
        )
        with self._alone(waiting):
            status = self.status()
            plane = LocalControlPlane(chosen)
            if status.down or status.kubeconfig is None or status.hub_is_down:
                plane.start()
            else:
                self._start_missing(plane, chosen)
            plane.leave()
        return self.status()

    def _start_missing(self, plane: LocalControlPlane, wanted: ControlPlaneOptions) -> None:
        if wanted.version not in (None, self.stored_version()):
            raise self._is_up(f"with Kubernetes {self.stored_version()}")
        if wanted.real is not None and RealPool.load(self.directory) is None:
            raise self._is_up("without real nodes")
        plane.adopt()
        for component in COMPONENTS:
            plane.start_component(component)
        _wait_ready(plane)
        plane.start_real_nodes()

    def _is_up(self, how: str) -> DevClusterError:
        return DevClusterError(f"{self.name} is up {how}; end it first: gangline dev cluster down --name {self.name}")

    def connection(self) -> Connection:
        """How to reach the running control plane."""
        with self._alone(None):
            plane = LocalControlPlane(ControlPlaneOptions(directory=self.directory, detached=True)).adopt()
            try:
                return replace(local_connection(plane), load_image=None)  # the plane is left alone
            finally:
                plane.leave()

    @contextmanager
    def real(self) -> Iterator[LocalControlPlane]:
        """The running control plane, to manage its real nodes. Raises DevClusterError if it has none."""
        with self._alone(None):
            if RealPool.load(self.directory) is None:
                raise DevClusterError(
                    f"{self.name} has no real nodes; `gangline dev cluster up --nodes real:3` starts some"
                )
            plane = LocalControlPlane(ControlPlaneOptions(directory=self.directory, detached=True)).adopt()
            try:
                yield plane
            finally:
                plane.leave()

    def down(self, *, forget: bool = True, waiting: Callable[[str], object] | None = None) -> bool:
        """End the cluster, and remove its data if `forget`. Returns whether there was anything to do."""
        with self._alone(waiting):
            if not self.directory.exists():
                return False
            was_up = not self.status().down
            for component in reversed(COMPONENTS):
                process = self._process(component)
                if process is not None:
                    process.end(patience=0.0 if forget or component != "etcd" else 5.0)
            nodes.end(self.directory)
            if forget:
                nodes.remove_files(self.directory)
            return was_up or forget

    def status(self) -> Status:
        pool = RealPool.load(self.directory)
        pids: dict[str, int | None] = {}
        for name in (*COMPONENTS, *(nodes.program_names(pool) if pool is not None else ())):
            process = self._process(name)
            pids[name] = process.pid if process is not None else None
        return Status(self.name, self.directory, self.kubeconfig if self.kubeconfig.exists() else None, pids)

    def _process(self, component: str) -> ProcessId | None:
        process = ProcessId.read(self.directory / f"{component}.pid")
        return process if process is not None and process.alive() else None

    def _alone(self, waiting: Callable[[str], object] | None):
        return locked(clusters_root() / f"{self.name}.lock", waiting)


def names() -> list[str]:
    """The existing control planes, up or not."""
    root = clusters_root()
    return sorted(path.name for path in root.iterdir() if path.is_dir()) if root.is_dir() else []


def clusters_root() -> Path:
    """$XDG_STATE_HOME/gangline/clusters, by default ~/.local/state/gangline/clusters."""
    base = Path(os.environ.get("XDG_STATE_HOME", ""))
    return (base if base.is_absolute() else Path.home() / ".local" / "state") / "gangline" / "clusters"


def _wait_ready(plane: LocalControlPlane) -> None:
    deadline = time.monotonic() + plane.options.ready_timeout
    while not plane.ready():
        if time.monotonic() > deadline:
            raise DevClusterError(
                f"the control plane in {plane.directory} runs but does not answer; "
                "see the logs there, or start afresh: gangline dev cluster down, then up"
            )
        time.sleep(0.05)
