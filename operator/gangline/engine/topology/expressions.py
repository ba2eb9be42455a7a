"""Whether one requirement on a label, or on the name of a node, is met."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from gangline.engine.model import Expression

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
