"""A quick no: whether a gang that did not fit could possibly fit by now, by counting its pods node by node.

A yes means nothing. What is set aside in a queue is asked this whenever something is released, instead of being tried.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeAlias

from gangline.engine.queues.workload_state import Gang
from gangline.engine.quota.quota_ledger import Cell
from gangline.engine.topology.domain_counts import Wants, wants_of
from gangline.engine.topology.placement import asks
from gangline.engine.topology.topologies import Topologies
from gangline.engine.topology.topology_ledger import TopologyLedger

if TYPE_CHECKING:
    from gangline.engine.queues.cluster_queue import ClusterQueueState

#: One flavor that a pod set could use: the quota that it takes of it, and where its pods have to find room, if anywhere.
Way: TypeAlias = tuple[tuple[tuple[Cell, int], ...], TopologyLedger | None]
#: One pod set: how many pods at least, what each wants of its node, and the flavors.
Part: TypeAlias = tuple[int, Wants, tuple[Way, ...]]
Question: TypeAlias = tuple[Part, ...]


def question_of(gang: Gang, queue: ClusterQueueState, topologies: Topologies) -> Question:
    """What is to be asked of a gang's shape; nothing if it may preempt, as then it needs no room to begin with."""
    policy = queue.config.preemption
    if policy.within_cluster_queue != "Never" or policy.reclaim_within_cohort != "Never" or queue.delays_topology:
        return ()
    parts: list[Part] = []
    for demand in gang.demands:
        pod_set = demand.pod_set
        count = demand.count if pod_set.min_count is None else min(demand.count, pod_set.min_count)
        group = next((queue.group_of[name] for name in pod_set.requests if name in queue.group_of), None)
        if group is None or not count:
            continue
        placed = asks(pod_set) or queue.only_topologies
        ways: list[Way] = []
        for option in group.options:
            cells = tuple(
                (cell, pod_set.requests[name] * count)
                for name, cell in option.cells.items()
                if pod_set.requests.get(name, 0) > 0
            )
            ways.append((cells, topologies.ledger(option.name) if placed else None))
        parts.append((count, wants_of(pod_set.requests), tuple(ways)))
    return tuple(parts)


def could_fit(question: Question) -> bool:
    """False = it can't: of some pod set, no flavor has enough quota and enough room."""
    for count, wants, ways in question:
        for cells, ledger in ways:
            if all(amount <= cell.available() for cell, amount in cells) and (
                ledger is None or ledger.pods_that_fit(wants) >= count
            ):
                break
        else:
            return False
    return True
