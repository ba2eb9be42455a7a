"""The changes to a Workload's status that concern the jobs for which it waits."""

from __future__ import annotations

from gangline.api import names
from gangline.api.read import conditions
from gangline.control.writes.status.change import Change, rows_of
from gangline.engine import FOR_OTHER_JOBS, NEVER_SATISFIED
from gangline.kube.resources import Json


def waits(rows: conditions.Conditions) -> bool:
    """Whether the status says that the Workload waits for other jobs."""
    known = conditions.find(rows, names.QUOTA_RESERVED)
    if known is None or known.get("status") != "False":
        return False
    return known.get("reason") in (FOR_OTHER_JOBS, NEVER_SATISFIED)


def dependencies_met(status: Json, now: int) -> None:
    """Record that the Workload waits for no other job any more: it is decided about next."""
    rows = rows_of(status)
    if waits(rows):
        message = "The jobs that it waited for are as it needs them; waiting for quota reservation"
        conditions.put(rows, names.QUOTA_RESERVED, False, "PendingEvaluation", message, now=now)


def cancel(message: str) -> Change:
    """Ask for the deactivation of a Workload whose dependencies cannot be met any more."""

    def change(status: Json, now: int) -> None:
        conditions.put(rows_of(status), names.DEACTIVATION_TARGET, True, NEVER_SATISFIED, message, now=now)

    return change
