"""Accessors for JSON of the API server that report the path of an error.

A missing field and an explicit null are equal. A value of the wrong type is a ParseError with the field's path.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from functools import lru_cache
from typing import Any, Final, cast

from gangline import bounded
from gangline.api import quantity
from gangline.engine.model import UNLIMITED
from gangline.kube.resources import Json

_NOTHING: Final[Json] = {}
_NO_ITEMS: Final[list[Any]] = []
#: characters of a resource's name, as the API server limits it
_LONGEST_NAME: Final = 317
#: characters of a path or a message that an error keeps: both can contain names chosen by users
_KEPT: Final = 1024
#: characters of a timestamp, fractions of a second included
_LONGEST_TIME: Final = 64


class ParseError(ValueError):
    """An object cannot be read: `path` is the field, such as spec.podSets[0].count, `message` says why."""

    def __init__(self, path: str, message: str) -> None:
        self.path = path if len(path) <= _KEPT else f"{path[:_KEPT]}..."
        self.message = message if len(message) <= _KEPT else f"{message[:_KEPT]}..."
        super().__init__(f"{self.path}: {self.message}" if path else self.message)

    def within(self, prefix: str) -> ParseError:
        """The same error, seen from the object that contains this one."""
        return ParseError(f"{prefix}.{self.path}" if self.path else prefix, self.message)


def root(obj: Any) -> Json:
    if not isinstance(obj, dict):
        raise ParseError("", "must be an object")
    return cast(Json, obj)


def child(parent: Json, key: str, path: str) -> Json:
    """The object at `key`; empty if it is missing. `path` is that of the parent. Not to be modified."""
    value = parent.get(key)
    if value is None:
        return _NOTHING
    if not isinstance(value, dict):
        raise ParseError(at(path, key), "must be an object")
    return cast(Json, value)


def items(parent: Json, key: str, path: str) -> list[Json]:
    """The list of objects at `key`; empty if it is missing. Not to be modified."""
    found = values(parent, key, path)
    for i, item in enumerate(found):
        if not isinstance(item, dict):
            raise ParseError(f"{at(path, key)}[{i}]", "must be an object")
    return found


def values(parent: Json, key: str, path: str) -> list[Any]:
    value = parent.get(key)
    if value is None:
        return _NO_ITEMS
    if not isinstance(value, list):
        raise ParseError(at(path, key), "must be a list")
    return cast("list[Any]", value)


def text(parent: Json, key: str, path: str, default: str = "") -> str:
    value = parent.get(key)
    if value is None:
        return default
    if not isinstance(value, str):
        raise ParseError(at(path, key), "must be a string")
    return value


def needed(parent: Json, key: str, path: str) -> str:
    """A required, non-empty string."""
    found = text(parent, key, path)
    if not found:
        raise ParseError(at(path, key), "is required")
    return found


def texts(parent: Json, key: str, path: str) -> tuple[str, ...]:
    found = values(parent, key, path)
    for i, item in enumerate(found):
        if not isinstance(item, str):
            raise ParseError(f"{at(path, key)}[{i}]", "must be a string")
    return tuple(found)


def labels(parent: Json, key: str, path: str) -> dict[str, str]:
    """A map of strings."""
    found = child(parent, key, path)
    for name, value in found.items():
        if not isinstance(value, str):
            raise ParseError(f"{at(path, key)}[{name}]", "must be a string")
    return cast("dict[str, str]", found)


def number(parent: Json, key: str, path: str, default: int = 0) -> int:
    found = optional_number(parent, key, path)
    return default if found is None else found


def optional_number(parent: Json, key: str, path: str) -> int | None:
    value = parent.get(key)
    if value is not None and type(value) is not int:
        raise ParseError(at(path, key), "must be a whole number")
    if value is not None and not -UNLIMITED <= value <= UNLIMITED:
        raise ParseError(at(path, key), "must be a whole number within 64 bits")
    return value


def flag(parent: Json, key: str, path: str, default: bool) -> bool:
    value = parent.get(key)
    if value is None:
        return default
    if not isinstance(value, bool):
        raise ParseError(at(path, key), "must be true or false")
    return value


def amount(value: Any, resource: str, path: str) -> int:
    """A quantity of zero or more, in engine units."""
    try:
        found = quantity.parse(value, resource)
    except quantity.QuantityError as error:
        raise ParseError(path, str(error)) from None
    if found < 0:
        raise ParseError(path, f"{bounded.shown(value)} must not be negative")
    return found


def amounts(parent: Json, key: str, path: str) -> dict[str, int]:
    """A map of resources to quantities, in engine units."""
    return all_amounts(child(parent, key, path), at(path, key))


def all_amounts(found: Mapping[str, Any], path: str) -> dict[str, int]:
    """The map of resources to quantities at `path`."""
    if any(len(resource) > _LONGEST_NAME for resource in found):
        raise ParseError(path, f"the name of a resource has at most {_LONGEST_NAME} characters")
    return {resource: amount(value, resource, f"{path}[{resource}]") for resource, value in found.items()}


def weight(value: int | str, path: str) -> float:
    """`fairSharing.weight` of zero or more; `path` is its path."""
    try:
        found = quantity.parse_number(value)
    except quantity.QuantityError as error:
        raise ParseError(path, str(error)) from None
    if found < 0:
        raise ParseError(path, f"{bounded.shown(value)} must not be negative")
    return found


def millis(parent: Json, key: str, path: str) -> int:
    """A timestamp in milliseconds since the epoch; 0 if it is missing."""
    return optional_millis(parent, key, path) or 0


def optional_millis(parent: Json, key: str, path: str) -> int | None:
    value = parent.get(key)
    return None if value is None else moment(value, at(path, key))


def moment(value: Any, path: str) -> int:
    """The timestamp at `path` in milliseconds since the epoch."""
    try:
        return parse_time(value)
    except (ValueError, TypeError, OverflowError):
        raise ParseError(path, "must be a time such as 2026-01-31T12:00:00Z") from None


@lru_cache(maxsize=8192)
@bounded.parser(_LONGEST_TIME, worst=("2026-01-31T12:00:00Z", "T", "9", ".9", "+", "٣"))
def parse_time(text: str) -> int:
    """RFC 3339 to milliseconds since the epoch. Raises ValueError."""
    if "T" not in text:
        raise ValueError(bounded.shown(text))
    moment = datetime.fromisoformat(text)
    if moment.tzinfo is None:
        raise ValueError(bounded.shown(text))
    return round(moment.timestamp() * 1000)


def at(path: str, key: str) -> str:
    """The path of a field of the object at `path`."""
    return f"{path}.{key}" if path else key
