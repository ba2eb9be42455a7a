"""Workloads without a job of ours: a deleted one is released once none of its pods runs, and one whose job went is finished.

An evicted one keeps its quota until whoever runs it has stopped it and takes the reservation out of its status, as in Kueue. Of a
client that applies only the condition, the admission is left behind: it is cleared here. One without any owner that is inactive
holds no quota in Kueue: here it is released once none of its pods runs.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from gangline.api import names
from gangline.api.read.workloads.parse_workload import variant_of
from gangline.control.isolation.quarantine import Quarantine
from gangline.control.mirror.mirror import Mirror
from gangline.control.mirror.pod_index import PodIndex
from gangline.control.mirror.pod_owners import PodOwners
from gangline.control.parts.messages import WorkloadDeparted, WriteResolved
from gangline.control.parts.part import Part
from gangline.control.plan import job_workload, plan_steps
from gangline.control.recovery.departed_workloads import DepartedWorkloads
from gangline.control.status import run_changes, status_changes
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
        *,
        planned: Callable[[Json], bool] = lambda workload: False,
    ) -> None:
        """`planned`: whether pods of the Workload's own plan for it."""
        self._mirror = mirror
        self._departed = departed
        self._writes = writes
        self._quarantine = quarantine
        self._planned = planned
        self._kept: set[str] = set()  # Workloads that are let go once none of their pods runs
        self._in_flight: set[str] = set()  # Workloads to look at again when their writes are resolved
        exists = mirror.has(kube.WORKLOADS)
        self._changed = mirror.changes.unowned.subscribe(worth=exists)
        self._changed_nodes = mirror.changes.nodes.subscribe(worth=lambda node: bool(self._kept))
        self._changed_pods = pods.changed.subscribe(worth=exists)
        owners.changed.feed(self._changed_pods)
        mirror.messages.subscribe(WorkloadDeparted, lambda message: self._kept.discard(key_of(message.workload)))
        mirror.messages.subscribe(WriteResolved, self._resolved)

    def _resolved(self, message: WriteResolved) -> None:
        key = message.key.text
        if message.key.resource == kube.WORKLOADS and key in self._in_flight:
            self._in_flight.discard(key)
            self._changed.add(key)

    def act(self, now: int) -> None:
        changed, nodes = self._changed_pods.take(), self._changed_nodes.take()
        self._changed.update(self._kept if nodes else self._kept & changed)
        for key in self._quarantine.in_turn(sorted(self._changed.take()), self._changed.update):
            workload = self._mirror.get(kube.WORKLOADS, key)
            if workload is not None:
                self._quarantine.attempt("releasing it", kube.WORKLOADS, key, partial(self._tidy, workload))

    def _tidy(self, workload: Json) -> None:
        key = key_of(workload)
        self._kept.discard(key)
        if self._mirror.job_of(workload) is not None or self._planned(workload):
            return
        if self._writes.pending(kube.WORKLOADS, key):
            self._in_flight.add(key)
            return
        if variant_of(workload["metadata"]):  # it goes with its parent
            return
        if deleting(workload):
            if not self._still_runs(key):
                self._drop_finalizer(workload)
            return
        if status_changes.is_left_behind(workload.get("status") or {}):
            self._writes.change(key, "release", status_changes.clear_left_behind, priority=Priority.LIFECYCLE)
            return
        meta = workload["metadata"]
        if meta.get("ownerReferences"):
            return
        if names.JOB_UID in (meta.get("labels") or {}):
            self._finish_orphan(key, workload)
        elif _is_given_up(workload) and not self._still_runs(key):
            self._writes.change(key, "release", status_changes.release, priority=Priority.LIFECYCLE)

    def _finish_orphan(self, key: str, workload: Json) -> None:
        """It belonged to a job once, which is gone, or was parted from it: nobody will ever start or finish it."""
        if not job_workload.has(workload, names.FINISHED):
            change = run_changes.finish_because("OwnerNotFound", "The workload's owner no longer exists")
            self._writes.change(key, "finish", change, priority=Priority.LIFECYCLE)
            return
        self._drop_finalizer(workload)

    def _still_runs(self, key: str) -> bool:
        """Whether a pod of the Workload runs. Then the Workload is looked at again when that may have changed."""
        runs = self._departed.runs(key)
        if runs:
            self._kept.add(key)
        return runs

    def _drop_finalizer(self, workload: Json) -> None:
        for step in job_workload.drop_finalizer(workload):
            target = ObjectKey.of(kube.WORKLOADS, workload)
            body = plan_steps.fenced(workload, step.body)
            self._writes.send(target, "patch", body, priority=Priority.LIFECYCLE)


def _is_given_up(workload: Json) -> bool:
    """It is inactive, was evicted, and still holds quota."""
    inactive = workload["spec"].get("active") is False
    return inactive and job_workload.has(workload, names.EVICTED) and job_workload.reserved(workload)
