"""A part of a list."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, TypeVar

from gangline.kube.resources import Json

_T = TypeVar("_T")


@dataclass(frozen=True, slots=True)
class ListPage:
    """The part of a list that is wanted: `limit` entries after the first `offset`; no limit: all of them."""

    offset: int = 0
    limit: int | None = None

    @property
    def end(self) -> int | None:
        return None if self.limit is None else self.offset + self.limit

    def cut(self, rows: Sequence[_T]) -> tuple[list[_T], int]:
        """The entries of the page, and the number of entries after it."""
        shown = list(rows[self.offset : self.end])
        return shown, max(0, len(rows) - self.offset - len(shown))


EVERYTHING: Final = ListPage()


@dataclass(frozen=True, slots=True)
class Listed:
    """A page of a list, and the number of entries after it."""

    items: list[Json]
    left: int


@dataclass(frozen=True, slots=True)
class ListedUsage(Listed):
    """A page of sums. `total`: the sum of all groups; `start`, `end`: the time over which sums were made."""

    total: Json
    start: float
    end: float
