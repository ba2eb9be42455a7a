"""The newest objects by kind and key, and the questions that they answer by themselves: what is configured, and for whom.

Nothing here changes an object: the mirror does, which adds owners, engine values and what changed (`control.feed.mirror`).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import cast

from gangline.api.admission.of_jobs.allowed_classes import AllowedClasses
from gangline.api.admission.of_jobs.jobs import queue_name
from gangline.api.jobkinds.declaration import DESCRIPTION, RUNS_WITH
from gangline.api.read import policy_reader
from gangline.api.read.configuration.managed_jobs import EVERY_QUEUED, ManagedJobs
from gangline.control.feed.watched_kinds import resources
from gangline.engine import model
from gangline.jobs.base import JobKind
from gangline.jobs.priorities import priority_of
from gangline.kube import resources as kube
from gangline.kube.resources import Json, Resource
from gangline.objects import JobObject, LocalQueueObject, NodeObject, Stored, WorkloadObject


@dataclass(slots=True)
class StoredObjects:
    """The watched objects in their newest versions, and the rule which jobs are managed."""

    objects: dict[Resource, dict[str, Stored]] = field(default_factory=dict, kw_only=True)
    #: which jobs are managed, as configured
    managed: ManagedJobs = field(default=EVERY_QUEUED, kw_only=True)

    def __post_init__(self) -> None:
        for resource in resources():
            self.objects.setdefault(resource, {})

    def has(self, resource: Resource) -> Callable[[str], bool]:
        """Returns a function that says whether an object of this kind exists, by its key."""
        return lambda key: key in self.objects[resource]

    def get(self, resource: Resource, key: str) -> Stored | None:
        return self.objects[resource].get(key)

    @property
    def workloads(self) -> Mapping[str, WorkloadObject]:
        """The Workloads by their keys."""
        return cast("Mapping[str, WorkloadObject]", self.objects[kube.WORKLOADS])

    @property
    def nodes(self) -> Mapping[str, NodeObject]:
        """The nodes by their names."""
        return cast("Mapping[str, NodeObject]", self.objects[kube.NODES])

    @property
    def local_queues(self) -> Mapping[str, LocalQueueObject]:
        """The LocalQueues by their keys."""
        return cast("Mapping[str, LocalQueueObject]", self.objects[kube.LOCAL_QUEUES])

    def job(self, ref: tuple[Resource, str]) -> JobObject | None:
        """The object of a job kind, by its kind and key."""
        return cast("JobObject | None", self.objects[ref[0]].get(ref[1]))

    def jobs_of_kind(self, resource: Resource) -> Mapping[str, JobObject]:
        """The objects of a job kind by their keys."""
        return cast("Mapping[str, JobObject]", self.objects[resource])

    def cluster_id(self) -> str:
        """The uid of kube-system, which no other cluster has; "" as long as it is not known."""
        found = self.get(kube.NAMESPACES, "kube-system")
        return found.uid if found is not None else ""

    def policy_of(self, queue: Stored) -> Stored | None:
        """The QueuePolicy in force for a ClusterQueue."""
        return policy_reader.in_force(self.objects[kube.QUEUE_POLICIES].values(), queue)

    def in_scope(self, kind: JobKind, job: Stored) -> bool:
        """Whether jobs of this kind and in this namespace are managed, be it only those that name a queue."""
        managed = self.managed
        if not managed.kind(kind.api_version, kind.kind) or kind.declaration.left_alone(job):
            return False
        if not managed.asks_namespace(queued=bool(queue_name(job))):
            return True
        namespace = self.get(kube.NAMESPACES, job.namespace)
        return namespace is not None and managed.namespace(namespace.labels)

    def described(self, kind: JobKind, job: JobObject, workload: WorkloadObject | None) -> JobObject:
        """The job with what describes its pods, where that is another object; while it runs, with those of its Workload.

        They also take the place of a description that is missing: the last that was known.
        """
        declaration = kind.declaration
        if not declaration.descriptions:
            return job
        reference = declaration.described_by(job)
        found = self.get(*reference) if reference is not None else None
        complete = JobObject(job if found is None else {**job, DESCRIPTION: found})
        if workload is not None and (
            found is None or (workload.quota_reserved and not declaration.suspension.read(job))
        ):
            complete[RUNS_WITH] = workload.pod_sets
        return complete

    def is_leaving(self, namespace: str) -> bool:
        """Whether a namespace is being deleted. Its pods go first, and all else only after the last of them."""
        found = self.get(kube.NAMESPACES, namespace)
        return found is not None and found.deleting

    def flavor(self, name: str) -> Stored | None:
        return self.get(kube.RESOURCE_FLAVORS, name)

    def patience(self, queue: str) -> int | None:
        """How many seconds pods of a ClusterQueue stay on a failing node; None: the Kubernetes default."""
        found = self.recovery_of(queue)
        return found.toleration_seconds if found.enabled else None

    def recovery_of(self, queue: str) -> model.Recovery:
        """The recovery of a ClusterQueue's gangs whose nodes fail: as its policy says, else the default."""
        found = self.get(kube.CLUSTER_QUEUES, queue)
        return (policy_reader.recovery(self.policy_of(found)) if found is not None else None) or model.Recovery()

    def selects_nodes(self, labels: Mapping[str, str]) -> bool:
        """Whether some node has all these labels."""
        return any(labels.items() <= node.labels.items() for node in self.nodes.values())

    def placed_workloads(self) -> list[str]:
        """Workloads whose admission names topology domains."""
        return [key for key, workload in self.workloads.items() if workload.is_placed]

    def host_name(self, node: str) -> str:
        """The host name in a node's labels."""
        found = self.nodes.get(node)
        return found.host_name if found is not None else node

    def priority(self, job: JobObject, pod_sets: Sequence[Json]) -> tuple[int, Json | None]:
        """The priority of a job, and the class that gives it: by the label, else the pods' PriorityClass
        (`workload.priority_source`), else the cluster's default one, else 0. Raises JobError for a class that does not exist, or
        that the job's namespace does not allow.
        """
        default = next((c for c in self.objects[kube.PRIORITY_CLASSES].values() if c.get("globalDefault")), None)
        allowed = AllowedClasses.of(self.get(kube.NAMESPACES, job.namespace))
        return priority_of(job, pod_sets, self._class, default, allowed)

    def _class(self, reference: Json) -> Stored | None:
        """The object that a `priorityClassRef` names."""
        return self.objects[kube.BY_KIND[reference["kind"]]].get(reference["name"])
