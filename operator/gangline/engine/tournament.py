"""The order of a cycle's attempts under fair sharing: a tournament from the root, held anew for every pick.

In each cohort the candidates of its children compete: not borrowing goes before borrowing, then the lower share (of the child,
as if its candidate already ran), then priority, then time.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, TypeAlias

from gangline.engine.fairness import Share, standing
from gangline.engine.quota import Node

if TYPE_CHECKING:
    from gangline.engine.cycle import Attempt

#: lower goes first
Key: TypeAlias = "tuple[bool, Share, int, int]"


class Tournament:
    def __init__(self, root: Node, attempts: Sequence[Attempt], *, prefer_not_borrowing: bool) -> None:
        self._root = root
        self._left = {id(attempt.queue): attempt for attempt in attempts}
        self._keys: dict[int, dict[int, Key]] = {}
        self._prefer = prefer_not_borrowing

    def picks(self) -> Iterator[Attempt]:
        """The next one each time; what the caller does with it in the ledger counts for the following picks."""
        if self._root.parent is None and not self._root.cohorts and not self._root.queues:
            yield from self._left.values()
            return
        while self._left:
            attempt = self._winner(self._root)
            if attempt is None:
                return
            del self._left[id(attempt.queue)]
            yield attempt
            self._forget(_top(attempt.queue))

    def _winner(self, cohort: Node) -> Attempt | None:
        best: Attempt | None = None
        best_key: Key | None = None
        for child in (*cohort.cohorts, *cohort.queues):
            attempt = self._left.get(id(child)) if not child.cohorts and not child.queues else self._winner(child)
            if attempt is None:
                continue
            key = self._key(attempt, child)
            if best_key is None or key < best_key:
                best, best_key = attempt, key
        return best

    def _key(self, attempt: Attempt, child: Node) -> Key:
        keys = self._keys.get(id(attempt.queue))
        if keys is None:
            keys = self._keys[id(attempt.queue)] = self._keys_on_path(attempt)
        return keys[id(child)]

    def _keys_on_path(self, attempt: Attempt) -> dict[int, Key]:
        usage = attempt.assignment.usage
        frs = [cell.fr for cell, amount in usage.items() if amount]
        for cell, amount in usage.items():
            cell.add(amount)
        gang = attempt.gang
        keys: dict[int, Key] = {
            id(node): (self._prefer and node.over_quota(frs), standing(node).share, -gang.priority, gang.since)
            for node in attempt.queue.path()
        }
        for cell, amount in usage.items():
            cell.remove(amount)
        return keys

    def _forget(self, top: Node) -> None:
        """Usage changed below this child of the root: what was computed for the candidates there is void."""
        for queue_id, attempt in self._left.items():
            if _top(attempt.queue) is top:
                self._keys.pop(queue_id, None)


def _top(node: Node) -> Node:
    while node.parent is not None and node.parent.parent is not None:
        node = node.parent
    return node
