"""Systems of placement with a counterpart here, each with the numbers of its description; docs/placement.md has the table."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest
from tests.builders.engine import GPU, EngineWorld, cluster_queue, gang, group, of
from tests.engine.node_world import NodeWorld, pools, queue, slices

from gangline.engine.model import (
    Admit,
    ClusterQueue,
    Cohort,
    FairSharing,
    Flavor,
    Node,
    PodSet,
    Settings,
    Topology,
    TopologyRequest,
)
from gangline.engine.occupancy.fitting import HOSTNAME
from gangline.engine.topology.domain_counts import Counts

ZONE = "topology.kubernetes.io/zone"


def placed_world(nodes: int, gpus: int, zones: int = 1) -> EngineWorld:
    """Hosts with so many GPUs each, in zones of equal size; quota for all of them."""
    made = [
        Node(f"n{number}", {ZONE: f"z{number * zones // nodes}", HOSTNAME: f"n{number}"}, {GPU: gpus, "pods": 110})
        for number in range(nodes)
    ]
    flavor = Flavor("placed", topology="zones")
    quota = group({"placed": {GPU: nodes * gpus}})
    return EngineWorld(Topology("zones", (ZONE, HOSTNAME)), flavor, *made, ClusterQueue("q", groups=(quota,)))


def zones_of(world: EngineWorld, name: str) -> Counter[str]:
    """How many pods of a workload are in which zone."""
    admission = world.workloads[f"team/{name}"].admission
    assert admission is not None and admission.pod_sets[0].topology is not None
    nodes = world.engine._store.nodes
    found: Counter[str] = Counter()
    for domain in admission.pod_sets[0].topology.domains:
        found[nodes[domain.values[-1]].labels[ZONE]] += domain.count
    return found


def test_n4_topology_awareness_a_required_zone_has_all_pods_of_a_gang() -> None:
    world = placed_world(nodes=8, gpus=4, zones=2)
    asked = TopologyRequest(required=ZONE)
    world.put(gang("w1", pod_sets=(PodSet("main", 6, {GPU: 1}, topology=asked),)))
    world.decide()
    world.put(gang("w2", pod_sets=(PodSet("main", 12, {GPU: 1}, topology=asked),)))
    world.decide()
    assert sorted(zones_of(world, "w1").values()) == [6] and sorted(zones_of(world, "w2").values()) == [12]
    assert zones_of(world, "w1").keys() != zones_of(world, "w2").keys()
    world.put(gang("w3", pod_sets=(PodSet("main", 11, {GPU: 1}, topology=asked),)))
    world.put(gang("w4", pod_sets=(PodSet("main", 10, {GPU: 1}, topology=asked),)))
    world.decide()
    assert world.running() == ["w1", "w2", "w4"], "14 GPUs are free, but no zone has 11 of them"


def test_c1_same_image_pods_of_one_kind_cost_one_look_at_each_node(monkeypatch: pytest.MonkeyPatch) -> None:
    """64 pods on 100 nodes: 100 nodes are evaluated, not 6,400."""
    looks = 0
    count_leaf = Counts._count_leaf

    def spy(self: Counts, leaf: int, *rest: Any) -> None:
        nonlocal looks
        looks += 1
        count_leaf(self, leaf, *rest)

    world = placed_world(nodes=100, gpus=4)
    monkeypatch.setattr(Counts, "_count_leaf", spy)
    asked = TopologyRequest(unconstrained=True)
    world.put(gang("w1", pod_sets=(PodSet("main", 64, {GPU: 1}, topology=asked),)))
    assert of(world.decide(), Admit) == ["w1"]
    assert looks == 100
    world.put(gang("w2", pod_sets=(PodSet("main", 64, {GPU: 1}, topology=asked),)))
    assert of(world.decide(), Admit) == ["w2"]
    assert looks == 116, "of the second gang, only the 16 hosts that the first one took"


def test_c2_coscheduling_one_gang_of_three_runs_and_never_two_and_one() -> None:
    world = EngineWorld(cluster_queue("q", 3), gang("a1", 1, pods=3), gang("b2", 1, pods=3))
    assert of(world.decide(), Admit) == ["a1"]
    assert world.engine.usage("q") == {"a100": {GPU: 3}}
    world.finish("a1")
    assert of(world.decide(), Admit) == ["b2"]


def test_c3_kube_batch_tasks_of_two_users_have_equal_dominant_shares() -> None:
    """9 CPUs and 18 GB; a task of A takes 1 and 4, one of B 3 and 1: A gets 3 tasks, B 2, each two thirds of something."""
    pool = Cohort("pool", groups=(group({"a100": {"cpu": 9_000, "memory": 18}}),))
    users = [
        ClusterQueue(name, cohort="pool", groups=(group({"a100": {"cpu": 0, "memory": 0}}),)) for name in ("a", "b")
    ]
    world = EngineWorld(pool, *users, settings=Settings(fair_sharing=FairSharing(), pods_ready=None))
    for number in range(6):
        world.put(gang(f"a{number}", queue="a", pod_sets=(PodSet("main", 1, {"cpu": 1_000, "memory": 4}),)))
        world.put(gang(f"b{number}", queue="b", pod_sets=(PodSet("main", 1, {"cpu": 3_000, "memory": 1}),)))
    for _ in range(12):
        world.decide()
    assert Counter(name[0] for name in world.running()) == {"a": 3, "b": 2}
    assert [world.engine.queue_status(name).weighted_share for name in ("a", "b")] == [667, 667]


def test_k9_whole_gpus_eight_jobs_on_two_gpus_take_four_times_as_long_as_one() -> None:
    world = EngineWorld(cluster_queue("q", 2), *(gang(f"w{number}", 1) for number in range(8)))
    rounds = 0
    while world.workloads:
        world.decide()
        rounds += 1
        assert len(world.running()) == 2
        for name in world.running():
            world.finish(name)
    assert rounds == 4


def test_exclusive_domains_a_jobset_waits_for_two_free_pools_though_quota_is_free() -> None:
    """2 replicas of 4 pods with 4 chips are 32 chips, the whole quota; another JobSet has a pod in one of two pools."""
    world = NodeWorld(*pools(2), queue(64))
    world.put(slices("other1", children=1))
    world.decide()
    world.put(slices("wide2", children=2))
    world.decide()
    assert world.running() == ["other1"]
    world.finish("other1")
    world.decide()
    assert world.running() == ["wide2"]
