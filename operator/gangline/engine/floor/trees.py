"""The cohort trees that ClusterQueues form, as far as the floor has to know them."""

from __future__ import annotations

from gangline.engine.floor.modes import has_floor
from gangline.engine.model import ClusterQueue, Cohort, Item, LocalQueue


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
