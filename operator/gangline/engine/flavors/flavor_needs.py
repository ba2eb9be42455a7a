"""A gang's requests of the flavors of a queue. They follow from configuration alone, so they are computed once per shape."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from gangline.engine.flavors.flavor_match import contradiction, obstacle, unnamed
from gangline.engine.queues.cluster_queue import (
    ClusterQueueState,
    FlavorOption,
    GroupNeeds,
    PodSetRequests,
    ResourceGroupFlavors,
    Way,
)
from gangline.engine.queues.slices import Amounts, amounts_of
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
    old: WorkloadState | None = None,
) -> tuple[PodSetRequests, ...]:
    """One `PodSetRequests` for each group of the gang's pod sets. `counts` replaces their counts.

    `old` is the slice that it replaces: it asks for the difference.
    """
    if old is not None:
        return tuple(_asked(gang, members, queue, topologies, counts, ignore_missing, old) for members in gang.groups)
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
    old: WorkloadState | None = None,
) -> PodSetRequests:
    held: Amounts = amounts_of(old) if old is not None else {}
    requests = tuple(_requests(gang, index, queue, counts, held) for index in members)
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
            ways = _ways(gang, members[0], queue, topologies, group, amounts)
            if old is not None:
                ways = tuple(_only_of_old(way, gang, members, old, amounts) for way in ways)
            needs.append(GroupNeeds(amounts, ways))
            seen.update(name for name, _ in amounts)
        elif amount and not ignore_missing:
            return PodSetRequests(requests, _compatible(needs, queue), resource)
    return PodSetRequests(requests, _compatible(needs, queue))


def _compatible(needs: list[GroupNeeds], queue: ClusterQueueState) -> tuple[GroupNeeds, ...]:
    """The needs without the flavors beside which another resource group has none: no node has two values of one label."""
    if len(needs) < 2 or queue.merges_labels:
        return tuple(needs)
    return tuple(
        replace(each, ways=tuple(_beside(way, [other for other in needs if other is not each]) for way in each.ways))
        for each in needs
    )


def _beside(way: Way, others: Sequence[GroupNeeds]) -> Way:
    flavor = way.option.flavor
    if way.refused or flavor is None or not flavor.node_labels:
        return way
    for other in others:
        flavors = [each.option.flavor for each in other.ways if not each.refused and each.option.flavor is not None]
        why = [contradiction(flavor, (each,)) for each in flavors]
        if why and all(why):
            return replace(way, refused=why[0])
    return way


def _requests(
    gang: WorkloadState, index: int, queue: ClusterQueueState, counts: Sequence[int] | None, held: Amounts
) -> dict[str, int]:
    """`held`: what the slice that it replaces has already."""
    demand = gang.demands[index]
    count = demand.count if counts is None else counts[index]
    requests = {resource: max(0, amount) * count for resource, amount in demand.pod_set.counted.items()}
    if demand.pod_set.charges:
        for resource, amount in demand.pod_set.charges.items():
            if resource in queue.group_of:
                requests[resource] = requests.get(resource, 0) + amount * count
    if PODS in queue.group_of:
        requests[PODS] = count
    has = held.get(demand.name)
    return {resource: amount - has.get(resource, 0) for resource, amount in requests.items()} if has else requests


def _only_of_old(
    way: Way, gang: WorkloadState, members: Sequence[int], old: WorkloadState, amounts: Sequence[tuple[str, int]]
) -> Way:
    """A slice gets the flavors of the one that it replaces: the pods that run stay where they are."""
    if way.refused or old.admission is None:
        return way
    flavors = {each.name: each.flavors for each in old.admission.pod_sets}
    for index in members:
        name = gang.demands[index].name
        for resource, amount in amounts:
            had = flavors.get(name, {}).get(resource, "")
            if had != way.option.name and (had or amount):
                why = f"could not assign {way.option.name} flavor since the original workload is assigned: {had}"
                return Way(way.option, why, way.cells)
    return way


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
    group: ResourceGroupFlavors,
    amounts: Sequence[tuple[str, int]],
) -> tuple[Way, ...]:
    return tuple(
        Way(
            option,
            _refusal(gang, index, queue, topologies, group, option),
            tuple(option.cells[name] for name, _ in amounts),
            unnamed(gang.demands[index].pod_set, option.flavor, [other.flavor for other in group.options]),
        )
        for option in group.options
    )


def _refusal(
    gang: WorkloadState,
    index: int,
    queue: ClusterQueueState,
    topologies: Topologies,
    group: ResourceGroupFlavors,
    option: FlavorOption,
) -> str:
    allowed = gang.allowed_flavors
    if allowed is not None and option.name not in allowed:
        return f"skipping flavor {option.name} due to WorkloadAllowedResourceFlavorAnnotation annotation"
    if option.flavor is None:
        return f"flavor {option.name} not found"
    if not (option.selective or gang.wants_topology):
        return ""
    pod_set = gang.demands[index].pod_set
    return mismatch(pod_set, option.flavor, topologies, group.resources, implied=queue.only_topologies) or obstacle(
        pod_set, option.flavor
    )
