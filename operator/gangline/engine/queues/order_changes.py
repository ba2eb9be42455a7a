"""The orders of ClusterQueues whose policies have several: by windows of time, and by how full the queue or its cohort is.

Each time that the engine decides, the order in force is found anew. Where it is another one, all that wait are put in that order,
and try again. Nothing that runs is touched. A workload that was reserved a start keeps its turn: it precedes all others of its
priority until it starts or leaves the queue.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Mapping
from dataclasses import replace
from operator import attrgetter
from typing import Final

from gangline.engine.model import Millis, OrderInForce, Ordering, OrderWhenFull, is_accelerator
from gangline.engine.queues.cluster_queue import ClusterQueueState
from gangline.engine.queues.timed_queue import TimedQueue
from gangline.engine.queues.workload_state import WorkloadState
from gangline.engine.quota.quota_ledger import QuotaNode
from gangline.engine.text.wording import minute_text

#: what an `OrderWhenFull` looks at, where that is not the whole cohort
OF_QUEUE: Final = "ClusterQueue"


class OrderChanges:
    """`queues` are those whose policies have several orders. `gangs` are all workloads, by key."""

    def __init__(self, gangs: Mapping[str, WorkloadState]) -> None:
        self._gangs = gangs
        self.queues: list[ClusterQueueState] = []
        #: what this engine goes on with, by ClusterQueue, until it decides for the first time
        self._begun: dict[str, OrderInForce] = {}
        self._now: Millis = 0
        #: some queue is in the order that it had before this engine began, and another one may be due
        self._unsettled = False

    def begin_with(self, name: str, order: OrderInForce | None) -> None:
        """Go on with the order that a ClusterQueue had in another engine. It says nothing once this one has found its own."""
        if order is not None:
            self._begun[name] = order
        else:
            self._begun.pop(name, None)

    def in_force(self) -> list[OrderInForce]:
        """The present orders, as far as they are known."""
        known = dict(self._begun)
        for queue in self.queues:
            if queue.order is not None:
                known[queue.name] = replace(queue.order, first=self._kept(queue, queue.order))
        return [known[name] for name in sorted(known)]

    def follow(self, now: Millis) -> list[ClusterQueueState]:
        """Find the orders in force at a time. Returns the queues that have to be put in another order."""
        self._now, self._unsettled = now, False
        found: list[ClusterQueueState] = []
        for queue in self.queues:
            ordering, before = queue.config.ordering, queue.order
            assert ordering is not None
            begun = self._begun.pop(queue.name, None)
            if before is None and begun is not None and begun.key in ordering.keys:
                # its heads are reserved a start in the order that they had, before another one is due
                after, self._unsettled = begun, True
            else:
                after = self._at(now, queue, ordering, before)
            if after == before:
                continue
            queue.order = after
            if after.key != queue.ordered_by or after.first != (before.first if before is not None else ()):
                found.append(queue)
        return found

    def text(self, queue: ClusterQueueState) -> str:
        """Which order of several a queue has, why, and until when; "" where it has only one."""
        ordering, order = queue.config.ordering, queue.order
        if ordering is None or order is None:
            return ""
        text = f"The queue's order is {_named(order.key, order.window)}"
        if order.full and not order.window and ordering.when_full is not None:
            text += f", since the {ordering.when_full.of} is full"
        for step in ordering.steps[_begun(ordering, self._now) :][:1]:
            text += f" until {minute_text(step.at)}, then {_named(step.key, step.window)}"
        return text

    def next_due(self, now: Millis) -> Millis | None:
        """When the next window begins or ends."""
        if self._unsettled:
            return now
        known = (queue.config.ordering for queue in self.queues)
        later = (ordering.steps[_begun(ordering, now) :][:1] for ordering in known if ordering is not None)
        return min((step.at for steps in later for step in steps), default=None)

    def _at(
        self, now: Millis, queue: ClusterQueueState, ordering: Ordering, before: OrderInForce | None
    ) -> OrderInForce:
        before = before or OrderInForce(queue.name, ordering.key)
        begun = _begun(ordering, now)
        step = ordering.steps[begun - 1] if begun else None
        rule = ordering.when_full
        full = rule is not None and _is_full(queue, rule, before.full)
        if step is not None and step.window:
            key, window = step.key, step.window
        else:
            key, window = rule.key if rule is not None and full else ordering.key, ""
        kept = self._kept(queue, before)
        if key == before.key:
            return replace(before, window=window, full=full, first=kept)
        pending = queue.pending
        reserved = (gang.key for gang in pending.reserved) if isinstance(pending, TimedQueue) else ()
        return OrderInForce(queue.name, key, window, full, now, tuple(dict.fromkeys((*kept, *reserved))))

    def _kept(self, queue: ClusterQueueState, order: OrderInForce) -> tuple[str, ...]:
        """Those that still wait of the workloads that keep their turn."""
        gangs = ((key, self._gangs.get(key)) for key in order.first)
        return tuple(key for key, gang in gangs if gang is not None and gang.queue is queue and not gang.holds)


def _begun(ordering: Ordering, now: Millis) -> int:
    """How many steps of an order have begun."""
    return bisect_right(ordering.steps, now, key=attrgetter("at"))


def _named(key: str, window: str) -> str:
    return f"{key} (window {window})" if window else key


def _is_full(queue: ClusterQueueState, rule: OrderWhenFull, before: bool) -> bool:
    """Whether it counts as full, given whether it did before."""
    if rule.of == OF_QUEUE:
        share = _share(_held((queue,)), queue.lendable)
    else:
        share = _share(_held(queue.root.leaves()), _nominal(queue.root))
    return share >= (rule.below if before else rule.above)


def _share(held: Mapping[str, int], there: Mapping[str, int]) -> float:
    """The largest part of what there is of an accelerator that is held; of any resource where there are no accelerators."""
    known = [resource for resource, amount in there.items() if amount > 0]
    counted = [resource for resource in known if is_accelerator(resource)] or known
    return max((held.get(resource, 0) / there[resource] for resource in counted), default=0.0)


def _held(queues: Iterable[QuotaNode]) -> dict[str, int]:
    found: dict[str, int] = {}
    for queue in queues:
        for (_, resource), cell in queue.cells.items():
            found[resource] = found.get(resource, 0) + cell.usage
    return found


def _nominal(node: QuotaNode) -> dict[str, int]:
    """The nominal quotas of a whole tree."""
    found: dict[str, int] = {}
    nodes = [node]
    for each in nodes:
        nodes += (*each.cohorts, *each.queues)
        for (_, resource), cell in each.cells.items():
            found[resource] = found.get(resource, 0) + cell.nominal
    return found
