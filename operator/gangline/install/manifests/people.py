"""Roles for people: viewer, researcher, team lead and administrator, and Kueue's roles under Kueue's names, so that what binds to
those binds to these.

The four, `kueue-batch-admin-role` and `kueue-batch-user-role` are made of the others by their labels; the labels of Kubernetes
add to the roles admin, edit and view of every namespace.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Final

from gangline.api import jobkinds, names
from gangline.api.names import ADMINISTRATOR, PRIORITY_CLASSES_VIEWER, RESEARCHER, TEAM_LEAD, TERMINAL_USER, VIEWER
from gangline.control.answers.api import discovery
from gangline.install import rights
from gangline.install.manifests.tree import Document, Set, head
from gangline.kube import resources as kube
from gangline.kube.ownership import CLUSTER_ROLES
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
#: labels of the parts of which the roles of people are made, beside Kueue's
_OWN: Final = f"rbac.{names.OWN_GROUP}"
IS_VIEWERS: Final = f"{_OWN}/viewer"
IS_TEAM_LEADS: Final = f"{_OWN}/team-lead"
IS_ADMINISTRATORS: Final = f"{_OWN}/administrator"
_ADMINS: Final = (BATCH_ADMIN,)
_USERS: Final = (BATCH_ADMIN, BATCH_USER)
_EVERYBODY: Final = (*_USERS, TO_VIEW, TO_EDIT, TO_ADMIN, IS_VIEWERS)

#: the roles of people, by what they are made of; each may what the one before it may
PEOPLE: Final[dict[str, tuple[str, ...]]] = {
    VIEWER: (IS_VIEWERS,),
    RESEARCHER: (IS_VIEWERS, BATCH_USER),
    TEAM_LEAD: (IS_VIEWERS, BATCH_USER, IS_TEAM_LEADS),
    ADMINISTRATOR: (IS_VIEWERS, BATCH_USER, IS_TEAM_LEADS, BATCH_ADMIN, IS_ADMINISTRATORS),
}


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
    _Kind(kube.RESERVATIONS, _ADMINS, (BATCH_ADMIN, TO_ADMIN), prefix="gangline"),
    _Kind(kube.QUOTA_PLANS, _ADMINS, (BATCH_ADMIN, TO_ADMIN), prefix="gangline"),
    _Kind(kube.JOB_PROFILES, _ADMINS, (BATCH_ADMIN, TO_ADMIN), prefix="gangline"),
)


def _rule(resource: Resource, verbs: Iterable[str], *subresources: str, named: Iterable[str] = ()) -> Json:
    resources = [f"{resource.plural}/{each}" if each else resource.plural for each in subresources or ("",)]
    only = {"resourceNames": list(named)} if named else {}
    return {"apiGroups": [resource.group], "resources": resources, **only, "verbs": list(verbs)}


#: what becomes of a job: its pods, what they print, and what the cluster says of them
_PODS: Final = [_rule(kube.PODS, _VIEW, "", "log"), _rule(kube.EVENTS, _VIEW), _rule(kube.CORE_EVENTS, _VIEW)]
#: terminals in pods. Over a WebSocket Kubernetes asks for `get`, and from 1.35 on for `create` as well
_TERMINALS: Final = [_rule(kube.PODS, ("get", "create"), "exec")]
#: how a namespace's jobs are submitted
_SUBMITS: Final = [_rule(kube.CONFIG_MAPS, ("get",), named=(names.SUBMIT_PROFILE,))]
#: of one team: hold and stop jobs of others, stop its LocalQueues, let people see and submit
_TEAM: Final = [
    _rule(kube.WORKLOADS, ("patch", "update")),
    _rule(kube.LOCAL_QUEUES, ("patch", "update")),
    _rule(kube.ROLE_BINDINGS, _EDIT),
    _rule(CLUSTER_ROLES, ("bind",), named=(VIEWER, RESEARCHER)),
]
#: of the cluster: cordon nodes, and give teams their namespaces and rights
_ADMINISTRATION: Final = [
    _rule(kube.NODES, (*_VIEW, "patch")),
    _rule(kube.NAMESPACES, (*_VIEW, "create", "patch")),
    _rule(kube.CLUSTER_ROLE_BINDINGS, ("get", "list", "create", "patch")),
    _rule(CLUSTER_ROLES, ("bind",), named=(TEAM_LEAD, PRIORITY_CLASSES_VIEWER)),
    _rule(kube.CUSTOM_RESOURCE_DEFINITIONS, _VIEW),
]


def documents() -> list[Document]:
    return [Document("roles.yaml", role, Set("roles")) for role in _roles()]


def _roles() -> Iterator[Json]:
    for name, parts in PEOPLE.items():
        yield _aggregated(name, *parts)
    yield _role("gangline-pods-viewer-role", (IS_VIEWERS,), _PODS)
    yield _role(TERMINAL_USER, (), _TERMINALS)
    yield _role("gangline-submit-viewer-role", (*_USERS, IS_VIEWERS), _SUBMITS)
    yield _role("gangline-team-editor-role", (IS_TEAM_LEADS,), _TEAM)
    yield _role("gangline-administration-role", (IS_ADMINISTRATORS,), _ADMINISTRATION)
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


def _aggregated(name: str, *of: str) -> Json:
    """A role that is made of those with one of these labels."""
    return {
        **_head(name, ()),
        "aggregationRule": {"clusterRoleSelectors": [{"matchLabels": {each: "true"}} for each in of]},
    }


def _head(name: str, of: Iterable[str]) -> Json:
    kueues = {f"{_KUEUES}/role": name.removeprefix("kueue-").removesuffix("-role")} if name.endswith("er-role") else {}
    marks = {**kueues, **dict.fromkeys(of, "true")}
    return head(f"{_RBAC}/v1", "ClusterRole", name, namespace=None, labels=marks)
