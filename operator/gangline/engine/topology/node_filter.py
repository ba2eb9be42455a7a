"""Which nodes a pod may run on at all: taints, node selector, required affinity; and its preference for each of them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final, TypeAlias

from gangline.engine.model import Affinity, PodSet, PreferredTerm, Taint, Toleration
from gangline.engine.topology.node_terms import NodeTerms
from gangline.engine.topology.policy_filter import PolicyAsk

#: Why a node is excluded ("" = it is not), as failure texts name it, and its preferred-affinity score.
Verdict: TypeAlias = tuple[str, int]

_BINDING_EFFECTS = frozenset({"NoSchedule", "NoExecute"})


@dataclass(frozen=True, slots=True)
class NodeSelection:
    """What a pod set requires of a node, apart from capacity. Equal selections share their verdicts."""

    tolerations: tuple[Toleration, ...] = ()
    selector: tuple[tuple[str, str], ...] = ()
    affinity: Affinity = ()
    preferred: tuple[PreferredTerm, ...] = ()
    #: what a placement policy looks at besides; None = there is none, or it excludes nothing and looks at nothing
    policy: PolicyAsk | None = None

    @classmethod
    def of(
        cls,
        pod_set: PodSet,
        tolerations: tuple[Toleration, ...],
        *,
        scored: bool,
        policy: PolicyAsk | None = None,
    ) -> NodeSelection:
        """The selection of a pod set. `tolerations` are the flavor's, added to the pods' own; `scored`: preferences count."""
        return cls(
            tolerations=pod_set.tolerations + tolerations,
            selector=tuple(sorted(pod_set.node_selector.items())),
            affinity=pod_set.affinity,
            preferred=pod_set.preferred_affinity if scored else (),
            policy=policy,
        )

    def judge(self, name: str, labels: Mapping[str, str], taints: Sequence[Taint]) -> Verdict:
        """The first reason that excludes a node, or its score."""
        return _judge_of(self).judge(name, labels, taints)


#: No requirements: every node is as good as any other.
ANY_NODE = NodeSelection()


def tolerates(toleration: Toleration, taint: Taint) -> bool:
    """Kubernetes' rule: an empty key or effect of the toleration matches all; Exists ignores the value."""
    if toleration.effect and toleration.effect != taint.effect:
        return False
    if toleration.key and toleration.key != taint.key:
        return False
    return toleration.operator == "Exists" or (toleration.operator in ("", "Equal") and toleration.value == taint.value)


def _taint_text(taint: Taint) -> str:
    return f"{taint.key}={taint.value}:{taint.effect}" if taint.value else f"{taint.key}:{taint.effect}"


class _Judge:
    """A selection, prepared for many nodes: whoever wrote it, a node costs time by its own labels and taints only."""

    __slots__ = ("_preferred", "_required", "_selection", "_tolerated", "_weights")

    def __init__(self, selection: NodeSelection) -> None:
        self._selection = selection
        self._tolerated: dict[Taint, bool] = {}
        self._required = NodeTerms(selection.affinity) if selection.affinity else None
        self._preferred = NodeTerms([term.expressions for term in selection.preferred]) if selection.preferred else None
        #: weight -> the preferred terms that have it, one bit each
        self._weights: dict[int, int] = {}
        for number, term in enumerate(selection.preferred):
            self._weights[term.weight] = self._weights.get(term.weight, 0) | 1 << number

    def judge(self, name: str, labels: Mapping[str, str], taints: Sequence[Taint]) -> Verdict:
        for taint in taints:
            if taint.effect in _BINDING_EFFECTS and not self._tolerates(taint):
                return f'taint "{_taint_text(taint)}"', 0
        for key, value in self._selection.selector:
            if labels.get(key) != value:
                return "nodeSelector", 0
        if self._required is not None and not self._required.matching(labels, name):
            return "affinity", 0
        return "", self._score(name, labels) if self._preferred is not None else 0

    def _tolerates(self, taint: Taint) -> bool:
        known = self._tolerated.get(taint)
        if known is None:
            known = self._tolerated[taint] = any(tolerates(each, taint) for each in self._selection.tolerations)
        return known

    def _score(self, name: str, labels: Mapping[str, str]) -> int:
        matching = self._preferred.matching(labels, name) if self._preferred is not None else 0
        return (
            sum(weight * (matching & terms).bit_count() for weight, terms in self._weights.items()) if matching else 0
        )


#: The judges of the selections that were asked last, by the selection's identity. Nodes are judged one after the other for the
#: same selection, and a large one is kept no longer than that.
_KEPT: Final = 4
_judges: dict[int, tuple[NodeSelection, _Judge]] = {}


def _judge_of(selection: NodeSelection) -> _Judge:
    found = _judges.get(id(selection))
    if found is None:
        while len(_judges) >= _KEPT:
            del _judges[next(iter(_judges))]
        found = _judges[id(selection)] = selection, _Judge(selection)
    return found[1]
