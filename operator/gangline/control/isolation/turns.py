"""Turns: whose objects the loop works on next, and when a round of the loop is over.

All work runs on one thread, so work on one tenant's objects delays everybody else's. Two rules bound that delay:

- The namespace for which least CPU time was used lately goes first. So a tenant whose objects cost much waits for the others, and
  they never wait for it longer than one of its objects takes (`time_limit`).
- A round ends after a bounded CPU time. What is left waits for the next round, which follows at once.

No namespace has a limit of its own: whoever is alone gets all the time there is. A limit would either be too low for an honest
tenant, whose 5,000 jobs are all planned when an operator starts, or too high to protect anybody.
"""

from __future__ import annotations

import heapq
import time
from collections.abc import Callable, Collection, Iterator
from typing import Final, TypeAlias, TypeVar

from gangline.kube.resources import Resource, namespace_of

#: an object's key, `namespace/name`, alone or with its kind
K = TypeVar("K", str, tuple[Resource, str])
#: returns the CPU seconds of this thread
CpuClock: TypeAlias = Callable[[], float]

#: CPU seconds of one round of the loop, for reading events and for all parts together …
ROUND: Final = 0.25
#: … but each part gets this much in any case, so that no part starves behind those before it.
LEAST: Final = 0.025
#: seconds after which CPU time that was used counts half: long enough to tell who costs much, and soon forgotten
HALF_LIFE: Final = 30.0
#: half-lives after which old use is dropped, which is far less than a float can hold
_REBASE: Final = 50.0
#: CPU seconds that need not be remembered
_NOTHING: Final = 1e-4


class CpuUse:
    """CPU time that was used lately for the objects of each namespace; "" stands for objects without a namespace.

    Scores grow with time instead of shrinking: a second used now counts for more than one before, so that scores can be compared
    at any time without being computed anew.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._base = clock()
        self._scores: dict[str, float] = {}
        #: CPU seconds since the process started, of all namespaces
        self.total = 0.0

    def _weight(self) -> float:
        """The score of one CPU second that is used now."""
        half_lives = (self._clock() - self._base) / HALF_LIFE
        if half_lives > _REBASE:
            self._base += half_lives * HALF_LIFE
            scores = ((namespace, score / 2.0**half_lives) for namespace, score in self._scores.items())
            self._scores = {namespace: score for namespace, score in scores if score > _NOTHING}
            return 1.0
        return 2.0**half_lives

    def charge(self, namespace: str, seconds: float) -> float:
        """Add CPU time that was used for an object of this namespace. Returns the namespace's score."""
        self.total += seconds
        score = self._scores.get(namespace, 0.0) + seconds * self._weight()
        self._scores[namespace] = score
        return score

    def score(self, namespace: str) -> float:
        """The namespace's score, to compare it with others: the lower, the less CPU time was used lately."""
        return self._scores.get(namespace, 0.0)

    def most(self, number: int) -> dict[str, float]:
        """The namespaces for which most was used lately, and their share of one CPU core."""
        weight = self._weight()
        found = heapq.nlargest(number, self._scores.items(), key=lambda row: row[1])
        # a constant load of one core adds up to HALF_LIFE / ln 2
        return {namespace: score / weight / HALF_LIFE * 0.6931 for namespace, score in found}


class Turns:
    """Hands out keys in turn until the round's time is used up, and measures what each costs its namespace."""

    def __init__(self, use: CpuUse | None = None, cpu: CpuClock = time.thread_time) -> None:
        self.use = use if use is not None else CpuUse()
        self.cpu = cpu
        #: namespaces with objects that wait for the next round
        self.waiting: set[str] = set()
        self._used = 0.0

    def begin(self) -> None:
        """Begin a round."""
        self._used = 0.0
        self.waiting = set()

    def is_over(self, spent: float) -> bool:
        """Whether a part that has spent this CPU time in this round has to stop."""
        return self._used >= ROUND and spent >= LEAST

    def charge(self, namespace: str, seconds: float) -> float:
        """Count CPU time of this round for a namespace. Returns the namespace's score."""
        self._used += seconds
        return self.use.charge(namespace, seconds)

    def each(self, keys: Collection[K], put_back: Callable[[list[K]], object]) -> Iterator[K]:
        """The keys, those of one namespace in their order, until the round is over; the rest is put back.

        What the caller does with a key before it asks for the next one counts as work on that object.
        """
        if not keys:
            return
        queues: dict[str, list[K]] = {}
        for key in keys:
            queues.setdefault(namespace_of(key), []).append(key)
        for queue in queues.values():
            queue.reverse()
        heap = [(self.use.score(namespace), namespace) for namespace in queues]
        heapq.heapify(heap)
        spent, before = 0.0, self.cpu()
        try:
            while heap and not self.is_over(spent):
                namespace = heap[0][1]
                queue = queues[namespace]
                yield queue.pop()
                now = self.cpu()
                cost, before = now - before, now
                spent += cost
                score = self.charge(namespace, cost)
                if queue:
                    heapq.heapreplace(heap, (score, namespace))
                else:
                    heapq.heappop(heap)
        finally:
            if rest := [key for queue in queues.values() for key in reversed(queue)]:
                self.waiting.update(namespace for namespace, queue in queues.items() if queue)
                put_back(rest)
