"""What else an author could reserve where another Reservation has the same nodes at the same time. Pure."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from math import inf
from typing import Final

from gangline import bounded
from gangline.api.read import conditions
from gangline.api.reservations import ReservationFacts
from gangline.api.schedules import Span, Weekly, windows
from gangline.api.unchecked import mapping
from gangline.kube.resources import Json

#: windows of other Reservations among which a free time is looked for, of each
_LOOKED_AT: Final = 64
_NAMED: Final = 3
#: when an object was created that is not yet: after all others
_NOT_CREATED: Final = "9999"


def next_free(span: Span, others: Iterable[ReservationFacts]) -> Span | None:
    """The first window from its start on, of the same length, in which none of these has one; None where that is not known."""
    busy: list[Span] = []
    known: float = inf
    for facts in others:
        found = windows(facts.when, span.start, _LOOKED_AT)
        busy += found
        if isinstance(facts.when, Weekly) and found:  # it goes on
            known = min(known, found[-1].end)
    busy.sort()
    length, start = span.end - span.start, span.start
    for each in busy:
        if each.start < start + length and start < each.end:
            start = each.end
    return Span(start, start + length) if start + length <= known else None


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


def advice(span: Span, free: Span | None, other_nodes: Sequence[tuple[str, list[str]]]) -> list[str]:
    """The alternatives as sentences."""
    sentences: list[str] = []
    if free is not None and free != span:
        when = f"from {conditions.timestamp(free.start)} until {conditions.timestamp(free.end)}"
        sentences.append(f"The same nodes are in no other reservation {when}")
    for flavor, names in other_nodes:
        named = bounded.some(names, _NAMED)
        sentences.append(f"Nodes of flavor {flavor} that are in no other reservation at that time: {named}")
    return sentences


def said(troubles: Iterable[str], instead: Iterable[str]) -> list[str]:
    """The sentences for the author of an object that is not honoured in all, and of what is possible instead."""
    return [*(f"Not honoured: {trouble}" for trouble in troubles), *(f"Instead: {each}" for each in instead)]


def proposed(name: str, spec: object, before: Json | None) -> Json:
    """An object as it would be with this spec. `before`: as it is; None = there is none, so that it would be the newest."""
    return {**(before or {"metadata": {"name": name, "creationTimestamp": _NOT_CREATED}}), "spec": spec}


def spec_of(obj: Json) -> Json:
    return mapping(obj.get("spec"))


def labels_of(obj: Json) -> Json:
    return mapping(mapping(obj.get("metadata")).get("labels"))
