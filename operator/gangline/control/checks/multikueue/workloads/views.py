"""The view from which the plan of one workload is made: itself, its jobs, and what each cluster was last seen to hold for it.

The slices of elastic jobs that are sent to other clusters: what each of them is here, and whose job a cluster shows.

Objects with several Workloads, which all run in the cluster that the first of them gets: LeaderWorkerSets.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import TypeAlias

from gangline.api.read.configuration.multikueue import MultiKueueSettings as Settings
from gangline.control.checks.active_checks import UnusableError
from gangline.control.checks.multikueue import activity
from gangline.control.checks.multikueue.clusters import copies
from gangline.control.checks.multikueue.clusters.copies import family_key, workload_of
from gangline.control.checks.multikueue.clusters.remote_cluster import RemoteCluster
from gangline.control.checks.multikueue.clusters.remote_store import RemoteStore
from gangline.control.checks.multikueue.plan import steps
from gangline.control.checks.multikueue.plan.steps import Chain, ClusterView, SentFamily
from gangline.control.checks.multikueue.workloads.local_jobs import LocalJobs, owner_of
from gangline.control.feed import slices
from gangline.control.feed.mirror import Mirror
from gangline.control.parts.attempts import Attempts
from gangline.jobs.base import RunsOnOtherCluster
from gangline.jobs.serving import SENT
from gangline.kube import resources as kube
from gangline.kube.resources import Json, Resource
from gangline.objects import JobObject, WorkloadObject


class SentFamilies:
    def __init__(self, mirror: Mirror) -> None:
        self._mirror = mirror
        self._clusters: dict[str, str] = {}  # the cluster of each Workload, as its family saw it last

    def members(self, kind: RunsOnOtherCluster | None, jobs: Mapping[str, JobObject]) -> list[str]:
        """The keys of all Workloads of the object; [] for a kind that has one Workload only."""
        sent = SENT.get(kind.resource) if kind is not None and kind.shared else None
        if sent is None:
            return []
        return [f"{job.namespace}/{name}" for job in jobs.values() for name in sent.family(job)]

    def family(self, key: str, members: Sequence[str]) -> SentFamily | None:
        if not members:
            return None
        known = {each: self._mirror.workloads.get(each) for each in members}
        present = [each for each, workload in known.items() if workload is not None]
        clusters = (_cluster_of(workload) for each, workload in known.items() if each != key and workload is not None)
        return SentFamily(
            complete=len(present) == len(members),
            leads=bool(present) and present[0] == key,
            cluster=next(filter(None, clusters), ""),
        )

    def has_news(self, key: str, workload: WorkloadObject) -> bool:
        """Whether the other Workloads of the family have to look again: this one is new, or has another cluster."""
        before, now = self._clusters.get(key), _cluster_of(workload)
        self._clusters[key] = now
        return before != now

    def forget(self, key: str) -> None:
        self._clusters.pop(key, None)

    def left_in(self, name: str, store: RemoteStore, key: str) -> list[JobObject]:
        """The jobs of this family in a cluster where none of its Workloads runs or is about to."""
        kind = store.kind_of_jobs(key)
        sent = SENT.get(kind) if kind is not None else None
        if sent is None:
            return []
        return [job for job in store.jobs_of(key).values() if not self._is_used(name, store, key, job, sent)]

    def _is_used(self, name: str, store: RemoteStore, key: str, job: JobObject, sent: RunsOnOtherCluster) -> bool:
        here = self._mirror.job((sent.resource, job.key))
        if here is None or family_key(here.namespace, here.uid) != key:
            return False
        return any(
            store.copy(each) is not None or _cluster_of(self._mirror.workloads.get(each)) == name
            for each in self.members(sent, {here.name: here})
        )


def as_seen(
    seen: ClusterView, store: RemoteStore, key: str, family: str, members: Iterable[str], *, busy: bool
) -> ClusterView:
    """A cluster with the jobs that all members use. `busy`: a write of these is in flight there."""
    others = any(store.copy(each) is not None for each in members if each != key)
    jobs = store.jobs_of(family)
    blockers = {name: job for name, job in seen.blockers.items() if name not in jobs}
    return replace(seen, jobs=jobs, blockers=blockers, shared=others, busy=seen.busy or busy)


def of_all(clusters: Mapping[str, RemoteCluster]) -> set[str]:
    """The families that have jobs in connected clusters."""
    return {key for cluster in clusters.values() if cluster.connected for key in cluster.store.families()}


def _cluster_of(workload: WorkloadObject | None) -> str:
    return workload.cluster if workload is not None else ""


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
        """Whether a slice that is not here any more was replaced by one whose job still runs with it in another cluster."""
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


#: a cluster and the key of a Workload
Pair: TypeAlias = tuple[str, str]


class Views:
    """Makes the views of workloads. `clusters`: the connections now; `sent`: the kinds of jobs that are sent, by `apiVersion` and
    `kind`; `there`: the writes to them.
    """

    def __init__(
        self,
        mirror: Mirror,
        settings: Settings,
        sent: Mapping[tuple[str, str], RunsOnOtherCluster],
        clusters: Callable[[], Mapping[str, RemoteCluster]],
        *,
        jobs: LocalJobs,
        there: Attempts[Pair],
    ) -> None:
        self._mirror = mirror
        self._settings = settings
        self._sent = sent
        self._clusters = clusters
        self._jobs = jobs
        self._there = there
        self.families = SentFamilies(mirror)
        self.chains = Chains(mirror)
        self._rounds: dict[str, int] = {}  # when the last round of a workload's dispatcher began, in ms

    def begin_round(self, key: str, now: int) -> None:
        """Note that a round of the workload's incremental dispatcher begins."""
        self._rounds[key] = now

    def forget(self, key: str) -> None:
        """Forget a workload that is gone."""
        self._rounds.pop(key, None)
        self.families.forget(key)

    def of(self, workload: WorkloadObject, now: int) -> steps.MultiKueueView | None:
        """The view of a workload; None for a workload that has nothing to do with other clusters."""
        key, row, clusters = workload.key, self.row(workload), self._clusters()
        if row is None or "admission" not in workload.status:
            self._rounds.pop(key, None)
        if row is None and not any(cluster.store.copy(key) for cluster in clusters.values()):
            return None
        ref = owner_of(workload)
        owner = (ref["apiVersion"], ref["kind"]) if ref is not None else None
        kind = self._sent.get(owner) if owner is not None else None
        jobs = self._jobs.of(workload, kind, ref)
        members, chain = self.families.members(kind, jobs), self.chains.of(workload)

        def in_cluster(name: str, cluster: RemoteCluster) -> steps.ClusterView:
            seen = self._in_cluster(name, cluster, key, kind, jobs)
            if chain is not None and kind is not None and cluster.connected:
                return self.chains.as_seen(seen, cluster.store, workload, chain, kind.resource, jobs)
            if kind is None or ref is None or not kind.shared or not cluster.connected:
                return seen
            family = copies.family_key(workload.namespace, ref["uid"])
            return as_seen(seen, cluster.store, key, family, members, busy=not self._there.ready((name, family)))

        return steps.MultiKueueView(
            workload=workload,
            row=row,
            listed=self._listed(row),
            clusters={name: in_cluster(name, each) for name, each in clusters.items()},
            jobs=jobs,
            owner=owner,
            kind=kind,
            settings=self._settings,
            now=now,
            round_at=self._rounds.get(key),
            family=self.families.family(key, members),
            chain=chain,
        )

    def _in_cluster(
        self, name: str, cluster: RemoteCluster, key: str, kind: RunsOnOtherCluster | None, here: Collection[str]
    ) -> steps.ClusterView:
        if not cluster.connected:
            return steps.ClusterView(False, cluster.lost_at)
        namespace = key.partition("/")[0]
        jobs = cluster.store.jobs_of(key)
        named = {
            each: job
            for each in here
            if each not in jobs
            and kind is not None
            and (job := cluster.store.job(kind.resource, f"{namespace}/{each}")) is not None
        }
        return steps.ClusterView(
            True,
            busy=not self._there.ready((name, key)),
            in_flight=self._there.in_flight((name, key)),
            copy=cluster.store.copy(key),
            jobs=jobs,
            ended={name: job for name, job in cluster.store.ended_jobs_of(key).items() if name not in jobs},
            blockers=named,
            refuses=cluster.refuses(kind.resource) if kind is not None else "",
        )

    def row(self, workload: WorkloadObject) -> Json | None:
        """The first of a workload's checks that is of this controller."""
        for row in workload.checks:
            check = self._mirror.get(kube.ADMISSION_CHECKS, row["name"])
            if check is not None and activity.is_ours(check):
                return row
        return None

    def _listed(self, row: Json | None) -> Sequence[str] | None:
        check = self._mirror.get(kube.ADMISSION_CHECKS, row["name"]) if row is not None else None
        if check is None:
            return None
        try:
            return activity.clusters_of(check, lambda name: self._mirror.get(kube.MULTI_KUEUE_CONFIGS, name))
        except UnusableError:
            return None
