"""Sizes of queues and cohorts for metrics, read off the ledger.

One pass over the unfinished workloads of a ClusterQueue's LocalQueues gives everything about it. A scrape asks for one queue
after another, and the process may decide in between.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from math import ceil, nan

from gangline.engine.model import (
    UNLIMITED,
    Change,
    ClusterQueueFigures,
    CohortFigures,
    LocalQueueFigures,
    Put,
    QueueStatus,
    QuotaFigures,
    ResourceUsage,
    Workload,
)
from gangline.engine.queues.cluster_queue import ClusterQueueState, cluster_queues_of
from gangline.engine.queues.states import LifecycleState
from gangline.engine.queues.workload_parts import WorkloadShape
from gangline.engine.queues.workload_state import WorkloadState
from gangline.engine.quota.quota_ledger import FlavorResource, QuotaNode, standing
from gangline.engine.state.store import Store

_NOTHING = LocalQueueFigures()


def cluster_queue_figures(store: Store, name: str) -> ClusterQueueFigures | None:
    """The figures of a ClusterQueue; None if there is no such queue."""
    queue = store.queues.get(name)
    if queue is None:
        return None
    holders = queue.holders.values()
    _, admitted = _totals(holders)
    waiting = _Waiting(queue.in_service)
    local_queues = {
        key: _local_queue(store, key, queue, waiting) for key in sorted(store.local_queues_of.get(name, ()))
    }
    active = queue.pending.active if queue.in_service else 0
    return ClusterQueueFigures(
        reason=store.inactive(name)[0],
        active=active,
        inadmissible=queue.pending.total() - active,
        reserving=len(queue.holders),
        admitted=sum(gang.admitted for gang in holders),
        shapes=(len(waiting.shapes[True]), len(waiting.shapes[False])),
        cohorts=tuple(node.name for node in queue.path() if node is not queue),
        quotas={fr: _quota(queue, fr, admitted.get(fr, 0)) for fr in _offered(queue)},
        pending={**dict.fromkeys(queue.group_of, 0), **waiting.requests},
        weighted_share=_share(queue),
        local_queues=local_queues,
    )


def workloads_of(store: Store, name: str) -> tuple[list[str], list[str], list[str]]:
    """Keys of the active, the inadmissible and the admitted workloads of a ClusterQueue."""
    queue = store.queues.get(name)
    if queue is None:
        return [], [], []
    active: list[str] = []
    inadmissible: list[str] = []
    for key in store.local_queues_of.get(name, ()):
        for gang in store.gangs_of.get(key, {}).values():
            if gang.queue is queue and not gang.holds:
                (active if queue.in_service and _is_active(gang) else inadmissible).append(gang.key)
    return active, inadmissible, [gang.key for gang in queue.holders.values() if gang.admitted]


def cohort_figures(store: Store, name: str) -> CohortFigures | None:
    """The figures of a cohort; None if there is no such cohort, or it is part of a cycle."""
    node = store.hierarchy.cohort_nodes.get(name)
    if node is None or name in store.hierarchy.cyclic:
        return None
    queues = list(cluster_queues_of(node))
    reservation: dict[FlavorResource, int] = {}
    for queue in queues:
        for fr, cell in queue.cells.items():
            if cell.usage:
                reservation[fr] = reservation.get(fr, 0) + cell.usage
    return CohortFigures(
        parent=node.parent.name if node.parent is not None else "",
        root=node.root.name,
        declared=name in store.cohorts,
        quota={fr: cell.subtree for fr, cell in node.cells.items() if cell.subtree > 0},
        reservation=reservation,
        admitted={queue.name: sum(gang.admitted for gang in queue.holders.values()) for queue in queues},
        weighted_share=_share(node),
    )


class _Waiting:
    """What waits in a ClusterQueue: shapes by whether they are active, and requests."""

    def __init__(self, in_service: bool) -> None:
        self.in_service = in_service
        self.shapes: dict[bool, set[WorkloadShape]] = {True: set(), False: set()}
        self.requests: dict[str, int] = {}
        self._known: dict[WorkloadShape, Mapping[str, int]] = {}

    def note(self, gang: WorkloadState) -> bool:
        """True if the workload is active."""
        active = self.in_service and _is_active(gang)
        self.shapes[active].add(gang.shape)
        requests = self._known.get(gang.shape)
        if requests is None:
            requests = self._known[gang.shape] = gang.requests()
        for resource, amount in requests.items():
            self.requests[resource] = self.requests.get(resource, 0) + amount
        return active


def _local_queue(store: Store, key: str, queue: ClusterQueueState, waiting: _Waiting) -> LocalQueueFigures:
    active = inadmissible = 0
    holders: list[WorkloadState] = []
    for gang in store.gangs_of.get(key, {}).values():
        if gang.queue is not queue:
            continue
        if gang.holds:
            holders.append(gang)
        elif waiting.note(gang):
            active += 1
        else:
            inadmissible += 1
    reserved, admitted = _totals(holders)
    fair_usage = store.fairness.usage(key) if store.fairness is not None else None
    if not (active or inadmissible or holders or fair_usage is not None):
        return _NOTHING
    return LocalQueueFigures(
        active=active,
        inadmissible=inadmissible,
        reserving=len(holders),
        admitted=tuple(gang.key for gang in holders if gang.admitted),
        reservation=reserved,
        usage=admitted,
        fair_usage=fair_usage,
    )


def _is_active(gang: WorkloadState) -> bool:
    return gang.state is LifecycleState.PENDING or gang.state is LifecycleState.NOMINATED


def _totals(holders: Iterable[WorkloadState]) -> tuple[dict[FlavorResource, int], dict[FlavorResource, int]]:
    """What holders use, and what the admitted ones among them use."""
    reserved: dict[FlavorResource, int] = {}
    admitted: dict[FlavorResource, int] = {}
    for gang in holders:
        for fr, amount in gang.quota.usage.items():
            reserved[fr] = reserved.get(fr, 0) + amount
            if gang.admitted:
                admitted[fr] = admitted.get(fr, 0) + amount
    return reserved, admitted


def _offered(queue: ClusterQueueState) -> Iterator[FlavorResource]:
    for group in queue.config.groups:
        for flavor in group.flavors:
            for resource in group.covered:
                yield flavor.name, resource


def _quota(queue: ClusterQueueState, fr: FlavorResource, admitted: int) -> QuotaFigures:
    cell = queue.cell(fr)
    return QuotaFigures(cell.nominal, cell.borrowing_limit, cell.lending_limit, cell.usage, admitted)


def _share(node: QuotaNode) -> float:
    borrows, share = standing(node)
    if borrows and share.weightless:
        return nan
    return share.value if borrows else 0.0


# --- queue summary ----------------------------------------------------------------------------------------------------
# The live state of queues, as their statuses show it.


def cluster_queue_status(store: Store, name: str) -> QueueStatus:
    """The status of a ClusterQueue; also of a deleted one, since its holders may outlive it."""
    queue = store.queues.get(name)
    if queue is None:
        return QueueStatus(False, "Unknown", f"ClusterQueue {name} doesn't exist", 0, 0, 0, (), ())
    reason, message = store.inactive(name)
    holders = list(queue.holders.values())
    return QueueStatus(
        active=not reason,
        reason=reason or "Ready",
        message=message or "Can admit new workloads",
        pending=queue.pending.total(),
        reserving=len(holders),
        admitted=sum(gang.admitted for gang in holders),
        reservation=_usage(queue, holders, borrowing=True),
        usage=_usage(queue, [gang for gang in holders if gang.admitted], borrowing=True),
        weighted_share=weighted_share(queue),
    )


def weighted_share(node: QuotaNode) -> int:
    """The share of a ClusterQueue or cohort in fair sharing, rounded up; `UNLIMITED` where it borrows with a weight of 0."""
    borrowing, share = standing(node)
    return (UNLIMITED if share.weightless else ceil(share.value)) if borrowing else 0


def cohorts_above(store: Store, cluster_queue: str) -> list[str]:
    """The cohorts that a ClusterQueue is in, the nearest first; none for a deleted one."""
    node: QuotaNode | None = store.queues.get(cluster_queue)
    found: list[str] = []
    while node is not None and (node := node.parent) is not None:
        found.append(node.name)
    return found


def cohort_share(store: Store, name: str) -> int:
    node = store.hierarchy.cohort_nodes.get(name)
    return weighted_share(node) if node is not None else 0


def local_queue_status(store: Store, key: str) -> QueueStatus:
    local_queue = store.local_queues.get(key)
    queue = store.queues.get(local_queue.cluster_queue) if local_queue is not None else None
    active, reason, message = local_queue_state(store, key)
    # those that hold quota of another ClusterQueue were admitted when there was another LocalQueue of this name
    gangs = [gang for gang in store.gangs_of.get(key, {}).values() if queue is not None and gang.queue is queue]
    holders = [gang for gang in gangs if gang.holds]
    consumed: Mapping[str, float] = {}
    consumed_at = 0
    if store.fairness is not None:
        consumed, consumed_at = store.fairness.consumed(key)
    return QueueStatus(
        active,
        reason,
        message,
        pending=len(gangs) - len(holders),
        reserving=len(holders),
        admitted=sum(gang.admitted for gang in holders),
        reservation=_usage(queue, holders, borrowing=False) if queue else (),
        usage=_usage(queue, [gang for gang in holders if gang.admitted], borrowing=False) if queue else (),
        consumed=consumed,
        consumed_at=consumed_at,
    )


def local_queue_state(store: Store, key: str) -> tuple[bool, str, str]:
    """Whether jobs may be submitted to a LocalQueue; reason and message."""
    local_queue = store.local_queues.get(key)
    queue = store.queues.get(local_queue.cluster_queue) if local_queue is not None else None
    if local_queue is None or queue is None:
        return False, "ClusterQueueDoesNotExist", "Can't submit new workloads to clusterQueue"
    if local_queue.stop_policy != "None":
        return False, "Stopped", "LocalQueue is stopped"
    if not queue.in_service:
        return False, "ClusterQueueIsInactive", "Can't submit new workloads to clusterQueue"
    return True, "Ready", "Can submit new workloads to localQueue"


def _usage(queue: ClusterQueueState, holders: Iterable[WorkloadState], *, borrowing: bool) -> tuple[ResourceUsage, ...]:
    """The usage of each flavor and resource of the queue, in its order."""
    total: dict[FlavorResource, int] = {}
    for gang in holders:
        for fr, amount in gang.quota.usage.items():
            total[fr] = total.get(fr, 0) + amount
    rows: list[ResourceUsage] = []
    for group in queue.config.groups:
        for quotas in group.flavors:
            for resource in group.covered:
                used = total.get((quotas.name, resource), 0)
                nominal = queue.cell((quotas.name, resource)).nominal
                borrowed = max(0, used - nominal) if borrowing and queue.parent is not None else 0
                rows.append(ResourceUsage(quotas.name, resource, used, borrowed))
    return tuple(rows)


# --- engine snapshot --------------------------------------------------------------------------------------------------
# The engine's state in brief, and the facts that it follows from: an engine built anew from these must have an equal
# snapshot.


@dataclass(frozen=True, slots=True)
class EngineSnapshot:
    """Where every workload is, and the usage of every node; names are sorted, zero usage is left out."""

    usage: Mapping[str, Mapping[FlavorResource, int]]
    available: Mapping[str, Mapping[FlavorResource, int]]
    holders: Mapping[str, tuple[str, ...]]
    waiting: Mapping[str, tuple[str, ...]]


def snapshot(store: Store) -> EngineSnapshot:
    nodes = {f"cohort {node.name}": node for node in store.hierarchy.cohort_nodes.values()}
    nodes.update({f"queue {queue.name}": queue for queue in store.queues.values()})
    return EngineSnapshot(
        usage={
            name: {fr: cell.usage for fr, cell in sorted(node.cells.items()) if cell.usage}
            for name, node in sorted(nodes.items())
        },
        available={
            name: {fr: cell.available() for fr, cell in sorted(node.cells.items()) if cell.listed}
            for name, node in sorted(nodes.items())
        },
        holders={name: _names(queue.holders.values()) for name, queue in sorted(store.queues.items())},
        waiting={name: _names(queue.pending.everyone()) for name, queue in sorted(store.queues.items())},
    )


def _names(gangs: Iterable[WorkloadState]) -> tuple[str, ...]:
    return tuple(sorted(gang.key for gang in gangs))


def facts(store: Store) -> Iterator[Change]:
    """All known facts, assumptions as if they had been confirmed."""
    tables = (store.flavors, store.topologies, store.checks, store.cohorts, store.cluster_queues, store.local_queues)
    on_nodes = (store.nodes, store.node_cards, store.foreign_pods, store.forecasts, store.workload_pods)
    windows = store.windows
    of_windows = (store.recalls, windows.save_times, windows.submitters)
    of_policies = (store.profiles, store.priors, store.budgets.known, store.preemptions.past, store.preemptions.unknown)
    for window in windows.known():
        yield Put(window)
    for order in store.order_changes.in_force():
        yield Put(order)
    others = (store.quotas_ahead.known, store.namespaces, *on_nodes, store.dependencies, *of_policies, *of_windows)
    for table in (*tables, *others):
        for item in table.values():
            yield Put(item)
    for gang in store.gangs.values():
        yield Put(as_assumed(gang))
    yield from map(Put, store.slowed.facts())
    yield from map(Put, store.promises.facts())


def roots_with_a_history(store: Store) -> Iterator[QuotaNode]:
    """The trees in which decisions depend on what happened before, besides facts: on reservations and held back workloads, on
    usage over time, and on preemptors that wait for their victims, whose turn comes first.
    """
    for queue in store.queues.values():
        preemptor = queue.pending.preemptor
        waits = preemptor is not None and preemptor.queue is queue and not preemptor.holds
        if queue.timed or queue.fair_usage is not None or queue.quota_holds or waits:
            yield queue.root


def as_assumed(gang: WorkloadState) -> Workload:
    """The workload as if the decisions about it had been confirmed."""
    workload = gang.workload
    return replace(
        workload,
        admission=gang.quota.admission,
        reserved_at=gang.quota.reserved_at,
        admitted=gang.admitted,
        admitted_at=gang.quota.admitted_at,
        evicted=_evicted(gang),
        requeued=True if gang.lifecycle.requeue_assumed else workload.requeued,
        requeue_at=None if gang.lifecycle.requeue_assumed else workload.requeue_at,
        backfilled=gang.backfill.backfilled,
    )


def _evicted(gang: WorkloadState) -> str:
    """Why the workload is evicted; "" = it is not. What was evicted and holds quota again is not, though its last fact may be
    from before.
    """
    if gang.evicting:
        return gang.workload.evicted or "Preempted"
    return gang.workload.evicted if gang.quota.admission is None else ""
