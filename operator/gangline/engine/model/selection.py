"""Selectors of nodes and namespaces: taints, tolerations, affinity, labels; and what they match."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final, TypeAlias


@dataclass(frozen=True, slots=True)
class Taint:
    key: str
    value: str = ""
    effect: str = "NoSchedule"


@dataclass(frozen=True, slots=True)
class Toleration:
    key: str = ""
    operator: str = "Equal"
    value: str = ""
    effect: str = ""


@dataclass(frozen=True, slots=True)
class Expression:
    """One requirement on a label: `operator` is In, NotIn, Exists, DoesNotExist, Gt or Lt.

    With `field` it is one on a field of a node (matchFields), of which Kubernetes knows `metadata.name` alone.
    """

    key: str
    operator: str
    values: tuple[str, ...] = ()
    field: bool = False


#: Required node affinity: terms are ORed, the expressions of a term are ANDed. Empty = no affinity.
Affinity: TypeAlias = tuple[tuple[Expression, ...], ...]


@dataclass(frozen=True, slots=True)
class PreferredTerm:
    weight: int
    expressions: tuple[Expression, ...]


@dataclass(frozen=True, slots=True)
class LabelSelector:
    """A Kubernetes label selector; `match_labels` become `expressions` (operator In). No expressions = selects everything."""

    expressions: tuple[Expression, ...] = ()


# --- matching ---------------------------------------------------------------------------------------------------------
# Whether a toleration tolerates a taint, and whether one requirement on a label, or on the name of a node, is met.


def tolerates(toleration: Toleration, taint: Taint) -> bool:
    """Kubernetes' rule: an empty key or effect of the toleration matches all; Exists ignores the value."""
    if toleration.effect and toleration.effect != taint.effect:
        return False
    if toleration.key and toleration.key != taint.key:
        return False
    return toleration.operator == "Exists" or (toleration.operator in ("", "Equal") and toleration.value == taint.value)


#: the one field of a node that matchFields may name
NAME_FIELD: Final = "metadata.name"


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
    left, right = integer(value), integer(expression.values[0] if expression.values else "")
    if left is None or right is None:
        return False
    return left > right if expression.operator == "Gt" else left < right


#: digits of the longest number that a label is compared with; Kubernetes takes what fits in 64 bits
_MOST_DIGITS = 19


def integer(text: str) -> int | None:
    """The number that a label says, as far as Kubernetes compares it."""
    digits = text[1:] if text[:1] in ("+", "-") else text
    return int(text) if len(digits) <= _MOST_DIGITS and digits.isascii() and digits.isdigit() else None
