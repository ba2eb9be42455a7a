"""Shares of cards that a pod template asks for by Gangline's annotations: readable, and in no contradiction to its requests."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice
from typing import Final, cast

from gangline.api import quantity, sharing
from gangline.api.admission.findings import FieldError, Json, annotations_of, invalid, mapping, objects, spec
from gangline.api.sharing import visible

#: templates of one job that are looked at, and warnings about them
_MOST_TEMPLATES: Final = 32
_MOST_DOUBTS: Final = 8


def check(path: str, template: Json) -> list[FieldError]:
    """`path` is that of the template."""
    return [invalid(f"{path}.{fault.field}", fault.value, fault.message) for fault in sharing.faults(_ask(template))]


def expose(obj: Json) -> None:
    """The variables by which containers learn their cards, in all templates that ask for them."""
    for template in islice(_templates(obj), _MOST_TEMPLATES):
        visible.expose(template)


def doubts(obj: Json) -> list[str]:
    """What the author of a job should know of the shares that its pods ask for, wherever its kind keeps their templates."""
    found: list[str] = []
    for template in islice(_templates(obj), _MOST_TEMPLATES):
        found += (said for said in _doubts(template) if said not in found)
    return found[:_MOST_DOUBTS]


def _doubts(template: Json) -> list[str]:
    return sharing.doubts(_ask(template), claims=bool(spec(template).get("resourceClaims")))


def _templates(obj: Json) -> Iterator[Json]:
    """The object itself if it is a pod, and all templates in its spec."""
    waiting: list[object] = [obj]
    while waiting:
        value = waiting.pop()
        if isinstance(value, list):
            waiting += cast("list[object]", value)
        elif isinstance(value, dict):
            body = cast(Json, value)
            if isinstance(mapping(body.get("spec")).get("containers"), list):
                yield body
            else:
                waiting += (inner for key, inner in body.items() if key not in ("metadata", "status"))


def _ask(template: Json) -> sharing.Ask:
    return sharing.Ask(
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
