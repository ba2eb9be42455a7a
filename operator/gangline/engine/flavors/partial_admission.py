"""Partial admission: the largest pod counts, between a pod set's full count and its minimum, that fit."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeVar

from gangline.engine.queues.workload_state import CountedPodSet

Result = TypeVar("Result")


def search(demands: Sequence[CountedPodSet], attempt: Callable[[Sequence[int]], Result | None]) -> Result | None:
    """The result for the least reduction that `attempt` accepts, by bisection; None if there is none.

    All reducible pod sets shrink in proportion. As in Kueue it is assumed, not checked, that fewer pods always fit better.
    """
    deltas = [_delta(demand) for demand in demands]
    total = sum(deltas)
    if total == 0:
        return None
    low, high = 0, total + 1
    found: Result | None = None
    found_at = 0
    while low < high:
        middle = (low + high) // 2
        result = attempt(
            [demand.count - delta * middle // total for demand, delta in zip(demands, deltas, strict=True)]
        )
        if result is None:
            low = middle + 1
        else:
            high, found, found_at = middle, result, middle
    return found if found is not None and found_at == low else None


def _delta(demand: CountedPodSet) -> int:
    least = demand.pod_set.min_count
    return 0 if least is None else max(0, demand.count - least)
