"""The copies of our objects in another cluster, reduced to what is looked at: Workloads and jobs with the label of this manager.

Objects of other clusters are as hostile as those of users: what does not have the wanted shape is an error of that object.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, cast

import orjson

from gangline.api import names
from gangline.api.admission.of_jobs.identifiers import part_with_room
from gangline.api.jobkinds.declaration import Path, Suspension, at, put
from gangline.api.read import conditions
from gangline.control.feed.slices import counts, is_slice
from gangline.jobs.base import RunsOnOtherCluster
from gangline.kube.resources import Json, Resource
from gangline.objects import JobObject, WorkloadObject

#: fields of a Workload's spec that may differ in another cluster: they follow the one here by other means, or are its own
_OWN = frozenset({"active", "preemptionGates", "priority", "priorityClassRef"})
_KEPT_METADATA = ("name", "namespace", "uid", "resourceVersion", "deletionTimestamp")
#: annotations that concern other jobs here, for which a workload has waited before it is sent
_HERE: Final = frozenset({*names.DEPENDENCIES, names.AFTER_MET, names.AFTER_SEEN})
#: labels and annotations of a job that are looked at
_MARKS = (names.PREBUILT_WORKLOAD, names.MULTIKUEUE_ORIGIN_UID, names.ELASTIC)
#: characters of one of them
_LONGEST_MARK: Final = 512
#: where a job that was read has its size
SIZE: Final = "size"


@dataclass(frozen=True, slots=True)
class Copy:
    """A Workload in another cluster."""

    uid: str
    version: str
    finalizers: tuple[str, ...]
    #: of its spec, see `digest`
    spec: str
    priority: int
    priority_class: Json | None
    conditions: conditions.Conditions
    #: pod sets that have their nodes
    placed: frozenset[str]
    #: it is being deleted
    leaving: bool = False
    #: its spec has the preemption gate that the manager opens
    gated: bool = False
    #: `status.preemptionGates`
    gates: Sequence[Json] = ()
    #: of a slice: its spec without sizes, see `digest`, and the pods of each pod set
    shape: str = ""
    sizes: Mapping[str, int] = field(default_factory=dict[str, int])
    #: of a slice: the operator there cuts it when its job shrinks
    cut_there: bool = False
    #: bytes of what is kept of it as JSON
    weight: int = 0

    @property
    def removable(self) -> bool:
        """Whether there is something that we can do so that the copy goes."""
        return not self.leaving or names.IN_USE_FINALIZER in self.finalizers

    def open_since(self) -> int | None:
        """The time at which the gate that the manager opens was opened, in ms; None while it is closed."""
        row = next((each for each in self.gates if each.get("name") == names.MULTIKUEUE_GATE), {})
        if row.get("position") != "Open":
            return None
        try:
            return conditions.millis_of(row.get("lastTransitionTime"))
        except ValueError:
            return 0

    def row(self, kind: str) -> Json | None:
        """The condition of this type if it is True."""
        row = conditions.find(self.conditions, kind)
        return row if row is not None and row.get("status") == "True" else None

    def since(self, kind: str) -> int:
        """The time at which the condition became True, in ms; 0 if it says no time."""
        row = self.row(kind) or {}
        try:
            return conditions.millis_of(row.get("lastTransitionTime"))
        except ValueError:
            return 0


def digest(spec: Json) -> str:
    """A digest that is equal for specs that ask for the same. Empty fields and fields that are not there are the same."""
    asked = {name: value for name, value in spec.items() if name not in _OWN}
    return hashlib.sha256(orjson.dumps(_without_empty(asked), option=orjson.OPT_SORT_KEYS)).hexdigest()


def shape(spec: Json) -> str:
    """The `digest` of a spec, whatever the sizes of the pod sets."""
    rows = [{name: value for name, value in row.items() if name != "count"} for row in spec.get("podSets") or ()]
    return digest({**spec, "podSets": rows})


def _without_empty(value: Any) -> Any:
    if isinstance(value, dict):
        inner = {name: _without_empty(each) for name, each in cast("Json", value).items()}
        return {name: each for name, each in inner.items() if each not in (None, {}, [], "")}
    return [_without_empty(each) for each in cast("list[Any]", value)] if isinstance(value, list) else value


def read_workload(sent: Json) -> tuple[str, Copy]:
    """The key of a Workload in another cluster, and the copy as it is kept."""
    obj = WorkloadObject(sent)
    spec, status = obj.spec, obj.status
    elastic = is_slice(obj)
    kept = (
        obj.metadata.get("finalizers"),
        spec.get("priorityClassRef"),
        status.get("conditions"),
        status.get("preemptionGates"),
    )
    return obj.key, Copy(
        uid=obj.metadata["uid"],
        version=obj.metadata["resourceVersion"],
        finalizers=tuple(obj.finalizers),
        spec=digest(spec),
        priority=obj.priority,
        priority_class=spec.get("priorityClassRef"),
        conditions=[dict(row) for row in obj.conditions],
        placed=frozenset(row["name"] for row in obj.assignments if row.get("topologyAssignment")),
        leaving=obj.deleting,
        gated=any(gate["name"] == names.MULTIKUEUE_GATE for gate in spec.get("preemptionGates") or ()),
        gates=tuple(dict(gate) for gate in status.get("preemptionGates") or ()),
        shape=shape(spec) if elastic else "",
        sizes=counts(obj.pod_sets) if elastic else {},
        cut_there=elastic and obj.annotations.get(names.CUT_WITH_JOB) == "true",
        weight=len(orjson.dumps(kept)),
    )


def read_job(
    sent: Json, suspension: Suspension, followed: Sequence[Path] = (), size: Callable[[JobObject], Json] | None = None
) -> JobObject:
    """The job without its pod templates: of its spec, whether it is suspended, and what follows the job here; of an elastic one
    its size, too."""
    obj = JobObject(sent)
    meta = {name: value for name, value in obj.metadata.items() if name in _KEPT_METADATA}
    for part in ("labels", "annotations"):
        marks = {name: text for name, text in (obj.metadata.get(part) or {}).items() if name in _MARKS}
        meta[part] = {name: text for name, text in marks.items() if len(text) <= _LONGEST_MARK}
    kept = JobObject({"metadata": meta, "spec": {}, "status": obj.status})
    (suspension.hold if suspension.read(obj) else suspension.release)(kept)
    for path in followed:
        if (value := at(obj, path)) is not None:
            put(kept, path, value)
    if size is not None and kept.annotations.get(names.ELASTIC) == "true":
        kept[SIZE] = size(obj)
    return kept


def workload_of(job: JobObject) -> str:
    """The key of the Workload that a job in another cluster names, or that of the family of which it names the owner."""
    named, uid = job.prebuilt_workload, job.annotations.get(names.MULTIKUEUE_ORIGIN_UID)
    return f"{job.namespace}/{named}" if named or not uid else family_key(job.namespace, uid)


def family_key(namespace: str, uid: str) -> str:
    """The key that stands for all Workloads of the object with this UID here. No Workload has such a name."""
    return f"{namespace}/#{uid}"


def owner_of_family(key: str) -> str:
    """The UID here of the object whose Workloads are this family."""
    return key.partition("/#")[2]


def is_family(key: str) -> bool:
    return "/#" in key


def workload_body(
    workload: WorkloadObject, origin: str, resource: Resource, gates: Sequence[str] | None = None
) -> Json:
    """The copy to create: nobody's, until the job there takes it. `gates`: its preemption gates, None = those of the Workload."""
    labels = {name: value for name, value in workload.labels.items() if name != names.JOB_UID}
    metadata: Json = {"name": workload.name, "namespace": workload.namespace}
    metadata["labels"] = {**labels, names.MULTIKUEUE_ORIGIN: origin}
    if workload.annotations:
        metadata["annotations"] = {key: value for key, value in workload.annotations.items() if key not in _HERE}
    spec = {name: value for name, value in workload.spec.items() if name != "active"}
    if gates is not None:
        spec["preemptionGates"] = [{"name": name} for name in gates]
    return {"apiVersion": resource.api_version, "kind": resource.kind, "metadata": metadata, "spec": spec}


def renaming(workload: str) -> Json:
    """The patch of labels and annotations after which a job names this Workload."""
    where = part_with_room(workload)
    return {part: {names.PREBUILT_WORKLOAD: workload if part == where else None} for part in ("labels", "annotations")}


def job_body(kind: RunsOnOtherCluster, job: JobObject, spec: Json, workload: str, origin: str) -> Json:
    """The job to create for a copy of this name, whose quota it will use."""
    labels: Json = {**job.labels, names.MULTIKUEUE_ORIGIN: origin}
    annotations: Json = {k: v for k, v in job.annotations.items() if k != names.STOPPING and k not in _HERE}
    if not kind.shared:
        (labels if part_with_room(workload) == "labels" else annotations)[names.PREBUILT_WORKLOAD] = workload
    annotations |= kind.marks(job)
    metadata = {"name": job.name, "namespace": job.namespace, "labels": labels, "annotations": annotations}
    return {"apiVersion": kind.resource.api_version, "kind": kind.resource.kind, "metadata": metadata, "spec": spec}
