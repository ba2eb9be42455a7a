"""The live state of queues, as their statuses show it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from math import ceil

from gangline.engine.model import UNLIMITED, QueueStatus, ResourceUsage
from gangline.engine.queues.cluster_queue import ClusterQueueState
from gangline.engine.queues.workload_state import WorkloadState
from gangline.engine.quota.dominant_share import standing
from gangline.engine.quota.quota_ledger import FlavorResource, QuotaNode
from gangline.engine.state.store import Store


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
        for fr, amount in gang.usage.items():
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
