"""What the API server would say of a custom resource: pruned and checked by the schema of its version.

Rules in CEL are not evaluated: what is accepted here may be refused there, never the other way round.
"""

from __future__ import annotations

import functools
import re
from typing import Any

from tests.api import accepted

Json = dict[str, Any]

_TYPES: dict[str, tuple[type, ...]] = {
    "object": (dict,),
    "array": (list,),
    "string": (str,),
    "integer": (int,),
    "number": (int, float),
    "boolean": (bool,),
}
_TIME = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?(Z|[+-]\d\d:\d\d)", re.ASCII)
_BITS = {"int32": 31, "int64": 63}


@functools.cache
def _schemas() -> dict[tuple[str, str], Json]:
    return {(f"{group}/{version}", kind): schema for kind, group, version, schema in accepted.schemas()}


def stored(obj: Any) -> Json | None:
    """The object as the API server would keep it, without the fields that it does not know; None if it refuses it."""
    if not isinstance(obj, dict) or not _is_named(obj.get("metadata")):
        return None
    schema = _schemas().get((str(obj.get("apiVersion")), str(obj.get("kind"))))
    if schema is None:
        return None
    head = {name: obj[name] for name in ("apiVersion", "kind", "metadata")}
    body = {name: value for name, value in obj.items() if name not in head}
    return {**head, **_pruned(schema, body)} if _fits(schema, body) else None


def decodes(obj: Json) -> bool:
    """Whether a client that has types for its fields can read it; what has no field is passed over."""
    schema = _schemas()[obj["apiVersion"], obj["kind"]]
    return _typed(schema, {name: value for name, value in obj.items() if name != "metadata"})


def _typed(schema: Json, value: Any) -> bool:
    if value is None or not schema.get("type"):
        return True
    if not _is_a(schema["type"], value):
        return False
    match value:
        case dict():
            known, more = schema.get("properties", {}), schema.get("additionalProperties", {})
            return all(_typed(known.get(name, more), inner) for name, inner in value.items())
        case list():
            return all(_typed(schema.get("items", {}), item) for item in value)
        case str():
            return schema.get("format") != "date-time" or _TIME.fullmatch(value) is not None
        case _:
            return True


def annotations_fit(meta: Json) -> bool:
    return sum(len(f"{name}{text}".encode()) for name, text in (meta.get("annotations") or {}).items()) <= 256 * 1024


def _is_named(meta: Any) -> bool:
    """Metadata that can be decoded."""
    if not isinstance(meta, dict) or not isinstance(meta.get("name"), str) or not meta["name"]:
        return False
    for field in ("labels", "annotations"):
        texts = meta.get(field)
        if texts is not None and not (
            isinstance(texts, dict) and all(isinstance(text, str) for text in texts.values())
        ):
            return False
    return annotations_fit(meta)


def _pruned(schema: Json, value: Any) -> Any:
    if isinstance(value, list):
        return [_pruned(schema.get("items", {}), item) for item in value]
    if not isinstance(value, dict) or schema.get("x-kubernetes-preserve-unknown-fields"):
        return value
    if "additionalProperties" in schema:
        return {name: _pruned(schema["additionalProperties"], inner) for name, inner in value.items()}
    known = schema.get("properties", {})
    # what is null where it may not be is dropped
    return {
        name: _pruned(known[name], inner)
        for name, inner in value.items()
        if name in known and (inner is not None or known[name].get("nullable"))
    }


def _fits(schema: Json, value: Any) -> bool:
    if value is None:
        return bool(schema.get("nullable"))
    if schema.get("x-kubernetes-int-or-string"):
        return (isinstance(value, str) or _is_a("integer", value)) and _text_fits(schema, str(value))
    if "type" in schema and not _is_a(schema["type"], value):
        return False
    if "enum" in schema and value not in schema["enum"]:
        return False
    match value:
        case dict():
            return _object_fits(schema, value)
        case list():
            return _list_fits(schema, value)
        case str():
            return _text_fits(schema, value)
        case int() | float() if not isinstance(value, bool):
            bits = _BITS.get(schema.get("format", "int64"), 63)
            low, high = schema.get("minimum", -(2**bits)), schema.get("maximum", 2**bits - 1)
            return low <= value <= high
        case _:
            return True


def _is_a(name: str, value: Any) -> bool:
    return isinstance(value, _TYPES[name]) and (name == "boolean" or not isinstance(value, bool))


def _object_fits(schema: Json, value: Json) -> bool:
    if not schema.get("minProperties", 0) <= len(value) <= schema.get("maxProperties", len(value)):
        return False
    known, more = schema.get("properties", {}), schema.get("additionalProperties")
    given = {name for name, inner in value.items() if inner is not None or known.get(name, {}).get("nullable")}
    if not given >= set(schema.get("required", ())):
        return False
    if isinstance(more, dict):
        return all(_fits(more, inner) for inner in value.values())
    return all(_fits(known[name], value[name]) for name in given & known.keys())


def _list_fits(schema: Json, value: list[Any]) -> bool:
    if not schema.get("minItems", 0) <= len(value) <= schema.get("maxItems", len(value)):
        return False
    if not all(_fits(schema.get("items", {}), item) for item in value):
        return False
    match schema.get("x-kubernetes-list-type"):
        case "map":
            keys = schema["x-kubernetes-list-map-keys"]
            return len({tuple(repr(item.get(key)) for key in keys) for item in value}) == len(value)
        case "set":
            return len({repr(item) for item in value}) == len(value)
        case _:
            return True


def _text_fits(schema: Json, value: str) -> bool:
    if not schema.get("minLength", 0) <= len(value) <= schema.get("maxLength", len(value)):
        return False
    if schema.get("format") == "date-time":
        return _TIME.fullmatch(value) is not None
    return re.search(schema.get("pattern", ""), value, re.ASCII) is not None
