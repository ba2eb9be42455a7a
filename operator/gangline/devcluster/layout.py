"""The files of one local control plane, and the addresses of its Services."""

from __future__ import annotations

from pathlib import Path

from gangline.devcluster.building.programs import NEWEST

SERVICE_CIDR = "10.96.0.0/16"


class Layout:
    """The files of one control plane."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.certificates = directory / "pki"
        self.etcd_data = directory / "etcd"
        self.kubeconfig = directory / "kubeconfig"
        self.ports = directory / "ports.json"
        self.version = directory / "version"

    def stored_version(self) -> str | None:
        """The version of Kubernetes that last wrote to its data; None if there are none."""
        try:
            return self.version.read_text()
        except FileNotFoundError:
            return NEWEST if self.etcd_data.exists() else None

    def component_kubeconfig(self, component: str) -> Path:
        return self.directory / f"{component}.kubeconfig"

    def certificate(self, name: str) -> Path:
        return self.certificates / f"{name}.crt"

    def key(self, name: str) -> Path:
        return self.certificates / f"{name}.key"
