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
from gangline.control.parts.attempts import Attempts
from gangline.control.parts.part import Part
from gangline.control.recovery.failed_hosts import HOST, hosts_of, keeps_away
from gangline.control.recovery.unhealthy_nodes import HostNames, Tolerations, is_alive
from gangline.control.writes.outgoing import Priority, Write
from gangline.engine import model
from gangline.kube import resources as kube
from gangline.kube.errors import ApiError, Conflict, NotFound
from gangline.kube.resources import Json, ObjectKey
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


class StrayPods(Part):
    """Reports pods as failed that wait for a host in vain."""

    name = "stray pods"

    def __init__(self, context: Context) -> None:
        self._mirror = context.mirror
        self._owners = context.owners
        self._writer = context.writer
        self._recorder = context.recorder
        self._wake = context.wake
        self._quarantine = context.quarantine
        exists = context.mirror.has(kube.WORKLOADS)
        self._changed = context.owners.changed.subscribe(worth=exists)
        context.mirror.changes.placed.feed(self._changed)
        context.mirror.changes.unowned.feed(self._changed)
        self._names = HostNames(context.mirror)
        self._waiting: dict[str, set[str]] = {}  # Workload -> hosts for which pods that claim it wait
        self._attempts: Attempts[str] = Attempts(self._again)

    def _again(self, workload: str) -> None:
        self._changed.add(workload)
        self._wake()

    def act(self, now: int) -> None:
        changed = self._names.learn()
        self._changed.update(key for key, hosts in self._waiting.items() if not hosts.isdisjoint(changed))
        for key in self._quarantine.in_turn(sorted(self._changed.take()), self._changed.update):
            self._quarantine.attempt("looking at its pods", kube.WORKLOADS, key, partial(self._look, key))

    def _look(self, key: str) -> None:
        self._waiting.pop(key, None)
        value, raw = self._mirror.workload_value(key), self._mirror.workloads.get(key)
        if value is None or raw is None or not value.unowned:
            return
        tolerations = Tolerations(self._mirror, raw)
        for pod in self._owners.claimants(key):
            if not (host := awaited_host(pod)):
                continue
            self._waiting.setdefault(key, set()).add(host)
            if is_stray(value, host, self._names.found(host), tolerations) and self._attempts.ready(key):
                self._fail(key, pod)

    def _fail(self, workload: str, pod: PodObject) -> None:
        at = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
        row = {"type": CONDITION, "status": "True", "reason": REASON, "message": MESSAGE, "lastTransitionTime": at}
        body: Json = {
            "metadata": {"uid": pod.uid, "resourceVersion": pod.resource_version},
            "status": {"phase": "Failed", "conditions": [row]},
        }

        def failed(answer: PodObject) -> None:
            self._attempts.resolved(workload)
            self._attempts.forgive(workload)
            self._recorder.record(answer, "Normal", EVENT, MESSAGE, "PodTerminated")
            self._again(workload)

        self._attempts.sent(workload)
        key = ObjectKey.parse(kube.PODS, pod.key)
        self._writer.submit(
            Write(
                key,
                "status",
                body,
                Priority.START_STOP,
                on_done=failed,
                on_error=partial(self._refused, workload),
                slot="stray",
                patch="strategic",
            )
        )

    def _refused(self, workload: str, error: ApiError) -> None:
        """End the attempt. After a conflict the watch shows the pod's newest version, and it is looked at again; after other
        errors there is a pause.
        """
        self._attempts.resolved(workload)
        if not isinstance(error, Conflict | NotFound):
            self._attempts.pause(workload)
