"""The slices of elastic jobs that are sent to other clusters: what each of them is here, and whose job a cluster shows."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from gangline.control.checks.multikueue.clusters.copies import workload_of
from gangline.control.checks.multikueue.clusters.remote_store import RemoteStore
from gangline.control.checks.multikueue.plan.steps import Chain, ClusterView
from gangline.control.feed import slices
from gangline.control.feed.mirror import Mirror
from gangline.kube.resources import Resource
from gangline.objects import JobObject, WorkloadObject


class Chains:
    def __init__(self, mirror: Mirror) -> None:
        self._mirror = mirror

    def of(self, workload: WorkloadObject) -> Chain | None:
        """The chain of slices of an elastic job, as one Workload sees it; None for a Workload of a job that is not elastic."""
        if not slices.is_slice(workload):
            return None
        replaces = slices.replacement_for(workload)
        old = self._mirror.workloads.get(replaces) if replaces else None
        waits = old is not None and self._are_of_one_job(old, workload) and not slices.has_ended(old)
        return Chain(over=slices.has_ended(workload), replaces=replaces, waits=waits)

    def as_seen(
        self,
        seen: ClusterView,
        store: RemoteStore,
        workload: WorkloadObject,
        chain: Chain,
        resource: Resource,
        here: Iterable[str],
    ) -> ClusterView:
        """A cluster with the job that the slices use one after the other; `here`: the names of the jobs here."""
        namespace = workload.namespace
        found = {name: job for name in here if (job := store.job(resource, f"{namespace}/{name}")) is not None}
        if chain.over:
            goes_on = any(not job.deleting and self._belongs(workload, job) for job in found.values())
            return replace(seen, jobs={}, blockers={}, goes_on=goes_on)
        jobs = {**seen.jobs, **{name: job for name, job in found.items() if self._takes(workload, job)}}
        blockers = {name: job for name, job in seen.blockers.items() if not self._belongs(workload, job)}
        before = store.copy(chain.replaces) if chain.replaces else None
        return replace(seen, jobs=jobs, blockers=blockers, before=before)

    def _takes(self, workload: WorkloadObject, remote: JobObject) -> bool:
        """Whether a job in a cluster that names another slice is the one of this slice: that other one is over here."""
        named = workload_of(remote)
        old = self._mirror.workloads.get(named)
        if old is None:
            return named == slices.replacement_for(workload)
        return self._are_of_one_job(old, workload) and slices.has_ended(old)

    def _belongs(self, workload: WorkloadObject, remote: JobObject) -> bool:
        """Whether a job in a cluster was sent for the same job here, whichever of its slices it names."""
        named = workload_of(remote)
        old = self._mirror.workloads.get(named)
        if old is None:
            return named == slices.replacement_for(workload)
        return self._are_of_one_job(old, workload)

    def siblings(self, workload: WorkloadObject) -> list[str]:
        """The slices of the same job, which have to be looked at when a cluster does something about this one."""
        ref = self._mirror.job_of(workload) if slices.is_slice(workload) else None
        job = self._mirror.job(ref) if ref is not None else None
        return [each.key for each in self._mirror.workloads_of(job)] if job is not None else []

    def concerned(self, job: JobObject) -> list[str]:
        """The Workloads of a job that has changed; those that are over only where no other one is left."""
        found = self._mirror.workloads_of(job)
        return [each.key for each in [each for each in found if not slices.has_ended(each)] or found]

    def current(self, workload: WorkloadObject) -> list[str]:
        """The slice that has taken the place of one that is over; [] for a slice that is not over."""
        passed = {workload.key}
        while slices.has_ended(workload):
            heirs = [each for each in self._mirror.heirs(workload.key) if self._are_of_one_job(workload, each)]
            heirs = [each for each in heirs if each.key not in passed]
            if not heirs:
                break
            workload = min(heirs, key=slices.has_ended)
            passed.add(workload.key)
        return [workload.key] if len(passed) > 1 and not slices.has_ended(workload) else []

    def is_kept_for(self, key: str) -> bool:
        """Whether a slice that is not here any more was replaced by one whose job still runs with it elsewhere."""
        for each in self._mirror.heirs(key):
            if not each.deleting and not slices.has_ended(each):
                ref = self._mirror.job_of(each)
                job = self._mirror.job(ref) if ref is not None else None
                if job is not None and not job.deleting:
                    return True
        return False

    @staticmethod
    def _are_of_one_job(one: WorkloadObject, other: WorkloadObject) -> bool:
        return one.controller_uid is not None and one.controller_uid == other.controller_uid
