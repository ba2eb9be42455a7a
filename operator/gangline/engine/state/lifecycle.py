"""The life cycle of workloads besides scheduling: evictions, completed admissions, returns to the queue.

A workload is reviewed when a fact about it arrived, when its queue changed, or when a time that it waits for has come. A review
looks at the present state, so it may be repeated at any time. A workload that is being evicted is left alone until a fact says
that its quota is released.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from gangline.engine.model import (
    Admission,
    AskChecks,
    CheckState,
    ClusterQueue,
    CompleteAdmission,
    Decision,
    Evict,
    Millis,
    PodsReadyPolicy,
    Requeue,
    Swap,
)
from gangline.engine.queues.cluster_queue import ClusterQueueState, queue_of
from gangline.engine.queues.workload_state import WorkloadState
from gangline.engine.state.overrun import Overruns
from gangline.engine.state.store import Store
from gangline.engine.text.alarms import Alarms
from gangline.engine.text.decision_error import DecisionError
from gangline.engine.topology.placement import PENDING, READY, mend, on_host, placing, with_placements

#: Pause before the second pass is tried again, doubling each time, in milliseconds.
FIRST_PAUSE, LONGEST_PAUSE = 1_000, 30_000

HOLDING, DRAINING = "Hold", "HoldAndDrain"


class Lifecycle:
    def __init__(self, store: Store) -> None:
        self._store = store
        self._overruns = Overruns(store)
        gangs = store.gangs
        self._reviews = Alarms[WorkloadState](
            lambda when, gang: gang.review_at == when and gangs.get(gang.key) is gang, lambda: len(gangs)
        )

    def next_due(self) -> Millis | None:
        """When the next review is due."""
        return self._reviews.next()

    def review(self, now: Millis) -> list[Decision]:
        """Review all workloads with new facts and all that are due."""
        decisions: list[Decision] = []
        for gang in self._waiting_for_review(now):
            if self._store.gangs.get(gang.key) is not gang or gang.key in self._store.frozen:
                continue
            try:
                decision, again = self._judge(gang, now)
                if decision is None:
                    decision, sooner = self._overruns.judge(gang, now)
                    again = sooner if again is None or (sooner is not None and sooner < again) else again
            except Exception as error:
                raise DecisionError(gang.key) from error
            self._set_alarm(gang, again)
            if decision is not None:
                decisions.append(decision)
        return decisions

    def _waiting_for_review(self, now: Millis) -> Iterator[WorkloadState]:
        store = self._store
        while store.reviews:
            reviews, store.reviews = store.reviews, {}
            for key in sorted(reviews):
                yield reviews[key]
        while (gang := self._reviews.due(now)) is not None:
            gang.review_at = None  # the alarm has gone off: one for the same time may be set again
            yield gang

    def _set_alarm(self, gang: WorkloadState, when: Millis | None) -> None:
        if when != gang.review_at:
            gang.review_at = when
            if when is not None:
                self._reviews.set(when, gang.uid, gang)

    def _judge(self, gang: WorkloadState, now: Millis) -> tuple[Decision | None, Millis | None]:
        """What has to be done with the workload, and when to review it again if nothing happens."""
        if not gang.holds:
            return self._judge_waiting(gang, now)
        queue = queue_of(gang)
        if gang.evicting or queue is None:
            return None, None
        eviction, again = self._eviction(gang, queue, now)
        if eviction is None and gang.workload.unhealthy_nodes:
            moved = self._mend(gang, queue)
            if isinstance(moved, Swap):
                gang.journal.note(gang, f"Its pods on {gang.workload.unhealthy_nodes[0]} are placed elsewhere", "Swap")
                return moved, again
            eviction = moved
        if eviction is not None:
            gang.evict(f"{eviction.reason}: {eviction.message}")
            return eviction, None
        if checks := _unlisted(gang, queue.config):
            gang.asked_checks = checks
            return AskChecks(gang.key, gang.uid, checks), again
        if _waits_for_places(gang):
            return self._place(gang, queue, now)
        if not gang.admitted and _complete(gang, queue.config):
            self._store.assume_admitted(gang, now)
            return CompleteAdmission(gang.key, gang.uid), again
        return None, again

    # --- evictions ----------------------------------------------------------------------------------------------------

    def _eviction(
        self, gang: WorkloadState, queue: ClusterQueueState, now: Millis
    ) -> tuple[Evict | None, Millis | None]:
        if not gang.workload.active:
            return Evict(gang.key, gang.uid, "Deactivated", "The workload is deactivated"), None
        found = self._stopped(gang, queue) or _check_failed(gang, now) or _stalled(gang)
        if found is not None:
            return found, None
        times: list[Millis] = []
        if gang.admitted:
            limits = (
                self._execution_limit(gang),
                self._readiness_limit(gang, now),
                self._refusal_limit(gang, queue, now),
            )
            for deadline, evict in limits:
                if deadline is None:
                    continue
                if deadline <= now:
                    return evict, None
                times.append(deadline)
        return None, min(times, default=None)

    def _stopped(self, gang: WorkloadState, queue: ClusterQueueState) -> Evict | None:
        """Hold takes quota back from workloads that do not run yet, HoldAndDrain from all."""
        local_queue = self._store.local_queues.get(gang.local_queue)
        for policy, reason, what in (
            (queue.config.stop_policy, "ClusterQueueStopped", "ClusterQueue"),
            (local_queue.stop_policy if local_queue else "None", "LocalQueueStopped", "LocalQueue"),
        ):
            if policy == DRAINING or (policy == HOLDING and not gang.admitted):
                return Evict(gang.key, gang.uid, reason, f"The {what} is stopped")
        return None

    def _execution_limit(self, gang: WorkloadState) -> tuple[Millis | None, Evict | None]:
        """When its maximum execution time is used up, over all its admissions."""
        left = gang.workload.execution_left
        if left is None:
            return None, None
        because = "exceeding the maximum execution time"
        return gang.admitted_at + left, _deactivate(gang, "MaximumExecutionTimeExceeded", because)

    def _readiness_limit(self, gang: WorkloadState, now: Millis) -> tuple[Millis | None, Evict | None]:
        """When all its pods must be ready: after admission, and again after it lost one."""
        policy, workload = self._store.settings.pods_ready, gang.workload
        if policy is None or workload.pods_ready:
            return None, None
        if workload.pods_were_ready:
            due = max(gang.admitted_at, workload.pods_ready_at) + policy.recovery_timeout
        else:
            due = gang.admitted_at + policy.timeout
        return due, _not_ready(gang, policy, now, "PodsReadyTimeout", f"Exceeded the PodsReady timeout {gang.key}")

    def _refusal_limit(
        self, gang: WorkloadState, queue: ClusterQueueState, now: Millis
    ) -> tuple[Millis | None, Evict | None]:
        """When its pods were refused for too long: other workloads can use its quota meanwhile.

        Without a policy the limit of waitForPodsReady applies, as in Kueue. Where that is off, so does its default from here on.
        """
        since, chosen, policy = gang.workload.refused_at, queue.config.refused_after, self._store.settings.pods_ready
        if not since or gang.workload.pods_ready or (chosen is None and policy is not None):
            return None, None
        backoff = policy or PodsReadyPolicy()
        due = since + (backoff.timeout if chosen is None else chosen)
        return due, _not_ready(gang, backoff, now, "PodsRefused", "The API server refuses its pods")

    # --- the second pass ----------------------------------------------------------------------------------------------

    def _mend(self, gang: WorkloadState, queue: ClusterQueueState) -> Swap | Evict | None:
        """Nodes failed under it: move the pods of one; evict it when there are more or when no other node is free."""
        admission, failed = gang.admission, gang.workload.unhealthy_nodes
        if admission is None or not gang.admitted:
            return None
        hosts = [host for host in failed if on_host(admission, host)]
        if not hosts:
            return None
        if len(failed) > 1:
            message = f"Workload was evicted due to multiple failed nodes: {', '.join(sorted(failed))}"
            return Evict(gang.key, gang.uid, "NodeFailures", message)
        gates = self._store.settings.gates
        pod_sets = {demand.name: gang.workload.as_checked(demand.pod_set) for demand in gang.demands}
        mended = mend(self._store.topology, pod_sets, admission, hosts[0], gates)
        if mended is not None:
            self._store.swap(gang, mended)
            return Swap(gang.key, gang.uid, mended)
        if gates.get("TASFailedNodeReplacementFailFast", True):
            message = f"Workload was evicted as there was no replacement for a failed node: {hosts[0]}"
            return Evict(gang.key, gang.uid, "NodeFailures", message)
        return None

    def _place(
        self, gang: WorkloadState, queue: ClusterQueueState, now: Millis
    ) -> tuple[Decision | None, Millis | None]:
        """The nodes are there: find, or retry after a pause, a placement that had to wait for them."""
        admission = gang.admission
        assert admission is not None, gang
        pod_sets = {demand.name: gang.workload.as_checked(demand.pod_set) for demand in gang.demands}
        wanted = placing(
            self._store.topology,
            [(pod_sets[p.name], p.count, list(p.flavors.values())) for p in admission.pod_sets if p.name in pod_sets],
            self._store.settings.gates,
            implied=queue.only_topologies,
        )
        found = wanted.now() if wanted is not None else None
        if found is None or not found.ok:
            pause = min(LONGEST_PAUSE, FIRST_PAUSE << min(gang.second_passes, 10))
            gang.second_passes += 1
            return None, now + pause
        gang.second_passes = 0
        placed = with_placements(admission, found.assignments, delayed=READY)
        self._store.swap(gang, placed)
        self._store.reviews[gang.key] = gang
        return Swap(gang.key, gang.uid, placed), None

    # --- coming back --------------------------------------------------------------------------------------------------

    def _judge_waiting(self, gang: WorkloadState, now: Millis) -> tuple[Decision | None, Millis | None]:
        """Back to the queue when the cause of its wait is over."""
        workload = gang.workload
        if workload.requeued is not False or gang.requeue_assumed or not workload.active or workload.finished:
            return None, None
        if workload.requeue_at is not None and workload.requeue_at > now:
            return None, workload.requeue_at
        reason = "BackoffFinished"
        if workload.evicted == "ClusterQueueStopped":
            reason = "ClusterQueueRestarted"
            queue = self._store.queue_for(gang)
            if queue is None or queue.config.stop_policy != "None":
                return None, None
        elif workload.evicted == "LocalQueueStopped":
            reason = "LocalQueueRestarted"
            local_queue = self._store.local_queues.get(gang.local_queue)
            if local_queue is None or local_queue.stop_policy != "None":
                return None, None
        elif workload.evicted.startswith("Deactivated"):
            reason = "Reactivated"
        self._store.assume_requeued(gang)
        return Requeue(gang.key, gang.uid, reason), None


# --- admission checks -------------------------------------------------------------------------------------------------


def required_checks(config: ClusterQueue, admission: Admission) -> tuple[str, ...]:
    """The checks that apply to an admission: those for every flavor, and those for a flavor that it uses."""
    used = {flavor for pod_set in admission.pod_sets for flavor in pod_set.flavors.values()}
    return tuple(check.name for check in config.checks if not check.on_flavors or used.intersection(check.on_flavors))


def _unlisted(gang: WorkloadState, config: ClusterQueue) -> tuple[str, ...]:
    """The checks that apply, if some are not in its status: its queue got them after its quota was reserved."""
    if gang.admitted or gang.workload.admission is None:
        return ()
    required = required_checks(config, gang.workload.admission)
    listed = {check.name for check in gang.workload.checks}
    return required if required != gang.asked_checks and not listed.issuperset(required) else ()


def _complete(gang: WorkloadState, config: ClusterQueue) -> bool:
    admission = gang.admission
    if admission is None or any(pod_set.delayed_topology == PENDING for pod_set in admission.pod_sets):
        return False
    return _checked(gang, config, admission)


def _checked(gang: WorkloadState, config: ClusterQueue, admission: Admission) -> bool:
    states = {check.name: check.state for check in gang.workload.checks}
    return all(states.get(name) == "Ready" for name in required_checks(config, admission))


def _waits_for_places(gang: WorkloadState) -> bool:
    """Its checks are ready, but its topology assignment is still open."""
    admission, queue = gang.admission, queue_of(gang)
    if admission is None or queue is None or not _checked(gang, queue.config, admission):
        return False
    return any(pod_set.delayed_topology == PENDING for pod_set in admission.pod_sets)


def _check_failed(gang: WorkloadState, now: Millis) -> Evict | None:
    """A rejection deactivates; a retry evicts, with the longest pause that a check asks for."""
    rejected = [check for check in gang.workload.checks if check.state == "Rejected"]
    if rejected:
        return _deactivate(
            gang, "AdmissionCheck", f"Admission check(s): {_listed(rejected, said=False)}, were rejected"
        )
    retry = [check for check in gang.workload.checks if check.state == "Retry"]
    if not retry:
        return None
    waits = [(check.at or now) + check.requeue_after for check in retry if check.requeue_after is not None]
    return Evict(
        gang.key,
        gang.uid,
        "AdmissionCheck",
        f"Evicted due to AdmissionCheck{'s' if len(retry) > 1 else ''} in Retry state: {_listed(retry, said=True)}",
        requeue_at=max(waits, default=None),
    )


def _stalled(gang: WorkloadState) -> Evict | None:
    """It hangs, and is requeued at its old position: a node may have been the cause."""
    if gang.workload.stalled != "Requeue" or not gang.admitted:
        return None
    return Evict(gang.key, gang.uid, "Stalled", "It hangs: it is stopped and queued again")


def _listed(checks: Iterable[CheckState], *, said: bool) -> str:
    ordered = sorted(checks, key=lambda check: check.name)
    if said:
        return "; ".join(
            f'"{check.name}" ({check.message})' if check.message else f'"{check.name}"' for check in ordered
        )
    return ", ".join(check.name for check in ordered)


# --- PodsReady --------------------------------------------------------------------------------------------------------


def _not_ready(gang: WorkloadState, policy: PodsReadyPolicy, now: Millis, reason: str, message: str) -> Evict:
    """Evict it, with a pause that doubles each time, until the limit is reached."""
    count = gang.workload.requeue_count + 1
    if policy.backoff_limit is not None and count > policy.backoff_limit:
        return _deactivate(gang, "RequeuingLimitExceeded", "exceeding the maximum number of re-queuing retries")
    return Evict(
        gang.key,
        gang.uid,
        reason,
        message,
        requeue_at=now + policy.backoff(count),
        requeue_count=count,
    )


def _deactivate(gang: WorkloadState, cause: str, because: str) -> Evict:
    return Evict(
        gang.key,
        gang.uid,
        "Deactivated",
        f"The workload is deactivated due to {because}",
        deactivate=True,
        underlying_cause=cause,
    )
