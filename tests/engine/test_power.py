"""QueuePolicy.spec.placement.power: caps of racks and the like, which no start exceeds, whichever queue it is of."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from typing import Any

import hypothesis.strategies as st
import pytest
from bench.power_proof import Cap, PoweredNode, PowerProof
from hypothesis import example, given
from tests.builders.engine import GPU, EngineWorld, gang, group, of
from tests.engine.node_world import NodeWorld
from tests.engine.test_card_admission import why
from tests.engine.test_placement_policy import HOSTS, POOL, places
from tests.examples import examples

from gangline.engine.model import (
    Admit,
    Backfill,
    ClusterQueue,
    Flavor,
    ForeignPod,
    Gone,
    JobProfile,
    Node,
    PlacementPolicy,
    PlacementScore,
    PodSet,
    PowerCap,
    Preempt,
    PreemptionPolicy,
    Recovery,
    RuntimeForecast,
    SpeedAlone,
    Topology,
    TopologyRequest,
    Traits,
)
from gangline.engine.occupancy.fitting import HOSTNAME

RACK, PDU = "example.com/rack", "example.com/pdu"


def rack(name: str, gpus: int = 8, limit: int = 500, idle: int = 0, **labels: str) -> Node:
    """A node whose rack is the first part of its name: r1-n0."""
    where = {RACK: name.partition("-")[0], **{f"example.com/{key}": value for key, value in labels.items()}}
    return Node(
        name,
        {**POOL, HOSTNAME: name, **where},
        {GPU: gpus, "cpu": 99, "pods": 110},
        idle_watts=idle,
        gpu_watts=limit,
        uid=name,
    )


def caps(watts: int, label: str = RACK, percent: int = 100, **fields: Any) -> PowerCap:
    return PowerCap(label, watts, percent=percent, **fields)


def capped(*power: PowerCap, profile: str = "Pack", **fields: Any) -> PlacementPolicy:
    return PlacementPolicy(profile, power=power, **fields)


def queue(name: str, policy: PlacementPolicy | None = None, flavor: str = "plain", **fields: Any) -> ClusterQueue:
    return ClusterQueue(name, groups=(group({flavor: {GPU: 999, "cpu": 999}}),), placement=policy, **fields)


def world(policy: PlacementPolicy, *items: Any, **fields: Any) -> EngineWorld:
    """Queue q has the policy, queue r has none."""
    return EngineWorld(Flavor("plain", POOL), HOSTS, queue("q", policy, **fields), queue("r", None, **fields), *items)


def admitted(cluster: EngineWorld) -> list[str]:
    return of(cluster.decide(), Admit)


# --- the cap ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("where", ["q", "r"])
def test_a_rack_takes_pods_as_long_as_its_cap_lasts_whichever_queue_they_are_of(where: str) -> None:
    """2,000 W are four GPUs of 500 W: two nodes with eight each take four together, and pods without a GPU at any time."""
    cluster = world(capped(caps(2_000)), rack("r1-n0"), rack("r1-n1"))
    cluster.put(gang("w1", 3, where), gang("w2", 2, "r"), gang("w3", 1, "q"), gang("w4", 1, where))
    cluster.put(gang("w5", queue="q", pod_sets=(PodSet("main", 1, {"cpu": 1}),)))
    assert set(admitted(cluster)) == {"w1", "w3", "w5"}
    assert "power of example.com/rack=r1: 2000 W used, 2000 W of 2000 W may be" in why(cluster, "w2")


def test_the_pods_of_one_gang_count_together_and_go_to_several_racks() -> None:
    for where in ("q", "r"):
        cluster = world(capped(caps(2_000)), *(rack(name) for name in ("r1-n0", "r1-n1", "r2-n0", "r2-n1")))
        cluster.put(gang("w1", 1, where, pods=9))
        assert admitted(cluster) == []
        cluster.put(gang("w2", 1, where, pods=8))
        assert admitted(cluster) == ["w2"]
        assert cluster.engine._store.node_ledger.power is not None
        domains = cluster.engine._store.node_ledger.power.domains
        assert {domain.key[1]: domain.used for domain in domains.values()} == {"r1": 2_000, "r2": 2_000}


@pytest.mark.parametrize("policy", [True, False])
def test_a_gang_that_asks_for_a_topology_counts_together_too(policy: bool) -> None:
    """A block of two racks: no rack holds more than four pods, and a host eight."""
    levels = Topology("tree", ("example.com/block", HOSTNAME))
    flavor = Flavor("tree", POOL, topology="tree")
    names = ("r1-n0", "r1-n1", "r2-n0", "r2-n1")
    cluster = EngineWorld(
        flavor,
        levels,
        HOSTS,
        queue("q", capped(caps(2_000)), "tree"),
        queue("r", None, "tree"),
        *(rack(name, block="b") for name in names),
    )
    where = "q" if policy else "r"
    asked = TopologyRequest(required="example.com/block")

    def wants(name: str, pods: int, level: TopologyRequest = asked) -> None:
        cluster.put(gang(name, queue=where, pod_sets=(PodSet("main", pods, {GPU: 1}, topology=level),)))

    wants("w1", 9)
    assert admitted(cluster) == []
    assert "power of example.com/rack=" in why(cluster, "w1")
    wants("w2", 8)
    assert admitted(cluster) == ["w2"]
    by_rack = Counter[str]()
    for name, count in places(cluster, "w2").items():
        by_rack[name.partition("-")[0]] += count
    assert by_rack == {"r1": 4, "r2": 4}
    cluster.finish("w2")
    wants("w3", 4, TopologyRequest(required=HOSTNAME))
    assert admitted(cluster) == ["w3"]


def test_two_gangs_of_one_cycle_do_not_get_the_same_watts() -> None:
    queues = [queue("q", capped(caps(2_000)), cohort="c"), queue("r", None, cohort="c")]
    cluster = EngineWorld(Flavor("plain", POOL), HOSTS, *queues, rack("r1-n0"), rack("r1-n1"))
    cluster.put(gang("w1", 3, "q"), gang("w2", 3, "r"))
    assert len(admitted(cluster)) == 1


def test_idle_watts_margins_and_pods_of_nobody_count() -> None:
    """4,000 W with 95 % are 3,800; two idle nodes draw 600, and a pod of nobody 1,000: four GPUs are left."""
    cluster = world(capped(caps(4_000, percent=95)), rack("r1-n0", idle=300), rack("r1-n1", idle=300))
    cluster.put(ForeignPod("x/a", "r1-n0", {GPU: 2}))
    cluster.put(gang("w1", 5), gang("w2", 4))
    assert admitted(cluster) == ["w2"]
    cluster.engine.observe(Gone(ForeignPod, "x/a"))
    cluster.put(gang("w3", 3))
    assert admitted(cluster) == []
    cluster.put(gang("w4", 2))
    assert admitted(cluster) == ["w4"]


def test_who_waits_for_power_is_woken_by_the_other_nodes_of_the_rack_and_by_a_higher_cap() -> None:
    other = Flavor("other", {"pool": "b"})
    in_other_pool = replace(rack("r1-n1"), labels={**rack("r1-n1").labels, "pool": "b"})
    cluster = world(capped(caps(2_000)), rack("r1-n0"), other, in_other_pool, queue("s", None, "other"))
    cluster.put(gang("w1", 4, "s"))
    assert admitted(cluster) == ["w1"]
    cluster.put(gang("w2", 4, "r"))
    assert admitted(cluster) == []
    cluster.finish("w1")
    assert admitted(cluster) == ["w2"], "another flavor's pods have left the rack"
    cluster.put(gang("w3", 1, "r"))
    assert admitted(cluster) == []
    cluster.put(queue("q", capped(caps(2_500))))
    assert admitted(cluster) == ["w3"]
    cluster.put(gang("w4", 2, "r"))
    assert admitted(cluster) == []
    cluster.put(queue("q"))
    assert admitted(cluster) == ["w4"], "without a policy nothing is capped"


def test_another_leader_counts_the_same() -> None:
    cluster = world(capped(caps(2_000)), rack("r1-n0"), rack("r1-n1"))
    cluster.put(gang("w1", 2), gang("w2", 1, "r"))
    assert admitted(cluster) == ["w1", "w2"]
    cluster.restart()
    cluster.put(gang("w3", 2, "r"), gang("w4", 1, "q"))
    assert admitted(cluster) == ["w4"]


def test_a_rack_of_its_own_cap_and_a_feed_above_racks() -> None:
    """r1 may draw less than the others, and both racks hang on one PDU."""
    power = (caps(4_000, own=(("r1", 1_000),)), caps(4_500, PDU))
    cluster = world(capped(*power, profile="Spread"), rack("r1-n0", pdu="p"), rack("r2-n0", pdu="p"))
    cluster.put(gang("w1", 1, pods=10))
    assert admitted(cluster) == []
    cluster.put(gang("w2", 1, pods=9))
    assert admitted(cluster) == ["w2"]
    assert places(cluster, "w2") == {"r1-n0": 2, "r2-n0": 7} or places(cluster, "w2") == {"r1-n0": 1, "r2-n0": 8}


def test_a_gang_is_preempted_for_power_where_it_would_be_for_room() -> None:
    preemption = PreemptionPolicy(within_cluster_queue="LowerPriority")
    for where in ("q", "r"):
        cluster = world(capped(caps(2_000)), rack("r1-n0"), rack("r1-n1"), preemption=preemption)
        cluster.put(gang("w1", 3, where))
        cluster.decide()
        cluster.put(gang("w2", 3, where, priority=5))
        assert of(cluster.decide(), Preempt) == ["w1"]
        cluster.complete_evictions()
        assert admitted(cluster) == ["w2"]


def test_no_backfilled_gang_takes_the_watts_of_the_head() -> None:
    def lasts(name: str, minutes: int) -> RuntimeForecast:
        return RuntimeForecast(f"team/{name}", ((0.5, minutes * 60_000), (0.9, minutes * 60_000 + 1)))

    cluster = world(capped(caps(2_000)), rack("r1-n0"), rack("r1-n1"), backfill=Backfill())
    cluster.put(gang("w1", 3), lasts("w1", 30))
    cluster.decide()
    cluster.put(gang("w2", 4), lasts("w2", 30), gang("w3", 1), lasts("w3", 300), gang("w4", 1), lasts("w4", 5))
    assert admitted(cluster) == ["w4"]


def test_lost_pods_are_replaced_in_a_full_rack() -> None:
    """Those on the failed node count no more, and those that replace them do."""
    cluster = NodeWorld(
        Flavor("plain", POOL),
        HOSTS,
        queue("q", capped(caps(2_000)), recovery=Recovery()),
        *(rack(name) for name in ("r1-n0", "r1-n1", "r1-n2")),
    )
    cluster.put(gang("w1", 4))
    cluster.decide()
    assert places(cluster, "w1") == {"r1-n0": 1}
    cluster.fail("r1-n0")
    for _ in range(4):
        cluster.tick(60)
        cluster.decide()
    assert places(cluster, "w1") == {"r1-n1": 1}
    cluster.put(gang("w2", 1))
    assert admitted(cluster) == []


def test_a_message_names_few_of_many_domains() -> None:
    cluster = world(capped(caps(400)), *(rack(f"r{number}-n0") for number in range(9)))
    cluster.put(gang("w1", 1), gang("w2", 1, "r"))
    assert admitted(cluster) == []
    assert "power of 6 other domains: 6" in why(cluster, "w1")
    assert why(cluster, "w2").count("power of ") == 3
    assert "; 6 more)" in why(cluster, "w2")


def test_a_lowered_cap_stops_nobody_and_starts_nobody() -> None:
    cluster = world(capped(caps(2_000)), rack("r1-n0"), rack("r1-n1"))
    cluster.put(gang("w1", 3), gang("w2", 1))
    cluster.decide()
    cluster.put(queue("q", capped(caps(1_000))), gang("w3", 1))
    decided = cluster.decide()
    assert of(decided, Admit) == []
    assert cluster.running() == ["w1", "w2"]


def test_a_dry_run_caps_nothing() -> None:
    cluster = world(capped(caps(500), dry_run=True), rack("r1-n0"))
    cluster.put(gang("w1", 4), gang("w2", 4, "r"))
    assert admitted(cluster) == ["w1", "w2"]


# --- what a job draws ---------------------------------------------------------------------------------------------------


def of_class(name: str, gpus: int, kind: str, queue: str = "q") -> Any:
    return gang(name, queue=queue, pod_sets=(PodSet("main", 1, {GPU: gpus}, traits=Traits(kind=kind)),))


SPARING = JobProfile("sparing", alone=(SpeedAlone("h100", watts=200), SpeedAlone("", watts=100)))


@pytest.mark.parametrize("where", ["q", "r"])
def test_measured_watts_count_only_where_every_policy_trusts_them(where: str) -> None:
    """2,000 W: four GPUs by their limit, ten by what was measured. A class is what a tenant says, so it is trusted on demand."""
    model = {"nvidia.com/gpu.product": "NVIDIA-H100-80GB"}
    node = rack("r1-n0", 16)
    node = replace(node, labels={**node.labels, **model})
    for measured, most in ((False, 4), (True, 10)):
        cluster = world(capped(caps(2_000, measured=measured)), node, SPARING)
        cluster.put(*(of_class(f"w{number}", 1, "sparing", where) for number in range(12)))
        cluster.decide()
        assert len(cluster.running()) == most
    cluster = world(capped(caps(2_000, measured=True)), node, queue("s", capped(caps(9_000, PDU))), SPARING)
    cluster.put(*(of_class(f"w{number}", 1, "sparing", where) for number in range(12)))
    cluster.decide()
    assert len(cluster.running()) == 4


def test_no_profile_makes_an_accelerator_draw_more_than_its_limit() -> None:
    hungry = JobProfile("hungry", alone=(SpeedAlone("", watts=9_000),))
    cluster = world(capped(caps(2_000, measured=True)), rack("r1-n0"), hungry)
    cluster.put(of_class("w1", 4, "hungry"), of_class("w2", 1, "unknown"))
    assert admitted(cluster) == ["w1"]


def test_a_node_that_does_not_say_counts_with_what_the_policy_says() -> None:
    cluster = world(capped(caps(2_000, gpu_watts=1_000)), rack("r1-n0", limit=0))
    cluster.put(gang("w1", 3), gang("w2", 2))
    assert admitted(cluster) == ["w2"]


# --- scorers ------------------------------------------------------------------------------------------------------------


def test_thermal_takes_the_rack_with_most_left_of_its_cap() -> None:
    """Eight equal jobs on four equal racks end two each; a rack over 95 % of its cap is no choice at all."""
    policy = PlacementPolicy(scores=(PlacementScore("Thermal"),), power=(caps(40_000, percent=95),))
    nodes = [rack(f"r{number}-n0", 16, limit=700) for number in range(4)]
    cluster = world(policy, *nodes)
    for number in range(8):
        cluster.put(gang(f"w{number}", 4))
        cluster.decide()
    taken = Counter(next(iter(places(cluster, f"w{number}"))) for number in range(8))
    assert set(taken.values()) == {2}
    cluster = world(policy, rack("r1-n0", 6, idle=34_000, limit=700), rack("r2-n0", 6, idle=22_000, limit=700))
    cluster.put(gang("w1", 6))
    cluster.decide()
    assert places(cluster, "w1") == {"r2-n0": 1}, "34 + 4.2 kW are more than 38"


def test_thermal_sees_what_a_neighbour_of_the_rack_draws_and_how_hot_a_node_is() -> None:
    heat = PlacementScore("Thermal", annotation="example.com/celsius", most=80)
    policy = PlacementPolicy(scores=(heat,), power=(caps(40_000),))
    cluster = world(policy, rack("r1-n0"), rack("r1-n1"), rack("r2-n0"))
    cluster.put(gang("w1", 4), gang("w2", 1))
    cluster.decide()
    assert places(cluster, "w1") == {"r1-n0": 1}
    assert places(cluster, "w2") == {"r2-n0": 1}
    cluster.put(replace(rack("r2-n0"), annotations={"example.com/celsius": "81"}), gang("w3", 1))
    cluster.decide()
    assert set(places(cluster, "w3")) != {"r2-n0"}


def test_green_wakes_no_node_and_takes_sparing_accelerators_first() -> None:
    sparing, hungry = rack("r2-n0", 4, limit=70, idle=150), rack("r1-n0", 4, limit=400, idle=150)
    cluster = world(PlacementPolicy("Green"), hungry, replace(hungry, name="r1-n1", uid="r1-n1"), sparing)
    for number in range(6):
        cluster.put(gang(f"w{number}", 1))
        cluster.decide()
    taken = Counter(next(iter(places(cluster, f"w{number}"))) for number in range(6))
    assert taken == {"r2-n0": 4, "r1-n0": 2}


# --- the proof ----------------------------------------------------------------------------------------------------------

STEPS = st.lists(
    st.one_of(
        st.tuples(
            st.just("arrive"),
            st.sampled_from("qrs"),
            st.integers(1, 4),
            st.integers(0, 3),
            st.sampled_from(["", "sparing"]),
            st.sampled_from(["", HOSTNAME, "example.com/block"]),
            st.integers(0, 3),
        ),
        st.tuples(st.just("finish"), st.integers(0, 30)),
        st.tuples(st.just("foreign"), st.integers(0, 7), st.integers(0, 4)),
        st.tuples(st.just("cap"), st.integers(1, 12)),
        st.tuples(st.just("restart")),
        st.tuples(st.just("evicted")),
    ),
    min_size=4,
    max_size=24,
)


class Watched:
    """A cluster of eight nodes in three racks on two feeds, with everything that it does passed to the proof."""

    def __init__(self, *, measured: bool, profile: str) -> None:
        self.measured, self.profile = measured, profile
        preemption = PreemptionPolicy(within_cluster_queue="LowerPriority")
        self.preemption = preemption
        self.nodes = [
            rack(f"r{number % 3}-n{number}", 4, limit=(300, 500)[number % 2], idle=50, pdu=f"p{number % 2}", block="b")
            for number in range(8)
        ]
        self.cluster = EngineWorld(
            Flavor("plain", POOL),
            HOSTS,
            Topology("tree", ("example.com/block", HOSTNAME)),
            Flavor("tree", POOL, topology="tree"),
            self.policy(6),
            queue("r", None, preemption=preemption),
            queue("s", None, "tree", preemption=preemption),
            SPARING,
            *self.nodes,
        )
        self.proof = PowerProof(self.caps(6), {"sparing": 100} if measured else {})
        for node in self.nodes:
            self.proof.put_node(
                node.name, PoweredNode(node.labels, node.allocatable[GPU], node.idle_watts, node.gpu_watts)
            )
        self.number = 0

    def policy(self, scale: int) -> ClusterQueue:
        power = (
            caps(500 * scale, percent=95, measured=self.measured),
            caps(700 * scale, PDU, percent=90, measured=self.measured),
        )
        return queue("q", capped(*power, profile=self.profile), preemption=self.preemption)

    @staticmethod
    def caps(scale: int) -> list[Cap]:
        return [Cap(RACK, 500 * scale), Cap(PDU, 700 * scale, 90)]

    def take(self, step: tuple[Any, ...]) -> list[str]:
        cluster = self.cluster
        match step:
            case ("arrive", where, pods, gpus, kind, level, priority):
                self.number += 1
                topology = TopologyRequest(required=level) if level and where == "s" else None
                if where == "s" and topology is None:
                    topology = TopologyRequest(unconstrained=True)
                pod_set = PodSet("main", pods, {GPU: gpus} if gpus else {}, topology=topology, traits=Traits(kind=kind))
                cluster.put(gang(f"w{self.number}", queue=where, pod_sets=(pod_set,), priority=priority))
            case ("finish", number):
                if names := cluster.running():
                    cluster.finish(names[number % len(names)])
            case ("foreign", number, gpus):
                node = self.nodes[number].name
                if gpus:
                    cluster.put(ForeignPod(f"x/{number}", node, {GPU: gpus}))
                else:
                    cluster.engine.observe(Gone(ForeignPod, f"x/{number}"))
                self.proof.put_others(f"x/{number}", {node: gpus} if gpus else {})
            case ("cap", scale):
                cluster.put(self.policy(scale))
                self.proof.caps = self.caps(scale)
            case ("restart",):
                foreign = list(cluster.engine._store.foreign_pods.values())
                cluster.restart()
                cluster.put(*foreign)
            case _:
                cluster.complete_evictions()
        return self.look()

    def look(self) -> list[str]:
        """Decide, and tell the proof who holds what now: those who left first."""
        self.cluster.decide()
        grants = {name: self.on_nodes(name) for name in self.cluster.workloads}
        known = {*self.proof._admitted}
        for key in known - {f"team/{name.rpartition('/')[2]}" for name in grants}:
            self.proof.put_grant(key, {})
        found: list[str] = []
        for key in sorted(grants, key=lambda each: bool(grants[each][0])):
            found += self.proof.put_grant(key, *grants[key])
        return found

    def on_nodes(self, key: str) -> tuple[dict[str, int], str]:
        workload = self.cluster.workloads[key]
        (pod_set,) = workload.pod_sets
        gpus, kind = pod_set.requests.get(GPU, 0), pod_set.traits.kind
        if workload.admission is None or not gpus:
            return {}, kind
        found = places(self.cluster, workload.name)
        if not found:
            found = (self.cluster.engine.places_of(key) or {}).get("main", {})
        return {node: count * gpus for node, count in found.items() if count}, kind


#: on the node where the pod of w1 may be, pods of w3 are placed as well, and w1 may go anywhere else
_TOO_MANY = [("arrive", "r", 1, 2, "sparing", "", 0), ("arrive", "q", 4, 3, "", "", 0)]


@given(STEPS, st.booleans(), st.sampled_from(["Pack", "Spread", "Green"]))
@example(steps=[_TOO_MANY[0], ("restart",), _TOO_MANY[1]], measured=True, profile="Green")
@examples(60)
def test_no_start_takes_a_domain_over_its_cap(steps: list[tuple[Any, ...]], measured: bool, profile: str) -> None:
    watched = Watched(measured=measured, profile=profile)
    for step in steps:
        assert watched.take(step) == [], step


def test_the_proof_finds_what_must_not_be() -> None:
    proof = PowerProof([Cap(RACK, 2_000, 100)])
    for name in ("n0", "n1"):
        proof.put_node(name, PoweredNode({RACK: "r1"}, 8, idle=100, limit=500))
    assert proof.put_grant("a", {"n0": 2}) == []
    assert proof.put_grant("b", {"n1": 2}) == [f"{RACK}=r1 draws 2200 W of 2000 W with b"]
    assert proof.put_grant("b", {}) == []
    proof.put_others("x", {"n1": 4})
    assert proof.put_pods("a", {"n0": 2}) == [], "its pods draw what its admission does"
    assert proof.put_pods("a", {"n0": 3}) != []
