"""Watches running gangs for hangs, where a QueuePolicy asks for it: reads reports and telemetry, judges, and acts.

While no policy asks, nothing happens and only reports are kept. A conclusion is recorded in the Workload's Stalled condition, so
that a restart repeats no action; only the evidence is gathered again. This module carries out the actions Notify and Restart; the
engine carries out Requeue, which it reads from the condition.

Pod telemetry over time: since when each pod is idle, and since when it has written nothing to its log. Pure.

A gap in the readings is not evidence: spans start again after it.
"""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, Final

from gangline.api import names, quantity
from gangline.api.phases import CONVERGED, PROGRESSING, WATCHING, PhasePolicy
from gangline.api.read import conditions, policy_reader
from gangline.api.read.parse import ParseError
from gangline.api.read.policy_reader import StallPolicy
from gangline.control.feed.pod import Pod
from gangline.control.feed.pod_index import PodReported
from gangline.control.feed.watched_kinds import JOB_KINDS
from gangline.control.kernel.context import Context
from gangline.control.nodes.stall import phases, progress_reports, stall_verdict
from gangline.control.nodes.stall.phases import Phase
from gangline.control.nodes.stall.progress_reports import BadReportError, Beat, Progress
from gangline.control.nodes.stall.stall_verdict import RUNNING, STALLED, StallEvidence, StallState, StallVerdict
from gangline.control.parts.messages import GpusMeasured, OwnPaceEnded, StepReported
from gangline.control.parts.part import Part
from gangline.control.writes.outgoing import Priority
from gangline.control.writes.status import run_changes
from gangline.engine import model
from gangline.engine.model import Millis
from gangline.jobs.base import Restarts
from gangline.kube import resources as kube
from gangline.kube.resources import Json, ObjectKey
from gangline.objects import JobObject, Stored, WorkloadObject
from gangline.telemetry import Reading, ReadingSource, SourceError

log = logging.getLogger(__name__)


#: GPUs that compute for less than this share of the time are idle …
IDLE: Final = 0.01
#: … and so are those that draw less than this multiple of their idle power
LOW_POWER: Final = 1.15
#: A reading older than this is stale, in milliseconds.
STALE: Final[Millis] = 300_000


@dataclass(slots=True)
class PodTelemetry:
    """The readings of one pod combined. Times are in milliseconds since the epoch; None = not the case, or unknown."""

    at: Millis = 0
    idle_since: Millis | None = None
    low_power_since: Millis | None = None
    gpu: float | None = None  # as in the last reading …
    gpu_memory: float | None = None
    measured: bool = False  # its GPUs' activity is measured …
    powered: bool = False  # … and so is their power
    kernel_age: Millis | None = None
    logged_at: Millis | None = None
    xids: set[int] = field(default_factory=set[int])
    _log_bytes: float | None = None
    _first_xid: int | None = None

    def take(self, reading: Reading) -> None:
        """Process a reading; readings older than the last are ignored."""
        at = round(reading.at * 1000)
        if at <= self.at:
            return
        if self.at and at - self.at > STALE:
            self.idle_since = self.low_power_since = None
            self.logged_at = at if self.logged_at is not None else None
        self.at = at
        self.gpu, self.gpu_memory = reading.gpu, reading.gpu_memory
        self.measured, self.powered = reading.gpu is not None, reading.power is not None
        self.idle_since = _since(self.idle_since, reading.gpu is not None and reading.gpu < IDLE, at)
        self.low_power_since = _since(self.low_power_since, reading.power is not None and reading.power < LOW_POWER, at)
        self.kernel_age = None if reading.kernel_age is None else round(reading.kernel_age * 1000)
        self._logs(reading.log_bytes, at)
        self._errors(reading.xid)

    def _logs(self, written: float | None, at: Millis) -> None:
        if written is not None and written != self._log_bytes:
            self._log_bytes, self.logged_at = written, at

    def _errors(self, xid: int | None) -> None:
        """Collect new GPU errors. The gauge keeps its last error, so an error shown before this pod began is not this pod's."""
        if xid is None:
            return
        if self._first_xid is None:
            self._first_xid = xid
        elif xid and xid != self._first_xid:
            self.xids.add(xid)


def _since(before: Millis | None, holds: bool, at: Millis) -> Millis | None:
    if not holds:
        return None
    return at if before is None else before


def with_telemetry(evidence: StallEvidence, pods: Sequence[PodTelemetry], now: Millis) -> StallEvidence:
    """The evidence with the telemetry of the gang's pods; stale readings are left out."""
    fresh = [pod for pod in pods if now - pod.at < STALE]
    logged = [pod.logged_at for pod in fresh if pod.logged_at is not None]
    complete = len(logged) >= evidence.pods
    return replace(
        evidence,
        idle=_spans((pod.idle_since for pod in fresh if pod.measured), now),
        low_power=_spans((pod.low_power_since for pod in fresh if pod.powered), now),
        kernel_age=tuple(pod.kernel_age for pod in fresh if pod.kernel_age is not None),
        log_silence=now - max(logged) if complete and logged else None,
        xids=tuple(sorted({xid for pod in fresh for xid in pod.xids})),
    )


def _spans(since: Iterable[Millis | None], now: Millis) -> tuple[Millis, ...]:
    return tuple(0 if start is None else max(1, now - start) for start in since)


#: Runs are looked at this many times within the shortest time that a policy names …
LOOKS: Final = 5
#: … but no more and no less often than this, in seconds.
SOONEST, LATEST = 1.0, 30.0
#: Where no policy asks for readings, those who ask for the use of GPUs share one of this age, in milliseconds.
SHARED: Final[Millis] = 15_000
#: How often to look for a policy while there is none, in seconds.
IDLE_PERIOD: Final = 5.0
#: how many workloads are looked at before other tasks get their turn
AT_ONCE: Final = 200
#: values of the job's annotation that switch the watch off
OPTED_OUT: Final = frozenset({"none", "off", "false"})
#: The engine observes the estimate from a run's own pace when its q50 moved by this share, and at most this often (ms).
MATERIAL, PACE_PERIOD = 0.05, 10_000


@dataclass(slots=True)
class _Run:
    """One run of one workload; it ends with its admission."""

    uid: str
    admitted_at: model.Millis
    #: since when this process receives its reports
    since: model.Millis
    watch: StallState = field(default_factory=StallState)
    progress: Progress | None = None
    #: of the job ("") and of pods the hash of the last annotation that was read. A gang can have any number of pods one after the
    #: other: of more than so many the first ones are forgotten.
    read: dict[str, int] = field(default_factory=dict[str, int])
    #: the last reported estimate from its own pace, and when it was reported
    estimate: model.RuntimeForecast | None = None
    estimated_at: model.Millis = 0
    #: the phase of its training, where a policy asks for it and it reports a metric
    phase: Phase | None = None


class StallWatch(Part):
    """Watches running gangs: `observe` receives estimates from their own pace, `source` provides telemetry."""

    name = "stalls"

    def __init__(
        self, context: Context, observe: Callable[[model.Change], None], *, source: ReadingSource | None = None
    ) -> None:
        self._quarantine = context.quarantine
        self._mirror = context.mirror
        self._writes = context.writes
        self._pods = context.pods
        self._observe = observe
        self._recorder = context.recorder
        self._metrics = context.metrics
        self._notices = context.notices
        self._messages = context.messages
        self._now = context.now
        self._source = source
        self._runs: dict[str, _Run] = {}
        self._telemetry: dict[str, PodTelemetry] = {}
        self._source_failed = False
        self._asked_at: Millis = 0
        self._asking = asyncio.Lock()
        context.messages.subscribe(PodReported, lambda message: self.note_pod(message.pod))

    # --- policies ---

    def policies(self) -> dict[str, StallPolicy]:
        """ClusterQueue -> its stall policy; empty where no policy has one."""
        if not self._asked():
            return {}
        found: dict[str, StallPolicy] = {}
        for name, queue in self._mirror.objects[kube.CLUSTER_QUEUES].items():
            chosen = policy_reader.stall(self._mirror.policy_of(queue))
            if chosen is not None:
                found[name] = chosen
        return found

    def _asked(self) -> bool:
        return any("stall" in policy.spec for policy in self._mirror.objects[kube.QUEUE_POLICIES].values())

    # --- reports ---

    def report(self, namespace: str, name: str, uid: str, body: Any) -> None:
        """Process a report that was posted for a Workload. The poster proves its right by the Workload's uid.

        Raises BadReportError for an unreadable report, LookupError where no such workload runs.
        """
        value = self._mirror.workload_value(f"{namespace}/{name}")
        if value is None or value.uid != uid or not value.admitted:
            raise LookupError(f"no such workload is running: {namespace}/{name}")
        self._take(value, progress_reports.read(body, self._now()))

    def note_pod(self, pod: Pod) -> None:
        """Process a report from a pod's annotation."""
        value = self._mirror.workload_value(pod.workload)
        if value is not None and value.admitted:
            self._read_annotation(value, pod.name, pod.progress)

    def _read_annotation(self, value: model.Workload, pod: str, text: str) -> None:
        """Read an annotation; an unchanged text is not a new report."""
        run = self._run_of(value)
        if run.read.get(pod) == hash(text):
            return
        run.read[pod] = hash(text)
        if len(run.read) > progress_reports.MOST_PODS:
            del run.read[next(iter(run.read))]
        try:
            beat = progress_reports.read_annotation(text, self._now())
        except BadReportError as error:
            log.info("%s: annotation %s: %s", value.key, names.PROGRESS, error)
            return
        self._take(value, beat if beat.pod else replace(beat, pod=pod))

    def _run_of(self, value: model.Workload) -> _Run:
        run = self._runs.get(value.key)
        if run is None or run.uid != value.uid or run.admitted_at != value.admitted_at:
            watch = StallState(STALLED, self._now()) if value.stalled else StallState()
            run = self._runs[value.key] = _Run(value.uid, value.admitted_at, self._now(), watch)
        return run

    def _take(self, value: model.Workload, beat: Beat) -> None:
        run = self._run_of(value)
        before = run.progress.step if run.progress is not None else None
        if run.progress is None:
            run.progress = Progress.begin(beat)
        else:
            run.progress.take(beat)
        if run.progress.step is not None:
            self._messages.publish(StepReported(value.key, beat.at, run.progress.step))
        self._report_pace(value, run, run.progress, beat.at)
        if beat.metric is not None and not run.progress.quiet:
            now_at = run.progress.step
            self._follow_phase(
                value, run, beat, restarted=before is not None and now_at is not None and now_at < before
            )

    # --- phases ---

    def _follow_phase(self, value: model.Workload, run: _Run, beat: Beat, *, restarted: bool) -> None:
        """Take a metric, and record the phase of the run where that is another one."""
        policy = self._phase_policy(value)
        raw = self._mirror.workloads.get(value.key)
        if policy is None or raw is None or beat.metric is None:
            return
        if run.phase is None or run.phase.policy != policy:
            run.phase = _phase_of(raw, policy)
        if restarted:
            run.phase.begin_anew()
        if not run.phase.take(beat.at, beat.metric):
            return
        change = run_changes.converged(run.phase.name, run.phase.text)
        self._writes.change(value.key, "phase", change, priority=Priority.STATUS)

    def _phase_policy(self, value: model.Workload) -> PhasePolicy | None:
        if value.admission is None or not self._mirror.objects[kube.QUEUE_POLICIES]:
            return None
        queue = self._mirror.get(kube.CLUSTER_QUEUES, value.admission.cluster_queue)
        try:
            return policy_reader.phases(self._mirror.policy_of(queue)) if queue is not None else None
        except ParseError:  # it is in force nowhere
            return None

    def phases(self) -> Counter[str]:
        """How many runs are in each phase, of those whose phase is known."""
        return Counter(run.phase.name for run in self._runs.values() if run.phase is not None)

    def _report_pace(self, value: model.Workload, run: _Run, progress: Progress, now: model.Millis) -> None:
        """Report the runtime estimate from the run's own pace, which is the best one."""
        if now - run.estimated_at < PACE_PERIOD or not self._mirror.objects[kube.QUEUE_POLICIES]:
            return
        forecast = progress.forecast(value.key, value.admitted_at)
        if forecast is not None and _moved(run.estimate, forecast):
            run.estimate, run.estimated_at = forecast, now
            self._observe(model.Put(forecast))

    def knows_better(self, workload: str) -> bool:
        """Whether this module has reported a runtime estimate of the workload to the engine."""
        run = self._runs.get(workload)
        return run is not None and run.estimate is not None

    # --- the loop ---

    async def run(self, leading: Callable[[], bool]) -> None:
        """Run until cancelled."""
        while True:
            chosen = self.policies() if leading() else {}
            await asyncio.sleep(_period(chosen.values()) if chosen else IDLE_PERIOD)
            self._forget_ended()
            if not chosen or not leading():
                continue
            try:
                self.take_readings(await self._readings())
                keys = list(self._mirror.workloads)
                for first in range(0, len(keys), AT_ONCE):
                    self.look(chosen, keys[first : first + AT_ONCE])
                    await asyncio.sleep(0)  # decisions go first
            except Exception:
                log.exception("running workloads could not be checked for hangs")

    async def close(self) -> None:
        if self._source is not None:
            await self._source.close()

    async def _readings(self) -> list[Reading]:
        if self._source is None:
            return []
        try:
            found = await self._source.read()
        except SourceError as error:
            if not self._source_failed:
                log.warning("telemetry: %s; stalls are judged without it", error)
            self._source_failed = True
            return []
        self._source_failed = False
        return found

    async def refresh(self) -> None:
        """Read telemetry for somebody who asks, unless it is read anyway, or was read for another one just now."""
        async with self._asking:
            if self._source is None or self.policies() or self._now() - self._asked_at < SHARED:
                return
            self._asked_at = self._now()
            for reading in await self._readings():
                self._telemetry.setdefault(reading.key, PodTelemetry()).take(reading)

    def of_pod(self, key: str) -> PodTelemetry | None:
        """What is measured of a pod, if it was lately."""
        found = self._telemetry.get(key)
        return found if found is not None and self._now() - found.at < STALE else None

    def take_readings(self, readings: list[Reading]) -> None:
        for reading in readings:
            pod = self._telemetry.setdefault(reading.key, PodTelemetry())
            before = pod.at
            pod.take(reading)
            if reading.gpu is not None and before and 0 < pod.at - before <= STALE:
                self._messages.publish(GpusMeasured(reading.key, (pod.at - before) / 1000, reading.gpu < IDLE))

    def _forget_ended(self) -> None:
        """Forget ended runs and deleted pods."""
        for key, run in list(self._runs.items()):
            value = self._mirror.workload_value(key)
            if value is None or value.uid != run.uid or not value.admitted or value.finished:
                del self._runs[key]
                if run.estimate is not None:
                    self._observe(model.Gone(model.RuntimeForecast, key))
                    self._messages.publish(OwnPaceEnded(key))
        horizon = self._now() - 3_600_000
        for key in [key for key, seen in self._telemetry.items() if seen.at < horizon]:
            del self._telemetry[key]

    def look(self, chosen: dict[str, StallPolicy], workloads: Iterable[str]) -> None:
        """Judge the workloads that run in queues with a stall policy."""
        for key in workloads:
            value = self._mirror.workload_value(key)
            if value is None or not value.admitted or value.admission is None or value.evicted or value.finished:
                continue
            policy = chosen.get(value.admission.cluster_queue)
            if policy is not None and value.pods_ready:
                attempt = partial(self._judge, value, policy)
                self._quarantine.attempt("checking whether the workload hangs", kube.WORKLOADS, key, attempt)

    def _judge(self, value: model.Workload, policy: StallPolicy) -> None:
        raw = self._mirror.workloads.get(value.key)
        if raw is None or self._writes.in_doubt(kube.WORKLOADS, value.key):
            return
        job = self._job(raw)
        annotations = (job or raw).annotations
        if annotations.get(names.STALL, "").lower() in OPTED_OUT:
            return
        if report := annotations.get(names.PROGRESS):
            self._read_annotation(value, "", report)
        run, now = self._run_of(value), self._now()
        if value.stalled and _since_stalled(raw) < value.pods_ready_at:
            run.watch = StallState()
            self._is_over(value, "Restarted", "The pods have been restarted since")
            return
        verdict = stall_verdict.judge(self._evidence(value, run, job or raw, now), policy)
        if run.watch.follow(verdict, policy, now):
            if run.watch.state == STALLED:
                self._act(value, raw, job, policy, verdict)
            elif run.watch.state == RUNNING and value.stalled:
                self._is_over(value, "Recovered", "The workload shows signs of life again")
        if verdict.idle and run.watch.state == RUNNING:
            self._idle(value, raw, verdict)

    def _evidence(self, value: model.Workload, run: _Run, job: Stored, now: model.Millis) -> StallEvidence:
        progress, admission = run.progress, value.admission
        pods = sum(p.count - value.reclaimable.get(p.name, 0) for p in admission.pod_sets) if admission else 0
        started = max(value.pods_ready_at, value.admitted_at)
        evidence = StallEvidence(
            running_for=now - started,
            unreported=now - max(started, run.since),
            silence=progress.silence(now) if progress is not None else None,
            heartbeat=_promised(job),
            median_step=progress.median_step if progress is not None else None,
            quiet=progress.quiet if progress is not None else False,
            pods=max(1, pods),
            overdue=value.overrun == "Overdue",
        )
        seen = (self._telemetry.get(pod.key) for pod in self._pods.of(value.key) if pod.alive)
        return with_telemetry(evidence, [found for found in seen if found is not None], now)

    def _job(self, raw: WorkloadObject) -> JobObject | None:
        ref = self._mirror.job_of(raw)
        return self._mirror.job(ref) if ref is not None else None

    # --- what is done ---

    def _act(
        self,
        value: model.Workload,
        raw: WorkloadObject,
        job: JobObject | None,
        policy: StallPolicy,
        verdict: StallVerdict,
    ) -> None:
        action = policy.action
        if action != "Notify" and _times_stalled(raw) >= policy.max_actions:
            action = "Notify"
        restart = self._restart(raw, job, verdict.says) if action == "Restart" else None
        if action == "Restart" and restart is None:
            action = "Requeue"
        follows = {
            "Notify": "",
            "Restart": "; the gang is restarted",
            "Requeue": "; the workload is stopped and queued again",
        }[action]
        message = f"The workload hangs: {verdict.says}{follows}"

        def done(answer: WorkloadObject | None) -> None:
            if answer is None:
                return
            self._recorder.record(answer, "Warning", "Stalled", message)
            self._metrics.stalled(action)
            self._notices.notify("Stalled", answer, message)
            if restart is not None:
                self._writes.send(*restart, priority=Priority.START_STOP, slot="restart")

        change = run_changes.stalled(True, action, message)
        self._writes.change(value.key, "stalled", change, priority=Priority.LIFECYCLE, done=done)

    def _restart(self, raw: WorkloadObject, job: JobObject | None, why: str) -> tuple[ObjectKey, Any, Json] | None:
        """The write that restarts the gang in place; None where its kind, or its own limit, does not allow it."""
        ref = self._mirror.job_of(raw)
        kind = JOB_KINDS[ref[0]] if ref is not None else None
        if ref is None or job is None or not isinstance(kind, Restarts):
            return None
        patch = kind.restart(job, "Stalled", f"The workload hung: {why}", conditions.timestamp(self._now()))
        if patch is None:
            return None
        version = {"metadata": {"resourceVersion": job.resource_version}}
        return ObjectKey.of(ref[0], job), "status", {**version, **patch.body}

    def _is_over(self, value: model.Workload, reason: str, message: str) -> None:
        change = run_changes.stalled(False, reason, message)
        self._writes.change(value.key, "stalled", change, priority=Priority.LIFECYCLE)

    def _idle(self, value: model.Workload, raw: WorkloadObject, verdict: StallVerdict) -> None:
        """Report a live gang whose GPUs are idle, once per run, because the GPUs are paid for."""
        row = raw.condition(names.STALLED)
        if row is not None and (row["status"] == "True" or row["reason"] == run_changes.IDLE):
            return
        message = f"The workload holds GPUs that it does not use: {verdict.says}"

        def done(answer: WorkloadObject | None) -> None:
            if answer is not None:
                self._recorder.record(answer, "Warning", "IdleGPUs", message)
                self._notices.notify("Idle", answer, message)

        change = run_changes.stalled(False, run_changes.IDLE, message)
        self._writes.change(value.key, "stalled", change, priority=Priority.LIFECYCLE, done=done)


def _phase_of(raw: WorkloadObject, policy: PhasePolicy) -> Phase:
    """The phase of a run, as an earlier operator recorded it."""
    row = raw.condition(names.CONVERGED) or {}
    reason = row.get("reason")
    known = reason if reason in (WATCHING, CONVERGED) else PROGRESSING
    return Phase(policy, known, phases.first_growth(str(row.get("message", ""))[:1024]))


def _since_stalled(raw: WorkloadObject) -> model.Millis:
    row = raw.condition(names.STALLED) or {}
    return conditions.millis_of(row.get("lastTransitionTime"))


def _times_stalled(raw: WorkloadObject) -> int:
    """How often the workload has been evicted for a stall."""
    rows = (raw.status.get("schedulingStats") or {}).get("evictions") or ()
    return sum(row.get("count", 0) for row in rows if row.get("reason") == "Stalled")


def _promised(job: Stored) -> model.Millis | None:
    """The interval at which the run promises to report: `spec.progress.heartbeat` of a GPUJob, or the annotation. An unreadable
    value counts as none."""
    annotated = job.annotations.get(names.HEARTBEAT)
    text = (job.spec.get("progress") or {}).get("heartbeat") or annotated
    try:
        return round(quantity.parse_duration(text) * 1000) if text else None
    except quantity.QuantityError:
        return None


def _moved(old: model.RuntimeForecast | None, new: model.RuntimeForecast) -> bool:
    if old is None:
        return True
    before, after = dict(old.quantiles)[0.5], dict(new.quantiles)[0.5]
    return abs(after - before) > MATERIAL * before


def _period(chosen: Any) -> float:
    """Seconds between two looks: short enough for the shortest time that a policy names."""
    shortest = min(min(policy.after, max(policy.grace, 1), max(policy.startup, 1)) for policy in chosen)
    return min(LATEST, max(SOONEST, shortest / 1000 / LOOKS))
