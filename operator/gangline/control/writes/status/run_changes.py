"""The changes to a Workload's status that concern its run: overdue, stalled, pods refused, ready, moved, finished, and pods that
are done.

Condition types, reasons and messages are Kueue's, where Kueue has them.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

from gangline.api import names
from gangline.api.phases import CONVERGED
from gangline.api.read import conditions
from gangline.api.read.workloads.swap_record import REPLACE, REQUEUE, RESTART, RecordedSwap
from gangline.control.writes.status.change import Change, rows_of
from gangline.kube.resources import Json
from gangline.objects import WorkloadObject

#: reasons of PodsRefused=True for a gang that was not started: the API server does not know a field into which its admission
#: goes, or has not kept what was written there
UNKNOWN_FIELD = "UnknownField"
NOT_KEPT = "AdmissionNotKept"
#: reason of Stalled=False for a live run whose GPUs are idle
IDLE = "Idle"
NOT_READY = "Not all pods are ready or succeeded"


def overrun(state: str, message: str) -> Change:
    """Record that the run has lasted longer than forecast; `state` is Warned or Overdue."""

    def change(status: Json, now: int) -> None:
        conditions.put(rows_of(status), names.OVERRUN, True, state, message, now=now)

    return change


def stalled(holds: bool, reason: str, message: str) -> Change:
    """Record that the run hangs and what is done about it (Notify, Restart, Requeue), or why it does not hang."""

    def change(status: Json, now: int) -> None:
        conditions.put(rows_of(status), names.STALLED, holds, reason, message, now=now)

    return change


def converged(phase: str, message: str) -> Change:
    """Record the phase of its training: Progressing, Watching or Converged."""

    def change(status: Json, now: int) -> None:
        conditions.put(rows_of(status), names.CONVERGED, phase == CONVERGED, phase, message, now=now)

    return change


def pods_refused(holds: bool, reason: str, message: str) -> Change:
    """Record on what ground the API server refuses its pods, or that it accepts them again."""

    def change(status: Json, now: int) -> None:
        conditions.put(rows_of(status), names.PODS_REFUSED, holds, reason, message, now=now)

    return change


def pods_unscheduled(by_job: bool, message: str) -> Change:
    """Record what the scheduler says of pods for which it finds no node; "" = it has found nodes for all of them."""

    def change(status: Json, now: int) -> None:
        if not message:
            conditions.put(rows_of(status), names.PODS_UNSCHEDULED, False, "Scheduled", "All pods have nodes", now=now)
            return
        reason = names.CAUSED_BY_JOB if by_job else names.UNSCHEDULABLE
        conditions.put(rows_of(status), names.PODS_UNSCHEDULED, True, reason, message, now=now)

    return change


def lost_words(what: str, lost: Sequence[str]) -> str:
    """The sentence that the API server has not kept what an admission adds to pods. `what`: the resource that was written."""
    more = f" and {len(lost) - 1} more" if len(lost) > 1 else ""
    return (
        f"The API server did not keep what the admission adds to the pods ({lost[0]}{more}): "
        f"an admission webhook of {what} drops or changes it. Nothing of it is started"
    )


def why_not_started(workload: WorkloadObject) -> str:
    """The reason for which the API server does not take the admission of the job, UNKNOWN_FIELD or NOT_KEPT; "" = it does."""
    row = workload.true_condition(names.PODS_REFUSED) or {}
    reason = str(row.get("reason"))
    return reason if reason in (UNKNOWN_FIELD, NOT_KEPT) else ""


def finish(success: bool, message: str) -> Change:
    return finish_because("Succeeded" if success else "Failed", message)


def finish_because(reason: str, message: str) -> Change:
    def change(status: Json, now: int) -> None:
        conditions.put(rows_of(status), names.FINISHED, True, reason, message, now=now)

    return change


def pods_ready(ready: bool) -> Change:
    def change(status: Json, now: int) -> None:
        rows = rows_of(status)
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


def not_started(status: Json, now: int) -> None:
    """Record that pods do not count as ready after somebody else took the workload's quota back."""
    rows = rows_of(status)
    known = conditions.find(rows, names.PODS_READY)
    if known is not None and not conditions.is_true(rows, names.QUOTA_RESERVED):
        conditions.put(rows, names.PODS_READY, False, "WaitForStart", NOT_READY, now=now)


def swapping(swap: RecordedSwap, message: str) -> Change:
    """Record that nodes were lost and are being replaced."""

    def change(status: Json, now: int) -> None:
        reason = "Queued" if swap.how == REQUEUE else "Swapping"
        conditions.put(rows_of(status), names.RECOVERED, False, reason, message, now=now)

    return change


def recovered(swap: RecordedSwap, message: str) -> Change:
    """Record that the gang runs again."""

    def change(status: Json, now: int) -> None:
        reason = {REPLACE: "Swapped", RESTART: "Restarted"}.get(swap.how, "Requeued")
        conditions.put(rows_of(status), names.RECOVERED, True, reason, message, now=now)

    return change


def reclaim(reclaimable: Mapping[str, int], *, anew: Collection[str] = ()) -> Change:
    """Release the quota of pods that completed for good. The count never decreases, but for the pod sets `anew`, which were cut:
    of the pods that they gave up nothing is left to release.
    """

    def change(status: Json, now: int) -> None:
        known = {row["name"]: row["count"] for row in status.get("reclaimablePods", ()) if row["name"] not in anew}
        merged = {name: max(count, known.get(name, 0)) for name, count in {**known, **reclaimable}.items()}
        status["reclaimablePods"] = [{"name": name, "count": count} for name, count in sorted(merged.items())]
        if not merged:
            del status["reclaimablePods"]

    return change


def missing_pods(missing: bool) -> Change:
    """Record that a pod group lacks pods, after an eviction for its reason, or that it is complete again."""

    def change(status: Json, now: int) -> None:
        rows = rows_of(status)
        known, evicted = conditions.find(rows, names.WAITING_FOR_REPLACEMENT), conditions.find(rows, names.EVICTED)
        if missing and evicted is not None and evicted["status"] == "True":
            reason, message = evicted["reason"], evicted.get("message", "")
            conditions.put(rows, names.WAITING_FOR_REPLACEMENT, True, reason, message, now=now)
        elif missing and (known is None or known["status"] != "True"):
            message = "Some Failed pods need replacement"
            conditions.put(rows, names.WAITING_FOR_REPLACEMENT, True, "PodsFailed", message, now=now)
        elif not missing and known is not None:
            message = "No pods need replacement"
            conditions.put(rows, names.WAITING_FOR_REPLACEMENT, False, "PodsReady", message, now=now)

    return change
