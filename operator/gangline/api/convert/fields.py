"""Copy-on-write access to a JSON object: unchanged parts are shared with the original, changed parts are copies.

Values of the wrong type are skipped: conversion may see an object before the API server has validated it, and the schema
reports type errors.
"""

from __future__ import annotations

from typing import Any, cast

from gangline.api.unchecked import listing
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
