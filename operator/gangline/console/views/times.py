"""Words for the times in an answer's items: forecast runtimes and expected starts."""

from __future__ import annotations

from typing import Any

from gangline.control.answers.words import age
from gangline.control.answers.words import runtime_text as words
from gangline.kube.resources import Json


def start_of(item: Json) -> tuple[float | None, float | None]:
    """p50 and p90 of the expected start, in Unix seconds; None if it is not expected."""
    start = item.get("expectedStart") or {}
    return start.get("p50"), start.get("p90")


def start_text(item: Json, now: float) -> str:
    """`12m – 1h5m`, or `now`, or `?` if no start is expected within the horizon."""
    start, latest = start_of(item)
    if start is None:
        return "?"
    if latest is not None and latest - now < 1:
        return "now"
    return f"{age(start - now)} – {'?' if latest is None else age(latest - now)}"


def runtime_text(item: Json) -> str:
    """`p50 – p90` of the runtime, with the flavor if it makes a difference; "" without a forecast."""
    forecast = item.get("forecast")
    return words(forecast["p50"], forecast["p90"], forecast["flavor"] or "") if forecast else ""


def as_json(item: Json) -> dict[str, Any]:
    """What `eta -o json` prints for an item: instants in Unix seconds, null if unknown."""
    return {
        "namespace": item["namespace"],
        "name": item["jobName"],
        "kind": item["jobKind"],
        "workload": item["name"],
        "clusterQueue": item["clusterQueue"],
        "state": item["state"],
        **{name: item.get(name) for name in TIMES},
    }


#: the times of an item
TIMES = ("elapsedSeconds", "expectedStart", "because", "forecast")
