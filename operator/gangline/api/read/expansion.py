"""Expands Reservations: which are valid, their next windows, and their nodes. Pure; no order of events matters."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Final

from gangline import bounded
from gangline.api.read import conditions
from gangline.api.reservations import ReservationFacts, reservation
from gangline.api.schedules import Span, windows
from gangline.api.spec_fields import SpecError
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
                cluster_queues=facts.cluster_queues,
                local_queues=facts.local_queues,
                notice=facts.deadline.notice,
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
) -> list[Expanded]:
    """All Reservations, those in force first."""
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
        spans = tuple(windows(facts.when, now, AHEAD))
        found.append(Expanded(name, facts, spans, chosen, (*lacking, *_unknown_queues(facts, *known))))
    return _with_overlaps(found)


def changes(
    known: Mapping[str, model.ReservedWindow], wanted: Mapping[str, model.ReservedWindow]
) -> Iterator[model.Change]:
    """What an engine that knows some windows by name has to be told, so that it knows others."""
    for name in sorted(known.keys() - wanted.keys()):
        yield model.Gone(model.ReservedWindow, name)
    for name, window in wanted.items():
        if known.get(name) != window:
            yield model.Put(window)


def _nodes(
    facts: ReservationFacts, obj: Json, nodes: Mapping[str, Json], flavors: Mapping[str, Json]
) -> tuple[tuple[str, ...], list[str]]:
    """The nodes that it selects, and what of them is not there."""
    wanted = dict(facts.node_labels).items()
    chosen = {name for name in facts.node_names if name in nodes}
    if wanted:
        chosen |= {name for name, node in nodes.items() if wanted <= _labels(node).items()}
    troubles: list[str] = []
    if missing := sorted(facts.node_names - chosen):
        troubles.append(f"There is no node {_some(missing)}")
    if wanted and not any(wanted <= _labels(node).items() for node in nodes.values()):
        troubles.append("No node has the labels of spec.nodes.matchLabels")
    if facts.any_of is not None:
        flavor, count = facts.any_of
        some = _some_of_flavor(flavor, count, obj, nodes, flavors)
        if len(some) < count:
            troubles.append(f"spec.nodes.anyOf: flavor {flavor} has {len(some)} of {count} nodes")
        chosen |= set(some)
    return tuple(sorted(chosen)), troubles


def _some_of_flavor(
    flavor: str, count: int, obj: Json, nodes: Mapping[str, Json], flavors: Mapping[str, Json]
) -> list[str]:
    """So many nodes of a flavor: those that its status has already, then usable ones, by name."""
    found = flavors.get(flavor)
    labels = _labels_of_flavor(found).items()
    if not labels:
        return []
    status: Json = obj.get("status") or {}
    before: frozenset[str] = frozenset(status.get("nodes") or ())
    candidates = [name for name, node in nodes.items() if labels <= _labels(node).items()]
    candidates.sort(key=lambda name: (name not in before, bool(_spec(nodes[name]).get("unschedulable")), name))
    return candidates[:count]


def _unknown_queues(facts: ReservationFacts, cluster_queues: frozenset[str], local_queues: frozenset[str]) -> list[str]:
    troubles: list[str] = []
    if missing := sorted(facts.cluster_queues - cluster_queues):
        troubles.append(f"There is no ClusterQueue {_some(missing)}")
    if missing := sorted(facts.local_queues - local_queues):
        troubles.append(f"There is no LocalQueue {_some(missing)}")
    return troubles


def _with_overlaps(found: list[Expanded]) -> list[Expanded]:
    """Each with the others that want the same nodes at the same time for somebody else: in both, nobody can use these."""
    done: list[Expanded] = []
    for each in found:
        told = [trouble for other in found if other is not each and (trouble := _overlap(each, other))]
        done.append(Expanded(each.name, each.facts, each.spans, each.nodes, (*each.troubles, *told)))
    return done


def _overlap(one: Expanded, other: Expanded) -> str:
    mine, theirs = one.facts, other.facts
    if mine is None or theirs is None:
        return ""
    if (mine.cluster_queues, mine.local_queues) == (theirs.cluster_queues, theirs.local_queues):
        return ""
    both = ((max(a.start, b.start), min(a.end, b.end)) for a in one.spans for b in other.spans)
    time = next(((start, end) for start, end in both if start < end), None)
    shared = sorted({*one.nodes} & {*other.nodes}) if time is not None else []
    if time is None or not shared:
        return ""
    when = f"from {conditions.timestamp(time[0])} until {conditions.timestamp(time[1])}"
    return f"Reservation {other.name} has {_some(shared)}, too, {when}: only whom both are for may use them"


def _created(obj: Json) -> str:
    return obj["metadata"].get("creationTimestamp") or ""


def _name(obj: Json) -> str:
    return obj["metadata"]["name"]


def _spec(obj: Json) -> Json:
    return obj.get("spec") or {}


def _labels(obj: Json) -> dict[str, str]:
    return obj["metadata"].get("labels") or {}


def _labels_of_flavor(flavor: Json | None) -> dict[str, str]:
    return (_spec(flavor).get("nodeLabels") or {}) if flavor is not None else {}


def _some(names: list[str]) -> str:
    return bounded.some(names, 3)
