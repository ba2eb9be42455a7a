"""Admitted workloads with pods for which the Kubernetes scheduler finds no node: how long they may wait, and who is the cause."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from gangline.engine.model import Millis, PodSet
from gangline.engine.queues.cluster_queue import ClusterQueueState
from gangline.engine.queues.workload_state import WorkloadState
from gangline.engine.state.store import Store
from gangline.engine.topology.node_filter import NodeSelection

#: underlying cause of the eviction of such a workload, as in Kueue
NOT_SCHEDULED: Final = "WaitForScheduling"


def scheduled_within(store: Store, gang: WorkloadState, queue: ClusterQueueState | None) -> Millis | None:
    """How long pods of the workload may be unscheduled; None = there is no such limit.

    Once all pods were ready, the recovery timeout applies instead. A workload that grew has only the limits of its readiness:
    the part of it that runs already should not be stopped so soon.
    """
    workload, policy = gang.workload, store.settings.pods_ready
    if workload.pods_ready or workload.pods_were_ready or workload.replaces or queue is None or queue.multikueue:
        return None
    wished, chosen = workload.unscheduled_after, queue.config.unscheduled
    if chosen is not None:
        usual, most = chosen.after, chosen.longest
    else:
        usual = policy.unscheduled_timeout if policy is not None else None
        most = usual if usual is not None or policy is None else policy.timeout
    if wished is None:
        return usual
    return wished if most is None else min(wished, most)


def scheduled_by(store: Store, gang: WorkloadState, queue: ClusterQueueState | None) -> Millis | None:
    """When the workload is evicted if pods of it are unscheduled until then; None = never, or no pod is unscheduled."""
    unscheduled = gang.workload.unscheduled
    if unscheduled is None or not unscheduled.message or not gang.admitted:
        return None
    within = scheduled_within(store, gang, queue)
    if within is None:
        return None
    return max(gang.quota.admitted_at, gang.workload.healed_at, unscheduled.since) + within


def matches_no_node(store: Store, gang: WorkloadState) -> bool:
    """Whether the flavors that the workload was given have nodes, and the node selector or affinity of one of its pod sets
    excludes all of these.
    """
    demands = {demand.name: demand.pod_set for demand in gang.demands}
    assigned = gang.quota.admission.pod_sets if gang.quota.admission is not None else ()
    return any(
        each.name in demands and _excludes_all(store, demands[each.name], set(each.flavors.values()))
        for each in assigned
    )


def _excludes_all(store: Store, pod_set: PodSet, flavors: Iterable[str]) -> bool:
    of_each = [set(store.capacity.nodes_of_flavor(flavor)) for flavor in flavors]
    nodes = [store.health.nodes[name] for name in set[str].intersection(*of_each)] if of_each else []
    selection = NodeSelection(selector=tuple(pod_set.node_selector.items()), affinity=pod_set.affinity)
    return bool(nodes) and all(selection.judge(node.name, node.labels, ())[0] for node in nodes)
