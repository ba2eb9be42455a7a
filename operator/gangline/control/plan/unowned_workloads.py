"""Workloads without a job of ours: a deleted one is released, and one whose job went is finished, once none of its pods runs.

Pods outlive a job that was deleted with `--cascade=orphan`. Their Workload then keeps its quota as any other does, and may be
preempted: nobody else stops these pods, so they are deleted here, and a Job that lost its own owner is suspended.

An evicted Workload without any owner keeps its quota until whoever runs it has stopped it and takes the reservation out of its
status, as in Kueue, but for `PATIENCE` at most: pods that still name it are deleted then, and without such pods it is released.
Of a client that applies only the condition, the admission is left behind: it is cleared here. One that is inactive holds no
quota in Kueue: here it is released once none of its pods runs.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Final

from gangline.api import names
from gangline.api.read import conditions
from gangline.api.read.workloads.parse_workload import variant_of
from gangline.control.kernel.context import Context
from gangline.control.mirror.pod_owners import lost_its_job
from gangline.control.parts.attempts import Attempts
from gangline.control.parts.messages import WorkloadDeparted, WriteResolved
from gangline.control.parts.part import Part
from gangline.control.plan import job_workload, plan_steps
from gangline.control.recovery.departed_workloads import DepartedWorkloads
from gangline.control.status import run_changes, status_changes
from gangline.control.writes.outgoing import Priority
from gangline.kube import resources as kube
from gangline.kube.errors import ApiError
from gangline.kube.resources import ObjectKey
from gangline.objects import WorkloadObject

#: how long whoever runs a Workload without owner has to stop it once it is evicted, in milliseconds
PATIENCE: Final = 60_000


class UnownedWorkloads(Part):
    """Releases the quota and the finalizer of Workloads without a job."""

    name = "unowned"

    def __init__(
        self,
        context: Context,
        departed: DepartedWorkloads,
        *,
        planned: Callable[[WorkloadObject], bool] = lambda workload: False,
    ) -> None:
        """Look after these Workloads. `planned`: whether pods of the Workload's own plan for it."""
        self._mirror = context.mirror
        self._departed = departed
        self._writes = context.writes
        self._quarantine = context.quarantine
        self._planned = planned
        self._wake = context.wake
        self._kept: set[str] = set()  # Workloads that are let go once none of their pods runs
        self._in_flight: set[str] = set()  # Workloads to look at again when their writes are resolved
        self._deadlines: dict[str, int] = {}  # evicted Workloads -> when the patience with their authors ends
        self._attempts: Attempts[str] = Attempts(self._look_again)  # by Workload: writes that stop its pods
        exists = context.mirror.has(kube.WORKLOADS)
        self._changed = context.mirror.changes.unowned.subscribe(worth=exists)
        self._changed_nodes = context.mirror.changes.nodes.subscribe(worth=lambda node: bool(self._kept))
        self._changed_pods = context.pods.changed.subscribe(worth=exists)
        context.owners.changed.feed(self._changed_pods)
        context.mirror.messages.subscribe(WorkloadDeparted, lambda message: self._kept.discard(message.workload.key))
        context.mirror.messages.subscribe(WriteResolved, self._resolved)

    def _resolved(self, message: WriteResolved) -> None:
        key = message.key.text
        if message.key.resource == kube.WORKLOADS and key in self._in_flight:
            self._in_flight.discard(key)
            self._changed.add(key)

    def _look_again(self, workload: str) -> None:
        self._changed.add(workload)
        self._wake()

    def act(self, now: int) -> None:
        changed, nodes = self._changed_pods.take(), self._changed_nodes.take()
        self._changed.update(self._kept if nodes else self._kept & changed)
        self._changed.update(key for key, time in self._deadlines.items() if time <= now)
        for key in self._quarantine.in_turn(sorted(self._changed.take()), self._changed.update):
            self._deadlines.pop(key, None)
            workload = self._mirror.workloads.get(key)
            if workload is not None:
                work = partial(self._tidy, workload, now)
                self._quarantine.attempt("releasing it", kube.WORKLOADS, key, work)
        self.due = min(self._deadlines.values(), default=None)

    def _tidy(self, workload: WorkloadObject, now: int) -> None:
        key = workload.key
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
        if not self._attempts.ready(key):
            return
        for pod in self._departed.pods_of(key):
            if pod.terminating or pod.ended:
                continue
            namespace = key.partition("/")[0]
            job = self._mirror.job((kube.JOBS, f"{namespace}/{pod.job}")) if pod.job else None
            if job is None:
                self._attempts.sent(key)
                self._writes.end_pod(
                    pod.key, pod.uid, done=partial(self._stopped, key), failed=partial(self._refused, key)
                )
            elif not job.spec.get("suspend") and not self._mirror.managed_ancestor(job):
                self._attempts.sent(key)
                self._writes.send(
                    ObjectKey.of(kube.JOBS, job),
                    "patch",
                    plan_steps.fenced(job, {"spec": {"suspend": True}}),
                    priority=Priority.START_STOP,
                    slot="outlived",
                    done=partial(self._stopped, key),
                    failed=partial(self._refused, key),
                )

    def _stopped(self, workload: str, answer: WorkloadObject | None) -> None:
        self._attempts.resolved(workload)

    def _refused(self, workload: str, error: ApiError) -> None:
        self._attempts.resolved(workload)
        if self._writes.expected(error):
            self._look_again(workload)
        else:
            self._attempts.pause(workload)

    def _drop_finalizer(self, workload: WorkloadObject) -> None:
        for step in job_workload.drop_finalizer(workload):
            target = ObjectKey.of(kube.WORKLOADS, workload)
            body = plan_steps.fenced(workload, step.body)
            self._writes.send(target, "patch", body, priority=Priority.LIFECYCLE)
