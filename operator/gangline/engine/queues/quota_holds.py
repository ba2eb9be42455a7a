"""Quota holds: what victims free is held for their preemptor while they stop (fixes of Kueue quirks, see `fixes`).

A hold exists from the moment victims are chosen until the preemptor has its quota, cannot have it any more, or is gone. While
victims still hold their quota the hold covers only what they do not, so that nothing is counted twice.
"""

from __future__ import annotations

from collections.abc import Generator, Iterable
from contextlib import contextmanager

from gangline.engine.queues.cluster_queue import ClusterQueueState, QuotaHold, cluster_queues_of, queue_of
from gangline.engine.queues.workload_state import WorkloadState
from gangline.engine.quota.quota_ledger import FlavorResource, Node
from gangline.engine.text.fixes import HOLD_QUOTA, NO_READMIT


def quota_holds_of(root: Node) -> list[QuotaHold]:
    return [hold for queue in cluster_queues_of(root) for hold in queue.quota_holds.values()]


@contextmanager
def held_for_others(quota_holds: Iterable[QuotaHold], gang: WorkloadState) -> Generator[None]:
    """The ledger as `gang` may use it: what is held for others counts as used, unless it precedes them in their own queue."""
    taken = [
        (hold.queue.cell(fr), amount)
        for hold in quota_holds
        if HOLD_QUOTA in hold.queue.fixes and not _goes_before(gang, hold)
        for fr, amount in hold.outstanding().items()
        if amount
    ]
    for cell, amount in taken:
        cell.add(amount)
    try:
        yield
    finally:
        for cell, amount in reversed(taken):
            cell.remove(amount)


def _goes_before(gang: WorkloadState, hold: QuotaHold) -> bool:
    return gang is hold.gang or (gang.queue is hold.queue and gang.priority > hold.gang.priority)


def hold_quota_for(
    gang: WorkloadState, queue: ClusterQueueState, usage: dict[FlavorResource, int], victims: list[WorkloadState]
) -> None:
    """Hold quota for `gang`, which waits for these victims. Holds are made only where a fix gives them an effect."""
    if HOLD_QUOTA in queue.fixes or NO_READMIT in queue.fixes:
        old = queue.quota_holds.get(gang.uid)
        everyone = {id(victim): victim for victim in [*(old.victims if old else ()), *victims]}
        queue.quota_holds[gang.uid] = QuotaHold(gang, queue, usage, list(everyone.values()))


def end_quota_hold(gang: WorkloadState, queue: ClusterQueueState) -> None:
    """The preemptor has started, no longer waits, or is gone: workloads that waited for it may try again."""
    hold = queue.quota_holds.pop(gang.uid, None)
    for victim in hold.victims if hold else ():
        own = queue_of(victim)
        if own is not None and victim.inadmissible_alone and not victim.holds and victim.yielding:
            victim.yielding = False
            own.pending.take_out(victim)
            own.pending.arrive(victim)


def preempted_for(
    gang: WorkloadState, queue: ClusterQueueState, quota_holds: Iterable[QuotaHold]
) -> WorkloadState | None:
    """The preemptor that this gang was preempted for and that has not started yet, where that matters."""
    for hold in quota_holds:
        if NO_READMIT in hold.queue.fixes and hold.gang is not gang and any(victim is gang for victim in hold.victims):
            return hold.gang
    return None
