"""Workloads without a job of ours: an evicted or deleted one is released once none of its pods runs."""

from __future__ import annotations

from functools import partial

from gangline.api import names
from gangline.control.isolation.quarantine import Quarantine
from gangline.control.mirror.mirror import Mirror
from gangline.control.mirror.pod_index import PodIndex
from gangline.control.mirror.pod_owners import PodOwners
from gangline.control.parts.messages import WorkloadDeparted
from gangline.control.parts.part import Part
from gangline.control.plan import job_plan, plan_steps
from gangline.control.recovery.departed_workloads import DepartedWorkloads
from gangline.control.status import status_changes
from gangline.control.writes.outgoing import Priority
from gangline.control.writes.writes import Writes
from gangline.kube import resources as kube
from gangline.kube.resources import Json, ObjectKey, deleting, key_of


class UnownedWorkloads(Part):
    """Releases the quota and the finalizer of Workloads without a job."""

    name = "unowned"

    def __init__(
        self,
        mirror: Mirror,
        pods: PodIndex,
        owners: PodOwners,
        departed: DepartedWorkloads,
        writes: Writes,
        quarantine: Quarantine,
    ) -> None:
        self._mirror = mirror
        self._departed = departed
        self._writes = writes
        self._quarantine = quarantine
        self._kept: set[str] = set()  # deleted Workloads whose pods still run
        exists = mirror.has(kube.WORKLOADS)
        self._changed = mirror.changes.unowned.subscribe(worth=exists)
        self._changed_nodes = mirror.changes.nodes.subscribe(worth=lambda node: bool(self._kept))
        self._changed_pods = pods.changed.subscribe(worth=exists)
        owners.changed.feed(self._changed_pods)
        mirror.messages.subscribe(WorkloadDeparted, lambda message: self._kept.discard(key_of(message.workload)))

    def act(self, now: int) -> None:
        changed, nodes = self._changed_pods.take(), self._changed_nodes.take()
        self._changed.update(self._kept if nodes else self._kept & changed)
        found = (self._mirror.get(kube.WORKLOADS, key) for key in sorted(self._changed.take()))
        for workload in [workload for workload in found if workload is not None]:
            work = partial(self._tidy, workload)
            self._quarantine.attempt("releasing it", kube.WORKLOADS, key_of(workload), work)

    def _tidy(self, workload: Json) -> None:
        key = key_of(workload)
        self._kept.discard(key)
        if self._mirror.job_of(workload) is not None or self._writes.pending(kube.WORKLOADS, key):
            return
        if deleting(workload):
            self._release_deleted(key, workload)
            return
        unowned = not workload["metadata"].get("ownerReferences")
        if unowned and names.JOB_UID in (workload["metadata"].get("labels") or {}):
            self._finish_orphan(key, workload)
        elif unowned and job_plan.has(workload, names.EVICTED) and job_plan.reserved(workload):
            self._writes.change(key, "release", status_changes.release, priority=Priority.LIFECYCLE)

    def _finish_orphan(self, key: str, workload: Json) -> None:
        """It belonged to a job once, which is gone, or was parted from it: nobody will ever start or finish it."""
        if not job_plan.has(workload, names.FINISHED):
            change = status_changes.finish_because("OwnerNotFound", "The workload's owner no longer exists")
            self._writes.change(key, "finish", change, priority=Priority.LIFECYCLE)
            return
        self._drop_finalizer(workload)

    def _release_deleted(self, key: str, workload: Json) -> None:
        """Remove the finalizer of a deleted Workload once none of its pods runs."""
        if self._departed.runs(key):
            self._kept.add(key)
            return
        self._drop_finalizer(workload)

    def _drop_finalizer(self, workload: Json) -> None:
        for step in job_plan.drop_finalizer(workload):
            target = ObjectKey.of(kube.WORKLOADS, workload)
            body = plan_steps.fenced(workload, step.body)
            self._writes.send(target, "patch", body, priority=Priority.LIFECYCLE)
