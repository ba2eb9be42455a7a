"""The watches of an operator process: one per kind, what of it is listed, and which kinds the cluster does not serve."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from functools import partial

from gangline.api import names
from gangline.control.feed import watched_kinds
from gangline.control.isolation.intake import received
from gangline.kube import resources as kube
from gangline.kube.client import ApiClient
from gangline.kube.discovery import ServedVersions
from gangline.kube.reflector import Event, Reflector, ReflectorGroup
from gangline.kube.resources import Resource
from gangline.objects import PodObject

log = logging.getLogger(__name__)

#: A kind that is not served, because its product is not installed, is found within this time of its installation, in seconds.
ABSENT_RETRY = 5.0
#: How long the first decision waits for the list of pods, in seconds.
PODS_WITHIN = 30.0
#: How long the first lists may take before it is logged which are missing, in seconds; then as often again.
SLOW_LISTS = 10.0


class Watches:
    """A watch of each kind whose objects the mirror keeps, and one of pods, which does not hold up the others.

    `deliver` names their receivers, before they run. `on_rewind` is called when the store was restored from a backup.
    """

    def __init__(self, client: ApiClient, *, on_rewind: Callable[[str], None]) -> None:
        self._group = ReflectorGroup()
        served = ServedVersions(client, ABSENT_RETRY / 2)
        self._pods = Reflector(client, kube.PODS, decode=PodObject, on_rewind=on_rewind)
        self._pod_events: Callable[[Event], None] = lambda event: None
        self._by_resource = {
            resource: Reflector(
                client,
                resource,
                label_selector=watched_kinds.selector(resource),
                decode=partial(received, resource),
                optional=resource in watched_kinds.optional(),
                absent_retry=ABSENT_RETRY,
                served=served,
                on_rewind=on_rewind,
            )
            for resource in watched_kinds.resources()
        }

    def deliver(self, sink: Callable[[Resource], Callable[[Event], None]]) -> None:
        """Deliver the events of each kind to what `sink` returns for it."""
        self._pod_events = sink(kube.PODS)
        for resource, reflector in self._by_resource.items():
            self._group.add(reflector, sink(resource))

    async def run(self) -> None:
        """Watch everything but pods, until cancelled."""
        await self._group.run()

    async def run_pods(self) -> None:
        """Watch pods, until cancelled."""
        await self._pods.run(self._pod_events)

    def served(self, resource: Resource) -> bool:
        """Whether the cluster has this kind."""
        return not self._by_resource[resource].absent

    def unlisted(self) -> list[str]:
        """The kinds whose first list is missing."""
        return [str(resource) for resource in self._group.missing()]

    async def wait_listed(self) -> None:
        """Returns once everything but pods is listed."""
        await self._group.wait_synced()

    async def first_lists(self) -> None:
        """Returns once everything but pods is listed, with a line of log from time to time about what is missing."""
        while not self._group.synced:
            try:
                async with asyncio.timeout(SLOW_LISTS):
                    await self.wait_listed()
            except TimeoutError:
                log.info("waiting for the first list of %s", ", ".join(self.unlisted()))

    async def list_once_more(self) -> None:
        """List everything but pods again: it is what is stored now that counts."""
        for reflector in self._group:
            reflector.synced.clear()
            reflector.restart("leading", relist=True)
        await self.wait_listed()

    async def know_pods(self) -> None:
        """Wait for the pods before the first decision, but not forever."""
        try:
            async with asyncio.timeout(PODS_WITHIN):
                await self._pods.synced.wait()
        except TimeoutError:
            log.warning("pods are not known after %g s: leading without them", PODS_WITHIN)

    def expect(self, resource: Resource, key: str, version: str) -> None:
        """Note that somebody else saw this version of an object: a watch that does not bring it soon reconnects."""
        self._by_resource[resource].expect(key, version)

    def warn_of_absent_kinds(self) -> None:
        """Warn of Gangline kinds that are missing. Kueue's kinds are enough to admit workloads, but that may be an oversight."""
        absent = [resource for resource, reflector in self._by_resource.items() if reflector.absent]
        if ours := [resource for resource in absent if resource.group == names.OWN_GROUP]:
            log.warning(
                "there are no %s until their CRDs are installed (gangline admin crds | kubectl apply -f -)",
                " or ".join(map(str, ours)),
            )
