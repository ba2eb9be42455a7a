"""Plans one pod group: from its pods and its Workload to the next writes. Pure.

Level-triggered like `job_plan`, and in the order of its rules. A pod has no switch: it starts when it loses its gate, and it
stops when it is deleted, each pod by a write of its own. So a group that was started or stopped half-way is simply planned again.

The demand of the owner of a group's pods, where it has made the Workload: it knows how many pods there are to be.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Final

from gangline.api import names
from gangline.api.read import conditions
from gangline.control.kinds import job_workload
from gangline.control.kinds.injection import pod_set_infos
from gangline.control.kinds.steps import (
    ChangeStatus,
    CreateWorkload,
    DeletePod,
    DeleteWorkload,
    Lookups,
    NotePod,
    NoteWorkload,
    PatchPod,
    PatchPodStatus,
    PatchWorkload,
    Step,
)
from gangline.control.writes.status import run_changes, status_changes
from gangline.jobs import workload as workloads
from gangline.jobs.base import JobError
from gangline.jobs.pods import composition
from gangline.jobs.pods import group as groups
from gangline.jobs.pods.group import Division, PodGroup
from gangline.jobs.pods.member import GroupPod
from gangline.kube.resources import Json, key_of
from gangline.objects import WorkloadObject


@dataclass(frozen=True, slots=True)
class GroupDemand:
    """The pods that the owner of a group wants. `in_stages`: some are only created once others run. `pods`: the uids of those
    that the owner has made.
    """

    wanted: int
    in_stages: bool = False
    pods: frozenset[str] = frozenset()


_LIMIT: Final = "maximumExecutionTimeSeconds"
#: milliseconds for which imported pods are given time: the watches of pods and of Workloads may be apart by that much
PATIENCE: Final = 60_000


@dataclass(frozen=True, slots=True)
class GroupView:
    """A group with at least one pod, and the Workload of its name, as last seen."""

    group: PodGroup
    workload: WorkloadObject | None
    #: it names a queue, or need not
    managed: bool
    #: a pod that was started may still run, on a node that can be reached
    active: bool
    #: milliseconds since the epoch
    now: int
    #: what the owner of its pods wants of it, where one has made the Workload
    demand: GroupDemand | None = None
    #: its pods wait here, and run in another cluster
    sent: bool = False
    #: all of these are ready there, should nothing here show it
    ready_there: bool = False
    #: what its admission has added to a pod that was started, and the API server has not kept
    not_kept: Sequence[str] = ()


# --- the plan ---------------------------------------------------------------------------------------------------------


def is_arriving(view: GroupView) -> bool:
    """Whether an import is making running pods members of this group, or has just done so: the others, or the Workload, will
    follow.

    Until then nothing is stopped for the lack of them.
    """
    if not any(abs(view.now - pod.imported) < PATIENCE for pod in view.group.pods):
        return False
    if view.workload is None:
        return True
    if view.workload.deleting or view.workload.finished:
        return False
    wanted = sum(item.get("count", 1) for item in view.workload.pod_sets)
    return len(view.group.pods) < wanted


def plan(view: GroupView, lookups: Lookups) -> list[Step]:
    """The next steps for one group; [] when there is nothing to do until something changes. Raises JobError."""
    group, workload = view.group, view.workload
    if is_arriving(view):
        return []
    if group.prebuilt and (workload is None or not _is_ours(group, workload)):
        return _with_named_workload(view, lookups)
    if workload is None:
        return _without_workload(view, lookups)
    if not _is_ours(group, workload):
        message = (
            f'A Workload named "{workload.name}" already exists but is not a pod group workload; '
            "this pod group cannot be admitted"
        )
        return [
            *_let_go(pod for pod in group.pods if not pod.counts),
            NotePod(group.leader, "Warning", "WorkloadNameConflict", message),
        ]
    if workload.finished:
        return [
            *_stop(view, "NoMatchingWorkload", "Workload is finished"),
            *_let_go(pod for pod in group.pods if pod.deleted or not pod.started),
            *job_workload.drop_finalizer(workload),
        ]
    if workload.deleting:
        return _with_leaving_workload(view, workload)
    return _with_workload(view, workload, lookups)


def _is_ours(group: PodGroup, workload: WorkloadObject) -> bool:
    if group.alone:
        return workload.controller_uid == group.pods[0].uid
    return workload.controller_uid is None and (composition.is_of_group(workload) or _is_offered(group, workload))


def _is_offered(group: PodGroup, workload: WorkloadObject) -> bool:
    """Whether an import has made the Workload for pods of this group, which own it. It is marked only now: without pods of its
    own that are queued it would go.
    """
    owners = {row["uid"] for row in workload.owners}
    return any(pod.imported and pod.uid in owners for pod in group.pods)


# --- without a Workload -----------------------------------------------------------------------------------------------


def _without_workload(view: GroupView, lookups: Lookups) -> list[Step]:
    """Stop what runs without quota, then queue the group once it is complete."""
    group = view.group
    if groups.given_up(group.pods):
        return _let_go(group.pods)
    if group.parent:  # its owner makes the Workload
        return _stop(view, "NoMatchingWorkload", "Missing Workload; pods run without quota")
    if not view.managed:
        return _let_go(pod for pod in group.pods if pod.deleted or pod.ended)
    if groups.finished(group):
        return _let_go(group.pods)
    if stopping := _stop(view, "NoMatchingWorkload", "Missing Workload; pods run without quota"):
        return stopping
    if view.active or (group.alone and group.pods[0].deleted):
        return _let_go(group.pods) if group.alone else []
    if tidying := _let_go(pod for pod in group.pods if not pod.counts):
        return tidying
    if group.prebuilt:
        return [_say_what_is_named(view)]
    divided = groups.before_queueing(group)
    kept = replace(group, pods=divided.kept)
    sets = composition.pod_sets(kept)
    priority, class_ref = lookups.priority(kept.leader.manifest(), sets)
    body = composition.new_workload(
        kept,
        sets,
        priority=priority,
        priority_class_ref=class_ref,
        labels_to_copy=lookups.labels_to_copy,
        annotations_to_copy=lookups.annotations_to_copy,
    )
    note = f"Created Workload: {key_of(body)}"
    return [*_remove(divided.excess), CreateWorkload(body), NotePod(kept.leader, "Normal", "CreatedWorkload", note)]


def _with_named_workload(view: GroupView, lookups: Lookups) -> list[Step]:
    """Let a pod take the Workload that it names as soon as there is one that is free; until then it waits."""
    workload, pod = view.workload, view.group.pods[0]
    if workload is None or workload.controller_uid is not None or workload.deleting or not pod.counts:
        return _without_workload(view, lookups)
    others: Sequence[Json] = workload.owners
    meta: Json = {
        "labels": {names.JOB_UID: pod.uid},
        "ownerReferences": [*(row for row in others if row["uid"] != pod.uid), *composition.owners(view.group)],
    }
    return [PatchWorkload(workload, {"metadata": meta})]


def _say_what_is_named(view: GroupView) -> NotePod:
    pod, workload = view.group.leader, view.workload
    problem = "not found" if workload is None or workload.deleting else "controlled by another object"
    note = f"Prebuilt workload {pod.namespace}/{pod.prebuilt}: {problem}"
    return NotePod(pod, "Warning", "PrebuiltWorkloadNotFound", note)


def _out_of_sync(view: GroupView, workload: WorkloadObject) -> list[Step]:
    """The steps for a prebuilt Workload that does not describe the pod: once the pod does not run, the Workload is finished."""
    message = "The prebuilt workload is out of sync with its user job"
    if stopping := _stop(view, "NoMatchingWorkload", message):
        return stopping
    change = run_changes.finish_because("OutOfSync", message)
    return [] if view.active else [ChangeStatus(workload, "finish", change)]


def _with_leaving_workload(view: GroupView, workload: WorkloadObject) -> list[Step]:
    """Stop or delete the pods of a group whose Workload is being deleted: as in Kueue its pods go with it, those that wait or
    have ended as well.
    """
    pods = view.group.pods
    stopping = _stop(view, "WorkloadDeleted", "Workload is deleted")
    rest = [pod for pod in pods if not pod.started]
    gone: list[Step] = [DeletePod(pod) for pod in rest if not pod.deleted]
    letting_go = _let_go(pod for pod in rest if pod.deleted)
    if stopping or gone or view.active:
        return [*stopping, *gone, *letting_go]
    return [*letting_go, *job_workload.drop_finalizer(workload)]


def _abandon(workload: WorkloadObject) -> list[Step]:
    """Take a group out of its queue: all of its pods are being deleted and will not be replaced."""
    return [*job_workload.drop_finalizer(workload), DeleteWorkload(workload)]


# --- with a Workload --------------------------------------------------------------------------------------------------


def _with_workload(view: GroupView, workload: WorkloadObject, lookups: Lookups) -> list[Step]:
    group = view.group
    counts = {item["name"]: item.get("count", 1) for item in workload.pod_sets}
    if group.parent:
        return _of_parent(view, workload, counts, lookups)
    if group.prebuilt and not workloads.in_sync(workload, composition.pod_sets(group), group.leader.manifest()):
        return _out_of_sync(view, workload)
    divided = groups.under_workload(group, counts)
    if not divided.kept or workload.spec.get(_LIMIT) != workloads.max_execution_seconds(group.leader.manifest()):
        return _replace_workload(view, workload)
    kept = replace(group, pods=divided.kept)
    if adopting := _adopt(kept, workload):
        return adopting
    outcome = groups.finished(kept)
    if outcome is not None:
        return [
            ChangeStatus(workload, "finish", run_changes.finish(outcome.success, outcome.message)),
            NotePod(kept.leader, "Normal", "FinishedWorkload", f"Workload '{workload.key}' is declared finished"),
        ]
    if groups.given_up(group.pods) or (group.alone and group.pods[0].deleted):
        return [*_let_go(group.pods), *([] if view.active else _abandon(workload))]
    steps = [
        *_remove(divided.excess),
        *_let_go(divided.replaced),
        *_say_what_is_missing(kept, workload, divided.absent > 0, view.now),
    ]
    if workload.evicted and workload.holds_quota:
        return steps + _leave(view, workload)
    if not (workload.admitted and workload.holds_quota):
        steps += _stop(view, "NotAdmitted", "Not admitted by cluster queue")
        if workload.holds_quota:
            return steps
        return steps + _follow(kept, workload, lookups)
    return steps + _run(view, kept, workload, divided, lookups)


def _of_parent(view: GroupView, workload: WorkloadObject, counts: dict[str, int], lookups: Lookups) -> list[Step]:
    """Plan a group whose Workload lives and dies with the owner of the pods, which also replaces them and changes what the
    Workload counts.

    Pods beyond that wait: if they were deleted, their owner would only make them again.
    """
    group = view.group
    freed = {row["name"]: row["count"] for row in workload.status.get("reclaimablePods") or ()}
    counts = {name: max(0, count - freed.get(name, 0)) for name, count in counts.items()}
    divided = groups.under_workload(group, counts)
    kept = replace(group, pods=divided.kept)
    begun = any(pod.started for pod in kept.pods)
    if view.demand is not None and view.demand.in_stages and kept.pods:
        divided = replace(divided, absent=0)
    if kept.pods and (adopting := _adopt(kept, workload)):
        return adopting
    steps = [
        *(DeletePod(pod) for pod in divided.excess if pod.started and not pod.deleted),
        *_let_go(pod for pod in group.pods if not pod.counts),
        *_say_what_is_missing(group, workload, divided.absent > 0, view.now),
    ]
    if workload.evicted and workload.holds_quota:
        return steps + _leave(view, workload)
    if not (workload.admitted and workload.holds_quota):
        return steps + _stop(view, "NotAdmitted", "Not admitted by cluster queue")
    wanted = sum(counts.values())
    if view.demand is not None and view.demand.wanted != wanted and not begun:
        return steps  # it is about to count other pods
    return steps + (_run(view, kept, workload, divided, lookups, wanted) if kept.pods else [])


def _replace_workload(view: GroupView, workload: WorkloadObject) -> list[Step]:
    """The steps for a Workload that describes other pods than these: once none of them runs it goes, and the group is queued
    again.
    """
    if stopping := _stop(view, "NoMatchingWorkload", "No matching Workload"):
        return stopping
    return [] if view.active else _abandon(workload)


def _adopt(kept: PodGroup, workload: WorkloadObject) -> list[Step]:
    """Make all pods owners of the Workload, which also proves that they belong to it. References to pods that are gone are
    removed.
    """
    if kept.alone:
        return []
    known: Sequence[Json] = workload.owners
    uids = {pod.uid for pod in kept.pods}
    new, marked = len(uids - {row["uid"] for row in known}), composition.is_of_group(workload)
    if not new and marked:
        return []
    others = [row for row in known if (row.get("apiVersion"), row.get("kind")) != ("v1", "Pod")]
    body: Json = {"metadata": {"ownerReferences": [*others, *composition.owners(kept)]}}
    if not marked:
        body["metadata"]["annotations"] = {names.IS_GROUP_WORKLOAD: "true"}
    if not new:
        return [PatchWorkload(workload, body)]
    note = f"Added {new} owner reference(s)"
    return [PatchWorkload(workload, body), NoteWorkload(workload, "OwnerReferencesAdded", note)]


def _say_what_is_missing(kept: PodGroup, workload: WorkloadObject, missing: bool, now: int) -> list[Step]:
    if kept.alone:
        return []
    rows = workload.conditions
    status: Json = {"conditions": [dict(row) for row in rows]}
    change = run_changes.missing_pods(missing)
    change(status, now)
    return [] if status["conditions"] == rows else [ChangeStatus(workload, "replacement", change)]


def _leave(view: GroupView, workload: WorkloadObject) -> list[Step]:
    """Stop the pods of an evicted group: its quota is released when no pod runs any more."""
    evicted = workload.condition(names.EVICTED) or {}
    if stopping := _stop(view, f"WorkloadEvictedDueTo{evicted.get('reason', '')}", evicted.get("message") or ""):
        return stopping
    return [] if view.active else [ChangeStatus(workload, "release", status_changes.release)]


def _follow(kept: PodGroup, workload: WorkloadObject, lookups: Lookups) -> list[Step]:
    """Update a waiting Workload when its pods name another queue or priority class."""
    spec, manifest = workload.spec, kept.leader.manifest()
    body: Json = {}
    if not kept.serving and kept.leader.queue and kept.leader.queue != spec.get("queueName"):
        body["spec"] = {"queueName": kept.leader.queue}
    if kept.prebuilt:  # its author wrote the rest
        return [PatchWorkload(workload, body)] if body else []
    priority, class_ref = lookups.priority(manifest, spec.get("podSets") or ())
    if priority != spec.get("priority", 0) or class_ref != spec.get("priorityClassRef"):
        body.setdefault("spec", {}).update({"priority": priority, "priorityClassRef": class_ref})
    annotations = {} if kept.serving else workloads.changed_dependencies(workload, manifest.annotations)
    if (gates := workloads.fewer_gates(workload, manifest)) is not None:
        annotations[names.ADMISSION_GATED_BY] = gates or None
    if annotations:
        body["metadata"] = {"annotations": annotations}
    return [PatchWorkload(workload, body)] if body else []


def _run(
    view: GroupView,
    kept: PodGroup,
    workload: WorkloadObject,
    divided: Division,
    lookups: Lookups,
    wanted: int | None = None,
) -> list[Step]:
    """Start the pods that wait, and report those that run. `wanted`: how many there are to be, if an owner says it."""
    if view.not_kept:
        message = run_changes.lost_words("pods", view.not_kept)
        return [
            ChangeStatus(workload, "pods-refused", run_changes.pods_refused(True, run_changes.NOT_KEPT, message)),
            NotePod(kept.leader, "Warning", "PodsRefused", message),
            *_stop(view, run_changes.NOT_KEPT, message),
        ]
    if run_changes.why_not_started(workload):
        return _stop(view, run_changes.NOT_KEPT, "The admission of the group was not kept")
    steps: list[Step] = []
    waiting = [] if view.sent else [pod for pod in kept.pods if pod.gated and pod.counts]
    if waiting and groups.may_start(divided, kept):
        infos = {info.name: info for info in pod_set_infos(workload, lookups)}
        try:
            if conflict := next(filter(None, (info.conflict for info in infos.values())), ""):
                raise JobError(conflict)
            bodies = [composition.start(pod, infos[groups.role_of(kept, pod)]) for pod in waiting]
        except JobError as error:
            return [
                ChangeStatus(workload, "finish", run_changes.finish_because("FailedToStart", str(error))),
                NotePod(kept.leader, "Warning", "FailedToStart", str(error)),
            ]
        note = f"Admitted by clusterQueue {workload.status['admission']['clusterQueue']}"
        for pod, body in zip(waiting, bodies, strict=True):
            info = infos[groups.role_of(kept, pod)]
            steps += [PatchPod(pod, body, info), NotePod(pod, "Normal", "Started", note)]
    shows_nothing = view.sent and bool(kept.parent)
    ready, known = groups.ready(kept, wanted), workload.condition(names.PODS_READY)
    ready = view.ready_there if shows_nothing else ready
    if known is None or (known["status"] == "True") != ready:
        steps.append(ChangeStatus(workload, "pods-ready", run_changes.pods_ready(ready)))
    done = groups.reclaimable(kept)
    before = workloads.reclaimable_counts(workload)
    if any(count > before.get(name, 0) for name, count in done.items()):
        steps.append(ChangeStatus(workload, "reclaim", run_changes.reclaim(done)))
    return steps


# --- pods -------------------------------------------------------------------------------------------------------------


def _stop(view: GroupView, reason: str, why: str) -> list[Step]:
    """Delete the pods that have started; first each of them says why, so that its owner need not count it as a failure."""
    steps: list[Step] = []
    for pod in view.group.pods:
        if not pod.started or pod.deleted:
            continue
        if pod.marked:
            steps.append(DeletePod(pod))
        else:
            at = conditions.timestamp(view.now)
            steps += [
                PatchPodStatus(pod, composition.marked(pod, reason, why, at)),
                NotePod(pod, "Normal", "Stopped", why),
            ]
    return steps


def _let_go(pods: Iterable[GroupPod]) -> list[Step]:
    """Remove our finalizer from these pods."""
    return [PatchPod(pod, composition.released(pod)) for pod in pods if pod.held]


def _remove(excess: Iterable[GroupPod]) -> list[Step]:
    """Delete pods of which there are too many; without our finalizer they are the first to be taken for excess again."""
    steps: list[Step] = []
    for pod in excess:
        if pod.held:
            steps += _let_go([pod])
        elif not pod.deleted:
            steps += [DeletePod(pod), NotePod(pod, "Normal", "ExcessPodDeleted", "Excess pod deleted")]
    return steps
