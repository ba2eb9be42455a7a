"""Who goes so that a gang that lost nodes can run again: whole gangs of lower priority, at the least loss of work."""

from __future__ import annotations

from collections.abc import Sequence

from gangline.engine.model import Millis
from gangline.engine.preemption.victim_search import lost_work, put_back, take_out
from gangline.engine.queues.protection import protected_until
from gangline.engine.queues.workload_state import Gang
from gangline.engine.recovery.healing_plan import Plan
from gangline.engine.state.store import Store

#: Gangs that are tried alone before several together are taken.
SINGLES = 200


def cheapest(store: Store, gang: Gang, plan: Plan, now: Millis, *, others: bool) -> list[Gang] | None:
    """Those that have to leave before the plan fits; None if it never does. It has last been asked without them then.

    Those on their way out come first: if they are enough nobody else goes. `others` says whether others may be made to. Of
    these the lowest priorities are taken, and among them the least lost GPU-seconds; nobody who is protected.
    """
    leaving = [holder for holder in _holders(store) if holder.evicting and holder is not gang]
    take_out(leaving)
    try:
        if plan.fits():
            return leaving
        chosen = _choose(store, gang, plan, now) if others else None
        if chosen is None:
            return None
        take_out(chosen)
        plan.fits()
        put_back(chosen)
        return [*leaving, *chosen]
    finally:
        put_back(leaving)


def _choose(store: Store, gang: Gang, plan: Plan, now: Millis) -> list[Gang] | None:
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


def _together(candidates: Sequence[Gang], plan: Plan) -> list[Gang] | None:
    """One after the other until it fits; then those that need not go are spared, the dearest first."""
    out: list[Gang] = []
    try:
        for holder in candidates:
            take_out([holder])
            out.append(holder)
            if plan.fits():
                break
        else:
            return None
        for holder in list(reversed(out[:-1])):
            put_back([holder])
            if plan.fits():
                out.remove(holder)
            else:
                take_out([holder])
        return list(out)
    finally:
        put_back(out)


def _enough(gangs: list[Gang], plan: Plan) -> bool:
    take_out(gangs)
    fits = plan.fits()
    put_back(gangs)
    return fits


def _holders(store: Store) -> list[Gang]:
    return [holder for _, queue in sorted(store.queues.items()) for holder in queue.holders.values()]


def _in_the_way(store: Store, holder: Gang, gang: Gang) -> bool:
    """It uses nodes that the gang could: such as those of a flavor that both use."""
    mine = {flavor for flavor, _ in gang.usage}
    if any(flavor in mine for flavor, _ in holder.usage):
        return True
    return bool(store.capacity.nodes_of(holder) & store.capacity.reach(gang))
