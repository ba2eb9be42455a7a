"""The objects of ours that one cluster was last seen to hold, in bounded memory.

A tenant of that cluster may create any number of objects with our label, in its own namespace. So each namespace has room of its
own. Where it is used up, what names a Workload that is not here is left out, and what was seen first gives way to the rest.
"""

from __future__ import annotations

import logging
from collections import OrderedDict
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from functools import partial
from typing import Final, TypeAlias

import orjson

from gangline import tenants
from gangline.api.jobkinds.declaration import SPEC_SUSPEND
from gangline.control.checks.multikueue.clusters import copies
from gangline.control.checks.multikueue.clusters.copies import Copy
from gangline.jobs.base import RunsOnOtherCluster
from gangline.kube import resources as kube
from gangline.kube.reflector import Event, Removed, Upsert
from gangline.kube.resources import Json, Resource, as_revision, namespace_of
from gangline.objects import JobObject

log = logging.getLogger(__name__)

#: objects with our label of one namespace of a cluster, and bytes of what is kept of them: 5,000 jobs with their Workloads take
#: about 20 MB
MOST_OBJECTS: Final = 25_000
MOST_BYTES: Final = 64 << 20
#: the share of both that may name Workloads which are not here
_STRAYS: Final = 4
#: queues of one kind, of all namespaces of a cluster
MOST_QUEUES: Final = 100_000
#: jobs that were finished when they were deleted there, whose end is kept until it is known here
MOST_ENDED: Final = 1_000
#: bytes that an object takes beside its text
_OVERHEAD: Final = 1_000

_Ref: TypeAlias = tuple[Resource, str]
#: what is kept of an object: of a Workload its key and the copy, of a job the job
_Kept: TypeAlias = tuple[str, Copy] | JobObject


class TooManyError(Exception):
    """The cluster holds more queues than are kept."""


@dataclass(slots=True)
class _Room:
    """What one namespace has: bytes by object, those that were seen first at the beginning."""

    weights: OrderedDict[_Ref, int] = field(default_factory=OrderedDict[_Ref, int])
    weight: int = 0
    reported: bool = False

    def put(self, ref: _Ref, weight: int) -> None:
        self.weight += weight - self.weights.get(ref, 0)
        self.weights[ref] = weight

    def drop(self, ref: _Ref) -> None:
        self.weight -= self.weights.pop(ref, 0)

    def is_over(self, parts: int = 1) -> bool:
        return len(self.weights) > MOST_OBJECTS // parts or self.weight > MOST_BYTES // parts


class RemoteStore:
    """The copies of Workloads, and their jobs, that a cluster was last seen to hold. `changed` is called with the key of each
    Workload whose copy or job has changed. Events of each kind arrive in order, and answers to writes beside them: a version that
    is older than the known one is dropped. `kinds`: of the jobs; `is_known`: whether a Workload, or a family of them, is here;
    `name`: of the cluster.
    """

    def __init__(
        self,
        changed: Callable[[str], None],
        kinds: Iterable[RunsOnOtherCluster] = (),
        *,
        is_known: Callable[[str], bool] = lambda key: True,
        name: str = "",
    ) -> None:
        self._changed = changed
        self._is_known = is_known
        self._name = name
        self._rooms: dict[str, _Room] = {}
        self._kinds = {kind.resource: kind for kind in kinds}
        self._copies: dict[str, Copy] = {}
        self._jobs: dict[_Ref, JobObject] = {}
        self._by_workload: dict[str, set[_Ref]] = {}
        self._any_family = False
        self._ended: tenants.SharedRoom[str, dict[str, JobObject]] = tenants.SharedRoom(MOST_ENDED)

    def __len__(self) -> int:
        return len(self._copies) + len(self._jobs)

    def workloads(self) -> set[str]:
        """The Workloads of all copies and jobs."""
        return {*self._copies, *self._by_workload}

    def families(self) -> list[str]:
        """The families that have a job in the cluster."""
        return [key for key in self._by_workload if copies.is_family(key)] if self._any_family else []

    def copy(self, workload: str) -> Copy | None:
        return self._copies.get(workload)

    def jobs_of(self, workload: str) -> dict[str, JobObject]:
        """The jobs that name this Workload, by their names: those of one kind, should there be several."""
        kind = self.kind_of_jobs(workload)
        found = sorted(key for resource, key in self._by_workload.get(workload, ()) if resource == kind)
        return {key.partition("/")[2]: self._jobs[kind, key] for key in found} if kind is not None else {}

    def ended_jobs_of(self, workload: str) -> dict[str, JobObject]:
        """The jobs, by their names, that had finished when they were deleted there, by others than us."""
        return self._ended.get(namespace_of(workload), workload) or {}

    def kind_of_jobs(self, workload: str) -> Resource | None:
        found = self._by_workload.get(workload)
        return min(found, key=lambda ref: ref[1])[0] if found else None

    def job(self, resource: Resource, key: str) -> JobObject | None:
        return self._jobs.get((resource, key))

    def sink(self, resource: Resource) -> Callable[[Event], None]:
        """Takes the events of this kind, whose objects `decode` has reduced."""

        def take(event: Event) -> None:
            if isinstance(event, Upsert):
                self._put(resource, event.obj)
            elif isinstance(event, Removed):
                self._keep_end(resource, event)
                self._drop(resource, event.key, event.uid)

        return take

    def decode(self, resource: Resource) -> Callable[[Json], _Kept]:
        if resource == kube.WORKLOADS:
            return copies.read_workload
        kind = self._kinds.get(resource)
        if kind is None:
            return partial(copies.read_job, suspension=SPEC_SUSPEND)
        return partial(copies.read_job, suspension=kind.suspension, followed=kind.followed, size=kind.size_of)

    def answered(self, resource: Resource, answer: Json) -> None:
        """Store the answer to a write of ours."""
        self._put(resource, self.decode(resource)(answer))

    def gone(self, resource: Resource, key: str, uid: str, answer: Json) -> None:
        """Store the answer to a deletion of ours: the object is on its way out, or it is not there any more."""
        if answer.get("kind") == resource.kind:
            self.answered(resource, answer)
        else:
            self._drop(resource, key, uid)

    def _put(self, resource: Resource, kept: _Kept) -> None:
        if isinstance(kept, JobObject):
            self._put_job(resource, kept)
            return
        key, copy = kept
        known = self._copies.get(key)
        if known is not None and known.uid == copy.uid and as_revision(known.version) > as_revision(copy.version):
            return
        if self._takes((resource, key), key, copy.weight):
            self._copies[key] = copy
            self._changed(key)

    def _keep_end(self, resource: Resource, event: Removed) -> None:
        """Keep the end of a deleted job: it may delete itself after its end, before that end was copied to the job here."""
        kind, known = self._kinds.get(resource), self._jobs.get((resource, event.key))
        if kind is None or known is None or known.uid != event.uid:
            return
        status = (event.obj or {}).get("status")
        last = JobObject({**known, "status": status}) if isinstance(status, dict) else known
        if kind.finished(last) is None:
            return
        workload = copies.workload_of(known)
        if not self._is_known(workload):
            return
        ends = self._ended.use(namespace_of(workload), workload, dict[str, JobObject])
        ends[event.key.partition("/")[2]] = last

    def _put_job(self, resource: Resource, job: JobObject) -> None:
        ref = (resource, job.key)
        known = self._jobs.get(ref)
        if known is not None:
            if known.uid == job.uid and known.revision > job.revision:
                return
            self._forget_job(ref, known)
        workload = copies.workload_of(job)
        if not self._takes(ref, workload, len(orjson.dumps(job))):
            return
        self._jobs[ref] = job
        self._ended.drop(namespace_of(workload), workload)
        self._any_family = self._any_family or copies.is_family(workload)
        self._by_workload.setdefault(workload, set()).add(ref)
        self._changed(workload)

    def _takes(self, ref: _Ref, workload: str, weight: int) -> bool:
        """Whether there is room for an object of this Workload. If that is known here, older ones of the namespace give way."""
        room = self._rooms.setdefault(namespace_of(ref), _Room())
        before = room.weights.get(ref)
        room.put(ref, weight + _OVERHEAD)
        if before is None and room.is_over(_STRAYS) and not self._is_known(workload):
            self._forget(ref)
            self._tell(room, ref)
            return False
        while room.is_over() and len(room.weights) > 1:
            self._tell(room, ref)
            oldest = next(iter(room.weights))
            self._forget(oldest)
            if oldest == ref:
                return False
        return True

    def _tell(self, room: _Room, ref: _Ref) -> None:
        if not room.reported:
            room.reported = True
            text = "cluster %s: namespace %s holds too many objects with this manager's label; some are not looked at"
            log.warning(text, self._name, namespace_of(ref))

    def _forget(self, ref: _Ref) -> None:
        """Leave an object out that is still there."""
        if ref[0] == kube.WORKLOADS:
            copy = self._copies.get(ref[1])
            if copy is not None:
                self._drop(*ref, copy.uid)
        elif (job := self._jobs.get(ref)) is not None:
            self._forget_job(ref, job)
        self._leave(ref)

    def _leave(self, ref: _Ref) -> None:
        """Take an object out of the room of its namespace."""
        namespace = namespace_of(ref)
        if (room := self._rooms.get(namespace)) is not None:
            room.drop(ref)
            if not room.weights:
                del self._rooms[namespace]

    def _drop(self, resource: Resource, key: str, uid: str) -> None:
        if resource == kube.WORKLOADS:
            known = self._copies.get(key)
            if known is not None and known.uid == uid:
                del self._copies[key]
                self._leave((resource, key))
                self._changed(key)
            return
        ref = (resource, key)
        job = self._jobs.get(ref)
        if job is not None and job.uid == uid:
            self._forget_job(ref, job)

    def _forget_job(self, ref: _Ref, job: JobObject) -> None:
        del self._jobs[ref]
        self._leave(ref)
        workload = copies.workload_of(job)
        named = self._by_workload.get(workload, set())
        named.discard(ref)
        if not named:
            self._by_workload.pop(workload, None)
        self._changed(workload)
