"""Which cluster to use, and how to reach it: the user's own, kind if Docker works, else the local control plane."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from gangline.devcluster.components import ControlPlaneOptions
from gangline.devcluster.connection import Connection, Source, local_connection
from gangline.devcluster.errors import DevClusterError
from gangline.devcluster.kind import KindCluster, Runner, docker_works, run, start_kwok
from gangline.devcluster.kubeconfig import read_contexts, users_kubeconfig
from gangline.devcluster.local import LocalControlPlane


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
