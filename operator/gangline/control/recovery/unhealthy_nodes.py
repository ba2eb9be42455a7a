"""`status.unhealthyNodes` as Kueue keeps it, for queues whose policy leaves failed nodes to Kubernetes.

Only gangs with a placement by host are concerned. A node that is gone counts at once; one that is not ready, or that has a taint
that keeps pods away, counts once the gang's pods there have ended or were told to go. The engine answers with another placement
or an eviction. Pure.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, Final, TypeAlias

from gangline.api.read import conditions
from gangline.control.mirror.pod_index import GangPod
from gangline.control.status.status_changes import Change
from gangline.engine import model

Json: TypeAlias = dict[str, Any]

HOST: Final = "kubernetes.io/hostname"
#: Kueue's limit
MOST: Final = 8


def failed_hosts(
    workload: model.Workload, pods: Iterable[GangPod], node_of: Callable[[str], Json | None]
) -> tuple[str, ...]:
    """Hosts of the gang's placement that failed it and are not noted yet. `node_of`: host name -> the node, if there is one."""
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
    ready = conditions.is_true((node.get("status") or {}).get("conditions"), "Ready")
    return not ready or any(taint.get("effect") in ("NoSchedule", "NoExecute") for taint in taints)
