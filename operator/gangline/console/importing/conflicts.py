"""Writes that others may come before: another attempt after each conflict, on the object as it is then."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Final, TypeVar

from gangline.kube.errors import Conflict

T = TypeVar("T")
_TRIES: Final = 5


async def again(attempt: Callable[[], Awaitable[T]]) -> T:
    """The result of an attempt, which is repeated after conflicts. Raises Conflict if the last attempt met one, too."""
    for _ in range(_TRIES - 1):
        try:
            return await attempt()
        except Conflict:
            continue
    return await attempt()
