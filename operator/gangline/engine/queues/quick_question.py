"""What the quick check of a timed queue has to count for a workload."""

from __future__ import annotations

from gangline.engine.occupancy.fitting import as_pod_requests
from gangline.engine.queues import quick_check
from gangline.engine.queues.cluster_queue import ClusterQueueState
from gangline.engine.queues.quick_check import Question
from gangline.engine.queues.workload_state import WorkloadState
from gangline.engine.topology.placement import placed_on
from gangline.engine.topology.placement_request import asks
from gangline.engine.topology.topologies import Topologies


def question_of(gang: WorkloadState, queue: ClusterQueueState, topologies: Topologies) -> Question:
    """What `quick_check` has to count for a gang's shape; empty if the gang may preempt, as it then needs no free room."""
    policy = queue.config.preemption
    if policy.within_cluster_queue != "Never" or policy.reclaim_within_cohort != "Never" or queue.delays_topology:
        return ()
    if queue.config.moves is not None:  # others may move, and what is kept for it is not free for others
        return ()
    if gang.replaces:  # it needs less than it asks for
        return ()
    parts: list[quick_check.Part] = []
    for demand in gang.demands:
        pod_set = demand.pod_set
        count = demand.count if pod_set.min_count is None else min(demand.count, pod_set.min_count)
        group = next((queue.group_of[name] for name in pod_set.counted if name in queue.group_of), None)
        if group is None or not count:
            continue
        wanted = asks(pod_set) or queue.only_topologies
        ways: list[quick_check.Way] = []
        for option in group.options:
            cells = tuple(
                (cell, pod_set.counted[name] * count)
                for name, cell in option.cells.items()
                if pod_set.counted.get(name, 0) > 0
            )
            placed = placed_on(pod_set, (option.name,), topologies, queue.placement) if wanted else None
            ways.append((cells, topologies.ledger(placed) if placed is not None else None))
        parts.append((count, as_pod_requests(pod_set.requests), tuple(ways)))
    return tuple(parts)
