"""Plans every pod group whose pods or Workload changed, and sends the steps of its plan.

The questions of a pod group about other clusters in which its pods may run (`control.checks.multikueue` answers them).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Final, Protocol

from gangline.api import names
from gangline.control.feed.changes import JobRef
from gangline.control.kernel.context import Context
from gangline.control.kinds import group_plan
from gangline.control.kinds.group_index import POD_GROUPS, GroupIndex
from gangline.control.kinds.planner import Planner, named_pod
from gangline.control.kinds.serving_parents import ServedParents
from gangline.control.nodes.recovery.fencing import out_of_reach_since
from gangline.control.writes.outgoing import Priority
from gangline.jobs.base import PodSetInfo
from gangline.jobs.pods import composition
from gangline.jobs.pods.member import GroupPod
from gangline.kube import resources as kube
from gangline.kube.reflector import Event, Removed, Upsert
from gangline.kube.resources import ObjectKey, Resource
from gangline.objects import PodObject, Stored, WorkloadObject


class OtherClusters(Protocol):
    def sends(self, workload: WorkloadObject) -> bool:
        """Whether the pods of the Workload wait here, and run in another cluster if they run at all."""
        ...

    def may_run(self, workload: WorkloadObject) -> bool:
        """Whether pods of the Workload may still run in another cluster."""
        ...

    def pods_ready(self, workload: WorkloadObject) -> bool:
        """Whether all pods of the Workload are ready in their cluster, as far as that says so."""
        ...


class NoOtherClusters:
    """Implements `OtherClusters`: there are no other clusters."""

    def sends(self, workload: WorkloadObject) -> bool:
        return False

    def may_run(self, workload: WorkloadObject) -> bool:
        return False

    def pods_ready(self, workload: WorkloadObject) -> bool:
        return False


NO_OTHER_CLUSTERS: Final[OtherClusters] = NoOtherClusters()


#: Kueue's name of the integration
FRAMEWORK: Final = ("v1", "Pod")


class GroupPlanning(Planner):
    """Plans pod groups, where the configuration lists the framework `pod`, or kinds whose pods wait in their place: then only
    these.
    """

    name = "pod groups"
    kinds = (kube.PODS,)

    def __init__(
        self,
        context: Context,
        index: GroupIndex,
        families: ServedParents,
        other_clusters: OtherClusters = NO_OTHER_CLUSTERS,
    ) -> None:
        """`families` say what the owner of a group's pods wants of it; `other_clusters`: those in which the pods may run."""
        super().__init__(context, index.changed, (POD_GROUPS, kube.PODS))
        managed = context.mirror.managed
        self.enabled = managed.pods or bool(managed.pods_of)
        self._index = index
        self._families = families
        self._other_clusters = other_clusters
        self._pods = context.pods
        self._now = context.now
        exists = context.mirror.has(kube.WORKLOADS)
        self._workloads = context.mirror.changes.unowned.subscribe(worth=lambda key: self.enabled and exists(key))
        self._nodes = context.mirror.changes.nodes.subscribe(
            worth=lambda node: self.enabled and bool(context.pods.on(node))
        )
        self._not_kept: dict[JobRef, Sequence[str]] = {}  # of started pods, until their group is planned

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

    def touch(self, key: str) -> None:
        """Plan a group again: what its parent wants of it may have changed."""
        self._index.changed.add((POD_GROUPS, key))

    # --- plans ---

    def _gather(self, now: int) -> None:
        if not self.enabled:
            return
        emptied, self._index.emptied = self._index.emptied, set()
        self._mirror.changes.unowned.update(
            emptied
        )  # one may have been deleted before its last pod was known to be gone
        on_nodes = {pod.workload for node in self._nodes.take() for pod in self._pods.on(node)}
        for key in sorted(self._workloads.take() | {key for key in on_nodes if self._is_stopping(key)}):
            workload = self._mirror.workloads.get(key)
            ref = self._index.behind(key, workload)
            if ref is not None and self._index.group(ref) is not None:
                self._changed.add(ref)
            elif ref is not None and workload is not None:
                self._orphaned(workload)

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

    def _reconcile(self, ref: JobRef, now: int) -> None:
        group = self._index.group(ref)
        if group is None:
            self._not_kept.pop(ref, None)
            key = ref[1] if ref[0] == POD_GROUPS else ""
            workload = self._mirror.workloads.get(key)
            if workload is not None and self._index.behind(key, workload) == ref:
                self._orphaned(workload)
            return
        workload = self._index.workload_of(group)
        if workload is not None and self._writes.in_doubt(kube.WORKLOADS, workload.key):
            return  # the answer plans it again
        demand = self._families.demand(workload) if workload is not None and group.parent else None
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
            active=any(self._uses_quota(pod) for pod in group.pods) or self._runs_there(workload),
            sent=workload is not None and self._other_clusters.sends(workload),
            ready_there=workload is not None and self._other_clusters.pods_ready(workload),
            not_kept=self._not_kept.pop(ref, ()),
            now=now,
        )
        if group_plan.is_arriving(view):
            self._attempts.pause(ref)
            return
        pods = [{"metadata": {"uid": pod.uid, "resourceVersion": pod.version}} for pod in group.pods]
        of = [*pods, *([workload] if workload is not None else [])]
        about = named_pod(group.leader)
        self._follow(ref, about, lambda: group_plan.plan(view, self._mirror), of)

    def _runs_there(self, workload: WorkloadObject | None) -> bool:
        return workload is not None and self._other_clusters.sends(workload) and self._other_clusters.may_run(workload)

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

    # --- answers ---

    def _object(self, ref: JobRef) -> Stored | None:
        group = self._index.group(ref)
        return named_pod(group.leader) if group is not None else None

    def _count_created(self, ref: JobRef, workload: WorkloadObject) -> None:
        group = self._index.group(ref)
        if group is not None:
            self._metrics.kueue.workload_created(kube.PODS.kind, group.leader.manifest(), workload)

    def _admission_written(self, ref: JobRef, infos: Sequence[PodSetInfo], answer: PodObject) -> None:
        group = self._index.group(ref)
        if lost := [part for info in infos for part in composition.not_kept(answer, info)]:
            self._not_kept[ref] = [f"pod {answer.name}: {part}" for part in lost]
            self._again(ref)
        workload = self._index.workload_of(group) if group is not None else None
        if workload is not None:
            self._metrics.kueue.gate_removed(names.ADMISSION_GATE, workload, self._now())


def _parent_of(pod: PodObject) -> str:
    return pod.annotations.get(names.SUSPENDED_BY_PARENT) or ""
