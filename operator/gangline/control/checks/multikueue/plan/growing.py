"""Elastic jobs in other clusters: a slice takes the place of another one there as it does here, and the job runs on. Pure.

The new slice is sent once it has its quota here, to the cluster in which the job runs. When it is admitted there, the job
gets its new size, and names it. A smaller size is passed on at once; the copy is cut by the operator there, when the pods
have ended, or by this one.
"""

from __future__ import annotations

from collections.abc import Iterator

from gangline.api import names
from gangline.control.checks.multikueue.clusters.copies import SIZE, Copy, shape
from gangline.control.checks.multikueue.plan import preemption
from gangline.control.checks.multikueue.plan.steps import Cut, MultiKueueView, Resize, Step, Stop, WithdrawFromCluster
from gangline.control.feed import slices
from gangline.jobs import BY_RESOURCE
from gangline.jobs.base import JobError
from gangline.objects import JobObject


def replaced(view: MultiKueueView) -> list[Step]:
    """The steps for a slice whose place another one has taken here: its copies stay until the job does not run there any more."""
    return [
        WithdrawFromCluster(name, cluster.copy, [])
        for name, cluster in view.clusters.items()
        if cluster.connected and not cluster.busy and not cluster.goes_on
        if cluster.copy is not None and cluster.copy.removable
    ]


def is_given_its_cluster(view: MultiKueueView) -> bool:
    """Whether the workload is about to get quota: an eviction takes the cluster back. Other schedulers write both one after the
    other.
    """
    replaces = view.chain is not None and bool(view.chain.replaces)
    return replaces and bool(follows(view)) and not view.workload.evicted


def follows(view: MultiKueueView) -> str:
    """The cluster in which the job of a slice runs already, which has to admit this slice, too; "" = the Workload is like any
    other.
    """
    return view.workload.cluster if view.chain is not None else ""


def lost_before(view: MultiKueueView, cluster: str) -> bool:
    """Whether the job was stopped in the cluster before this slice of it was admitted."""
    there = view.clusters.get(cluster)
    if there is None or not there.connected or there.before is None:
        return False
    admitted = there.copy is not None and there.copy.row(names.ADMITTED) is not None
    return not admitted and there.before.row(names.EVICTED) is not None


def send(view: MultiKueueView, cluster: str) -> Iterator[Step]:
    there = view.clusters[cluster]
    if there.copy is None and not there.busy:
        yield preemption.send(view, cluster)


def is_outdated(view: MultiKueueView, copy: Copy) -> bool:
    """Whether the copy asks for something else than a size that is about to change."""
    wanted = slices.counts(view.workload.pod_sets)
    for job in view.jobs.values():
        now = _sizes(view, job)
        wanted = {name: min(count, now.get(name, count)) for name, count in wanted.items()}
    return copy.shape != shape(view.workload.spec) or any(
        copy.sizes.get(name, 0) < count for name, count in wanted.items()
    )


def cut(view: MultiKueueView) -> Iterator[Step]:
    """Cut the copies that are larger than the slice here."""
    wanted = slices.counts(view.workload.pod_sets)
    for name, cluster in view.clusters.items():
        copy = cluster.copy
        if not cluster.connected or cluster.busy or copy is None or copy.leaving or is_outdated(view, copy):
            continue
        holds = copy.row(names.QUOTA_RESERVED) is not None
        if slices.is_cut(copy.sizes, wanted) and not (holds and copy.cut_there):
            yield Cut(name, copy)


def resize(view: MultiKueueView, job: JobObject, cluster: str, remote: JobObject) -> Iterator[Step]:
    """Make the job in the cluster as large as this one, but not larger than the slice with which it runs."""
    if view.chain is None or view.kind is None or view.clusters[cluster].busy:
        return
    admitted = slices.counts(view.workload.pod_sets)
    if any(count > admitted.get(name, 0) for name, count in _sizes(view, job).items()):
        return  # it grows: its next slice says when
    named = remote.prebuilt_workload == view.workload.name
    if not named or (SIZE in remote and remote[SIZE] != view.kind.size_of(job)):
        yield Resize(cluster, remote, job)


def stop_before(view: MultiKueueView, name: str, message: str) -> Iterator[Step]:
    """Stop the slice with which the job still runs in the cluster, instead of the one that was to replace it."""
    cluster, replaces = view.clusters[name], view.chain.replaces if view.chain is not None else ""
    before = cluster.before
    taken = cluster.copy is not None and cluster.copy.row(names.ADMITTED) is not None
    if before is None or taken or cluster.busy or before.row(names.ADMITTED) is None:
        return
    if not any(before.row(kind) for kind in (names.FINISHED, names.EVICTED, names.DEACTIVATION_TARGET)):
        yield Stop(name, before, message, replaces)


def _sizes(view: MultiKueueView, job: JobObject) -> dict[str, int]:
    kind = BY_RESOURCE.get(view.kind.resource) if view.kind is not None else None
    if kind is None:
        return {}
    try:
        return slices.counts(kind.pod_sets(job))
    except JobError:  # the plan of the job reports it
        return {}
