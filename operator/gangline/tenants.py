"""Room and turns that namespaces share: none of them can take them from the others.

Where memory is bounded for all namespaces together, dropping the oldest entry would let one namespace, which writes most,
displace the entries of all others. Here the namespace that has most loses its own oldest one.
"""

from __future__ import annotations

from collections import OrderedDict, deque
from collections.abc import Callable, Hashable, Iterable, Iterator
from typing import Generic, TypeVar

K = TypeVar("K", bound=Hashable)
V = TypeVar("V")
T = TypeVar("T")


class Sizes:
    """How many entries each namespace has. The largest one is found in constant time, however many namespaces there are."""

    def __init__(self) -> None:
        self.total = 0
        self._of: dict[str, int] = {}
        self._with: dict[int, dict[str, None]] = {}  # number of entries -> the namespaces that have so many
        self._most = 0

    def of(self, namespace: str) -> int:
        return self._of.get(namespace, 0)

    def add(self, namespace: str) -> None:
        self._change(namespace, 1)

    def remove(self, namespace: str) -> None:
        self._change(namespace, -1)

    def largest(self) -> str:
        """The namespace with most entries. KeyError without any."""
        return next(iter(self._with[self._most]))

    def _change(self, namespace: str, by: int) -> None:
        before = self._of.get(namespace, 0)
        after = before + by
        self.total += by
        if before:
            peers = self._with[before]
            del peers[namespace]
            if not peers:
                del self._with[before]
        if after:
            self._of[namespace] = after
            self._with.setdefault(after, {})[namespace] = None
        else:
            del self._of[namespace]
        if after > self._most or self._most not in self._with:
            self._most = after


class SharedRoom(Generic[K, V]):
    """Memory for at most `most` entries of all namespaces together. Beyond that, the namespace with most entries loses the one
    that it has used least lately.
    """

    def __init__(self, most: int) -> None:
        self._room = most
        self._sizes = Sizes()
        self._entries: dict[str, OrderedDict[K, V]] = {}

    def __len__(self) -> int:
        return self._sizes.total

    def get(self, namespace: str, key: K) -> V | None:
        """The entry, if there is one. It does not count as used."""
        entries = self._entries.get(namespace)
        return entries.get(key) if entries is not None else None

    def use(self, namespace: str, key: K, make: Callable[[], V]) -> V:
        """The entry, which is made if there is none. It counts as used."""
        entries = self._entries.get(namespace)
        if entries is not None and key in entries:
            entries.move_to_end(key)
            return entries[key]
        value = make()
        self.put(namespace, key, value)
        return value

    def put(self, namespace: str, key: K, value: V) -> None:
        """Keep an entry, instead of what was there. It counts as used."""
        entries = self._entries.setdefault(namespace, OrderedDict())
        if key not in entries:
            self._sizes.add(namespace)
        entries[key] = value
        entries.move_to_end(key)
        while len(self) > self._room:
            self.drop_oldest(self._sizes.largest())

    def drop_oldest(self, namespace: str) -> None:
        """Drop the entry of this namespace that it has used least lately."""
        entries = self._entries[namespace]
        entries.popitem(last=False)
        self._sizes.remove(namespace)
        if not entries:
            del self._entries[namespace]

    def drop(self, namespace: str, key: K) -> None:
        """Drop an entry, if there is one."""
        if (entries := self._entries.get(namespace)) is not None and entries.pop(key, None) is not None:
            self._sizes.remove(namespace)
            if not entries:
                del self._entries[namespace]

    def oldest(self, namespace: str) -> V | None:
        """The entry of this namespace that it has used least lately."""
        entries = self._entries.get(namespace)
        return next(iter(entries.values())) if entries else None

    def values(self) -> Iterator[V]:
        for entries in self._entries.values():
            yield from entries.values()


class InTurn(Generic[T]):
    """What waits, one of each namespace in turn, those of one namespace in their order.

    With a limit for all together, the oldest one of the namespace of which most wait is dropped.
    """

    def __init__(self, most: int | None = None) -> None:
        self._room = most
        self._sizes = Sizes()
        self._waiting: OrderedDict[str, deque[T]] = OrderedDict()

    def __len__(self) -> int:
        return self._sizes.total

    def put(self, namespace: str, item: T) -> T | None:
        """Let it wait. Returns the one that is dropped for it."""
        self._waiting.setdefault(namespace, deque()).append(item)
        self._sizes.add(namespace)
        if self._room is None or len(self) <= self._room:
            return None
        return self._take(self._sizes.largest())

    def take(self) -> T:
        """The next one, which waits no more. KeyError without any."""
        namespace = next(iter(self._waiting), None)
        if namespace is None:
            raise KeyError("nothing waits")
        self._waiting.move_to_end(namespace)
        return self._take(namespace)

    def _take(self, namespace: str) -> T:
        waiting = self._waiting[namespace]
        item = waiting.popleft()
        self._sizes.remove(namespace)
        if not waiting:
            del self._waiting[namespace]
        return item


def fair_limit(sizes: Iterable[int], room: int) -> int:
    """How many entries each namespace may keep at most, so that all keep `room` together; what small ones leave is divided among
    the others.
    """
    rows = sorted(sizes)
    for number, size in enumerate(rows):
        share = room // (len(rows) - number)
        if size > share:
            return share
        room -= size
    return rows[-1] if rows else room
