"""The status of Reservations: their next windows, their nodes, and what keeps them from being honoured. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from gangline.api import names
from gangline.api.read import conditions
from gangline.api.reservations import MOST_RECALLS
from gangline.api.schedules import Span
from gangline.engine.model import Recall
from gangline.kube.resources import Json
from gangline.objects import Stored

#: names of nodes, and of workloads, that the status lists
MOST_NODES, MOST_DRAINING = 64, 32


def status(
    reservation: Stored,
    spans: Sequence[Span],
    nodes: Sequence[str],
    troubles: Sequence[str],
    draining: Iterable[str],
    recalls: Iterable[Recall] = (),
    *,
    open_now: Span | None,
    now: int,
) -> Json:
    """The Reservation's status. `draining`: the workloads that should have left its nodes by now; `recalls`: those that have to
    leave the nodes of a soft window.
    """
    rows = [dict(row) for row in reservation.conditions]
    generation = reservation.generation
    late = sorted(draining)

    def put(kind: str, state: bool, reason: str, message: str) -> None:
        conditions.put(rows, kind, state, reason, message, now=now, generation=generation)

    if open_now is not None and late:
        text = (
            f"The window is open until {conditions.timestamp(open_now.end)}; {len(late)} workloads are still to leave"
        )
        put(names.ACTIVE, True, "Draining", text)
    elif open_now is not None:
        put(names.ACTIVE, True, "Open", f"The window is open until {conditions.timestamp(open_now.end)}")
    else:
        put(names.ACTIVE, False, "Closed", "No window is open")
    if spans:
        text = "A window is open" if open_now else f"The next window begins {conditions.timestamp(spans[0].start)}"
        put(names.SCHEDULED, True, "HasWindows", text)
    elif troubles and not nodes:
        put(names.SCHEDULED, False, "Invalid", troubles[0])
    else:
        put(names.SCHEDULED, False, "Over", "All its windows are over")
    if troubles:
        put(names.CONFLICT, True, "NotHonoured", ". ".join(troubles))
    else:
        put(names.CONFLICT, False, "Honoured", "Nothing keeps it from being honoured")
    stamp = conditions.timestamp
    new: Json = {
        **reservation.status,
        "conditions": rows,
        "observedGeneration": generation,
        "windows": [{"start": stamp(span.start), "end": stamp(span.end)} for span in spans],
        "nodes": list(nodes[:MOST_NODES]),
        "nodeCount": len(nodes),
    }
    new.pop("draining", None)
    new.pop("recalls", None)
    first = sorted(recalls, key=lambda each: (each.until, each.workload))[:MOST_RECALLS]
    if first:
        new["recalls"] = [{"workload": each.workload, "by": each.by, "until": stamp(each.until)} for each in first]
    if open_now is not None and late:
        new["draining"] = late[:MOST_DRAINING]
    return new
