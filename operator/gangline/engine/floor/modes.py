"""The modes of a cohort tree: the policies that its queues have, or what they fall back to."""

from __future__ import annotations

from dataclasses import replace
from typing import Final, Literal, NamedTuple, TypeAlias

from gangline.engine.model import Backfill, ClusterQueue, Millis

#: Policy: order and backfill as configured. BestEffort: as Kueue's BestEffortFIFO. Easy: in order of age, one reservation by
#: forecasts, nothing evicted.
Mode: TypeAlias = Literal["Policy", "BestEffort", "Easy"]

POLICY: Final[Mode] = "Policy"
BEST_EFFORT: Final[Mode] = "BestEffort"
EASY: Final[Mode] = "Easy"
MODES: Final[tuple[Mode, ...]] = (POLICY, BEST_EFFORT, EASY)
#: what can be fallen back to
PLAIN: Final[tuple[Mode, ...]] = (BEST_EFFORT, EASY)


class PolicyFallback(NamedTuple):
    """What a queue follows instead of its policy, since when, and why in words."""

    mode: Mode
    since: Millis
    why: str = ""


_ONE_RESERVATION: Final = Backfill()
#: orders that are as good as the forecasts are
BY_FORECAST: Final = frozenset({"ShortestFirst", "AgedShortestFirst", "HighestResponseRatio"})


def has_floor(queue: ClusterQueue) -> bool:
    """Whether the queue's policy acts on forecasts, and does not refuse the floor."""
    reserves = queue.backfill is not None and queue.backfill.depth > 0
    return queue.floor and (reserves or _orders_by_forecast(queue))


def under(queue: ClusterQueue, mode: Mode) -> ClusterQueue:
    """The queue in this mode. A queue without a floor stays as it is, and so does an order that uses no forecast."""
    if mode == POLICY or not has_floor(queue):
        return queue
    return replace(
        queue,
        strategy="BestEffortFIFO",
        ordering=None if _orders_by_forecast(queue) else queue.ordering,
        backfill=_ONE_RESERVATION if mode == EASY else None,
        fallen_back=mode,
    )


def _orders_by_forecast(queue: ClusterQueue) -> bool:
    return queue.ordering is not None and queue.ordering.key in BY_FORECAST
