"""Slices of elastic workloads: a job that grows gets a new slice, which replaces the one that runs.

The new slice asks for the difference only, of the flavors that the old one has. From the moment it holds quota, the old one is
*superseded*: what it held is part of what the new one holds, and counts once.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from gangline.engine.model import Admission, PodSetAssignment
from gangline.engine.queues.cluster_queue import ClusterQueueState
from gangline.engine.queues.workload_state import WorkloadState

#: why a slice waits whatever is free
OLD_IS_STOPPED = "The workload slice that it replaces is being stopped"

OLD_IS_OF_ANOTHER = "The workload slice that it replaces holds quota, and is not of its job"

#: pod set -> resource -> amount
Amounts = Mapping[str, Mapping[str, int]]


def replaced_slice(gang: WorkloadState, queue: ClusterQueueState) -> WorkloadState | None:
    """The slice that holds quota of this queue and that `gang` replaces."""
    if not gang.replaces:
        return None
    return next((held for held in queue.holders.values() if held.key == gang.replaces and succeeds(gang, held)), None)


def names_another_job(gang: WorkloadState, queue: ClusterQueueState) -> bool:
    """Whether the workload would replace a slice that runs, and nobody says that both are of one job, as while it has just been
    sent here. With all that it asks for it might have that slice preempted.
    """
    if not gang.replaces:
        return False
    holders = (held.workload for held in queue.holders.values() if held.key == gang.replaces)
    return any(held.job_uid != gang.workload.job_uid for held in holders)


def succeeds(new: WorkloadState, old: WorkloadState) -> bool:
    """Whether `new` may replace `old`: both belong to one job, and it came later."""
    mine, its = new.workload, old.workload
    return mine.job_uid == its.job_uid and mine.created >= its.created and old.replaces != new.key


def held_parts(gang: WorkloadState, admission: Admission) -> Iterator[tuple[PodSetAssignment, str, str, int]]:
    """What an admission uses now, pod set by pod set: resource, flavor and amount. Pods that are finished, or that an elastic
    job has given up, use nothing.
    """
    counts = {demand.name: demand.count for demand in gang.demands}
    for pod_set in admission.pod_sets:
        count = counts.get(pod_set.name, pod_set.count)
        for resource, flavor in pod_set.flavors.items():
            yield pod_set, resource, flavor, _scaled(pod_set, pod_set.usage.get(resource, 0), count)


def amounts_of(gang: WorkloadState) -> Amounts:
    """What a holder uses now."""
    found: dict[str, dict[str, int]] = {}
    for pod_set, resource, _, amount in (
        held_parts(gang, gang.quota.admission) if gang.quota.admission is not None else ()
    ):
        found.setdefault(pod_set.name, {})[resource] = amount
    return found


def pods_of(gang: WorkloadState) -> dict[str, int]:
    """Pod set -> the pods for which a holder has quota now."""
    counts = {demand.name: demand.count for demand in gang.demands}
    admission = gang.quota.admission
    return (
        {each.name: min(each.count, counts.get(each.name, each.count)) for each in admission.pod_sets}
        if admission is not None
        else {}
    )


def pods_asked(gang: WorkloadState, queue: ClusterQueueState) -> list[int]:
    """The pods for which a waiting gang needs quota and room, pod set by pod set."""
    old = replaced_slice(gang, queue)
    if old is None:
        return [demand.count for demand in gang.demands]
    held = pods_of(old)
    return [max(0, demand.count - held.get(demand.name, 0)) for demand in gang.demands]


def _scaled(pod_set: PodSetAssignment, amount: int, count: int) -> int:
    if count >= pod_set.count or pod_set.count == 0:
        return amount
    return amount // pod_set.count * count
