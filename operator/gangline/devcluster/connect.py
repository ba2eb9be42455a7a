"""Which cluster to use, and how to reach it: the user's own, kind if Docker works, else the local control plane."""

from __future__ import annotations

import shutil
import subprocess
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from gangline.devcluster.building.build import CONTROL_PLANE, KWOK, ensure
from gangline.devcluster.clusters import clusters_root
from gangline.devcluster.components import ControlPlaneOptions, kwok_flags
from gangline.devcluster.connection import Connection, Source, local_connection
from gangline.devcluster.errors import DevClusterError
from gangline.devcluster.kubeconfig import read_contexts, users_kubeconfig
from gangline.devcluster.local import LocalControlPlane
from gangline.devcluster.processes.supervisor import Supervisor, free_of_proxies
from gangline.devcluster.progress import narrate

# --- kind -------------------------------------------------------------------------------------------------------------
#
# A cluster created by kind, for machines with Docker. Thin on purpose: kind does the work, kwok adds GPU nodes.


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


@dataclass(frozen=True, slots=True)
class ClusterChoice:
    """The user's choice. Without one: kind if Docker works, else local."""

    source: Source | None = None
    kubeconfig: Path | None = None  # with source "kubeconfig"; None: the one kubectl would use
    context: str | None = None  # None: the current one
    kind_name: str = "gangline"
    local: ControlPlaneOptions = field(default_factory=ControlPlaneOptions)


@contextmanager
def connect(choice: ClusterChoice | None = None, *, runner: Runner = run) -> Iterator[Connection]:
    """The chosen cluster, started if needed. A local control plane ends with the block; the others stay.

    Raises DevClusterError (BuildError, StartError) with advice.
    """
    wish = choice if choice is not None else ClusterChoice()
    if wish.source == "kubeconfig" or wish.kubeconfig is not None or wish.context is not None:
        yield _users_cluster(wish)
    elif wish.source == "kind" or (wish.source is None and docker_works(runner)):
        with _kind_cluster(wish, runner) as connection:
            yield connection
    else:
        with LocalControlPlane(wish.local) as plane:
            yield local_connection(plane)


def _users_cluster(wish: ClusterChoice) -> Connection:
    if wish.source not in (None, "kubeconfig"):
        raise DevClusterError(f"--kubeconfig and --{wish.source} exclude each other")
    contexts = read_contexts(wish.kubeconfig if wish.kubeconfig is not None else users_kubeconfig())
    context = wish.context if wish.context is not None else contexts.current
    if context is None:
        raise DevClusterError(f"{contexts.path} has no current context; name one of: {', '.join(contexts.names)}")
    if context not in contexts.names:
        raise DevClusterError(f"{contexts.path} has no context {context!r}; it has: {', '.join(contexts.names)}")
    return Connection(contexts.path, context, "kubeconfig")


@contextmanager
def _kind_cluster(wish: ClusterChoice, runner: Runner) -> Iterator[Connection]:
    cluster = KindCluster(wish.kind_name, runner)
    kubeconfig = cluster.ensure()
    with tempfile.TemporaryDirectory(prefix="gangline-kind-") as directory:
        kwok = start_kwok(kubeconfig, Path(directory))
        try:
            yield Connection(kubeconfig, f"kind-{wish.kind_name}", "kind", cluster.host_address())
        finally:
            kwok.stop("kwok", patience=2.0)
            kwok.close()
