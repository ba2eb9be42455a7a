"""Flavors whose nodes a cluster autoscaler makes: found by what it publishes, so that no annotation is needed.

Such a flavor is bounded by quota, not by the nodes that there are: nodes come only once pods wait for them. A flavor whose node
groups have all the nodes that they may have is bounded by these nodes. Where a flavor has the annotation
`gangline.io/autoscaled`, that decides, with "false" as with "true".
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from typing import Final

from gangline.api import names
from gangline.api.read import autoscalers
from gangline.api.read.autoscalers import KarpenterNodePool, NodeGroup
from gangline.api.read.reading import ParseError
from gangline.control.kernel.context import Context
from gangline.control.parts.part import Part
from gangline.kube import resources as kube
from gangline.kube.client import ApiError
from gangline.kube.errors import NotFound
from gangline.objects import Stored

log = logging.getLogger(__name__)

#: seconds between two looks: the autoscaler writes its status as often
PERIOD: Final = 10.0


class Autoscalers(Part):
    """Looks at what autoscalers publish, and says in the mirror which flavors can grow. Only the leader decides, and looks."""

    name = "autoscalers"

    def __init__(self, context: Context) -> None:
        self._client = context.client
        self._mirror = context.mirror
        self._now = context.now
        self._wake = context.wake

    async def run(self, leading: Callable[[], bool]) -> None:
        """Run until cancelled."""
        while True:
            if leading():
                try:
                    groups, pools = await self._published()
                    self._tell(groups, pools)
                except ApiError as error:
                    log.info("what cluster autoscalers publish could not be read: %s", error)
                except Exception:
                    log.exception("flavors could not be checked for cluster autoscalers")
            await asyncio.sleep(PERIOD)

    async def _published(self) -> tuple[tuple[NodeGroup, ...], list[KarpenterNodePool]]:
        try:
            groups = autoscalers.node_groups(
                await self._client.get(kube.CONFIG_MAPS, *autoscalers.STATUS_MAP), self._now()
            )
        except NotFound:
            groups = ()
        try:
            listed = [Stored(pool) for pool in (await self._client.list(kube.NODE_POOLS)).items]
        except NotFound:
            listed = []
        return groups, [pool for pool in map(_readable, listed) if pool is not None]

    def _tell(self, groups: tuple[NodeGroup, ...], pools: list[KarpenterNodePool]) -> None:
        growing = {key: by for key, flavor in self._flavors() if (by := self._growth(flavor, groups, pools))}
        before, self._mirror.growing = self._mirror.growing, growing
        for key in sorted(before.keys() ^ growing.keys()):
            if key in growing:
                log.info("nodes of ResourceFlavor %s can come by %s: it is bounded by quota", key, growing[key])
            else:
                log.info("no more nodes of ResourceFlavor %s can come: those that there are bound it", key)
            self._mirror.read_again(kube.RESOURCE_FLAVORS, key)
            self._wake()

    def _flavors(self) -> list[tuple[str, Stored]]:
        """The flavors without an annotation that says whether they can grow."""
        return [
            (key, flavor)
            for key, flavor in self._mirror.objects[kube.RESOURCE_FLAVORS].items()
            if names.AUTOSCALED not in flavor.annotations
        ]

    def _growth(self, flavor: Stored, groups: tuple[NodeGroup, ...], pools: list[KarpenterNodePool]) -> str:
        selected = flavor.spec.get("nodeLabels") or {}
        if not selected or not (groups or pools):
            return ""
        nodes = ((name, node.labels) for name, node in self._mirror.nodes.items())
        mine = [(name, found) for name, found in nodes if selected.items() <= found.items()]
        return autoscalers.growth(selected, mine, groups, pools)


def _readable(obj: Stored) -> KarpenterNodePool | None:
    try:
        return autoscalers.node_pool(obj)
    except ParseError as error:
        log.info("NodePool %s is left aside: %s", obj.name, error)
        return None
