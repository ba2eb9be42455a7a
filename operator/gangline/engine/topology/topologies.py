"""Topology-aware placement: every topology flavor's view of the nodes, and where a workload's pods can go.

How the engine uses it
----------------------
Keep one `Topologies` on the ledger of nodes, and pass it every fact about its objects, in any order:

    topologies = Topologies(node_ledger)
    topologies.put_flavor(flavor); topologies.put_topology(topology)     # and remove_… by name
    node_ledger.put_node(node, usable=True); node_ledger.put_foreign(pod)      # pods that no topology placement accounts for
    woken = topologies.opened()                                          # the flavors whose capacity this changed
    topologies.put_holder(workload.key, workload.admission)              # idempotent: the last admission is the truth
    node_ledger.release(workload.key)

`ledger(flavor)` is None unless the flavor names a topology that exists. Ask, once quota has picked the flavors:

    answer = topologies.place({"tas": [PlacementRequest(pod_set, implied=False)]}, profile=Profile.of_gates(gates))
    answer.ok, answer.assignments[pod_set.name], answer.failure          # failure: Kueue's text

- Partial admission: `dataclasses.replace(pod_set, count=n)`. `PodSet.requests` are per pod, without `pods`.
- `implied=True` where a pod set has no topology request but its ClusterQueue has topology flavors only.
- Does it fit an empty topology? `simulate_empty=True`. Do these victims free enough? `without=[their keys]`.
- What-ifs over a whole cycle: `node_ledger.lift` and `node_ledger.restore` are each other's exact undo, and cost what they touch.
- A failed node: `replace_node(topologies.ledger(flavor), [ReplacementRequest(...)], host)`.
- A level that the topology lacks: `ledger.has_levels(request)` is Kueue's check before any placement.

The parts: `placement_request` (requests, answers, the tree of domains), `node_filter` (which nodes), `domain_counts` (how many
fit where), `topology_ledger` (keeps the counts up to date), `balanced` and `domain_search` (pods per domain), and `placing` (a
workload's pod sets, and the replacement of failed nodes).
"""

from __future__ import annotations

from collections.abc import Generator, Hashable, Iterable, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace

from gangline.engine.model import (
    Admission,
    Flavor,
    ForeignPod,
    Node,
    PlacementPolicy,
    PodSetAssignment,
    Requests,
    Topology,
    TopologyAssignment,
)
from gangline.engine.occupancy.fitting import HOSTNAME, PODS, add
from gangline.engine.occupancy.node_ledger import HOSTS, NodeLedger, Placed, Spot, TrackedNode
from gangline.engine.topology.leaf_ranking import OF_POLICY, LeafRanking, RankingOf
from gangline.engine.topology.placement_request import (
    AS_COUNTED,
    KUEUE_DEFAULTS,
    NodeNeeds,
    PlacementRequest,
    PlacementResult,
    PlacementRules,
)
from gangline.engine.topology.placing import PlacedPods, ReplacementRequest, place, replace_node
from gangline.engine.topology.policy_filter import InformedPolicy
from gangline.engine.topology.topology_ledger import TopologyLedger, usage_at

__all__ = [
    "PlacedPods",
    "PlacementRequest",
    "PlacementResult",
    "PlacementRules",
    "ReplacementRequest",
    "Topologies",
    "TopologyLedger",
    "place",
    "replace_node",
]


#: number of requests to an empty topology whose answers are cached
MOST_EMPTY = 4096
#: flavors and policies whose rankings are kept
MOST_RANKINGS = 256


class Topologies:
    """All topology flavors of a cluster. Flavors whose topology ends at the hostname share what is used on a host."""

    def __init__(self, node_ledger: NodeLedger | None = None, ranking_of: RankingOf | None = None) -> None:
        """`ranking_of` makes the ranking of a placement policy on a topology; without it policies order nothing."""
        self.node_ledger = node_ledger if node_ledger is not None else NodeLedger()
        self._ranking_of = ranking_of
        self._rankings: dict[tuple[str, PlacementPolicy], LeafRanking] = {}
        #: flavors without a topology, in queues with a placement policy
        self.of_policies: frozenset[str] = frozenset()
        #: annotations of nodes that policies look at, and those among them that may exclude a node
        self._measures: frozenset[str] = frozenset()
        self._excluding: frozenset[str] = frozenset()
        self.node_ledger.watch(self)
        self._flavors: dict[str, Flavor] = {}
        self._topologies: dict[str, Topology] = {}
        #: holders with a placement that names no hosts: their flavor depends on the flavors that have a ledger.
        self._above_hosts: dict[str, tuple[Admission, NodeNeeds]] = {}
        self._ledgers: dict[str, TopologyLedger] = {}
        #: flavors whose capacity changed
        self._opened: set[str] = set()
        #: answers for an empty cluster, as of a version (see `place_empty`)
        self._empty: dict[Hashable, PlacementResult] = {}
        self._empty_version = 0

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

    def rank_for(self, flavors: frozenset[str]) -> None:
        """Rank the leaves of these flavors, which are in queues with a placement policy: those without a topology get one of
        hosts.
        """
        changed = self.of_policies ^ flavors
        self.of_policies = flavors
        for name in sorted(changed):
            flavor = self._flavors.get(name)
            if flavor is not None and not flavor.topology:
                self._rebuild(name)

    @property
    def looked_at(self) -> tuple[frozenset[str], frozenset[str]]:
        """What was last passed to `look_at`."""
        return self._measures, self._excluding

    def look_at(self, measures: frozenset[str], excluding: frozenset[str]) -> None:
        """Policies look at these annotations of nodes; some of them may exclude nodes."""
        self._excluding = excluding
        if measures != self._measures:
            self._measures = measures
            self._empty.clear()
            for tracked in self.node_ledger.nodes.values():
                node = self._as_trusted(tracked)
                self._opened.update(name for name, ledger in self._ledgers.items() if ledger.put_node(node))

    def ledger_for(self, flavor: str, policy: PlacementPolicy | None) -> TopologyLedger | None:
        """`ledger`, but a topology that policies brought is there only for queues with one."""
        ledger = self._ledgers.get(flavor)
        return None if ledger is not None and ledger.of_policy and policy is None else ledger

    def ledger(self, flavor: str) -> TopologyLedger | None:
        """The state of a topology flavor, None for other flavors and while its topology is missing or has no levels."""
        return self._ledgers.get(flavor)

    def _rebuild_users(self, topology: str) -> None:
        for flavor in [name for name, flavor in self._flavors.items() if self._topology_of(flavor) == topology]:
            self._rebuild(flavor)

    def _rebuild(self, name: str) -> None:
        """A flavor or its topology changed: its ledger starts afresh, and holders of domains above the host may belong
        to another ledger.
        """
        self._empty.clear()
        flavor = self._flavors.get(name)
        topology = self._topologies.get(self._topology_of(flavor)) if flavor else None
        old = self._ledgers.get(name)
        wanted = flavor if topology and topology.levels else None
        if old is None and wanted is None:
            return
        holders = dict(sorted(self._above_hosts.items()))
        for key in holders:
            self.remove_holder(key)
        if old is not None:
            old.close()
            del self._ledgers[name]
            for known in [each for each in self._rankings if each[0] == name]:
                del self._rankings[known]
        if wanted and topology:
            self._ledgers[name] = self._new_ledger(wanted, topology)
        for key, (admission, needs) in holders.items():
            self.put_holder(key, admission, needs)

    def _topology_of(self, flavor: Flavor) -> str:
        if not flavor.topology and not flavor.autoscaled and flavor.name in self.of_policies:
            return OF_POLICY
        return flavor.topology

    def _ranking(self, flavor: str, policy: PlacementPolicy | None) -> LeafRanking | None:
        """The ranking of the flavor's leaves by a policy; None without a policy, and on topologies whose leaves are no hosts."""
        ledger = self._ledgers[flavor]
        if policy is None or self._ranking_of is None or not ledger.hostnames:
            return None
        known = self._rankings.get((flavor, policy))
        if known is None:
            self._forget_older(flavor, policy)
            while len(self._rankings) >= MOST_RANKINGS:  # policies that are no more
                del self._rankings[next(iter(self._rankings))]
            known = self._rankings[flavor, policy] = self._ranking_of(ledger, policy)
        return known

    def _forget_older(self, flavor: str, policy: PlacementPolicy) -> None:
        """Forget the ranking of this policy with what was known of pairs before."""
        if isinstance(policy, InformedPolicy):
            for name, other in list(self._rankings):
                if (
                    name == flavor
                    and isinstance(other, InformedPolicy)
                    and replace(other, speeds=policy.speeds) == policy
                ):
                    del self._rankings[name, other]

    def _new_ledger(self, flavor: Flavor, topology: Topology) -> TopologyLedger:
        ledger = TopologyLedger(flavor, topology, self.node_ledger)
        for tracked in self.node_ledger.nodes.values():
            ledger.put_node(self._as_trusted(tracked))
        return ledger

    # --- nodes and pods -----------------------------------------------------------------------------------------------

    @property
    def has_opened(self) -> bool:
        return bool(self._opened)

    def opened(self) -> frozenset[str]:
        """Flavors whose capacity changed since the last call."""
        opened, self._opened = frozenset(self._opened), set()
        return opened

    def node_put(self, tracked: TrackedNode, old: Node | None) -> None:
        if not self._ledgers:
            return
        node = self._as_trusted(tracked)
        changed = [name for name, ledger in self._ledgers.items() if ledger.put_node(node)]
        if changed and not (old is not None and self._is_measurement(old, tracked.node)):
            self._empty.clear()
            self._opened.update(changed)

    def _is_measurement(self, old: Node, new: Node) -> bool:
        """Whether nothing is different but annotations that order nodes and exclude none."""
        if not self._measures or all(old.annotations.get(key) == new.annotations.get(key) for key in self._measures):
            return False
        if any(old.annotations.get(key) != new.annotations.get(key) for key in self._excluding):
            return False
        return old == replace(new, annotations=old.annotations)

    def _as_trusted(self, tracked: TrackedNode) -> Node:
        """The node as topologies see it: an untrusted node is one that is not ready, and what does not matter to them is left
        out.
        """
        node = tracked.node
        seen = {key: node.annotations[key] for key in self._measures if key in node.annotations}
        return replace(node, ready=node.ready and tracked.usable, uid="", conditions={}, annotations=seen, capacity={})

    def node_gone(self, name: str) -> None:
        self._opened.update(flavor for flavor, ledger in self._ledgers.items() if ledger.remove_node(name))

    def foreign_shifted(self, node: str, amounts: Requests, sign: int) -> None:
        for name, ledger in self._ledgers.items():
            if ledger.foreign_shifted(node, amounts, sign):
                self._opened.add(name)

    def cards_put(self, node: str) -> None:
        self._opened.update(flavor for flavor, ledger in self._ledgers.items() if ledger.cards_put(node))

    def power_capped(self) -> None:
        self._empty.clear()
        for name, ledger in self._ledgers.items():
            ledger.start_over()
            self._opened.add(name)

    def power_shifted(self, nodes: Iterable[str]) -> None:
        for ledger in self._ledgers.values():
            ledger.power_shifted(nodes)

    def released(self, key: str) -> None:
        self._above_hosts.pop(key, None)

    def put_node(self, node: Node, *, usable: bool = True) -> frozenset[str]:
        """A node as it is now. Returns the names of the flavors whose topology this changes."""
        self.node_ledger.put_node(node, usable=usable)
        return self.opened()

    def remove_node(self, name: str) -> frozenset[str]:
        self.node_ledger.remove_node(name)
        return self.opened()

    def put_foreign(self, pod: ForeignPod) -> frozenset[str]:
        """A pod that uses a node without a topology placement. Returns the names of the flavors whose capacity this changes."""
        self.node_ledger.put_foreign(pod)
        return self.opened()

    def remove_foreign(self, key: str) -> frozenset[str]:
        self.node_ledger.remove_foreign(key)
        return self.opened()

    # --- holders ------------------------------------------------------------------------------------------------------

    def put_holder(self, key: str, admission: Admission, needs: NodeNeeds = AS_COUNTED, *, beside: Placed = ()) -> None:
        """A workload holds the topology placements of this admission, instead of what it held before, and what is `beside` it."""
        if any(each.topology and not _names_hosts(each.topology) for each in admission.pod_sets):
            self._above_hosts[key] = admission, needs
        else:
            self._above_hosts.pop(key, None)
        self.node_ledger.place(key, (*self.taken(admission, needs), *beside))

    def remove_holder(self, key: str) -> None:
        """A workload holds no placements any more; unknown keys are ignored."""
        self._above_hosts.pop(key, None)
        self.node_ledger.place(key, ())

    @contextmanager
    def holding(self, key: str, admission: Admission | None, needs: NodeNeeds = AS_COUNTED) -> Generator[None]:
        """Let a holder have the places of this admission (None: no places) instead of its own, for the length of a `with`."""
        placed = self.node_ledger.placed(key)
        self.node_ledger.replace(key, self.taken(admission, needs) if admission is not None else ())
        try:
            yield
        finally:
            self.node_ledger.replace(key, placed)

    def taken(self, admission: Admission, needs: NodeNeeds = AS_COUNTED) -> Placed:
        """What the placements of an admission take of every spot."""
        found: dict[Spot, dict[str, int]] = {}
        for pod_set in admission.pod_sets:
            assignment = pod_set.topology
            if assignment is None or pod_set.count <= 0:
                continue
            flavor, requests = self._spot_flavor(pod_set, assignment), per_pod(pod_set, needs)
            for domain in assignment.domains:
                add(found.setdefault((flavor, domain.values), {}), usage_at(domain, requests))
        return tuple(found.items())

    def has_room(
        self, admission: Admission, needs: NodeNeeds = AS_COUNTED, policy: PlacementPolicy | None = None
    ) -> bool:
        """Whether exactly the places of this admission, in a queue with this policy, are free."""
        wanted: dict[tuple[str, tuple[str, ...]], dict[str, int]] = {}
        for pod_set in admission.pod_sets:
            flavor = next((name for name in pod_set.flavors.values() if name in self._ledgers), None)
            if flavor is None or pod_set.topology is None or pod_set.count <= 0:
                continue
            requests = per_pod(pod_set, needs)
            for domain in pod_set.topology.domains:
                add(wanted.setdefault((flavor, domain.values), {}), usage_at(domain, requests))
        if self.node_ledger.power is not None and not self.node_ledger.within_power(self.taken(admission, needs)):
            return False
        by_bandwidth = policy is not None and policy.by_bandwidth
        return all(
            self._ledgers[flavor].has_room(key, total, by_bandwidth=by_bandwidth)
            for (flavor, key), total in wanted.items()
        )

    def _spot_flavor(self, pod_set: PodSetAssignment, assignment: TopologyAssignment) -> str:
        if _names_hosts(assignment):
            return HOSTS
        return next((name for name in sorted(set(pod_set.flavors.values())) if name in self._ledgers), _NO_FLAVOR)

    # --- placing ------------------------------------------------------------------------------------------------------

    def place(
        self,
        requests: Mapping[str, Sequence[PlacementRequest]],
        *,
        profile: PlacementRules = KUEUE_DEFAULTS,
        simulate_empty: bool = False,
        without: Iterable[str] = (),
        policy: PlacementPolicy | None = None,
    ) -> PlacementResult:
        """Place a workload's pod sets, by the flavor that quota gave them; nothing is changed.

        `without` names holders that do not count. Pods placed on one flavor take room on the others that share its hosts.
        KeyError names a flavor without a ledger.
        """
        lifted = list(without)
        for key in lifted:
            self.node_ledger.lift(key)
        try:
            return self._place(requests, profile, simulate_empty, policy)
        finally:
            for key in lifted:
                self.node_ledger.restore(key)

    def place_empty(
        self, key: Hashable, requests: Mapping[str, Sequence[PlacementRequest]], profile: PlacementRules
    ) -> PlacementResult:
        """`place` in an empty cluster. Answers are cached by `key`, which equal requests share."""
        if self._empty_version != self.node_ledger.version or len(self._empty) >= MOST_EMPTY:
            self._empty.clear()
            self._empty_version = self.node_ledger.version
        found = self._empty.get(key)
        if found is None:
            found = self._empty[key] = self.place(requests, profile=profile, simulate_empty=True)
        return found

    def _place(
        self,
        requests: Mapping[str, Sequence[PlacementRequest]],
        profile: PlacementRules,
        simulate_empty: bool,
        policy: PlacementPolicy | None,
    ) -> PlacementResult:
        assignments: dict[str, TopologyAssignment] = {}
        on_hosts: list[PlacedPods] = []
        for flavor, asked in requests.items():
            ledger = self._ledgers[flavor]
            assumed = on_hosts if ledger.hostnames else ()
            ranking = self._ranking(flavor, policy)
            answer = place(
                ledger, asked, profile=profile, simulate_empty=simulate_empty, assumed=assumed, ranking=ranking
            )
            assignments.update(answer.assignments)
            if not answer.ok:
                return PlacementResult(assignments, answer.failure, answer.failed)
            if ledger.hostnames and len(requests) > 1:
                by_name = {request.pod_set.name: request.takes for request in asked}
                on_hosts += [PlacedPods(assignment, by_name[name]) for name, assignment in answer.assignments.items()]
        return PlacementResult(assignments)


def per_pod(pod_set: PodSetAssignment, needs: NodeNeeds = AS_COUNTED) -> Requests:
    """What one pod of an admitted pod set takes of a node; its slot (`pods`) is counted by the topology itself."""
    if pod_set.name in needs:
        return needs[pod_set.name]
    return {name: amount // pod_set.count for name, amount in pod_set.usage.items() if name != PODS}


#: The flavor of domains above hosts while none of the flavors has a topology. No flavor has a name with spaces.
_NO_FLAVOR = "no flavor"


def _names_hosts(assignment: TopologyAssignment) -> bool:
    return assignment.levels[-1:] == (HOSTNAME,)
