"""Plans every pod group whose pods or Workload changed, and sends the steps of its plan."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from typing import Final

from gangline.api import names
from gangline.control.isolation.time_limit import limited
from gangline.control.kernel.context import Context
from gangline.control.mirror.changes import JobRef
from gangline.control.mirror.mirror import HeadError
from gangline.control.parts.attempts import Attempts
from gangline.control.parts.messages import WriteResolved
from gangline.control.parts.part import Part
from gangline.control.plan import plan_steps
from gangline.control.plan.recreations import Recreations
from gangline.control.plan.workload_writes import WorkloadWrites
from gangline.control.pod_groups import group_index, group_plan
from gangline.control.pod_groups.demand import Demand
from gangline.control.pod_groups.elsewhere import NOWHERE
from gangline.control.pod_groups.group_index import POD_GROUPS, GroupIndex
from gangline.control.recovery.fencing import out_of_reach_since
from gangline.control.writes.outgoing import Priority
from gangline.control.writes.pod_writes import PodWrites
from gangline.jobs.base import JobError, PodSetInfo, UnknownClassError
from gangline.jobs.pods import composition
from gangline.jobs.pods.group import IncompleteError, PodGroup
from gangline.jobs.pods.member import GroupPod
from gangline.kube import resources as kube
from gangline.kube.errors import ApiError
from gangline.kube.reflector import Event, Removed, Upsert
from gangline.kube.resources import ObjectKey, Resource
from gangline.objects import PodObject, WorkloadObject

log = logging.getLogger(__name__)

#: Kueue's name of the integration
FRAMEWORK: Final = ("v1", "Pod")


class GroupPlanning(Part):
    """Plans pod groups, where the configuration lists the framework `pod`, or kinds whose pods wait in their place: then only
    these. `wake` makes the loop take another round.

    A write of a pod is planned once per version of the pod: until the watch shows the next version, nothing more is sent for it.
    """

    name = "pod groups"
    kinds = (kube.PODS,)

    def __init__(self, context: Context) -> None:
        managed = context.mirror.managed
        self.enabled = managed.pods or bool(managed.pods_of)
        #: what the parent of a Workload wants of its pod group (`control.serving`)
        self.demand_of: Callable[[WorkloadObject], Demand | None] = lambda workload: None
        #: other clusters, in which pods of a group may run
        self.elsewhere = NOWHERE
        self._mirror = context.mirror
        self._pods = context.pods
        self._writes = context.writes
        self._workload_writes = WorkloadWrites(context.writes, context.metrics, context.notices)
        self._recreations = Recreations(context.recorder)
        self._recorder = context.recorder
        self._metrics = context.metrics
        self._now = context.now
        self._wake = context.wake
        self._quarantine = context.quarantine
        self._index = GroupIndex(context.mirror.intake, lambda pod, why: context.mirror.complain(pod, HeadError(why)))
        self._pod_writes = PodWrites(context.writer, self._report)
        exists = context.mirror.has(kube.WORKLOADS)
        self._workloads = context.mirror.changes.unowned.subscribe(worth=lambda key: self.enabled and exists(key))
        self._nodes = context.mirror.changes.nodes.subscribe(
            worth=lambda node: self.enabled and bool(context.pods.on(node))
        )
        self._attempts = Attempts[JobRef](self._again)
        self._not_kept: dict[JobRef, Sequence[str]] = {}  # of started pods, until their group is planned
        context.mirror.messages.subscribe(WriteResolved, self._resolved)

    # --- in ---

    def observe(self, resource: Resource, event: Event) -> None:
        if not self.enabled:
            return
        if isinstance(event, Upsert):
            if self._mirror.managed.pods or _parent_of(event.obj) in self._mirror.managed.pods_of:
                self._index.upsert(event.obj)
        elif isinstance(event, Removed):
            gone = self._index.pod(event.key)
            if gone is not None:
                self._pod_writes.forget(gone.uid)
            self._index.remove(event.key)
        else:  # all are listed
            self.lead()

    def lead(self) -> None:
        if self.enabled:
            self._index.changed.update(self._index.refs())
            self._workloads.update(self._mirror.workloads)

    def plans(self, workload: WorkloadObject) -> bool:
        """Whether a group with pods decides about this Workload."""
        ref = self._index.behind(workload.key, workload) if self.enabled else None
        return ref is not None and self._index.group(ref) is not None

    def active(self, key: str) -> bool:
        """Whether a pod of the group of this key may still run, on a node that can be reached."""
        group = self._index.group((POD_GROUPS, key))
        return group is not None and any(self._uses_quota(pod) for pod in group.pods)

    def members(self, workload: WorkloadObject) -> Sequence[GroupPod]:
        """The pods of the group behind a Workload."""
        ref = self._index.behind(workload.key, workload)
        group = self._index.group(ref) if ref is not None else None
        return group.pods if group is not None else ()

    def again(self, workload: WorkloadObject) -> None:
        """Plan the group behind a Workload again."""
        ref = self._index.behind(workload.key, workload)
        if ref is not None:
            self._index.changed.add(ref)

    def changed(self) -> set[str]:
        """The Workloads of groups that have changed, and are not planned yet."""
        found = set(self._index.emptied)
        for ref in self._index.changed:
            group = self._index.group(ref)
            if group is not None:
                found.update(each.key for each in [self._workload_of(group, group_index.workload_key(group))] if each)
        return found

    def touch(self, key: str) -> None:
        """Plan a group again: what its parent wants of it may have changed."""
        self._index.changed.add((POD_GROUPS, key))

    # --- plans ---

    def act(self, now: int) -> None:
        if not self.enabled:
            return
        changed, self._index.changed = self._index.changed, set()
        emptied, self._index.emptied = self._index.emptied, set()
        self._mirror.changes.unowned.update(
            emptied
        )  # one may have been deleted before its last pod was known to be gone
        on_nodes = {pod.workload for node in self._nodes.take() for pod in self._pods.on(node)}
        for key in sorted(self._workloads.take() | {key for key in on_nodes if self._is_stopping(key)}):
            workload = self._mirror.workloads.get(key)
            ref = self._index.behind(key, workload)
            if ref is not None and self._index.group(ref) is not None:
                changed.add(ref)
            elif ref is not None and workload is not None:
                self._orphaned(workload)
        ordered = sorted(changed, key=lambda ref: (ref[1], ref[0].plural))
        for ref in self._quarantine.in_turn(ordered, self._index.changed.update):
            if not self._attempts.ready(ref):
                self._index.changed.add(ref)
            elif not self._quarantine.attempt("planning it", *ref, partial(self._plan, ref, now)):
                self._attempts.pause(ref)

    def _is_stopping(self, key: str) -> bool:
        """Whether the group waits for its pods to end: those on a node that is out of reach do not count any more."""
        workload = self._mirror.workloads.get(key)
        return workload is not None and (workload.deleting or workload.evicted)

    def _orphaned(self, workload: WorkloadObject) -> None:
        """Delete a Workload none of whose owning pods exists any more, as Kubernetes' garbage collection would."""
        rows = workload.owners
        of_pods = bool(rows) and all((row.get("apiVersion"), row.get("kind")) == FRAMEWORK for row in rows)
        done = not of_pods or workload.deleting or workload.finished
        if done or not self._mirror.pods_known or self._writes.pending(kube.WORKLOADS, workload.key):
            return
        self._writes.delete(ObjectKey.of(kube.WORKLOADS, workload), uid=workload.uid, priority=Priority.LIFECYCLE)

    def _plan(self, ref: JobRef, now: int) -> None:
        group = self._index.group(ref)
        if group is None:
            self._not_kept.pop(ref, None)
            key = ref[1] if ref[0] == POD_GROUPS else ""
            workload = self._mirror.workloads.get(key)
            if workload is not None and self._index.behind(key, workload) == ref:
                self._orphaned(workload)
            return
        key = group_index.workload_key(group)
        workload = self._workload_of(group, key)
        if workload is not None and self._writes.in_doubt(kube.WORKLOADS, workload.key):
            return  # the answer plans it again
        demand = self.demand_of(workload) if workload is not None and group.parent else None
        if demand is not None:  # pods that only say that they belong to it stay as they are
            group = replace(group, pods=tuple(pod for pod in group.pods if pod.uid in demand.pods))
            if not group.pods:
                return
        if not group.alone and not group.parent:
            group = replace(group, pods=tuple(map(self._seen, group.pods)))
        view = group_plan.GroupView(
            group=group,
            workload=workload,
            demand=demand,
            managed=bool(group.leader.queue) or self._mirror.managed.without_queue,
            active=any(self._uses_quota(pod) for pod in group.pods) or self._runs_elsewhere(workload),
            sent=workload is not None and self.elsewhere.sends(workload),
            ready_there=workload is not None and self.elsewhere.pods_ready(workload),
            not_kept=self._not_kept.pop(ref, ()),
            now=now,
        )
        if group_plan.is_arriving(view):
            self._attempts.pause(ref)
            return
        pods = [{"metadata": {"uid": pod.uid, "resourceVersion": pod.version}} for pod in group.pods]
        try:
            planned = limited(
                lambda: group_plan.plan(view, self._mirror), of=[*pods, *([workload] if workload is not None else [])]
            )
        except IncompleteError as error:  # its next pod plans it again
            self._tell(group.leader, "Warning", "ErrWorkloadCompose", error.message)
            return
        except UnknownClassError as error:
            self._tell(group.leader, "Warning", "WorkloadPriorityClassNotFound", error.message)
            self._attempts.pause(ref)
            return
        except JobError as error:
            self._tell(group.leader, "Warning", "ErrWorkloadCompose", str(error))
            self._attempts.pause(ref)
            return
        for step in planned:
            creates = isinstance(step, plan_steps.CreateWorkload)
            if creates and not self._recreations.may_create(step.body, group.leader.manifest()):
                self._attempts.pause(ref)
                return
            self._carry_out(ref, step)

    def _workload_of(self, group: PodGroup, key: str) -> WorkloadObject | None:
        """The Workload of the group's name; of a pod that stands alone any that the pod controls, the one with quota first,
        unless it names one.
        """
        if not group.alone or group.prebuilt:
            return self._mirror.workloads.get(key)
        owned = self._mirror.workloads_of_uid(group.pods[0].uid)
        return min(owned, key=lambda each: (not each.holds_quota, each.name), default=None)

    def _runs_elsewhere(self, workload: WorkloadObject | None) -> bool:
        return workload is not None and self.elsewhere.sends(workload) and self.elsewhere.may_run(workload)

    def _seen(self, pod: GroupPod) -> GroupPod:
        """The pod as its group counts it. A deleted pod that was left behind holds no place, as long as its
        node is out of reach.
        """
        if not pod.left_behind or not pod.deleted or pod.ended:
            return pod
        out = out_of_reach_since(self._mirror.nodes.get(pod.node)) is not None
        return replace(pod, lost=True, ready=False) if out else pod

    def _uses_quota(self, pod: GroupPod) -> bool:
        """Whether the pod may run: it passes the gate, or has passed it, and its node, if it has one, can be reached."""
        if self._pod_writes.is_starting(pod):
            return True
        if not pod.started:
            return False
        return not pod.node or out_of_reach_since(self._mirror.nodes.get(pod.node)) is None

    # --- steps ---

    def _carry_out(self, ref: JobRef, step: group_plan.Step) -> None:
        match step:
            case group_plan.TellPod(pod, kind, reason, message):
                self._tell(pod, kind, reason, message)
            case group_plan.TellWorkload(workload, reason, message):
                self._recorder.record(workload, "Normal", reason, message)
            case group_plan.PatchPod(pod, body, info):
                done = partial(self._started, ref, info) if info is not None else None
                self._pod_writes.send(ref, pod, "patch", body, done, starts=info is not None)
            case group_plan.MarkPod(pod, body):
                self._pod_writes.send(ref, pod, "status", body)
            case group_plan.DeletePod(pod):
                self._pod_writes.send(ref, pod, "delete", {"uid": pod.uid})
            case _:
                self._attempts.sent(ref)
                self._send(ref, step)

    def _send(self, ref: JobRef, step: plan_steps.WorkloadStep) -> None:
        self._workload_writes.send(ref, kube.PODS.kind, partial(self._leader, ref), step)

    def _leader(self, ref: JobRef) -> PodObject | None:
        group = self._index.group(ref)
        return group.leader.manifest() if group is not None else None

    def _started(self, ref: JobRef, info: PodSetInfo, pod: PodObject) -> None:
        group = self._index.group(ref)
        if lost := composition.not_kept(pod, info):
            self._not_kept[ref] = [f"pod {pod.name}: {part}" for part in lost]
            self._again(ref)
        workload = self._workload_of(group, group_index.workload_key(group)) if group is not None else None
        if workload is not None:
            self._metrics.kueue.gate_removed(names.ADMISSION_GATE, workload, self._now())

    # --- results of writes ---

    def _resolved(self, message: WriteResolved) -> None:
        """Plan a group again from the current state after a write of its Workload succeeded or was finally refused."""
        ref = message.owner
        if ref is None or ref[0] not in (POD_GROUPS, kube.PODS):
            return
        self._workload_writes.settle(message, ref, self._attempts, again=self._again, report=self._report)

    def _report(self, ref: JobRef, key: ObjectKey, error: ApiError) -> None:
        log.warning("%s: %s: %s", ref[1], key, error)
        group = self._index.group(ref)
        if group is not None:
            note = f"{key.resource.kind} {key.name}: {error.message}"
            self._tell(group.leader, "Warning", "WriteRefused", note)
        self._attempts.pause(ref)

    def _again(self, ref: JobRef) -> None:
        self._index.changed.add(ref)
        self._wake()

    def _tell(self, pod: GroupPod, kind: group_plan.EventType, reason: str, message: str) -> None:
        meta = {"name": pod.name, "namespace": pod.namespace, "uid": pod.uid}
        self._recorder.record({"apiVersion": "v1", "kind": "Pod", "metadata": meta}, kind, reason, message)


def _parent_of(pod: PodObject) -> str:
    return pod.annotations.get(names.SUSPENDED_BY_PARENT) or ""
