"""Cards of nodes decide admission in queues with a placement policy: who shares a card, who waits, what a failed card means."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from typing import Any

import hypothesis.strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule
from tests.builders.engine import GPU, EngineWorld, group, of
from tests.builders.engine import gang as plain_gang
from tests.engine.test_placement_policy import HOSTS, POOL
from tests.examples import examples

from gangline.engine.cards.card_amounts import name_of
from gangline.engine.model import (
    Admit,
    BoundPod,
    CardSeat,
    CardUse,
    ClusterQueue,
    Decision,
    Device,
    Evict,
    Flavor,
    Gone,
    Heal,
    HealthPolicy,
    Node,
    NodeCards,
    Part,
    PlacementPolicy,
    PodSet,
    Preempt,
    PreemptionPolicy,
    Put,
    Recovery,
    Settings,
    Share,
    Swap,
    TopologyAssignment,
    Workload,
    WorkloadPods,
)
from gangline.engine.model.devices import PIX
from gangline.engine.occupancy.fitting import HOSTNAME

GIB = 1024
MEMORY = "gangline.io/gpu-mem"
PACK = PlacementPolicy("Pack")


def host(name: str, gpus: int = 20) -> Node:
    return Node(name, {**POOL, HOSTNAME: name}, {GPU: gpus, "pods": 110})


def cards(node: str, count: int = 1, *uses: CardUse, failed: tuple[int, ...] = (), **fields: Any) -> NodeCards:
    devices = (
        Device(
            node,
            f"GPU-{node}-{each}",
            each,
            **{"memory": 40 * GIB, "resource": GPU, "healthy": each not in failed, **fields},
        )
        for each in range(count)
    )
    return NodeCards(node, tuple(devices), uses)


def gang(name: str, *shares: Share, pods: int = 1, **fields: Any) -> Workload:
    pod_sets = (PodSet("main", pods, {GPU: 1}, shares=shares or (HALF,)),)
    return plain_gang(name, pod_sets=pod_sets, **fields)


def share(milli: int = 0, memory: int = 0, **fields: Any) -> Share:
    return Share(milli=milli, memory=memory, resource=GPU, mode="Software", **fields)


HALF = share(500, 20 * GIB)


def world(
    *items: Any, policy: PlacementPolicy | None = PACK, settings: Settings | None = None, **fields: Any
) -> EngineWorld:
    queue = ClusterQueue("q", groups=(group({"plain": {GPU: 1000}}),), placement=policy, **fields)
    return EngineWorld(Flavor("plain", POOL), HOSTS, queue, *items, settings=settings)


def placed(cluster: EngineWorld, name: str) -> TopologyAssignment | None:
    admission = cluster.workloads[f"team/{name}"].admission
    return admission.pod_sets[0].topology if admission is not None else None


def seats(cluster: EngineWorld, name: str) -> list[tuple[str, ...]]:
    """The cards of each of its pods."""
    topology = placed(cluster, name)
    assert topology is not None and topology.levels == (HOSTNAME,)
    return [tuple(seat.card for seat in pod) for domain in topology.domains for pod in domain.cards]


def why(cluster: EngineWorld, name: str) -> str:
    explanation = cluster.engine.explain(f"team/{name}")
    assert explanation is not None
    return explanation.message


def test_two_gangs_share_a_card_and_a_third_waits_and_is_told_why() -> None:
    cluster = world(host("n0"), host("n1"), cards("n0"), cards("n1", 1, failed=(0,)))
    cluster.put(gang("w1"), gang("w2"), gang("w3", share(100, 8 * GIB)))
    assert of(cluster.decide(), Admit) == ["w1", "w2"]
    assert seats(cluster, "w1") == seats(cluster, "w2") == [("GPU-n0-0",)]
    assert placed(cluster, "w1").domains[0].cards == ((CardSeat("GPU-n0-0", 500, 20 * GIB),),)  # type: ignore[union-attr]
    assert "Total nodes: 2" in why(cluster, "w3")
    assert "compute of no card suffices: 1" in why(cluster, "w3") and "the card has failed: 1" in why(cluster, "w3")
    cluster.finish("w1")
    assert of(cluster.decide(), Admit) == ["w3"]


def test_memory_of_two_cards_does_not_add_up() -> None:
    """gpushare's example: 8 GiB do not fit on a node with 6 and 5 GiB free."""
    there = [CardUse("x/a", "GPU-n0-0", Part(0, 34 * GIB)), CardUse("x/b", "GPU-n0-1", Part(0, 35 * GIB))]
    cluster = world(host("n0"), cards("n0", 2, *there), gang("w1", share(0, 8 * GIB)), gang("w2", share(0, 6 * GIB)))
    assert of(cluster.decide(), Admit) == ["w2"]
    assert seats(cluster, "w2") == [("GPU-n0-0",)]
    assert "memory of no card suffices: 1" in why(cluster, "w1")
    cluster.put(cards("n0", 2, there[1]))
    assert of(cluster.decide(), Admit) == ["w1"]


def test_pods_of_one_gang_get_cards_of_their_own_and_together_fill_them() -> None:
    cluster = world(host("n0"), host("n1"), cards("n0", 2), cards("n1", 2))
    cluster.put(gang("w1", pods=7))
    cluster.decide()
    assert sorted(Counter(seats(cluster, "w1")).values()) == [1, 2, 2, 2]
    cluster.put(gang("w2", pods=2))
    assert of(cluster.decide(), Admit) == [], "one half card is left"
    cluster.put(gang("w3", Share(count=2, milli=300, resource=GPU), pods=1))
    assert of(cluster.decide(), Admit) == [], "and its pod wants two"


def test_whole_cards_are_alone_and_pods_without_shares_are_not_bound() -> None:
    whole = Share(unit=True, resource=GPU)
    cluster = world(host("n0"), cards("n0", 2), gang("w1", share(100)), gang("w2", whole), gang("w3", whole))
    assert of(cluster.decide(), Admit) == ["w1", "w2"]
    assert seats(cluster, "w2") != seats(cluster, "w1")
    assert "the card is in use" in why(cluster, "w3")
    cluster.put(plain_gang("w4", pod_sets=(PodSet("main", 1, {GPU: 0}),)))
    assert of(cluster.decide(), Admit) == ["w4"]
    assert seats(cluster, "w4") == []


def test_without_a_policy_or_an_inventory_nothing_is_bound_by_cards() -> None:
    for policy, known in ((None, (cards("n0"),)), (PACK, ())):
        cluster = world(host("n0"), *known, gang("w1"), gang("w2"), gang("w3"), policy=policy)
        assert of(cluster.decide(), Admit) == ["w1", "w2", "w3"]
        assert all(domain.cards == () for n in "123" for domain in getattr(placed(cluster, f"w{n}"), "domains", ()))


def test_amounts_that_no_node_reports_are_bounded_by_cards_only() -> None:
    """HAMi's nodes report nvidia.com/gpu, and nothing of its memory and cores."""
    pod_set = PodSet("main", 1, {GPU: 1, "nvidia.com/gpumem": 8000}, shares=(share(0, 8000),), quota={GPU: 1})
    cluster = world(host("n0"), cards("n0"), plain_gang("w1", pod_sets=(pod_set,)))
    assert of(cluster.decide(), Admit) == ["w1"]
    assert seats(cluster, "w1") == [("GPU-n0-0",)]


def test_pods_count_where_they_sit_and_not_twice() -> None:
    cluster = world(host("n0"), cards("n0", 2), gang("w1"))
    cluster.decide()
    assert seats(cluster, "w1") == [("GPU-n0-0",)]
    sits = CardUse("team/w1-0", "GPU-n0-0", Part(500, 20 * GIB), "team/w1")
    cluster.put(cards("n0", 2, sits), gang("w2"))
    cluster.decide()
    assert seats(cluster, "w2") == [("GPU-n0-0",)], "the other half of the card is free"
    on_wrong_card = CardUse("team/w1-0", "GPU-n0-1", Part(500, 20 * GIB), "team/w1")
    cluster.put(cards("n0", 2, on_wrong_card), gang("w3"), gang("w4"), gang("w5"))
    assert of(cluster.decide(), Admit) == ["w3", "w4"]
    assert sorted(seats(cluster, "w3") + seats(cluster, "w4")) == [("GPU-n0-0",), ("GPU-n0-1",)]


def test_another_leader_knows_the_cards_and_gives_none_twice() -> None:
    cluster = world(host("n0"), cards("n0", 2), gang("w1", share(600)), gang("w2", share(500)), gang("w3", share(400)))
    cluster.decide()
    before = {name: seats(cluster, name) for name in ("w1", "w2", "w3")}
    cluster.restart()
    cluster.put(gang("w4", share(600)))
    assert of(cluster.decide(), Admit) == []
    assert {name: seats(cluster, name) for name in ("w1", "w2", "w3")} == before
    cluster.put(gang("w5", share(500)))
    assert of(cluster.decide(), Admit) == ["w5"]


def test_preemption_frees_cards() -> None:
    cluster = world(
        host("n0"),
        cards("n0"),
        gang("w1"),
        gang("w2"),
        preemption=PreemptionPolicy(within_cluster_queue="LowerPriority"),
    )
    cluster.decide()
    cluster.put(gang("w3", share(600, 8 * GIB), priority=10))
    assert sorted(of(cluster.decide(), Preempt)) == ["w1", "w2"], "one of them alone leaves 500"
    cluster.complete_evictions()
    assert of(cluster.decide(), Admit) == ["w3"]


def test_a_gang_moves_off_a_card_that_failed_though_its_node_is_well() -> None:
    cluster = world(
        host("n0"), host("n1"), cards("n0", 2), cards("n1", 2), gang("w1", pods=2), gang("w2"), recovery=Recovery()
    )
    cluster.decide()
    assert seats(cluster, "w1") == [("GPU-n0-0",)] * 2 and seats(cluster, "w2") == [("GPU-n0-1",)]
    for name, pods in (("w1", 2), ("w2", 1)):
        bound = tuple(BoundPod(f"{name}-{number}", "main", "n0") for number in range(pods))
        cluster.put(WorkloadPods(f"team/{name}", bound))
    cluster.decide()
    cluster.put(cards("n0", 2, failed=(0,)))
    decisions = cluster.decide()
    assert of(decisions, Swap) == ["w1"] and of(decisions, Heal) == ["w1"] and not of(decisions, Evict)
    (heal,) = (each for each in decisions if isinstance(each, Heal))
    assert (heal.lost, heal.cause) == (("n0",), "CardFailed")
    assert seats(cluster, "w1") == [("GPU-n1-0",)] * 2 and seats(cluster, "w2") == [("GPU-n0-1",)]
    assert cluster.decide() == [], "and stays where it is"
    # the operator dies after the admission was written, and before the swap was recorded
    uses = [CardUse(f"team/w1-{number}", "", Part(500), "team/w1") for number in range(2)]
    cluster.put(cards("n0", 2, *uses, failed=(0,)))
    cluster.restart()
    cluster.put(WorkloadPods("team/w1", tuple(BoundPod(f"w1-{number}", "main", "n0") for number in range(2))))
    assert of(cluster.decide(), Heal) == ["w1"]


def running_on_two_cards(settings: Settings | None = None, **fields: Any) -> EngineWorld:
    """A gang on the first of two cards of n0, and n1 has room."""
    known = cards("n0", 2, **fields), cards("n1", 2, **fields)
    cluster = world(host("n0"), host("n1"), *known, gang("w1"), recovery=Recovery(), settings=settings)
    cluster.decide()
    cluster.put(WorkloadPods("team/w1", (BoundPod("w1-0", "main", "n0"),)))
    assert cluster.decide() == []
    return cluster


def after(cluster: EngineWorld, millis: int) -> list[Decision]:
    cluster.now += millis - 1000
    return cluster.decide()


def without_its_card(*, partial: bool = False) -> NodeCards:
    known = cards("n0", 2)
    return NodeCards("n0", known.devices[1:], partial=partial)


def test_a_card_that_is_missing_has_a_grace_and_gets_nothing_new_meanwhile() -> None:
    """Its driver starts again: as devices that are missing by what the node offers, 30 s."""
    cluster = running_on_two_cards()
    cluster.put(without_its_card())
    assert cluster.decide() == []
    assert cluster.engine.next_wakeup(cluster.now) == cluster.now + 30_000
    cluster.put(gang("w2"), gang("w3"), gang("w4"))
    cluster.decide()
    assert ("GPU-n0-0",) not in [each for name in ("w2", "w3", "w4") for each in seats(cluster, name)]
    assert after(cluster, 28_999) == []
    cluster.put(cards("n0", 2))
    assert after(cluster, 100_000) == [], "it is back in time"
    cluster.put(without_its_card())
    assert cluster.decide() == [], "its time begins anew"
    decisions = after(cluster, 30_000)
    (heal,) = (each for each in decisions if isinstance(each, Heal))
    assert (heal.workload, heal.lost, heal.cause) == ("team/w1", ("n0",), "CardMissing")
    assert heal.detected_at == cluster.now - 30_000
    assert next(card for pod in seats(cluster, "w1") for card in pod).startswith("GPU-n1-")


def test_an_inventory_that_is_not_complete_proves_no_card_missing_but_tells_of_failed_ones() -> None:
    cluster = running_on_two_cards()
    cluster.put(without_its_card(partial=True))
    assert after(cluster, 1_000_000) == []
    cluster.put(replace(cards("n0", 2, failed=(0,)), partial=True))
    assert of(cluster.decide(), Heal) == ["w1"]


def test_a_plugin_that_offers_none_of_the_cards_that_are_only_counted_has_the_same_grace() -> None:
    cluster = running_on_two_cards(named=False)
    none = replace(cards("n0", 2, failed=(0, 1), named=False), partial=True)
    cluster.put(none)
    assert cluster.decide() == []
    cluster.put(cards("n0", 2, named=False))
    assert after(cluster, 100_000) == []
    cluster.put(none)
    cluster.decide()
    assert of(after(cluster, 30_000), Heal) == ["w1"]


def test_the_grace_of_missing_cards_is_configured_with_that_of_missing_devices() -> None:
    shorter = HealthPolicy(grace_seconds={"DevicesMissing": 5})
    cluster = running_on_two_cards(Settings(pods_ready=None, health=shorter))
    cluster.put(without_its_card())
    cluster.decide()
    assert of(after(cluster, 5_000), Heal) == ["w1"]


def test_seats_stay_taken_while_others_make_room_for_the_gang_that_lost_a_card() -> None:
    """Room is kept for it on another card, and its pods still run where they are: nobody else is admitted onto their cards."""
    cluster = world(
        host("n0"),
        host("n1"),
        cards("n0", 2),
        cards("n1", 2),
        gang("w1", pods=4, priority=1),
        preemption=PreemptionPolicy(within_cluster_queue="LowerPriority"),
        recovery=Recovery(),
    )
    cluster.decide()
    cluster.put(gang("w2", Share(unit=True, count=2, resource=GPU)))
    assert of(cluster.decide(), Admit) == ["w2"]
    cluster.put(cards("n0", 2, failed=(0,)), gang("w3", Share(unit=True, resource=GPU)))
    decisions = cluster.decide()
    assert of(decisions, Preempt) == ["w2"] and of(decisions, Admit) == []
    cluster.complete_evictions()
    assert of(cluster.decide(), Swap) == ["w1"]
    assert seats(cluster, "w1") == [("GPU-n1-0",)] * 2 + [("GPU-n1-1",)] * 2
    assert of(cluster.decide(), Admit) == ["w3"]


def test_without_room_on_other_cards_the_gang_is_queued_again() -> None:
    cluster = world(host("n0"), cards("n0", 1), gang("w1"), recovery=Recovery())
    cluster.decide()
    cluster.put(cards("n0", 1, failed=(0,)))
    decisions = cluster.decide()
    assert of(decisions, Evict) == ["w1"] or not decisions
    assert "w1" not in of(decisions, Swap)


def test_a_card_with_a_long_name_is_named_by_a_digest() -> None:
    uuid = "ip-10-0-1-23.us-west-2.compute.internal/nvidia.com/gpu/0"
    device = Device("n0", uuid, 0, memory=40 * GIB, resource=GPU)
    cluster = world(host("n0"), NodeCards("n0", (device,)), gang("w1"), gang("w2"), gang("w3"))
    assert of(cluster.decide(), Admit) == ["w1", "w2"]
    assert seats(cluster, "w1") == [(name_of(uuid),)] and len(name_of(uuid)) == 40


def test_g1_gaia_two_cards_are_the_closest_ones_and_a_single_one_leaves_a_pair_whole() -> None:
    """Cards 0 and 1, and 2 and 3, are under one switch; 1 is taken."""
    devices = tuple(replace(each, links={f"GPU-n0-{each.index ^ 1}": PIX}) for each in cards("n0", 4).devices)
    taken = CardUse("x/a", "GPU-n0-1", Part(1000), exclusive=True)
    for count, wanted in ((2, ("GPU-n0-2", "GPU-n0-3")), (1, ("GPU-n0-0",))):
        asked = Share(unit=True, count=count, resource=GPU)
        cluster = world(host("n0"), NodeCards("n0", devices, (taken,)), gang("w1", asked))
        assert of(cluster.decide(), Admit) == ["w1"]
        assert [tuple(sorted(pod)) for pod in seats(cluster, "w1")] == [wanted]


def test_i1_qos_classes_requests_count_and_limits_do_not() -> None:
    """Guaranteed 600/600, burstable 300/800 and best effort 0/1000 fit on one card; 200 more do not."""
    classes = [share(600, limit=600), share(300, limit=800), share(0, limit=1000), share(200, limit=200)]
    cluster = world(host("n0"), cards("n0"), *(gang(f"w{number}", each) for number, each in enumerate(classes)))
    assert of(cluster.decide(), Admit) == ["w0", "w1", "w2"]
    assert "compute of no card suffices: 1" in why(cluster, "w3")


#: of shares, in days on which they have some
NAMES: list[dict[str, str]] = [
    {},
    {"exclusion": "a"},
    {"exclusion": "b", "affinity": "a"},
    {"anti_affinity": "a"},
    {"anti_affinity": "b", "exclusion": "a"},
    {"affinity": "a"},
]


class Days(RuleBasedStateMachine):
    """Whatever happens, and whenever another leader takes over: no card is over-full, by a count of the admissions alone."""

    #: shares have names
    named = False

    def __init__(self) -> None:
        super().__init__()
        self.cluster = world(
            host("n0"),
            host("n1"),
            preemption=PreemptionPolicy(within_cluster_queue="LowerPriority"),
            recovery=Recovery(),
        )
        self.known = {node: cards(node, 3) for node in ("n0", "n1")}
        self.cluster.put(*self.known.values())
        self.number = 0

    @rule(
        milli=st.sampled_from([0, 200, 300, 500, 700, 1000]),
        memory=st.sampled_from([1, 8, 20, 40]),
        count=st.integers(1, 2),
        pods=st.integers(1, 5),
        priority=st.integers(0, 2),
        alone=st.booleans(),
        sharing_names=st.sampled_from(NAMES),
    )
    def create(
        self, milli: int, memory: int, count: int, pods: int, priority: int, alone: bool, sharing_names: dict[str, str]
    ) -> None:
        self.number += 1
        asked = share(milli, memory * GIB, count=count) if not alone else Share(unit=True, count=count, resource=GPU)
        asked = replace(asked, **sharing_names) if self.named else asked
        self.cluster.put(gang(f"w{self.number}", asked, pods=pods, priority=priority))

    @rule(data=st.data())
    def end(self, data: st.DataObject) -> None:
        running = sorted(name for name, each in self.cluster.workloads.items() if each.admission is not None)
        if running:
            self.cluster.finish(data.draw(st.sampled_from(running)).removeprefix("team/"))

    @rule(node=st.sampled_from(["n0", "n1"]), failed=st.sets(st.integers(0, 2), max_size=1))
    def fail(self, node: str, failed: set[int]) -> None:
        self.known[node] = replace(cards(node, 3, failed=tuple(failed)), uses=self.known[node].uses)
        self.cluster.put(self.known[node])

    @rule(node=st.sampled_from(["n0", "n1"]), missing=st.integers(0, 2), partial=st.booleans())
    def miss(self, node: str, missing: int, partial: bool) -> None:
        known = cards(node, 3)
        left = tuple(each for each in known.devices if each.index != missing)
        self.known[node] = NodeCards(node, left, self.known[node].uses, partial)
        self.cluster.put(self.known[node])

    @rule()
    def wait(self) -> None:
        self.cluster.now += 60_000

    @rule(node=st.sampled_from(["n0", "n1"]))
    def forget(self, node: str) -> None:
        self.cluster.engine.observe(Gone(NodeCards, node))
        self.cluster.engine.observe(Put(self.known[node]))

    @rule(data=st.data())
    def bind(self, data: st.DataObject) -> None:
        """Pods of a running gang are seen where its admission places them."""
        running = sorted(name for name, each in self.cluster.workloads.items() if each.admission is not None)
        if running:
            key = data.draw(st.sampled_from(running))
            name = key.removeprefix("team/")
            nodes = [each.values[-1] for each in placed(self.cluster, name).domains for _ in range(each.count)]  # type: ignore[union-attr]
            bound = tuple(BoundPod(f"{name}-{number}", "main", node) for number, node in enumerate(nodes))
            self.cluster.put(WorkloadPods(key, bound))

    @rule()
    def decide(self) -> None:
        self.cluster.decide()

    @rule(data=st.data())
    def decide_and_lose(self, data: st.DataObject) -> None:
        """The write about one workload is lost, and tried again."""
        known = sorted(self.cluster.workloads)
        lost = [data.draw(st.sampled_from(known))] if known else []
        self.cluster.decide(lost=lost)
        for key in lost:
            self.cluster.engine.observe(Put(self.cluster.workloads[key]))

    @rule()
    def stop(self) -> None:
        self.cluster.complete_evictions()

    @rule()
    def fail_over(self) -> None:
        self.cluster.restart()

    @invariant()
    def no_card_is_overfull(self) -> None:
        milli: Counter[str] = Counter()
        memory: Counter[str] = Counter()
        alone: Counter[str] = Counter()
        pods: Counter[str] = Counter()
        for workload in self.cluster.workloads.values():
            topology = workload.admission.pod_sets[0].topology if workload.admission is not None else None
            for domain in topology.domains if topology is not None else ():
                assert len(domain.cards) == domain.count, "each pod has its cards"
                for pod in domain.cards:
                    assert len({seat.card for seat in pod}) == len(pod), "different ones"
                    for seat in pod:
                        assert seat.card.startswith(f"GPU-{domain.values[-1]}-")
                        milli[seat.card] += seat.milli
                        memory[seat.card] += seat.memory
                        pods[seat.card] += 1
                        alone[seat.card] += seat.alone
        assert all(each <= 1000 for each in milli.values()) and all(each <= 40 * GIB for each in memory.values())
        assert all(pods[card] == 1 for card, number in alone.items() if number)
        found = self.cluster.engine.rebuilt().snapshot()
        assert found == self.cluster.engine.snapshot()
        self.check()

    def check(self) -> None:
        """What else must be."""


TestDays = Days.TestCase
TestDays.settings = examples(40)
