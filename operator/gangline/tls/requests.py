"""Limits on the requests of our servers, so that no client can fill their memory or take all of their time.

`connections` limits who may connect. Here: how many bytes the body of a request has, how long it may take to arrive, how many
bytes all bodies have together, and how many requests are answered at a time. One client gets only a part of these.
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


@dataclass(slots=True)
class Bodies:
    """Reads bodies of at most `longest` bytes that arrive within `within` seconds.

    All bodies that are read or used at a time have at most `together` bytes, those of one client at most `per_client`. Bytes
    count when they have arrived: who announces many and sends none takes nothing.
    """

    longest: int
    within: float
    together: int
    per_client: int
    _held: Counter[str] = field(default_factory=Counter[str])

    @asynccontextmanager
    async def read(self, chunks: AsyncIterable[bytes], client: str) -> AsyncIterator[bytes]:
        """The whole body, which counts until the block ends. Raises TooLargeError, TimeoutError and BusyError."""
        parts: list[bytes] = []
        size = 0
        try:
            async with asyncio.timeout(self.within):
                async for chunk in chunks:
                    size += len(chunk)
                    self._held[client] += len(chunk)
                    if size > self.longest:
                        raise TooLargeError(f"the body has more than {self.longest} bytes")
                    if self._held[client] > self.per_client or self._held.total() > self.together:
                        raise BusyError("too many requests at a time: send it again in a moment")
                    parts.append(chunk)
            yield b"".join(parts)
        finally:
            self._held[client] -= size
            if not self._held[client]:
                del self._held[client]


class Turnstile:
    """Lets so many pass at a time, and so many wait; one client counts for at most `per_client` of them."""

    def __init__(self, at_once: int, waiting: int, per_client: int) -> None:
        self._turns = asyncio.Semaphore(at_once)
        self._most = at_once + waiting
        self._per_client = per_client
        self._clients: Counter[str] = Counter()

    @asynccontextmanager
    async def turn(self, client: str) -> AsyncIterator[None]:
        """Wait for a client's turn and hold it for the length of a `with`. Raises BusyError."""
        if self._clients[client] >= self._per_client or self._clients.total() >= self._most:
            raise BusyError("too many questions at a time: ask again in a moment")
        self._clients[client] += 1
        try:
            async with self._turns:
                yield
        finally:
            self._clients[client] -= 1
            if not self._clients[client]:
                del self._clients[client]
