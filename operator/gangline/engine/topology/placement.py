"""The interface to topology-aware placement: what a gang asks of which topologies, and whether it can be placed.

`topology` and its parts place pods on one flavor's nodes. This module says which pod sets of a gang are placed at all, on which
flavors quota put them, and keeps simulations over holders in step with those on quota.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Mapping, Sequence
from dataclasses import replace

from gangline.engine.model import Admission, Flavor, PodSet, PodSetAssignment, TopologyAssignment
from gangline.engine.topology.topologies import (
    Placement,
    PlacementRequest,
    Profile,
    ReplacementRequest,
    Topologies,
    replace_node,
)
from gangline.engine.topology.topology_ledger import usage_of

#: Controllers of admission checks that add nodes: placement waits until they are done.
DELAYING = frozenset({"kueue.x-k8s.io/provisioning-request", "kueue.x-k8s.io/multikueue"})
PENDING, READY = "Pending", "Ready"


def asks(pod_set: PodSet) -> bool:
    """The pod set itself requests a placement."""
    asked = pod_set.topology
    return asked is not None and bool(asked.required or asked.preferred or asked.unconstrained or asked.slices)


def mismatch(
    pod_set: PodSet, flavor: Flavor, topologies: Topologies, resources: frozenset[str], *, implied: bool
) -> str:
    """Why the flavor's topology (or its lack of one) rules it out, in Kueue's words; "" = it does not.

    `resources` are those that the flavor gives: where pods request none of them of a node, it needs no topology.
    """
    if asks(pod_set):
        if not flavor.topology:
            if resources.isdisjoint(pod_set.requests):
                return ""
            return f'Flavor "{flavor.name}" does not support TopologyAwareScheduling'
        ledger = topologies.ledger(flavor.name)
        if ledger is not None and pod_set.topology is not None and not ledger.has_levels(pod_set.topology):
            return f'Flavor "{flavor.name}" does not contain the requested level'
    elif flavor.topology and not implied:
        return f'Flavor "{flavor.name}" supports only TopologyAwareScheduling'
    return ""


class Placing:
    """The placement that a gang needs, on the flavors that quota gave it."""

    __slots__ = ("_profile", "_requests", "_shape", "_topologies")

    def __init__(
        self,
        topologies: Topologies,
        requests: Mapping[str, list[PlacementRequest]],
        gates: Mapping[str, bool],
        shape: Hashable,
    ) -> None:
        self._shape = shape
        self._topologies = topologies
        self._requests = requests
        self._profile = Profile.of_gates(gates)

    def now(self) -> Placement:
        """The placement in the cluster as it is."""
        return self._topologies.place(self._requests, profile=self._profile)

    def empty(self) -> Placement:
        """The placement if no other workload held anything."""
        if self._shape is None:
            return self._topologies.place(self._requests, profile=self._profile, simulate_empty=True)
        asked = ((flavor, each.pod_set.name, each.pod_set.count, each.implied) for flavor, each in self._each())
        return self._topologies.place_empty((self._shape, *asked), self._requests, self._profile)

    def _each(self) -> Iterator[tuple[str, PlacementRequest]]:
        return ((flavor, request) for flavor, asked in self._requests.items() for request in asked)

    def names(self) -> set[str]:
        return {request.pod_set.name for _, request in self._each()}

    def still_free(self, assignments: Mapping[str, TopologyAssignment]) -> bool:
        """Whether exactly these places are still free."""
        for flavor, asked in self._requests.items():
            ledger = self._topologies.ledger(flavor)
            if ledger is None:
                return False
            wanted: dict[tuple[str, ...], dict[str, int]] = {}
            for request in asked:
                assignment = assignments.get(request.pod_set.name)
                for domain in assignment.domains if assignment else ():
                    total = wanted.setdefault(domain.values, {})
                    for resource, amount in usage_of(request.pod_set.requests, domain.count).items():
                        total[resource] = total.get(resource, 0) + amount
            for values, total in wanted.items():
                leaf = ledger.leaf(values)
                if leaf is None or any(amount > leaf.free.get(resource, 0) for resource, amount in total.items()):
                    return False
        return True


def placing(
    topologies: Topologies,
    members: Sequence[tuple[PodSet, int, Sequence[str]]],
    gates: Mapping[str, bool],
    shape: Hashable = None,
    *,
    implied: bool,
) -> Placing | None:
    """What has to be placed: per pod set its count and its flavors. None if nothing has to.

    `implied`: the ClusterQueue has nothing but topology flavors, so that every pod set is placed.

    Gangs whose pod sets are alike have the same `shape`.
    """
    requests: dict[str, list[PlacementRequest]] = {}
    for pod_set, count, flavors in members:
        flavor = next((name for name in flavors if topologies.ledger(name) is not None), None)
        if flavor is None or count == 0 or not (asks(pod_set) or implied):
            continue
        asked = pod_set if pod_set.count == count else replace(pod_set, count=count)
        request = PlacementRequest(asked, implied=not asks(pod_set))
        requests.setdefault(flavor, []).append(request)
    return Placing(topologies, requests, gates, shape) if requests else None


def has_placements(admission: Admission) -> bool:
    return any(pod_set.topology is not None for pod_set in admission.pod_sets)


def with_placements(
    admission: Admission, placements: Mapping[str, TopologyAssignment], *, delayed: str | None = None
) -> Admission:
    """The admission with these pod sets placed; `delayed` is the new state of their delayed request."""

    def placed(pod_set: PodSetAssignment) -> PodSetAssignment:
        topology = placements.get(pod_set.name)
        if topology is None:
            return pod_set
        return replace(
            pod_set, topology=topology, delayed_topology=pod_set.delayed_topology if delayed is None else delayed
        )

    return replace(admission, pod_sets=tuple(placed(pod_set) for pod_set in admission.pod_sets))


def mend(
    topologies: Topologies,
    pod_sets: Mapping[str, PodSet],
    admission: Admission,
    host: str,
    gates: Mapping[str, bool],
) -> Admission | None:
    """The admission with the pods of a failed host placed elsewhere; None if that is not possible."""
    mended: dict[str, TopologyAssignment] = {}
    for assigned in admission.pod_sets:
        pod_set = pod_sets.get(assigned.name)
        if assigned.topology is None or pod_set is None or not _on_host(assigned.topology, host):
            continue
        flavor = next((name for name in assigned.flavors.values() if topologies.ledger(name) is not None), None)
        ledger = topologies.ledger(flavor) if flavor is not None else None
        if ledger is None:
            return None
        request = PlacementRequest(replace(pod_set, count=assigned.count), implied=not asks(pod_set))
        found = replace_node(
            ledger, [ReplacementRequest(request, assigned.topology)], host, profile=Profile.of_gates(gates)
        )
        if not found.ok:
            return None
        mended.update(found.assignments)
    return with_placements(admission, mended)


def hosts_of(admission: Admission | None) -> set[str]:
    """The lowest domains that an admission names: hosts, in topologies that end there."""
    placements = (each.topology for each in admission.pod_sets) if admission is not None else ()
    return {domain.values[-1] for placed in placements if placed is not None for domain in placed.domains}


def on_host(admission: Admission, host: str) -> bool:
    return any(each.topology is not None and _on_host(each.topology, host) for each in admission.pod_sets)


def _on_host(assignment: TopologyAssignment, host: str) -> bool:
    return any(domain.values[-1] == host for domain in assignment.domains)
