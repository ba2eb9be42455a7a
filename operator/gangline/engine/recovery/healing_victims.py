"""Victims for a gang that lost nodes: whole gangs of lower priority, with the least loss of work."""

from __future__ import annotations

from collections.abc import Sequence

from gangline.engine.model import Millis
from gangline.engine.preemption.simulated_removal import OrderedRemoval, simulate
from gangline.engine.preemption.victim_search import lost_work
from gangline.engine.queues.protection import protected_until
from gangline.engine.queues.workload_state import WorkloadState
from gangline.engine.recovery.healing_plan import HealingPlan
from gangline.engine.state.store import Store

#: Number of gangs that are tried alone before several together are taken.
SINGLES = 200


def cheapest(
    store: Store, gang: WorkloadState, plan: HealingPlan, now: Millis, *, others: bool
) -> list[WorkloadState] | None:
    """The workloads that have to leave so that the plan fits; None if it never does. On return the plan has last been asked
    without them.

    Those on their way out come first: if they suffice, no other one is preempted. `others` allows other victims: the lowest
    priorities first, and among them the least lost GPU-seconds; never a protected workload.
    """
    leaving = [holder for holder in _holders(store) if holder.evicting and holder is not gang]
    with simulate(removed=leaving):
        if plan.fits():
            return leaving
        chosen = _choose(store, gang, plan, now) if others else None
        if chosen is None:
            return None
        with simulate(removed=chosen):
            plan.fits()
        return [*leaving, *chosen]


def _choose(store: Store, gang: WorkloadState, plan: HealingPlan, now: Millis) -> list[WorkloadState] | None:
    candidates = sorted(
        (
            holder
            for holder in _holders(store)
            if holder.priority < gang.priority
            and not holder.evicting
            and not protected_until(holder, now)
            and _in_the_way(store, holder, gang)
        ),
        key=lambda holder: (holder.priority, lost_work(holder, now), holder.uid),
    )
    together = _together(candidates, plan)
    if together is None:
        return None
    alone = next((holder for holder in candidates[:SINGLES] if _enough([holder], plan)), None)
    choices = [together] if alone is None else [[alone], together]
    return min(choices, key=lambda gangs: (max(g.priority for g in gangs), sum(lost_work(g, now) for g in gangs)))


def _together(candidates: Sequence[WorkloadState], plan: HealingPlan) -> list[WorkloadState] | None:
    """Remove one after the other until it fits; then spare those that are not needed, the most costly first."""
    with OrderedRemoval(candidates, 0) as removal:
        for count in range(1, len(candidates) + 1):
            removal.first(count)
            if plan.fits():
                return removal.spare(plan.fits, last=True)
    return None


def _enough(gangs: list[WorkloadState], plan: HealingPlan) -> bool:
    with simulate(removed=gangs):
        return plan.fits()


def _holders(store: Store) -> list[WorkloadState]:
    return [holder for _, queue in sorted(store.queues.items()) for holder in queue.holders.values()]


def _in_the_way(store: Store, holder: WorkloadState, gang: WorkloadState) -> bool:
    """Whether the holder uses nodes that the gang could use, such as those of a shared flavor."""
    mine = {flavor for flavor, _ in gang.usage}
    if any(flavor in mine for flavor, _ in holder.usage):
        return True
    return bool(store.capacity.nodes_of(holder) & store.capacity.reach(gang))
