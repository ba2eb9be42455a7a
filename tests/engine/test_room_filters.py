"""Filters and scorers of QueuePolicy.spec.placement by what is free of cards and interfaces: MemSafe, BandwidthFit, CardPack."""

from __future__ import annotations

from dataclasses import replace

import pytest
from tests.builders.engine import GPU, EngineWorld, group, of
from tests.builders.engine import gang as plain_gang
from tests.engine.node_world import NodeWorld
from tests.engine.test_card_admission import GIB, cards, gang, host, seats, share, why, world
from tests.engine.test_placement_policy import HOSTS, POOL, places
from tests.engine.test_placing import MEMORY

from gangline.engine.model import (
    Admit,
    Backfill,
    BoundPod,
    ClusterQueue,
    Flavor,
    ForeignPod,
    Node,
    PlacementFilter,
    PlacementPolicy,
    PlacementScore,
    PodSet,
    Preempt,
    PreemptionPolicy,
    Recovery,
    RuntimeForecast,
    Share,
    Topology,
    TopologyRequest,
    Traits,
    WorkloadPods,
)
from gangline.engine.occupancy.fitting import HOSTNAME

SAFE = PlacementPolicy("Pack", filters=(PlacementFilter("MemSafe"),))
FIT = PlacementPolicy("Pack", filters=(PlacementFilter("BandwidthFit"),))

# --- MemSafe ------------------------------------------------------------------------------------------------------------


def kinds(order: str, filters: tuple[PlacementFilter, ...], **measured: int) -> list[tuple[str, ...]]:
    """The cards of these kinds of work, which come one after the other, on a host with four cards of 12 GB."""
    cluster = world(host("n0"), cards("n0", 4, memory=12_000), policy=PlacementPolicy("Pack", filters=filters))
    memory = MEMORY | measured
    for number, kind in enumerate(order):
        cluster.put(gang(f"w{number}", share(0, memory[kind])))
        cluster.decide()
    return [seats(cluster, f"w{number}")[0] for number in range(len(order))]


def test_k2_memsafe_refuses_two_lammps_by_what_they_declare_and_takes_them_by_what_was_measured() -> None:
    """16.6 GB do not fit on a card of 12; 2 × 5.6 leave 5 %, and not 600 MiB for each besides."""
    for filters, measured, together in (
        ((PlacementFilter("MemSafe"),), {}, False),
        ((PlacementFilter("MemSafe"),), {"L": 5_600}, False),
        ((PlacementFilter("MemSafe", beyond=0),), {"L": 5_600}, True),
        ((PlacementFilter("MemSafe", beyond=0),), {"L": 5_701}, False),
        ((), {"L": 5_701}, True),
    ):
        one, other = kinds("LL", filters, **measured)
        assert (one == other) is together, (filters, measured)


def test_memsafe_counts_the_margin_of_every_pod_and_tells_who_waits_for_it() -> None:
    """40 GiB with 5 % free are 38912 MiB: three pods of 12000 and 600, and not a fourth of 600 and 600; also by counting."""
    cluster = world(host("n0"), cards("n0"), policy=SAFE)
    for name in ("w1", "w2", "w3"):
        cluster.put(gang(name, share(0, 12_000)))
    cluster.put(gang("w4", share(0, 600)))
    assert of(cluster.decide(), Admit) == ["w1", "w2", "w3"]
    assert "memory of no card suffices with its margin: 1" in why(cluster, "w4")
    cluster.restart()
    assert of(cluster.decide(), Admit) == [], "what they take beyond is in their admissions"
    together = PodSet("main", 4, {GPU: 1}, shares=(share(0, 12_000),), topology=TopologyRequest(required=HOSTNAME))
    cluster = world(host("n0"), cards("n0"), policy=SAFE)
    cluster.put(plain_gang("w1", pod_sets=(together,)), plain_gang("w2", pod_sets=(replace(together, count=3),)))
    assert of(cluster.decide(), Admit) == [] or not seats(cluster, "w2")


def test_memsafe_leaves_a_pod_alone_on_its_card_and_those_with_a_card_of_their_own() -> None:
    cluster = world(host("n0"), cards("n0", 3), policy=SAFE)
    cluster.put(
        gang("w1", share(0, 40 * GIB)), gang("w2", Share(unit=True, resource=GPU)), gang("w3", share(0, 39 * GIB))
    )
    assert of(cluster.decide(), Admit) == ["w1", "w2", "w3"]
    assert len({pod for name in ("w1", "w2", "w3") for pod in seats(cluster, name)}) == 3


# --- CardPack -----------------------------------------------------------------------------------------------------------


def test_card_pack_fills_the_card_that_is_fullest_by_memory_on_whichever_host() -> None:
    """Best fit by memory: 5 GiB go beside 30, though the other host is fuller as a whole and its card by compute."""
    policy = PlacementPolicy(scores=(PlacementScore("CardPack"),))
    cluster = world(host("n0"), host("n1"), cards("n0", 2), cards("n1", 2), policy=policy)
    cluster.put(gang("w1", share(0, 30 * GIB, cards=frozenset({"GPU-n1-1"}))))
    cluster.put(gang("w2", share(900, 20 * GIB, cards=frozenset({"GPU-n0-0"}))), gang("w3", share(0, 20 * GIB)))
    cluster.decide()
    cluster.put(gang("w4", share(0, 5 * GIB)))
    cluster.decide()
    assert seats(cluster, "w4") == [("GPU-n1-1",)]


# --- BandwidthFit -------------------------------------------------------------------------------------------------------


def wired(name: str, gpus: int = 8, **mbps: int) -> Node:
    return Node(name, {**POOL, HOSTNAME: name}, {GPU: gpus, "pods": 110}, interfaces=mbps)


def pods(count: int = 1, gpus: int = 1, topology: TopologyRequest | None = None, **mbps: int) -> PodSet:
    traits = Traits(interfaces=tuple(sorted(mbps.items())))
    return PodSet("main", count, {GPU: gpus}, topology=topology, traits=traits)


def net(*items: object, policy: PlacementPolicy | None = FIT, **fields: object) -> EngineWorld:
    queue = ClusterQueue("q", groups=(group({"plain": {GPU: 64}}),), placement=policy, **fields)  # type: ignore[arg-type]
    return EngineWorld(Flavor("plain", POOL), HOSTS, queue, *items)


@pytest.mark.parametrize(
    ("asked", "fits"),
    [
        ({"ib0": 50, "ib1": 30}, True),
        ({"ib0": 50, "ib1": 40}, False),
        ({"ib0": 60}, True),
        ({"ib0": 61}, False),
        ({"ib2": 1}, False),
        ({}, True),
    ],
)
def test_n2_rdma_every_interface_has_the_bandwidth_or_the_node_does_not_fit(asked: dict[str, int], fits: bool) -> None:
    """60 and 30: [50, 30] fits, [50, 40] does not though 90 are free; who asks for none always fits."""
    cluster = net(wired("n0", ib0=60, ib1=30), plain_gang("w1", pod_sets=(pods(**asked),)))
    assert (of(cluster.decide(), Admit) == ["w1"]) is fits
    if not fits:
        assert "bandwidth of interface" in why(cluster, "w1")
    without = net(
        wired("n0", ib0=60, ib1=30), plain_gang("w1", pod_sets=(pods(**asked),)), policy=PlacementPolicy("Pack")
    )
    assert of(without.decide(), Admit) == ["w1"], "the filter has to be named"


def test_what_placed_pods_take_of_interfaces_is_known_also_to_another_leader() -> None:
    """200 Gbit/s: 120 and 60 leave 20, also where the first one's queue names no filter, and 30 of a pod of others none."""
    cluster = net(wired("n0", ib0=200), wired("n1"), plain_gang("w1", pod_sets=(pods(ib0=120),)))
    cluster.put(plain_gang("w2", pod_sets=(pods(2, ib0=30),)), plain_gang("w3", pod_sets=(pods(ib0=21),)))
    assert of(cluster.decide(), Admit) == ["w1", "w2"]
    assert 'Total nodes: 2; excluded: bandwidth of interface "ib0": 2' in why(cluster, "w3")
    cluster.restart()
    assert of(cluster.decide(), Admit) == []
    cluster.finish("w2")
    cluster.put(ForeignPod("x/a", "n0", {"interface ib0": 60}))
    assert of(cluster.decide(), Admit) == []
    cluster.put(ForeignPod("x/a", "n0", {"interface ib0": 59}))
    assert of(cluster.decide(), Admit) == ["w3"]
    cluster.put(plain_gang("w4", pod_sets=(pods(ib0=1),)))
    assert of(cluster.decide(), Admit) == []
    cluster.put(wired("n1", ib0=1))
    assert of(cluster.decide(), Admit) == ["w4"], "the node's annotation wakes it"


def test_two_gangs_of_one_cycle_do_not_get_the_same_bandwidth() -> None:
    queues = [
        ClusterQueue(name, cohort="c", groups=(group({"plain": {GPU: 32}}),), placement=FIT) for name in ("q", "r")
    ]
    cluster = EngineWorld(Flavor("plain", POOL), HOSTS, *queues, wired("n0", ib0=100))
    cluster.put(plain_gang("w1", pod_sets=(pods(ib0=60),)), plain_gang("w2", queue="r", pod_sets=(pods(ib0=60),)))
    assert len(of(cluster.decide(), Admit)) == 1


def test_bandwidth_holds_where_a_level_is_asked_for_in_preemption_and_in_a_swap() -> None:
    asked = TopologyRequest(required=HOSTNAME)
    topology = Topology("hosts", (HOSTNAME,))
    queue = ClusterQueue(
        "q",
        groups=(group({"plain": {GPU: 64}}),),
        placement=FIT,
        preemption=PreemptionPolicy(within_cluster_queue="LowerPriority"),
        recovery=Recovery(),
    )
    cluster = EngineWorld(
        Flavor("plain", POOL, topology="hosts"), topology, HOSTS, queue, wired("n0", ib0=100), wired("n1", ib0=200)
    )
    cluster.put(plain_gang("w1", pod_sets=(pods(3, topology=asked, ib0=50),)))
    cluster.decide()
    assert places(cluster, "w1") == {"n1": 3}
    cluster.put(plain_gang("w2", priority=5, pod_sets=(pods(4, topology=asked, ib0=50),)))
    assert of(cluster.decide(), Preempt) == ["w1"]
    cluster.complete_evictions()
    cluster.decide()
    assert places(cluster, "w2") == {"n1": 4}
    cluster.put(WorkloadPods("team/w2", tuple(BoundPod(f"w2-{number}", "main", "n1") for number in range(4))))
    cluster.decide()


def test_a_failed_nodes_pods_move_to_one_with_bandwidth() -> None:
    """The smaller node without enough of it comes first by name, and by the policy."""
    queue = ClusterQueue("q", groups=(group({"plain": {GPU: 64}}),), placement=FIT, recovery=Recovery())
    nodes = [
        replace(each, uid=each.name) for each in (wired("n0", 2, ib0=50), wired("n1", ib0=100), wired("n2", ib0=100))
    ]
    cluster = NodeWorld(Flavor("plain", POOL), HOSTS, queue, *nodes)
    cluster.put(plain_gang("w1", pod_sets=(pods(ib0=80),)))
    cluster.decide()
    (lost,) = places(cluster, "w1")
    cluster.fail(lost)
    for _ in range(4):
        cluster.tick(60)
        cluster.decide()
    assert set(places(cluster, "w1")) == {"n1", "n2"} - {lost}


def test_no_backfilled_gang_takes_the_bandwidth_of_the_head() -> None:
    def lasts(name: str, minutes: int) -> RuntimeForecast:
        return RuntimeForecast(f"team/{name}", ((0.5, minutes * 60_000), (0.9, minutes * 60_000 + 1)))

    cluster = net(
        wired("n0", ib0=100), plain_gang("w1", pod_sets=(pods(ib0=60),)), lasts("w1", 30), backfill=Backfill()
    )
    cluster.decide()
    cluster.put(plain_gang("w2", pod_sets=(pods(ib0=100),)), lasts("w2", 30))
    cluster.put(plain_gang("w3", pod_sets=(pods(ib0=10),)), lasts("w3", 300))
    cluster.put(plain_gang("w4", pod_sets=(pods(ib0=10),)), lasts("w4", 5))
    assert of(cluster.decide(), Admit) == ["w4"]
