"""Flavors whose nodes an autoscaler makes are bounded by quota, until it can make no more."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from tests.api.test_autoscalers import NOW, YAML, a_pool, status
from tests.context import a_context

from gangline.control.checks.provisioning.autoscalers import Autoscalers
from gangline.control.feed.mirror import Mirror
from gangline.engine import model
from gangline.kube import resources as kube
from gangline.kube.errors import NotFound
from gangline.kube.resources import Resource

Json = dict[str, Any]


class Published:
    """In place of the API server: the status of the autoscaler and NodePools, where there are any."""

    def __init__(self) -> None:
        self.status: Json | None = None
        self.pools: list[Json] | None = None

    async def get(self, resource: Resource, namespace: str, name: str) -> Json:
        assert (resource, namespace, name) == (kube.CONFIG_MAPS, "kube-system", "cluster-autoscaler-status")
        if self.status is None:
            raise NotFound(404)
        return self.status

    async def list(self, resource: Resource) -> Any:
        assert resource == kube.NODE_POOLS
        if self.pools is None:
            raise NotFound(404)
        return SimpleNamespace(items=self.pools)


class Place:
    """A flavor with a node of GKE."""

    def __init__(self, **annotations: str) -> None:
        self.known: dict[str, model.Flavor] = {}
        self.mirror = Mirror(self._observe)
        self.published = Published()
        self.woken = 0
        self.part = Autoscalers(a_context(client=self.published, mirror=self.mirror, now=lambda: NOW, wake=self._wake))  # type: ignore[arg-type]
        meta = {"name": "h100", "uid": "f", "resourceVersion": "1", "annotations": annotations}
        self.mirror.upsert(kube.RESOURCE_FLAVORS, {"metadata": meta, "spec": {"nodeLabels": {"gpu": "h100"}}})
        meta = {"name": "gke-prod-gpu-1a2b3c4d-x9z8", "uid": "n", "resourceVersion": "2", "labels": {"gpu": "h100"}}
        self.mirror.upsert(kube.NODES, {"metadata": meta, "spec": {}, "status": {}})

    def _observe(self, change: model.Change) -> None:
        if isinstance(change, model.Put) and isinstance(change.item, model.Flavor):
            self.known[change.item.name] = change.item

    def _wake(self) -> None:
        self.woken += 1

    async def look(self) -> bool:
        self.part._tell(*await self.part._published())
        return self.known["h100"].autoscaled


async def test_a_flavor_whose_node_group_can_grow_is_bounded_by_quota() -> None:
    place = Place()
    assert not await place.look()
    place.published.status = status(YAML)
    assert await place.look() and place.woken == 1
    assert await place.look() and place.woken == 1, "nothing new"
    place.published.status = status(YAML.replace("maxSize: 10", "maxSize: 3"))
    assert not await place.look(), "it has all the nodes that it may have"
    place.published.status = status(YAML)
    assert await place.look()
    place.published.status = None
    assert not await place.look(), "the autoscaler was removed"


async def test_a_flavor_that_changes_stays_one_that_can_grow() -> None:
    place = Place()
    place.published.status = status(YAML)
    assert await place.look()
    meta = {"name": "h100", "uid": "f", "resourceVersion": "3"}
    labels = {"gpu": "h100", "zone": "a"}
    place.mirror.upsert(kube.RESOURCE_FLAVORS, {"metadata": meta, "spec": {"nodeLabels": labels}})
    assert place.known["h100"].autoscaled
    assert not await place.look(), "its nodes are others now"


async def test_the_annotation_decides() -> None:
    place = Place(**{"gangline.io/autoscaled": "false"})
    place.published.status = status(YAML)
    assert not await place.look()
    assert await Place(**{"gangline.io/autoscaled": "true"}).look()


async def test_one_node_pool_that_cannot_be_read_costs_no_other() -> None:
    place = Place()
    place.published.pools = [{"metadata": {"name": "odd"}, "spec": {"template": 7}}, a_pool([], gpu="h100")]
    assert await place.look()
