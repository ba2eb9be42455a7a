"""Lets as many pods of elastic jobs start as are admitted.

All pods of an elastic job are created behind a scheduling gate. It is removed from as many of each pod set as the slice that is
admitted has: from the first ones by name, as in Kueue. Pods that run count until they have ended.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import replace

from gangline.api import names
from gangline.control.feed.pod import Pod, waits_at_elastic_gate
from gangline.control.kernel.context import Context
from gangline.control.nodes.gates.gate_removal import GateRemoval
from gangline.control.parts.changed_keys import ChangedKeys
from gangline.engine import model
from gangline.kube import resources as kube
from gangline.kube.resources import Json
from gangline.objects import PodObject, WorkloadObject


class ElasticGates(GateRemoval):
    """Removes the gates of the pods of elastic jobs."""

    name = "elastic pods"
    gate = names.ELASTIC_GATE
    doing = "starting its pods"

    def _changes(self, context: Context) -> tuple[ChangedKeys[str], ChangedKeys[str]]:
        return context.mirror.changes.elastic, context.pods.changed_elastic

    def _ungating(self, key: str, workload: model.Workload, raw: WorkloadObject) -> Iterable[tuple[PodObject, Json]]:
        if self._writes.pending(kube.WORKLOADS, key):  # it may be cut just now
            self._changed.add(key)
            return
        counts = {pod_set.name: pod_set.count for pod_set in workload.pod_sets}
        pods = [replace(pod, at_elastic_gate=self._waits(pod)) for pod in self._pods.of(key)]
        for pod in to_start(counts, pods):
            yield pod.manifest, without_gate(pod.manifest)

    def _waits(self, pod: Pod) -> bool:
        return pod.at_elastic_gate and waits_at_elastic_gate(self._as_asked(pod.manifest))


def to_start(counts: Mapping[str, int], pods: Iterable[Pod]) -> list[Pod]:
    """The pods that wait and may start; `counts` says how many each pod set may have."""
    living = [pod for pod in pods if not pod.ended]
    started = Counter(pod.pod_set for pod in living if not pod.at_elastic_gate)
    found: list[Pod] = []
    for pod in sorted((pod for pod in living if pod.at_elastic_gate), key=lambda pod: pod.name):
        if not pod.terminating and started[pod.pod_set] < counts.get(pod.pod_set, 0):
            started[pod.pod_set] += 1
            found.append(pod)
    return found


def without_gate(pod: PodObject) -> Json:
    """The patch that removes the gate, and no other one."""
    gates = [gate for gate in pod.spec.get("schedulingGates") or () if gate["name"] != names.ELASTIC_GATE]
    assert waits_at_elastic_gate(pod)
    return {
        "metadata": {"resourceVersion": pod.resource_version},
        "spec": {"schedulingGates": gates or None},
    }
