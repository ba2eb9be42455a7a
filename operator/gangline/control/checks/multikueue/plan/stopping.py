"""Stops a workload in other clusters once it is evicted here, or is not sent any more: its copies and jobs there go, and its jobs
here show that nothing of them runs. Pure.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from gangline.api import names
from gangline.control.checks.multikueue.plan import growing
from gangline.control.checks.multikueue.plan.steps import (
    ClusterView,
    MirrorStatus,
    MultiKueueView,
    Step,
    Stop,
    Wait,
    WithdrawFromCluster,
)
from gangline.kube.resources import Json
from gangline.objects import JobObject


def stop(view: MultiKueueView, evicted: Json) -> list[Step]:
    """The steps for a workload that is evicted here: its copy is evicted, too, and the job here shows when the last pod there has
    ended.
    """
    steps: list[Step] = []
    for name, cluster in view.clusters.items():
        if not cluster.connected:
            continue
        if cluster.copy is None:
            steps += withdraw(view, [name])
            continue
        evicted_there = cluster.copy.row(names.EVICTED) or cluster.copy.row(names.DEACTIVATION_TARGET)
        message = f"Evicted on manager: {evicted.get('message', '')}"
        if evicted_there is None and cluster.copy.row(names.ADMITTED) is not None and not cluster.busy:
            steps.append(Stop(name, cluster.copy, message))
        steps += growing.stop_before(view, name, message)
        steps += mirrors(view, name)
    if any(isinstance(step, MirrorStatus) for step in steps):
        return steps
    return [*steps, *settle(view)]


def settle(view: MultiKueueView) -> list[Step]:
    """Show that no pod of the jobs runs any more, once no cluster has the jobs: neither those connected nor those given up."""
    idle_jobs = [(job, status) for job in view.jobs.values() if (status := idle(view, job)) is not None]
    waits = view.kind is not None and view.kind.pods_wait
    if not (idle_jobs or waits) or any(_runs_in(view, cluster) for cluster in view.clusters.values()):
        return []
    chosen = view.workload.cluster
    lost = [
        cluster.lost_at
        for name, cluster in view.clusters.items()
        if not cluster.connected and (name == chosen or not waits)
    ]
    due = max(lost, default=0) + patience(view)
    return [Wait(due)] if lost and due > view.now else [MirrorStatus(job, status) for job, status in idle_jobs]


def settles(view: MultiKueueView) -> bool:
    """Whether the jobs here show what runs for them although the workload holds no quota any more: it is being deleted, or its
    pods only wait.
    """
    waits = view.kind is not None and view.kind.pods_wait
    return view.workload.deleting or (waits and not view.workload.finished)


def may_run(view: MultiKueueView) -> bool:
    """Whether pods of the workload may run in another cluster: in one that is connected, or in its own one, which is not given up
    yet.
    """
    chosen = view.workload.cluster
    return any(
        _runs_in(view, cluster) or (name == chosen and not cluster.connected and not _is_given_up(view, cluster))
        for name, cluster in view.clusters.items()
    )


def _runs_in(view: MultiKueueView, cluster: ClusterView) -> bool:
    """Whether the workload's jobs are in a connected cluster.

    Where pods wait at gates, that cluster says when the last one has ended, by taking their quota back; objects may remain.
    """
    waits = view.kind is not None and view.kind.pods_wait
    released = waits and cluster.copy is not None and cluster.copy.row(names.QUOTA_RESERVED) is None
    return cluster.connected and bool(cluster.jobs) and not released


def _is_given_up(view: MultiKueueView, cluster: ClusterView) -> bool:
    return cluster.lost_at + patience(view) <= view.now


def withdraw(view: MultiKueueView, clusters: Iterable[str]) -> Iterator[Step]:
    for name in clusters:
        cluster = view.clusters[name]
        jobs = [job for job in cluster.jobs.values() if not job.deleting and not cluster.shared]
        copy = cluster.copy if cluster.copy is not None and cluster.copy.removable else None
        if cluster.connected and not cluster.busy and (copy is not None or jobs):
            yield WithdrawFromCluster(name, copy, jobs)


# --- small words ------------------------------------------------------------------------------------------------------


def mirrors(view: MultiKueueView, cluster: str) -> list[MirrorStatus]:
    """The statuses that the jobs here get from those in a cluster, except from those that are being deleted there."""
    found: list[MirrorStatus] = []
    for name, remote in view.clusters[cluster].jobs.items():
        job = view.jobs.get(name)
        if job is None or view.kind is None or remote.deleting:
            continue
        if (status := view.kind.mirrored(job, remote)) is not None:
            found.append(MirrorStatus(job, status))
    return found


def idle(view: MultiKueueView, job: JobObject) -> Json | None:
    """The status of a job here for which nothing runs; None if it has that."""
    return view.kind.mirrored(job, None) if view.kind is not None else None


def patience(view: MultiKueueView) -> int:
    return int(view.settings.worker_lost_timeout * 1000)
