"""The changes to a Workload's status that concern admission gates and preemption gates. Reasons and messages are Kueue's."""

from __future__ import annotations

from collections.abc import Sequence

from gangline.api import names
from gangline.api.read import conditions
from gangline.control.writes.status.change import Change, rows_of
from gangline.kube.resources import Json

#: reason of QuotaReserved=False for a workload with admission gates
GATED = "AdmissionGated"


def is_gated(rows: conditions.Conditions) -> bool:
    """Whether the status says that the Workload waits for an admission gate. For a closed preemption gate, it waits with the same
    reason.
    """
    known, blocked = conditions.find(rows, names.QUOTA_RESERVED), conditions.find(rows, names.BLOCKED_ON_GATES)
    if known is None or known.get("status") != "False" or known.get("reason") != GATED:
        return False
    return blocked is None or blocked.get("status") != "True" or blocked.get("message") != known.get("message")


def gates_cleared(status: Json, now: int) -> None:
    """Record that the last admission gate was removed: the workload is decided about next."""
    rows = rows_of(status)
    if is_gated(rows):
        message = "AdmissionGatedBy cleared, waiting for quota reservation"
        conditions.put(rows, names.QUOTA_RESERVED, False, "PendingEvaluation", message, now=now)


def close_gates(status: Json, reason: str, message: str, now: int) -> None:
    """Close the preemption gates of an evicted workload again."""
    rows = rows_of(status)
    if conditions.is_true(rows, names.BLOCKED_ON_GATES):
        conditions.put(rows, names.BLOCKED_ON_GATES, False, reason, message, now=now)
    for gate in status.get("preemptionGates", ()):
        gate.update(position="Closed", lastTransitionTime=conditions.timestamp(now))


def gates_listed(wanted: Sequence[str]) -> Change:
    """List exactly these preemption gates: new ones are closed."""

    def change(status: Json, now: int) -> None:
        known = {row["name"]: row for row in status.get("preemptionGates", ())}
        closed = {"position": "Closed", "lastTransitionTime": conditions.timestamp(now)}
        if known or wanted:
            status["preemptionGates"] = [known.get(name, {"name": name, **closed}) for name in wanted]

    return change


def gate_opened(name: str) -> Change:
    """Open a preemption gate."""

    def change(status: Json, now: int) -> None:
        rest = [row for row in status.get("preemptionGates", ()) if row["name"] != name]
        opened = {"name": name, "position": "Open", "lastTransitionTime": conditions.timestamp(now)}
        status["preemptionGates"] = [*rest, opened]

    return change
