"""Pods that wait for a host where they have no place any more: they are reported as failed, so that their owner makes new ones.

As Kueue does it, for the pods of Workloads without owner only: a pod that asks for a topology, lost its gate and was not bound,
and demands a host that is not among the places of its Workload, or that keeps it away. It never ran, and the write is fenced by
its version, so it is none that was bound meanwhile. Pods of jobs that Gangline runs are deleted and made anew (`swaps`).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from functools import partial
from typing import Final

from gangline.api import names
from gangline.control.kernel.context import Context
from gangline.control.kernel.reconciler import Reconciler
from gangline.control.nodes.recovery.failed_hosts import HOST, hosts_of, keeps_away
from gangline.control.nodes.recovery.unhealthy_nodes import HostNames, Tolerations, is_alive
from gangline.engine import model
from gangline.kube import resources as kube
from gangline.kube.errors import ApiError, Conflict, NotFound
from gangline.kube.resources import Json
from gangline.objects import NodeObject, PodObject

CONDITION: Final = "TerminatedByKueue"
REASON: Final = "UnschedulableOnAssignedNode"
EVENT: Final = "PodTerminatedByKueue"
MESSAGE: Final = "Pod terminated by Kueue NodeController due to node taint"
_ASKS: Final = (
    names.REQUIRED_TOPOLOGY,
    names.PREFERRED_TOPOLOGY,
    names.UNCONSTRAINED_TOPOLOGY,
    names.SLICE_REQUIRED_TOPOLOGY,
)


def awaited_host(pod: PodObject) -> str:
    """The host for which an unbound pod without gate waits, "" = for none."""
    written, is_pending = pod.annotations, pod.phase in ("", "Pending")
    if pod.node or names.TOPOLOGY_GATE in pod.gates or not is_pending or not is_alive(pod):
        return ""
    return (pod.spec.get("nodeSelector") or {}).get(HOST) or "" if any(name in written for name in _ASKS) else ""


def is_stray(
    workload: model.Workload, host: str, node: NodeObject | None, tolerations: Callable[[str], Sequence[Json]]
) -> bool:
    """Whether a pod of the Workload waits for this host in vain. Kubernetes itself deals with pods of deleted nodes."""
    if node is None or workload.evicted or workload.finished:
        return False
    pod_sets = hosts_of(workload.admission).get(host)
    if pod_sets is None:
        return True
    return not node.is_true("Ready") or keeps_away(node, map(tolerations, pod_sets))


class StrayPods(Reconciler[str]):
    """Reports pods as failed that wait for a host in vain."""

    name = "stray pods"
    doing = "looking at its pods"

    def __init__(self, context: Context) -> None:
        super().__init__(context, context.owners.changed.subscribe(worth=context.mirror.has(kube.WORKLOADS)))
        context.mirror.changes.placed.feed(self._changed)
        context.mirror.changes.unowned.feed(self._changed)
        self._owners = context.owners
        self._names = HostNames(context.mirror)
        self._waiting: dict[str, set[str]] = {}  # Workload -> hosts for which pods that claim it wait

    def _gather(self, now: int) -> None:
        changed = self._names.learn()
        self._changed.update(key for key, hosts in self._waiting.items() if not hosts.isdisjoint(changed))

    def _reconcile(self, key: str, now: int) -> None:
        self._waiting.pop(key, None)
        value, raw = self._mirror.workload_value(key), self._mirror.workloads.get(key)
        if value is None or raw is None or not value.unowned:
            return
        tolerations = Tolerations(self._mirror, raw)
        for pod in self._owners.claimants(key):
            if not (host := awaited_host(pod)):
                continue
            self._waiting.setdefault(key, set()).add(host)
            if is_stray(value, host, self._names.node_of(host), tolerations):
                self._fail(key, pod)

    def _fail(self, workload: str, pod: PodObject) -> None:
        at = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
        row = {"type": CONDITION, "status": "True", "reason": REASON, "message": MESSAGE, "lastTransitionTime": at}
        body: Json = {
            "metadata": {"uid": pod.uid, "resourceVersion": pod.resource_version},
            "status": {"phase": "Failed", "conditions": [row]},
        }

        def reported(answer: PodObject) -> None:
            self._recorder.record(answer, "Normal", EVENT, MESSAGE, "PodTerminated")

        failed = partial(self._not_reported, workload)
        self._write_pod(workload, pod.key, "status", body, slot="stray", done=reported, failed=failed)

    def _not_reported(self, workload: str, error: ApiError) -> None:
        """Pause. After a conflict the watch shows the pod's newest version, and it is looked at again."""
        if not isinstance(error, Conflict | NotFound):
            self._attempts.pause(workload)
