"""The parts of a list of one kind: the columns, JSON and name of an entry, and by what it may be filtered and sorted."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, replace
from typing import Any, Generic, TypeVar

from gangline.console.output.layout import Rows
from gangline.kube.resources import Json

T = TypeVar("T")


@dataclass(frozen=True)  # without slots: Column[X](…) fails with them on Python 3.11
class Column(Generic[T]):
    """A column of a list. `text` and `key` get the entry and the present time. `key` sorts; default: the text."""

    name: str
    text: Callable[[T, float], str]
    right: bool = False
    #: only with -o wide
    wide: bool = False
    #: the order in which columns are left out of a narrow table, the highest first; 0: never
    rank: int = 0
    #: characters to which its texts may be shortened; 0: they are not
    least: int = 0
    #: left out where it says nothing of any entry
    sparse: bool = False
    key: Callable[[T, float], Any] | None = None


@dataclass(frozen=True, slots=True)
class Listing(Generic[T]):
    """A list of entries of one kind. The last column is a text, the only one that may be cut at its end.

    `user`, `state`, `queue`: the names by which an entry is found; None: it has none of that kind. `states`: all of which `state`
    returns some, if these are known beforehand.
    """

    columns: tuple[Column[T], ...]
    as_json: Callable[[T], Json]
    #: as other commands take it
    name: Callable[[T], str]
    #: what is said where there is no entry
    empty: str
    style: Callable[[T], str] = lambda entry: ""
    user: Callable[[T], Collection[str]] | None = None
    state: Callable[[T], Collection[str]] | None = None
    queue: Callable[[T], Collection[str]] | None = None
    states: tuple[str, ...] = ()
    #: the fields of its JSON that are instants (`formats.dated`)
    instants: tuple[str, ...] = ()
    #: lines of -o wide in place of the table, for a terminal of this width
    drawing: Callable[[Sequence[T], float, int], list[str]] | None = None
    #: lines after the table
    remarks: Callable[[Sequence[T]], list[str]] | None = None

    def with_text(self, column: str, text: Callable[[T, float], str]) -> Listing[T]:
        """The same list, whose column of this name has this text."""
        columns = tuple(replace(each, text=text) if each.name == column else each for each in self.columns)
        return replace(self, columns=columns)

    def rows(self, entries: Sequence[T], now: float, *, wide: bool = False) -> Rows:
        """One row per entry."""
        columns = [column for column in self.columns if wide or not column.wide]
        texts = [[column.text(entry, now) for entry in entries] for column in columns]
        shown = [
            (column, cells) for column, cells in zip(columns, texts, strict=True) if not column.sparse or any(cells)
        ]
        return Rows(
            header=tuple(column.name for column, _ in shown),
            cells=tuple(zip(*(cells for _, cells in shown), strict=True)) if entries else (),
            styles=tuple(self.style(entry) for entry in entries),
            right=frozenset(column.name for column, _ in shown if column.right),
            ranks={column.name: column.rank for column, _ in shown},
            least={column.name: column.least for column, _ in shown if column.least},
        )
