"""Watches workloads and queues: one snapshot per change."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from typing import TYPE_CHECKING, Final, TypeAlias

import click

from gangline.console.views import asking
from gangline.control.answers.api.discovery import ANSWERS
from gangline.control.answers.workloads.snapshot import HOLDING, AnswerSnapshot, JobState, WorkloadView, snapshot
from gangline.kube.client import ApiClient, key_of
from gangline.kube.errors import ApiError, Expired
from gangline.kube.resources import CLUSTER_QUEUES, LOCAL_QUEUES, WORKLOADS, Json, Resource
from gangline.objects import LocalQueueObject, Stored, WorkloadObject

if TYPE_CHECKING:
    from gangline.kube.reflector import Event

Key: TypeAlias = tuple[Resource, str]

#: changes within this time are shown together, seconds
COALESCE = 0.15


class WatchedCluster:
    """The latest JSON of all workloads and queues."""

    def __init__(self) -> None:
        self._objects: dict[Resource, dict[str, Json]] = {r: {} for r in (WORKLOADS, CLUSTER_QUEUES, LOCAL_QUEUES)}
        self._changed = asyncio.Event()

    def sink(self, resource: Resource, event: Event) -> None:
        from gangline.kube.reflector import Removed, Upsert  # for a live table only, as below

        objects = self._objects[resource]
        match event:
            case Upsert(obj):
                objects[key_of(obj)] = obj
            case Removed(key):
                objects.pop(key, None)
            case _:
                pass
        self._changed.set()

    def now(self) -> AnswerSnapshot:
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
    from gangline.kube.reflector import Reflector, ReflectorGroup

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


def changes(before: AnswerSnapshot | None, after: AnswerSnapshot) -> list[WorkloadView]:
    """The workloads to report: new ones, and those with another state or another pending reason.

    Causes come before effects: finished and stopping workloads first, then pending ones, then started ones.
    """
    known = {v.uid: v for v in before.workloads} if before else {}
    news = [v for v in after.workloads if _is_news(known.get(v.uid), v)]
    return sorted(news, key=lambda v: _REPORT_ORDER.index(v.state))


_REPORT_ORDER = (
    JobState.SUCCEEDED,
    JobState.FAILED,
    JobState.INACTIVE,
    JobState.STOPPING,
    JobState.PENDING,
    JobState.RESERVED,
    JobState.STARTING,
    JobState.RUNNING,
)


def _is_news(before: WorkloadView | None, after: WorkloadView) -> bool:
    if before is None or before.state is not after.state:
        return True
    return after.state in (JobState.PENDING, JobState.INACTIVE) and before.reason != after.reason


def in_use(seen: AnswerSnapshot) -> int:
    """GPUs that workloads hold now."""
    return sum(v.gpus for v in seen.workloads if v.state in HOLDING)


# --- following --------------------------------------------------------------------------------------------------------
#
# Follows what happens to jobs: the operator's stream of events, as a signal to look again, or event by event.


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
