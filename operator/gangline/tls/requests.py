"""Limits on the requests of our servers, so that no client can fill their memory or take all of their time.

`connections` limits who may connect. Here: how many bytes the body of a request has, how long it may take to arrive, how many
bytes all bodies have together, and how many requests are answered at a time. One client gets only a part of these. When all of
it is taken, a request that still arrives or waits gives way, of the client that has most, to one of a client that has less.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterable, AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Final

#: seconds after which a client that was refused may ask again
RETRY_AFTER: Final = 1
_TOO_MANY: Final = "too many requests at a time: send it again in a moment"
_TOO_MANY_QUESTIONS: Final = "too many questions at a time: ask again in a moment"


class TooLargeError(Exception):
    """The body of a request is longer than allowed."""


class BusyError(Exception):
    """There are too many requests: this one may be sent again after so many seconds."""

    def __init__(self, message: str, retry_after: int = RETRY_AFTER) -> None:
        super().__init__(message)
        self.retry_after = retry_after

    @property
    def headers(self) -> dict[str, str]:
        return {"Retry-After": str(self.retry_after)}


@dataclass(slots=True, eq=False)
class _Arriving:
    """A body that has not arrived in full."""

    client: str
    time: asyncio.Timeout
    size: int = 0
    gave_way: bool = False


@dataclass(slots=True)
class Bodies:
    """Reads bodies of at most `longest` bytes that arrive within `within` seconds.

    All bodies that are read or used at a time have at most `together` bytes, those of one client at most `per_client`. Bytes
    count when they have arrived: who announces many and sends none takes nothing. Beyond `together`, the oldest of the bodies
    that are still arriving from the client with most bytes is given up.
    """

    longest: int
    within: float
    together: int
    per_client: int
    _held: Counter[str] = field(default_factory=Counter[str])
    _arriving: list[_Arriving] = field(default_factory=list[_Arriving])

    @asynccontextmanager
    async def read(self, chunks: AsyncIterable[bytes], client: str) -> AsyncIterator[bytes]:
        """The whole body, which counts until the block ends. Raises TooLargeError, TimeoutError and BusyError."""
        body = _Arriving(client, asyncio.timeout(self.within))
        try:
            whole = await self._arrived(chunks, body)
            yield whole
        finally:
            self._give_back(body)

    async def _arrived(self, chunks: AsyncIterable[bytes], body: _Arriving) -> bytes:
        parts: list[bytes] = []
        self._arriving.append(body)
        try:
            async with body.time:
                async for chunk in chunks:
                    body.size += len(chunk)
                    self._held[body.client] += len(chunk)
                    if body.size > self.longest:
                        raise TooLargeError(f"the body has more than {self.longest} bytes")
                    if self._held[body.client] > self.per_client or not self._has_room(body):
                        raise BusyError(_TOO_MANY)
                    parts.append(chunk)
        except TimeoutError:
            if body.gave_way:
                raise BusyError(_TOO_MANY) from None
            raise
        finally:
            self._arriving.remove(body)
        if body.gave_way:
            raise BusyError(_TOO_MANY)
        return b"".join(parts)

    def _has_room(self, body: _Arriving) -> bool:
        """Makes room for the body where others have more that is still arriving."""
        while self._held.total() > self.together:
            others = (each for each in self._arriving if each is not body and each.size and not each.time.expired())
            most = max(others, key=lambda each: self._held[each.client], default=None)
            if most is None or self._held[most.client] <= self._held[body.client]:
                return False
            most.gave_way = True
            most.time.reschedule(0)
            self._give_back(most)
        return True

    def _give_back(self, body: _Arriving) -> None:
        self._held[body.client] -= body.size
        body.size = 0
        if not self._held[body.client]:
            del self._held[body.client]


class Turnstile:
    """Lets so many pass at a time, and so many wait; one client counts for at most `per_client` of them.

    When as many wait as may, the last that waits of the client that counts for most gives way to one that counts for fewer.
    """

    def __init__(self, at_once: int, waiting: int, per_client: int) -> None:
        self._free = at_once
        self._most_waiting = waiting
        self._per_client = per_client
        self._waiting: list[tuple[str, asyncio.Future[None]]] = []
        self._clients: Counter[str] = Counter()

    @asynccontextmanager
    async def turn(self, client: str) -> AsyncIterator[None]:
        """Wait for a client's turn and hold it for the length of a `with`. Raises BusyError."""
        if self._clients[client] >= self._per_client or not self._has_room(client):
            raise BusyError(_TOO_MANY_QUESTIONS)
        self._clients[client] += 1
        try:
            await self._pass(client)
            try:
                yield
            finally:
                self._pass_on()
        finally:
            self._clients[client] -= 1
            if not self._clients[client]:
                del self._clients[client]

    def _has_room(self, client: str) -> bool:
        if self._free or len(self._waiting) < self._most_waiting:
            return True
        most, last = max(reversed(self._waiting), key=lambda each: self._clients[each[0]], default=("", None))
        if last is None or self._clients[most] <= self._clients[client] + 1:
            return False
        self._waiting.remove((most, last))
        last.set_exception(BusyError(_TOO_MANY_QUESTIONS))
        return True

    async def _pass(self, client: str) -> None:
        if self._free:
            self._free -= 1
            return
        turn: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.append((client, turn))
        try:
            await turn
        except asyncio.CancelledError:
            if (client, turn) in self._waiting:
                self._waiting.remove((client, turn))
            elif not turn.cancelled() and turn.exception() is None:
                self._pass_on()  # it came too late
            raise

    def _pass_on(self) -> None:
        while self._waiting:
            _, turn = self._waiting.pop(0)
            if not turn.done():
                turn.set_result(None)
                return
        self._free += 1
