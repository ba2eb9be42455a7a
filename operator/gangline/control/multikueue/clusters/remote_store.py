"""The objects of ours that one cluster was last seen to hold, in bounded memory."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import partial
from typing import Final

from gangline.api.jobkinds.declaration import SPEC_SUSPEND
from gangline.control.multikueue.clusters import copies
from gangline.control.multikueue.clusters.copies import Copy
from gangline.jobs.base import RunsElsewhere
from gangline.kube import resources as kube
from gangline.kube.reflector import Event, Removed, Upsert
from gangline.kube.resources import Json, Resource, as_revision, key_of

#: objects of one cluster with our label; a cluster with more is given up
MOST_OBJECTS: Final = 100_000


#: jobs that were finished when they were deleted there, whose end is kept until it is known here
MOST_ENDED: Final = 1_000


class TooManyError(Exception):
    """The cluster holds more objects with our label than are kept."""


class RemoteStore:
    """The copies of Workloads, and their jobs, that a cluster was last seen to hold. `changed` is called with the key of each
    Workload whose copy or job has changed. Events of each kind arrive in order, and answers to writes beside them: a version that
    is older than the known one is dropped. `kinds`: of the jobs.
    """

    def __init__(self, changed: Callable[[str], None], kinds: Iterable[RunsElsewhere] = ()) -> None:
        self._changed = changed
        self._kinds = {kind.resource: kind for kind in kinds}
        self._copies: dict[str, Copy] = {}
        self._jobs: dict[tuple[Resource, str], Json] = {}
        self._by_workload: dict[str, set[tuple[Resource, str]]] = {}
        self._any_family = False
        self._ended: dict[str, dict[str, Json]] = {}

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

    def jobs_of(self, workload: str) -> dict[str, Json]:
        """The jobs that name this Workload, by their names: those of one kind, should there be several."""
        kind = self.kind_of_jobs(workload)
        found = sorted(key for resource, key in self._by_workload.get(workload, ()) if resource == kind)
        return {key.partition("/")[2]: self._jobs[kind, key] for key in found} if kind is not None else {}

    def ended_jobs_of(self, workload: str) -> dict[str, Json]:
        """The jobs, by their names, that had finished when somebody else deleted them in that cluster."""
        return self._ended.get(workload, {})

    def kind_of_jobs(self, workload: str) -> Resource | None:
        found = self._by_workload.get(workload)
        return min(found, key=lambda ref: ref[1])[0] if found else None

    def job(self, resource: Resource, key: str) -> Json | None:
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

    def decode(self, resource: Resource) -> Callable[[Json], object]:
        if resource == kube.WORKLOADS:
            return copies.read_workload
        kind = self._kinds.get(resource)
        if kind is None:
            return partial(copies.read_job, suspension=SPEC_SUSPEND)
        return partial(copies.read_job, suspension=kind.suspension, followed=kind.followed, size=kind.size_of)

    def answered(self, resource: Resource, obj: Json) -> None:
        """Store the answer to a write of ours."""
        self._put(resource, self.decode(resource)(obj))

    def gone(self, resource: Resource, key: str, uid: str, answer: Json) -> None:
        """Store the answer to a deletion of ours: the object is on its way out, or it is not there any more."""
        if answer.get("kind") == resource.kind:
            self.answered(resource, answer)
        else:
            self._drop(resource, key, uid)

    def _put(self, resource: Resource, decoded: object) -> None:
        if len(self) >= MOST_OBJECTS:
            raise TooManyError(f"the cluster has more than {MOST_OBJECTS} objects with this manager's label")
        if isinstance(decoded, tuple):
            key, copy = decoded
            known = self._copies.get(key)
            if known is None or known.uid != copy.uid or as_revision(known.version) <= as_revision(copy.version):
                self._copies[key] = copy
                self._changed(key)
        elif isinstance(decoded, dict):
            self._put_job(resource, decoded)

    def _keep_end(self, resource: Resource, event: Removed) -> None:
        """Keep the end of a deleted job: it may delete itself after its end, before that end was copied to the job here."""
        kind, known = self._kinds.get(resource), self._jobs.get((resource, event.key))
        if kind is None or known is None or known["metadata"]["uid"] != event.uid:
            return
        status = (event.obj or {}).get("status")
        last = {**known, "status": status} if isinstance(status, dict) else known
        if kind.finished(last) is None:
            return
        workload = copies.workload_of(known)
        self._ended.setdefault(workload, {})[event.key.partition("/")[2]] = last
        while len(self._ended) > MOST_ENDED:
            del self._ended[next(iter(self._ended))]

    def _put_job(self, resource: Resource, job: Json) -> None:
        ref = (resource, key_of(job))
        known = self._jobs.get(ref)
        if known is not None:
            then, now = known["metadata"], job["metadata"]
            if then["uid"] == now["uid"] and as_revision(then["resourceVersion"]) > as_revision(now["resourceVersion"]):
                return
            self._forget_job(ref, known)
        self._jobs[ref] = job
        workload = copies.workload_of(job)
        self._ended.pop(workload, None)
        self._any_family = self._any_family or copies.is_family(workload)
        self._by_workload.setdefault(workload, set()).add(ref)
        self._changed(workload)

    def _drop(self, resource: Resource, key: str, uid: str) -> None:
        if resource == kube.WORKLOADS:
            known = self._copies.get(key)
            if known is not None and known.uid == uid:
                del self._copies[key]
                self._changed(key)
            return
        ref = (resource, key)
        job = self._jobs.get(ref)
        if job is not None and job["metadata"]["uid"] == uid:
            self._forget_job(ref, job)

    def _forget_job(self, ref: tuple[Resource, str], job: Json) -> None:
        del self._jobs[ref]
        workload = copies.workload_of(job)
        named = self._by_workload.get(workload, set())
        named.discard(ref)
        if not named:
            self._by_workload.pop(workload, None)
        self._changed(workload)
