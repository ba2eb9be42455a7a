"""`status.unhealthyNodes` as Kueue maintains it, for queues whose policy leaves failed nodes to Kubernetes.

Only gangs with a placement by host are concerned. A deleted node counts at once. A node that is not ready, or that has a taint
that keeps pods away, counts once the gang's pods there have ended or are terminating. The engine answers with another placement
or an eviction.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Final

from gangline.control.mirror.mirror import Mirror
from gangline.control.mirror.pod import Pod
from gangline.control.mirror.pod_index import PodIndex
from gangline.control.parts.part import Part
from gangline.control.status.status_changes import Change
from gangline.control.writes.outgoing import Priority
from gangline.control.writes.writes import Writes
from gangline.engine import model
from gangline.kube import resources as kube
from gangline.kube.resources import Json, true_condition

HOST: Final = "kubernetes.io/hostname"
#: Kueue's limit
MOST: Final = 8


class UnhealthyNodes(Part):
    """Records failed nodes on the Workloads of placed gangs, where a policy leaves recovery to Kubernetes."""

    name = "nodes"

    def __init__(self, mirror: Mirror, pods: PodIndex, writes: Writes) -> None:
        self._mirror = mirror
        self._pods = pods
        self._writes = writes
        self._changed_nodes = mirror.changes.nodes.subscribe(worth=mirror.has(kube.NODES))
        self._changed_pods = pods.changed.subscribe(worth=mirror.has(kube.WORKLOADS))
        self._led = False

    def act(self, now: int) -> None:
        changed = bool(self._changed_nodes.take()) | bool(self._changed_pods.take()) | (not self._led)
        self._led = True
        if changed and self._mirror.leaves_to_kubernetes():
            for key in self._mirror.placed_workloads():
                self._look(key)

    def _look(self, key: str) -> None:
        value, policy = self._mirror.workload_value(key), self._mirror.recovery_for(key)
        if value is None or policy is None or policy.enabled or self._writes.in_doubt(kube.WORKLOADS, key):
            return
        hosts = failed_hosts(value, self._pods.of(key), self._mirror.node_of)
        if hosts:
            self._writes.change(key, "unhealthy", note(hosts), priority=Priority.LIFECYCLE)


def failed_hosts(
    workload: model.Workload, pods: Iterable[Pod], node_of: Callable[[str], Json | None]
) -> tuple[str, ...]:
    """Failed hosts of the gang's placement that are not recorded yet. `node_of`: host name -> the node, or None."""
    if workload.admission is None or not workload.admitted or workload.evicted or workload.finished:
        return ()
    busy = {pod.node for pod in pods if pod.alive}
    found: list[str] = []
    for host in sorted(_hosts(workload.admission) - set(workload.unhealthy_nodes)):
        node = node_of(host)
        if node is None or (_keeps_away(node) and node["metadata"]["name"] not in busy):
            found.append(host)
    return tuple(found[: max(0, MOST - len(workload.unhealthy_nodes))])


def note(hosts: Iterable[str]) -> Change:
    def change(status: Json, now: int) -> None:
        known = [row["name"] for row in status.get("unhealthyNodes", ())]
        names = [*known, *(host for host in hosts if host not in known)]
        status["unhealthyNodes"] = [{"name": name} for name in names[:MOST]]

    return change


def _hosts(admission: model.Admission) -> set[str]:
    placed = (pod_set.topology for pod_set in admission.pod_sets)
    return {
        domain.values[-1]
        for topology in placed
        if topology is not None and topology.levels[-1] == HOST
        for domain in topology.domains
    }


def _keeps_away(node: Json) -> bool:
    taints = (node.get("spec") or {}).get("taints") or ()
    ready = true_condition(node, "Ready") is not None
    return not ready or any(taint.get("effect") in ("NoSchedule", "NoExecute") for taint in taints)
