"""The life cycle of workloads besides scheduling: evictions, completed admissions, returns to the queue.

A workload is reviewed when a fact about it arrived, when its queue changed, or when a time that it waits for has come. A review
looks at the present state, so it may be repeated at any time. A workload that is being evicted is left alone until a fact says
that its quota is released.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from gangline.engine.model import (
    UNLIMITED,
    Admission,
    AskChecks,
    CheckState,
    ClusterQueue,
    CompleteAdmission,
    Decision,
    Evict,
    Millis,
    PodsReadyPolicy,
    Recall,
    Requeue,
    ReservedWindow,
    Swap,
    Warn,
    Withdraw,
)
from gangline.engine.queues.cluster_queue import ClusterQueueState, queue_of
from gangline.engine.queues.workload_state import WorkloadState
from gangline.engine.state.overrun import Overruns
from gangline.engine.state.replacement import fails_fast, is_mended
from gangline.engine.state.store import Store
from gangline.engine.state.unscheduled import NOT_SCHEDULED, scheduled_by, scheduled_within
from gangline.engine.text import quantity_text
from gangline.engine.text.alarms import Alarms
from gangline.engine.text.decision_error import DecisionError
from gangline.engine.text.wording import minute_text
from gangline.engine.topology.domain_search import no_replacement
from gangline.engine.topology.placement import PENDING, READY, mend, placing
from gangline.engine.topology.placement_request import on_host, with_placements

#: Pause before the second pass is tried again, doubling each time, in milliseconds.
FIRST_PAUSE, LONGEST_PAUSE = 1_000, 30_000

#: Nodes that an autoscaler makes for an admitted gang come within this time, in milliseconds: it gives up on one itself then.
NODES_WITHIN = 15 * 60_000

#: reason of the eviction from nodes that a Reservation keeps for others, and of the event that announces it
RESERVED_FOR_OTHERS, SAVE_BY = "Reservation", "SaveBy"
#: reason of the eviction from quota that falls
RECALLED = "QuotaRecalled"
#: reason of evictions for telemetry rules
NODE_METRIC = "NodeMetric"

HOLDING, DRAINING = "Hold", "HoldAndDrain"


class Lifecycle:
    def __init__(self, store: Store) -> None:
        self._store = store
        self._overruns = Overruns(store)
        gangs = store.gangs
        self._reviews = Alarms[WorkloadState](
            lambda when, gang: gang.lifecycle.review_at == when and gangs.get(gang.key) is gang, lambda: len(gangs)
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
                if decision is None and self._store.looks_ahead:
                    decision, sooner = self._warn_of_end(gang, now)
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
            gang.lifecycle.review_at = None  # the alarm has gone off: one for the same time may be set again
            yield gang

    def _set_alarm(self, gang: WorkloadState, when: Millis | None) -> None:
        if when != gang.lifecycle.review_at:
            gang.lifecycle.review_at = when
            if when is not None:
                self._reviews.set(when, gang.uid, gang)

    def _judge(self, gang: WorkloadState, now: Millis) -> tuple[Decision | None, Millis | None]:
        """What has to be done with the workload, and when to review it again if nothing happens."""
        if not gang.holds:
            return self._judge_waiting(gang, now)
        queue = queue_of(gang)
        if gang.evicting and gang.workload.requeued is False:  # its back-off may end before it has stopped
            return self._judge_waiting(gang, now)
        if gang.evicting or self._store.superseded(gang):
            return None, None
        if not gang.admitted and (ended := self._ended_queue(gang, queue)):
            gang.evict(f"{ended} is terminating or missing")
            return Withdraw(gang.key, gang.uid, ended), None
        eviction, again = self._eviction(gang, queue, now)
        if eviction is None and gang.workload.unhealthy_nodes and queue is not None:
            moved, sooner = self._mend(gang, now)
            again = sooner if again is None or (sooner is not None and sooner < again) else again
            if isinstance(moved, Swap):
                gang.journal.note(gang, f"The pods on {gang.workload.unhealthy_nodes[0]} get other nodes", "Swap")
            if isinstance(moved, Swap | Warn):
                return moved, again
            eviction = moved
        if eviction is not None:
            gang.evict(f"{eviction.reason}: {eviction.message}")
            return eviction, None
        if queue is None:  # its ClusterQueue is gone, and asks for no more checks than it has
            return self._complete_without_queue(gang, now), again
        if _waits_for_places(gang):
            return self._place(gang, queue, now)
        if not gang.admitted and _complete(gang, queue.config):
            self._store.assume_admitted(gang, now)
            return CompleteAdmission(gang.key, gang.uid), again
        if (checks := _changed_checks(gang, queue.config)) is not None:
            gang.lifecycle.asked_checks = checks
            return AskChecks(gang.key, gang.uid, checks), again
        return None, again

    def _complete_without_queue(self, gang: WorkloadState, now: Millis) -> CompleteAdmission | None:
        if gang.admitted or any(check.state != "Ready" for check in gang.workload.checks):
            return None
        self._store.assume_admitted(gang, now)
        return CompleteAdmission(gang.key, gang.uid)

    def ask_waiting(self, gang: WorkloadState) -> AskChecks | None:
        """The checks that hold for every flavor are listed while a workload still waits, so that they may be answered early."""
        queue = queue_of(gang)
        if gang.holds or queue is None or gang.workload.finished or not (queue.config.checks or gang.workload.checks):
            return None
        checks = _of_every_flavor(queue.config)
        if checks == gang.lifecycle.asked_checks or set(checks) == {check.name for check in gang.workload.checks}:
            return None
        gang.lifecycle.asked_checks = checks
        return AskChecks(gang.key, gang.uid, checks)

    # --- evictions ----------------------------------------------------------------------------------------------------

    def _eviction(
        self, gang: WorkloadState, queue: ClusterQueueState | None, now: Millis
    ) -> tuple[Evict | None, Millis | None]:
        if not gang.workload.active:
            return Evict(gang.key, gang.uid, "Deactivated", "The workload is deactivated"), None
        if gang.workload.deactivation is not None:
            return _deactivate(gang, *gang.workload.deactivation), None
        found = (
            (self._stopped(gang, queue) if queue is not None else None)
            or _check_failed(gang, now)
            or _outgrown(gang)
            or _stalled(gang)
            or self._unfit(gang)
        )
        if found is not None:
            return found, None
        times: list[Millis] = []
        if (ahead := self._store.capacity.window_ahead(gang)) is not None:
            if (due := self._store.windows.leaves_at(ahead[0], gang)) <= now:
                return Evict(gang.key, gang.uid, RESERVED_FOR_OTHERS, self._window_text(*ahead)), None
            times.append(due)
        if (recall := self._store.recalls.get(gang.key)) is not None:
            if recall.until <= now:
                return Evict(gang.key, gang.uid, RESERVED_FOR_OTHERS, recall_text(recall)), None
            times.append(recall.until)
        if (change := self._store.quotas_ahead.recall_of(gang)) is not None:
            if change.deadline <= now:
                return Evict(gang.key, gang.uid, RECALLED, change.recall_text(gang)), None
            times.append(change.deadline)
        if gang.admitted:
            limits = (
                self._execution_limit(gang),
                self._readiness_limit(gang, queue, now),
                self._scheduling_limit(gang, queue, now),
                self._growth_limit(gang, queue, now),
                *([self._refusal_limit(gang, queue, now)] if queue is not None else ()),
            )
            for deadline, evict in limits:
                if deadline is None:
                    continue
                if deadline <= now:
                    return evict, None
                times.append(deadline)
        return None, min(times, default=None)

    def _unfit(self, gang: WorkloadState) -> Evict | None:
        """The eviction of a workload with a node that violates a telemetry rule. It is requeued at its old position."""
        found = self._store.node_evictions.get(gang.key)
        if found is None or not gang.admitted or found.admitted_at != gang.workload.admitted_at:
            return None
        return Evict(gang.key, gang.uid, NODE_METRIC, found.message)

    def _window_text(self, window: ReservedWindow, nodes: frozenset[str]) -> str:
        return f"The workload must leave its nodes: {self._store.windows.text(window, nodes)}"

    def _warn_of_end(self, gang: WorkloadState, now: Millis) -> tuple[Warn | None, Millis | None]:
        """The warning for a running workload, once, by when it must have saved its work; and when that warning is due."""
        if not gang.admitted or gang.evicting:
            return None, None
        change = self._store.quotas_ahead.recall_of(gang)
        if change is not None and change.name not in gang.lifecycle.warned_of:
            gang.lifecycle.warned_of |= {change.name}
            said = f"Save by {minute_text(change.deadline)}, when the workload is stopped. {change.recall_text(gang)}"
            return Warn("Workload", gang.key, SAVE_BY, said), now  # there may be a window, too
        ahead = self._store.capacity.window_ahead(gang)
        if ahead is None or ahead[0].name in gang.lifecycle.warned_of:
            return None, None
        window, nodes = ahead
        due, leaves = window.begin - window.notice, self._store.windows.leaves_at(window, gang)
        if now < due:
            return None, due
        gang.lifecycle.warned_of |= {window.name}
        return save_by(gang, leaves, self._window_text(window, nodes)), leaves

    def _ended_queue(self, gang: WorkloadState, queue: ClusterQueueState | None) -> str:
        """The workload's queue that is being deleted, "" = none."""
        if queue is not None and queue.config.terminating:
            return f"ClusterQueue {queue.name}"
        local_queue = self._store.local_queues.get(gang.local_queue)
        return f"LocalQueue {gang.workload.queue}" if local_queue is not None and local_queue.terminating else ""

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
        """When the workload's maximum execution time is used up, over all its admissions, and the eviction that follows then."""
        left = gang.workload.execution_left
        if left is None:
            return None, None
        because = "exceeding the maximum execution time"
        return gang.quota.admitted_at + left, _deactivate(gang, "MaximumExecutionTimeExceeded", because)

    def _readiness_limit(
        self, gang: WorkloadState, queue: ClusterQueueState | None, now: Millis
    ) -> tuple[Millis | None, Evict | None]:
        """When all pods of the workload must be ready, after admission, and again after it lost one; and the eviction that
        follows if they are not.

        Where pods have a limit of their own for being scheduled, this time begins when all are, as in Kueue.
        """
        policy, workload = self._store.settings.pods_ready, gang.workload
        if policy is None or workload.pods_ready:
            return None, None
        begun = gang.quota.admitted_at
        if workload.pods_were_ready:
            due = max(begun, workload.pods_ready_at) + policy.recovery_timeout
        elif workload.unscheduled is not None and scheduled_within(self._store, gang, queue) is not None:
            if workload.unscheduled.message:
                return None, None
            due = max(begun, workload.unscheduled.since) + policy.timeout
        else:
            due = begun + policy.timeout
        return due, _not_ready(gang, policy, now, "PodsReadyTimeout", f"Exceeded the PodsReady timeout {gang.key}")

    def _scheduling_limit(
        self, gang: WorkloadState, queue: ClusterQueueState | None, now: Millis
    ) -> tuple[Millis | None, Evict | None]:
        """When the scheduler must have found nodes for all pods of the workload, and the eviction that follows if it has not.

        Where the job is not the cause, the workload keeps its place, and is queued again after the shortest pause.
        """
        due, unscheduled = scheduled_by(self._store, gang, queue), gang.workload.unscheduled
        if due is None or unscheduled is None:
            return None, None
        backoff = self._store.settings.pods_ready or PodsReadyPolicy()
        reason, message = "PodsReadyTimeout", unscheduled.message
        if unscheduled.by_job:
            return due, _not_ready(gang, backoff, now, reason, message, NOT_SCHEDULED)
        again = now + backoff.backoff(1)
        return due, Evict(gang.key, gang.uid, reason, message, requeue_at=again, waited_for=NOT_SCHEDULED)

    def _refusal_limit(
        self, gang: WorkloadState, queue: ClusterQueueState, now: Millis
    ) -> tuple[Millis | None, Evict | None]:
        """When the workload's pods were refused for too long, and the eviction that follows then: other workloads can use its
        quota meanwhile.

        Without a policy the limit of waitForPodsReady applies, as in Kueue. Where that is off, so does its default from here on.
        """
        since, chosen, policy = gang.workload.refused_at, queue.config.refused_after, self._store.settings.pods_ready
        if not since or gang.workload.pods_ready or (chosen is None and policy is not None):
            return None, None
        backoff = policy or PodsReadyPolicy()
        due = since + (backoff.timeout if chosen is None else chosen)
        return due, _not_ready(gang, backoff, now, "PodsRefused", "The API server refuses its pods")

    def _growth_limit(
        self, gang: WorkloadState, queue: ClusterQueueState | None, now: Millis
    ) -> tuple[Millis | None, Evict | None]:
        """When the nodes must have come that an autoscaler makes for the workload's pods, and the eviction that follows if they
        have not: others can use its quota meanwhile.

        It keeps its place, and is admitted again after a pause.
        """
        workload, due = gang.workload, gang.quota.admitted_at + NODES_WITHIN
        reported = workload.pods_ready_at > 0 and not workload.unowned  # else nobody says which pods are its own
        if not reported or workload.pods_ready or workload.pods_were_ready or (queue is not None and queue.multikueue):
            return None, None
        growing = self._growing(gang)
        without = self._without_node(gang) if due <= now else 0
        if not growing or (due <= now and not without):
            return None, None
        message = f"Nodes of flavor {growing} have not come within {NODES_WITHIN // 60_000}m: {without} pods have none"
        return due, _not_ready(gang, self._store.settings.pods_ready or PodsReadyPolicy(), now, "NodesMissing", message)

    def _growing(self, gang: WorkloadState) -> str:
        """A flavor of the workload whose nodes an autoscaler makes, "" = it has none."""
        pod_sets = gang.quota.admission.pod_sets if gang.quota.admission is not None else ()
        for name in (name for pod_set in pod_sets for name in pod_set.flavors.values()):
            flavor = self._store.flavors.get(name)
            if flavor is not None and flavor.autoscaled and not flavor.topology:
                return name
        return ""

    def _without_node(self, gang: WorkloadState) -> int:
        """How many pods the workload has by its admission that no node runs or has run."""
        pod_sets = gang.quota.admission.pod_sets if gang.quota.admission is not None else ()
        on_nodes = len(self._store.capacity.pod_locations.lasting(gang.key)) + sum(gang.workload.reclaimable.values())
        return max(0, sum(pod_set.count for pod_set in pod_sets) - on_nodes)

    # --- the second pass ----------------------------------------------------------------------------------------------

    def _mend(self, gang: WorkloadState, now: Millis) -> tuple[Swap | Evict | Warn | None, Millis | None]:
        """Replace nodes that failed under the workload: after a moment in which the node may return, move the pods of one; evict
        the workload when there are more, or when no other node is free.
        """
        admission = gang.quota.admission
        if admission is None or not gang.admitted:
            return None, None
        failed = [host for host in gang.workload.unhealthy_nodes if on_host(admission, host)]
        hosts = [host for host in failed if is_mended(self._store, gang, host)]
        if not hosts:
            gang.lifecycle.mends_at = None
            return None, now + LONGEST_PAUSE if failed else None  # the recovery may have no reason any more
        if len(hosts) > 1:
            message = (
                f"Workload eviction triggered due to multiple TAS assigned node failures, including: {', '.join(hosts)}"
            )
            return Evict(gang.key, gang.uid, "NodeFailures", message), None
        if gang.lifecycle.mends_at is None:
            gang.lifecycle.mends_at, gang.lifecycle.second_passes = now + FIRST_PAUSE, 0
        if now < gang.lifecycle.mends_at:
            return None, gang.lifecycle.mends_at
        pod_sets = {demand.name: gang.workload.as_checked(demand.pod_set) for demand in gang.demands}
        queue = queue_of(gang)
        policy = queue.placement if queue is not None else None
        mended = mend(self._store.topology, pod_sets, admission, hosts[0], self._store.settings.gates, policy)
        if mended is not None:
            gang.lifecycle.mends_at = None
            self._store.swap(gang, mended)
            return Swap(gang.key, gang.uid, mended), None
        if fails_fast(self._store):
            message = f"Workload was evicted as there was no replacement for unhealthy node(s): {hosts[0]}"
            return Evict(gang.key, gang.uid, "NodeFailures", message), None
        gang.lifecycle.second_passes += 1
        gang.lifecycle.mends_at = now + _pause(gang)
        return _in_vain(gang, no_replacement(hosts[0])), gang.lifecycle.mends_at

    def _place(
        self, gang: WorkloadState, queue: ClusterQueueState, now: Millis
    ) -> tuple[Decision | None, Millis | None]:
        """The nodes are there: find, or retry after a pause, a placement that had to wait for them."""
        admission = gang.quota.admission
        assert admission is not None, gang
        pod_sets = {demand.name: gang.workload.as_checked(demand.pod_set) for demand in gang.demands}
        wanted = placing(
            self._store.topology,
            [(pod_sets[p.name], p.count, list(p.flavors.values())) for p in admission.pod_sets if p.name in pod_sets],
            self._store.settings.gates,
            implied=queue.only_topologies,
            policy=queue.placement,
        )
        found = wanted.now() if wanted is not None else None
        if found is None or not found.ok:
            pause = _pause(gang)
            gang.lifecycle.second_passes += 1
            return _in_vain(gang, found.failure if found is not None else ""), now + pause
        gang.lifecycle.second_passes = 0
        placed = with_placements(admission, found.assignments, delayed=READY)
        self._store.swap(gang, placed)
        self._store.reviews[gang.key] = gang
        return Swap(gang.key, gang.uid, placed), None

    # --- coming back --------------------------------------------------------------------------------------------------

    def _judge_waiting(self, gang: WorkloadState, now: Millis) -> tuple[Decision | None, Millis | None]:
        """Back to the queue when the cause of its wait is over; or deactivated, as one that holds quota."""
        workload = gang.workload
        if not gang.holds and workload.active and (unwanted := _unwanted(gang)) is not None:
            return unwanted, None
        if not gang.backs_off or not workload.active or workload.finished:
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


def save_by(gang: WorkloadState, until: Millis, why: str) -> Warn:
    """The event that announces an eviction from reserved nodes; the minute that is named is not too late."""
    minute = minute_text(until - until % 60_000)
    return Warn("Workload", gang.key, SAVE_BY, f"Save by {minute}, when the workload is stopped. {why}")


def recall_text(recall: Recall) -> str:
    return (
        f"The workload must leave its nodes: reservation '{recall.reservation}' keeps them for {recall.by}, which waits"
    )


def _in_vain(gang: WorkloadState, why: str) -> Warn:
    """An attempt of the second pass found no place."""
    return Warn("Workload", gang.key, "SecondPassFailed", why or "no topology assignment is found")


def _pause(gang: WorkloadState) -> Millis:
    """The time until the next attempt of the second pass, in milliseconds."""
    return min(LONGEST_PAUSE, FIRST_PAUSE << min(gang.lifecycle.second_passes, 10))


# --- admission checks -------------------------------------------------------------------------------------------------


def required_checks(config: ClusterQueue, admission: Admission) -> tuple[str, ...]:
    """The checks that apply to an admission: those for every flavor, and those for a flavor that it uses."""
    used = {flavor for pod_set in admission.pod_sets for flavor in pod_set.flavors.values()}
    return tuple(check.name for check in config.checks if not check.on_flavors or used.intersection(check.on_flavors))


def _of_every_flavor(config: ClusterQueue) -> tuple[str, ...]:
    """The checks that apply whatever flavors a workload gets."""
    flavors = {quotas.name for group in config.groups for quotas in group.flavors}
    return tuple(check.name for check in config.checks if not check.on_flavors or flavors.issubset(check.on_flavors))


def _changed_checks(gang: WorkloadState, config: ClusterQueue) -> tuple[str, ...] | None:
    """The checks that apply, if its status lists others: its queue got or lost some after its quota was reserved. Who runs goes
    on, whatever the state of a check that came later.
    """
    if gang.workload.admission is None:
        return None
    required = required_checks(config, gang.workload.admission)
    listed = {check.name for check in gang.workload.checks}
    return required if listed != set(required) and required != gang.lifecycle.asked_checks else None


def _complete(gang: WorkloadState, config: ClusterQueue) -> bool:
    admission = gang.quota.admission
    if admission is None or any(pod_set.delayed_topology == PENDING for pod_set in admission.pod_sets):
        return False
    return _checked(gang, config, admission)


def _checked(gang: WorkloadState, config: ClusterQueue, admission: Admission) -> bool:
    states = {check.name: check.state for check in gang.workload.checks}
    return all(states.get(name) == "Ready" for name in required_checks(config, admission))


def _waits_for_places(gang: WorkloadState) -> bool:
    """Whether the workload's checks are ready, but its topology assignment is still open."""
    admission, queue = gang.quota.admission, queue_of(gang)
    if admission is None or queue is None or not _checked(gang, queue.config, admission):
        return False
    return not queue.multikueue and any(pod_set.delayed_topology == PENDING for pod_set in admission.pod_sets)


def _check_failed(gang: WorkloadState, now: Millis) -> Evict | None:
    """A rejection deactivates; a retry evicts, with the longest pause that a check asks for."""
    rejected = [check for check in gang.workload.checks if check.state == "Rejected"]
    if rejected:
        return _deactivate(gang, "AdmissionCheck", _listed(rejected, "Rejected"))
    retry = [check for check in gang.workload.checks if check.state == "Retry"]
    if not retry:
        return None
    waits = [(check.at or now) + check.requeue_after for check in retry if check.requeue_after is not None]
    return Evict(
        gang.key,
        gang.uid,
        "AdmissionCheck",
        f"Evicted due to {_listed(retry, 'Retry')}",
        requeue_at=max(waits, default=None),
    )


def _outgrown(gang: WorkloadState) -> Evict | None:
    """The eviction of a workload that waits for its checks, and whose pods would request more by now than was reserved: the
    overhead of their RuntimeClass or a LimitRange has changed. Nothing of it runs, so it is queued again, at its old position.
    """
    admission = gang.workload.admission
    if gang.admitted or admission is None or gang.replaces:
        return None
    counted = {pod_set.name: pod_set.counted for pod_set in gang.workload.pod_sets}
    for assigned in admission.pod_sets:
        for resource, size in counted.get(assigned.name, {}).items():
            wanted, reserved = min(UNLIMITED, size * assigned.count), assigned.usage.get(resource, 0)
            if resource in assigned.flavors and wanted > reserved:
                asked, held = quantity_text.text(resource, wanted), quantity_text.text(resource, reserved)
                amounts = f"{asked} of {resource} by now, and {held} are reserved"
                message = f"The pods of pod set {assigned.name} request {amounts}: it is queued again"
                return Evict(gang.key, gang.uid, "RequestsChanged", message)
    return None


def _unwanted(gang: WorkloadState) -> Evict | None:
    """The deactivation of a workload that waits, if somebody wants that, or a check that was asked early has rejected it."""
    if gang.workload.deactivation is not None:
        return _deactivate(gang, *gang.workload.deactivation)
    rejected = [check for check in gang.workload.checks if check.state == "Rejected"]
    if not rejected or gang.workload.evicted or gang.workload.has_variants:
        return None
    return _deactivate(gang, "AdmissionCheck", _listed(rejected, "Rejected"))


def _stalled(gang: WorkloadState) -> Evict | None:
    """The eviction of a workload that hangs. It is requeued at its old position: a node may have been the cause."""
    if gang.workload.stalled != "Requeue" or not gang.admitted:
        return None
    return Evict(gang.key, gang.uid, "Stalled", "The workload hangs: it is stopped and queued again")


def _listed(checks: Sequence[CheckState], state: str) -> str:
    """A text with these checks, and what each says."""
    rows = [
        f'"{check.name}" ({check.message})' if check.message else f'"{check.name}"'
        for check in sorted(checks, key=lambda check: check.name)
    ]
    return f"AdmissionCheck{'s' if len(rows) > 1 else ''} in {state} state: {'; '.join(rows)}"


# --- PodsReady --------------------------------------------------------------------------------------------------------


def _not_ready(
    gang: WorkloadState, policy: PodsReadyPolicy, now: Millis, reason: str, message: str, waited_for: str = ""
) -> Evict:
    """Evict the workload, with a pause that doubles each time, until the limit is reached."""
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
        waited_for=waited_for,
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
