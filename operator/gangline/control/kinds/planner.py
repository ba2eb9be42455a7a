"""The base of all parts that plan: one job is seen whole, a pure function says its next steps, and these are carried out here.

`Recreations` bounds how often the same Workload is created. Whoever may delete Workloads can delete that of a job as soon as it
is there, again and again. Each new one costs the API server more than a deletion: the object with the job's template, its
status, pods that stop and start. So after some creations of the same Workload the next one waits.
"""

from __future__ import annotations

import logging
import time
from collections import deque
from collections.abc import Callable, Container, Iterable, Sequence
from functools import partial
from typing import Any, ClassVar, Final

from gangline.api import names
from gangline.control.feed.changes import JobRef
from gangline.control.feed.watched_kinds import JOB_KINDS
from gangline.control.isolation.time_limit import limited
from gangline.control.kernel.context import Context
from gangline.control.kernel.reconciler import Reconciler
from gangline.control.kinds import steps
from gangline.control.parts.changed_keys import KeySet
from gangline.control.parts.messages import WriteResolved
from gangline.control.writes import decision_log
from gangline.control.writes.events import EventRecorder
from gangline.control.writes.outgoing import Priority
from gangline.control.writes.pod_writes import PodWrites
from gangline.control.writes.writes import Done
from gangline.jobs.base import Create, Delete, JobError, PodSetInfo, PriorityClassError, UnknownClassError
from gangline.jobs.pods.group import IncompleteError
from gangline.jobs.pods.member import KnownPod
from gangline.kube import resources as kube
from gangline.kube.errors import ApiError
from gangline.kube.resources import Json, ObjectKey, Resource, key_of
from gangline.objects import PodObject, Stored, WorkloadObject
from gangline.tenants import SharedRoom

log = logging.getLogger(__name__)


#: a Workload is created for a job at most so many times …
MOST_CREATIONS: Final = 5
#: … within so many seconds
CREATIONS_WITHIN: Final = 60.0
#: Workloads whose creations are known
_KNOWN_WORKLOADS: Final = 20_000


class Recreations:
    """The times at which each Workload was created, the last `MOST_CREATIONS` of them. Another owner of the same name has
    Workloads of its own, and so has each size of an elastic job. The owner hears of it by an event when a creation has to wait.
    """

    def __init__(self, recorder: EventRecorder, clock: Callable[[], float] = time.monotonic) -> None:
        self._recorder = recorder
        self._clock = clock
        self._made: SharedRoom[tuple[str, str], deque[float]] = SharedRoom(_KNOWN_WORKLOADS)

    def may_create(self, workload: Json, owner: Stored) -> bool:
        """Whether this Workload of the owner may be created now. If so, it counts as created."""
        namespace, now = workload["metadata"]["namespace"], self._clock()
        made = self._made.use(namespace, (key_of(workload), owner.uid), lambda: deque[float](maxlen=MOST_CREATIONS))
        if len(made) == MOST_CREATIONS and now - made[0] < CREATIONS_WITHIN:
            message = (
                f"The Workload was deleted and created {MOST_CREATIONS} times within {CREATIONS_WITHIN:.0f} s: "
                "the next one is created later"
            )
            self._recorder.record(owner, "Warning", "WorkloadDeletedAgain", message)
            return False
        made.append(now)
        return True


class Planner(Reconciler[JobRef]):
    """Plans the jobs of some kinds. Each write names the job for which it was planned, which is planned again with the answer.

    A write of a pod is planned once per version of the pod: until the watch shows the next version, nothing more is sent for it.
    """

    doing = "planning it"
    #: of changes of a Workload's status
    STATUS: ClassVar[Priority] = Priority.LIFECYCLE

    def __init__(self, context: Context, changed: KeySet[JobRef], kinds: Container[Resource]) -> None:
        """`kinds`: those of the jobs that are planned here."""
        super().__init__(context, changed)
        self._metrics = context.metrics
        self._notices = context.notices
        self._planned_kinds = kinds
        self._recreations = Recreations(context.recorder)
        self._pod_writes = PodWrites(context.writer, self._report)
        context.messages.subscribe(WriteResolved, self._resolved)

    # --- what kinds do in their own way ---

    def _object(self, ref: JobRef) -> Stored | None:
        """The object that events about the job belong to; None if it is gone."""
        return self._mirror.job(ref)

    def _count_created(self, ref: JobRef, workload: WorkloadObject) -> None:
        """Count how long the job has waited for its new Workload."""
        job = self._mirror.job(ref)
        if job is not None:
            self._metrics.kueue.workload_created(ref[0].kind, job, workload)

    def _admission_written(self, ref: JobRef, infos: Sequence[PodSetInfo], answer: Any) -> None:
        """Take the answer to a write that started the job, or one of its pods, with this admission."""

    # --- plans ---

    def _follow(self, ref: JobRef, about: Stored, plan: Callable[[], Iterable[steps.Step]], of: Sequence[Json]) -> None:
        """Plan within the time that these objects may take, and carry the plan out. A job that cannot be planned gets an event
        with the reason, and is tried again after a pause.
        """
        try:
            planned = limited(plan, of=of)
        except JobError as error:
            reason = "ErrWorkloadCompose"
            if isinstance(error, PriorityClassError):
                reason = "PriorityClassNotAllowed"
            if isinstance(error, UnknownClassError):
                reason = "WorkloadPriorityClassNotFound"
            self._recorder.record(about, "Warning", reason, str(error))
            if not isinstance(error, IncompleteError):  # its next pod plans it again
                self._attempts.pause(ref)
            return
        for step in planned:
            if not self._carry_out(ref, about, step):
                return

    def _carry_out(self, ref: JobRef, about: Stored, step: steps.Step, done: Done | None = None) -> bool:
        """Carry out one step; `done` gets the answer to its write. Returns whether the next ones may follow."""
        match step:
            case steps.Note(kind, reason, message):
                self._recorder.record(about, kind, reason, message)
            case steps.NotePod(pod, kind, reason, message):
                self._recorder.record(named_pod(pod), kind, reason, message)
            case steps.NoteWorkload(workload, reason, message):
                self._recorder.record(workload, "Normal", reason, message)
            case steps.PatchPod(pod, body, info):
                started = partial(self._admission_written, ref, [info]) if info is not None else None
                self._pod_writes.send(ref, pod, "patch", body, started, starts=info is not None)
            case steps.PatchPodStatus(pod, body):
                self._pod_writes.send(ref, pod, "status", body)
            case steps.DeletePod(pod):
                self._pod_writes.send(ref, pod, "delete", {"uid": pod.uid})
            case steps.CreateWorkload(body) if not self._recreations.may_create(body, about):
                self._attempts.pause(ref)
                return False
            case steps.PatchJob() | steps.Own():
                self._attempts.sent(ref)
                self._write_job(ref, about, step)
            case _:
                self._attempts.sent(ref)
                self._write_workload(ref, step, done)
        return True

    def _write_job(self, ref: JobRef, job: Stored, step: steps.PatchJob | steps.Own) -> None:
        """Write the job, or an object that it owns."""
        send = partial(self._writes.send, owner=ref)
        match step:
            case steps.PatchJob(patch, infos):
                key, body = ObjectKey.of(ref[0], job), steps.fenced(job, patch.body)
                verb = "status" if patch.subresource else "patch"
                urgent = not patch.subresource or not JOB_KINDS[ref[0]].owns_children
                priority = Priority.START_STOP if urgent else Priority.STATUS
                done = partial(self._admission_written, ref, infos) if infos else None
                send(key, verb, body, priority=priority, strict=bool(infos), done=done)
            case steps.Own(Create(child, body)):
                send(ObjectKey.of(child, body), "create", body, priority=Priority.START_STOP)
            case steps.Own(Delete(kube.PODS, namespace, name, uid)):
                self._writes.end_pod(f"{namespace}/{name}", uid, owner=ref)
            case steps.Own(Delete(child, namespace, name, uid, propagation)):
                key, priority = ObjectKey(child, namespace, name), Priority.START_STOP
                self._writes.delete(key, uid=uid, propagation=propagation, priority=priority, owner=ref)

    def _write_workload(self, ref: JobRef, step: steps.WorkloadStep, done: Done | None = None) -> None:
        """Write a Workload of the job. Nothing is counted or notified before the write has succeeded."""
        send = partial(self._writes.send, priority=Priority.LIFECYCLE, owner=ref)
        match step:
            case steps.CreateWorkload(body):
                send(ObjectKey.of(kube.WORKLOADS, body), "create", body, done=partial(self._created, ref, done))
            case steps.DeleteWorkload(workload):
                key, priority = ObjectKey.of(kube.WORKLOADS, workload), Priority.LIFECYCLE
                self._writes.delete(key, uid=workload.uid, priority=priority, owner=ref, done=done)
            case steps.PatchWorkload(workload, body):
                send(ObjectKey.of(kube.WORKLOADS, workload), "patch", steps.fenced(workload, body), done=done)
            case steps.ChangeStatus(workload, slot, change, doubt):
                then = done or (self._finished if slot == "finish" else None)
                self._writes.change(workload.key, slot, change, priority=self.STATUS, owner=ref, doubt=doubt, done=then)

    # --- results of writes ---

    def _created(self, ref: JobRef, done: Done | None, workload: WorkloadObject | None) -> None:
        if workload is not None:
            self._count_created(ref, workload)
        if done is not None:
            done(workload)

    def _finished(self, workload: WorkloadObject | None) -> None:
        row = workload.condition(names.FINISHED) if workload is not None else None
        if workload is not None and row is not None:
            decision_log.note(decision_log.FINISHED, workload, row["reason"])
            self._notices.notify("Finished" if row["reason"] == "Succeeded" else "Failed", workload, row["message"])

    def _resolved(self, message: WriteResolved) -> None:
        """Plan a job again from the current state after a write for it has succeeded or was finally refused."""
        ref, error = message.owner, message.error
        if ref is None or ref[0] not in self._planned_kinds:
            return
        if error is None:
            self._written(ref, None, None)
        else:
            self._refused(ref, None if self._writes.expected(error) else partial(self._report, ref, message.key), error)

    def _report(self, ref: JobRef, key: ObjectKey, error: ApiError) -> None:
        """Report a refusal that was not to be expected. The job pauses."""
        log.warning("%s: %s: %s", ref[1], key, error)
        about = self._object(ref)
        if about is not None:
            self._recorder.record(about, "Warning", "WriteRefused", f"{key.resource.kind} {key.name}: {error.message}")
        self._attempts.pause(ref)


def named_pod(pod: KnownPod) -> PodObject:
    """As much of a pod as an event about it needs."""
    meta = {"name": pod.name, "namespace": pod.namespace, "uid": pod.uid}
    return PodObject({"apiVersion": "v1", "kind": "Pod", "metadata": meta})
