"""The programs of a development cluster, by the Go module that pins them."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Final

from gangline.devcluster.go_module import GoModule, Program

KUBERNETES: Final = "k8s.io/kubernetes"
_ETCD: Final = "go.etcd.io/etcd/server/v3"
_KWOK: Final = "sigs.k8s.io/kwok"

KUBECTL: Final = Program("kubectl", f"{KUBERNETES}/cmd/kubectl", KUBERNETES, ("version", "--client"))
KWOK: Final = Program("kwok", f"{_KWOK}/cmd/kwok", _KWOK)
#: what a local control plane with simulated nodes runs
SERVERS: Final = (
    Program("etcd", _ETCD, _ETCD),
    Program("kube-apiserver", f"{KUBERNETES}/cmd/kube-apiserver", KUBERNETES),
    Program("kube-controller-manager", f"{KUBERNETES}/cmd/kube-controller-manager", KUBERNETES),
    Program("kube-scheduler", f"{KUBERNETES}/cmd/kube-scheduler", KUBERNETES),
    KWOK,
)


def kubernetes_version(pinned: Mapping[str, str]) -> dict[str, str]:
    """The Go variables with Kubernetes' version. kube-scheduler refuses to start without them."""
    version = pinned[KUBERNETES]
    major, minor, _ = version.removeprefix("v").split(".", 2)
    component = "k8s.io/component-base/version"
    return {
        f"{component}.gitVersion": version,
        f"{component}.gitMajor": major,
        f"{component}.gitMinor": minor,
    }


def _control_plane_values(pinned: Mapping[str, str]) -> dict[str, str]:
    return {**kubernetes_version(pinned), f"{_KWOK}/pkg/consts.Version": pinned[_KWOK]}


CONTROL_PLANE: Final = GoModule(
    Path(__file__).parent / "gomod",
    (*SERVERS, KUBECTL),
    shown=(("k8s", KUBERNETES), ("etcd", _ETCD), ("kwok", _KWOK)),
    linked=_control_plane_values,
)
