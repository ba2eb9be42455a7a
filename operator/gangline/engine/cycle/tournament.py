"""The order of a cycle's attempts under fair sharing: a tournament from the root, repeated for every pick.

In each cohort the candidates of its children compete: first those that `goes_first` names, then not borrowing precedes borrowing,
then the lower share (of the child, as if its candidate already ran), then priority, then time.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import TypeAlias

from gangline.engine.cycle.attempt import Attempt
from gangline.engine.quota.quota_ledger import DominantShare, QuotaNode, standing

#: lower is first
Key: TypeAlias = "tuple[bool, bool, DominantShare, int, int]"


class Tournament:
    """What a pick changes lies on its way to the root; results of other matches are kept."""

    def __init__(
        self,
        root: QuotaNode,
        attempts: Sequence[Attempt],
        *,
        prefer_not_borrowing: bool,
        goes_first: Callable[[Attempt], bool],
    ) -> None:
        self._root = root
        self._left = {id(attempt.queue): attempt for attempt in attempts}
        self._prefer = prefer_not_borrowing
        self._goes_first = goes_first
        #: cohort -> its winner
        self._winners: dict[int, Attempt | None] = {}
        #: node -> candidate -> its key in that match
        self._keys: dict[int, dict[int, Key]] = {}

    def picks(self) -> Iterator[Attempt]:
        """The next candidate each time; usage that the caller adds to the ledger counts for the following picks."""
        if id(self._root) in self._left:  # a ClusterQueue without cohort
            yield self._left[id(self._root)]
            return
        while (attempt := self._winner(self._root)) is not None:
            del self._left[id(attempt.queue)]
            yield attempt
            for node in attempt.queue.path():
                self._winners.pop(id(node), None)
                self._keys.pop(id(node), None)

    def _winner(self, cohort: QuotaNode) -> Attempt | None:
        if id(cohort) in self._winners:
            return self._winners[id(cohort)]
        best: Attempt | None = None
        best_key: Key | None = None
        for child, attempt in self._candidates(cohort):
            key = self._key(attempt, child)
            if best_key is None or key < best_key:
                best, best_key = attempt, key
        self._winners[id(cohort)] = best
        return best

    def _candidates(self, cohort: QuotaNode) -> Iterator[tuple[QuotaNode, Attempt]]:
        for child in cohort.cohorts:
            attempt = self._winner(child)
            if attempt is not None:
                yield child, attempt
        for queue in cohort.queues:
            attempt = self._left.get(id(queue))
            if attempt is not None:
                yield queue, attempt

    def _key(self, attempt: Attempt, node: QuotaNode) -> Key:
        keys = self._keys.setdefault(id(node), {})
        key = keys.get(id(attempt))
        if key is None:
            usage = attempt.assignment.usage
            for cell, amount in usage.items():
                cell.add(amount)
            borrows = self._prefer and node.over_quota(cell.fr for cell, amount in usage.items() if amount)
            behind = not self._goes_first(attempt)
            key = keys[id(attempt)] = behind, borrows, standing(node).share, -attempt.gang.priority, attempt.gang.since
            for cell, amount in usage.items():
                cell.remove(amount)
        return key
