"""Room made by moving: a workload that waits only because free room is scattered starts, others go on elsewhere."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from tests.builders.engine import GPU, START, group, of, reported_pending
from tests.engine.test_card_admission import HALF, cards
from tests.engine.test_nothing_is_missed import Cluster
from tests.examples import examples

from gangline.engine import HOSTNAME, OF_POLICY
from gangline.engine.model import (
    Admit,
    Backfill,
    BoundPod,
    ClusterQueue,
    Evict,
    Flavor,
    Gone,
    Moves,
    Node,
    PastPreemption,
    PlacementPolicy,
    PodSet,
    Preempt,
    PreemptionsUnknown,
    Put,
    RuntimeForecast,
    Topology,
    TopologyRequest,
    VictimPolicy,
    Workload,
    WorkloadPods,
    WriteFailed,
    accelerators_of,
)
from gangline.engine.preemption.moves import PATIENCE, PAUSE, REPEATED, TRIALS, RoomByMoving

MINUTE, HOUR = 60_000, 3_600_000
MOVES = Moves(lost_gpu_hours_per_day=10.0, after_seconds=0.0)
POOL = {"pool": "gpus"}
RACKS = Topology("racks", ("rack", HOSTNAME))


def node(name: str, gpus: int = 8, rack: str = "r0") -> Node:
    return Node(name, {**POOL, HOSTNAME: name, "rack": rack}, {GPU: gpus, "pods": 110}, uid=f"uid-{name}")


def queue(
    name: str = "q", flavor: str = "plain", moves: Moves | None = MOVES, gpus: int = 99, **more: Any
) -> ClusterQueue:
    return ClusterQueue(name, groups=(group({flavor: {GPU: gpus}}),), moves=moves, **more)


def job(name: str, gpus: int, pods: int = 1, queue: str = "q", **more: Any) -> Workload:
    asked = more.pop("pod_set", {})
    created = START + 1000 * int("".join(filter(str.isdigit, name)) or 0)
    pod_sets = (PodSet("main", pods, {GPU: gpus}, **asked),)
    return Workload(f"uid-{name}", "team", name, queue, pod_sets, created=created, **more)


def cluster(*items: Any) -> Cluster:
    return Cluster(Flavor("plain", POOL), Flavor("placed", POOL, topology="racks"), RACKS, *items)


def scattered(nodes: int, *items: Any, small: int = 2, queue: str = "q", **more: Any) -> Cluster:
    """Each node has one job `s<n>` of a few GPUs, and is free else."""
    flavor = next(each.groups[0].flavors[0].name for each in items if isinstance(each, ClusterQueue))
    world = cluster(*items, ClusterQueue("filler", groups=(group({flavor: {GPU: 99}}),)))
    for number in range(nodes):
        world.put(job(f"x{number}", 8 - small, queue="filler"), job(f"s{number}", small, queue=queue, **more))
        world.put(node(f"n{number}"))
        world.settle()
    for number in range(nodes):
        world.finish(f"x{number}")
        world.change(f"s{number}", admitted_at=world.now)
    world.settle()
    assert len(world.running()) == nodes
    return world


def nodes_of(world: Cluster, name: str) -> list[str]:
    """The nodes of a workload's pods, each as often as it has pods."""
    places = world.engine.places_of(f"team/{name}") or {}
    found = [each for there in places.values() for each, count in there.items() for _ in range(count)]
    admission = world.workloads[f"team/{name}"].admission
    for pod_set in admission.pod_sets if admission is not None else ():
        if pod_set.topology is not None:
            found += [domain.values[-1] for domain in pod_set.topology.domains for _ in range(domain.count)]
    return sorted(found)


def moved(world: Cluster) -> list[str]:
    """The workloads that are moved for others now."""
    return sorted(
        each.workload.partition("/")[2]
        for each in world.settle()
        if isinstance(each, Preempt) and each.reason == "Moved"
    )


def after(world: Cluster, span: int) -> None:
    world.now += span


@pytest.mark.parametrize("flavor", ["plain", "placed"])
def test_a_gang_gets_a_whole_node_and_the_moved_goes_on_elsewhere(flavor: str) -> None:
    world = scattered(3, queue(flavor=flavor))
    world.put(job("big", 8))
    (first,) = moved(world)
    assert first == "s0" and world.workloads["team/s0"].moved_for == "team/big"
    assert not of(world.settle(), Admit), "its pods still end"
    world.complete_evictions()
    assert sorted(of(world.settle(), Admit)) == ["big", "s0"]
    assert nodes_of(world, "big") == ["n0"] and nodes_of(world, "s0") != ["n0"]
    assert world.engine.usage("q") == {flavor: {GPU: 14}}


def test_the_gang_is_told_for_whom_it_waits_and_the_moved_for_whom_it_goes() -> None:
    world = scattered(2, queue())
    world.put(job("big", 8))
    decisions = world.settle()
    (preempt,) = [each for each in decisions if isinstance(each, Preempt)]
    assert (preempt.by, preempt.by_uid) == ("team/big", "uid-big")
    assert "Moved to other nodes to make room for workload team/big (UID: uid-big)" in preempt.message
    told = reported_pending(decisions)["big"].explanation
    assert told.reason == "WaitingForPreemptedWorkloads"
    assert told.message.startswith("Pending the move of 1 workload(s) to other nodes")


def test_before_anything_moves_the_gang_says_who_would_and_what_that_costs() -> None:
    world = scattered(2, queue(moves=replace(MOVES, after_seconds=3600.0, lost_gpu_hours_per_day=4.0)))
    world.put(replace(job("big", 8), created=world.now))
    assert moved(world) == []
    explanation = world.engine.explain("team/big")
    assert explanation is not None and explanation.reason == "WaitingForCapacity"
    assert "It starts once team/s0 moved to other nodes, which is due by 2026-01-01" in explanation.message
    assert "GPU-hours with the move, and ClusterQueue q may lose 4 of 4 GPU-hours today" in explanation.message
    after(world, HOUR)
    world.change("s0", admitted_at=world.now)  # a job that has lost nothing yet
    assert moved(world) == ["s0"]


@pytest.mark.parametrize("whose", ["the gang's", "the mover's"])
def test_nobody_moves_unless_the_policies_of_both_queues_have_it(whose: str) -> None:
    gangs, movers = (None, MOVES) if "gang" in whose else (MOVES, None)
    world = scattered(3, queue("movers", moves=movers), queue("gangs", moves=gangs), queue="movers")
    world.put(job("big", 8, queue="gangs"))
    assert moved(world) == [] and "big" not in world.running()


def test_queues_of_other_cohort_trees_move_too_and_get_back_what_they_had() -> None:
    world = scattered(3, queue("movers", gpus=6), queue("gangs", gpus=8), queue="movers")
    world.put(job("big", 8, queue="gangs"))
    assert moved(world) == ["s0"]
    world.put(job("thief", 2, queue="movers"), replace(job("other", 8, queue="gangs"), created=START))
    assert not of(world.settle(), Admit), "neither the room nor the quota of the moved is free"
    world.complete_evictions()
    assert sorted(of(world.settle(), Admit)) == ["big", "s0"]


def test_nothing_moves_where_quota_is_missing_or_the_free_room_would_not_suffice() -> None:
    world = scattered(3, queue(gpus=6 + 7))
    world.put(job("big", 8))
    assert moved(world) == []
    full = scattered(2, queue(), small=5)  # 3 + 3 are free: nobody has room elsewhere
    full.put(job("big", 8))
    assert moved(full) == []
    told = full.engine.explain("team/big")
    assert told is not None and "move" not in told.message


def test_no_more_are_moved_than_needed_and_the_cheapest_of_all() -> None:
    world = scattered(3, queue())
    world.change("s0", admitted_at=world.now - 5 * MINUTE)
    world.change("s1", admitted_at=world.now - 9 * MINUTE)
    world.change("s2", admitted_at=world.now - 1 * MINUTE)
    world.put(job("big", 8))
    assert moved(world) == ["s2"]


def test_work_that_is_not_saved_bounds_who_moves() -> None:
    """Nobody has begun lately, and `s1` alone has just written a checkpoint."""
    world = scattered(3, queue())
    for number in range(3):
        world.change(f"s{number}", admitted_at=world.now - 61 * MINUTE)
    world.put(job("big", 8))
    assert moved(world) == []
    world.change("s1", checkpoint_seconds=1800.0)
    after(world, MINUTE)
    assert moved(world) == ["s1"]


def test_higher_priorities_protected_jobs_and_pods_that_nobody_makes_anew_stay() -> None:
    world = scattered(3, queue(victims=VictimPolicy(non_preemptible_from=5)))
    world.change("s0", priority=5)
    world.change("s1", unowned=True)
    world.change("s2", priority=1)
    world.put(job("big", 8))
    assert moved(world) == []
    world.change("big", priority=7)
    assert moved(world) == ["s2"]


def test_the_budget_of_a_day_is_never_exceeded() -> None:
    """A move costs 2 GPUs · 1 minute for the restart, and what was not saved."""
    per_move = 2 * MINUTE / HOUR
    world = scattered(5, queue(moves=replace(MOVES, lost_gpu_hours_per_day=1.5 * per_move)))
    for number in range(5):
        world.change(f"s{number}", admitted_at=world.now + 10_000)
    world.put(job("big0", 8))
    assert moved(world) == ["s0"]
    first = world.now
    world.complete_evictions()
    world.settle()
    world.put(job("big1", 8))
    for number in range(5):
        world.change(f"s{number}", admitted_at=world.now + 10_000)
    assert moved(world) == []
    told = world.engine.explain("team/big1")
    assert told is not None
    assert "It would start if team/s" in told.message
    assert "moved to other nodes, but ClusterQueue q may not lose more than 0.05 GPU-hours a day" in told.message
    assert (due := world.engine.next_wakeup(world.now)) is not None and due > world.now
    world.now = first + 24 * HOUR - 10_000
    for number in range(5):
        world.change(f"s{number}", admitted_at=world.now + 10_000)
    assert moved(world) == []
    world.now = first + 24 * HOUR + 10_000
    for number in range(5):
        world.change(f"s{number}", admitted_at=world.now + 10_000)
    assert len(moved(world)) == 1


def test_what_was_lost_before_a_restart_counts_and_until_it_is_known_nothing_moves() -> None:
    world = scattered(3, queue(moves=replace(MOVES, lost_gpu_hours_per_day=1.0)))
    world.put(PreemptionsUnknown(world.now + 2 * MINUTE), job("big", 8))
    assert moved(world) == []
    world.put(PastPreemption("team/gone", world.now - HOUR, "q", "q", HOUR, moved=True))
    world.engine.observe(Gone(PreemptionsUnknown, PreemptionsUnknown.name))
    assert moved(world) == []
    after(world, 23 * HOUR)
    for number in range(3):
        world.change(f"s{number}", admitted_at=world.now)
    assert moved(world) == ["s0"]


def test_a_job_is_not_moved_again_before_it_has_settled() -> None:
    world = scattered(2, queue(moves=replace(MOVES, settle_seconds=1800.0, longest_loss_seconds=7200.0)))
    world.change("s1", unowned=True)
    world.put(job("big", 8))
    assert moved(world) == ["s0"]
    world.complete_evictions()
    world.settle()
    assert nodes_of(world, "s0") == ["n1"]
    world.finish("big")
    world.finish("s1")
    world.put(job("block", 6, unowned=True))
    world.settle()  # on n1 beside s0, where less is free
    world.put(node("n2", 4), node("n0", 7), job("big2", 8))
    world.finish("block")
    world.settle()
    after(world, 20 * MINUTE)
    assert moved(world) == []
    after(world, 10 * MINUTE)
    assert moved(world) == ["s0"]


@pytest.mark.parametrize("moment", ["before its pods are gone", "after"])
@pytest.mark.parametrize("flavor", ["plain", "placed"])
def test_a_new_process_carries_the_move_on(moment: str, flavor: str) -> None:
    world = scattered(3, queue(flavor=flavor))
    world.put(job("big", 8))
    assert moved(world) == ["s0"]
    if moment == "after":
        world.complete_evictions()
    world.restart()
    for name in world.running() + world.evicted():
        there = {"s0": "n0", "s1": "n1", "s2": "n2"}[name]
        world.put(WorkloadPods(f"team/{name}", (BoundPod(f"{name}-0", "main", there),)))
    decisions = world.settle()
    assert not of(decisions, Preempt)
    if moment != "after":
        assert not of(decisions, Admit)
        world.engine.observe(Gone(WorkloadPods, "team/s0"))
        world.complete_evictions()
        decisions = world.settle()
    assert sorted(of(decisions, Admit)) == ["big", "s0"]
    assert nodes_of(world, "s0") != nodes_of(world, "big")


@pytest.mark.parametrize("strategy", ["BestEffortFIFO", "StrictFIFO"])
def test_the_moved_is_first_whoever_waits_before_it(strategy: str) -> None:
    """`urgent` waits for quota that nobody has; in a StrictFIFO queue nobody starts behind it."""
    world = scattered(3, queue("movers", gpus=6, strategy=strategy), queue("gangs"), queue="movers")
    world.put(job("urgent", 5, queue="movers", priority=9), job("big", 8, queue="gangs"))
    assert moved(world) == ["s0"]
    world.complete_evictions()
    assert sorted(of(world.settle(), Admit)) == ["big", "s0"]


def test_several_moved_stop_one_after_the_other_and_each_goes_on_at_once() -> None:
    """Each node has two jobs, and no room for the gang before both of one node have gone."""
    world = cluster(queue())
    for number in range(3):
        world.put(job(f"x{number}", 4), job(f"a{number}", 2), job(f"b{number}", 2), node(f"n{number}"))
        world.settle()
    for number in range(3):
        world.finish(f"x{number}")
    world.put(job("big", 8))
    first, second = moved(world)
    assert nodes_of(world, first) == nodes_of(world, second)
    world.put(job("thief", 4))
    world.change(first, admission=None, admitted=False, reserved_at=0, requeued=True)
    assert of(world.settle(), Admit) == [first]
    assert nodes_of(world, first) != nodes_of(world, second)
    world.change(second, admission=None, admitted=False, reserved_at=0, requeued=True)
    assert {second, "big"} <= set(of(world.settle(), Admit))
    assert nodes_of(world, "big")[0] not in nodes_of(world, first) + nodes_of(world, second)


def test_the_room_of_both_is_free_when_the_gang_goes_away() -> None:
    world = scattered(3, queue(), queue("others"))
    world.put(job("big", 8))
    assert moved(world) == ["s0"]
    world.delete("big")
    world.complete_evictions()
    assert of(world.settle(), Admit) == ["s0"]
    world.put(job("other", 8, queue="others"))
    assert of(world.settle(), Admit) in (["other"], [])
    assert not world.engine._store.queues["q"].quota_holds
    assert not [key for key in world.engine._store.node_ledger._holders if "(" in key]


@pytest.mark.parametrize("end", ["finished", "deleted", "deactivated", "not written"])
def test_the_moved_ends_or_stays_meanwhile(end: str) -> None:
    world = scattered(3, queue())
    world.put(job("big", 8))
    if end == "not written":
        world.decide(lost=("team/s0",))
        world.engine.observe(WriteFailed("team/s0"))
        assert not any(hold.returns for hold in world.engine._store.queues["q"].quota_holds.values())
        assert moved(world) == ["s0"], "it is decided anew"
        return
    assert moved(world) == ["s0"]
    match end:
        case "finished":
            world.finish("s0")
        case "deleted":
            world.delete("s0")
        case _:
            world.change("s0", active=False, admission=None, admitted=False, reserved_at=0)
    assert of(world.settle(), Admit) == ["big"]
    assert not [key for key in world.engine._store.node_ledger._holders if "(" in key]


def test_a_rack_is_cleared_for_a_gang_that_has_to_be_in_one() -> None:
    """Two racks of two nodes; the jobs of r1 lose less."""
    world = cluster(queue(flavor="placed"))
    for number in range(4):
        world.put(node(f"n{number}", rack=f"r{number // 2}"), job(f"x{number}", 6), job(f"s{number}", 2))
        world.settle()
    for number in range(4):
        world.finish(f"x{number}")
        world.change(f"s{number}", admitted_at=world.now - (9 if number < 2 else 1) * MINUTE)
    world.put(job("big", 8, pods=2, pod_set={"topology": TopologyRequest(required="rack")}))
    assert moved(world) == ["s2", "s3"]
    world.complete_evictions()
    assert sorted(of(world.settle(), Admit)) == ["big", "s2", "s3"]
    assert nodes_of(world, "big") == ["n2", "n3"]


def test_a_shared_card_is_cleared_for_a_job_that_needs_a_whole_one() -> None:
    """Half a card is taken on each of two cards of two hosts."""
    policy = PlacementPolicy("Spread")
    plain = ClusterQueue("q", groups=(group({"plain": {GPU: 99}}),), moves=MOVES, placement=policy)
    world = cluster(Topology(OF_POLICY, (HOSTNAME,)), plain)
    world.put(Node("n0", {**POOL, HOSTNAME: "n0"}, {GPU: 20, "pods": 110}), cards("n0", 1))
    world.put(Node("n1", {**POOL, HOSTNAME: "n1"}, {GPU: 20, "pods": 110}), cards("n1", 1))
    for number in range(2):
        world.put(job(f"h{number}", 1, pod_set={"shares": (HALF,)}))
        world.settle()
    assert sorted(nodes_of(world, "h0") + nodes_of(world, "h1")) == ["n0", "n1"]
    whole = (replace(HALF, milli=1000),)
    world.put(job("whole", 1, pod_set={"shares": whole}))
    (first,) = moved(world)
    world.complete_evictions()
    assert sorted(of(world.settle(), Admit)) == sorted([first, "whole"])


def test_nodes_that_have_too_few_cards_are_not_tried() -> None:
    """A card counts as ten, so that amounts alone say that two cards are free on each node of one card. There are more of these,
    with cheaper jobs, than sets are tried.
    """
    small = [f"n{number}" for number in range(TRIALS + 4)]
    policy = PlacementPolicy("Fragmentation")
    plain = ClusterQueue("q", groups=(group({"plain": {GPU: 99}}),), moves=MOVES, placement=policy)
    world = cluster(Topology(OF_POLICY, (HOSTNAME,)), plain)
    for number, name in enumerate(["wide", *small]):
        count = 2 if name == "wide" else 1
        world.put(Node(name, {**POOL, HOSTNAME: name}, {GPU: 10 * count, "pods": 110}), cards(name, count))
        asked = {"shares": (HALF,), "node_selector": {HOSTNAME: name}} if name != "wide" else {"shares": (HALF,)}
        world.put(job(f"h{number}", 1, pod_set=asked))
        world.settle()
        after(world, 1000)
    whole = (replace(HALF, milli=1000, count=2),)
    world.put(job("whole", 2, pod_set={"shares": whole}))
    assert moved(world) == ["h0"]
    world.complete_evictions()
    assert sorted(of(world.settle(), Admit)) == ["h0", "whole"]
    assert nodes_of(world, "whole") == ["wide"]


@pytest.fixture
def searches(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The workloads for which moves were searched for, once for each search."""
    found: list[str] = []
    search = RoomByMoving.plan

    def noted(self: RoomByMoving, wanted: Any, movers: Any) -> Any:
        found.append(wanted.gang.key)
        return search(self, wanted, movers)

    monkeypatch.setattr(RoomByMoving, "plan", noted)
    return found


def hopeless() -> Cluster:
    """Two nodes, each with a job of six GPUs, which has no other room."""
    world = scattered(2, queue(), small=6, checkpoint_seconds=60.0)
    world.put(job("big", 8))
    assert moved(world) == []
    return world


def pause(world: Cluster, searches: list[str], span: int) -> int:
    """How many searches there are in this time, in which nothing happens."""
    before, end = len(searches), world.now + span
    while world.now < end:
        after(world, PAUSE)
        assert moved(world) == []
    return len(searches) - before


def test_a_search_in_vain_is_not_repeated_while_nothing_changes(searches: list[str]) -> None:
    world = hopeless()
    assert len(searches) == 1
    assert pause(world, searches, REPEATED - PAUSE) == 0
    assert pause(world, searches, PAUSE) == 1, "costs change with time"
    world.put(job("more", 1))
    assert moved(world) == [] and pause(world, searches, PAUSE) == 0, "what starts helps nobody"
    world.put(node("n2", gpus=6))
    assert moved(world) == ["s1"], "a change is noticed at once"


def test_whoever_may_move_from_now_on_makes_a_search_worth_while(searches: list[str]) -> None:
    world = scattered(3, queue(moves=replace(MOVES, longest_loss_seconds=60.0)), checkpoint_seconds=600.0)
    after(world, 5 * MINUTE)
    world.put(job("big", 8))
    assert moved(world) == [] and len(searches) == 1
    assert pause(world, searches, 4 * MINUTE) == 0
    after(world, PAUSE)
    assert moved(world) == ["s0"], "all have just saved their work"


def test_a_shape_that_often_searched_in_vain_waits_and_never_longer_than_a_minute(searches: list[str]) -> None:
    world = hopeless()
    world.put(job("y1", 1, queue="filler"))
    assert not moved(world)
    began = world.now
    for second in range(200):  # every few seconds room becomes free, and is taken
        world.finish(f"y{second + 1}")
        world.put(job(f"y{second + 2}", 1, queue="filler"))
        after(world, 1000)
        assert not moved(world)
    assert 10 < len(searches) <= PATIENCE + 7 + (world.now - began) // PAUSE
    world.put(node("n2", gpus=6))
    until = world.now + PAUSE
    while not moved(world):
        after(world, 1000)
        assert world.now <= until


def test_who_has_no_room_elsewhere_is_not_tried_until_there_may_be_some(monkeypatch: pytest.MonkeyPatch) -> None:
    world = hopeless()
    tried: list[str] = []
    homes = RoomByMoving.homes

    def noted(self: RoomByMoving, assignment: Any, queue: Any, movers: Any) -> Any:
        tried.extend(mover.key for mover in movers)
        return homes(self, assignment, queue, movers)

    monkeypatch.setattr(RoomByMoving, "homes", noted)
    world.put(job("other", 7))
    assert moved(world) == [] and not tried, "that was found for the first gang"
    world.put(node("n2", gpus=5))
    assert moved(world) == [] and not tried, "too small for any of them"
    world.put(node("n3", gpus=6))
    assert moved(world) == ["s0"] and "team/s0" in tried


def test_another_shape_is_searched_for_at_once(searches: list[str]) -> None:
    world = hopeless()
    world.put(job("other", 7))
    assert moved(world) == [] and searches[-1] == "team/other"
    world.put(replace(job("high", 8), priority=1))
    assert moved(world) == [] and searches[-1] == "team/high"
    world.put(job("alike", 8))
    assert moved(world) == [] and searches[-1] == "team/high"


def test_a_gang_with_a_date_waits_for_the_moment_at_which_others_lose_least() -> None:
    """`s0` writes its next checkpoint in four minutes; the date is in an hour."""
    world = scattered(2, queue())
    now = world.now
    for name in ("s0", "s1"):
        world.change(name, admitted_at=now - 6 * MINUTE, checkpoint_seconds=600.0)
    world.put(replace(job("big", 8), start_by=now + HOUR))
    assert moved(world) == []
    told = world.engine.explain("team/big")
    assert told is not None and "It starts once team/s" in told.message
    world.now = now + 4 * MINUTE - 3000
    assert moved(world) == []
    world.now = now + 4 * MINUTE
    assert moved(world) in (["s0"], ["s1"])


def test_a_gang_with_a_date_gets_its_room_by_then_whatever_is_lost() -> None:
    """Losses only grow for jobs without checkpoints: they move at once."""
    world = scattered(2, queue())
    world.put(replace(job("big", 8), start_by=world.now + HOUR))
    assert moved(world) == ["s0"]


@pytest.mark.parametrize(("hours", "movers"), [(1, ["s0"]), (9, [])])
def test_nobody_moves_for_a_gang_that_a_reservation_holds_back(hours: int, movers: list[str]) -> None:
    """`wide` is reserved both nodes from the end of the jobs there on, in four hours; `big` would run beside them on one."""
    world = scattered(2, queue(backfill=Backfill()))
    for name, length in (("s0", 4), ("s1", 4), ("wide", 1), ("big", hours)):
        forecast = RuntimeForecast(f"team/{name}", ((0.5, length * HOUR), (0.9, length * HOUR)), "Model", 12)
        world.engine.observe(Put(forecast))
    world.put(job("wide1", 8, pods=2))
    assert moved(world) == [] and set(world.engine.reservations()) == {"team/wide1"}
    world.put(job("big2", 8))
    world.engine.observe(Put(RuntimeForecast("team/big2", ((0.5, hours * HOUR), (0.9, hours * HOUR)), "Model", 12)))
    assert moved(world) == movers
    if not movers:
        told = world.engine.explain("team/big2")
        assert told is not None and "would delay team/wide1" in told.message
        return
    world.complete_evictions()
    assert sorted(of(world.settle(), Admit)) == ["big2", "s0"]


def test_room_that_is_kept_stays_while_the_moved_stops() -> None:
    """`m1` moves from n2 and n3 to all of n3 and a part of n4. The gang is tried again before `m1` has stopped: it must not take
    what `m1` leaves on n3.
    """
    filler = ClusterQueue("filler", groups=(group({"placed": {GPU: 99}}),))
    world = cluster(queue(flavor="placed"), filler, *(node(f"n{number}") for number in range(1, 5)))

    def put(name: str, *sizes: int) -> None:
        one_host = TopologyRequest(required=HOSTNAME)
        pod_sets = tuple(PodSet(f"p{size}", size, {GPU: 1}, topology=one_host) for size in sizes)
        world.put(replace(job(name, 1, queue="q" if len(sizes) > 1 else "filler"), pod_sets=pod_sets))

    for name, sizes in (("x1", (3,)), ("y1", (5,)), ("m1", (8, 4)), ("y2", (4,)), ("x2", (1,)), ("y3", (7,))):
        put(name, *sizes)
        world.settle()
        after(world, 1000)
    assert [nodes_of(world, name) for name in ("x1", "m1", "x2")] == [["n1"] * 3, ["n2"] * 8 + ["n3"] * 4, ["n4"]]
    for name in ("y1", "y2", "y3"):
        world.finish(name)
    world.settle()
    put("big1", 8, 4)
    assert moved(world) == ["m1"]
    world.complete_evictions()
    assert of(world.settle(), Admit) == ["m1", "big1"], "each has the room that was kept for it"


# --- laws -----------------------------------------------------------------------------------------------------------------

SIZES = st.sampled_from((1, 2, 3, 4, 6, 8))
STEPS = st.one_of(
    st.tuples(st.just("submit"), SIZES, st.sampled_from(("q", "strict", "other"))),
    st.tuples(st.just("finish"), st.integers(0, 30), st.just("")),
    st.tuples(st.just("stop"), st.integers(0, 3), st.just("")),
    st.tuples(st.just("wait"), st.sampled_from((10_000, 5 * MINUTE, 40 * MINUTE)), st.just("")),
    st.tuples(st.just("restart"), st.just(0), st.just("")),
)


@examples(30)
@given(
    first=st.lists(st.tuples(st.sampled_from((2, 3, 4)), st.booleans()), min_size=8, max_size=12),
    steps=st.lists(STEPS, min_size=6, max_size=30),
    flavor=st.sampled_from(("plain", "placed")),
    backfill=st.sampled_from((None, Backfill(), Backfill(idle_share=0.1))),
)
@example(  # what the moved leaves belongs to a workload of another tree
    first=[(4, False), (3, True), (2, True), (2, False), (2, False), (4, True), (4, True), (2, False)],
    steps=[("submit", 1, "q"), ("submit", 1, "q"), ("finish", 22, ""), ("submit", 1, "q"), ("finish", 20, "")],
    flavor="placed",
    backfill=None,
)
def test_laws_of_moves(
    first: list[tuple[int, bool]], steps: list[tuple[str, int, str]], flavor: str, backfill: Backfill | None
) -> None:
    """Quota and nodes are never exceeded; whoever is moved starts again as soon as it has stopped, and the gang when all have;
    losses of any day are within the budget; nobody moves twice within the time to settle.
    """
    policy = Moves(1.0, longest_loss_seconds=900.0, settle_seconds=1800.0, most=3, after_seconds=0.0)
    queues = (
        queue("q", flavor, policy, 28, backfill=backfill),
        queue("strict", flavor, policy, 16, strategy="StrictFIFO"),
        queue("other", flavor, None, 4),
    )
    world = cluster(*queues, *(node(f"n{number}") for number in range(4)))
    moves: list[tuple[int, str, str, int]] = []
    wanting: dict[str, set[str]] = {}  # gang -> those that stop for it
    serial = 0

    def settle() -> set[str]:
        admitted: set[str] = set()
        for each in world.settle():
            match each:
                case Preempt(reason="Moved", workload=key, by=by):
                    lost = [past for past in world.engine._store.preemptions.past.values() if past.workload == key]
                    moves.append((world.now, key, by, max(lost, key=lambda past: past.at).lost))
                    wanting.setdefault(by, set()).add(key)
                case Admit(workload=key):
                    admitted.add(key)
                    wanting.pop(key, None)
                case Preempt() | Evict():
                    raise AssertionError(each)
                case _:
                    pass
        return admitted

    begin = [("submit", gpus, "q" if number % 3 else "strict") for number, (gpus, _) in enumerate(first)]
    ends = [("end", number, "") for number, (_, stays) in enumerate(first) if not stays]
    for what, number, where in [*begin, *ends, ("submit", 8, "q"), ("submit", 8, "strict"), *steps]:
        keys = sorted(world.workloads)
        match what:
            case "submit":
                serial += 1
                world.put(replace(job(f"w{serial}", number, queue=where), created=world.now))
            case "end" if f"team/w{number + 1}" in keys:
                world.finish(f"w{number + 1}")
            case "finish" if keys:
                name = keys[number % len(keys)]
                if world.workloads[name].admission is not None and not world.workloads[name].evicted:
                    world.finish(name.partition("/")[2])
            case "stop" if world.evicted():
                stopping = world.evicted()[number % len(world.evicted())]
                world.change(stopping, admission=None, admitted=False, reserved_at=0, requeued=True)
                assert f"team/{stopping}" in settle(), "whoever is moved goes on at once"
            case "wait":
                world.now += number
            case "restart" if not world.evicted():
                past = list(world.engine._store.preemptions.past.values())
                world.restart()
                for each in past:
                    world.engine.observe(Put(each))
            case _:
                pass
        settle()
        for name, config in (("q", 28), ("strict", 16), ("other", 4)):
            assert sum(world.engine.usage(name).get(flavor, {}).values()) <= config
        taken = dict.fromkeys((f"n{number}" for number in range(4)), 0)
        for workload in world.workloads.values():
            if workload.admission is not None:
                for each in nodes_of(world, workload.name):
                    taken[each] += accelerators_of(workload.pod_sets) // workload.pod_sets[0].count
        assert all(amount <= 8 for amount in taken.values()), taken
    while world.evicted():
        name = world.evicted()[0]
        world.change(name, admission=None, admitted=False, reserved_at=0, requeued=True)
        assert f"team/{name}" in settle()
    assert not [key for key in wanting if key in world.workloads], "whoever others moved for has started"
    for at, key, _, _ in moves:
        assert sum(lost for when, _, _, lost in moves if at - 24 * HOUR < when <= at) <= 2 * HOUR  # two queues
        assert not [when for when, other, _, _ in moves if other == key and 0 < at - when < 1800_000]
        assert "other" not in {world.workloads[each].queue for each in (key,) if each in world.workloads}
