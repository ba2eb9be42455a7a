"""Budgets of GPU-hours that are used up: which waiting workloads do not start for it, or go after others, and until when."""

from __future__ import annotations

from heapq import heappop, heappush

from gangline.engine.model import Millis, SpentBudget


class SpentBudgets:
    """The facts about used budgets, by workload, and when the first one ends."""

    def __init__(self) -> None:
        self.known: dict[str, SpentBudget] = {}
        #: ends, the first one first; those of replaced facts are dropped when they come to the top
        self._ends: list[tuple[Millis, str]] = []

    def put(self, key: str, spent: SpentBudget | None) -> None:
        if spent is None:
            self.known.pop(key, None)
            return
        self.known[key] = spent
        if spent.until is not None:
            heappush(self._ends, (spent.until, key))
        if len(self._ends) > 2 * len(self.known) + 16:
            ends = ((each.until, workload) for workload, each in self.known.items())
            self._ends = sorted((until, workload) for until, workload in ends if until is not None)

    def holds(self, workload: str) -> bool:
        """Whether the workload does not start."""
        found = self.known.get(workload)
        return found is not None and found.holds

    def lowers(self, workload: str) -> bool:
        """Whether the workload goes after others of its priority."""
        found = self.known.get(workload)
        return found is not None and not found.holds

    def over(self, now: Millis) -> list[str]:
        """The workloads of which the budget has begun anew, in order."""
        found: list[str] = []
        while self._ends and self._ends[0][0] <= now:
            until, key = heappop(self._ends)
            spent = self.known.get(key)
            if spent is not None and spent.until == until:
                found.append(key)
        return sorted(found)

    def next_due(self) -> Millis | None:
        return self._ends[0][0] if self._ends else None
