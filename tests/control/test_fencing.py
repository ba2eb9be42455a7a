"""Pods that can't end: left behind, or deleted by force only where they can't be running."""

from __future__ import annotations

from typing import Any

import pytest
from tests.builders.objects import Json, T, a_node, a_pod
from tests.builders.parts import PartWorld
from tests.objects import PodObject

from gangline.api import names
from gangline.control.feed import pod as pods
from gangline.control.feed.pod import read_pod
from gangline.control.nodes.recovery import fencing
from gangline.control.nodes.recovery.fencing import Fencing, started_pods
from gangline.control.nodes.recovery.swap_rules import are_in_the_way
from gangline.engine import model
from gangline.kube import resources as kube

OLD = T - 60_000


class FencingWorld(PartWorld):
    """Nodes and pods, of whose gangs all have one recovery policy."""

    def __init__(self, *nodes: Json, pods: tuple[PodObject, ...], **policy: Any) -> None:
        super().__init__()
        self.policy: model.Recovery | None = model.Recovery(**policy)
        self.fencing = Fencing(self.context(), lambda workload: self.policy)
        self.put(kube.NODES, *nodes)
        self.put(kube.PODS, *pods)

    def act(self, now: int = T) -> list[tuple[str, str, Any]]:
        self.fencing.act(now)
        return self.writer.take()


def going(name: str = "p", node: str = "n1", **more: Any) -> PodObject:
    return a_pod(name, node, due=OLD, **more)


def test_a_pod_that_cannot_be_ended_is_left_behind_not_deleted() -> None:
    world = FencingWorld(a_node("n1", ready="Unknown"), pods=(going(), a_pod("stays")))
    [(verb, name, body)] = world.act()
    assert (verb, name) == ("patch", "p")
    meta = body["metadata"]
    assert (meta["uid"], meta["ownerReferences"], meta["finalizers"]) == ("uid-p", None, None)
    assert meta["annotations"] == {
        "kueue.x-k8s.io/workload": None,
        "kueue.x-k8s.io/workload-slice-name": None,
        "alpha.jobset.sigs.k8s.io/exclusive-topology": None,
        "gangline.io/left-behind": "ns/w",
    }
    assert meta["labels"]["jobset.sigs.k8s.io/job-key"] is None
    assert world.recorder.said == [], "there is no Workload to say it of"


def test_other_finalizers_are_somebody_elses() -> None:
    pod = going()
    pod["metadata"]["finalizers"].append("example.com/mine")
    [(_, _, body)] = FencingWorld(a_node("n1", ready="False"), pods=(pod,)).act()
    assert body["metadata"]["finalizers"] == ["example.com/mine"]


@pytest.mark.parametrize(
    "node",
    [
        None,
        a_node("n1", taint="node.kubernetes.io/out-of-service"),
        a_node("n1", ready="Unknown", taint=fencing.OUT_OF_SERVICE),
    ],
)
def test_where_it_cannot_be_running_it_is_deleted_by_force(node: Json | None) -> None:
    world = FencingWorld(*([node] if node else []), pods=(going(),))
    assert world.act() == [("delete", "p", {"uid": "uid-p", "grace_seconds": 0})]


def test_consent_is_needed_on_a_node_that_is_only_out_of_reach_and_grace_is_kept() -> None:
    world = FencingWorld(a_node("n1", ready="Unknown"), pods=(a_pod("p", due=T + 10_000),), force_delete=True)
    assert world.act() == []
    assert world.fencing.due == T + 10_000 + fencing.EXTRA_GRACE
    assert world.act(T + 13_000) == [("delete", "p", {"uid": "uid-p", "grace_seconds": 0})]


def test_nothing_is_done_to_pods_that_were_not_told_to_go_or_have_ended() -> None:
    pods = (a_pod("runs"), going("ended", phase="Failed"))
    assert FencingWorld(a_node("n1", ready="Unknown"), pods=pods).act() == []


def test_a_node_that_answers_ends_its_pods_itself() -> None:
    world = FencingWorld(a_node("n1"), pods=(going(),))
    assert world.act() == []
    assert world.fencing.due is None


def test_a_node_gets_a_moment_to_come_back() -> None:
    world = FencingWorld(a_node("n1", ready="False", since=T - 1000), pods=(going(),))
    assert world.act() == []
    assert world.fencing.due == T - 1000 + fencing.PATIENCE
    assert len(world.act(T + 1000)) == 1
    world.mirror.upsert(kube.NODES, a_node("n1"))
    assert world.act(T + 2000) == []


def test_a_pod_with_a_write_under_way_is_asked_for_again_later() -> None:
    world = FencingWorld(a_node("n1", ready="Unknown"), pods=(going(),))
    world.writer.busy.add(kube.ObjectKey(kube.PODS, "ns", "p"))
    assert world.act() == []
    assert world.fencing.due == T + fencing.RETRY


def test_a_policy_may_leave_all_that_to_kubernetes() -> None:
    assert FencingWorld(a_node("n1", ready="Unknown"), pods=(going(),), enabled=False).act() == []
    world = FencingWorld(a_node("n1", ready="Unknown"), pods=(going(),))
    world.policy = None
    assert world.act() == []


def test_a_node_fails_while_its_pod_is_going() -> None:
    world = FencingWorld(a_node("n1"), pods=(going(),))
    assert world.act() == []
    world.mirror.upsert(kube.NODES, a_node("n1", ready="Unknown", since=T))
    assert world.act(T + 5000) != []
    world.mirror.remove(kube.NODES, "n1")
    assert [verb for verb, _, _ in world.act(T + 6000)] == ["delete"]


def test_pods_linger_while_they_run_on_a_node_that_answers() -> None:
    nodes = {"n1": a_node("n1"), "silent": a_node("silent", ready="Unknown")}

    def lingers(pod: Json, owner: str = "j") -> bool:
        pod["metadata"]["ownerReferences"] = [{"kind": "Job", "name": owner, "uid": "u", "controller": True}]
        found = pods.read_pod(pod, "ns/w")
        return fencing.lingering([found], {"j"}, nodes.get)

    assert lingers(going())
    assert not lingers(going(phase="Failed"))
    assert not lingers(going(node="silent")), "it may be left behind"
    assert not lingers(going(node="gone"))
    assert not lingers(going(), owner="forged"), "it belongs to somebody else"
    assert lingers(a_pod("p", "", phase="Pending")), "it may be bound before its Job has it deleted"
    assert not lingers(a_pod("p", "", phase="Pending", due=T)), "it is not bound any more"
    gated = a_pod("p", "", phase="Pending")
    gated["spec"]["schedulingGates"] = [{"name": "a-gate"}]
    assert not lingers(gated), "it is not bound yet"


def owned(name: str, kind: str, **meta: Any) -> PodObject:
    """A pod that cannot end, of a controller of this kind."""
    pod = going(name)
    owner = {"apiVersion": "x/v1", "kind": kind, "name": "c", "uid": "u", "controller": True}
    pod["metadata"] |= {"ownerReferences": [owner], **meta}
    return pod


@pytest.mark.parametrize(
    ("pod", "label"),
    [
        (owned("p", "RayCluster", generateName="c-worker-"), "ray.io/cluster"),
        (owned("p", "Pod"), "sparkoperator.k8s.io/app-name"),
        (owned("p", "Job", generateName="c-"), "job-name"),
        (owned("p", "Workflow", labels={"kueue.x-k8s.io/managed": "true"}), "job-name"),  # queued itself, in its group
    ],
)
def test_a_pod_whose_successor_has_another_name_is_left_behind_without_the_labels_of_its_kind(
    pod: Json, label: str
) -> None:
    [(verb, _, body)] = FencingWorld(a_node("n1", ready="Unknown"), pods=(pod,)).act()
    assert verb == "patch"
    assert body["metadata"]["labels"][label] is None


@pytest.mark.parametrize("kind", ["PyTorchJob", "MPIJob", "SparkApplication", "StatefulSet"])
def test_for_a_pod_whose_successor_needs_its_name_the_gang_waits_and_says_so_once(kind: str) -> None:
    pod = owned("c-worker-0", kind, **({"generateName": "c-worker-"} if kind == "StatefulSet" else {}))
    world = FencingWorld(a_node("n1", ready="Unknown"), pods=(pod,))
    world.mirror.upsert(
        kube.WORKLOADS,
        {"metadata": {"name": "w", "namespace": "ns", "uid": "uw", "resourceVersion": "1"}, "spec": {}, "status": {}},
    )
    assert world.act() == []
    assert world.act(T + 5000) == []
    [(reason, note)] = world.recorder.said
    assert reason == "PodKeepsItsName"
    assert note.startswith("The gang waits: pod ns/c-worker-0 can't terminate on unreachable node n1")
    assert are_in_the_way(world.pods.of("ns/w"))
    # until it may be deleted by force
    world.policy = model.Recovery(force_delete=True)
    assert [verb for verb, *_ in world.act(T + 6000)] == ["delete"]
    world.policy = model.Recovery()
    world.mirror.upsert(kube.NODES, a_node("n1", ready="Unknown", taint=fencing.OUT_OF_SERVICE))
    assert [verb for verb, *_ in world.act(T + 7000)] == ["delete"]


def test_only_pods_that_end_are_in_the_way_of_the_next_attempt() -> None:
    def in_the_way(pod: Json) -> bool:
        return are_in_the_way([read_pod(pod, "ns/w")])

    running = owned("p", "PyTorchJob")
    del running["metadata"]["deletionTimestamp"]
    ended = owned("p", "PyTorchJob")
    ended["status"]["phase"] = "Failed"
    assert [in_the_way(each) for each in (owned("p", "PyTorchJob"), running, ended)] == [True, False, False]
    assert not in_the_way(owned("p", "Job", generateName="c-"))


def test_pods_of_elastic_jobs_hold_quota_once_they_have_passed_their_gate() -> None:
    """The scheduler may bind them at any time, whatever size their job has then."""
    bound, unbound, gated = a_pod("a"), a_pod("b", ""), a_pod("c", "")
    leaving, ended = a_pod("d", "", due=T), a_pod("e", phase="Succeeded")
    gated["spec"]["schedulingGates"] = [{"name": names.ELASTIC_GATE}]
    gang = [read_pod(each, "ns/w") for each in (bound, unbound, gated, leaving, ended)]
    assert started_pods(gang, a_node, lambda pod: False) == {"main": 2}
    assert started_pods(gang, a_node, lambda pod: pod.name == "c") == {"main": 3}
    assert started_pods(gang, lambda node: None, lambda pod: False) == {"main": 1}, "its node is gone"
