"""Nodes that failed a placed gang, as Kueue lists them; and pods that wait for such a node in vain."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from tests.builders.objects import HOST, Json, T, a_node, a_pod, a_workload
from tests.builders.parts import PartWorld, Recorder
from tests.context import a_context
from tests.objects import PodObject

from gangline.control.feed.pod_index import PodIndex
from gangline.control.nodes.gates.pod_gates import PodGates
from gangline.control.nodes.recovery.failed_hosts import NOT_READY, Found, Rules, done_on, failed_hosts, keeps_away
from gangline.control.nodes.recovery.stray_pods import StrayPods, awaited_host
from gangline.control.nodes.recovery.unhealthy_nodes import UnhealthyNodes, in_order, listed
from gangline.engine import model
from gangline.kube import resources as kube

#: the gates at their defaults
USUAL = Rules()
UNCONSTRAINED = "kueue.x-k8s.io/podset-unconstrained-topology"


def gang(*hosts: str, **changes: Any) -> model.Workload:
    domains = tuple(model.Domain((host,), 1) for host in hosts)
    topology = model.TopologyAssignment((HOST,), domains)
    assignment = model.PodSetAssignment("main", len(hosts), {}, {}, topology=topology)
    admission = model.Admission("cq", (assignment,))
    return replace(model.Workload("u", "ns", "w", "lq", (), admission=admission, admitted=True), **changes)


def found(
    workload: model.Workload, *busy: str, rules: Rules = USUAL, tolerations: tuple[Json, ...] = (), **nodes: Json
) -> Found:
    return failed_hosts(
        workload, busy=busy, node_of=nodes.get, tolerations=lambda pod_set: tolerations, rules=rules, now=T
    )


def failed(workload: model.Workload, *busy: str, **more: Any) -> tuple[str, ...]:
    return found(workload, *busy, **more).failed


# --- the rules --------------------------------------------------------------------------------------------------------


def test_a_node_that_is_gone_or_says_nothing_counts_at_once() -> None:
    assert failed(gang("n1", "n2"), "n1", "n2", n1=a_node("n1")) == ("n2",)
    silent = a_node("n1")
    silent["status"] = {}
    assert failed(gang("n1"), "n1", n1=silent) == ("n1",)


@pytest.mark.parametrize(
    "node", [a_node("n1", ready="False"), a_node("n1", ready="Unknown"), a_node("n1", taint="maintenance")]
)
def test_one_in_trouble_counts_when_its_pods_are_going(node: Json) -> None:
    assert found(gang("n1"), "n1", n1=node) == Found((), troubled=True)
    assert found(gang("n1"), n1=node) == Found(("n1",), troubled=True)
    assert found(gang("n1"), n1=a_node("n1")) == Found()


def test_tolerations_are_regarded() -> None:
    node = a_node("n1", taint="maintenance")
    for_ever: Json = {"key": "maintenance", "operator": "Exists"}
    for_a_while = {**for_ever, "tolerationSeconds": 30}
    assert failed(gang("n1"), n1=node, tolerations=(for_ever,)) == ()
    assert failed(gang("n1"), n1=node, tolerations=(for_a_while,)) == ("n1",)
    assert failed(gang("n1"), "n1", n1=node, tolerations=(for_a_while,)) == ()
    assert failed(gang("n1"), n1=node, tolerations=({"key": "maintenance", "value": "no"},)) == ("n1",)
    assert failed(gang("n1"), n1=node, tolerations=({"operator": "Exists"},)) == ()
    node["spec"]["taints"][0]["effect"] = "PreferNoSchedule"
    assert failed(gang("n1"), n1=node) == ()
    assert not keeps_away(node, [()])


def test_gates_of_kueue() -> None:
    down, tainted = a_node("n1", ready="False", since=T - NOT_READY), a_node("n1", taint="maintenance")
    young = a_node("n1", ready="False", since=T - NOT_READY + 1_000)
    waits = Rules(on_termination=False)
    assert found(gang("n1"), "n1", rules=waits, n1=down).failed == ("n1",)
    assert found(gang("n1"), rules=waits, n1=young) == Found((), troubled=True, due=T + 1_000)
    assert failed(gang("n1"), "n1", rules=waits, n1=tainted) == ("n1",)
    assert failed(gang("n1"), rules=Rules(on_taints=False), n1=tainted) == ()
    assert failed(gang("n1"), "n1", rules=Rules(by_time=True), n1=down) == ("n1",)
    assert found(gang("n1"), "n1", rules=Rules(by_time=True), n1=young) == Found((), troubled=True, due=T + 1_000)
    assert failed(gang("n1", lone_pod=True), n1=down) == ()
    assert failed(gang("n1", lone_pod=True), n1=down, rules=Rules(lone_pods_stay=False)) == ("n1",)


def test_only_gangs_that_run_are_concerned() -> None:
    for change in ({"admitted": False}, {"evicted": "Preempted"}, {"finished": True}):
        assert failed(gang("n1", **change)) == ()


def test_placements_above_the_host_are_not_concerned() -> None:
    workload = gang("n1")
    assert workload.admission is not None
    racks = model.TopologyAssignment(("rack",), (model.Domain(("n1",), 1),))
    assignment = replace(workload.admission.pod_sets[0], topology=racks)
    assert failed(replace(workload, admission=model.Admission("cq", (assignment,)))) == ()


def test_the_list_keeps_its_order_and_has_at_most_eight() -> None:
    assert in_order(("b", "gone"), ("a", "b")) == ("b", "a")
    assert len(in_order(("a",), (f"n{i}" for i in range(9)))) == 8
    status: Json = {"admission": {"clusterQueue": "cq"}}
    listed(("a",), {"clusterQueue": "cq"})(status, T)
    assert status["unhealthyNodes"] == [{"name": "a"}]
    listed(("b",), {"clusterQueue": "another"})(status, T)
    assert status["unhealthyNodes"] == [{"name": "a"}], "it has other places meanwhile"
    listed((), {"clusterQueue": "cq"})(status, T)
    assert "unhealthyNodes" not in status


# --- the parts --------------------------------------------------------------------------------------------------------


class UnhealthyWorld(PartWorld):
    """Nodes, the list of those that are unhealthy for a gang, and the pods that it left there."""

    def __init__(self, *nodes: Json, **gates: bool) -> None:
        super().__init__(owned=True)
        self.part = UnhealthyNodes(self.context(gates=gates))
        self.strays = StrayPods(self.context())
        self.put(kube.NODES, *nodes)
        self.part.lead()

    def written(self, now: int = T) -> list[list[str] | None]:
        """What the list becomes, by each write."""
        self.part.act(now)
        found: list[list[str] | None] = []
        for _, slot, change in self.writes.changes:
            assert slot == "unhealthy"
            raw = self.mirror.get(kube.WORKLOADS, "ns/w")
            assert raw is not None
            status = {"admission": raw["status"]["admission"]}
            change(status, now)
            found.append([row["name"] for row in status["unhealthyNodes"]] if "unhealthyNodes" in status else None)
        self.writes.changes.clear()
        return found

    def failed(self) -> list[str]:
        """The pods that are reported as failed."""
        self.strays.act(T)
        return [name for _, name, body in self.writer.take() if body["status"]["phase"] == "Failed"]


def test_a_node_is_listed_while_it_is_failed() -> None:
    world = UnhealthyWorld(a_node("n1"), a_node("n2"))
    world.put(kube.WORKLOADS, a_workload("n1", "n2"))
    assert world.written() == []
    world.mirror.upsert(kube.NODES, a_node("n1", ready="False"))
    assert world.written() == [["n1"]]
    world.put(kube.WORKLOADS, a_workload("n1", "n2", version=2, unhealthy=("n1",)))
    assert world.written() == [], "it is on the list"
    world.mirror.upsert(kube.NODES, a_node("n1"))
    assert world.written() == [None], "it has recovered"


def test_a_node_that_reappears_is_taken_off_the_list() -> None:
    world = UnhealthyWorld(a_node("n1"))
    world.put(kube.WORKLOADS, a_workload("n1"))
    world.part.act(T)
    world.mirror.remove(kube.NODES, "n1")
    assert world.written() == [["n1"]]
    world.put(kube.WORKLOADS, a_workload("n1", version=2, unhealthy=("n1",)))
    world.mirror.upsert(kube.NODES, a_node("n1", uid="another"))
    assert world.written() == [None]


def test_a_deleted_node_is_known_by_its_host_name() -> None:
    node = a_node("i-0123")
    node["metadata"]["labels"] = {HOST: "n1"}
    world = UnhealthyWorld(node)
    world.put(kube.WORKLOADS, a_workload("n1"))
    assert world.written() == []
    world.mirror.remove(kube.NODES, "i-0123")
    assert world.written() == [["n1"]]


def test_pods_of_nobody_count_where_the_workload_has_no_owner() -> None:
    world = UnhealthyWorld(a_node("n1", ready="False"))
    world.put(kube.WORKLOADS, a_workload("n1"))
    world.pods.upsert(a_pod("p", "n1"))
    assert world.written() == []
    world.pods.upsert(a_pod("p", "n1", due=T))
    assert world.written() == [["n1"]]


def test_pods_that_prove_nothing_keep_no_node_of_a_job() -> None:
    world = UnhealthyWorld(a_node("n1", ready="False"))
    world.put(kube.WORKLOADS, a_workload("n1", owner="train"))
    world.pods.upsert(a_pod("p", "n1"))
    assert world.written() == [["n1"]]


def test_a_node_where_all_its_pods_ended_well_loses_a_job_nothing() -> None:
    value = gang("n1", "n1", "n2").admission
    assert done_on(value, ["n1", "n2"]) == {"n2"}, "two of them had a place on n1"
    assert done_on(value, ["n1", "n1"]) == {"n1"}
    world = UnhealthyWorld(a_node("n1", taint="maintenance"))
    world.put(kube.WORKLOADS, a_workload("n1", owner="train"))
    assert world.written() == [["n1"]], "its pod is gone"
    world.pods = PodIndex(lambda change: None, world.mirror.pod_counts)  # claims are trusted
    world.part = UnhealthyNodes(
        a_context(mirror=world.mirror, pods=world.pods, owners=world.owners, writes=world.writes, gates={})
    )  # type: ignore[arg-type]
    world.part.lead()
    world.pods.upsert(a_pod("p", "n1", phase="Failed"))
    assert world.written() == [["n1"]]
    world.pods.upsert(a_pod("p", "n1", phase="Succeeded"))
    world.put(kube.WORKLOADS, a_workload("n1", version=2, owner="train", unhealthy=("n1",)))
    assert world.written() == [None]


def test_while_another_placement_is_written_nothing_is_listed() -> None:
    world = UnhealthyWorld()
    world.put(kube.WORKLOADS, a_workload("n1"))
    world.writes.doubted = True
    assert world.written() == []
    world.writes.doubted = False
    assert world.written() == [["n1"]]


def test_a_limit_of_time_is_waited_for() -> None:
    world = UnhealthyWorld(a_node("n1", ready="False", since=T), TASReplaceNodeDueToNotReadyOverFixedTime=True)
    world.put(kube.WORKLOADS, a_workload("n1"))
    world.pods.upsert(a_pod("p", "n1"))
    assert world.written() == []
    assert world.part.due == T + NOT_READY
    assert world.written(T + NOT_READY) == [["n1"]]


@pytest.mark.parametrize("where", ["pod set", "flavor", "check"])
def test_what_tolerates_a_taint_is_looked_up_everywhere(where: str) -> None:
    given = [{"key": "maintenance", "operator": "Exists"}]
    world = UnhealthyWorld(a_node("n1", taint="maintenance"))
    workload = a_workload("n1", **({"tolerations": given} if where == "pod set" else {}))
    if where == "flavor":
        flavor = {"metadata": {"name": "tas", "uid": "f", "resourceVersion": "1"}, "spec": {"tolerations": given}}
        world.mirror.upsert(kube.RESOURCE_FLAVORS, flavor)
    if where == "check":
        update = {"name": "main", "tolerations": given}
        workload["status"]["admissionChecks"] = [{"name": "c", "state": "Ready", "podSetUpdates": [update]}]
    world.put(kube.WORKLOADS, workload)
    assert world.written() == []


# --- stray pods -------------------------------------------------------------------------------------------------------


def a_late_pod(host: str = "n1", *, annotation: str = UNCONSTRAINED, gated: bool = False, **more: Any) -> PodObject:
    pod = a_pod("late", "", phase="Pending", ready=False, **more)
    pod["metadata"]["annotations"][annotation] = "true"
    pod["spec"]["nodeSelector"] = {HOST: host}
    if gated:
        pod["spec"]["schedulingGates"] = [{"name": "kueue.x-k8s.io/topology"}]
    return pod


def test_a_pod_without_a_place_has_failed() -> None:
    world = UnhealthyWorld(a_node("n1"), a_node("n2"))
    world.put(kube.WORKLOADS, a_workload("n2"))
    world.pods.upsert(a_late_pod("n2"))
    assert world.failed() == [], "it has a place there"
    world.put(kube.WORKLOADS, a_workload("n1", version=2))
    world.strays.act(T)
    [write] = world.writer.writes
    assert write.body["metadata"] == {"uid": "uid-late", "resourceVersion": "1"}, "bound meanwhile, it is left alone"
    [row] = write.body["status"]["conditions"]
    assert (row["type"], row["status"], row["reason"]) == ("TerminatedByKueue", "True", "UnschedulableOnAssignedNode")
    assert world.failed() == ["late"]
    assert write.on_done is not None
    write.on_done({"metadata": {"name": "late"}})
    assert [reason for reason, _ in world.recorder.said] == ["PodTerminatedByKueue"]


@pytest.mark.parametrize("node", [a_node("n1", ready="False"), a_node("n1", taint="maintenance")])
def test_so_has_one_whose_node_does_not_take_it(node: Json) -> None:
    world = UnhealthyWorld(a_node("n1"))
    world.put(kube.WORKLOADS, a_workload("n1"))
    world.pods.upsert(a_late_pod())
    assert world.failed() == []
    world.mirror.upsert(kube.NODES, node)
    assert world.failed() == ["late"]


class Counted(dict[str, Json]):
    """Counts how often a node is looked up."""

    asked = 0

    def get(self, key: str, default: Any = None) -> Any:
        self.asked += 1
        return super().get(key, default)


def test_pods_that_wait_for_hosts_which_do_not_exist_are_not_compared_with_every_node() -> None:
    world = UnhealthyWorld(*(a_node(f"n{number}") for number in range(50)))
    world.put(kube.WORKLOADS, a_workload("n1"))
    world.strays.act(T)
    nodes = world.mirror.objects[kube.NODES] = Counted(world.mirror.objects[kube.NODES])
    for number in range(20):
        pod = a_late_pod(f"no-such-host-{number}")
        pod["metadata"] |= {"name": f"late{number}", "uid": f"uid-{number}"}
        world.pods.upsert(pod)
    assert world.failed() == []
    assert 0 < nodes.asked < 50


def test_pods_of_jobs_and_of_nobody_are_left_alone() -> None:
    for workload in (a_workload("n2", owner="train"), None):
        world = UnhealthyWorld(a_node("n1"), a_node("n2"))
        if workload is not None:
            world.put(kube.WORKLOADS, workload)
        world.pods.upsert(a_late_pod())
        assert world.failed() == []


@pytest.mark.parametrize(
    ("pod", "host"),
    [
        (a_late_pod(), "n1"),
        (a_late_pod(gated=True), ""),
        (a_late_pod(annotation="mine"), ""),
        (a_late_pod(due=T), ""),
        (a_pod("bound", "n1"), ""),
    ],
    ids=["late", "gated", "without topology", "deleted", "bound"],
)
def test_only_pods_that_were_given_a_place_wait_for_it(pod: Json, host: str) -> None:
    assert awaited_host(pod) == host


def test_a_workload_without_owner_gives_its_places_to_pods_that_claim_it() -> None:
    world = UnhealthyWorld(a_node("n1"), a_node("n2"))
    gates = PodGates(
        a_context(
            mirror=world.mirror,
            pods=world.pods,
            writes=world.writes,
            writer=world.writer,
            owners=world.owners,
            recorder=Recorder(),
            now=lambda: T,
        )
    )
    for name in ("a", "b", "c"):
        pod = a_pod(name, "", phase="Pending", ready=False)
        pod["spec"]["schedulingGates"] = [{"name": "kueue.x-k8s.io/topology"}]
        world.pods.upsert(pod)
    gates.act(T)
    assert world.writer.take() == [], "there is no such Workload"
    world.put(kube.WORKLOADS, a_workload("n1", "n2", owner="train"))
    gates.act(T)
    assert world.writer.take() == [], "they would have to prove that they are of it"
    world.mirror.remove(kube.WORKLOADS, "ns/w")
    world.put(kube.WORKLOADS, a_workload("n1", "n2", version=2))
    gates.act(T)
    placed = {name: body["spec"]["nodeSelector"][HOST] for _, name, body in world.writer.take()}
    assert placed == {"a": "n1", "b": "n2"}, "as many as it has places"
