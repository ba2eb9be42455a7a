"""A refusal for want of a right: what the user may not do, which role gives the right, and how an administrator grants it.

Only the API server's own refusals by RBAC are explained. What a webhook or a quota refuses says by itself what is wrong, and no
role helps.
"""

from __future__ import annotations

import re
import shlex
from dataclasses import dataclass
from typing import Final

from gangline import bounded
from gangline.api import names
from gangline.kube.errors import ApiError

#: characters of the longest refusal that is read
LONGEST: Final = 4096
_REFUSAL: Final = re.compile(
    r'(?:"(?P<object>[^"]{1,256})" )?is forbidden: User "(?P<user>[^"]{1,512})" cannot (?P<verb>[a-z]{1,32})'
    r' resource "(?P<resource>[^"]{1,256})" in API group "(?P<group>[^"]{0,256})"'
    r'(?: in the namespace "(?P<namespace>[^"]{1,256})"| at the cluster scope)?'
)
_SEE: Final = frozenset({"get", "list", "watch"})
#: what a viewer sees in a namespace besides jobs
_SEEN: Final = frozenset(
    {"workloads.kueue.x-k8s.io", "localqueues.kueue.x-k8s.io", "pods", "pods/log", "events", "events.events.k8s.io"}
)
#: kinds of jobs, as the role of researchers has them
JOBS: Final = frozenset(
    {
        *("jobs.batch", "gpujobs.gangline.io", "jobsets.jobset.x-k8s.io", "appwrappers.workload.codeflare.dev"),
        *("rayclusters.ray.io", "rayjobs.ray.io", "rayservices.ray.io", "trainjobs.trainer.kubeflow.org"),
        *("jaxjobs.kubeflow.org", "mpijobs.kubeflow.org", "paddlejobs.kubeflow.org", "pytorchjobs.kubeflow.org"),
        *("tfjobs.kubeflow.org", "xgboostjobs.kubeflow.org", "sparkapplications.sparkoperator.k8s.io"),
        "leaderworkersets.leaderworkerset.x-k8s.io",
    }
)
#: what administrators of queues may do to what is not Gangline's, and belongs to no namespace
_OF_CLUSTER: Final = {
    "nodes": (*_SEE, "patch"),
    "namespaces": (*_SEE, "create", "patch"),
    "clusterrolebindings.rbac.authorization.k8s.io": ("get", "list", "create", "patch"),
    "customresourcedefinitions.apiextensions.k8s.io": tuple(_SEE),
}
_LEADS: Final = frozenset({"workloads.kueue.x-k8s.io", "localqueues.kueue.x-k8s.io"})


@dataclass(frozen=True, slots=True)
class MissingRight:
    """The right that a user lacks. `resource`: perhaps with a subresource; `namespace`: "" = in the cluster; `object`: the name
    of the one object that was asked for.
    """

    user: str
    verb: str
    resource: str
    group: str
    namespace: str
    object: str = ""

    @property
    def name(self) -> str:
        plural, slash, below = self.resource.partition("/")
        return (f"{plural}.{self.group}" if self.group else plural) + slash + below

    @property
    def role(self) -> str:
        """The least of the roles for people that gives the right, in a namespace or in the cluster; "" = none of them."""
        sees = self.verb in _SEE
        if self.name == "rolebindings.rbac.authorization.k8s.io":
            return names.TEAM_LEAD
        if (self.verb, self.name, self.object) == ("get", "configmaps", names.SUBMIT_PROFILE):
            return names.VIEWER
        if self.name == "pods/exec":
            return names.TERMINAL_USER
        if sees and self.name == "workloadpriorityclasses.kueue.x-k8s.io":
            return names.PRIORITY_CLASSES_VIEWER
        if sees and self.name in _SEEN:
            return names.VIEWER
        if self.name in JOBS:
            return names.VIEWER if sees else names.RESEARCHER
        if self.group.startswith(("answers.", "visibility.")):  # what waits in a ClusterQueue is of all its teams
            return names.ADMINISTRATOR if self.resource.startswith("clusterqueues/") else names.VIEWER
        if self.verb in ("patch", "update") and self.name in _LEADS:
            return names.TEAM_LEAD
        if self.verb in _OF_CLUSTER.get(self.name, ()):
            return names.ADMINISTRATOR
        return names.ADMINISTRATOR if self.group in (names.GROUP, names.OWN_GROUP) else ""

    def __str__(self) -> str:
        where = f" in namespace {self.namespace}" if self.namespace else ""
        lacks = f"{self.user} may not {self.verb} {self.name}{where}"
        if not self.role:
            return f"{lacks}: none of Gangline's roles gives this right; ask an administrator of the cluster"
        user = shlex.quote(self.user)
        if self.namespace and self.role not in (names.PRIORITY_CLASSES_VIEWER, names.ADMINISTRATOR):
            grant = f"kubectl create rolebinding NAME -n {self.namespace} --clusterrole {self.role} --user {user}"
        else:
            grant = f"kubectl create clusterrolebinding NAME --clusterrole {self.role} --user {user}"
        return f"{lacks}. The role {self.role} gives this right; an administrator grants it by\n  {grant}"


@bounded.parser(
    LONGEST,
    instead=None,
    worst=('is forbidden: User "a" cannot get resource "', 'is forbidden: User "', '"a" is forbidden: User "'),
)
def missing_right(message: str) -> MissingRight | None:
    """The right that is missing by the API server's refusal; None where something else refused."""
    found = _REFUSAL.search(message)
    if found is None:
        return None
    return MissingRight(
        found["user"], found["verb"], found["resource"], found["group"], found["namespace"] or "", found["object"] or ""
    )


def said(error: ApiError) -> str:
    """The refusal for the user."""
    return explained(error.message)


def explained(message: str) -> str:
    """A refusal by its message, for the user: one for want of a right with the role that gives it."""
    missing = missing_right(message)
    return str(missing) if missing is not None else message
