"""Pods of jobs that take whole domains (JobSet's exclusive topology), sent to the domains that the engine counts on.

Which domain a child Job gets is decided by JobSet and the scheduler: by the place of its first pod, which the others follow. Left
to themselves first pods choose domains that are not theirs: one that is broken but has room on some of its nodes, or one that
another gang of another priority is about to fill, from which JobSet keeps gangs of equal priority only. The Kubernetes scheduler
then preempts single pods, and neither gang is whole. So these pods have a scheduling gate, and each loses it with a word on where
to go, as soon as there is a domain for every Job of its gang.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from typing import Any, Final, TypeAlias

from gangline.api import names
from gangline.kube.resources import key_of

Json: TypeAlias = dict[str, Any]

GATE: Final[Json] = {"name": names.DOMAIN_GATE}
_REQUIRED: Final = "requiredDuringSchedulingIgnoredDuringExecution"
#: (Workload, node label) -> the domains that are its own, empty while it has too few; None: wherever there is room
DomainsOf: TypeAlias = Callable[[str, str], Collection[str] | None]


@dataclass(slots=True)
class Steering:
    """Pods that wait for their word."""

    _waiting: dict[str, Json] = field(default_factory=dict[str, Json])

    def upsert(self, pod: Json) -> None:
        if gated(pod):
            self._waiting[key_of(pod)] = pod
        else:
            self._waiting.pop(key_of(pod), None)

    def remove(self, key: str) -> None:
        self._waiting.pop(key, None)

    def released(self, labels: Callable[[str], Mapping[str, str]], domains: DomainsOf) -> list[tuple[Json, Json]]:
        """Each pod that need not wait any longer, and the merge patch that lets it go.

        `labels`: Workload -> the node label of which each of its pod sets takes whole domains.
        """
        bodies = ((pod, _released(pod, labels, domains)) for _, pod in sorted(self._waiting.items()))
        return [(pod, body) for pod, body in bodies if body is not None]


def gated(pod: Json) -> bool:
    return "deletionTimestamp" not in pod["metadata"] and GATE in (pod["spec"].get("schedulingGates") or ())


def _released(pod: Json, labels: Callable[[str], Mapping[str, str]], domains: DomainsOf) -> Json | None:
    meta, spec = pod["metadata"], pod["spec"]
    workload = f"{meta['namespace']}/{(meta.get('annotations') or {}).get(names.WORKLOAD_ANNOTATION, '')}"
    label = labels(workload).get((meta.get("labels") or {}).get(names.PODSET, ""), "")
    change: Json = {"schedulingGates": [gate for gate in spec["schedulingGates"] if gate != GATE]}
    follows = label in (spec.get("nodeSelector") or {})
    mine = domains(workload, label) if label and not follows else None
    if mine is not None and not mine:
        return None
    if mine:
        change["affinity"] = _only(spec.get("affinity") or {}, label, mine)
    return {"metadata": {"resourceVersion": meta["resourceVersion"]}, "spec": change}


def _only(affinity: Json, label: str, domains: Collection[str]) -> Json:
    """The affinity, narrowed to these domains: every way that led to a node leads there only."""
    here = {"key": label, "operator": "In", "values": sorted(domains)}
    node: Json = affinity.get("nodeAffinity") or {}
    terms = (node.get(_REQUIRED) or {}).get("nodeSelectorTerms") or [{}]
    narrowed = [{**term, "matchExpressions": [*(term.get("matchExpressions") or ()), here]} for term in terms]
    return {**affinity, "nodeAffinity": {**node, _REQUIRED: {"nodeSelectorTerms": narrowed}}}
