"""Assigns the pods of placed gangs to their topology domains.

The pods of a gang whose admission names topology domains wait behind a scheduling gate. Each gets the node selector of one domain
and loses its gate: by its rank where the kind numbers its pods (neighbours in rank are neighbours in the topology), else in any
domain of the gang that still lacks pods. A pod that replaces a lost one gets the domain of the lost pod.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from typing import TypeAlias

from gangline import bounded
from gangline.api import names
from gangline.control.isolation.quarantine import Quarantine
from gangline.control.mirror.mirror import Mirror
from gangline.control.mirror.pod_index import PodIndex
from gangline.control.operator_metrics import Metrics
from gangline.control.parts.part import Part
from gangline.control.writes.outgoing import Priority, Write
from gangline.control.writes.writer import Writer
from gangline.control.writes.writes import Writes
from gangline.engine import model
from gangline.kube import resources as kube
from gangline.kube.resources import Json, ObjectKey, deleting

Selector: TypeAlias = Mapping[str, str]


class PodGates(Part):
    """Removes the gates of the pods of placed gangs, each with the node selector of its domain."""

    name = "places"

    def __init__(
        self,
        mirror: Mirror,
        pods: PodIndex,
        writes: Writes,
        writer: Writer,
        metrics: Metrics,
        *,
        now: Callable[[], int],
        quarantine: Quarantine,
    ) -> None:
        self._mirror = mirror
        self._pods = pods
        self._writes = writes
        self._writer = writer
        self._metrics = metrics
        self._now = now
        self._quarantine = quarantine
        self._changed = mirror.changes.placed.subscribe(worth=mirror.has(kube.WORKLOADS))
        pods.changed_placed.feed(self._changed)

    def act(self, now: int) -> None:
        for key in sorted(self._changed.take()):
            self._quarantine.attempt("placing its pods", kube.WORKLOADS, key, partial(self._place_pods_of, key))

    def _place_pods_of(self, key: str) -> None:
        pods = [pod.manifest for pod in self._pods.of(key) if pod.placed]
        workload, raw = self._mirror.workload_value(key), self._mirror.get(kube.WORKLOADS, key)
        if not pods or workload is None or raw is None or self._writes.in_doubt(kube.WORKLOADS, key):
            return
        for pod, body in ungating(workload, raw["spec"].get("podSets") or (), pods):
            target = ObjectKey.of(kube.PODS, pod)
            if not self._writer.pending(target):
                done = partial(self._ungated, raw)
                self._writer.submit(Write(target, "patch", body, priority=Priority.START_STOP, on_done=done))

    def _ungated(self, workload: Json, pod: Json) -> None:
        self._pods.upsert(pod)
        self._metrics.kueue.gate_removed(names.TOPOLOGY_GATE, workload, self._now())


# --- places -----------------------------------------------------------------------------------------------------------


def gated(pod: Json) -> bool:
    return any(gate["name"] == names.TOPOLOGY_GATE for gate in pod["spec"].get("schedulingGates") or ())


def ended(pod: Json) -> bool:
    return pod.get("status", {}).get("phase") in ("Succeeded", "Failed") or deleting(pod)


def ungating(workload: model.Workload, pod_sets: Iterable[Json], pods: Iterable[Json]) -> list[tuple[Json, Json]]:
    """Each gated pod that has a domain, and the merge patch that removes its gate. `pod_sets` come from the Workload's spec."""
    if workload.admission is None or not workload.admitted or workload.evicted or workload.finished:
        return []
    by_pod_set: dict[str, list[Json]] = {}
    for pod in pods:
        by_pod_set.setdefault(pod["metadata"]["labels"].get(names.PODSET, ""), []).append(pod)
    asked = {pod_set["name"]: pod_set for pod_set in pod_sets}
    patches: list[tuple[Json, Json]] = []
    for assignment in workload.admission.pod_sets:
        if assignment.topology is None or assignment.delayed_topology == "Pending":
            continue
        members = by_pod_set.get(assignment.name, [])
        for pod, place in places(assignment.topology, members, rank_of(asked.get(assignment.name, {}))):
            gates = [gate for gate in pod["spec"]["schedulingGates"] if gate["name"] != names.TOPOLOGY_GATE]
            selector = {**(pod["spec"].get("nodeSelector") or {}), **place}
            version = pod["metadata"]["resourceVersion"]
            body = {
                "metadata": {"resourceVersion": version},
                "spec": {"nodeSelector": selector, "schedulingGates": gates},
            }
            patches.append((pod, body))
    return patches


def rank_of(pod_set: Json) -> Callable[[Json], int | None]:
    """Returns a function that reads a pod's rank in its pod set: index, or group × group size + index; None where it has none."""
    request = pod_set.get("topologyRequest") or {}
    index_label = request.get("podIndexLabel") or INDEX_LABEL
    group_label, groups = request.get("subGroupIndexLabel"), request.get("subGroupCount") or 0

    def rank(pod: Json) -> int | None:
        labels = pod["metadata"].get("labels") or {}
        index = bounded.whole(labels.get(index_label))
        if index is None or not group_label or not groups:
            return index
        group = bounded.whole(labels.get(group_label))
        return None if group is None else group * (pod_set.get("count", 1) // groups) + index

    return rank


#: the label that the Job controller sets on the pods of an Indexed Job
INDEX_LABEL = "batch.kubernetes.io/job-completion-index"


def places(
    topology: model.TopologyAssignment, pods: Sequence[Json], rank: Callable[[Json], int | None]
) -> list[tuple[Json, Selector]]:
    """A domain for each gated pod, as node labels. Never more pods in a domain than the gang has there.

    After nodes were replaced, pods may run in another domain than their rank gives now: then free places are filled in order.
    """
    living = [pod for pod in pods if not ended(pod)]
    waiting = [pod for pod in living if gated(pod)]
    selectors = [dict(zip(topology.levels, domain.values, strict=True)) for domain in topology.domains]
    ranks = [rank(pod) for pod in living]
    domain_by_rank = [number for number, domain in enumerate(topology.domains) for _ in range(domain.count)]
    numbered = all(number is not None and number < len(domain_by_rank) for number in ranks) and len(set(ranks)) == len(
        ranks
    )
    if numbered and all(
        _domain_of(pod, selectors) == domain_by_rank[rank(pod) or 0] for pod in living if not gated(pod)
    ):
        return [(pod, selectors[domain_by_rank[rank(pod) or 0]]) for pod in waiting]
    taken = Counter(_domain_of(pod, selectors) for pod in living if not gated(pod))
    free = [number for number in range(len(selectors)) for _ in range(topology.domains[number].count - taken[number])]
    return [(pod, selectors[number]) for pod, number in zip(waiting, free, strict=False)]


def _domain_of(pod: Json, selectors: Sequence[Selector]) -> int | None:
    """The number of the domain that a pod was assigned to."""
    chosen = pod["spec"].get("nodeSelector") or {}
    return next((number for number, selector in enumerate(selectors) if selector.items() <= chosen.items()), None)
