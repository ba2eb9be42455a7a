"""Watches workloads and queues: one snapshot per change."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from typing import TypeAlias

from gangline.control.answers.workloads.snapshot import HOLDING, Snapshot, State, WorkloadView, snapshot
from gangline.kube.client import ApiClient, key_of
from gangline.kube.reflector import Event, Reflector, ReflectorGroup, Removed, Upsert
from gangline.kube.resources import CLUSTER_QUEUES, LOCAL_QUEUES, WORKLOADS, Json, Resource
from gangline.objects import LocalQueueObject, Stored, WorkloadObject

Key: TypeAlias = tuple[Resource, str]

#: changes within this time are shown together, seconds
COALESCE = 0.15


class WatchedCluster:
    """The latest JSON of all workloads and queues."""

    def __init__(self) -> None:
        self._objects: dict[Resource, dict[str, Json]] = {r: {} for r in (WORKLOADS, CLUSTER_QUEUES, LOCAL_QUEUES)}
        self._changed = asyncio.Event()

    def sink(self, resource: Resource, event: Event) -> None:
        objects = self._objects[resource]
        match event:
            case Upsert(obj):
                objects[key_of(obj)] = obj
            case Removed(key):
                objects.pop(key, None)
            case _:
                pass
        self._changed.set()

    def now(self) -> Snapshot:
        workloads, cluster_queues, local_queues = (list(objects.values()) for objects in self._objects.values())
        return snapshot(
            map(WorkloadObject, workloads), map(Stored, cluster_queues), map(LocalQueueObject, local_queues)
        )

    async def wait(self, at_most: float) -> None:
        """Return shortly after a change, or after `at_most` seconds."""
        with suppress(TimeoutError):
            async with asyncio.timeout(at_most):  # asyncio.wait_for loses a Ctrl-C that comes at the moment of a change
                await self._changed.wait()
            await asyncio.sleep(COALESCE)
        self._changed.clear()


@asynccontextmanager
async def watching(api: ApiClient) -> AsyncIterator[WatchedCluster]:
    """A Watch that receives watch events while the block runs."""
    watch = WatchedCluster()
    group = ReflectorGroup()
    for resource in (WORKLOADS, CLUSTER_QUEUES, LOCAL_QUEUES):
        group.add(Reflector(api, resource), lambda event, of=resource: watch.sink(of, event))
    following = asyncio.create_task(group.run(), name="watch the queues")
    try:
        await group.wait_synced()
        yield watch
    finally:
        following.cancel()
        with suppress(asyncio.CancelledError):
            await following


def changes(before: Snapshot | None, after: Snapshot) -> list[WorkloadView]:
    """The workloads to report: new ones, and those with another state or another pending reason.

    Causes come before effects: finished and stopping workloads first, then pending ones, then started ones.
    """
    known = {v.uid: v for v in before.workloads} if before else {}
    news = [v for v in after.workloads if _is_news(known.get(v.uid), v)]
    return sorted(news, key=lambda v: _REPORT_ORDER.index(v.state))


_REPORT_ORDER = (
    State.SUCCEEDED,
    State.FAILED,
    State.INACTIVE,
    State.STOPPING,
    State.PENDING,
    State.RESERVED,
    State.STARTING,
    State.RUNNING,
)


def _is_news(before: WorkloadView | None, after: WorkloadView) -> bool:
    if before is None or before.state is not after.state:
        return True
    return after.state in (State.PENDING, State.INACTIVE) and before.reason != after.reason


def in_use(seen: Snapshot) -> int:
    """GPUs that workloads hold now."""
    return sum(v.gpus for v in seen.workloads if v.state in HOLDING)
