"""The programs of real nodes: pinned by Go modules, compiled once into the user's cache; nft and libseccomp from Debian."""

from __future__ import annotations

import os
import shutil
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final, TextIO

from gangline.debian import DebianError, Packages
from gangline.devcluster.building import build
from gangline.devcluster.building.build import KUBERNETES, GoModule, GoProgram, cache_root, kubernetes_version
from gangline.devcluster.errors import BuildError

_GOMOD: Final = Path(__file__).parent / "gomod"
_CONTAINERD: Final = "github.com/containerd/containerd/v2"
_RUNC: Final = "github.com/opencontainers/runc"
_CNI: Final = "github.com/containernetworking/plugins"
_COREDNS: Final = "github.com/coredns/coredns"
#: nft and the libraries that a machine without it may lack
_NFT: Final = (
    "nftables",
    "libnftables1",
    "libnftnl11",
    "libmnl0",
    "libjansson4",
    "libgmp10",
    "libxtables12",
    "libedit2",
    "libbsd0",
    "libmd0",
)
_LIBRARIES: Final = "usr/lib/x86_64-linux-gnu"


def _containerd_values(pinned: Mapping[str, str]) -> dict[str, str]:
    return {f"{_CONTAINERD}/version.Version": pinned[_CONTAINERD]}


NODE: Final = GoModule(
    _GOMOD / "node",
    (
        GoProgram("kubelet", f"{KUBERNETES}/cmd/kubelet", KUBERNETES),
        GoProgram("kube-proxy", f"{KUBERNETES}/cmd/kube-proxy", KUBERNETES),
    ),
    shown=(("node", KUBERNETES),),
    linked=kubernetes_version,
)
CONTAINERD: Final = GoModule(
    _GOMOD / "containerd",
    (
        GoProgram(
            "containerd",
            f"{_CONTAINERD}/cmd/containerd",
            _CONTAINERD,
            tags=("urfave_cli_no_docs", "no_btrfs", "no_zfs", "no_devmapper", "no_systemd"),
        ),
        GoProgram("containerd-shim-runc-v2", f"{_CONTAINERD}/cmd/containerd-shim-runc-v2", "", tags=("no_grpc",)),
        GoProgram("ctr", f"{_CONTAINERD}/cmd/ctr", _CONTAINERD),
    ),
    shown=(("containerd", _CONTAINERD),),
    linked=_containerd_values,
)
CNI: Final = GoModule(
    _GOMOD / "cni",
    (
        GoProgram("ptp", f"{_CNI}/plugins/main/ptp", ""),
        GoProgram("loopback", f"{_CNI}/plugins/main/loopback", ""),
        GoProgram("host-local", f"{_CNI}/plugins/ipam/host-local", ""),
    ),
    shown=(("cni", _CNI),),
)
OWN: Final = GoModule(
    _GOMOD / "own",
    (GoProgram("gangline-dns", "./dns", _COREDNS), GoProgram("pause", "./pause", "")),
    shown=(("coredns", _COREDNS),),
)


@dataclass(frozen=True, slots=True)
class Programs:
    """Where each program is. `nft_libraries`: the directory of nft's libraries; None if the machine's own nft is used."""

    node: Path
    containerd: Path
    runc: Path
    cni: Path
    own: Path
    nft: Path
    nft_libraries: Path | None

    def environment(self) -> dict[str, str]:
        """Variables for the programs of a node or of the hub."""
        before = os.environ.get("PATH", "/usr/sbin:/usr/bin:/sbin:/bin")
        path = ":".join([*(str(p) for p in (self.containerd, self.runc, self.nft.parent)), before])
        libraries = {"LD_LIBRARY_PATH": str(self.nft_libraries)} if self.nft_libraries is not None else {}
        return {"PATH": path, **libraries}


def ensure(*, stream: TextIO | None = None) -> Programs:
    """Compile and fetch what is missing. Raises BuildError."""
    try:
        nft, libraries = _nft()
        runc = _runc()
    except DebianError as error:
        raise BuildError(f"real nodes need nft and libseccomp: {error}") from error
    return Programs(
        node=build.ensure(NODE, stream=stream),
        containerd=build.ensure(CONTAINERD, stream=stream),
        runc=build.ensure(runc, stream=stream),
        cni=build.ensure(CNI, stream=stream),
        own=build.ensure(OWN, stream=stream),
        nft=nft,
        nft_libraries=libraries,
    )


def debian_packages() -> Packages:
    """Debian's packages in the user's cache."""
    return Packages(cache_root() / "debian")


def _nft() -> tuple[Path, Path | None]:
    there = shutil.which("nft")
    if there:
        return Path(there), None
    tree = debian_packages().tree(_NFT)
    return tree / "usr/sbin/nft", tree / _LIBRARIES


def _runc() -> GoModule:
    """runc with seccomp, which the runtime's default profile needs; linked statically, so that it runs on every machine."""
    tree = debian_packages().tree(("libseccomp-dev",))
    found = {"PKG_CONFIG_PATH": str(tree / _LIBRARIES / "pkgconfig"), "PKG_CONFIG_SYSROOT_DIR": str(tree)}
    return GoModule(
        _GOMOD / "runc",
        (GoProgram("runc", _RUNC, _RUNC, tags=("seccomp", "netgo", "osusergo")),),
        shown=(("runc", _RUNC),),
        cgo=True,
        static=True,
        environment=found,
    )
