"""The history of a workload, from the operator's memory or from the Workload's conditions. Pure functions."""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from gangline.api import names
from gangline.api.read import conditions
from gangline.bounded import printable
from gangline.kube.resources import Json

#: condition type -> state of the Workload after the condition became true
_STATES: Mapping[str, str] = {
    names.QUOTA_RESERVED: "QuotaReserved",
    names.ADMITTED: "Admitted",
    names.EVICTED: "Evicting",
    names.FINISHED: "Finished",
}


@dataclass(frozen=True, slots=True)
class Event:
    """One state change. `at` is in seconds since the epoch, None for just now."""

    at: float | None
    state: str
    cause: str
    decision: str = ""

    def as_json(self) -> dict[str, Any]:
        return {"at": self.at, "state": self.state, "cause": self.cause, "decision": self.decision}


def of_answer(answer: Json) -> list[Event]:
    """Events from the operator's answer."""
    return [Event(row["at"], row["state"], row["cause"], row["decision"]) for row in answer["events"]]


def of_conditions(workload: Json) -> list[Event]:
    """Events from the object: its creation, and the last change of each condition."""
    created = conditions.millis_of(workload["metadata"].get("creationTimestamp")) / 1000
    found = [Event(created, "Pending", "Created")]
    for row in (workload.get("status") or {}).get("conditions") or ():
        state = _STATES.get(row["type"])
        if state is not None and row["status"] == "False" and row["type"] == names.QUOTA_RESERVED:
            state = "Pending"
        elif state is None or row["status"] != "True":
            continue
        found.append(Event(conditions.millis_of(row.get("lastTransitionTime")) / 1000, state, row.get("message", "")))
    return sorted(found, key=lambda event: event.at or 0.0)


def rendered(events: Iterable[Event]) -> list[str]:
    """One line per event: time, new state and cause, which may be a text of others."""
    rows = [(_clock(event.at), event.state, printable(event.cause)) for event in events]
    width = max((len(state) for _, state, _ in rows), default=0)
    return [f"{at}  {state.ljust(width)}  {cause}".rstrip() for at, state, cause in rows]


def _clock(at: float | None) -> str:
    return time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(at)) if at is not None else "just now".ljust(19)
