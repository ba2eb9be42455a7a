"""Orders over time in the operator: facts for the engine, statuses of QueuePolicies, restarts, and answers."""

from __future__ import annotations

from typing import Any

from tests.builders.clusters import queue
from tests.builders.objects import T
from tests.builders.parts import PartWorld
from tests.objects import Stored

from gangline.api.queue_orders import WEEKS, known_from
from gangline.api.read.conditions import timestamp
from gangline.control.queues.order_watch import OrderWatch
from gangline.control.writes.status import policy_status, queue_orders
from gangline.control.writes.status.policy_status import SelectedQueues
from gangline.engine import Engine, model
from gangline.engine.model import OrderInForce
from gangline.kube import resources as kube
from gangline.kube.reflector import Upsert

HOUR, DAY = 3_600_000, 86_400_000
Json = dict[str, Any]


def policy(*, version: int = 1, status: Json | None = None, **order: Any) -> Stored:
    meta = {"name": "p", "uid": "p", "resourceVersion": str(version), "generation": 1}
    spec = {"clusterQueues": {"names": ["a"]}, "order": order}
    return Stored({"kind": "QueuePolicy", "metadata": meta, "spec": spec, "status": status or {}})


def windows(start: int, end: int) -> list[Json]:
    return [{"name": "busy", "key": "LargestFirst", "window": {"start": timestamp(start), "end": timestamp(end)}}]


class World(PartWorld):
    def __init__(self, found: Stored) -> None:
        self.engine = Engine()
        self.observe = self.engine.observe
        super().__init__()
        self.mirror.now = lambda: self.now
        for resource, obj in queue("a", 8):
            self.put(resource, Stored(obj))
        self.part = OrderWatch(self.context(engine=self.engine), self.engine.observe)
        self.apply(found)
        self.part.lead()

    def apply(self, found: Stored) -> None:
        self.put(kube.QUEUE_POLICIES, found)
        self.part.observe(kube.QUEUE_POLICIES, Upsert(found))

    def at(self, now: int) -> OrderInForce | None:
        self.now = now
        self.part.settle()
        self.engine.decide(now)
        self.part.act(now)
        return self.part.in_force.get("a")

    def ordering(self) -> model.Ordering | None:
        facts = (each.item for each in self.engine.facts() if isinstance(each, model.Put))
        return next(each.ordering for each in facts if isinstance(each, model.ClusterQueue))


def test_a_window_begins_and_ends_without_another_fact() -> None:
    world = World(policy(key="SmallestFirst", windows=windows(T + HOUR, T + 2 * HOUR)))
    keys = [(found.key, found.window) for hour in range(3) if (found := world.at(T + hour * HOUR))]
    assert keys == [("SmallestFirst", ""), ("LargestFirst", "busy"), ("SmallestFirst", "")]


def test_what_is_known_ahead_is_renewed_before_it_is_over() -> None:
    daily = {"days": ["Monday", "Wednesday"], "time": "09:00", "duration": "1h"}
    world = World(policy(windows=[{"name": "busy", "key": "LargestFirst", "window": {"schedule": daily}}]))
    before = 0
    for day in range(0, 30, 2):
        world.at(T + day * DAY)
        ordering = world.ordering()
        assert ordering is not None
        assert ordering.steps[-1].at > T + (day + (WEEKS - 1) * 7 - 7) * DAY
        before += ordering.steps[0].at == known_from(T + day * DAY).start
    assert before == 15


def test_another_operator_goes_on_from_the_status() -> None:
    first = OrderInForce("a", "SmallestFirst", "", True, T - HOUR // 1000 * 1000, ("ml/next",))
    status = {"orders": queue_orders.rows([first])}
    world = World(policy(status=status, whenFull={"key": "SmallestFirst"}))
    assert list(queue_orders.recorded(policy(status=status))) == [first]
    assert first in world.engine.orders()


def test_what_no_operator_wrote_says_nothing() -> None:
    wrong: list[Any] = ["x", {}, {"clusterQueue": 1, "key": "Demand"}, {"clusterQueue": "a"}]
    assert list(queue_orders.recorded(policy(status={"orders": wrong}))) == []
    assert list(queue_orders.recorded(policy(status={"orders": "x"}))) == []
    odd = {"clusterQueue": "a", "key": "Demand", "since": 5, "first": ["ml/x", 3], "window": [], "full": "yes"}
    assert list(queue_orders.recorded(policy(status={"orders": [odd]}))) == [
        OrderInForce("a", "Demand", "", False, 0, ("ml/x",))
    ]


def test_an_order_that_no_policy_has_any_more_is_not_gone_on_with() -> None:
    status = {"orders": [{"clusterQueue": "a", "key": "ShortestFirst"}]}
    world = World(policy(status=status, windows=windows(T - HOUR, T + HOUR)))
    found = world.at(T)
    assert found is not None and found.key == "LargestFirst"


def test_the_status_has_the_order_and_loses_it_with_the_policy() -> None:
    found = policy(windows=windows(T, T + HOUR))
    order = OrderInForce("a", "LargestFirst", "busy", since=T)
    chosen = SelectedQueues(("a",))
    new = policy_status.status(found, chosen, now=T, orders={"a": order, "other": order})
    row = {"clusterQueue": "a", "key": "LargestFirst", "window": "busy", "since": timestamp(T)}
    assert new["orders"] == [row]
    assert "orders" not in policy_status.status(policy(status=new), chosen, now=T, orders={})


def test_where_no_policy_has_several_orders_nothing_is_asked() -> None:
    world = World(policy(key="LargestFirst"))
    assert world.at(T) is None
    ordering = world.ordering()
    assert ordering is not None and not ordering.changes
