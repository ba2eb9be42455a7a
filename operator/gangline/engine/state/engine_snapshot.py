"""The engine's state in brief, and the facts that it follows from: an engine built anew from these must have an equal
snapshot.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace

from gangline.engine.model import Change, Put, Workload
from gangline.engine.queues.workload_state import WorkloadState
from gangline.engine.quota.quota_ledger import FlavorResource, QuotaNode
from gangline.engine.state.store import Store


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
    for table in (*tables, store.namespaces, *on_nodes):
        for item in table.values():
            yield Put(item)
    for gang in store.gangs.values():
        yield Put(as_assumed(gang))


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
        admission=gang.admission,
        reserved_at=gang.reserved_at,
        admitted=gang.admitted,
        admitted_at=gang.admitted_at,
        evicted=_evicted(gang),
        requeued=True if gang.requeue_assumed else workload.requeued,
        requeue_at=None if gang.requeue_assumed else workload.requeue_at,
        backfilled=gang.backfilled,
    )


def _evicted(gang: WorkloadState) -> str:
    """Why the workload is evicted; "" = it is not. What was evicted and holds quota again is not, though its last fact may be
    from before.
    """
    if gang.evicting:
        return gang.workload.evicted or "Preempted"
    return gang.workload.evicted if gang.admission is None else ""
