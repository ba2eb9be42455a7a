"""A kind that another controller queues, and that may be sent to other clusters all the same (`multiKueue.externalFrameworks`).

Nothing here starts, stops or counts it: its controller makes its Workload, here and in the other cluster.
"""

from __future__ import annotations

from collections.abc import Sequence

from gangline.api.jobkinds.declaration import SPEC_SUSPEND, Path, Suspension
from gangline.api.read import merge
from gangline.api.read.configuration.external_frameworks import MANAGED_BY
from gangline.jobs.base import SentAlone
from gangline.kube.resources import Json, Resource
from gangline.objects import JobObject


class ExternalKind(SentAlone):
    """Implements `gangline.jobs.base.RunsElsewhere`."""

    def __init__(self, resource: Resource) -> None:
        self.resource = resource
        #: as in Kueue, whatever the kind
        self.managed_by: Path = MANAGED_BY
        self.suspension: Suspension = SPEC_SUSPEND
        self.followed: Sequence[Path] = ()

    @property
    def api_version(self) -> str:
        return self.resource.api_version

    @property
    def kind(self) -> str:
        return self.resource.kind

    def sent(self, job: JobObject, pod_sets: Sequence[Json]) -> Json:
        return {name: value for name, value in job.spec.items() if name != "managedBy"}

    def mirrored(self, job: JobObject, remote: JobObject | None) -> Json | None:
        """The status of the job in the other cluster. What it says of pods is not known, so the status stays when nothing runs
        for the job any more.
        """
        if remote is None:
            return None
        return remote.status if merge.difference(job.status, remote.status) else None
