"""Expands Reservations: which are valid, their next windows, and their nodes. Pure; no order of events matters."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Final, TypeAlias

from gangline import bounded
from gangline.api import quantity
from gangline.api.read import alternatives, conditions
from gangline.api.read.alternatives import labels_of, spec_of
from gangline.api.reservations import ReservationFacts, SomeNodes, reservation
from gangline.api.schedules import Span, windows
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
        chosen, lacking = _nodes(facts, obj, nodes, flavors)
        spans = tuple(windows(facts.when, now, ahead))
        found.append(Expanded(name, facts, spans, chosen, (*lacking, *_unknown_queues(facts, *known))))
    return _with_overlaps(found, nodes, flavors)


def _nodes(
    facts: ReservationFacts, obj: Json, nodes: Mapping[str, Json], flavors: Mapping[str, Json]
) -> tuple[tuple[str, ...], list[str]]:
    """The nodes that it selects, and what of them is not there."""
    wanted = dict(facts.node_labels).items()
    chosen = {name for name in facts.node_names if name in nodes}
    if wanted:
        chosen |= {name for name, node in nodes.items() if wanted <= labels_of(node).items()}
    troubles: list[str] = []
    if missing := sorted(facts.node_names - chosen):
        troubles.append(f"There is no node {_some(missing)}")
    if wanted and not any(wanted <= labels_of(node).items() for node in nodes.values()):
        troubles.append("No node has the labels of spec.nodes.matchLabels")
    if facts.any_of is not None:
        some, trouble = _some_of_flavor(facts.any_of, _in_turn(facts.any_of.flavor, obj, nodes, flavors), nodes)
        if trouble:
            troubles.append(f"spec.nodes.anyOf: flavor {facts.any_of.flavor} has {trouble}")
        chosen |= set(some)
    return tuple(sorted(chosen)), troubles


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


def _some_of_flavor(wanted: SomeNodes, candidates: list[str], nodes: Mapping[str, Json]) -> tuple[list[str], str]:
    """The first of these nodes that are enough, and what is missing, "" = nothing."""
    if wanted.count is not None:
        some = candidates[: wanted.count]
        return some, f"{len(some)} of {wanted.count} nodes" if len(some) < wanted.count else ""
    left, chosen = dict(wanted.amounts), list[str]()
    for name in candidates:
        offered = {resource: offer(nodes[name], resource) for resource, amount in left.items() if amount > 0}
        if any(offered.values()):
            chosen.append(name)
            left.update((resource, left[resource] - amount) for resource, amount in offered.items())
    lacking = [(resource, amount, left[resource]) for resource, amount in wanted.amounts if left[resource] > 0]
    told = (
        f"{quantity.format(all_ - short, name)} of {quantity.format(all_, name)} {name}"
        for name, all_, short in lacking
    )
    return chosen, ", ".join(told)


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


def _with_overlaps(found: list[Expanded], nodes: Mapping[str, Json], flavors: Mapping[str, Json]) -> list[Expanded]:
    """Each with the others that want the same nodes at the same time for somebody else: in both, nobody can use these."""
    done: list[Expanded] = []
    for each in found:
        overlaps = [overlap for other in found if other is not each and (overlap := _overlap(each, other)) is not None]
        told = (_overlap_text(other, span, shared) for other, span, shared in overlaps)
        instead = _alternatives(each, overlaps, found, nodes, flavors) if overlaps else ()
        done.append(replace(each, troubles=(*each.troubles, *told), advice=tuple(instead)))
    return done


#: another Reservation, when both have a window, and the nodes of both
_Overlap: TypeAlias = tuple[Expanded, Span, list[str]]


def _overlap(one: Expanded, other: Expanded) -> _Overlap | None:
    if not _rivals(one, other):
        return None
    both = (Span(max(a.start, b.start), min(a.end, b.end)) for a in one.spans for b in other.spans)
    time = next((span for span in both if span.start < span.end), None)
    shared = sorted({*one.nodes} & {*other.nodes}) if time is not None else []
    return (other, time, shared) if time is not None and shared else None


def _rivals(one: Expanded, other: Expanded) -> bool:
    """Whether both are in force, for different owners."""
    return one.facts is not None and other.facts is not None and one.facts.owners != other.facts.owners


def _overlap_text(other: Expanded, time: Span, shared: list[str]) -> str:
    when = f"from {conditions.timestamp(time.start)} until {conditions.timestamp(time.end)}"
    return f"Reservation {other.name} has {_some(shared)}, too, {when}: only whom both are for may use them"


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
    """When its nodes are free of others, and which other nodes are at its time."""
    rivals = [each for each in found if each is not own and _rivals(own, each)]
    span = next(span for span in own.spans if any(_meet(span, time) for _, time, _ in overlaps))
    here = [each.facts for each in rivals if each.facts is not None and not {*own.nodes}.isdisjoint(each.nodes)]
    then = (each for each in rivals if any(_meet(one, two) for one in own.spans for two in each.spans))
    taken = {*own.nodes, *(name for each in then for name in each.nodes)}
    wanted = sorted({name for _, _, shared in overlaps for name in shared})
    other_nodes = [*alternatives.free_nodes(wanted, taken, nodes, flavors)]
    return alternatives.advice(span, alternatives.next_free(span, here), other_nodes)


def _meet(one: Span, two: Span) -> bool:
    return one.start < two.end and two.start < one.end


def _some(names: list[str]) -> str:
    return bounded.some(names, 3)
