"""What jobs, pods and nodes have beside what all objects have, and which view an object of each kind gets."""

from __future__ import annotations

from functools import cache
from typing import Final

from gangline.api import jobkinds
from gangline.api.admission.of_jobs.identifiers import prebuilt_workload
from gangline.api.admission.of_jobs.jobs import queue_name
from gangline.kube import resources as kube
from gangline.kube.resources import Json, Resource
from gangline.objects.queueing import LocalQueueObject, WorkloadObject
from gangline.objects.stored import Stored


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
