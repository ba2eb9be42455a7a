"""Parts that keep Workloads as their surroundings ask, beside the plans of jobs.

- `ClassPriorities`: Workloads follow their WorkloadPriorityClass: when its value changes, each of its Workloads gets the new
  priority. As in Kueue, `spec.priority` of one Workload may be changed by hand: that lasts until its class changes, or the
  operator starts anew.
- `ClearedGates`: Workloads whose last admission gate was removed: their condition says so, until they are decided about.
- `ReplacedSlices`: the old slice of an elastic job is finished once the one that replaces it holds quota.
- `LeavingJobs`: jobs that are being stopped, once their last pod has ended; and jobs that wait for such pods to start.
"""

from __future__ import annotations

from functools import partial
from typing import Final

from gangline.api import names
from gangline.api.read import parse
from gangline.control.feed import slices
from gangline.control.feed.changes import JobRef
from gangline.control.feed.slices import REPLACED, replacement_for
from gangline.control.feed.watched_kinds import JOB_KINDS
from gangline.control.kernel.context import Context
from gangline.control.kernel.reconciler import Reconciler
from gangline.control.kinds import job_workload, steps
from gangline.control.parts.changed_keys import KeySet
from gangline.control.parts.part import Part
from gangline.control.writes.outgoing import Priority
from gangline.control.writes.status import gate_changes, run_changes
from gangline.kube import resources as kube
from gangline.kube.reflector import Event, Upsert
from gangline.kube.resources import Json, ObjectKey, Resource
from gangline.objects import JobObject, WorkloadObject


class LeavingJobs(Part):
    """Plans jobs that stop, or are about to start, again when their pods, or the nodes of their pods, change."""

    name = "leaving"

    def __init__(self, context: Context) -> None:
        self._mirror = context.mirror
        self._pods = context.pods
        self._changed = context.pods.changed.subscribe(worth=context.mirror.has(kube.WORKLOADS))
        self._changed_nodes = context.mirror.changes.nodes.subscribe(worth=lambda node: bool(context.pods.on(node)))

    def act(self, now: int) -> None:
        on_nodes = {pod.workload for node in self._changed_nodes.take() for pod in self._pods.on(node)}
        for key in self._changed.take() | on_nodes:
            workload = self._mirror.workloads.get(key)
            ref = self._mirror.job_of(workload) if workload is not None else None
            job = self._mirror.job(ref) if ref is not None else None
            if workload is None or ref is None or job is None:
                continue
            if _is_to_start(ref, job, workload) or job_workload.leaving(job, workload) or slices.is_slice(workload):
                self._mirror.changes.jobs.add(ref)


def _is_to_start(ref: JobRef, job: JobObject, workload: WorkloadObject) -> bool:
    kind = JOB_KINDS.get(ref[0])
    return kind is not None and workload.holds_quota and kind.declaration.suspension.read(job)


_MESSAGE: Final = "Replaced to accommodate a workload (UID: {uid}, JobUID: {job}) due to workload slice aggregation"


class ReplacedSlices(Reconciler[str]):
    """Looks at slices that hold quota, however they got it: an operator that died in between changes nothing."""

    name = "slices"
    doing = "replacing a slice"

    def __init__(self, context: Context) -> None:
        # as the mirror changes: what comes while a write is in doubt is known only later than its event
        super().__init__(context, context.mirror.changes.elastic.subscribe(worth=context.mirror.has(kube.WORKLOADS)))
        self._metrics = context.metrics
        #: slices that are finished, which the mirror may show only after other writes of them
        self._over: set[str] = set()

    def lead(self) -> None:
        self._changed.update(key for key, workload in self._mirror.workloads.items() if replacement_for(workload))

    def _reconcile(self, key: str, now: int) -> None:
        new = self._mirror.workloads.get(key)
        if new is None or new.finished:
            self._over.discard(key)
        replaced = replacement_for(new) if new is not None else ""
        old = self._mirror.workloads.get(replaced) if replaced else None
        if new is None or old is None or not new.holds_quota or old.finished or not _is_successor(new, old):
            return
        if replaced in self._over:
            return
        if old.cluster and not new.cluster:
            # the new slice replaces the old one in the cluster in which the job runs, too
            self._change(key, key, partial(_inherit, old.cluster), slot="inherit", priority=Priority.ADMISSION)
            return
        uid, job = new.uid, new.labels.get(names.JOB_UID, "")
        message = _MESSAGE.format(uid=uid, job=job)
        change = run_changes.finish_because(REPLACED, message)
        done = partial(self._tell, message)
        self._change(key, old.key, change, slot="replaced", priority=Priority.ADMISSION, done=done)

    def _tell(self, message: str, old: WorkloadObject | None) -> None:
        if old is None:
            return
        self._over.add(old.key)
        self._recorder.record(old, "Normal", REPLACED, message)
        if old.admitted_by:
            self._metrics.kueue.slice_replaced(old, old.admitted_by)


def _inherit(cluster: str, status: Json, now: int) -> None:
    status.setdefault("clusterName", cluster)
    status.pop("nominatedClusterNames", None)


def _is_successor(new: WorkloadObject, old: WorkloadObject) -> bool:
    """Whether both Workloads are in one namespace and of one job: nobody ends the Workload of another."""
    same_job = new.labels.get(names.JOB_UID, "") == old.labels.get(names.JOB_UID, "")
    return new.namespace == old.namespace and same_job and new.uid != old.uid


class ClearedGates(Part):
    """Corrects the condition of Workloads that are still said to be gated."""

    name = "gates"

    def __init__(self, context: Context) -> None:
        self._mirror = context.mirror
        self._writes = context.writes
        self._recorder = context.recorder
        self._changed = context.mirror.changes.workloads.subscribe(worth=context.mirror.has(kube.WORKLOADS))

    def act(self, now: int) -> None:
        for key in sorted(self._changed.take()):
            workload = self._mirror.workloads.get(key)
            if workload is not None and _is_cleared(workload):
                change = gate_changes.gates_cleared
                self._writes.change(key, "gates", change, priority=Priority.LIFECYCLE, done=self._tell)

    def _tell(self, workload: WorkloadObject | None) -> None:
        if workload is not None:
            note = "Admission gate cleared, workload is now admissible"
            self._recorder.record(workload, "Normal", "AdmissionGateCleared", note)


def _is_cleared(workload: WorkloadObject) -> bool:
    return not workload.gated and gate_changes.is_gated(workload.conditions)


class ClassPriorities(Reconciler[str]):
    """Writes the priority of a changed class to its Workloads, waiting or admitted."""

    name = "class priorities"
    doing = "giving it the priority of its class"
    kinds = (kube.WORKLOAD_PRIORITY_CLASSES,)

    def __init__(self, context: Context) -> None:
        super().__init__(context, KeySet[str](context.mirror.has(kube.WORKLOADS)))
        self._values: dict[str, object] = {}  # class -> its value as last seen
        self._changed_classes: set[str] = set()

    def observe(self, resource: Resource, event: Event) -> None:
        if isinstance(event, Upsert):
            name, value = event.obj.name, event.obj.get("value")
            if name not in self._values or self._values[name] != value:
                self._changed_classes.add(name)
            self._values[name] = value

    def lead(self) -> None:
        self._changed_classes.update(self._mirror.objects[kube.WORKLOAD_PRIORITY_CLASSES])

    def _gather(self, now: int) -> None:
        if self._changed_classes:
            changed, self._changed_classes = self._changed_classes, set()
            workloads = self._mirror.workloads
            self._changed.update(key for key, workload in workloads.items() if _class_of(workload) in changed)

    def _reconcile(self, key: str, now: int) -> None:
        workload = self._mirror.workloads.get(key)
        if workload is None or workload.deleting or workload.true_condition(names.FINISHED):
            return
        found = self._mirror.get(kube.WORKLOAD_PRIORITY_CLASSES, _class_of(workload) or "")
        if found is None:
            return
        try:
            value = parse.priority_class(found)
        except parse.ParseError:  # the jobs that name it report it
            return
        if value == workload.spec.get("priority"):
            return
        if self._writes.pending(kube.WORKLOADS, key):
            self._changed.add(key)
            return
        body = steps.fenced(workload, {"spec": {"priority": value}})
        self._send(key, ObjectKey.of(kube.WORKLOADS, workload), "patch", body)


def _class_of(workload: WorkloadObject) -> str | None:
    """The WorkloadPriorityClass that a Workload has its priority from."""
    reference = workload.spec.get("priorityClassRef") or {}
    return reference.get("name") if reference.get("kind") == kube.WORKLOAD_PRIORITY_CLASSES.kind else None
