"""Questions to the API server with one person's rights: answers of the operator, and objects."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Final

from gangline.control.answers.api import calls
from gangline.control.answers.api.discovery import ANSWERS
from gangline.kube.client import ApiClient
from gangline.kube.resources import Json, Resource
from gangline.ui.sessions import Credentials

LIVE_ROWS: Final = Resource(ANSWERS.name, ANSWERS.versions[-1], "liverows", kind="LiveRow")
#: clients that are kept open, those of persons who asked last
MOST_CLIENTS: Final = 256
#: requests of one person at a time
CONNECTIONS: Final = 8


@dataclass(slots=True)
class _Open:
    client: ApiClient
    users: int = 0
    #: nobody may use it any more: it is closed as soon as nobody does
    dropped: bool = False


class Clients:
    """Open clients of the API server, one for each person who asked lately."""

    def __init__(self) -> None:
        self._open: OrderedDict[str, _Open] = OrderedDict()

    @asynccontextmanager
    async def of(self, credentials: Credentials) -> AsyncIterator[ApiClient]:
        """The client of a person. It stays open as long as the block runs."""
        found = self._open.get(credentials.key)
        if found is None:
            client = ApiClient(credentials.login, connections=CONNECTIONS, timeout=calls.PATIENCE)
            await client.__aenter__()
            found = self._open.setdefault(credentials.key, _Open(client))
            if found.client is not client:  # another task was quicker
                await client.__aexit__(None, None, None)
        self._open.move_to_end(credentials.key)
        found.users += 1
        try:
            yield found.client
        finally:
            found.users -= 1
            if found.dropped and not found.users:
                await found.client.__aexit__(None, None, None)
            await self._drop_oldest()

    async def _drop_oldest(self) -> None:
        while len(self._open) > MOST_CLIENTS:
            await self._drop(next(iter(self._open)))

    async def _drop(self, key: str) -> None:
        found = self._open.pop(key)
        found.dropped = True
        if not found.users:
            await found.client.__aexit__(None, None, None)

    async def close(self) -> None:
        for key in list(self._open):
            await self._drop(key)


async def ask(client: ApiClient, path: str, query: Mapping[str, str] | None = None) -> Json:
    """The operator's answer to a GET of `path` below the group's root. Raises ApiError."""
    return await client.json(calls.get(path, query))


async def ask_with(client: ApiClient, path: str, body: Json) -> Json:
    """The operator's answer to a POST. Raises ApiError."""
    return await client.json(calls.create(path, body))
