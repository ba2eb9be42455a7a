"""Limits on the connections of the operator's own servers: nobody can keep them busy by being slow.

aiohttp limits sizes, and how long a connection may stay idle between two requests. What it lacks is done here: a request's head
has to come within a time, and when there are too many connections, those that wait longest for a request are closed.
"""

from __future__ import annotations

import asyncio
import time
from dataclasses import dataclass, field
from typing import Any, Final

from aiohttp import web

#: seconds in which the head of a request has to be there, from the connection or the request before: a little longer than aiohttp
#: keeps an idle connection, so that clients which keep theirs are told in the usual way
HEAD_WITHIN: Final = 80.0
#: connections at a time
MOST: Final = 256
#: seconds between two looks
PERIOD: Final = 1.0


@dataclass(slots=True)
class ConnectionWatch:
    """Looks at all connections of a server of aiohttp now and then, and closes those that are not entitled to stay."""

    server: web.Server
    head_within: float = HEAD_WITHIN
    most: int = MOST
    period: float = PERIOD
    #: how many connections were closed
    closed: int = 0
    #: connection -> since when it waits for a request
    _waiting: dict[Any, float] = field(default_factory=dict[Any, float])

    async def run(self) -> None:
        """Runs until cancelled."""
        while True:
            await asyncio.sleep(self.period)
            self.look(time.monotonic())

    def look(self, now: float) -> None:
        connections = self.server.connections
        idle = [each for each in connections if each._current_request is None]
        self._waiting = {each: self._waiting.get(each, now) for each in idle}
        oldest = sorted(self._waiting, key=self._waiting.__getitem__)
        surplus = len(connections) - self.most
        for number, connection in enumerate(oldest):
            if number < surplus or now - self._waiting[connection] > self.head_within:
                self._close(connection)

    def _close(self, connection: Any) -> None:
        del self._waiting[connection]
        transport = connection.transport
        if transport is not None:
            self.closed += 1
            transport.abort()
