"""A gang that takes longer on one flavor than on another: whether it is in the way depends on the flavor that it would get."""

from __future__ import annotations

import time
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.builders.engine import GPU, EngineWorld, cluster_queue, gang, group, of, reported_pending
from tests.engine.clockwork import Clockwork, Job, not_overcommitted
from tests.examples import examples

from gangline.engine.model import (
    Admission,
    Backfill,
    Flavor,
    Ordering,
    PodSet,
    PodSetAssignment,
    Preempt,
    RuntimeForecast,
    Workload,
)
from gangline.engine.model.runtime import Runtime
from gangline.engine.queues.ordering import flavors_of, working_flavors
from gangline.engine.simulation.outlook import outlook

MINUTE = 60_000


def forecast(name: str, anywhere: float, fast: float | None = None, slow: float | None = None) -> RuntimeForecast:
    """Minutes; the quantiles are close together."""

    def quantiles(minutes: float) -> tuple[tuple[float, int], ...]:
        return ((0.5, round(minutes * MINUTE)), (0.9, round(minutes * MINUTE) + 1))

    there = {flavor: quantiles(each) for flavor, each in (("fast", fast), ("slow", slow)) if each is not None}
    return RuntimeForecast(f"team/{name}", quantiles(anywhere), "Model", 9, by_flavor=there)


def put(
    world: EngineWorld, workload: Workload, anywhere: float, fast: float | None = None, slow: float | None = None
) -> None:
    world.put(forecast(workload.name, anywhere, fast, slow), workload)


def day(*, fast_is_full: bool, **policy: Any) -> EngineWorld:
    """4 GPUs are fast, 8 are slow. The head needs all 12 of them and is reserved to start in an hour; 2 slow ones are free
    until then, and the fast ones unless `fast_is_full`."""
    groups = (group({"fast": {GPU: 4}, "slow": {GPU: 8}}),)
    world = EngineWorld(Flavor("fast"), Flavor("slow"), cluster_queue("q", groups=groups, backfill=Backfill(**policy)))
    put(world, gang("run1", 6), 60)
    if fast_is_full:
        put(world, gang("fill2", 4), 60)
    world.decide()
    assert held_by(world, "run1") == ["slow"]
    head = gang("head3", pod_sets=(PodSet("many", 1, {GPU: 8}), PodSet("few", 1, {GPU: 4})))
    put(world, head, 30)
    assert of(world.decide(), Preempt) == [] and "head3" not in world.running()
    return world


def held_by(world: EngineWorld, name: str) -> list[str]:
    return list(flavors_of(world.workloads[f"team/{name}"].admission))


# --- who is let in ----------------------------------------------------------------------------------------------------


def test_who_is_gone_in_time_on_the_fast_flavor_is_let_in_there() -> None:
    world = day(fast_is_full=False)
    put(world, gang("brief4", 2), anywhere=70, fast=40, slow=100)
    world.decide()
    assert held_by(world, "brief4") == ["fast"], "though on the average flavor it would take too long"


def test_on_the_slow_flavor_it_would_be_in_the_way() -> None:
    world = day(fast_is_full=True)
    put(world, gang("brief4", 2), anywhere=50, fast=40, slow=100)
    pending = reported_pending(world.decide())
    assert "brief4" not in world.running(), "though on the average flavor it would be gone in time"
    assert pending["brief4"].explanation.reason == "WaitingForReservation"
    world.finish("fill2")
    world.decide()
    assert held_by(world, "brief4") == ["fast"], "as soon as the fast ones are free"


def test_of_those_that_are_held_back_who_is_quick_enough_on_that_flavor_is_let_in() -> None:
    world = day(fast_is_full=True)
    put(world, gang("long4", 1), anywhere=50, fast=40, slow=100)
    put(world, gang("quick5", 1), anywhere=90, fast=30, slow=50)
    put(world, gang("plain6", 1), anywhere=50)
    put(world, gang("slow7", 1), anywhere=30, fast=20, slow=61)
    world.decide()
    assert world.running() == ["fill2", "plain6", "quick5", "run1"]


@pytest.mark.parametrize("candidates", ["ShortestFirst", "BestFit"])
def test_so_it_is_where_candidates_have_an_order_of_their_own(candidates: str) -> None:
    world = day(fast_is_full=True, candidates=candidates)
    put(world, gang("long4", 1), anywhere=50, fast=40, slow=100)
    put(world, gang("quick5", 1), anywhere=90, fast=30, slow=50)
    world.decide()
    assert world.running() == ["fill2", "quick5", "run1"]
    world.finish("fill2")
    world.decide()
    assert held_by(world, "long4") == ["fast"]


def test_who_comes_while_its_shape_is_held_back_is_looked_at_on_that_flavor_as_well() -> None:
    world = day(fast_is_full=True)
    put(world, gang("long4", 1), anywhere=50, fast=40, slow=100)
    world.decide()
    put(world, gang("quick5", 1), anywhere=90, fast=30, slow=50)
    put(world, gang("slow6", 1), anywhere=50, fast=40, slow=100)
    world.decide()
    assert world.running() == ["fill2", "quick5", "run1"]


def test_a_forecast_that_changes_while_it_is_held_back_is_looked_at_on_that_flavor() -> None:
    world = day(fast_is_full=True)
    put(world, gang("brief4", 2), anywhere=50, fast=40, slow=100)
    world.decide()
    world.put(forecast("brief4", 40, 30, 80))
    world.decide()
    assert "brief4" not in world.running()
    world.put(forecast("brief4", 80, 30, 55))
    world.decide()
    assert held_by(world, "brief4") == ["slow"]


def test_who_was_let_in_is_overdue_by_the_flavor_that_it_got() -> None:
    world = day(fast_is_full=False, revoke="Overdue")
    put(world, gang("brief4", 2), anywhere=200, fast=40, slow=400)
    world.decide()
    world.finish("run1")
    world.now += 39 * MINUTE
    assert of(world.decide(), Preempt) == []
    world.now += MINUTE
    assert of(world.decide(), Preempt) == ["brief4"]


# --- reservations, runs -----------------------------------------------------------------------------------------------


def test_a_head_waits_for_runs_as_long_as_they_take_on_their_flavor() -> None:
    groups = (group({"fast": {GPU: 4}, "slow": {GPU: 8}}),)
    world = EngineWorld(Flavor("fast"), Flavor("slow"), cluster_queue("q", groups=groups, backfill=Backfill()))
    put(world, gang("run1", 6), anywhere=60, fast=30, slow=120)
    world.decide()
    put(world, gang("head2", 8), 10)
    world.decide()
    world.decide()
    (reservation,) = world.engine._scheduler.backfill.timeline.reservations
    assert round((reservation.start - world.now) / MINUTE) == 120
    world.put(forecast("run1", 90))
    world.decide()
    assert round((reservation.start - world.now) / MINUTE) == 90, "a newer forecast is for the flavor that it runs on"


def test_a_reservation_lasts_as_long_as_its_gang_takes_on_its_flavors() -> None:
    """The second one waits for what the first one holds, and the third one would be in its way."""
    groups = (group({"fast": {GPU: 4}, "slow": {GPU: 8}}),)
    world = EngineWorld(Flavor("fast"), Flavor("slow"), cluster_queue("q", groups=groups, backfill=Backfill(depth=2)))
    put(world, gang("run1", 8), anywhere=60)
    world.decide()
    put(world, gang("first2", 8), anywhere=50, fast=40, slow=100)
    put(world, gang("second3", 8), anywhere=10)
    world.decide()
    first, second = world.engine._scheduler.backfill.timeline.reservations
    assert (first.gang.key, second.gang.key) == ("team/first2", "team/second3")
    assert round((second.start - first.start) / MINUTE) == 100


def test_the_order_of_a_queue_does_not_depend_on_flavors() -> None:
    groups = (group({"fast": {GPU: 4}, "slow": {GPU: 8}}),)
    queue = cluster_queue("q", groups=groups, backfill=Backfill(), ordering=Ordering("ShortestFirst"))
    world = EngineWorld(Flavor("fast"), Flavor("slow"), queue)
    put(world, gang("run1", 8), 60)
    put(world, gang("fill2", 4), 60)
    world.decide()
    put(world, gang("b3", 4), anywhere=20, fast=19, slow=90)
    put(world, gang("c4", 4), anywhere=30)
    world.decide()
    world.finish("fill2")
    world.decide()
    assert held_by(world, "b3") == ["fast"] and "c4" not in world.running()


def test_what_is_foreseen_ends_when_it_does_on_its_flavor() -> None:
    world = day(fast_is_full=True)
    put(world, gang("later4", 4), anywhere=50, fast=20, slow=100)
    seen = outlook(world.engine.facts(), world.engine.settings, world.now, seconds=0.0, clock=time.perf_counter)
    (stretch,) = [each for each in seen.stretches if each.workload == "team/later4"]
    assert flavors_of(stretch.admission) == ("fast",)
    assert round((stretch.ended - stretch.began) / MINUTE) == 20


# --- the parts --------------------------------------------------------------------------------------------------------


def test_the_slowest_of_several_flavors_counts() -> None:
    known = forecast("a", 60, 30, 120)
    for flavors, minutes in (
        ((), 60),
        (("fast",), 30),
        (("fast", "slow"), 120),
        (("other",), 60),
        (("fast", "cpu"), 30),
    ):
        runtime = Runtime.of(known, None, flavors)
        assert runtime is not None and runtime.quantile(0.5) == minutes * MINUTE, flavors
    limited = Runtime.of(known, 40 * MINUTE, ("slow",))
    assert limited is not None and limited.quantile(0.5) == 40 * MINUTE


def test_the_flavors_of_accelerators_tell_how_fast_a_gang_runs() -> None:
    assert working_flavors([{"cpu": "spot", GPU: "h100"}, {"cpu": "slow"}]) == ("h100",)
    assert working_flavors([{GPU: "v100"}, {GPU: "h100"}]) == ("h100", "v100")
    assert working_flavors([{"cpu": "spot", "memory": "spot"}]) == ("spot",)
    assert flavors_of(None) == ()
    assert flavors_of(Admission("q", (PodSetAssignment("main", 1, {GPU: "h100"}, {GPU: 8}),))) == ("h100",)


# --- random days ------------------------------------------------------------------------------------------------------


@st.composite
def jobs(draw: st.DrawFn) -> list[Job]:
    found: list[Job] = []
    for _ in range(draw(st.integers(3, 12))):
        lasts = draw(st.integers(1, 300))
        guess = max(1, round(lasts * draw(st.sampled_from([0.3, 1.0, 3.0]))))
        there = {"a100": draw(st.sampled_from([0.3, 1.0])), "slow": draw(st.sampled_from([1.0, 3.0]))}
        quantiles = ((0.1, max(1, guess // 4)), (0.5, guess), (0.9, guess * 3))
        gpus = draw(st.sampled_from([1, 2, 4, 8, 12]))
        at = draw(st.integers(0, 400))
        found.append(Job(at, lasts, gpus, forecast=quantiles, times=there if draw(st.booleans()) else {}))
    return found


@examples(15)
@given(jobs(), st.sampled_from(["Overdue", "Any"]), st.sampled_from(["QueueOrder", "ShortestFirst", "BestFit"]))
def test_backfill_keeps_its_promises_on_flavors_of_several_speeds(day: list[Job], revoke: str, candidates: str) -> None:
    groups = (group({"a100": {GPU: 8}, "slow": {GPU: 16}}),)
    queue = cluster_queue("q", groups=groups, backfill=Backfill(revoke=revoke, candidates=candidates))
    clock = Clockwork(Flavor("slow"), queue)
    clock.checks.append(not_overcommitted)
    clock.run(day)
    assert all(run.end is not None for run in clock.runs.values())
    delays = clock.engine.head_delay_seconds().get("q", {})
    assert "backfill" not in delays and (revoke == "Overdue" or delays == {})
