"""Admissions of Workloads as JSON (v1beta2), read and written: flavors, usage, and topology assignments."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import groupby
from typing import Any, Final, TypeAlias, cast

from gangline import bounded
from gangline.api import names
from gangline.api.read.reading import Json, ParseError, amounts, child, items, labels, number, text, texts
from gangline.bounded import parser
from gangline.engine import model

# --- the compact form of topology assignments in v1beta2, and back ----------------------------------------------------
#
# Domains are written as one slice: per level either one value for all, or prefix + root + suffix for each; and either one pod
# count or one for each. The order of the domains is kept.


#: values of the levels' labels, and the number of pods there
Domain: TypeAlias = tuple[tuple[str, ...], int]

#: The schema's limits for prefix and suffix.
_LONGEST_AFFIX: Final = 63
#: The schema's limit for one slice, and here for all together: a few bytes can stand for many domains.
MOST_DOMAINS: Final = 100_000
_MOST_LEVELS: Final = 16
_MOST_PODS: Final = 2**31 - 1


class SlicesError(ValueError):
    """The slices are inconsistent; `path` says where, relative to the assignment."""

    def __init__(self, path: str, message: str) -> None:
        super().__init__(f"{path}: {message}")
        self.path = path
        self.message = message


def encode(domains: Sequence[Domain]) -> list[Json]:
    """`slices` for these domains, which must all have a value for the same levels."""
    if not domains:
        return []
    counts = [count for _, count in domains]
    columns = zip(*(values for values, _ in domains), strict=True)
    return [
        {
            "domainCount": len(domains),
            "valuesPerLevel": [_values(column) for column in columns],
            "podCounts": {"universal": counts[0]} if len(set(counts)) == 1 else {"individual": counts},
        }
    ]


def _values(values: Sequence[str]) -> Json:
    if len(set(values)) == 1:
        return {"universal": values[0]}
    prefix = _common_prefix(values)[:_LONGEST_AFFIX]
    roots = [value[len(prefix) :] for value in values]
    suffix = _common_prefix([root[::-1] for root in roots])[:_LONGEST_AFFIX][::-1]
    individual: Json = {"roots": [root[: len(root) - len(suffix)] for root in roots]}
    if prefix:
        individual["prefix"] = prefix
    if suffix:
        individual["suffix"] = suffix
    return {"individual": individual}


def _common_prefix(texts: Sequence[str]) -> str:
    """The longest prefix of all texts. Those between the first and the last in order cannot differ earlier than these two."""
    first, last = min(texts), max(texts)
    for i, character in enumerate(first):
        if last[i : i + 1] != character:
            return first[:i]
    return first


def decode(slices: Any, levels: int) -> list[Domain]:
    """The domains that `slices` describe, each with `levels` values. Raises SlicesError."""
    if levels > _MOST_LEVELS:
        raise SlicesError("levels", f"must be {_MOST_LEVELS} or fewer")
    domains: list[Domain] = []
    for i, part in enumerate(_list(slices, "slices")):
        domains += _slice(part, levels, f"slices[{i}]", MOST_DOMAINS - len(domains))
    return domains


def _slice(part: Any, levels: int, path: str, most: int) -> list[Domain]:
    body = _object(part, path)
    size = body.get("domainCount")
    if type(size) is not int or size < 1:
        raise SlicesError(f"{path}.domainCount", "must be a number of 1 or more")
    if size > most:
        raise SlicesError(f"{path}.domainCount", f"more than {MOST_DOMAINS} domains")
    columns = _list(body.get("valuesPerLevel"), f"{path}.valuesPerLevel")
    if len(columns) != levels:
        raise SlicesError(f"{path}.valuesPerLevel", f"must have one entry for each of the {levels} levels")
    values = [_column(column, size, f"{path}.valuesPerLevel[{i}]") for i, column in enumerate(columns)]
    return list(zip(zip(*values, strict=True), _counts(body.get("podCounts"), size, f"{path}.podCounts"), strict=True))


def _column(column: Any, size: int, path: str) -> list[str]:
    body = _object(column, path)
    if isinstance(body.get("universal"), str):
        return [body["universal"]] * size
    individual = _object(body.get("individual"), f"{path}.individual")
    roots = _sized(individual.get("roots"), size, f"{path}.individual.roots", str)
    prefix, suffix = (_text(individual.get(key, ""), f"{path}.individual.{key}") for key in ("prefix", "suffix"))
    if len(prefix) > _LONGEST_AFFIX or len(suffix) > _LONGEST_AFFIX:
        raise SlicesError(f"{path}.individual", f"prefix and suffix have at most {_LONGEST_AFFIX} characters")
    return [f"{prefix}{root}{suffix}" for root in roots]


def _counts(counts: Any, size: int, path: str) -> list[int]:
    body = _object(counts, path)
    if type(body.get("universal")) is int:
        found = [body["universal"]] * size
    else:
        found = _sized(body.get("individual"), size, f"{path}.individual", int)
    if not 0 <= min(found) <= max(found) <= _MOST_PODS:
        raise SlicesError(path, "must be numbers of pods")
    return found


def _sized(items: Any, size: int, path: str, kind: type) -> list[Any]:
    found = _list(items, path)
    if len(found) != size:
        raise SlicesError(path, f"must have {size} items, as domainCount says")
    for i, item in enumerate(found):
        if type(item) is not kind:
            raise SlicesError(f"{path}[{i}]", "must be a string" if kind is str else "must be a number")
    return found


def _text(value: Any, path: str) -> str:
    if not isinstance(value, str):
        raise SlicesError(path, "must be a string")
    return value


def _list(value: Any, path: str) -> list[Any]:
    if not isinstance(value, list):
        raise SlicesError(path, "must be a list")
    return cast("list[Any]", value)


def _object(value: Any, path: str) -> Json:
    if not isinstance(value, dict):
        raise SlicesError(path, "must be an object")
    return cast(Json, value)


# --- card levels ------------------------------------------------------------------------------------------------------
#
# The cards of placed pods in the words of a topology assignment: levels below the host, one for each card of a pod.
#
# So an admission and its cards are one write, and whoever reads the one back has the other. A value says which card, and what
# the pod takes of it: `GPU-8dcd427f:500:8192:` are 500 thousandths and 8192 MiB; after the last colon `alone`, or a MIG
# profile.


Seats: TypeAlias = tuple[model.CardSeat, ...]

_NONE: Final = "-"
_ALONE: Final = "alone"
_LONGEST: Final = 189
_MOST: Final = 1 << 40
_MOST_WITH_CARDS: Final = 100_000


def rows(value: model.TopologyAssignment) -> tuple[list[str], list[Domain]]:
    """Levels and domains with the cards; pods of one host with equal cards are one domain."""
    levels = list(value.levels)
    depth = max((len(pod) for domain in value.domains for pod in domain.cards), default=0)
    if not depth:
        return levels, [(domain.values, domain.count) for domain in value.domains]
    levels += [f"{names.CARD_LEVEL}{number}" for number in range(1, depth + 1)]
    found: list[Domain] = []
    for domain in value.domains:
        for pod, alike in groupby(domain.cards or ((),) * domain.count):
            texts = [*map(_card_text, pod), *[_NONE] * (depth - len(pod))]
            found.append(((*domain.values, *texts), len(list(alike))))
    return levels, found


def _card_text(seat: model.CardSeat) -> str:
    return f"{seat.card}:{seat.milli}:{seat.memory}:{_ALONE if seat.alone else seat.profile}"


def assignment(levels: Sequence[str], domains: Iterable[Domain]) -> model.TopologyAssignment:
    """The inverse. Raises SlicesError where a card is written otherwise."""
    depth = sum(level.startswith(names.CARD_LEVEL) for level in levels)
    kept = len(levels) - depth
    if not all(level.startswith(names.CARD_LEVEL) for level in levels[kept:]):
        raise SlicesError("levels", "cards are below all other levels")
    if not depth:
        return model.TopologyAssignment(tuple(levels), tuple(model.Domain(values, count) for values, count in domains))
    found: list[model.Domain] = []
    left = _MOST_WITH_CARDS
    for values, alike in groupby(domains, key=lambda row: row[0][:kept]):
        pods: list[Seats] = []
        for row, count in alike:
            left -= count
            if left < 0:
                raise SlicesError("slices", f"more than {_MOST_WITH_CARDS} pods with cards")
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
    for values, count in decode(assignment.get("slices") or [], len(levels)):
        counts[values[:kept]] = counts.get(values[:kept], 0) + count
    return {**assignment, "levels": levels[:kept], "slices": encode(list(counts.items()))}


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


# --- parse admission --------------------------------------------------------------------------------------------------
#
# The admission of a Workload from JSON (v1beta2): flavors, usage, places of its pod sets. `render.admission` is the inverse.


def held_by(status: Json, pod_sets: Iterable[model.PodSet]) -> model.Admission | None:
    body = child(status, "admission", "status")
    return admission(body, {pod_set.name: pod_set.count for pod_set in pod_sets}) if body else None


def admission(body: Json, counts: dict[str, int] | None = None, path: str = "status.admission") -> model.Admission:
    """`status.admission` as the engine's value. `counts` are used if an assignment has no number of pods.

    The inverse of `render.admission`. Raises ParseError.
    """
    assignments = items(body, "podSetAssignments", path)
    return model.Admission(
        text(body, "clusterQueue", path),
        tuple(
            _pod_set_assignment(row, counts or {}, f"{path}.podSetAssignments[{i}]")
            for i, row in enumerate(assignments)
        ),
    )


def _pod_set_assignment(row: Json, counts: dict[str, int], path: str) -> model.PodSetAssignment:
    name = text(row, "name", path, "main")
    return model.PodSetAssignment(
        name=name,
        count=number(row, "count", path, counts.get(name, 0)),
        flavors=labels(row, "flavors", path),
        usage=amounts(row, "resourceUsage", path),
        topology=_topology_assignment(child(row, "topologyAssignment", path), f"{path}.topologyAssignment"),
        delayed_topology=text(row, "delayedTopologyRequest", path),
    )


def _topology_assignment(body: Json, path: str) -> model.TopologyAssignment | None:
    if not body:
        return None
    levels = texts(body, "levels", path)
    try:
        return assignment(levels, decode(body.get("slices") or [], len(levels)))
    except SlicesError as error:
        raise ParseError(f"{path}.{error.path}", error.message) from None
