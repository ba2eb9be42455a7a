"""The interface to topology-aware placement: what a gang asks of which topologies, and whether it can be placed.

`topology` and its parts place pods on one flavor's nodes. This module says which pod sets of a gang are placed at all, on which
flavors quota put them, and keeps trials over holders in step with those on quota.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import replace

from gangline.engine.model import (
    Admission,
    Flavor,
    PlacementPolicy,
    PlacementSearch,
    PodSet,
    TopologyAssignment,
)
from gangline.engine.occupancy.fitting import add
from gangline.engine.occupancy.node_ledger import Spot
from gangline.engine.topology.domain_counts import Counts
from gangline.engine.topology.placement_request import (
    Goal,
    TopologyTree,
    asks,
    names_host,
    policy_ask,
    with_placements,
)
from gangline.engine.topology.placing import groups_of, room_for
from gangline.engine.topology.topologies import (
    PlacementRequest,
    PlacementResult,
    PlacementRules,
    ReplacementRequest,
    Topologies,
    replace_node,
)
from gangline.engine.topology.topology_ledger import TopologyLedger, usage_at

#: The controller of admission checks that add nodes, and the one of those that send workloads to other clusters.
PROVISIONING, MULTIKUEUE = "kueue.x-k8s.io/provisioning-request", "kueue.x-k8s.io/multikueue"
#: Placement waits until they are done; workloads that run in another cluster are placed there.
DELAYING = frozenset({PROVISIONING, MULTIKUEUE})
PENDING, READY = "Pending", "Ready"


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

    __slots__ = ("_old", "_policy", "_profile", "_requests", "_shape", "_topologies")

    def __init__(
        self,
        topologies: Topologies,
        requests: Mapping[str, list[PlacementRequest]],
        gates: Mapping[str, bool],
        shape: Hashable,
        old: str = "",
        policy: PlacementPolicy | None = None,
    ) -> None:
        self._shape = shape
        self._policy = policy
        #: the workload whose places it takes over, "" = of none
        self._old = old
        self._topologies = topologies
        self._requests = requests
        self._profile = PlacementRules.of_gates(gates)

    @property
    def search(self) -> PlacementSearch | None:
        """The search that the policy wants; none for a slice, whose pods stay where those of the replaced slice are."""
        return self._policy.search if self._policy is not None and not self._old else None

    def groups(self) -> list[tuple[str, list[PlacementRequest]]]:
        """The pod sets that are placed together, each with their flavor, in the order in which they are placed."""
        return [(flavor, members) for flavor, asked in self._requests.items() for members in groups_of(asked)]

    def room_for(self, flavor: str, members: list[PlacementRequest]) -> tuple[Goal, Counts]:
        """What one of the groups asks for, and how many of its workers fit where. Raises Unplaceable."""
        return room_for(self._ledger(flavor), members, self._profile)

    def positions(self, flavor: str, assignment: TopologyAssignment) -> list[tuple[int, int]]:
        """The leaf of each domain of an assignment, by its position, and how many pods are there."""
        ledger = self._ledger(flavor)
        leaves = ((ledger.leaf(domain.values), domain.count) for domain in assignment.domains)
        return [(leaf.position, count) for leaf, count in leaves if leaf is not None]

    def tree(self, flavor: str) -> TopologyTree:
        """The domains of a flavor's topology."""
        return self._ledger(flavor).tree()

    def _ledger(self, flavor: str) -> TopologyLedger:
        ledger = self._topologies.ledger(flavor)
        assert ledger is not None, flavor
        return ledger

    def now(self, requests: Mapping[str, Sequence[PlacementRequest]] | None = None) -> PlacementResult:
        """The placement in the cluster as it is; with these requests in place of its own, if they are given."""
        if not self._old:
            asked = self._requests if requests is None else requests
            return self._topologies.place(asked, profile=self._profile, policy=self._policy)
        with self._topologies.holding(self._old, None):
            return self._topologies.place(self._requests, profile=self._profile, policy=self._policy)

    def empty(self) -> PlacementResult:
        """The placement if no other workload held anything."""
        if self._shape is None:
            return self._topologies.place(self._requests, profile=self._profile, simulate_empty=True)
        asked = (
            (flavor, each.pod_set.name, each.pod_set.count, each.implied, each.policy, each.shares)
            for flavor, each in self._each()
        )
        return self._topologies.place_empty((self._shape, *asked), self._requests, self._profile)

    def _each(self) -> Iterator[tuple[str, PlacementRequest]]:
        return ((flavor, request) for flavor, asked in self._requests.items() for request in asked)

    def names(self) -> set[str]:
        return {request.pod_set.name for _, request in self._each()}

    def beside(self, assignments: Mapping[str, TopologyAssignment]) -> AbstractContextManager[None]:
        """The nodes as they would be with these placements."""
        return self._topologies.node_ledger.beside(tuple(self._taken(assignments)))

    def _taken(self, assignments: Mapping[str, TopologyAssignment]) -> Iterator[tuple[Spot, dict[str, int]]]:
        for flavor, request in self._each():
            ledger, assignment = self._topologies.ledger(flavor), assignments.get(request.pod_set.name)
            if ledger is not None and assignment is not None:
                for domain in assignment.domains:
                    spot = (ledger.spot_flavor, domain.values)
                    yield spot, usage_at(domain, request.takes)

    def still_free(self, assignments: Mapping[str, TopologyAssignment]) -> bool:
        """Whether exactly these places are still free."""
        if not self._old:
            return self._is_free(assignments)
        with self._topologies.holding(self._old, None):
            return self._is_free(assignments)

    def _is_free(self, assignments: Mapping[str, TopologyAssignment]) -> bool:
        node_ledger = self._topologies.node_ledger
        if node_ledger.power is not None and not node_ledger.within_power(tuple(self._taken(assignments))):
            return False
        by_bandwidth = self._policy is not None and self._policy.by_bandwidth
        for flavor, asked in self._requests.items():
            ledger = self._topologies.ledger(flavor)
            if ledger is None:
                return False
            wanted: dict[tuple[str, ...], dict[str, int]] = {}
            for request in asked:
                assignment = assignments.get(request.pod_set.name)
                for domain in assignment.domains if assignment else ():
                    add(wanted.setdefault(domain.values, {}), usage_at(domain, request.takes))
            if not all(ledger.has_room(key, total, by_bandwidth=by_bandwidth) for key, total in wanted.items()):
                return False
        return True


def placing(
    topologies: Topologies,
    members: Sequence[tuple[PodSet, int, Sequence[str]]],
    gates: Mapping[str, bool],
    shape: Hashable = None,
    *,
    implied: bool,
    previous: Mapping[str, TopologyAssignment] | None = None,
    old: str = "",
    policy: PlacementPolicy | None = None,
) -> Placing | None:
    """What has to be placed: per pod set its count and its flavors. None if nothing has to.

    `implied`: the ClusterQueue has nothing but topology flavors, or a placement policy, so that every pod set is placed.

    Gangs whose pod sets are alike have the same `shape`. `previous` are the places of the slice `old` that is replaced: its pods
    stay there.
    """
    requests: dict[str, list[PlacementRequest]] = {}
    for pod_set, count, flavors in members:
        flavor = placed_on(pod_set, flavors, topologies, policy)
        if flavor is None or count == 0 or not (asks(pod_set) or implied):
            continue
        asked = pod_set if pod_set.count == count else replace(pod_set, count=count)
        request = PlacementRequest(
            asked,
            implied=not asks(pod_set),
            previous=(previous or {}).get(pod_set.name),
            policy=policy_ask(policy, pod_set),
            cards=policy is not None,
        )
        requests.setdefault(flavor, []).append(request)
    return Placing(topologies, requests, gates, shape, old if previous else "", policy) if requests else None


def placed_on(
    pod_set: PodSet, flavors: Iterable[str], topologies: Topologies, policy: PlacementPolicy | None
) -> str | None:
    """The first of these flavors on whose topology a pod set of a queue with this policy is placed, None if on none.

    Pod sets that take whole domains for themselves get them as without a policy.
    """
    for name in flavors:
        ledger = topologies.ledger_for(name, policy)
        if ledger is not None and not (ledger.of_policy and pod_set.exclusive):
            return name
    return None


def mend(
    topologies: Topologies,
    pod_sets: Mapping[str, PodSet],
    admission: Admission,
    host: str,
    gates: Mapping[str, bool],
    policy: PlacementPolicy | None = None,
) -> Admission | None:
    """The admission with the pods of a failed host placed on other hosts, on none that a policy excludes; None if that is not
    possible.
    """
    mended: dict[str, TopologyAssignment] = {}
    for assigned in admission.pod_sets:
        pod_set = pod_sets.get(assigned.name)
        if assigned.topology is None or pod_set is None or not names_host(assigned.topology, host):
            continue
        flavor = next((name for name in assigned.flavors.values() if topologies.ledger(name) is not None), None)
        ledger = topologies.ledger(flavor) if flavor is not None else None
        if ledger is None:
            return None
        request = PlacementRequest(
            replace(pod_set, count=assigned.count),
            implied=not asks(pod_set),
            policy=policy_ask(policy, pod_set),
            cards=any(domain.cards for domain in assigned.topology.domains),
        )
        found = replace_node(
            ledger, [ReplacementRequest(request, assigned.topology)], host, profile=PlacementRules.of_gates(gates)
        )
        if not found.ok:
            return None
        mended.update(found.assignments)
    return with_placements(admission, mended)
