"""Facts, decisions and answers as text, one line each."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import MISSING, fields, is_dataclass
from typing import Any

from tests.builders.engine import START


def moment(at: int | None) -> str:
    return "never" if at is None else f"{(at - START) / 1000:g}s" if at > START // 2 else str(at)


def brief(value: Any) -> str:
    """A value in one line: dataclasses with the fields that differ from their defaults, moments as seconds."""
    if is_dataclass(value) and not isinstance(value, type):
        said = [
            f"{each.name}={brief(found)}"
            for each in fields(value)
            if not _default(each, found := getattr(value, each.name))
        ]
        return f"{type(value).__name__}({' '.join(said)})"
    if isinstance(value, Mapping):
        return "{" + " ".join(f"{brief(key)}:{brief(found)}" for key, found in sorted(value.items(), key=str)) + "}"
    if isinstance(value, set | frozenset):
        return brief(sorted(value))
    if isinstance(value, list | tuple):
        return "[" + " ".join(map(brief, value)) + "]"
    if isinstance(value, bool) or not isinstance(value, int):
        return f"{value:.6g}" if isinstance(value, float) else str(value)
    return moment(value) if value > START // 2 else str(value)


def _default(each: Any, found: Any) -> bool:
    default = each.default_factory() if each.default_factory is not MISSING else each.default
    return bool(found == default)
