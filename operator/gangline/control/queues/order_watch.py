"""Lets queues with several orders have each at its time, across operators.

Windows are turned into instants where the mirror reads a ClusterQueue (`api.queue_orders`), for some weeks ahead; here that is
renewed in time. The engine finds the order in force. What it goes on with after a restart is in the status of the QueuePolicy.
"""

from __future__ import annotations

import logging
from collections.abc import Callable

from gangline.api.queue_orders import known_from
from gangline.api.read import policy_reader
from gangline.api.read.parse import ParseError
from gangline.control.kernel.context import Context
from gangline.control.parts.part import Part
from gangline.control.writes.status import queue_orders
from gangline.engine import model
from gangline.kube import resources as kube
from gangline.kube.reflector import Event
from gangline.kube.resources import Resource
from gangline.objects import Stored

log = logging.getLogger(__name__)


class OrderWatch(Part):
    """The part. `observe_fact` gives a change to the engine."""

    name = "orders"
    kinds = (kube.QUEUE_POLICIES,)

    def __init__(self, context: Context, observe_fact: Callable[[model.Change], None]) -> None:
        self._engine = context.engine
        self._mirror = context.mirror
        self._now = context.now
        self._observe_fact = observe_fact
        #: QueuePolicies with windows
        self._with_windows: set[str] = set()
        #: until when the orders are known that the engine has
        self._known_until = 0
        #: by ClusterQueue, as the statuses say
        self.in_force: dict[str, model.OrderInForce] = {}
        self._several = False

    def observe(self, resource: Resource, event: Event) -> None:
        policies = self._mirror.objects[kube.QUEUE_POLICIES]
        self._with_windows = {name for name, policy in policies.items() if _has_windows(policy)}
        self._several = any(_has_several(policy) for policy in policies.values())

    def settle(self) -> None:
        if not self._with_windows:
            return
        known = known_from(self._now())
        if known.end != self._known_until:
            self._known_until = known.end
            for name, queue in self._mirror.objects[kube.CLUSTER_QUEUES].items():
                policy = self._mirror.policy_of(queue)
                if policy is not None and policy.name in self._with_windows:
                    self._mirror.read_again(kube.CLUSTER_QUEUES, name)

    def lead(self) -> None:
        """Go on with the orders that the statuses of the QueuePolicies name."""
        for policy in self._mirror.objects[kube.QUEUE_POLICIES].values():
            for order in queue_orders.recorded(policy):
                self.in_force[order.name] = order
                self._observe_fact(model.Put(order))

    def act(self, now: int) -> None:
        if not self._several and not self.in_force:
            return
        before, self.in_force = self.in_force, {order.name: order for order in self._engine.orders()}
        for name in before.keys() | self.in_force.keys():
            if before.get(name) != self.in_force.get(name):
                self._mirror.changes.policies.add(name)


def _has_windows(policy: Stored) -> bool:
    try:
        return policy_reader.orders_by_windows(policy)
    except ParseError:  # it is in force nowhere
        return False


def _has_several(policy: Stored) -> bool:
    order = policy.spec.get("order")
    return bool(order) and bool(order.get("windows") or order.get("whenFull"))
