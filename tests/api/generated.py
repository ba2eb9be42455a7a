"""Objects made up from the schemas that the API server would check them with."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from hypothesis import strategies as st

Json = dict[str, Any]
Strategies = Mapping[str, st.SearchStrategy[Any]]

NAMES = st.sampled_from(["a", "b", "c-1", "d"])
KEYS = st.sampled_from(["cpu", "memory", "nvidia.com/gpu", "x"])
QUANTITIES = st.sampled_from(["0", "1", "200m", "2Ti", "1500m", 3, 0])
TIMES = st.sampled_from(["2026-01-31T12:00:00Z", "2026-02-01T00:00:00Z"])


def objects(schema: Json, special: Strategies) -> st.SearchStrategy[Any]:
    """Values that fit `schema`; `special` says what goes into properties of these names instead."""
    if schema.get("x-kubernetes-int-or-string"):
        return QUANTITIES
    if "enum" in schema:
        return st.sampled_from(schema["enum"])
    if schema["type"] == "array":
        return lists(schema, special)
    if schema["type"] == "object":
        return structures(schema, special)
    if schema["type"] == "integer":
        low = schema.get("minimum", 0)
        return st.integers(min_value=low, max_value=schema.get("maximum", low + 20))
    if schema["type"] == "boolean":
        return st.booleans()
    return TIMES if schema.get("format") == "date-time" else NAMES


def lists(schema: Json, special: Strategies) -> st.SearchStrategy[list[Any]]:
    keys = schema.get("x-kubernetes-list-map-keys")
    unique = schema.get("x-kubernetes-list-type") == "set"
    return st.lists(
        objects(schema["items"], special),
        min_size=schema.get("minItems", 0),
        max_size=min(3, schema.get("maxItems", 3)),
        unique_by=(lambda item: tuple(item.get(key) for key in keys)) if keys else (repr if unique else None),
    )


def structures(schema: Json, special: Strategies) -> st.SearchStrategy[Json]:
    if schema.get("x-kubernetes-preserve-unknown-fields"):
        return st.just({"anything": {"goes": [1, None, "x"]}})
    if "additionalProperties" in schema:
        return st.dictionaries(KEYS, objects(schema["additionalProperties"], special), max_size=2)
    fields = {name: special[name] if name in special else objects(sub, special) for name, sub in properties(schema)}
    required = {name: fields[name] for name in schema.get("required", ())}
    optional = {name: strategy for name, strategy in fields.items() if name not in required}
    return st.fixed_dictionaries(required, optional=optional)


def properties(schema: Json) -> list[tuple[str, Json]]:
    """All but the head of a whole object, which is made up apart."""
    fields = schema.get("properties", {})
    head = {"apiVersion", "kind", "metadata"}
    return [(name, sub) for name, sub in fields.items() if not (name in head and head <= fields.keys())]


def with_defaults(value: Any, schema: Json) -> Any:
    """What the API server makes of it on the way in."""
    if isinstance(value, list):
        return [with_defaults(item, schema["items"]) for item in value]
    if not isinstance(value, dict) or "properties" not in schema:
        return value
    filled = {name: sub["default"] for name, sub in schema["properties"].items() if "default" in sub} | value
    return {name: with_defaults(item, schema["properties"].get(name, {})) for name, item in filled.items()}


def unknown(value: Any, schema: Json, path: str = "") -> list[str]:
    """Paths of fields that the schema does not have and the API server would prune."""
    if isinstance(value, list):
        return [found for i, item in enumerate(value) for found in unknown(item, schema["items"], f"{path}[{i}]")]
    if not isinstance(value, dict) or "properties" not in schema:
        return []
    known = schema["properties"]
    return [f"{path}.{name}" for name in value if name not in known] + [
        found
        for name, item in value.items()
        if name in known and name != "metadata"
        for found in unknown(item, known[name], f"{path}.{name}")
    ]
