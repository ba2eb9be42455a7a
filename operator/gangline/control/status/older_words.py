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
    "WaitingForPodsReady": "Waiting",
}


def reason(newer: str) -> str:
    """The reason of QuotaReserved=False, and of the event that tells it."""
    return _OLDER.get(newer, "Pending")


def translate(status: Json) -> None:
    """Puts the older reasons into a Workload's status."""
    rows: conditions.Conditions = status.get("conditions") or []
    waits, checked = conditions.find(rows, names.QUOTA_RESERVED), conditions.find(rows, names.ADMITTED)
    if waits is not None and waits["status"] == "False":
        waits["reason"] = reason(waits.get("reason", ""))
    if checked is not None and checked.get("reason") == "UnsatisfiedAdmissionChecks":
        checked["reason"] = "UnsatisfiedChecks"
