"""Shares of cards that a pod template asks for by Gangline's annotations: readable, and in no contradiction to its requests."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice
from typing import Final, TypeAlias, cast

from gangline.api import quantity
from gangline.api.admission.findings import FieldError, Json, annotations_of, invalid, mapping, objects, spec
from gangline.api.jobkinds.declaration import Path, put
from gangline.api.sharing import asking, share_annotations

#: templates of one job that are looked at, and warnings about them
_MOST_TEMPLATES: Final = 32
_MOST_DOUBTS: Final = 8


def check(path: str, template: Json) -> list[FieldError]:
    """`path` is that of the template."""
    return [invalid(f"{path}.{fault.field}", fault.value, fault.message) for fault in asking.faults(_ask(template))]


def expose(obj: Json) -> None:
    """The variables by which containers learn their cards, in all templates that ask for them."""
    for path, template in islice(_templates(obj), _MOST_TEMPLATES):
        exposed = share_annotations.with_variable(template)
        if exposed is not template and path:
            put(obj, path, exposed)
        elif exposed is not template:
            obj.update(exposed)


def doubts(obj: Json) -> list[str]:
    """What the author of a job should know of the shares that its pods ask for, wherever its kind keeps their templates."""
    found: list[str] = []
    for _, template in islice(_templates(obj), _MOST_TEMPLATES):
        found += (said for said in _doubts(template) if said not in found)
    return found[:_MOST_DOUBTS]


def _doubts(template: Json) -> list[str]:
    return asking.doubts(_ask(template), claims=bool(spec(template).get("resourceClaims")))


#: the way to a part of an object: the way to what it is in, and its name or position there; None for the object itself
_Way: TypeAlias = "tuple[_Way, str | int] | None"


def _templates(obj: Json) -> Iterator[tuple[Path, Json]]:
    """The object itself if it is a pod, and all templates in its spec, each with its path."""
    waiting: list[tuple[object, _Way]] = [(obj, None)]
    while waiting:
        value, way = waiting.pop()
        if isinstance(value, list):
            rows = cast("list[object]", value)
            waiting += ((inner, (way, i)) for i, inner in enumerate(rows) if isinstance(inner, dict | list))
        elif isinstance(value, dict):
            body = cast(Json, value)
            if isinstance(mapping(body.get("spec")).get("containers"), list):
                yield _path(way), body
            else:
                waiting += (
                    (inner, (way, key))
                    for key, inner in body.items()
                    if isinstance(inner, dict | list) and key not in ("metadata", "status")
                )


def _path(way: _Way) -> Path:
    parts: list[str | int] = []
    while way is not None:
        way, part = way
        parts.append(part)
    return tuple(reversed(parts))


def _ask(template: Json) -> asking.PodAsk:
    return asking.PodAsk(
        [_requests(each) for each in objects(spec(template).get("containers"))], annotations_of(template)
    )


def _requests(container: Json) -> dict[str, int]:
    """What can be read of them: the rest is an error of its own."""
    resources = mapping(container.get("resources"))
    found: dict[str, int] = {}
    for part in ("limits", "requests"):
        for name, written in mapping(resources.get(part)).items():
            if isinstance(written, str | int | float):
                try:
                    found[name] = quantity.parse(written, name)
                except quantity.QuantityError:
                    continue
    return found
