"""The cards of placed pods in the words of a topology assignment: levels below the host, one for each card of a pod.

So an admission and its cards are one write, and whoever reads the one back has the other. A value says which card, and what the
pod takes of it: `GPU-8dcd427f:500:8192:` are 500 thousandths and 8192 MiB; after the last colon `alone`, or a MIG profile.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import groupby
from typing import Final, TypeAlias, cast

from gangline import bounded
from gangline.api import names
from gangline.api.read.workloads import topology_slices
from gangline.api.read.workloads.topology_slices import Domain as Row
from gangline.api.read.workloads.topology_slices import SlicesError
from gangline.bounded import parser
from gangline.engine import model
from gangline.kube.resources import Json

Seats: TypeAlias = tuple[model.CardSeat, ...]

_NONE: Final = "-"
_ALONE: Final = "alone"
_LONGEST: Final = 189
_MOST: Final = 1 << 40
_MOST_PODS: Final = 100_000


def rows(value: model.TopologyAssignment) -> tuple[list[str], list[Row]]:
    """Levels and domains with the cards; pods of one host with equal cards are one domain."""
    levels = list(value.levels)
    depth = max((len(pod) for domain in value.domains for pod in domain.cards), default=0)
    if not depth:
        return levels, [(domain.values, domain.count) for domain in value.domains]
    levels += [f"{names.CARD_LEVEL}{number}" for number in range(1, depth + 1)]
    found: list[Row] = []
    for domain in value.domains:
        for pod, alike in groupby(domain.cards or ((),) * domain.count):
            texts = [*map(_text, pod), *[_NONE] * (depth - len(pod))]
            found.append(((*domain.values, *texts), len(list(alike))))
    return levels, found


def _text(seat: model.CardSeat) -> str:
    return f"{seat.card}:{seat.milli}:{seat.memory}:{_ALONE if seat.alone else seat.profile}"


def assignment(levels: Sequence[str], domains: Iterable[Row]) -> model.TopologyAssignment:
    """The inverse. Raises SlicesError where a card is written otherwise."""
    depth = sum(level.startswith(names.CARD_LEVEL) for level in levels)
    kept = len(levels) - depth
    if not all(level.startswith(names.CARD_LEVEL) for level in levels[kept:]):
        raise SlicesError("levels", "cards are below all other levels")
    if not depth:
        return model.TopologyAssignment(tuple(levels), tuple(model.Domain(values, count) for values, count in domains))
    found: list[model.Domain] = []
    left = _MOST_PODS
    for values, alike in groupby(domains, key=lambda row: row[0][:kept]):
        pods: list[Seats] = []
        for row, count in alike:
            left -= count
            if left < 0:
                raise SlicesError("slices", f"more than {_MOST_PODS} pods with cards")
            pods += [_seats(row[kept:])] * count
        found.append(model.Domain(values, len(pods), tuple(pods) if any(pods) else ()))
    return model.TopologyAssignment(tuple(levels[:kept]), tuple(found))


def stripped(assignment: Json) -> Json:
    """A topology assignment as Kueue would have written it: its hosts without cards. Raises SlicesError."""
    levels = cast("list[str]", assignment.get("levels") or [])
    kept = sum(not level.startswith(names.CARD_LEVEL) for level in levels)
    if kept == len(levels):
        return assignment
    counts: dict[tuple[str, ...], int] = {}
    for values, count in topology_slices.decode(assignment.get("slices") or [], len(levels)):
        counts[values[:kept]] = counts.get(values[:kept], 0) + count
    return {**assignment, "levels": levels[:kept], "slices": topology_slices.encode(list(counts.items()))}


def _seats(values: Iterable[str]) -> Seats:
    return tuple(_seat(value) for value in values if value != _NONE)


def _not_one(value: str) -> SlicesError:
    return SlicesError("slices", f"{value[:_LONGEST]!r} is no card: it has to be card:thousandths:MiB:profile")


@parser(_LONGEST, refuse=_not_one)
def _seat(value: str) -> model.CardSeat:
    parts = value.rsplit(":", 3)
    milli, memory = (bounded.whole(part) for part in parts[1:3]) if len(parts) == 4 else (None, None)
    if milli is None or memory is None or max(milli, memory) > _MOST or not parts[0]:
        raise _not_one(value)
    last = parts[3]
    return model.CardSeat(parts[0], milli, memory, last == _ALONE, "" if last == _ALONE else last)
