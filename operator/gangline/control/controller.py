"""The one loop: facts in, decisions out, plans carried out.

    reflectors ──▶ inbox ──▶ mirror ──Change──▶ engine.decide(now, room) ──Decision──▶ writer
                               │                                                        ▲
                               └──────── dirty jobs ──▶ plan ──Step─────────────────────┘

Everything here runs on one event loop and takes no lock. A standby feeds its mirror and its engine like the leader, but
decides and writes nothing.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections import Counter, deque
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, TypeAlias

from gangline.api import names
from gangline.api.read import conditions
from gangline.control.decisions.carrying_out import Decisions
from gangline.control.isolation.quarantine import Quarantine, Subject, describe
from gangline.control.isolation.time_limit import limited
from gangline.control.mirror.mirror import JOB_KINDS, READERS, JobRef, Mirror
from gangline.control.mirror.pod_gates import Pods, ungating
from gangline.control.mirror.pod_index import Footprints
from gangline.control.mirror.pod_owners import PodOwners, claim, in_gang
from gangline.control.notify.notices import Notices, Receiver
from gangline.control.notify.outbox import Outbox
from gangline.control.operator_metrics import Metrics
from gangline.control.plan import job_plan, plan_steps
from gangline.control.recovery import unhealthy_nodes
from gangline.control.recovery.departed_workloads import Outliving
from gangline.control.recovery.domain_gates import Steering
from gangline.control.recovery.fencing import Fencing, lingering
from gangline.control.recovery.swaps import Recoveries, holds_back
from gangline.control.stall.stall_watch import StallWatch
from gangline.control.writes.events import EventRecorder
from gangline.control.writes.outgoing import Priority, Write
from gangline.control.writes.pacing import Pace
from gangline.control.writes.queue_writes import QueueWrites
from gangline.control.writes.writer import Writer
from gangline.control.writes.writes import Writes
from gangline.engine import Engine, ExpectedStart, Fault, IsolatedEngine, model
from gangline.jobs.base import AnswersRefusals, Children, Create, Delete, JobError
from gangline.kube import resources as kube
from gangline.kube.client import ApiClient
from gangline.kube.errors import ApiError, Forbidden
from gangline.kube.reflector import Event, Removed, Upsert
from gangline.kube.resources import ObjectKey, Resource, deleting, key_of
from gangline.telemetry import Source

if TYPE_CHECKING:
    from gangline.control.forecasting.forecasting import Forecasting

log = logging.getLogger(__name__)

Json: TypeAlias = dict[str, Any]

#: Facts that arrive within this time are decided on together, in seconds …
GATHER = 0.003
#: … or within nine times the CPU time that the last decision took, up to this: where a thousand queues wait, deciding is dear.
LONGEST_GATHER = 0.5
#: … or, where the API server is strained, within as long as a write takes there, up to `LONGEST_ROUND`.
LONGEST_ROUND = 0.25
#: Nobody is admitted or preempted sooner than about this before it can be written, in seconds.
AHEAD = 1.0
#: how the attempt to carry out a decision is called where it fails
CARRYING_OUT = "carrying out a decision"
#: A standby keeps so many marks at least before it drops those of objects that are no more.
MARKS = 10_000
#: A job whose step was refused is tried again after 1, 2, 4, … seconds, at most this.
MAX_RETRY = 60.0


#: what of the engine's facts is an object of the API
_RESOURCES = {kind: resource for resource, (kind, _) in READERS.items()} | {model.Footprint: kube.WORKLOADS}


def wall_millis() -> int:
    return int(time.time() * 1000)


def gathering(deciding: float, pace: Pace) -> float:
    """For how long to gather facts after a decision that took so much CPU, in seconds: nine tenths of the time are for others.

    What is decided sooner than it can be written waits anyway, and takes time from whoever writes it. And where little is
    decided at a time, whatever comes free goes to whoever waits just then, and has to be taken away again from most of them by
    the next with a higher priority: two more writes for a server that is strained already.
    """
    seconds = min(LONGEST_GATHER, max(GATHER, 9.0 * deciding))
    return max(seconds, min(LONGEST_ROUND, pace.latency)) if pace.strained else seconds


def room(pace: Pace, urgent: int) -> int:
    """How many decisions there is room for: what can be written within `AHEAD`, less the `urgent` writes that there are.

    What is decided long before it can be written holds quota that nobody uses, so that others wait, and whoever comes with a
    higher priority takes it away again: more writes for a server that can't keep up as it is. There is room again when half of it
    has been written: the fewer rounds, the less each decision costs.
    """
    most = max(2 * pace.most, round(AHEAD * pace.rate))
    left = most - urgent
    return left if 2 * left >= most else 0


class Controller:
    """Owns the mirror, the engine and what follows from them. `lead()` lets it act."""

    def __init__(
        self,
        client: ApiClient,
        writer: Writer,
        engine: Engine,
        recorder: EventRecorder,
        metrics: Metrics,
        *,
        fair_sharing: bool = False,
        labels_to_copy: Sequence[str] = (),
        telemetry: Source | None = None,
        now: Callable[[], int] = wall_millis,
    ) -> None:
        self.engine = engine
        self.quarantine = Quarantine(self._tell_trouble)
        if isinstance(engine, IsolatedEngine):
            engine.report = self._fault
        self.mirror = Mirror(observe=self._observe, complain=self._complain, labels_to_copy=labels_to_copy)
        self.writes = Writes(client, writer, self.mirror, now=now, resolved=self._resolved)
        self.decisions = Decisions(self.mirror, self.writes, engine, recorder, metrics)
        self.queues = QueueWrites(self.mirror, self.writes, writer, engine, now, fair=fair_sharing)
        self.pod_owners = PodOwners(self.mirror)
        self.pods = Pods(observe=engine.observe)
        self.steering = Steering()
        self.footprints = Footprints(observe=engine.observe, counts=self._pod_counts)
        self.outliving = Outliving(self.mirror, self.footprints, self.pod_owners, self.writes.pending, engine.observe)
        self.mirror.departed = self._outlive
        self.fencing = Fencing(self.mirror, self.footprints, writer, recorder, self._recovery_of)
        self.recoveries = Recoveries(
            self.mirror,
            self.footprints,
            self.writes,
            writer,
            recorder,
            metrics,
            note_failure=lambda workload: engine.observe(model.WriteFailed(workload)),
            now=now,
            quarantine=self.quarantine,
        )
        self.decisions.recoveries = self.recoveries
        self.outbox = Outbox(self._read_secret, outcome=metrics.notified, complain=self._cannot_notify)
        self.notices = self.decisions.notices = Notices(self.mirror, self.outbox.put, now=now)
        self.notices.moved = lambda workload, text: recorder.record(workload, "Normal", "StartMoved", text)
        self.recoveries.told = lambda workload, text: self.notices.tell("Swapped", workload, text)
        self.recoveries.evict = self.decisions.evict
        self.stalls = StallWatch(
            self.mirror,
            self.writes,
            self.footprints,
            self._observe,
            recorder,
            metrics,
            self.notices,
            now=now,
            source=telemetry,
            quarantine=self.quarantine,
        )
        self.leading = False
        #: how long workloads run, where that is kept
        self.forecasting: Forecasting | None = None
        self._client = client
        self._writer = writer
        self._recorder = recorder
        self._metrics = metrics
        self._now = now
        self._inbox: deque[tuple[Resource, Event]] = deque()
        self._wake = asyncio.Event()
        self._deciding = 0.0  # CPU seconds of the last decision
        self._busy: Counter[JobRef] = Counter()
        self._refused: dict[JobRef, int] = {}  # how often in a row
        self._blocked: set[JobRef] = set()  # waiting for their retry
        self._most_marks = MARKS  # so many are kept while standing by before those of gone objects are dropped
        self._kept: set[str] = set()  # deleted Workloads without a job whose pods still run

    # --- in ---

    def sink(self, resource: Resource) -> Callable[[Event], None]:
        """Where the reflector of `resource` tells what it sees."""

        def take(event: Event) -> None:
            self._inbox.append((resource, event))
            self._wake.set()

        return take

    def wake(self) -> None:
        """Something else than an event gives reason to decide."""
        self._wake.set()

    def _observe(self, change: model.Change) -> None:
        self.engine.observe(change)
        if self.forecasting is not None:
            self.forecasting.note(change)

    def lead(self) -> None:
        """From now on this process decides. Everything is planned once, whatever happened before."""
        self.leading = True
        self.mirror.dirty.update(self.mirror.jobs())
        self.queues.mark_all()
        if self.forecasting is not None:
            self.forecasting.lead()
        self._wake.set()

    def retire(self) -> None:
        """Decide nothing more; what was decided is still carried out."""
        self.leading = False

    # --- the loop ---

    async def run(self) -> None:
        """Runs until cancelled. An error about one object never stops the others, nor does one that nobody thought of."""
        while True:
            await self._part_of_loop(self._woken)
            self._wake.clear()
            self._part("events", self.absorb)
            if not self.leading:
                self._part("standing by", self._drop_marks)
            else:
                self._part("decisions", self.act)

    def _drop_marks(self) -> None:
        """What changed waits here until this process leads; for what is gone nothing need wait."""
        if self._marks() < self._most_marks:
            return
        self.mirror.drop_marks()
        for waiting in (self.footprints.dirty, self.pods.dirty, self.pod_owners.changed):
            waiting.intersection_update(self.mirror.objects[kube.WORKLOADS])
        self._most_marks = max(MARKS, 2 * self._marks())

    def _marks(self) -> int:
        return sum(map(len, (self.mirror.dirty, self.mirror.loose, self.footprints.dirty, self.pods.dirty)))

    async def _part_of_loop(self, wait: Callable[[], Awaitable[None]]) -> None:
        try:
            await wait()
        except Exception:
            self.quarantine.failures["waiting", ""] += 1
            log.exception("it is not known when to look again: in a second")
            await asyncio.sleep(1.0)

    async def _woken(self) -> None:
        times = (self.engine.next_wakeup(self._now()), self.fencing.due) if self.leading else ()
        due = min((time for time in times if time is not None), default=None)
        soonest = 0.0 if self._room() else LONGEST_ROUND
        timeout = None if due is None else max(soonest, (due - self._now()) / 1000)
        try:
            async with asyncio.timeout(timeout):
                await self._wake.wait()
        except TimeoutError:
            return
        await asyncio.sleep(gathering(self._deciding, self._writer.pace))

    def absorb(self) -> None:
        """Take in everything that has arrived."""
        while self._inbox:
            resource, event = self._inbox.popleft()
            if isinstance(event, Upsert):
                key = key_of(event.obj)
            else:
                key = event.key if isinstance(event, Removed) else ""
            self.quarantine.attempt("taking it in", resource, key, partial(self._absorb, resource, event))
        for pod in self.pod_owners.provable():
            self.quarantine.attempt("taking it in", kube.PODS, key_of(pod), partial(self.take_pod, pod), pod)
        self.footprints.tell()
        for name, key in self.outliving.names():
            self.quarantine.attempt("keeping its quota", kube.WORKLOADS, key, partial(self.outliving.look, name))

    def _absorb(self, resource: Resource, event: Event) -> None:
        if resource == kube.PODS:
            self._absorb_pod(event)
        elif isinstance(event, Upsert):
            self.writes.seen(resource, event.obj)
            if resource == kube.GPU_JOBS and self.forecasting is not None:
                self.forecasting.forecasts.note_job(event.obj)
        elif isinstance(event, Removed):
            self.quarantine.forget(resource, event.key)
            self.writes.gone(resource, event.key, event.uid)
            if resource == kube.WORKLOADS:
                self.decisions.forget(event.key)
                self.notices.forget(event.key)

    def _absorb_pod(self, event: Event) -> None:
        if isinstance(event, Upsert):
            self.take_pod(event.obj)
        elif isinstance(event, Removed):
            self.quarantine.forget(kube.PODS, event.key)
            self.pod_owners.forget(event.key, gone=True)
            self.footprints.remove(event.key)
            self.steering.remove(event.key)
            self.pods.remove(event.key)
        else:
            self.mirror.know_pods()

    def take_pod(self, pod: Json) -> None:
        """The newest version of a pod. One that can't prove its gang is a stranger's, and keeps its gates for the time being."""
        gang = self.pod_owners.gang_of(pod)
        if gang is None and claim(pod) is not None:
            self.steering.remove(key_of(pod))
        else:
            self.steering.upsert(in_gang(pod, gang))
        pod = in_gang(pod, gang)
        self.footprints.upsert(pod)
        self.stalls.note_pod(pod)
        self.pods.upsert(pod)

    def act(self) -> None:
        """Decide, and bring every job whose circumstances changed one step further."""
        before = time.thread_time()
        with self._metrics.decide.time():
            decisions = self.engine.decide(self._now(), self._room())
        self._deciding = time.thread_time() - before
        self._metrics.decide_cpu.inc(self._deciding)
        for decision in decisions:
            about = kube.BY_KIND[decision.kind] if isinstance(decision, model.Warn) else kube.WORKLOADS
            key = decision.about if isinstance(decision, model.Warn) else decision.workload
            if not self.quarantine.attempt(CARRYING_OUT, about, key, partial(self.decisions.carry_out, decision)):
                self._observe(model.WriteFailed(key))  # nothing is held by what was not written
        self._part("nodes", self._note_unhealthy_nodes)
        self._part("leaving", self._note_leaving)
        self._part("recoveries", lambda: self.recoveries.follow(self._now()))
        self._part("fencing", lambda: self.fencing.act(self._now()))
        for ref in sorted(self._take_dirty(), key=lambda ref: ref[1]):
            if not self.quarantine.attempt("planning it", *ref, partial(self._plan, ref)):
                self._retry_later(ref)
        for workload in self._take_loose():
            self.quarantine.attempt("tidying it", kube.WORKLOADS, key_of(workload), partial(self._tidy, workload))
        self._part("places", self._place_pods)
        self._part("steering", self._steer_pods)
        self._part("queues", self.queues.flush)

    def _part(self, name: str, work: Callable[[], None]) -> None:
        """One part of a round. What it can't do is said, and the others do theirs."""
        try:
            work()
        except Exception:
            self.quarantine.failures[name, ""] += 1
            log.exception("%s failed in this round", name)

    def _room(self) -> int:
        return room(self._writer.pace, self._writer.urgent)

    def _lingers(self, job: Json, children: Children, workloads: Iterable[Json]) -> bool:
        """Pods of a job that is being stopped still run."""
        jobs = {job["metadata"]["name"], *(child["metadata"]["name"] for child in children.jobs)}
        leaving = [workload for workload in workloads if job_plan.leaving(job, workload)]
        return any(lingering(self.footprints.of(key_of(w)), jobs, self.mirror.objects[kube.NODES].get) for w in leaving)

    def _note_leaving(self) -> None:
        """Jobs that are being stopped are looked at again when their pods or their nodes change: the last pod to go ends it."""
        claimed, self.pod_owners.changed = self.pod_owners.changed, set()
        touched = {pod.workload for node in self.mirror.touched_nodes for pod in self.footprints.on(node)}
        self.mirror.loose |= self._kept if self.mirror.touched_nodes else self._kept & (self.footprints.dirty | claimed)
        for key in self.footprints.dirty | touched:
            workload = self.mirror.get(kube.WORKLOADS, key)
            ref = self.mirror.job_of(workload) if workload is not None else None
            job = self.mirror.get(*ref) if ref is not None else None
            if workload is not None and ref is not None and job is not None and job_plan.leaving(job, workload):
                self.mirror.dirty.add(ref)

    def _outlive(self, workload: Json) -> None:
        """A Workload holds no quota any more; pods of it may still run."""
        self._kept.discard(key_of(workload))
        self.outliving.departed(workload, self._now())

    def _take_dirty(self) -> set[JobRef]:
        """The jobs to plan now; one with a write under way is planned when that is resolved."""
        ready = {ref for ref in self.mirror.dirty if not self._busy[ref] and ref not in self._blocked}
        self.mirror.dirty -= ready
        return ready

    def _take_loose(self) -> list[Json]:
        keys, self.mirror.loose = self.mirror.loose, set()
        found = (self.mirror.get(kube.WORKLOADS, key) for key in sorted(keys))
        return [workload for workload in found if workload is not None]

    # --- jobs ---

    def _plan(self, ref: JobRef) -> None:
        resource, key = ref
        job = self.mirror.get(resource, key)
        if job is None or job["metadata"].get("namespace") in names.EXCLUDED_NAMESPACES:
            return
        workloads = self.mirror.workloads_of(job)
        if any(self.writes.in_doubt(kube.WORKLOADS, key_of(workload)) for workload in workloads):
            return  # the answer marks the job again
        children = self.mirror.children_of(job)
        view = plan_steps.JobView(
            kind=JOB_KINDS[resource],
            job=job,
            workloads=workloads,
            children=children,
            managed_ancestor=self.mirror.managed_ancestor(job),
            held_back=any(holds_back(w, self.footprints.of(key_of(w))) for w in workloads),
            torn=any(self.recoveries.torn(key_of(w)) for w in workloads),
            lingering=self._lingers(job, children, workloads),
        )
        try:
            planned = limited(lambda: job_plan.plan(view, self.mirror))
        except JobError as error:
            self._recorder.record(job, "Warning", "ErrWorkloadCompose", str(error))
            self._retry_later(ref)
            return
        for step in planned:
            self._carry_out(ref, job, step)

    def _carry_out(self, ref: JobRef, job: Json, step: plan_steps.Step) -> None:
        resource, _ = ref
        match step:
            case plan_steps.PatchJob(patch):
                urgent = not patch.subresource or JOB_KINDS[resource].owns_children is False
                self.writes.send(
                    ObjectKey.of(resource, job),
                    "status" if patch.subresource else "patch",
                    _fenced(job, patch.body),
                    priority=Priority.START_STOP if urgent else Priority.STATUS,
                    owner=ref,
                )
                self._busy[ref] += 1
            case plan_steps.Own(Create(child, body)):
                self.writes.send(ObjectKey.of(child, body), "create", body, priority=Priority.START_STOP, owner=ref)
                self._busy[ref] += 1
            case plan_steps.Own(Delete(child, namespace, name, uid, propagation)):
                key = ObjectKey(child, namespace, name)
                self.writes.delete(key, uid=uid, propagation=propagation, priority=Priority.START_STOP, owner=ref)
                self._busy[ref] += 1
            case plan_steps.CreateWorkload(body):
                key = ObjectKey.of(kube.WORKLOADS, body)
                self.writes.send(key, "create", body, priority=Priority.LIFECYCLE, owner=ref)
                self._busy[ref] += 1
            case plan_steps.DeleteWorkload(workload):
                key = ObjectKey.of(kube.WORKLOADS, workload)
                self.writes.delete(key, uid=workload["metadata"]["uid"], priority=Priority.LIFECYCLE, owner=ref)
                self._busy[ref] += 1
            case plan_steps.PatchWorkload(workload, body):
                self._patch_workload(workload, body, owner=ref)
                self._busy[ref] += 1
            case plan_steps.ChangeStatus(workload, slot, change):
                done = self._finished if slot == "finish" else None
                self.writes.change(key_of(workload), slot, change, priority=Priority.LIFECYCLE, owner=ref, done=done)
                self._busy[ref] += 1
            case plan_steps.Note(kind, reason, message):
                self._recorder.record(job, kind, reason, message)

    def _patch_workload(self, workload: Json, body: Json, *, owner: JobRef | None) -> None:
        key = ObjectKey.of(kube.WORKLOADS, workload)
        self.writes.send(key, "patch", _fenced(workload, body), priority=Priority.LIFECYCLE, owner=owner)

    def _resolved(self, owner: JobRef | None, error: ApiError | None, key: ObjectKey) -> None:
        """A write is through, or refused for good: its job goes on from what is true now."""
        self._wake.set()
        if owner is None:
            return
        self._busy[owner] -= 1
        if self._busy[owner] <= 0:
            del self._busy[owner]
        self.mirror.dirty.add(owner)
        if error is None:
            self._refused.pop(owner, None)
            return
        job = self.mirror.get(*owner)
        if job is not None and not self.writes.expected(error):
            log.warning("%s: %s: %s", owner[1], key, error)
            self._recorder.record(job, "Warning", "WriteRefused", f"{key.resource.kind} {key.name}: {error.message}")
            self._report_refusal(owner, job, key, error)
            self._retry_later(owner)

    def _report_refusal(self, owner: JobRef, job: Json, key: ObjectKey, error: ApiError) -> None:
        """A kind that owns children says in its own status which of them the API server does not accept."""
        kind = JOB_KINDS[owner[0]]
        if not isinstance(kind, AnswersRefusals) or key.resource not in (kube.JOBS, kube.SERVICES):
            return
        patch = kind.rejected(job, error.message)
        if patch is not None:
            self.writes.send(
                ObjectKey.of(owner[0], job), "status", patch.body, priority=Priority.STATUS, slot="rejected"
            )

    def _retry_later(self, ref: JobRef) -> None:
        """A step of this job was refused: the others go on, this one is tried again after a growing pause."""
        tries = self._refused[ref] = self._refused.get(ref, 0) + 1
        self._blocked.add(ref)

        def again() -> None:
            self._blocked.discard(ref)
            self.mirror.dirty.add(ref)
            self._wake.set()

        asyncio.get_running_loop().call_later(min(MAX_RETRY, 2.0 ** (tries - 1)), again)

    # --- telling people ---

    def _finished(self, workload: Json | None) -> None:
        row = conditions.find(workload["status"].get("conditions"), names.FINISHED) if workload is not None else None
        if workload is not None and row is not None:
            self.notices.tell("Finished" if row["reason"] == "Succeeded" else "Failed", workload, row["message"])

    def foresees(self, workload: str, start: ExpectedStart) -> None:
        """It is expected to start then: whoever was told another time may want to know."""
        raw = self.mirror.get(kube.WORKLOADS, workload)
        if raw is not None and self.leading:
            self.notices.expects(raw, start.p50, start.because)

    async def _read_secret(self, namespace: str, name: str) -> Mapping[str, str]:
        """The operator reads the Secrets that it was granted by name, and no others."""
        try:
            return (await self._client.get(kube.SECRETS, namespace, name)).get("data") or {}
        except Forbidden as error:
            grant = f"gangline rbac --notify-secret {namespace}/{name} | kubectl apply -f -"
            raise Forbidden(error.status, error.reason, f"{error.message}; to grant it: {grant}") from error

    def _cannot_notify(self, receiver: Receiver, why: str) -> None:
        """The policies that name the receiver say so."""
        wanted = (receiver.namespace, receiver.name)
        for policy in self.mirror.objects[kube.QUEUE_POLICIES].values():
            secrets = [rule["secretRef"] for rule in policy["spec"].get("notify") or ()]
            if any((ref.get("namespace", names.SYSTEM_NAMESPACE), ref["name"]) == wanted for ref in secrets):
                self._recorder.record(policy, "Warning", "NotificationFailed", why)

    # --- pods ---

    def _place_pods(self) -> None:
        """Let the pods of placed gangs go where their gang has room for them."""
        changed = self.pods.dirty | self.mirror.placed
        self.pods.dirty, self.mirror.placed = set(), set()
        for key in sorted(changed):
            self.quarantine.attempt("placing its pods", kube.WORKLOADS, key, partial(self._place_pods_of, key))

    def _place_pods_of(self, key: str) -> None:
        pods = self.pods.of(key)
        workload, raw = self.mirror.workload_value(key), self.mirror.get(kube.WORKLOADS, key)
        if not pods or workload is None or raw is None or self.writes.in_doubt(kube.WORKLOADS, key):
            return
        for pod, body in ungating(workload, raw["spec"].get("podSets") or (), pods):
            target = ObjectKey.of(kube.PODS, pod)
            if not self._writer.pending(target):
                self._writer.submit(Write(target, "patch", body, priority=Priority.START_STOP, on_done=self.take_pod))

    def _steer_pods(self) -> None:
        """Let the pods of gangs that take whole domains go where their gang is counted on."""
        for pod, body in self.steering.released(self._whole_domains, self.engine.domains_of):
            target = ObjectKey.of(kube.PODS, pod)
            if not self._writer.pending(target):
                self._writer.submit(Write(target, "patch", body, priority=Priority.START_STOP, on_done=self.take_pod))

    def _whole_domains(self, workload: str) -> dict[str, str]:
        value = self.mirror.workload_value(workload)
        return {pod_set.name: pod_set.exclusive for pod_set in value.pod_sets} if value is not None else {}

    def _note_unhealthy_nodes(self) -> None:
        """Where a policy leaves failed nodes to Kubernetes, placed gangs are mended as Kueue does it."""
        if not self.mirror.leaves_to_kubernetes() or not (self.mirror.touched_nodes or self.footprints.dirty):
            return
        for key in self.mirror.placed_workloads():
            value, policy = self.mirror.workload_value(key), self._recovery_of(key)
            if value is None or policy is None or policy.enabled or self.writes.in_doubt(kube.WORKLOADS, key):
                continue
            hosts = unhealthy_nodes.failed_hosts(value, self.footprints.of(key), self.mirror.node_of)
            if hosts:
                self.writes.change(key, "unhealthy", unhealthy_nodes.note(hosts), priority=Priority.LIFECYCLE)

    def _pod_counts(self, workload: str) -> dict[str, int]:
        value = self.mirror.workload_value(workload)
        return {pod_set.name: pod_set.count for pod_set in value.pod_sets} if value is not None else {}

    def _recovery_of(self, workload: str) -> model.Recovery | None:
        """What is to be done for a gang when its nodes fail; None for one that is no more."""
        value = self.mirror.workload_value(workload)
        if value is None:
            return None
        local_queue = self.mirror.get(kube.LOCAL_QUEUES, f"{value.namespace}/{value.queue}") or {"spec": {}}
        waiting_in = local_queue["spec"].get("clusterQueue", "")
        return self.mirror.recovery_of(value.admission.cluster_queue if value.admission else waiting_in)

    # --- workloads without a job ---

    def _tidy(self, workload: Json) -> None:
        """A Workload that no job of ours stands behind: what was evicted or deleted is free once nothing of it runs."""
        key = key_of(workload)
        self._kept.discard(key)
        if self.mirror.job_of(workload) is not None or self.writes.pending(kube.WORKLOADS, key):
            return
        if deleting(workload):
            if self.outliving.runs(key):
                self._kept.add(key)
                return
            for step in job_plan.drop_finalizer(workload):
                self._patch_workload(workload, step.body, owner=None)
            return
        unowned = not workload["metadata"].get("ownerReferences")
        if unowned and job_plan.has(workload, names.EVICTED) and job_plan.reserved(workload):
            self.decisions.release(key)

    def _complain(self, obj: Json, error: Exception) -> None:
        """An object can't be read: its last good reading stands."""
        resource = kube.BY_KIND.get(str(obj.get("kind")), kube.WORKLOADS)
        self.quarantine.note("reading it", resource, key_of(obj), error, obj)

    def _fault(self, fault: Fault) -> None:
        """The engine leaves out what it can't deal with."""
        if resource := _RESOURCES.get(fault.kind):
            self.quarantine.note("deciding about it", resource, fault.key, fault.error)
        else:
            self.quarantine.failures["deciding", fault.kind.__name__] += 1
            log.error("the engine goes on without %s %s: %s", fault.kind.__name__, fault.key, describe(fault.error))

    def _tell_trouble(self, subject: Subject, obj: Json | None, what: str) -> None:
        """Say on the object, and of a Workload in its condition, what is wrong with it."""
        resource, key = subject
        found = obj or (self.mirror.get(resource, key) if resource in self.mirror.objects else None)
        if found is not None and self.leading:
            self._recorder.record(found, "Warning", "Misconfigured", what)
            if resource == kube.WORKLOADS:
                self.decisions.misconfigured(key, what)


def _fenced(obj: Json, body: Json) -> Json:
    """The patch, to be refused if the object has changed since."""
    return {**body, "metadata": {**body.get("metadata", {}), "resourceVersion": obj["metadata"]["resourceVersion"]}}
