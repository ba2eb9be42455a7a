"""Carries out those steps of a plan that write a Workload: for jobs, for pod groups and for kinds that serve."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from gangline.api import names
from gangline.control import decision_log
from gangline.control.mirror.changes import JobRef
from gangline.control.notify.notices import Notices
from gangline.control.operator_metrics import Metrics
from gangline.control.parts.attempts import Attempts
from gangline.control.parts.messages import WriteResolved
from gangline.control.plan import plan_steps
from gangline.control.writes.outgoing import Priority
from gangline.control.writes.writes import Writes
from gangline.kube import resources as kube
from gangline.kube.errors import ApiError
from gangline.kube.resources import ObjectKey
from gangline.objects import Stored, WorkloadObject


class WorkloadWrites:
    """Sends writes of Workloads. Each names its owner, which gets the result. Nothing is counted or notified before a write has
    succeeded.
    """

    def __init__(self, writes: Writes, metrics: Metrics, notices: Notices) -> None:
        self._writes = writes
        self._metrics = metrics
        self._notices = notices

    def send(self, owner: JobRef, kind: str, job: Callable[[], Stored | None], step: plan_steps.WorkloadStep) -> None:
        """Send the write of a step. `kind` and `job` are what a new Workload is counted for; of a job that is gone nothing is
        counted.
        """
        match step:
            case plan_steps.CreateWorkload(body):
                key, done = ObjectKey.of(kube.WORKLOADS, body), partial(self._created, kind, job)
                self._writes.send(key, "create", body, priority=Priority.LIFECYCLE, owner=owner, done=done)
            case plan_steps.DeleteWorkload(workload):
                key, uid = ObjectKey.of(kube.WORKLOADS, workload), workload.uid
                self._writes.delete(key, uid=uid, priority=Priority.LIFECYCLE, owner=owner)
            case plan_steps.PatchWorkload(workload, body):
                key, body = ObjectKey.of(kube.WORKLOADS, workload), plan_steps.fenced(workload, body)
                self._writes.send(key, "patch", body, priority=Priority.LIFECYCLE, owner=owner)
            case plan_steps.ChangeStatus(workload, slot, change, doubt):
                done = self._finished if slot == "finish" else None
                self._writes.change(
                    workload.key, slot, change, priority=Priority.LIFECYCLE, owner=owner, doubt=doubt, done=done
                )

    def settle(
        self,
        message: WriteResolved,
        owner: JobRef,
        attempts: Attempts[JobRef],
        *,
        again: Callable[[JobRef], None],
        report: Callable[[JobRef, ObjectKey, ApiError], None],
    ) -> None:
        """Settle a write of the owner that succeeded or was finally refused: `again` has the owner planned from the current
        state, and `report` gets a refusal that was not to be expected.
        """
        attempts.resolved(owner)
        again(owner)
        if message.error is None:
            attempts.forgive(owner)
        elif not self._writes.expected(message.error):
            report(owner, message.key, message.error)

    def _created(self, kind: str, job: Callable[[], Stored | None], workload: WorkloadObject | None) -> None:
        found = job()
        if workload is not None and found is not None:
            self._metrics.kueue.workload_created(kind, found, workload)

    def _finished(self, workload: WorkloadObject | None) -> None:
        row = workload.condition(names.FINISHED) if workload is not None else None
        if workload is not None and row is not None:
            decision_log.note(decision_log.FINISHED, workload, row["reason"])
            self._notices.notify("Finished" if row["reason"] == "Succeeded" else "Failed", workload, row["message"])
