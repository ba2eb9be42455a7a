"""Who replaces a gang's failed node: Gangline's recovery at once, or, as in Kueue, the second pass; or nobody."""

from __future__ import annotations

from gangline.engine.model import Recovery, Toleration
from gangline.engine.queues.cluster_queue import queue_of
from gangline.engine.queues.workload_state import WorkloadState
from gangline.engine.state.store import Store


def policy_of(gang: WorkloadState) -> Recovery:
    """What its queue's policy says about failed nodes, else the default."""
    queue = queue_of(gang)
    return (queue.config.recovery if queue is not None else None) or Recovery()


def stays(store: Store, gang: WorkloadState) -> bool:
    """Whether the workload is a single pod, which cannot move: its Workload ends with it."""
    return gang.workload.lone_pod and store.settings.gates.get("SkipReassignmentForPodOwnedWorkloads", True)


def is_healed(store: Store, gang: WorkloadState) -> bool:
    """Whether Gangline's recovery moves the gang off failed nodes: its pods are made anew where they are lost."""
    return policy_of(gang).enabled and not gang.workload.unowned and not stays(store, gang)


def is_mended(store: Store, gang: WorkloadState, host: str) -> bool:
    """Whether a failed node of the gang's placement is replaced as in Kueue, since the recovery does not, or not for this
    reason.
    """
    if stays(store, gang):
        return False
    if not is_healed(store, gang):
        return True
    return not store.health.failing(host) and store.health.untolerated(host, tolerations_of(store, gang)) is None


def fails_fast(store: Store) -> bool:
    """Whether a gang is evicted if the first attempt to replace its node finds no other one."""
    return store.settings.gates.get("TASFailedNodeReplacementFailFast", True)


def tolerations_of(store: Store, gang: WorkloadState) -> list[Toleration]:
    """The tolerations of the gang's pods, those of their flavors included."""
    flavors = (
        [flavor for each in gang.quota.admission.pod_sets for flavor in each.flavors.values()]
        if gang.quota.admission
        else []
    )
    own = [toleration for demand in gang.demands for toleration in demand.pod_set.tolerations]
    return [*own, *store.capacity.grounds.tolerations(flavors)]
