"""Jobs here that still show pods of another cluster although no Workload speaks for them any more.

Usually a Workload stays until nothing is left of it in other clusters, and its job shows that (`planning`). But a user may remove
its finalizer, or delete a prebuilt one. Nobody else writes the status of a job that another cluster runs: while it shows pods,
the quota of the departed Workload is held, and the job is not queued again.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from functools import partial

from gangline.api.admission.multikueue import CONTROLLER
from gangline.api.jobkinds.declaration import at
from gangline.control.checks.multikueue.clusters.remote_cluster import RemoteCluster
from gangline.control.checks.multikueue.workloads import local_changes
from gangline.control.feed.changes import JobRef
from gangline.control.feed.mirror import Mirror
from gangline.control.feed.watched_kinds import JOB_KINDS
from gangline.control.isolation.quarantine import Quarantine
from gangline.control.isolation.time_limit import limited
from gangline.control.parts.attempts import Attempts
from gangline.control.writes.outgoing import Priority
from gangline.control.writes.writes import Writes
from gangline.jobs.base import RunsOnOtherCluster
from gangline.kube.errors import ApiError
from gangline.kube.resources import Json, ObjectKey
from gangline.objects import JobObject, WorkloadObject


class PartedJobs:
    """The jobs that lost their Workload. `kinds`: of the jobs that are sent; `patience`: ms after which what a lost cluster ran
    counts as ended.
    """

    def __init__(
        self,
        mirror: Mirror,
        writes: Writes,
        quarantine: Quarantine,
        kinds: Iterable[RunsOnOtherCluster],
        patience: int,
        *,
        wake: Callable[[], None],
    ) -> None:
        self._mirror = mirror
        self._writes = writes
        self._quarantine = quarantine
        self._kinds = {kind.resource: kind for kind in kinds if kind.managed_by and kind.resource in JOB_KINDS}
        self._patience = patience
        self._parted: set[JobRef] = set()
        self._attempts = Attempts[JobRef](lambda ref: wake())
        #: when a lost cluster is given up for which one of them waits, in ms; None: for none
        self.due: int | None = None

    def __bool__(self) -> bool:
        """Whether there is a job that still shows pods."""
        return bool(self._parted)

    def look_at(self, changed: Iterable[JobRef]) -> None:
        """Note jobs that have changed, or lost their Workload."""
        self._parted.update(ref for ref in changed if self._is_parted(ref))

    def act(self, clusters: Mapping[str, RemoteCluster], now: int) -> None:
        """Make jobs that no cluster runs show no pods any more."""
        self.due = None
        self._parted = {ref for ref in self._parted if self._is_parted(ref)}
        for ref in sorted(self._parted, key=lambda each: each[1]):
            work = partial(self._look, ref, clusters, now)
            if self._attempts.ready(ref) and not self._quarantine.attempt("ending it", *ref, work):
                self._parted.discard(ref)

    def _is_parted(self, ref: JobRef) -> bool:
        kind, job = self._kinds.get(ref[0]), self._mirror.job(ref)
        if kind is None or job is None or at(job, kind.managed_by) != CONTROLLER:
            return False
        return JOB_KINDS[ref[0]].finished(job) is None and not any(
            _speaks(workload) for workload in self._mirror.workloads_of(job)
        )

    def _look(self, ref: JobRef, clusters: Mapping[str, RemoteCluster], now: int) -> None:
        job = self._mirror.job(ref)
        status = limited(lambda: self._kinds[ref[0]].mirrored(job, None)) if job is not None else None
        if job is None or status is None:
            self._parted.discard(ref)
            return
        if any(cluster.connected and cluster.store.job(*ref) is not None for cluster in clusters.values()):
            return
        lost = [cluster.lost_at for cluster in clusters.values() if not cluster.connected]
        given_up = max(lost, default=0) + self._patience
        if lost and given_up > now:
            self.due = min(given_up, self.due or given_up)
            return
        self._write(ref, job, status)

    def _write(self, ref: JobRef, job: JobObject, status: Json) -> None:
        self._attempts.sent(ref)
        self._writes.send(
            ObjectKey.of(ref[0], job),
            "status",
            local_changes.mirrored(job, status),
            priority=Priority.LIFECYCLE,
            slot="multikueue",
            done=lambda _: self._written(ref),
            failed=partial(self._refused, ref),
        )

    def _written(self, ref: JobRef) -> None:
        self._attempts.resolved(ref)
        self._attempts.forgive(ref)

    def _refused(self, ref: JobRef, error: ApiError) -> None:
        self._attempts.resolved(ref)
        if not self._writes.expected(error):
            self._attempts.pause(ref)


def _speaks(workload: WorkloadObject) -> bool:
    """Whether the Workload speaks for its job: it holds quota, is on its way out, or has finished."""
    return workload.quota_reserved or "admission" in workload.status or workload.deleting or workload.finished
