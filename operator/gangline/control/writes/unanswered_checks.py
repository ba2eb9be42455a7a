"""Admission checks that nobody answers here: those that would send workloads to other clusters get Active=False, with the reason.

Without it a ClusterQueue with such a check is as inactive, but the check does not say why. A check whose condition somebody else
writes, such as a MultiKueue controller that runs beside Gangline, is left to them.
"""

from __future__ import annotations

from typing import Final

from gangline.api import names
from gangline.api.admission import multikueue
from gangline.api.read import conditions
from gangline.control.mirror.mirror import Mirror
from gangline.control.parts.part import Part
from gangline.control.writes.outgoing import Priority
from gangline.control.writes.writes import Writes
from gangline.kube import resources as kube
from gangline.kube.reflector import Event, Upsert
from gangline.kube.resources import Json, ObjectKey, key_of

REASON: Final = "NotSupported"
MESSAGE: Final = "Gangline sends no workloads to other clusters yet"


class UnansweredChecks(Part):
    """Marks them when they appear."""

    name = "checks"
    kinds = (kube.ADMISSION_CHECKS,)

    def __init__(self, mirror: Mirror, writes: Writes) -> None:
        self._mirror = mirror
        self._writes = writes
        self._seen: set[str] = set()

    def observe(self, resource: kube.Resource, event: Event) -> None:
        if isinstance(event, Upsert):
            self._seen.add(key_of(event.obj))

    def lead(self) -> None:
        self._seen.update(self._mirror.objects[kube.ADMISSION_CHECKS])

    def act(self, now: int) -> None:
        waiting = sorted(key for key in self._seen if not self._writes.in_doubt(kube.ADMISSION_CHECKS, key))
        for key in waiting:
            self._seen.discard(key)
            check = self._mirror.get(kube.ADMISSION_CHECKS, key)
            status = inactive_status(check, now) if check is not None else None
            if check is not None and status is not None:
                body = {"metadata": {"resourceVersion": check["metadata"]["resourceVersion"]}, "status": status}
                self._writes.send(ObjectKey(kube.ADMISSION_CHECKS, "", key), "status", body, priority=Priority.STATUS)


def inactive_status(check: Json, now: int) -> Json | None:
    """What to write into the status of a check that nobody answers; None for all others."""
    if (check.get("spec") or {}).get("controllerName") != multikueue.CONTROLLER:
        return None
    rows = [dict(row) for row in (check.get("status") or {}).get("conditions") or ()]
    found = conditions.find(rows, names.ACTIVE)
    if found is not None and found.get("reason") != REASON:
        return None
    generation = check["metadata"].get("generation", 0)
    before = dict(found or {})
    conditions.put(rows, names.ACTIVE, False, REASON, MESSAGE, now=now, generation=generation)
    return {"conditions": rows} if conditions.find(rows, names.ACTIVE) != before else None
