"""A namespace that is being deleted gives its jobs no quota any more, though its queues are still there."""

from __future__ import annotations

from typing import Any

import pytest

from gangline.control.feed.mirror import Mirror
from gangline.engine import model
from gangline.kube import resources as kube

Json = dict[str, Any]


def _namespace(*, version: int, leaving: bool) -> Json:
    metadata: Json = {"name": "ns", "uid": "ns", "resourceVersion": str(version)}
    return {"metadata": metadata | ({"deletionTimestamp": "2026-11-24T00:00:00Z"} if leaving else {})}


@pytest.mark.parametrize("namespace_first", [True, False])
def test_its_queues_count_as_ending(namespace_first: bool) -> None:
    changes: list[model.Change] = []
    mirror = Mirror(changes.append)
    mirror.upsert(kube.NAMESPACES, _namespace(version=1, leaving=namespace_first))
    metadata = {"namespace": "ns", "name": "lq", "uid": "lq", "resourceVersion": "2"}
    mirror.upsert(kube.LOCAL_QUEUES, {"metadata": metadata, "spec": {"clusterQueue": "cq"}})
    other = {**metadata, "namespace": "other", "uid": "other"}
    mirror.upsert(kube.LOCAL_QUEUES, {"metadata": other, "spec": {"clusterQueue": "cq"}})
    if not namespace_first:
        mirror.upsert(kube.NAMESPACES, _namespace(version=3, leaving=True))
    queues = {item.item.key: item.item for item in changes if isinstance(item, model.Put)
              and isinstance(item.item, model.LocalQueue)}  # fmt: skip
    assert queues["ns/lq"].terminating
    assert not queues["other/lq"].terminating
