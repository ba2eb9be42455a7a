"""The last step of an adoption: what runs names its queue and its Workload, and is managed from then on. It never stops."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Mapping

from gangline.api import names
from gangline.api.admission.of_jobs.identifiers import part_with_room
from gangline.api.role_hash import role_hash
from gangline.console.importing import serving_handover
from gangline.console.importing.adoptions import AdoptableJob, AdoptablePods, Adoption
from gangline.console.importing.conflicts import again
from gangline.jobs.pods import member
from gangline.kube import resources as kube
from gangline.kube.client import ApiClient
from gangline.kube.errors import NotFound
from gangline.kube.resources import Json
from gangline.objects import PodObject


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
            await serving_handover.stateful_set(self._api, subject.obj, adoption.queue, self._labels)

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
                marking = serving_handover.deployment(self._api, subject.parent, adoption.queue, self._labels)
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
            annotations[names.SUSPENDED_BY_PARENT] = serving_handover.DEPLOYMENT
        _name_workload(change, adoption)
        try:
            await self._api.patch(kube.PODS, pod.namespace, pod.name, {"metadata": change})
        except NotFound:
            return


def _name_workload(change: Json, adoption: Adoption) -> None:
    name = adoption.workload["metadata"]["name"]
    change.setdefault(part_with_room(name), {})[names.PREBUILT_WORKLOAD] = name
