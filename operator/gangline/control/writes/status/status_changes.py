"""The change that each decision makes to a Workload's status: one small function each, on plain JSON.

Every function takes the status (changed in place) and `now` in milliseconds; several may be applied before one write. Condition
types, reasons and messages are Kueue's.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

from gangline.api import names
from gangline.api.phases import PROGRESSING
from gangline.api.read import conditions, render
from gangline.control.writes.status.change import Change, rows_of
from gangline.control.writes.status.gate_changes import close_gates
from gangline.control.writes.status.run_changes import IDLE, NOT_READY
from gangline.engine import NOT_SCHEDULED, model
from gangline.kube.resources import Json
from gangline.objects import WorkloadObject

#: Eviction reasons after which a workload is requeued at once when its eviction is complete.
_REQUEUED_AT_ONCE = frozenset(
    {"Preempted", "NodeFailures", "NodeMetric", "Overrun", "Stalled", "RequestsChanged", "Reservation", "QuotaRecalled"}
)

#: reason of QuotaReserved=False for a workload without pods for now
ON_HOLD = "OnHold"

#: reason of QuotaReserved=False for a workload that is not active, and prefix of the reasons of its eviction
DEACTIVATED = "Deactivated"
#: as Kueue says it of a workload that was not tried, since one like it had no chance
BYPASSED = "Bypassed scheduling evaluation because an equivalent workload recently failed"
#: reasons of workloads that were not tried lately, "" = none
_NOT_TRIED = ("", "PendingEvaluation", "Pending", "Suspended", DEACTIVATED)


def _no_reservation(rows: conditions.Conditions, now: int) -> None:
    """Record that the workload is not admitted, since it has no quota."""
    conditions.put(rows, names.ADMITTED, False, "NoReservation", "The workload has no reservation", now=now)


def admit(decision: model.Admit, *, pods_follow: bool = False) -> Change:
    """Reserve quota and, without admission checks to wait for, admit the workload in the same write.

    `pods_follow`: pods of it will be reported on; the same write records that they are not ready yet.
    """

    def change(status: Json, now: int) -> None:
        rows = rows_of(status)
        status["admission"] = render.admission(decision.admission)
        status.pop("resourceRequests", None)  # the admission says it
        queue = decision.admission.cluster_queue
        conditions.put(
            rows, names.QUOTA_RESERVED, True, "QuotaReserved", f"Quota reserved in ClusterQueue {queue}", now=now
        )
        end_eviction(rows, now)
        _queue(rows)
        _set_backfilled(rows, decision.backfilled, now)
        _set_preview(rows, decision.preview, now)
        _set_searched(rows, decision.searched, now)
        if decision.admitted:
            _set_admitted(rows, now, pods_follow)
        else:
            conditions.put(
                rows,
                names.ADMITTED,
                False,
                "UnsatisfiedAdmissionChecks",
                "The workload has not all checks ready",
                now=now,
            )
        _sync_checks(status, decision.checks, now)

    return change


def going_on(admitted: Change, seconds: int) -> Change:
    """Admit a slice of a job that has run for so long already: its maximum execution time goes on."""

    def change(status: Json, now: int) -> None:
        admitted(status, now)
        status["accumulatedPastExecutionTimeSeconds"] = seconds

    return change


def imported(admission: model.Admission, checks: Iterable[str]) -> Change:
    """Admit the Workload of an adopted job as the job runs; its `checks` count as passed."""

    def change(status: Json, now: int) -> None:
        rows = rows_of(status)
        message = f"Imported into ClusterQueue {admission.cluster_queue}"
        status["admission"] = render.admission(admission)
        conditions.put(rows, names.QUOTA_RESERVED, True, "Imported", message, now=now)
        conditions.put(rows, names.ADMITTED, True, "Imported", message, now=now)
        passed = {"state": "Ready", "message": message, "lastTransitionTime": conditions.timestamp(now)}
        if listed := [{"name": name, **passed} for name in checks]:
            status["admissionChecks"] = listed

    return change


def _queue(rows: conditions.Conditions) -> None:
    """Remove the condition that says why the workload was not queued: what it asks for can be counted again."""
    known = conditions.find(rows, names.REQUEUED)
    if known is not None and (known["status"], known.get("reason")) == ("False", names.NOT_QUEUED):
        rows.remove(known)


def end_eviction(rows: conditions.Conditions, now: int) -> None:
    """End what the status says about an eviction, and about the wait for a preemption gate: the workload has quota again."""
    for kind in (names.EVICTED, names.PREEMPTED, names.BLOCKED_ON_GATES):
        old = conditions.find(rows, kind)
        if old is not None and old["status"] == "True":
            conditions.put(rows, kind, False, "QuotaReserved", f"Previously: {old.get('message', '')}", now=now)


def admit_as_variant(variant: WorkloadObject) -> Change:
    """Admit the parent of variants as one of them: it has that one's admission."""
    admission, name = variant.status["admission"], variant.name
    queue = admission.get("clusterQueue", "")

    def change(status: Json, now: int) -> None:
        rows = rows_of(status)
        starts = not conditions.is_true(rows, names.ADMITTED)
        status["admission"] = admission
        conditions.put(
            rows, names.QUOTA_RESERVED, True, "QuotaReserved", f"Quota reserved in ClusterQueue {queue}", now=now
        )
        end_eviction(rows, now)
        conditions.put(rows, names.ADMITTED, True, "Admitted", f"The variant {name} is admitted", now=now)
        if starts:
            conditions.put(rows, names.PODS_READY, False, "WaitForStart", NOT_READY, now=now)

    return change


def ask_checks(decision: model.AskChecks) -> Change:
    def change(status: Json, now: int) -> None:
        _sync_checks(status, decision.checks, now)

    return change


def list_checks(decision: model.AskChecks) -> Change:
    """List the checks of a workload that waits; a reservation that was made meanwhile has its own."""

    def change(status: Json, now: int) -> None:
        if not conditions.is_true(rows_of(status), names.QUOTA_RESERVED):
            _sync_checks(status, decision.checks, now)

    return change


def complete_admission(*, pods_follow: bool = False) -> Change:
    """Admit a workload that holds quota: without it nothing would count for it. `pods_follow`: see `admit`."""

    def change(status: Json, now: int) -> None:
        rows = rows_of(status)
        if conditions.is_true(rows, names.QUOTA_RESERVED):
            _set_admitted(rows, now, pods_follow)

    return change


def _set_preview(rows: conditions.Conditions, preview: str, now: int) -> None:
    """Record what a placement policy that is tried out would have done; nothing is recorded where none was ever tried out."""
    if preview:
        conditions.put(rows, names.PLACEMENT_PREVIEW, True, "DryRun", preview, now=now)
    elif conditions.is_true(rows, names.PLACEMENT_PREVIEW):
        conditions.put(rows, names.PLACEMENT_PREVIEW, False, "NoDryRun", "No placement policy is tried out", now=now)


def _set_searched(rows: conditions.Conditions, searched: str, now: int) -> None:
    """Record how a search has found the places of the pods; nothing is recorded where none ever did."""
    if searched:
        conditions.put(rows, names.PLACEMENT_SEARCHED, True, "Searched", searched, now=now)
    elif conditions.is_true(rows, names.PLACEMENT_SEARCHED):
        conditions.put(
            rows, names.PLACEMENT_SEARCHED, False, "NotSearched", "Places were found without a search", now=now
        )


def _set_backfilled(rows: conditions.Conditions, backfilled: bool, now: int) -> None:
    """Record whether the workload was backfilled: such a workload may be preempted for the one that goes first."""
    if backfilled:
        message = "Backfilled: another workload goes first and has a reservation"
        conditions.put(rows, names.BACKFILLED, True, "BesideReservation", message, now=now)
    elif conditions.is_true(rows, names.BACKFILLED):
        conditions.put(rows, names.BACKFILLED, False, "InOrder", "Admitted in queue order", now=now)


def _set_admitted(rows: conditions.Conditions, now: int, pods_follow: bool) -> None:
    conditions.put(rows, names.ADMITTED, True, "Admitted", "The workload is admitted", now=now)
    if pods_follow:
        conditions.put(rows, names.PODS_READY, False, "WaitForStart", NOT_READY, now=now)


def _sync_checks(status: Json, wanted: Iterable[str], now: int) -> None:
    """List exactly the checks that apply, keeping the state of existing ones."""
    known = {row["name"]: row for row in status.get("admissionChecks", ())}
    rows = [
        known.get(
            name, {"name": name, "state": "Pending", "message": "", "lastTransitionTime": conditions.timestamp(now)}
        )
        for name in wanted
    ]
    if rows or known:
        status["admissionChecks"] = rows


def replace_admission(decision: model.Swap) -> Change:
    def change(status: Json, now: int) -> None:
        status["admission"] = render.admission(decision.admission)
        status.pop("unhealthyNodes", None)

    return change


def pending(explanation: model.Explanation, requests: Sequence[Json] = ()) -> Change:
    """Record why the workload is pending, and what it counts for where its pod templates do not say that.

    An explanation is written after a while: a reservation that was made meanwhile, be it by another controller, stands.
    """

    def change(status: Json, now: int) -> None:
        if conditions.is_true(rows_of(status), names.QUOTA_RESERVED):
            return
        if requests:
            status["resourceRequests"] = list(requests)
        else:
            status.pop("resourceRequests", None)
        rows = rows_of(status)
        if explanation.reason == DEACTIVATED:
            status.pop("requeueState", None)
            if not conditions.is_true(rows, names.EVICTED):  # it held nothing that an eviction would have released
                conditions.put(rows, names.EVICTED, True, DEACTIVATED, explanation.message, now=now)
                _count_eviction(status, DEACTIVATED, "")
        conditions.put(rows, names.QUOTA_RESERVED, False, explanation.reason, explanation.message, now=now)
        _no_reservation(rows, now)
        if explanation.not_queued:
            conditions.put(rows, names.REQUEUED, False, names.NOT_QUEUED, explanation.message, now=now)
        else:
            _queue(rows)
        if explanation.preemption_gates:
            conditions.put(rows, names.BLOCKED_ON_GATES, True, "PreemptionGated", explanation.message, now=now)

    return change


def first_said(explanation: model.Explanation) -> Change:
    """Record why the workload is pending, unless something was said already."""
    tell = pending(explanation)

    def change(status: Json, now: int) -> None:
        if conditions.find(rows_of(status), names.QUOTA_RESERVED) is None:
            tell(status, now)

    return change


def bypassed(explanation: model.Explanation, requests: Sequence[Json] = ()) -> Change:
    """Record, in Kueue's words, that one like it was tried. What was said of the workload itself when it was tried stands."""
    tell = pending(replace(explanation, message=BYPASSED), requests)

    def change(status: Json, now: int) -> None:
        known = conditions.find(rows_of(status), names.QUOTA_RESERVED) or {}
        if known.get("reason", "") in _NOT_TRIED:
            tell(status, now)

    return change


def preempt(decision: model.Preempt) -> Change:
    def change(status: Json, now: int) -> None:
        rows = rows_of(status)
        conditions.put(rows, names.EVICTED, True, "Preempted", decision.message, now=now)
        _count_eviction(status, "Preempted", "")
        conditions.put(rows, names.PREEMPTED, True, decision.reason, decision.message, now=now)
        close_gates(status, "Preempted", decision.message, now)
        _forget_placement(status, now)

    return change


def cause_of(decision: model.Evict, status: Json) -> str:
    """The underlying cause of an eviction, by the status before it. For PodsReady: what the workload waited for."""
    if decision.reason != "PodsReadyTimeout":
        return decision.underlying_cause
    if decision.waited_for:
        return decision.waited_for
    ready = conditions.find(status.get("conditions") or [], names.PODS_READY) or {}
    return "WaitForRecovery" if ready.get("reason") == "WaitForRecovery" else "WaitForStart"


def evict(decision: model.Evict) -> Change:
    def change(status: Json, now: int) -> None:
        # a deactivation carries its cause in the condition's reason, the others only in the statistics
        named = decision.reason == DEACTIVATED and decision.underlying_cause
        reason = f"{names.DEACTIVATED_DUE_TO}{decision.underlying_cause}" if named else decision.reason
        conditions.put(rows_of(status), names.EVICTED, True, reason, decision.message, now=now)
        cause = cause_of(decision, status)
        _count_eviction(status, decision.reason, cause)
        if cause != NOT_SCHEDULED:  # what remains would keep its place
            _remove(rows_of(status), names.PODS_UNSCHEDULED)
        if decision.reason == "Deactivated":
            status.pop("requeueState", None)
        if decision.requeue_count is not None or decision.requeue_at is not None:
            state = status.setdefault("requeueState", {})
            if decision.requeue_count is not None:
                state["count"] = decision.requeue_count
            if decision.requeue_at is not None:
                state["requeueAt"] = conditions.timestamp(decision.requeue_at)
        close_gates(status, reason, decision.message, now)
        if decision.deactivate:  # done with the eviction: it may be activated again
            _remove(rows_of(status), names.DEACTIVATION_TARGET)
        _forget_placement(status, now)

    return change


def _remove(rows: conditions.Conditions, kind: str) -> None:
    rows[:] = [row for row in rows if row.get("type") != kind]


def _forget_placement(status: Json, now: int) -> None:
    """Remove what holds for this admission only: checks are reset, and its unhealthy nodes do not concern the next one."""
    for name in ("unhealthyNodes", "clusterName", "nominatedClusterNames"):
        status.pop(name, None)
    if checks := status.get("admissionChecks"):
        status["admissionChecks"] = [_reset(check, now) for check in checks]


def _reset(check: Json, now: int) -> Json:
    state = check.get("state", "")
    if state == "Pending":
        return check
    reset: Json = {
        "name": check["name"],
        "state": "Pending",
        "message": f"Reset to Pending after eviction. Previously: {state}",
        "lastTransitionTime": conditions.timestamp(now),
    }
    if "requeueAfterSeconds" in check:
        reset["requeueAfterSeconds"] = check["requeueAfterSeconds"]
    if state == "Retry":
        reset["retryCount"] = check.get("retryCount", 0) + 1
    elif "retryCount" in check:
        reset["retryCount"] = check["retryCount"]
    return reset


def _count_eviction(status: Json, reason: str, cause: str) -> None:
    evictions = status.setdefault("schedulingStats", {}).setdefault("evictions", [])
    for row in evictions:
        if row.get("reason") == reason and row.get("underlyingCause", "") == cause:
            row["count"] = row.get("count", 0) + 1
            return
    if len(evictions) < 256:
        evictions.append({"reason": reason, "underlyingCause": cause, "count": 1})


def release(status: Json, now: int) -> None:
    """Release the quota of a stopped job and, where the eviction's reason allows it, requeue it at once."""
    rows = rows_of(status)
    evicted = conditions.find(rows, names.EVICTED)
    reason, message = (evicted["reason"], evicted.get("message", "")) if evicted else ("Pending", "")
    admitted = conditions.find(rows, names.ADMITTED)
    if admitted is not None and admitted["status"] == "True":
        ran = max(0, now - conditions.millis_of(admitted.get("lastTransitionTime"))) // 1000
        status["accumulatedPastExecutionTimeSeconds"] = status.get("accumulatedPastExecutionTimeSeconds", 0) + ran
    status.pop("admission", None)
    if reason.startswith(DEACTIVATED):
        conditions.put(rows, names.QUOTA_RESERVED, False, DEACTIVATED, "The workload is deactivated", now=now)
    else:
        conditions.put(rows, names.QUOTA_RESERVED, False, "PendingEvaluation", message, now=now)
    if admitted is not None:
        _no_reservation(rows, now)
    if reason == "PodsReadyTimeout" or conditions.is_true(rows, names.PODS_READY):
        conditions.put(rows, names.PODS_READY, False, "WaitForStart", NOT_READY, now=now)
    for kind in (names.OVERRUN, names.STALLED, names.PODS_REFUSED, names.PODS_UNSCHEDULED):
        if (old := conditions.find(rows, kind)) is not None and old["status"] == "True":
            conditions.put(rows, kind, False, old["reason"], f"Previously: {old.get('message', '')}", now=now)
    if (phase := conditions.find(rows, names.CONVERGED)) is not None:  # its next run begins like any other
        conditions.put(rows, names.CONVERGED, False, PROGRESSING, phase.get("message", ""), now=now)
    if (stall := conditions.find(rows, names.STALLED)) is not None and stall["reason"] == IDLE:
        rows.remove(stall)  # it concerned a run that has ended
    if evicted is not None and evicted["status"] == "True":
        conditions.put(rows, names.REQUEUED, reason in _REQUEUED_AT_ONCE, reason, message, now=now)


def put_on_hold(message: str) -> Change:
    """Give back the quota of a workload that has no pods to run now, and keep it out of its queue."""

    def change(status: Json, now: int) -> None:
        rows = rows_of(status)
        for name in ("admission", "reclaimablePods"):
            status.pop(name, None)
        _forget_placement(status, now)
        conditions.put(rows, names.QUOTA_RESERVED, False, ON_HOLD, message, now=now)
        if conditions.find(rows, names.ADMITTED) is not None:
            _no_reservation(rows, now)
        if conditions.is_true(rows, names.PODS_READY):
            conditions.put(rows, names.PODS_READY, False, "WaitForStart", NOT_READY, now=now)

    return change


def end_hold(status: Json, now: int) -> None:
    """End the hold of a workload that has pods to run again: it is decided about next."""
    rows = rows_of(status)
    if is_on_hold(rows):
        message = "Workload no longer on hold; waiting for quota reservation"
        conditions.put(rows, names.QUOTA_RESERVED, False, "PendingEvaluation", message, now=now)


def is_on_hold(rows: conditions.Conditions) -> bool:
    known = conditions.find(rows, names.QUOTA_RESERVED)
    return known is not None and (known["status"], known.get("reason")) == ("False", ON_HOLD)


def unclaim(status: Json, now: int) -> None:
    """Count the pods of a workload without quota in full again."""
    if not conditions.is_true(rows_of(status), names.QUOTA_RESERVED):
        status.pop("reclaimablePods", None)


def withdraw(decision: model.Withdraw) -> Change:
    """Release quota that was reserved only; what was admitted meanwhile stays."""

    def change(status: Json, now: int) -> None:
        rows = rows_of(status)
        if not conditions.is_true(rows, names.ADMITTED):
            status.pop("admission", None)
            message = f"{decision.ended} is terminating or missing"
            conditions.put(rows, names.QUOTA_RESERVED, False, "Misconfigured", message, now=now)
            _no_reservation(rows, now)

    return change


def is_left_behind(status: Json) -> bool:
    """Whether the workload's quota is released while its admission is still there."""
    reserved = conditions.find(status.get("conditions"), names.QUOTA_RESERVED)
    return bool(status.get("admission")) and reserved is not None and reserved.get("status") == "False"


def clear_left_behind(status: Json, now: int) -> None:
    if is_left_behind(status):
        status.pop("admission")


_REQUEUE_MESSAGES: Mapping[str, str] = {
    "BackoffFinished": "The workload backoff was finished",
    "Reactivated": "The workload was reactivated",
    "ClusterQueueRestarted": "The ClusterQueue was restarted after being stopped",
    "LocalQueueRestarted": "The LocalQueue was restarted after being stopped",
}


def requeue(decision: model.Requeue) -> Change:
    def change(status: Json, now: int) -> None:
        message, rows = _REQUEUE_MESSAGES.get(decision.reason, ""), rows_of(status)
        known = conditions.find(rows, names.REQUEUED)
        if decision.reason != "BackoffFinished" or (known is not None and known["status"] == "False"):
            conditions.put(rows, names.REQUEUED, True, decision.reason, message, now=now)
        state = status.get("requeueState")
        if state is not None:
            if decision.reason == "Reactivated":
                status.pop("requeueState")
            else:
                state.pop("requeueAt", None)

    return change
