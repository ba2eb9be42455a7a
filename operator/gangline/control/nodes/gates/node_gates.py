"""Sends the pods of gangs to the nodes on which the engine has room for them, on flavors without a topology.

The engine admits a gang when nodes have room for all of its pods at once, and keeps that room. The Kubernetes scheduler knows of
no such room: by its own scores it would spread the pods of small jobs over the nodes that a large gang was to get, and the gang
would hold its quota with pods that fit nowhere. So these pods are created behind a scheduling gate. In one write each of them
loses the gate and gets a required node affinity: for one node that still lacks a pod of its pod set or, where the gang takes
whole domains (JobSet's exclusive topology), for the domains of its gang, since there JobSet and the node of its first pod decide.
The template of the job names no node, so that a replacement of the pod goes wherever the engine has room for it then.

Pods that nodes do not bound lose the gate without more, and so do those of nobody.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from functools import partial
from typing import Final, TypeAlias

from gangline.api import names
from gangline.control.feed.pod import METADATA_NAME, REQUIRED, Pod
from gangline.control.kernel.context import Context
from gangline.control.nodes.gates.gate_removal import GateRemoval
from gangline.control.parts.changed_keys import ChangedKeys
from gangline.engine import model
from gangline.kube.resources import Json
from gangline.objects import PodObject, WorkloadObject

#: pod set -> node -> how many of its pods have room there; pod sets that nodes do not bound are left out
Places: TypeAlias = Mapping[str, Mapping[str, int]]
#: node label -> the domains of its own, empty while it has too few; None: anywhere that has room
DomainsOf: TypeAlias = Callable[[str], Collection[str] | None]

_GATES: Final = (names.DOMAIN_GATE, names.TOPOLOGY_GATE)


class NodeGates(GateRemoval):
    """Removes the gates of the pods of gangs, each with the node or the domains that it is sent to."""

    name = "sending"
    gate = names.DOMAIN_GATE
    doing = "sending its pods to nodes"

    def __init__(self, context: Context) -> None:
        super().__init__(context)
        self._engine = context.engine
        #: workloads with pods for which no node has room yet
        self._lacking: set[str] = set()

    def _changes(self, context: Context) -> tuple[ChangedKeys[str], ChangedKeys[str]]:
        return context.mirror.changes.workloads, context.pods.changed_at_node_gate

    def lead(self) -> None:
        self._changed.update(self._pods.with_pods_at_node_gate())

    def _gather(self, now: int) -> None:
        super()._gather(now)
        self._changed.update(self._lacking)
        self._lacking.clear()

    def _reconcile(self, key: str, now: int) -> None:
        if self._mirror.workloads.get(key) is not None:
            super()._reconcile(key, now)
            return
        for pod in self._pods.at_node_gate(key):  # of no gang, or of one that is gone: nobody keeps room for it
            self._submit(key, None, pod.manifest, ungated(pod.manifest, None))

    def _ungating(self, key: str, workload: model.Workload, raw: WorkloadObject) -> Iterable[tuple[PodObject, Json]]:
        if not self._pods.at_node_gate(key):
            return
        pods = [self._as_it_will_be(pod) for pod in self._pods.of(key)]
        counts = {each.name: each.count for each in workload.pod_sets}
        labels = {each.name: each.exclusive for each in workload.pod_sets if each.exclusive}
        places, domains = self._engine.places_of(key), partial(self._engine.domains_of, key)
        if places and workload.avoid:
            places = {name: by_node for name, by_node in places.items() if name not in with_volumes(raw)}
        sent: set[str] = set()
        for pod, affinity in destinations(pods, counts, labels, places, domains):
            sent.add(pod.key)
            yield pod.manifest, ungated(pod.manifest, affinity)
        if any(pod.at_node_gate and pod.key not in sent for pod in pods):
            self._lacking.add(key)

    def _as_it_will_be(self, pod: Pod) -> Pod:
        """The pod as it is once the write that is on its way has been carried out."""
        if not pod.at_node_gate:
            return pod
        return pod.after(self._as_asked(pod.manifest))


def with_volumes(workload: WorkloadObject) -> set[str]:
    """Pod sets with claims of volumes, which may exist for some nodes only, as the scheduler knows.

    Once a node has refused pods of the gang, the scheduler chooses the nodes of these.
    """
    templates = {each["name"]: each.get("template") or {} for each in workload.pod_sets}
    return {
        name
        for name, template in templates.items()
        if any(volume.get("persistentVolumeClaim") for volume in (template.get("spec") or {}).get("volumes") or ())
    }


def destinations(
    pods: Collection[Pod],
    counts: Mapping[str, int],
    labels: Mapping[str, str],
    places: Places | None,
    domains: DomainsOf,
) -> Iterator[tuple[Pod, Json | None]]:
    """The pods of a gang that need not wait any longer, each with its new affinity; None: any node will do.

    `counts` are the pods of each pod set, `labels` those of the domains that pod sets take whole. Pods that are at a node already
    use the room there. The others get the nodes in order of their ranks, so that neighbours in rank are near each other where the
    names of nodes are.
    """
    at_nodes = Counter((pod.pod_set, pod.node or pod.sent) for pod in pods if not pod.ended)
    free: dict[str, Iterator[str]] = {}
    for name, by_node in (places or {}).items():
        nodes = sorted(by_node, key=_by_number)
        free[name] = iter([node for node in nodes for _ in range(by_node[node] - at_nodes[name, node])])
    waiting = [pod for pod in pods if pod.at_node_gate and not pod.terminating]
    for pod in sorted(waiting, key=lambda pod: _rank(pod, counts.get(pod.pod_set, 0))):
        affinity = pod.manifest.spec.get("affinity") or {}
        if label := labels.get(pod.pod_set, ""):
            follows = label in (pod.manifest.spec.get("nodeSelector") or {})
            mine = None if follows else domains(label)
            if mine is None:
                yield pod, None
            elif mine:
                yield pod, _only(affinity, "matchExpressions", label, sorted(mine))
        elif places is None or pod.pod_set not in places:
            yield pod, None
        elif node := next(free[pod.pod_set], ""):
            yield pod, _only(affinity, "matchFields", METADATA_NAME, [node])


def ungated(pod: PodObject, affinity: Json | None) -> Json:
    """The merge patch that removes the gate, with a new affinity if there is one.

    A pod that is queued by itself has the gate of topologies from the start, since none can be added. It waits there for its node
    where no topology places it.
    """
    placed = names.TAS_LABEL in pod.labels
    mine = _GATES[:1] if placed else _GATES
    gates = [gate for gate in pod.spec["schedulingGates"] if gate["name"] not in mine]
    spec: Json = {"schedulingGates": gates or None}
    if affinity is not None:
        spec["affinity"] = affinity
    return {"metadata": {"resourceVersion": pod.resource_version}, "spec": spec}


def _only(affinity: Json, part: str, key: str, values: list[str]) -> Json:
    """The affinity, narrowed to these values: every term that matches a node matches only nodes that have one of them."""
    here = {"key": key, "operator": "In", "values": values}
    node: Json = affinity.get("nodeAffinity") or {}
    terms = (node.get(REQUIRED) or {}).get("nodeSelectorTerms") or [{}]
    narrowed = [{**term, part: [*(term.get(part) or ()), here]} for term in terms]
    return {**affinity, "nodeAffinity": {**node, REQUIRED: {"nodeSelectorTerms": narrowed}}}


def _rank(pod: Pod, count: int) -> tuple[int, tuple[int, str]]:
    index = pod.bound(count).index
    return count if index is None else index, _by_number(pod.name)


def _by_number(name: str) -> tuple[int, str]:
    """Orders names that differ by a number at their end."""
    return len(name), name
