"""Carries out the engine's decisions about failed nodes, and reports how the recovery went.

Every swap is first recorded on the Workload (`api.read.workloads.swap_record`). Everything else follows from the record and the
pods as last seen, so that a crash at any instant loses nothing:

- *Replace*: the lost pods are deleted, and their Job creates new ones. They must not count as the job's failures: before a pod is
  deleted it loses the finalizer by which its Job would count it.
- *Restart*: the record names the attempt that the gang has to be in; the job's plan stops and starts it on the same admission.
- *Requeue*: the gang is also evicted. It has recovered when it runs again.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable
from dataclasses import replace
from typing import Final, TypeAlias

from gangline.api import names
from gangline.api.read import conditions
from gangline.api.read.workloads import swap_record
from gangline.api.read.workloads.swap_record import REQUEUE, RESTART, RecordedSwap, SwapRecord
from gangline.control.feed.pod import TRACKING_FINALIZER, Pod
from gangline.control.kernel.context import Context
from gangline.control.kernel.reconciler import Reconciler
from gangline.control.nodes.recovery.fencing import out_of_reach_since
from gangline.control.nodes.recovery.swap_rules import (
    admitted_since,
    describe,
    is_fresh,
    is_lost,
    missing,
    runs,
    wanted_pods,
)
from gangline.control.parts.messages import EvictionWanted, Recovered
from gangline.control.writes import decision_log
from gangline.control.writes.outgoing import Priority, Write
from gangline.control.writes.status import run_changes
from gangline.control.writes.status.change import Change
from gangline.engine import model
from gangline.jobs.gpujob import status as gpujob_status
from gangline.kube import resources as kube
from gangline.kube.reflector import Event, Removed
from gangline.kube.resources import Json, ObjectKey, Resource
from gangline.objects import PodObject, WorkloadObject

#: returns the new record for the current one; the same record = no write
Amend: TypeAlias = Callable[[SwapRecord], SwapRecord]
#: called with the Workload once its record is written, or with None if the record did not change
Written: TypeAlias = Callable[[WorkloadObject | None], None]

SLOT: Final = "recovery"
#: A restarted gang is left alone for this long, in milliseconds, unless it loses more nodes.
SETTLING: Final = 20_000
#: The API server gives the end of a grace period in whole seconds; in milliseconds.
ROUNDING: Final = 1_000


class Recoveries(Reconciler[str]):
    """Carries out healing, and follows every open swap to its end.

    `note_failure` reports to the engine that a decision could not be written.
    """

    name = "recoveries"
    doing = "following its recovery"
    kinds = (kube.WORKLOADS,)

    def __init__(self, context: Context, note_failure: Callable[[str], None]) -> None:
        super().__init__(context, context.mirror.changes.recovering.subscribe(worth=context.mirror.has(kube.WORKLOADS)))
        context.pods.changed.feed(self._changed)
        self._pods = context.pods
        self._metrics = context.metrics
        self._messages = context.messages
        self._note_failure = note_failure
        self._now = context.now
        self._created: dict[str, int] = {}  # Workload -> when its pods were complete again, in milliseconds
        self._closing: set[str] = set()
        self._serial = itertools.count()
        self._unreachable_nodes: set[str] = set()
        self._changed_nodes = context.mirror.changes.nodes.subscribe(worth=self._is_node_of_interest)

    # --- decisions ----------------------------------------------------------------------------------------------------

    def heal(self, decision: model.Heal) -> None:
        raw = self._mirror.workloads.get(decision.workload)
        if raw is None or raw.uid != decision.uid:
            return  # the engine observes the deletion by itself
        record = swap_record.of(raw)
        if not decision.lost and record.current is not None and decision.at < record.at + SETTLING:
            return  # its pods are still being replaced
        on_node_loss = raw.annotations.get(names.NODE_LOSS)
        if on_node_loss == swap_record.FAIL and not decision.bound_stay and self._fail(raw, decision):
            return
        if on_node_loss == REQUEUE:
            self._requeue(decision)
            return
        swap = self._swap(
            decision.workload, decision.how, decision.cause, decision.lost, decision.detected_at, decision.at
        )
        if decision.bound_stay:
            swap = replace(swap, refusing=swap.lost)
        self._begin(decision.workload, swap, decision.message, doubt=True)

    def _fail(self, workload: WorkloadObject, decision: model.Heal) -> bool:
        """Fail the job with its nodes, as it requests. Returns False for a kind that cannot."""
        ref = self._mirror.job_of(workload)
        job = self._mirror.job(ref) if ref is not None and ref[0] == kube.GPU_JOBS else None
        if job is None:
            return False
        patch = gpujob_status.lost(job, decision.message, conditions.timestamp(decision.at))
        if patch is not None:
            key = ObjectKey.of(kube.GPU_JOBS, job)
            self._writes.send(key, "status", patch.body, priority=Priority.LIFECYCLE, slot=SLOT)
        return True

    def _requeue(self, decision: model.Heal) -> None:
        """Queue the job again instead of healing it in place, as it requests."""
        self.give_up(
            model.Evict(decision.workload, decision.uid, "NodeFailures", decision.message, avoid=decision.lost)
        )

    def give_up(self, decision: model.Evict) -> None:
        """Evict a gang because of failed nodes. The nodes are recorded first, so that the gang is placed on others."""
        raw = self._mirror.workloads.get(decision.workload)
        if raw is None or raw.uid != decision.uid:
            return  # the engine observes the deletion by itself
        now = self._now()
        cause = decision.underlying_cause or decision.reason
        swap = self._swap(decision.workload, REQUEUE, cause, decision.avoid, now, now)
        swap = replace(swap, admitted=admitted_since(raw))
        self._begin(decision.workload, swap, decision.message, doubt=True, then=lambda: self._evict(decision))

    def _evict(self, decision: model.Evict) -> None:
        self._messages.publish(EvictionWanted(decision))

    def _swap(self, workload: str, how: str, cause: str, lost: tuple[str, ...], detected: int, at: int) -> RecordedSwap:
        nodes = {pod.node for pod in self._pods.of(workload) if pod.node and pod.alive}
        return RecordedSwap(how, cause, lost, detected, at, kept=tuple(sorted(nodes - set(lost))))

    def _begin(
        self, workload: str, swap: RecordedSwap, message: str, *, doubt: bool, then: Callable[[], None] = lambda: None
    ) -> None:
        self._created.pop(workload, None)

        def begun(answer: WorkloadObject | None) -> None:
            then()
            if answer is None:
                return
            now_open = swap_record.of(answer).current or swap
            reason = "PodsUnschedulable" if swap.lost and swap.refusing == swap.lost else "NodesLost"
            self._recorder.record(answer, "Warning", reason, message)
            decision_log.note(decision_log.HEALING, answer, swap.cause, how=swap.how, lost=",".join(swap.lost))
            change = run_changes.swapping(now_open, message)
            self._writes.change(workload, SLOT, change, priority=Priority.LIFECYCLE)
            self._report_to_owner(answer, swap.how, message, swap.decided)

        self._write_record(workload, lambda record: record.with_loss(swap), begun, doubt=doubt)

    def _write_record(self, workload: str, amend: Amend, done: Written, *, doubt: bool) -> None:
        """Change the record of a Workload, based on its newest version."""

        def body() -> Json | None:
            raw = self._mirror.workloads.get(workload)
            if raw is None:
                return None
            before = swap_record.of(raw)
            after = amend(before)
            if after == before:
                return None
            recorded = {names.RECOVERY: swap_record.write(after)}
            return {"metadata": {"resourceVersion": raw.resource_version, "annotations": recorded}}

        def answered(answer: WorkloadObject | None) -> None:
            self._closing.discard(workload)
            done(answer)

        def failed(_: Exception) -> None:
            self._closing.discard(workload)
            self._changed.add(workload)
            if doubt:
                self._note_failure(workload)

        self._writes.send(
            ObjectKey.parse(kube.WORKLOADS, workload),
            "patch",
            body,
            priority=Priority.START_STOP,
            slot=f"{SLOT}{next(self._serial)}",  # a slot of its own: no write replaces another
            doubt=doubt,
            done=answered,
            failed=failed,
        )

    # --- what follows from the record ---------------------------------------------------------------------------------

    def unreachable(self, workload: str) -> bool:
        """Whether a pod of the gang is on an unreachable node: whatever the pod's status, the gang does not run."""
        if not self._unreachable_nodes:
            return False
        if not any(pod.alive and pod.node in self._unreachable_nodes for pod in self._pods.of(workload)):
            return False
        raw = self._mirror.workloads.get(workload)
        return self._mirror.recovery_of(raw.admitted_by if raw is not None else "").enabled

    def _is_node_of_interest(self, node: str) -> bool:
        known = self._mirror.nodes.get(node) is not None
        return known or node in self._unreachable_nodes or bool(self._pods.on(node))

    def _update_unreachable(self) -> None:
        """Plan the jobs again whose pods are on nodes that became unreachable, or reachable again."""
        for node in self._changed_nodes.take():
            pods = self._pods.on(node)
            known = self._mirror.nodes.get(node)
            out = out_of_reach_since(known) is not None and (known is not None or bool(pods))
            if out == (node in self._unreachable_nodes):
                continue
            self._unreachable_nodes ^= {node}
            for workload in {pod.workload for pod in pods}:
                raw = self._mirror.workloads.get(workload)
                if raw is not None and (owner := self._mirror.job_of(raw)) is not None:
                    self._mirror.changes.jobs.add(owner)

    def observe(self, resource: Resource, event: Event) -> None:
        if isinstance(event, Removed):
            self._created.pop(event.key, None)

    def _gather(self, now: int) -> None:
        self._update_unreachable()

    def _reconcile(self, workload: str, now: int) -> None:
        raw = self._mirror.workloads.get(workload)
        record = swap_record.of(raw) if raw is not None else SwapRecord()
        if raw is None or not record.log:
            self._created.pop(workload, None)
            return
        self._update_condition(workload, raw, record.log[-1])
        if record.current is None:
            self._created.pop(workload, None)
        elif runs(raw):
            self._follow(workload, raw, record, record.current, now)

    def _update_condition(self, workload: str, raw: WorkloadObject, swap: RecordedSwap) -> None:
        """Make the condition match the record. Mostly it does already: it is written with the record, or right after."""
        row = raw.condition(names.RECOVERED)
        if row is not None and (row["status"] == "True") != swap.open:
            return
        if self._writes.pending(kube.WORKLOADS, workload):
            self._changed.add(workload)
            return
        change = run_changes.swapping(swap, missing(swap)) if swap.open else _recovered(swap)
        self._writes.change(workload, SLOT, change, priority=Priority.STATUS)

    def _follow(self, workload: str, raw: WorkloadObject, record: SwapRecord, swap: RecordedSwap, now: int) -> None:
        if swap.how == REQUEUE and swap.admitted and swap.admitted == admitted_since(raw):
            self._evict_after_all(workload, raw, swap)
            return
        pods = self._pods.of(workload)
        if swap.how == RESTART:
            if (owner := self._mirror.job_of(raw)) is not None:
                self._mirror.changes.jobs.add(owner)  # the plan may have waited for pods of the previous attempt
            self._hurry(workload, [pod for pod in pods if pod.attempt < record.attempt], now)
        else:
            for pod in pods:
                if pod.alive and is_lost(pod, swap):
                    self._remove(pod)
        fresh = [pod for pod in pods if pod.alive and is_fresh(pod, record, swap)]
        wanted = wanted_pods(raw)
        if len(fresh) < wanted:
            self._created.pop(workload, None)
            return
        self._created.setdefault(workload, now)
        if sum(pod.ready for pod in fresh) >= wanted and workload not in self._closing:
            self._close(workload, swap, fresh, now)

    def _evict_after_all(self, workload: str, raw: WorkloadObject, swap: RecordedSwap) -> None:
        """Evict a gang whose recorded eviction did not happen: the recorder died, or another writer intervened."""
        if self._writes.in_doubt(kube.WORKLOADS, workload):
            self._changed.add(workload)
        else:
            self._evict(model.Evict(workload, raw.uid, "NodeFailures", missing(swap), avoid=swap.lost))

    def _hurry(self, workload: str, pods: Iterable[Pod], now: int) -> None:
        """Shorten the grace period of pods that hold up the next attempt, where the policy permits it."""
        policy = self._mirror.recovery_for(workload)
        grace = policy.restart_grace_seconds if policy is not None else None
        if grace is None:
            return
        for pod in pods:
            if not pod.terminating or pod.ended or pod.due <= now + grace * 1000 + ROUNDING:
                continue
            key = ObjectKey.parse(kube.PODS, pod.key)
            if self._writer.pending(key):
                self._changed.add(workload)
            else:
                body = {"uid": pod.uid, "grace_seconds": grace}
                self._writer.submit(Write(key, "delete", body, priority=Priority.START_STOP))

    def _remove(self, pod: Pod) -> None:
        """Delete a lost pod, once its Job cannot count it as a failure any more."""
        key = ObjectKey.parse(kube.PODS, pod.key)
        if self._writer.pending(key):
            self._changed.add(pod.workload)  # the watch event may have arrived before the answer
            return
        if TRACKING_FINALIZER not in pod.finalizers:
            self._writer.submit(Write(key, "delete", {"uid": pod.uid}, priority=Priority.START_STOP))
            return
        rest = [finalizer for finalizer in pod.finalizers if finalizer != TRACKING_FINALIZER]
        body = {"metadata": {"uid": pod.uid, "finalizers": rest or None}}

        def done(answer: PodObject) -> None:
            self._pods.upsert(answer)
            self._again(pod.workload)

        self._writer.submit(Write(key, "patch", body, priority=Priority.START_STOP, on_done=done))

    def _close(self, workload: str, swap: RecordedSwap, fresh: Iterable[Pod], now: int) -> None:
        """End the swap: the gang runs again."""
        fresh = list(fresh)
        nodes = {pod.node for pod in fresh}
        closed = replace(
            swap,
            created=self._created.get(workload, max((pod.created for pod in fresh), default=now)),
            running=now,
            to=tuple(sorted(nodes - set(swap.kept)))[: swap_record.MOST_NODES],
            kept=(),
        )

        def amend(record: SwapRecord) -> SwapRecord:
            return record.with_current(closed) if record.current == swap else record

        def done(answer: WorkloadObject | None) -> None:
            self._created.pop(workload, None)
            if answer is None:
                return
            message = describe(closed)
            lost, to = ",".join(closed.lost), ",".join(closed.to)
            decision_log.note(decision_log.HEALED, answer, closed.cause, how=closed.how, lost=lost, to=to)
            self._recorder.record(answer, "Normal", "Recovered", message)
            self._messages.publish(Recovered(answer, message))
            self._writes.change(workload, SLOT, _recovered(closed), priority=Priority.STATUS)
            self._metrics.recovered(answer.admitted_by, closed.stages())

        self._closing.add(workload)
        self._write_record(workload, amend, done, doubt=False)

    def _report_to_owner(self, workload: WorkloadObject, how: str, message: str, at: int) -> None:
        """Record the interruption in the status of a GPUJob."""
        ref = self._mirror.job_of(workload)
        job = self._mirror.job(ref) if ref is not None else None
        if ref is None or job is None or ref[0] != kube.GPU_JOBS:
            return
        patch = gpujob_status.interrupted(job, swap_record.of(workload).swaps, how, message, conditions.timestamp(at))
        key = ObjectKey.of(kube.GPU_JOBS, job)
        self._writes.send(key, "status", patch.body, priority=Priority.STATUS, slot=SLOT)


def _recovered(swap: RecordedSwap) -> Change:
    return run_changes.recovered(swap, describe(swap))
