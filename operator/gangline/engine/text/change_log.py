"""What changed, for several readers that catch up when they are next asked."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Generic, TypeVar

T = TypeVar("T")


class ChangeLog(Generic[T]):
    """A reader keeps the `end` up to which it has looked, and asks for what came `since`.

    The log starts over when it is `longest` entries long: a reader that had not caught up by then looks at everything again.
    """

    __slots__ = ("_entries", "_first", "_longest")

    #: the `end` of a reader that has never looked
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
        """Every reader looks at everything again, those that had caught up too."""
        self._first = self.end + 1
        self._entries.clear()

    def since(self, end: int) -> Sequence[T] | None:
        """What came after a reader's `end`; None if that is not known any more, or if it has never looked."""
        if end < self._first:
            return None
        return self._entries[end - self._first :]
