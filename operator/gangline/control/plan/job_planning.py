"""Plans every job whose circumstances changed, and sends the steps of its plan."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable
from functools import partial

from gangline.api import names
from gangline.control import decision_log
from gangline.control.isolation.quarantine import Quarantine
from gangline.control.isolation.time_limit import limited
from gangline.control.mirror.changes import JobRef
from gangline.control.mirror.mirror import Mirror
from gangline.control.mirror.pod_index import PodIndex
from gangline.control.mirror.watched_kinds import JOB_KINDS
from gangline.control.notify.notices import Notices
from gangline.control.operator_metrics import Metrics
from gangline.control.parts.attempts import Attempts
from gangline.control.parts.messages import WriteResolved
from gangline.control.parts.part import Part
from gangline.control.plan import job_plan, plan_steps
from gangline.control.recovery.fencing import lingering
from gangline.control.recovery.swap_rules import holds_back
from gangline.control.recovery.swaps import Recoveries
from gangline.control.writes.events import EventRecorder
from gangline.control.writes.outgoing import Priority
from gangline.control.writes.writes import Writes
from gangline.jobs.base import AnswersRefusals, Children, Create, Delete, JobError, UnknownClassError
from gangline.kube import resources as kube
from gangline.kube.errors import ApiError
from gangline.kube.resources import Json, ObjectKey, condition_of, key_of

log = logging.getLogger(__name__)


class JobPlanning(Part):
    """Plans jobs. A job with a write in flight is planned again when the write is resolved.

    `wake` makes the loop take another round.
    """

    name = "plans"

    def __init__(
        self,
        mirror: Mirror,
        pods: PodIndex,
        recoveries: Recoveries,
        writes: Writes,
        notices: Notices,
        recorder: EventRecorder,
        metrics: Metrics,
        *,
        wake: Callable[[], None],
        quarantine: Quarantine,
    ) -> None:
        self._mirror = mirror
        self._pods = pods
        self._recoveries = recoveries
        self._writes = writes
        self._notices = notices
        self._recorder = recorder
        self._metrics = metrics
        self._wake = wake
        self._quarantine = quarantine
        self._changed = mirror.changes.jobs.subscribe(worth=lambda ref: ref[1] in mirror.objects[ref[0]])
        self._attempts = Attempts[JobRef](self._again)
        mirror.messages.subscribe(WriteResolved, self._resolved)

    def lead(self) -> None:
        self._changed.update(self._mirror.jobs())

    def act(self, now: int) -> None:
        ready = self._changed.take(self._attempts.ready)
        for ref in sorted(ready, key=lambda ref: ref[1]):
            if not self._quarantine.attempt("planning it", *ref, partial(self._plan, ref)):
                self._attempts.pause(ref)

    # --- plans ---

    def _plan(self, ref: JobRef) -> None:
        resource, key = ref
        job = self._mirror.get(resource, key)
        if job is None or job["metadata"].get("namespace") in names.EXCLUDED_NAMESPACES:
            return
        workloads, named = self._mirror.workloads_of(job), self._mirror.named_workload(job)
        if any(
            self._writes.in_doubt(kube.WORKLOADS, key_of(workload))
            for workload in [*workloads, *([named] if named else [])]
        ):
            return  # the answer adds the job to the changed ones again
        children = self._mirror.children_of(job)
        view = plan_steps.JobView(
            kind=JOB_KINDS[resource],
            job=job,
            workloads=workloads,
            children=children,
            managed_ancestor=self._mirror.managed_ancestor(job),
            in_scope=self._mirror.in_scope(JOB_KINDS[resource], job),
            needs_queue=not self._mirror.managed.without_queue,
            held_back=any(holds_back(w, self._pods.of(key_of(w))) for w in workloads),
            unreachable=any(self._recoveries.unreachable(key_of(w)) for w in workloads),
            lingering=self._lingers(job, children, workloads),
            completing=any(pod.completing for w in workloads for pod in self._pods.of(key_of(w))),
            named=named,
        )
        try:
            planned = limited(lambda: job_plan.plan(view, self._mirror))
        except UnknownClassError as error:
            self._recorder.record(job, "Warning", "WorkloadPriorityClassNotFound", error.message)
            self._attempts.pause(ref)
            return
        except JobError as error:
            self._recorder.record(job, "Warning", "ErrWorkloadCompose", str(error))
            self._attempts.pause(ref)
            return
        for step in planned:
            self._carry_out(ref, job, step)

    def _lingers(self, job: Json, children: Children, workloads: Iterable[Json]) -> bool:
        """Whether pods of a job that is being stopped still run."""
        jobs = {job["metadata"]["name"], *(child["metadata"]["name"] for child in children.jobs)}
        leaving = [workload for workload in workloads if job_plan.leaving(job, workload)]
        return any(lingering(self._pods.of(key_of(w)), jobs, self._mirror.objects[kube.NODES].get) for w in leaving)

    def _carry_out(self, ref: JobRef, job: Json, step: plan_steps.Step) -> None:
        match step:
            case plan_steps.Note(kind, reason, message):
                self._recorder.record(job, kind, reason, message)
            case _:
                self._send(ref, job, step)
                self._attempts.sent(ref)

    def _send(self, ref: JobRef, job: Json, step: plan_steps.Writing) -> None:
        resource, _ = ref
        send, delete = partial(self._writes.send, owner=ref), partial(self._writes.delete, owner=ref)
        match step:
            case plan_steps.PatchJob(patch):
                urgent = not patch.subresource or JOB_KINDS[resource].owns_children is False
                priority = Priority.START_STOP if urgent else Priority.STATUS
                verb = "status" if patch.subresource else "patch"
                send(ObjectKey.of(resource, job), verb, plan_steps.fenced(job, patch.body), priority=priority)
            case plan_steps.Own(Create(child, body)):
                send(ObjectKey.of(child, body), "create", body, priority=Priority.START_STOP)
            case plan_steps.Own(Delete(child, namespace, name, uid, propagation)):
                key = ObjectKey(child, namespace, name)
                delete(key, uid=uid, propagation=propagation, priority=Priority.START_STOP)
            case plan_steps.CreateWorkload(body):
                done = partial(self._created, resource.kind, job)
                send(ObjectKey.of(kube.WORKLOADS, body), "create", body, priority=Priority.LIFECYCLE, done=done)
            case plan_steps.DeleteWorkload(workload):
                key = ObjectKey.of(kube.WORKLOADS, workload)
                delete(key, uid=workload["metadata"]["uid"], priority=Priority.LIFECYCLE)
            case plan_steps.PatchWorkload(workload, body):
                key = ObjectKey.of(kube.WORKLOADS, workload)
                send(key, "patch", plan_steps.fenced(workload, body), priority=Priority.LIFECYCLE)
            case plan_steps.ChangeStatus(workload, slot, change):
                done = self._finished if slot == "finish" else None
                key = key_of(workload)
                self._writes.change(key, slot, change, priority=Priority.LIFECYCLE, owner=ref, done=done)

    def _created(self, kind: str, job: Json, workload: Json | None) -> None:
        if workload is not None:
            self._metrics.kueue.workload_created(kind, job, workload)

    def _finished(self, workload: Json | None) -> None:
        row = condition_of(workload, names.FINISHED) if workload is not None else None
        if workload is not None and row is not None:
            decision_log.note(decision_log.FINISHED, workload, row["reason"])
            self._notices.notify("Finished" if row["reason"] == "Succeeded" else "Failed", workload, row["message"])

    # --- results of writes ---

    def _resolved(self, message: WriteResolved) -> None:
        """A write succeeded or was finally refused: the job is planned again from the current state."""
        owner, error, key = message.owner, message.error, message.key
        self._wake()
        if owner is None:
            return
        self._attempts.resolved(owner)
        self._changed.add(owner)
        if error is None:
            self._attempts.forgive(owner)
            return
        job = self._mirror.get(*owner)
        if job is not None and not self._writes.expected(error):
            log.warning("%s: %s: %s", owner[1], key, error)
            self._recorder.record(job, "Warning", "WriteRefused", f"{key.resource.kind} {key.name}: {error.message}")
            self._report_refusal(owner, job, key, error)
            self._attempts.pause(owner)

    def _report_refusal(self, owner: JobRef, job: Json, key: ObjectKey, error: ApiError) -> None:
        """Report in a job's status that the API server refused one of its children, for a kind that owns children."""
        kind = JOB_KINDS[owner[0]]
        if not isinstance(kind, AnswersRefusals) or key.resource not in (kube.JOBS, kube.SERVICES):
            return
        patch = kind.rejected(job, error.message)
        if patch is not None:
            target = ObjectKey.of(owner[0], job)
            self._writes.send(target, "status", patch.body, priority=Priority.STATUS, slot="rejected")

    def _again(self, ref: JobRef) -> None:
        """The pause of a job with a refused step is over."""
        self._changed.add(ref)
        self._wake()
