"""The orders Demand, DemandDrf and LargestFirst (rows C4 and C5 of placement-and-sharing)."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.builders.engine import EngineWorld
from tests.examples import examples

from gangline.engine import Engine
from gangline.engine.model import (
    Admit,
    Backfill,
    ClusterQueue,
    Decision,
    Flavor,
    FlavorQuotas,
    Gone,
    LocalQueue,
    Node,
    Ordering,
    PodSet,
    Put,
    Quota,
    ResourceGroup,
    Settings,
    Workload,
)

QUEUES = ("one", "two", "three")


def queue(gpus: int, key: str, *, backfill: Backfill | None = None, **more: Any) -> ClusterQueue:
    groups = (ResourceGroup(("gpu",), (FlavorQuotas("a100", {"gpu": Quota(gpus)}),)),)
    return ClusterQueue("q", groups=groups, ordering=Ordering(key, **more), backfill=backfill)


def gang(name: str, local_queue: str, gpus: int, at: int = 0, **more: Any) -> Workload:
    pods = (PodSet("main", 1, {"gpu": gpus}),)
    return Workload(name, "team", name, local_queue, pods, created=at * 1000, **more)


def engine_with(
    config: ClusterQueue, *workloads: Workload, nodes: tuple[Node, ...] = (), pods_ready: bool = True
) -> Engine:
    """`pods_ready`: a gang is requeued whose pods aren't ready in time."""
    engine = Engine() if pods_ready else Engine(Settings(pods_ready=None))
    flavor = Flavor("a100", {"pool": "a100"} if nodes else {})
    for item in (flavor, *nodes, config, *(LocalQueue("team", name, "q") for name in QUEUES), *workloads):
        engine.observe(Put(item))
    return engine


def started(decisions: list[Decision]) -> list[str]:
    return [each.workload.partition("/")[2] for each in decisions if isinstance(each, Admit)]


def running(workload: Workload, engine: Engine) -> None:
    """It is admitted, and nothing else waits meanwhile."""
    engine.observe(Put(workload))
    (admit,) = engine.decide(0)
    assert isinstance(admit, Admit)
    engine.observe(Put(replace(workload, admission=admit.admission, admitted=True, admitted_at=0)))


@pytest.mark.parametrize(
    ("key", "weight", "first"), [("Demand", 0.5, "one"), ("DemandDrf", 0.5, "two"), ("DemandDrf", 0.9, "one")]
)
def test_whose_local_queue_asks_for_more_is_first_and_what_it_holds_counts_against_it(
    key: str, weight: float, first: str
) -> None:
    """Of 100 GPUs one holds 50 and asks for 60, two holds 10 and asks for 30: 0.5 · 0.6 - 0.5 · 0.5 is less than 0.10."""
    engine = engine_with(queue(100, key, demand_weight=weight))
    running(gang("held-1", "one", 50), engine)
    running(gang("held-2", "two", 10), engine)
    for number, (local_queue, gpus) in enumerate([("two", 30), *[("one", 30)] * 2]):
        engine.observe(Put(gang(f"{local_queue}-{number}", local_queue, gpus, at=number)))
    assert engine.pending("q")[0].startswith(f"team/{first}")
    assert started(engine.decide(1))[0].startswith(first)


def test_who_asks_for_more_than_there_is_is_not_before_who_asks_for_all_of_it() -> None:
    engine = engine_with(
        queue(8, "Demand"), gang("a", "one", 8, at=0), *(gang(f"b{n}", "two", 8, at=1) for n in range(9))
    )
    assert engine.pending("q")[0] == "team/a", "equal demands: the oldest"


def test_with_the_largest_first_less_room_is_lost_on_nodes() -> None:
    nodes = tuple(Node(f"n{number}", {"pool": "a100"}, {"gpu": 8}) for number in range(2))
    gangs = [gang(f"g{gpus}", "one", gpus, at=number) for number, gpus in enumerate((2, 3, 6, 5))]
    in_order = engine_with(queue(16, "Priority", max_wait_seconds=86400.0), *gangs, nodes=nodes)
    largest = engine_with(queue(16, "LargestFirst"), *gangs, nodes=nodes)
    assert sorted(started(in_order.decide(0))) == ["g2", "g3", "g6"]
    assert sorted(started(largest.decide(0))) == ["g2", "g3", "g5", "g6"]


STEPS = st.lists(
    st.tuples(st.sampled_from(("come", "come", "decide", "finish", "delete", "close", "open")), st.integers(0, 11)),
    max_size=30,
)


@examples(100)
@given(key=st.sampled_from(("Demand", "DemandDrf")), depth=st.sampled_from((None, 1, 2)), steps=STEPS)
def test_what_is_asked_for_and_held_is_what_waits_and_runs(
    key: str, depth: int | None, steps: list[tuple[str, int]]
) -> None:
    backfill = None if depth is None else Backfill(depth=depth)
    world = EngineWorld(
        Flavor("a100"), queue(10, key, backfill=backfill), *(LocalQueue("team", n, "q") for n in QUEUES)
    )
    for number, (step, pick) in enumerate(steps):
        names = sorted(world.workloads)
        match step:
            case "come":
                world.put(gang(f"g{number}", QUEUES[pick % 3], 1 + pick % 5, at=number))
            case "decide":
                world.decide()
            case "finish" if names:
                if world.workloads[names[pick % len(names)]].admission is not None:
                    world.finish(world.workloads[names[pick % len(names)]].name)
            case "delete" if names:
                world.delete(world.workloads[names[pick % len(names)]].name)
            case "close":
                world.engine.observe(Gone(LocalQueue, f"team/{QUEUES[pick % 3]}"))
            case "open":
                world.engine.observe(Put(LocalQueue("team", QUEUES[pick % 3], "q")))
            case _:
                pass
        pending = set(world.engine.pending("q"))
        state = world.engine._store.queues["q"]
        assert state.demand is not None
        waiting = [each for each in state.pending.in_queue_order() if each.key in pending]
        asked = {
            name: sum(each.requests()["gpu"] for each in waiting if each.local_queue == f"team/{name}")
            for name in QUEUES
        }
        held = {
            name: sum(each.requests()["gpu"] for each in state.holders.values() if each.local_queue == f"team/{name}")
            for name in QUEUES
        }
        weight = 1.0 if key == "Demand" else 0.5
        for name in QUEUES:
            expected = (1 - weight) * held[name] / 10 - weight * min(1.0, asked[name] / 10)
            assert state.demand(f"team/{name}") == pytest.approx(expected)
