"""Selectors of nodes and namespaces: taints, tolerations, affinity, labels."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeAlias


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
