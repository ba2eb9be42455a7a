"""Reads runtime hints of jobs; an invalid hint is ignored."""

from __future__ import annotations

import math
from typing import Any, Final

from gangline.api import names, quantity
from gangline.objects import Stored

#: seconds: hints above ten years count as ten years
LONGEST: Final = 10 * 365 * 86_400.0


def annotated(obj: Stored) -> float | None:
    """The annotation that any kind of job, and its Workload, may have: its author's expected runtime, in seconds."""
    return seconds(obj.annotations.get(names.EXPECTED_RUNTIME))


def seconds(text: Any) -> float | None:
    """A duration such as 3h in seconds; None if it is invalid, or not above zero."""
    try:
        return positive(quantity.parse_duration(str(text))) if text is not None else None
    except quantity.QuantityError:
        return None


def by_steps(steps: Any, seconds_per_step: Any) -> float | None:
    """Steps times seconds, as analytic predictors of a step give it; None if one of them is missing or invalid."""
    if steps is None or seconds_per_step is None:
        return None
    try:
        return positive(quantity.parse_number(steps) * quantity.parse_number(seconds_per_step))
    except (quantity.QuantityError, TypeError, ValueError, OverflowError):
        return None


def positive(value: Any) -> float | None:
    """The number, if it is above zero, and not above the longest runtime."""
    if not isinstance(value, int | float) or not 0 < value < math.inf:
        return None
    return float(min(value, LONGEST))
