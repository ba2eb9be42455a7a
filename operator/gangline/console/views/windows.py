"""Windows of Reservations, as commands show them."""

from __future__ import annotations

from collections.abc import Sequence

from gangline import bounded
from gangline.api.schedules import instant
from gangline.console.output import clock
from gangline.kube.client import ApiClient
from gangline.kube.errors import Forbidden, NotFound
from gangline.kube.resources import RESERVATIONS, Json

#: nodes that are named in a line
_NAMED = 3


async def reservations(api: ApiClient) -> list[Json]:
    """All Reservations, by name; none for a user who may not see them, or in a cluster without the kind."""
    try:
        found = (await api.list(RESERVATIONS)).items
    except (Forbidden, NotFound):
        return []
    return sorted(found, key=lambda each: each["metadata"]["name"])


def span(window: Json, now: float) -> str:
    """The time in which a window of a status is open, in words."""
    start, end = _seconds(window["start"]), _seconds(window["end"])
    return f"{clock.between(start, end, now)} ({clock.distance(start, now)})"


def owner(reservation: Json) -> str:
    """Whom it is for, in words."""
    whom = reservation["spec"].get("for") or {}
    queues = [*(whom.get("clusterQueues") or ())]
    queues += [f"{each['namespace']}/{each['name']}" for each in whom.get("localQueues") or ()]
    queues += [f"user {each}" for each in whom.get("users") or ()]
    return ", ".join(queues) if queues else "maintenance"


def nodes(reservation: Json) -> str:
    """The reserved nodes, in words; the first by name."""
    status = reservation.get("status") or {}
    names: list[str] = status.get("nodes") or []
    return bounded.some(names, _NAMED, of=status.get("nodeCount") or 0)


def lines(found: Sequence[Json], now: float, until: float) -> list[str]:
    """A line for each window that is open or begins by `until` (seconds)."""
    lines: list[tuple[float, str]] = []
    for each in found:
        for window in (each.get("status") or {}).get("windows") or ():
            start = _seconds(window["start"])
            if start <= until:
                name, whom = each["metadata"]["name"], owner(each) + ", soft" * (each["spec"].get("firm") == "Soft")
                said = f"Reserved {span(window, now)}: {nodes(each) or 'no node'} ({whom}, Reservation {name})"
                lines.append((start, said))
    return [line for _, line in sorted(lines)]


def of_node(node: Json, now: float) -> str:
    """The window that a node is in, or will be in next, as an answer says it, in words."""
    window = node.get("window")
    if window is None or window["to"] <= now:
        return ""
    what = "maintenance" if window["maintenance"] else "soft" if window["soft"] else "reserved"
    prefix = "emptying, " if window["announced"] <= now < window["from"] and not window["soft"] else ""
    return f"{prefix}{what} {clock.between(window['from'], window['to'], now)} ({window['reservation']})"


def as_status(window: tuple[int, int]) -> Json:
    """A window from one millisecond to another, as a status has it."""
    return {"start": clock.rfc3339(window[0] / 1000), "end": clock.rfc3339(window[1] / 1000)}


def _seconds(text: str) -> float:
    return instant(text) / 1000
