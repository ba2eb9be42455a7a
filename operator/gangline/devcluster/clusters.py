"""Named local control planes that keep running in the background: `gangline cluster up|down|status|kubeconfig`."""

from __future__ import annotations

import os
import re
import shutil
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

from gangline.devcluster.components import COMPONENTS, Component, Layout, Options
from gangline.devcluster.errors import DevClusterError
from gangline.devcluster.local import LocalControlPlane
from gangline.devcluster.locks import locked
from gangline.devcluster.process import ProcessId

DEFAULT_NAME = "gangline"
NAME = re.compile(r"^[a-z0-9]([a-z0-9-]{0,38}[a-z0-9])?$")


@dataclass(frozen=True, slots=True)
class Status:
    """The state of a named control plane."""

    name: str
    directory: Path
    kubeconfig: Path | None  # None: it has never been started
    pids: dict[Component, int | None]  # None: not running

    @property
    def up(self) -> bool:
        return all(pid is not None for pid in self.pids.values())

    @property
    def down(self) -> bool:
        return all(pid is None for pid in self.pids.values())


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

    def up(self, options: Options | None = None, waiting: Callable[[str], object] | None = None) -> Status:
        """Start it, or the missing parts of it; nothing if it is up. Raises BuildError or StartError."""
        chosen = replace(options if options is not None else Options(), directory=self.directory, detached=True)
        with self._alone(waiting):
            status = self.status()
            plane = LocalControlPlane(chosen)
            if status.down or status.kubeconfig is None:
                plane.start()
            else:
                plane.adopt()
                for component in COMPONENTS:
                    plane.start_component(component)
                _wait_ready(plane)
            plane.leave()
        return self.status()

    def down(self, *, forget: bool = True, waiting: Callable[[str], object] | None = None) -> bool:
        """End it, and remove its data if `forget`. Returns whether there was anything to do."""
        with self._alone(waiting):
            if not self.directory.exists():
                return False
            was_up = not self.status().down
            for component in reversed(COMPONENTS):
                process = self._process(component)
                if process is not None:
                    process.end(patience=0.0 if forget or component != "etcd" else 5.0)
            if forget:
                shutil.rmtree(self.directory)
            return was_up or forget

    def status(self) -> Status:
        pids: dict[Component, int | None] = {}
        for component in COMPONENTS:
            process = self._process(component)
            pids[component] = process.pid if process is not None else None
        return Status(self.name, self.directory, self.kubeconfig if self.kubeconfig.exists() else None, pids)

    def _process(self, component: Component) -> ProcessId | None:
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
                "see the logs there, or start afresh: gangline cluster down, then up"
            )
        time.sleep(0.05)
