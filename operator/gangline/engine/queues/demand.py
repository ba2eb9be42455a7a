"""The order of a ClusterQueue's LocalQueues by what they ask for and what they hold (order keys `Demand` and `DemandDrf`).

A LocalQueue's *demand* is its dominant share of what waits: of all resources the largest part of what the ClusterQueue can have
of one at most. Its *dominant share* is the same for what it holds. The LocalQueue that asks for most comes first; with
`DemandDrf` less so the more it holds already. Demand counts at most 1: who asks for more than there is gains nothing by it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping

from gangline.engine.queues.workload_state import WorkloadState


class Demand:
    """What each LocalQueue asks for and holds; calling it gives its place, the lowest is first."""

    __slots__ = ("_asked", "_holders", "_of", "_totals", "_used", "_weight")

    def __init__(
        self, totals: Callable[[], Mapping[str, int]], holders: Callable[[], Iterable[WorkloadState]], weight: float
    ) -> None:
        """`totals`: resource -> the most that the ClusterQueue can have. `holders`: what holds its quota. `weight`: what demand
        counts, against 1 - `weight` for what is held.
        """
        self._totals = totals
        self._holders = holders
        self._weight = weight
        #: uid -> LocalQueue and requests of what waits, as they were when it arrived
        self._of: dict[str, tuple[str, Mapping[str, int]]] = {}
        #: LocalQueue -> resource -> what waits
        self._asked: dict[str, dict[str, int]] = {}
        #: LocalQueue -> resource -> what is held; None = not counted since it changed
        self._used: dict[str, dict[str, int]] | None = None

    def __call__(self, local_queue: str) -> float:
        demand = min(1.0, self._share(self._asked.get(local_queue)))
        if self._weight >= 1.0:
            return -demand
        if self._used is None:
            self._used = self._count()
        return (1.0 - self._weight) * self._share(self._used.get(local_queue)) - self._weight * demand

    def wait(self, gang: WorkloadState) -> None:
        """A workload waits from now on. It may wait already."""
        self.leave(gang)
        requests = dict(gang.requests())
        self._of[gang.uid] = gang.local_queue, requests
        _add(self._asked.setdefault(gang.local_queue, {}), requests.items())

    def leave(self, gang: WorkloadState) -> None:
        """A workload does not wait any more."""
        local_queue, requests = self._of.pop(gang.uid, ("", {}))
        if not local_queue:
            return
        asked = self._asked[local_queue]
        _add(asked, ((resource, -amount) for resource, amount in requests.items()))
        if not any(asked.values()):
            del self._asked[local_queue]

    def holders_changed(self) -> None:
        self._used = None

    def _count(self) -> dict[str, dict[str, int]]:
        used: dict[str, dict[str, int]] = {}
        for gang in self._holders():
            amounts = ((resource, amount) for (_, resource), amount in gang.quota.usage.items())
            _add(used.setdefault(gang.local_queue, {}), amounts)
        return used

    def _share(self, amounts: Mapping[str, int] | None) -> float:
        if not amounts:
            return 0.0
        totals = self._totals()
        return max(
            (amount / totals[resource] for resource, amount in amounts.items() if totals.get(resource)), default=0.0
        )


def _add(amounts: dict[str, int], more: Iterable[tuple[str, int]]) -> None:
    for resource, amount in more:
        amounts[resource] = amounts.get(resource, 0) + amount
