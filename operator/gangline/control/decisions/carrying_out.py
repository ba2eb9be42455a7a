"""Translates each engine decision into status writes, events, metrics and notices."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Any, assert_never

from gangline.api import names
from gangline.api.read import conditions, render
from gangline.api.read.counting import namespace_rules
from gangline.api.read.reading import ParseError
from gangline.control.feed import slices
from gangline.control.kernel.context import Context
from gangline.control.metrics.recording import queued_since
from gangline.control.nodes.recovery.swaps import Recoveries
from gangline.control.parts.messages import EvictionWanted
from gangline.control.parts.part import Part
from gangline.control.writes import decision_log
from gangline.control.writes.outgoing import Priority
from gangline.control.writes.status import gate_changes, older_words, run_changes, status_changes
from gangline.control.writes.status.change import Change
from gangline.engine import OVERRUN_STATES, model
from gangline.jobs.pods import composition
from gangline.kube import resources as kube
from gangline.kube.reflector import Event, Removed
from gangline.kube.resources import Json, ObjectKey, Resource
from gangline.objects import Stored, WorkloadObject

#: What a workload waits for changes with the cluster. It is written at most this often per workload, in seconds …
PENDING_PERIOD = 10.0
#: … but anything that somebody has to do something about, or has just done, after this delay. The first reason waits for it, too,
#: so that a workload that is admitted at once causes no such write.
PENDING_DELAY = 1.0
#: the reasons that change with the cluster begin so
_WAITS = "WaitingFor"


class Decisions(Part):
    """Carries out the engine's decisions. `recoveries` carries out those about lost nodes; `notices` notifies users."""

    name = "pending reasons"
    kinds = (kube.WORKLOADS,)

    def __init__(self, context: Context, recoveries: Recoveries, *, older_words: bool = False) -> None:
        self._mirror = context.mirror
        self._writes = context.writes
        self._engine = context.engine
        self._recorder = context.recorder
        self._metrics = context.metrics
        self._recoveries = recoveries
        self._notices = context.notices
        self._older_words = older_words
        #: workload -> the last pending reason, and time.monotonic() of its write
        self._pending_written: dict[str, tuple[str, float]] = {}
        context.messages.subscribe(EvictionWanted, lambda message: self._write_eviction(message.decision))

    def observe(self, resource: Resource, event: Event) -> None:
        if isinstance(event, Removed):
            self._pending_written.pop(event.key, None)

    def carry_out(self, decision: model.Decision) -> None:
        match decision:
            case model.Admit():
                self._admit(decision)
            case model.ReportPending():
                self._report_pending(decision)
            case model.Preempt():
                self._preempt(decision)
            case model.Evict():
                self._evict(decision)
            case model.Withdraw():
                self._withdraw(decision)
            case model.Requeue():
                self._requeue(decision)
            case model.AskChecks():
                self._ask_checks(decision)
            case model.CompleteAdmission():
                self._complete_admission(decision)
            case model.Swap():
                self._swap(decision)
            case model.Heal():
                self._recoveries.heal(decision)
            case model.Warn():
                self._warn(decision)
            case _:
                assert_never(decision)

    # --- admission ---

    def _admit(self, decision: model.Admit) -> None:
        self._pending_written.pop(decision.workload, None)
        raw = self._mirror.workloads.get(decision.workload)
        change = status_changes.admit(decision, pods_follow=self._pods_follow(raw))
        old = self._mirror.workloads.get(slices.replacement_for(raw)) if raw is not None else None
        if raw is not None and old is not None and raw.max_execution_seconds is not None:
            change = status_changes.going_on(change, slices.ran_for(old, decision.at))
        self._assume(decision, "admission", change, Priority.ADMISSION, self._report_admitted)

    def _pods_follow(self, workload: WorkloadObject | None) -> bool:
        """Whether pods are known to follow from the Workload: it is a job's, a pod's or a pod group's."""
        return workload is not None and (self._mirror.job_of(workload) is not None or composition.is_of_pods(workload))

    def _report_admitted(self, decision: model.Admit, before: WorkloadObject, after: WorkloadObject) -> None:
        queue = decision.admission.cluster_queue
        waited = max(0, decision.at - queued_since(before)) // 1000
        decision_log.note(
            decision_log.ADMITTED if decision.admitted else decision_log.RESERVED,
            after,
            "Backfilled" if decision.backfilled else "InQueueOrder",
            waited_seconds=waited,
        )
        reserved = f"Quota reserved in ClusterQueue {queue}, wait time since queued was {waited}s"
        self._recorder.record(after, "Normal", "QuotaReserved", reserved)
        if decision.admitted:
            self._recorder.record(
                after, "Normal", "Admitted", f"Admitted by ClusterQueue {queue}, wait time since reservation was 0s"
            )
            self._notices.notify("Admitted", after, f"Admitted by ClusterQueue {queue} after a wait of {waited}s")
            self._notices.forget(decision.workload)
        self._metrics.kueue.reserved(after, queue, waited, admitted=decision.admitted)

    def _ask_checks(self, decision: model.AskChecks) -> None:
        """Write the checks of a workload into its status; of one that waits only after a while, like the reason why it waits."""
        raw = self._mirror.workloads.get(decision.workload)
        if raw is not None and not raw.quota_reserved:
            change = status_changes.list_checks(decision)
            later = time.monotonic() + PENDING_DELAY
            self._writes.change(decision.workload, "checks", change, priority=Priority.PENDING_REASON, not_before=later)
            return
        self._assume(decision, "admission", status_changes.ask_checks(decision), Priority.ADMISSION, lambda *_: None)

    def _complete_admission(self, decision: model.CompleteAdmission) -> None:
        # a slot of its own: checks may be ready when the quota is reserved, and then both are decided in one round
        raw = self._mirror.workloads.get(decision.workload)
        change = status_changes.complete_admission(pods_follow=self._pods_follow(raw))
        self._assume(decision, "completion", change, Priority.ADMISSION, self._report_completed)

    def _report_completed(
        self, decision: model.CompleteAdmission, before: WorkloadObject, after: WorkloadObject
    ) -> None:
        queue = after.status["admission"]["clusterQueue"]
        reserved = after.condition(names.QUOTA_RESERVED) or {}
        admitted = after.condition(names.ADMITTED) or {}
        waited = _seconds_between(reserved, admitted)
        decision_log.note(decision_log.ADMITTED, after, "ChecksReady", waited_seconds=waited)
        self._recorder.record(
            after, "Normal", "Admitted", f"Admitted by ClusterQueue {queue}, wait time since reservation was {waited}s"
        )
        self._notices.notify(
            "Admitted", after, f"Admitted by ClusterQueue {queue}, {waited}s after its quota was reserved"
        )
        queued = (conditions.millis_of(admitted.get("lastTransitionTime")) - queued_since(before)) / 1000
        self._metrics.kueue.admitted(after, queue, queued, waited)

    def _swap(self, decision: model.Swap) -> None:
        # a slot of its own: the admission may be completed in the same round, and both are written
        change = status_changes.replace_admission(decision)
        self._assume(decision, "places", change, Priority.ADMISSION, lambda *_: None)

    # --- eviction ---

    def _preempt(self, decision: model.Preempt) -> None:
        self._assume(decision, "evict", status_changes.preempt(decision), Priority.LIFECYCLE, self._report_preempted)

    def _report_preempted(self, decision: model.Preempt, before: WorkloadObject, after: WorkloadObject) -> None:
        decision_log.note(decision_log.PREEMPTED, after, decision.reason, by=decision.by)
        self._recorder.record(after, "Normal", "EvictedDueToPreempted", decision.message)
        preemptor = self._mirror.workloads.get(decision.by)
        if preemptor is None:
            self._recorder.record(after, "Normal", "Preempted", decision.message)
        else:
            ranks = f"preemptor {self._rank(decision.by)}; preemptee {self._rank(decision.workload)}"
            self._recorder.record(after, "Normal", "Preempted", f"{decision.message}; {ranks}")
            queue = after.admitted_by or before.admitted_by
            note = f"Preempted workload {decision.workload} (UID: {decision.uid}) in ClusterQueue {queue}; {ranks}"
            self._recorder.record(preemptor, "Normal", "PreemptedWorkload", note, one_series=True)
        self._notices.notify("Preempted", after, f"{decision.message}. Its pods have {grace_of(after)}s to stop")
        self._metrics.kueue.evicted(after, "Preempted", held=before)
        if preemptor is not None:
            self._metrics.kueue.preempted(preemptor, decision.reason)

    def _rank(self, workload: str) -> str:
        value = self._mirror.workload_value(workload)
        base = value.priority if value is not None else 0
        boosted = value is not None and self._engine.settings.gates.get("PriorityBoost", False)
        boost = value.boost if value is not None and boosted else 0
        return f"effective priority: {base + boost} (base: {base}, boost: {boost})"

    def _evict(self, decision: model.Evict) -> None:
        if decision.deactivate:
            self._deactivate(decision)
        elif decision.avoid:
            self._recoveries.give_up(decision)
        else:
            self._write_eviction(decision)

    def _write_eviction(self, decision: model.Evict) -> None:
        """Write an eviction that is not a preemption."""
        change = status_changes.evict(decision)
        self._assume(decision, "evict", change, Priority.LIFECYCLE, self._report_evicted)

    def _withdraw(self, decision: model.Withdraw) -> None:
        self._assume(decision, "evict", status_changes.withdraw(decision), Priority.LIFECYCLE, self._report_withdrawn)

    def _report_withdrawn(self, decision: model.Withdraw, before: WorkloadObject, after: WorkloadObject) -> None:
        decision_log.note(decision_log.EVICTED, after, "Withdrawn", detail=f"{decision.ended} is deleted")

    def _deactivate(self, decision: model.Evict) -> None:
        """Set `spec.active=false` first: the eviction follows from it, even if this process dies in between."""
        workload = self._mirror.workloads.get(decision.workload)
        if workload is None:
            return

        def inactive(_: Stored | None) -> None:
            self._report_cause(decision, workload)
            self._assume(decision, "evict", status_changes.evict(decision), Priority.LIFECYCLE, self._report_evicted)

        self._writes.send(
            ObjectKey.of(kube.WORKLOADS, workload),
            "patch",
            {"metadata": {"resourceVersion": workload.resource_version}, "spec": {"active": False}},
            priority=Priority.LIFECYCLE,
            slot="deactivate",
            doubt=True,
            done=inactive,
            failed=lambda _: self._engine.observe(model.WriteFailed(decision.workload)),
        )

    def _report_cause(self, decision: model.Evict, workload: WorkloadObject) -> None:
        """Record the event that Kueue has for the cause of a deactivation; other causes have none."""
        if decision.underlying_cause == "MaximumExecutionTimeExceeded":
            limit = workload.max_execution_seconds or 0
            note = f"The maximum execution time ({limit}s) exceeded"
            self._recorder.record(workload, "Warning", "MaximumExecutionTimeExceeded", note)
        elif decision.underlying_cause == "AdmissionCheck":
            why = decision.message.removeprefix("The workload is deactivated due to ")
            self._recorder.record(workload, "Warning", "AdmissionCheckRejected", f"Deactivated due to {why}")

    def _report_evicted(self, decision: model.Evict, before: WorkloadObject, after: WorkloadObject) -> None:
        named = decision.reason == "Deactivated" and decision.underlying_cause
        cause = f"DueTo{decision.underlying_cause}" if named else ""
        reason = f"EvictedDueTo{decision.reason}{cause}"
        decision_log.note(decision_log.EVICTED, after, f"{decision.reason}{cause}", detail=decision.message)
        if before.admission is None:
            return  # it waited, and lost nothing: as in Kueue, that counts in its own status alone
        self._recorder.record(after, "Normal", reason, decision.message)
        self._notices.notify("Evicted", after, decision.message)
        underlying = status_changes.cause_of(decision, before.status)
        self._metrics.kueue.evicted(after, decision.reason, underlying, held=before)
        if decision.underlying_cause == "MaximumExecutionTimeExceeded":
            self._metrics.overrun("Limit")

    # --- warnings ---

    def _warn(self, decision: model.Warn) -> None:
        state = OVERRUN_STATES.get(decision.reason) if decision.kind == "Workload" else None
        if state is not None:
            self._overran(decision, state)
            return
        about = self._mirror.get(kube.BY_KIND[decision.kind], decision.about)
        if about is not None:
            self._recorder.record(about, "Warning", decision.reason, decision.message)

    # --- jobs that overrun their forecast ---

    def _overran(self, decision: model.Warn, state: str) -> None:
        """Record the overrun in a condition, so that it is reported once even if this process restarts."""

        def written(answer: WorkloadObject | None) -> None:
            if answer is not None:
                self._recorder.record(answer, "Warning", decision.reason, f"The workload {decision.message}")
                self._metrics.overrun(state)
                self._notices.notify("Overrun", answer, f"The workload {decision.message}")

        change = run_changes.overrun(state, f"The workload {decision.message}")
        self._writes.change(decision.about, "overrun", change, priority=Priority.LIFECYCLE, done=written)

    # --- waiting ---

    def _requeue(self, decision: model.Requeue) -> None:
        self._assume(decision, "requeue", status_changes.requeue(decision), Priority.LIFECYCLE, lambda *_: None)

    def _report_pending(self, decision: model.ReportPending) -> None:
        explanation = decision.explanation

        def report(answer: WorkloadObject | None) -> None:
            gated = explanation.reason == gate_changes.GATED and not explanation.preemption_gates
            if answer is not None and gated:
                self._recorder.record(answer, "Normal", gate_changes.GATED, f"Workload {_lowered(explanation.message)}")
            elif answer is not None:
                reason = older_words.reason(explanation.reason) if self._older_words else explanation.reason
                self._recorder.record(answer, "Warning", reason, explanation.message)

        explicit = decision.by_equivalence and self._engine.settings.gates.get(
            "UnadmittedWorkloadsExplicitStatus", False
        )
        tell = status_changes.bypassed if explicit else status_changes.pending
        change = tell(explanation, self._requests(decision.workload))
        self._explain(decision.workload, explanation.reason, change, report)

    def _requests(self, workload: str) -> Sequence[Json]:
        """The requests that count for the Workload, if they differ from those of its pod templates; empty if they do not."""
        raw, value = self._mirror.workloads.get(workload), self._mirror.workload_value(workload)
        try:
            ordinary = raw is None or value is None or namespace_rules.as_written(raw, value.pod_sets)
        except ParseError:  # of a newer version than the one that was last read
            return ()
        return () if ordinary or value is None else render.resource_requests(value)

    def misconfigured(self, workload: str, message: str) -> None:
        """Explain in a condition that a Workload cannot be read and is not admitted; the message names the field."""
        explanation = model.Explanation("Misconfigured", f"resources validation failed: {message}")
        self._explain(workload, explanation.reason, status_changes.pending(explanation), lambda _: None)

    def _explain(self, workload: str, reason: str, change: Change, done: Any) -> None:
        known, since = self._pending_written.get(workload, ("", 0.0))
        not_before = time.monotonic() + PENDING_DELAY
        if known == reason or (known.startswith(_WAITS) and reason.startswith(_WAITS)):
            not_before = max(not_before, since + PENDING_PERIOD)

        def written(answer: WorkloadObject | None) -> None:
            if answer is not None:
                self._pending_written[workload] = reason, time.monotonic()
            done(answer)

        self._writes.change(
            workload, "pending", change, priority=Priority.PENDING_REASON, not_before=not_before, done=written
        )

    # --- common ---

    def _assume(
        self,
        decision: Any,
        slot: str,
        change: Change,
        priority: Priority,
        report: Any,
    ) -> None:
        """Write a status change that the engine assumes already; if the write fails, the engine is informed and decides again."""
        key: str = decision.workload
        raw = self._mirror.workloads.get(key)
        if raw is None or raw.uid != decision.uid:
            return  # the engine observes the deletion by itself
        before = raw

        def done(answer: WorkloadObject | None) -> None:
            if answer is not None:
                report(decision, before, answer)

        self._writes.change(
            key,
            slot,
            change,
            priority=priority,
            doubt=True,
            done=done,
            failed=lambda _: self._engine.observe(model.WriteFailed(key)),
        )


def _lowered(message: str) -> str:
    return message[:1].lower() + message[1:]


def grace_of(workload: WorkloadObject) -> int:
    """How long the workload's pods may take to stop, in seconds."""
    specs = (pod_set["template"].get("spec") or {} for pod_set in workload.pod_sets)
    return max((spec.get("terminationGracePeriodSeconds", 30) for spec in specs), default=30)


def _seconds_between(first: Json, second: Json) -> int:
    then = conditions.millis_of(first.get("lastTransitionTime"))
    return max(0, conditions.millis_of(second.get("lastTransitionTime")) - then) // 1000
