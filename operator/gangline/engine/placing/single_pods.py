"""One pod outside of all gangs on nodes that somebody else offers: whom a policy excludes, and how good the others are."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from gangline.engine.model import Node, PlacementPolicy, PodSet, Requests
from gangline.engine.model.nodes import INTERFACE
from gangline.engine.occupancy.fitting import add, as_pod_requests, how_many, limit
from gangline.engine.placing.fragmentation import Fragments
from gangline.engine.placing.hosts import Host
from gangline.engine.placing.pipeline import Pipeline
from gangline.engine.placing.policy_ranking import ask_of, profile_of
from gangline.engine.placing.profiles import PlacingProfile
from gangline.engine.placing.scorers import Field
from gangline.engine.topology.node_filter import NodeSelection
from gangline.engine.topology.policy_filter import PolicyAsk


def rank_nodes(
    policy: PlacementPolicy,
    pod_set: PodSet,
    nodes: Sequence[tuple[Node, Sequence[Requests]]],
    fragments: Fragments,
) -> dict[str, str | tuple[int, ...]]:
    """How the policy ranks nodes for a pod, by node: why it excludes the node, or the node's worth by tier. `nodes`: each with
    what is taken of it.

    Whether there is room, and whether the pod tolerates the node, is the scheduler's to decide, apart from interfaces, which it
    does not know.
    """
    hosts = [_host(node, taken) for node, taken in nodes]
    selection = NodeSelection.of(pod_set, (), scored=True, policy=PolicyAsk(policy.filters, pod_set.traits))
    ask = ask_of(as_pod_requests(pod_set.requests), selection)
    excluded = {host.name: _excludes(selection.policy, host) for host in hosts if selection.policy is not None}
    kept = [host for host in hosts if not excluded.get(host.name)]
    profile = PlacingProfile((), profile_of(policy).scores)
    ranks: Mapping[str, tuple[int, ...]] = dict(
        zip((host.name for host in kept), Pipeline(profile, kept, Field(fragments=fragments)).ranks(ask), strict=True)
    )
    return {host.name: excluded.get(host.name) or ranks[host.name] for host in hosts}


def _excludes(policy: PolicyAsk, host: Host) -> str:
    wanted = tuple(sorted(policy.interfaces.items()))
    return policy.excludes(host) or (limit(host.free, wanted) if wanted and not how_many(host.free, wanted) else "")


def _host(node: Node, taken: Sequence[Requests]) -> Host:
    free = dict(node.allocatable) | {INTERFACE + name: amount for name, amount in node.interfaces.items()}
    for amounts in taken:
        add(free, amounts, -1)
    return Host(node.name, node.allocatable, free, node.labels, images=node.images, annotations=node.annotations)
