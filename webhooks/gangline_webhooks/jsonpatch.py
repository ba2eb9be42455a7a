"""JSON patches (RFC 6902): the operations between an object and its completed copy."""

from __future__ import annotations

from typing import cast

from gangline.kube.resources import Json


def diff(before: Json, after: Json) -> list[Json]:
    """Operations that turn `before` into `after`; empty if they are equal. Parts that both share are not looked into.

    An operation's parent always exists at its turn: missing parts are added whole, at the highest place.
    """
    operations: list[Json] = []
    _objects("", before, after, operations)
    return operations


def _objects(path: str, before: Json, after: Json, operations: list[Json]) -> None:
    for name in before.keys() - after.keys():
        operations.append({"op": "remove", "path": f"{path}/{_escaped(name)}"})
    for name, value in after.items():
        if name not in before:
            operations.append({"op": "add", "path": f"{path}/{_escaped(name)}", "value": value})
        elif before[name] is not value:
            _values(f"{path}/{_escaped(name)}", before[name], value, operations)


def _values(path: str, before: object, after: object, operations: list[Json]) -> None:
    if isinstance(before, dict) and isinstance(after, dict):
        _objects(path, cast(Json, before), cast(Json, after), operations)
    elif isinstance(before, list) and isinstance(after, list) and len(before) == len(after):
        for i, (old, new) in enumerate(zip(before, after, strict=True)):
            if old is not new:
                _values(f"{path}/{i}", old, new, operations)
    elif not _same(before, after):
        operations.append({"op": "replace", "path": path, "value": after})


def _same(before: object, after: object) -> bool:
    """Equality of values other than two objects or equally long lists; in JSON, unlike in Python, true is not 1."""
    return type(before) is type(after) and before == after


def _escaped(name: str) -> str:
    return name.replace("~", "~0").replace("/", "~1")
