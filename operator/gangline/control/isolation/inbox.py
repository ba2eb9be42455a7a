"""The events that have arrived and are still to be read, in turn by namespace.

Events without a namespace (nodes, queues, flavors, …) come first. Events of one namespace keep their order, across kinds, so a
namespace whose events are read later looks exactly like one whose watches are slow. No decision depends on how fast watches of
different namespaces are, so this delays a decision about that namespace and falsifies none. Where everything that was listed has
to be known, before the first decision of a leader, `mark` and `has_read` say so.

A tenant can write faster than its objects can be read. So of a namespace that lags, only the newest version of each object waits,
in the place of its own arrival: what waits is bounded by what exists.
"""

from __future__ import annotations

import heapq
import time
from collections import Counter, OrderedDict, deque
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Final, TypeAlias

from gangline.control.isolation.turns import Turns
from gangline.kube.reflector import Event, Removed, Synced, Upsert
from gangline.kube.resources import Resource, namespace_of
from gangline.objects import Stored

#: Events of one namespace that are read before the next namespace has its turn, at most this many …
BATCH: Final = 64
#: … and for at most these seconds.
QUANTUM: Final = 0.005

#: the score of events without a namespace, which no namespace has
FIRST: Final = -1.0

_Subject: TypeAlias = tuple[Resource, str]


@dataclass(slots=True)
class _Queue:
    """The unread events of one namespace."""

    #: in the order of arrival, each with the generation in which it arrived
    events: OrderedDict[int, tuple[int, Resource, Event]] = field(
        default_factory=OrderedDict[int, tuple[int, Resource, Event]]
    )
    #: where the unread version of each object is; None while the namespace does not lag
    newest: dict[_Subject, int] | None = None

    def lag(self) -> None:
        """Keep only the newest version of each object from now on."""
        if self.newest is None:
            self.newest = {
                (resource, event.obj.key): place
                for place, (_, resource, event) in self.events.items()
                if isinstance(event, Upsert)
            }


class Inbox:
    """Unread events. A generation of them ends with each `Synced`, and with each mark."""

    def __init__(self, turns: Turns) -> None:
        self._turns = turns
        self._queues: dict[str, _Queue] = {}
        self._order: list[tuple[float, str]] = []  # the namespaces with unread events, by their scores
        self._arrived = 0
        self._generation = 0
        self._unread = Counter[int]()  # by generation
        self._synced: deque[tuple[int, Resource, Synced]] = deque()

    def __bool__(self) -> bool:
        return bool(self._order or self._synced)

    def lagging(self) -> list[str]:
        """The namespaces with events that were left for another round."""
        return [namespace for namespace, queue in self._queues.items() if queue.newest is not None]

    # --- in ---

    def put(self, resource: Resource, event: Event) -> None:
        if isinstance(event, Synced):  # read once all events before it are
            self._synced.append((self._generation, resource, event))
            self._generation += 1
            return
        if not resource.namespaced:
            namespace = ""
        elif isinstance(event, Upsert):
            namespace = event.obj.namespace
        else:
            namespace = namespace_of(event.key)
        queue = self._queues.get(namespace)
        if queue is None:
            queue = self._queues[namespace] = _Queue()
            score = self._turns.use.score(namespace) if namespace else FIRST
            heapq.heappush(self._order, (score, namespace))
        if queue.newest is not None:
            event = self._outdate(queue, queue.newest, resource, event)
        self._arrived += 1
        self._unread[self._generation] += 1
        queue.events[self._arrived] = (self._generation, resource, event)

    def _outdate(
        self, queue: _Queue, newest: dict[_Subject, int], resource: Resource, event: Upsert[Stored] | Removed
    ) -> Event:
        """Drop the object's unread version, which this event outdates. Returns the event to keep.

        A version that arrived before a mark stays: it could be outdated for ever, and would never be known.
        """
        removed = isinstance(event, Removed)
        subject = (resource, event.key if removed else event.obj.key)
        uid = event.uid if removed else event.obj.uid
        place = newest.pop(subject, None)
        if place is not None:
            generation, _, unread = queue.events[place]
            if generation == self._generation and isinstance(unread, Upsert) and unread.obj.uid == uid:
                del queue.events[place]
                self._forget(generation)
        if removed:
            return Removed(event.key, uid)
        newest[subject] = self._arrived + 1
        return event

    def _forget(self, generation: int) -> None:
        self._unread[generation] -= 1
        if not self._unread[generation]:
            del self._unread[generation]

    # --- out ---

    def mark(self) -> int:
        """A mark behind everything that has arrived."""
        self._generation += 1
        return self._generation - 1

    def has_read(self, mark: int) -> bool:
        """Whether everything that had arrived at the mark was read."""
        return self._have_read(mark) and not (self._synced and self._synced[0][0] <= mark)

    def _have_read(self, generation: int) -> bool:
        return all(each > generation for each in self._unread)

    def events(self) -> Iterator[tuple[Resource, Event]]:
        """Unread events in turn, until all are read or the round is over."""
        spent, before = 0.0, self._turns.cpu()
        try:
            while not self._turns.is_over(spent):
                while self._synced and self._have_read(self._synced[0][0]):
                    _, resource, synced = self._synced.popleft()
                    yield resource, synced
                if not self._order:
                    break
                _, namespace = heapq.heappop(self._order)
                queue = self._queues[namespace]
                try:
                    yield from self._batch(queue)
                finally:
                    now = self._turns.cpu()
                    cost, before = now - before, now
                    spent += cost
                    score = self._turns.charge(namespace, cost)
                    if queue.events:
                        heapq.heappush(self._order, (score if namespace else FIRST, namespace))
                    else:
                        del self._queues[namespace]
        finally:
            for queue in self._queues.values():
                queue.lag()

    def _batch(self, queue: _Queue) -> Iterator[tuple[Resource, Event]]:
        end = time.perf_counter() + QUANTUM
        for _ in range(min(BATCH, len(queue.events))):
            place, (generation, resource, event) = queue.events.popitem(last=False)
            self._forget(generation)
            if queue.newest and isinstance(event, Upsert):
                subject = (resource, event.obj.key)
                if queue.newest.get(subject) == place:
                    del queue.newest[subject]
            yield resource, event
            if time.perf_counter() > end:
                return
