"""Feeds the cluster's events, except those of pods, into the mirror."""

from __future__ import annotations

import asyncio
import logging
from typing import Final

from gangline.control.feed import watched_kinds
from gangline.control.feed.mirror import Mirror
from gangline.control.feed.tracking import Tracking
from gangline.control.isolation.intake import is_head
from gangline.control.isolation.quarantine import Quarantine
from gangline.control.parts.messages import Messages, ObjectRead
from gangline.control.parts.part import Part
from gangline.kube import resources as kube
from gangline.kube.client import ApiClient
from gangline.kube.errors import ApiError, NotFound
from gangline.kube.reflector import Event, Removed, Upsert
from gangline.kube.resources import Json, ObjectKey, Resource
from gangline.objects import view

log = logging.getLogger(__name__)

#: seconds until an object that did not fit into memory is read again
REREAD: Final = 0.2


class ClusterFeed(Part):
    """Stores the objects that watches show, where they are news: not those that a write in flight is about to change, and none
    that the answer to a write has overtaken. Deleted objects leave quarantine.
    """

    name = "cluster"

    def __init__(
        self, client: ApiClient, mirror: Mirror, tracking: Tracking, messages: Messages, quarantine: Quarantine
    ) -> None:
        self.kinds = tuple(watched_kinds.resources())
        self._client = client
        self._mirror = mirror
        self._tracking = tracking
        self._messages = messages
        self._quarantine = quarantine
        self._reading: asyncio.Task[None] | None = None

    def observe(self, resource: Resource, event: Event) -> None:
        if isinstance(event, Upsert):
            self.seen(resource, event.obj)
        elif isinstance(event, Removed):
            self._quarantine.forget(resource, event.key)
            self.gone(resource, event.key, event.uid)

    def settle(self) -> None:
        self.count_anew()
        self._read_next_whole()

    def seen(self, resource: Resource, obj: Json) -> None:
        """Store an object as it was shown, if that is news."""
        stored = view(resource, obj)
        if not self._tracking or self._tracking.seen(ObjectKey.of(resource, stored), stored):
            self._mirror.upsert(resource, stored)

    def gone(self, resource: Resource, key: str, uid: str) -> None:
        """Remove an object that was deleted, by its uid. Its successor of the same name may be known already from a create's
        answer.
        """
        known = self._mirror.get(resource, key)
        if known is None or known.uid == uid:
            self._tracking.gone(ObjectKey.parse(resource, key), uid)
            self._mirror.remove(resource, key)

    def count_anew(self) -> None:
        """Let the engine see Workloads that count differently now. Those in doubt are read when their write is resolved."""
        for key in self._mirror.recounted():
            if not self._tracking.in_doubt(ObjectKey.parse(kube.WORKLOADS, key)):
                self._mirror.count_anew(key)

    # --- objects of which only the head was kept ---

    def _read_next_whole(self) -> None:
        """Read an object again, one at a time, of which only the head was kept, where its namespace has room for it now."""
        found = self._mirror.intake.next_whole() if self._reading is None else None
        if found is not None:
            self._reading = asyncio.get_running_loop().create_task(self._read_whole(ObjectKey.parse(*found)))

    async def _read_whole(self, key: ObjectKey) -> None:
        try:
            self.seen(key.resource, await self._client.get(key.resource, key.namespace or None, key.name))
            stored = self._mirror.get(key.resource, key.text)
            if stored is not None and is_head(stored):  # it has grown, or a write of it is in doubt
                await asyncio.sleep(REREAD)
        except NotFound:
            self._mirror.intake.give_up(key.resource, key.text)  # the watch is about to show its end
        except ApiError as trouble:
            log.info("%s could not be read: %s", key, trouble)
            await asyncio.sleep(REREAD)
        finally:
            self._reading = None
            self._messages.publish(ObjectRead(key))
