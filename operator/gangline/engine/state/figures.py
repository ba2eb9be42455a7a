"""Sizes of queues and cohorts for metrics, read off the ledger.

One pass over the unfinished workloads of a ClusterQueue's LocalQueues gives everything about it. A scrape asks for one queue
after another, and the process may decide in between.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from math import nan

from gangline.engine.model import ClusterQueueFigures, CohortFigures, LocalQueueFigures, QuotaFigures
from gangline.engine.queues.cluster_queue import ClusterQueueState, cluster_queues_of
from gangline.engine.queues.states import LifecycleState
from gangline.engine.queues.workload_state import WorkloadShape, WorkloadState
from gangline.engine.quota.dominant_share import standing
from gangline.engine.quota.quota_ledger import FlavorResource, QuotaNode
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
        for fr, amount in gang.usage.items():
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
