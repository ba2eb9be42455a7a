"""What must hold of every workload between two calls of the engine, whatever has happened before."""

from __future__ import annotations

from gangline.engine.engine import Engine
from gangline.engine.queues.cluster_queue import queue_of
from gangline.engine.queues.states import HOLDER, HOLDING, LifecycleState
from gangline.engine.queues.workload_state import WorkloadState

#: where a workload may be found at rest
AT_REST = frozenset(
    {LifecycleState.UNQUEUED, LifecycleState.PENDING, LifecycleState.INADMISSIBLE, LifecycleState.HELD_BACK, *HOLDING}
)


def check_states(engine: Engine) -> None:
    """Each workload is in one state, and in the places that go with it and in no other."""
    store = engine._store
    for gang in store.gangs.values():
        _check(gang)
    waiting = {id(gang) for queue in store.queues.values() for gang in queue.pending.everyone()}
    expected = {id(gang) for gang in store.gangs.values() if queue_of(gang) is not None and not gang.holds}
    assert waiting == expected, "somebody waits in two places, or in none"
    for queue in store.queues.values():
        assert queue.pending.in_flight is None
        assert sorted(gang.uid for gang in queue.by_priority) == sorted(queue.holders)
        for uid, gang in queue.holders.items():
            assert gang.uid == uid and gang.queue is queue and gang.holds


def _check(gang: WorkloadState) -> None:
    state, queue = gang.state, queue_of(gang)
    assert state in AT_REST, (gang, state)
    assert not gang.removed, f"{gang} was left out of the ledger by a simulation"
    assert gang.holds == (state in HOLDING), (gang, state)
    if state in HOLDING:
        assert state is HOLDER[gang.admitted, gang.evicting], (gang, state)
        assert gang.bucket is None
        if queue is not None:
            assert queue.holders.get(gang.uid) is gang
    else:
        assert not gang.admitted and not gang.evicting and not gang.usage and not gang.cells, gang
    if state is LifecycleState.UNQUEUED:
        assert queue is None and gang.bucket is None, gang
    elif state not in HOLDING:
        assert queue is not None
        assert (gang.bucket is None) == gang.inadmissible_alone, gang
