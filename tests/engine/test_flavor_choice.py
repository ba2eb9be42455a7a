"""The choice among flavors by expected completion: QueuePolicy.spec.flavors."""

from __future__ import annotations

import random
import time
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.builders.engine import GPU, EngineWorld, cluster_queue, gang, group, of, reported_pending
from tests.engine.clockwork import Clockwork, Job, not_overcommitted
from tests.engine.test_flavor_lengths import MINUTE, forecast, held_by, jobs, put
from tests.examples import examples

from gangline.engine.model import (
    Backfill,
    ClusterQueue,
    EarliestCompletion,
    Flavor,
    FlavorQuotas,
    Fungibility,
    Gone,
    PodSet,
    Preempt,
    PreemptionPolicy,
    Quota,
    ResourceGroup,
    RuntimeForecast,
)
from gangline.engine.queues.ordering import flavors_of
from gangline.engine.simulation.outlook import outlook


def queue(slow: int = 8, fast: int = 4, **fields: Any) -> ClusterQueue:
    """Slow GPUs come first in the queue's order."""
    groups = (group({"slow": {GPU: slow}, "fast": {GPU: fast}}),)
    return cluster_queue("q", groups=groups, **{"flavors": EarliestCompletion(), **fields})


def world(config: ClusterQueue) -> EngineWorld:
    return EngineWorld(Flavor("slow"), Flavor("fast"), config)


def busy(minutes: float, config: ClusterQueue | None = None) -> EngineWorld:
    """All fast GPUs are held for so long."""
    made = world(config or queue())
    put(made, gang("holder1", 4), minutes, fast=minutes, slow=20 * minutes)
    made.decide()
    assert held_by(made, "holder1") == ["fast"]
    return made


def test_it_gets_the_faster_one_of_two_that_are_free() -> None:
    made = world(queue())
    put(made, gang("a1", 2), 100, fast=40, slow=100)
    made.decide()
    assert held_by(made, "a1") == ["fast"]


@pytest.mark.parametrize("policy", [None, EarliestCompletion()])
def test_without_the_policy_or_a_difference_the_order_decides(policy: EarliestCompletion | None) -> None:
    made = world(queue(flavors=policy))
    if policy is None:
        put(made, gang("a1", 2), 100, fast=40, slow=100)
    else:
        put(made, gang("a1", 2), 100)
    made.decide()
    assert held_by(made, "a1") == ["slow"]


def test_who_is_as_fast_on_both_gets_the_first() -> None:
    made = world(queue())
    put(made, gang("a1", 2), 90, fast=100, slow=100)
    made.decide()
    assert held_by(made, "a1") == ["slow"]


def test_it_waits_for_a_flavor_on_which_it_ends_earlier_and_says_so() -> None:
    made = busy(30)
    put(made, gang("a2", 2), 100, fast=40, slow=200)
    told = reported_pending(made.decide())
    message = told["a2"].explanation.message
    assert (
        "insufficient unused quota for nvidia.com/gpu in flavor fast, 2 more needed. Waits for flavor fast until about"
        in message
    )
    assert "expected end 2026-01-01 " in message and message.endswith(" UTC on slow")
    explained = made.engine.explain("team/a2")
    assert explained is not None and explained.message == message and explained.flavor == "fast"
    made.now += 10 * MINUTE
    assert reported_pending(made.decide()) == {}
    made.finish("holder1")
    made.decide()
    assert held_by(made, "a2") == ["fast"]


def test_it_does_not_wait_where_it_would_end_later() -> None:
    made = busy(30)
    put(made, gang("a2", 2), 100, fast=40, slow=60)
    made.decide()
    assert held_by(made, "a2") == ["slow"]


def test_others_pass_it() -> None:
    made = busy(30)
    put(made, gang("a2", 8), 100, fast=40, slow=200)  # too big for the fast ones
    put(made, gang("b3", 2), 100, fast=40, slow=200)
    put(made, gang("c4", 4), 20)
    made.put(queue(slow=12))
    made.decide()
    assert held_by(made, "a2") == ["slow"] and held_by(made, "c4") == ["slow"] and "b3" not in made.running()


def test_it_waits_no_longer_than_the_policy_lets_it() -> None:
    made = busy(30, queue(flavors=EarliestCompletion(wait_at_most_seconds=3600)))
    put(made, gang("a2", 2, created=made.now), 100, fast=40, slow=900)
    made.decide()
    began = made.now
    for _ in range(40):  # the holder takes ever longer than expected
        wakeup = made.engine.next_wakeup(made.now)
        assert wakeup is not None and wakeup > made.now
        made.now = wakeup - 1000
        made.decide()
        if "a2" in made.running():
            break
    assert held_by(made, "a2") == ["slow"]
    assert made.now - began <= 3_602_000


def test_it_waits_for_nothing_whose_start_comes_later_than_it_may_wait() -> None:
    made = busy(90, queue(flavors=EarliestCompletion(wait_at_most_seconds=3600)))
    put(made, gang("a2", 2, created=made.now), 100, fast=40, slow=900)
    made.decide()
    assert held_by(made, "a2") == ["slow"]


def test_it_goes_on_without_the_flavor_when_the_expectation_falls() -> None:
    made = busy(30)
    put(made, gang("a2", 2), 100, fast=40, slow=200)
    made.decide()
    assert "a2" not in made.running()
    made.put(forecast("holder1", 900, fast=900, slow=900))
    made.decide()
    assert held_by(made, "a2") == ["slow"]


def test_it_thinks_again_when_its_own_forecast_changes() -> None:
    made = busy(30)
    put(made, gang("a2", 2), 100, fast=40, slow=200)
    made.decide()
    made.put(forecast("a2", 100, fast=40, slow=50))
    made.decide()
    assert held_by(made, "a2") == ["slow"]


@pytest.mark.parametrize("backfill", [None, Backfill()])
def test_those_before_it_are_counted(backfill: Backfill | None) -> None:
    """Each of them would be next alone. Together the third one would start too late."""
    made = busy(30, queue(backfill=backfill))
    for name in ("a2", "b3", "c4"):
        put(made, gang(name, 4), 100, fast=60, slow=140)
    made.put(queue(slow=20, backfill=backfill))
    made.decide()
    assert made.running() == ["b3", "c4", "holder1"], "a2 ends after 90 minutes, b3 would after 150"


def test_a_strict_queue_is_not_held_up() -> None:
    made = busy(30, queue(strategy="StrictFIFO"))
    put(made, gang("a2", 2), 100, fast=40, slow=200)
    made.decide()
    assert held_by(made, "a2") == ["slow"]


def test_nobody_is_preempted_for_the_sake_of_a_flavor() -> None:
    made = busy(30, queue(preemption=PreemptionPolicy(within_cluster_queue="LowerPriority")))
    put(made, gang("a2", 2, priority=9), 100, fast=40, slow=200)
    assert of(made.decide(), Preempt) == [] and "a2" not in made.running()
    assert "Waits for flavor fast" in reported_pending_message(made, "a2")


def reported_pending_message(made: EngineWorld, name: str) -> str:
    explained = made.engine.explain(f"team/{name}")
    assert explained is not None
    return explained.message


def test_where_preemption_comes_before_the_next_flavor_it_does_so_still() -> None:
    rules = {
        "preemption": PreemptionPolicy(within_cluster_queue="LowerPriority"),
        "fungibility": Fungibility(when_can_preempt="MayStopSearch"),
    }
    found: list[list[str]] = []
    for policy in (None, EarliestCompletion()):
        made = world(queue(slow=4, flavors=policy, **rules))
        put(made, gang("low1", 4), 500, fast=600, slow=500)
        made.decide()
        assert held_by(made, "low1") == ["slow"]
        put(made, gang("a2", 4, priority=9), 100, fast=40, slow=200)
        found.append(of(made.decide(), Preempt))
    assert found == [["low1"], ["low1"]]


def test_who_borrows_only_after_the_last_flavor_borrows_for_no_faster_one() -> None:
    rules = Fungibility(when_can_borrow="TryNextFlavor")
    made = EngineWorld(
        Flavor("slow"),
        Flavor("fast"),
        replace(queue(fast=0, fungibility=rules), cohort="all"),
        cluster_queue("lender", cohort="all", groups=(group({"slow": {GPU: 0}, "fast": {GPU: 8}}),)),
    )
    put(made, gang("a1", 2), 100, fast=40, slow=100)
    made.decide()
    assert held_by(made, "a1") == ["slow"]


def test_a_wait_is_forgotten_with_the_policy_the_workload_or_its_start() -> None:
    made = busy(30)
    put(made, gang("a2", 2), 100, fast=40, slow=200)
    made.decide()
    choice = made.engine._scheduler.backfill.flavors
    assert list(choice._waiting) == ["team/a2"] and len(choice._timeline.planned) == 1
    made.put(queue(flavors=None))
    made.decide()
    assert held_by(made, "a2") == ["slow"]
    assert choice._waiting == {} and choice._timeline.planned == []


def test_a_deleted_workload_waits_for_nothing() -> None:
    made = busy(30)
    put(made, gang("a2", 2), 100, fast=40, slow=200)
    made.decide()
    made.delete("a2")
    made.engine.observe(Gone(RuntimeForecast, "team/a2"))
    made.decide()
    choice = made.engine._scheduler.backfill.flavors
    assert choice._waiting == {} and choice._timeline.planned == []


def test_it_waits_beside_backfill_and_holds_back_nobody() -> None:
    made = busy(30, queue(backfill=Backfill()))
    put(made, gang("a2", 4), 100, fast=40, slow=200)
    put(made, gang("b3", 8), 600)
    made.decide()
    assert made.running() == ["b3", "holder1"] and made.engine.reservations() == {}
    made.finish("holder1")
    made.decide()
    assert held_by(made, "a2") == ["fast"]


def test_no_wait_is_begun_for_little_and_none_is_ended_for_little() -> None:
    made = busy(30)
    put(made, gang("a2", 2), 100, fast=40, slow=76)  # 70 minutes instead of 76
    made.decide()
    assert held_by(made, "a2") == ["slow"]
    made = busy(30, queue(flavors=EarliestCompletion(14_400)))
    put(made, gang("a2", 2), 100, fast=40, slow=90)
    made.decide()
    assert "a2" not in made.running()
    made.now += 25 * MINUTE
    made.put(forecast("holder1", 70, fast=70, slow=900))  # another 45 minutes, and 85 in all instead of 90
    made.decide()
    assert "a2" not in made.running()
    made.put(forecast("holder1", 80, fast=80, slow=900))
    made.decide()
    assert held_by(made, "a2") == ["slow"]


def test_it_keeps_nothing_of_the_flavor_from_other_queues() -> None:
    rules = {"preemption": PreemptionPolicy(within_cluster_queue="LowerPriority"), "cohort": "all"}
    made = EngineWorld(
        Flavor("slow"),
        Flavor("fast"),
        replace(queue(fast=4, **rules)),
        cluster_queue("p", groups=(group({"fast": {GPU: Quota(0)}}),), cohort="all"),
    )
    put(made, gang("holder1", 3), 30, fast=30, slow=600)
    made.decide()
    put(made, gang("a2", 2, priority=9), 100, fast=40, slow=200)
    put(made, gang("b3", 1, queue="p"), 10)
    made.change("holder1", priority=9)
    made.decide()
    assert made.running() == ["b3", "holder1"]


def test_what_is_foreseen_is_the_same_choice() -> None:
    made = busy(30)
    put(made, gang("a2", 2), 100, fast=40, slow=200)
    made.decide()
    seen = outlook(made.engine.facts(), made.engine.settings, made.now, seconds=0.0, clock=time.perf_counter)
    (stretch,) = [each for each in seen.stretches if each.workload == "team/a2"]
    assert flavors_of(stretch.admission) == ("fast",)
    assert [round((at - made.now) / MINUTE) for at in (stretch.began, stretch.ended)] == [30, 70]


def test_another_process_comes_to_the_same_choice() -> None:
    made = busy(30)
    put(made, gang("a2", 2), 100, fast=40, slow=200)
    made.decide()
    made.restart()
    made.decide()
    assert "a2" not in made.running() and "Waits for flavor fast" in reported_pending_message(made, "a2")


# --- rows of docs/placement.md ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(("free_in", "chosen"), [(40, "cpu"), (30, "gpu")])
def test_g4_kubcg_cpu_or_gpu_by_the_earlier_end(free_in: int, chosen: str) -> None:
    """10 minutes on the GPU or 45 on CPUs: the GPU that is free in 40 minutes is too late, the one in 30 is worth the wait."""
    work = "example.com/worker"
    offered = ResourceGroup((work,), (FlavorQuotas("gpu", {work: Quota(1)}), FlavorQuotas("cpu", {work: Quota(8)})))
    made = EngineWorld(
        Flavor("gpu"), Flavor("cpu"), cluster_queue("q", groups=(offered,), flavors=EarliestCompletion())
    )

    def job(name: str, **minutes: float) -> None:
        quantiles = {
            flavor: ((0.5, round(each * MINUTE)), (0.9, round(each * MINUTE) + 1)) for flavor, each in minutes.items()
        }
        made.put(RuntimeForecast(f"team/{name}", quantiles["cpu"], "Model", 9, by_flavor=quantiles))
        made.put(gang(name, pod_sets=(PodSet("main", 1, {work: 1}),), created=made.now))

    job("holder1", gpu=free_in, cpu=20 * free_in)
    made.decide()
    assert held_by(made, "holder1") == ["gpu"]
    job("job2", gpu=10, cpu=45)
    made.decide()
    made.now += free_in * MINUTE
    made.finish("holder1")
    made.decide()
    assert held_by(made, "job2") == [chosen]


# --- days -------------------------------------------------------------------------------------------------------------


def mixed_day(seed: int) -> list[Job]:
    """80 jobs, some of which are up to five times as fast on one of two flavors."""
    drawn, at, found = random.Random(seed), 0, list[Job]()
    for _ in range(80):
        at += round(drawn.expovariate(1 / 50))
        lasts = round(drawn.lognormvariate(6.5, 1.0)) + 10
        times = {"slow": 1.0, "a100": drawn.choice([1.0, 0.7, 0.4, 0.2])}
        quantiles = ((0.5, lasts), (0.9, round(lasts * 1.3)))
        found.append(Job(at, lasts, drawn.choice([1, 1, 1, 2, 2, 4]), forecast=quantiles, times=times))
    return found


def played(day: list[Job], order: Sequence[str], **policy: Any) -> Clockwork:
    sizes = {"slow": {GPU: 16}, "a100": {GPU: 8}}
    groups = (group({flavor: sizes[flavor] for flavor in order}),)
    clock = Clockwork(Flavor("slow"), cluster_queue("q", groups=groups, **policy))
    clock.checks.append(not_overcommitted)
    clock.run(day)
    return clock


def mean_completion(clock: Clockwork, day: list[Job]) -> float:
    """The mean seconds from submission to end."""
    ends = [clock.runs[f"j{number}"].end for number in range(len(day))]
    return sum(end - job.at for end, job in zip(ends, day, strict=True) if end is not None) / len(day)


@pytest.mark.parametrize("order", [("slow", "a100"), ("a100", "slow")], ids="-".join)
def test_jobs_end_earlier_on_average_than_by_the_order_of_flavors(order: tuple[str, str]) -> None:
    ratios: list[float] = []
    for seed in range(3):
        day = mixed_day(seed)
        by_order = mean_completion(played(day, order), day)
        ratios.append(mean_completion(played(day, order, flavors=EarliestCompletion()), day) / by_order)
    assert max(ratios) < 1 and sum(ratios) / len(ratios) < 0.95, ratios


def test_a_day_without_differences_is_the_same_as_by_the_order() -> None:
    day = [replace(job, times={}) for job in mixed_day(5)]
    by_order, chosen = (played(day, ("slow", "a100"), flavors=policy) for policy in (None, EarliestCompletion()))
    assert by_order.log == chosen.log


@examples(10)
@given(
    jobs(), st.sampled_from([None, Backfill(), Backfill(depth=3, revoke="Any")]), st.sampled_from([0.0, 60.0, 3600.0])
)
def test_everything_ends_and_nobody_is_evicted_for_a_choice(
    day: list[Job], backfill: Backfill | None, most: float
) -> None:
    clock = played(day, ("slow", "a100"), backfill=backfill, flavors=EarliestCompletion(most))
    assert all(run.end is not None for run in clock.runs.values())
    assert backfill is not None or not any(run.evictions for run in clock.runs.values())
    choice = clock.engine._scheduler.backfill.flavors
    assert choice._waiting == {}
