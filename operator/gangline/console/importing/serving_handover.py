"""Gives a running Deployment or StatefulSet a queue without a roll-out.

The webhook marks its pod template, so that pods that come later wait. A changed template makes the controller replace all pods.
So that it does not, what it compares is changed alike while it holds still:

- a Deployment is paused meanwhile, and its ReplicaSet gets the same marks: its template is that of the Deployment then;
- a StatefulSet replaces only pods that somebody deletes (`OnDelete`) meanwhile, and its pods get the marks and the new revision.

A LeaderWorkerSet rolls out, if that is allowed: its controller compares templates of its own making.

What has to be restored is kept in an annotation, so an import that was interrupted is completed by the next one. Each step waits
until the controller has seen the one before.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Mapping
from typing import Final

import orjson

from gangline import bounded
from gangline.api import names
from gangline.api.admission.of_jobs.jobs import queue_name
from gangline.api.jobkinds import serving
from gangline.api.jobkinds.declaration import mapping_at
from gangline.console.importing.conflicts import again
from gangline.console.importing.serving_planning import is_marked
from gangline.jobs.pods.held import REVISION
from gangline.kube import resources as kube
from gangline.kube.client import ApiClient
from gangline.kube.errors import NotFound
from gangline.kube.resources import Json, Resource, controller_uid

DEPLOYMENT: Final = serving.DEPLOYMENT.framework
_STATEFUL_SET: Final = serving.STATEFUL_SET.framework
#: seconds that a controller has to see a change
_PATIENCE: Final = 60.0
_PAUSE: Final = 0.2
_LONGEST: Final = 4096


class UnmarkedError(Exception):
    """Says that the webhooks or a controller do not go along."""


async def deployment(api: ApiClient, obj: Json, queue: str, labels: Mapping[str, str]) -> None:
    """Give a running Deployment its queue. Raises ApiError and UnmarkedError."""
    target = _Target(api, kube.DEPLOYMENTS, obj)
    if _is_done(await target.read(), queue):
        return

    def held(found: Json) -> tuple[Json, Json]:
        return {"paused": bool(found["spec"].get("paused"))}, {"paused": True}

    await again(lambda: target.give_queue(queue, labels, held))
    found = await target.until_observed()
    made = await _replica_set(api, obj)
    template = mapping_at(found, (*serving.TEMPLATE, "metadata"))
    marks = {part: template[part] for part in ("labels", "annotations") if part in template}
    sets = _Target(api, kube.REPLICA_SETS, made)
    await sets.patch({"metadata": {"uid": made["metadata"]["uid"]}, "spec": {"template": {"metadata": marks}}})
    await sets.until_observed()
    await again(lambda: target.restore(lambda kept: {"paused": bool(kept.get("paused")) or None}))


async def _replica_set(api: ApiClient, obj: Json) -> Json:
    """The ReplicaSet that has made the Deployment's pods."""
    listed = (await api.list(kube.REPLICA_SETS, obj["metadata"]["namespace"])).items
    mine = [each for each in listed if controller_uid(each) == obj["metadata"]["uid"]]
    active = [each for each in mine if (each.get("spec") or {}).get("replicas") or 0]
    if len(active) != 1:
        raise UnmarkedError(f"it has {len(active)} ReplicaSets with pods: it is rolling out")
    return active[0]


async def stateful_set(api: ApiClient, obj: Json, queue: str, labels: Mapping[str, str]) -> None:
    """Give a running StatefulSet its queue. Raises ApiError and UnmarkedError."""
    target = _Target(api, kube.STATEFUL_SETS, obj)

    def held(found: Json) -> tuple[Json, Json]:
        kept = {"updateStrategy": found["spec"].get("updateStrategy") or {"type": "RollingUpdate"}}
        return kept, {"updateStrategy": {"type": "OnDelete", "rollingUpdate": None}}

    await again(lambda: target.give_queue(queue, labels, held))
    found = await target.until_observed()
    revision = found["status"]["updateRevision"]
    listed = (await api.list(kube.PODS, obj["metadata"]["namespace"])).items
    mine = [pod for pod in listed if controller_uid(pod) == obj["metadata"]["uid"]]
    for pod in mine:
        await _mark_pod(api, pod, revision)
    # all that exist: its pods may be fewer than its replicas when one of them was deleted meanwhile
    await target.until(
        lambda now: now["status"].get("updatedReplicas", 0) >= now["status"].get("replicas", 0), "has counted its pods"
    )
    await again(lambda: target.restore(lambda kept: {"updateStrategy": kept.get("updateStrategy")}))


async def leader_worker_set(api: ApiClient, obj: Json, queue: str, labels: Mapping[str, str]) -> None:
    """Give a LeaderWorkerSet its queue. Its controller replaces its groups, one after the other, and each waits in the queue from
    then on.

    Raises ApiError and UnmarkedError.
    """
    target = _Target(api, kube.LEADER_WORKER_SETS, obj)
    if not _is_done(await target.read(), queue):
        await again(lambda: target.give_queue(queue, labels, lambda found: ({}, {})))
        await again(lambda: target.restore(lambda kept: {}))


async def _mark_pod(api: ApiClient, pod: Json, revision: str) -> None:
    """Mark a pod as if it had been made from the template as it is now."""
    meta = pod["metadata"]
    notes = {names.SUSPENDED_BY_PARENT: _STATEFUL_SET}
    if names.SUSPENDED_BY_PARENT not in _annotations(pod):
        notes[names.IMPORTED_AT] = str(int(time.time()))
    change: Json = {"uid": meta["uid"], "labels": {REVISION: revision}, "annotations": notes}
    try:
        await api.patch(kube.PODS, meta["namespace"], meta["name"], {"metadata": change})
    except NotFound:
        return  # its StatefulSet makes another, which waits


class _Target:
    """One object that a controller of Kubernetes drives."""

    def __init__(self, api: ApiClient, resource: Resource, obj: Json) -> None:
        self._api = api
        self._resource = resource
        self._namespace, self._name = obj["metadata"]["namespace"], obj["metadata"]["name"]

    async def read(self) -> Json:
        return await self._api.get(self._resource, self._namespace, self._name)

    async def patch(self, body: Json, *, dry_run: bool = False) -> Json:
        query = {"dryRun": "All"} if dry_run else {}
        return await self._api.patch(self._resource, self._namespace, self._name, body, query=query)

    async def give_queue(
        self, queue: str, labels: Mapping[str, str], held: Callable[[Json], tuple[Json, Json]]
    ) -> None:
        """Write in one patch the queue's name, the fields that are restored later, and those that make the controller wait;
        `held` returns both kinds of fields.
        """
        found = await self.read()
        if names.IMPORTING in _annotations(found):
            return  # an import that was interrupted has written it
        kept, still = held(found)
        meta: Json = {
            "resourceVersion": found["metadata"]["resourceVersion"],
            "labels": {**labels, names.QUEUE_NAME: queue},
            "annotations": {names.IMPORTING: orjson.dumps(kept).decode()},
        }
        body: Json = {"metadata": meta, "spec": still}
        if not is_marked(await self.patch(body, dry_run=True)):
            raise UnmarkedError("the webhooks do not mark its pod template: does their configuration list its kind?")
        await self.patch(body)

    async def restore(self, spec: Callable[[Json], Json]) -> None:
        found = await self.read()
        written = _annotations(found).get(names.IMPORTING)
        if written is None:
            return
        try:
            kept = bounded.load_json(written, most_bytes=_LONGEST)
        except ValueError:  # somebody else has written it
            kept = {}
        meta = {"resourceVersion": found["metadata"]["resourceVersion"], "annotations": {names.IMPORTING: None}}
        await self.patch({"metadata": meta, "spec": spec(kept if isinstance(kept, dict) else {})})

    async def until_observed(self) -> Json:
        return await self.until(
            lambda now: (now.get("status") or {}).get("observedGeneration", 0) >= now["metadata"]["generation"],
            "has seen the change",
        )

    async def until(self, holds: Callable[[Json], bool], what: str) -> Json:
        deadline = time.monotonic() + _PATIENCE
        while not holds(found := await self.read()):
            if time.monotonic() > deadline:
                raise UnmarkedError(f"its controller never {what}: the next import goes on from here")
            await asyncio.sleep(_PAUSE)
        return found


def _is_done(obj: Json, queue: str) -> bool:
    return queue_name(obj) == queue and is_marked(obj) and names.IMPORTING not in _annotations(obj)


def _annotations(obj: Json) -> Mapping[str, str]:
    return obj["metadata"].get("annotations") or {}
