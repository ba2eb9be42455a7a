"""Plans one elastic job: which slices it has, what it needs next; without slices, it is planned like any job. Pure.

Growing makes a new slice, which waits while the job runs on with the old one; shrinking cuts the slice that holds quota. A job
is stopped, preempted and evicted as a whole, whatever slices it has.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from gangline.api import names
from gangline.api.admission.of_jobs import elastic
from gangline.api.admission.of_jobs.identifiers import prebuilt_workload
from gangline.api.admission.of_jobs.jobs import queue_name
from gangline.api.read.workloads.parse_workload import shown_counts
from gangline.control.feed import slices
from gangline.control.kinds import job_plan, job_workload
from gangline.control.kinds.steps import (
    ChangeStatus,
    CreateWorkload,
    DeleteWorkload,
    JobView,
    Lookups,
    Note,
    PatchWorkload,
    Step,
)
from gangline.control.writes.status import run_changes
from gangline.jobs import workload as workloads
from gangline.kube.resources import Json, key_of
from gangline.objects import WorkloadObject


def plan(view: JobView, lookups: Lookups) -> list[Step]:
    """The next steps for one job; [] when there is nothing to do until something changes."""
    ended = [each for each in view.workloads if slices.has_ended(each)]
    steps: list[Step] = [step for each in ended for step in job_workload.drop_finalizer(each)]
    if ended:
        view = replace(view, workloads=[each for each in view.workloads if each not in ended])
    if not view.elastic or view.managed_ancestor or view.nested_too_deep or view.job.deleting:
        return steps + job_plan.plan(view, lookups)
    on_hold = view.kind.declaration.on_hold
    if on_hold is not None and on_hold(view.job):
        return steps + job_plan.plan(view, lookups)
    if heirs := [each for each in view.heirs if _is_heir(view, each)]:
        return [*steps, *(job_plan.adopt(view, each) for each in heirs)]
    unfinished = [each for each in view.workloads if not each.finished]
    if prebuilt_workload(view.job):
        unfinished = _slices_of_named(view, unfinished)
    if not unfinished or not (view.in_scope and (queue_name(view.job) or not view.needs_queue)):
        return steps + job_plan.plan(view, lookups)
    return steps + _plan(view, slices.slices_of(unfinished), lookups)


def _slices_of_named(view: JobView, unfinished: Sequence[WorkloadObject]) -> list[WorkloadObject]:
    """The slices that follow the prebuilt Workload of the job, with itself; [] where the job has not taken it."""
    named = view.named
    if named is None or named.controller_uid != view.job.uid:
        return []
    first = slices.slice_name(named)
    return [each for each in unfinished if slices.slice_name(each) == first]


def _is_heir(view: JobView, workload: WorkloadObject) -> bool:
    """Whether the Workload is a larger size of the job that the sending cluster sends. The job takes it before it is admitted:
    only as a slice of this job it asks for the difference alone.
    """
    origins = [each.labels.get(names.MULTIKUEUE_ORIGIN) for each in (view.job, workload)]
    ours = bool(origins[0]) and origins[0] == origins[1] and slices.is_slice(workload) and not workload.deleting
    return ours and job_plan.in_sync(view, workload)


def _plan(view: JobView, found: slices.Slices, lookups: Lookups) -> list[Step]:
    if found.superseded:
        return []  # `ReplacedSlices` declares them finished first
    outcome, newest, running = view.kind.finished(view.job), found.newest, found.running
    everyone = [each for each in (running, found.waiting) if each is not None]
    if outcome is not None:
        change = run_changes.finish(outcome.success, outcome.message)
        return [
            *_finish(found.over),
            ChangeStatus(everyone[0], "finish", change),
            *(ChangeStatus(each, "slice-over", change) for each in everyone[1:]),
            Note("Normal", "FinishedWorkload", f"Workload '{key_of(everyone[0])}' is declared finished"),
        ]
    if found.over:
        return _finish(found.over)
    assert newest is not None
    if running is not None and (stopping := _stop(view, running, found.waiting, lookups)) is not None:
        return stopping
    if newest.deleting:
        return [*job_workload.drop_finalizer(newest)] if running else job_plan.plan(_with(view, newest), lookups)
    pod_sets = view.pod_sets()
    recorded: Sequence[Json] = newest.pod_sets
    now, before = slices.counts(pod_sets), slices.counts(recorded)
    if prebuilt_workload(view.job):
        if not job_plan.in_sync(view, newest):
            return job_plan.plan(_with(view, running or newest), lookups)
        if not _is_sized_by_job(view, newest, before, now):
            now = before
    elif not workloads.equivalent(newest, slices.resized(pod_sets, before), view.job):
        return _changed_shape(view, everyone, lookups)
    if running is not None and (forget := _counted_anew(running)):
        return forget
    if now != before:
        if running is not None and any(view.started.get(name, 0) > count for name, count in now.items()):
            return []  # pods that it gives up run, or will: their quota is given back when they have ended
        return _resize(view, newest, recorded, now, lookups)
    if running is None or found.waiting is None:
        return job_plan.plan(_with(view, newest), lookups)
    return _while_waiting(view, running, found.waiting, lookups)


def _is_sized_by_job(view: JobView, newest: WorkloadObject, before: dict[str, int], now: dict[str, int]) -> bool:
    """Whether a prebuilt Workload is cut with the job that names it. Whoever made the Workload makes it larger."""
    named = newest.name == prebuilt_workload(view.job)
    return named and newest.holds_quota and slices.is_cut(before, now)


def _with(view: JobView, workload: WorkloadObject) -> JobView:
    """The job as if it had this slice only."""
    if not prebuilt_workload(view.job):
        return replace(view, workloads=[workload])
    return replace(view, workloads=[workload], named=workload, present=workload.name)


def _finish(over: Sequence[slices.Over]) -> list[Step]:
    return [
        ChangeStatus(each.workload, "slice-over", run_changes.finish_because(each.reason, each.message))
        for each in over
    ]


def _stop(
    view: JobView, running: WorkloadObject, waiting: WorkloadObject | None, lookups: Lookups
) -> list[Step] | None:
    """The steps for a job that loses its quota: it is stopped, and only then its quota is released. A slice that waits takes its
    place in the queue, as in Kueue. None: it keeps its quota.
    """
    if running.deleting:
        return job_plan.stop_then(view, running, "Workload is deleted", lambda: [*job_workload.drop_finalizer(running)])
    if not running.evicted:
        return None
    if waiting is None:
        return job_plan.plan(_with(view, running), lookups)
    why = (running.condition(names.EVICTED) or {}).get("message") or ""
    return job_plan.stop_then(view, running, why, lambda: _finish([slices.as_replaced(running)]))


def _changed_shape(view: JobView, everyone: Sequence[WorkloadObject], lookups: Lookups) -> list[Step]:
    """The steps for a job of which more than sizes changed: what holds quota is deleted, once the job is stopped, and the job
    queues again.
    """
    steps = job_plan.plan(_with(view, everyone[0]), lookups)
    return [*steps, *(DeleteWorkload(each) for each in everyone[1:] if not each.deleting)]


def _resize(
    view: JobView, newest: WorkloadObject, recorded: Sequence[Json], now: dict[str, int], lookups: Lookups
) -> list[Step]:
    """Change a slice that waits, cut one with quota, and have one that has too little replaced."""
    pod_sets = slices.resized(recorded, now)
    if not newest.holds_quota or slices.is_cut(slices.counts(recorded), now):
        return [
            PatchWorkload(newest, {"spec": {"podSets": pod_sets}, **_outdated(view, newest)}),
            Note("Normal", "UpdatedWorkload", f"Updated workload slice: {newest.key}"),
        ]
    if elastic.runs_on_other_cluster(view.job) and not newest.admitted:
        return []  # that cluster holds one slice beside the one that runs: it has to take this one first
    body = slices.successor(job_workload.new_workload(view, pod_sets, lookups), newest)
    return [CreateWorkload(body), Note("Normal", "CreatedWorkload", f"Created Workload: {key_of(body)}")]


def _outdated(view: JobView, workload: WorkloadObject) -> Json:
    """A note that the Workload's released pods were counted with its former size. Its status can be counted anew only after the
    cut, and quota of pods that run must not be given away in between.
    """
    released = workloads.reclaimable_counts(workload)
    if not released or released == view.kind.reclaimable(view.job):
        return {}
    return {"metadata": {"annotations": {names.OUTDATED_RECLAIMABLE: shown_counts(released)}}}


def _counted_anew(workload: WorkloadObject) -> list[Step]:
    """Remove the note of `_outdated` when the status has other counts: the same numbers may come again, and be right then."""
    noted = workload.annotations.get(names.OUTDATED_RECLAIMABLE)
    released = workloads.reclaimable_counts(workload)
    if noted is None or noted == shown_counts(released):
        return []
    return [PatchWorkload(workload, {"metadata": {"annotations": {names.OUTDATED_RECLAIMABLE: None}}})]


def _while_waiting(view: JobView, running: WorkloadObject, waiting: WorkloadObject, lookups: Lookups) -> list[Step]:
    """The steps for a job that runs with the old slice, or starts with it, while a new one waits. Both follow the job: its
    priority, its gates, and the new one its queue.
    """
    pod_sets = view.pod_sets()
    for each in () if prebuilt_workload(view.job) else (running, waiting):
        steps = job_workload.keep_in_step(view, each, pod_sets, lookups)
        if any(isinstance(step, PatchWorkload) for step in steps):
            return steps
    steps = job_workload.follow(view, waiting, pod_sets, lookups)
    if not running.admitted:
        return steps
    if view.kind.is_suspended(view.job):
        return steps + job_plan.advance(view, running, lookups)
    known = running.condition(names.PODS_READY)
    enough = view.ready_pods >= sum(slices.counts(running.pod_sets).values())
    if enough and (known is None or known["status"] != "True"):
        steps.append(ChangeStatus(running, "pods-ready", run_changes.pods_ready(True)))
    return steps
