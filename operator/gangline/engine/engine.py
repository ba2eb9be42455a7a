"""The engine: facts in, decisions out. A thin facade; each idea has a module of its own.

`observe` notes a fact and puts the workload concerned at its place. `decide` says what follows from all that is known at a
time. What is decided is assumed at once; the fact that confirms it changes nothing, one that contradicts it undoes it.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import partial

from gangline.engine.cycle import Attempt, TreeCycle, admission_of
from gangline.engine.fair_victims import fair_victims
from gangline.engine.gang import Gang
from gangline.engine.messages import preemption_text
from gangline.engine.model import (
    AdmissionCheck,
    Admit,
    Change,
    ClusterQueue,
    Cohort,
    Decision,
    Flavor,
    Gone,
    LocalQueue,
    Millis,
    Namespace,
    Preempt,
    Put,
    Settings,
    Topology,
    Workload,
    WriteFailed,
)
from gangline.engine.preemption import Preemptor, Victim, classic_victims
from gangline.engine.quota import Node
from gangline.engine.record import CycleRecord, Requeued
from gangline.engine.store import Store


class Engine:
    def __init__(self, settings: Settings = Settings()) -> None:
        self.settings = settings
        self._store = Store(settings)
        fair = settings.fair_sharing is not None
        find = partial(fair_victims, settings=settings) if fair else classic_victims
        self._preemptor = Preemptor(settings, find)

    # --- facts --------------------------------------------------------------------------------------------------------

    def observe(self, change: Change) -> None:
        """Take in one fact. Facts are idempotent and may name what is not known yet."""
        match change:
            case Put(Workload() as workload):
                self._put_workload(workload)
            case Put(item):
                self._put_other(item, type(item), _key(item))
            case Gone(kind, key) if kind is Workload:
                self._forget_workload(key)
            case Gone(kind, key):
                self._put_other(None, kind, key)
            case WriteFailed(key):
                self._write_failed(key)

    def _put_other(self, item: object, kind: type, key: str) -> None:
        store = self._store
        tables = {
            Flavor: (store.flavors, store.put_flavor),
            Cohort: (store.cohorts, store.put_cohort),
            ClusterQueue: (store.cluster_queues, store.put_cluster_queue),
            LocalQueue: (store.local_queues, store.put_local_queue),
            Namespace: (store.namespaces, store.put_namespace),
            AdmissionCheck: (store.checks, store.put_check),
            Topology: (store.topologies, store.put_topology),
        }
        if kind not in tables:
            return
        table, put = tables[kind]
        if table.get(key) != item:
            put(item, key)

    def _put_workload(self, workload: Workload) -> None:
        store = self._store
        gang = store.gangs.get(workload.key)
        if gang is not None and gang.uid != workload.uid:
            self._forget_workload(workload.key)
            gang = None
        if gang is None:
            if workload.finished:
                return
            gang = store.gangs[workload.key] = Gang(workload, self.settings)
            self._enlist(gang)
            self._settle_gang(gang)
            return
        if workload.finished:
            self._forget_workload(workload.key)
            return
        self._relearn(gang, workload)

    def _relearn(self, gang: Gang, workload: Workload) -> None:
        """A newer fact about a known workload."""
        store, old = self._store, gang.workload
        if gang.holds:
            confirmed = workload.admission is not None and gang.admission is not None and gang.queue is not None
            if confirmed and workload.admission == gang.admission and gang.queue is not None:
                queue = gang.queue
                if workload == old:
                    return
                queue.unrank(gang)
                self._learn(gang, workload)
                gang.reserved = workload.reserved_at // 1000
                gang.evicting = gang.evicting or bool(workload.evicted)
                queue.rank(gang)
                queue.generation += 1
                store.changed_queues.add(queue.name)
                return
            store.release(gang)
            self._learn(gang, workload)
            self._settle_gang(gang)
            return
        if workload == old and workload.admission is None:
            return
        if workload.admission is None and gang.queue is not None and _waits_alike(old, workload):
            in_place = gang.parked or (gang.bucket is not None and gang.bucket.parked)
            if in_place:
                gang.workload = workload
                return
        store.unplace(gang)
        self._learn(gang, workload)
        self._settle_gang(gang)

    def _settle_gang(self, gang: Gang) -> None:
        if gang.workload.admission is not None:
            self._store.unplace(gang)
            self._store.hold(gang)
        else:
            self._store.place(gang)

    def _learn(self, gang: Gang, workload: Workload) -> None:
        if gang.workload.queue != workload.queue:
            self._delist(gang)
            gang.learn(workload, self.settings)
            self._enlist(gang)
        else:
            gang.learn(workload, self.settings)

    def _enlist(self, gang: Gang) -> None:
        self._store.gangs_of.setdefault(_local_queue(gang), {})[gang.uid] = gang

    def _delist(self, gang: Gang) -> None:
        siblings = self._store.gangs_of.get(_local_queue(gang), {})
        siblings.pop(gang.uid, None)

    def _forget_workload(self, key: str) -> None:
        gang = self._store.gangs.pop(key, None)
        if gang is None:
            return
        self._delist(gang)
        if gang.holds:
            self._store.release(gang)
        else:
            queue = gang.queue
            self._store.unplace(gang)
            if queue is not None:
                self._store.flush(queue.root)

    def _write_failed(self, key: str) -> None:
        """What was assumed of it is void: it is again what its last fact says."""
        gang = self._store.gangs.get(key)
        if gang is None:
            return
        if gang.holds:
            if gang.workload.admission == gang.admission:
                gang.evicting = bool(gang.workload.evicted)
                if gang.queue is not None:
                    self._store.touch(gang.queue)
                return
            self._store.release(gang)
        else:
            self._store.unplace(gang)
        self._settle_gang(gang)

    # --- decisions ----------------------------------------------------------------------------------------------------

    def decide(self, now: Millis) -> list[Decision]:
        """Everything that follows now. What is returned is assumed to happen."""
        store = self._store
        store.settle()
        decisions: list[Decision] = []
        while store.touched:
            _, root = store.touched.popitem()
            seen: set[tuple[object, ...]] = set()
            while True:
                attempts = self._run(root, now)
                if not attempts:
                    break
                decisions.extend(self._decisions(attempts, now))
                if any(attempt.reserved or attempt.new_victims for attempt in attempts):
                    seen.clear()
                    continue
                state = tuple(
                    (attempt.gang.uid, str(attempt.gang.progress.tried) if attempt.gang.progress else "", attempt.queue.pending.active)
                    for attempt in attempts
                )
                if state in seen:
                    break
                seen.add(state)
        return decisions

    def cycle(self, now: Millis) -> CycleRecord:
        """Exactly one scheduling cycle of Kueue over all queues."""
        store = self._store
        store.settle()
        roots = {id(queue.root): queue.root for queue in store.queues.values() if queue.pending.active}
        order: dict[str, tuple[str, ...]] = {}
        attempts: list[Attempt] = []
        for root in sorted(roots.values(), key=lambda root: root.name):
            done = self._run(root, now)
            if done:
                order[root.name] = tuple(attempt.gang.key for attempt in done)
                attempts.extend(done)
        return CycleRecord(
            heads=tuple(sorted(attempt.gang.key for attempt in attempts)),
            order=order,
            reserved=tuple(_admit(attempt, now) for attempt in attempts if attempt.reserved),
            preempted=tuple(_preempt(attempt, victim) for attempt in attempts for victim in attempt.new_victims),
            requeued=tuple(_requeued(attempt) for attempt in attempts if not attempt.reserved),
        )

    def _run(self, root: Node, now: Millis) -> list[Attempt]:
        heads: list[Gang] = []
        for queue in root.leaves():
            if queue.in_service:
                gang = queue.pending.pop()
                if gang is not None:
                    heads.append(gang)
        if not heads:
            return []
        attempts = TreeCycle(root, heads, self.settings, self._preemptor, now).run()
        for attempt in attempts:
            self._store.changed_queues.add(attempt.queue.name)
        return attempts

    def _decisions(self, attempts: Iterable[Attempt], now: Millis) -> list[Decision]:
        decisions: list[Decision] = []
        for attempt in attempts:
            decisions.extend(_preempt(attempt, victim) for victim in attempt.new_victims)
            if attempt.reserved:
                decisions.append(_admit(attempt, now))
        return decisions

    # --- looking ------------------------------------------------------------------------------------------------------

    def pending(self, cluster_queue: str) -> list[str]:
        """In queue order: the heap first, then those set aside."""
        return [*self.active(cluster_queue), *self.inadmissible(cluster_queue)]

    def active(self, cluster_queue: str) -> list[str]:
        """The heap, in queue order."""
        self._store.settle()
        queue = self._store.queues.get(cluster_queue)
        return [gang.key for gang in queue.pending.in_heap()] if queue else []

    def inadmissible(self, cluster_queue: str) -> list[str]:
        """Those set aside until something is released, by name."""
        self._store.settle()
        queue = self._store.queues.get(cluster_queue)
        return [gang.key for gang in queue.pending.aside()] if queue else []

    def usage(self, cluster_queue: str) -> dict[str, dict[str, int]]:
        """What is held, by flavor and resource; nothing held is left out."""
        self._store.settle()
        queue = self._store.queues.get(cluster_queue)
        found: dict[str, dict[str, int]] = {}
        for (flavor, resource), cell in queue.cells.items() if queue else ():
            if cell.usage:
                found.setdefault(flavor, {})[resource] = cell.usage
        return found


def _key(item: object) -> str:
    return item.key if isinstance(item, LocalQueue) else item.name  # pyright: ignore


def _local_queue(gang: Gang) -> str:
    return f"{gang.workload.namespace}/{gang.workload.queue}"


def _waits_alike(old: Workload, new: Workload) -> bool:
    """Nothing changed that could change its chances."""
    return (
        old.pod_sets == new.pod_sets
        and old.queue == new.queue
        and (old.priority, old.boost, old.active) == (new.priority, new.boost, new.active)
        and old.reclaimable == new.reclaimable
        and (old.evicted, old.requeued, old.gates, old.on_hold) == (new.evicted, new.requeued, new.gates, new.on_hold)
    )


def _admit(attempt: Attempt, now: Millis) -> Admit:
    gang = attempt.gang
    assert gang.admission is not None, gang
    return Admit(gang.key, gang.uid, gang.admission, admitted=True, at=now)


def _preempt(attempt: Attempt, victim: Victim) -> Preempt:
    gang = attempt.gang
    queue = victim.gang.queue
    message = preemption_text(
        victim.reason,
        uid=gang.uid,
        job_uid=gang.workload.job_uid,
        preemptor_path=_path(attempt.queue),
        victim_path=_path(queue) if queue else "",
    )
    return Preempt(victim.gang.key, victim.gang.uid, victim.reason, message, by=gang.key, by_uid=gang.uid)


def _path(queue: Node) -> str:
    return "/" + "/".join(node.name for node in reversed(list(queue.path())))


def _requeued(attempt: Attempt) -> Requeued:
    assignment = attempt.assignment
    chosen = [pod_set for pod_set in assignment.pod_sets if pod_set.choices]
    return Requeued(
        workload=attempt.gang.key,
        mode=attempt.mode,
        borrowing=assignment.borrowing,
        status="skipped" if attempt.skipped else "",
        requeue_reason=attempt.requeue_reason,
        reason=_reason(attempt),
        flavors={p.name: {resource: choice.flavor for resource, choice in p.choices.items()} for p in chosen},
        counts={pod_set.name: pod_set.count for pod_set in chosen},
    )


def _reason(attempt: Attempt) -> str:
    if attempt.requeue_reason == "NoFit":
        return attempt.assignment.reason
    return "WaitingForPreemptedWorkloads" if attempt.requeue_reason == "PendingPreemption" else "WaitingForQuota"
