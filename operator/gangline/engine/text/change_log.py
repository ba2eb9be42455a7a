"""A log of changes for several readers, each of which catches up when it is next asked."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Generic, TypeVar

T = TypeVar("T")


class ChangeLog(Generic[T]):
    """The log of changes. A reader keeps the `end` up to which it has read, and asks for the changes `since` then.

    The log starts over when it is `longest` entries long: a reader that had not caught up by then looks at everything again.
    """

    __slots__ = ("_entries", "_first", "_longest")

    #: the `end` of a reader that has not read yet
    UNREAD = -1

    def __init__(self, longest: int) -> None:
        self._longest = longest
        self._entries: list[T] = []
        #: the number of the first entry
        self._first = 0

    @property
    def end(self) -> int:
        """The number of the next entry."""
        return self._first + len(self._entries)

    def append(self, entry: T) -> None:
        self.extend((entry,))

    def extend(self, entries: Iterable[T]) -> None:
        if len(self._entries) >= self._longest:
            self.start_over()
        self._entries.extend(entries)

    def start_over(self) -> None:
        """Let every reader look at everything again, even one that had caught up."""
        self._first = self.end + 1
        self._entries.clear()

    def since(self, end: int) -> Sequence[T] | None:
        """The entries after a reader's `end`; None if they are not kept any more, or if it has not read yet."""
        if end < self._first:
            return None
        return self._entries[end - self._first :]
