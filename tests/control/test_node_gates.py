"""Pods of gangs on flavors without a topology: to which node or domains each is sent, and when it loses its gate."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import Any, cast

import pytest
from tests.builders.objects import Json, T, a_node, a_pod, a_workload
from tests.builders.parts import PartWorld
from tests.objects import PodObject, altered

from gangline.api import names
from gangline.api.read.workloads import swap_record
from gangline.control.feed.pod import GATE, Pod, only_node, read_pod
from gangline.control.feed.pod_index import PodIndex
from gangline.control.nodes.gates.node_gates import NodeGates, Places, destinations, ungated
from gangline.engine import Engine, model
from gangline.kube import resources as kube
from gangline.kube.errors import Conflict

POOL = "cloud.google.com/gke-nodepool"
REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"
INDEX = "batch.kubernetes.io/job-completion-index"


def waiting(name: str = "p", *, workload: str = "w", index: int | None = None, **spec: Any) -> PodObject:
    labels = {INDEX: str(index)} if index is not None else {}
    pod = a_pod(name, "", phase="Pending", ready=False, workload=workload, **labels)
    pod["spec"] |= {"schedulingGates": [{"name": "other"}, dict(GATE)], **spec}
    return pod


def on(node: str, name: str, **fields: Any) -> PodObject:
    return a_pod(name, node, **fields)


def sent_to(
    *pods: PodObject, places: Places | None = None, label: str = "", domains: tuple[str, ...] | None = None
) -> dict[str, Json | None]:
    """Name of each pod that need not wait -> its new affinity."""
    read = [read_pod(pod, "ns/w") for pod in pods]
    labels = {"main": label} if label else {}
    found = destinations(read, {"main": 16}, labels, places, lambda asked: domains if asked == POOL else None)
    return {pod.name: affinity for pod, affinity in found}


def nodes(found: Mapping[str, Json | None]) -> dict[str, str]:
    return {name: only_node({"affinity": affinity}) for name, affinity in found.items()}


# --- which node -------------------------------------------------------------------------------------------------------


def test_each_pod_is_sent_to_a_node_that_has_room_for_it() -> None:
    found = sent_to(*map(waiting, "abc"), places={"main": {"n2": 1, "n1": 2}})
    assert nodes(found) == {"a": "n1", "b": "n1", "c": "n2"}


def test_neighbours_in_rank_are_on_neighbouring_nodes() -> None:
    pods = [waiting(f"p-{index}", index=index) for index in (10, 2, 1, 9)]
    found = sent_to(*pods, places={"main": {"n10": 1, "n9": 1, "n2": 2}})
    assert nodes(found) == {"p-1": "n2", "p-2": "n2", "p-9": "n9", "p-10": "n10"}


def test_a_replacement_gets_the_room_that_is_left() -> None:
    pods = [on("n1", "a"), on("n2", "gone", phase="Failed"), on("n2", "c"), waiting("new")]
    assert nodes(sent_to(*pods, places={"main": {"n1": 1, "n2": 1, "n3": 1}})) == {"new": "n3"}


def test_a_pod_waits_while_no_node_has_room_for_it() -> None:
    ending = on("n1", "old", due=T + 30_000)
    assert sent_to(ending, waiting("new"), places={"main": {"n1": 1}}) == {}, "until the other one is gone"
    assert sent_to(waiting("p"), places={"main": {}}) == {}


def test_a_pod_that_was_sent_uses_the_room_before_it_is_bound() -> None:
    first = waiting("a")
    [affinity] = sent_to(first, places={"main": {"n1": 1}}).values()
    first["spec"] |= {"schedulingGates": [], "affinity": affinity}
    assert read_pod(first, "ns/w").sent == "n1"
    assert sent_to(first, waiting("b"), places={"main": {"n1": 1}}) == {}


def test_pods_that_nodes_do_not_bound_go_anywhere() -> None:
    assert sent_to(waiting("p"), places={}) == {"p": None}
    assert sent_to(waiting("p"), places=None) == {"p": None}


# --- which domains ----------------------------------------------------------------------------------------------------


def test_a_first_pod_is_sent_to_the_domains_of_its_gang() -> None:
    [affinity] = sent_to(waiting(), places={"main": {"n1": 1}}, label=POOL, domains=("b", "a")).values()
    assert affinity is not None
    assert affinity["nodeAffinity"][REQUIRED]["nodeSelectorTerms"] == [
        {"matchExpressions": [{"key": POOL, "operator": "In", "values": ["a", "b"]}]}
    ]


def test_what_jobset_and_the_user_asked_for_stands() -> None:
    own = {"matchExpressions": [{"key": "zone", "operator": "In", "values": ["x"]}]}
    given = {"podAffinity": {"x": 1}, "nodeAffinity": {REQUIRED: {"nodeSelectorTerms": [own, own]}}}
    pod = waiting(affinity=given)
    [affinity] = sent_to(pod, label=POOL, domains=("a",)).values()
    assert affinity is not None and affinity["podAffinity"] == {"x": 1}
    terms = affinity["nodeAffinity"][REQUIRED]["nodeSelectorTerms"]
    assert [[row["key"] for row in term["matchExpressions"]] for term in terms] == [["zone", POOL]] * 2
    [affinity] = sent_to(pod, places={"main": {"n1": 1}}).values()
    assert affinity is not None
    field = {"key": "metadata.name", "operator": "In", "values": ["n1"]}
    assert affinity["nodeAffinity"][REQUIRED]["nodeSelectorTerms"] == [{**own, "matchFields": [field]}] * 2


def test_a_pod_that_follows_another_into_its_domain_just_goes() -> None:
    assert sent_to(waiting(nodeSelector={POOL: "a"}), label=POOL, domains=()) == {"p": None}


def test_where_nodes_do_not_bound_the_gang_any_domain_will_do() -> None:
    assert sent_to(waiting(), label=POOL, domains=None) == {"p": None}


def test_first_pods_wait_while_their_gang_has_too_few_domains_and_others_follow() -> None:
    found = sent_to(waiting("first"), waiting("second", nodeSelector={POOL: "a"}), label=POOL, domains=())
    assert found == {"second": None}


# --- pods -------------------------------------------------------------------------------------------------------------


def test_only_the_gate_of_its_node_is_removed() -> None:
    body = ungated(waiting(), None)
    assert body == {"metadata": {"resourceVersion": "1"}, "spec": {"schedulingGates": [{"name": "other"}]}}


def queued(*gates: str, placed: bool = False) -> PodObject:
    """A pod that is queued by itself."""
    pod = waiting()
    pod["spec"]["schedulingGates"] = [{"name": name} for name in gates]
    if placed:
        pod["metadata"]["labels"][names.TAS_LABEL] = "true"
    return pod


def test_a_pod_that_is_queued_by_itself_waits_at_the_gate_of_topologies() -> None:
    assert not read_pod(queued(names.ADMISSION_GATE, names.TOPOLOGY_GATE), "ns/w").at_node_gate
    assert not read_pod(queued(names.TOPOLOGY_GATE, placed=True), "ns/w").at_node_gate
    assert not read_pod(queued(names.TOPOLOGY_GATE), "").at_node_gate, "it is of no gang: its gate is another's"
    pod = queued(names.TOPOLOGY_GATE)
    assert read_pod(pod, "ns/w").at_node_gate
    assert ungated(pod, None)["spec"] == {"schedulingGates": None}


def test_a_pod_of_an_elastic_job_waits_for_its_node_once_it_is_admitted() -> None:
    assert not read_pod(queued(names.ELASTIC_GATE, names.DOMAIN_GATE), "ns/w").at_node_gate
    assert read_pod(queued(names.DOMAIN_GATE), "ns/w").at_node_gate


def only(*values: str, key: str = "metadata.name", operator: str = "In") -> Json:
    return {"matchFields": [{"key": key, "operator": operator, "values": list(values)}]}


@pytest.mark.parametrize(
    ("terms", "node"),
    [
        ([only("n1")], "n1"),
        ([only("n1"), {**only("n1"), "matchExpressions": []}], "n1"),
        ([only("n1"), only("n2")], ""),
        ([only("n1"), {"matchExpressions": [{"key": "a", "operator": "Exists"}]}], ""),
        ([only("n1", "n2")], ""),
        ([only("n1", operator="NotIn")], ""),
        ([], ""),
    ],
)
def test_the_one_node_that_an_affinity_allows(terms: list[Json], node: str) -> None:
    assert only_node({"affinity": {"nodeAffinity": {REQUIRED: {"nodeSelectorTerms": terms}}}}) == node


def refusing(message: str, **status: Any) -> Pod:
    affinity = {"nodeAffinity": {REQUIRED: {"nodeSelectorTerms": [only("n1")]}}}
    pod = waiting(affinity=affinity)
    pod["spec"]["schedulingGates"] = []
    row = {"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": message}
    pod["status"] |= {"conditions": [row], **status}
    return read_pod(pod, "ns/w")


def test_the_scheduler_refuses_a_pod_for_want_of_room_on_its_node_alone() -> None:
    assert refusing("1 Insufficient gpu").refused == "1 Insufficient gpu"
    assert refusing("1 Insufficient gpu", nominatedNodeName="n1").refused == "", "it makes room"
    assert refusing("pod has unbound immediate PersistentVolumeClaims").refused == ""
    assert refusing("1 node(s) had volume node affinity conflict").refused
    assert len(refusing("x" * 5000).refused) <= 256


# --- the part ---------------------------------------------------------------------------------------------------------


class NodeGateWorld(PartWorld):
    """An engine, the index that feeds it, and a gang of four pods of 2 CPUs on two nodes with 4 CPUs each."""

    def __init__(self) -> None:
        self.engine = Engine()
        self.observe = self.engine.observe
        super().__init__()
        self.gates = self.part()
        flavor = {"metadata": {"name": "cpu"}, "spec": {"nodeLabels": {"pool": "a"}}}
        self.mirror.upsert(kube.RESOURCE_FLAVORS, flavor)
        for name in ("n1", "n2"):
            node = a_node(name)
            node["metadata"]["labels"] = {"pool": "a"}
            node["status"]["allocatable"] = {"cpu": "4", "pods": "10"}
            self.mirror.upsert(kube.NODES, node)
        self.at: dict[str, PodObject] = {}
        self.workload = a_workload(owner="train")
        self.workload["spec"]["podSets"][0]["count"] = 4
        row = {"name": "main", "count": 4, "flavors": {"cpu": "cpu"}, "resourceUsage": {"cpu": "8"}}
        self.workload["status"]["admission"]["podSetAssignments"] = [row]
        container = self.workload["spec"]["podSets"][0]["template"]["spec"]["containers"][0]
        container["resources"]["requests"] = {"cpu": "2"}
        self.mirror.upsert(kube.WORKLOADS, self.workload)

    def part(self) -> NodeGates:
        return NodeGates(self.context(engine=self.engine))

    def comes(self, pod: PodObject) -> None:
        self.at[pod.name] = pod
        self.pods.upsert(pod)

    def look(self, *, decide: bool = True) -> list[str]:
        """The pods for which a write is submitted; it stays on its way."""
        self.pods.report_changes()
        if decide:
            self.engine.decide(T)
        before = len(self.writer.writes)
        self.gates.act(T)
        new = self.writer.writes[before:]
        self.writer.busy |= {write.key for write in new}
        return [write.key.name for write in new]

    def answer(self, name: str, error: Exception | None = None) -> None:
        write = next(write for write in self.writer.writes if write.key.name == name)
        self.writer.writes.remove(write)
        self.writer.busy.discard(write.key)
        if error is not None:
            assert write.on_error is not None
            write.on_error(error)  # type: ignore[arg-type]
            return
        body = cast(Json, write.body)
        pod = self.at[name]
        self.at[name] = altered(
            pod, metadata={**pod.metadata, "resourceVersion": "2"}, spec={**pod.spec, **body["spec"]}
        )
        assert write.on_done is not None
        write.on_done(self.at[name])

    def nodes(self) -> Counter[str]:
        """What the API server has."""
        return Counter(node for pod in self.at.values() if (node := only_node(pod["spec"])))


def test_each_pod_gets_room_of_its_own_whenever_it_comes() -> None:
    world = NodeGateWorld()
    for name in ("d", "b", "a", "c"):  # each sorts before or after one that is on its way
        world.comes(waiting(name))
        assert world.look() == [name]
    for name in ("b", "d", "c", "a"):
        world.answer(name)
    assert world.nodes() == {"n1": 2, "n2": 2}
    world.comes(waiting("e"))
    assert world.look() == [], "there is no fifth"


def test_room_is_not_given_twice_while_the_engine_has_not_decided_again() -> None:
    world = NodeGateWorld()
    for name in ("a", "b"):
        world.comes(waiting(name))
    assert world.look() == ["a", "b"]
    world.answer("a")
    world.answer("b")
    for name in ("c", "d", "e"):
        world.comes(waiting(name))
    assert world.look(decide=False) == ["c", "d"]
    for name in ("c", "d"):
        world.answer(name)
    assert world.nodes() == {"n1": 2, "n2": 2}


def test_another_process_sends_the_rest_where_there_is_room_left() -> None:
    """Pods that were sent and are not bound yet are where they were sent to, for a new leader as well."""
    world = NodeGateWorld()
    for name in ("a", "b", "c"):
        world.comes(waiting(name))
    world.look()
    for name in ("a", "b", "c"):
        world.answer(name)
    again = NodeGateWorld()
    for pod in world.at.values():
        again.comes(pod)
    again.comes(waiting("d"))
    assert again.look() == ["d"]
    again.answer("d")
    assert again.nodes() == {"n1": 2, "n2": 2}


@pytest.mark.parametrize(("avoid", "node"), [((), "n1"), (("n2",), "")])
def test_pods_with_volumes_go_where_the_scheduler_finds_them_once_a_node_has_refused_one(
    avoid: tuple[str, ...], node: str
) -> None:
    """A volume may exist for some nodes only."""
    world = NodeGateWorld()
    workload = altered(world.workload, metadata={**world.workload.metadata, "resourceVersion": "2"})
    template = workload["spec"]["podSets"][0]["template"]["spec"]
    template["volumes"] = [{"name": "data", "persistentVolumeClaim": {"claimName": "data"}}]
    if avoid:
        swap = swap_record.RecordedSwap("Replace", "Unschedulable", avoid, T, T, refusing=avoid)
        workload["metadata"]["annotations"] = {
            names.RECOVERY: swap_record.write(swap_record.SwapRecord().with_loss(swap))
        }
    world.mirror.upsert(kube.WORKLOADS, workload)
    world.comes(waiting("a"))
    assert world.look() == ["a"]
    world.answer("a")
    assert only_node(world.at["a"]["spec"]) == node


def test_a_conflict_is_followed_by_another_look() -> None:
    world = NodeGateWorld()
    world.comes(waiting("a"))
    assert world.look() == ["a"]
    world.answer("a", Conflict(409, "Conflict", "the object has been modified"))
    assert world.woken
    world.at["a"]["metadata"] = {**world.at["a"]["metadata"], "resourceVersion": "3"}
    world.comes(altered(world.at["a"]))
    assert world.look() == ["a"]


@pytest.mark.parametrize(
    ("condition", "goes"),
    [(None, True), ("Evicted", False), ("Finished", False)],
)
def test_no_pod_of_a_gang_that_stops_loses_its_gate(condition: str | None, goes: bool) -> None:
    """It would be bound before its Job has it deleted, and its room may be another's by then."""
    world = NodeGateWorld()
    if condition is not None:
        row = {"type": condition, "status": "True", "reason": "x", "lastTransitionTime": "2026-01-01T00:00:00Z"}
        workload = altered(world.workload, metadata={**world.workload.metadata, "resourceVersion": "2"})
        status = workload["status"]
        workload["status"] = {**status, "conditions": [*status["conditions"], row]}
        world.mirror.upsert(kube.WORKLOADS, workload)
    world.comes(waiting("p"))
    assert world.look() == (["p"] if goes else [])


def test_pods_of_nobody_and_of_a_gang_that_is_gone_go_anywhere() -> None:
    world = NodeGateWorld()
    world.comes(waiting("nobodys", workload=""))
    world.comes(waiting("orphan", workload="unknown"))
    assert world.look() == ["nobodys", "orphan"]
    for name in ("nobodys", "orphan"):
        world.answer(name)
    assert world.nodes() == Counter()


def test_a_new_leader_looks_at_every_waiting_pod() -> None:
    world = NodeGateWorld()
    world.comes(waiting("a"))
    world.gates = world.part()  # it has seen no change
    assert world.look() == []
    world.gates.lead()
    assert world.look() == ["a"]


def test_pods_that_end_or_lose_their_gate_do_not_wait() -> None:
    index = PodIndex(lambda change: None, lambda workload: {})
    index.upsert(waiting("p"))
    index.upsert(waiting("q"))
    assert [pod.name for pod in index.at_node_gate("ns/w")] == ["p", "q"]
    free = waiting("p")
    free["spec"]["schedulingGates"] = []
    index.upsert(free)
    index.remove("ns/q")
    going = waiting("r")
    going["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:00Z"
    index.upsert(going)
    assert index.at_node_gate("ns/w") == [] and not index.with_pods_at_node_gate()


def test_the_engine_counts_a_pod_where_it_was_sent() -> None:
    world = NodeGateWorld()
    world.comes(waiting("a"))
    world.look()
    world.answer("a")
    facts: list[model.Change] = []
    index = PodIndex(facts.append, lambda workload: {"main": 4})
    index.upsert(world.at["a"])
    index.report_changes()
    assert facts[-1] == model.Put(model.WorkloadPods("ns/w", (model.BoundPod("a", "main", "n1", sent=True),)))
    bound = altered(world.at["a"], spec={**world.at["a"].spec, "nodeName": "n1"})
    index.upsert(bound)
    index.report_changes()
    assert facts[-1] == model.Put(model.WorkloadPods("ns/w", (model.BoundPod("a", "main", "n1"),)))
