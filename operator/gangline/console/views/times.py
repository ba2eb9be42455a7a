"""Words for the times in an answer's items: forecast runtimes and expected starts."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from gangline.console.output import clock
from gangline.control.answers.workloads.words import age
from gangline.control.answers.workloads.words import runtime_text as words
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


def record_text(record: Json) -> str:
    """`p90 held 91 % of 412`: how often starts came before the p90 that was promised first."""
    error = f"; the median error of p50 was {record['medianError']:.0%} of the wait"
    return f"p90 held {record['withinP90']:.0%} of {record['starts']} starts, p50 {record['withinP50']:.0%}{error}"


def record_lines(shown: Sequence[Json]) -> list[str]:
    """One line for each ClusterQueue whose earlier starts were counted."""
    known = {item["clusterQueue"]: item["record"] for item in shown if item.get("record")}
    return [f"ClusterQueue {queue}: {record_text(record)}" for queue, record in sorted(known.items())]


def floor_lines(shown: Sequence[Json], now: float) -> list[str]:
    """One line for each ClusterQueue that does not follow its QueuePolicy: what it follows, since when, and why."""
    known = {item["clusterQueue"]: item["fallenBack"] for item in shown if item.get("fallenBack")}
    return [
        f"ClusterQueue {queue} follows {_MODES.get(away['mode'], away['mode'])} instead of its QueuePolicy, since "
        f"{clock.when(away['since'], now)}{': ' * bool(away['message'])}{away['message']}"
        for queue, away in sorted(known.items())
    ]


_MODES = {"BestEffort": "best effort", "Easy": "EASY (in order of age, one reservation)"}


def as_json(item: Json) -> dict[str, Any]:
    """The item as `eta -o json` prints it: instants in Unix seconds, null if unknown."""
    return {
        "namespace": item["namespace"],
        "name": item["jobName"],
        "kind": item["jobKind"],
        "workload": item["name"],
        "user": item["user"],
        "queue": item["queue"],
        "clusterQueue": item["clusterQueue"],
        "gpus": item["gpus"],
        "created": item["created"],
        "state": item["state"],
        **{name: item.get(name) for name in TIMES},
    }


#: the times of an item
TIMES = ("elapsedSeconds", "expectedStart", "because", "forecast", "record")
