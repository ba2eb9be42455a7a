"""Readers of the fields of a spec of ours: what can't be read is refused, naming the field. Pure functions on JSON."""

from __future__ import annotations

from typing import Any, cast

from gangline.api import quantity
from gangline.engine.model import Millis
from gangline.kube.resources import Json


class SpecError(ValueError):
    """An object cannot be honoured as it is written; `path` is the field, `message` says why."""

    def __init__(self, path: str, message: str) -> None:
        super().__init__(f"{path}: {message}")
        self.path = path
        self.message = message


def an_object(value: Any, path: str) -> Json:
    if value is None:
        raise SpecError(path, "is required")
    if not isinstance(value, dict):
        raise SpecError(path, "must be an object")
    return cast(Json, value)


def a_list(value: Any, path: str, most: int) -> list[Any]:
    if value is None:
        return []
    if not isinstance(value, list):
        raise SpecError(path, "must be a list")
    found = cast("list[Any]", value)
    if len(found) > most:
        raise SpecError(path, f"must have at most {most} items")
    return found


def some_texts(value: Any, path: str, most: int) -> frozenset[str]:
    return frozenset(a_text(each, f"{path}[{i}]") for i, each in enumerate(a_list(value, path, most)))


def a_text(value: Any, path: str) -> str:
    if not isinstance(value, str) or not value:
        raise SpecError(path, "is required" if value in (None, "") else "must be a string")
    return value


def a_length(value: Any, path: str, longest: Millis) -> Millis:
    try:
        millis = round(quantity.parse_duration(a_text(value, path)) * 1000)
    except quantity.QuantityError:
        raise SpecError(path, 'must be a duration such as "90s", "30m" or "1h30m"') from None
    if not 0 <= millis <= longest:
        raise SpecError(path, f"must be from 0s to {quantity.format_duration(longest / 1000)}")
    return millis
