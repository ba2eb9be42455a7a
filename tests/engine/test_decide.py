"""Facts in, decisions out: what is assumed, what confirms it, what undoes it."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

import pytest
from tests.builders.engine import GPU, START, EngineWorld, cluster_queue, cohort, gang, group, of, reported_pending

from gangline.engine.engine import Engine
from gangline.engine.model import (
    UNLIMITED,
    AdmissionCheck,
    AdmissionFairSharing,
    Admit,
    CheckRef,
    CheckState,
    ClusterQueue,
    CompleteAdmission,
    Expression,
    Flavor,
    Gone,
    LabelSelector,
    LocalQueue,
    Namespace,
    Node,
    PodSet,
    PodsReadyPolicy,
    Preempt,
    PreemptionPolicy,
    Put,
    ReportPending,
    Requeue,
    Settings,
    WriteFailed,
)
from gangline.engine.scheduler import LOOKS, PATIENCE, TURNS

CPU = "cpu"
PREEMPT_LOWER = PreemptionPolicy("LowerPriority")


def test_a_gang_that_fits_is_admitted_whole() -> None:
    world = EngineWorld(cluster_queue("q", 8), gang("train", 2, pods=4))
    (admit,) = world.decide()
    assert isinstance(admit, Admit)
    (assigned,) = admit.admission.pod_sets
    assert (assigned.count, assigned.flavors, assigned.usage) == (4, {GPU: "a100"}, {GPU: 8})
    assert admit.admitted
    assert world.decide() == []


def test_nothing_of_a_gang_starts_if_one_pod_set_does_not_fit() -> None:
    pod_sets = (PodSet("workers", 4, {GPU: 1}), PodSet("evaluators", 5, {GPU: 1}))
    world = EngineWorld(cluster_queue("q", 8), gang("train", pod_sets=pod_sets))
    (report,) = world.decide()
    assert isinstance(report, ReportPending)
    assert report.explanation.pod_set == "evaluators"
    assert world.engine.usage("q") == {}


def test_a_confirmed_reservation_changes_nothing() -> None:
    world = EngineWorld(cluster_queue("q", 8), gang("w1", 8), gang("w2", 8))
    assert of(world.decide(), Admit) == ["w1"]
    before = world.engine.snapshot()
    world.put(world.workloads["team/w1"])
    assert world.engine.snapshot() == before
    assert of(world.decide(), Admit) == []


def test_a_reservation_that_can_not_be_written_is_free_again() -> None:
    world = EngineWorld(cluster_queue("q", 8), gang("w1", 8), gang("w2", 8, priority=1))
    assert of(world.decide(lost=["team/w2"]), Admit) == ["w2"]
    world.engine.observe(WriteFailed("team/w2"))
    assert world.engine.usage("q") == {}
    assert of(world.decide(), Admit) == ["w2"]


def test_after_a_restart_holders_hold_and_the_rest_waits() -> None:
    world = EngineWorld(cluster_queue("q", 8), gang("w1", 6), gang("w2", 6))
    world.decide()
    again = Engine(Settings(pods_ready=None))
    # in the least helpful order
    for workload in world.workloads.values():
        again.observe(Put(workload))
    again.observe(Put(LocalQueue("team", "q", "q")))
    again.observe(Put(cluster_queue("q", 8)))
    again.observe(Put(Flavor("a100")))
    assert of(again.decide(START), Admit) == []
    assert again.usage("q") == {"a100": {GPU: 6}}
    assert again.pending("q") == ["team/w2"]


def test_a_victim_keeps_its_quota_until_it_has_stopped() -> None:
    world = EngineWorld(cluster_queue("q", 8, preemption=PREEMPT_LOWER), gang("low", 8))
    world.decide()
    world.put(gang("high", 8, priority=1))
    (preempt, report) = world.decide()
    assert isinstance(preempt, Preempt)
    assert (preempt.workload, preempt.by, preempt.reason) == ("team/low", "team/high", "InClusterQueue")
    assert preempt.message == (
        "Preempted to accommodate a workload (UID: uid-high, JobUID: UNKNOWN) due to prioritization in the ClusterQueue;"
        " preemptor path: /q; preemptee path: /q"
    )
    assert isinstance(report, ReportPending)
    assert report.explanation.reason == "WaitingForPreemptedWorkloads"
    assert report.explanation.message == (
        "couldn't assign flavors to pod set main: insufficient unused quota for nvidia.com/gpu in flavor a100,"
        " 8 more needed. Pending the preemption of 1 workload(s)"
    )
    assert of(world.decide(), Admit) == []  # reported once, and nothing is free yet
    world.complete_evictions()
    assert of(world.decide(), Admit) == ["high"]
    assert world.engine.pending("q") == ["team/low"]


def test_an_eviction_that_can_not_be_written_is_decided_again() -> None:
    world = EngineWorld(cluster_queue("q", 8, preemption=PREEMPT_LOWER), gang("low", 8))
    world.decide()
    world.put(gang("high", 8, priority=1))
    assert of(world.decide(lost=["team/low"]), Preempt) == ["low"]
    world.engine.observe(WriteFailed("team/low"))
    assert of(world.decide(), Preempt) == ["low"]


def test_a_workload_replaced_under_its_name_is_another_one() -> None:
    world = EngineWorld(cluster_queue("q", 8), gang("w", 8))
    world.decide()
    world.put(replace(gang("w", 2), uid="another"))
    (admit,) = world.decide()
    assert admit.uid == "another"
    assert world.engine.usage("q") == {"a100": {GPU: 2}}


def test_what_is_unknown_or_gone_is_no_error() -> None:
    engine = Engine()
    engine.observe(Gone(ClusterQueue, "nothing"))
    engine.observe(Gone(type(gang("w")), "team/nothing"))
    engine.observe(WriteFailed("team/nothing"))
    assert engine.decide(START) == []
    assert engine.explain("team/nothing") is None


def test_a_deleted_queue_leaves_its_holders_running_and_counts_them_when_it_is_back() -> None:
    world = EngineWorld(cluster_queue("q", 8), gang("w1", 6), gang("w2", 6))
    world.decide()
    world.engine.observe(Gone(ClusterQueue, "q"))
    (report,) = world.decide()
    assert report.explanation.message == "ClusterQueue q doesn't exist"
    world.put(cluster_queue("q", 8))
    assert of(world.decide(), Admit) == []
    assert world.engine.usage("q") == {"a100": {GPU: 6}}


def test_who_is_on_the_way_out_of_a_deleted_queue_starts_afresh_in_the_next() -> None:
    world = EngineWorld(AdmissionCheck("budget"), cluster_queue("q", 8, preemption=PREEMPT_LOWER), gang("w1", 8))
    world.decide()
    world.put(gang("high", 8, priority=1))
    assert of(world.decide(), Preempt) == ["w1"]
    world.engine.observe(Gone(ClusterQueue, "q"))
    world.decide()
    world.complete_evictions()
    world.delete("high")
    world.put(cluster_queue("q", 8, checks=(CheckRef("budget"),)))
    assert of(world.decide(), Admit) == ["w1"]
    world.change("w1", checks=(CheckState("budget", "Ready"),))
    assert of(world.decide(), CompleteAdmission) == ["w1"], "it is not on its way out any more"


def test_finished_pods_give_their_quota_back() -> None:
    world = EngineWorld(cluster_queue("q", 8), gang("w1", 2, pods=4), gang("w2", 4))
    world.decide()
    world.change("w1", reclaimable={"main": 2})
    assert world.engine.usage("q") == {"a100": {GPU: 4}}
    assert of(world.decide(), Admit) == ["w2"]


def test_finished_pods_keep_their_quota_without_the_gate() -> None:
    settings = Settings(gates={"ReclaimablePods": False})
    world = EngineWorld(cluster_queue("q", 8), gang("w1", 2, pods=4), gang("w2", 4), settings=settings)
    world.decide()
    world.change("w1", reclaimable={"main": 2})
    assert world.engine.usage("q") == {"a100": {GPU: 8}}
    assert of(world.decide(), Admit) == []


# --- which reasons are reported when ----------------------------------------------------------------------------------


def test_a_waiting_gang_is_told_once_until_the_reason_changes() -> None:
    world = EngineWorld(cluster_queue("q", 8), gang("w1", 6), gang("w2", 6))
    first = reported_pending(world.decide())["w2"].explanation
    assert (first.reason, first.message) == (
        "WaitingForQuota",
        "couldn't assign flavors to pod set main: insufficient unused quota for nvidia.com/gpu in flavor a100,"
        " 4 more needed",
    )
    assert (first.requested, first.available, first.short) == (6, 2, 4)
    asked = world.engine.explain("team/w2")
    assert asked is not None and asked.holders == ("team/w1",)
    assert world.decide() == []
    world.put(cluster_queue("q", 9))
    assert "3 more needed" in reported_pending(world.decide())["w2"].explanation.message
    world.put(cluster_queue("q", 5))
    second = reported_pending(world.decide())["w2"].explanation
    assert second.reason == "ExceedsMaxQuota"
    assert second.message == (
        "couldn't assign flavors to pod set main: insufficient quota for nvidia.com/gpu in flavor a100, previously"
        " considered podsets requests (0) + current podset request (6) > maximum capacity (5)"
    )


def test_those_of_the_same_shape_are_told_later_and_in_small_numbers() -> None:
    world = EngineWorld(cluster_queue("q", 8), gang("w0", 8))
    world.decide()
    for number in range(1, 201):
        world.put(gang(f"w{number}", 4))
    reports: list[ReportPending] = []
    rounds = 0
    while found := [d for d in world.decide() if isinstance(d, ReportPending)]:
        assert len(found) <= 65
        assert world.engine.next_wakeup(world.now) is not None or len(reports) + len(found) == 200
        reports += found
        rounds += 1
    assert rounds > 1
    assert sum(not report.by_equivalence for report in reports) == 1
    assert len({report.workload for report in reports}) == 200
    assert {report.explanation.reason for report in reports} == {"WaitingForQuota"}
    world.put(gang("w201", 4))
    (late,) = world.decide()
    assert isinstance(late, ReportPending)
    assert late.by_equivalence


@pytest.mark.parametrize(
    ("broken", "reason", "message"),
    [
        ({"queue": "other"}, "Misconfigured", "LocalQueue other doesn't exist"),
        (
            {"gates": ("example.com/a", "example.com/b")},
            "AdmissionGated",
            "Admission is gated by: example.com/a,example.com/b",
        ),
        ({"active": False}, "Deactivated", "The workload is deactivated"),
    ],
)
def test_a_gang_in_no_queue_is_told_why(broken: dict[str, object], reason: str, message: str) -> None:
    world = EngineWorld(cluster_queue("q", 8), replace(gang("w", 1), **broken))
    (report,) = world.decide()
    assert isinstance(report, ReportPending)
    assert (report.explanation.reason, report.explanation.message) == (reason, message)
    assert world.decide() == []


def test_the_namespace_must_be_selected() -> None:
    selector = LabelSelector((Expression("team", "In", ("a",)),))
    world = EngineWorld(cluster_queue("q", 8, namespace_selector=selector), gang("w", 1))
    explanation = reported_pending(world.decide())["w"].explanation
    assert explanation.message == "workload namespace doesn't match ClusterQueue selector"
    world.put(Namespace("team", {"team": "a"}))
    assert of(world.decide(), Admit) == ["w"]


def test_no_selector_selects_nothing() -> None:
    world = EngineWorld(cluster_queue("q", 8, namespace_selector=None), gang("w", 1))
    assert of(world.decide(), Admit) == []


def test_positions_follow_the_order_of_the_queue() -> None:
    world = EngineWorld(cluster_queue("q", 8, strategy="StrictFIFO"), gang("w0", 8))
    world.decide()
    world.put(gang("w3", 8), gang("w2", 8, priority=5), gang("w1", 8))
    world.decide()
    positions = {name: world.engine.explain(f"team/{name}") for name in ("w1", "w2", "w3")}
    assert [positions[name].position for name in ("w2", "w1", "w3")] == [0, 1, 2]  # pyright: ignore
    assert world.engine.explain("team/w0") is None


def test_a_cycle_of_cohorts_stops_its_queues_only() -> None:

    world = EngineWorld(
        cluster_queue("q", 8, "a"),
        cluster_queue("fine", 8),
        gang("w1", 1),
        gang("w2", 1, "fine"),
        cohort("a", 0, "b"),
        cohort("b", 0, "a"),
    )
    assert of(world.decide(), Admit) == ["w2"]
    assert not world.engine.queue_status("q").active
    world.put(cohort("b"))
    assert of(world.decide(), Admit) == ["w1"]


def test_admission_may_wait_until_all_pods_are_ready() -> None:
    ready = PodsReadyPolicy(block_admission=True)
    world = EngineWorld(
        cluster_queue("q", 8),
        cluster_queue("r", 8),
        gang("w1", 1),
        gang("w2", 1, "r"),
        settings=Settings(pods_ready=ready),
    )
    decisions = world.decide()
    assert of(decisions, Admit) == ["w1"]
    explanation = reported_pending(decisions)["w2"].explanation
    assert explanation.reason == "WaitingForPodsReady"
    assert explanation.message == "waiting for all admitted workloads to be in PodsReady condition"
    assert of(world.decide(), Admit) == []
    world.change("w1", pods_ready=True)
    assert of(world.decide(), Admit) == ["w2"]


def test_it_waits_for_gangs_of_its_own_cycle_too() -> None:
    queues = [cluster_queue(name, 8, cohort="c") for name in ("q", "r")]
    settings = Settings(pods_ready=PodsReadyPolicy(block_admission=True))
    world = EngineWorld(*queues, gang("w1", 1), gang("w2", 1, "r"), settings=settings)
    assert of(world.decide(), Admit) == ["w1"]
    world.change("w1", pods_ready=True)
    assert of(world.decide(), Admit) == ["w2"]


@pytest.mark.parametrize("strategy", ["BestEffortFIFO", "StrictFIFO"])
@pytest.mark.parametrize("other", ["q", "r"])
def test_a_workload_held_until_pods_are_ready_precedes_higher_priorities(strategy: str, other: str) -> None:
    """Otherwise a workload of high priority whose pods never become ready would come back before it each time."""
    settings = Settings(pods_ready=PodsReadyPolicy(block_admission=True))
    queues = [cluster_queue(name, 8, cohort="c", strategy=strategy) for name in ("q", "r")]
    world = EngineWorld(*queues, gang("w1", 1, priority=100), gang("w2", 1, other), settings=settings)
    assert of(world.decide(), Admit) == ["w1"]
    world.change("w1", evicted="PodsReadyTimeout", requeued=False, requeue_at=START + 1_000)
    world.decide()
    world.now = START + 2_000
    world.put(gang("w3", 1, priority=100))
    world.change("w1", admission=None, admitted=False, evicted="", requeued=True, requeue_at=0)
    assert of(world.decide(), Admit) == ["w2"]
    world.change("w2", pods_ready=True)
    assert of(world.decide(), Admit) == ["w1"]


def test_a_workload_that_another_client_released_backs_off_too() -> None:
    """Without the condition Requeued, too, as in Kueue."""
    world = EngineWorld(cluster_queue("q", 8), gang("w", 1, requeue_at=START + 2_000_000))
    assert of(world.decide(), Admit) == []
    assert world.engine.next_wakeup(world.now) == START + 2_000_000
    world.now = START + 2_000_000
    decisions = world.decide()
    assert (of(decisions, Requeue), of(decisions, Admit)) == (["w"], ["w"])


def test_a_back_off_may_end_before_the_workload_has_stopped() -> None:
    world = EngineWorld(cluster_queue("q", 8), gang("w", 1))
    world.decide()
    world.change("w", evicted="PodsReadyTimeout", requeued=False, requeue_at=START + 2_000_000)
    assert world.decide() == []
    world.now = START + 2_000_000
    decisions = world.decide()
    assert (of(decisions, Requeue), of(decisions, Admit)) == (["w"], []), "it still holds its quota"


@pytest.mark.parametrize("settled", [True, False])
def test_the_gangs_of_a_deleted_queue_keep_nobody_waiting_for_their_pods(settled: bool) -> None:
    """Whether it is heard alone or together with what follows it."""
    settings = Settings(pods_ready=PodsReadyPolicy(block_admission=True))
    world = EngineWorld(
        cluster_queue("q", 8), cluster_queue("r", 8), gang("w1", 1), gang("w2", 1, "r"), settings=settings
    )
    assert of(world.decide(), Admit) == ["w1"]
    world.engine.observe(Gone(ClusterQueue, "q"))
    if settled:
        world.engine.queue_status("q")
    world.change("w1", active=False)
    assert of(world.decide(), Admit) == ["w2"]


def test_quantities_in_messages_are_kubernetes_quantities() -> None:
    quotas = {"a100": {"cpu": 2000, "memory": 4 * 2**30}}
    request = PodSet("main", 1, {"cpu": 3500, "memory": 6 * 2**30})
    world = EngineWorld(cluster_queue("q", groups=(group(quotas),)), gang("w", pod_sets=(request,)))
    message = reported_pending(world.decide())["w"].explanation.message
    assert "current podset request (3500m) > maximum capacity (2)" in message
    assert "current podset request (6Gi) > maximum capacity (4Gi)" in message


# --- statuses ---------------------------------------------------------------------------------------------------------


def test_statuses_count_and_say_when_they_changed() -> None:
    world = EngineWorld(
        cluster_queue("q", 8, "pool"), cluster_queue("r", 4, "pool"), gang("w1", 8), gang("w2", 4), gang("w3", 1)
    )
    world.decide()
    assert world.engine.drain_changed_queues() == {"q", "r"}
    assert world.engine.drain_changed_local_queues() == {"team/q", "team/r"}
    status = world.engine.queue_status("q")
    assert (status.active, status.reason, status.message) == (True, "Ready", "Can admit new workloads")
    assert (status.pending, status.reserving, status.admitted) == (1, 2, 2)
    (usage,) = status.usage
    assert (usage.flavor, usage.resource, usage.total, usage.borrowed) == ("a100", GPU, 12, 4)
    assert world.engine.drain_changed_queues() == set()
    world.finish("w1")
    assert world.engine.drain_changed_queues() == {"q"}
    assert world.engine.local_queue_status("team/q").reserving == 1


@pytest.mark.parametrize(
    ("fields", "reason", "message"),
    [
        ({"stop_policy": "Hold"}, "Stopped", "Can't admit new workloads: is stopped."),
        ({"terminating": True}, "Terminating", "Can't admit new workloads; clusterQueue is terminating"),
        (
            {"groups": (group({"h100": {GPU: 1}, "b200": {GPU: 1}}),)},
            "FlavorNotFound",
            "Can't admit new workloads: references missing ResourceFlavor(s): h100,b200.",
        ),
        (
            {"groups": (group({"racked": {GPU: 1}}),)},
            "TopologyNotFound",
            'Can\'t admit new workloads: there is no Topology "rows" for TAS flavor "racked".',
        ),
    ],
)
def test_an_inactive_queue_says_why(fields: dict[str, object], reason: str, message: str) -> None:
    world = EngineWorld(Flavor("racked", topology="rows"), cluster_queue("q", 8, **fields), gang("w", 1))
    decisions = world.decide()
    status = world.engine.queue_status("q")
    assert (status.active, status.reason, status.message) == (False, reason, message)
    assert reported_pending(decisions)["w"].explanation.message == "ClusterQueue q is inactive"
    assert world.engine.local_queue_status("team/q").reason == "ClusterQueueIsInactive"
    world.put(cluster_queue("q", 8))
    assert of(world.decide(), Admit) == ["w"]


def test_the_local_queue_of_a_missing_queue_is_inactive() -> None:
    world = EngineWorld(LocalQueue("team", "lost", "nowhere"))
    status = world.engine.local_queue_status("team/lost")
    assert (status.active, status.reason) == (False, "ClusterQueueDoesNotExist")


def test_a_back_off_wakes_the_engine_up() -> None:
    world = EngineWorld(cluster_queue("q", 8), gang("w", 1, requeued=False, requeue_at=START + 2_000_000))
    assert world.decide() == []
    assert world.engine.next_wakeup(world.now) == START + 2_000_000
    world.now = START + 2_000_000
    decisions = world.decide()
    assert of(decisions, Requeue) == ["w"]
    assert of(decisions, Admit) == ["w"]


def test_a_huge_backlog_is_worked_off_in_several_calls(monkeypatch: pytest.MonkeyPatch) -> None:
    def admitted(patience: int) -> tuple[list[str], int]:
        monkeypatch.setattr("gangline.engine.scheduler.PATIENCE", patience)
        world = EngineWorld(cluster_queue("q", 8, "pool"), cluster_queue("r", 8, "pool", strategy="StrictFIFO"))
        for number in range(60):
            world.put(gang(f"w{number}", 1 + number % 7, "qr"[number % 2], priority=number // 7))
        done = of(world.engine.decide(world.now), Admit)
        calls = 1
        while world.engine.next_wakeup(world.now) == world.now:
            done += of(world.engine.decide(world.now), Admit)
            calls += 1
        return done, calls

    at_once, calls = admitted(4_000)
    assert calls == 1
    bit_by_bit, calls = admitted(5)
    assert calls > 3
    assert bit_by_bit == at_once


def test_no_more_is_decided_than_there_is_room_for() -> None:
    """Whoever goes first by the order goes first whether the others follow at once or later."""
    world = EngineWorld(*(cluster_queue(f"q{n}", 8, "pool") for n in range(4)))
    for number in range(20):
        world.put(gang(f"w{number}", 1, f"q{number % 4}", priority=number % 5))
    rounds: list[list[str]] = []
    while world.engine.next_wakeup(world.now) == world.now:
        rounds.append(of(world.engine.decide(world.now, room=3), Admit))
    assert [len(names) for names in rounds if names] == [3] * 6 + [2]
    priorities = [int(name[1:]) % 5 for names in rounds[:2] for name in names]
    assert priorities == [4, 4, 4, 4, 3, 3]


def test_where_there_is_no_room_nobody_is_admitted_and_nothing_is_forgotten() -> None:
    world = EngineWorld(cluster_queue("q", 8), gang("w", 1))
    assert of(world.engine.decide(world.now, room=0), Admit) == []
    assert world.engine.active("q") == ["team/w"]
    assert world.engine.next_wakeup(world.now) == world.now
    assert of(world.engine.decide(world.now, room=1), Admit) == ["w"]


def test_victims_take_room_too() -> None:
    world = EngineWorld(
        cluster_queue("q", 8, preemption=PREEMPT_LOWER), cluster_queue("r", 8, preemption=PREEMPT_LOWER)
    )
    world.put(*(gang(f"w{number}", 4, "qqrr"[number]) for number in range(4)))
    world.decide()
    world.put(gang("urgent8", 8, "q", priority=9), gang("urgent9", 8, "r", priority=9))
    world.now += 1000
    assert len(of(world.engine.decide(world.now, room=2), Preempt)) == 2
    assert len(of(world.engine.decide(world.now, room=2), Preempt)) == 2


def test_with_little_room_every_tree_has_its_turn() -> None:
    """Forty queues without a cohort, each with more to admit than there is room for in all."""
    world = EngineWorld(*(cluster_queue(f"q{n}", 100) for n in range(40)))
    for number in range(1600):
        world.put(gang(f"w{number}", 1, f"q{number % 40}"))
    served: Counter[int] = Counter()
    for _ in range(60):
        world.now += 700
        names = of(world.engine.decide(world.now, room=8), Admit)
        assert len(names) == 8
        served.update(int(name[1:]) % 40 for name in names)
    assert len(served) == 40
    assert max(served.values()) < 6 * min(served.values())


# --- flavors that contradict what is chosen or selected ---------------------------------------------------------------


def of_two_groups(*, a100: str) -> EngineWorld:
    cpu = group({"fast": {"cpu": 8000}})
    gpu = group({"h100": {GPU: 8}, "a100": {GPU: 8}})
    flavors = (Flavor("fast", {"pool": "x"}), Flavor("h100", {"pool": "y"}), Flavor("a100", {"pool": a100}))
    both = (PodSet("main", 1, {"cpu": 1000, GPU: 1}),)
    return EngineWorld(*flavors, cluster_queue("q", groups=(cpu, gpu)), gang("w", pod_sets=both))


def test_two_flavors_of_one_pod_set_must_agree_on_their_labels() -> None:
    """Kueue merges them, and the pods select the value of the later one."""
    (admit,) = of_two_groups(a100="x").decide()
    assert isinstance(admit, Admit)
    assert admit.admission.pod_sets[0].flavors == {"cpu": "fast", GPU: "a100"}, "the first one can't be beside it"
    waiting = reported_pending(of_two_groups(a100="z").decide())["w"].explanation
    assert waiting.reason == "NoMatchingFlavor"
    assert 'flavor h100 contradicts flavor fast: label pool is "y" in one and "x" in the other' in waiting.message
    assert "flavor a100 contradicts flavor fast" in waiting.message


def test_flavors_that_can_be_beside_some_of_another_group_are_tried_in_order() -> None:
    cpu, gpu = group({"a": {"cpu": 8000}, "b": {"cpu": 8000}}), group({"c": {GPU: 8}, "d": {GPU: 8}})
    flavors = (
        Flavor("a", {"zone": "1"}),
        Flavor("b", {"zone": "2"}),
        Flavor("c", {"zone": "2"}),
        Flavor("d", {"zone": "1"}),
    )
    both = (PodSet("main", 1, {"cpu": 1000, GPU: 1}),)
    world = EngineWorld(*flavors, cluster_queue("q", groups=(cpu, gpu)), gang("w", pod_sets=both))
    (admit,) = world.decide()
    assert isinstance(admit, Admit)
    chosen = admit.admission.pod_sets[0].flavors
    assert (chosen["cpu"], chosen[GPU]) in (("a", "d"), ("b", "c"))


def test_a_later_flavor_is_taken_where_only_that_names_what_the_pods_select() -> None:
    """Kueue takes the first flavor, on whose nodes the pods can't be: it looks at the labels of that flavor alone."""
    selects = (PodSet("main", 1, {GPU: 1}, node_selector={"gpu": "a100"}),)
    flavors = (Flavor("spare", {"pool": "x"}), Flavor("a100", {"pool": "y", "gpu": "a100"}))
    queue = cluster_queue("q", groups=(group({"spare": {GPU: 8}, "a100": {GPU: 8}}),))

    def flavor_with(*nodes: Node) -> str:
        world = EngineWorld(*flavors, queue, *nodes, gang("w", pod_sets=selects))
        (admit,) = [each for each in world.decide() if isinstance(each, Admit)]
        return admit.admission.pod_sets[0].flavors[GPU]

    mine = Node("n1", {"pool": "y", "gpu": "a100"}, {GPU: 8, "pods": 110})
    assert flavor_with(mine) == "a100", "no node is of the flavor spare"
    assert flavor_with(mine, Node("n2", {"pool": "x"}, {GPU: 8, "pods": 110})) == "a100"
    assert flavor_with(mine, Node("n2", {"pool": "x", "gpu": "a100"}, {GPU: 8, "pods": 110})) == "spare"
    assert flavor_with() == "spare", "as in Kueue, where no nodes are known"


def test_who_selects_a_label_that_no_node_of_its_flavors_has_waits_for_such_a_node() -> None:
    selects = (PodSet("main", 1, {GPU: 1}, node_selector={"gpu": "a100"}),)
    flavors = (Flavor("spare", {"pool": "x"}), Flavor("a100", {"gpu": "a100"}))
    queue = cluster_queue("q", groups=(group({"spare": {GPU: 8}, "a100": {GPU: 0}}),))
    world = EngineWorld(*flavors, queue, Node("n1", {"zone": "b"}, {GPU: 8, "pods": 110}), gang("w", pod_sets=selects))
    waiting = reported_pending(world.decide())["w"].explanation
    assert 'no node of flavor spare has the selected label gpu="a100", which flavor a100 names' in waiting.message
    world.put(Node("n2", {"pool": "x", "gpu": "a100"}, {GPU: 8, "pods": 110}))
    assert of(world.decide(), Admit) == ["w"]


def test_a_local_queue_made_anew_for_another_cluster_queue_shows_the_usage_of_that_one() -> None:
    world = EngineWorld(cluster_queue("q", 8), cluster_queue("other", 8), gang("w1", 4))
    world.decide()
    world.put(LocalQueue("team", "q", "other"), gang("w2", 2))
    world.decide()
    status = world.engine.local_queue_status("team/q")
    assert (status.reserving, status.admitted, status.pending) == (1, 1, 0)
    assert [(row.resource, row.total) for row in status.usage] == [(GPU, 2)]


def test_what_saturates_fits_no_quota() -> None:
    """A quota of 1E cores has no end, as in Kueue; so had requests that can't be counted, which were admitted."""
    quota = group({"a100": {"cpu": UNLIMITED}})
    absurd = (PodSet("main", 2**31 - 1, {"cpu": UNLIMITED // 1000}),)
    world = EngineWorld(cluster_queue("q", groups=(quota,)), gang("w", pod_sets=absurd))
    waiting = reported_pending(world.decide())["w"].explanation
    assert waiting.reason == "ExceedsMaxQuota"
    large = (PodSet("main", 1000, {"cpu": 10**12}),)
    assert of(EngineWorld(cluster_queue("q", groups=(quota,)), gang("w", pod_sets=large)).decide(), Admit) == ["w"]


def decided(world: EngineWorld) -> tuple[list[int], list[list[str]]]:
    """What each call of `decide` took, in looks at a room, and whom it admitted, until all is decided."""
    looks: list[int] = []
    admitted: list[list[str]] = []
    while world.engine.next_wakeup(world.now) == world.now:
        before = world.engine.looks
        admitted.append(of(world.engine.decide(world.now, room=100), Admit))
        looks.append(world.engine.looks - before)
    return looks, admitted


def test_looking_at_many_nodes_for_many_gangs_takes_several_calls() -> None:
    """Each gang of one queue asks for an amount of its own, and finds too few nodes; one of another queue finds its node."""
    nodes, gangs = 300, 1500
    labels = {"pool": "a"}
    quotas = {"a100": {GPU: 10_000, CPU: 10_000_000}}
    world = EngineWorld(*(cluster_queue(name, groups=(group(quotas),)) for name in ("few", "many")))
    world.put(
        Flavor("a100", node_labels=labels), *(Node(f"n{n}", labels, {GPU: 8, CPU: 2 * gangs}) for n in range(nodes))
    )
    for number in range(gangs):
        wide = PodSet("main", nodes + 1, {GPU: 8, CPU: 1 + number})
        world.put(gang(f"w{number}", queue="many", pod_sets=(wide,)))
    world.put(gang("other", queue="few"))
    looks, admitted = decided(world)
    assert sum(looks) >= nodes * gangs
    assert max(looks) <= (PATIENCE + PATIENCE // TURNS) * LOOKS
    assert admitted[0] == ["other"], "its queue has a turn in the first call"


def test_searching_many_holders_for_many_gangs_takes_several_calls() -> None:
    """Each gang asks for more than all holders below its priority have; one of another queue is admitted at once."""
    holders, gangs = 200, 600
    quota = {"groups": (group({"a100": {GPU: 2 * holders, CPU: 10**9}}),)}
    world = EngineWorld(cluster_queue("few", 8), cluster_queue("many", preemption=PREEMPT_LOWER, **quota))
    world.put(gang("high", holders, queue="many", priority=9))
    world.put(*(gang(f"h{n}", queue="many") for n in range(holders)))
    while world.decide():
        pass
    for number in range(gangs):
        asks = PodSet("main", 1, {GPU: holders + 1, CPU: 1 + number})
        world.put(gang(f"w{number}", queue="many", priority=5, pod_sets=(asks,)))
    world.put(gang("other", queue="few"))
    looks, admitted = decided(world)
    assert sum(looks) >= holders * gangs
    assert max(looks) <= (PATIENCE + PATIENCE // TURNS) * LOOKS
    assert len(looks) > 1
    assert admitted[0] == ["other"]


def test_many_local_queues_count_as_work() -> None:
    """Where usage orders LocalQueues, each head is compared with those of all others."""
    settings = Settings(pods_ready=None, admission_fair_sharing=AdmissionFairSharing())
    quota = {"groups": (group({"a100": {GPU: 8, CPU: 10**9}}),)}
    world = EngineWorld(cluster_queue("q", admission_mode="UsageBasedAdmissionFairSharing", **quota), settings=settings)
    for number in range(100):
        world.put(LocalQueue("team", f"lq{number}", "q"))
        world.put(gang(f"w{number}", queue=f"lq{number}", pod_sets=(PodSet("main", 1, {GPU: 9, CPU: 1 + number}),)))
    world.decide()
    assert world.engine.looks >= 100 * 100 / 2
