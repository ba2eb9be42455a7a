"""Writes an adoption, in steps that look at what is there: one that was interrupted is completed by running it again.

1. the Workload, gated, so that it does not wait in its queue;
2. its admission;
3. the gate is removed;
4. `HandingOver`: what runs names its queue and its Workload, and is managed from then on.
"""

from __future__ import annotations

import asyncio
import copy
import time
from collections.abc import Awaitable, Callable, Mapping
from typing import Final, TypeVar

import orjson

from gangline import bounded
from gangline.api import names
from gangline.api.admission.of_jobs.identifiers import part_with_room
from gangline.api.admission.of_jobs.jobs import queue_name
from gangline.api.jobkinds import own
from gangline.api.jobkinds.declaration import mapping_at
from gangline.api.read.conditions import mark_observed
from gangline.api.role_hash import role_hash
from gangline.console.importing.adoptions import AdoptableJob, AdoptablePods, Adoption
from gangline.console.importing.assigning import GATE
from gangline.console.importing.serving_planning import is_marked
from gangline.console.views.targets import until_unchanged
from gangline.control.writes.status.status_changes import imported
from gangline.jobs.pods import member
from gangline.jobs.pods.member import REVISION
from gangline.kube import resources as kube
from gangline.kube.client import ApiClient
from gangline.kube.errors import AlreadyExists, NotFound
from gangline.kube.resources import Json, Resource, controller_uid
from gangline.objects import PodObject
from gangline.objects.stored import Stored

# --- writes that others may come before: another attempt after each conflict, on the object as it is then -------------


T = TypeVar("T")
_TRIES: Final = 5


async def again(attempt: Callable[[], Awaitable[T]]) -> T:
    """The result of an attempt, which is repeated after conflicts. Raises Conflict if the last attempt met one, too."""
    return await until_unchanged(attempt, _TRIES)


#: seconds between the last Workload and the first job that is handed over: the operator has seen the Workloads by then
SETTLING: Final = 2.0


class InTheWayError(Exception):
    """Says that something of another owner has the Workload's name."""


async def prepare(api: ApiClient, adoption: Adoption, now: int) -> None:
    """Take steps 1 to 3 of an adoption, at `now` in milliseconds. Raises ApiError and InTheWayError."""
    workload = await _created(api, adoption)
    workload = await again(lambda: _admitted(api, adoption, workload, now))
    await again(lambda: _ungated(api, workload))


async def _created(api: ApiClient, adoption: Adoption) -> Json:
    metadata = adoption.workload["metadata"]
    try:
        return await api.create(kube.WORKLOADS, metadata["namespace"], adoption.workload)
    except AlreadyExists:
        found = await api.get(kube.WORKLOADS, metadata["namespace"], metadata["name"])
    owners = {row["uid"] for row in found["metadata"].get("ownerReferences") or ()}
    if not owners & adoption.job.uids or controller_uid(found) not in (None, *adoption.job.uids):
        raise InTheWayError(f"Workload {metadata['name']} exists already, and belongs to another owner")
    return found


async def _admitted(api: ApiClient, adoption: Adoption, workload: Json, now: int) -> Json:
    metadata = workload["metadata"]
    found = await api.get(kube.WORKLOADS, metadata["namespace"], metadata["name"])
    if Stored(found).true_condition(names.QUOTA_RESERVED) is not None or GATE not in _gates(found):
        return found
    body = copy.deepcopy(found)
    status = body.setdefault("status", {})
    imported(adoption.admission, adoption.checks)(status, now)
    mark_observed({}, status, metadata.get("generation") or 0)
    return await api.replace(kube.WORKLOADS, metadata["namespace"], metadata["name"], body, subresource="status")


async def _ungated(api: ApiClient, workload: Json) -> None:
    metadata = workload["metadata"]
    found = await api.get(kube.WORKLOADS, metadata["namespace"], metadata["name"])
    gates = _gates(found)
    if GATE not in gates:
        return
    left = ",".join(gate for gate in gates if gate != GATE)
    body: Json = {
        "metadata": {
            "resourceVersion": found["metadata"]["resourceVersion"],
            "annotations": {names.ADMISSION_GATED_BY: left or None},
        }
    }
    await api.patch(kube.WORKLOADS, metadata["namespace"], metadata["name"], body)


def _gates(workload: Json) -> list[str]:
    annotations = workload["metadata"].get("annotations") or {}
    return [gate.strip() for gate in annotations.get(names.ADMISSION_GATED_BY, "").split(",")]


# --- gives a running Deployment or StatefulSet a queue without a roll-out ---------------------------------------------
#
# The webhook marks its pod template, so that pods that come later wait. A changed template makes the controller replace all
# pods. So that it does not, what it compares is changed alike while it holds still:
#
# - a Deployment is paused meanwhile, and its ReplicaSet gets the same marks: its template is that of the Deployment then;
# - a StatefulSet replaces only pods that somebody deletes (`OnDelete`) meanwhile, and its pods get the marks and the new
#   revision.
#
# A LeaderWorkerSet rolls out, if that is allowed: its controller compares templates of its own making.
#
# What has to be restored is kept in an annotation, so an import that was interrupted is completed by the next one. Each step
# waits until the controller has seen the one before.


DEPLOYMENT: Final = own.DEPLOYMENT.framework
_STATEFUL_SET: Final = own.STATEFUL_SET.framework
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
    template = mapping_at(found, (*own.TEMPLATE, "metadata"))
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


# --- handing over -----------------------------------------------------------------------------------------------------
#
# The last step of an adoption: what runs names its queue and its Workload, and is managed from then on. It never stops.


class HandingOver:
    """Hands adoptions over whose Workloads are admitted. `labels` are added to what is handed over."""

    def __init__(self, api: ApiClient, labels: Mapping[str, str]) -> None:
        self._api = api
        self._labels = labels
        self._marked: dict[str, asyncio.Task[None]] = {}  # uid of a Deployment -> what all its pods wait for

    async def hand_over(self, adoption: Adoption) -> None:
        """Hand over one adoption. Raises ApiError, and UnmarkedError where the controller or the webhooks do not go along.

        An operator that does not know the Workload yet stops a job as one without quota, hence `adopting.SETTLING`; pods say
        that they were imported, and are given more time.
        """
        subject = adoption.job
        if isinstance(subject, AdoptableJob):
            await self._job(subject, adoption)
        elif isinstance(subject, AdoptablePods):
            await self._pods(subject, adoption)
        else:
            await stateful_set(self._api, subject.obj, adoption.queue, self._labels)

    async def _job(self, job: AdoptableJob, adoption: Adoption) -> None:
        change: Json = {"uid": job.obj.uid, "labels": {**self._labels, names.QUEUE_NAME: adoption.queue}}
        _name_workload(change, adoption)
        try:
            await self._api.patch(job.kind.resource, job.obj.namespace, job.obj.name, {"metadata": change})
        except NotFound:
            return  # it is gone, and its Workload with it

    async def _pods(self, subject: AdoptablePods, adoption: Adoption) -> None:
        if subject.parent is not None:
            uid = subject.parent.uid
            if uid not in self._marked:
                marking = deployment(self._api, subject.parent, adoption.queue, self._labels)
                self._marked[uid] = asyncio.create_task(marking)
            await self._marked[uid]
        for pod in subject.pods:
            await again(lambda pod=pod: self._pod(pod, subject, adoption))

    async def _pod(self, pod: PodObject, subject: AdoptablePods, adoption: Adoption) -> None:
        try:
            found = PodObject(await self._api.get(kube.PODS, pod.namespace, pod.name))
        except NotFound:
            return
        if found.uid != pod.uid or member.is_managed(found):
            return
        annotations = {names.IMPORTED_AT: str(int(time.time()))}
        labels = {**self._labels, names.QUEUE_NAME: adoption.queue, names.MANAGED: "true"}
        change: Json = {
            "resourceVersion": found.resource_version,
            "labels": labels,
            "annotations": annotations,
        }
        if subject.group:  # it keeps its place in its group when it fails
            annotations[names.ROLE_HASH] = found.annotations.get(names.ROLE_HASH) or role_hash(found.spec)
            change["finalizers"] = [*found.finalizers, names.MANAGED]
        if subject.parent is not None:
            annotations[names.SUSPENDED_BY_PARENT] = DEPLOYMENT
        _name_workload(change, adoption)
        try:
            await self._api.patch(kube.PODS, pod.namespace, pod.name, {"metadata": change})
        except NotFound:
            return


def _name_workload(change: Json, adoption: Adoption) -> None:
    name = adoption.workload["metadata"]["name"]
    change.setdefault(part_with_room(name), {})[names.PREBUILT_WORKLOAD] = name
