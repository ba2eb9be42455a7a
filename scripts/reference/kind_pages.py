"""The pages of kinds: all fields, by the schemas that the CRDs have."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from typing import Any, Final

from scripts.reference.markdown import as_cell, as_code, as_table

from gangline.api import names, quantity
from gangline.api.schema import common
from gangline.api.schema.crdgen import ApiKind, ApiVersion
from gangline.api.schema.json_schema import structural
from gangline.kube.resources import Json

COLUMNS: Final = ("field", "type", "default", "constraints", "meaning")
#: of a text field: pattern -> what is said instead
TYPES: Final = {quantity.PATTERN: "quantity", quantity.DURATION_PATTERN: "duration"}
PATTERNS: Final = {common.DNS_LABEL: "DNS label", common.DNS_SUBDOMAIN: "DNS subdomain"}
INTRODUCTION: Final = """\
A *quantity* is a number or a text such as `500m`, `2` or `40Gi`; a *duration* is a text such as `90s`, `15m` or `1h30m`. The API
server fills in the defaults. Constraints that involve other fields or objects are checked by the webhooks; without webhooks,
violations are reported in a condition.
"""


def kinds_page(title: str, which: Iterable[ApiKind]) -> str:
    return "\n".join([f"# {title}\n", INTRODUCTION, *(_kind(kind, kind.versions[-1]) for kind in which)])


def _kind(kind: ApiKind, version: ApiVersion) -> str:
    schema = structural(version.model)
    facts = [f"`{kind.name}`", "namespaced" if kind.namespaced else "cluster-scoped"]
    if kind.short_names:
        facts.append("short names " + ", ".join(f"`{name}`" for name in kind.short_names))
    if kind.status:
        facts.append("status subresource")
    if version.selectable:
        facts.append("selectable fields " + ", ".join(f"`{path}`" for path in version.selectable))
    parts = [f"## {kind.kind}\n", schema["description"] + "\n", "; ".join(facts) + ".\n"]
    if version.columns:
        rows = [
            (column.name, f"`{column.path}`", "`-o wide`" if column.priority else "", column.description)
            for column in version.columns
        ]
        parts.append("`kubectl get` prints:\n")
        parts.append(as_table(("column", "field", "only with", "meaning"), rows))
    for path, node in _objects(schema, ()):
        parts.append(_object(kind, path, node))
    return "\n".join(parts)


def _objects(node: Json, path: tuple[str, ...]) -> Iterator[tuple[tuple[str, ...], Json]]:
    """An object and all that it contains, in the order of the fields."""
    yield path, node
    for name, child in node.get("properties", {}).items():
        inner, suffix = (child["items"], "[]") if child.get("type") == "array" else (child, "")
        if inner.get("properties") and not _is_condition(inner):
            yield from _objects(inner, (*path, name + suffix))


def _is_condition(node: Json) -> bool:
    return node.get("properties") == structural(common.Condition)["properties"]


def _object(kind: ApiKind, path: tuple[str, ...], node: Json) -> str:
    rows = [
        _field(kind, path, name, child, name in node.get("required", ()))
        for name, child in node["properties"].items()
        if path or name not in ("apiVersion", "kind", "metadata")
    ]
    parts: list[str] = []
    if path:
        parts += [f"### {kind.kind}.{'.'.join(path)}\n", node.get("description", "") + "\n"]
    if rules := _rules(node):
        parts.append("Rules: " + "; ".join(rules) + ".\n")
    return "\n".join([*parts, as_table(COLUMNS, rows)])


def _field(kind: ApiKind, path: tuple[str, ...], name: str, node: Json, required: bool) -> tuple[str, ...]:
    default = f"{as_code(_plain(node['default']))}" if "default" in node else "required" if required else ""
    text = node.get("description") or node.get("items", {}).get("description", "")
    return (f"`{name}`", _type(kind, (*path, name), node), default, ", ".join(_constraints(node)), as_cell(text))


def _plain(value: Any) -> str:
    return (
        value
        if isinstance(value, str)
        else {True: "true", False: "false"}[value]
        if isinstance(value, bool)
        else str(value)
    )


def _type(kind: ApiKind, path: tuple[str, ...], node: Json) -> str:
    if node.get("type") == "array":
        return f"list of {_type(kind, (*path[:-1], path[-1] + '[]'), node['items'])}"
    if _is_condition(node):
        return "[conditions](conditions.md)"
    if node.get("properties"):
        return f"[object](#{_anchor('.'.join((kind.kind, *path)))})"
    if (inner := node.get("additionalProperties")) is not None:
        return f"map of {_type(kind, path, inner)}"
    if node.get("pattern") in TYPES:
        return TYPES[node["pattern"]]
    if node.get("x-kubernetes-int-or-string"):
        return "number or text"
    form = node.get("format")
    return {"string": "text", "integer": form or "integer"}.get(node.get("type", ""), node.get("type", "any")) + (
        f" ({form})" if form and node.get("type") == "string" else ""
    )


def _anchor(heading: str) -> str:
    return re.sub(r"[^\w -]", "", heading.lower()).replace(" ", "-")


def _constraints(node: Json) -> list[str]:
    found: list[str] = []
    if "enum" in node:
        found.append("one of " + ", ".join(as_code(str(value)) for value in node["enum"]))
    low, high = node.get("minimum"), node.get("maximum")
    if low is not None:
        found.append(("> " if node.get("exclusiveMinimum") else "≥ ") + str(low))
    if high is not None:
        found.append(("< " if node.get("exclusiveMaximum") else "≤ ") + str(high))
    for start, what in (("Length", "characters"), ("Items", "items"), ("Properties", "entries")):
        least, most = node.get(f"min{start}"), node.get(f"max{start}")
        if least is not None or most is not None:
            bounds = f"≥ {least}" if most is None else f"{least}–{most}" if least else f"≤ {most}"
            found.append(f"{bounds} {what}")
    pattern = node.get("pattern")
    if pattern is not None and pattern not in TYPES:
        found.append(PATTERNS.get(pattern) or f"matches {as_code(pattern)}")
    if node.get("x-kubernetes-list-type") == "map":
        found.append("unique " + ", ".join(as_code(key) for key in node["x-kubernetes-list-map-keys"]))
    if node.get("x-kubernetes-list-type") == "set":
        found.append("no duplicates")
    if node.get("type") in ("array", "object") and node.get("items"):
        found += [f"each {text}" for text in _constraints(node["items"])]
    if isinstance(inner := node.get("additionalProperties"), dict):
        found += [f"each {text}" for text in _constraints(inner)]
    if not node.get("properties"):
        found += _rules(node)
    return found


def _rules(node: Json) -> list[str]:
    return [
        f"{as_cell(rule['message'])} ({as_code(rule['rule'])})" for rule in node.get("x-kubernetes-validations", ())
    ]


def older_page(which: Iterable[ApiKind]) -> str:
    parts = [
        f"# {names.V1BETA1}: what differs from v1beta2\n",
        "Both versions are served and converted into each other; v1beta2 is stored. A request in v1beta1 gets a deprecation"
        " warning.\n",
    ]
    for kind in which:
        old, new = (structural(version.model) for version in kind.versions)
        parts.append(f"## {kind.kind}\n")
        removed, added = _paths(kind, old), _paths(kind, new)
        rows = [
            (*row, "v1beta1 only" if path not in added else "differs")
            for path, row in removed.items()
            if row != added.get(path)
        ]
        rows += [(*row, "v1beta2 only") for path, row in added.items() if path not in removed]
        parts.append(
            as_table((*COLUMNS, "version"), rows) if rows else f"As in [v1beta2](kueue.md#{_anchor(kind.kind)}).\n"
        )
    return "\n".join(parts)


def _paths(kind: ApiKind, schema: Json) -> dict[str, tuple[str, ...]]:
    """Every field by its whole path; objects lead to no other place."""
    found: dict[str, tuple[str, ...]] = {}
    for path, node in _objects(schema, ()):
        for name, child in node["properties"].items():
            whole = ".".join((*path, name))
            row = _field(kind, path, name, child, name in node.get("required", ()))
            found[whole] = (f"`{whole}`", re.sub(r"\[(\w+)\]\(#.*?\)", r"\1", row[1]), *row[2:])
    return found
