"""What else an author could reserve where another Reservation has the same nodes at the same time. Pure."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from typing import Final

from gangline import bounded
from gangline.api.read import conditions
from gangline.api.reservations import ReservationFacts
from gangline.api.schedules import Span, windows
from gangline.api.unchecked import mapping
from gangline.kube.resources import Json

#: windows of other Reservations among which a free time is looked for, of each
_LOOKED_AT: Final = 64
_NAMED: Final = 3


def next_free(span: Span, others: Iterable[ReservationFacts]) -> Span:
    """The first window from its start on, of the same length, in which none of these has one."""
    busy = sorted(each for facts in others for each in windows(facts.when, span.start, _LOOKED_AT))
    length, start = span.end - span.start, span.start
    for each in busy:
        if each.start < start + length and start < each.end:
            start = each.end
    return Span(start, start + length)


def free_nodes(
    wanted: Collection[str],
    taken: Collection[str],
    nodes: Mapping[str, Json],
    flavors: Mapping[str, Json],
) -> Iterator[tuple[str, list[str]]]:
    """Other nodes of each flavor that these nodes are of: usable ones that are not taken, as many as there are of these."""
    for flavor in sorted(flavors):
        labels = mapping(spec_of(flavors[flavor]).get("nodeLabels")).items()
        own = [name for name in wanted if labels and name in nodes and labels <= labels_of(nodes[name]).items()]
        others = (
            name
            for name in sorted(nodes if own else ())
            if name not in taken
            and labels <= labels_of(nodes[name]).items()
            and not spec_of(nodes[name]).get("unschedulable")
        )
        found = [name for _, name in zip(own, others, strict=False)]
        if found:
            yield flavor, found


def advice(span: Span, free: Span, other_nodes: Sequence[tuple[str, list[str]]]) -> list[str]:
    """The alternatives as sentences."""
    told: list[str] = []
    if free != span:
        when = f"from {conditions.timestamp(free.start)} until {conditions.timestamp(free.end)}"
        told.append(f"The same nodes are in no other reservation {when}")
    for flavor, names in other_nodes:
        named = bounded.some(names, _NAMED)
        told.append(f"Nodes of flavor {flavor} that are in no other reservation at that time: {named}")
    return told


def spec_of(obj: Json) -> Json:
    return mapping(obj.get("spec"))


def labels_of(obj: Json) -> Json:
    return mapping(mapping(obj.get("metadata")).get("labels"))
