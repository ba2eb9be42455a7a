"""What else an author could reserve where another Reservation has the same nodes at the same time. Pure."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from typing import Final

from gangline import bounded
from gangline.api.read import conditions
from gangline.api.reservations import ReservationFacts, Span, windows
from gangline.objects import Stored

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
    nodes: Mapping[str, Stored],
    flavors: Mapping[str, Stored],
) -> Iterator[tuple[str, list[str]]]:
    """For each flavor that these nodes are of: as many other nodes of it that are usable and not taken, as far as there are."""
    for flavor in sorted(flavors):
        labels = (flavors[flavor].spec.get("nodeLabels") or {}).items()
        own = [name for name in wanted if labels and name in nodes and labels <= nodes[name].labels.items()]
        others = (
            name
            for name in sorted(nodes if own else ())
            if name not in taken and labels <= nodes[name].labels.items() and not nodes[name].spec.get("unschedulable")
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
