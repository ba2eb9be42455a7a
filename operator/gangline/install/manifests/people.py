"""Roles for people, with the names and labels of Kueue's, so that what binds to those binds to these.

`kueue-batch-admin-role` and `kueue-batch-user-role` are made of the others by their labels; the labels of Kubernetes add to
the roles admin, edit and view of every namespace.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Final

from gangline.api import jobkinds
from gangline.control.answers.api import discovery
from gangline.install import rights
from gangline.install.manifests.tree import Document, Set, head
from gangline.kube import resources as kube
from gangline.kube.resources import Json, Resource

_RBAC: Final = "rbac.authorization.k8s.io"
_KUEUES: Final = "rbac.kueue.x-k8s.io"
_VIEW: Final = ("get", "list", "watch")
_EDIT: Final = ("create", "delete", "get", "list", "patch", "update", "watch")

BATCH_ADMIN: Final = f"{_KUEUES}/batch-admin"
BATCH_USER: Final = f"{_KUEUES}/batch-user"
TO_ADMIN: Final = f"{_RBAC}/aggregate-to-admin"
TO_EDIT: Final = f"{_RBAC}/aggregate-to-edit"
TO_VIEW: Final = f"{_RBAC}/aggregate-to-view"
_ADMINS: Final = (BATCH_ADMIN,)
_USERS: Final = (BATCH_ADMIN, BATCH_USER)
_EVERYBODY: Final = (*_USERS, TO_VIEW, TO_EDIT, TO_ADMIN)


@dataclass(frozen=True, slots=True)
class _Kind:
    """Who edits and who sees objects of a kind; `status`: it has one to see."""

    resource: Resource
    editors: tuple[str, ...]
    viewers: tuple[str, ...]
    status: bool = True
    prefix: str = "kueue"

    @property
    def name(self) -> str:
        return self.resource.kind.lower()


_KINDS: Final = (
    _Kind(kube.CLUSTER_QUEUES, _ADMINS, (BATCH_ADMIN, TO_ADMIN)),
    _Kind(kube.LOCAL_QUEUES, _ADMINS, _EVERYBODY),
    _Kind(kube.WORKLOADS, _ADMINS, _EVERYBODY),
    _Kind(kube.COHORTS, _ADMINS, (BATCH_ADMIN, TO_ADMIN)),
    _Kind(kube.RESOURCE_FLAVORS, _ADMINS, (BATCH_ADMIN, TO_ADMIN), status=False),
    _Kind(kube.TOPOLOGIES, _ADMINS, (BATCH_ADMIN, TO_ADMIN), status=False),
    _Kind(kube.ADMISSION_CHECKS, _ADMINS, (BATCH_ADMIN, TO_ADMIN)),
    _Kind(kube.MULTI_KUEUE_CONFIGS, _ADMINS, (BATCH_ADMIN, TO_ADMIN), status=False),
    _Kind(kube.MULTI_KUEUE_CLUSTERS, _ADMINS, (BATCH_ADMIN, TO_ADMIN)),
    _Kind(kube.WORKLOAD_PRIORITY_CLASSES, _ADMINS, (BATCH_ADMIN, TO_ADMIN), status=False),
    _Kind(kube.JOBS, _USERS, _EVERYBODY),
    *(_Kind(each.resource, _USERS, _EVERYBODY) for each in jobkinds.BUILT_IN if each.framework and each.optional),
    # who may edit a namespace's jobs may edit its GPUJobs
    _Kind(kube.GPU_JOBS, (*_USERS, TO_EDIT, TO_ADMIN), _EVERYBODY, prefix="gangline"),
    _Kind(kube.QUEUE_POLICIES, _ADMINS, (BATCH_ADMIN, TO_ADMIN), prefix="gangline"),
)


def documents() -> list[Document]:
    return [Document("roles.yaml", role, Set("roles")) for role in _roles()]


def _roles() -> Iterator[Json]:
    yield _aggregated("kueue-batch-admin-role", BATCH_ADMIN)
    yield _aggregated("kueue-batch-user-role", BATCH_USER)
    for kind in _KINDS:
        yield _role(f"{kind.prefix}-{kind.name}-editor-role", kind.editors, _rules(kind, _EDIT))
        yield _role(f"{kind.prefix}-{kind.name}-viewer-role", kind.viewers, _rules(kind, _VIEW))
    yield _pending("kueue-pending-workloads-cq-viewer-role", "clusterqueues", (BATCH_ADMIN, TO_VIEW, TO_EDIT, TO_ADMIN))
    yield _pending("kueue-pending-workloads-lq-viewer-role", "localqueues", _EVERYBODY)
    yield _role("gangline-answers-viewer-role", _EVERYBODY, rights.people_rules())
    yield {
        **_head("kueue-metrics-reader", ()),
        "rules": [{"nonResourceURLs": ["/metrics"], "verbs": ["get"]}],
    }


def _rules(kind: _Kind, verbs: Iterable[str]) -> list[Json]:
    group, plural = kind.resource.group, kind.resource.plural
    rules: list[Json] = [{"apiGroups": [group], "resources": [plural], "verbs": list(verbs)}]
    if kind.status:
        rules.append({"apiGroups": [group], "resources": [f"{plural}/status"], "verbs": ["get"]})
    return rules


def _pending(name: str, queues: str, of: Iterable[str]) -> Json:
    rule = {"apiGroups": [discovery.VISIBILITY.name], "resources": [f"{queues}/pendingworkloads"], "verbs": list(_VIEW)}
    return _role(name, of, [rule])


def _role(name: str, of: Iterable[str], rules: list[Json]) -> Json:
    return {**_head(name, of), "rules": rules}


def _aggregated(name: str, label: str) -> Json:
    return {**_head(name, ()), "aggregationRule": {"clusterRoleSelectors": [{"matchLabels": {label: "true"}}]}}


def _head(name: str, of: Iterable[str]) -> Json:
    kueues = {f"{_KUEUES}/role": name.removeprefix("kueue-").removesuffix("-role")} if name.endswith("er-role") else {}
    marks = {**kueues, **dict.fromkeys(of, "true")}
    return head(f"{_RBAC}/v1", "ClusterRole", name, namespace=None, labels=marks)
