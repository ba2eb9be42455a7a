"""The cluster as last seen: the raw objects, their owners, and the engine's view of each object.

One consumer feeds the mirror, in order. Each object goes in whole; out come engine changes (`model.Change`) and the set of jobs
that have to be planned again. An object that cannot be read is kept out of the engine with an error that names the field. The
last good value of a configuration object stays in force, so that one typo does not stop a queue.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import orjson

from gangline.api import names
from gangline.api.admission.jobs import prebuilt_workload, queue_name
from gangline.api.read import parse, policy_reader
from gangline.api.read.configuration.managed_jobs import EVERY_QUEUED, ManagedJobs
from gangline.control.isolation.time_limit import limited
from gangline.control.mirror.changes import Changes, JobRef
from gangline.control.mirror.request_rules import RequestRules
from gangline.control.mirror.watched_kinds import (
    CONFIGURATION,
    COUNTING,
    JOB_KINDS,
    KEPT_WHILE_IN_USE,
    OWNED,
    READERS,
    resources,
)
from gangline.control.parts.messages import Messages, WorkloadDeparted
from gangline.engine import model
from gangline.jobs import kind_of, owners
from gangline.jobs import workload as workloads
from gangline.jobs.base import Children, JobError, JobKind, UnknownClassError
from gangline.kube import resources as kube
from gangline.kube.resources import Json, Resource, controller_of, controller_uid, key_of, true_condition

log = logging.getLogger(__name__)

#: How many levels of owners are followed.
MOST_OWNERS = 10
#: How many different pod sets are kept for sharing.
MAX_SHAPES = 4096


def without_nulls(value: Any) -> Any:
    """The same JSON without null fields in any object."""
    if isinstance(value, dict):
        return {name: without_nulls(inner) for name, inner in value.items() if inner is not None}
    return [without_nulls(inner) for inner in value] if isinstance(value, list) else value


def _has_managed_controller(job: Json, managed: ManagedJobs) -> bool:
    """Whether the controller of `job` is of a watched kind that is managed."""
    ref = controller_of(job)
    return (
        ref is not None
        and kind_of(ref["apiVersion"], ref["kind"]) is not None
        and managed.kind(ref["apiVersion"], ref["kind"])
    )


def _named_by(job: Json) -> str:
    """The key of the prebuilt Workload that a job names, "" = none."""
    name = prebuilt_workload(job)
    return f"{job['metadata']['namespace']}/{name}" if name else ""


def _is_placed(workload: Json) -> bool:
    assignments = (workload.get("status", {}).get("admission") or {}).get("podSetAssignments") or ()
    return any("topologyAssignment" in assignment for assignment in assignments)


def _has_finished(workload: Json) -> bool:
    return true_condition(workload, names.FINISHED) is not None


@dataclass(slots=True)
class Mirror:
    """The store. `observe` receives engine changes; `complain` receives (object, error) for each object that cannot be read."""

    observe: Callable[[model.Change], None]
    complain: Callable[[Json, Exception], None] = field(default=lambda obj, error: None)
    #: publishes each Workload that was deleted or has finished
    messages: Messages = field(default_factory=Messages)
    labels_to_copy: Sequence[str] = ()
    objects: dict[Resource, dict[str, Json]] = field(default_factory=dict)
    #: the URL to which the pods of admitted jobs report their progress; "" = the pods get none
    progress_url: str = ""
    #: what pods of Workloads count for
    rules: RequestRules = field(default_factory=RequestRules)
    #: which jobs are managed, as configured
    managed: ManagedJobs = EVERY_QUEUED
    changes: Changes = field(default_factory=Changes)
    #: False holds Topologies back from the engine, which would take occupied room for free before the pods are known
    pods_known: bool = False
    #: objects of `KEPT_WHILE_IN_USE` that are being deleted
    _deleting: set[tuple[Resource, str]] = field(default_factory=set)
    _owned: dict[str, set[tuple[Resource, str]]] = field(default_factory=dict)  # owner uid -> what it owns
    _by_uid: dict[str, JobRef] = field(default_factory=dict)  # uid of a job -> the job
    _naming: dict[str, set[JobRef]] = field(default_factory=dict)  # a prebuilt Workload -> the jobs that name it
    _values: dict[str, model.Workload] = field(default_factory=dict)
    _shapes: dict[bytes, list[Json]] = field(default_factory=dict)  # pod sets by their JSON

    def __post_init__(self) -> None:
        for resource in resources():
            self.objects.setdefault(resource, {})

    # --- in ---

    def upsert(self, resource: Resource, obj: Json, *, decides: bool = True, assumed: bool = False) -> None:
        """Store the newest version of an object.

        `decides=False` keeps it from the engine, whose assumption is newer for now. `assumed=True` passes it to the engine in any
        case, because the engine has assumed something about the object since its last fact.
        """
        key = key_of(obj)
        old = self.objects[resource].get(key)
        if (
            old is not None
            and not assumed
            and old["metadata"]["resourceVersion"] == obj["metadata"].get("resourceVersion")
        ):
            return  # the answer to our write and the watch event of it bring the same version
        obj["metadata"].pop("managedFields", None)
        for part in ("spec", "status"):  # may be absent or null where every field in it is optional
            if obj.get(part) is None:
                obj[part] = {}
            elif resource in CONFIGURATION:
                obj[part] = without_nulls(obj[part])
            elif None in obj[part].values():
                obj[part] = {name: value for name, value in obj[part].items() if value is not None}
        if resource == kube.WORKLOADS:
            self._share(obj)
        if old is not None and old["metadata"]["uid"] != obj["metadata"]["uid"]:
            self.remove(resource, key)
            old = None
        self.objects[resource][key] = obj
        self._index(resource, key, old, obj)
        if old is None and resource in JOB_KINDS:  # its children may have arrived before it
            self.changes.jobs.update(ref for ref in self._owned.get(obj["metadata"]["uid"], ()) if ref[0] in JOB_KINDS)
        if old is None and resource == kube.WORKLOADS:
            self.changes.arrived.add(key)
        elif old is None and resource in JOB_KINDS:
            for uid in (obj["metadata"]["uid"], *self.controllers_of(obj)):
                self.changes.arrived.update(name for kind, name in self._owned.get(uid, ()) if kind == kube.WORKLOADS)
        if resource in COUNTING:
            self._count_by(resource, key, obj)
        elif decides:
            self._read(resource, key, obj, assumed=assumed)
        if old is not None and resource == kube.WORKLOADS and _has_finished(obj) and not _has_finished(old):
            self.messages.publish(WorkloadDeparted(old))
        self._mark(resource, key, obj)

    def remove(self, resource: Resource, key: str) -> None:
        old = self.objects[resource].pop(key, None)
        if old is None:
            return
        self._index(resource, key, old, None)
        self._mark(resource, key, old)
        if resource in COUNTING:
            self.rules.put(resource, key, None)
        if resource in READERS:
            self._values.pop(key, None) if resource == kube.WORKLOADS else None
            self.observe(model.Gone(READERS[resource][0], key))
        if resource == kube.WORKLOADS:
            self.messages.publish(WorkloadDeparted(old))

    def know_pods(self) -> None:
        """All pods are known: flavors with a topology may be used."""
        if not self.pods_known:
            self.pods_known = True
            for key, topology in self.objects[kube.TOPOLOGIES].items():
                self._read(kube.TOPOLOGIES, key, topology)

    def _share(self, workload: Json) -> None:
        """Share one copy of the pod sets among Workloads of one shape, of which there may be thousands."""
        pod_sets = workload["spec"].get("podSets")
        if pod_sets:
            if len(self._shapes) >= MAX_SHAPES:
                self._shapes.clear()
            workload["spec"]["podSets"] = self._shapes.setdefault(orjson.dumps(pod_sets), pod_sets)

    def settle(self, resource: Resource, key: str) -> None:
        """Report an object's actual state to the engine again: what the engine assumed did not come true."""
        obj = self.objects[resource].get(key)
        if obj is not None:
            self._read(resource, key, obj, assumed=True)

    def recounted(self) -> list[str]:
        """Workloads that may count differently since LimitRanges and RuntimeClasses were last asked after."""
        concerns = self.rules.take_changed()
        if concerns is None:
            return []
        return [key for key, workload in self.objects[kube.WORKLOADS].items() if concerns(workload)]

    def count_anew(self, key: str) -> None:
        """Report a Workload to the engine again if it counts differently now. What it holds stays as it was reserved."""
        self._read(kube.WORKLOADS, key, self.objects[kube.WORKLOADS][key])

    def _count_by(self, resource: Resource, key: str, obj: Json) -> None:
        try:
            limited(lambda: self.rules.put(resource, key, obj))
        except Exception as error:  # what it said before stays in force
            self.complain(obj, error)

    def _value_of(self, resource: Resource, obj: Json) -> model.Item | None:
        """What the engine is told of an object; None if it is told nothing."""
        if resource == kube.WORKLOADS:
            return parse.workload(obj, self.rules.of(obj["metadata"].get("namespace", "")))
        reader = READERS.get(resource)
        return None if reader is None else reader[1](obj)

    def _read(self, resource: Resource, key: str, obj: Json, *, assumed: bool = False) -> None:
        if resource == kube.TOPOLOGIES and not self.pods_known:
            return
        try:
            item = limited(lambda: self._value_of(resource, obj))
        except Exception as error:  # the last good value stays in force, whatever the error
            self.complain(obj, error)
            if resource == kube.WORKLOADS and key not in self._values:
                self._count_quota(key, obj)
            return
        if item is None:
            return
        if isinstance(item, model.ClusterQueue):
            try:
                item = policy_reader.with_policy(item, self.policy_of(obj))
            except Exception as error:
                self.complain(self.policy_of(obj) or obj, error)
        if isinstance(item, model.LocalQueue) and self._is_leaving(item.namespace):
            item = replace(item, terminating=True)  # nothing can be created there: its jobs get no quota any more
        if isinstance(item, model.Workload):
            if not assumed and self._values.get(key) == item:  # nothing changed that affects decisions
                return
            self._values[key] = item
        self.observe(model.Put(item))

    def _is_leaving(self, namespace: str) -> bool:
        """Whether a namespace is being deleted. Its pods go first, and all else only after the last of them."""
        found = self.objects[kube.NAMESPACES].get(namespace)
        return found is not None and "deletionTimestamp" in found["metadata"]

    def _count_quota(self, key: str, obj: Json) -> None:
        """Count the quota of a Workload that could never be read: it may hold quota, which must not be given away."""
        try:
            held = parse.holding(obj)
        except parse.ParseError as error:
            log.warning("%s: its quota is not counted: %s", key, error)
            return
        if held is not None:
            self._values[key] = held
            self.observe(model.Put(held))

    def _index(self, resource: Resource, key: str, old: Json | None, new: Json | None) -> None:
        before = controller_uid(old) if old else None
        after = controller_uid(new) if new else None
        if before != after and before is not None:
            owned = self._owned.get(before, set())
            owned.discard((resource, key))
            if not owned:
                self._owned.pop(before, None)
        if after is not None and resource in OWNED:
            self._owned.setdefault(after, set()).add((resource, key))
        if resource in JOB_KINDS:
            self._index_name(resource, key, old, new)
            if new is not None:
                self._by_uid[new["metadata"]["uid"]] = (resource, key)
            elif old is not None:
                self._by_uid.pop(old["metadata"]["uid"], None)

    def _index_name(self, resource: Resource, key: str, old: Json | None, new: Json | None) -> None:
        """Index the prebuilt Workload that a job names."""
        before, after = (_named_by(job) if job is not None else "" for job in (old, new))
        if before and before != after:
            jobs = self._naming.get(before, set())
            jobs.discard((resource, key))
            if not jobs:
                self._naming.pop(before, None)
        if after:
            self._naming.setdefault(after, set()).add((resource, key))

    def take_deleting(self) -> list[tuple[Resource, str]]:
        """Configuration objects under deletion that wait until they are not used any more; asked for after every round."""
        self._deleting = {(resource, key) for resource, key in self._deleting if key in self.objects[resource]}
        return sorted(self._deleting, key=lambda pair: pair[1])

    def _mark(self, resource: Resource, key: str, obj: Json) -> None:
        """Record which jobs and other objects have to be looked at because `obj` changed."""
        if resource in JOB_KINDS:
            self.changes.jobs.add((resource, key))
            if key not in self.objects[resource]:  # deleted: its workloads have lost their job
                self.changes.unowned.update(
                    name for kind, name in self._owned.get(obj["metadata"]["uid"], ()) if kind == kube.WORKLOADS
                )
        if resource == kube.QUEUE_POLICIES:
            for name, queue in self.objects[kube.CLUSTER_QUEUES].items():
                self._read(kube.CLUSTER_QUEUES, name, queue)
        if resource == kube.NAMESPACES and self.managed.selector is not None:  # it may be selected now, or not any more
            self.changes.jobs.update(ref for ref in self.jobs() if ref[1].startswith(f"{key}/"))
        if resource == kube.NAMESPACES and self._is_leaving(key):
            for name, queue in self.objects[kube.LOCAL_QUEUES].items():
                if queue["metadata"]["namespace"] == key:
                    self._read(kube.LOCAL_QUEUES, name, queue)
        if resource in (kube.QUEUE_POLICIES, kube.CLUSTER_QUEUES):
            self.changes.policies.add(key)
        if resource == kube.NODES:
            self.changes.nodes.add(key)
        if resource == kube.WORKLOADS:
            if names.RECOVERY in (obj["metadata"].get("annotations") or ()):
                self.changes.recovering.add(key)
            if _is_placed(obj):
                self.changes.placed.add(key)
            if "admissionChecks" in obj["status"]:
                self.changes.checked.add(key)
        if resource in (kube.PROVISIONING_REQUESTS, kube.POD_TEMPLATES):
            self.changes.checked.update(self._workload_behind(obj))
        if resource in (kube.ADMISSION_CHECKS, kube.PROVISIONING_CONFIGS):
            self.changes.checks.add(key)
        if resource in KEPT_WHILE_IN_USE and "deletionTimestamp" in obj["metadata"]:
            self._deleting.add((resource, key))
        if resource in JOB_KINDS or resource in (kube.WORKLOADS, kube.SERVICES):
            owner = self._by_uid.get(controller_uid(obj) or "")
            if owner is not None:
                self.changes.jobs.add(owner)
            elif resource == kube.WORKLOADS:
                self.changes.unowned.add(key)
            if resource == kube.WORKLOADS and (owner is None or key not in self.objects[resource]):
                self.changes.jobs.update(self._naming.get(key, ()))
        elif resource in (kube.WORKLOAD_PRIORITY_CLASSES, kube.PRIORITY_CLASSES):
            self.changes.jobs.update(self.jobs())

    # --- out ---

    def has(self, resource: Resource) -> Callable[[str], bool]:
        """Returns a function that says whether an object of this kind exists, by its key."""
        return lambda key: key in self.objects[resource]

    def get(self, resource: Resource, key: str) -> Json | None:
        return self.objects[resource].get(key)

    def cluster_id(self) -> str:
        """The uid of kube-system, which no other cluster has; "" as long as it is not known."""
        found = self.get(kube.NAMESPACES, "kube-system")
        return found["metadata"]["uid"] if found is not None else ""

    def policy_of(self, queue: Json) -> Json | None:
        """The QueuePolicy in force for a ClusterQueue."""
        return policy_reader.in_force(self.objects[kube.QUEUE_POLICIES].values(), queue)

    def workload_value(self, key: str) -> model.Workload | None:
        return self._values.get(key)

    def jobs(self) -> Iterator[JobRef]:
        for resource in JOB_KINDS:
            for key in self.objects[resource]:
                yield resource, key

    def job_of(self, workload: Json) -> JobRef | None:
        return self._by_uid.get(controller_uid(workload) or "")

    def workloads_of(self, job: Json) -> list[Json]:
        return list(self._owned_by(job, kube.WORKLOADS))

    def named_workload(self, job: Json) -> Json | None:
        """The prebuilt Workload that a job names, whoever controls it; None if there is none of that name."""
        return self.objects[kube.WORKLOADS].get(_named_by(job))

    def children_of(self, job: Json) -> Children:
        jobs = [child for resource in JOB_KINDS for child in self._owned_by(job, resource)]
        return Children(jobs=jobs, services=list(self._owned_by(job, kube.SERVICES)))

    def controlled_by(self, owner: Json, resource: Resource) -> list[Json]:
        """The objects of this kind that `owner` controls, in its namespace."""
        namespace = owner["metadata"].get("namespace")
        return [obj for obj in self._owned_by(owner, resource) if obj["metadata"].get("namespace") == namespace]

    def _workload_behind(self, obj: Json) -> list[str]:
        """The key of the Workload for which a ProvisioningRequest, or a PodTemplate of one, was made."""
        ref, namespace = controller_of(obj) or {}, obj["metadata"]["namespace"]
        if ref.get("kind") == kube.PROVISIONING_REQUESTS.kind:
            request = self.get(kube.PROVISIONING_REQUESTS, f"{namespace}/{ref['name']}")
            ref = (controller_of(request) if request is not None else None) or {}
        return [f"{namespace}/{ref['name']}"] if ref.get("kind") == kube.WORKLOADS.kind else []

    def _owned_by(self, owner: Json, resource: Resource) -> Iterator[Json]:
        for kind, key in sorted(self._owned.get(owner["metadata"]["uid"], ()), key=lambda pair: pair[1]):
            if kind == resource:
                yield self.objects[kind][key]

    def owner_of(self, obj: Json) -> JobRef | None:
        """The job that controls an object, if it is known and in the same namespace."""
        ref = self._by_uid.get(controller_uid(obj) or "")
        if ref is None or self.objects[ref[0]][ref[1]]["metadata"]["namespace"] != obj["metadata"].get("namespace"):
            return None
        return ref

    def controllers_of(self, obj: Json) -> list[str]:
        """The uids of the jobs that control an object, the nearest first, at most 10 levels up."""
        found: list[str] = []
        while len(found) < MOST_OWNERS and (ref := self.owner_of(obj)) is not None:
            obj = self.objects[ref[0]][ref[1]]
            found.append(obj["metadata"]["uid"])
        return found

    def managed_ancestor(self, job: Json) -> bool:
        """Whether a job kind of ours that names a queue (or itself runs others, like GPUJob) owns this one, at most 10 levels up.

        An owner that has not been seen yet counts as well: the job waits for it. If that owner no longer exists, Kubernetes is
        about to delete the job.
        """
        for _ in range(10):
            ref = self.owner_of(job)
            if ref is None:
                return _has_managed_controller(job, self.managed) and controller_uid(job) not in self._by_uid
            owner = self.objects[ref[0]][ref[1]]
            if not owners.creates(owner, job):
                return False  # the owner reference is not genuine
            job, kind = owner, JOB_KINDS[ref[0]]
            if kind.owns_children:
                return True
            if (queue_name(job) or self.managed.without_queue) and self.managed.kind(kind.api_version, kind.kind):
                return True
        return False

    def in_scope(self, kind: JobKind, job: Json) -> bool:
        """Whether jobs of this kind and in this namespace are managed, be it only those that name a queue."""
        managed = self.managed
        if not managed.kind(kind.api_version, kind.kind):
            return False
        if not managed.asks_namespace(queued=bool(queue_name(job))):
            return True
        namespace = self.objects[kube.NAMESPACES].get(job["metadata"]["namespace"])
        return namespace is not None and managed.namespace(namespace["metadata"].get("labels") or {})

    # --- steps.Lookups ---

    def flavor(self, name: str) -> Json | None:
        return self.objects[kube.RESOURCE_FLAVORS].get(name)

    def patience(self, queue: str) -> int | None:
        """How many seconds pods of a ClusterQueue stay on a failing node; None: the Kubernetes default."""
        found = self.recovery_of(queue)
        return found.toleration_seconds if found.enabled else None

    def recovery_of(self, queue: str) -> model.Recovery:
        """What is done for a ClusterQueue's gangs when nodes fail: as its policy says, else the default."""
        found = self.objects[kube.CLUSTER_QUEUES].get(queue)
        return (policy_reader.recovery(self.policy_of(found)) if found is not None else None) or model.Recovery()

    def selects_nodes(self, labels: Mapping[str, str]) -> bool:
        """Whether some node has all these labels."""
        nodes = self.objects[kube.NODES].values()
        return any(labels.items() <= (node["metadata"].get("labels") or {}).items() for node in nodes)

    def node_of(self, host: str) -> Json | None:
        """The node with this host name, which mostly is also the node's name."""
        nodes = self.objects[kube.NODES]
        return nodes.get(host) or next((node for name, node in nodes.items() if self.host_name(name) == host), None)

    def recovery_for(self, workload: str) -> model.Recovery | None:
        """What is done for a gang when its nodes fail; None for a deleted gang."""
        value = self.workload_value(workload)
        if value is None:
            return None
        local_queue = self.get(kube.LOCAL_QUEUES, f"{value.namespace}/{value.queue}") or {"spec": {}}
        waiting_in = local_queue["spec"].get("clusterQueue", "")
        return self.recovery_of(value.admission.cluster_queue if value.admission else waiting_in)

    def pod_counts(self, workload: str) -> dict[str, int]:
        """How many pods each pod set of a Workload has."""
        value = self.workload_value(workload)
        return {pod_set.name: pod_set.count for pod_set in value.pod_sets} if value is not None else {}

    def leaves_to_kubernetes(self) -> bool:
        """Whether some policy switches recovery off."""
        policies_of = self.objects[kube.QUEUE_POLICIES].values()
        return any((policy["spec"].get("recovery") or {}).get("enabled") is False for policy in policies_of)

    def placed_workloads(self) -> list[str]:
        """Workloads whose admission names topology domains."""
        return [key for key, workload in self.objects[kube.WORKLOADS].items() if _is_placed(workload)]

    def host_name(self, node: str) -> str:
        """The host name in a node's labels."""
        found = self.objects[kube.NODES].get(node) or {"metadata": {}}
        return (found["metadata"].get("labels") or {}).get("kubernetes.io/hostname", node)

    def priority(self, job: Json, pod_sets: Sequence[Json]) -> tuple[int, Json | None]:
        """By the label, else the pods' PriorityClass (`workload.priority_source`), else the cluster's default one, else 0."""
        ref = workloads.priority_source(job, pod_sets, lambda reference: self._class(reference) is not None)
        if ref is None:
            default = next((c for c in self.objects[kube.PRIORITY_CLASSES].values() if c.get("globalDefault")), None)
            if default is None:
                return 0, None
            name = default["metadata"]["name"]
            ref = {"group": kube.PRIORITY_CLASSES.group, "kind": "PriorityClass", "name": name}
            return parse.priority_class(default), ref
        found, called = self._class(ref), f'{ref["kind"]} "{ref["name"]}"'
        ours = ref["kind"] == kube.WORKLOAD_PRIORITY_CLASSES.kind
        where = f"metadata.labels[{names.PRIORITY_CLASS}]" if ours else "priorityClassName"
        if found is None:
            raise (UnknownClassError if ours else JobError)(f"{called} not found", where)
        try:
            return parse.priority_class(found), ref
        except parse.ParseError as error:
            raise JobError(f"{called}: {error}", where) from None

    def _class(self, reference: Json) -> Json | None:
        """The object that a `priorityClassRef` names."""
        return self.objects[kube.BY_KIND[reference["kind"]]].get(reference["name"])
