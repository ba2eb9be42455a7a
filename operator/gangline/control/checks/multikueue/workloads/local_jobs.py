"""The jobs of a Workload in this cluster: its owner, or the pods that own it together."""

from __future__ import annotations

import zlib
from collections.abc import Callable, Collection, Sequence
from functools import lru_cache
from typing import Final

import orjson

from gangline.api import names
from gangline.control.feed.mirror import Mirror
from gangline.jobs.base import RunsOnOtherCluster
from gangline.jobs.pods.member import GroupPod
from gangline.kube import resources as kube
from gangline.kube.resources import Json, Resource
from gangline.objects import JobObject, PodObject, WorkloadObject

#: unpacked pods that are kept at hand: a group is looked at again with every change of one of its pods
_AT_HAND: Final = 1024


class LocalJobs:
    """The jobs of Workloads in this cluster. `external`: kinds that another controller queues; `pods_of`: the members of the pod
    group behind a Workload.
    """

    def __init__(
        self,
        mirror: Mirror,
        external: Collection[Resource],
        pods_of: Callable[[WorkloadObject], Sequence[GroupPod]],
    ) -> None:
        self._pods_of = pods_of
        self._mirror = mirror
        self._external = external

    def of(self, workload: WorkloadObject, kind: RunsOnOtherCluster | None, owner: Json | None) -> dict[str, JobObject]:
        """The jobs of a Workload by name; {} if they are not there."""
        if kind is None or owner is None:
            job = self._planned(workload)
            return {} if job is None else {job.name: job}
        if kind.resource == kube.PODS:
            owners = {row["uid"] for row in workload.owners}
            return {pod.name: _as_seen(pod) for pod in self._pods_of(workload) if pod.uid in owners}
        if kind.pods_wait or kind.resource in self._external:
            job = self._mirror.job((kind.resource, f"{workload.namespace}/{owner['name']}"))
            return {owner["name"]: job} if job is not None and job.uid == owner["uid"] else {}
        job = self._planned(workload)
        return {} if job is None else {job.name: job}

    def _planned(self, workload: WorkloadObject) -> JobObject | None:
        ref = self._mirror.job_of(workload)
        return self._mirror.job(ref) if ref is not None else None


def owner_of(workload: WorkloadObject) -> Json | None:
    """The owner reference by which a Workload's kind is known: as in Kueue the owner that its annotation names, the controller,
    or the first.
    """
    refs = workload.owners
    said = workload.annotations.get(names.JOB_OWNER_GVK)
    named = next((ref for ref in refs if said and said == f"{ref.get('apiVersion')}, Kind={ref.get('kind')}"), None)
    return named or workload.controller or next(iter(refs), None)


def _as_seen(pod: GroupPod) -> PodObject:
    found = _unpacked(pod.packed)
    meta = {**found["metadata"], "resourceVersion": pod.version}
    if pod.deleted:
        meta["deletionTimestamp"] = pod.deleted
    return PodObject({**found, "metadata": meta})


@lru_cache(maxsize=_AT_HAND)
def _unpacked(packed: bytes) -> Json:
    """The object that was packed. It is not to be changed."""
    return orjson.loads(zlib.decompress(packed))
