"""StatefulSets and LeaderWorkerSets that run in another cluster, while the pods of those here wait at their gates.

Their controllers here write their status, and know no field that keeps them away: so they show no pod that is ready.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import Final

from gangline.api import names
from gangline.api.jobkinds.declaration import JobError, JobOutcome, Path, Suspension
from gangline.jobs.serving import BY_RESOURCE
from gangline.kube.resources import Json, Resource
from gangline.objects import JobObject

#: Workloads of one object that are sent: each of them looks at all others
MOST_GROUPS: Final = 1000


class ServingElsewhere:
    """Implements `gangline.jobs.base.RunsElsewhere`."""

    managed_by: Path = ()
    pods_wait = True
    #: its pods wait, it is never suspended itself
    suspension: Suspension = Suspension(("spec", "(no field)"))

    def __init__(self, resource: Resource) -> None:
        self.resource = resource
        self._kind = BY_RESOURCE[resource]
        self.followed: Sequence[Path] = self._kind.declaration.followed

    @property
    def api_version(self) -> str:
        return self.resource.api_version

    @property
    def kind(self) -> str:
        return self.resource.kind

    @property
    def shared(self) -> bool:
        return self._kind.has_many

    def unsendable(self, job: JobObject) -> str:
        try:
            size = self._kind.size(job)
        except JobError as error:
            return str(error)
        return f"it has {size} groups, and at most {MOST_GROUPS} are sent" if size > MOST_GROUPS else ""

    def family(self, job: JobObject) -> Sequence[str]:
        """The names of all Workloads that it has, in the order of their groups; () where it cannot be sent."""
        if self.unsendable(job):
            return ()
        return _names(self.resource, job.name, job.uid, self._kind.size(job))

    def size_of(self, job: JobObject) -> Json:
        return {}

    def resized(self, remote: JobObject, job: JobObject) -> Json:
        return {}

    def marks(self, job: JobObject) -> Mapping[str, str]:
        """The annotation with the UID that the object has here, which the names of its Workloads there contain."""
        return {names.MULTIKUEUE_ORIGIN_UID: job.uid}

    def sent(self, job: JobObject, pod_sets: Sequence[Json]) -> Json:
        return dict(job.spec)

    def finished(self, job: JobObject) -> JobOutcome | None:
        return None

    def mirrored(self, job: JobObject, remote: JobObject | None) -> Json | None:
        return None


@lru_cache(maxsize=256)
def _names(resource: Resource, name: str, uid: str, size: int) -> tuple[str, ...]:
    kind, job = BY_RESOURCE[resource], JobObject({"metadata": {"name": name, "uid": uid}})
    return tuple(kind.workload_name(job, index) for index in range(size))


SENT: Final[Mapping[Resource, ServingElsewhere]] = {each: ServingElsewhere(each) for each in BY_RESOURCE}
