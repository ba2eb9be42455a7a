"""The modes of a cohort tree: the policies that its queues have, or what they fall back to."""

from __future__ import annotations

from dataclasses import replace
from typing import Final, Literal, NamedTuple, TypeAlias

from gangline.engine.model import BY_FORECAST, Backfill, ClusterQueue, Cohort, Item, LocalQueue, Millis

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
    return queue.ordering is not None and not BY_FORECAST.isdisjoint(queue.ordering.keys)


# --- trees ------------------------------------------------------------------------------------------------------------
# The cohort trees that ClusterQueues form, as far as the floor has to know them.


class Trees:
    def __init__(self) -> None:
        self.queues: dict[str, ClusterQueue] = {}
        self._cohorts: dict[str, Cohort] = {}
        self._local_queues: dict[str, LocalQueue] = {}

    def put(self, item: Item) -> bool:
        """Whether trees may look different now."""
        match item:
            case ClusterQueue():
                self.queues[item.name] = item
            case Cohort():
                self._cohorts[item.name] = item
            case LocalQueue():
                self._local_queues[item.key] = item
            case _:
                pass
        return isinstance(item, ClusterQueue | Cohort)

    def drop(self, kind: type[Item], key: str) -> bool:
        """Whether queues with a floor may be fewer now."""
        if kind is ClusterQueue:
            self.queues.pop(key, None)
        elif kind is Cohort:
            self._cohorts.pop(key, None)
        elif kind is LocalQueue:
            self._local_queues.pop(key, None)
        return kind is ClusterQueue

    def of(self, cluster_queue: str) -> str:
        """The name of a queue's tree: Cohort/ROOT, or ClusterQueue/NAME where it is in none."""
        queue = self.queues.get(cluster_queue)
        if queue is None or not queue.cohort:
            return f"ClusterQueue/{cluster_queue}"
        name, seen = queue.cohort, set[str]()
        while name not in seen:
            seen.add(name)
            cohort = self._cohorts.get(name)
            if cohort is None or not cohort.parent:
                break
            name = cohort.parent
        return f"Cohort/{name}"

    def of_local_queue(self, key: str) -> str:
        """The tree of the LocalQueue's ClusterQueue; "" for an unknown LocalQueue."""
        local_queue = self._local_queues.get(key)
        return self.of(local_queue.cluster_queue) if local_queue is not None else ""

    def with_floor(self) -> set[str]:
        """The trees in which a queue has a floor."""
        return {self.of(queue.name) for queue in self.queues.values() if has_floor(queue)}

    def give_way(self, tree: str) -> bool:
        """Whether the policy of a queue of this tree lets workloads that save their work give way."""
        return any(
            queue.backfill is not None and queue.backfill.checkpoint_preemption is not None
            for queue in self.queues.values()
            if self.of(queue.name) == tree
        )
