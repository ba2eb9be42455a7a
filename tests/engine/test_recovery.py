"""Healing: gangs whose nodes are lost run again, by a spare, by preemption, or by waiting; each loss once."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from tests.builders.engine import cluster_queue, gang, group, of
from tests.engine.node_world import FLAVOR, TPU, NodeWorld, heals, kinds, node, plain, pools, queue, slices

from gangline.engine.model import (
    Admit,
    ClusterQueue,
    Decision,
    Evict,
    Flavor,
    Heal,
    PodSet,
    Preempt,
    Recovery,
    Swap,
    Taint,
    Toleration,
    Topology,
    TopologyRequest,
    Workload,
    WriteFailed,
)

QUICK = Recovery(soak_seconds=5)


def nodes(count: int) -> list[Any]:
    return [node(f"n{number}") for number in range(count)]


def running(world: NodeWorld, *gangs: Workload) -> NodeWorld:
    for each in gangs:
        world.put(each)
        world.settle(2)
    return world


def evictions(decisions: list[Decision]) -> list[Evict]:
    return [decision for decision in decisions if isinstance(decision, Evict)]


def on(world: NodeWorld, name: str) -> list[str]:
    return sorted(pod.node for pod in world.pods.get(f"team/{name}", ()))


# --- swap -------------------------------------------------------------------------------------------------------------


def test_only_the_lost_pods_move_onto_a_spare() -> None:
    world = running(NodeWorld(*nodes(4), queue(100)), plain("w1", 3))
    world.fail("n1")
    failed = world.now
    (heal,) = heals(world.settle())
    assert (heal.workload, heal.how, heal.lost, heal.cause) == ("team/w1", "Replace", ("n1",), "Unreachable")
    assert (heal.detected_at, heal.at) == (failed, failed + 1000)
    assert heal.message == "Lost node n1 (Unreachable): replacing the pods that ran there"
    assert on(world, "w1") == ["n0", "n2", "n3"]
    assert [(w.kind, w.about, w.reason) for w in world.warnings] == [("Node", "n1", "NodeLost")]


def test_the_engine_wakes_up_when_the_grace_is_over() -> None:
    world = running(NodeWorld(*nodes(2), queue(100)), plain("w1", 1))
    world.put(replace(world.nodes["n0"], ready=False, conditions={"Ready": ("False", world.now)}))
    assert world.engine.next_wakeup(world.now) == world.now
    failed = world.now
    assert world.engine.decide(world.now) == []
    assert world.engine.next_wakeup(world.now) == failed + 2000
    assert heals(world.engine.decide(failed + 1999)) == []
    assert len(heals(world.engine.decide(failed + 2000))) == 1


def test_a_whole_set_starts_again_and_its_untouched_domain_stays_its_own() -> None:
    world = running(NodeWorld(*pools(3), queue(1000)), slices("w1"))
    world.fail("p0-n2")
    (heal,) = heals(world.decide())
    assert (heal.how, heal.lost) == ("Restart", ("p0-n2",))
    assert "starting again on healthy nodes" in heal.message
    world.put(slices("w2", 1))  # while no pod of w1 exists
    world.decide()
    assert world.running() == ["w1"]
    world.settle()
    assert world.where("w1") == {"p1", "p2"}


def test_a_broken_domain_with_a_healthy_rest_is_left_whole() -> None:
    """Three of four nodes are fine, and useless to the child Job: others may have them."""
    world = running(NodeWorld(*pools(3), queue(1000)), slices("w1"))
    world.fail("p0-n2")
    world.settle()
    running(world, plain("w2", 3))
    assert on(world, "w2") == ["p0-n0", "p0-n1", "p0-n3"]


def test_several_nodes_at_once() -> None:
    world = running(NodeWorld(*nodes(6), queue(100)), plain("w1", 3), plain("w2", 1))
    world.fail("n0", "n2")
    (heal,) = heals(world.settle())
    assert heal.lost == ("n0", "n2")
    assert world.whole("w1")


def test_pods_in_flavors_that_nodes_do_not_bound_are_replaced_at_once() -> None:
    world = NodeWorld(Flavor("tpu"), *nodes(2), queue(100))
    running(world, plain("w1", 2))
    world.fail("n0")
    (heal,) = heals(world.decide())
    assert heal.lost == ("n0",)


def test_the_most_important_gang_gets_the_only_spare() -> None:
    world = running(NodeWorld(*nodes(5), queue(100, recovery=QUICK)), plain("w1", 2), plain("w2", 2, priority=1))
    world.fail(on(world, "w1")[0], on(world, "w2")[0])
    decisions = world.settle()
    assert [heal.workload for heal in heals(decisions)] == ["team/w2"]
    assert of(decisions, Evict) == ["w1"]
    assert world.whole("w2")


# --- preempt to heal --------------------------------------------------------------------------------------------------


def test_lower_priority_makes_room_and_comes_back_when_the_node_does() -> None:
    world = running(NodeWorld(*pools(4), queue(64, recovery=QUICK)), slices("low1"), slices("high2", priority=1))
    world.fail("p2-n1")
    decisions = world.decide()
    (preempt,) = [d for d in decisions if isinstance(d, Preempt)]
    assert (preempt.workload, preempt.reason, preempt.by) == ("team/low1", "InRecovery", "team/high2")
    assert preempt.message == (
        "Preempted to heal workload team/high2 (UID: uid-high2, JobUID: UNKNOWN),"
        " which lost p2-n1 and has the higher priority"
    )
    assert heals(decisions) == []
    assert world.decide() == []  # the victim is still there
    world.complete_evictions()
    assert kinds(world.decide()) == ["Heal", "ReportPending"]
    world.settle()
    assert world.whole("high2")
    assert "p3" in world.where("high2") or "p2" not in world.where("high2")
    world.repair("p2-n1")
    world.tick(5)
    assert of(world.settle(), Admit) == ["low1"]


def test_nobody_slips_into_the_room_that_was_made() -> None:
    world = NodeWorld(*nodes(3), queue(100), queue(100, "r"))
    running(world, plain("w1", 2, priority=5), plain("w2", 1))
    world.fail("n0")
    assert of(world.decide(), Preempt) == ["w2"]
    world.put(plain("w3", 1, queue="r", priority=9))
    world.complete_evictions()
    decisions = world.decide()
    assert [heal.workload for heal in heals(decisions)] == ["team/w1"]
    assert of(decisions, Admit) == []
    world.settle()
    assert world.running() == ["w1"]


def test_as_few_gpu_seconds_as_possible_are_lost() -> None:
    world = running(NodeWorld(*nodes(4), queue(100)), plain("w1", 1, priority=5), plain("w2", 1))
    world.tick(100)
    running(world, plain("w3", 1))
    world.tick(100)
    running(world, plain("w4", 1, priority=1))
    world.fail(on(world, "w1")[0])
    assert of(world.decide(), Preempt) == ["w3"]  # w2 runs longer, w4 is more important


def test_work_since_the_last_checkpoint_is_what_is_lost() -> None:
    world = running(
        NodeWorld(*nodes(3), queue(100)), plain("w1", 1, priority=5), plain("w2", 1, checkpoint_seconds=60.0)
    )
    world.tick(3585 - 2)
    running(world, plain("w3", 1))
    world.tick(55)
    world.fail(on(world, "w1")[0])
    assert of(world.decide(), Preempt) == ["w2"]


def test_one_that_suffices_goes_rather_than_several() -> None:
    world = running(NodeWorld(*nodes(6), queue(100)), plain("w1", 2, priority=5), plain("w2", 1), plain("w3", 1))
    running(world, plain("w4", 2))
    world.fail(*on(world, "w1"))
    assert of(world.decide(), Preempt) == ["w4"]


def test_gangs_on_their_way_out_are_room_enough() -> None:
    world = running(NodeWorld(*nodes(3), queue(100)), plain("w1", 1, priority=5), plain("w2", 1), plain("w3", 1))
    world.change("w2", active=False)
    world.fail(on(world, "w1")[0])
    decisions = world.decide()
    assert of(decisions, Evict) == ["w2"]
    assert of(decisions, Preempt) == []
    world.complete_evictions()
    assert [heal.workload for heal in heals(world.decide())] == ["team/w1"]


def test_equals_are_not_preempted() -> None:
    world = running(NodeWorld(*nodes(2), queue(100)), plain("w1", 1), plain("w2", 1))
    world.fail("n0")
    decisions = world.settle()
    assert of(decisions, Preempt) == []
    assert of(decisions, Evict) == ["w1"]


def test_nobody_is_preempted_in_vain() -> None:
    world = NodeWorld(*nodes(3), queue(100, recovery=Recovery(breaker_share=1.0)))
    running(world, plain("w1", 2, priority=1), plain("w2", 1))
    world.fail("n0", "n1")
    decisions = world.settle(3)
    assert of(decisions, Preempt) == []
    assert of(decisions, Evict) == ["w1"]
    assert world.running() == ["w2"]


@pytest.mark.parametrize(
    ("policy", "preempts"),
    [
        (Recovery(preempt_to_heal=False), False),
        (Recovery(preempt_to_heal=False, spares=1, lend=True), True),
        (Recovery(preempt_to_heal=False, spares=1, lend=False), False),
    ],
)
def test_who_may_be_made_to_go(policy: Recovery, preempts: bool) -> None:
    world = running(NodeWorld(*nodes(2), queue(100)), plain("w1", 1, priority=1), plain("w2", 1))
    world.put(queue(100, recovery=policy))
    world.fail("n0")
    decisions = world.decide()
    assert (of(decisions, Preempt) == ["w2"]) is preempts
    assert (of(decisions, Evict) == ["w1"]) is not preempts


# --- requeue ----------------------------------------------------------------------------------------------------------


def test_without_room_it_waits_with_its_old_claim_and_comes_back_after_the_soak() -> None:
    world = running(NodeWorld(*nodes(2), queue(100, recovery=QUICK)), plain("w1", 2))
    world.put(plain("w2", 2))
    world.fail("n0")
    (evict,) = evictions(world.settle(3))
    assert (evict.reason, evict.avoid) == ("NodeFailures", ("n0",))
    assert evict.message == "Evicted due to failed nodes: n0: no healthy nodes have room for it"
    assert world.engine.pending("q") == ["team/w1", "team/w2"]
    world.repair("n0")
    assert of(world.settle(3), Admit) == []
    world.tick(2)
    assert of(world.settle(2), Admit) == ["w1"]
    assert world.workloads["team/w1"].avoid == ()


def test_the_oldest_claim_resumes_first() -> None:
    world = running(NodeWorld(*nodes(4), queue(100, recovery=QUICK)), plain("w1", 1), plain("w2", 1), plain("w3", 1))
    running(world, plain("w4", 1, priority=1))
    world.fail("n0", "n1", "n2")
    world.put(queue(100, recovery=replace(QUICK, breaker_share=1.0)))
    world.settle()
    assert world.running() == ["w4"]
    for name, back in (("n2", "w1"), ("n0", "w2"), ("n1", "w3")):
        world.repair(name)
        world.tick(5)
        assert of(world.settle(), Admit) == [back]


def test_a_node_that_failed_it_is_the_last_choice() -> None:
    world = NodeWorld(*nodes(3), queue(100), plain("w1", 2, avoid=("n0",)))
    world.follow_seats = True
    world.settle(2)
    assert on(world, "w1") == ["n1", "n2"]
    running(world, plain("w2", 1, avoid=("n0",)))
    assert on(world, "w2") == ["n0"]


def test_too_many_swaps() -> None:
    world = running(NodeWorld(*nodes(4), queue(100, recovery=Recovery(swap_budget=1))), plain("w1", 1))
    world.fail("n0")
    assert len(heals(world.settle())) == 1
    world.fail(*on(world, "w1"))
    (evict,) = evictions(world.settle(2))
    assert evict.message.endswith("it has used up its budget of 1 swapped nodes an hour")


def test_the_swap_budget_is_that_of_an_hour() -> None:
    """A job that runs for a year loses many nodes, one now and then."""
    world = running(NodeWorld(*nodes(9), queue(100, recovery=Recovery(swap_budget=1))), plain("w1", 1))
    for _ in range(3):
        world.fail(*on(world, "w1"))
        decisions = world.settle(2)
        assert (len(heals(decisions)), evictions(decisions)) == (1, [])
        world.tick(3600)
    world.fail(*on(world, "w1"))
    world.settle(2)
    world.tick(3590)
    world.fail(*on(world, "w1"))
    assert len(evictions(world.settle(2))) == 1


def test_a_policy_can_switch_it_off() -> None:
    world = running(NodeWorld(*nodes(3), queue(100, recovery=Recovery(enabled=False))), plain("w1", 1))
    world.fail("n0")
    assert kinds(world.settle()) == ["Warn"]


def test_high_is_struck_while_low_is_pending_and_no_harm_is_done() -> None:
    world = running(NodeWorld(*pools(2), queue(64, recovery=QUICK)), slices("high2", priority=1))
    world.put(slices("low1"))
    world.settle(2)
    world.fail("p0-n1")
    decisions = world.settle(4)
    assert (of(decisions, Evict), of(decisions, Admit)) == (["high2"], []), "one pool is enough for neither"
    world.repair("p0-n1")
    world.tick(5)
    assert of(world.settle(7), Admit) == ["high2"], "low has waited for longer, and goes second"
    assert world.whole("high2")


# --- one after the other ----------------------------------------------------------------------------------------------


def test_a_loss_is_told_once() -> None:
    world = running(NodeWorld(*nodes(3), queue(100)), plain("w1", 1))
    world.fail("n0")
    (heal,) = heals(world.engine.decide(world.now + 1000))
    assert heals(world.engine.decide(world.now + 2000)) == []
    world.engine.observe(WriteFailed("team/w1"))
    assert len(heals(world.engine.decide(world.now + 3000))) == 1
    world.write(heal)
    world.restart()
    assert heals(world.settle()) == []
    assert world.whole("w1")


def test_a_restart_between_the_record_and_the_deed_tells_nobody_twice() -> None:
    world = running(NodeWorld(*nodes(3), queue(100)), plain("w1", 1))
    world.fail("n0")
    world.decide(lost=["team/w1"])
    world.change("w1", avoid=("n0",), replaced=((world.now, 1),), healed_at=world.now)  # the pods are still there
    world.restart()
    assert heals(world.settle(2)) == []


def test_the_same_node_can_fail_it_twice() -> None:
    world = running(NodeWorld(*nodes(1), queue(100, recovery=QUICK)), plain("w1", 1))
    world.change("w1", avoid=("n0",), healed_at=world.now)
    world.tick(10)
    world.fail("n0")
    assert of(world.decide(), Evict) == ["w1"]


def test_the_spare_fails_too() -> None:
    world = running(NodeWorld(*nodes(3), queue(100)), plain("w1", 1))
    world.fail("n0")
    world.decide()
    world.fail("n1")
    world.settle()
    assert on(world, "w1") == ["n2"]


def test_a_second_failure_while_the_set_starts_again() -> None:
    world = running(NodeWorld(*pools(4), queue(1000)), slices("w1"))
    world.fail("p0-n0")
    world.decide()  # all its pods are gone, none has come
    world.fail("p1-n0")
    world.settle()
    assert world.where("w1") == {"p2", "p3"}
    assert world.whole("w1")


def test_a_second_failure_while_victims_leave() -> None:
    world = running(NodeWorld(*nodes(4), queue(100)), plain("w1", 2, priority=5), plain("w2", 1), plain("w3", 1))
    world.fail(on(world, "w1")[0])
    assert len(of(world.decide(), Preempt)) == 1
    world.fail(on(world, "w1")[1])
    assert len(of(world.decide(), Preempt)) == 1
    (heal,) = heals(world.settle())
    assert len(heal.lost) == 2
    assert world.whole("w1")


def test_a_node_that_returns_half_way() -> None:
    world = running(NodeWorld(*nodes(2), queue(100, recovery=QUICK)), plain("w1", 1, priority=1), plain("w2", 1))
    world.fail("n0")
    assert of(world.decide(), Preempt) == ["w2"]
    world.repair("n0")  # its pods are still there
    decisions = world.settle(3)
    assert heals(decisions) == []
    world.tick(10)
    world.settle()
    assert world.running() == ["w1", "w2"]


def test_the_lost_pods_go_while_victims_leave() -> None:
    world = running(NodeWorld(*pools(2, 2), queue(100)), slices("w1", 1, 2, priority=1), plain("w2", 1))
    world.remove_node("p0-n0")
    assert of(world.decide(), Preempt) == ["w2"]
    world.collect_pods()
    world.complete_evictions()
    decisions = world.decide()
    assert [(heal.workload, heal.how) for heal in heals(decisions)] == [("team/w1", "Restart")], (
        "its room is still its own"
    )
    world.settle()
    assert world.where("w1") == {"p1"}
    assert (world.whole("w1"), world.whole("w2")) == (True, True)


def test_pods_that_have_to_move_keep_their_room_until_they_go() -> None:
    world = running(NodeWorld(*pools(3, 2), queue(100)), slices("w1", 2, 2, priority=1), plain("w2", 1, chips=1))
    assert (world.where("w1"), world.where("w2")) == ({"p0", "p1"}, {"p2"})
    world.remove_node("p0-n0")
    world.put(plain("w3", 1, chips=1))
    decisions = world.decide()
    assert (of(decisions, Preempt), of(decisions, Admit)) == (["w2"], []), "its pod still sits on p0-n1"
    world.collect_pods()
    assert heals(world.settle())[0].workload == "team/w1"
    assert world.where("w1") == {"p1", "p2"}
    assert (on(world, "w2"), on(world, "w3")) == (["p0-n1"], ["p0-n1"])


def test_who_just_made_room_for_another_is_not_given_up_as_well() -> None:
    world = running(NodeWorld(*nodes(5), queue(100)), plain("w1", 2, priority=1), plain("w2", 3))
    world.remove_node(on(world, "w1")[0])
    world.remove_node(on(world, "w2")[0])
    decisions = world.decide()
    assert (of(decisions, Preempt), of(decisions, Evict)) == (["w2"], [])


def test_a_node_returns_before_the_heal_could_be_written() -> None:
    world = running(NodeWorld(*nodes(2), queue(100, recovery=QUICK), follow_seats=True), plain("w1", 1))
    world.fail("n0")
    assert len(heals(world.decide(lost=["team/w1"]))) == 1
    world.engine.observe(WriteFailed("team/w1"))
    world.repair("n0")
    world.tick(10)
    assert heals(world.settle()) == []
    world.put(plain("w2", 1))
    world.settle()
    assert (on(world, "w1"), on(world, "w2")) == (["n0"], ["n1"]), "w1's pod never went away"


def test_nodes_went_while_the_operator_was_down() -> None:
    world = running(NodeWorld(*nodes(2), queue(100)), plain("w1", 1, priority=1), plain("w2", 1))
    world.remove_node("n0")
    world.collect_pods()
    world.change("w1", pods_were_ready=True)
    world.restart()
    decisions = world.settle()
    assert of(decisions, Preempt) == ["w2"]
    assert world.whole("w1")


def test_a_node_that_was_replaced_has_not_the_pods_of_the_first() -> None:
    world = running(NodeWorld(*nodes(2), queue(100)), plain("w1", 1))
    world.put(node("n0", uid="another"))
    (heal,) = heals(world.settle(3))
    assert (heal.lost, heal.cause) == (("n0",), "Replaced")
    assert world.whole("w1")


def test_pods_of_a_restart_that_linger_are_not_counted() -> None:
    world = running(NodeWorld(*pools(3), queue(1000)), slices("w1"))
    old = list(world.pods["team/w1"])
    world.fail("p0-n0")
    assert kinds(world.engine.decide(world.now + 1000)) == ["Warn", "Heal"]
    world.pods["team/w1"] = [replace(pod, terminating=True) for pod in old]
    world.tell("team/w1")
    assert world.engine.decide(world.now + 2000) == []
    capacity = world.engine._store.capacity
    holding = capacity._holdings["team/w1"]
    assert {value for _, value in holding.assigned.domains} == {"p1", "p2"}


# --- signals of other classes -----------------------------------------------------------------------------------------


def test_a_leaving_node_is_left_early_only_if_the_policy_says_so() -> None:
    for policy, moves in ((Recovery(), 0), (Recovery(proactive=True), 1)):
        world = running(NodeWorld(*nodes(2), queue(100, recovery=policy)), plain("w1", 1, priority=1))
        world.put(replace(world.nodes["n0"], unschedulable=True))
        assert len(heals(world.settle())) == moves
    world = running(NodeWorld(*nodes(2), queue(100, recovery=Recovery(proactive=True))), plain("w1", 1, priority=1))
    running(world, plain("w2", 1))
    world.put(replace(world.nodes["n0"], unschedulable=True))
    assert world.settle() == []  # no room but by preemption


VACATE = Taint("gangline.io/vacate")


def test_a_node_is_left_because_somebody_wants_that() -> None:
    """Whatever the policy says of leaving nodes; only with room on other nodes, once, and not by those who tolerate it."""
    world = running(NodeWorld(*nodes(2), queue(100)), plain("w1", 1))
    world.put(replace(world.nodes["n0"], taints=(VACATE,)))
    (heal,) = heals(world.settle())
    assert heal.message == "Leaves node n0 (Vacated): replacing the pods that ran there"
    assert (heal.lost, heal.how) == (("n0",), "Replace")
    assert world.settle() == []

    full = running(running(NodeWorld(*nodes(2), queue(100)), plain("w1", 1, priority=1)), plain("w2", 1))
    full.put(replace(full.nodes["n0"], taints=(VACATE,)))
    assert full.settle() == [], "nobody is preempted for it"
    full.put(node("n2"))
    assert [heal.lost for heal in heals(full.settle())] == [("n0",)]

    for policy, moves in ((Recovery(enabled=False), 0), (Recovery(swap_budget=0), 0), (Recovery(), 1)):
        kept = running(NodeWorld(*nodes(2), queue(100, recovery=policy)), plain("w1", 1))
        kept.put(replace(kept.nodes["n0"], taints=(VACATE,)))
        assert len(heals(kept.settle())) == moves, policy

    tolerates = (PodSet("main", 1, {TPU: 4}, tolerations=(Toleration(operator="Exists"),)),)
    stays = running(NodeWorld(*nodes(2), queue(100)), gang("w1", pod_sets=tolerates))
    stays.put(replace(stays.nodes["n0"], taints=(VACATE,)))
    assert stays.settle() == []


def test_a_vacated_node_gets_no_new_work_until_the_taint_is_gone() -> None:
    world = NodeWorld(replace(node("n0"), taints=(VACATE,)), queue(100))
    world.put(plain("w1", 1))
    assert of(world.decide(), Admit) == []
    world.put(node("n0"))
    assert of(world.decide(), Admit) == ["w1"]


def test_lost_devices_move_only_those_who_use_devices() -> None:
    groups = (group({"tpu": {TPU: 100, "cpu": 1000}}),)
    sick = replace(node("n0"), allocatable={TPU: 4, "cpu": 1000, "pods": 110})
    world = NodeWorld(sick, replace(sick, name="n1"), ClusterQueue("q", groups=groups))
    running(world, plain("w1", 1))
    world.put(gang("w2", pod_sets=(PodSet("main", 1, {"cpu": 100, TPU: 0}),)))
    world.decide()
    world._add("team/w2", "main", "n0")
    world.tell("team/w2")
    world.put(replace(sick, conditions={"GpuMemWatch": ("True", world.now - 60_000)}))
    assert [heal.workload for heal in heals(world.decide())] == ["team/w1"]


def test_a_taint_that_throws_pods_out() -> None:
    tolerant = PodSet("main", 1, {TPU: 2}, tolerations=(Toleration("broken", "Exists"),))
    world = running(NodeWorld(*nodes(3), queue(100)), plain("w1", 1, chips=2), gang("w2", pod_sets=(tolerant,)))
    assert on(world, "w1") == on(world, "w2") == ["n0"]
    world.put(replace(world.nodes["n0"], taints=(Taint("broken", effect="NoExecute"),)))
    (heal,) = heals(world.decide())
    assert (heal.workload, heal.cause) == ("team/w1", "Taint broken")


# --- the breaker ------------------------------------------------------------------------------------------------------


def test_a_mass_failure_moves_nobody() -> None:
    world = running(NodeWorld(*nodes(5), queue(100, recovery=QUICK)), plain("w1", 1), plain("w2", 1))
    world.fail("n0", "n1", "n2")
    decisions = world.settle(3)
    assert set(kinds(decisions)) == {"Warn"}
    (paused,) = [warning for warning in world.warnings if warning.kind == "ClusterQueue"]
    assert (paused.about, paused.reason) == ("q", "RecoveryPaused")
    assert paused.message == (
        "3 of 5 nodes of flavor tpu were lost within a minute: nothing is moved until no more than 50% of them are"
    )
    world.repair("n2")
    decisions = world.settle()
    assert [heal.workload for heal in heals(decisions)] == ["team/w1", "team/w2"]
    assert [w.reason for w in world.warnings if w.kind == "ClusterQueue"] == ["RecoveryPaused", "RecoveryResumed"]


def test_slow_losses_are_no_mass_failure() -> None:
    world = running(NodeWorld(*nodes(5), queue(100)), plain("w1", 1))
    for name in ("n4", "n3", "n0"):
        world.fail(name)
        world.settle(2)
        world.tick(61)
    assert not [warning for warning in world.warnings if warning.kind == "ClusterQueue"]
    assert world.whole("w1")


def test_a_shrinking_cluster_is_no_mass_failure() -> None:
    world = running(NodeWorld(*nodes(9), queue(100)), plain("w1", 3))
    for name in ("n5", "n6", "n7"):  # nobody was there: the cluster shrinks
        world.remove_node(name)
    assert world.decide() == []
    for name in ("n0", "n1", "n2"):
        world.remove_node(name)
    world.remove_node("n8")
    world.put(node("n8"))
    assert "RecoveryPaused" not in [d.reason for d in world.decide() if not isinstance(d, Heal | Swap | Admit)]


def test_deleted_nodes_with_pods_are_a_mass_failure() -> None:
    world = running(NodeWorld(*nodes(4), queue(100)), plain("w1", 3))
    for name in ("n0", "n1", "n2"):
        world.remove_node(name)
    assert "RecoveryPaused" in [d.reason for d in world.decide() if not isinstance(d, Heal | Swap | Admit)]
    world.collect_pods()
    world.tick(61)
    world.put(node("n4"), node("n5"))
    world.settle()
    assert world.whole("w1")


# --- topology flavors -------------------------------------------------------------------------------------------------

TAS = Flavor("tpu", node_labels=FLAVOR.node_labels, topology="default")
TOPOLOGY = Topology("default", ("pool", "kubernetes.io/hostname"))


def placed(name: str, pods: int, **fields: Any) -> Workload:
    request = TopologyRequest(required="pool")
    return gang(name, pod_sets=(PodSet("main", pods, {TPU: 4}, topology=request),), **fields)


def hosts(world: NodeWorld, name: str) -> set[str]:
    admission = world.workloads[f"team/{name}"].admission
    topology = admission.pod_sets[0].topology if admission else None
    return {domain.values[-1] for domain in topology.domains} if topology else set()


def tas_world(*items: Any) -> NodeWorld:
    return NodeWorld(TAS, TOPOLOGY, *items, cluster_queue("q", groups=(group({"tpu": {TPU: 100}}),), recovery=QUICK))


def test_a_placed_gang_moves_off_several_lost_nodes() -> None:
    world = tas_world(*pools(1, size=5))
    world.put(placed("w1", 3))
    world.decide()
    before = hosts(world, "w1")
    lost = sorted(before)[:2]
    world.fail(*lost)
    decisions = world.decide()
    assert kinds(decisions) == ["Warn", "Warn", "Swap", "Heal"]
    assert heals(decisions)[0].lost == tuple(lost)
    after = hosts(world, "w1")
    assert after >= before - set(lost)
    assert not after & set(lost)
    assert len(after) == 3
    assert heals(world.settle(2)) == []


def test_a_placed_gang_leaves_a_cordoned_node_with_a_lost_one() -> None:
    world = tas_world(*pools(1, size=5))
    world.put(placed("w1", 2))
    world.decide()
    first, second = sorted(hosts(world, "w1"))
    world.put(replace(world.nodes[second], unschedulable=True))
    assert world.decide() == []
    world.fail(first)
    (heal,) = heals(world.decide())
    assert (heal.lost, heal.cause) == ((first, second), "Unreachable")
    assert not hosts(world, "w1") & {first, second}


def test_a_placed_gang_preempts_to_heal() -> None:
    world = tas_world(*pools(1, size=3))
    world.put(placed("w1", 2, priority=1))
    world.decide()
    world.put(placed("w2", 1))
    world.decide()
    (failed, *_) = sorted(hosts(world, "w1"))
    freed = hosts(world, "w2")
    world.fail(failed)
    assert of(world.decide(), Preempt) == ["w2"]
    world.put(placed("w3", 1, priority=9, queue="q"))
    world.complete_evictions()
    decisions = world.decide()
    assert [heal.workload for heal in heals(decisions)] == ["team/w1"]
    assert hosts(world, "w1") >= freed


def test_a_placed_gang_gives_up_when_nothing_helps() -> None:
    world = tas_world(*pools(1, size=2))
    world.put(placed("w1", 2))
    world.decide()
    world.fail("p0-n0")
    assert of(world.decide(), Evict) == ["w1"]
