"""Deployments, StatefulSets and LeaderWorkerSets, whose pods wait in their place: the Workloads that each of them has.

Pure functions on JSON. A Deployment needs none: each of its pods is queued alone (`gangline.jobs.pods`). A StatefulSet has one
Workload, a LeaderWorkerSet one for each of its groups; its pods become pod groups of these names.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Final, Protocol

from gangline import bounded
from gangline.api import names
from gangline.api.admission.of_jobs.identifiers import part_for
from gangline.api.jobkinds import Declaration
from gangline.api.jobkinds.declaration import JobError, JobOutcome, Path, Suspension, at, number_at, shown, template_at
from gangline.api.jobkinds.own import (
    GROUP_SIZE,
    LEADER_TEMPLATE,
    LEADER_WORKER_SET,
    MOST_REPLICAS,
    REPLICAS,
    STATEFUL_SET,
    TEMPLATE,
    WORKER_TEMPLATE,
)
from gangline.api.role_hash import role_hash
from gangline.jobs import podspec, workload
from gangline.jobs.pods.member import SET_NAME, HeldPod
from gangline.kube.resources import Json, Resource
from gangline.objects import JobObject, WorkloadObject

# --- an object whose pods wait in its place, and what its Workloads and pods get from it ------------------------------


_COPIED: Final = (names.ADMISSION_GATED_BY, names.PRIORITY_BOOST, *names.DEPENDENCIES, *names.HINTS)


@dataclass(frozen=True, slots=True)
class ServingGroup:
    """Pods of a parent that share a Workload. `index`: which of its groups, None where it has only one."""

    workload: str
    pod_sets: Sequence[Json]
    index: int | None = None

    @property
    def size(self) -> int:
        return sum(row["count"] for row in self.pod_sets)


class ServingKind(Protocol):
    """What is done with the objects of one kind whose pods wait in groups."""

    @property
    def declaration(self) -> Declaration: ...

    def templates(self, parent: JobObject) -> Sequence[Json]:
        """The pod templates, which the webhook has marked if the pods wait."""
        ...

    def size(self, parent: JobObject) -> int:
        """How many groups the object has now. Raises JobError."""
        ...

    def workload_name(self, parent: JobObject, index: int) -> str:
        """The name of the Workload of its group of this index, the same as Kueue's."""
        ...

    def pod_sets(self, parent: JobObject) -> list[Json]:
        """The pod sets of each group. Raises JobError."""
        ...

    def adopted_names(self, parent: JobObject) -> Sequence[str]:
        """Names of Workloads that others may have made for the object: an older version, or a manager cluster. Raises
        JobError.
        """
        ...

    def group_of(self, parent: JobObject, pod: HeldPod) -> int | None:
        """The index of a pod's group, None while the pod does not say it."""
        ...

    def role(self, parent: JobObject, pod: HeldPod) -> str:
        """The pod set of a pod."""
        ...

    @property
    def has_many(self) -> bool:
        """Whether the object has several groups, each with a Workload of its own."""
        ...

    @property
    def notes(self) -> Mapping[str, str]:
        """More annotations of the pods."""
        ...

    def comes_in_stages(self, parent: JobObject) -> bool:
        """Whether some pods of a group are only created once others of it run."""
        ...


def is_held(kind: ServingKind, parent: JobObject) -> bool:
    """Whether the object's pods wait: the webhook has marked its templates."""
    return any(
        podspec.annotations_of(template).get(names.SUSPENDED_BY_PARENT) == kind.declaration.framework
        for template in kind.templates(parent)
    )


def comes_from_other_cluster(parent: JobObject) -> bool:
    """Whether a manager cluster has sent the object here, and makes its Workloads."""
    return bool(parent.labels.get(names.MULTIKUEUE_ORIGIN))


def owner_uid(parent: JobObject) -> str:
    """The UID in the names of its Workloads: for one that a manager cluster has sent, that which it has there."""
    uid = parent.annotations.get(names.MULTIKUEUE_ORIGIN_UID)
    return uid if uid and comes_from_other_cluster(parent) else parent.uid


def named(kind: ServingKind, parent: JobObject, name: str, uid: str | None = None) -> str:
    """The name of a Workload of it, the same as Kueue's."""
    resource = kind.declaration.resource
    return workload.name_for(resource.kind, resource.group, name, owner_uid(parent) if uid is None else uid)


def new_workload(
    kind: ServingKind,
    parent: JobObject,
    group: ServingGroup,
    *,
    priority: int,
    priority_class_ref: Mapping[str, str] | None,
    labels_to_copy: Sequence[str] = (),
    annotations_to_copy: Sequence[str] = (),
) -> Json:
    """A Workload (v1beta2) for a group of it. Raises JobError for an invalid label."""
    spec: Json = {"podSets": list(group.pod_sets), "priority": priority}
    if parent.queue_name:
        spec["queueName"] = parent.queue_name
    if priority_class_ref:
        spec["priorityClassRef"] = dict(priority_class_ref)
    if (limit := workload.max_execution_seconds(parent)) is not None:
        spec["maximumExecutionTimeSeconds"] = limit
    wanted = {*_COPIED, *annotations_to_copy}
    kept = {
        key: value
        for key, value in parent.annotations.items()
        if key.startswith(names.PROVISIONING_PREFIX) or key in wanted
    }
    labels = {key: value for key, value in parent.labels.items() if key in labels_to_copy or key == names.USER}
    metadata: Json = {
        "name": group.workload,
        "namespace": parent.namespace,
        "labels": {**labels, names.JOB_UID: parent.uid},
        "annotations": {**kept, names.IS_GROUP_WORKLOAD: "true", **owner_notes(kind, parent, group)},
        "finalizers": [names.IN_USE_FINALIZER],
        "ownerReferences": [owner(kind, parent)],
    }
    return {"apiVersion": names.V1BETA2, "kind": "Workload", "metadata": metadata, "spec": spec}


def owner(kind: ServingKind, parent: JobObject) -> Json:
    """The owner reference of the object's Workloads: their pods own them, too."""
    resource = kind.declaration.resource
    return {"apiVersion": resource.api_version, "kind": resource.kind, "name": parent.name, "uid": parent.uid}


def owner_notes(kind: ServingKind, parent: JobObject, group: ServingGroup) -> dict[str, str]:
    """Annotations of the object's Workloads that outlive their owner references."""
    resource = kind.declaration.resource
    found = {
        names.JOB_OWNER_GVK: f"{resource.api_version}, Kind={resource.kind}",
        names.JOB_OWNER_NAME: parent.name,
    }
    return found if group.index is None else {**found, names.COMPONENT_INDEX: str(group.index)}


def changed_hints(workload: WorkloadObject, parent: JobObject) -> dict[str, str | None]:
    """Annotations by which a Workload differs from its parent; None: to be removed."""
    have, want = workload.annotations, parent.annotations
    return {key: want.get(key) for key in (*names.HINTS, *names.DEPENDENCIES) if have.get(key) != want.get(key)}


def marks(kind: ServingKind, parent: JobObject, group: ServingGroup, pod: HeldPod) -> Json:
    """The merge patch that makes a pod a member of its group, from which on it is queued."""
    labels = {names.MANAGED: "true"}
    for key in (names.QUEUE_NAME, names.PRIORITY_CLASS):
        if value := parent.labels.get(key):
            labels[key] = value
    identifiers = {names.POD_GROUP: group.workload, names.PREBUILT_WORKLOAD: group.workload}
    notes = {
        names.POD_GROUP_TOTAL: str(group.size),
        names.POD_GROUP_SERVING: "true",
        names.ROLE_HASH: kind.role(parent, pod),
        **kind.notes,
    }
    (notes if part_for(group.workload) == "annotations" else labels).update(identifiers)
    return {"metadata": {"resourceVersion": pod.version, "labels": labels, "annotations": notes}}


def pod_set(name: str, count: int, template: Json, index_label: str, path: str, *, asked: Json | None = None) -> Json:
    """One pod set; the topology request is that of the template `asked`. Raises JobError."""
    made: Json = {"name": name, "count": count, "template": template}
    if request := podspec.topology_request(asked or template, index_label, path):
        made["topologyRequest"] = request
    return made


def same_pod_sets(now: Sequence[Json], then: Sequence[Json]) -> bool:
    """Whether the Workload still describes the group: the same pods, which request the same."""
    if [(row["name"], row["count"]) for row in now] != [(row["name"], row.get("count", 1)) for row in then]:
        return False
    return all(
        role_hash(new["template"]["spec"]) == role_hash(old["template"].get("spec") or {})
        for new, old in zip(now, then, strict=True)
    )


# --- leader worker set ------------------------------------------------------------------------------------------------
#
# LeaderWorkerSets: each of their groups, a leader and its workers, has a Workload of its own, and starts as a whole.


LEADER, WORKER, MAIN = "leader", "worker", "main"
#: the controller's label on pods: their index in their group
WORKER_INDEX_LABEL: Final = "leaderworkerset.sigs.k8s.io/worker-index"
_OWN_KEYS: Final = "leaderworkerset.sigs.k8s.io"
#: annotation: the workers of a group are created once its leader has a node
_EXCLUSIVE: Final = "leaderworkerset.sigs.k8s.io/exclusive-topology"


class LeaderWorkerSet:
    """Implements `ServingKind`."""

    declaration = LEADER_WORKER_SET
    has_many = True
    notes: Mapping[str, str] = {}

    def templates(self, parent: JobObject) -> Sequence[Json]:
        worker = template_at(parent, WORKER_TEMPLATE)
        return [template_at(parent, LEADER_TEMPLATE), worker] if has_leader(parent) else [worker]

    def size(self, parent: JobObject) -> int:
        """The number of groups: the replicas, or all groups that there are while a rolling update has created more."""
        wanted = replicas(parent)
        present = at(parent, ("status", "replicas"))
        surges = isinstance(present, int) and present > wanted and _is_surging(parent, wanted)
        return min(present, MOST_REPLICAS) if surges else wanted

    def workload_name(self, parent: JobObject, index: int) -> str:
        return named(self, parent, f"{parent.name}-{index}")

    def pod_sets(self, parent: JobObject) -> list[Json]:
        return pod_sets(parent)

    def adopted_names(self, parent: JobObject) -> Sequence[str]:
        count = self.size(parent) if comes_from_other_cluster(parent) else 0
        return [self.workload_name(parent, index) for index in range(count)]

    def group_of(self, parent: JobObject, pod: HeldPod) -> int | None:
        return bounded.whole(pod.group_index)

    def role(self, parent: JobObject, pod: HeldPod) -> str:
        if not has_leader(parent):
            return MAIN
        return WORKER if pod.is_worker else LEADER

    def comes_in_stages(self, parent: JobObject) -> bool:
        late = at(parent, ("spec", "startupPolicy")) == "LeaderReady"
        return late or _EXCLUSIVE in parent.annotations


def has_leader(parent: JobObject) -> bool:
    return at(parent, LEADER_TEMPLATE) is not None


def replicas(parent: JobObject) -> int:
    """The number of groups that the spec asks for. Raises JobError."""
    found = number_at(parent, REPLICAS, 1)
    if found > MOST_REPLICAS:
        raise JobError(f"must be at most {MOST_REPLICAS}", shown(REPLICAS))
    return found


def pod_sets(parent: JobObject) -> list[Json]:
    """The pod sets of each group. Raises JobError."""
    size, worker = number_at(parent, GROUP_SIZE, 1), template_at(parent, WORKER_TEMPLATE)
    if size < 1:
        raise JobError("must be at least 1", shown(GROUP_SIZE))
    if not has_leader(parent):
        return [_pod_set(MAIN, size, worker, WORKER_INDEX_LABEL, WORKER_TEMPLATE)]
    leader = _pod_set(LEADER, 1, template_at(parent, LEADER_TEMPLATE), "", LEADER_TEMPLATE)
    return [leader, _pod_set(WORKER, size - 1, worker, WORKER_INDEX_LABEL, WORKER_TEMPLATE)]


def _pod_set(name: str, count: int, template: Json, index_label: str, path: Path) -> Json:
    """A pod set as in Kueue, but without the keys of LeaderWorkerSet's own controller, which differ between the pods."""
    meta = dict(template.get("metadata") or {})
    for part in ("labels", "annotations"):
        kept = {key: value for key, value in (meta.get(part) or {}).items() if key == SET_NAME or not _is_own(key)}
        meta = {**meta, part: kept} if kept else {key: value for key, value in meta.items() if key != part}
    body: Json = {"metadata": meta, "spec": template["spec"]} if meta else {"spec": template["spec"]}
    return pod_set(name, count, body, index_label, shown(path), asked=template)


def _is_own(key: str) -> bool:
    return key.startswith(_OWN_KEYS)


def _is_surging(parent: JobObject, wanted: int) -> bool:
    """Whether a rolling update is under way that may create groups beyond the replicas."""
    surge = at(parent, ("spec", "rolloutStrategy", "rollingUpdateConfiguration", "maxSurge"))
    updated = at(parent, ("status", "updatedReplicas"))
    allowed = surge > 0 if isinstance(surge, int) else isinstance(surge, str) and surge not in ("", "0", "0%")
    return allowed and (updated if isinstance(updated, int) else 0) < wanted


# --- stateful set -----------------------------------------------------------------------------------------------------
#
# StatefulSets: one Workload for all pods, which start as they come, since their controller may create them one by one.


MAIN_SET: Final = "main"
#: label of Kubernetes on the pods: their index
POD_INDEX_LABEL: Final = "apps.kubernetes.io/pod-index"


class StatefulSet:
    """Implements `ServingKind`."""

    declaration = STATEFUL_SET
    has_many = False
    notes: Mapping[str, str] = {names.POD_GROUP_FAST: "true", names.POD_GROUP_INDEX_LABEL: POD_INDEX_LABEL}

    def templates(self, parent: JobObject) -> Sequence[Json]:
        return [template_at(parent, TEMPLATE)]

    def size(self, parent: JobObject) -> int:
        return 1

    def workload_name(self, parent: JobObject, index: int) -> str:
        return named(self, parent, parent.name)

    def pod_sets(self, parent: JobObject) -> list[Json]:
        template = template_at(parent, TEMPLATE)
        spec: Json = {"spec": template["spec"]}
        return [
            pod_set(MAIN_SET, number_at(parent, REPLICAS, 1), spec, POD_INDEX_LABEL, "spec.template", asked=template)
        ]

    def adopted_names(self, parent: JobObject) -> Sequence[str]:
        """The names with the object's UID, and without it, as they were before Kueue 0.17."""
        name = parent.name
        return [named(self, parent, name), named(self, parent, name, uid="")]

    def group_of(self, parent: JobObject, pod: HeldPod) -> int | None:
        return 0

    def role(self, parent: JobObject, pod: HeldPod) -> str:
        return MAIN_SET

    def comes_in_stages(self, parent: JobObject) -> bool:
        return False


KINDS: Final[tuple[ServingKind, ...]] = (StatefulSet(), LeaderWorkerSet())
BY_RESOURCE: Final[Mapping[Resource, ServingKind]] = {kind.declaration.resource: kind for kind in KINDS}
BY_FRAMEWORK: Final[Mapping[str, ServingKind]] = {kind.declaration.framework: kind for kind in KINDS}


# --- in other clusters --------------------------------------------------------------------------------------------------
#
# StatefulSets and LeaderWorkerSets that run in another cluster, while the pods of those here wait at their gates.
#
# Their controllers here write their status, and know no field that keeps them away: so they show no pod that is ready.


#: Workloads of one object that are sent: each of them looks at all others
MOST_GROUPS: Final = 1000


class ServingOnOtherCluster:
    """Implements `gangline.jobs.base.RunsOnOtherCluster`."""

    managed_by: Path = ()
    pods_wait = True
    #: its pods wait, it is never suspended itself
    suspension: Suspension = Suspension(("spec", "(no field)"))

    def __init__(self, resource: Resource) -> None:
        self.resource = resource
        self._kind = BY_RESOURCE[resource]
        self.followed: Sequence[Path] = self._kind.declaration.followed

    @property
    def shared(self) -> bool:
        return self._kind.has_many

    def unsendable(self, job: JobObject) -> str:
        try:
            size = self._kind.size(job)
        except JobError as error:
            return str(error)
        return f"it has {size} groups, and at most {MOST_GROUPS} are sent" if size > MOST_GROUPS else ""

    def family(self, job: JobObject) -> Sequence[str]:
        """The names of all Workloads that it has, in the order of their groups; () where it cannot be sent."""
        if self.unsendable(job):
            return ()
        return _names(self.resource, job.name, job.uid, self._kind.size(job))

    def size_of(self, job: JobObject) -> Json:
        return {}

    def resized(self, remote: JobObject, job: JobObject) -> Json:
        return {}

    def marks(self, job: JobObject) -> Mapping[str, str]:
        """The annotation with the UID that the object has here, which the names of its Workloads there contain."""
        return {names.MULTIKUEUE_ORIGIN_UID: job.uid}

    def sent(self, job: JobObject, pod_sets: Sequence[Json]) -> Json:
        return dict(job.spec)

    def finished(self, job: JobObject) -> JobOutcome | None:
        return None

    def mirrored(self, job: JobObject, remote: JobObject | None) -> Json | None:
        return None


@lru_cache(maxsize=256)
def _names(resource: Resource, name: str, uid: str, size: int) -> tuple[str, ...]:
    kind, job = BY_RESOURCE[resource], JobObject({"metadata": {"name": name, "uid": uid}})
    return tuple(kind.workload_name(job, index) for index in range(size))


SENT: Final[Mapping[Resource, ServingOnOtherCluster]] = {each: ServingOnOtherCluster(each) for each in BY_RESOURCE}
