"""JSON merge patches (RFC 7386): the smallest patch between two objects, and its application."""

from __future__ import annotations

from typing import Any

Json = dict[str, Any]


def diff(old: Json, new: Json) -> Json:
    """The merge patch that turns `old` into `new`: `{}` when they are equal. Lists are replaced whole."""
    patch: Json = {key: None for key in old if key not in new}
    for key, value in new.items():
        before = old.get(key)
        if value == before and key in old:
            continue
        if isinstance(value, dict) and isinstance(before, dict):
            patch[key] = diff(before, value)
        else:
            patch[key] = value
    return patch
