"""Workloads without a job of ours: a deleted one is released, and one whose job went is finished, once none of its pods runs.

Pods outlive a job that was deleted with `--cascade=orphan`. Their Workload then keeps its quota as any other does, and may be
preempted: nobody else stops these pods, so they are deleted here, and a Job that lost its own owner is suspended.

An evicted Workload without any owner keeps its quota until whoever runs it has stopped it and takes the reservation out of its
status, as in Kueue, but for `PATIENCE` at most: pods that still name it are deleted then, and without such pods it is released.
Of a client that applies only the condition, the admission is left behind: it is cleared here. One that is inactive holds no
quota in Kueue: here it is released once none of its pods runs.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Final

from gangline.api import names
from gangline.api.read import conditions
from gangline.api.read.workloads.parse_workload import variant_of
from gangline.control.feed.pod_owners import lost_its_job
from gangline.control.kernel.context import Context
from gangline.control.kernel.reconciler import Reconciler
from gangline.control.kinds import job_workload, steps
from gangline.control.nodes.recovery.departed_workloads import DepartedWorkloads
from gangline.control.parts.messages import WorkloadDeparted, WriteResolved
from gangline.control.writes.outgoing import Priority
from gangline.control.writes.status import run_changes, status_changes
from gangline.kube import resources as kube
from gangline.kube.resources import ObjectKey
from gangline.objects import WorkloadObject

#: how long whoever runs a Workload without owner has to stop it once it is evicted, in milliseconds
PATIENCE: Final = 60_000


class UnownedWorkloads(Reconciler[str]):
    """Releases the quota and the finalizer of Workloads without a job."""

    name = "unowned"
    doing = "releasing it"

    def __init__(
        self,
        context: Context,
        departed: DepartedWorkloads,
        *,
        planned: Callable[[WorkloadObject], bool] = lambda workload: False,
    ) -> None:
        """Look after these Workloads. `planned`: whether pods of the Workload's own plan for it."""
        exists = context.mirror.has(kube.WORKLOADS)
        super().__init__(context, context.mirror.changes.unowned.subscribe(worth=exists))
        self._departed = departed
        self._planned = planned
        self._kept: set[str] = set()  # Workloads that are let go once none of their pods runs
        self._in_flight: set[str] = set()  # Workloads to look at again when their writes are resolved
        self._deadlines: dict[str, int] = {}  # evicted Workloads -> when the patience with their authors ends
        self._changed_nodes = context.mirror.changes.nodes.subscribe(worth=lambda node: bool(self._kept))
        self._changed_pods = context.pods.changed.subscribe(worth=exists)
        context.owners.changed.feed(self._changed_pods)
        context.mirror.messages.subscribe(WorkloadDeparted, lambda message: self._kept.discard(message.workload.key))
        context.mirror.messages.subscribe(WriteResolved, self._note_resolved)

    def _note_resolved(self, message: WriteResolved) -> None:
        key = message.key.text
        if message.key.resource == kube.WORKLOADS and key in self._in_flight:
            self._in_flight.discard(key)
            self._changed.add(key)

    def _gather(self, now: int) -> None:
        changed, nodes = self._changed_pods.take(), self._changed_nodes.take()
        self._changed.update(self._kept if nodes else self._kept & changed)
        self._changed.update(key for key, time in self._deadlines.items() if time <= now)

    def _times(self) -> Iterable[int]:
        return self._deadlines.values()

    def _reconcile(self, key: str, now: int) -> None:
        self._deadlines.pop(key, None)
        workload = self._mirror.workloads.get(key)
        if workload is None:
            return
        self._kept.discard(key)
        if self._mirror.job_of(workload) is not None or self._planned(workload):
            return
        if self._writes.pending(kube.WORKLOADS, key):
            self._in_flight.add(key)
            return
        if variant_of(workload.metadata):  # it goes with its parent
            return
        if lost_its_job(workload):
            self._outlive(key, workload)
        elif workload.deleting:
            if not self._still_runs(key):
                self._drop_finalizer(workload)
        elif status_changes.is_left_behind(workload.status):
            self._writes.change(key, "release", status_changes.clear_left_behind, priority=Priority.LIFECYCLE)
        elif not workload.owners:
            self._give_back(key, workload, now)

    def _give_back(self, key: str, workload: WorkloadObject, now: int) -> None:
        """Release the quota of an evicted Workload that never had a job: its author stops it and releases its quota, or that is
        done here.
        """
        evicted = workload.true_condition(names.EVICTED)
        if evicted is None or not workload.holds_quota:
            return
        patience_ends = conditions.millis_of(evicted.get("lastTransitionTime")) + PATIENCE
        if now < patience_ends:
            self._deadlines[key] = patience_ends
        else:
            self._stop(key)
        if (not workload.active or now >= patience_ends) and not self._still_runs(key):
            self._writes.change(key, "release", status_changes.release, priority=Priority.LIFECYCLE)

    def _outlive(self, key: str, workload: WorkloadObject) -> None:
        """End a Workload whose job is gone, once the pods that the job left have ended: nobody will ever start it again."""
        evicted = workload.evicted and workload.holds_quota
        if evicted or workload.deleting:
            self._stop(key)
        if not workload.finished:
            if workload.holds_quota and self._still_runs(key):
                return
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

    def _stop(self, key: str) -> None:
        """Delete the pods that name the Workload; a Job that would make others is suspended, which deletes its own."""
        for pod in self._departed.pods_of(key):
            if pod.terminating or pod.ended:
                continue
            namespace = key.partition("/")[0]
            job = self._mirror.job((kube.JOBS, f"{namespace}/{pod.job}")) if pod.job else None
            if job is None:
                self._write_pod(key, pod.key, "delete", {"uid": pod.uid}, slot="end")
            elif not job.spec.get("suspend") and not self._mirror.managed_ancestor(job):
                body = steps.fenced(job, {"spec": {"suspend": True}})
                target = ObjectKey.of(kube.JOBS, job)
                self._send(key, target, "patch", body, slot="outlived", priority=Priority.START_STOP)

    def _drop_finalizer(self, workload: WorkloadObject) -> None:
        for step in job_workload.drop_finalizer(workload):
            target = ObjectKey.of(kube.WORKLOADS, workload)
            body = steps.fenced(workload, step.body)
            self._writes.send(target, "patch", body, priority=Priority.LIFECYCLE)
