"""Gangs that their queue's policy protects from being stopped to make room for others."""

from __future__ import annotations

import time
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.builders.engine import GPU, EngineWorld, cluster_queue, cohort, gang, group, of, reported_pending
from tests.engine.clockwork import Clockwork, Job
from tests.engine.node_world import NodeWorld, node, plain, queue
from tests.examples import examples

from gangline.engine.model import (
    FIXES,
    Backfill,
    CheckpointPreemption,
    Decision,
    Evict,
    FairSharing,
    Flavor,
    Ordering,
    PodSet,
    Preempt,
    PreemptionPolicy,
    Recovery,
    Settings,
    VictimPolicy,
    Workload,
)
from gangline.engine.simulation.outlook import outlook

LOWER = PreemptionPolicy("LowerPriority")
RECLAIM = PreemptionPolicy("LowerPriority", "Any")
TEN_MINUTES = VictimPolicy(min_runtime_seconds=600.0)
FAIR = Settings(pods_ready=None, fair_sharing=FairSharing())


def one_queue(policy: VictimPolicy | None, *running: Workload, gpus: int = 8) -> EngineWorld:
    world = EngineWorld(cluster_queue("q", gpus, preemption=LOWER, victims=policy))
    world.put(*running)
    world.decide()
    assert world.running() == sorted(each.name for each in running)
    return world


def preempted(world: EngineWorld, *coming: Workload) -> list[str]:
    world.put(*coming)
    return of(world.decide(), Preempt)


HIGH = gang("high", 8, priority=100)

# --- who is protected -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("policy", "runs", "stopped"),
    [
        (None, gang("low", 8), True),
        (VictimPolicy(), gang("low", 8), True),
        (VictimPolicy(non_preemptible_from=8), gang("low", 8, priority=7), True),
        (VictimPolicy(non_preemptible_from=8), gang("low", 8, priority=8), False),
        (VictimPolicy(non_preemptible_from=-5), gang("low", 8, priority=-5), False),
        (VictimPolicy(non_preemptible_gpus=9), gang("low", 2, pods=4), True),
        (VictimPolicy(non_preemptible_gpus=8), gang("low", 2, pods=4), False),
        (VictimPolicy(max_preemptions=3), gang("low", 8, preemptions=2), True),
        (VictimPolicy(max_preemptions=3), gang("low", 8, preemptions=3), False),
        (VictimPolicy(max_preemptions=0), gang("low", 8), False),
        (TEN_MINUTES, gang("low", 8), False),
    ],
)
def test_who_is_stopped(policy: VictimPolicy | None, runs: Workload, stopped: bool) -> None:
    assert preempted(one_queue(policy, runs), HIGH) == (["low"] if stopped else [])


def test_cpu_is_no_accelerator() -> None:
    quotas = group({"a100": {"cpu": 64_000, GPU: 8, "memory": 1000, "pods": 100}})
    policy = VictimPolicy(non_preemptible_gpus=2)
    world = EngineWorld(cluster_queue("q", groups=(quotas,), preemption=LOWER, victims=policy))
    world.put(gang("low", pod_sets=(PodSet("main", 4, {"cpu": 16_000, "memory": 100}),)))
    world.decide()
    assert preempted(world, gang("high", priority=1, pod_sets=(PodSet("main", 1, {"cpu": 1000}),))) == ["low"]


def test_finished_pods_of_a_large_gang_do_not_make_it_small() -> None:
    world = one_queue(VictimPolicy(non_preemptible_gpus=8), gang("large", 2, pods=4, reclaimable={"main": 3}))
    assert preempted(world, HIGH) == []


def test_others_are_chosen_in_its_place() -> None:
    policy = VictimPolicy(non_preemptible_gpus=4)
    world = one_queue(policy, gang("large", 4), gang("s1", 2, priority=1), gang("s2", 2, priority=1))
    assert preempted(world, gang("high", 4, priority=5)) == ["s1", "s2"]


def test_who_is_on_its_way_out_is_not_protected() -> None:
    """It frees its quota anyway: nobody else goes in its place."""
    world = one_queue(replace(TEN_MINUTES, non_preemptible_from=5), gang("w1", 4), gang("w2", 4), gpus=8)
    world.change("w1", active=False)
    assert of(world.decide(), Evict) == ["w1"]
    world.put(gang("high", 4, priority=3))
    explanation = reported_pending(world.decide())["high"].explanation
    assert explanation.reason == "WaitingForPreemptedWorkloads"


def test_the_policy_that_counts_is_the_victims() -> None:
    """The preemptor's own queue protects its gangs, not those of the queue that it reclaims from."""
    for mine, theirs, stopped in ((TEN_MINUTES, None, ["borrower"]), (None, TEN_MINUTES, [])):
        world = EngineWorld(
            cluster_queue("q", 8, "pool", preemption=RECLAIM, victims=mine),
            cluster_queue("other", 0, "pool", victims=theirs),
        )
        world.put(gang("borrower", 8, "other"))
        world.decide()
        assert preempted(world, gang("owner", 8)) == stopped


# --- waking up --------------------------------------------------------------------------------------------------------


def test_who_waits_is_tried_again_when_protection_ends_and_not_before() -> None:
    world = one_queue(TEN_MINUTES, gang("low", 8))
    ends = world.now + 600_000
    assert preempted(world, HIGH) == []
    assert world.engine.next_wakeup(world.now) == ends
    world.now = ends - 2000
    assert world.decide() == []
    assert of(world.decide(), Preempt) == ["low"]
    assert world.now == ends
    world.complete_evictions()
    world.decide()
    assert world.running() == ["high"]


@pytest.mark.parametrize("strategy", ["StrictFIFO", "BestEffortFIFO"])
@pytest.mark.parametrize("backfill", [None, Backfill()])
def test_every_kind_of_queue_wakes(strategy: str, backfill: Backfill | None) -> None:
    world = EngineWorld(
        cluster_queue("q", 8, preemption=LOWER, victims=TEN_MINUTES, strategy=strategy, backfill=backfill)
    )
    world.put(gang("low", 8))
    world.decide()
    ends = world.now + 600_000
    assert preempted(world, HIGH, gang("second", 8, priority=50)) == []
    stops: list[str] = []
    for _ in range(20):
        wake = world.engine.next_wakeup(world.now)
        assert wake is not None and wake <= ends
        world.now = max(world.now, wake - 1000)
        stops += of(world.decide(), Preempt)
        if stops:
            break
    assert stops == ["low"] and world.now == ends


def test_the_first_end_of_several_wakes_and_all_that_are_needed_are_waited_for() -> None:
    world = one_queue(TEN_MINUTES, gang("w1", 4))
    world.now += 100_000
    world.put(gang("w2", 4))
    world.decide()
    assert preempted(world, HIGH) == []
    wake = world.engine.next_wakeup(world.now)
    assert wake == world.workloads["team/w1"].admitted_at + 600_000
    world.now = wake - 1000
    assert of(world.decide(), Preempt) == [], "one of the two is not enough"
    wake = world.engine.next_wakeup(world.now)
    assert wake == world.workloads["team/w2"].admitted_at + 600_000
    world.now = wake - 1000
    assert sorted(of(world.decide(), Preempt)) == ["w1", "w2"]


def test_nobody_is_woken_for_those_that_are_protected_for_good() -> None:
    world = one_queue(VictimPolicy(non_preemptible_gpus=8), gang("low", 8))
    preempted(world, HIGH)
    assert world.engine.next_wakeup(world.now) is None


def test_a_new_operator_waits_for_the_same_moment() -> None:
    world = one_queue(TEN_MINUTES, gang("low", 8))
    preempted(world, HIGH)
    successor = world.engine.rebuilt()
    assert not any(isinstance(decision, Preempt) for decision in successor.decide(world.now + 1))
    assert successor.next_wakeup(world.now + 1) == world.engine.next_wakeup(world.now)


def test_its_expected_start_knows_of_it() -> None:
    """Nobody knows when `low` will end, but from when on it may be stopped."""
    world = one_queue(TEN_MINUTES, gang("low", 8))
    ends = world.now + 600_000
    preempted(world, HIGH)
    seen = outlook(world.engine.facts(), world.engine.settings, world.now, courses=1, clock=time.perf_counter)
    assert seen.starts["team/high"].p50 == ends


def test_who_wants_no_more_than_its_own_waits_too() -> None:
    """Quota that is another's is lent for at least so long."""
    world = EngineWorld(
        cluster_queue("q", 8, "pool", preemption=RECLAIM), cluster_queue("other", 0, "pool", victims=TEN_MINUTES)
    )
    world.put(gang("borrower", 8, "other"))
    world.decide()
    assert preempted(world, gang("owner", 8)) == []
    world.now = world.engine.next_wakeup(world.now) - 1000
    assert of(world.decide(), Preempt) == ["borrower"]


def test_what_comes_free_meanwhile_is_not_lent_again_while_a_strict_queue_waits_for_it() -> None:
    """Without a policy the owner would take it back at once; it can't, so it is kept for it."""
    policy = replace(TEN_MINUTES, min_runtime_seconds=6000.0)
    world = EngineWorld(
        cluster_queue("q", 8, "pool", preemption=RECLAIM, strategy="StrictFIFO"),
        cluster_queue("other", 0, "pool", victims=policy),
    )
    world.put(gang("b1", 4, "other"), gang("b2", 4, "other"))
    world.decide()
    world.put(gang("owner", 8), gang("b3", 4, "other"))
    world.decide()
    world.finish("b1")
    world.decide()
    assert world.running() == ["b2"]
    world.finish("b2")
    world.decide()
    assert world.running() == ["owner"]


# --- words ------------------------------------------------------------------------------------------------------------

KUEUE = "couldn't assign flavors to pod set main: insufficient unused quota for nvidia.com/gpu in flavor a100, 8 more needed"
PROTECTED = ". Those that it could preempt are protected by the policy of their queue"


def message(world: EngineWorld, name: str) -> str:
    explanation = world.engine.explain(f"team/{name}")
    assert explanation is not None and explanation.reason == "WaitingForQuota"
    return explanation.message


def test_it_is_told_that_others_are_protected_and_until_when() -> None:
    world = one_queue(TEN_MINUTES, gang("low", 8))  # runs since 00:16:41
    world.put(HIGH)
    reason = reported_pending(world.decide())["high"].explanation.message
    assert reason == message(world, "high") == f"{KUEUE}{PROTECTED}, the first until 2026-01-01 00:27 UTC"


def test_for_good_has_no_end() -> None:
    world = one_queue(VictimPolicy(non_preemptible_from=0), gang("low", 8))
    preempted(world, HIGH)
    assert message(world, "high") == KUEUE + PROTECTED


@pytest.mark.parametrize(
    ("policy", "coming"),
    [(None, gang("late", 8)), (TEN_MINUTES, gang("late", 8)), (VictimPolicy(non_preemptible_from=5), gang("late", 8))],
)
def test_whom_it_may_not_preempt_anyway_is_not_spoken_of(policy: VictimPolicy | None, coming: Workload) -> None:
    world = one_queue(policy, gang("low", 8))
    preempted(world, coming)
    assert message(world, "late") == KUEUE


def test_nothing_is_said_where_all_of_them_would_not_do() -> None:
    world = one_queue(TEN_MINUTES, gang("low", 2), gang("even", 6, priority=100))
    preempted(world, HIGH)
    assert message(world, "high") == KUEUE


def test_a_second_flavor_where_others_are_protected_is_spoken_of() -> None:
    quotas = group({"a100": {GPU: 8}, "h100": {GPU: 8}})
    policy = VictimPolicy(non_preemptible_from=50)
    world = EngineWorld(Flavor("h100"), cluster_queue("q", groups=(quotas,), preemption=LOWER, victims=policy))
    world.put(gang("equal", 8, priority=100), gang("below", 8, priority=60))
    world.decide()
    preempted(world, HIGH)
    assert message(world, "high").endswith(PROTECTED)


# --- everywhere else --------------------------------------------------------------------------------------------------


def test_under_fair_sharing() -> None:
    for policy, stopped in ((None, ["b1"]), (TEN_MINUTES, [])):
        world = EngineWorld(
            cluster_queue("q", 4, "pool", preemption=RECLAIM),
            cluster_queue("other", 4, "pool", victims=policy),
            settings=FAIR,
        )
        world.put(gang("b1", 4, "other"), gang("b2", 4, "other", created=0))
        world.decide()
        assert len(world.running()) == 2
        assert preempted(world, gang("owner", 4)) == stopped
        if policy is not None:
            world.now = world.engine.next_wakeup(world.now) - 1000
            assert of(world.decide(), Preempt) == ["b1"]


HOUR = 3600
LONG = Job(0, 10 * HOUR, 8, forecast=((0.5, 10 * HOUR), (0.9, 20 * HOUR)), checkpoint=1800)
SHORT = Job(2 * HOUR, 600, 8, forecast=((0.5, 600), (0.9, 900)))


@pytest.mark.parametrize(("policy", "stops"), [(None, 1), (VictimPolicy(non_preemptible_gpus=8), 0)])
def test_nobody_protected_gives_way(policy: VictimPolicy | None, stops: int) -> None:
    order = Ordering("AgedShortestFirst", age_weight=3.0, age_cap_seconds=86_400.0)
    backfill = Backfill(revoke="Overdue", checkpoint_preemption=CheckpointPreemption())
    world = Clockwork(cluster_queue("q", 8, backfill=backfill, ordering=order, victims=policy))
    world.run([LONG, SHORT])
    assert len(world.runs["j0"].evictions) == stops


def test_backfill_is_revoked_whoever_is_protected() -> None:
    """It was let in on the promise to go: j1 was expected to last for half an hour and is still there."""
    policy = VictimPolicy(non_preemptible_from=0)
    world = Clockwork(cluster_queue("q", 8, backfill=Backfill(revoke="Overdue"), victims=policy))
    hour, half = ((0.5, 3600), (0.9, 3600)), ((0.5, 1800), (0.9, 1800))
    world.run([Job(0, 3600, 6, forecast=hour), Job(10, 600, 8, forecast=half), Job(20, 9000, 2, forecast=half)])
    assert world.runs["j2"].evictions == ["BackfillRevoked"]


def healed(policy: VictimPolicy | None) -> list[Decision]:
    recovery = Recovery(soak_seconds=5)
    world = NodeWorld(*(node(f"n{number}") for number in range(3)), queue(100, recovery=recovery, victims=policy))
    for each in (plain("low", 1), plain("high", 2, priority=5)):
        world.put(each)
        world.settle(2)
    world.fail(sorted(pod.node for pod in world.pods["team/high"])[0])
    return world.settle()


def test_nobody_protected_is_stopped_to_heal_another() -> None:
    assert of(healed(None), Preempt) == ["low"]
    decisions = healed(VictimPolicy(non_preemptible_from=0))
    assert of(decisions, Preempt) == []
    (given_up,) = [decision for decision in decisions if isinstance(decision, Evict)]
    assert (given_up.workload, given_up.reason) == ("team/high", "NodeFailures")


@pytest.mark.parametrize(
    ("policy", "lent"), [(None, True), (VictimPolicy(non_preemptible_from=9), True), (TEN_MINUTES, False)]
)
def test_spares_are_lent_to_those_that_can_be_stopped_at_once(policy: VictimPolicy | None, lent: bool) -> None:
    recovery = Recovery(soak_seconds=5, spares=1, lend=True)
    world = NodeWorld(*(node(f"n{number}") for number in range(3)), queue(100, recovery=recovery, victims=policy))
    world.put(plain("high", 2, priority=5))
    world.settle(2)
    world.put(plain("low", 1))
    world.settle(2)
    assert world.running() == (["high", "low"] if lent else ["high"])


# --- whatever happens -------------------------------------------------------------------------------------------------

POLICIES = st.builds(
    VictimPolicy,
    choice=st.sampled_from(["Kueue", "LeastLostWork", "FewestGangs"]),
    non_preemptible_from=st.sampled_from([None, None, 1, 2]),
    non_preemptible_gpus=st.sampled_from([None, None, 3, 5]),
    min_runtime_seconds=st.sampled_from([0.0, 0.0, 2.0, 7.0]),
    max_preemptions=st.sampled_from([None, None, 1, 2]),
)
BORROW = PreemptionPolicy("LowerOrNewerEqualPriority", "LowerPriority", "LowerPriority", 1)
STEPS = st.lists(
    st.tuples(
        st.sampled_from(["submit", "submit", "submit", "decide", "decide", "finish", "evict"]),
        st.sampled_from(["q0", "q1", "q2"]),
        st.integers(1, 6),
        st.integers(0, 3),
    ),
    min_size=5,
    max_size=40,
)
QUICK = examples(40)


def hierarchy(policies: tuple[VictimPolicy | None, ...], settings: Settings) -> EngineWorld:
    return EngineWorld(
        cohort("pool", 2),
        cluster_queue("q0", 6, "pool", preemption=PreemptionPolicy("LowerPriority", "Any"), victims=policies[0]),
        cluster_queue("q1", 4, "pool", preemption=BORROW, victims=policies[1], strategy="StrictFIFO"),
        cluster_queue("q2", 5, preemption=PreemptionPolicy("LowerPriority"), victims=policies[2]),
        settings=settings,
    )


def step(world: EngineWorld, number: int, what: str, where: str, gpus: int, priority: int) -> list[Decision]:
    match what:
        case "submit":
            checkpoint = float(priority) or None
            world.put(gang(f"w{number}", gpus, where, priority=priority, checkpoint_seconds=checkpoint))
        case "finish" if world.running():
            world.finish(world.running()[gpus % len(world.running())])
        case "evict":
            world.complete_evictions()
        case _:
            return world.decide()
    return []


def protected(workload: Workload, policy: VictimPolicy, now: int) -> bool:
    """Said once more, plainly."""
    gpus = sum(each.count * each.requests[GPU] for each in workload.pod_sets)
    limits: list[Any] = [
        (policy.non_preemptible_from, workload.priority),
        (policy.non_preemptible_gpus, gpus),
        (policy.max_preemptions, workload.preemptions),
    ]
    too_young = workload.admitted and now < workload.admitted_at + policy.min_runtime_seconds * 1000
    return too_young or any(limit is not None and value >= limit for limit, value in limits)


@QUICK
@given(st.tuples(POLICIES, POLICIES, POLICIES), STEPS, st.booleans())
def test_nobody_protected_is_ever_preempted(policies: tuple[Any, ...], steps: list[Any], fair: bool) -> None:
    world = hierarchy(policies, FAIR if fair else Settings(pods_ready=None))
    for number, each in enumerate(steps):
        before = dict(world.workloads)
        for decision in step(world, number, *each):
            if isinstance(decision, Preempt):
                victim = before[decision.workload]
                if victim.admission is not None:  # else it was let in just now
                    assert not protected(victim, policies[int(victim.queue[1:])], world.now), decision
        assert world.engine.snapshot() == world.engine.rebuilt().snapshot()


@QUICK
@given(STEPS, st.booleans())
def test_a_policy_that_says_nothing_changes_nothing(steps: list[Any], fair: bool) -> None:
    chosen = FAIR if fair else Settings(pods_ready=None)
    plain_world, with_policies = hierarchy((None, None, None), chosen), hierarchy((VictimPolicy(),) * 3, chosen)
    for number, each in enumerate(steps):
        assert step(plain_world, number, *each) == step(with_policies, number, *each)


@QUICK
@given(st.tuples(POLICIES, POLICIES, POLICIES), STEPS, st.booleans())
def test_who_waits_for_time_alone_is_never_forgotten(policies: tuple[Any, ...], steps: list[Any], fair: bool) -> None:
    """When the engine says that it sleeps, an engine that gets all facts anew decides nothing either."""
    world = hierarchy(policies, FAIR if fair else Settings(pods_ready=None))
    for number, each in enumerate(steps):
        step(world, number, *each)
    for _ in range(60):
        world.complete_evictions()
        world.decide()
        wake = world.engine.next_wakeup(world.now)
        if wake is not None and wake <= world.now:
            continue
        later = world.now + 1000 if wake is None else min(world.now + 1000, wake - 1)
        if later > world.now:
            anew = world.engine.rebuilt().decide(later)
            assert not any(isinstance(decision, Preempt) for decision in anew)


# --- no end in sight --------------------------------------------------------------------------------------------------


def turns(policy: VictimPolicy | None, rounds: int) -> int:
    """Shares of a few big gangs that are unfair whoever runs: how often is somebody stopped?"""
    rules = PreemptionPolicy("LowerOrNewerEqualPriority", "Any")
    world = EngineWorld(
        cohort("pool", 4),
        cluster_queue("q0", 2, "pool", preemption=rules, victims=policy),
        cluster_queue("q1", 1, "pool", preemption=rules, victims=policy),
        settings=Settings(pods_ready=None, fair_sharing=FairSharing(("LessThanInitialShare",))),
    )
    for number, (where, gpus) in enumerate((("q1", 6), ("q0", 7), ("q0", 8), ("q0", 5))):
        world.put(gang(f"w{number}", gpus, where))
    stops = 0
    for _ in range(rounds):
        stops += len(of(world.decide(), Preempt))
        world.complete_evictions()
    return stops


def test_two_gangs_do_not_preempt_each_other_for_ever() -> None:
    assert turns(None, 60) == 60, "under Kueue's fair sharing two of them take turns, one a round"
    assert turns(VictimPolicy(max_preemptions=2), 60) <= 2 * 4
    assert turns(VictimPolicy(min_runtime_seconds=20.0), 60) <= 60 // 20


@QUICK
@given(
    st.lists(st.tuples(st.integers(0, 1), st.integers(1, 6), st.integers(0, 2)), min_size=2, max_size=8),
    st.sampled_from(["Kueue", "LeastLostWork", "FewestGangs"]),
)
def test_everything_comes_to_rest(jobs: list[tuple[int, int, int]], choice: str) -> None:
    """Nobody comes and nobody finishes: whoever is chosen, and by whomever, it ends, however queues' policies contradict."""
    policy = VictimPolicy(choice=choice, max_preemptions=3)
    world = hierarchy((policy, policy, policy), Settings(pods_ready=None, fixes={"*": FIXES}))
    for number, (where, gpus, priority) in enumerate(jobs):
        world.put(gang(f"w{number}", gpus, f"q{where}", priority=priority))
        world.decide()
    for _ in range(100):
        stopped = of(world.decide(), Preempt)
        if not stopped and not world.evicted():
            return
        world.complete_evictions()
    raise AssertionError("it goes on and on")
