"""The change that each decision makes to a Workload's status: one small function each, on plain JSON.

Every function takes the status (changed in place) and `now` in milliseconds; several may be applied before one write. Condition
types, reasons and messages are Kueue's.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence

from gangline.api import names
from gangline.api.read import conditions, render
from gangline.api.read.swap_record import REPLACE, REQUEUE, RESTART, RecordedSwap
from gangline.engine import model
from gangline.kube.resources import Json

Change = Callable[[Json, int], None]

#: Eviction reasons after which a workload is requeued at once when its eviction is complete.
_REQUEUED_AT_ONCE = frozenset({"Preempted", "NodeFailures", "Overrun", "Stalled"})

#: reason of QuotaReserved=False for a workload with admission gates
GATED = "AdmissionGated"

#: reason of Stalled=False for a live run whose GPUs are idle
IDLE = "Idle"

NOT_READY = "Not all pods are ready or succeeded"


def _conditions(status: Json) -> conditions.Conditions:
    return status.setdefault("conditions", [])


def admit(decision: model.Admit, *, pods_follow: bool = False) -> Change:
    """Reserve quota and, without admission checks to wait for, admit the workload in the same write.

    `pods_follow`: a job will report its pods; the same write records that they are not ready yet.
    """

    def change(status: Json, now: int) -> None:
        rows = _conditions(status)
        status["admission"] = render.admission(decision.admission)
        status.pop("resourceRequests", None)  # the admission says it
        queue = decision.admission.cluster_queue
        conditions.put(
            rows, names.QUOTA_RESERVED, True, "QuotaReserved", f"Quota reserved in ClusterQueue {queue}", now=now
        )
        for kind in (names.EVICTED, names.PREEMPTED):
            old = conditions.find(rows, kind)
            if old is not None and old["status"] == "True":
                conditions.put(rows, kind, False, "QuotaReserved", f"Previously: {old.get('message', '')}", now=now)
        _set_backfilled(rows, decision.backfilled, now)
        if decision.admitted:
            _set_admitted(rows, now)
            if pods_follow:
                conditions.put(rows, names.PODS_READY, False, "WaitForStart", NOT_READY, now=now)
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


def ask_checks(decision: model.AskChecks) -> Change:
    def change(status: Json, now: int) -> None:
        _sync_checks(status, decision.checks, now)

    return change


def complete_admission(status: Json, now: int) -> None:
    _set_admitted(_conditions(status), now)


def _set_backfilled(rows: conditions.Conditions, backfilled: bool, now: int) -> None:
    """Record whether the workload was backfilled: such a workload may be preempted for the one that goes first."""
    if backfilled:
        message = "Backfilled: another workload goes first and has a reservation"
        conditions.put(rows, names.BACKFILLED, True, "BesideReservation", message, now=now)
    elif conditions.is_true(rows, names.BACKFILLED):
        conditions.put(rows, names.BACKFILLED, False, "InOrder", "Admitted in queue order", now=now)


def _set_admitted(rows: conditions.Conditions, now: int) -> None:
    conditions.put(rows, names.ADMITTED, True, "Admitted", "The workload is admitted", now=now)


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
    """Record why the workload is pending, and what it counts for where its pod templates do not say that."""

    def change(status: Json, now: int) -> None:
        if requests:
            status["resourceRequests"] = list(requests)
        else:
            status.pop("resourceRequests", None)
        conditions.put(
            _conditions(status), names.QUOTA_RESERVED, False, explanation.reason, explanation.message, now=now
        )

    return change


def gates_cleared(status: Json, now: int) -> None:
    """The last admission gate was removed: it is decided about next."""
    rows = _conditions(status)
    known = conditions.find(rows, names.QUOTA_RESERVED)
    if known is not None and known.get("reason") == GATED:
        message = "AdmissionGatedBy cleared, waiting for quota reservation"
        conditions.put(rows, names.QUOTA_RESERVED, False, "PendingEvaluation", message, now=now)


def preempt(decision: model.Preempt) -> Change:
    def change(status: Json, now: int) -> None:
        rows = _conditions(status)
        conditions.put(rows, names.EVICTED, True, "Preempted", decision.message, now=now)
        _count_eviction(status, "Preempted", "")
        conditions.put(rows, names.PREEMPTED, True, decision.reason, decision.message, now=now)
        _forget_placement(status, now)

    return change


def evict(decision: model.Evict) -> Change:
    def change(status: Json, now: int) -> None:
        # a deactivation carries its cause in the condition's reason, the others only in the statistics
        named = decision.reason == "Deactivated" and decision.underlying_cause
        reason = f"DeactivatedDueTo{decision.underlying_cause}" if named else decision.reason
        conditions.put(_conditions(status), names.EVICTED, True, reason, decision.message, now=now)
        _count_eviction(status, decision.reason, decision.underlying_cause)
        if decision.requeue_count is not None or decision.requeue_at is not None:
            state = status.setdefault("requeueState", {})
            if decision.requeue_count is not None:
                state["count"] = decision.requeue_count
            if decision.requeue_at is not None:
                state["requeueAt"] = conditions.timestamp(decision.requeue_at)
        _forget_placement(status, now)

    return change


def _forget_placement(status: Json, now: int) -> None:
    """Remove what holds for this admission only: checks are reset, and its unhealthy nodes do not concern the next one."""
    status.pop("unhealthyNodes", None)
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
    if state == "Retry":
        reset["retryCount"] = check.get("retryCount", 0) + 1
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
    rows = _conditions(status)
    evicted = conditions.find(rows, names.EVICTED)
    reason, message = (evicted["reason"], evicted.get("message", "")) if evicted else ("Pending", "")
    admitted = conditions.find(rows, names.ADMITTED)
    if admitted is not None and admitted["status"] == "True":
        ran = max(0, now - conditions.millis_of(admitted.get("lastTransitionTime"))) // 1000
        status["accumulatedPastExecutionTimeSeconds"] = status.get("accumulatedPastExecutionTimeSeconds", 0) + ran
    status.pop("admission", None)
    conditions.put(rows, names.QUOTA_RESERVED, False, "PendingEvaluation", message, now=now)
    if admitted is not None:
        conditions.put(rows, names.ADMITTED, False, "NoReservation", "The workload has no reservation", now=now)
    if conditions.is_true(rows, names.PODS_READY):
        conditions.put(rows, names.PODS_READY, False, "WaitForStart", NOT_READY, now=now)
    for kind in (names.OVERRUN, names.STALLED, names.PODS_REFUSED):
        if (old := conditions.find(rows, kind)) is not None and old["status"] == "True":
            conditions.put(rows, kind, False, old["reason"], f"Previously: {old.get('message', '')}", now=now)
    if (stall := conditions.find(rows, names.STALLED)) is not None and stall["reason"] == IDLE:
        rows.remove(stall)  # it concerned a run that has ended
    if evicted is not None and evicted["status"] == "True":
        conditions.put(rows, names.REQUEUED, reason in _REQUEUED_AT_ONCE, reason, message, now=now)


_REQUEUE_MESSAGES: Mapping[str, str] = {
    "BackoffFinished": "The workload backoff was finished",
    "Reactivated": "The workload was reactivated",
    "ClusterQueueRestarted": "The ClusterQueue was restarted after being stopped",
    "LocalQueueRestarted": "The LocalQueue was restarted after being stopped",
}


def requeue(decision: model.Requeue) -> Change:
    def change(status: Json, now: int) -> None:
        message = _REQUEUE_MESSAGES.get(decision.reason, "")
        conditions.put(_conditions(status), names.REQUEUED, True, decision.reason, message, now=now)
        state = status.get("requeueState")
        if state is not None:
            if decision.reason == "Reactivated":
                status.pop("requeueState")
            else:
                state.pop("requeueAt", None)

    return change


def overrun(state: str, message: str) -> Change:
    """Record that the run has lasted longer than forecast; `state` is Warned or Overdue."""

    def change(status: Json, now: int) -> None:
        conditions.put(_conditions(status), names.OVERRUN, True, state, message, now=now)

    return change


def stalled(holds: bool, reason: str, message: str) -> Change:
    """Record that the run hangs and what is done about it (Notify, Restart, Requeue), or why it does not hang."""

    def change(status: Json, now: int) -> None:
        conditions.put(_conditions(status), names.STALLED, holds, reason, message, now=now)

    return change


def pods_refused(holds: bool, reason: str, message: str) -> Change:
    """Record on what ground the API server refuses its pods, or that it accepts them again."""

    def change(status: Json, now: int) -> None:
        conditions.put(_conditions(status), names.PODS_REFUSED, holds, reason, message, now=now)

    return change


def finish(success: bool, message: str) -> Change:
    return finish_because("Succeeded" if success else "Failed", message)


def finish_because(reason: str, message: str) -> Change:
    def change(status: Json, now: int) -> None:
        conditions.put(_conditions(status), names.FINISHED, True, reason, message, now=now)

    return change


def pods_ready(ready: bool) -> Change:
    def change(status: Json, now: int) -> None:
        rows = _conditions(status)
        old = conditions.find(rows, names.PODS_READY)
        was_ready = old is not None and (old["status"] == "True" or old.get("reason") == "WaitForRecovery")
        if ready:
            reason, message = (
                "Recovered" if was_ready else "Started",
                "All pods reached readiness and the workload is running",
            )
        elif was_ready:
            reason, message = "WaitForRecovery", "At least one pod has failed, waiting for recovery"
        else:
            reason, message = "WaitForStart", NOT_READY
        conditions.put(rows, names.PODS_READY, ready, reason, message, now=now)
        if ready:
            status.pop("requeueState", None)

    return change


def swapping(swap: RecordedSwap, message: str) -> Change:
    """Record that nodes were lost and are being replaced."""

    def change(status: Json, now: int) -> None:
        reason = "Queued" if swap.how == REQUEUE else "Swapping"
        conditions.put(_conditions(status), names.RECOVERED, False, reason, message, now=now)

    return change


def recovered(swap: RecordedSwap, message: str) -> Change:
    """Record that the gang runs again."""

    def change(status: Json, now: int) -> None:
        reason = {REPLACE: "Swapped", RESTART: "Restarted"}.get(swap.how, "Requeued")
        conditions.put(_conditions(status), names.RECOVERED, True, reason, message, now=now)

    return change


def reclaim(reclaimable: Mapping[str, int]) -> Change:
    """Release the quota of pods that completed for good; the count never decreases."""

    def change(status: Json, now: int) -> None:
        known = {row["name"]: row["count"] for row in status.get("reclaimablePods", ())}
        merged = {name: max(count, known.get(name, 0)) for name, count in {**known, **reclaimable}.items()}
        status["reclaimablePods"] = [{"name": name, "count": count} for name, count in sorted(merged.items())]

    return change
