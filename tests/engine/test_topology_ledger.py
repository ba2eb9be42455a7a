"""The ledger after any history equals one that got only the present state, and costs only what changed."""

from __future__ import annotations

import pytest
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule
from tests.examples import examples

from gangline.engine.model import (
    Admission,
    Domain,
    Flavor,
    ForeignPod,
    Node,
    PodSet,
    PodSetAssignment,
    Slice,
    Taint,
    Topology,
    TopologyAssignment,
    TopologyRequest,
)
from gangline.engine.occupancy.fitting import as_pod_requests
from gangline.engine.topology import domain_counts
from gangline.engine.topology.topologies import PlacementRequest, PlacementRules, Topologies, TopologyLedger, place

from .topology_cluster import BLOCK, HOST, LEVELS, RACK, ask, ledger, node, pods

FLAVORS = (
    Flavor("all", topology="hosts"),
    Flavor("fast", {"pool": "fast"}, topology="hosts"),
    Flavor("racks", topology="racks"),
    Flavor("plain"),
)
TOPOLOGIES = (Topology("hosts", LEVELS), Topology("racks", (BLOCK, RACK)))
HOSTS = [f"h{number}" for number in range(6)]


def questions() -> list[PlacementRequest]:
    return [
        ask(3, unconstrained=True),
        ask(2, 500, preferred=RACK),
        ask(4, 500, required=BLOCK, slices=[(RACK, 2)]),
        ask(200, required=BLOCK),
    ]


class History(RuleBasedStateMachine):
    """Any sequence of facts about nodes, foreign pods, holders and configuration."""

    def __init__(self) -> None:
        super().__init__()
        self.live = Topologies()
        self.flavors: dict[str, Flavor] = {}
        self.topologies: dict[str, Topology] = {}
        self.nodes: dict[str, Node] = {}
        self.foreign: dict[str, ForeignPod] = {}
        self.holders: dict[str, Admission] = {}

    @initialize()
    def configured(self) -> None:
        for topology in TOPOLOGIES:
            self.put_topology(topology)
        for flavor in FLAVORS:
            self.put_flavor(flavor)

    @rule(flavor=st.sampled_from(FLAVORS))
    def put_flavor(self, flavor: Flavor) -> None:
        self.flavors[flavor.name] = flavor
        self.live.put_flavor(flavor)

    @rule(name=st.sampled_from([flavor.name for flavor in FLAVORS]))
    def remove_flavor(self, name: str) -> None:
        self.flavors.pop(name, None)
        self.live.remove_flavor(name)

    @rule(topology=st.sampled_from((*TOPOLOGIES, Topology("racks", (RACK,)))))
    def put_topology(self, topology: Topology) -> None:
        self.topologies[topology.name] = topology
        self.live.put_topology(topology)

    @rule(name=st.sampled_from(["hosts", "racks"]))
    def remove_topology(self, name: str) -> None:
        self.topologies.pop(name, None)
        self.live.remove_topology(name)

    @rule(
        host=st.sampled_from(HOSTS),
        block=st.sampled_from(["b0", "b1"]),
        rack=st.sampled_from(["r0", "r1"]),
        cpu=st.integers(0, 8),
        pool=st.sampled_from(["fast", "slow"]),
        ready=st.booleans(),
        named=st.sampled_from([None, "h0"]),
    )
    def put_node(self, host: str, block: str, rack: str, cpu: int, pool: str, ready: bool, named: str | None) -> None:
        """Now and then a node claims the hostname of another one."""
        labels = {"pool": pool, HOST: named or host}
        put = node(f"{block}/{rack}/{host}", 500 * cpu, labels=labels, ready=ready)
        self.nodes[host] = put
        self.live.put_node(put)

    @rule(host=st.sampled_from(HOSTS))
    def remove_node(self, host: str) -> None:
        self.nodes.pop(host, None)
        self.live.remove_node(host)

    @rule(key=st.sampled_from("abc"), host=st.sampled_from(HOSTS), cpu=st.integers(0, 3))
    def put_foreign(self, key: str, host: str, cpu: int) -> None:
        pod = ForeignPod(key, host, {"cpu": 500 * cpu})
        self.foreign[key] = pod
        self.live.put_foreign(pod)

    @rule(key=st.sampled_from("abc"))
    def remove_foreign(self, key: str) -> None:
        self.foreign.pop(key, None)
        self.live.remove_foreign(key)

    @rule(key=st.sampled_from("xyz"), host=st.sampled_from(HOSTS), count=st.integers(1, 3))
    def hold_host(self, key: str, host: str, count: int) -> None:
        self.hold(key, "all", TopologyAssignment((HOST,), (Domain((host,), count),)))

    @rule(key=st.sampled_from("xyz"), rack=st.sampled_from(["r0", "r1"]), count=st.integers(1, 3))
    def hold_rack(self, key: str, rack: str, count: int) -> None:
        self.hold(key, "racks", TopologyAssignment((BLOCK, RACK), (Domain(("b0", rack), count),)))

    def hold(self, key: str, flavor: str, assignment: TopologyAssignment) -> None:
        count = sum(domain.count for domain in assignment.domains)
        usage = {"cpu": 500 * count, "pods": count}
        pod_set = PodSetAssignment("main", count, {"cpu": flavor, "pods": flavor}, usage, assignment)
        self.holders[key] = Admission("cq", (pod_set,))
        self.live.put_holder(key, self.holders[key])

    @rule(key=st.sampled_from("xyz"))
    def release(self, key: str) -> None:
        self.holders.pop(key, None)
        self.live.remove_holder(key)

    def rebuilt(self) -> Topologies:
        fresh = Topologies()
        for key, admission in sorted(self.holders.items(), reverse=True):
            fresh.put_holder(key, admission)
        for pod in self.foreign.values():
            fresh.put_foreign(pod)
        for flavor in self.flavors.values():
            fresh.put_flavor(flavor)
        for each in sorted(self.nodes.values(), key=lambda each: each.name):
            fresh.put_node(each)
        for topology in self.topologies.values():
            fresh.put_topology(topology)
        return fresh

    @invariant()
    def equals_rebuilt(self) -> None:
        fresh = self.rebuilt()
        for flavor in FLAVORS:
            live, other = self.live.ledger(flavor.name), fresh.ledger(flavor.name)
            assert (live is None) == (other is None)
            if live is None or other is None:
                continue
            assert live.node_ledger.spots(live.spot_flavor) == other.node_ledger.spots(other.spot_flavor)
            for question in questions():
                for profile in (PlacementRules(), PlacementRules(balanced=True)):
                    for empty in (False, True):
                        assert place(live, [question], profile=profile, simulate_empty=empty) == place(
                            other, [question], profile=profile, simulate_empty=empty
                        )


History.TestCase.settings = examples(40, stateful_step_count=25)
TestHistory = History.TestCase


# --- cost -------------------------------------------------------------------------------------------------------------


@pytest.fixture
def counted(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The leaves that are counted, in order."""
    leaves: list[int] = []
    count_leaf = domain_counts.Counts._count_leaf

    def spy(self: domain_counts.Counts, leaf: int, *rest: object) -> None:
        leaves.append(leaf)
        count_leaf(self, leaf, *rest)  # type: ignore[arg-type]

    monkeypatch.setattr(domain_counts.Counts, "_count_leaf", spy)
    return leaves


def test_a_question_costs_what_changed_since_the_last_one(counted: list[int]) -> None:
    made = ledger(node(f"b{n % 4}/r{n % 8}/h{n}") for n in range(200))
    answer = place(made, [ask(8, required=RACK)])
    assert len(counted) == 200
    counted.clear()
    place(made, [ask(5, preferred=BLOCK)])
    assert counted == []
    made.add(answer.assignments["main"], {"cpu": 1000})
    place(made, [ask(8, required=RACK)])
    assert len(counted) == len(answer.assignments["main"].domains)
    counted.clear()
    made.remove(answer.assignments["main"], {"cpu": 1000})
    assert place(made, [ask(8, required=RACK)]) == answer
    assert len(counted) == len(answer.assignments["main"].domains)


def test_an_unchanged_node_costs_nothing_and_a_resized_one_itself(counted: list[int]) -> None:
    nodes = [node(f"b0/r{n % 8}/h{n}") for n in range(80)]
    made = ledger(nodes)
    place(made, [ask(1, required=RACK)])
    counted.clear()
    assert not made.put_node(nodes[7])
    place(made, [ask(1, required=RACK)])
    assert counted == []
    assert made.put_node(node("b0/r7/h7", 8000))
    assert pods(place(made, [ask(8, required=HOST)]).assignments["main"]) == {"h7": 8}
    assert len(counted) == 1


def test_a_new_taint_counts_at_once() -> None:
    made = ledger([node("b0/r0/h0"), node("b0/r0/h1")])
    assert pods(place(made, [ask(1, required=HOST)]).assignments["main"]) == {"h0": 1}
    made.put_node(node("b0/r0/h0", taints=(Taint("broken"),)))
    assert pods(place(made, [ask(1, required=HOST)]).assignments["main"]) == {"h1": 1}
    made.put_node(node("b0/r0/h0"))
    assert pods(place(made, [ask(1, required=HOST)]).assignments["main"]) == {"h0": 1}


def test_of_two_nodes_with_one_hostname_the_first_name_says_where_it_is() -> None:
    twins = [node("b0/r0/h0"), node("b1/r1/h9", labels={HOST: "h0"})]
    for order in (twins, twins[::-1]):
        made = ledger(order)
        assert pods(place(made, [ask(8, required=HOST)]).assignments["main"]) == {"h0": 8}
        assert made.tree().paths[2] == [("b0", "r0", "h0")]
        made.remove_node("h0")
        place(made, [ask(1, required=HOST)])
        assert made.tree().paths[2] == [("b1", "r1", "h0")]


def test_a_long_history_without_questions_is_not_kept() -> None:
    made = ledger([node("b0/r0/h0"), node("b0/r0/h1")])
    held = TopologyAssignment((HOST,), (Domain(("h0",), 1),))
    place(made, [ask(1, required=HOST)])
    for _ in range(5000):
        made.add(held, {"cpu": 1000})
        made.remove(held, {"cpu": 1000})
    made.add(held, {"cpu": 1000})
    assert not place(made, [ask(8, required=RACK)]).ok
    assert pods(place(made, [ask(7, required=RACK)]).assignments["main"]) == {"h0": 3, "h1": 4}
    assert len(made._log) < 5000


# --- sharing ----------------------------------------------------------------------------------------------------------


def shared() -> Topologies:
    topologies = Topologies()
    for topology in TOPOLOGIES:
        topologies.put_topology(topology)
    for flavor in FLAVORS:
        topologies.put_flavor(flavor)
    topologies.put_node(node("b0/r0/h0", labels={"pool": "fast"}))
    return topologies


def holding(flavor: str, count: int) -> Admission:
    assignment = TopologyAssignment((HOST,), (Domain(("h0",), count),))
    return Admission("cq", (PodSetAssignment("main", count, {"cpu": flavor}, {"cpu": 1000 * count}, assignment),))


def test_flavors_share_what_is_used_on_a_host() -> None:
    topologies = shared()
    topologies.put_holder("ns/a", holding("all", 3))
    assert not topologies.place({"fast": [ask(2, required=HOST)]}).ok
    assert topologies.place({"fast": [ask(1, required=HOST)]}).ok
    assert topologies.place({"fast": [ask(4, required=HOST)]}, without=["ns/a"]).ok
    assert not topologies.place({"fast": [ask(2, required=HOST)]}).ok


def test_pod_sets_on_two_flavors_see_each_other() -> None:
    topologies = shared()
    one, other = ask(3, name="one", required=HOST), ask(2, name="other", required=HOST)
    answer = topologies.place({"all": [one], "fast": [other]})
    assert list(answer.assignments) == ["one"]
    assert answer.failed == ("other",)


def test_facts_name_the_flavors_that_they_touch() -> None:
    topologies = shared()
    assert topologies.put_node(node("b0/r0/h1")) == {"all", "racks"}
    assert topologies.put_node(node("b0/r0/h1")) == frozenset()
    assert topologies.put_foreign(ForeignPod("ns/p", "h1", {"cpu": 4000})) == {"all", "racks"}
    assert topologies.put_foreign(ForeignPod("ns/p", "h1", {"cpu": 4000})) == frozenset()
    assert topologies.put_foreign(ForeignPod("ns/p", "elsewhere", {"cpu": 4000})) == {"all", "racks"}
    assert topologies.remove_foreign("ns/p") == frozenset()
    assert topologies.remove_node("h1") == {"all", "racks"}
    assert topologies.ledger("plain") is None


def test_held_usage_outlives_its_node() -> None:
    topologies = shared()
    topologies.put_holder("ns/a", holding("all", 3))
    topologies.remove_node("h0")
    topologies.put_node(node("b0/r0/h0"))
    assert topologies.place({"all": [ask(1, required=HOST)]}).ok
    assert not topologies.place({"all": [ask(2, required=HOST)]}).ok


def test_a_topology_without_levels_is_as_good_as_none() -> None:
    topologies = Topologies()
    topologies.put_topology(Topology("none", ()))
    topologies.put_flavor(Flavor("f", topology="none"))
    assert topologies.ledger("f") is None
    with pytest.raises(ValueError, match="topology 'none': levels must not be empty"):
        TopologyLedger(Flavor("f", topology="none"), Topology("none", ()))


def test_levels_are_checked_before_placing() -> None:
    made = ledger([node("b0/r0/h0")])
    assert made.has_levels(TopologyRequest(required=RACK, slices=(Slice(HOST, 2),)))
    assert not made.has_levels(TopologyRequest(preferred="zone"))
    assert not made.has_levels(TopologyRequest(slices=(Slice("zone", 2),)))


def test_implied_requests_are_unconstrained_at_the_lowest_level() -> None:
    made = ledger([node("b0/r0/h0"), node("b0/r0/h1", 2000)])
    answer = place(made, [PlacementRequest(PodSet("main", 2, {"cpu": 1000}), implied=True)])
    assert pods(answer.assignments["main"]) == {"h1": 2}


def test_pods_that_fit_are_counted_at_the_first_question_and_after_each_change() -> None:
    made = ledger([node("b/r/h1"), node("b/r/h2")])
    requests = as_pod_requests({"cpu": 1000})
    assert [made.pods_that_fit(requests) for _ in range(2)] == [8, 8]
    made.put_node(node("b/r/h2", 1000))
    assert [made.pods_that_fit(requests) for _ in range(2)] == [5, 5]
    made.put_node(node("b/r/h3"))
    assert made.pods_that_fit(requests) == 9
    assert made.pods_that_fit(as_pod_requests({"cpu": 4000})) == 2


def test_only_placed_pod_sets_with_pods_take_room() -> None:
    live = Topologies()
    live.put_topology(Topology("hosts", LEVELS))
    live.put_flavor(Flavor("all", topology="hosts"))
    live.put_node(node("b/r/h1"))
    there = TopologyAssignment((HOST,), (Domain(("h1",), 1),))
    parts = (
        PodSetAssignment("placed", 1, {"cpu": "all"}, {"cpu": 1000}, there),
        PodSetAssignment("elsewhere", 2, {"cpu": "plain"}, {"cpu": 2000}),
        PodSetAssignment("empty", 0, {"cpu": "all"}, {"cpu": 0}, there),
    )
    admission = Admission("q", parts)
    assert live.has_room(admission)
    live.put_holder("ns/w", admission)
    made = live.ledger("all")
    assert made is not None
    (leaf,) = made.leaves()
    assert (leaf.free["cpu"], leaf.free["pods"]) == (3000, 109)
    assert list(live.node_ledger.placed_on("h1")) == ["ns/w"]
    live.remove_holder("ns/w")
    assert (leaf.free["cpu"], leaf.free["pods"]) == (4000, 110)
