"""The Workload of a job: its name, its content, and whether it still describes the job."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Callable, Mapping, Sequence

from gangline import bounded
from gangline.api import jobkinds, names, quantity
from gangline.api.jobkinds import own
from gangline.api.jobkinds.declaration import SPEC_SUSPEND, Declaration, at
from gangline.api.read.workloads.parse_workload import names_in
from gangline.jobs import podspec
from gangline.jobs.base import JobError, JobKind, Json
from gangline.objects import JobObject, WorkloadObject

_MAX_NAME = 253
_CLASS_LABEL = f"metadata.labels[{names.PRIORITY_CLASS}]"
_HASH_LENGTH = 5
#: annotations that a job kind may set on its Workload
_ANNOTATIONS = (names.CHECKPOINT_INTERVAL, names.NODE_LOSS, names.WHOLE_DOMAINS)
#: fields of a topology request that request nothing
_NUMBERING = frozenset({"podIndexLabel", "subGroupIndexLabel", "subGroupCount"})
_OF_ARRAYS = (names.ARRAY, names.ARRAY_LIMIT)
_COPIED_ANNOTATIONS = (
    names.ADMISSION_GATED_BY,
    names.PRIORITY_BOOST,
    names.HOLD,
    names.UNSCHEDULED_TIMEOUT,
    names.START_BY,
    *names.DEPENDENCIES,
)
#: annotations of a job that its Workload follows while it waits
_FOLLOWED_ANNOTATIONS = (names.HOLD, names.UNSCHEDULED_TIMEOUT, names.START_BY, *names.DEPENDENCIES)


def name_for(kind: str, group: str, name: str, uid: str, extra: str = "") -> str:
    """The name of the Workload of an object, the same as Kueue's.

    `extra` distinguishes several Workloads of one object.
    """
    parts = [kind, group, name, uid, *([extra] if extra else [])]
    digest = hashlib.sha1("\n".join(parts).encode(), usedforsecurity=False).hexdigest()[:_HASH_LENGTH]
    prefix = f"{kind.lower()}-{name}"[: _MAX_NAME - _HASH_LENGTH - 1]
    return f"{prefix}-{digest}"


def workload_name(kind: JobKind, job: JobObject, extra: str = "") -> str:
    return name_for(kind.kind, kind.resource.group, job.name, job.uid, extra)


def priority_source(
    job: JobObject, pod_sets: Sequence[Json], known: Callable[[Json], bool] = lambda reference: True
) -> Json | None:
    """`spec.priorityClassRef`: the class that sets the job's priority, None if none is named.

    The label on the job has precedence, then the label on a pod template, as in recipes for GKE, then the PriorityClass that the
    job itself names, if its kind has such a field, then that of the first pod set that names one. A label names a
    WorkloadPriorityClass or, if `known` finds none of that name, a PriorityClass.
    On a pod template, where Kueue does not look, a label that names neither is ignored.
    """
    if name := job.labels.get(names.PRIORITY_CLASS):
        return _labelled_class(name, known) or _workload_class(name)
    for pod_set in pod_sets:
        name = podspec.labels_of(pod_set["template"]).get(names.PRIORITY_CLASS)
        if name and (reference := _labelled_class(name, known)):
            return reference
    declaration = _declaration(job)
    if declaration is not None and declaration.priority_class and (name := at(job, declaration.priority_class)):
        return _pod_class(str(name))
    for pod_set in pod_sets:
        if name := (pod_set["template"].get("spec") or {}).get("priorityClassName"):
            return _pod_class(name)
    return None


def _labelled_class(name: str, known: Callable[[Json], bool]) -> Json | None:
    return next(filter(known, (_workload_class(name), _pod_class(name))), None)


def _workload_class(name: str) -> Json:
    return {"group": names.GROUP, "kind": "WorkloadPriorityClass", "name": name}


def _pod_class(name: str) -> Json:
    return {"group": "scheduling.k8s.io", "kind": "PriorityClass", "name": name}


def where_class_is_named(job: JobObject, pod_sets: Sequence[Json], name: str) -> str:
    """The field by which a job names the class that sets its priority."""
    if job.labels.get(names.PRIORITY_CLASS) == name:
        return _CLASS_LABEL
    if any(podspec.labels_of(each["template"]).get(names.PRIORITY_CLASS) == name for each in pod_sets):
        return f"the pods' {_CLASS_LABEL}"
    return "priorityClassName"


def names_another_class(workload: WorkloadObject, job: JobObject) -> bool:
    """Whether the job's label names another WorkloadPriorityClass than its Workload has."""
    reference = workload.spec.get("priorityClassRef") or {}
    name = job.labels.get(names.PRIORITY_CLASS)
    return reference.get("kind") == "WorkloadPriorityClass" and bool(name) and name != reference.get("name")


def max_execution_seconds(job: JobObject) -> int | None:
    """The runtime, in seconds and over all its attempts, after which the job is stopped: by its label or its own limit.

    Raises JobError if the label is no number above 0, or the limit no duration.
    """
    limits = (_labelled_limit(job), runtime_limit(job))
    return min((limit for limit in limits if limit is not None), default=None)


def runtime_limit(job: JobObject) -> int | None:
    """`spec.runtime.limit` of a GPUJob in whole seconds, rounded up. Raises JobError if it is no duration above zero."""
    if job.get("kind") != own.GPU_JOB.kind:
        return None
    text = (job.spec.get("runtime") or {}).get("limit")
    if text is None:
        return None
    try:
        seconds = math.ceil(quantity.parse_duration(text))
    except quantity.QuantityError as error:
        raise JobError(str(error), "spec.runtime.limit") from None
    if seconds < 1:
        raise JobError(f'"{text}" is not above zero', "spec.runtime.limit")
    return seconds


def _labelled_limit(job: JobObject) -> int | None:
    text = job.labels.get(names.MAX_EXEC_TIME)
    if text is None:
        return None
    seconds = bounded.whole(text)
    if not seconds:
        where = f"metadata.labels[{names.MAX_EXEC_TIME}]"
        raise JobError(f"{bounded.shown(text)} is not a whole number of seconds above 0", where)
    return seconds


def build(
    kind: JobKind,
    job: JobObject,
    pod_sets: Sequence[Json],
    *,
    queue: str,
    priority: int,
    priority_class_ref: Mapping[str, str] | None = None,
    labels_to_copy: Sequence[str] = (),
    annotations_to_copy: Sequence[str] = (),
    extra: str = "",
) -> Json:
    """A new Workload (v1beta2) for a job; `extra` distinguishes it from others of the job. Raises JobError for an invalid label
    of the job.
    """
    spec: Json = {"podSets": list(pod_sets), "priority": priority}
    if queue:
        spec["queueName"] = queue
    if priority_class_ref:
        spec["priorityClassRef"] = dict(priority_class_ref)
    if (limit := max_execution_seconds(job)) is not None:
        spec["maximumExecutionTimeSeconds"] = limit
    metadata: Json = {
        "name": workload_name(kind, job, extra),
        "namespace": job.namespace,
        "labels": _workload_labels(job, labels_to_copy),
        "finalizers": [names.IN_USE_FINALIZER],
        "ownerReferences": [owner_reference(kind, job)],
    }
    copied = _workload_annotations(job, annotations_to_copy) | array_annotations(job)
    if annotations := copied | kind.workload_annotations(job):
        metadata["annotations"] = annotations
    return {"apiVersion": names.V1BETA2, "kind": "Workload", "metadata": metadata, "spec": spec}


def owner_reference(kind: JobKind, job: JobObject) -> Json:
    """The reference that makes `job` the controller of an object."""
    return {
        "apiVersion": kind.api_version,
        "kind": kind.kind,
        "name": job.name,
        "uid": job.uid,
        "controller": True,
        "blockOwnerDeletion": True,
    }


def equivalent(workload: WorkloadObject, pod_sets: Sequence[Json], job: JobObject) -> bool:
    """Whether the Workload still describes the job, whose pod sets are now `pod_sets`.

    A job that holds quota, runs, or is not restored yet may differ by what admission injected: node selectors, tolerations,
    labels, annotations, gates, and the count of a pod set that may run with fewer pods.
    """
    if not _owned_by(workload, job) or workload.max_execution_seconds != max_execution_seconds(job):
        return False
    if [item["name"] for item in workload.pod_sets] != [item["name"] for item in pod_sets]:
        return False
    admitted = admitted_counts(workload)
    injected = bool(admitted) or not _at_rest(job)
    if injected and (declaration := _declaration(job)) is not None and declaration.derived:
        before = declaration.counted_before
        return _counts_the_same(workload, pod_sets, job) or (
            before is not None and _counts_the_same(workload, before(job), job)
        )
    return all(
        _same_pod_set(now, then, admitted.get(now["name"]), injected=injected)
        for now, then in zip(pod_sets, workload.pod_sets, strict=True)
    )


def in_sync(workload: WorkloadObject, pod_sets: Sequence[Json], job: JobObject) -> bool:
    """Whether a prebuilt Workload describes the job that names it, by Kueue's rule.

    It compares what Kueue compares: the counts, the containers, the time limit, and the tolerations unless the job is admitted,
    for an admission adds some.
    """
    if workload.max_execution_seconds != max_execution_seconds(job):
        return False
    if [item["name"] for item in workload.pod_sets] != [item["name"] for item in pod_sets]:
        return False
    return _counts_the_same(workload, pod_sets, job)


def _counts_the_same(workload: WorkloadObject, pod_sets: Sequence[Json], job: JobObject) -> bool:
    """Whether the pod sets, of the same names, differ in nothing that Kueue compares."""
    admitted = admitted_counts(workload)
    injected = bool(admitted) or not _at_rest(job)
    return all(
        now.get("minCount") == then.get("minCount")
        and _same_count(now["count"], then, admitted.get(now["name"]), injected=injected)
        and podspec.same_containers(now["template"], then["template"], tolerations=not injected)
        for now, then in zip(pod_sets, workload.pod_sets, strict=True)
    )


def adoption(kind: JobKind, workload: WorkloadObject, job: JobObject) -> Json:
    """The patch that makes `job` the controller of a prebuilt Workload."""
    uid = job.uid
    others = [owner for owner in workload.owners if owner["uid"] != uid]
    return {
        "metadata": {
            "labels": {names.JOB_UID: uid},
            "ownerReferences": [*others, owner_reference(kind, job)],
        }
    }


def admitted_counts(workload: WorkloadObject) -> dict[str, int]:
    """Pod set -> pods that the Workload holds quota for; empty while it holds none."""
    specified = {item["name"]: item.get("count", 1) for item in workload.pod_sets}
    return {item["name"]: item.get("count", specified.get(item["name"], 1)) for item in workload.assignments}


def reclaimable_counts(workload: WorkloadObject) -> dict[str, int]:
    """Pod set -> pods whose quota the Workload has given back, since they have ended for good."""
    return {row["name"]: row["count"] for row in workload.status.get("reclaimablePods", ())}


def asked_of_topology(pod_set: Json) -> Json:
    """The topology request of a pod set; {} if it has none. Kueue writes the pod index label of every Job, also without one."""
    request: Json = pod_set.get("topologyRequest") or {}
    return {} if request.keys() <= _NUMBERING else request


def changed_annotations(kind: JobKind, workload: WorkloadObject, job: JobObject) -> dict[str, str | None]:
    """Annotations by which a waiting Workload differs from its job; None: to be removed."""
    have, want = workload.annotations, {**kind.workload_annotations(job), **array_annotations(job)}
    want |= {key: job.annotations[key] for key in _FOLLOWED_ANNOTATIONS if key in job.annotations}
    followed = (*_ANNOTATIONS, *_OF_ARRAYS, *_FOLLOWED_ANNOTATIONS)
    return {key: want.get(key) for key in followed if have.get(key) != want.get(key)}


def array_annotations(job: JobObject) -> dict[str, str]:
    """Annotations that say of which array a job is a task, and how many of its tasks may run at a time; {} without a limit."""
    name, limit = job.labels.get(names.ARRAY), job.annotations.get(names.ARRAY_LIMIT)
    return {names.ARRAY: name, names.ARRAY_LIMIT: limit} if name and limit is not None else {}


def changed_dependencies(workload: WorkloadObject, annotations: Mapping[str, str]) -> dict[str, str | None]:
    """Annotations about other jobs by which a waiting Workload differs from its pods; None: to be removed."""
    have = workload.annotations
    return {key: annotations.get(key) for key in names.DEPENDENCIES if have.get(key) != annotations.get(key)}


def fewer_gates(workload: WorkloadObject, job: JobObject) -> str | None:
    """The job's `admission-gated-by` annotation if it lists fewer gates than its Workload's, "" for none; else None.

    Gates are only ever removed.
    """
    written = job.annotations.get(names.ADMISSION_GATED_BY, "")
    fewer = set(names_in(written)) < set(names_in(workload.annotations.get(names.ADMISSION_GATED_BY, "")))
    return written if fewer else None


def _same_pod_set(now: Json, then: Json, admitted: int | None, *, injected: bool) -> bool:
    if now.get("minCount") != then.get("minCount"):
        return False
    if not injected and asked_of_topology(now) != asked_of_topology(then):
        return False
    if not _same_count(now["count"], then, admitted, injected=injected):
        return False
    return podspec.same(now["template"], then["template"], injected=injected)


def _same_count(count: int, then: Json, admitted: int | None, *, injected: bool) -> bool:
    specified = then.get("count", 1)
    if count == specified:
        return True
    least = then.get("minCount")
    if not injected or least is None:
        return False
    return count == admitted if admitted is not None else least <= count <= specified


def _at_rest(job: JobObject) -> bool:
    """Whether the job is suspended and no step of a stop is left to do, so its template is the user's own."""
    stopping = names.STOPPING in job.annotations
    declaration = _declaration(job)
    return (declaration.suspension if declaration is not None else SPEC_SUSPEND).read(job) and not stopping


def _declaration(job: JobObject) -> Declaration | None:
    group, _, _ = str(job.get("apiVersion", "")).rpartition("/")
    return jobkinds.declaration_of(group, str(job.get("kind", "")))


def _owned_by(workload: WorkloadObject, job: JobObject) -> bool:
    return all(owner["uid"] == job.uid for owner in workload.owners if owner.get("controller"))


def _workload_labels(job: JobObject, copied: Sequence[str]) -> dict[str, str]:
    own = job.labels
    return {**{key: own[key] for key in copied if key in own}, names.JOB_UID: job.uid}


def _workload_annotations(job: JobObject, copied: Sequence[str]) -> dict[str, str]:
    return {
        key: value
        for key, value in job.annotations.items()
        if key.startswith(names.PROVISIONING_PREFIX) or key in _COPIED_ANNOTATIONS or key in copied
    }
