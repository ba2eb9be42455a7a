"""The stand-in's controller: it watches, and advances one JobSet after the other.

One at a time, so that a chosen domain is known to be taken when the next one is chosen. The API server's answer to a write
counts as seen at once.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from collections.abc import Callable, Set
from pathlib import Path
from typing import Final

import yaml

from gangline.devcluster.errors import DevClusterError
from gangline.devcluster.jobset import children, domains
from gangline.devcluster.jobset.presence import is_stand_in
from gangline.devcluster.jobset.reconcile import (
    CreateChildJob,
    DeleteChildJob,
    PatchChildJob,
    Reconciled,
    Step,
    reconcile,
)
from gangline.kube.client import AlreadyExists, ApiClient, ApiError, Conflict, NotFound
from gangline.kube.reflector import Event, Reflector, ReflectorGroup, Removed, Upsert
from gangline.kube.resources import (
    CUSTOM_RESOURCE_DEFINITIONS,
    JOB_SETS,
    JOBS,
    NODES,
    PODS,
    SERVICES,
    Json,
    Resource,
    controller_of,
    key_of,
)

log = logging.getLogger(__name__)


WATCHED: Final = (JOB_SETS, JOBS, SERVICES, PODS, NODES)
CRD: Final = Path(__file__).with_name("crd.yaml")
#: after a write that was refused, in seconds
RETRY: Final = 1.0
#: for the API server to serve a new kind, in seconds
SERVED_WITHIN: Final = 30.0


async def install(client: ApiClient) -> None:
    """Install the CRD. Raises DevClusterError if JobSet itself is installed: two controllers would fight."""
    crd = yaml.safe_load(CRD.read_text())
    try:
        await client.create(CUSTOM_RESOURCE_DEFINITIONS, None, crd)
    except AlreadyExists:
        found = await client.get(CUSTOM_RESOURCE_DEFINITIONS, None, crd["metadata"]["name"])
        if not is_stand_in(found):
            message = (
                f"{crd['metadata']['name']} is installed already: this cluster has JobSet itself and needs no stand-in"
            )
            raise DevClusterError(message) from None
    deadline = time.monotonic() + SERVED_WITHIN
    while not await _served(client):
        if time.monotonic() > deadline:
            raise DevClusterError(f"JobSets are not served after {SERVED_WITHIN:g} s")
        await asyncio.sleep(0.1)


async def _served(client: ApiClient) -> bool:
    try:
        await client.list(JOB_SETS)
    except NotFound:
        return False
    return True


class StandIn:
    """Watches a cluster and acts as JobSet. `run()` ends by cancellation only."""

    def __init__(self, client: ApiClient) -> None:
        self._client = client
        self._objects: dict[Resource, dict[str, Json]] = {resource: {} for resource in WATCHED}
        self._due: set[str] = set()
        self._waiting: set[str] = set()  # for a free domain
        self._wake = asyncio.Event()
        self._reflectors = ReflectorGroup()
        for resource in WATCHED:
            self._reflectors.add(Reflector(client, resource), self._sink(resource))

    async def run(self, ready: Callable[[], None] = lambda: None) -> None:
        """Run; `ready` is called once all objects are known."""
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self._reflectors.run())
            await self._reflectors.wait_synced()
            ready()
            while True:
                await self._wake.wait()
                self._wake.clear()
                while self._due:
                    await self._turn(self._due.pop())

    # --- in ---

    def _sink(self, resource: Resource) -> Callable[[Event], None]:
        def take(event: Event) -> None:
            match event:
                case Upsert(obj):
                    self._learn(resource, obj)
                case Removed(key, uid):
                    known = self._objects[resource].get(key)
                    if known is not None and known["metadata"]["uid"] == uid:
                        self._mark(resource, self._objects[resource].pop(key))
                case _:
                    pass

        return take

    def _learn(self, resource: Resource, obj: Json) -> None:
        """Store the newest version of an object; older ones are ignored."""
        known = self._objects[resource].get(key_of(obj))
        if (
            known is not None
            and known["metadata"]["uid"] == obj["metadata"]["uid"]
            and _version(known) >= _version(obj)
        ):
            return
        self._objects[resource][key_of(obj)] = obj
        self._mark(resource, obj)

    def _mark(self, resource: Resource, obj: Json) -> None:
        """Mark the JobSets that have to be examined because `obj` changed."""
        if resource == JOB_SETS:
            self._due.add(key_of(obj))
        elif resource == JOBS and (name := _controller_name(obj)):
            self._due.add(f"{obj['metadata']['namespace']}/{name}")
        if resource in (JOBS, PODS, NODES):
            self._due |= self._waiting
        if self._due:
            self._wake.set()

    # --- out ---

    async def _turn(self, key: str) -> None:
        """Advance one JobSet."""
        self._waiting.discard(key)
        job_set = self._objects[JOB_SETS].get(key)
        if job_set is None or job_set["metadata"].get("deletionTimestamp"):
            return
        try:
            outcome = self._decide(job_set)
        except (TypeError, ValueError, LookupError, AttributeError) as error:  # its CRD accepts invalid JobSets
            log.warning("%s is no JobSet: %r", key, error)
            return
        if outcome.waits:
            self._waiting.add(key)
        try:
            for step in outcome.steps:
                await self._take(step)
            if outcome.status != (job_set.get("status") or {}):
                await self._report(job_set, outcome.status)
        except Conflict:
            self._later(key, 0.05)  # another write was faster; the watch is about to show it
        except ApiError as error:
            log.warning("%s: %s", key, error)
            self._later(key, RETRY)

    def _decide(self, job_set: Json) -> Reconciled:
        meta = job_set["metadata"]
        jobs = self._objects[JOBS].values()
        mine = [job for job in jobs if _controller_uid(job) == meta["uid"]]
        services = {
            service["metadata"]["name"]
            for service in self._objects[SERVICES].values()
            if service["metadata"]["namespace"] == meta["namespace"]
        }
        return reconcile(job_set, mine, services, self._choose)

    def _choose(self, child: children.Child, other_than: Set[str]) -> str:
        nodes, pods, jobs = (list(self._objects[resource].values()) for resource in (NODES, PODS, JOBS))
        return domains.choose(child, nodes, pods, jobs, other_than)

    async def _take(self, step: Step) -> None:
        match step:
            case CreateChildJob(resource, body):
                self._learn(resource, await self._client.create(resource, body["metadata"]["namespace"], body))
            case PatchChildJob(job, body, subresource):
                meta = job["metadata"]
                fenced = {**body, "metadata": {"resourceVersion": meta["resourceVersion"]}}
                changed = await self._client.patch(
                    JOBS, meta["namespace"], meta["name"], fenced, subresource=subresource
                )
                self._learn(JOBS, changed)
            case DeleteChildJob(job):
                meta = job["metadata"]
                with contextlib.suppress(NotFound):
                    await self._client.delete(
                        JOBS, meta["namespace"], meta["name"], propagation="Foreground", uid=meta["uid"]
                    )

    async def _report(self, job_set: Json, status: Json) -> None:
        meta = job_set["metadata"]
        body = {"metadata": {"resourceVersion": meta["resourceVersion"]}, "status": status}
        self._learn(
            JOB_SETS, await self._client.patch(JOB_SETS, meta["namespace"], meta["name"], body, subresource="status")
        )

    def _later(self, key: str, seconds: float) -> None:
        def again() -> None:
            self._due.add(key)
            self._wake.set()

        asyncio.get_running_loop().call_later(seconds, again)


def _version(obj: Json) -> int:
    return int(obj["metadata"]["resourceVersion"])


def _controller(obj: Json) -> Json:
    return controller_of(obj) or {}


def _controller_uid(obj: Json) -> str:
    return _controller(obj).get("uid", "")


def _controller_name(obj: Json) -> str:
    """The name of the JobSet that controls an object, "" for other objects."""
    found = _controller(obj)
    return found["name"] if found.get("kind") == JOB_SETS.kind else ""
