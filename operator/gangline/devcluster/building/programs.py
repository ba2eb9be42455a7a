"""The programs of a development cluster, by the Go module that pins them.

`gomod` pins the newest Kubernetes, with etcd, kwok and kubectl, which control planes of all versions share; `gomod/1.31` and so
on pin the API server, controller manager and scheduler of an older one.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from gangline.devcluster.building.go_module import GoModule, GoProgram
from gangline.devcluster.errors import StartError

KUBERNETES: Final = "k8s.io/kubernetes"
_ETCD: Final = "go.etcd.io/etcd/server/v3"
_KWOK: Final = "sigs.k8s.io/kwok"
_HELM: Final = "helm.sh/helm/v4"

_GOMOD: Final = Path(__file__).parent / "gomod"

#: the version of a local control plane unless another one is asked for
NEWEST: Final = "1.36"
OLDER: Final = ("1.31", "1.32", "1.33", "1.34", "1.35")
OLDEST: Final = OLDER[0]
VERSIONS: Final = (*OLDER, NEWEST)
#: the environment variable that names the version where no option does
VERSION_VARIABLE: Final = "GANGLINE_KUBERNETES"

KUBECTL: Final = GoProgram("kubectl", f"{KUBERNETES}/cmd/kubectl", KUBERNETES, ("version", "--client"))
KWOK: Final = GoProgram("kwok", f"{_KWOK}/cmd/kwok", _KWOK)
_ETCD_SERVER: Final = GoProgram("etcd", _ETCD, _ETCD)
#: of the control plane, those that are Kubernetes' own
KUBERNETES_SERVERS: Final = (
    GoProgram("kube-apiserver", f"{KUBERNETES}/cmd/kube-apiserver", KUBERNETES),
    GoProgram("kube-controller-manager", f"{KUBERNETES}/cmd/kube-controller-manager", KUBERNETES),
    GoProgram("kube-scheduler", f"{KUBERNETES}/cmd/kube-scheduler", KUBERNETES),
)
#: what a local control plane with simulated nodes runs
SERVERS: Final = (_ETCD_SERVER, *KUBERNETES_SERVERS, KWOK)


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
    _GOMOD,
    (*SERVERS, KUBECTL),
    shown=(("k8s", KUBERNETES), ("etcd", _ETCD), ("kwok", _KWOK)),
    linked=_control_plane_values,
)


#: lints and renders the chart in tests
HELM: Final = GoModule(
    _GOMOD / "helm",
    (GoProgram("helm", f"{_HELM}/cmd/helm", _HELM, ("version", "--short")),),
    shown=(("helm", _HELM),),
    linked=lambda pinned: {f"{_HELM}/internal/version.version": pinned[_HELM]},
)


def default_version() -> str:
    """The version of control planes for which none is chosen. Raises StartError."""
    version = os.environ.get(VERSION_VARIABLE) or NEWEST
    if version not in VERSIONS:
        raise StartError(f"{VERSION_VARIABLE}={version}: must be one of {', '.join(VERSIONS)}")
    return version


def older(version: str) -> GoModule:
    """The module of an older Kubernetes (`1.31`)."""
    return GoModule(
        _GOMOD / version, KUBERNETES_SERVERS, shown=(("control-plane", KUBERNETES),), linked=kubernetes_version
    )


def servers(version: str = NEWEST) -> tuple[tuple[GoModule, tuple[GoProgram, ...]], ...]:
    """What a local control plane of one of VERSIONS runs, each time with the module that builds it."""
    if version == NEWEST:
        return ((CONTROL_PLANE, SERVERS),)
    return (CONTROL_PLANE, (_ETCD_SERVER, KWOK)), (older(version), KUBERNETES_SERVERS)
