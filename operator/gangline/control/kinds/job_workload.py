"""The Workload of a job: how it stands, which one it is, how it is made, and how it is kept in step with its job. Pure."""

from __future__ import annotations

from gangline.api import names
from gangline.api.admission.of_jobs.identifiers import prebuilt_workload
from gangline.api.admission.of_jobs.jobs import queue_name
from gangline.control.kinds.steps import DeleteWorkload, JobView, Lookups, Note, PatchWorkload, Step
from gangline.jobs import workload as workloads
from gangline.jobs.base import PriorityClassError, UnknownClassError
from gangline.kube.resources import Json
from gangline.objects import JobObject, WorkloadObject

_LIMIT = "maximumExecutionTimeSeconds"


# --- how it stands ----------------------------------------------------------------------------------------------------


def leaving(job: JobObject, workload: WorkloadObject) -> bool:
    """Whether the job is to stop or to be deleted, and its Workload holds quota until it has stopped."""
    return job.deleting or workload.deleting or (workload.evicted and workload.holds_quota)


# --- which one it is --------------------------------------------------------------------------------------------------


def choose(view: JobView) -> tuple[WorkloadObject | None, list[WorkloadObject]]:
    """The Workload that represents the job, and the surplus ones.

    The one with quota is chosen, else one that describes the job, and of several the oldest.
    """
    if len(view.workloads) < 2:
        return next(iter(view.workloads), None), []
    pod_sets = view.pod_sets()

    def rank(workload: WorkloadObject) -> tuple[bool, bool, bool, str, str]:
        other = not workloads.equivalent(workload, pod_sets, view.job)
        return workload.deleting, not workload.holds_quota, other, workload.created, workload.name

    order = sorted(view.workloads, key=rank)
    return order[0], order[1:]


def named(view: JobView, name: str) -> tuple[WorkloadObject | None, list[WorkloadObject]]:
    """The prebuilt Workload that the job's label names, unless it belongs to another job or goes; and the surplus ones."""
    found, uid = view.named, view.job.uid
    if found is not None and (found.controller_uid or uid) != uid:
        found = None
    if found is not None and found.controller_uid is None and found.deleting:
        found = None
    return found, [workload for workload in view.workloads if workload.name != name]


# --- it is made, and goes ---------------------------------------------------------------------------------------------


def new_workload(view: JobView, pod_sets: list[Json], lookups: Lookups) -> Json:
    """A Workload for the job, with these pod sets."""
    priority, class_ref = lookups.priority(view.job, pod_sets)
    return workloads.build(
        view.kind,
        view.job,
        pod_sets,
        queue=queue_name(view.job),
        priority=priority,
        priority_class_ref=class_ref,
        labels_to_copy=lookups.labels_to_copy,
        annotations_to_copy=lookups.annotations_to_copy,
        extra=view.revision if view.elastic else "",
    )


def drop_finalizer(workload: WorkloadObject) -> list[PatchWorkload]:
    """Remove our finalizer, so that the Workload can be deleted now or later."""
    finalizers: list[str] = workload.finalizers
    if names.IN_USE_FINALIZER not in finalizers:
        return []
    rest = [f for f in finalizers if f != names.IN_USE_FINALIZER]
    return [PatchWorkload(workload, {"metadata": {"finalizers": rest or None}})]


def delete(workload: WorkloadObject) -> list[Step]:
    """Delete a Workload that does not represent the job, and tell so."""
    return [
        DeleteWorkload(workload),
        Note("Normal", "DeletedWorkload", f"Deleted not matching Workload: {workload.key}"),
    ]


# --- in step with its job ---------------------------------------------------------------------------------------------


def changed_limit(workload: WorkloadObject, job: JobObject) -> Json:
    limit = workloads.max_execution_seconds(job)
    return {} if limit == workload.spec.get(_LIMIT) else {_LIMIT: limit}


def follow(view: JobView, workload: WorkloadObject, pod_sets: list[Json], lookups: Lookups) -> list[Step]:
    """Update a waiting Workload when its job names another queue or none, another priority class, or has other annotations."""
    job, spec = view.job, workload.spec
    queue = queue_name(job)
    change: Json = {"queueName": queue or None} if queue != (spec.get("queueName") or "") else {}
    if prebuilt_workload(job):  # its author wrote the rest, and may have written its queue
        return [PatchWorkload(workload, {"spec": change})] if change and queue else []
    notes: list[Step] = []
    try:
        priority, class_ref = lookups.priority(job, pod_sets)
    except UnknownClassError:
        raise
    except PriorityClassError as error:  # it waits on with the priority that it has
        notes = [Note("Warning", "PriorityClassNotAllowed", error.message)]
        priority, class_ref = spec.get("priority", 0), spec.get("priorityClassRef")
    if priority != spec.get("priority", 0) or class_ref != spec.get("priorityClassRef"):
        change |= {"priority": priority, "priorityClassRef": class_ref}
        notes = [Note("Normal", "UpdatedWorkload", f"Updated workload priority class: {workload.key}")]
    body: Json = {"spec": change} if change else {}
    if annotations := workloads.changed_annotations(view.kind, workload, job):
        body["metadata"] = {"annotations": annotations}
    return [PatchWorkload(workload, body), *notes] if body else notes


def keep_in_step(view: JobView, workload: WorkloadObject, pod_sets: list[Json], lookups: Lookups) -> list[Step]:
    """The steps by which the Workload follows its job in every state: gates that the job no longer lists and, with quota, another
    WorkloadPriorityClass.
    """
    job, spec = view.job, workload.spec
    if (gates := workloads.fewer_gates(workload, job)) is not None:
        return [
            PatchWorkload(workload, {"metadata": {"annotations": {names.ADMISSION_GATED_BY: gates or None}}}),
            Note("Normal", "UpdatedWorkload", f'Updated workload AdmissionGatedBy to "{gates}"'),
        ]
    if not workload.holds_quota or not workloads.names_another_class(workload, job):
        return []
    try:
        priority, class_ref = lookups.priority(job, pod_sets)
    except UnknownClassError as error:  # the job runs on as it was admitted
        return [Note("Warning", "WorkloadPriorityClassNotFound", error.message)]
    except PriorityClassError as error:
        return [Note("Warning", "PriorityClassNotAllowed", error.message)]
    if class_ref is None or class_ref["kind"] != spec["priorityClassRef"]["kind"]:
        return []  # the kind of class stays while quota is held
    return [
        PatchWorkload(workload, {"spec": {"priority": priority, "priorityClassRef": class_ref}}),
        Note("Normal", "UpdatedWorkload", f"Updated workload priority class: {workload.key}"),
    ]
