"""Pods of jobs that take whole domains (JobSet's exclusive topology), sent to the domains that the engine counts on.

Which domain a child Job gets is decided by JobSet and the scheduler: by the place of its first pod, which the others follow. As
long as every domain is sound any choice is good. When one is not, a first pod might choose it all the same, since some of its
nodes have room; so gangs that start meanwhile have a scheduling gate, and each pod loses it with a word on where to go.
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
#: (Workload, node label) -> the domains that are its own; none: wherever there is room
DomainsOf: TypeAlias = Callable[[str, str], Collection[str]]


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
        """Each pod that waits, and the merge patch that lets it go.

        `labels`: Workload -> the node label of which each of its pod sets takes whole domains.
        """
        return [(pod, _released(pod, labels, domains)) for _, pod in sorted(self._waiting.items())]


def gated(pod: Json) -> bool:
    return "deletionTimestamp" not in pod["metadata"] and GATE in (pod["spec"].get("schedulingGates") or ())


def _released(pod: Json, labels: Callable[[str], Mapping[str, str]], domains: DomainsOf) -> Json:
    meta, spec = pod["metadata"], pod["spec"]
    workload = f"{meta['namespace']}/{(meta.get('annotations') or {}).get(names.WORKLOAD_ANNOTATION, '')}"
    label = labels(workload).get((meta.get("labels") or {}).get(names.PODSET, ""), "")
    change: Json = {"schedulingGates": [gate for gate in spec["schedulingGates"] if gate != GATE]}
    follows = label in (spec.get("nodeSelector") or {})
    mine = domains(workload, label) if label and not follows else ()
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
