"""Reads from a Workload's record and its pods how a swap stands: the pods it concerns, whether it is over, and
its message. Pure.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final

from gangline import bounded
from gangline.api import names
from gangline.api.read import conditions
from gangline.api.read.workloads import swap_record
from gangline.api.read.workloads.swap_record import REPLACE, REQUEUE, RESTART, RecordedSwap, SwapRecord
from gangline.control.feed.pod import Pod
from gangline.objects import WorkloadObject


def runs(workload: WorkloadObject) -> bool:
    """Whether the workload is admitted and neither evicted nor finished."""
    here = "admission" in workload.status and workload.admitted
    return here and not workload.evicted and not workload.finished


def admitted_since(workload: WorkloadObject) -> int:
    """The time at which the workload's admission began, in milliseconds; 0 without one."""
    row = workload.true_condition(names.ADMITTED)
    return conditions.millis_of(row.get("lastTransitionTime")) if row is not None else 0


def is_lost(pod: Pod, swap: RecordedSwap) -> bool:
    """Whether the pod was on a node when that node failed, or was given a place there and was not bound yet. A pod created there
    later was placed there deliberately. Of a node that only refuses pods, those that are bound stay.
    """
    if pod.node and pod.node in swap.refusing:
        return False
    left = swap.left_at(pod.node or pod.sent or pod.host)
    return left is not None and pod.created <= left


def is_fresh(pod: Pod, record: SwapRecord, swap: RecordedSwap) -> bool:
    """Whether the pod belongs to the gang as it is after the swap."""
    if swap.how == RESTART:
        return pod.attempt >= record.attempt
    if swap.how == REQUEUE and pod.created < swap.decided // 1000 * 1000:
        return False
    return not is_lost(pod, swap)


def wanted_pods(workload: WorkloadObject) -> int:
    """How many pods an admitted gang has, less those that completed for good."""
    ended: Mapping[str, int] = {row["name"]: row["count"] for row in workload.status.get("reclaimablePods") or ()}
    return sum(max(0, row.get("count", 0) - ended.get(row.get("name", "main"), 0)) for row in workload.assignments)


def holds_back(workload: WorkloadObject, pods: Iterable[Pod]) -> bool:
    """Whether pods of an attempt older than the recorded one still exist: the next attempt must not begin."""
    record = swap_record.of(workload)
    swap = record.current
    if swap is None or swap.how != RESTART:
        return False
    return any(pod.attempt < record.attempt and not pod.ended for pod in pods)


def are_in_the_way(pods: Iterable[Pod]) -> bool:
    """Whether a pod that is being deleted has the name of one of the next attempt, which would start without that one."""
    return any(pod.keeps_name and pod.terminating and not pod.ended for pod in pods)


def missing(swap: RecordedSwap) -> str:
    """One sentence about an open swap."""
    if swap.refusing == swap.lost and swap.lost:
        return f"Pods can't be bound to {_list(swap.lost)} ({swap.cause})"
    return f"Lost {_list(swap.lost) or 'pods'} ({swap.cause})"


def describe(swap: RecordedSwap) -> str:
    """One sentence about a completed swap."""
    took = ", ".join(f"{name} {seconds:.1f} s" for name, seconds in swap.stages().items() if name != "total")
    away = f" from {_list(swap.lost)}" if swap.lost else ""
    there = f" to {_list(swap.to)}" if swap.to else ""
    total = swap.stages().get("total", 0.0)
    return f"{_HOW[swap.how]}{away} ({swap.cause}){there} in {total:.1f} s: {took}"


_HOW: Final = {REPLACE: "Lost pods moved", RESTART: "The gang moved", REQUEUE: "The gang was queued again and moved"}


def _list(nodes: tuple[str, ...]) -> str:
    return bounded.some(nodes, 4)
