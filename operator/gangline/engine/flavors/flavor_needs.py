"""A gang's requests of the flavors of a queue. They follow from configuration alone, so they are computed once per shape."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from gangline.engine.flavors.flavor_match import obstacle
from gangline.engine.queues.cluster_queue import Asked, ClusterQueueState, FlavorOption, Group, GroupNeeds, Way
from gangline.engine.queues.workload_state import WorkloadState
from gangline.engine.topology.placement import mismatch
from gangline.engine.topology.topologies import Topologies

PODS = "pods"

#: shapes cached per queue
MOST_KNOWN = 1024


def asked_of(
    gang: WorkloadState,
    queue: ClusterQueueState,
    topologies: Topologies,
    counts: Sequence[int] | None,
    *,
    ignore_missing: bool,
) -> tuple[Asked, ...]:
    """One `Asked` for each group of the gang's pod sets. `counts` replaces their counts."""
    known = queue.asked.get(gang.shape) if counts is None else None
    if known is None:
        known = tuple(_asked(gang, members, queue, topologies, counts, ignore_missing) for members in gang.groups)
        if counts is None:
            if len(queue.asked) >= MOST_KNOWN:
                queue.asked.clear()
            queue.asked[gang.shape] = known
    return known


def _asked(
    gang: WorkloadState,
    members: Sequence[int],
    queue: ClusterQueueState,
    topologies: Topologies,
    counts: Sequence[int] | None,
    ignore_missing: bool,
) -> Asked:
    requests = tuple(_requests(gang, index, queue, counts) for index in members)
    # sorted as Kueue's resource vectors: the first failure ends the search, so the order shows in the reason
    total = dict(sorted(_summed(requests).items(), reverse=True))
    needs: list[GroupNeeds] = []
    seen: set[str] = set()
    for resource, amount in total.items():
        if resource in seen:
            continue
        group = queue.group_of.get(resource)
        if group is not None:
            amounts = tuple((name, amount) for name, amount in total.items() if name in group.resources)
            needs.append(GroupNeeds(amounts, _ways(gang, members[0], queue, topologies, group, amounts)))
            seen.update(name for name, _ in amounts)
        elif amount and not ignore_missing:
            return Asked(requests, tuple(needs), resource)
    return Asked(requests, tuple(needs))


def _requests(
    gang: WorkloadState, index: int, queue: ClusterQueueState, counts: Sequence[int] | None
) -> dict[str, int]:
    demand = gang.demands[index]
    count = demand.count if counts is None else counts[index]
    requests = {resource: max(0, amount) * count for resource, amount in demand.pod_set.counted.items()}
    if PODS in queue.group_of:
        requests[PODS] = count
    return requests


def _summed(requests: Sequence[Mapping[str, int]]) -> dict[str, int]:
    total: dict[str, int] = {}
    for request in requests:
        for resource, amount in request.items():
            total[resource] = total.get(resource, 0) + amount
    return total


def _ways(
    gang: WorkloadState,
    index: int,
    queue: ClusterQueueState,
    topologies: Topologies,
    group: Group,
    amounts: Sequence[tuple[str, int]],
) -> tuple[Way, ...]:
    return tuple(
        Way(
            option,
            _refusal(gang, index, queue, topologies, group, option),
            tuple(option.cells[name] for name, _ in amounts),
        )
        for option in group.options
    )


def _refusal(
    gang: WorkloadState,
    index: int,
    queue: ClusterQueueState,
    topologies: Topologies,
    group: Group,
    option: FlavorOption,
) -> str:
    if option.flavor is None:
        return f"flavor {option.name} not found"
    if not (option.selective or gang.wants_topology):
        return ""
    pod_set = gang.demands[index].pod_set
    return mismatch(pod_set, option.flavor, topologies, group.resources, implied=queue.only_topologies) or obstacle(
        pod_set, option.flavor
    )
