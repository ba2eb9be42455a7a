"""Topology-aware placement as part of admission: quota and places together."""

from __future__ import annotations

from dataclasses import replace

from tests.builders.engine import GPU, EngineWorld, cluster_queue, gang, group, of, reported_pending

from gangline.engine.model import (
    AdmissionCheck,
    Admit,
    CheckRef,
    CheckState,
    ClusterQueue,
    CompleteAdmission,
    Domain,
    Evict,
    Flavor,
    ForeignPod,
    Gone,
    Heal,
    Node,
    PodSet,
    Preempt,
    PreemptionPolicy,
    Put,
    Settings,
    Slice,
    Swap,
    Taint,
    Topology,
    TopologyRequest,
    Warn,
)

RACK, HOST = "rack", "kubernetes.io/hostname"
TOPOLOGY = Topology("default", (RACK, HOST))
TAS = Flavor("tas", topology="default")


def node(name: str, rack: str, gpus: int = 4) -> Node:
    return Node(name, {RACK: rack, HOST: name}, {GPU: gpus, "pods": 110})


NODES = (node("h1", "r1"), node("h2", "r1"), node("h3", "r2"), node("h4", "r2"))


def cluster(*items: object, quota: int = 16, gates: dict[str, bool] | None = None, **fields: object) -> EngineWorld:
    queue = cluster_queue("q", groups=(group({"tas": {GPU: quota}}),), **fields)
    return EngineWorld(TAS, TOPOLOGY, *NODES, queue, *items, settings=Settings(pods_ready=None, gates=gates or {}))


def placed(name: str, pods: int, gpus: int = 1, *, required: str = RACK, **fields: object):
    pod_sets = (PodSet("main", pods, {GPU: gpus}, topology=TopologyRequest(required=required)),)
    return gang(name, pod_sets=pod_sets, **fields)


def domains(world: EngineWorld, name: str) -> dict[str, int]:
    admission = world.workloads[f"team/{name}"].admission
    assert admission is not None
    topology = admission.pod_sets[0].topology
    assert topology is not None
    return {domain.values[-1]: domain.count for domain in topology.domains}


def test_a_gang_is_placed_within_one_rack() -> None:
    world = cluster(placed("w1", 8))
    assert of(world.decide(), Admit) == ["w1"]
    assert domains(world, "w1") == {"h1": 4, "h2": 4}


def test_without_a_request_a_queue_of_topology_flavors_places_anyway() -> None:
    world = cluster(gang("w1", 1, pods=3))
    world.decide()
    assert sum(domains(world, "w1").values()) == 3


def test_quota_is_not_enough() -> None:
    world = cluster(placed("w1", 6), placed("w2", 6), placed("w3", 4))
    decisions = world.decide()
    assert of(decisions, Admit) == ["w1", "w2"]
    explanation = reported_pending(decisions)["w3"].explanation
    assert explanation.message == (
        'couldn\'t assign flavors to pod set main: topology "default" allows to fit only 2 out of 4 pod(s).'
        ' Total nodes: 4; excluded: resource "nvidia.com/gpu": 2'
    )
    world.finish("w1")
    assert of(world.decide(), Admit) == ["w3"]


def test_what_never_fits_the_topology_is_told_so() -> None:
    world = cluster(placed("w1", 10))
    explanation = reported_pending(world.decide())["w1"].explanation
    assert explanation.reason == "TopologyPlacementFailed"
    assert 'topology "default" allows to fit only 8 out of 10 pod(s)' in explanation.message


def test_a_level_that_the_topology_lacks_rules_the_flavor_out() -> None:
    world = cluster(placed("w1", 1, required="block"))
    explanation = reported_pending(world.decide())["w1"].explanation
    assert explanation.reason == "NoMatchingFlavor"
    assert 'Flavor "tas" does not contain the requested level' in explanation.message


def test_a_plain_flavor_does_not_place() -> None:
    world = EngineWorld(TAS, TOPOLOGY, cluster_queue("q", 8), placed("w1", 1))
    explanation = reported_pending(world.decide())["w1"].explanation
    assert 'Flavor "a100" does not support TopologyAwareScheduling' in explanation.message


def test_a_topology_flavor_among_plain_ones_is_for_those_who_ask() -> None:
    flavors = group({"tas": {GPU: 8}, "a100": {GPU: 8}})
    world = EngineWorld(TAS, TOPOLOGY, *NODES, cluster_queue("q", groups=(flavors,)), gang("w1", 1), placed("w2", 1))
    world.decide()
    used = {name: world.workloads[f"team/{name}"].admission.pod_sets[0].flavors[GPU] for name in ("w1", "w2")}  # pyright: ignore
    assert used == {"w1": "a100", "w2": "tas"}


def test_victims_must_free_places_not_only_quota() -> None:
    world = cluster(
        placed("low1", 4, priority=1),
        placed("low2", 4, priority=1),
        placed("low3", 4, priority=1),
        placed("low4", 4, priority=1),
        quota=100,
        preemption=PreemptionPolicy("LowerPriority"),
    )
    world.decide()
    where = {name: set(domains(world, name)) for name in ("low1", "low2", "low3", "low4")}
    world.put(placed("high", 8, priority=5))
    victims = of(world.decide(), Preempt)
    assert len(victims) == 2
    assert where[victims[0]] | where[victims[1]] in ({"h1", "h2"}, {"h3", "h4"})
    world.complete_evictions()
    assert "high" in of(world.decide(), Admit)


def test_pods_that_are_not_ours_take_room_until_they_go() -> None:
    world = cluster(*(ForeignPod(f"x/p{n}", f"h{n}", {GPU: 1}) for n in range(1, 5)), placed("w1", 7))
    assert of(world.decide(), Admit) == []
    world.engine.observe(Gone(ForeignPod, "x/p1"))
    world.engine.observe(Gone(ForeignPod, "x/p2"))
    assert of(world.decide(), Admit) == ["w1"]


def test_a_new_node_wakes_those_that_wait_for_room() -> None:
    world = cluster(placed("w1", 8), placed("w2", 8), placed("w3", 4), quota=100)
    assert of(world.decide(), Admit) == ["w1", "w2"]
    world.put(node("h5", "r3"))
    assert of(world.decide(), Admit) == ["w3"]


def test_after_a_restart_places_are_taken() -> None:
    world = cluster(placed("w1", 8), placed("w2", 8))
    world.decide()
    again = world.engine.rebuilt()
    again.observe(Put(placed("w3", 1)))
    assert of(again.decide(world.now), Admit) == []


def test_a_gang_keeps_its_places_while_its_queue_is_deleted_and_leaves_them_when_it_ends() -> None:
    world = cluster(placed("w1", 8))
    world.decide()
    world.engine.observe(Gone(ClusterQueue, "q"))
    world.decide()
    world.change("w1", pods_ready=True)
    world.put(cluster_queue("other", groups=(group({"tas": {GPU: 16}}),)), placed("w2", 8, queue="other"))
    assert of(world.decide(), Admit) == ["w2"]
    assert not domains(world, "w1").keys() & domains(world, "w2").keys()
    world.put(placed("w3", 8, queue="other"))
    assert of(world.decide(), Admit) == []
    world.finish("w1")
    assert of(world.decide(), Admit) == ["w3"]


def test_two_gangs_in_one_cycle_do_not_get_the_same_places() -> None:
    queues = [cluster_queue(f"q{n}", groups=(group({"tas": {GPU: 16}}),), cohort="pool") for n in range(3)]
    world = EngineWorld(TAS, TOPOLOGY, *NODES, *queues)
    for number in range(3):
        world.put(placed(f"w{number}", 8, queue=f"q{number}"))
    assert len(of(world.decide(), Admit)) == 2
    taken = [domains(world, name) for name in world.running()]
    assert set(taken[0]).isdisjoint(taken[1])


def fails(world: EngineWorld, *hosts: str, name: str = "w1") -> None:
    """These nodes are not ready, and the Workload says so."""
    for node in NODES:
        if node.name in hosts:
            world.put(replace(node, ready=False))
    world.change(name, unhealthy_nodes=hosts)


def test_a_failed_node_is_replaced_under_the_running_gang() -> None:
    world = cluster(placed("w1", 4, required=HOST, unowned=True), quota=100)
    world.decide()
    (host,) = domains(world, "w1")
    fails(world, host)
    assert world.decide() == [], "for a moment the node may return"
    (swap,) = [d for d in world.decide() if isinstance(d, Swap)]
    assert swap.admission.pod_sets[0].topology is not None
    (moved,) = domains(world, "w1")
    assert moved != host
    assert world.decide() == []


def test_a_failed_node_that_returns_in_time_is_kept() -> None:
    world = cluster(placed("w1", 4, required=HOST, unowned=True), quota=100)
    world.decide()
    (host,) = domains(world, "w1")
    fails(world, host)
    world.decide()
    world.put(*NODES)
    world.change("w1", unhealthy_nodes=())
    assert [world.decide() for _ in range(3)] == [[], [], []]
    assert host in domains(world, "w1")


def test_a_gang_goes_when_no_node_can_take_the_place() -> None:
    world = cluster(placed("w1", 8, unowned=True), placed("w2", 8, unowned=True), quota=100)
    world.decide()
    fails(world, "h1")
    assert not of(world.decide(), Evict)
    (evict,) = [d for d in world.decide() if isinstance(d, Evict)]
    assert (evict.reason, evict.message) == (
        "NodeFailures",
        "Workload was evicted as there was no replacement for unhealthy node(s): h1",
    )


def test_without_fail_fast_it_waits_for_a_free_node() -> None:
    gates = {"TASFailedNodeReplacementFailFast": False}
    for unowned in (True, False):  # as in Kueue, and by the recovery
        world = cluster(placed("w1", 8, unowned=unowned), placed("w2", 4, required=HOST), quota=100, gates=gates)
        world.put(placed("w3", 4, required=HOST))
        world.decide()
        fails(world, "h1")
        assert not any(of(world.decide(), Evict) for _ in range(5))
        world.finish("w2")
        assert not any(of(world.decide(), Evict) for _ in range(20))
        assert "h1" in domains(world, "w1"), "it is bound to its rack"
        world.put(*NODES)
        world.change("w1", unhealthy_nodes=())
        assert not any(of(world.decide(), Evict) for _ in range(5))


def test_a_second_failed_node_is_one_too_many() -> None:
    world = cluster(placed("w1", 8, unowned=True), quota=100)
    world.decide()
    fails(world, "h1", "h2")
    assert [(d.reason, d.message) for d in world.decide() if isinstance(d, Evict)] == [
        ("NodeFailures", "Workload eviction triggered due to multiple TAS assigned node failures, including: h1, h2")
    ]


def test_what_the_recovery_moves_is_not_moved_twice() -> None:
    world = cluster(placed("w1", 4, required=HOST), quota=100)
    world.decide()
    (host,) = domains(world, "w1")
    fails(world, host)
    decided = [decision for _ in range(5) for decision in world.decide()]
    assert len(of(decided, Swap)) == 1
    assert len(of(decided, Heal)) == 1


def test_a_node_that_only_takes_no_new_pods_is_replaced_as_in_kueue() -> None:
    """Its pods are gone: the Workload names the node only then."""
    world = cluster(placed("w1", 4, required=HOST), quota=100)
    world.decide()
    (host,) = domains(world, "w1")
    (node,) = (each for each in NODES if each.name == host)
    world.put(replace(node, taints=(Taint("maintenance", "", "NoSchedule"),)))
    world.change("w1", unhealthy_nodes=(host,))
    decided = [decision for _ in range(3) for decision in world.decide()]
    assert len(of(decided, Swap)) == 1
    assert not of(decided, Heal)


def test_a_pod_that_is_queued_alone_stays_on_its_failed_node() -> None:
    """It cannot move: Kubernetes deletes it in the end, unless the node returns."""
    for gates, moves in (({}, False), ({"SkipReassignmentForPodOwnedWorkloads": False}, True)):
        world = cluster(placed("w1", 4, required=HOST, lone_pod=True), quota=100, gates=gates)
        world.decide()
        (host,) = domains(world, "w1")
        fails(world, host)
        decided = [decision for _ in range(5) for decision in world.decide()]
        assert bool(of(decided, Swap)) == moves
        assert not of(decided, Evict)


def test_placement_waits_for_nodes_that_a_check_provides() -> None:
    check = AdmissionCheck("nodes", "kueue.x-k8s.io/provisioning-request")
    queue = cluster_queue("q", groups=(group({"tas": {GPU: 8}}),), checks=(CheckRef("nodes"),))
    world = EngineWorld(TAS, TOPOLOGY, check, queue, placed("w1", 2))
    (admit,) = world.decide()
    assert isinstance(admit, Admit)
    assert (admit.admitted, admit.admission.pod_sets[0].delayed_topology) == (False, "Pending")
    world.change("w1", checks=(CheckState("nodes", "Ready"),))
    (in_vain,) = world.decide()
    assert isinstance(in_vain, Warn)
    assert (in_vain.about, in_vain.reason) == ("team/w1", "SecondPassFailed")
    assert in_vain.message == "no topology domains at level: rack"
    assert world.engine.next_wakeup(world.now) == world.now + 1000
    world.put(node("h1", "r1"))
    decisions = world.decide()
    (swap,) = [d for d in decisions if isinstance(d, Swap)]
    (assigned,) = swap.admission.pod_sets
    assert assigned.delayed_topology == "Ready"
    assert assigned.topology is not None
    assert assigned.topology.domains == (Domain(("h1",), 2),)
    assert of(decisions, CompleteAdmission) == ["w1"]


def test_a_workload_that_runs_in_another_cluster_is_placed_there() -> None:
    check = AdmissionCheck("elsewhere", "kueue.x-k8s.io/multikueue")
    queue = cluster_queue("q", groups=(group({"tas": {GPU: 8}}),), checks=(CheckRef("elsewhere"),))
    world = EngineWorld(TAS, TOPOLOGY, check, queue, node("h1", "r1"), placed("w1", 2))
    (admit,) = world.decide()
    assert isinstance(admit, Admit)
    (assigned,) = admit.admission.pod_sets
    assert assigned.delayed_topology == "Pending"
    ready = (CheckState("elsewhere", "Ready"),)
    world.change("w1", checks=ready)
    assert world.decide() == []
    assert world.engine.next_wakeup(world.now) is None, "no place is looked for here"
    there = replace(admit.admission, pod_sets=(replace(assigned, delayed_topology="Ready"),))
    world.change("w1", checks=ready, admission=there)
    assert of(world.decide(), CompleteAdmission) == ["w1"]


def test_placement_uses_the_nodes_that_a_check_names() -> None:
    check = AdmissionCheck("nodes", "kueue.x-k8s.io/provisioning-request")
    queue = cluster_queue("q", groups=(group({"tas": {GPU: 8}}),), checks=(CheckRef("nodes"),))
    here, new = (node(name, "r1") for name in ("h1", "h2"))
    new = replace(new, labels={**new.labels, "pool": "p7"})
    world = EngineWorld(TAS, TOPOLOGY, check, queue, here, new, placed("w1", 2))
    world.decide()
    world.change("w1", checks=(CheckState("nodes", "Ready", selectors={"main": {"pool": "p7"}}),))
    (swap,) = [d for d in world.decide() if isinstance(d, Swap)]
    assert swap.admission.pod_sets[0].topology is not None
    assert swap.admission.pod_sets[0].topology.domains == (Domain(("h2",), 2),)


def test_a_topology_may_arrive_after_its_flavor_nodes_and_workloads() -> None:
    queue = cluster_queue("q", groups=(group({"tas": {GPU: 16}}),))
    world = EngineWorld(TAS, *NODES, queue, placed("a", 4))
    world.decide()
    assert world.running() == []
    world.put(TOPOLOGY)
    world.decide()
    assert domains(world, "a") == {"h1": 4}
    world.engine.observe(Gone(Topology, TOPOLOGY.name))
    world.put(placed("b", 4))
    world.decide()
    assert world.running() == ["a"]


def test_no_gang_starts_without_the_pods_that_fill_no_slice() -> None:
    asked = TopologyRequest(required=RACK, slices=(Slice(HOST, 2),))
    five = gang("w1", pod_sets=(PodSet("main", 5, {GPU: 1}, topology=asked),))
    world = cluster(five)
    assert of(world.decide(), Admit) == ["w1"]
    assert sum(domains(world, "w1").values()) == 5
    world = cluster(gang("w1", pod_sets=(PodSet("main", 5, {GPU: 2}, topology=asked),)))
    assert of(world.decide(), Admit) == [], "a rack has room for two slices"
