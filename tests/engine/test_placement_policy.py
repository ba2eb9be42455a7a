"""QueuePolicy.spec.placement in the engine: which hosts the pods of a queue get, and what stays as it is without one."""

from __future__ import annotations

import time
from collections import Counter
from typing import Any

import hypothesis.strategies as st
import pytest
from hypothesis import given
from tests.builders.engine import GPU, EngineWorld, gang, group, of, reported_pending
from tests.engine.node_world import FLAVOR, TPU, NodeWorld, pools
from tests.examples import examples

from gangline.engine import outlook
from gangline.engine.model import (
    AdmissionCheck,
    Admit,
    Backfill,
    CheckRef,
    CheckState,
    ClusterQueue,
    Flavor,
    ForeignPod,
    Gone,
    Node,
    PlacementPolicy,
    PlacementScore,
    PodSet,
    Preempt,
    PreemptionPolicy,
    Recovery,
    RuntimeForecast,
    Swap,
    Taint,
    Topology,
    TopologyRequest,
    Workload,
)
from gangline.engine.occupancy.fitting import HOSTNAME
from gangline.engine.topology.leaf_ranking import OF_POLICY

HOSTS = Topology(OF_POLICY, (HOSTNAME,))
POOL = {"pool": "a"}
PACK, SPREAD = PlacementPolicy("Pack"), PlacementPolicy("Spread")


def host(name: str, gpus: int = 4, **labels: str) -> Node:
    return Node(name, {**POOL, HOSTNAME: name, **labels}, {GPU: gpus, "pods": 110})


def queue(policy: PlacementPolicy | None, gpus: int = 64, name: str = "q", **fields: Any) -> ClusterQueue:
    return ClusterQueue(name, groups=(group({"plain": {GPU: gpus}}),), placement=policy, **fields)


def world(policy: PlacementPolicy | None, *items: Any, flavor: Flavor | None = None) -> EngineWorld:
    return EngineWorld(flavor or Flavor("plain", POOL), HOSTS, queue(policy), *items)


def places(world: EngineWorld, name: str) -> dict[str, int]:
    """The hosts of a workload's pods."""
    admission = world.workloads[f"team/{name}"].admission
    assert admission is not None
    found: Counter[str] = Counter()
    for pod_set in admission.pod_sets:
        if pod_set.topology is not None:
            assert pod_set.topology.levels == (HOSTNAME,)
            found.update({domain.values[0]: domain.count for domain in pod_set.topology.domains})
    return dict(found)


def test_without_a_policy_pods_of_a_plain_flavor_get_no_hosts() -> None:
    cluster = world(None, host("n0"), host("n1"), gang("w1", 2))
    assert of(cluster.decide(), Admit) == ["w1"]
    assert places(cluster, "w1") == {}


def test_pack_fills_hosts_and_spread_takes_empty_ones() -> None:
    for policy, wanted in (
        (PACK, [{"n0": 1}, {"n0": 1}, {"n0": 2}]),
        (SPREAD, [{"n0": 1}, {"n1": 1}, {"n0": 1, "n1": 1}]),
    ):
        cluster = world(policy, host("n0"), host("n1"))
        for number, pods in enumerate((1, 1, 2)):
            cluster.put(gang(f"w{number}", 1, pods=pods))
            cluster.decide()
        assert [places(cluster, f"w{number}") for number in range(3)] == wanted


def test_a_single_gang_is_spread_pod_by_pod_or_kept_together() -> None:
    for policy, wanted in ((PACK, {"n0": 4}), (SPREAD, {"n0": 1, "n1": 1, "n2": 1, "n3": 1})):
        cluster = world(policy, *(host(f"n{number}") for number in range(4)), gang("w1", 1, pods=4))
        cluster.decide()
        assert places(cluster, "w1") == wanted


def test_fragmentation_keeps_whole_hosts_for_those_who_need_them() -> None:
    """Most pods ask for four GPUs: a pod with one goes where four do not fit any more, not to an empty host."""
    cluster = world(PlacementPolicy(), host("n0", 4), host("n1", 4), host("n2", 2))
    cluster.put(*(gang(f"big{number}0", 4, pods=2, queue="other") for number in range(4)))
    cluster.put(gang("w1", 1))
    cluster.decide()
    assert places(cluster, "w1") == {"n2": 1}


def test_scores_in_tiers_by_node_labels() -> None:
    near, ssd = PlacementScore("NetworkCost", 0, label="rtt"), PlacementScore("NodeLabel", 1, label="disk", value="ssd")
    nodes = (host("n0", rtt="20", disk="ssd"), host("n1", rtt="5"), host("n2", rtt="5", disk="ssd"), host("n3"))
    cluster = world(PlacementPolicy(scores=(near, ssd)), *nodes)
    for number in range(4):
        cluster.put(gang(f"w{number}", 4))
        cluster.decide()
    assert [places(cluster, f"w{number}") for number in range(4)] == [{"n2": 1}, {"n1": 1}, {"n0": 1}, {"n3": 1}]


def test_what_excludes_a_host_is_counted_in_the_reason() -> None:
    tainted = Node(
        "n2", {**POOL, HOSTNAME: "n2"}, {GPU: 4, "pods": 110}, taints=(Taint("maintenance", "", "NoSchedule"),)
    )
    cluster = world(PACK, host("n0"), host("n1", 1), tainted, Node("far", {HOSTNAME: "far"}, {GPU: 4, "pods": 110}))
    cluster.put(gang("w1", 2, pods=3))
    message = reported_pending(cluster.decide())["w1"].explanation.message
    assert f'topology "{OF_POLICY}" allows to fit only 2 out of 3 pod(s)' in message
    assert f'resource "{GPU}": 1' in message and 'taint "maintenance' in message


def test_pods_of_others_count_and_the_gang_starts_when_they_are_gone() -> None:
    cluster = world(PACK, host("n0"), ForeignPod("kube/x", "n0", {GPU: 3}), gang("w1", 2))
    assert of(cluster.decide(), Admit) == []
    cluster.engine.observe(Gone(ForeignPod, "kube/x"))
    assert of(cluster.decide(), Admit) == ["w1"]


def test_nothing_is_placed_before_the_pods_of_others_are_known() -> None:
    cluster = EngineWorld(Flavor("plain", POOL), queue(PACK), host("n0"), gang("w1", 2))
    assert of(cluster.decide(), Admit) == []
    assert "not all known yet" in cluster.engine.queue_status("q").message
    cluster.put(HOSTS)
    assert of(cluster.decide(), Admit) == ["w1"] and places(cluster, "w1") == {"n0": 1}


def test_only_the_queue_with_the_policy_is_placed_and_both_share_the_hosts() -> None:
    cluster = world(PACK, queue(None, name="r"), host("n0"), gang("w1", 3))
    cluster.decide()
    cluster.put(gang("w2", 2, queue="r"))
    assert of(cluster.decide(), Admit) == [], "one GPU is left of the host that both flavors' pods go to"
    cluster.put(gang("w3", 1, queue="r"))
    assert of(cluster.decide(), Admit) == ["w3"] and places(cluster, "w3") == {}


def test_a_policy_orders_hosts_inside_a_required_domain() -> None:
    rack = "rack"
    nodes = [host(f"n{number}", 4, rack=f"r{number // 2}") for number in range(4)]
    flavor = Flavor("plain", POOL, topology="racks")
    cluster = EngineWorld(flavor, HOSTS, Topology("racks", (rack, HOSTNAME)), queue(PACK), *nodes)
    cluster.put(ForeignPod("kube/x", "n3", {GPU: 1}), ForeignPod("kube/y", "n0", {GPU: 2}))
    asked = TopologyRequest(required=rack)
    cluster.put(gang("w1", pod_sets=(PodSet("main", 3, {GPU: 1}, topology=asked),)))
    cluster.decide()
    # rack r0 has 6 left, r1 has 7: Kueue's order of racks takes the tighter one; of its hosts the fuller one that holds all
    assert set(places(cluster, "w1")) == {"n1"}
    cluster.put(gang("w2", pod_sets=(PodSet("main", 1, {GPU: 1}),)))
    cluster.decide()
    assert places(cluster, "w2") == {"n1": 1}


def test_a_failed_host_is_replaced_and_its_gang_stays() -> None:
    cluster = world(PACK, host("n0"), host("n1"), gang("w1", 4, unowned=True))
    cluster.decide()
    assert places(cluster, "w1") == {"n0": 1}
    cluster.change("w1", unhealthy_nodes=("n0",))
    cluster.put(Node("n0", {**POOL, HOSTNAME: "n0"}, {GPU: 4, "pods": 110}, ready=False))
    assert cluster.decide() == [], "for a moment the node may return"
    assert of(cluster.decide(), Swap) == ["w1"]
    assert places(cluster, "w1") == {"n1": 1}


def test_victims_make_room_on_hosts() -> None:
    policy = PreemptionPolicy(within_cluster_queue="LowerPriority")
    cluster = EngineWorld(Flavor("plain", POOL), HOSTS, queue(PACK, preemption=policy), host("n0"), host("n1"))
    cluster.put(gang("w1", 3), gang("w2", 3))
    cluster.decide()
    cluster.put(gang("w3", 4, priority=5))
    assert len(of(cluster.decide(), Preempt)) == 1, "quota is free, but no host is"
    cluster.complete_evictions()
    assert of(cluster.decide(), Admit) == ["w3"]


def test_a_backfilled_gang_does_not_take_the_host_of_the_head() -> None:
    cluster = EngineWorld(Flavor("plain", POOL), HOSTS, queue(PACK, backfill=Backfill()), host("n0"), host("n1", 2))
    cluster.put(gang("w1", 2))
    cluster.decide()
    assert places(cluster, "w1") == {"n1": 1}
    cluster.put(gang("w2", 3), gang("w3", 4), gang("w4", 1))
    cluster.decide()
    assert places(cluster, "w2") == {"n0": 1} and "w3" not in cluster.running()


def test_a_queue_may_lose_its_policy_and_running_gangs_keep_their_hosts() -> None:
    cluster = world(PACK, host("n0"), gang("w1", 3))
    cluster.decide()
    cluster.put(queue(None), gang("w2", 2))
    assert of(cluster.decide(), Admit) == [] and places(cluster, "w1") == {"n0": 1}
    cluster.finish("w1")
    assert of(cluster.decide(), Admit) == ["w2"] and places(cluster, "w2") == {}


def test_after_a_restart_everything_is_where_it_was() -> None:
    cluster = world(PACK, host("n0"), host("n1"), gang("w1", 3), gang("w2", 1), gang("w3", 4), gang("w4", 1))
    cluster.decide()
    before = {name: places(cluster, name) for name in cluster.running()}
    assert cluster.running() == ["w1", "w2", "w3"]
    cluster.restart()
    assert of(cluster.decide(), Admit) == []
    assert {name: places(cluster, name) for name in cluster.running()} == before


def test_autoscaled_flavors_are_not_placed() -> None:
    cluster = world(PACK, gang("w1", 3), flavor=Flavor("plain", POOL, autoscaled=True))
    assert of(cluster.decide(), Admit) == ["w1"] and places(cluster, "w1") == {}


def test_a_lost_host_is_healed_under_a_placed_gang() -> None:
    flavor = Flavor("tpu", FLAVOR.node_labels)
    groups = (group({"tpu": {TPU: 100}}),)
    cluster = NodeWorld(
        flavor, HOSTS, *pools(1, size=4), ClusterQueue("q", groups=groups, placement=SPREAD, recovery=Recovery())
    )
    cluster.put(gang("w1", pod_sets=(PodSet("main", 3, {TPU: 4}),)))
    cluster.decide()
    before = places(cluster, "w1")
    assert sorted(before.values()) == [1, 1, 1]
    lost = min(before)
    cluster.fail(lost)
    for _ in range(4):
        cluster.tick(60)
        cluster.decide()
    after = places(cluster, "w1")
    assert lost not in after and len(after) == 3 and before.keys() - {lost} <= after.keys()


def test_expected_starts_place_by_the_policy() -> None:
    cluster = world(PACK, host("n0"), gang("w1", 3), gang("w2", 3))
    ten_minutes = ((0.1, 599_000), (0.5, 600_000), (0.9, 601_000))
    cluster.put(*(RuntimeForecast(f"team/{name}", ten_minutes) for name in ("w1", "w2")))
    cluster.decide()
    assert cluster.running() == ["w1"]
    seen = outlook(cluster.engine.facts(), cluster.engine.settings, cluster.now, clock=time.perf_counter)
    assert abs(seen.starts["team/w2"].p50 - cluster.now - 600_000) < 60_000, "quota is free, but the host is not"


def test_in_a_queue_whose_checks_make_nodes_the_place_is_found_later() -> None:
    check = AdmissionCheck("prov", "kueue.x-k8s.io/provisioning-request")
    cluster = EngineWorld(Flavor("plain", POOL), HOSTS, check, queue(PACK, checks=(CheckRef("prov"),)), host("n0"))
    cluster.put(gang("w1", 3))
    cluster.decide()
    admission = cluster.workloads["team/w1"].admission
    assert admission is not None and admission.pod_sets[0].delayed_topology == "Pending"
    cluster.change("w1", checks=(CheckState("prov", "Ready"),))
    cluster.decide()
    cluster.decide()
    assert places(cluster, "w1") == {"n0": 1}


def test_an_elastic_job_keeps_its_hosts_as_it_grows_and_shrinks() -> None:
    cluster = world(PACK, host("n0", 3), host("n1", 8))
    cluster.put(gang("s1", 1, pods=2, job_uid="job"))
    cluster.decide()
    assert places(cluster, "s1") == {"n0": 2}
    cluster.put(gang("w9", 1))
    cluster.decide()
    assert places(cluster, "w9") == {"n0": 1}
    cluster.put(gang("s2", 1, pods=5, job_uid="job", replaces="team/s1"))
    assert "s2" in of(cluster.decide(), Admit)
    assert places(cluster, "s2") == {"n0": 2, "n1": 3}
    cluster.put(gang("w10", 6))
    assert of(cluster.decide(), Admit) == [], "five GPUs are left of the second host"


def test_workloads_that_run_in_other_clusters_are_not_placed() -> None:
    check = AdmissionCheck("far", "kueue.x-k8s.io/multikueue")
    cluster = EngineWorld(Flavor("plain", POOL), HOSTS, check, queue(PACK, checks=(CheckRef("far"),)))
    cluster.put(gang("w1", 3))
    cluster.decide()
    admission = cluster.workloads["team/w1"].admission
    assert admission is not None and not admission.pod_sets[0].delayed_topology and places(cluster, "w1") == {}


@pytest.mark.parametrize("policy", [PACK, SPREAD, PlacementPolicy()])
@given(
    sizes=st.lists(st.tuples(st.integers(1, 4), st.integers(1, 5), st.booleans()), min_size=1, max_size=12),
    hosts=st.lists(st.integers(0, 6), min_size=1, max_size=5),
)
@examples(25)
def test_no_host_is_over_full_and_who_fits_runs(
    policy: PlacementPolicy, sizes: list[tuple[int, int, bool]], hosts: list[int]
) -> None:
    cluster = world(policy, *(host(f"n{number}", gpus) for number, gpus in enumerate(hosts)))
    shapes: dict[str, tuple[int, int]] = {}
    for number, (gpus, pods, ends) in enumerate(sizes):
        shapes[f"w{number}"] = gpus, pods
        cluster.put(gang(f"w{number}", gpus, pods=pods))
        cluster.decide()
        if ends and cluster.running():
            cluster.finish(cluster.running()[0])
            cluster.decide()
        used: Counter[str] = Counter()
        for name in cluster.running():
            assert sum(places(cluster, name).values()) == shapes[name][1]
            used.update({where: count * shapes[name][0] for where, count in places(cluster, name).items()})
        free = {f"n{number}": gpus - used[f"n{number}"] for number, gpus in enumerate(hosts)}
        assert all(left >= 0 for left in free.values())
        for name in shapes.keys() - set(cluster.running()):
            if f"team/{name}" in cluster.workloads:
                size, count = shapes[name]
                assert sum(left // size for left in free.values()) < count, f"{name} would fit"


def test_a_gang_that_takes_whole_domains_gets_them_as_without_a_policy() -> None:
    nodes = [host(f"n{number}", 4, block=f"b{number // 2}") for number in range(4)]
    whole = PodSet("main", 2, {GPU: 4}, exclusive="block", domains=1)
    found: dict[bool, Workload] = {}
    for policy in (PACK, None):
        cluster = world(policy, *nodes, gang("w1", pod_sets=(whole,)))
        assert of(cluster.decide(), Admit) == ["w1"]
        found[policy is None] = cluster.workloads["team/w1"]
    assert found[True].admission == found[False].admission
