"""Capacity that follows health: quota bounds what a queue may use, the healthy nodes of a flavor what there is to use.

Every holder has a node assignment: for each of its pods the node that it is bound to, or one on which room is kept for it. Room
is taken on real nodes across all queues, so that a gang is admitted only when the healthy nodes that its flavors select have
room for the whole of it. Pods of topology flavors are placed and not assigned, but take room of the same nodes; flavors without
node labels, with labels that select no node, or marked as autoscaled are bounded by quota alone, as in Kueue.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from gangline.engine.model import Admission, BoundPod, Flavor, Node, Recovery, ReservedWindow, WorkloadPods
from gangline.engine.nodes.capacity_request import CapacityRequest
from gangline.engine.nodes.health import NodeHealth
from gangline.engine.nodes.node_rooms import Ground, NodeRooms
from gangline.engine.nodes.packer import Ask, Grounds, NodeAssignment, PackedPodSet, Packer, Place, Shortage
from gangline.engine.nodes.pod_locations import PodLocations
from gangline.engine.nodes.windows import Windows
from gangline.engine.occupancy.node_ledger import HOSTS, DomainKey, NodeLedger, host_of
from gangline.engine.queues.workload_parts import NO_NAMES
from gangline.engine.queues.workload_state import WorkloadState


@dataclass(slots=True)
class NodeHolding:
    """A holder's share of the nodes. Its members are computed when it is first assigned to nodes."""

    gang: WorkloadState
    admission: Admission
    members: list[PackedPodSet] = field(default_factory=list[PackedPodSet])
    assigned: NodeAssignment = field(default_factory=NodeAssignment)


class Capacity:
    def __init__(
        self, health: NodeHealth, flavors: Mapping[str, Flavor], ledger: NodeLedger, windows: Windows | None = None
    ) -> None:
        self.health = health
        #: windows of Reservations, None = nodes are marked by somebody else
        self.windows = windows
        self.ledger = ledger
        self.rooms = NodeRooms(ledger)
        self.grounds = Grounds(self.rooms, flavors)
        self.pod_locations = PodLocations(health, self._requests_of, lambda key: key in self._holdings)
        self._holdings: dict[str, NodeHolding] = {}
        #: holders whose assignment has to be computed again, and those of which pods are missing
        self._unsettled: set[str] = set()
        self.without_nodes: set[str] = set()
        #: how much of the ledger's openings holders without nodes have seen
        self._seen = ledger.openings.end
        #: for engine.backfill.timeline: changes with the nodes; and the holders whose assignment changed
        self.nodes_version = 0
        self.moved: dict[str, None] = {}

    # --- facts --------------------------------------------------------------------------------------------------------

    def put_node(self, node: Node | None, name: str) -> None:
        old = self.health.nodes.get(name)
        was_usable = old is not None and self.health.usable(name)
        self.pod_locations.put_node(self.health.last(name), node, name)
        self.health.put_node(node, name)
        if node is None:
            self.ledger.remove_node(name)
            if self.windows is not None:
                self.windows.forget_node(name)
        else:
            self.ledger.put_node(self._marked(node), usable=self.health.usable(name))
        if node is None or old is None or was_usable != self.health.usable(name) or _offer(old) != _offer(node):
            self.nodes_version += 1
        if node is None or old is None or old.labels != node.labels or old.allocatable != node.allocatable:
            self.regard_flavors()

    def _marked(self, node: Node) -> Node:
        return self.windows.marked(node) if self.windows else node

    def regard_windows(self) -> None:
        """Windows came, changed or ended: their nodes are marked anew."""
        assert self.windows is not None
        for name, node in self.health.nodes.items():
            marked, tracked = self.windows.marked(node), self.ledger.nodes.get(name)
            if tracked is not None and tracked.node != marked:
                self.ledger.put_node(marked, usable=tracked.usable)
                self.nodes_version += 1

    def regard_flavors(self) -> None:
        """Flavors, or the nodes that they select, changed: every holder's assignment is computed again."""
        self.grounds.clear()
        self._unsettled.update(self._holdings)
        self.health.regard_policies()

    def put_workload_pods(self, workload_pods: WorkloadPods | None, key: str) -> None:
        self.pod_locations.put(workload_pods, key)
        namespace = key.partition("/")[0]  # pods of gangs use the room that these hold, and are no pods of others
        self.ledger.account_for(key, frozenset(f"{namespace}/{pod.name}" for pod in self.pod_locations.pods(key)))
        if key in self._holdings:
            self._unsettled.add(key)

    def stays(self, gang: WorkloadState) -> None:
        """The holder was to move and does not: its pods count where they are, those that were given up as well."""
        gang.nodes.healed = NO_NAMES
        gang.nodes.refusing = NO_NAMES
        self.pod_locations.recall(gang.key)
        if gang.key in self._holdings:
            self._unsettled.add(gang.key)

    def _requests_of(self, key: str, pod_set: str) -> Mapping[str, int]:
        holding = self._holdings.get(key)
        for demand in holding.gang.demands if holding is not None else ():
            if demand.name == pod_set:
                return demand.pod_set.requests
        return {}

    def advance(self, now: int) -> set[str]:
        """Follow the health of nodes up to `now`. Returns the nodes whose standing changed."""
        self.pod_locations.tell()
        changed = self.health.advance(now)
        for name in changed:
            node, room = self.health.nodes.get(name), self.rooms.get(name)
            usable = self.health.usable(name)
            if node is not None and room is not None and room.usable != usable:
                self.ledger.put_node(self._marked(node), usable=usable)
                self._unsettled.update(self.holders_on(name))
                self.nodes_version += 1
        return changed

    # --- holders ------------------------------------------------------------------------------------------------------

    def hold(self, gang: WorkloadState, admission: Admission) -> None:
        """`gang` holds quota: its pods are assigned to nodes, except those of topology flavors."""
        holding = self._holdings.get(gang.key)
        if holding is None:
            self._holdings[gang.key] = NodeHolding(gang, admission)
        else:
            holding.gang, holding.admission = gang, admission
        gang.nodes.ledger = self.ledger
        self._unsettled.add(gang.key)

    def take(self, gang: WorkloadState, admission: Admission, assigned: NodeAssignment | None) -> None:
        """`hold`, with the assignment that was found for the gang."""
        self.hold(gang, admission)
        if assigned is not None:
            holding = self._holdings[gang.key]
            self._learn(holding)
            self._replace(holding, assigned)

    def adopt(self, other: Capacity) -> None:
        """Holders have exactly the nodes that they have there."""
        for key, theirs in other._holdings.items():
            if (holding := self._holdings.get(key)) is not None:
                given = theirs.assigned
                assigned = NodeAssignment(dict(given.bound), dict(given.kept), dict(given.domains), dict(given.missing))
                self.take(holding.gang, holding.admission, assigned)
                self._unsettled.discard(key)

    def with_places_of(self, old: WorkloadState, assigned: NodeAssignment | None) -> NodeAssignment | None:
        """An assignment with the rooms that another holder has: it takes them over, with the pods that are there."""
        holding = self._holdings.get(old.key)
        if holding is None or holding.assigned.empty:
            return assigned
        kept = Counter(holding.assigned.bound) + Counter(holding.assigned.kept)
        if assigned is not None:
            kept += Counter(assigned.kept)
        return NodeAssignment(kept=dict(kept))

    def _learn(self, holding: NodeHolding) -> None:
        """Compute its members again: its requests, or the nodes that its flavors select, may have changed."""
        counts = {demand.name: demand for demand in holding.gang.demands}
        asks: list[Ask] = [
            (counts[each.name].pod_set, min(each.count, counts[each.name].count), tuple(each.flavors.values()))
            for each in holding.admission.pod_sets
            if each.name in counts and each.topology is None
        ]
        holding.members = self.grounds.members(asks)
        self._take(holding)

    def release(self, gang: WorkloadState) -> None:
        """Forget what the workload holds: it holds nothing any more."""
        self._holdings.pop(gang.key, None)
        gang.nodes.ledger = None
        self.ledger.release(gang.key)
        self._unsettled.discard(gang.key)
        self.without_nodes.discard(gang.key)

    def holding(self, gang: WorkloadState) -> NodeHolding | None:
        return self._holdings.get(gang.key)

    def holders_on(self, node: str) -> list[str]:
        """Workloads with pods on a node, or with room kept for them there."""
        assigned = (key for key in self.ledger.assigned_to(node) if key in self._holdings)
        return sorted({*assigned, *self.pod_locations.on(node)})

    def nodes_of(self, gang: WorkloadState) -> set[str]:
        """The nodes of the workload's pods, and those on which room is kept for them."""
        holding = self._holdings.get(gang.key)
        return holding.assigned.nodes() if holding else set()

    def nodes_of_flavor(self, flavor: str) -> list[str]:
        """The names of the nodes that a flavor selects."""
        found = self.grounds.flavors.get(flavor)
        if found is None:
            return []
        wanted = found.node_labels.items()
        return [name for name, node in self.health.nodes.items() if wanted <= node.labels.items()]

    def window_ahead(self, gang: WorkloadState) -> tuple[ReservedWindow, frozenset[str]] | None:
        """The first hard window for which the workload must leave nodes, and these; None if there is none.

        Where its nodes are not chosen here (flavors without nodes, topologies above hosts), only the pods that were there before
        the window began count: it may come to such a node again, and would be stopped again and again.
        """
        if not self.windows:
            return None
        hosts = (key[0] for (flavor, key), _ in self.ledger.placed(gang.key) if flavor == HOSTS)
        chosen = {node for host in hosts for node in self.ledger.nodes_at(host)}
        chosen.update(node for places in (self.places_of(gang) or {}).values() for node in places)
        others = {pod.node for pod in self.pod_locations.pods(gang.key)} - chosen
        found = [self.windows.first_on(chosen, gang), self.windows.first_on(others, gang, since=gang.started_at)]
        first = self.windows.first_to_leave((each for each in found if each is not None), gang)
        if first is None:
            return None
        return first, frozenset((chosen | others).intersection(self.windows.nodes_of(first.name)))

    def domains_of(self, gang: WorkloadState, label: str) -> frozenset[str] | None:
        """The workload's domains of a node label, none of them while it has fewer than it needs; None: nodes do not bound it."""
        holding = self._holdings.get(gang.key)
        takers = [each for each in holding.members if each.exclusive == label and each.ground] if holding else []
        if holding is None or not takers:
            return None
        found = frozenset(value for key, value in holding.assigned.domains if key == label)
        return found if len(found) >= sum(each.domains for each in takers) else frozenset()

    def places_of(self, gang: WorkloadState) -> dict[str, dict[str, int]] | None:
        """How many of its pods have room on which node, by pod set, those that are there included. Pod sets that nodes do not
        bound are left out. None: it holds nothing.
        """
        holding = self._holdings.get(gang.key)
        if holding is None:
            return None
        found: dict[str, dict[str, int]] = {each.name: {} for each in holding.members if each.ground is not None}
        for places in (holding.assigned.bound, holding.assigned.kept):
            for (name, node), count in places.items():
                if name in found:
                    found[name][node] = found[name].get(node, 0) + count
        return found

    def reach(self, gang: WorkloadState) -> set[str]:
        """The nodes of the workload's flavors."""
        holding = self._holdings.get(gang.key)
        grounds = (each.ground for each in holding.members) if holding else ()
        return {name for ground in grounds if ground is not None for name in ground.names}

    def _take(self, holding: NodeHolding) -> None:
        """Bring the ledger in line with its assignment."""
        self.ledger.assign(holding.gang.key, holding.assigned.takes(holding.members))

    def _replace(self, holding: NodeHolding, assigned: NodeAssignment) -> None:
        holding.assigned = assigned
        assigned.lingering = self._lingering(holding, assigned)
        assigned.vacating = self._vacating(holding, assigned)
        self.moved[holding.gang.key] = None
        self._take(holding)
        if assigned.missing:
            self.without_nodes.add(holding.gang.key)
        else:
            self.without_nodes.discard(holding.gang.key)

    # --- settling -----------------------------------------------------------------------------------------------------

    def settle(self) -> None:
        """Compute all outdated assignments again; the gangs that have held quota longest choose first."""
        intruded = self._crowded_by_others()
        opened, self._seen = self.ledger.openings.end != self._seen, self.ledger.openings.end
        if not self.health.nodes or not (self._unsettled or intruded or (opened and self.without_nodes)):
            return
        anew, self._unsettled = self._unsettled & self._holdings.keys(), set()
        keys = sorted(anew | self.without_nodes, key=self._seniority)
        for key in keys:
            if key in anew:
                self._learn(self._holdings[key])
            self._keep_bound(self._holdings[key])
        crowded = intruded | self._displaced_by_pods(self._holdings[key] for key in keys)
        crowded &= self._holdings.keys()  # room may also be held for preemptors, which have no pods to move
        for key in sorted({*keys, *crowded}, key=self._seniority):
            self._assign_rest(self._holdings[key])

    def _crowded_by_others(self) -> set[str]:
        """The holders on nodes on which pods of others have come to take too much."""
        rooms = ((name, self.rooms.get(name)) for name in self.ledger.drain_intruded())
        return {
            key for name, room in rooms if room is not None and room.overfull for key in self.ledger.assigned_to(name)
        }

    def _seniority(self, key: str) -> tuple[int, str]:
        gang = self._holdings[key].gang
        return gang.quota.reserved_at, gang.uid

    def _keep_bound(self, holding: NodeHolding) -> None:
        """Assign its bound pods to their nodes. Room that it had stays kept for as many pods as are not bound."""
        bound = self.bound(holding)
        if bound == holding.assigned.bound and self._lingering(holding, holding.assigned) == holding.assigned.lingering:
            return
        assigned = NodeAssignment(bound, domains=dict(holding.assigned.domains))
        for each in holding.members:
            left = each.count - sum(count for (name, _), count in bound.items() if name == each.name)
            for place in sorted(place for place in holding.assigned.kept if place[0] == each.name):
                vacated = holding.assigned.at(place) - bound.get(place, 0)
                count = min(left, max(0, vacated))
                if count:
                    assigned.kept[place] = count
                    left -= count
        self._replace(holding, assigned)

    def _displaced_by_pods(self, moved: Iterable[NodeHolding]) -> set[str]:
        """Holders with room kept where other pods are now."""
        crowded: set[str] = set()
        for holding in moved:
            for node in holding.assigned.nodes():
                room = self.rooms.get(node)
                if room is not None and room.overfull:
                    crowded.update(self.ledger.assigned_to(node))
            for domain in holding.assigned.domains:
                owners = self.ledger.owners(domain)
                if len(owners) > 1:
                    crowded |= owners.keys()
        return crowded & self._holdings.keys()

    def _assign_rest(self, holding: NodeHolding) -> None:
        if any(member.ground is not None for member in holding.members):
            self._replace(holding, self._best_assignment(holding, holding.members, lost=frozenset()))

    def _best_assignment(
        self, holding: NodeHolding, members: Iterable[PackedPodSet], lost: Collection[str]
    ) -> NodeAssignment:
        """The best assignment for it, which may leave pods missing."""
        packer = self._begin(holding, lost)
        there = [(each, self._bound_of(holding, each, lost)) for each in members]
        with self.ledger.unassigned(holding.gang.key):
            for each, bound in there:
                if each.ground is not None and each.exclusive:
                    packer.assign_domains(each, bound, move=False)
                    self._count_missing(packer, each)
                    continue
                for node, count in sorted(bound.items()):
                    packer.bind(each, node, count)
                rest = each.count - sum(bound.values())
                if each.ground is not None and rest > 0:
                    packer.assign_some(each, rest)
            packer.undo()
        return packer.assigned

    def _count_missing(self, packer: Packer, member: PackedPodSet) -> None:
        assigned = packer.assigned
        on_nodes = sum(
            count for place, count in (*assigned.bound.items(), *assigned.kept.items()) if place[0] == member.name
        )
        assigned.missing.pop(member.name, None)
        if on_nodes < member.count:
            assigned.missing[member.name] = member.count - on_nodes

    def _begin(self, holding: NodeHolding, lost: Collection[str]) -> Packer:
        avoid = {*holding.gang.workload.avoid, *lost}
        return Packer(self.rooms, holding.gang.key, holding.assigned, avoid)

    # --- where pods are -----------------------------------------------------------------------------------------------

    def bound(self, holding: NodeHolding) -> dict[Place, int]:
        return {
            (member.name, node): count
            for member in holding.members
            for node, count in self._bound_of(holding, member, ()).items()
        }

    def _bound_of(self, holding: NodeHolding, member: PackedPodSet, lost: Collection[str]) -> dict[str, int]:
        """The bound pods of a member per node, at most its count; pods on lost nodes, and those given up, do not count."""
        gang = holding.gang
        gone, left = {*lost, *self.given_up(gang)}, {*gang.nodes.refusing, *gang.workload.avoid}

        def counts(pod: BoundPod) -> bool:
            """A pod that ends on an unusable node, or that its node refuses, does not: its successor goes to another node."""
            if pod.pod_set != member.name or pod.node in gone or (pod.refused and pod.node in left):
                return False
            return not pod.terminating or self.health.usable(pod.node)

        pods = [pod for pod in self.pod_locations.lasting(gang.key) if counts(pod)]
        pods.sort(key=lambda pod: (pod.terminating, pod.sent, pod.name))
        found = Counter(pod.node for pod in pods[: member.count] if not pod.sent)
        for node, count in Counter(pod.node for pod in pods[: member.count] if pod.sent).items():
            if most := min(count, self._room_at(holding, member, node) - found[node]):
                found[node] += max(0, most)
        return {node: count for node, count in found.items() if count}

    def _room_at(self, holding: NodeHolding, member: PackedPodSet, node: str) -> int:
        """How many of its pods have room on a node, those that it has there included.

        Users can write a node's name into the affinity of a pod, too: one that is not bound yet takes no room of others.
        """
        if member.ground is None:
            return 0
        free = self.rooms.table(member.ground, member.shape).counts.get(node, 0)
        return holding.assigned.at((member.name, node)) + free

    def _lingering(self, holding: NodeHolding, assigned: NodeAssignment) -> dict[Place, int]:
        """The workload's pods on usable nodes where its assignment has no room for them, or not for so many."""
        pods = self.pod_locations.pods(holding.gang.key)
        if len(pods) <= sum(assigned.bound.values()):
            return {}
        names = {member.name for member in holding.members}
        replaced = self.pod_locations.replaced(holding.gang.key)
        there = Counter(
            (pod.pod_set, pod.node)
            for pod in pods
            if pod.pod_set in names and not pod.sent and pod.node not in replaced and self.health.usable(pod.node)
        )
        return {place: count - assigned.at(place) for place, count in there.items() if count > assigned.at(place)}

    def _vacating(self, holding: NodeHolding, assigned: NodeAssignment) -> frozenset[DomainKey]:
        labels = {member.name: member.exclusive for member in holding.members if member.exclusive}
        places = [(labels[name], node) for name, node in assigned.lingering if name in labels]
        found = {(label, value) for label, node in places if (value := self.rooms.label(node, label)) is not None}
        return frozenset(found - assigned.domains.keys())

    def given_up(self, gang: WorkloadState) -> set[str]:
        """Lost nodes under the workload that are already being replaced."""
        return {node for node in (*gang.nodes.healed, *gang.workload.avoid) if not self.health.usable(node)}

    # --- moving -------------------------------------------------------------------------------------------------------

    def reassign(
        self, gang: WorkloadState, lost: Collection[str], refusing: Collection[str] = ()
    ) -> NodeAssignment | Shortage:
        """An assignment of the whole gang without these nodes; the pods that it keeps stay where they are. Or what is missing
        for one. Nodes that are `refusing` keep the pods that are bound to them, and get no others.
        """
        holding = self._holdings[gang.key]
        packer = self._begin(holding, {*lost, *refusing})
        there = [(each, self._bound_of(holding, each, lost)) for each in holding.members]
        with self.ledger.unassigned(gang.key):
            try:
                for each, bound in there:
                    shortage: Shortage | None = None
                    if each.ground is not None and each.exclusive:
                        shortage = packer.assign_domains(each, bound, move=True)
                    else:
                        for node, count in sorted(bound.items()):
                            packer.bind(each, node, count)
                        rest = each.count - sum(bound.values())
                        if each.ground is not None and rest > 0:
                            shortage = packer.assign(each, rest)
                    if shortage is not None:
                        return shortage
                    # such nodes come last: one that is used means that no other has room
                    back = sum(
                        n for (name, node), n in packer.assigned.kept.items() if name == each.name and node in refusing
                    )
                    if back:
                        return Shortage(each, each.count, each.count - back)
                return packer.assigned
            finally:
                packer.undo()

    def keep(self, gang: WorkloadState, assigned: NodeAssignment) -> None:
        """Give the workload this assignment, though pods of others may still be there."""
        self._replace(self._holdings[gang.key], assigned)

    # --- asking -------------------------------------------------------------------------------------------------------

    def request(self, gang: WorkloadState, asks: Sequence[Ask], recovery: Recovery | None) -> CapacityRequest | None:
        """What a waiting gang needs of nodes; None if nodes do not bound it."""
        if not self.health.nodes or not any(self.grounds.ground(flavors) is not None for _, _, flavors in asks):
            return None
        members = [each for each in self.grounds.members(asks) if each.ground is not None]
        return CapacityRequest(self, gang, members, recovery) if members else None

    def holders_of(self, flavor: str, most: int) -> tuple[str, ...]:
        """The workloads on the nodes of a flavor, of whichever flavor they are themselves; those on most nodes first."""
        ground = self.grounds.ground((flavor,))
        nodes = frozenset(ground.names) if ground is not None else frozenset[str]()
        on = {key: len(nodes & holding.assigned.nodes()) for key, holding in self._holdings.items()}
        for name in nodes:
            room = self.rooms.get(name)
            for key in self.ledger.placed_on(host_of(room.node)) if room is not None and room.placed else ():
                on[key] = on.get(key, 0) + 1
        return tuple(sorted((key for key, count in on.items() if count), key=lambda key: (-on[key], key))[:most])

    def highest_running(self, ground: Ground) -> int | None:
        """The highest priority among the holders of a ground."""
        return max(
            (
                holding.gang.priority
                for holding in self._holdings.values()
                if any(each.ground is ground for each in holding.members)
            ),
            default=None,
        )


def _offer(node: Node) -> object:
    """What a node offers, and to which pods."""
    return node.labels, node.allocatable, node.taints
