"""Plans one job: from the job, its Workload and the objects it owns to the next writes. Pure.

The plan is level-triggered: it looks at the current state, never at past events, and names only the next step. After every write
the job is planned again with the result, so that a crash between any two steps loses nothing. The order of the rules is that of
Kueue's job reconciler (see `plan`).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial

from gangline.api import names
from gangline.api.admission.jobs import prebuilt_workload, queue_name
from gangline.api.read import swap_record
from gangline.control.plan.injection import pod_set_infos
from gangline.control.plan.plan_steps import (
    ChangeStatus,
    CreateWorkload,
    DeleteWorkload,
    JobView,
    Lookups,
    Note,
    Own,
    PatchJob,
    PatchWorkload,
    Step,
)
from gangline.control.status import status_changes
from gangline.jobs import workload as workloads
from gangline.jobs.base import Expires, JobError, JobWrite, LeavesBehind, Patch, PodSetInfo, UnknownClassError
from gangline.kube.resources import Json, condition_of, controller_uid, deleting, key_of, true_condition

_LIMIT = "maximumExecutionTimeSeconds"
#: characters of the longest note: longer ones are cut anyway
_LONGEST_NOTE = 1024


# --- reading a Workload -----------------------------------------------------------------------------------------------


def has(workload: Json, condition: str) -> bool:
    return true_condition(workload, condition) is not None


def reserved(workload: Json) -> bool:
    return "admission" in workload.get("status", {}) and has(workload, names.QUOTA_RESERVED)


# --- the plan ---------------------------------------------------------------------------------------------------------


def plan(view: JobView, lookups: Lookups) -> list[Step]:
    """The next steps for one job; [] when there is nothing to do until something changes."""
    job, kind = view.job, view.kind
    if view.managed_ancestor:
        return []
    if not view.workloads and not queue_name(job) and view.needs_queue:
        return _unqueued(view)
    if not view.in_scope and not (deleting(job) and view.workloads):
        return _unqueued(view)
    if deleting(job):
        return _release_deleted(view)
    outcome = kind.finished(job)
    prebuilt = prebuilt_workload(job)
    workload, surplus = _named(view, prebuilt) if prebuilt else _choose(view)
    steps: list[Step] = [DeleteWorkload(extra) for extra in surplus if not deleting(extra)]
    if workload is None:
        without = partial(_without_prebuilt, view, prebuilt) if prebuilt else partial(_without_workload, view, lookups)
        return steps + ([] if outcome else without())
    if prebuilt and controller_uid(workload) is None:
        return [*steps, PatchWorkload(workload, workloads.adoption(kind, workload, job))]
    if has(workload, names.FINISHED):
        return steps + drop_finalizer(workload) + ([] if outcome else _finished_elsewhere(view, workload))
    if outcome is not None:
        return [
            *steps,
            ChangeStatus(workload, "finish", status_changes.finish(outcome.success, outcome.message)),
            Note("Normal", "FinishedWorkload", f"Workload '{key_of(workload)}' is declared finished"),
        ]
    if deleting(workload):
        return steps + _stop_then(view, workload, "Workload is deleted", lambda: drop_finalizer(workload))
    return steps + _with_workload(view, workload, lookups)


def _unqueued(view: JobView) -> list[Step]:
    """A job that is not managed is left alone, but one of Gangline's own kinds still has to be run."""
    if not view.kind.owns_children or deleting(view.job):
        return []
    held = view.kind.is_suspended(view.job)
    infos = None if held else [PodSetInfo(row["name"], row["count"]) for row in view.kind.pod_sets(view.job)]
    return _steps(view.kind.sync(view.job, infos, view.children))


def _release_deleted(view: JobView) -> list[Step]:
    """The job is being deleted: its quota is released when its last pod has ended."""
    if view.lingering or view.kind.is_active(view.job, view.children):
        return []
    return [step for workload in view.workloads for step in drop_finalizer(workload)]


def leaving(job: Json, workload: Json) -> bool:
    """Whether the job is to stop or to be deleted, and its Workload holds quota until it has stopped."""
    return deleting(job) or deleting(workload) or (has(workload, names.EVICTED) and reserved(workload))


def drop_finalizer(workload: Json) -> list[PatchWorkload]:
    """Remove our finalizer, so that the Workload can be deleted now or later."""
    finalizers: list[str] = workload["metadata"].get("finalizers", [])
    if names.IN_USE_FINALIZER not in finalizers:
        return []
    rest = [f for f in finalizers if f != names.IN_USE_FINALIZER]
    return [PatchWorkload(workload, {"metadata": {"finalizers": rest or None}})]


def _choose(view: JobView) -> tuple[Json | None, list[Json]]:
    """The Workload that represents the job, and the surplus ones. The one with quota, else the oldest, is chosen."""
    if not view.workloads:
        return None, []
    order = sorted(
        view.workloads,
        key=lambda w: (deleting(w), not reserved(w), w["metadata"].get("creationTimestamp", ""), w["metadata"]["name"]),
    )
    return order[0], order[1:]


def _named(view: JobView, name: str) -> tuple[Json | None, list[Json]]:
    """The prebuilt Workload that the job's label names, unless it belongs to another job or goes; and the surplus ones."""
    named, uid = view.named, view.job["metadata"]["uid"]
    if named is not None and (controller_uid(named) or uid) != uid:
        named = None
    if named is not None and controller_uid(named) is None and deleting(named):
        named = None
    return named, [workload for workload in view.workloads if workload["metadata"]["name"] != name]


def _without_prebuilt(view: JobView, name: str) -> list[Step]:
    """Keep the job suspended until the Workload that it names exists and is free."""
    kind, job = view.kind, view.job
    key = f"{job['metadata']['namespace']}/{name}"
    problem = "not found" if view.named is None or deleting(view.named) else "controlled by another object"
    stopping = [] if kind.is_suspended(job) else _stop(view, None, "missing workload")
    return [
        *stopping,
        *_sync(view, None),
        Note("Warning", "PrebuiltWorkloadNotFound", f"Prebuilt workload {key}: {problem}"),
    ]


def _without_workload(view: JobView, lookups: Lookups) -> list[Step]:
    """Suspend the job, wait until none of its pods runs, then queue it."""
    kind, job = view.kind, view.job
    if not kind.is_suspended(job):
        return _stop(view, None, "Missing Workload; unable to restore pod templates") + _sync(view, None)
    if kind.is_active(job, view.children):
        return _sync(view, None)
    pod_sets = kind.pod_sets(job)
    queue = queue_name(job)
    priority, class_ref = lookups.priority(job, pod_sets)
    body = workloads.build(
        kind,
        job,
        pod_sets,
        queue=queue,
        priority=priority,
        priority_class_ref=class_ref,
        labels_to_copy=lookups.labels_to_copy,
    )
    return [
        CreateWorkload(body),
        Note("Normal", "CreatedWorkload", f"Created Workload: {key_of(body)}"),
        *_sync(view, None),
    ]


def _with_workload(view: JobView, workload: Json, lookups: Lookups) -> list[Step]:
    kind, job = view.kind, view.job
    suspended = kind.is_suspended(job)
    admitted = has(workload, names.ADMITTED) and reserved(workload)

    if has(workload, names.EVICTED) and reserved(workload):
        why = (condition_of(workload, names.EVICTED) or {}).get("message") or ""
        return _expire(view, workload) or _stop_then(
            view, workload, why, lambda: [ChangeStatus(workload, "release", status_changes.release)]
        )
    if prebuilt_workload(job) and not workloads.in_sync(workload, kind.pod_sets(job), job):
        return _out_of_sync(view, workload)
    if not admitted and not suspended:
        return _stop(view, workload, "Not admitted by cluster queue") + _sync(view, None)
    pod_sets = kind.pod_sets(job)
    if not prebuilt_workload(job) and not workloads.equivalent(workload, pod_sets, job):
        return _changed_shape(view, workload, pod_sets)
    changes = [] if prebuilt_workload(job) else _keep_in_step(view, workload, pod_sets, lookups)
    if any(isinstance(step, PatchWorkload) for step in changes):
        return changes
    if not reserved(workload):
        changes += _follow(view, workload, pod_sets, lookups)
    return changes + _advance(view, workload, lookups)


def _advance(view: JobView, workload: Json, lookups: Lookups) -> list[Step]:
    """The next step of a job whose Workload describes it."""
    suspended = view.kind.is_suspended(view.job)
    if not (has(workload, names.ADMITTED) and reserved(workload)):
        return _checks_so_far(workload) + _sync(view, None)
    if not suspended and _is_outdated(view, workload):
        why = "Nodes were lost: the gang starts again"
        return _stop(view, workload, why) + _sync(view, None) + _not_ready(workload)
    infos = pod_set_infos(workload, lookups)
    if suspended:
        return _start(view, workload, infos)
    return _running(view, workload, infos)


def _checks_so_far(workload: Json) -> list[Step]:
    """What the controllers of admission checks say, while they still decide."""
    checks = (workload.get("status") or {}).get("admissionChecks") or () if reserved(workload) else ()
    told = [
        f"{row['name']}: {row['message']}" for row in checks if row.get("state") == "Pending" and row.get("message")
    ]
    return [Note("Normal", "UpdatedAdmissionCheck", "; ".join(told)[:_LONGEST_NOTE])] if told else []


def _is_outdated(view: JobView, workload: Json) -> bool:
    """Whether nodes were lost and the job still runs an attempt older than the replacement."""
    running = view.kind.attempt(view.job)
    return running is not None and running < swap_record.of(workload).attempt


def _expire(view: JobView, workload: Json) -> list[Step]:
    """The maximum execution time is over: one of Gangline's kinds fails; other kinds are only suspended, as in Kueue."""
    evicted = condition_of(workload, names.EVICTED) or {}
    if not isinstance(view.kind, Expires) or evicted.get("reason") != "DeactivatedDueToMaximumExecutionTimeExceeded":
        return []
    patch = view.kind.expire(view.job, evicted["lastTransitionTime"])
    return [PatchJob(patch)] if patch is not None else []


def _start(view: JobView, workload: Json, infos: list[PodSetInfo]) -> list[Step]:
    if view.held_back or view.kind.is_active(view.job, view.children):  # pods of an earlier run are still terminating
        return _not_ready(workload)
    if outdated := _outdated_children(view, infos):
        return _steps(outdated)
    try:
        patch = view.kind.start(view.job, infos)
    except JobError as error:
        return [
            ChangeStatus(workload, "finish", status_changes.finish_because("FailedToStart", str(error))),
            Note("Warning", "FailedToStart", str(error)),
        ]
    queue = workload["status"]["admission"]["clusterQueue"]
    started: list[Step] = []
    if patch is not None:
        started = [PatchJob(patch), Note("Normal", "Started", f"Admitted by clusterQueue {queue}")]
    return started


def _not_ready(workload: Json) -> list[Step]:
    """The whole gang starts again: until then it does not count as running."""
    if not has(workload, names.PODS_READY):
        return []
    return [ChangeStatus(workload, "pods-ready", status_changes.pods_ready(False))]


def _outdated_children(view: JobView, infos: list[PodSetInfo]) -> Sequence[JobWrite]:
    """Children of an earlier run that would keep this one from starting as it was admitted."""
    if not isinstance(view.kind, LeavesBehind):
        return ()
    return view.kind.outdated_children(view.job, infos, view.children)


def _running(view: JobView, workload: Json, infos: list[PodSetInfo]) -> list[Step]:
    kind, job = view.kind, view.job
    steps = _sync(view, infos)
    ready = kind.pods_ready(job) and not view.unreachable
    known = condition_of(workload, names.PODS_READY)
    unsettled = (
        view.completing and not view.unreachable
    )  # a pod that completes is for a moment neither ready nor succeeded
    if known is None or ((known["status"] == "True") != ready and (ready or not unsettled)):
        steps.append(ChangeStatus(workload, "pods-ready", status_changes.pods_ready(ready)))
    done = kind.reclaimable(job)
    before = {row["name"]: row["count"] for row in workload["status"].get("reclaimablePods", ())}
    if any(count > before.get(name, 0) for name, count in done.items()):
        steps.append(ChangeStatus(workload, "reclaim", status_changes.reclaim(done)))
    return steps


def _changed_shape(view: JobView, workload: Json, pod_sets: list[Json]) -> list[Step]:
    """The user changed the job: a waiting Workload is updated; one that holds quota is deleted, and the job is queued again."""
    if view.kind.is_suspended(view.job) and not reserved(workload):
        return [
            PatchWorkload(workload, {"spec": {"podSets": pod_sets} | _changed_limit(workload, view.job)}),
            Note("Normal", "UpdatedWorkload", f"Updated not matching Workload for suspended job: {key_of(workload)}"),
        ]
    return [
        *_stop(view, workload, "No matching Workload; restoring pod templates according to existent Workload"),
        DeleteWorkload(workload),
        Note("Normal", "DeletedWorkload", f"Deleted not matching Workload: {key_of(workload)}"),
    ]


def _out_of_sync(view: JobView, workload: Json) -> list[Step]:
    """The prebuilt Workload does not describe the job: once the job is stopped, it is finished."""
    kind, job = view.kind, view.job
    message = "The prebuilt workload is out of sync with its user job"
    stopping = _stop(view, None, message)
    if stopping or not kind.is_suspended(job) or view.lingering or kind.is_active(job, view.children):
        return stopping + _sync(view, None)
    return [*_sync(view, None), ChangeStatus(workload, "finish", status_changes.finish_because("OutOfSync", message))]


def _changed_limit(workload: Json, job: Json) -> Json:
    limit = workloads.max_execution_seconds(job)
    return {} if limit == workload["spec"].get(_LIMIT) else {_LIMIT: limit}


def _follow(view: JobView, workload: Json, pod_sets: list[Json], lookups: Lookups) -> list[Step]:
    """Update a waiting Workload when its job names another queue or priority class, or has other annotations."""
    job, spec = view.job, workload["spec"]
    queue = queue_name(job)
    change: Json = {"queueName": queue} if queue and queue != spec.get("queueName") else {}
    if prebuilt_workload(job):  # its author wrote the rest
        return [PatchWorkload(workload, {"spec": change})] if change else []
    priority, class_ref = lookups.priority(job, pod_sets)
    notes: list[Step] = []
    if priority != spec.get("priority", 0) or class_ref != spec.get("priorityClassRef"):
        change |= {"priority": priority, "priorityClassRef": class_ref}
        notes = [Note("Normal", "UpdatedWorkload", f"Updated workload priority class: {key_of(workload)}")]
    body: Json = {"spec": change} if change else {}
    if annotations := workloads.changed_annotations(view.kind, workload, job):
        body["metadata"] = {"annotations": annotations}
    return [PatchWorkload(workload, body), *notes] if body else []


def _keep_in_step(view: JobView, workload: Json, pod_sets: list[Json], lookups: Lookups) -> list[Step]:
    """What follows the job in every state: gates that it no longer lists; with quota, another WorkloadPriorityClass."""
    job, spec = view.job, workload["spec"]
    if (gates := workloads.fewer_gates(workload, job)) is not None:
        return [
            PatchWorkload(workload, {"metadata": {"annotations": {names.ADMISSION_GATED_BY: gates or None}}}),
            Note("Normal", "UpdatedWorkload", f'Updated workload AdmissionGatedBy to "{gates}"'),
        ]
    if not reserved(workload) or not workloads.names_another_class(workload, job):
        return []
    try:
        priority, class_ref = lookups.priority(job, pod_sets)
    except UnknownClassError as error:  # the job runs on as it was admitted
        return [Note("Warning", "WorkloadPriorityClassNotFound", error.message)]
    if class_ref is None or class_ref["kind"] != spec["priorityClassRef"]["kind"]:
        return []  # the kind of class stays while quota is held
    return [
        PatchWorkload(workload, {"spec": {"priority": priority, "priorityClassRef": class_ref}}),
        Note("Normal", "UpdatedWorkload", f"Updated workload priority class: {key_of(workload)}"),
    ]


def _finished_elsewhere(view: JobView, workload: Json) -> list[Step]:
    """The Workload was declared finished while the job was not: the job must not run without quota."""
    if view.kind.is_suspended(view.job):
        return []
    return _stop(view, workload, "Workload is finished") + _sync(view, None)


def _stop_then(view: JobView, workload: Json, why: str, after: Callable[[], Sequence[Step]]) -> list[Step]:
    """Stop the job and remove what admission injected; once it is suspended and none of its pods runs, go on with `after`."""
    kind, job = view.kind, view.job
    stopping = _stop(view, workload, why)
    if stopping or not kind.is_suspended(job) or view.lingering or kind.is_active(job, view.children):
        return stopping + _sync(view, None)
    return [*_sync(view, None), *after()]


def _stop(view: JobView, workload: Json | None, why: str) -> list[Step]:
    """The next step on the way back to the suspended job of `workload`, or of its present spec where no Workload has another."""
    kind, job = view.kind, view.job
    if workload is not None and prebuilt_workload(job) and not workloads.in_sync(workload, kind.pod_sets(job), job):
        workload = None
    patch = kind.stop(job, workload["spec"]["podSets"] if workload is not None else kind.pod_sets(job))
    if patch is None:
        return []
    suspends = (patch.body.get("spec") or {}).get("suspend") is True
    return [PatchJob(patch), *([Note("Normal", "Stopped", why)] if suspends else [])]


def _sync(view: JobView, infos: Sequence[PodSetInfo] | None) -> list[Step]:
    return _steps(view.kind.sync(view.job, infos, view.children)) if view.kind.owns_children else []


def _steps(writes: Sequence[JobWrite]) -> list[Step]:
    return [PatchJob(write) if isinstance(write, Patch) else Own(write) for write in writes]
