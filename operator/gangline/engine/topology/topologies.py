"""Topology-aware placement: every topology flavor's live state, and where a workload's pods can go.

How the engine uses it
----------------------
Keep one `Topologies` and pass it every fact about its objects, in any order:

    topologies = Topologies()
    topologies.put_flavor(flavor); topologies.put_topology(topology)     # and remove_… by name
    woken = topologies.put_node(node)                                    # the flavors whose capacity this changed
    woken = topologies.put_foreign(pod)                                  # pods that no topology placement accounts for
    topologies.put_holder(workload.key, workload.admission)              # idempotent: the last admission is the truth
    topologies.remove_holder(workload.key)

`ledger(flavor)` is None unless the flavor names a topology that exists. Ask, once quota has picked the flavors:

    answer = topologies.place({"tas": [PlacementRequest(pod_set, implied=False)]}, profile=Profile.of_gates(gates))
    answer.ok, answer.assignments[pod_set.name], answer.failure          # failure: Kueue's text

- Partial admission: `dataclasses.replace(pod_set, count=n)`. `PodSet.requests` are per pod, without `pods`.
- `implied=True` where a pod set has no topology request but its ClusterQueue has topology flavors only.
- Does it fit an empty topology? `simulate_empty=True`. Do these victims free enough? `without=[their keys]`.
- What-ifs over a whole cycle: `put_holder` and `remove_holder` are each other's exact undo, and cost what they touch.
- A failed node: `replace_node(topologies.ledger(flavor), [ReplacementRequest(...)], host)`.
- A level that the topology lacks: `ledger.has_levels(request)` is Kueue's check before any placement.

The parts: `topology_tree` (domains), `node_filter` (which nodes), `domain_counts` (how many fit where), `topology_ledger` (keeps
the counts up to date), `placement_request` (the request), `dealing` and `domain_search` (pods per domain), `balanced`,
`placing` (a workload's pod sets), `replacing` (failed nodes), `placement_failures` (texts).
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Mapping, Sequence
from weakref import WeakSet

from gangline.engine.model import (
    Admission,
    Flavor,
    ForeignPod,
    Node,
    PodSetAssignment,
    Requests,
    Topology,
    TopologyAssignment,
)
from gangline.engine.topology.domain_counts import PODS
from gangline.engine.topology.placement_request import KUEUE_DEFAULTS, Placement, PlacementRequest, Profile
from gangline.engine.topology.placing import Hold, place
from gangline.engine.topology.replacing import ReplacementRequest, replace_node
from gangline.engine.topology.topology_ledger import HOSTNAME, TopologyLedger, Usage, usage_of

__all__ = [
    "Hold",
    "Placement",
    "PlacementRequest",
    "Profile",
    "ReplacementRequest",
    "Topologies",
    "TopologyLedger",
    "place",
    "replace_node",
]


#: number of requests to an empty topology whose answers are cached
MOST_EMPTY = 4096


class Topologies:
    """All topology flavors of a cluster. Flavors whose topology ends at the hostname share what is used on a host."""

    def __init__(self) -> None:
        self._flavors: dict[str, Flavor] = {}
        self._topologies: dict[str, Topology] = {}
        self._nodes: dict[str, Node] = {}
        self._foreign: dict[str, ForeignPod] = {}
        self._holders: dict[str, Admission] = {}
        #: holders with a placement that names no hosts: their flavor depends on the flavors that have a ledger.
        self._above_hosts: set[str] = set()
        self._ledgers: dict[str, TopologyLedger] = {}
        self._host_usage = Usage()
        self._usages: dict[str, Usage] = {}
        #: grows with every change of nodes and foreign pods
        self.version = 0
        #: answers for an empty cluster, as of a version (see `place_empty`)
        self._empty: dict[Hashable, Placement] = {}
        self._empty_version = 0
        #: other `Topologies` that get the same nodes and foreign pods (see engine.backfill.timeline_world)
        self._mirrors: WeakSet[Topologies] = WeakSet()

    def mirror_to(self, other: Topologies) -> None:
        """`other` gets all nodes and foreign pods, present and future."""
        for node in self._nodes.values():
            other.put_node(node)
        for pod in self._foreign.values():
            other.put_foreign(pod)
        self._mirrors.add(other)

    # --- configuration ------------------------------------------------------------------------------------------------

    def put_flavor(self, flavor: Flavor) -> None:
        if self._flavors.get(flavor.name) != flavor:
            self._flavors[flavor.name] = flavor
            self._rebuild(flavor.name)

    def remove_flavor(self, name: str) -> None:
        if self._flavors.pop(name, None) is not None:
            self._rebuild(name)

    def put_topology(self, topology: Topology) -> None:
        if self._topologies.get(topology.name) != topology:
            self._topologies[topology.name] = topology
            self._rebuild_users(topology.name)

    def remove_topology(self, name: str) -> None:
        if self._topologies.pop(name, None) is not None:
            self._rebuild_users(name)

    def ledger(self, flavor: str) -> TopologyLedger | None:
        """The state of a topology flavor, None for other flavors and while its topology is missing or has no levels."""
        return self._ledgers.get(flavor)

    def _rebuild_users(self, topology: str) -> None:
        for flavor in [flavor.name for flavor in self._flavors.values() if flavor.topology == topology]:
            self._rebuild(flavor)

    def _rebuild(self, name: str) -> None:
        """A flavor or its topology changed: its ledger starts afresh, and holders of domains above the host may belong
        elsewhere.
        """
        self._empty.clear()
        flavor = self._flavors.get(name)
        topology = self._topologies.get(flavor.topology) if flavor and flavor.topology else None
        old = self._ledgers.get(name)
        wanted = flavor if topology and topology.levels else None
        if old is None and wanted is None:
            return
        holders = {key: self._holders[key] for key in sorted(self._above_hosts)}
        for key in holders:
            self.remove_holder(key)
        if old is not None:
            old.close()
            del self._ledgers[name]
        if wanted and topology:
            self._ledgers[name] = self._new_ledger(wanted, topology)
        for key, admission in holders.items():
            self.put_holder(key, admission)

    def _new_ledger(self, flavor: Flavor, topology: Topology) -> TopologyLedger:
        ends_at_host = topology.levels[-1] == HOSTNAME
        usage = self._host_usage if ends_at_host else self._usages.setdefault(flavor.name, Usage())
        ledger = TopologyLedger(flavor, topology, usage)
        for node in self._nodes.values():
            ledger.put_node(node)
        for pod in self._foreign.values():
            ledger.shift_foreign(pod.node, usage_of(pod.requests, 1))
        return ledger

    # --- nodes and pods -----------------------------------------------------------------------------------------------

    def put_node(self, node: Node) -> frozenset[str]:
        """A node as it is now. Returns the names of the flavors whose topology this changes."""
        old = self._nodes.get(node.name)
        if old is None or _offer(old) != _offer(node):
            self.version += 1
        for mirror in self._mirrors:
            mirror.put_node(node)
        self._nodes[node.name] = node
        return frozenset(name for name, ledger in self._ledgers.items() if ledger.put_node(node))

    def remove_node(self, name: str) -> frozenset[str]:
        self.version += 1
        for mirror in self._mirrors:
            mirror.remove_node(name)
        self._nodes.pop(name, None)
        return frozenset(flavor for flavor, ledger in self._ledgers.items() if ledger.remove_node(name))

    def put_foreign(self, pod: ForeignPod) -> frozenset[str]:
        """A pod that uses a node without a topology placement. Returns the names of the flavors whose capacity this changes."""
        old = self._foreign.get(pod.key)
        if old == pod:
            return frozenset()
        changed = self.remove_foreign(pod.key)
        for mirror in self._mirrors:
            mirror.put_foreign(pod)
        self._foreign[pod.key] = pod
        return changed | self._shift_foreign(pod, 1)

    def remove_foreign(self, key: str) -> frozenset[str]:
        pod = self._foreign.pop(key, None)
        for mirror in self._mirrors:
            mirror.remove_foreign(key)
        return self._shift_foreign(pod, -1) if pod else frozenset()

    def _shift_foreign(self, pod: ForeignPod, sign: int) -> frozenset[str]:
        self.version += 1
        amounts = usage_of(pod.requests, sign)
        return frozenset(name for name, ledger in self._ledgers.items() if ledger.shift_foreign(pod.node, amounts))

    # --- holders ------------------------------------------------------------------------------------------------------

    def put_holder(self, key: str, admission: Admission) -> None:
        """A workload holds the topology placements of this admission, instead of what it held before."""
        self.remove_holder(key)
        self._holders[key] = admission
        if any(each.topology and not _names_hosts(each.topology) for each in admission.pod_sets):
            self._above_hosts.add(key)
        self._shift(admission, 1)

    def remove_holder(self, key: str) -> None:
        """A workload holds nothing any more; unknown keys are ignored."""
        admission = self._holders.pop(key, None)
        if admission is not None:
            self._above_hosts.discard(key)
            self._shift(admission, -1)

    def holders_on(self, host: str) -> list[str]:
        return sorted(
            key
            for key, admission in self._holders.items()
            if any(each.topology is not None and _is_on(each.topology, host) for each in admission.pod_sets)
        )

    def _shift(self, admission: Admission, sign: int) -> None:
        for pod_set in admission.pod_sets:
            assignment = pod_set.topology
            if assignment is None or pod_set.count <= 0:
                continue
            usage, requests = self._usage_for(pod_set, assignment), per_pod(pod_set)
            for domain in assignment.domains:
                usage.shift(domain.values, usage_of(requests, sign * domain.count))

    def has_room(self, admission: Admission) -> bool:
        """Whether exactly the places of this admission are free."""
        wanted: dict[tuple[str, tuple[str, ...]], dict[str, int]] = {}
        for pod_set in admission.pod_sets:
            flavor = next((name for name in pod_set.flavors.values() if name in self._ledgers), None)
            if flavor is None or pod_set.topology is None or pod_set.count <= 0:
                continue
            requests = per_pod(pod_set)
            for domain in pod_set.topology.domains:
                total = wanted.setdefault((flavor, domain.values), {})
                for resource, amount in usage_of(requests, domain.count).items():
                    total[resource] = total.get(resource, 0) + amount
        for (flavor, values), total in wanted.items():
            leaf = self._ledgers[flavor].leaf(values)
            if leaf is None or any(amount > leaf.free.get(resource, 0) for resource, amount in total.items()):
                return False
        return True

    def _usage_for(self, pod_set: PodSetAssignment, assignment: TopologyAssignment) -> Usage:
        if _names_hosts(assignment):
            return self._host_usage
        flavors = sorted(set(pod_set.flavors.values()))
        flavor = next((name for name in flavors if name in self._ledgers), "")
        return self._usages.setdefault(flavor, Usage())

    # --- placing ------------------------------------------------------------------------------------------------------

    def place(
        self,
        requests: Mapping[str, Sequence[PlacementRequest]],
        *,
        profile: Profile = KUEUE_DEFAULTS,
        simulate_empty: bool = False,
        without: Iterable[str] = (),
    ) -> Placement:
        """Place a workload's pod sets, by the flavor that quota gave them; nothing is changed.

        `without` names holders that do not count. Pods placed on one flavor take room on the others that share its hosts.
        KeyError names a flavor without a ledger.
        """
        lifted = {key: self._holders[key] for key in without if key in self._holders}
        for key in lifted:
            self.remove_holder(key)
        try:
            return self._place(requests, profile, simulate_empty)
        finally:
            for key, admission in lifted.items():
                self.put_holder(key, admission)

    def place_empty(
        self, key: Hashable, requests: Mapping[str, Sequence[PlacementRequest]], profile: Profile
    ) -> Placement:
        """`place` in an empty cluster. Answers are cached by `key`, which equal requests share."""
        if self._empty_version != self.version or len(self._empty) >= MOST_EMPTY:
            self._empty.clear()
            self._empty_version = self.version
        found = self._empty.get(key)
        if found is None:
            found = self._empty[key] = self.place(requests, profile=profile, simulate_empty=True)
        return found

    def _place(
        self, requests: Mapping[str, Sequence[PlacementRequest]], profile: Profile, simulate_empty: bool
    ) -> Placement:
        assignments: dict[str, TopologyAssignment] = {}
        on_hosts: list[Hold] = []
        for flavor, asked in requests.items():
            ledger = self._ledgers[flavor]
            assumed = on_hosts if ledger.hostnames else ()
            answer = place(ledger, asked, profile=profile, simulate_empty=simulate_empty, assumed=assumed)
            assignments.update(answer.assignments)
            if not answer.ok:
                return Placement(assignments, answer.failure, answer.failed)
            if ledger.hostnames and len(requests) > 1:
                by_name = {request.pod_set.name: request.pod_set.requests for request in asked}
                on_hosts += [Hold(assignment, by_name[name]) for name, assignment in answer.assignments.items()]
        return Placement(assignments)


def per_pod(pod_set: PodSetAssignment) -> Requests:
    """The usage of one pod of an admitted pod set; its slot (`pods`) is counted by the topology itself."""
    return {name: amount // pod_set.count for name, amount in pod_set.usage.items() if name != PODS}


def _is_on(assignment: TopologyAssignment, host: str) -> bool:
    return _names_hosts(assignment) and any(domain.values[-1] == host for domain in assignment.domains)


def _offer(node: Node) -> object:
    """What a node offers, and to which pods."""
    return node.labels, node.allocatable, node.taints, node.ready, node.unschedulable


def _names_hosts(assignment: TopologyAssignment) -> bool:
    return assignment.levels[-1:] == (HOSTNAME,)
