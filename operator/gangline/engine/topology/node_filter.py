"""Which nodes a pod may run on at all: taints, node selector, required affinity; and its preference for each of them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final, TypeAlias

from gangline.engine.model import Affinity, Expression, PodSet, PreferredTerm, Taint, Toleration
from gangline.engine.topology.policy_filter import PolicyAsk

#: Why a node is excluded ("" = it is not), as failure texts name it, and its preferred-affinity score.
Verdict: TypeAlias = tuple[str, int]

#: the one field of a node that matchFields may name
NAME_FIELD: Final = "metadata.name"

_BINDING_EFFECTS = frozenset({"NoSchedule", "NoExecute"})


@dataclass(frozen=True, slots=True)
class Selection:
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
    ) -> Selection:
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
        for taint in taints:
            if taint.effect in _BINDING_EFFECTS and not any(tolerates(t, taint) for t in self.tolerations):
                return f'taint "{_taint_text(taint)}"', 0
        for key, value in self.selector:
            if labels.get(key) != value:
                return "nodeSelector", 0
        if self.affinity and not any(_term_matches(term, labels, name) for term in self.affinity):
            return "affinity", 0
        return "", sum(term.weight for term in self.preferred if _term_matches(term.expressions, labels, name))


#: No requirements: every node is as good as any other.
ANY_NODE = Selection()


def tolerates(toleration: Toleration, taint: Taint) -> bool:
    """Kubernetes' rule: an empty key or effect of the toleration matches all; Exists ignores the value."""
    if toleration.effect and toleration.effect != taint.effect:
        return False
    if toleration.key and toleration.key != taint.key:
        return False
    return toleration.operator == "Exists" or (toleration.operator in ("", "Equal") and toleration.value == taint.value)


def expression_matches(expression: Expression, labels: Mapping[str, str], name: str | None = None) -> bool:
    """Kubernetes' rule for one requirement on labels, or on the `name` of a node. An unknown operator matches nothing."""
    if expression.field:
        value = name if expression.key == NAME_FIELD else None
    else:
        value = labels.get(expression.key)
    match expression.operator:
        case "In":
            return value is not None and value in expression.values
        case "NotIn":
            return value is None or value not in expression.values
        case "Exists":
            return value is not None
        case "DoesNotExist":
            return value is None
        case "Gt" | "Lt":
            return value is not None and _compares(expression, value)
        case _:
            return False


def _compares(expression: Expression, value: str) -> bool:
    left, right = _integer(value), _integer(expression.values[0] if expression.values else "")
    if left is None or right is None:
        return False
    return left > right if expression.operator == "Gt" else left < right


#: digits of the longest number that a label is compared with; Kubernetes takes what fits in 64 bits
_MOST_DIGITS = 19


def _integer(text: str) -> int | None:
    digits = text[1:] if text[:1] in ("+", "-") else text
    return int(text) if len(digits) <= _MOST_DIGITS and digits.isascii() and digits.isdigit() else None


def _term_matches(expressions: tuple[Expression, ...], labels: Mapping[str, str], name: str) -> bool:
    """Whether a term matches; an empty term selects nothing."""
    return bool(expressions) and all(expression_matches(expression, labels, name) for expression in expressions)


def _taint_text(taint: Taint) -> str:
    return f"{taint.key}={taint.value}:{taint.effect}" if taint.value else f"{taint.key}:{taint.effect}"
