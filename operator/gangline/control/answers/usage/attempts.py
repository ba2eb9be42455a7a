"""Attempts, and sums of them, as rows of an answer: what one asker may see of them. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final

from gangline.control.answers.sight import Sight
from gangline.control.answers.usage.decided import PREEMPTIONS
from gangline.control.audit.hindsight import Hindsight
from gangline.forecast.history.attempts import PREEMPTED, JobAttempt
from gangline.forecast.history.usage import (
    CLUSTER_QUEUE,
    DAY,
    LABEL,
    LOCAL_QUEUE,
    NAMESPACE,
    USER,
    FlavorHours,
    Group,
    UsageSum,
    Window,
)
from gangline.kube.resources import Json

#: flavors that are named in one sum; the GPU-hours of further ones, those with the fewest, are added up under ""
MOST_FLAVORS: Final = 64


@dataclass(frozen=True, slots=True)
class UsageRows:
    """Sums as an answer: a row for each group, and one for all of them."""

    rows: list[Json]
    total: Json


def rows(
    attempts: Iterable[JobAttempt],
    sight: Sight,
    jobs: Mapping[str, str],
    now: float,
    hindsight: Mapping[str, Hindsight] | None = None,
) -> Iterator[Json]:
    """Attempts as JSON. `jobs`: names of jobs by the keys of their Workloads; `hindsight`: whether preemptions could have lost
    less, by the keys of attempts.
    """
    for each in attempts:
        key = f"{each.namespace}/{each.workload}"
        visible, label = sight.sees(each.namespace), sight.label(key)
        stages, hour = each.stages(now), each.gpus / 3600
        lost, useful = stages.ended - stages.losing, stages.losing - stages.working
        called = {each.by: each.by_job} if each.by else jobs
        by_space = each.by.partition("/")[0]
        reason_visible = visible or (
            bool(each.by) and sight.sees(by_space)
        )  # a preemptor's owner knows whom it preempted, by label
        name = f"{each.workload if visible else label}.{each.number}"
        yield {
            "metadata": {"namespace": each.namespace, "name": name} if visible else {"name": name},
            "hidden": not visible,
            "namespace": each.namespace if visible else "",
            "workload": each.workload if visible else label,
            "jobKind": each.job_kind if visible else "",
            "jobName": each.job_name if visible else label,
            "user": each.user if visible else "",
            "localQueue": each.local_queue if visible else "",
            "clusterQueue": sight.queue_name(each.cluster_queue),
            "flavor": each.flavor,
            "gpus": each.gpus,
            "pods": each.pods,
            "attempt": each.number,
            "submitted": each.submitted,
            "reserved": each.reserved,
            "started": each.started,
            "ready": each.ready,
            "ended": each.ended,
            "end": each.end,
            "reason": each.reason if reason_visible else "",
            "text": sight.text(each.text, called) if visible else "",
            "rule": PREEMPTIONS.get(each.reason, "") if reason_visible and each.end == PREEMPTED else "",
            "by": sight.name(each.by, called) if each.by and reason_visible else "",
            "byNamespace": by_space if sight.sees(by_space) else "",
            "byClusterQueue": sight.queue_name(each.by_queue) if reason_visible else "",
            "hindsight": _hindsight(hindsight[each.key])
            if reason_visible and hindsight and each.key in hindsight
            else None,
            "savedSeconds": each.saved(now),
            "lostSeconds": lost,
            "lostGpuHours": _hours(hour * lost),
            "gpuHours": _hours(hour * (stages.ended - stages.reserved)),
            "startingGpuHours": _hours(hour * (stages.working - stages.reserved)),
            "idleGpuHours": _hours(min(each.idle / 3600, hour * useful)) if each.idle is not None else None,
            "usefulGpuHours": _hours(hour * useful),
            "lostTo": each.loss if lost else "",
            "backfilled": each.backfilled,
            "nodes": list(each.nodes) if visible else [],
            "nodeCount": each.node_count,
            "labels": dict(each.labels) if visible else {},
        }


def _hindsight(found: Hindsight) -> Json:
    return {"cheaper": found.cheaper, "unknown": found.unknown}


def sums(found: Mapping[Group, UsageSum], window: Window, sight: Sight) -> UsageRows:
    """Sums as JSON, those of most GPU-hours first, days in their order. All that has one name for the asker is one sum. The total
    counts a job once that is in several groups.
    """
    named: dict[tuple[str, bool], UsageSum] = {}
    for group, each in found.items():
        named.setdefault(_name(group, window.by, sight), UsageSum()).merge(each)
    ordered = sorted(named.items(), key=lambda entry: (0.0 if window.by == DAY else -entry[1].hours, entry[0]))
    total = UsageSum()
    for each in found.values():
        total.merge(each)
    rows = [_sum(name, hidden, each, window) for (name, hidden), each in ordered]
    return UsageRows(rows, _sum("", False, total, window))


def _name(group: Group, by: str, sight: Sight) -> tuple[str, bool]:
    """The name of a group for the asker, and whether it is a label in place of one. Of a hidden namespace all users are one
    group, and so are all values of a label.
    """
    namespace, name = group
    if by == CLUSTER_QUEUE:
        shown = sight.queue_name(name)
        return shown, shown != name
    written = by == USER or by.startswith(LABEL)
    if not (written or by in (LOCAL_QUEUE, NAMESPACE)) or sight.sees(namespace):
        return f"{namespace}/{name}" if by == LOCAL_QUEUE else name, False
    return sight.label(namespace if written else f"{namespace}/{name}"), True


def _sum(name: str, hidden: bool, found: UsageSum, window: Window) -> Json:
    meta: dict[str, Any] = {"name": name}
    return {
        "metadata": meta,
        "name": name,
        "hidden": hidden,
        "jobs": len(found.jobs),
        "attempts": found.attempts,
        "gpuHours": _hours(found.hours),
        "usefulGpuHours": _hours(found.useful),
        "startingGpuHours": _hours(found.starting),
        "idleGpuHours": _hours(found.idle) if found.idle is not None else None,
        "lost": {cause: _hours(hours) for cause, hours in found.lost.items()},
        "waitedGpuHours": _hours(found.waited),
        "medianWaitSeconds": found.median_wait,
        "preemptions": found.preemptions,
        "weightedGpuHours": _hours(found.weighted / 3600) if window.half_life is not None else None,
        "flavors": _flavors(found.flavors),
    }


def _flavors(found: Mapping[str, FlavorHours]) -> list[Json]:
    """The GPU-hours of each flavor, the most first."""
    ordered = sorted(found.items(), key=lambda entry: (-entry[1].used, entry[0]))
    rest = FlavorHours()
    for _, hours in ordered[MOST_FLAVORS:]:
        rest.add(hours.used, hours.lost)
    named = [*ordered[:MOST_FLAVORS], *([("", rest)] if len(ordered) > MOST_FLAVORS else [])]
    return [
        {"flavor": flavor, "gpuHours": _hours(hours.used), "lostGpuHours": _hours(hours.lost)}
        for flavor, hours in named
    ]


def _hours(value: float) -> float:
    return round(value, 6)
