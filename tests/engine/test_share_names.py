"""Names of shares: beside whom a pod sits on a card, and with whom never, from admission through everything that moves gangs."""

from __future__ import annotations

from collections import Counter, defaultdict
from dataclasses import replace

import hypothesis.strategies as st
import pytest
from hypothesis.stateful import rule
from tests.builders.engine import GPU, EngineWorld, group, of
from tests.builders.engine import gang as plain_gang
from tests.engine.test_card_admission import GIB, NAMES, PACK, Days, cards, gang, host, seats, share, why, world
from tests.engine.test_placement_policy import HOSTS, POOL
from tests.engine.test_placing import APART, TOGETHER, TRIALS
from tests.examples import examples

from gangline.engine.model import (
    Admit,
    Backfill,
    BoundPod,
    CardUse,
    ClusterQueue,
    Evict,
    Flavor,
    Part,
    PlacementPolicy,
    PodSet,
    Preempt,
    PreemptionPolicy,
    Recovery,
    RuntimeForecast,
    Swap,
    Topology,
    TopologyRequest,
    WorkloadPods,
)
from gangline.engine.occupancy.fitting import HOSTNAME

SPREAD = PlacementPolicy("Spread")
MINE = share(200, exclusion="team/mine")
APART_SHARE = share(200, anti_affinity="team/gromacs")


def one_card(*items: object, **fields: object) -> EngineWorld:
    return world(host("n0"), cards("n0"), *items, **fields)  # type: ignore[arg-type]


def test_g3_kubeshare_affinity_sits_together_exclusion_alone_and_anti_affinity_apart() -> None:
    """As in a single host's placement: G, T, LL with an affinity, and QQ with an exclusion."""
    near, mine = share(100, affinity="team/a"), share(100, exclusion="team/mine")
    cluster = world(host("n0"), cards("n0", 4), policy=SPREAD)
    for number, each in enumerate((share(100), share(100), near, near, mine, mine)):
        cluster.put(gang(f"w{number}", each))
        cluster.decide()
    g, t, one, other, q1, q2 = (seats(cluster, f"w{number}")[0] for number in range(6))
    assert len({g, t, one, q1}) == 4
    assert one == other and q1 == q2
    cluster.put(gang("w6", share(100)))
    cluster.decide()
    assert seats(cluster, "w6")[0] != q1, "nobody else joins the exclusion"


def test_k4_card_pinning_by_an_anti_affinity_keeps_two_gromacs_apart() -> None:
    """718.5 s against 928.5 s at random, with a policy that would let them share a card: each of the 30 trials again."""
    for sharing_names, wanted in (({"anti_affinity": "team/gromacs"}, APART), ({}, TOGETHER)):
        seconds = 0.0
        for count in TRIALS.values():
            cluster = world(host("n0"), cards("n0", 4))
            cluster.put(gang("w1", share(0, 600, **sharing_names)), gang("w2", share(0, 600, **sharing_names)))
            cluster.decide()
            seconds += count * (TOGETHER if seats(cluster, "w1") == seats(cluster, "w2") else APART)
        assert seconds / sum(TRIALS.values()) == wanted
    random = sum(count * (TOGETHER if one == other else APART) for (one, other), count in TRIALS.items())
    assert (APART, random / sum(TRIALS.values())) == (718.5, 928.5)


@pytest.mark.parametrize(
    ("there", "comes", "reason"),
    [
        (APART_SHARE, APART_SHARE, "a pod of the same anti-affinity is on the card: 1"),
        (MINE, share(200), "a pod of another exclusion is on the card: 1"),
        (share(200), MINE, "a pod of another exclusion is on the card: 1"),
        (MINE, share(200, exclusion="team/yours"), "a pod of another exclusion is on the card: 1"),
    ],
)
def test_a_gang_waits_for_its_neighbour_and_is_told_why_also_by_another_leader(there, comes, reason) -> None:
    cluster = one_card(gang("w1", there), gang("w2", comes))
    assert of(cluster.decide(), Admit) == ["w1"]
    assert reason in why(cluster, "w2")
    cluster.restart()
    assert of(cluster.decide(), Admit) == []
    assert reason in why(cluster, "w2"), "the names are known from admissions"
    cluster.finish("w1")
    assert of(cluster.decide(), Admit) == ["w2"]


def test_pods_of_one_gang_are_neighbours_as_well() -> None:
    cluster = world(host("n0"), cards("n0", 2), gang("w1", APART_SHARE, pods=3))
    assert of(cluster.decide(), Admit) == []
    assert "allows to fit only 2 out of 3 pod(s)" in why(cluster, "w1")
    cluster.put(gang("w2", APART_SHARE, pods=2))
    cluster.decide()
    assert Counter(seats(cluster, "w2")) == {("GPU-n0-0",): 1, ("GPU-n0-1",): 1}
    mixed = (PodSet("a", 1, {GPU: 1}, shares=(MINE,)), PodSet("b", 1, {GPU: 1}, shares=(share(200),)))
    cluster = world(host("n0"), cards("n0"), plain_gang("w1", pod_sets=mixed))
    assert of(cluster.decide(), Admit) == [], "one of them excludes the other"
    cluster.put(cards("n0", 2))
    assert of(cluster.decide(), Admit) == ["w1"]


@pytest.mark.parametrize("rack", [False, True])
def test_names_hold_where_a_level_is_asked_for(rack: bool) -> None:
    """Those are placed by counting, and not pod by pod."""
    asked = TopologyRequest(required="rack" if rack else HOSTNAME)
    topology = Topology("racks", ("rack", HOSTNAME))
    flavor = Flavor("plain", POOL, topology="racks")
    queue = ClusterQueue("q", groups=(group({"plain": {GPU: 1000}}),), placement=PACK)
    nodes = [replace(host(name), labels={**host(name).labels, "rack": "r"}) for name in ("n0", "n1")]
    cluster = EngineWorld(flavor, topology, HOSTS, queue, *nodes, cards("n0", 2), cards("n1", 2))
    pods = 4 if rack else 2
    pod_sets = (PodSet("main", pods, {GPU: 1}, topology=asked, shares=(APART_SHARE,)),)
    cluster.put(plain_gang("w1", pod_sets=pod_sets))
    cluster.decide()
    assert set(Counter(seats(cluster, "w1")).values()) == {1}
    cluster.put(plain_gang("w2", pod_sets=(replace(pod_sets[0], count=1),)))
    assert (of(cluster.decide(), Admit) == []) is rack
    near = replace(pod_sets[0], count=1, shares=(share(100, affinity="team/a", cards=frozenset({"GPU-n0-0"})),))
    fuller = replace(near, shares=(share(500, cards=frozenset({"GPU-n0-1"})),))
    cluster.put(plain_gang("w3", pod_sets=(near,)), plain_gang("w4", pod_sets=(fuller,)))
    cluster.decide()
    cluster.put(plain_gang("w5", pod_sets=(replace(near, shares=(share(100, affinity="team/a"),)),)))
    cluster.decide()
    assert seats(cluster, "w5") == seats(cluster, "w3") != seats(cluster, "w4")


def test_an_affinity_finds_its_host_against_the_policy() -> None:
    near = share(100, affinity="team/a")
    cluster = world(host("n0"), host("n1"), cards("n0"), cards("n1"), policy=SPREAD)
    for name in ("w1", "w2", "w3"):
        cluster.put(gang(name, near))
        cluster.decide()
    assert seats(cluster, "w1") == seats(cluster, "w2") == seats(cluster, "w3")
    cluster.put(gang("w4", share(100)), gang("w5", share(800, affinity="team/a")))
    cluster.decide()
    assert seats(cluster, "w4") != seats(cluster, "w1") == [("GPU-n0-0",)]
    assert seats(cluster, "w5") == [("GPU-n1-0",)], "without room beside them it sits on another card"


def test_preemption_makes_room_for_an_exclusion() -> None:
    by_priority = PreemptionPolicy(within_cluster_queue="LowerPriority")
    cluster = one_card(gang("w1", share(100)), gang("w2", share(100)), preemption=by_priority)
    cluster.decide()
    cluster.put(gang("w3", MINE, priority=10))
    assert sorted(of(cluster.decide(), Preempt)) == ["w1", "w2"], "though compute is free"
    cluster.complete_evictions()
    assert of(cluster.decide(), Admit) == ["w3"]
    cluster.put(gang("w4", MINE, priority=-1))
    cluster.decide()
    assert seats(cluster, "w4") == seats(cluster, "w3")


def test_a_gang_that_leaves_a_failed_card_finds_no_place_beside_an_exclusion() -> None:
    cluster = world(host("n0"), host("n1"), cards("n0"), cards("n1", 2), recovery=Recovery())
    cluster.put(gang("w1", share(100)))
    cluster.decide()
    cluster.put(gang("w2", MINE, priority=1))
    cluster.decide()
    assert seats(cluster, "w1") == [("GPU-n0-0",)] and seats(cluster, "w2") == [("GPU-n1-0",)]
    cluster.put(WorkloadPods("team/w1", (BoundPod("w1-0", "main", "n0"),)))
    cluster.decide()
    cluster.put(cards("n0", failed=(0,)))
    decisions = cluster.decide()
    assert of(decisions, Swap) == ["w1"] and not of(decisions, Evict)
    assert seats(cluster, "w1") == [("GPU-n1-1",)]


def test_no_backfilled_gang_keeps_an_exclusion_on_the_card_of_the_head() -> None:
    """The card could be shared all the time: only the names keep the head waiting, and only who leaves in time may start."""

    def lasts(name: str, minutes: int) -> RuntimeForecast:
        return RuntimeForecast(f"team/{name}", ((0.5, minutes * 60_000), (0.9, minutes * 60_000 + 1)))

    cluster = one_card(gang("w1", MINE), lasts("w1", 30), backfill=Backfill())
    cluster.decide()
    cluster.put(gang("w2", share(200)), lasts("w2", 30))
    cluster.put(gang("w3", MINE), lasts("w3", 300), gang("w4", MINE), lasts("w4", 5))
    assert of(cluster.decide(), Admit) == ["w4"]
    cluster.finish("w4")
    cluster.finish("w1")
    assert of(cluster.decide(), Admit) == ["w2"]


def test_names_of_pods_of_others_and_of_pods_on_another_card_count_where_they_sit() -> None:
    use = CardUse("x/a", "GPU-n0-0", Part(200), names=("anti-affinity team/gromacs", "exclusion team/mine"))
    cluster = world(host("n0"), cards("n0", 1, use), gang("w1", APART_SHARE), gang("w2", MINE))
    assert of(cluster.decide(), Admit) == ["w2"]
    assert "a pod of the same anti-affinity is on the card: 1" in why(cluster, "w1")
    # its own pod was put on another card than the admission's
    cluster = world(host("n0"), cards("n0", 2), gang("w1", MINE))
    cluster.decide()
    assert seats(cluster, "w1") == [("GPU-n0-0",)]
    stray = CardUse("team/w1-0", "GPU-n0-1", Part(200), "team/w1", names=("exclusion team/mine",))
    cluster.put(cards("n0", 2, stray), gang("w2", share(200)))
    cluster.decide()
    assert seats(cluster, "w2") == [("GPU-n0-0",)]


def test_several_cards_of_a_pod_and_affinities_keep_what_was_counted() -> None:
    """Two of three cards each, with room for two pods each: an affinity must not cost a place."""
    pair = share(500, count=2, affinity="team/a")
    cluster = world(host("n0"), cards("n0", 3), gang("w1", share(500, affinity="team/a")), gang("w2", pair, pods=2))
    cluster.decide()
    assert len(seats(cluster, "w2")) == 2
    assert max(Counter(card for pod in seats(cluster, "w2") + seats(cluster, "w1") for card in pod).values()) <= 2


class NamedDays(Days):
    """Whatever happens: no exclusion and no anti-affinity is violated, by a look at the admissions alone."""

    named = True

    @rule(sharing_names=st.sampled_from(NAMES), pods=st.integers(1, 2), priority=st.integers(0, 2))
    def join(self, sharing_names: dict[str, str], pods: int, priority: int) -> None:
        """A small gang, which most cards have room for."""
        self.number += 1
        self.cluster.put(gang(f"w{self.number}", share(100, GIB, **sharing_names), pods=pods, priority=priority))
        self.cluster.decide()

    def check(self) -> None:
        there: dict[str, list[tuple[str, str]]] = defaultdict(list)
        for workload in self.cluster.workloads.values():
            asked = workload.pod_sets[0].shares[0]
            topology = workload.admission.pod_sets[0].topology if workload.admission is not None else None
            for domain in topology.domains if topology is not None else ():
                for pod in domain.cards:
                    for seat in pod:
                        there[seat.card].append((asked.anti_affinity, asked.exclusion))
        for card, pods in there.items():
            assert len({exclusion for _, exclusion in pods}) == 1, f"{card}: strangers"
            assert all(number == 1 for name, number in Counter(apart for apart, _ in pods).items() if name), card


TestNamedDays = NamedDays.TestCase
TestNamedDays.settings = examples(40)
