"""Objects with several Workloads, which all run in the cluster that the first of them gets: LeaderWorkerSets."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

from gangline.control.checks.multikueue.clusters.copies import family_key
from gangline.control.checks.multikueue.clusters.remote_cluster import RemoteCluster
from gangline.control.checks.multikueue.clusters.remote_store import RemoteStore
from gangline.control.checks.multikueue.plan.steps import ClusterView, SentFamily
from gangline.control.feed.mirror import Mirror
from gangline.jobs.base import RunsElsewhere
from gangline.jobs.serving import SENT
from gangline.objects import JobObject, WorkloadObject


class SentFamilies:
    def __init__(self, mirror: Mirror) -> None:
        self._mirror = mirror
        self._clusters: dict[str, str] = {}  # the cluster of each Workload, as its family was told last

    def members(self, kind: RunsElsewhere | None, jobs: Mapping[str, JobObject]) -> list[str]:
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

    def _is_used(self, name: str, store: RemoteStore, key: str, job: JobObject, sent: RunsElsewhere) -> bool:
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
