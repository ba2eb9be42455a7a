"""Quota holds: what victims free is held for their preemptor while they stop (fixes of Kueue quirks, see `FIXES`).

A hold exists from the moment victims are chosen until the preemptor has its quota, cannot have it any more, or is gone. While
victims still hold their quota the hold covers only what they do not, so that nothing is counted twice.

Where nodes bound the preemptor, its room on them is held likewise, without any fix: gangs of other cohort trees could take that,
too, and what was preempted would have been stopped in vain.
"""

from __future__ import annotations

from collections.abc import Generator, Iterable
from contextlib import contextmanager

from gangline.engine.model import HOLD_QUOTA
from gangline.engine.model.settings import NO_READMIT
from gangline.engine.occupancy.node_ledger import NOWHERE, Assigned, NodeLedger, Placed
from gangline.engine.queues.cluster_queue import ClusterQueueState, QuotaHold, cluster_queues_of, queue_of
from gangline.engine.queues.workload_state import WorkloadState
from gangline.engine.quota.quota_ledger import Cell, FlavorResource, QuotaNode


def quota_holds_of(root: QuotaNode) -> list[QuotaHold]:
    return [hold for queue in cluster_queues_of(root) for hold in queue.quota_holds.values()]


@contextmanager
def held_for_others(quota_holds: Iterable[QuotaHold], gang: WorkloadState) -> Generator[None]:
    """The ledgers as `gang` may use them: what is held for others counts as used, unless it precedes them in their own queue."""
    taken: list[tuple[Cell, int]] = []
    its_own: list[QuotaHold] = []
    for hold in quota_holds:
        if hold.aside:
            continue
        if _goes_before(gang, hold):
            its_own.append(hold)
        elif _lasts(hold, HOLD_QUOTA):
            taken += [(hold.queue.cell(fr), amount) for fr, amount in hold.outstanding().items() if amount]
    for cell, amount in taken:
        cell.add(amount)
    for hold in its_own:
        hold.node_ledger.lift(hold.holder)
    try:
        yield
    finally:
        for hold in its_own:
            if not hold.aside:
                hold.node_ledger.restore(hold.holder)
        for cell, amount in reversed(taken):
            cell.remove(amount)


def _goes_before(gang: WorkloadState, hold: QuotaHold) -> bool:
    return gang is hold.gang or (gang.queue is hold.queue and gang.priority > hold.gang.priority)


def set_aside(gang: WorkloadState, queue: ClusterQueueState) -> None:
    """Set aside what is held for the preemptor, for the rest of the cycle, so that its own usage counts instead. To be called
    while the quota is `held_for_others`.
    """
    hold = queue.quota_holds.get(gang.uid)
    if hold is not None:
        hold.aside = True


def give_way(gang: WorkloadState, quota_holds: Iterable[QuotaHold]) -> None:
    """A workload took room that may have been held for preemptors of its queue that it precedes: these look for other room."""
    for hold in quota_holds:
        if hold.gang is not gang and (hold.room is not NOWHERE or hold.placed) and _goes_before(gang, hold):
            hold.let_room_go()
            hold.room, hold.placed = Assigned(), ()


def _lasts(hold: QuotaHold, fix: str) -> bool:
    return fix in hold.queue.fixes or hold.room is not NOWHERE or bool(hold.placed)


def hold_quota_for(
    gang: WorkloadState,
    queue: ClusterQueueState,
    usage: dict[FlavorResource, int],
    victims: list[WorkloadState],
    node_ledger: NodeLedger,
    room: Assigned = NOWHERE,
    placed: Placed = (),
    *,
    moving: bool = False,
) -> None:
    """Hold quota and room on nodes for `gang`, which waits for these victims to stop, or to move. Holds are made only where they
    have an effect.
    """
    old = queue.quota_holds.get(gang.uid)
    if HOLD_QUOTA in queue.fixes or NO_READMIT in queue.fixes or room is not NOWHERE or placed:
        everyone = {id(victim): victim for victim in [*(old.victims if old else ()), *victims]}
        queue.quota_holds[gang.uid] = QuotaHold(
            gang, queue, usage, list(everyone.values()), node_ledger, room, placed, moving
        )
    elif old is not None:
        end_quota_hold(gang, queue)


def end_quota_hold(gang: WorkloadState, queue: ClusterQueueState) -> None:
    """The preemptor has started, no longer waits, or is gone: workloads that waited for it may try again."""
    hold = queue.quota_holds.pop(gang.uid, None)
    if hold is not None and any(amount > gang.quota.usage.get(fr, 0) for fr, amount in hold.outstanding().items()):
        queue.freed[queue.name] = None
    if hold is not None:
        hold.let_room_go()
    for victim in hold.victims if hold else ():
        own = queue_of(victim)
        if own is not None and victim.inadmissible_alone and not victim.holds and victim.attempts.yielding:
            victim.attempts.stop_yielding()
            own.pending.take_out(victim)
            own.pending.arrive(victim)


def preempted_for(
    gang: WorkloadState, queue: ClusterQueueState, quota_holds: Iterable[QuotaHold]
) -> WorkloadState | None:
    """The preemptor that this gang was preempted for and that has not started yet, where that matters. Whoever moved does not
    wait: it has room of its own.
    """
    for hold in quota_holds:
        if hold.moving:
            continue
        if _lasts(hold, NO_READMIT) and hold.gang is not gang and any(victim is gang for victim in hold.victims):
            return hold.gang
    return None
