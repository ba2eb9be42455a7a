"""Small clusters for the topology tests."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from gangline.engine.model import Flavor, Node, PodSet, Slice, Topology, TopologyAssignment, TopologyRequest
from gangline.engine.topology.topologies import PlacementRequest, TopologyLedger

BLOCK, RACK, HOST = "example.com/block", "example.com/rack", "kubernetes.io/hostname"
LEVELS = (BLOCK, RACK, HOST)


def node(path: str, cpu: int = 4000, **more: Any) -> Node:
    """`path` is block/rack/host; `cpu` in milli-cpu."""
    block, rack, host = path.split("/")
    labels = {BLOCK: block, RACK: rack, HOST: host, **more.pop("labels", {})}
    allocatable = {"cpu": cpu, "pods": more.pop("pods", 110), **more.pop("allocatable", {})}
    return Node(host, labels, allocatable, **more)


def ledger(nodes: Iterable[Node], levels: tuple[str, ...] = LEVELS, flavor: Flavor | None = None) -> TopologyLedger:
    made = TopologyLedger(flavor or Flavor("tas", topology="default"), Topology("default", levels))
    for each in nodes:
        made.put_node(each)
    return made


def ask(
    count: int,
    cpu: int = 1000,
    name: str = "main",
    *,
    slices: Iterable[tuple[str, int]] = (),
    previous: TopologyAssignment | None = None,
    pod_set: dict[str, Any] | None = None,
    **request: Any,
) -> PlacementRequest:
    topology = TopologyRequest(slices=tuple(Slice(*layer) for layer in slices), **request)
    return PlacementRequest(PodSet(name, count, {"cpu": cpu}, topology=topology, **(pod_set or {})), previous=previous)


def pods(assignment: TopologyAssignment) -> dict[str, int]:
    """Host (or last level value) -> pods, in the assignment's order."""
    return {domain.values[-1]: domain.count for domain in assignment.domains}
