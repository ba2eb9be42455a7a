"""Gangs whose pods the Kubernetes scheduler places nowhere: when they are evicted, and where they are queued again."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.builders.engine import GPU, START, EngineWorld, cluster_queue, gang, group, of

from gangline.engine.model import (
    Admit,
    Affinity,
    Evict,
    Expression,
    Flavor,
    Node,
    PodSet,
    PodsReadyPolicy,
    Settings,
    Unscheduled,
    UnscheduledPods,
)
from gangline.engine.queues.workload_state import queue_time

MINUTE = 60_000
WORDS = "1 of 2 pods unscheduled: 0/3 nodes are available: 3 Insufficient nvidia.com/gpu"


def started(
    policy: UnscheduledPods | None = None, ready: PodsReadyPolicy | None = None, **fields: Any
) -> tuple[EngineWorld, int]:
    """A gang that was just admitted, and when."""
    settings = Settings(pods_ready=ready)
    world = EngineWorld(cluster_queue("q", 8, unscheduled=policy), gang("w1", 8, **fields), settings=settings)
    assert of(world.decide(), Admit) == ["w1"]
    return world, world.workloads["team/w1"].admitted_at


def evicted_at(world: EngineWorld, admitted: int, until: int = 120) -> tuple[float, Evict] | None:
    """After how many minutes the gang is evicted, and how."""
    for half in range(1, 2 * until):
        world.now = admitted + half * MINUTE // 2 - 1000
        found = [each for each in world.decide() if isinstance(each, Evict)]
        if found:
            return half / 2, found[0]
    return None


@pytest.mark.parametrize(
    ("policy", "ready", "own", "minutes"),
    [
        (UnscheduledPods(), None, None, 5.0),
        (UnscheduledPods(), None, 60.0, 1.0),
        (UnscheduledPods(), None, 3600.0, 5.0),
        (UnscheduledPods(300.0, 1200.0), None, 3600.0, 20.0),
        (UnscheduledPods(3600.0), PodsReadyPolicy(), None, 60.0),
        (None, PodsReadyPolicy(unscheduled_seconds=120.0), None, 2.0),
        (None, PodsReadyPolicy(unscheduled_seconds=120.0), 3600.0, 2.0),
        (None, PodsReadyPolicy(), 180.0, 3.0),
        (None, PodsReadyPolicy(), 7200.0, 30.0),
        (None, None, 180.0, 3.0),
        (None, None, None, None),
    ],
)
def test_the_limit_is_the_jobs_within_that_of_its_queue(
    policy: UnscheduledPods | None, ready: PodsReadyPolicy | None, own: float | None, minutes: float | None
) -> None:
    world, admitted = started(policy, ready, unscheduled_seconds=own)
    world.change("w1", unscheduled=Unscheduled(admitted, WORDS))
    found = evicted_at(world, admitted)
    assert (found[0] if found else None) == minutes
    if found:
        assert (found[1].reason, found[1].message) == ("PodsReadyTimeout", WORDS)
        assert found[1].waited_for == "WaitForScheduling"


def test_where_the_job_is_not_the_cause_it_keeps_its_place_and_pauses_shortly() -> None:
    world, admitted = started(UnscheduledPods(), requeue_count=3)
    world.change("w1", unscheduled=Unscheduled(admitted, WORDS))
    found = evicted_at(world, admitted)
    assert found is not None
    _, evict = found
    assert (evict.requeue_count, evict.requeue_at) == (None, world.now + MINUTE), "no attempt is counted"
    world.change("w1", unscheduled=Unscheduled(world.now, ""))
    workload = world.workloads["team/w1"]
    assert queue_time(workload, Settings()) == workload.created
    world.complete_evictions()
    world.put(gang("w5", 8, created=START + 5000))
    assert of(world.decide(), Admit) == ["w5"], "others go ahead while it pauses"
    world.finish("w5")
    world.put(gang("w6", 8, created=START + 6000))
    world.now += 2 * MINUTE
    assert of(world.decide(), Admit) == ["w1"], "then it is the first again"


def test_where_the_job_is_the_cause_it_goes_behind_and_its_pauses_double() -> None:
    world, admitted = started(UnscheduledPods(), PodsReadyPolicy(backoff_limit=4), requeue_count=3)
    world.change("w1", unscheduled=Unscheduled(admitted, WORDS, by_job=True))
    found = evicted_at(world, admitted)
    assert found is not None
    _, evict = found
    assert (evict.requeue_count, evict.requeue_at) == (4, world.now + 8 * MINUTE)
    workload = world.workloads["team/w1"]
    assert queue_time(workload, world.engine._store.settings) == workload.evicted_at // 1000 * 1000
    world, admitted = started(UnscheduledPods(), PodsReadyPolicy(backoff_limit=3), requeue_count=3)
    world.change("w1", unscheduled=Unscheduled(admitted, WORDS, by_job=True))
    found = evicted_at(world, admitted)
    assert found is not None and found[1].deactivate


def test_once_all_pods_have_nodes_the_time_to_become_ready_begins() -> None:
    world, admitted = started(UnscheduledPods(), PodsReadyPolicy())
    world.change("w1", unscheduled=Unscheduled(admitted, WORDS))
    world.now = admitted + 4 * MINUTE
    world.decide()
    world.change("w1", unscheduled=Unscheduled(admitted + 4 * MINUTE))
    found = evicted_at(world, admitted)
    assert found is not None
    assert (found[0], found[1].waited_for) == (34.0, ""), "30 minutes after the last pod got its node"


@pytest.mark.parametrize(
    "fields", [{"pods_ready": True}, {"pods_were_ready": True}, {"replaces": "team/before"}, {"unscheduled": None}]
)
def test_what_runs_or_recovers_or_grows_is_left_alone(fields: dict[str, Any]) -> None:
    world, admitted = started(UnscheduledPods())
    world.change("w1", **{"unscheduled": Unscheduled(admitted, WORDS), **fields})
    assert evicted_at(world, admitted) is None


def test_a_node_that_was_replaced_restarts_the_count() -> None:
    world, admitted = started(UnscheduledPods())
    world.change("w1", unscheduled=Unscheduled(admitted, WORDS), healed_at=admitted + 3 * MINUTE)
    found = evicted_at(world, admitted)
    assert found is not None and found[0] == 8


@given(since=st.integers(0, 600), kill=st.integers(0, 900), limit=st.integers(1, 900))
def test_an_operator_that_is_killed_counts_on(since: int, kill: int, limit: int) -> None:
    """The eviction comes at the same second, whenever another operator takes over."""
    world, admitted = started(UnscheduledPods(float(limit)))
    begun = admitted + since * 1000
    world.now = begun
    world.change("w1", unscheduled=Unscheduled(begun, WORDS))
    due = begun + limit * 1000
    assert world.engine.scheduled_by("team/w1") == due
    world.now = max(begun, min(admitted + kill * 1000, due - 2000))
    world.restart()
    world.now = due - 2000
    assert of(world.decide(), Evict) == []
    assert world.engine.next_wakeup(world.now) == due
    assert of(world.decide(), Evict) == ["w1"]


HERE: Affinity = ((Expression("zone", "In", ("a", "b")),),)


@pytest.mark.parametrize(
    ("selector", "affinity", "nodes", "nowhere"),
    [
        ({}, (), ("a",), False),
        ({"zone": "a"}, (), ("a", "c"), False),
        ({"zone": "a"}, (), ("b", "c"), True),
        ({"zone": "a"}, (), (), False),
        ({}, HERE, ("c", "b"), False),
        ({}, HERE, ("c", "d"), True),
    ],
)
def test_the_job_is_the_cause_where_it_excludes_all_nodes_of_its_flavor(
    selector: dict[str, str], affinity: Affinity, nodes: tuple[str, ...], nowhere: bool
) -> None:
    """Nodes of other flavors prove nothing, and where the flavor has no node the cluster is the cause."""
    pods = PodSet("main", 1, {GPU: 1}, node_selector=selector, affinity=affinity)
    queue = cluster_queue("q", groups=(group({"a100": {GPU: 8}}),))
    world = EngineWorld(Flavor("a100", node_labels={"pool": "fast"}, autoscaled=True), queue)
    world.put(Node("other", labels={"zone": "a"}, allocatable={GPU: 8}))
    for zone in nodes:
        world.put(Node(zone, labels={"pool": "fast", "zone": zone}, allocatable={GPU: 8}))
    world.put(gang("w", pod_sets=(pods,)))
    assert of(world.decide(), Admit) == ["w"]
    assert world.engine.matches_no_node("team/w") is nowhere
