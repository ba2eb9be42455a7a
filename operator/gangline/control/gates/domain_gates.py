"""Gates of pods of jobs that take whole domains (JobSet's exclusive topology): each pod is sent to a domain that the engine
assigned.

JobSet and the scheduler decide the domain of a child Job by the place of its first pod, which the others follow. Without gates,
first pods choose domains that are not theirs: one that lost a node but has room on some others, or one that another gang of
another priority is about to fill, from which JobSet keeps gangs of equal priority only. The Kubernetes scheduler then preempts
single pods, and neither gang is complete. So these pods have a scheduling gate, and each loses it together with its node
affinity, as soon as there is a domain for every Job of its gang.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from typing import Final, TypeAlias

from gangline.api import names
from gangline.control.mirror.mirror import Mirror
from gangline.control.mirror.pod import GATE, Pod
from gangline.control.mirror.pod_index import PodIndex
from gangline.control.parts.part import Part
from gangline.control.writes.outgoing import Priority, Write
from gangline.control.writes.writer import Writer
from gangline.engine import Engine
from gangline.kube import resources as kube
from gangline.kube.resources import Json, ObjectKey

_REQUIRED: Final = "requiredDuringSchedulingIgnoredDuringExecution"
#: Workload -> the node label of which each of its pod sets takes whole domains
LabelsOf: TypeAlias = Callable[[str], Mapping[str, str]]
#: (Workload, node label) -> its assigned domains, empty while it has too few; None: anywhere with room
DomainsOf: TypeAlias = Callable[[str, str], Collection[str] | None]


class DomainGates(Part):
    """Removes the gates of pods of gangs that take whole domains, with the affinity for their domains."""

    name = "steering"

    def __init__(self, mirror: Mirror, pods: PodIndex, writer: Writer, engine: Engine) -> None:
        self._mirror = mirror
        self._pods = pods
        self._writer = writer
        self._engine = engine

    def act(self, now: int) -> None:
        for pod, body in released(self._pods.at_domain_gate(), self._whole_domains, self._engine.domains_of):
            target = ObjectKey.parse(kube.PODS, pod.key)
            if not self._writer.pending(target):
                write = Write(target, "patch", body, priority=Priority.START_STOP, on_done=self._pods.upsert)
                self._writer.submit(write)

    def _whole_domains(self, workload: str) -> dict[str, str]:
        value = self._mirror.workload_value(workload)
        return {pod_set.name: pod_set.exclusive for pod_set in value.pod_sets} if value is not None else {}


def released(pods: Iterable[Pod], labels: LabelsOf, domains: DomainsOf) -> list[tuple[Pod, Json]]:
    """Each pod that may be scheduled, and the merge patch for it."""
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
    """The affinity, narrowed to these domains in each of its terms."""
    here = {"key": label, "operator": "In", "values": sorted(domains)}
    node: Json = affinity.get("nodeAffinity") or {}
    terms = (node.get(_REQUIRED) or {}).get("nodeSelectorTerms") or [{}]
    narrowed = [{**term, "matchExpressions": [*(term.get("matchExpressions") or ()), here]} for term in terms]
    return {**affinity, "nodeAffinity": {**node, _REQUIRED: {"nodeSelectorTerms": narrowed}}}
