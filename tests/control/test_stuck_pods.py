"""Kueue's failure recovery: pods that may be deleted by force, on nodes that do not answer."""

from __future__ import annotations

from typing import Any

import pytest
from tests.builders.objects import Json, T, a_node, a_pod
from tests.builders.parts import PartWorld
from tests.objects import NodeObject, PodObject

from gangline.control.nodes.recovery.stuck_pods import PATIENCE, StuckPods
from gangline.kube import resources as kube
from gangline.kube.errors import ApiError, Conflict
from gangline.kube.reflector import Removed, Upsert
from gangline.kube.resources import ObjectKey

UNREACHABLE = "node.kubernetes.io/unreachable"
DUE = T - PATIENCE


def stuck(due: int = DUE, *, annotation: str = "true", version: str = "1", **more: Any) -> PodObject:
    pod = a_pod("p", due=due, **more)
    pod["metadata"]["annotations"]["kueue.x-k8s.io/safe-to-forcefully-delete"] = annotation
    pod["metadata"]["deletionGracePeriodSeconds"] = 30
    pod["metadata"]["resourceVersion"] = version
    return pod


class StuckPodWorld(PartWorld):
    """A pod that is to go, and its node."""

    def __init__(self, pod: PodObject, node: NodeObject | None) -> None:
        super().__init__(*([(kube.NODES, node)] if node is not None else []))
        self.part = StuckPods(self.context())
        self.part.observe(kube.PODS, Upsert(pod))

    def act(self, now: int = T) -> list[tuple[str, str, Any]]:
        self.part.act(now)
        return self.writer.take()


def gone_node() -> NodeObject:
    return a_node("n1", ready="Unknown", taint=UNREACHABLE)


def refused(kind: type[ApiError]) -> ApiError:
    return kind(409, "Conflict", "changed meanwhile")


@pytest.mark.parametrize("workload", ["w", ""], ids=["of a gang", "of nobody"])
def test_it_has_failed_and_then_it_is_deleted(workload: str) -> None:
    world = StuckPodWorld(stuck(workload=workload), gone_node())
    world.part.act(T)
    [write] = world.writer.writes
    assert write.patch == "strategic"
    [(verb, _, body)] = world.writer.take()
    assert (verb, body["metadata"]) == ("status", {"uid": "uid-p", "resourceVersion": "1"})
    status = body["status"]
    assert status["phase"] == "Failed"
    [row] = status["conditions"]
    assert (row["type"], row["status"], row["reason"]) == ("KueueFailureRecovery", "True", "KueueForcefullyDeleted")
    assert row["message"] == (
        "Pod forcefully terminated after 1m30s grace period due to unreachable node `n1` "
        "(triggered by `kueue.x-k8s.io/safe-to-forcefully-delete` annotation)"
    )
    assert world.recorder.said == [], "nothing has happened yet"
    assert write.on_done is not None
    write.on_done({})
    assert world.recorder.said == [("KueueForcefullyDeleted", row["message"])]
    assert world.act() == [("delete", "p", {"uid": "uid-p", "grace_seconds": 0})]
    assert world.act(T + 1) == [], "once"


@pytest.mark.parametrize(
    ("pod", "node"),
    [
        (stuck(annotation="false"), gone_node()),
        (stuck(due=0), gone_node()),
        (stuck(due=DUE + 1000), gone_node()),
        (stuck(), a_node("n1", ready="Unknown")),
        (stuck(), a_node("n1", taint="node.kubernetes.io/not-ready")),
        (stuck(), None),
    ],
    ids=["not allowed", "not being deleted", "within the minute", "no taint", "another taint", "the node is deleted"],
)
def test_it_is_left_alone(pod: Json, node: Json | None) -> None:
    assert StuckPodWorld(pod, node).act() == []


def test_it_ends_when_the_minute_is_over() -> None:
    world = StuckPodWorld(stuck(due=T), gone_node())
    assert world.act() == []
    assert world.part.due == T + PATIENCE
    assert [verb for verb, _, _ in world.act(T + PATIENCE)] == ["status"]


def test_it_ends_when_its_node_becomes_unreachable() -> None:
    world = StuckPodWorld(stuck(), a_node("n1"))
    assert world.act() == []
    world.mirror.upsert(kube.NODES, gone_node())
    assert [verb for verb, _, _ in world.act()] == ["status"]


def test_a_pod_that_ended_keeps_its_phase() -> None:
    [(_, _, body)] = StuckPodWorld(stuck(phase="Succeeded"), gone_node()).act()
    assert "phase" not in body["status"]


def test_a_successor_deletes_what_was_reported_as_failed_and_only_once() -> None:
    pod = stuck(phase="Failed")
    pod["status"]["conditions"].append({"type": "KueueFailureRecovery", "status": "True"})
    world = StuckPodWorld(pod, gone_node())
    assert [verb for verb, _, _ in world.act()] == ["delete"]
    pod["metadata"]["deletionGracePeriodSeconds"] = 0
    assert StuckPodWorld(pod, gone_node()).act() == [], "what is left of it belongs to its finalizers"


def test_with_a_newer_version_it_is_looked_at_again() -> None:
    world = StuckPodWorld(stuck(), gone_node())
    world.part.act(T)
    [write] = world.writer.writes
    world.writer.take()
    world.part.observe(kube.PODS, Upsert(stuck(version="2")))
    assert world.act() == [], "one write at a time"
    assert write.on_error is not None
    write.on_error(refused(Conflict))
    assert world.woken == 1
    [(verb, _, body)] = world.act()
    assert (verb, body["metadata"]["resourceVersion"]) == ("status", "2")


def test_after_a_conflict_it_waits_for_the_watch() -> None:
    world = StuckPodWorld(stuck(), gone_node())
    world.part.act(T)
    [write] = world.writer.writes
    world.writer.take()
    assert write.on_error is not None
    write.on_error(refused(Conflict))
    assert world.act() == []
    world.part.observe(kube.PODS, Upsert(stuck(annotation="no", version="2")))
    assert world.act() == [], "its owner has changed their mind"


def test_what_is_gone_is_forgotten() -> None:
    world = StuckPodWorld(stuck(due=T), gone_node())
    world.act()
    world.part.observe(kube.PODS, Removed("ns/p", "uid-p"))
    assert world.act(T + PATIENCE) == []
    assert world.part.due is None


def test_while_the_gang_lets_go_of_it_nothing_is_done_twice() -> None:
    world = StuckPodWorld(stuck(), gone_node())
    world.writer.busy.add(ObjectKey.parse(kube.PODS, "ns/p"))
    assert world.act() == []
    world.writer.busy.clear()
    assert world.part.due is not None
    assert [verb for verb, _, _ in world.act(world.part.due)] == ["status"]
