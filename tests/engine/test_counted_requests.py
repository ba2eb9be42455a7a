"""Workloads whose requests do not keep their limits wait; quota counts what pods count for, and nodes give what they request."""

from __future__ import annotations

from dataclasses import replace

import pytest
from tests.builders.engine import GPU, EngineWorld, cluster_queue, gang, group, of, reported_pending
from tests.engine.test_topology_engine import HOST, NODES, TAS, TOPOLOGY

from gangline.engine.model import (
    Admit,
    Backfill,
    FairSharing,
    Flavor,
    PodSet,
    Preempt,
    PreemptionPolicy,
    Settings,
    TopologyRequest,
)

WORDS = "resources validation failed: spec.podSets[0].template.spec.containers[0]: Invalid value"


def test_a_workload_beyond_its_limits_waits_and_says_why() -> None:
    world = EngineWorld(cluster_queue("q", 8), gang("w1", 8, violation=WORDS), gang("w2", 8))
    decisions = world.decide()
    assert of(decisions, Admit) == ["w2"], "others overtake it"
    explanation = reported_pending(decisions)["w1"].explanation
    assert (explanation.reason, explanation.message) == ("Misconfigured", WORDS)
    assert "team" in explanation.needs
    assert world.decide() == []
    world.finish("w2")
    assert world.decide() == [], "what is released is of no use to it"
    world.change("w1", violation="")
    assert of(world.decide(), Admit) == ["w1"]


def test_its_limits_may_come_while_it_waits() -> None:
    world = EngineWorld(cluster_queue("q", 8), gang("w0", 8))
    world.decide()
    world.put(gang("w1", 8))
    assert reported_pending(world.decide())["w1"].explanation.reason == "WaitingForQuota"
    world.change("w1", violation=WORDS)
    assert reported_pending(world.decide())["w1"].explanation.message == WORDS
    world.finish("w0")
    assert world.decide() == []


def test_those_of_its_shape_do_not_wait_with_it() -> None:
    world = EngineWorld(cluster_queue("q", 8), *(gang(f"w{n}", 4, violation=WORDS if n < 3 else "") for n in range(5)))
    assert of(world.decide(), Admit) == ["w3", "w4"]


def test_a_holder_keeps_what_it_has() -> None:
    world = EngineWorld(cluster_queue("q", 8), gang("w1", 8))
    world.decide()
    world.change("w1", violation=WORDS, pod_sets=(PodSet("main", 1, {GPU: 6}),))
    assert world.decide() == []
    assert world.engine.usage("q") == {"a100": {GPU: 8}}


def test_nobody_overtakes_it_in_a_strict_queue() -> None:
    strict = cluster_queue("q", 8, strategy="StrictFIFO")
    world = EngineWorld(strict, gang("w1", 1, violation=WORDS), gang("w2", 1))
    decisions = world.decide()
    assert of(decisions, Admit) == [], "as in Kueue"
    assert reported_pending(decisions)["w1"].explanation.message == WORDS
    assert world.decide() == []
    world.put(replace(strict, strategy="BestEffortFIFO"))
    assert of(world.decide(), Admit) == ["w2"]
    world.change("w1", violation="")
    assert of(world.decide(), Admit) == ["w1"]


def test_what_is_not_queued_does_not_hold_up_a_strict_queue() -> None:
    unqueued = gang("w1", 1, violation=WORDS, overtaken=True)
    world = EngineWorld(cluster_queue("q", 8, strategy="StrictFIFO"), unqueued, gang("w2", 1))
    decisions = world.decide()
    assert of(decisions, Admit) == ["w2"]
    assert reported_pending(decisions)["w1"].explanation.message == WORDS
    world.change("w1", violation="", overtaken=False)
    assert of(world.decide(), Admit) == ["w1"]


@pytest.mark.parametrize("strategy", ["BestEffortFIFO", "StrictFIFO"])
def test_nothing_is_reserved_for_it(strategy: str) -> None:
    world = EngineWorld(
        cluster_queue("q", 8, strategy=strategy, backfill=Backfill()),
        gang("w0", 5, max_execution_seconds=600),
        gang("w1", 8, violation=WORDS),
    )
    assert of(world.decide(), Admit) == ["w0"]
    assert world.decide() == []
    assert not world.engine._scheduler.backfill.timeline.reservations


@pytest.mark.parametrize("fair", [None, FairSharing()])
def test_in_a_cohort_it_does_not_hold_up_others(fair: FairSharing | None) -> None:
    world = EngineWorld(
        cluster_queue("q", 4, "pool", strategy="StrictFIFO"),
        cluster_queue("r", 4, "pool"),
        gang("w1", 1, violation=WORDS),
        gang("w2", 8, queue="r"),
        settings=Settings(fair_sharing=fair, pods_ready=None),
    )
    assert of(world.decide(), Admit) == ["w2"]


def test_quota_is_not_held_for_it_any_more() -> None:
    """It preempted others, whose quota is held for it; then it turns out that it cannot start."""
    preempts = PreemptionPolicy("LowerPriority")
    world = EngineWorld(
        cluster_queue("q", 8, preemption=preempts, fixes=frozenset({"HoldFreedQuota"})), gang("w0", 8, priority=-1)
    )
    world.decide()
    world.put(gang("w1", 8, priority=1))
    assert of(world.decide(), Preempt) == ["w0"]
    world.change("w1", violation=WORDS)
    world.decide()
    world.complete_evictions()
    assert of(world.decide(), Admit) == ["w0"]


# --- quota ------------------------------------------------------------------------------------------------------------


def test_quota_counts_what_pods_count_for() -> None:
    groups = (group({"a100": {"credits": 10}}),)
    slices = (PodSet("main", 3, {"mig": 1}, quota={"credits": 3}),)
    world = EngineWorld(cluster_queue("q", groups=groups), gang("w1", pod_sets=slices), gang("w2", pod_sets=slices))
    decisions = world.decide()
    assert of(decisions, Admit) == ["w1"]
    assert world.engine.usage("q") == {"a100": {"credits": 9}}
    explanation = reported_pending(decisions)["w2"].explanation
    assert (explanation.resource, explanation.requested, explanation.available) == ("credits", 9, 1)


def test_what_counts_for_nothing_needs_no_quota() -> None:
    world = EngineWorld(
        cluster_queue("q", 8), gang("w1", pod_sets=(PodSet("main", 1, {GPU: 2, "net": 1}, quota={GPU: 2}),))
    )
    assert of(world.decide(), Admit) == ["w1"]


def test_pods_that_count_differently_are_not_alike() -> None:
    pods = [PodSet("main", 1, {"mig": 1}, quota={"credits": size}) for size in (20, 5)]
    groups = (group({"a100": {"credits": 10}}),)
    world = EngineWorld(
        cluster_queue("q", groups=groups), gang("w1", pod_sets=(pods[0],)), gang("w2", pod_sets=(pods[1],))
    )
    assert of(world.decide(), Admit) == ["w2"]


def tas_world(*pod_sets: PodSet) -> EngineWorld:
    """Four nodes of four GPUs in two racks. Credits are a flavor's without a topology."""
    groups = (group({"tas": {GPU: 64}}), group({"money": {"credits": 100}}))
    return EngineWorld(
        TAS, TOPOLOGY, Flavor("money"), *NODES, cluster_queue("q", groups=groups), gang("w1", pod_sets=tuple(pod_sets))
    )


def test_nodes_give_what_pods_request_whatever_they_count_for() -> None:
    request = TopologyRequest(required=HOST)
    fits = PodSet("main", 2, {GPU: 2}, topology=request, quota={GPU: 2, "credits": 7})
    world = tas_world(fits)
    assert of(world.decide(), Admit) == ["w1"], "a flavor that gives none of what pods request needs no topology"
    admission = world.workloads["team/w1"].admission
    assert admission is not None
    assert admission.pod_sets[0].flavors == {GPU: "tas", "credits": "money"}
    assert admission.pod_sets[0].usage == {GPU: 4, "credits": 14}
    too_large = replace(fits, count=3, quota={GPU: 0, "credits": 1})
    assert of(tas_world(too_large).decide(), Admit) == [], "three pods of two GPUs find no room on one node"


def test_a_placed_pod_takes_what_it_requests_whatever_it_counts_for() -> None:
    """Pods that count as no GPU in quota do not all go to one host; a restart and a healing count alike."""
    request = TopologyRequest(required=HOST)
    pods = (PodSet("main", 2, {GPU: 2}, topology=request, quota={GPU: 0, "credits": 7}),)
    world = tas_world(*pods)
    for number in (2, 3, 4, 5):
        world.decide()
        world.put(gang(f"w{number}", pod_sets=pods))
    world.decide()
    assert world.running() == ["w1", "w2", "w3", "w4"], "each has a host of four GPUs for itself"
    rooms = world.engine._store.node_ledger
    assert {name: room.placed for name, room in rooms.nodes.items()} == {
        f"h{number}": {GPU: 4, "pods": 2} for number in (1, 2, 3, 4)
    }
    world.restart()
    world.decide()
    assert world.running() == ["w1", "w2", "w3", "w4"]
    world.finish("w2")
    world.decide()
    assert world.running() == ["w1", "w3", "w4", "w5"]


def test_charges_count_only_where_there_is_quota_of_them_and_take_nothing_of_nodes() -> None:
    request = TopologyRequest(required=HOST)
    pods = (PodSet("main", 2, {GPU: 1}, topology=request, charges={"milli": 500}),)
    world = tas_world(*pods)
    assert of(world.decide(), Admit) == ["w1"]
    assert world.engine.usage("q") == {"tas": {GPU: 2}}
    groups = (group({"tas": {GPU: 64, "milli": 2000}}),)
    world.put(
        cluster_queue("r", groups=groups, backfill=Backfill()),
        *(gang(f"w{n}", queue="r", pod_sets=pods) for n in (2, 3, 4)),
    )
    assert of(world.decide(), Admit) == ["w2", "w3"]
    assert world.engine.usage("r") == {"tas": {GPU: 4, "milli": 2000}}
    placed = [room.placed for room in world.engine._store.node_ledger.nodes.values() if room.placed]
    assert sum(each[GPU] for each in placed) == 6 and all(each.keys() == {GPU, "pods"} for each in placed)
    world.finish("w2")
    assert of(world.decide(), Admit) == ["w4"]
