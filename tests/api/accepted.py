"""Objects that the API server accepts, made from a CRD's schema: the smallest, the fullest, and all with one field less."""

from __future__ import annotations

import copy
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import yaml

Json = dict[str, Any]
Path_ = tuple[str | int, ...]

#: what every object begins with, which is made up apart
HEAD = frozenset({"apiVersion", "kind", "metadata"})
CRDS = Path(__file__).parents[2] / "crds"
#: one of these fits every pattern of our schemas
TEXTS = (
    "a",
    "1",
    "1h",
    "5%",
    "100m",
    "example.com/a",
    "nvidia.com/gpu",
    "https://example.com",
    "2026-01-31T12:00:00Z",
    "17:40",
    "A",
)


def schemas() -> Iterator[tuple[str, str, str, Json]]:
    """Kind, group, version and schema of every version of every CRD."""
    for file in sorted(CRDS.glob("*.io_*.yaml")):
        crd = yaml.safe_load(file.read_text())
        for version in crd["spec"]["versions"]:
            if version["served"]:
                yield (
                    crd["spec"]["names"]["kind"],
                    crd["spec"]["group"],
                    version["name"],
                    version["schema"]["openAPIV3Schema"],
                )


def smallest(schema: Json) -> Any:
    """Only what is required."""
    return _made(schema, all_fields=False)


def fullest(schema: Json) -> Any:
    """Every field, one entry in each list and map, or as many as it takes."""
    return _made(schema, all_fields=True)


def _made(schema: Json, *, all_fields: bool) -> Any:
    if schema.get("x-kubernetes-int-or-string"):
        return "1"
    if "enum" in schema:
        return schema["enum"][0]
    match schema.get("type"):
        case "object":
            if "additionalProperties" in schema:
                inner = schema["additionalProperties"]
                return {"cpu": _made(inner, all_fields=True)} if all_fields or schema.get("minProperties") else {}
            if "properties" not in schema:
                return {}
            required = schema.get("required", ())
            head = HEAD if schema["properties"].keys() >= HEAD else frozenset[str]()  # of the whole object
            return {
                name: _made(inner, all_fields=all_fields)
                for name, inner in schema["properties"].items()
                if (all_fields or name in required) and name not in head
            }
        case "array":
            count = max(schema.get("minItems", 0), 1 if all_fields else 0)
            return [_made(schema["items"], all_fields=all_fields) for _ in range(count)]
        case "integer":
            return schema.get("minimum", 1)
        case "number":
            return float(schema.get("minimum", 1))
        case "boolean":
            return True
        case "string":
            return _text(schema)
        case _:
            return {}


def _text(schema: Json) -> str:
    if schema.get("format") == "date-time":
        return "2026-01-31T12:00:00Z"
    pattern = schema.get("pattern", "")
    fitting = (text for text in TEXTS if re.search(pattern, text) and len(text) >= schema.get("minLength", 0))
    return next(fitting, "a" * schema.get("minLength", 1))


def variants(whole: Any, schema: Json) -> Iterator[tuple[str, Any]]:
    """Each optional field of `whole` left out, null, and empty: what was changed, and the object."""
    for path, inner in _optional(whole, schema, ()):
        yield f"without {_shown(path)}", _changed(whole, path, _LEFT_OUT)
        yield f"{_shown(path)} null", _changed(whole, path, None)
        if inner.get("type") in ("object", "array") and not inner.get("minItems") and not inner.get("required"):
            yield f"{_shown(path)} empty", _changed(whole, path, {} if inner["type"] == "object" else [])


_LEFT_OUT = object()


def _optional(value: Any, schema: Json, path: Path_) -> Iterator[tuple[Path_, Json]]:
    if isinstance(value, list):
        for number, item in enumerate(value):
            yield from _optional(item, schema["items"], (*path, number))
    if not isinstance(value, dict):
        return
    for name, item in value.items():
        inner = schema.get("properties", {}).get(name) or schema.get("additionalProperties") or {}
        if name not in schema.get("required", ()):
            yield (*path, name), inner
        yield from _optional(item, inner, (*path, name))


def _changed(whole: Any, path: Path_, value: Any) -> Any:
    changed = copy.deepcopy(whole)
    at = changed
    for step in path[:-1]:
        at = at[step]
    if value is _LEFT_OUT:
        del at[path[-1]]
    else:
        at[path[-1]] = value
    return changed


def _shown(path: Path_) -> str:
    return "".join(f"[{step}]" if isinstance(step, int) else f".{step}" for step in path)[1:]
