"""Accessors for JSON that nothing has been checked of: a value of the wrong type reads as an empty one."""

from __future__ import annotations

from typing import Any, cast

from gangline.kube.resources import Json


def mapping(value: object) -> Json:
    """`value` if it is an object, else an empty one, which belongs to nothing."""
    return cast(Json, value) if isinstance(value, dict) else {}


def listing(value: object) -> list[Any]:
    """`value` if it is a list, else an empty one, which belongs to nothing."""
    return cast("list[Any]", value) if isinstance(value, list) else []
