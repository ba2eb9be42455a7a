"""Facts about workloads: each puts its workload where the fact says it is, whatever was assumed before."""

from __future__ import annotations

from dataclasses import dataclass

from gangline.engine.model import Admission, Millis, Workload
from gangline.engine.model.units import whole_second
from gangline.engine.queues.cluster_queue import ClusterQueueState, queue_of
from gangline.engine.queues.quota_holds import QuotaHold, end_quota_hold
from gangline.engine.queues.states import HOLDER, LifecycleState
from gangline.engine.queues.workload_state import WorkloadState
from gangline.engine.state.store import Store


class WorkloadIntake:
    def __init__(self, store: Store) -> None:
        self._store = store

    def put(self, workload: Workload) -> None:
        gang = self._store.gangs.get(workload.key)
        if gang is not None and (gang.uid != workload.uid or workload.finished):
            self.forget(workload.key, "Finished" if workload.finished else "Deleted")
            gang = None
        if workload.finished:
            return
        if gang is None:
            self._welcome(workload)
        elif workload != gang.workload or _differs(gang):
            self._update(gang, workload)

    def forget(self, key: str, cause: str = "Deleted") -> None:
        """The workload finished or was deleted: its quota is free, and others may try again."""
        store = self._store
        gang = store.gangs.pop(key, None)
        if gang is None:
            return
        store.reviews.pop(key, None)
        store.estimates.forget(key)
        store.promises.forget(key)
        store.gangs_of[gang.local_queue].pop(gang.uid, None)
        store.enrol(gang, leaves=True)
        queue = queue_of(gang)
        if gang.holds:
            store.release(gang)
            gang.enter(LifecycleState.FINISHED, cause)
            if queue is not None:
                end_quota_hold(gang, queue)
            return
        store.unplace(gang)
        gang.enter(LifecycleState.FINISHED, cause)
        if queue is not None:
            store.flush(queue.root)

    def write_failed(self, key: str) -> None:
        """Drop the assumptions about a workload whose write failed: its state is again that of its last fact."""
        gang = self._store.gangs.get(key)
        if gang is not None:
            if gang.holds:
                if gang.evicting and not gang.workload.evicted:
                    self._store.preemptions.undo(key)
                gang.enter(HOLDER[gang.admitted, False], "A write about it failed: it is again what the cluster says")
                self._stay(gang, queue_of(gang))
            self._store.capacity.stays(gang)
            gang.attempts.report_anew()
            self._update(gang, gang.workload, anew=True)

    def _welcome(self, workload: Workload) -> None:
        store = self._store
        gang = store.gangs[workload.key] = WorkloadState(workload, store.settings, store.journal)
        store.gangs_of.setdefault(gang.local_queue, {})[gang.uid] = gang
        store.typical.note()
        store.enrol(gang)
        if store.windows and workload.admission is not None:
            store.windows.let_stay(gang)
        self._settle(gang)

    def _update(self, gang: WorkloadState, workload: Workload, *, anew: bool = False) -> None:
        store, old = self._store, gang.workload
        queue = queue_of(gang)
        # it was evicted and has quota again, by other hands, before it was seen without
        returned = gang.evicting and old.admission is not None and bool(old.evicted) and not workload.evicted
        if queue is not None and gang.holds and not returned and _same(gang.quota.admission, workload.admission):
            queue.unrank(gang)
            self._learn(gang, workload)
            gang.quota.set_reserved_at(whole_second(workload.reserved_at))
            queue.rank(gang)
            store.confirm(gang)
            store.reviews[gang.key] = gang
            if anew and gang.variant:
                store.flush(queue.root)  # so does the sibling that it was to make way for, which was set aside
            elif anew:
                store.touch(queue)  # the workload that it was preempted for tries again
            if (old.priority, old.boost) != (workload.priority, workload.boost):
                store.flush(queue.root)  # others may preempt it now
            return
        # so it was decided, and is being written
        leaving = gang.evicting and not returned and _same(gang.quota.admission, workload.admission)
        moves = queue is not None and gang.holds and gang.uid in queue.quota_holds
        if gang.holds:
            store.release(gang)
        elif not anew and workload.admission is None and queue is not None and self._waits_alike(gang, old, workload):
            gang.learn_alike(workload)
            store.reviews[gang.key] = gang
            return
        standing = _standing(gang)
        if old.pod_sets != workload.pod_sets:
            gang.attempts.report_anew()  # what it asks for is reported with the reason
        store.unplace(gang)
        self._learn(gang, workload)
        self._settle(gang)
        if leaving and gang.holds and not gang.evicting:
            gang.enter(HOLDER[gang.admitted, True])
        if moves:
            self._stay(gang, queue)
        if standing is not None and gang.queue is standing.queue and not gang.holds and not workload.violation:
            standing.restore(gang)

    def _stay(self, gang: WorkloadState, queue: ClusterQueueState | None) -> None:
        """Keep no room for a workload that was to move, if it has not left, or waits in another queue now."""
        if queue is not None and (gang.queue is not queue or (gang.holds and not gang.evicting)):
            end_quota_hold(gang, queue)

    def _waits_alike(self, gang: WorkloadState, old: Workload, new: Workload) -> bool:
        """Whether nothing has changed that could change the workload's chances or its position."""
        return (
            (old.pod_sets, old.violation) == (new.pod_sets, new.violation)
            and old.queue == new.queue
            and (old.priority, old.boost, old.active) == (new.priority, new.boost, new.active)
            and old.reclaimable == new.reclaimable
            and (old.evicted, old.requeued, old.requeue_at, old.gates, old.on_hold, old.lacks_pods)
            == (new.evicted, new.requeued, new.requeue_at, new.gates, new.on_hold, new.lacks_pods)
            and old.waits_for == new.waits_for
            and (old.preemption_gates, old.allowed_flavors) == (new.preemption_gates, new.allowed_flavors)
            and (old.variant_of, old.has_variants) == (new.variant_of, new.has_variants)
            and (old.replaces, old.job_uid, old.array) == (new.replaces, new.job_uid, new.array)
            and (not self._store.looks_ahead or _lengths(old) == _lengths(new))  # it may end or save in time now
            and gang.turn_of(new, self._store.settings) == gang.since
        )

    def _settle(self, gang: WorkloadState) -> None:
        if gang.workload.admission is not None:
            self._store.hold(gang)
        else:
            self._store.place(gang)
        self._store.reviews[gang.key] = gang

    def _learn(self, gang: WorkloadState, workload: Workload) -> None:
        store = self._store
        store.gangs_of[gang.local_queue].pop(gang.uid, None)
        gang.learn(workload, store.settings)
        store.enrol(gang)
        store.gangs_of.setdefault(gang.local_queue, {})[gang.uid] = gang


def _differs(gang: WorkloadState) -> bool:
    """Whether an assumption differs from the workload's last fact: receiving that fact again undoes the assumption."""
    return gang.holds != (gang.workload.admission is not None)


def _same(held: Admission | None, said: Admission | None) -> bool:
    """Whether both are the same reservation. Amounts and places may differ: the fact counts."""
    if held is None or said is None or held.cluster_queue != said.cluster_queue:
        return False
    mine = [(p.name, p.count, p.flavors) for p in held.pod_sets]
    return mine == [(p.name, p.count, p.flavors) for p in said.pod_sets]


def _lengths(workload: Workload) -> tuple[Millis | None, Millis | None]:
    """What decides whether the workload may start before its nodes or its quota go."""
    return workload.execution_left, workload.checkpoint


@dataclass(slots=True)
class _Standing:
    """What a waiting workload has in its queue besides its position: it may precede others, and have a quota hold."""

    queue: ClusterQueueState
    preemptor: bool
    held: bool
    quota_hold: QuotaHold | None

    def restore(self, gang: WorkloadState) -> None:
        pending = self.queue.pending
        if self.preemptor:
            pending.preemptor = gang
        if self.held:
            pending.held = gang
        if self.quota_hold is not None:
            self.queue.quota_holds[gang.uid] = self.quota_hold
            self.quota_hold.hold_room()


def _standing(gang: WorkloadState) -> _Standing | None:
    queue = queue_of(gang)
    if queue is None or gang.holds:
        return None
    pending = queue.pending
    return _Standing(queue, pending.preemptor is gang, pending.held is gang, queue.quota_holds.get(gang.uid))
