"""Plans one StatefulSet or LeaderWorkerSet: from it, its Workloads and its pods to the next writes. Pure.

Level-triggered like the plans of jobs and pod groups, and beside these: here is decided which Workloads there are and what they
count; the plan of the pod group starts and stops the pods, and gives the quota back when the last of them has ended.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Final

from gangline import bounded
from gangline.api import names
from gangline.api.admission.of_jobs.jobs import queue_name
from gangline.control.kinds.steps import (
    ChangeStatus,
    CreateWorkload,
    DeletePod,
    DeleteWorkload,
    Lookups,
    Note,
    PatchPod,
    PatchWorkload,
    Step,
)
from gangline.control.writes.status import run_changes, status_changes
from gangline.jobs import serving as parents
from gangline.jobs import workload as workloads
from gangline.jobs.pods.member import HeldPod
from gangline.jobs.serving import ServingGroup, ServingKind
from gangline.kube.resources import Json, key_of
from gangline.objects import JobObject, WorkloadObject

#: Workloads of one parent that are made at once; the next ones follow
AT_ONCE: Final = 200


@dataclass(frozen=True, slots=True)
class ParentView:
    """One parent with everything that belongs to it, as last seen."""

    kind: ServingKind
    parent: JobObject
    #: by their names
    workloads: Mapping[str, WorkloadObject]
    #: the pods that it has made
    pods: Sequence[HeldPod]
    #: uids of pods of a revision that its StatefulSet is replacing
    outdated: frozenset[str] = frozenset()
    #: it is managed: it names a queue, or need not
    managed: bool = True
    #: whether pods of this pod group may still run, by its name
    active: Callable[[str], bool] = lambda name: False


def plan(view: ParentView, lookups: Lookups) -> list[Step]:
    """The next steps for one parent; [] when there is nothing to do until something changes. Raises JobError."""
    kind, parent = view.kind, view.parent
    if parent.deleting or not view.managed or not parents.is_held(kind, parent):
        return []  # Kubernetes deletes the pods of a deleted one, and then its Workloads
    size, pod_sets = kind.size(parent), kind.pod_sets(parent)
    present, surplus = _by_index(view, size)
    steps: list[Step] = [DeleteWorkload(each) for each in surplus if not each.deleting]
    if not parents.comes_from_other_cluster(parent):
        missing = (index for index in range(size) if index not in present)
        groups = (ServingGroup(kind.workload_name(parent, index), pod_sets, _index(view, index)) for index in missing)
        steps += _make(view, list(islice(groups, AT_ONCE)), lookups)
    for index, workload in present.items():
        group = ServingGroup(workload.name, pod_sets, _index(view, index))
        steps += _adapt(view, workload, group, lookups)
    return steps + _pods(view, size, pod_sets, present)


def _by_index(view: ParentView, size: int) -> tuple[dict[int, WorkloadObject], list[WorkloadObject]]:
    """The Workloads of a parent by their groups, and those of groups that it no longer has."""
    present: dict[int, WorkloadObject] = {}
    surplus: list[WorkloadObject] = []
    for name, workload in sorted(view.workloads.items()):
        written = workload.annotations.get(names.COMPONENT_INDEX)
        index = (bounded.whole(written) or 0) if written is not None else 0
        if index >= size:
            surplus.append(workload)
        elif index not in present or name == view.kind.workload_name(view.parent, index):
            present[index] = workload
    return present, surplus


def _index(view: ParentView, index: int) -> int | None:
    return index if view.kind.has_many else None


def _make(view: ParentView, groups: Sequence[ServingGroup], lookups: Lookups) -> list[Step]:
    """The Workloads of groups that have none yet."""
    steps: list[Step] = []
    for group in groups if groups and groups[0].size else ():
        priority, class_ref = lookups.priority(view.parent, group.pod_sets)
        body = parents.new_workload(
            view.kind,
            view.parent,
            group,
            priority=priority,
            priority_class_ref=class_ref,
            labels_to_copy=lookups.labels_to_copy if view.kind.has_many else (),
            annotations_to_copy=lookups.annotations_to_copy if view.kind.has_many else (),
        )
        steps += [CreateWorkload(body), Note("Normal", "CreatedWorkload", f"Created Workload: {key_of(body)}")]
    return steps


# --- one Workload -----------------------------------------------------------------------------------------------------


def _adapt(view: ParentView, workload: WorkloadObject, group: ServingGroup, lookups: Lookups) -> list[Step]:
    """Let a Workload follow its parent: who owns it, its queue and priority, and how many pods it counts."""
    if workload.deleting or workload.finished:
        return []
    notes: list[Step] = []
    body = _ownership(view, workload, group)
    if hints := parents.changed_hints(workload, view.parent):
        body.setdefault("metadata", {}).setdefault("annotations", {}).update(hints)
    if (gates := workloads.fewer_gates(workload, view.parent)) is not None:
        body.setdefault("metadata", {}).setdefault("annotations", {})[names.ADMISSION_GATED_BY] = gates or None
    spec = _following(view, workload, group, lookups)
    if spec:
        body["spec"] = spec
    if {"priority", "priorityClassRef"} & spec.keys():
        note = f"Updated workload priority class: {workload.key}"
        notes.append(Note("Normal", "UpdatedWorkload", note))
    if body:
        return [PatchWorkload(workload, body), *notes]
    return _resize(view, workload, group)


def _ownership(view: ParentView, workload: WorkloadObject, group: ServingGroup) -> Json:
    """The owner and annotations for a Workload that an older version, or a manager cluster, has made for the parent; {} if it has
    them.
    """
    owners = workload.owners
    if any(row["uid"] == view.parent.uid for row in owners):
        return {}
    notes = parents.owner_notes(view.kind, view.parent, group)
    return {"metadata": {"ownerReferences": [*owners, parents.owner(view.kind, view.parent)], "annotations": notes}}


def _following(view: ParentView, workload: WorkloadObject, group: ServingGroup, lookups: Lookups) -> Json:
    """The changes of a Workload's spec by which it follows its parent; queue and pods change only while it holds no quota."""
    spec, parent, reserved = workload.spec, view.parent, workload.holds_quota
    if not group.size or (reserved and not workloads.names_another_class(workload, parent)):
        return {}
    changed: Json = {}
    priority, class_ref = lookups.priority(parent, spec.get("podSets") or ())
    if (priority, class_ref) != (spec.get("priority", 0), spec.get("priorityClassRef")):
        changed |= {"priority": priority, "priorityClassRef": class_ref}
    if reserved:
        return changed
    if (queue := queue_name(parent)) and queue != spec.get("queueName"):
        changed["queueName"] = queue
    if not _is_of_shape(workload, group) and not workload.status.get("reclaimablePods"):
        changed["podSets"] = list(group.pod_sets)
    return changed


def _is_of_shape(workload: WorkloadObject, group: ServingGroup) -> bool:
    return parents.same_pod_sets(group.pod_sets, workload.pod_sets)


def _resize(view: ParentView, workload: WorkloadObject, group: ServingGroup) -> list[Step]:
    """Adapt quota to the size of the group: it is released when no pod uses it, and reserved for another number of pods only once
    it was released.

    Kueue lets replicas of a StatefulSet change only to zero and from zero. But a change by the scale subresource passes by the
    webhooks: fewer replicas give back what the rest would use, and more than there were wait for the next start from zero.
    """
    status: Json = workload.status
    reserved, on_hold = workload.holds_quota, status_changes.is_on_hold(status.get("conditions") or [])
    idle = not view.active(group.workload)
    if reserved and idle and workload.evicted:
        return [] if _members(view, group) else [ChangeStatus(workload, "release", status_changes.release)]
    if not group.size:
        change = status_changes.put_on_hold(f"{view.kind.declaration.kind} scaled to zero; workload on hold")
        return [ChangeStatus(workload, "hold", change)] if idle and not on_hold else []
    if _is_of_shape(workload, group):
        return [ChangeStatus(workload, "hold", status_changes.end_hold)] if on_hold else []
    if not reserved:
        return [ChangeStatus(workload, "hold", status_changes.unclaim)]
    if idle:
        change = status_changes.put_on_hold(f"{view.kind.declaration.kind} has another size; workload on hold")
        return [ChangeStatus(workload, "hold", change)]
    return _reclaim(view, workload, group)


def _reclaim(view: ParentView, workload: WorkloadObject, group: ServingGroup) -> list[Step]:
    """Give back quota of a group that runs and was made smaller, or warn that it was made larger than its quota."""
    counted = {row["name"]: row.get("count", 1) for row in workload.pod_sets}
    free = {row["name"]: row["count"] for row in workload.status.get("reclaimablePods") or ()}
    fewer = {row["name"]: counted.get(row["name"], 0) - row["count"] for row in group.pod_sets}
    more = [name for name, count in fewer.items() if count < free.get(name, 0)]
    if more:
        until = "the group starts anew" if view.kind.has_many else "it is scaled to zero and up again"
        size = f"{group.size} in each group" if view.kind.has_many else str(group.size)
        note = (
            f"Workload {group.workload} has quota for {sum(counted.values()) - sum(free.values())} pods, and the "
            f"{view.kind.declaration.kind} now has {size}: the others wait until {until}"
        )
        return [Note("Warning", "ScaledBeyondQuota", note)]
    if fewer == free or len(_members(view, group)) > group.size:
        return []
    # in doubt: a pod that came now would start with the quota that is being given back
    return [ChangeStatus(workload, "reclaim", run_changes.reclaim(fewer), doubt=True)]


def _members(view: ParentView, group: ServingGroup) -> list[HeldPod]:
    """The pods of a group that have not ended; those that are deleted and still run are among them."""
    return [pod for pod in view.pods if pod.group == group.workload and not pod.ended]


# --- pods -------------------------------------------------------------------------------------------------------------


def _pods(view: ParentView, size: int, pod_sets: Sequence[Json], present: Mapping[int, WorkloadObject]) -> list[Step]:
    steps: list[Step] = []
    for pod in view.pods:
        index = view.kind.group_of(view.parent, pod)
        if index is None or index >= size or not pod.stays:
            continue
        workload = present.get(index)
        name = workload.name if workload is not None else view.kind.workload_name(view.parent, index)
        steps += _pod(view, ServingGroup(name, pod_sets, index), workload, pod)
    return steps


def _pod(view: ParentView, group: ServingGroup, workload: WorkloadObject | None, pod: HeldPod) -> list[Step]:
    """Make the pod a member of its group; let it follow to another queue while it waits.

    A pod of an old revision that waits would keep its StatefulSet from rolling out the new one: it is replaced.
    """
    if not pod.group:
        return [PatchPod(pod, parents.marks(view.kind, view.parent, group, pod))] if group.size else []
    if pod.group != group.workload or not pod.gated:
        return []
    admitted = workload is not None and workload.admitted
    if pod.uid in view.outdated and not admitted:
        return [DeletePod(pod)]
    queue = queue_name(view.parent)
    if queue and queue != pod.queue:
        labels = {names.QUEUE_NAME: queue}
        return [PatchPod(pod, {"metadata": {"resourceVersion": pod.version, "labels": labels}})]
    return []
