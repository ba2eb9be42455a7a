"""The idle budget: others are held back for a reserved head once its wait pays for what is kept idle until its start."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.builders.engine import GPU, START, EngineWorld, cluster_queue, gang, group
from tests.engine.clockwork import HOST, Clockwork, not_overcommitted
from tests.engine.test_timeline_properties import forecast, jobs
from tests.examples import examples

from gangline.engine.model import Backfill, ClusterQueue, Flavor, Node, PodSet, Put, Topology, TopologyRequest, Workload

SHARES = (0.0, 0.01, 0.1, 0.5, 1.0)


def at(world: EngineWorld, seconds: int) -> EngineWorld:
    """The world decides that long after START."""
    world.now = START + (seconds - 1) * 1000
    world.decide()
    return world


def blocked_head(share: float | None, *more: Any) -> EngineWorld:
    """4 of 8 GPUs are held from second 1,001 to 4,601, and w1, submitted in second 1, waits for all 8."""
    queue = cluster_queue("q", 8, backfill=Backfill(idle_share=share))
    world = EngineWorld(queue, *more, forecast("w0", 3600), gang("w0", 4), gang("w1", 8))
    return at(world, 1001)


def late_comer(world: EngineWorld, seconds: int) -> bool:
    """Whether one that would run for a day on the 4 free GPUs starts before the head."""
    world.put(forecast("w2", 86_400), gang("w2", 4))
    at(world, seconds)
    return "w2" in world.running()


def passed(world: EngineWorld, name: str) -> bool:
    """Whether it was backfilled before a head that others are held back for."""
    return world.engine._store.gangs[f"team/{name}"].backfill.backfilled


def message(world: EngineWorld, name: str = "w1") -> str:
    explanation = world.engine.explain(f"team/{name}")
    assert explanation is not None
    return explanation.message


def test_a_head_that_waits_for_nothing_holds_others_back_at_once() -> None:
    world = blocked_head(None)
    assert "; others are held back for it" in message(world)
    assert not late_comer(world, 1002)


@pytest.mark.parametrize(
    ("share", "pays"),
    [
        # 4 GPUs are idle until second 4,601, and half (a quarter) of 8 are paid for since second 1
        (0.5, 2301),
        (0.25, 3068),
        (1.0, 1535),
    ],
)
def test_it_holds_others_back_from_the_moment_at_which_its_wait_pays(share: float, pays: int) -> None:
    world = blocked_head(share)
    assert ". Planned to start by" in message(world) and "; nothing is kept idle for it yet" in message(world)
    assert late_comer(world, pays - 1)
    assert not passed(world, "w2"), "nobody was held back yet: nothing revokes it"
    world = blocked_head(share)
    assert not late_comer(world, pays)
    assert "; others are held back for it" in message(world)
    assert "Workload would delay team/w1" in message(world, "w2")


def test_a_share_of_nothing_keeps_nothing_idle() -> None:
    assert late_comer(blocked_head(0.0), 4600)


def test_what_ends_before_its_start_needs_no_word_of_it() -> None:
    world = blocked_head(0.5)
    world.put(forecast("w2", 60), gang("w2", 4))
    assert "w2" in at(world, 2400).running()
    assert passed(world, "w2")


def test_others_are_held_back_whatever_the_plan_costs_later() -> None:
    world = blocked_head(0.5)
    assert not late_comer(world, 2301)
    world.engine.observe(Put(forecast("w0", 86_400)))
    at(world, 2302)
    assert "w2" not in world.running(), "held back, though four GPUs are idle for most of a day"
    world.finish("w0")
    assert "w1" in at(world, 2400).running()


def test_what_is_idle_counts_as_runs_end() -> None:
    """8 of 16 GPUs are held until 4,601 by two, one of which ends at 2,801; the head needs all."""
    queue = cluster_queue("q", 16, backfill=Backfill(idle_share=0.5))
    world = EngineWorld(queue, forecast("a", 3600), forecast("b", 1800), gang("a", 4), gang("b", 4), gang("w1", 16))
    at(world, 1001)
    # at second t: 8 idle until 2,801 and 12 until 4,601 are 8 · (2,801 - t) + 12 · 1,800, paid by 8 · (t - 1)
    assert late_comer(world, 2750), 8 * 51 + 12 * 1800
    world = EngineWorld(queue, forecast("a", 3600), forecast("b", 1800), gang("a", 4), gang("b", 4), gang("w1", 16))
    at(world, 1001)
    assert not late_comer(world, 2751), 8 * 50 + 12 * 1800


def test_what_is_idle_counts_up_to_what_the_head_needs() -> None:
    """9 of 24 GPUs are idle, 3 on each node; the head needs 8 on one of them: until 4,601 that costs 8 · (4,601 - t)."""
    hosts = [Node(f"n{number}", {HOST: f"n{number}"}, {GPU: 8, "pods": 100}) for number in range(3)]

    def placed(name: str, gpus: int, pods: int = 1) -> Workload:
        return gang(name, pod_sets=(PodSet("main", pods, {GPU: gpus}, topology=TopologyRequest(unconstrained=True)),))

    for seconds, starts in ((1840, True), (1841, False)):
        queue = cluster_queue("q", 24, backfill=Backfill(idle_share=0.5))
        world = EngineWorld(Topology("hosts", (HOST,)), Flavor("a100", topology="hosts"), *hosts, queue)
        for name, lasts in (("a", 3600), ("b", 90_000), ("c", 90_000)):
            world.put(forecast(name, lasts), placed(name, 5))
        world.put(forecast("w1", 60), placed("w1", 8))
        at(world, 1001)
        world.put(forecast("w2", 86_400), placed("w2", 3, 3))
        assert ("w2" in at(world, seconds).running()) == starts


def test_a_head_without_a_known_start_holds_back_whatever_has_no_known_end() -> None:
    queue = cluster_queue("q", 8, backfill=Backfill(idle_share=0.01))
    world = at(EngineWorld(queue, gang("w0", 4), gang("w1", 8)), 1001)
    world.put(gang("w2", 4))
    assert "w2" not in at(world, 1002).running()
    world.put(forecast("w3", 86_400), gang("w3", 4))
    assert "w3" in at(world, 1003).running()


def test_the_resource_of_which_it_takes_the_largest_share_is_paid_for() -> None:
    """Cores are idle at all times; of GPUs, 4 are until 4,601."""
    queue = ClusterQueue("q", groups=(group({"a100": {GPU: 8, "cpu": 1000}}),), backfill=Backfill(idle_share=0.5))

    def both(name: str, gpus: int) -> Any:
        return gang(name, pod_sets=(PodSet("main", 1, {GPU: gpus, "cpu": 100}),))

    for seconds, starts in ((2300, True), (2301, False)):
        world = at(EngineWorld(queue, forecast("w0", 3600), both("w0", 4), both("w1", 8)), 1001)
        world.put(forecast("w2", 86_400), both("w2", 4))
        assert ("w2" in at(world, seconds).running()) == starts


def test_in_a_cohort_all_that_it_may_use_pays() -> None:
    """The queue has no GPUs of its own and may borrow all 8; those of another tree that end first are none of its business."""
    for seconds, starts in ((2300, True), (2301, False)):
        queues = (
            cluster_queue("q", 0, "pool", backfill=Backfill(idle_share=0.5)),
            cluster_queue("lender", 8, "pool"),
            cluster_queue("elsewhere", 8),
        )
        others = (forecast("other", 60), gang("other", 4, "elsewhere"))
        world = EngineWorld(*queues, *others, forecast("w0", 3600), gang("w0", 4, "lender"), gang("w1", 8))
        at(world, 1001)
        assert late_comer(world, seconds) == starts


def test_others_are_held_back_after_a_restart_while_the_plan_holds() -> None:
    """What the plan still costs falls, and what the wait pays grows: it pays again."""
    for seconds in (2301, 3000, 4599):
        world = blocked_head(0.5)
        at(world, 2301)
        world.restart()
        assert not late_comer(world, seconds + 1)


@examples(30)
@given(jobs(sure=True), st.sampled_from([0, 3]), st.sampled_from(SHARES))
def test_with_sure_limits_every_plan_is_kept(day: list[Any], nodes: int, share: float) -> None:
    clock = Clockwork(cluster_queue("q", 8 * (nodes or 3), backfill=Backfill(idle_share=share)), nodes=nodes)
    clock.checks.append(not_overcommitted)
    clock.run(day)
    assert all(run.end is not None for run in clock.runs.values())
    for start in clock.engine.head_starts():
        assert start.planned is None or start.started <= start.planned, start


@examples(30)
@given(jobs(), st.sampled_from([0, 3]), st.sampled_from([1, 3]), st.sampled_from(SHARES))
def test_nobody_starves_and_no_head_is_passed(day: list[Any], nodes: int, depth: int, share: float) -> None:
    policy = Backfill(depth=depth, revoke="Any", idle_share=share)
    clock = Clockwork(cluster_queue("q", 8 * (nodes or 3), backfill=policy), nodes=nodes)
    clock.checks.append(not_overcommitted)
    clock.run(day)
    assert all(run.end is not None for run in clock.runs.values())
    assert clock.engine.head_delay_seconds() == {} or depth > 1
