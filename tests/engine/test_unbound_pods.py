"""Pods that the scheduler can't bind to the node that they were sent to: other nodes for them, or the quota back."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from tests.builders.engine import of
from tests.engine.node_world import NodeWorld, heals, kinds, node, plain, queue

from gangline.engine.model import Admit, BoundPod, Decision, Evict, ForeignPod, Heal, Recovery
from gangline.engine.recovery.losses import FIRST_PAUSE, LONGEST_PAUSE, TOLERATED, pause

WHY = "0/2 nodes are available: 1 Insufficient google.com/tpu"


def world(*, nodes: int = 2, pods: int = 2, recovery: Recovery | None = None, **fields: Any) -> NodeWorld:
    """`w1` has pods of 2 chips, of which a node takes two: the first is bound to n0, the others were sent and are refused."""
    found = NodeWorld(*(node(f"n{number}") for number in range(nodes)), queue(1000, recovery=recovery))
    found.put(plain("w1", pods, chips=2, **fields))
    assert of(found.decide(), Admit) == ["w1"]
    refuse(found)
    return found


def refuse(world: NodeWorld, name: str = "w1", why: str = WHY) -> None:
    """Its pods are where the engine has room for them: one is bound, the others can't be."""
    key, places = f"team/{name}", world.engine.places_of(f"team/{name}")
    assert places is not None
    at = [where for where, count in sorted(places["main"].items()) for _ in range(count)]
    first, *rest = at
    world.pods[key] = [BoundPod("bound", "main", first, ready=True)]
    world.pods[key] += [
        BoundPod(f"sent-{number}", "main", where, sent=True, refused=why) for number, where in enumerate(rest)
    ]
    world.tell(key)


def later(world: NodeWorld, seconds: float = TOLERATED / 1000) -> list[Decision]:
    before = world.decide()
    world.tick(seconds)
    return [*before, *world.decide()]


def test_a_pod_that_can_not_be_bound_gets_another_node_after_a_while_and_the_bound_one_stays() -> None:
    it = world()
    assert it.decide() == []
    due = it.engine.next_wakeup(it.now)
    assert due is not None and due <= it.now + TOLERATED
    [heal] = heals(later(it))
    assert (heal.how, heal.lost, heal.cause, heal.bound_stay) == ("Replace", ("n0",), "Unschedulable", True)
    assert it.engine.places_of("team/w1") == {"main": {"n0": 1, "n1": 1}}
    assert [pod.name for pod in it.pods["team/w1"]] == ["bound"]
    assert later(it) == []


def test_a_refusal_that_ends_is_nothing() -> None:
    it = world()
    it.decide()
    it.tick(TOLERATED / 1000 - 5)
    pods = it.pods["team/w1"]
    it.pods["team/w1"] = [replace(pod, refused="") for pod in pods]
    it.tell("team/w1")
    it.decide()
    it.pods["team/w1"] = pods
    it.tell("team/w1")
    it.decide()
    it.tick(10)
    assert it.decide() == [], "the time begins anew"


def test_without_other_room_the_gang_gives_its_quota_back_and_keeps_its_place() -> None:
    it = world(nodes=1)
    it.put(plain("w2", 1, chips=2))
    assert of(it.decide(), Admit) == []
    [evict] = (each for each in later(it) if isinstance(each, Evict))
    assert (evict.reason, evict.avoid, evict.requeue_count) == ("NodeFailures", ("n0",), 1)
    assert evict.message == f"Evicted because pod sent-0 can't be bound to node n0, where room is kept for it: {WHY}"
    assert evict.requeue_at is not None and evict.requeue_at - it.now == FIRST_PAUSE
    assert it.workloads["team/w1"].created < it.workloads["team/w2"].created
    it.complete_evictions()
    assert of(it.decide(), Admit) == ["w2"], "it does not take the room again at once"


def test_it_is_not_tried_again_and_again() -> None:
    assert [pause(count) for count in (1, 2, 3)] == [FIRST_PAUSE, 2 * FIRST_PAUSE, 4 * FIRST_PAUSE]
    assert pause(20) == pause(10**9) == LONGEST_PAUSE


def test_room_that_pods_of_others_took_is_known_to_the_next_decision() -> None:
    """The gang comes back when there is room, and not before."""
    it = world(nodes=1)
    it.put(ForeignPod("kube-system/x", "n0", {"google.com/tpu": 2}))
    [evict] = (each for each in later(it) if isinstance(each, Evict))
    it.complete_evictions()
    it.tick(1000)
    assert of(it.decide(), Admit) == []
    assert evict.requeue_at is not None and evict.requeue_at < it.now


def test_a_gang_that_starts_as_a_whole_starts_again_elsewhere() -> None:
    it = world(restarts_whole=True)
    [heal] = heals(later(it))
    assert (heal.how, heal.lost) == ("Restart", ("n0",))


def test_nobody_is_preempted_for_a_pod_that_can_not_be_bound() -> None:
    it = world(nodes=1, pods=1, priority=5)
    it.put(plain("w2", 1, chips=2))
    it.decide()
    it.pods["team/w1"] = [BoundPod("sent", "main", "n0", sent=True, refused=WHY)]
    it.tell("team/w1")
    assert kinds(later(it)) == ["Evict"]


@pytest.mark.parametrize(
    ("recovery", "fields", "decided"),
    [
        (Recovery(enabled=False), {}, ["Evict"]),
        (Recovery(swap_budget=0), {}, ["Evict"]),
        (None, {"unowned": True}, []),
        (None, {"lone_pod": True}, []),  # it ends with its pod: there is nothing to queue again
    ],
)
def test_who_is_moved(recovery: Recovery | None, fields: dict[str, Any], decided: list[str]) -> None:
    assert kinds(later(world(recovery=recovery, **fields))) == decided


def test_a_node_that_refused_a_pod_may_be_lost_all_the_same() -> None:
    it = world(nodes=3)
    assert heals(later(it))
    it.bind()
    it.decide()
    it.fail("n0")
    [heal] = heals(later(it, 120))
    assert heal.lost == ("n0",) and not heal.bound_stay


def test_another_process_does_not_move_it_again() -> None:
    """The decision is recorded with the workload, and the refused pod is about to go."""
    it = world()
    it.decide()
    it.tick(TOLERATED / 1000)
    pods = list(it.pods["team/w1"])
    [heal] = heals(it.decide())
    it.pods["team/w1"] = pods
    it.restart()
    assert isinstance(heal, Heal) and it.workloads["team/w1"].avoid == ("n0",)
    it.decide()
    assert it.engine.places_of("team/w1") == {"main": {"n0": 1, "n1": 1}}


# --- pods that users send ---------------------------------------------------------------------------------------------


def send(it: NodeWorld, name: str, where: str, pods: int = 1) -> None:
    """Its pods may be bound to this node alone, whoever said so."""
    it.pods[f"team/{name}"] = [BoundPod(f"{name}-{number}", "main", where, sent=True) for number in range(pods)]
    it.tell(f"team/{name}")


def test_a_pod_that_names_a_node_takes_no_room_there_that_is_kept_for_others() -> None:
    it = NodeWorld(node("n0"), node("n1"), queue(1000))
    it.put(plain("w1", 1), plain("w2", 1))
    it.decide()
    assert it.engine.places_of("team/w1") == {"main": {"n0": 1}}
    send(it, "w2", "n0")
    it.decide()
    assert it.engine.places_of("team/w1") == {"main": {"n0": 1}}
    assert it.engine.places_of("team/w2") == {"main": {"n1": 1}}


def test_a_new_process_takes_pods_to_be_where_they_were_sent() -> None:
    it = NodeWorld(*(node(f"n{number}") for number in range(3)), queue(1000))
    it.put(plain("w1", 1))
    it.decide()
    send(it, "w1", "n2")
    it.restart()
    it.decide()
    assert it.engine.places_of("team/w1") == {"main": {"n2": 1}}


def test_a_node_that_does_not_exist_is_not_lost_because_a_pod_names_it() -> None:
    it = world()
    send(it, "w1", "nowhere", 2)
    assert kinds(later(it, 300)) == []
    assert not it.warnings
