"""Quotas that change later: who starts before they fall, who is recalled, and what is planned after they rise."""

from __future__ import annotations

import time
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.builders.engine import GPU, START, EngineWorld, cluster_queue, gang, group, of

from gangline.engine import outlook
from gangline.engine.model import (
    Admit,
    Backfill,
    Cohort,
    Deadline,
    Evict,
    Flavor,
    Gone,
    Millis,
    Preempt,
    PreemptionPolicy,
    Put,
    Quota,
    QuotaAhead,
    QuotaStep,
    ReportPending,
    ResourceGroup,
    RuntimeForecast,
    Warn,
    Workload,
)

MINUTE, HOUR = 60_000, 3_600_000
NIGHT = START + 12 * HOUR
RECALL = Deadline(30 * MINUTE, MINUTE)


def groups(gpus: int | Quota) -> tuple[ResourceGroup, ...]:
    return (group({"a100": {GPU: gpus}}),)


def ahead(queue: str, *steps: tuple[Millis, int | Quota], recall: Deadline | None = RECALL) -> QuotaAhead:
    return QuotaAhead(queue, "plan", tuple(QuotaStep(at, groups(gpus)) for at, gpus in steps), recall)


def limited(name: str, gpus: int, hours: float, queue: str = "q", **fields: Any) -> Workload:
    return gang(name, gpus, queue, max_execution_seconds=round(hours * 3600), **fields)


def at(world: EngineWorld, moment: Millis) -> EngineWorld:
    world.now = moment - 1000  # `decide` adds a second
    return world


def change(
    world: EngineWorld, moment: Millis, queue: str, gpus: int | Quota, *later: tuple[Millis, int | Quota]
) -> None:
    """The quota changes, as the operator says then."""
    at(world, moment)
    world.put(replace(world.engine._store.cluster_queues[queue], groups=groups(gpus)))
    if later:
        world.engine.observe(Put(ahead(queue, *later)))
    else:
        world.engine.observe(Gone(QuotaAhead, queue))


def one_after_the_other(world: EngineWorld, *jobs: Workload) -> None:
    for job in jobs:
        world.put(job)
        assert of(world.decide(), Admit) == [job.name]


def why(world: EngineWorld, name: str) -> str:
    found = world.engine.explain(f"team/{name}")
    assert found is not None
    return found.message


def running(world: EngineWorld) -> list[str]:
    return sorted(w.name for w in world.workloads.values() if w.admitted and not w.evicted)


# --- before a fall ----------------------------------------------------------------------------------------------------


def test_who_ends_in_time_or_fits_beside_the_others_starts_before_a_fall() -> None:
    world = EngineWorld(cluster_queue("q", 8), ahead("q", (NIGHT, 4)))
    world.put(gang("w1", 3), gang("w2", 2), limited("w3", 2, 13), limited("w4", 2, 2), gang("w5", 1))
    assert of(world.decide(), Admit) == ["w1", "w4", "w5"]
    assert why(world, "w2") == (
        f"couldn't assign flavors to pod set main: quota for {GPU} in flavor a100 changes at 2026-01-01 12:00 UTC (QuotaPlan"
        " 'plan') and leaves 1 for it then, 2 are needed; the workload may start before only with a maximum execution time, or"
        " a forecast, that ends by then"
    )


def test_without_recall_only_new_starts_follow_the_quota() -> None:
    world = EngineWorld(cluster_queue("q", 8), ahead("q", (NIGHT, 4), recall=None), gang("w1", 6))
    assert of(world.decide(), Admit) == ["w1"]
    at(world, NIGHT - MINUTE)
    assert world.decide() == []
    change(world, NIGHT, "q", 4)
    assert world.decide() == []
    assert running(world) == ["w1"]


def test_a_forecast_at_the_quantile_of_the_policy_counts_as_a_limit_does() -> None:
    world = EngineWorld(cluster_queue("q", 8, backfill=Backfill(candidate=0.8)), ahead("q", (NIGHT, 0)), gang("w1", 2))
    assert of(world.decide(), Admit) == []
    world.put(RuntimeForecast("team/w1", ((0.5, HOUR), (0.8, 14 * HOUR)), "Model", 12))
    assert of(world.decide(), Admit) == []
    world.put(RuntimeForecast("team/w1", ((0.5, HOUR), (0.8, 2 * HOUR)), "Model", 12))
    assert of(world.decide(), Admit) == ["w1"]


def test_who_saves_checkpoints_starts_though_it_is_stopped_later_where_the_plan_permits_it() -> None:
    recall = replace(RECALL, shortest_run=HOUR)
    world = EngineWorld(cluster_queue("q", 8), ahead("q", (NIGHT, 4), recall=recall), gang("w1", 4))
    assert of(world.decide(), Admit) == ["w1"]
    world.put(gang("w2", 4))
    assert of(world.decide(), Admit) == []
    assert why(world, "w2").endswith("that ends by then, or with checkpoints, if it can run for 1h until it is stopped")
    world.put(gang("w3", 4, checkpoint_seconds=1800.0))
    assert of(world.decide(), Admit) == ["w3"]
    stopped = [each for each in at(world, NIGHT - MINUTE).decide() if isinstance(each, Evict)]
    assert [(each.workload, each.reason) for each in stopped] == [("team/w3", "QuotaRecalled")]


def test_one_plan_of_a_cohort_that_lets_nobody_start_to_be_stopped_holds_for_all() -> None:
    two = (cluster_queue("a", 4, "pool"), cluster_queue("b", 4, "pool"))
    plans = (ahead("a", (NIGHT, 2), recall=replace(RECALL, shortest_run=HOUR)), ahead("b", (NIGHT, 2)))
    world = EngineWorld(*two, *plans, gang("w1", 5, "a", checkpoint_seconds=1800.0))
    assert of(world.decide(), Admit) == []


def test_another_flavor_is_taken_where_the_first_one_loses_its_quota() -> None:
    both = {"a100": {GPU: 8}, "h100": {GPU: 8}}
    later = QuotaAhead("q", "plan", (QuotaStep(NIGHT, (group({**both, "a100": {GPU: 0}}),)),), RECALL)
    world = EngineWorld(Flavor("h100"), cluster_queue("q", groups=(group(both),)), later)
    world.put(gang("w1", 2), limited("w2", 2, 1))
    assert of(world.decide(), Admit) == ["w1", "w2"]
    flavors = {name: world.workloads[f"team/{name}"].admission for name in ("w1", "w2")}
    assert {name: each.pod_sets[0].flavors[GPU] for name, each in flavors.items() if each} == {
        "w1": "h100",
        "w2": "a100",
    }


def test_a_cohort_lends_only_what_it_will_have() -> None:
    two = (cluster_queue("a", 0, "pool"), cluster_queue("b", 8, "pool"))
    world = EngineWorld(*two, ahead("b", (NIGHT, 2)))
    world.put(gang("w1", 3, "a"), gang("w2", 2, "a"), limited("w3", 3, 1, "a"))
    assert of(world.decide(), Admit) == ["w2", "w3"]


def test_two_heads_of_one_cycle_do_not_share_the_room_that_is_left() -> None:
    two = (cluster_queue("a", 4, "pool"), cluster_queue("b", 4, "pool"))
    world = EngineWorld(*two, ahead("b", (NIGHT, 0)))
    world.put(gang("w1", 3, "a"), gang("w2", 3, "b"))
    assert of(world.decide(), Admit) == ["w1"]


def test_a_release_lets_others_start() -> None:
    world = EngineWorld(cluster_queue("q", 8), ahead("q", (NIGHT, 4)), gang("w1", 4), gang("w2", 4))
    assert of(world.decide(), Admit) == ["w1"]
    world.finish("w1")
    assert of(world.decide(), Admit) == ["w2"]


def test_who_may_preempt_those_that_would_be_stopped_first_starts() -> None:
    policy = PreemptionPolicy("LowerPriority", "Any", "Never")
    two = (cluster_queue("a", 4, "pool", preemption=policy), cluster_queue("b", 4, "pool", preemption=policy))
    world = EngineWorld(*two, ahead("a", (NIGHT, 3)), gang("w1", 4, "a"))
    world.put(replace(world.workloads["team/w1"], priority=-1))
    assert of(world.decide(), Admit) == ["w1"]
    world.put(gang("w2", 4, "b"))
    assert of(world.decide(), Admit) == ["w2"]  # w1 borrows from the night on, and goes first
    world.put(gang("w3", 3, "a"))
    decisions = world.decide()
    assert of(decisions, Preempt) == ["w1"]


# --- recall -----------------------------------------------------------------------------------------------------------


def test_those_that_exceed_the_smaller_quota_are_warned_and_stopped_and_keep_their_place() -> None:
    world = EngineWorld(cluster_queue("q", 8), gang("w1", 3), gang("w2", 3, priority=1), limited("w3", 2, 11.65))
    assert of(world.decide(), Admit) == ["w2", "w1", "w3"]
    world.put(ahead("q", (NIGHT, 4)))
    announced = NIGHT - 31 * MINUTE
    at(world, announced - 1000)
    assert world.decide() == []
    assert world.engine.next_wakeup(world.now) is not None and world.engine.next_wakeup(world.now) <= announced  # pyright: ignore
    (warning,) = (each for each in at(world, announced).decide() if isinstance(each, Warn))
    assert (warning.about, warning.reason) == ("team/w1", "SaveBy")
    assert warning.message == (
        "Save by 2026-01-01 11:59 UTC, when the workload is stopped. The workload exceeds the quota of its ClusterQueue or"
        " cohort from 2026-01-01 12:00 UTC on (QuotaPlan 'plan')"
    )
    world.finish("w3")
    assert at(world, NIGHT - 2 * MINUTE).decide() == []
    (evicted,) = (each for each in at(world, NIGHT - MINUTE).decide() if isinstance(each, Evict))
    assert (evicted.workload, evicted.reason) == ("team/w1", "QuotaRecalled")
    world.change("w1", admission=None, admitted=False, admitted_at=0, requeued=True, evicted="QuotaRecalled")
    assert of(world.decide(), Admit) == []
    change(world, NIGHT, "q", 4, (NIGHT + HOUR, 8))
    assert of(world.decide(), Admit) == []
    change(world, NIGHT + HOUR, "q", 8)
    assert of(world.decide(), Admit) == ["w1"]


def test_who_need_not_stop_any_more_goes_on() -> None:
    world = EngineWorld(cluster_queue("q", 8))
    one_after_the_other(world, gang("w1", 3), gang("w2", 3))
    world.put(ahead("q", (NIGHT, 4)))
    assert [each.about for each in at(world, NIGHT - 20 * MINUTE).decide() if isinstance(each, Warn)] == ["team/w2"]
    assert [gang.name for gang, _ in _recalled(world)] == ["w2"]
    world.finish("w1")
    at(world, NIGHT - 10 * MINUTE).decide()
    assert _recalled(world) == []
    assert at(world, NIGHT - MINUTE).decide() == []
    assert running(world) == ["w2"]


def _recalled(world: EngineWorld) -> list[tuple[Workload, Any]]:
    return [(gang.workload, change) for gang, change in world.engine._store.quotas_ahead.recalled()]


def test_borrowers_go_first_then_low_priority_then_the_latest_start() -> None:
    two = (cluster_queue("a", 4, "pool"), cluster_queue("b", 4, "pool"))
    world = EngineWorld(*two)
    world.put(gang("w1", 2, "a"), gang("w2", 2, "a", priority=-5), gang("w3", 2, "b", priority=9))
    world.decide()
    world.put(gang("w4", 2, "b", priority=7))
    world.decide()
    world.put(ahead("b", (NIGHT, 1)))
    at(world, NIGHT - MINUTE - MINUTE).decide()
    assert sorted(gang.name for gang, _ in _recalled(world)) == ["w3", "w4"]
    world.put(ahead("b", (NIGHT, 2)))
    at(world, NIGHT - MINUTE - 30_000).decide()
    assert [gang.name for gang, _ in _recalled(world)] == ["w4"]


def test_the_smallest_set_is_stopped() -> None:
    world = EngineWorld(cluster_queue("q", 8))
    one_after_the_other(world, gang("w1", 4), gang("w2", 1), gang("w3", 3))
    world.put(ahead("q", (NIGHT, 5)))
    at(world, NIGHT - 10 * MINUTE).decide()
    assert [gang.name for gang, _ in _recalled(world)] == ["w3"]
    world.put(ahead("q", (NIGHT, 4)))
    at(world, NIGHT - 9 * MINUTE).decide()
    assert sorted(gang.name for gang, _ in _recalled(world)) == ["w2", "w3"]
    world.put(ahead("q", (NIGHT, 3)))
    at(world, NIGHT - 8 * MINUTE).decide()
    assert [gang.name for gang, _ in _recalled(world)] == ["w1", "w3"]  # w2 may stay once w1 goes


def test_a_workload_that_overruns_its_forecast_is_recalled_after_all() -> None:
    world = EngineWorld(
        cluster_queue("q", 8), gang("w1", 4), RuntimeForecast("team/w1", ((0.5, HOUR), (0.9, 2 * HOUR)))
    )
    world.put(ahead("q", (NIGHT, 0)))
    assert of(world.decide(), Admit) == ["w1"]
    for minute in range(35, 0, -1):
        decisions = at(world, NIGHT - minute * MINUTE).decide()
        if of(decisions, Evict):
            break
    assert world.evicted() == ["w1"]
    assert world.now <= NIGHT - MINUTE + 1000


def test_a_killed_operator_recalls_as_the_one_before() -> None:
    world = EngineWorld(cluster_queue("q", 8))
    one_after_the_other(world, gang("w1", 3), gang("w2", 3))
    world.put(ahead("q", (NIGHT, 4)))
    at(world, NIGHT - 20 * MINUTE).decide()
    world.restart()
    at(world, NIGHT - 10 * MINUTE).decide()
    assert [gang.name for gang, _ in _recalled(world)] == ["w2"]
    world.restart()
    assert of(at(world, NIGHT - 30_000).decide(), Evict) == ["w2"]


def test_an_operator_that_was_away_when_the_quota_fell_stops_those_that_exceed_it_at_once() -> None:
    world = EngineWorld(cluster_queue("q", 8))
    one_after_the_other(world, gang("w1", 3), gang("w2", 3))
    world.restart()
    change(world, NIGHT + 10 * MINUTE, "q", 4, (NIGHT, 4))
    assert of(world.decide(), Evict) == ["w2"]
    world.engine.observe(Gone(QuotaAhead, "q"))
    assert of(world.decide(), Evict) == []


# --- after a rise -----------------------------------------------------------------------------------------------------


def test_who_asks_for_more_than_there_is_now_waits_for_the_rise() -> None:
    world = EngineWorld(cluster_queue("q", 2), ahead("q", (NIGHT, 8)), gang("w1", 8))
    (report,) = (each for each in world.decide() if isinstance(each, ReportPending))
    assert report.explanation.reason == "WaitingForQuota"
    assert report.explanation.message == (
        f"couldn't assign flavors to pod set main: quota for {GPU} in flavor a100 is too small until it changes at"
        " 2026-01-01 12:00 UTC: 8 are needed, 2 is the most before"
    )
    change(world, NIGHT, "q", 8)
    assert of(world.decide(), Admit) == ["w1"]


def test_a_head_that_fits_only_after_a_rise_is_reserved_its_start_then() -> None:
    world = EngineWorld(cluster_queue("q", 4, backfill=Backfill()), ahead("q", (NIGHT, 8)), gang("w1", 8))
    world.put(limited("w2", 4, 1), gang("w3", 4))
    assert of(world.decide(), Admit) == ["w2"]
    assert world.engine.reservations() == {"team/w1": NIGHT}


def test_a_head_is_reserved_no_start_whose_run_a_fall_would_cut() -> None:
    fall, rise = START + 2 * HOUR, START + 8 * HOUR
    world = EngineWorld(cluster_queue("q", 8, backfill=Backfill()), ahead("q", (fall, 2), (rise, 8)))
    world.put(limited("w1", 8, 1, created=START), limited("w2", 8, 4))
    assert of(world.decide(), Admit) == ["w1"]
    assert world.engine.reservations() == {"team/w2": rise}


def test_the_recalled_are_gone_in_the_plan() -> None:
    two = (cluster_queue("a", Quota(6, 0), "pool"), cluster_queue("b", Quota(2, 0), "pool", backfill=Backfill()))
    world = EngineWorld(*two, gang("w1", 6, "a"), limited("w2", 2, 20, "b"))
    world.decide()
    world.put(ahead("a", (NIGHT, Quota(0, 0))), ahead("b", (NIGHT, Quota(8, 0))), gang("w3", 6, "b"))
    world.decide()
    assert world.engine.reservations() == {"team/w3": NIGHT}


def test_the_outlook_plays_changes_and_recalls() -> None:
    world = EngineWorld(cluster_queue("q", 8), gang("w1", 6), gang("w2", 8))
    world.decide()
    for name, hours in (("w1", 20), ("w2", 1)):
        world.put(RuntimeForecast(f"team/{name}", ((0.5, hours * HOUR), (0.9, hours * HOUR)), "Model", 12))
    world.put(ahead("q", (NIGHT, 4), (NIGHT + HOUR, 8)))
    found = outlook(world.engine.facts(), world.engine.settings, world.now, clock=time.monotonic, courses=1, seconds=0)
    runs = [(each.workload, (each.began - START) // MINUTE, (each.ended - START) // MINUTE) for each in found.stretches]
    assert runs[0] == ("team/w1", 16, 12 * 60 - 1)
    assert found.starts["team/w2"].p50 >= NIGHT + HOUR


# --- laws -------------------------------------------------------------------------------------------------------------

SIZES = st.integers(1, 4)
STEPS = st.lists(st.tuples(st.integers(1, 20), st.integers(0, 8), st.sampled_from((None, 0, 2))), max_size=3)
JOBS = st.lists(
    st.tuples(
        st.sampled_from("ab"), SIZES, st.sampled_from((None, 0.3, 1.0, 3.0)), st.integers(0, 2), st.integers(0, 20)
    ),
    min_size=1,
    max_size=10,
)


def _steps(queue: str, drawn: list[tuple[int, int, int | None]]) -> list[tuple[Millis, Quota]]:
    del queue
    found: dict[Millis, Quota] = {}
    for half_hours, gpus, borrowing in drawn:
        found[START + half_hours * 30 * MINUTE] = Quota(gpus, borrowing)
    return sorted(found.items())


def _play(
    plans: dict[str, list[tuple[Millis, Quota]]], jobs: list[Any], policy: PreemptionPolicy, *, killed: int = 0
) -> tuple[list[str], EngineWorld]:
    """Eleven hours, minute by minute; runs end by their limit. Returns what was decided."""
    world = EngineWorld(*(cluster_queue(name, Quota(4), "pool", preemption=policy) for name in "ab"))
    world.now = START
    for name, steps in plans.items():
        if steps:
            world.put(ahead(name, *steps))
    log: list[str] = []
    waiting = sorted(enumerate(jobs), key=lambda each: each[1][4])
    for minute in range(11 * 60):
        moment = START + minute * MINUTE
        world.now = max(world.now, moment - 1000)
        for name, steps in plans.items():
            if any(when == moment for when, _ in steps):
                now = [quota for when, quota in steps if when <= moment][-1]
                change(world, moment, name, now, *((when, quota) for when, quota in steps if when > moment))
        while waiting and waiting[0][1][4] * 15 <= minute:
            number, (queue, gpus, hours, priority, _) = waiting.pop(0)
            job = gang(f"w{number}", gpus, queue, priority=priority, created=moment)
            world.put(job if hours is None else replace(job, max_execution_seconds=round(hours * 3600)))
        for each in list(world.workloads.values()):
            if each.evicted and each.admission is not None:
                world.change(
                    each.name,
                    admission=None,
                    admitted=False,
                    admitted_at=0,
                    reserved_at=0,
                    requeued=True,
                    evicted=each.evicted,
                )
            elif each.admitted and moment >= each.admitted_at + (each.max_execution_seconds or 10**9) * 1000 - 1000:
                world.finish(each.name)
        due = world.engine.next_wakeup(world.now)
        if killed and minute == killed:
            world.restart()
        elif (due is None or due > moment + MINUTE) and not world.engine._store.touched:
            continue
        for _ in range(3):
            decisions = world.decide()
            _check(world, decisions)
            log += [f"{minute} {type(each).__name__} {getattr(each, 'workload', '')}" for each in decisions]
    return log, world


def _check(world: EngineWorld, decisions: list[Any]) -> None:
    """Nobody gets more than the quotas of this time, and nobody is above those of the next once a deadline has passed."""
    store = world.engine._store
    holders = [gang for queue in store.queues.values() for gang in queue.holders.values()]
    if of(decisions, Admit) and not any(gang.evicting for gang in holders):
        started = {each.admission.cluster_queue for each in decisions if isinstance(each, Admit)}
        assert all(cell.available() >= 0 for name in started for cell in store.queues[name].cells.values())
    for tree in store.quotas_ahead._trees.values():
        change = tree.changes[0]
        if change.recalls and change.deadline <= world.now < change.at:
            stay = [gang for gang in holders if not gang.evicting]
            for name, node in change.queues.items():
                for fr in node.cells:
                    used = sum(each.quota.usage.get(fr, 0) for each in stay if each.queue and each.queue.name == name)
                    cell = node.cell(fr)
                    assert used == 0 or cell.borrowing_limit is None or used <= cell.nominal + cell.borrowing_limit
            for fr in {fr for node in change.queues.values() for fr in node.cells}:
                total = sum(node.cell(fr).nominal for node in change.queues.values())
                assert sum(each.quota.usage.get(fr, 0) for each in stay) <= total


POLICIES = st.sampled_from((PreemptionPolicy(), PreemptionPolicy("LowerPriority", "Any")))


@settings(max_examples=15, deadline=None)
@given(STEPS, STEPS, JOBS, POLICIES, st.integers(0, 600))
def test_nobody_is_granted_more_than_is_effective_and_nobody_exceeds_a_quota_after_its_recall(
    a: list[Any], b: list[Any], jobs: list[Any], policy: PreemptionPolicy, killed: int
) -> None:
    _play({"a": _steps("a", a), "b": _steps("b", b)}, jobs, policy, killed=killed)


@settings(max_examples=5, deadline=None)
@given(JOBS, POLICIES)
def test_a_plan_that_changes_nothing_changes_no_decision(jobs: list[Any], policy: PreemptionPolicy) -> None:
    same = [(START + HOUR, Quota(4)), (START + 2 * HOUR, Quota(4))]
    with_plan, _ = _play({"a": same}, [job for job in jobs if job[2] is not None], policy)
    without, _ = _play({}, [job for job in jobs if job[2] is not None], policy)
    assert [line for line in with_plan if "Admit" in line] == [line for line in without if "Admit" in line]


@pytest.mark.parametrize("recall", [RECALL, None])
def test_a_queue_without_a_plan_in_another_tree_is_not_concerned(recall: Deadline | None) -> None:
    world = EngineWorld(cluster_queue("q", 8), cluster_queue("p", 8), ahead("p", (NIGHT, 0), recall=recall))
    world.put(gang("w1", 8), Cohort("unused"))
    assert of(world.decide(), Admit) == ["w1"]
