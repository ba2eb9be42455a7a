"""The ledger of room: one account of every node, whoever takes of it and however it is asked."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from typing import Any

import hypothesis.strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule
from tests.builders.engine import gang, group, of
from tests.engine.node_world import NodeWorld
from tests.examples import examples

from gangline.engine.model import (
    BoundPod,
    ClusterQueue,
    Domain,
    Flavor,
    ForeignPod,
    Gone,
    Node,
    PodSet,
    Preempt,
    PreemptionPolicy,
    Put,
    Recovery,
    Topology,
    TopologyAssignment,
    TopologyRequest,
    WorkloadPods,
)
from gangline.engine.nodes.node_rooms import NodeRooms, PodShape
from gangline.engine.occupancy.fitting import HOSTNAME, as_pod_requests, usage_of
from gangline.engine.occupancy.node_ledger import HOSTS, NOWHERE, Assigned, NodeLedger
from gangline.engine.topology.node_filter import ANY_NODE
from gangline.engine.topology.topologies import Topologies, TopologyLedger

GPU = "gpu"
POOL = {"pool": "a"}
NAMES = ("n0", "n1", "n2")
KEYS = ("x", "y", "z")


def host(name: str, gpus: int = 4, **labels: str) -> Node:
    return Node(name, {**POOL, HOSTNAME: name, **labels}, {GPU: gpus, "pods": 20})


class Rooms(RuleBasedStateMachine):
    """Any sequence of nodes, foreign pods and holders: every table equals what a recount finds."""

    def __init__(self) -> None:
        super().__init__()
        self.ledger = NodeLedger()
        self.topologies = Topologies(self.ledger)
        self.topologies.put_topology(Topology("t", (HOSTNAME,)))
        self.topologies.put_flavor(Flavor("placed", POOL, topology="t"))
        self.rooms = NodeRooms(self.ledger)
        self.nodes: dict[str, tuple[Node, bool]] = {}
        self.foreign: dict[str, ForeignPod] = {}
        self.accounted: dict[str, frozenset[str]] = {}
        self.placed: dict[str, Counter[str]] = {}
        self.assigned: dict[str, Counter[str]] = {}
        self.lifted: set[str] = set()

    @rule(name=st.sampled_from(NAMES), gpus=st.integers(0, 6), usable=st.booleans(), moved=st.booleans())
    def put_node(self, name: str, gpus: int, usable: bool, moved: bool) -> None:
        """Now and then a node names another host than it did."""
        node = host(name, gpus, **({HOSTNAME: f"{name}.local"} if moved else {}))
        self.nodes[name] = node, usable
        self.ledger.put_node(node, usable=usable)

    @rule(name=st.sampled_from(NAMES))
    def remove_node(self, name: str) -> None:
        self.nodes.pop(name, None)
        self.ledger.remove_node(name)

    @rule(key=st.sampled_from("pq"), name=st.sampled_from(NAMES), gpus=st.integers(0, 2))
    def put_foreign(self, key: str, name: str, gpus: int) -> None:
        self.foreign[key] = ForeignPod(key, name, {GPU: gpus})
        self.ledger.put_foreign(self.foreign[key])

    @rule(key=st.sampled_from("pq"))
    def remove_foreign(self, key: str) -> None:
        self.foreign.pop(key, None)
        self.ledger.remove_foreign(key)

    @rule(key=st.sampled_from(("x", "y")), its=st.booleans())
    def account_for(self, key: str, its: bool) -> None:
        """The pod `p` can only be one of `x`, and `q` one of `y`."""
        pods = frozenset({"x": "p", "y": "q"}[key] if its else "")
        self.accounted[key] = pods
        self.ledger.account_for(key, pods)

    @rule(key=st.sampled_from(KEYS), pods=st.dictionaries(st.sampled_from(NAMES), st.integers(1, 3)))
    def place(self, key: str, pods: dict[str, int]) -> None:
        self.placed[key] = Counter(pods)
        self.ledger.place(key, tuple(((HOSTS, (name,)), usage_of({GPU: 1}, count)) for name, count in pods.items()))

    @rule(key=st.sampled_from(KEYS), pods=st.dictionaries(st.sampled_from(NAMES), st.integers(1, 3)))
    def assign(self, key: str, pods: dict[str, int]) -> None:
        self.assigned[key] = Counter(pods)
        taken = tuple((name, usage_of({GPU: 1}, count)) for name, count in pods.items())
        self.ledger.assign(key, Assigned(taken, ((("rack", "r"), 1),)) if taken else NOWHERE)

    @rule(key=st.sampled_from(KEYS))
    def lift(self, key: str) -> None:
        if self.placed.get(key) or self.assigned.get(key):
            self.lifted.add(key)
        self.ledger.lift(key)

    @rule(key=st.sampled_from(KEYS))
    def restore(self, key: str) -> None:
        self.lifted.discard(key)
        self.ledger.restore(key)

    @rule(key=st.sampled_from(KEYS))
    def release(self, key: str) -> None:
        self.ledger.release(key)
        for table in (self.placed, self.assigned):
            table.pop(key, None)
        self.lifted.discard(key)

    def count(self, table: dict[str, Counter[str]], name: str) -> int:
        return sum(pods[name] for key, pods in table.items() if key not in self.lifted)

    @invariant()
    def every_table_is_right(self) -> None:
        tree = self.topologies.ledger("placed")
        assert tree is not None
        ground = self.rooms.ground(POOL)
        shape = PodShape(as_pod_requests({GPU: 1}), ANY_NODE)
        counts = self.rooms.table(ground, shape).counts if ground is not None else {}
        for name in NAMES:
            node, usable = self.nodes.get(name, (None, False))
            at = node.labels[HOSTNAME] if node is not None else name
            leaf = tree.leaf((at,))
            if node is None or not usable:
                assert leaf is None and name not in counts
                continue
            placed, assigned = self.count(self.placed, at), self.count(self.assigned, name)
            here = {key: pod.requests[GPU] for key, pod in self.foreign.items() if pod.node == name}
            own = frozenset[str]().union(*self.accounted.values())
            foreign, others = sum(here.values()), sum(gpus for key, gpus in here.items() if key not in own)
            assert leaf is not None
            assert leaf.free[GPU] == node.allocatable[GPU] - foreign - placed
            assert counts.get(name, 0) == max(0, node.allocatable[GPU] - placed - assigned - others)
            assert self.ledger.nodes[name].idle == (not placed and not assigned)

    @invariant()
    def owners_are_the_holders(self) -> None:
        owners = {key for key, pods in self.assigned.items() if pods and key not in self.lifted}
        assert set(self.ledger.owners(("rack", "r"))) == owners

    def teardown(self) -> None:
        """When everybody has left, nothing is taken and nothing is remembered."""
        for key in KEYS:
            self.ledger.release(key)
        for name in NAMES:
            self.ledger.remove_node(name)
        for key in "pq":
            self.ledger.remove_foreign(key)
        left = (
            self.ledger._holders,
            self.ledger._placed,
            self.ledger._on_unknown_nodes,
            self.ledger._on,
            self.ledger._others,
        )
        assert not any((*left, self.ledger._foreign, self.ledger._owners, self.ledger._hosts)), left


TestRooms = Rooms.TestCase
TestRooms.settings = examples(100, stateful_step_count=30)


def test_a_mirror_has_the_nodes_and_pods_of_others_and_holders_of_its_own() -> None:
    ledger, other = NodeLedger(), NodeLedger()
    ledger.put_node(host("n0"), usable=True)
    ledger.put_foreign(ForeignPod("ns/p", "n0", {GPU: 1}))
    ledger.mirror_to(other)
    ledger.put_node(host("n1"), usable=False)
    ledger.put_foreign(ForeignPod("ns/q", "n1", {GPU: 2}))
    ledger.remove_foreign("ns/p")
    assert dict(other.nodes["n1"].others) == {GPU: 2, "pods": 1}
    ledger.account_for("ns/w", frozenset({"ns/q"}))
    assert not other.nodes["n1"].others
    ledger.assign("ns/w", Assigned((("n0", {GPU: 1}),)))
    assert {name: room.usable for name, room in other.nodes.items()} == {"n0": True, "n1": False}
    assert dict(other.foreign_on("n1")) == {GPU: 2, "pods": 1} and not other.foreign_on("n0")
    assert not other.nodes["n0"].assigned and ledger.nodes["n0"].assigned == {GPU: 1}
    ledger.remove_node("n1")
    assert set(other.nodes) == {"n0"}


def test_domains_above_hosts_belong_to_their_flavor() -> None:
    """Two flavors whose topologies end at the rack don't share what is used of a rack, as in Kueue; hosts they do."""
    ledger = NodeLedger()
    racks = [TopologyLedger(Flavor(name, topology="t"), Topology("t", ("rack",)), ledger) for name in ("a", "b")]
    hosts = [TopologyLedger(Flavor(name, topology="h"), Topology("h", (HOSTNAME,)), ledger) for name in ("c", "d")]
    for each in (*racks, *hosts):
        each.put_node(host("n0", rack="r"))
    racks[0].add(TopologyAssignment(("rack",), (Domain(("r",), 3),)), {GPU: 1})
    hosts[0].add(TopologyAssignment((HOSTNAME,), (Domain(("n0",), 1),)), {GPU: 1})
    free = [leaf.free[GPU] for each in (*racks, *hosts) for leaf in each.leaves()]
    assert free == [1, 4, 3, 3]


# --- one account in the engine ------------------------------------------------------------------------------------------


def both_ways(**of_plain: Any) -> NodeWorld:
    """The same two nodes in a flavor with a topology and in one without; quota for all of it twice."""
    placed, plain = Flavor("placed", POOL, topology="t"), Flavor("plain", POOL)
    queues = (
        ClusterQueue("of-placed", groups=(group({"placed": {GPU: 100}}),)),
        ClusterQueue("of-plain", groups=(group({"plain": {GPU: 100}}),), **of_plain),
    )
    return NodeWorld(placed, plain, Topology("t", (HOSTNAME,)), host("n0"), host("n1"), *queues)


def submit(world: NodeWorld, name: str, gpus: int, *, placed: bool, **fields: Any) -> None:
    topology = TopologyRequest(unconstrained=True) if placed else None
    pod_sets = (PodSet("main", gpus, {GPU: 1}, topology=topology),)
    world.put(gang(name, queue="of-placed" if placed else "of-plain", pod_sets=pod_sets, **fields))
    world.decide()


def test_room_that_a_topology_gave_away_is_not_given_to_others() -> None:
    """Both flavors have quota for all of it: the nodes decide, whoever takes them."""
    world = both_ways()
    submit(world, "t1", 5, placed=True)
    submit(world, "big2", 4, placed=False)
    submit(world, "small3", 3, placed=False)
    assert world.running() == ["small3", "t1"]
    why = world.engine.explain("team/big2")
    assert why is not None and "room for 0 out of 4 pods of pod set main" in why.message
    world.finish("t1")
    world.decide()
    assert world.running() == ["big2", "small3"]


def test_a_node_with_placed_pods_is_no_spare() -> None:
    world = both_ways(recovery=Recovery(spares=1))
    submit(world, "t1", 1, placed=True)
    submit(world, "w2", 4, placed=False)
    assert world.running() == ["t1"]  # one node has a placed pod, the other one is the spare
    world.finish("t1")
    world.decide()
    assert world.running() == ["w2"]


def test_topologies_count_assigned_pods_once_they_exist() -> None:
    """As in Kueue: a pod of a flavor without a topology takes room of a topology when it is bound."""
    world = both_ways()
    submit(world, "w1", 4, placed=False)
    submit(world, "t2", 5, placed=True)
    assert world.running() == ["t2", "w1"]
    world.finish("t2")
    world.put(*(ForeignPod(f"team/w1-{number}", "n0", {GPU: 1}) for number in range(4)))
    submit(world, "t3", 5, placed=True)
    assert world.running() == ["w1"]


def test_a_victim_gives_back_all_its_room_however_that_was_taken() -> None:
    """Some of its pods are placed and some assigned; with its quota it gives back both, and gets both back in a what-if."""
    groups = (group({"placed": {GPU: 100}, "plain": {GPU: 100}}),)
    world = both_ways()
    world.put(ClusterQueue("both", groups=groups, preemption=PreemptionPolicy("LowerPriority")))
    placed = PodSet("placed", 3, {GPU: 1}, topology=TopologyRequest(required=HOSTNAME))
    world.put(gang("v1", queue="both", pod_sets=(placed, PodSet("plain", 2, {GPU: 1}))))
    world.decide()
    ledger = world.engine._store.node_ledger
    before = {name: (dict(room.assigned), dict(room.placed)) for name, room in ledger.nodes.items()}
    assert sum(taken.get(GPU, 0) for each in before.values() for taken in each) == 5
    world.put(gang("vain2", queue="both", priority=1, pod_sets=(PodSet("main", 9, {GPU: 1}),)))
    assert of(world.decide(), Preempt) == []  # more than there is: nobody is preempted for it
    assert before == {name: (dict(room.assigned), dict(room.placed)) for name, room in ledger.nodes.items()}
    world.delete("vain2")
    world.put(gang("urgent3", queue="both", priority=1, pod_sets=(PodSet("main", 7, {GPU: 1}),)))
    assert of(world.decide(), Preempt) == ["v1"]
    world.complete_evictions()
    world.decide()
    assert world.running() == ["urgent3"]


# --- pods of others on nodes of a flavor without a topology ---------------------------------------------------------------


def test_pods_of_others_take_room_and_those_of_gangs_count_once() -> None:
    world = both_ways()
    world.put(ForeignPod("kube-system/x", "n0", {GPU: 2}))
    submit(world, "w1", 5, placed=False)
    assert world.running() == ["w1"]
    world.put(*(ForeignPod(f"team/w1-{number}", "n1", {GPU: 1}) for number in range(4)))
    world.put(WorkloadPods("team/w1", tuple(BoundPod(f"w1-{number}", "main", "n1") for number in range(4))))
    submit(world, "w2", 2, placed=False)
    assert world.running() == ["w1"]  # three of n0 are taken, all of n1
    world.engine.observe(Gone(ForeignPod, "kube-system/x"))
    world.decide()
    assert world.running() == ["w1", "w2"]  # and nothing else had to wake it


def test_room_that_a_pod_of_others_takes_is_kept_elsewhere() -> None:
    world = both_ways()
    submit(world, "w1", 3, placed=False)
    assert world.engine.places_of("team/w1") == {"main": {"n0": 3}}
    world.put(ForeignPod("kube-system/x", "n0", {GPU: 4}))
    world.decide()
    assert world.engine.places_of("team/w1") == {"main": {"n1": 3}}


def test_pods_of_a_gang_that_has_ended_are_no_pods_of_others() -> None:
    """They are about to go; a simulation never hears that they went."""
    world = both_ways()
    submit(world, "w1", 8, placed=False)
    pods = [BoundPod(f"w1-{number}", "main", f"n{number % 2}") for number in range(8)]
    world.put(*(ForeignPod(f"team/{pod.name}", pod.node, {GPU: 1}) for pod in pods))
    world.engine.observe(Put(WorkloadPods("team/w1", tuple(pods))))
    world.decide()
    submit(world, "w2", 8, placed=False)
    assert world.running() == ["w1"]
    world.workloads["team/w1"] = replace(world.workloads["team/w1"], finished=True, admission=None)
    world.engine.observe(Put(world.workloads["team/w1"]))
    world.decide()
    assert world.running() == ["w2"]
