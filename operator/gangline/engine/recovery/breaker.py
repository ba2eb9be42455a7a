"""The circuit breaker: when much of a flavor is lost at once, the cause is more likely the network, or us, than the nodes.

It opens when more than the policy's share of a flavor's nodes, and at least two, were lost within a minute. No gang is moved,
preempted or evicted for lost nodes of that flavor then, and one warning says so. It closes when no more than that share is
lost. Nodes that were deleted while no gang was on them do not count: that is how clusters shrink.
"""

from __future__ import annotations

from typing import ClassVar

from gangline.engine.model import Decision, Millis, Recovery, Warn
from gangline.engine.queues.workload_state import WorkloadState
from gangline.engine.state.store import Store

#: Fewer lost nodes than this are no mass failure, however small the flavor is.
LEAST = 2


class Breaker:
    WINDOW: ClassVar[Millis] = 60_000

    def __init__(self, store: Store) -> None:
        self._store = store
        #: (ClusterQueue, flavor) of each breaker that is open
        self.open: set[tuple[str, str]] = set()
        self._seen = -1

    def open_for(self, gang: WorkloadState) -> bool:
        if not self.open or gang.queue is None:
            return False
        return any((gang.queue.name, flavor) in self.open for flavor, _ in gang.quota.usage)

    def watch(self, now: Millis) -> list[Decision]:
        """Open and close by the nodes lost now. Returns the warnings."""
        health = self._store.health
        if health.version == self._seen:
            return []
        self._seen = health.version
        lost = health.lost()
        if not lost and not self.open:
            return []
        decisions: list[Decision] = []
        counts: dict[str, tuple[int, int, int]] = {}
        for name, queue in sorted(self._store.queues.items()):
            policy = queue.config.recovery or Recovery()
            flavors = {quotas.name for group in queue.config.groups for quotas in group.flavors}
            for flavor in sorted(flavors):
                if flavor not in counts:
                    counts[flavor] = self._count(flavor, now)
                decisions += self._judge((name, flavor), counts[flavor], policy.breaker_share)
        return decisions

    def _judge(self, place: tuple[str, str], counts: tuple[int, int, int], share: float) -> list[Decision]:
        total, lost, recent = counts
        queue, flavor = place
        if place in self.open:
            if lost > share * total:
                return []
            self.open.discard(place)
            message = f"{lost} of {total} nodes of flavor {flavor} are lost: gangs are healed again"
            return [Warn("ClusterQueue", queue, "RecoveryResumed", message)]
        if recent < LEAST or recent <= share * total:
            return []
        self.open.add(place)
        message = (
            f"{recent} of {total} nodes of flavor {flavor} were lost within a minute: nothing is moved until no more than"
            f" {share:.0%} of them are"
        )
        return [Warn("ClusterQueue", queue, "RecoveryPaused", message)]

    def _count(self, flavor: str, now: Millis) -> tuple[int, int, int]:
        """Nodes of a flavor, the lost ones, and those lost within the window."""
        known = self._store.flavors.get(flavor)
        if known is None:
            return 0, 0, 0
        health, labels = self._store.health, known.node_labels.items()
        names = [
            node.name
            for node in health.last_known()
            if labels <= node.labels.items() and (node.name in health.nodes or self._store.somebody_on(node.name))
        ]
        losses = [loss for loss in map(health.loss, names) if loss is not None]
        return len(names), len(losses), sum(loss.at > now - self.WINDOW for loss in losses)
