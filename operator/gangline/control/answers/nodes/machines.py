"""The nodes of flavors: what they have, what is used of it and by whom, in queues and outside of any. Plain values.

Pods that are larger than any node of their queue's flavors: no end of any job lets them start.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, Final

from gangline.api import quantity
from gangline.api.read import parse
from gangline.api.read.setup_faults import most_of, wider_than_nodes
from gangline.control.answers.nodes.cards import CardsSeen, Owner, cards_of
from gangline.control.answers.sight import Sight
from gangline.control.answers.workloads.reasons import count
from gangline.control.answers.workloads.words import amount
from gangline.control.feed.mirror import Mirror
from gangline.control.feed.pod_index import PodIndex, Seat
from gangline.control.nodes.cards.card_inventory import CardInventory
from gangline.engine import Engine
from gangline.engine.model import PodSet, Requests, ReservedWindow
from gangline.kube import resources as kube
from gangline.kube.resources import Json
from gangline.objects import NodeObject


@dataclass(slots=True)
class Widths:
    """The largest nodes of each flavor, counted once per answer."""

    mirror: Mirror
    engine: Engine
    _largest: dict[str, Mapping[str, int] | None] = field(default_factory=dict[str, "Mapping[str, int] | None"])

    def too_wide(self, key: str, cluster_queue: str) -> str:
        """Why a pod of the Workload fits on no node; "" if one does, if nodes may be added, or if it runs on another cluster."""
        value = self.mirror.workload_value(key)
        queue = self.mirror.get(kube.CLUSTER_QUEUES, cluster_queue)
        if value is None or queue is None or _has_checks(queue.spec):
            return ""
        return next((text for each in value.pod_sets if (text := self._why(each, queue.spec))), "")

    def _why(self, pods: PodSet, spec: Json) -> str:
        groups = spec.get("resourceGroups") or ()
        flavors = {flavor["name"] for group in groups for flavor in group.get("flavors") or ()}
        wide = (
            wider_than_nodes(groups, pods.requests, {each: self._of(each) for each in flavors}) if pods.count else None
        )
        if wide is None:
            return ""
        resource, among, most = wide
        asked = f"each pod of {pods.name} asks {count(pods.requests[resource], resource)}"
        return f"{asked}, and no node of {', '.join(among)} has more than {amount(most, resource)}"

    def _of(self, flavor: str) -> Mapping[str, int] | None:
        """The most that a node of the flavor has of each resource; None if nodes do not bound it."""
        if flavor not in self._largest:
            self._largest[flavor] = self._find(flavor)
        return self._largest[flavor]

    def _find(self, name: str) -> Mapping[str, int] | None:
        raw = self.mirror.flavor(name)
        try:
            flavor = parse.flavor(raw) if raw is not None else None
        except parse.ParseError:
            flavor = None
        if flavor is None or flavor.autoscaled or not flavor.node_labels:
            return None
        nodes = [node for node in self.engine.nodes().values() if flavor.node_labels.items() <= node.labels.items()]
        return most_of(nodes) if nodes else None


def _has_checks(spec: Json) -> bool:
    return bool(spec.get("admissionChecks") or spec.get("admissionChecksStrategy"))


#: what a pod takes that says nothing about its requests
_PODS: Final = "pods"


@dataclass(frozen=True, slots=True)
class Occupant:
    """A user of a part of a node: a job in a queue, or pods outside of any queue."""

    name: str
    namespace: str
    outside: bool
    pods: int
    amounts: Mapping[str, int]
    workload: str = ""  # key of the Workload, "" outside of queues
    hidden: bool = False

    def __str__(self) -> str:
        return self.name if self.hidden or not self.outside else f"{self.name} in namespace {self.namespace}"


@dataclass(frozen=True, slots=True)
class Machine:
    """A node of at least one flavor. `trouble`: why no new work goes there, "" = it does; `until`: when that ends, if known."""

    name: str
    flavors: tuple[str, ...]
    capacity: Mapping[str, int]
    used: Mapping[str, int]
    occupants: tuple[Occupant, ...] = ()
    trouble: str = ""
    until: float | None = None
    #: None: nothing is known of its cards
    cards: CardsSeen | None = None
    #: whose pods were sent there and are not bound yet: none of what they ask for is used
    awaited: tuple[Occupant, ...] = ()
    #: the window of a Reservation that it is in, or will be in next
    window: ReservedWindow | None = None

    def free(self, resource: str) -> int:
        return max(0, self.capacity.get(resource, 0) - self.used.get(resource, 0))


def labels_of(mirror: Mirror, flavors: Iterable[str] | None = None) -> dict[str, Mapping[str, str]]:
    """The node labels of these flavors (None = of all), by flavor in the order of names."""
    known = mirror.objects[kube.RESOURCE_FLAVORS]
    wanted = known if flavors is None else known.keys() & set(flavors)  # a missing one has no nodes
    return {name: known[name].spec.get("nodeLabels") or {} for name in sorted(wanted)}


def flavors_of(node: NodeObject, labels: Mapping[str, Mapping[str, str]]) -> tuple[str, ...]:
    """The flavors that select a node by these labels."""
    own: Mapping[str, str] = node.labels
    return tuple(flavor for flavor, wants in labels.items() if wants.items() <= own.items())


def machines(
    mirror: Mirror,
    engine: Engine,
    pods: PodIndex,
    names: Mapping[str, str],
    flavors: Iterable[str] | None = None,
    inventory: CardInventory | None = None,
) -> list[Machine]:
    """The nodes of these flavors (None = of all), by name. `names`: of jobs, by the keys of their Workloads."""
    labels = labels_of(mirror, flavors)
    seats: dict[str, list[Seat]] = defaultdict(list)
    awaited: dict[str, list[Seat]] = defaultdict(list)
    asked = partial(_requests, mirror)
    for seat in pods.seats(asked):
        seats[seat.node].append(seat)
    for seat in pods.sent(asked):
        awaited[seat.node].append(seat)
    found: list[Machine] = []
    for name, node in sorted(mirror.nodes.items()):
        of = flavors_of(node, labels)
        if of:
            trouble, until = engine.unusable(name)
            machine = _machine(name, node, of, seats[name], names, trouble, until / 1000 if until else None)
            machine = replace(machine, awaited=_occupants(awaited[name], names)) if name in awaited else machine
            window = engine.window_on(name)
            machine = replace(machine, window=window) if window is not None else machine
            known = inventory.of(name) if inventory is not None else None
            owners = {seat.key: _named(seat, names) for seat in seats[name]} if known is not None else {}
            found.append(machine if known is None else replace(machine, cards=cards_of(known, owners)))
    return found


def _requests(mirror: Mirror, key: str, pod_set: str) -> Requests:
    value = mirror.workload_value(key)
    return next((each.requests for each in value.pod_sets if each.name == pod_set), {}) if value is not None else {}


def _machine(
    name: str,
    node: NodeObject,
    flavors: tuple[str, ...],
    seats: Iterable[Seat],
    names: Mapping[str, str],
    trouble: str,
    until: float | None,
) -> Machine:
    allocatable = node.status.get("allocatable") or {}
    capacity = {resource: _amount(text, resource) for resource, text in allocatable.items()}
    occupants = _occupants(seats, names)
    used: Counter[str] = Counter()
    for occupant in occupants:
        used.update(occupant.amounts)
    return Machine(name, flavors, capacity, dict(used), occupants, trouble, until)


def _occupants(seats: Iterable[Seat], names: Mapping[str, str]) -> tuple[Occupant, ...]:
    """The owners of these pods, with the sum of what the pods of each ask for; those with most devices first."""
    groups: dict[tuple[bool, str, str], list[Seat]] = defaultdict(list)
    for seat in seats:
        groups[_owner(seat)].append(seat)
    occupants: list[Occupant] = []
    for (outside, namespace, owner), group in groups.items():
        amounts: Counter[str] = Counter()
        for seat in group:
            amounts.update(seat.requests)
        shown = owner if outside else names.get(owner, owner)
        occupants.append(
            Occupant(shown, namespace, outside, len(group), dict(amounts), "" if outside else group[0].workload)
        )
    return tuple(sorted(occupants, key=_largest))


def _owner(seat: Seat) -> tuple[bool, str, str]:
    """The owner of a pod: whether it is outside of queues, its namespace, and the key of its Workload or what
    the pod belongs to.
    """
    namespace, _, pod = seat.key.partition("/")
    if seat.workload:
        return False, namespace, seat.workload
    kind, name = seat.belonging.kind, seat.belonging.name
    return True, namespace, f"{kind.lower()}/{name}" if name else f"pod/{pod}"


def _named(seat: Seat, names: Mapping[str, str]) -> Owner:
    outside, namespace, owner = _owner(seat)
    return Owner(owner if outside else names.get(owner, owner), namespace, outside, seat.workload)


def _largest(occupant: Occupant) -> tuple[int, bool, str, str]:
    devices = sum(n for resource, n in occupant.amounts.items() if "/" in resource)
    return -devices, not occupant.outside, occupant.namespace, occupant.name


def _amount(text: object, resource: str) -> int:
    try:
        return quantity.parse(str(text), resource)
    except quantity.QuantityError:
        return 0


# --- for one asker ----------------------------------------------------------------------------------------------------


def seen_by(sight: Sight, found: Iterable[Machine]) -> list[Machine]:
    """The machines with labels in place of what the asker may not read."""
    return [
        replace(
            each,
            occupants=tuple(_seen(sight, other) for other in each.occupants),
            awaited=tuple(_seen(sight, other) for other in each.awaited),
            cards=each.cards.seen_by(sight) if each.cards is not None else None,
        )
        for each in found
    ]


def _seen(sight: Sight, occupant: Occupant) -> Occupant:
    if sight.sees(occupant.namespace):
        return occupant
    label = sight.label(occupant.workload or f"{occupant.namespace}/{occupant.name}")
    return replace(occupant, name=label, namespace="", workload="", hidden=True)


def as_json(machine: Machine) -> dict[str, Any]:
    return {
        "metadata": {"name": machine.name},
        "flavors": list(machine.flavors),
        "trouble": machine.trouble,
        "until": machine.until,
        "capacity": _texts(machine.capacity),
        "used": _texts(machine.used),
        "occupants": [_occupant_as_json(each) for each in machine.occupants],
        "awaited": [_occupant_as_json(each) for each in machine.awaited],
        **(machine.cards.as_json() if machine.cards is not None else {}),
        **({"window": _window_as_json(machine.window)} if machine.window is not None else {}),
    }


def _window_as_json(window: ReservedWindow) -> dict[str, Any]:
    """A window with when it is announced to those who have to leave, and when it begins and ends, in seconds."""
    return {
        "reservation": window.reservation,
        "maintenance": window.is_maintenance,
        "soft": window.soft,
        "announced": (window.begin - window.notice) / 1000,
        "from": (window.begin + window.lead) / 1000,
        "to": window.end / 1000,
    }


def _occupant_as_json(occupant: Occupant) -> dict[str, Any]:
    return {
        "job": occupant.name,
        "namespace": occupant.namespace,
        "outside": occupant.outside,
        "hidden": occupant.hidden,
        "pods": occupant.pods,
        "amounts": _texts(occupant.amounts),
    }


def _texts(amounts: Mapping[str, int]) -> dict[str, str]:
    return {resource: amount(n, resource) for resource, n in sorted(amounts.items()) if resource != _PODS}


def namespaces_of(found: Iterable[Machine]) -> Iterator[str]:
    return (occupant.namespace for each in found for occupant in (*each.occupants, *each.awaited))
