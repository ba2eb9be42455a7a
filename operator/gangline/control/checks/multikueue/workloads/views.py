"""The view from which the plan of one workload is made: itself, its jobs, and what each cluster was last seen to hold for it."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from typing import TypeAlias

from gangline.api.read.configuration.multikueue import MultiKueueSettings as Settings
from gangline.control.checks.activity import UnusableError
from gangline.control.checks.multikueue import activity
from gangline.control.checks.multikueue.clusters import copies
from gangline.control.checks.multikueue.clusters.remote_cluster import RemoteCluster
from gangline.control.checks.multikueue.plan import steps
from gangline.control.checks.multikueue.workloads import families
from gangline.control.checks.multikueue.workloads.chains import Chains
from gangline.control.checks.multikueue.workloads.local_jobs import LocalJobs, owner_of
from gangline.control.feed.mirror import Mirror
from gangline.control.parts.attempts import Attempts
from gangline.jobs.base import RunsElsewhere
from gangline.kube import resources as kube
from gangline.kube.resources import Json
from gangline.objects import WorkloadObject

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
        sent: Mapping[tuple[str, str], RunsElsewhere],
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
        self.families = families.Families(mirror)
        self.chains = Chains(mirror)
        self._rounds: dict[str, int] = {}  # when the last round of a workload's dispatcher began, in ms

    def begin_round(self, key: str, now: int) -> None:
        """Note that a round of the workload's incremental dispatcher begins."""
        self._rounds[key] = now

    def forget(self, key: str) -> None:
        """Forget a workload that is gone."""
        self._rounds.pop(key, None)
        self.families.forget(key)

    def of(self, workload: WorkloadObject, now: int) -> steps.View | None:
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
            return families.as_seen(
                seen, cluster.store, key, family, members, busy=not self._there.ready((name, family))
            )

        return steps.View(
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
        self, name: str, cluster: RemoteCluster, key: str, kind: RunsElsewhere | None, here: Collection[str]
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
