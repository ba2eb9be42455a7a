"""Counts the accelerators that admitted gangs hold while one of their pods can't be bound: what is lost to such gangs.

A pod counts from the moment that it exists until it is bound, where the scheduler says that no node fits it, or where it waits at
our gate for a node. The time that binding takes is in it; whatever else is in it is a plan that the scheduler did not follow.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping

from gangline.control.feed.pod import Pod
from gangline.control.kernel.context import Context
from gangline.control.nodes.gates.gate_removal import runs
from gangline.control.parts.part import Part
from gangline.engine import accelerators
from gangline.kube import resources as kube


class HeldUnbound(Part):
    """Accelerator seconds by ClusterQueue, and the gangs that hold such accelerators now."""

    name = "accelerators held in vain"

    def __init__(self, context: Context) -> None:
        self._mirror = context.mirror
        self._pods = context.pods
        exists = context.mirror.has(kube.WORKLOADS)
        self._changed = context.pods.changed.subscribe(worth=exists)
        context.pods.changed_at_node_gate.feed(self._changed)
        context.mirror.changes.workloads.feed(self._changed)
        #: Workload -> its ClusterQueue and accelerators
        self._holding: dict[str, tuple[str, int]] = {}
        self._seconds: Counter[str] = Counter()
        self._counted_until = 0

    def act(self, now: int) -> None:
        self._count(now)
        for key in self._changed.take():
            self._look(key)

    def _count(self, now: int) -> None:
        lasted = max(0, now - self._counted_until) if self._counted_until else 0
        self._counted_until = max(now, self._counted_until)
        for queue, held in self._holding.values():
            self._seconds[queue] += held * lasted

    def _look(self, key: str) -> None:
        self._holding.pop(key, None)
        workload = self._mirror.workload_value(key)
        if workload is None or workload.admission is None or not runs(workload):
            return
        if any(can_not_be_bound(pod) for pod in self._pods.of(key)):
            held = sum(accelerators(pod_set.usage) for pod_set in workload.admission.pod_sets)
            if held:
                self._holding[key] = workload.admission.cluster_queue, held

    def seconds(self, now: int) -> Mapping[tuple[str, ...], float]:
        """The accelerator seconds by ClusterQueue, up to now."""
        self._count(now)
        return {(queue,): milliseconds / 1000 for queue, milliseconds in self._seconds.items()}

    def holding(self) -> Mapping[str, int]:
        """Workloads of which a pod can't be bound now, and how many accelerators each holds."""
        return {key: held for key, (_, held) in self._holding.items()}


def can_not_be_bound(pod: Pod) -> bool:
    """Whether the pod lives, and neither has a node nor gets one from the scheduler as things are."""
    return pod.alive and not pod.node and (pod.at_node_gate or pod.unschedulable)
