"""Plans one job: from the job, its Workload and the objects it owns to the next writes. Pure.

The plan is level-triggered: it looks at the current state, never at past events, and names only the next step. After every write
the job is planned again with the result, so that a crash between any two steps loses nothing. The order of the rules is that of
Kueue's job reconciler (see `plan`).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial

from gangline.api import names
from gangline.api.admission.of_jobs.identifiers import prebuilt_workload
from gangline.api.admission.of_jobs.jobs import queue_name
from gangline.api.jobkinds.declaration import DESCRIPTION, at
from gangline.api.read import merge
from gangline.api.read.workloads import swap_record
from gangline.control.feed import slices
from gangline.control.feed.owned_objects import MOST_OWNERS
from gangline.control.kinds import job_workload
from gangline.control.kinds.injection import behind_gate, pod_set_infos, unconstrained
from gangline.control.kinds.job_workload import drop_finalizer
from gangline.control.kinds.steps import (
    ChangeStatus,
    CreateWorkload,
    JobView,
    Lookups,
    Note,
    Own,
    PatchJob,
    PatchWorkload,
    Step,
)
from gangline.control.writes.status import run_changes, status_changes
from gangline.jobs import workload as workloads
from gangline.jobs.base import (
    Delete,
    Expires,
    JobError,
    JobKind,
    JobWrite,
    LeavesBehind,
    NeedsKinds,
    Patch,
    PodSetInfo,
)
from gangline.kube import resources as kube
from gangline.kube.resources import Json, key_of
from gangline.objects import JobObject, WorkloadObject

#: the API server's finalizer of an object that is deleted while what it owns stays
ORPHANS = "orphan"
#: characters of the longest note: longer ones are cut anyway
_LONGEST_NOTE = 1024


# --- the plan ---------------------------------------------------------------------------------------------------------


def plan(view: JobView, lookups: Lookups) -> list[Step]:
    """The next steps for one job; [] when there is nothing to do until something changes."""
    job, kind = view.job, view.kind
    if view.nested_too_deep and not job.deleting:
        return _nested_too_deep(view)
    if view.managed_ancestor:
        return _hold_with_ancestor(view) if view.waits_with_ancestor else _make_anew(view)
    if not view.workloads and not queue_name(job) and view.needs_queue:
        return _unqueued(view)
    if not view.in_scope and not (job.deleting and view.workloads):
        return _unqueued(view)
    if job.deleting:
        return _release_deleted(view)
    outcome = kind.finished(job)
    prebuilt = view.present or prebuilt_workload(job)
    workload, surplus = job_workload.named(view, prebuilt) if prebuilt else job_workload.choose(view)
    steps = [step for extra in surplus if not extra.deleting for step in job_workload.delete(extra)]
    if workload is None:
        without = partial(_without_prebuilt, view, prebuilt) if prebuilt else partial(_without_workload, view, lookups)
        return steps + ([] if outcome else without())
    if prebuilt and workload.controller_uid is None:
        return [*steps, adopt(view, workload)]
    if not workload.deleting and not workload.finished and (held := _hold(view, workload)) is not None:
        return steps + held
    if workload.finished:
        return steps + drop_finalizer(workload) + ([] if outcome else _finished_before_job(view, workload))
    if outcome is not None:
        return [
            *steps,
            ChangeStatus(workload, "finish", run_changes.finish(outcome.success, outcome.message)),
            Note("Normal", "FinishedWorkload", f"Workload '{workload.key}' is declared finished"),
        ]
    if workload.deleting:
        return steps + stop_then(view, workload, "Workload is deleted", lambda: drop_finalizer(workload))
    return steps + _with_workload(view, workload, lookups)


def plan_head(view: JobView, why: str) -> list[Step]:
    """The next steps for a job of which only the head is kept (`isolation.intake`), which is said by `why`.

    What runs with quota goes on. Everything else is suspended, is not queued, and gives its quota back once nothing of it runs.
    """
    job, kind = view.job, view.kind
    if view.managed_ancestor:
        return _hold_with_ancestor(view) if view.waits_with_ancestor else []
    if not view.workloads and (not view.in_scope or (view.needs_queue and not queue_name(job))):
        return []
    if job.deleting:
        return _release_deleted(view)
    outcome, steps = kind.finished(job), list[Step]()
    unfinished = [workload for workload in view.workloads if not workload.finished]
    for workload in view.workloads:
        if workload.finished:
            steps += drop_finalizer(workload)
        elif outcome is not None:
            steps.append(ChangeStatus(workload, "finish", run_changes.finish(outcome.success, outcome.message)))
    if outcome is not None:
        return steps
    suspended = kind.declaration.suspension.read(job)
    if not suspended and any(map(_keeps_quota, unfinished)):
        return steps
    if not suspended:
        held: Json = {"spec": job.spec}
        kind.declaration.suspension.hold(held)
        patch = Patch({"spec": merge.difference(job.spec, held["spec"])})
        return [*steps, PatchJob(patch), Note("Normal", "Stopped", why)]
    if kind.owns_children and (rest := [child for child in view.children.jobs if not child.deleting]):
        deletes = [Delete(kube.JOBS, child.namespace, child.name, child.uid) for child in rest]
        return [*steps, *_steps(deletes)]
    if view.may_start_pods or view.lingering or kind.is_active(job, view.children):
        return steps
    for workload in unfinished:
        if workload.deleting:
            steps += drop_finalizer(workload)
        elif not prebuilt_workload(job):
            steps += job_workload.delete(workload)
        elif workload.evicted and workload.holds_quota:
            steps.append(ChangeStatus(workload, "release", status_changes.release))
    return steps


def _keeps_quota(workload: WorkloadObject) -> bool:
    return workload.admitted and workload.holds_quota and not workload.evicted and not workload.deleting


def adopt(view: JobView, workload: WorkloadObject) -> PatchWorkload:
    """The patch by which the job takes a prebuilt Workload."""
    body = workloads.adoption(view.kind, workload, view.job)
    if view.elastic:
        body["metadata"]["annotations"] = {names.CUT_WITH_JOB: "true"}
    return PatchWorkload(workload, body)


def _hold_with_ancestor(view: JobView) -> list[Step]:
    """Suspend a job that a queued one has created before it holds quota: its pods would run without any."""
    kind, job = view.kind, view.job
    suspension = kind.declaration.suspension
    if job.deleting or suspension.read(job) or kind.finished(job) is not None:
        return []
    held: Json = {"spec": job.spec}
    suspension.hold(held)
    patch = Patch({"spec": merge.difference(job.spec, held["spec"])})
    return [PatchJob(patch), Note("Normal", "Suspended", "Kueue managed child job suspended")]


def _nested_too_deep(view: JobView) -> list[Step]:
    """The steps for a job with more owners than are looked at: as in Kueue it is left as it is, and gets no Workload. Whether an
    owner further up has quota for it is not known.

    With a queued owner among those that were looked at, it still waits for that one.
    """
    message = f"Terminated search for Kueue-managed Job because ancestor depth exceeded limit of {MOST_OWNERS}"
    held = _hold_with_ancestor(view) if view.managed_ancestor and view.waits_with_ancestor else []
    return [*held, Note("Warning", "JobNestingTooDeep", message)]


def _make_anew(view: JobView) -> list[Step]:
    """Delete a child that was created while its owner was held, by a controller that would leave it so: it has
    run nothing yet.
    """
    job, kind = view.job, view.kind
    if not view.made_while_held or job.deleting or not kind.is_suspended(job) or kind.is_active(job, view.children):
        return []
    return [Own(Delete(kind.declaration.resource, job.namespace, job.name, job.uid, "Background"))]


def _unqueued(view: JobView) -> list[Step]:
    """The steps for a job that is not managed: it is left alone, but one of Gangline's own kinds still has to be run."""
    if not view.kind.owns_children or view.job.deleting:
        return []
    held = view.kind.is_suspended(view.job)
    infos = None if held else [PodSetInfo(row["name"], row["count"]) for row in view.kind.pod_sets(view.job)]
    return _steps(view.kind.sync(view.job, infos, view.children))


def _hold(view: JobView, workload: WorkloadObject) -> list[Step] | None:
    """Take the quota of a job that its controller will not run, as in Kueue, once nothing of it runs; None for all others."""
    unrunnable = view.kind.declaration.on_hold
    if unrunnable is None:
        return None
    is_held = status_changes.is_on_hold(workload.conditions)
    if not unrunnable(view.job):
        return [ChangeStatus(workload, "hold", status_changes.end_hold)] if is_held else None
    if is_held or view.children.jobs or view.lingering:
        return []
    return [ChangeStatus(workload, "hold", status_changes.put_on_hold("Job is on hold"))]


def _release_deleted(view: JobView) -> list[Step]:
    """Release the quota of a job that is being deleted when its last pod has ended.

    With `--cascade=orphan` its Workload stays, and answers for the pods that stay (`control.kinds.unowned_workloads`).
    """
    if ORPHANS in view.job.finalizers:
        return []
    if view.lingering or view.kind.is_active(view.job, view.children):
        return _delete_stranded(view)
    return [step for workload in view.workloads for step in drop_finalizer(workload)]


def _without_prebuilt(view: JobView, name: str) -> list[Step]:
    """Keep the job suspended until the Workload that it names exists and is free."""
    kind, job = view.kind, view.job
    key = f"{job.namespace}/{name}"
    problem = "not found" if view.named is None or view.named.deleting else "controlled by another object"
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
    _check_kinds(view)
    body = job_workload.new_workload(view, view.pod_sets(), lookups)
    if view.elastic:
        body = slices.first(body)
    return [
        CreateWorkload(body),
        Note("Normal", "CreatedWorkload", f"Created Workload: {key_of(body)}"),
        *_ignored_fields(kind, job),
        *_sync(view, None),
    ]


def _check_kinds(view: JobView) -> None:
    """Check that the API server has the kinds that the job needs: one that could not run is not queued. Raises JobError."""
    needed = view.kind.needed_kinds(view.job) if isinstance(view.kind, NeedsKinds) else {}
    for resource, field in needed.items():
        if not view.served(resource):
            raise JobError(f"needs {resource.kind} of {resource.api_version}, which this cluster does not serve", field)


def _ignored_fields(kind: JobKind, job: JobObject) -> list[Step]:
    """Warn of fields that have no effect in a job whose pods another object describes."""
    ignored = kind.declaration.unused(job, lambda reference: job.get(DESCRIPTION))
    return [Note("Warning", "FieldIgnored", text) for text in ignored]


def _with_workload(view: JobView, workload: WorkloadObject, lookups: Lookups) -> list[Step]:
    kind, job = view.kind, view.job
    suspended = kind.is_suspended(job)
    admitted = workload.admitted and workload.holds_quota

    if workload.evicted and workload.holds_quota:
        why = (workload.condition(names.EVICTED) or {}).get("message") or ""
        return _expire(view, workload) or stop_then(
            view, workload, why, lambda: [ChangeStatus(workload, "release", status_changes.release)]
        )
    if admitted and view.written and (lost := kind.not_kept(job, view.written)):
        return _not_kept(view, workload, lost)
    if prebuilt_workload(job) and not in_sync(view, workload):
        return _out_of_sync(view, workload)
    if not admitted and not suspended and not _goes_on(view, workload):
        return _stop(view, workload, "Not admitted by cluster queue") + _sync(view, None) + _not_started(workload)
    pod_sets = view.pod_sets()
    if not prebuilt_workload(job) and not workloads.equivalent(workload, pod_sets, job):
        return _changed_shape(view, workload, pod_sets)
    changes = [] if prebuilt_workload(job) else job_workload.keep_in_step(view, workload, pod_sets, lookups)
    if any(isinstance(step, PatchWorkload) for step in changes):
        return changes
    if not workload.holds_quota:
        changes += job_workload.follow(view, workload, pod_sets, lookups)
    return changes + advance(view, workload, lookups)


def in_sync(view: JobView, workload: WorkloadObject) -> bool:
    """Whether a prebuilt Workload describes the job. An elastic one may have shrunk; one that another cluster sent gets its new
    size from there, and the Workload for it perhaps a moment later than the job: until then more pods wait at their gate.
    """
    pod_sets = view.kind.pod_sets(view.job)
    if view.elastic:
        recorded, now = slices.counts(workload.pod_sets), slices.counts(pod_sets)
        sent = names.MULTIKUEUE_ORIGIN in view.job.labels
        if sent or slices.is_cut(recorded, now):
            pod_sets = slices.resized(pod_sets, recorded)
    return workloads.in_sync(workload, pod_sets, view.job)


def _goes_on(view: JobView, workload: WorkloadObject) -> bool:
    """Whether a job that grew runs on while the admission checks of its new slice are open: pods beyond those that run wait."""
    return view.elastic and workload.holds_quota and bool(slices.replacement_for(workload))


def advance(view: JobView, workload: WorkloadObject, lookups: Lookups) -> list[Step]:
    """The next step of a job whose Workload describes it."""
    suspended = view.kind.is_suspended(view.job)
    if not (workload.admitted and workload.holds_quota):
        return _checks_so_far(workload) + _sync(view, None) + _not_started(workload)
    if not suspended and _is_outdated(view, workload):
        why = "Nodes were lost: the gang starts again"
        return _stop(view, workload, why) + _sync(view, None) + _not_ready(workload)
    if run_changes.why_not_started(workload) == run_changes.NOT_KEPT:
        return _stop(view, workload, "The admission of the job was not kept") + _sync(view, None) + _not_ready(workload)
    infos = unconstrained(pod_set_infos(workload, lookups), workload)
    if view.elastic:
        infos = behind_gate(infos, view.kind.resizable(view.job))
    if suspended:
        return _start_refused(view, workload) + _start(view, workload, infos)
    return _start_accepted(workload) + _running(view, workload, infos)


def _not_kept(view: JobView, workload: WorkloadObject, lost: Sequence[str]) -> list[Step]:
    """Hold the job again: what was written to start it is not what was stored, since an admission webhook has changed it."""
    resource = view.kind.resource
    message = run_changes.lost_words(f"{resource.plural}.{resource.group}", lost)
    return [
        ChangeStatus(workload, "pods-refused", run_changes.pods_refused(True, run_changes.NOT_KEPT, message)),
        Note("Warning", names.PODS_REFUSED, message),
        *_stop(view, workload, "The admission of the job was not kept"),
    ]


def _start_refused(view: JobView, workload: WorkloadObject) -> list[Step]:
    known = workload.true_condition(names.PODS_REFUSED) or {}
    if not view.start_refused or known.get("message") == view.start_refused:
        return []
    refused = run_changes.pods_refused(True, run_changes.UNKNOWN_FIELD, view.start_refused)
    return [ChangeStatus(workload, "pods-refused", refused), Note("Warning", names.PODS_REFUSED, view.start_refused)]


def _start_accepted(workload: WorkloadObject) -> list[Step]:
    if not run_changes.why_not_started(workload):
        return []
    return [
        ChangeStatus(workload, "pods-refused", run_changes.pods_refused(False, "Accepted", "The job has been started"))
    ]


def _checks_so_far(workload: WorkloadObject) -> list[Step]:
    """An event with the messages of admission checks whose controllers still decide."""
    checks = workload.checks if workload.holds_quota else ()
    messages = [
        f"{row['name']}: {row['message']}" for row in checks if row.get("state") == "Pending" and row.get("message")
    ]
    return [Note("Normal", "UpdatedAdmissionCheck", "; ".join(messages)[:_LONGEST_NOTE])] if messages else []


def _is_outdated(view: JobView, workload: WorkloadObject) -> bool:
    """Whether nodes were lost and the job still runs an attempt older than the replacement."""
    running = view.kind.attempt(view.job)
    return running is not None and running < swap_record.of(workload).attempt


def _expire(view: JobView, workload: WorkloadObject) -> list[Step]:
    """End a job whose maximum execution time is over: one of Gangline's kinds fails; other kinds are only
    suspended, as in Kueue.
    """
    evicted = workload.condition(names.EVICTED) or {}
    if (
        not isinstance(view.kind, Expires)
        or evicted.get("reason") != f"{names.DEACTIVATED_DUE_TO}MaximumExecutionTimeExceeded"
    ):
        return []
    patch = view.kind.expire(view.job, evicted["lastTransitionTime"])
    return [PatchJob(patch)] if patch is not None else []


def _start(view: JobView, workload: WorkloadObject, infos: list[PodSetInfo]) -> list[Step]:
    if view.held_back or view.kind.is_active(view.job, view.children):  # pods of an earlier run are still terminating
        return _not_ready(workload)
    if outdated := _outdated_children(view, infos):
        return _steps(outdated)
    try:
        if conflict := next(filter(None, (info.conflict for info in infos)), ""):
            raise JobError(conflict)
        patch = view.kind.start(view.job, infos)
    except JobError as error:
        return [
            ChangeStatus(workload, "finish", run_changes.finish_because("FailedToStart", str(error))),
            Note("Warning", "FailedToStart", str(error)),
        ]
    queue = workload.status["admission"]["clusterQueue"]
    if patch is None:
        return []
    suspension = view.kind.declaration.suspension
    if at(patch.body, suspension.path) is not suspension.inverted:  # the admission goes first, by itself
        return [PatchJob(patch, infos)]
    return [PatchJob(patch, infos), Note("Normal", "Started", f"Admitted by clusterQueue {queue}")]


def _not_ready(workload: WorkloadObject) -> list[Step]:
    """Record that the whole gang starts again: until then it does not count as running."""
    if not workload.is_true(names.PODS_READY):
        return []
    return [ChangeStatus(workload, "pods-ready", run_changes.pods_ready(False))]


def _not_started(workload: WorkloadObject) -> list[Step]:
    known = workload.condition(names.PODS_READY)
    if workload.holds_quota or known is None or known.get("reason") == "WaitForStart":
        return []
    return [ChangeStatus(workload, "pods-ready", run_changes.not_started)]


def _outdated_children(view: JobView, infos: list[PodSetInfo]) -> Sequence[JobWrite]:
    """Children of an earlier run that would keep this one from starting as it was admitted."""
    if not isinstance(view.kind, LeavesBehind):
        return ()
    return view.kind.outdated_children(view.job, infos, view.children)


def _running(view: JobView, workload: WorkloadObject, infos: list[PodSetInfo]) -> list[Step]:
    kind, job = view.kind, view.job
    steps = _sync(view, infos)
    ready = kind.pods_ready(job) and not view.unreachable
    known = workload.condition(names.PODS_READY)
    # a pod that completes is neither ready nor succeeded until each status above it, its Job's and that of a job of Jobs, says so
    unsettled = view.completing and not view.unreachable
    if known is None or ((known["status"] == "True") != ready and (ready or not unsettled)):
        steps.append(ChangeStatus(workload, "pods-ready", run_changes.pods_ready(ready)))
    done = kind.reclaimable(job)
    before = workloads.reclaimable_counts(workload)
    cut = {name for name in before if before[name] > done.get(name, 0)} & _cut(workload)
    if cut or any(count > before.get(name, 0) for name, count in done.items()):
        steps.append(ChangeStatus(workload, "reclaim", run_changes.reclaim(done, anew=cut)))
    return steps


def _cut(workload: WorkloadObject) -> set[str]:
    """Pod sets that have fewer pods than were admitted: those of an elastic job that has shrunk."""
    admitted = workloads.admitted_counts(workload)
    return {row["name"] for row in workload.spec["podSets"] if row.get("count", 1) < admitted.get(row["name"], 0)}


def _changed_shape(view: JobView, workload: WorkloadObject, pod_sets: list[Json]) -> list[Step]:
    """The steps for a job that the user changed: a waiting Workload is updated; one that holds quota is deleted, and the job is
    queued again.
    """
    if view.kind.is_suspended(view.job) and not workload.holds_quota:
        return [
            PatchWorkload(workload, {"spec": {"podSets": pod_sets} | job_workload.changed_limit(workload, view.job)}),
            Note("Normal", "UpdatedWorkload", f"Updated not matching Workload for suspended job: {workload.key}"),
        ]
    return [
        *_stop(view, workload, "No matching Workload; restoring pod templates according to existent Workload"),
        *job_workload.delete(workload),
    ]


def _out_of_sync(view: JobView, workload: WorkloadObject) -> list[Step]:
    """The steps for a prebuilt Workload that does not describe the job: once the job is stopped, the Workload is finished."""
    message = "The prebuilt workload is out of sync with its user job"
    stopping = _stop(view, None, message)
    if stopping or _still_stops(view):
        return stopping + _sync(view, None)
    return [*_sync(view, None), ChangeStatus(workload, "finish", run_changes.finish_because("OutOfSync", message))]


def _finished_before_job(view: JobView, workload: WorkloadObject) -> list[Step]:
    """Stop a job whose Workload was declared finished while the job was not: it must not run without quota."""
    if view.kind.is_suspended(view.job):
        return []
    return _stop(view, workload, "Workload is finished") + _sync(view, None)


def stop_then(view: JobView, workload: WorkloadObject, why: str, after: Callable[[], Sequence[Step]]) -> list[Step]:
    """Stop the job and remove what admission injected; once it is suspended and none of its pods runs, go on with `after`."""
    stopping = _stop(view, workload, why)
    if stopping or _still_stops(view):
        return stopping + _delete_stranded(view) + _sync(view, None)
    return [*_sync(view, None), *after()]


def _delete_stranded(view: JobView) -> list[Step]:
    namespace = view.job.namespace
    return [Own(Delete(kube.PODS, namespace, pod.name, pod.uid, "Background")) for pod in view.stranded]


def _still_stops(view: JobView) -> bool:
    """Whether pods of the job may run, or come yet."""
    kind, job = view.kind, view.job
    return view.may_start_pods or not kind.is_suspended(job) or view.lingering or kind.is_active(job, view.children)


def _stop(view: JobView, workload: WorkloadObject | None, why: str) -> list[Step]:
    """The next step on the way back to the suspended job of `workload`, or of its present spec where no Workload has another."""
    kind, job = view.kind, view.job
    if workload is not None and prebuilt_workload(job) and not in_sync(view, workload):
        workload = None
    patch = kind.stop(job, workload.spec["podSets"] if workload is not None else kind.pod_sets(job))
    if patch is None:
        return []
    suspends = not kind.declaration.suspension.read(job) and not patch.subresource
    return [PatchJob(patch), *([Note("Normal", "Stopped", why)] if suspends else [])]


def _sync(view: JobView, infos: Sequence[PodSetInfo] | None) -> list[Step]:
    return _steps(view.kind.sync(view.job, infos, view.children)) if view.kind.owns_children else []


def _steps(writes: Sequence[JobWrite]) -> list[Step]:
    return [PatchJob(write) if isinstance(write, Patch) else Own(write) for write in writes]
