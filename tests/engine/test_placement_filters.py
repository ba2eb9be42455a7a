"""Filters, profiles and scorers of QueuePolicy.spec.placement that look at more than what is free: rows of the source by name."""

from __future__ import annotations

import pytest
from tests.builders.engine import GPU, START, EngineWorld, gang, group, of, reported_pending
from tests.engine.test_placement_policy import POOL, host, places, queue, world

from gangline.engine.model import (
    EXCLUDED,
    READING,
    TAKEN,
    Admit,
    ClusterQueue,
    Evict,
    Flavor,
    Node,
    NodeEviction,
    PlacementFilter,
    PlacementPolicy,
    PlacementScore,
    PodSet,
    Swap,
    Topology,
    TopologyRequest,
    Traits,
)
from gangline.engine.occupancy.fitting import HOSTNAME
from gangline.engine.placing.own_scorers import OWN_SCORERS
from gangline.engine.placing.scorers import target_points
from gangline.engine.topology.leaf_ranking import OF_POLICY
from gangline.engine.topology.policy_filter import full_name, number

RDMA = PlacementFilter("RDMA")
GIB = 1 << 30


def node(
    name: str, *, images: dict[str, int] | None = None, said: dict[str, str] | None = None, **amounts: int
) -> Node:
    found = {GPU: 4, "pods": 110, **{key.replace("__", "/"): amount for key, amount in amounts.items()}}
    return Node(name, {**POOL, HOSTNAME: name}, found, annotations=said or {}, images=images or {})


def filtered(*filters: PlacementFilter, dry_run: bool = False) -> PlacementPolicy:
    return PlacementPolicy("Pack", filters=filters, dry_run=dry_run)


def scored(*scores: PlacementScore) -> PlacementPolicy:
    return PlacementPolicy(scores=scores)


def work(name: str, gpus: int = 1, pods: int = 1, **traits: object) -> object:
    return gang(name, pod_sets=(PodSet("main", pods, {GPU: gpus}, traits=Traits(**traits)),))  # type: ignore[arg-type]


def message(cluster: EngineWorld, name: str) -> str:
    return reported_pending(cluster.decide())[name].explanation.message


# --- filters ------------------------------------------------------------------------------------------------------------


def test_each_filter_is_counted_in_the_reason() -> None:
    """Five nodes have no RDMA, one has too little room: the gang waits and says so."""
    nodes = [node(f"n{number}") for number in range(5)]
    cluster = world(filtered(RDMA), *nodes, node("r", rdma__hca=1), gang("w1", 4, pods=2))
    said = message(cluster, "w1")
    assert f'topology "{OF_POLICY}" allows to fit only 1 out of 2 pod(s). Total nodes: 6; excluded: no RDMA: 5' in said
    cluster.put(node("n3", rdma__hca=1))
    assert of(cluster.decide(), Admit) == ["w1"] and places(cluster, "w1") == {"n3": 1, "r": 1}


def test_rdma_is_a_resource_or_a_label_of_discovery() -> None:
    label = "feature.node.kubernetes.io/rdma.available"
    with_label, without = ({**POOL, HOSTNAME: name, label: said} for name, said in (("c", "true"), ("d", "false")))
    labelled = [Node("c", with_label, {GPU: 4, "pods": 9}), Node("d", without, {GPU: 4, "pods": 9})]
    found = [node("a", rdma__x=0), node("b", vpc__efa=1), *labelled]
    cluster = world(filtered(RDMA), *found, gang("w1", 4, pods=2))
    assert "allows to fit only 1 out of 2" in message(cluster, "w1")
    named = world(filtered(PlacementFilter("RDMA", resource="vpc/efa")), *found, gang("w1", 4, pods=1))
    named.decide()
    assert places(named, "w1") == {"b": 1}


def test_node_labels_with_and_without_values() -> None:
    nodes = [host("a", zone="x"), host("b", zone="y"), host("c")]
    for values, wanted in (((), {"a": 1, "b": 1}), (("y",), {"b": 1})):
        policy = filtered(PlacementFilter("NodeLabel", label="zone", values=values))
        cluster = world(policy, *nodes, gang("w1", 4, pods=len(wanted)))
        cluster.decide()
        assert places(cluster, "w1") == wanted
    cluster.put(gang("w2", 3))
    assert "no label zone=y: 2" in message(cluster, "w2")


def test_images_have_to_be_there_where_the_policy_asks_for_it() -> None:
    policy = filtered(PlacementFilter("ImagePresent"))
    nodes = [node("a"), node("b", images={"docker.io/library/train:1": GIB})]
    cluster = world(policy, *nodes, work("w1", images=("train:1",)), work("w2", images=("train:2",)), work("w3"))
    assert "excluded: image not present: 2" in message(cluster, "w2")
    assert places(cluster, "w1") == {"b": 1} and places(cluster, "w3") == {"b": 1}
    cluster.put(node("a", images={"docker.io/library/train:2": GIB}))
    assert of(cluster.decide(), Admit) == ["w2"] and places(cluster, "w2") == {"a": 1}


def test_l5_intel_tas_a_metric_excludes_nodes_and_orders_the_others() -> None:
    """Temperature above 85: 88 is excluded; of the others 60 goes before 70. A node that says nothing is not excluded."""
    hot = PlacementFilter("NodeMetric", annotation="temp", most=85)
    cool = PlacementScore("NodeMetric", annotation="temp", least=30, most=90)
    policy = PlacementPolicy(scores=(cool,), filters=(hot,))
    nodes = [node(name, said={"temp": temp}) for name, temp in (("a", "88"), ("b", "70"), ("c", "60"), ("d", "?"))]
    cluster = world(policy, *nodes)
    for number_ in range(4):
        cluster.put(gang(f"w{number_}", 4))
        cluster.decide()
    # 60 has 50 points, as has the one that says nothing; the first by name of equals is taken
    assert [places(cluster, f"w{number_}") for number_ in range(3)] == [{"c": 1}, {"d": 1}, {"b": 1}]
    assert "w3" not in cluster.running()
    cluster.put(node("a", said={"temp": "85"}))
    assert of(cluster.decide(), Admit) == ["w3"], "what excluded it is gone: it is tried again"


def test_a_metric_that_only_orders_wakes_nobody_and_is_seen_by_the_next_gang() -> None:
    policy = scored(PlacementScore("NodeMetric", annotation="load"))
    cluster = world(policy, node("a", said={"load": "90"}), node("b", said={"load": "10"}), gang("w9", 5))
    cluster.decide()
    cluster.put(node("a", said={"load": "5"}))
    assert cluster.decide() == [], "w9 is not looked at again"
    cluster.put(gang("w1", 1))
    cluster.decide()
    assert places(cluster, "w1") == {"a": 1}


@pytest.mark.parametrize("spare", [False, True])
def test_filters_hold_inside_topologies_after_a_restart_and_for_replacements(spare: bool) -> None:
    nodes = [node("n0", rdma__hca=1), node("n1"), node("n2", rdma__hca=1) if spare else node("n2")]
    cluster = EngineWorld(
        Flavor("plain", POOL, topology="hosts"),
        Topology("hosts", (HOSTNAME,)),
        Topology(OF_POLICY, (HOSTNAME,)),
        queue(filtered(RDMA)),
        *nodes,
    )
    asked = TopologyRequest(required=HOSTNAME)
    cluster.put(gang("w1", pod_sets=(PodSet("main", 2, {GPU: 1}, topology=asked),), unowned=True))
    cluster.decide()
    assert places(cluster, "w1") == {"n0": 2}
    cluster.restart()
    cluster.decide()
    assert places(cluster, "w1") == {"n0": 2}
    cluster.change("w1", unhealthy_nodes=("n0",))
    cluster.put(Node("n0", {**POOL, HOSTNAME: "n0"}, {GPU: 4, "pods": 110, "rdma/hca": 1}, ready=False))
    assert cluster.decide() == [], "for a moment the node may return"
    (decision,) = cluster.decide()
    if spare:
        assert isinstance(decision, Swap) and places(cluster, "w1") == {"n2": 2}
    else:
        assert isinstance(decision, Evict), "no other node has RDMA"


# --- a policy that is tried out -----------------------------------------------------------------------------------------


def wide(policy: PlacementPolicy) -> ClusterQueue:
    """A queue with quota of all that the nodes have."""
    return ClusterQueue("q", groups=(group({"plain": {GPU: 64, "cpu": 10**9, "memory": 10**9}}),), placement=policy)


def admissions(decisions: object) -> dict[str, str]:
    return {each.workload.partition("/")[2]: each.preview for each in decisions if isinstance(each, Admit)}  # type: ignore[attr-defined]


def test_a_dry_run_is_shown_and_changes_nothing() -> None:
    for policy in (None, filtered(RDMA, dry_run=True)):
        cluster = world(policy, host("n0"), node("n1", rdma__hca=1), gang("w1", 2, pods=2), gang("w2", 3))
        shown = admissions(cluster.decide())
        assert places(cluster, "w1") == places(cluster, "w2") == {}
        if policy is None:
            assert shown == {"w1": "", "w2": ""}
        else:
            assert shown["w1"] == "main: n1 (2)"
    cluster.finish("w1")
    cluster.finish("w2")
    cluster.decide()
    cluster.put(gang("w3", 1, pods=6))
    (shown,) = admissions(cluster.decide()).values()
    assert shown.startswith("would wait: ") and "no RDMA: 1" in shown


def test_a_dry_run_beside_a_topology_leaves_its_order_alone() -> None:
    flavor, levels = Flavor("plain", POOL, topology="hosts"), Topology("hosts", (HOSTNAME,))
    found = []
    for policy in (None, PlacementPolicy("Spread", dry_run=True)):
        cluster = EngineWorld(flavor, levels, Topology(OF_POLICY, (HOSTNAME,)), queue(policy), host("n0"), host("n1"))
        cluster.put(gang("w1", 1, pods=2))
        shown = admissions(cluster.decide())["w1"]
        found.append((places(cluster, "w1"), shown))
    assert found == [({"n0": 2}, ""), ({"n0": 2}, "main: n0 (1), n1 (1)")]


# --- profiles -----------------------------------------------------------------------------------------------------------

MEMORY = {"L": 8_300, "G": 300, "T": 3_500, "Q": 5_300}
BUSY = {"L": 20, "G": 60, "T": 90, "Q": 40}


def study(policy: PlacementPolicy, kinds: str, memory: int = 12_000) -> list[str]:
    """Where the jobs of the study go, one after the other, on four nodes that stand for its cards."""
    nodes = [
        Node(f"n{each}", {**POOL, HOSTNAME: f"n{each}"}, {GPU: 2, "memory": memory, "pods": 9}) for each in range(4)
    ]
    cluster = world(policy, wide(policy), *nodes)
    for position, kind in enumerate(kinds):
        asks = {GPU: 1, "memory": 1} if memory < 100 else {"memory": MEMORY[kind]}
        traits = Traits(kind=kind, utilisation=BUSY[kind] if memory >= 100 else None)
        cluster.put(gang(f"{kind}{position}", pod_sets=(PodSet("main", 1, asks, traits=traits),)))
        cluster.decide()
    found = {f"n{each}": "" for each in range(4)}
    for name in sorted(cluster.running()):
        (where,) = places(cluster, name)
        found[where] += name[0]
    return list(found.values())


def test_k2_standalone_on_nodes_puts_the_same_class_together() -> None:
    """LL, GG, TT, QQ: each class has a node of its own."""
    assert study(PlacementPolicy("Standalone"), "LGTQLGTQ", memory=9) == ["LL", "GG", "TT", "QQ"]


def test_k3_load_balancing_on_nodes_puts_each_where_least_is_used() -> None:
    """Largest utilisation first: L+T, L+T, G+Q, G+Q."""
    flavor_less = study(PlacementPolicy("Balance"), "TTGGQQLL")
    assert sorted(flavor_less) == ["GQ", "GQ", "LT", "LT"]


def test_balance_counts_whole_accelerators_where_nobody_says_how_much_is_used() -> None:
    cluster = world(PlacementPolicy("Balance"), host("n0"), host("n1"))
    cluster.put(work("w1", 2, utilisation=10))
    cluster.decide()
    cluster.put(gang("w2", 1))
    cluster.decide()
    assert places(cluster, "w1") == {"n0": 1} and places(cluster, "w2") == {"n1": 1}
    cluster.put(gang("w3", 1))
    cluster.decide()
    assert places(cluster, "w3") == {"n0": 1}, "two accelerators at 5 % are freer than one at 100 %"


def test_classes_are_known_again_after_a_restart_and_forgotten_with_their_gangs() -> None:
    cluster = world(PlacementPolicy("Standalone"), host("n0"), host("n1"), work("w1", kind="a"))
    cluster.decide()
    cluster.restart()
    cluster.put(work("w2", kind="b"))
    cluster.decide()
    assert places(cluster, "w1") == {"n0": 1} and places(cluster, "w2") == {"n1": 1}
    cluster.finish("w1")
    cluster.put(work("w3", kind="b", pods=4))
    cluster.decide()
    assert places(cluster, "w3") == {"n1": 3, "n0": 1}


def test_edge_near_nodes_first_then_images_then_empty_ones() -> None:
    label, image = "gangline.io/network-cost", {"docker.io/library/a:latest": GIB}
    nodes = [
        Node(name, {**POOL, HOSTNAME: name, label: cost}, {GPU: 4, "pods": 9}, images=images)
        for name, cost, images in (("a", "20", image), ("b", "5", {}), ("c", "5", image))
    ]
    cluster = world(PlacementPolicy("Edge"), *nodes)
    for each in range(3):
        cluster.put(work(f"w{each}", 4, images=("a",)))
        cluster.decide()
    assert [places(cluster, f"w{each}") for each in range(3)] == [{"c": 1}, {"b": 1}, {"a": 1}]


# --- scorers ------------------------------------------------------------------------------------------------------------


def test_c9_data_locality_by_annotations() -> None:
    """800 GB near rack 1: at 10 Gbit/s its node is better, at 100 the other one, which is 5 % faster."""
    policy = scored(PlacementScore("DataLocality"))
    data = (("set", 800 * 10**9),)
    for speed, wanted in (("10000", "near"), ("100000", "fast")):
        near = node("near", said={"gangline.io/datasets": "other,set", "gangline.io/download-mbps": speed})
        said = {"gangline.io/download-mbps": speed}
        fast = Node(
            "fast", {**POOL, HOSTNAME: "fast", "gangline.io/speed": "105"}, {GPU: 4, "pods": 9}, annotations=said
        )
        cluster = world(policy, near, fast, work("w1", data=data, seconds=3600))
        cluster.decide()
        assert places(cluster, "w1") == {wanted: 1}


def test_c1_image_locality_by_what_nodes_report() -> None:
    big, small = {"docker.io/library/a:1": 300}, {"docker.io/library/b:1": 100}
    nodes = [node("n0"), node("n1", images=small), node("n2", images=big)]
    cluster = world(scored(PlacementScore("ImageLocality")), *nodes, work("w1", 4, images=("a:1", "b:1")))
    cluster.decide()
    assert places(cluster, "w1") == {"n2": 1}
    cluster.put(work("w2", 4, images=("a:1", "b:1")))
    cluster.decide()
    assert places(cluster, "w2") == {"n1": 1}


def test_l1_edge_load_and_temperature_in_one_tier() -> None:
    """.6 (1 - load) + .4 (Tmax - T) / (Tmax - Tmin): (.4, 70) has .493, (.5, 45) has .60."""
    load = PlacementScore("NodeMetric", weight=6, annotation="load")
    heat = PlacementScore("NodeMetric", weight=4, annotation="temp", least=30, most=90)
    nodes = [node("a", said={"load": "40", "temp": "70"}), node("b", said={"load": "50", "temp": "45"})]
    cluster = world(scored(load, heat), *nodes, gang("w1", 1))
    cluster.decide()
    assert places(cluster, "w1") == {"b": 1}


def test_l3_target_load_packing_points() -> None:
    """Target 40: 30 has 85 points, 45 has 36.7, 10 has 55, above 100 none."""
    assert [round(target_points(load, 40), 1) for load in (30, 45, 10, 101)] == [85.0, 36.7, 55.0, 0.0]
    nodes = [
        Node(name, {**POOL, HOSTNAME: name}, {GPU: 4, "cpu": 10_000, "pods": 9}, annotations={"load": load})
        for name, load in (("a", "35"), ("b", "20"))
    ]
    policy = scored(PlacementScore("TargetLoad", annotation="load", target=40))
    cluster = world(policy, wide(policy), *nodes)
    cluster.put(gang("w1", pod_sets=(PodSet("main", 1, {GPU: 1, "cpu": 1000}),)))
    cluster.decide()
    assert places(cluster, "w1") == {"b": 1}, "with the pod's own CPU a would be at 45, b at 30"


def test_l4_load_variation_the_steadier_node_wins() -> None:
    """Sensitivity 2: (.5, .04) has 65 points, (.4, .25) has 55."""
    risk = PlacementScore("RiskBalance", annotation="mean", deviation="dev", sensitivity=2)
    nodes = [node("a", said={"mean": "40", "dev": "25"}), node("b", said={"mean": "50", "dev": "4"}), node("c")]
    cluster = world(scored(risk), *nodes)
    for each in range(3):
        cluster.put(gang(f"w{each}", 4))
        cluster.decide()
    assert [places(cluster, f"w{each}") for each in range(3)] == [{"b": 1}, {"a": 1}, {"c": 1}]


def test_bandwidth_of_a_resource_leaves_wide_links_free() -> None:
    nodes = [node("a", net__mbps=100), node("b", net__mbps=25), node("c", net__mbps=5)]
    policy = scored(PlacementScore("Bandwidth", resource="net/mbps"))
    quota = group({"plain": {GPU: 64, "net/mbps": 1000}})
    cluster = world(policy, ClusterQueue("q", groups=(quota,), placement=policy), *nodes)
    cluster.put(gang("w1", pod_sets=(PodSet("main", 1, {GPU: 1, "net/mbps": 10}),)))
    cluster.decide()
    assert places(cluster, "w1") == {"b": 1}


def test_scorers_of_users_decide_and_one_that_is_not_there_decides_nothing() -> None:
    policy = scored(PlacementScore("Plugin", plugin="mine"), PlacementScore("Spread", tier=1))
    cluster = world(policy, host("n0"), host("n1"), gang("w1", 1))
    cluster.decide()
    assert places(cluster, "w1") == {"n0": 1}, "nothing is loaded under that name"
    seen: list[object] = []

    def mine(pod: object, where: object) -> int | None:
        seen.append((pod, where))
        return {"n0": None, "n1": 10**9}[where["name"]]  # type: ignore[index]

    OWN_SCORERS.put("mine", mine)
    try:
        cluster = world(policy, host("n0"), host("n1"), gang("w1", 1))
        cluster.decide()
    finally:
        OWN_SCORERS.remove("mine")
    assert places(cluster, "w1") == {"n1": 1} and len(seen) == 2


@pytest.mark.parametrize(
    ("written", "read"),
    [("5", 5), ("0.42", 0.42), ("", None), ("-1", None), ("1e9", None), ("1.", None), (None, None), ("9" * 99, None)],
)
def test_numbers_in_annotations(written: str | None, read: float | None) -> None:
    assert number(written) == read


def test_names_of_images_as_nodes_list_them() -> None:
    assert [full_name(each) for each in ("a", "a:1", "b/a", "r.io/b/a:1", "localhost/a", "r:5000/a", "a@sha256:0")] == [
        "docker.io/library/a:latest",
        "docker.io/library/a:1",
        "docker.io/b/a:latest",
        "r.io/b/a:1",
        "localhost/a:latest",
        "r:5000/a:latest",
        "docker.io/library/a@sha256:0",
    ]


# --- telemetry rules ----------------------------------------------------------------------------------------------------


def reading(name: str, number_: str, *, cpu: int = 10_000, taken: int | None = None, excluded: str = "") -> Node:
    """A node with what the rule r of the policy p says of it."""
    said = {READING_R: number_} if number_ else {}
    said |= {READING_R + TAKEN: str(taken)} if taken is not None else {}
    said |= {READING_R + EXCLUDED: excluded} if excluded else {}
    return Node(name, {**POOL, HOSTNAME: name}, {GPU: 4, "cpu": cpu, "pods": 110}, annotations=said)


READING_R = f"{READING}p/r"
BY_RULE = PlacementFilter("Telemetry", annotation=READING_R + EXCLUDED)


def test_l5_intel_tas_a_telemetry_rule_excludes_orders_and_evicts() -> None:
    """Temperature above 85: 88 is excluded, and 60 goes before 70. Who has to leave keeps its place, and goes to other nodes."""
    cool = PlacementScore("NodeMetric", annotation=READING_R, least=30, most=90)
    policy = PlacementPolicy(scores=(cool,), filters=(BY_RULE,))
    hot = "telemetry rule r above 85"
    cluster = world(policy, reading("a", "88", excluded=hot), reading("b", "70"), reading("c", "60"), gang("w1", 4))
    cluster.decide()
    assert places(cluster, "w1") == {"c": 1}
    cluster.put(gang("w2", 4), gang("w3", 4, created=START + 2000))
    assert of(cluster.decide(), Admit) == ["w2"] and places(cluster, "w2") == {"b": 1}
    assert f"{hot}: 1" in getattr(cluster.engine.explain("team/w3"), "message", "")
    first = cluster.workloads["team/w1"].admitted_at
    cluster.put(reading("c", "91", excluded=hot), NodeEviction("team/w1", first - 1, "of an earlier run"))
    assert of(cluster.decide(), Evict) == []
    cluster.put(NodeEviction("team/w1", first, "node c is hot"))
    (evict,) = [each for each in cluster.decide() if isinstance(each, Evict)]
    assert (evict.workload, evict.reason, evict.message, evict.requeue_at) == (
        "team/w1",
        "NodeMetric",
        "node c is hot",
        None,
    )
    cluster.complete_evictions()
    cluster.decide()
    assert "w1" not in cluster.running() and "w3" not in cluster.running(), "both other hosts are hot or full"
    cluster.put(reading("a", "80"))
    assert of(cluster.decide(), Admit) == ["w1"] and places(cluster, "w1") == {"a": 1}, "it goes before w3, as before"
    assert of(cluster.decide(), Evict) == [], "the fact concerns the run that has ended"


def test_l3_target_load_counts_what_was_placed_since_the_measurement() -> None:
    """Both nodes were at 20 % of their CPU; a gang with 2 of 10 CPUs is on a since: one more is at 60 there, and at 40 on b."""
    policy = scored(PlacementScore("TargetLoad", annotation=READING_R, target=40))
    cluster = world(policy, wide(policy), reading("a", "20", taken=0), reading("b", "20", taken=0))
    for name, wanted in (("w1", "a"), ("w2", "b")):
        cluster.put(gang(name, pod_sets=(PodSet("main", 1, {GPU: 1, "cpu": 2000}),)))
        cluster.decide()
        assert places(cluster, name) == {wanted: 1}
    # once both are measured, 30 is better than 40 and 1 CPU more: 91.0 points for 40 + 10, 100 for 30 + 10
    cluster.put(reading("a", "40", taken=2000), reading("b", "30", taken=2000))
    cluster.put(gang("w3", pod_sets=(PodSet("main", 1, {GPU: 1, "cpu": 1000}),)))
    cluster.decide()
    assert places(cluster, "w3") == {"b": 1}
    assert cluster.engine.cpu_taken(cluster.now) == {"a": 2000, "b": 3000}
    assert cluster.engine.cpu_taken(START - 1) == {"a": 0, "b": 0}


def test_pods_that_ended_since_the_measurement_make_no_load_negative() -> None:
    policy = scored(PlacementScore("TargetLoad", annotation=READING_R, target=40))
    cluster = world(policy, wide(policy), reading("a", "30", taken=9000), reading("b", "35", taken=0))
    cluster.put(gang("w1", pod_sets=(PodSet("main", 1, {GPU: 1, "cpu": 1000}),)))
    cluster.decide()
    assert places(cluster, "w1") == {"a": 1}, "40 and not -50: a has 100 points, b at 45 has 36"


def test_l4_risk_balance_counts_what_was_placed_since_the_measurement() -> None:
    """Sensitivity 2: (.5, .04) has 65 points and (.4, .25) has 55; with a load of .3 placed since, the first one has 50."""
    risk = PlacementScore("RiskBalance", annotation=READING_R, deviation=f"{READING}p/dev", sensitivity=2)
    policy = scored(risk)
    nodes = [
        Node(each.name, each.labels, each.allocatable, annotations={**each.annotations, f"{READING}p/dev": dev})
        for each, dev in ((reading("a", "40", taken=0), "25"), (reading("b", "50", taken=0), "4"))
    ]
    cluster = world(policy, wide(policy), *nodes)
    for name, cpu, wanted in (("w1", 3000, "b"), ("w2", 0, "a")):
        cluster.put(gang(name, pod_sets=(PodSet("main", 1, {GPU: 1, "cpu": cpu}),)))
        cluster.decide()
        assert places(cluster, name) == {wanted: 1}
