"""Finds out which API versions a server serves, for everybody who waits for one of them."""

from __future__ import annotations

import asyncio
import time

import orjson

from gangline.kube.client import ApiClient
from gangline.kube.errors import ApiError
from gangline.kube.resources import Json


class ServedVersions:
    """Asks the server for its API versions, at most once every `period` seconds, however many wait."""

    def __init__(self, client: ApiClient, period: float) -> None:
        self._client = client
        self._period = period
        #: such as "ray.io/v1"; None: the server could not tell
        self._versions: frozenset[str] | None = frozenset()
        self._asked = float("-inf")
        self._asking = asyncio.Lock()

    async def wait_for(self, api_version: str) -> None:
        """Returns after `period` seconds, and not before the server serves this version, as far as it can tell."""
        while True:
            await asyncio.sleep(self._period)
            versions = await self._newest()
            if versions is None or api_version in versions:
                return

    async def _newest(self) -> frozenset[str] | None:
        async with self._asking:
            if time.monotonic() - self._asked >= self._period:
                self._versions = await self._ask()
                self._asked = time.monotonic()
        return self._versions

    async def _ask(self) -> frozenset[str] | None:
        try:
            groups: list[Json] = orjson.loads(await self._client.raw("/apis"))["groups"]
            return frozenset(version["groupVersion"] for group in groups for version in group["versions"])
        except (ApiError, ValueError, KeyError, TypeError):
            return None
