"""Steers pods of jobs that take whole domains (JobSet's exclusive topology) to the domains that the engine reserved for them.

JobSet and the scheduler decide which domain a child Job gets: the node of its first pod decides, and the other pods follow.
Without steering, first pods choose wrong domains: one that is broken but has room on some of its nodes, or one that a gang of
another priority is about to fill (JobSet keeps only gangs of equal priority apart). The Kubernetes scheduler then preempts single
pods, and neither gang is complete. So these pods have a scheduling gate. Once there is a domain for every Job of the gang, each
pod gets a node affinity for the gang's domains and loses its gate.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from typing import Final, TypeAlias

from gangline.api import names
from gangline.control.gates.gate_removal import runs
from gangline.control.mirror.mirror import Mirror
from gangline.control.mirror.pod import GATE, Pod
from gangline.control.mirror.pod_index import PodIndex
from gangline.control.parts.part import Part
from gangline.control.writes.outgoing import Priority, Write
from gangline.control.writes.writer import Writer
from gangline.engine import Engine
from gangline.kube import resources as kube
from gangline.kube.errors import ApiError, Conflict
from gangline.kube.resources import Json, ObjectKey

_REQUIRED: Final = "requiredDuringSchedulingIgnoredDuringExecution"
#: Workload -> pod set name -> label of the node domains that the pod set takes whole
LabelsOf: TypeAlias = Callable[[str], Mapping[str, str]]
#: (Workload, node label) -> the domains of its own, empty while it has too few; None: anywhere that has room
DomainsOf: TypeAlias = Callable[[str, str], Collection[str] | None]


class DomainGates(Part):
    """Steers the pods of gangs that take whole domains to the domains of their gang."""

    name = "steering"

    def __init__(
        self, mirror: Mirror, pods: PodIndex, writer: Writer, engine: Engine, wake: Callable[[], None]
    ) -> None:
        self._mirror = mirror
        self._pods = pods
        self._writer = writer
        self._engine = engine
        self._wake = wake

    def act(self, now: int) -> None:
        waiting = (pod for pod in self._pods.at_domain_gate() if not self._stops(pod.workload))
        for pod, body in released(waiting, self._whole_domains, self._engine.domains_of):
            target = ObjectKey.parse(kube.PODS, pod.key)
            if not self._writer.pending(target):
                self._writer.submit(
                    Write(
                        target,
                        "patch",
                        body,
                        Priority.START_STOP,
                        on_done=self._pods.upsert,
                        on_error=self._failed,
                        slot="domains",
                    )
                )

    def _failed(self, error: ApiError) -> None:
        """The pod's newest version may have been seen already, while the answer was on its way."""
        if isinstance(error, Conflict):
            self._wake()

    def _stops(self, workload: str) -> bool:
        """Its pods are about to be deleted: one that lost its gate now would be bound while its gang holds no quota."""
        value = self._mirror.workload_value(workload)
        return value is not None and not runs(value)

    def _whole_domains(self, workload: str) -> dict[str, str]:
        value = self._mirror.workload_value(workload)
        return {pod_set.name: pod_set.exclusive for pod_set in value.pod_sets} if value is not None else {}


def released(pods: Iterable[Pod], labels: LabelsOf, domains: DomainsOf) -> list[tuple[Pod, Json]]:
    """Each pod that no longer has to wait, and the merge patch that removes its gate."""
    bodies = ((pod, _released(pod, labels, domains)) for pod in pods)
    return [(pod, body) for pod, body in bodies if body is not None]


def _released(pod: Pod, labels: LabelsOf, domains: DomainsOf) -> Json | None:
    meta, spec = pod.manifest["metadata"], pod.manifest["spec"]
    label = labels(pod.workload).get((meta.get("labels") or {}).get(names.PODSET, ""), "")
    change: Json = {"schedulingGates": [gate for gate in spec["schedulingGates"] if gate != GATE]}
    follows = label in (spec.get("nodeSelector") or {})
    mine = domains(pod.workload, label) if label and not follows else None
    if mine is not None and not mine:
        return None
    if mine:
        change["affinity"] = _only(spec.get("affinity") or {}, label, mine)
    return {"metadata": {"resourceVersion": meta["resourceVersion"]}, "spec": change}


def _only(affinity: Json, label: str, domains: Collection[str]) -> Json:
    """The affinity, narrowed to these domains: every term that matches a node matches only nodes there."""
    here = {"key": label, "operator": "In", "values": sorted(domains)}
    node: Json = affinity.get("nodeAffinity") or {}
    terms = (node.get(_REQUIRED) or {}).get("nodeSelectorTerms") or [{}]
    narrowed = [{**term, "matchExpressions": [*(term.get("matchExpressions") or ()), here]} for term in terms]
    return {**affinity, "nodeAffinity": {**node, _REQUIRED: {"nodeSelectorTerms": narrowed}}}
