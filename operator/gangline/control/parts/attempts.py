"""Decides when a part may look at a key again: not while writes for it are in flight, and after a refusal only when a pause is
over.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable, Hashable
from typing import Final, Generic, TypeVar

K = TypeVar("K", bound=Hashable)

#: The pauses after refusals in a row are 1, 2, 4, … seconds, at most this.
LONGEST_PAUSE: Final = 60.0
#: doublings that are more than enough for it: a key may be refused for months
_DOUBLINGS: Final = 16


class Attempts(Generic[K]):
    """Writes in flight and refusals in a row, by key. `again` is called with a key whose pause is over. Other keys go on."""

    def __init__(self, again: Callable[[K], None]) -> None:
        self._again = again
        self._in_flight: Counter[K] = Counter()
        self._refusals: dict[K, int] = {}
        self._pausing: set[K] = set()

    def ready(self, key: K) -> bool:
        return not self._in_flight[key] and key not in self._pausing

    def in_flight(self, key: K) -> bool:
        return self._in_flight[key] > 0

    def sent(self, key: K) -> None:
        """Note that a write for this key is in flight."""
        self._in_flight[key] += 1

    def resolved(self, key: K) -> None:
        """Note that a write for this key has succeeded or was refused."""
        self._in_flight[key] -= 1
        if self._in_flight[key] <= 0:
            del self._in_flight[key]

    def forgive(self, key: K) -> None:
        """Forget refusals: the next one counts as the first one."""
        self._refusals.pop(key, None)

    def pause(self, key: K) -> None:
        """Let a key rest, of which something was refused, longer after each refusal in a row."""
        before = self._refusals.get(key, 0)
        self._refusals[key] = before + 1
        self._pausing.add(key)
        asyncio.get_running_loop().call_later(min(LONGEST_PAUSE, 2.0 ** min(before, _DOUBLINGS)), self._over, key)

    def _over(self, key: K) -> None:
        self._pausing.discard(key)
        self._again(key)
