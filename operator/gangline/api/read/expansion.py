"""Expands Reservations: which are valid, their next windows, and their nodes. Pure; no order of events matters."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import combinations
from typing import Final

from gangline import bounded
from gangline.api import quantity
from gangline.api.read import alternatives, conditions
from gangline.api.read.alternatives import labels_of, spec_of
from gangline.api.reservations import ReservationFacts, SomeNodes, reservation
from gangline.api.schedules import Span, common, first_common, meet, windows
from gangline.api.spec_fields import SpecError
from gangline.api.unchecked import mapping
from gangline.engine import model
from gangline.kube.resources import Json

#: Reservations that are in force at the same time; the oldest are, so that a new one takes no place of another.
MOST: Final = 64
#: windows of each that are known ahead
AHEAD: Final = 4


@dataclass(frozen=True, slots=True)
class Expanded:
    """A Reservation with its next windows and its present nodes."""

    name: str
    facts: ReservationFacts | None
    spans: tuple[Span, ...] = ()
    #: its nodes, by name
    nodes: tuple[str, ...] = ()
    #: what keeps it from being honoured, as sentences
    troubles: tuple[str, ...] = field(default=())
    #: what could be reserved instead of what others have, as sentences
    advice: tuple[str, ...] = field(default=())

    def windows(self) -> list[model.ReservedWindow]:
        """The windows, as the engine gets them."""
        facts = self.facts
        if facts is None:
            return []
        return [
            model.ReservedWindow(
                name=f"{self.name}/{conditions.timestamp(span.start)}",
                reservation=self.name,
                begin=span.start - facts.deadline.stop_before,
                end=span.end,
                nodes=frozenset(self.nodes) if facts.any_of is not None else facts.node_names,
                node_labels=dict(facts.node_labels),
                cluster_queues=facts.owners.cluster_queues,
                local_queues=facts.owners.local_queues,
                users=facts.owners.users,
                notice=facts.deadline.notice,
                lead=facts.deadline.stop_before,
                soft=facts.soft,
                shortest_run=facts.deadline.shortest_run,
            )
            for span in self.spans
        ]

    def open_at(self, now: int) -> Span | None:
        """The window that is open; it opens when the workloads of others are stopped."""
        facts = self.facts
        if facts is None:
            return None
        return next((span for span in self.spans if span.start - facts.deadline.stop_before <= now < span.end), None)


def expand(
    reservations: Iterable[Json],
    nodes: Mapping[str, Json],
    flavors: Mapping[str, Json],
    cluster_queues: Iterable[str],
    local_queues: Iterable[str],
    now: int,
    ahead: int = AHEAD,
) -> list[Expanded]:
    """All Reservations, those in force first, each with so many windows `ahead`."""
    found: list[Expanded] = []
    known = frozenset(cluster_queues), frozenset(local_queues)
    for obj in sorted(reservations, key=lambda each: (_created(each), _name(each))):
        name = _name(obj)
        if len(found) >= MOST:
            found.append(Expanded(name, None, troubles=(f"Only the {MOST} oldest Reservations are in force",)))
            continue
        try:
            facts = reservation(obj)
        except SpecError as error:
            found.append(Expanded(name, None, troubles=(str(error),)))
            continue
        chosen, lacking, instead = _nodes(facts, obj, nodes, flavors)
        spans = tuple(windows(facts.when, now, ahead))
        troubles = (*lacking, *_unknown_queues(facts, *known))
        found.append(Expanded(name, facts, spans, chosen, troubles, tuple(instead)))
    return _with_overlaps(found, nodes, flavors, now)


def beside(
    name: str,
    spec: object,
    reservations: Iterable[Json],
    nodes: Mapping[str, Json],
    flavors: Mapping[str, Json],
    cluster_queues: Iterable[str],
    local_queues: Iterable[str],
    now: int,
) -> Expanded:
    """A Reservation as it would be with this spec, beside the others; as the newest, if there is none of this name."""
    others = {_name(each): each for each in reservations}
    own = alternatives.proposed(name, spec, others.pop(name, None))
    expanded = expand([*others.values(), own], nodes, flavors, cluster_queues, local_queues, now)
    return next(each for each in expanded if each.name == name)


def _nodes(
    facts: ReservationFacts, obj: Json, nodes: Mapping[str, Json], flavors: Mapping[str, Json]
) -> tuple[tuple[str, ...], list[str], list[str]]:
    """The nodes that it selects, what of them is not there, and what could be reserved instead."""
    wanted = dict(facts.node_labels).items()
    chosen = {name for name in facts.node_names if name in nodes}
    if wanted:
        chosen |= {name for name, node in nodes.items() if wanted <= labels_of(node).items()}
    troubles, instead = list[str](), list[str]()
    if missing := sorted(facts.node_names - chosen):
        troubles.append(f"There is no node {_some(missing)}")
    if wanted and not any(wanted <= labels_of(node).items() for node in nodes.values()):
        troubles.append("No node has the labels of spec.nodes.matchLabels")
    if facts.any_of is not None:
        flavor = facts.any_of.flavor
        some, short = _some_of_flavor(facts.any_of, _in_turn(flavor, obj, nodes, flavors), nodes)
        if flavor not in flavors:
            troubles.append(f"There is no ResourceFlavor {flavor}")
        elif short:
            wanted_of, offered = (", ".join(each) for each in zip(*short, strict=True))
            troubles.append(f"spec.nodes.anyOf asks for {wanted_of} of flavor {flavor}, which has {offered}")
            if some:
                instead.append(f"{offered} of flavor {flavor} can be reserved")
        chosen |= set(some)
    return tuple(sorted(chosen)), troubles, instead


def _in_turn(flavor: str, obj: Json, nodes: Mapping[str, Json], flavors: Mapping[str, Json]) -> list[str]:
    """The nodes of a flavor: those that the Reservation has already, then usable ones, by name."""
    before: frozenset[str] = frozenset(mapping(obj.get("status")).get("nodes") or ())
    return sorted(
        nodes_of_flavor(flavor, nodes, flavors),
        key=lambda name: (name not in before, bool(spec_of(nodes[name]).get("unschedulable")), name),
    )


def nodes_of_flavor(flavor: str, nodes: Mapping[str, Json], flavors: Mapping[str, Json]) -> list[str]:
    """The nodes with the labels of a flavor; none of one without labels."""
    found = flavors.get(flavor)
    labels = mapping(spec_of(found).get("nodeLabels") if found is not None else {}).items()
    return [name for name, node in nodes.items() if labels <= labels_of(node).items()] if labels else []


def _some_of_flavor(
    wanted: SomeNodes, candidates: list[str], nodes: Mapping[str, Json]
) -> tuple[list[str], list[tuple[str, str]]]:
    """The first of these nodes that are enough, and of what there is less: how much is wanted, and how much there is."""
    if wanted.count is not None:
        some = candidates[: wanted.count]
        return some, [(_nodes_of(wanted.count), _nodes_of(len(some)))] if len(some) < wanted.count else []
    left, chosen = dict(wanted.amounts), list[str]()
    for name in candidates:
        offered = {resource: offer(nodes[name], resource) for resource, amount in left.items() if amount > 0}
        if any(offered.values()):
            chosen.append(name)
            left.update((resource, left[resource] - amount) for resource, amount in offered.items())
    lacking = [(resource, amount, left[resource]) for resource, amount in wanted.amounts if left[resource] > 0]
    return chosen, [
        (f"{quantity.format(all_, name)} {name}", f"{quantity.format(all_ - short, name)} {name}")
        for name, all_, short in lacking
    ]


def _nodes_of(count: int) -> str:
    return f"{count} node{'s' if count != 1 else ''}"


def offer(node: Json, resource: str) -> int:
    """How much of a resource a node offers to pods; 0 where that is not known."""
    try:
        return max(
            0, quantity.parse(mapping(mapping(node.get("status")).get("allocatable")).get(resource, 0), resource)
        )
    except quantity.QuantityError:
        return 0


def _unknown_queues(facts: ReservationFacts, cluster_queues: frozenset[str], local_queues: frozenset[str]) -> list[str]:
    troubles: list[str] = []
    if missing := sorted(facts.owners.cluster_queues - cluster_queues):
        troubles.append(f"There is no ClusterQueue {_some(missing)}")
    if missing := sorted(facts.owners.local_queues - local_queues):
        troubles.append(f"There is no LocalQueue {_some(missing)}")
    return troubles


@dataclass(frozen=True, slots=True)
class _Overlap:
    """Another Reservation, the own window that overlaps with one of it, when both have one, and the nodes of both."""

    other: Expanded
    span: Span
    time: Span
    shared: list[str]

    @property
    def text(self) -> str:
        when = f"from {conditions.timestamp(self.time.start)} until {conditions.timestamp(self.time.end)}"
        return (
            f"Reservation {self.other.name} has {_some(self.shared)}, too, {when}: only whom both are for may use them"
        )


def _with_overlaps(
    found: list[Expanded], nodes: Mapping[str, Json], flavors: Mapping[str, Json], now: int
) -> list[Expanded]:
    """Each with the others that want the same nodes at the same time for somebody else: in both, nobody can use these."""
    overlaps: dict[str, list[_Overlap]] = {}
    for one, other in combinations(found, 2):
        if one.facts is None or other.facts is None or one.facts.owners == other.facts.owners:
            continue
        if not (shared := sorted({*one.nodes} & {*other.nodes})):
            continue
        if (both := first_common(one.facts.when, other.facts.when, now)) is not None:
            time = common(*both)
            overlaps.setdefault(one.name, []).append(_Overlap(other, both[0], time, shared))
            overlaps.setdefault(other.name, []).append(_Overlap(one, both[1], time, shared))
    return [
        replace(
            each,
            troubles=(*each.troubles, *(overlap.text for overlap in those)),
            advice=(*each.advice, *_alternatives(each, those, found, nodes, flavors)),
        )
        if (those := overlaps.get(each.name))
        else each
        for each in found
    ]


def _created(obj: Json) -> str:
    return obj["metadata"].get("creationTimestamp") or ""


def _name(obj: Json) -> str:
    return obj["metadata"]["name"]


def _alternatives(
    own: Expanded,
    overlaps: Sequence[_Overlap],
    found: Iterable[Expanded],
    nodes: Mapping[str, Json],
    flavors: Mapping[str, Json],
) -> list[str]:
    """When its nodes are free of others, and which other nodes are at the time of its first window that overlaps."""
    span = min(each.span for each in overlaps)
    owners = own.facts.owners if own.facts is not None else None
    rivals = [(each, each.facts) for each in found if each.facts is not None and each.facts.owners != owners]
    here = [facts for each, facts in rivals if not {*own.nodes}.isdisjoint(each.nodes)]
    then = (each for each, facts in rivals if any(meet(span, its) for its in windows(facts.when, span.start, 1)))
    taken = {*own.nodes, *(name for each in then for name in each.nodes)}
    wanted = sorted({name for each in overlaps for name in each.shared})
    other_nodes = [*alternatives.free_nodes(wanted, taken, nodes, flavors)]
    return alternatives.advice(span, alternatives.next_free(span, here), other_nodes)


def _some(names: list[str]) -> str:
    return bounded.some(names, 3)
