"""Keys of changed objects, kept for each reader separately.

The code that notices a change adds the key to a `ChangedKeys`. Every reader has its own `KeySet` there and empties it when it
reads. So no reader depends on another reader's order.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Iterator
from typing import Generic, TypeVar

K = TypeVar("K", bound=Hashable)

#: A set grows to at least this many keys before the keys of deleted objects are dropped from it.
LEAST = 10_000


class KeySet(Generic[K]):
    """The keys that one reader has yet to look at.

    A standby reads nothing, perhaps for months. So a set that has doubled drops the keys that are not `worth` reading any more:
    it never holds more than twice the keys that exist, or `LEAST` keys.
    """

    __slots__ = ("_worth", "keys", "limit")

    def __init__(self, worth: Callable[[K], bool]) -> None:
        self._worth = worth
        self.keys: set[K] = set()
        #: beyond so many keys, those that are not worth reading are dropped
        self.limit = LEAST

    def add(self, key: K) -> None:
        self.keys.add(key)
        if len(self.keys) > self.limit:
            self.drop()

    def update(self, keys: Iterable[K]) -> None:
        for key in keys:
            self.add(key)

    def drop(self) -> None:
        """Drop the keys that are not worth reading."""
        self.keys = {key for key in self.keys if self._worth(key)}
        self.limit = max(LEAST, 2 * len(self.keys))

    def take(self, ready: Callable[[K], bool] | None = None) -> set[K]:
        """Empty the set, or remove the keys that are ready. Returns the removed keys."""
        if not self.keys:
            return set()
        taken = self.keys if ready is None else {key for key in self.keys if ready(key)}
        self.keys = set() if ready is None else self.keys - taken
        self.limit = LEAST
        return taken

    def __contains__(self, key: object) -> bool:
        return key in self.keys

    def __iter__(self) -> Iterator[K]:
        return iter(self.keys)

    def __len__(self) -> int:
        return len(self.keys)


class ChangedKeys(Generic[K]):
    """The keys of one kind of change, passed on to every subscribed set."""

    __slots__ = ("_readers",)

    def __init__(self) -> None:
        self._readers: list[KeySet[K]] = []

    def subscribe(self, worth: Callable[[K], bool]) -> KeySet[K]:
        """A new set for a reader; `worth` says whether an unread key still has to be looked at."""
        return self.feed(KeySet(worth))

    def feed(self, keys: KeySet[K]) -> KeySet[K]:
        """Add these keys to a set that a reader has already, too."""
        self._readers.append(keys)
        return keys

    def add(self, key: K) -> None:
        for reader in self._readers:
            reader.keys.add(key)
            if len(reader.keys) > reader.limit:
                reader.drop()

    def update(self, keys: Iterable[K]) -> None:
        for key in keys:
            self.add(key)
