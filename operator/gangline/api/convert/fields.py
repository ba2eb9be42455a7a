"""Copy-on-write access to a JSON object: unchanged parts are shared with the original, changed parts are copies.

Values of the wrong type are skipped: conversion may see an object before the API server has validated it, and the schema
reports type errors.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from typing import Any, Final, TypeAlias, cast

from gangline import bounded
from gangline.api.read.reading import parse_time
from gangline.api.unchecked import listing, mapping
from gangline.kube.resources import Json


def own(parent: Json | None, key: str) -> Json | None:
    """A copy of the object at `key`, now in its place; None if there is none."""
    value = parent.get(key) if parent is not None else None
    if parent is None or not isinstance(value, dict):
        return None
    copy = dict(cast(Json, value))
    parent[key] = copy
    return copy


def own_items(parent: Json | None, key: str) -> list[Json]:
    """Copies of the objects in the list at `key`, now in their places."""
    value: object = parent.get(key) if parent is not None else None
    if parent is None or not isinstance(value, list):
        return []
    copies = [dict(cast(Json, item)) if isinstance(item, dict) else item for item in cast("list[Any]", value)]
    parent[key] = copies
    return items(copies)


def make(parent: Json, key: str) -> Json:
    """A copy of the object at `key`, or a new one, now in its place."""
    found = own(parent, key)
    if found is None:
        found = parent[key] = {}
    return found


def items(value: Any) -> list[Json]:
    """The objects in a list; nothing if it is no list."""
    return [cast(Json, item) for item in listing(value) if isinstance(item, dict)]


def rename(parent: Json | None, old: str, new: str) -> None:
    if parent is not None and old in parent:
        parent[new] = parent.pop(old)


def move(source: Json | None, key: str, target: Json, name: str = "") -> None:
    """Move `key` from `source` to `target`."""
    if source is not None and source.get(key) is not None:
        target[name or key] = source.pop(key)


# --- notes ------------------------------------------------------------------------------------------------------------
#
# Notes: values for which the other version has no field, as a JSON object in an annotation, restored on the way back.
#
# Any writer of the object may write its annotations, and the API server does not validate what it reads from its store: one
# object that no client can decode would spoil every list that contains it. So only values that fit their field are restored.


#: a type; a list with the shape of its items; an object with the shapes of its fields, "*" being all others; or a test
Shape: TypeAlias = "type | list[Any] | Mapping[str, Any] | Callable[[Any], bool]"

#: bytes of all annotations of an object together: an API server accepts no conversion result with more
MOST_BYTES: Final = 256 * 1024
#: levels: a topology assignment has nine
_MOST_DEPTH: Final = 16
#: characters of the longest RFC 3339 time that is read
_LONGEST_TIME: Final = 64
_TIME: Final = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?(Z|[+-]\d\d:\d\d)", re.ASCII)


def take(obj: Json, annotation: str, shapes: Mapping[str, Shape]) -> Json:
    """Remove the annotation and return its values with these shapes; a text that is not ours stays."""
    metadata = own(obj, "metadata")
    annotations = own(metadata, "annotations")
    if metadata is None or annotations is None:
        return {}
    notes = {
        name: value for name, value in _parsed(annotations.get(annotation)).items() if fits(value, shapes.get(name))
    }
    if notes:
        del annotations[annotation]
        if not annotations:
            del metadata["annotations"]
    return notes


def write(obj: Json, annotation: str, notes: Json) -> None:
    """Write the notes, if there are any and an API server would accept the annotations; else omit them."""
    if not notes:
        return
    metadata = mapping(obj.get("metadata"))
    text = json.dumps(notes, sort_keys=True, separators=(",", ":"), ensure_ascii=False)
    annotations = {**mapping(metadata.get("annotations")), annotation: text}
    size = sum(len(f"{name}{text}".encode(errors="replace")) for name, text in annotations.items())
    if size <= MOST_BYTES:
        obj["metadata"] = {**metadata, "annotations": annotations}


def _parsed(text: Any) -> Json:
    try:
        value = (
            bounded.load_json(text, most_bytes=MOST_BYTES, most_depth=_MOST_DEPTH) if isinstance(text, str) else None
        )
    except bounded.BadJsonError:
        return {}
    return cast(Json, value) if isinstance(value, dict) else {}


def fits(value: Any, shape: Shape | None) -> bool:
    """Whether a value has a shape. None fits nothing; fields may be missing."""
    match shape:
        case None:
            return False
        case type():
            return type(value) is shape
        case list():
            return isinstance(value, list) and all(fits(item, shape[0]) for item in cast("list[Any]", value))
        case Mapping():
            rest = shape.get("*")
            return isinstance(value, dict) and all(
                fits(inner, shape.get(name, rest)) for name, inner in cast(Json, value).items()
            )
        case _:
            return shape(value)


def is_time(value: Any) -> bool:
    """Whether the value is a time in RFC 3339, which is what clients decode."""
    try:
        parse_time(value)
    except (TypeError, ValueError, OverflowError):
        return False
    return len(value) <= _LONGEST_TIME and _TIME.fullmatch(value) is not None
