"""A cluster created by kind, for machines with Docker. Thin on purpose: kind does the work, kwok adds GPU nodes."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Callable, Sequence
from pathlib import Path

from gangline.devcluster.building.build import ensure
from gangline.devcluster.building.programs import CONTROL_PLANE, KWOK
from gangline.devcluster.clusters import clusters_root
from gangline.devcluster.components import ControlPlaneOptions, kwok_flags
from gangline.devcluster.errors import DevClusterError
from gangline.devcluster.processes.supervisor import Supervisor, free_of_proxies
from gangline.devcluster.progress import narrate

CONFIG = Path(__file__).with_name("kind.yaml")

#: runs a command and returns its output; raises DevClusterError on failure
Runner = Callable[[Sequence[str], float], str]


def run(command: Sequence[str], timeout: float) -> str:
    """Run a command for at most `timeout` seconds. Raises DevClusterError with its output."""
    try:
        answer = subprocess.run(command, capture_output=True, text=True, timeout=timeout, check=False)
    except FileNotFoundError as error:
        raise DevClusterError(f"{command[0]} is not installed") from error
    except subprocess.TimeoutExpired as error:
        raise DevClusterError(f"`{' '.join(command)}` took longer than {timeout:g} s") from error
    if answer.returncode != 0:
        raise DevClusterError(f"`{' '.join(command)}` failed:\n{answer.stderr.strip()}")
    return answer.stdout


class KindCluster:
    """One kind cluster by name."""

    def __init__(self, name: str, runner: Runner = run) -> None:
        self.name = name
        self.kubeconfig = clusters_root() / f"kind-{name}.kubeconfig"
        self._run = runner

    def ensure(self) -> Path:
        """Create the cluster unless it exists. Returns a kubeconfig of its own (not the user's ~/.kube/config)."""
        self.kubeconfig.parent.mkdir(parents=True, exist_ok=True)
        if self.name in self._run(["kind", "get", "clusters"], 30.0).split():
            self._run(["kind", "export", "kubeconfig", *self._target()], 30.0)
        else:
            with narrate(f"Creating the kind cluster {self.name}"):
                command = ["kind", "create", "cluster", *self._target(), "--config", str(CONFIG), "--wait", "120s"]
                self._run(command, 600.0)
        return self.kubeconfig

    def delete(self) -> None:
        self._run(["kind", "delete", "cluster", *self._target()], 120.0)
        self.kubeconfig.unlink(missing_ok=True)

    def host_address(self) -> str:
        """The address by which the cluster's API server reaches this machine: the gateway of kind's network."""
        template = "{{range .IPAM.Config}}{{.Gateway}} {{end}}"
        gateways = self._run(["docker", "network", "inspect", "kind", "--format", template], 30.0).split()
        for gateway in gateways:
            if ":" not in gateway:
                return gateway
        raise DevClusterError("Docker's network `kind` has no IPv4 gateway, so webhooks here can't be reached from it")

    def _target(self) -> list[str]:
        return ["--name", self.name, "--kubeconfig", str(self.kubeconfig)]


def docker_works(runner: Runner = run) -> bool:
    """Whether kind is installed and the Docker daemon answers."""
    if shutil.which("kind") is None or shutil.which("docker") is None:
        return False
    try:
        runner(["docker", "info", "--format", "{{.ServerVersion}}"], 10.0)
    except DevClusterError:
        return False
    return True


def start_kwok(kubeconfig: Path, directory: Path) -> Supervisor:
    """Run kwok on this machine against the cluster of `kubeconfig`, until the supervisor is closed."""
    binary = ensure(CONTROL_PLANE, (KWOK,)) / KWOK.name
    supervisor = Supervisor(directory)
    flags = [f"--{name}={value}" for name, value in kwok_flags(kubeconfig, ControlPlaneOptions().node_lease).items()]
    supervisor.spawn("kwok", [str(binary), *flags], free_of_proxies())
    return supervisor
