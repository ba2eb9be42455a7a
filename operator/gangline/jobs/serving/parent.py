"""An object whose pods wait in its place, and what its Workloads and pods get from it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final, Protocol

from gangline.api import names
from gangline.api.admission.of_jobs.identifiers import part_for
from gangline.api.jobkinds import Declaration
from gangline.api.role_hash import role_hash
from gangline.jobs import podspec, workload
from gangline.jobs.pods.held import HeldPod
from gangline.kube.resources import Json
from gangline.objects import JobObject, WorkloadObject

_COPIED: Final = (names.ADMISSION_GATED_BY, names.PRIORITY_BOOST, *names.HINTS)


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


def comes_from_elsewhere(parent: JobObject) -> bool:
    """Whether a manager cluster has sent the object here, and makes its Workloads."""
    return bool(parent.labels.get(names.MULTIKUEUE_ORIGIN))


def owner_uid(parent: JobObject) -> str:
    """The UID in the names of its Workloads: for one that a manager cluster has sent, that which it has there."""
    uid = parent.annotations.get(names.MULTIKUEUE_ORIGIN_UID)
    return uid if uid and comes_from_elsewhere(parent) else parent.uid


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
    return {key: want.get(key) for key in names.HINTS if have.get(key) != want.get(key)}


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
