"""The reasons that Kueue up to 0.19 gives where a workload waits: without its gate UnadmittedWorkloadsObservability.

Newer versions say precisely what a workload waits for. Tools written for the older ones look for these few words.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from gangline.api import names
from gangline.api.read import conditions
from gangline.kube.resources import Json

_OLDER: Final[Mapping[str, str]] = {
    "AdmissionGated": "AdmissionGated",
    "Inadmissible": "Inadmissible",
    "Waiting": "Waiting",
    "Misconfigured": "Inadmissible",
    "OnHold": "OnHold",
    "Suspended": "Inadmissible",
    "WaitingForArrayTasks": "Waiting",
    "WaitingForPodsReady": "Waiting",
}


def reason(newer: str) -> str:
    """The reason of QuotaReserved=False, and of the event that tells it."""
    return _OLDER.get(newer, "Pending")


def translate(old: Json, status: Json) -> None:
    """Puts the older reasons into a Workload's status that was `old`, and leaves out that a new Workload is not admitted."""
    rows: conditions.Conditions = status.get("conditions") or []
    waits, checked = conditions.find(rows, names.QUOTA_RESERVED), conditions.find(rows, names.ADMITTED)
    if waits is not None and waits["status"] == "False":
        waits["reason"] = reason(waits.get("reason", ""))
    if checked is not None and checked.get("reason") == "UnsatisfiedAdmissionChecks":
        checked["reason"] = "UnsatisfiedChecks"
    if checked is not None and checked.get("reason") == "NoReservation" and not _said(old):
        rows.remove(checked)


def _said(status: Json) -> bool:
    """Whether a status has the condition Admitted, true or false."""
    return conditions.find(status.get("conditions"), names.ADMITTED) is not None
