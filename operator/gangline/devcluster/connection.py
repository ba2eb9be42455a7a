"""How to reach a cluster that runs."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, TypeAlias

from gangline.devcluster.local import LocalControlPlane
from gangline.kube import config
from gangline.kube.client import ApiClient

Source: TypeAlias = Literal["local", "kind", "kubeconfig"]


@dataclass(frozen=True, slots=True)
class Connection:
    """How to reach a cluster."""

    kubeconfig: Path
    context: str | None
    source: Source
    #: the address by which the API server reaches a webhook on this machine; None if it is not known
    host_address: str | None = None
    #: prefix of a command that runs in the cluster's own network, if it has one: that of real nodes
    enter: tuple[str, ...] = ()
    #: imports an image archive on all real nodes, and returns their names; None where that is not ours to do
    load_image: Callable[[Path], list[str]] | None = None
    #: a port at which the operator is reached from this machine although it runs in that network; 0: any
    service_port: int = 0

    def client(self) -> ApiClient:
        """A client, to be used in `async with`. Raises LoginError."""
        return ApiClient(config.load(self.kubeconfig, self.context))

    @property
    def kubectl_hint(self) -> str:
        """The command by which a user points kubectl at the cluster."""
        export = f"export KUBECONFIG={self.kubeconfig}"
        return f"{export}; kubectl config use-context {self.context}" if self.context else export


def local_connection(plane: LocalControlPlane) -> Connection:
    """A running local control plane."""
    real = plane.real
    if real is None:
        return Connection(plane.kubeconfig, None, "local", "127.0.0.1")
    enter, port = tuple(plane.enter()), plane.service_port
    return Connection(
        plane.kubeconfig, None, "local", "127.0.0.1", enter, load_image=real.load_image, service_port=port
    )
