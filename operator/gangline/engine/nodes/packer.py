"""The packer: finds a node assignment for a gang, so that all of it has room at the same time.

Bound pods stay on their node. The others get room where the gang had it before, then in rooms that are in use, then in idle
ones, and last on nodes that failed it. Pods are sent there (`Engine.places_of`); where one is bound to another node all the same,
the pod index corrects what was assumed.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TypeAlias

from gangline.engine.model import Flavor, PodSet, Toleration
from gangline.engine.model.nodes import RESERVED
from gangline.engine.nodes.node_rooms import FitTable, Ground, NodeRooms, PodShape
from gangline.engine.occupancy.fitting import add, as_pod_requests
from gangline.engine.occupancy.node_ledger import NOWHERE, Assigned, DomainKey
from gangline.engine.occupancy.power_ledger import PowerAsk, power_marks
from gangline.engine.topology.node_filter import NodeSelection

#: (pod set, node)
Place: TypeAlias = tuple[str, str]


@dataclass(slots=True)
class PackedPodSet:
    """A pod set to be assigned; `ground` None = any node, and its bound pods count all the same."""

    name: str
    count: int
    requests: Mapping[str, int]  # per pod, with its place
    shape: PodShape
    ground: Ground | None
    flavors: tuple[str, ...]
    exclusive: str = ""
    per_domain: int = 0
    #: how many pods a node takes at most, 0 = as many as there is room for
    most_per_node: int = 0

    def bounded(self, counts: Mapping[str, int]) -> Mapping[str, int]:
        """How many pods these nodes take that have room for so many, and none of its pods yet."""
        most = self.most_per_node
        return {node: min(most, count) for node, count in counts.items()} if most else counts

    @property
    def domains(self) -> int:
        return -(-self.count // self.per_domain)


def member(
    pod_set: PodSet,
    count: int,
    ground: Ground | None,
    flavors: tuple[str, ...],
    tolerations: tuple[Toleration, ...],
    *,
    by_power: bool = False,
) -> PackedPodSet:
    """The member of a pod set; `tolerations` are added by the flavors. `by_power`: policies cap the power of nodes."""
    requests = as_pod_requests(pod_set.requests)
    power = PowerAsk.of_pods(pod_set) if by_power else None
    shape = PodShape(requests, NodeSelection.of(pod_set, tolerations, scored=False), power)
    takes = dict(requests)
    if by_power:
        takes |= power_marks(pod_set.requests, pod_set.shares, pod_set.traits.kind)
    exclusive = bool(pod_set.exclusive and pod_set.domains > 0 and pod_set.count > 0)
    return PackedPodSet(
        pod_set.name,
        count,
        takes,
        shape,
        ground,
        flavors,
        pod_set.exclusive if exclusive else "",
        -(-pod_set.count // pod_set.domains) if exclusive else 0,
        pod_set.most_per_node,
    )


@dataclass(slots=True)
class NodeAssignment:
    """Where pods are (`bound`) and where room is kept for them (`kept`); `missing` pods have no room at all.

    Pods that will stop or move are `lingering`: their room is no longer assigned to them, and given to no other pod until they
    are gone. The domains that they leave are `vacating`.
    """

    bound: dict[Place, int] = field(default_factory=dict[Place, int])
    kept: dict[Place, int] = field(default_factory=dict[Place, int])
    domains: dict[DomainKey, int] = field(default_factory=dict[DomainKey, int])
    missing: dict[str, int] = field(default_factory=dict[str, int])
    lingering: dict[Place, int] = field(default_factory=dict[Place, int])
    vacating: frozenset[DomainKey] = frozenset()

    @property
    def empty(self) -> bool:
        """Whether nothing is assigned to a node: the most common case, where no flavor selects nodes."""
        return not (self.bound or self.kept or self.domains or self.lingering)

    def takes(self, members: Iterable[PackedPodSet]) -> Assigned:
        """What the assignment takes of the rooms."""
        if self.empty:
            return NOWHERE
        requests = {member.name: member.requests for member in members}
        on_nodes: dict[str, dict[str, int]] = {}
        for places in (self.bound, self.kept, self.lingering):
            for (name, node), count in places.items():
                if name in requests:
                    add(on_nodes.setdefault(node, {}), requests[name], count)
        domains = (*self.domains.items(), *((domain, 1) for domain in self.vacating))
        return Assigned(tuple(on_nodes.items()), domains) if on_nodes or domains else NOWHERE

    def at(self, place: Place) -> int:
        return self.bound.get(place, 0) + self.kept.get(place, 0)

    def nodes(self) -> set[str]:
        return {node for _, node in (*self.bound, *self.kept, *self.lingering)}


@dataclass(frozen=True, slots=True)
class Shortage:
    """What is missing for an assignment, in numbers."""

    member: PackedPodSet
    wanted: int  # pods, or domains
    found: int
    spares: int = 0  # nodes or domains that are held back
    #: the domains of power whose caps alone are in the way, in words; "" = there is not enough room either
    power: str = ""


@dataclass(frozen=True, slots=True)
class Spares:
    """Nodes (or domains) of a ground that must stay idle: a number, or a share of them, whichever is more."""

    count: int = 0
    percent: float = 0.0

    def of(self, total: int) -> int:
        return min(total, max(self.count, -int(-total * self.percent // 100)))


NO_SPARES = Spares()


class Packer:
    """Assigns one gang under the name `key`; the rooms show what it takes until `undo`."""

    def __init__(self, rooms: NodeRooms, key: str, before: NodeAssignment | None, avoid: Collection[str]) -> None:
        self._rooms = rooms
        self._ledger = rooms.ledger
        self._key = key
        self._before = before or NodeAssignment()
        self._avoid = frozenset(avoid)
        self._taken: list[tuple[str, Mapping[str, int], int]] = []
        self._owned: list[DomainKey] = []
        self.assigned = NodeAssignment()

    def undo(self) -> None:
        for node, requests, count in reversed(self._taken):
            self._ledger.shift_node(node, requests, -count)
        for domain in reversed(self._owned):
            self._ledger.own(domain, self._key, -1)
        self._taken.clear()
        self._owned.clear()

    def bind(self, member: PackedPodSet, node: str, count: int) -> None:
        """Pods that are bound to a node already."""
        place = member.name, node
        self.assigned.bound[place] = self.assigned.bound.get(place, 0) + count
        self._take(node, member, count)

    def keep_domain(self, domain: DomainKey) -> None:
        self.assigned.domains[domain] = self.assigned.domains.get(domain, 0) + 1
        self._owned.append(domain)
        self._ledger.own(domain, self._key, 1)

    def assign(self, member: PackedPodSet, count: int) -> Shortage | None:
        """Room for `count` pods anywhere on their ground."""
        assert member.ground is not None
        table = self._rooms.table(member.ground, member.shape)
        counts = self._left(member, table)
        total = sum(counts.values()) if member.most_per_node else table.total
        if total < count:
            return Shortage(member, count, total)
        left = self._deal(member, count, self._in_order(member, table, member.ground.names), counts)
        return Shortage(member, count, count - left) if left else None  # nodes share the caps of their power domains

    def _left(self, member: PackedPodSet, table: FitTable) -> Mapping[str, int]:
        """How many more pods each room takes."""
        if not member.most_per_node:
            return table.counts
        here = {node: self.assigned.at((member.name, node)) for node in table.counts}
        left = ((node, min(count, member.most_per_node - here[node])) for node, count in table.counts.items())
        return {node: count for node, count in left if count > 0}

    def assign_domains(self, member: PackedPodSet, bound: Mapping[str, int], *, move: bool) -> Shortage | None:
        """Domains for all of it; `bound` are the nodes of its pods. With `move`, a domain that lost a node is replaced as a
        whole.
        """
        assert member.ground is not None
        label, table = member.exclusive, self._rooms.table(member.ground, member.shape)
        free = self._rooms.domains(member.ground.names, label)
        here = self._rooms.domains(bound, label)
        # usage of the rooms without the pods bound there, which do not count for the moment
        counts = {node: max(0, count - bound.get(node, 0)) for node, count in table.counts.items()}
        left = member.domains
        for value in self._domain_order(free, here, label):
            if left == 0:
                return None
            inside = {node: bound[node] for node in here.get(value, ())}
            rooms = free.get(value, [])
            lacking = max(0, member.per_domain - sum(inside.values()))
            others = any(key != self._key for key in self._ledger.owners((label, value)))
            mine = self._ledger.owners((label, value)).get(self._key, 0)
            fits = sum(counts.get(node, 0) for node in rooms) >= lacking
            if inside and (fits or not move):
                fits = True  # the gang's pods are there: any other gang with room kept in this domain has to leave
            elif others or mine or not fits:
                continue
            self.keep_domain((label, value))
            for node, number in inside.items():
                self.bind(member, node, number)
            order = self._in_order(member, table, rooms)
            self.assigned.missing[member.name] = self.assigned.missing.get(member.name, 0) + self._deal(
                member, lacking, order, counts
            )
            if self._ledger.power is not None and self.assigned.missing[member.name]:
                return Shortage(member, member.domains, member.domains - left)
            left -= 1
        if left == 0:
            return None
        return Shortage(member, member.domains, member.domains - left)

    def _domain_order(self, free: Mapping[str, list[str]], here: Mapping[str, list[str]], label: str) -> Iterable[str]:
        """Domains with its pods, then those that it had, then the others; those with nodes that failed it last."""

        def rank(value: str) -> tuple[bool, bool, bool, str]:
            had = (label, value) in self._before.domains
            failed = any(node in self._avoid for node in free.get(value, ()))
            return value not in here, not had or failed, failed, value

        return sorted({*free, *here}, key=rank)

    def _in_order(self, member: PackedPodSet, table: FitTable, names: Sequence[str]) -> Iterator[str]:
        """Rooms with space: those that it had, those in use, idle ones, and those that failed it; each group by name.

        Of those in use and idle ones, nodes that a Reservation keeps come first: few may use them, and only for now.
        """
        counts = table.counts
        had = self._nodes_before(member).intersection(names)
        first = {name: None for name in sorted(had) if name in counts and name not in self._avoid}
        yield from first
        few = member.ground is not None and names is member.ground.names and len(counts) * 8 < len(names)
        places = sorted(counts) if few else [name for name in names if name in counts]
        others = [name for name in places if name not in self._avoid and name not in first]
        reserved: list[str] = []
        if member.shape.selection.windows:
            reserved = [name for name in others if self._is_reserved(name)]
            others = [name for name in others if not self._is_reserved(name)]
        for group in (reserved, others):
            idle: list[str] = []
            for name in group:
                room = self._rooms.get(name)
                if room is not None and not room.idle:
                    yield name
                else:
                    idle.append(name)
            yield from idle
        yield from (name for name in places if name in self._avoid)

    def _is_reserved(self, name: str) -> bool:
        room = self._rooms.get(name)
        return room is not None and any(taint.effect == RESERVED for taint in room.node.taints)

    def _deal(
        self, member: PackedPodSet, count: int, names: Iterable[str], counts: Mapping[str, int] | None = None
    ) -> int:
        """Assign `count` pods, room by room. Returns how many found none."""
        assert member.ground is not None
        known = dict(counts if counts is not None else self._rooms.table(member.ground, member.shape).counts)
        order, had = list(names), self._nodes_before(member)
        self._ledger.looks += len(order)
        for name in order if had else ():  # first what it had: the room that is left beside it may be what others had
            if name not in had:
                continue
            count -= self._keep(member, name, min(count, known.get(name, 0), self._had_more(member, name)), known)
        for name in order:
            if count <= 0:
                return 0
            count -= self._keep(member, name, min(count, known.get(name, 0)), known)
        return max(0, count)

    def _nodes_before(self, member: PackedPodSet) -> set[str]:
        """The nodes that pods of it were on, or had room on."""
        return {node for name, node in (*self._before.bound, *self._before.kept) if name == member.name}

    def _had_more(self, member: PackedPodSet, node: str) -> int:
        """How many of its pods were on a node, or had room there, beyond those that are assigned there anew."""
        if node in self._avoid:
            return 0
        place = member.name, node
        return max(0, self._before.at(place) - self.assigned.at(place))

    def _keep(self, member: PackedPodSet, node: str, count: int, known: dict[str, int]) -> int:
        if count > 0 and member.shape.power is not None:
            count = self._rooms.within_power(node, member.shape, count)
        if count > 0:
            place = member.name, node
            self.assigned.kept[place] = self.assigned.kept.get(place, 0) + count
            self._take(node, member, count)
            known[node] -= count
        return max(0, count)

    def assign_some(self, member: PackedPodSet, count: int) -> None:
        """Assign as many as there is room for; the others are missing."""
        assert member.ground is not None
        table = self._rooms.table(member.ground, member.shape)
        counts = self._left(member, table)
        left = self._deal(member, count, self._in_order(member, table, member.ground.names), counts)
        if left:
            self.assigned.missing[member.name] = left

    def _take(self, node: str, member: PackedPodSet, count: int) -> None:
        self._taken.append((node, member.requests, count))
        self._ledger.shift_node(node, member.requests, count)


# --- grounds ----------------------------------------------------------------------------------------------------------
# The ground of a combination of flavors: the nodes that pods with these flavors may go to.

#: One pod set to be assigned: itself, how many pods, and the flavors of its resources.
Ask: TypeAlias = tuple[PodSet, int, Sequence[str]]


class Grounds:
    """Grounds by flavors, kept until the nodes that they select change, or until `clear`: flavors changed."""

    def __init__(self, rooms: NodeRooms, flavors: Mapping[str, Flavor]) -> None:
        self._rooms = rooms
        self.flavors = flavors
        self._grounds: dict[tuple[str, ...], Ground | None] = {}
        self._version = rooms.grounds_version

    def clear(self) -> None:
        self._grounds.clear()

    def ground(self, flavors: Iterable[str]) -> Ground | None:
        """The nodes that pods with these flavors may go to; None if nodes do not bound them."""
        if self._version != self._rooms.grounds_version:
            self._version = self._rooms.grounds_version
            self._grounds.clear()
        key = tuple(sorted(set(flavors)))
        if key not in self._grounds:
            self._grounds[key] = self._find(key)
        return self._grounds[key]

    def _find(self, names: tuple[str, ...]) -> Ground | None:
        labels: dict[str, str] = {}
        for flavor in (self.flavors.get(name) for name in names):
            if flavor is None or flavor.topology or flavor.autoscaled:
                return None
            labels.update(flavor.node_labels)
        return self._rooms.ground(labels)

    def tolerations(self, flavors: Iterable[str]) -> tuple[Toleration, ...]:
        """The tolerations that these flavors add to pods."""
        known = (self.flavors.get(name) for name in sorted(set(flavors)))
        return tuple(toleration for flavor in known if flavor is not None for toleration in flavor.tolerations)

    def members(self, asks: Iterable[Ask]) -> list[PackedPodSet]:
        """The pod sets with pods, as the packer needs them."""
        by_power = self._rooms.ledger.power is not None
        return [
            member(
                pod_set,
                count,
                self.ground(flavors),
                tuple(sorted(set(flavors))),
                self.tolerations(flavors),
                by_power=by_power,
            )
            for pod_set, count, flavors in asks
            if count > 0
        ]
