"""Follows what happens to jobs: the operator's stream of events, as a signal to look again, or event by event."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from typing import Final

import click

from gangline.console.views import asking
from gangline.control.answers.api.discovery import ANSWERS
from gangline.kube.client import ApiClient
from gangline.kube.errors import ApiError, Expired
from gangline.kube.resources import Json, Resource

EVENTS: Final = Resource(ANSWERS.name, ANSWERS.versions[-1], "jobevents")
#: seconds between two looks while events are followed: what they do not tell, such as ages, changes too
SLOWLY: Final = 10.0
#: seconds before a stream that broke is opened again
_PAUSE: Final = 5.0


async def events(api: ApiClient, namespace: str | None, after: str, query: dict[str, str]) -> AsyncIterator[Json]:
    """The events after a version, for ever. Raises ApiError, and Gone where that version is forgotten."""
    while True:
        async for event in api.watch(EVENTS, namespace, resource_version=after, more=query):
            after = event.object["metadata"]["resourceVersion"]
            if event.type == "ADDED":
                yield event.object


class ChangeSignal:
    """Says when to look again: soon after an event, or after some seconds where no operator sends any."""

    def __init__(self) -> None:
        self._changed = asyncio.Event()
        self._live = False

    async def wait(self, seconds: float) -> None:
        with suppress(TimeoutError):
            async with asyncio.timeout(SLOWLY if self._live else seconds):
                await self._changed.wait()
        self._changed.clear()

    async def follow(self, api: ApiClient, namespace: str | None, query: dict[str, str]) -> None:
        """Runs until it is cancelled."""
        while True:
            try:
                path = "/jobevents" if namespace is None else f"/namespaces/{namespace}/jobevents"
                head = await asking.get(api, path, {"limit": 1, "sinceSeconds": 1, **query})
                self._live = True
                self._changed.set()  # whatever happened meanwhile
                async for _ in events(api, namespace, head["metadata"]["resourceVersion"], query):
                    self._changed.set()
            except Expired:
                continue
            except (ApiError, asking.NotServedError, asking.NotAllowedError, click.ClickException):
                self._live = False
            await asyncio.sleep(_PAUSE)


@asynccontextmanager
async def following(api: ApiClient, namespace: str | None, cluster_queue: str = "") -> AsyncIterator[ChangeSignal]:
    """A signal while the block runs; `namespace` None: events of all."""
    signal = ChangeSignal()
    query = {"clusterQueue": cluster_queue} if cluster_queue else {}
    task = asyncio.create_task(signal.follow(api, namespace, query), name="follow events")
    try:
        yield signal
    finally:
        task.cancel()
        with suppress(asyncio.CancelledError):
            await task
