"""What objects of some kinds have beside what all have, and which view an object of each kind gets."""

from __future__ import annotations

from functools import cache
from typing import Final

from gangline.api import jobkinds, names
from gangline.api.admission.of_jobs.identifiers import prebuilt_workload
from gangline.api.admission.of_jobs.jobs import queue_name
from gangline.kube import resources as kube
from gangline.kube.resources import Json, Resource
from gangline.objects.stored import Stored


class WorkloadObject(Stored):
    """A Workload."""

    __slots__ = ()

    @property
    def pod_sets(self) -> list[Json]:
        return self.spec.get("podSets") or []

    @property
    def queue_name(self) -> str:
        """The name of its LocalQueue; "" if it names none."""
        return self.spec.get("queueName") or ""

    @property
    def priority(self) -> int:
        return self.spec.get("priority") or 0

    @property
    def active(self) -> bool:
        return self.spec.get("active") is not False

    @property
    def max_execution_seconds(self) -> int | None:
        """The number of seconds that it may run; None without a limit."""
        return self.spec.get("maximumExecutionTimeSeconds")

    @property
    def admission(self) -> Json | None:
        """The quota that it holds, or held and has not given back yet."""
        return self.status.get("admission")

    @property
    def assignments(self) -> list[Json]:
        """What each pod set was assigned; empty without an admission."""
        return (self.admission or {}).get("podSetAssignments") or []

    @property
    def admitted_by(self) -> str:
        """The ClusterQueue of its admission; "" without one."""
        return (self.admission or {}).get("clusterQueue") or ""

    @property
    def quota_reserved(self) -> bool:
        """Whether its condition QuotaReserved is True."""
        return self.is_true(names.QUOTA_RESERVED)

    @property
    def holds_quota(self) -> bool:
        """Whether its quota is reserved, and its admission says which."""
        return "admission" in self.status and self.quota_reserved

    @property
    def admitted(self) -> bool:
        return self.is_true(names.ADMITTED)

    @property
    def evicted(self) -> bool:
        return self.is_true(names.EVICTED)

    @property
    def finished(self) -> bool:
        return self.is_true(names.FINISHED)

    @property
    def checks(self) -> list[Json]:
        """The states of its admission checks."""
        return self.status.get("admissionChecks") or []

    @property
    def cluster(self) -> str:
        """The worker cluster in which it runs; "" while it runs in none."""
        return self.status.get("clusterName") or ""

    @property
    def nominated_clusters(self) -> list[str]:
        """The worker clusters to which it is offered; empty once one of them is chosen."""
        return self.status.get("nominatedClusterNames") or []

    @property
    def is_placed(self) -> bool:
        """Whether its admission names topology domains."""
        return any("topologyAssignment" in assignment for assignment in self.assignments)


class JobObject(Stored):
    """An object of a job kind: it is suspended until it has quota."""

    __slots__ = ()

    @property
    def queue_name(self) -> str:
        """The LocalQueue that its label names, or its annotation; "" if it names none."""
        return queue_name(self)

    @property
    def prebuilt_workload(self) -> str:
        """The name of the Workload that its label names; "" if it names none."""
        return prebuilt_workload(self)


class PodObject(JobObject):
    """A pod, which may be queued itself, like a job."""

    __slots__ = ()

    @property
    def node(self) -> str:
        """The node to which it is bound; "" while it is bound to none."""
        return self.spec.get("nodeName") or ""

    @property
    def gates(self) -> list[str]:
        """The names of its scheduling gates."""
        return [gate.get("name", "") for gate in self.spec.get("schedulingGates") or ()]

    @property
    def phase(self) -> str:
        return self.status.get("phase") or ""

    @property
    def has_ended(self) -> bool:
        return self.phase in ("Succeeded", "Failed")


class NodeObject(Stored):
    """A node."""

    __slots__ = ()

    @property
    def taints(self) -> list[Json]:
        return self.spec.get("taints") or []

    @property
    def host_name(self) -> str:
        """The host name in its labels, else its name."""
        return self.labels.get("kubernetes.io/hostname", self.name)


class LocalQueueObject(Stored):
    """A LocalQueue."""

    __slots__ = ()

    @property
    def cluster_queue(self) -> str:
        """The name of its ClusterQueue; "" if it names none."""
        return self.spec.get("clusterQueue") or ""


_VIEWS: Final[dict[Resource, type[Stored]]] = {
    kube.WORKLOADS: WorkloadObject,
    kube.PODS: PodObject,
    kube.NODES: NodeObject,
    kube.LOCAL_QUEUES: LocalQueueObject,
}


@cache
def _view_of(resource: Resource) -> type[Stored]:
    if resource in _VIEWS:
        return _VIEWS[resource]
    return Stored if jobkinds.declaration_of(resource.group, resource.kind) is None else JobObject


def view(resource: Resource, obj: Json) -> Stored:
    """The object with the names of its kind; itself, if it has them already."""
    kind = _view_of(resource)
    return obj if type(obj) is kind else kind(obj)
