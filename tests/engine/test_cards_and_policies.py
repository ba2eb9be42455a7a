"""Cards and placement policies together: filters beside cards, kinds of work on shared cards, a policy that is tried out."""

from __future__ import annotations

from typing import Any

import pytest
from tests.builders.engine import GPU, of
from tests.builders.engine import gang as plain_gang
from tests.engine.test_card_admission import HALF, cards, placed, seats, share, why, world
from tests.engine.test_card_admission import gang as card_gang
from tests.engine.test_placement_policy import POOL

from gangline.engine.model import (
    Admit,
    Device,
    Node,
    NodeCards,
    PlacementFilter,
    PlacementPolicy,
    PlacementScore,
    PodSet,
    Recovery,
    Share,
    Swap,
    Traits,
    Workload,
    accelerators,
)
from gangline.engine.occupancy.fitting import HOSTNAME
from gangline.engine.placing.own_scorers import OWN_SCORERS

RDMA = PlacementFilter("RDMA")


def host(name: str, **amounts: int) -> Node:
    found = {GPU: 20, "pods": 110, **{key.replace("__", "/"): amount for key, amount in amounts.items()}}
    return Node(name, {**POOL, HOSTNAME: name}, found)


def work(name: str, pods: int = 1, **traits: Any) -> Workload:
    """Pods with a quarter of a card each."""
    quarter = (share(250),)
    return plain_gang(name, pod_sets=(PodSet("main", pods, {GPU: 1}, shares=quarter, traits=Traits(**traits)),))


def hosts(cluster: Any, name: str) -> dict[str, int]:
    topology = placed(cluster, name)
    return {domain.values[-1]: domain.count for domain in topology.domains} if topology is not None else {}


def test_a_filter_and_the_cards_each_exclude_hosts_and_are_counted() -> None:
    policy = PlacementPolicy("Pack", filters=(RDMA,))
    cluster = world(host("n0"), host("n1", rdma__hca=1), cards("n0"), cards("n1"), policy=policy)
    cluster.put(card_gang("w1"), card_gang("w2"), card_gang("w3"))
    assert of(cluster.decide(), Admit) == ["w1", "w2"]
    assert seats(cluster, "w1") == seats(cluster, "w2") == [("GPU-n1-0",)]
    assert "no RDMA: 1" in why(cluster, "w3") and "compute of no card suffices: 1" in why(cluster, "w3")


@pytest.mark.parametrize("spare", [False, True])
def test_pods_of_a_failed_card_move_to_no_host_that_a_filter_excludes(spare: bool) -> None:
    policy = PlacementPolicy("Pack", filters=(RDMA,))
    nodes = (host("n0", rdma__hca=1), host("n1"), host("n2", rdma__hca=1) if spare else host("n2"))
    on = (cards("n0"), cards("n1"), cards("n2"))
    cluster = world(*nodes, *on, card_gang("w1", HALF, pods=2), policy=policy, recovery=Recovery())
    cluster.decide()
    assert hosts(cluster, "w1") == {"n0": 2}
    cluster.put(cards("n0", failed=(0,)))
    decisions = cluster.decide()
    assert of(decisions, Swap) == (["w1"] if spare else [])
    if spare:
        assert seats(cluster, "w1") == [("GPU-n2-0",)] * 2


def test_standalone_keeps_kinds_apart_by_hosts_where_cards_are_known_also_after_a_restart() -> None:
    cluster = world(host("n0"), host("n1"), cards("n0", 2), cards("n1", 2), policy=PlacementPolicy("Standalone"))
    for number, kind in enumerate("abab"):
        cluster.put(work(f"w{number}", kind=kind))
        cluster.decide()
        cluster.restart()
    assert [hosts(cluster, f"w{number}") for number in range(4)] == [{"n0": 1}, {"n1": 1}, {"n0": 1}, {"n1": 1}]
    assert seats(cluster, "w0") == seats(cluster, "w2") == [("GPU-n0-0",)]


def test_balance_goes_where_pods_use_least_whatever_the_cards_are_called() -> None:
    cluster = world(host("n0"), host("n1"), cards("n0"), cards("n1"), policy=PlacementPolicy("Balance"))
    cluster.put(work("w1", utilisation=90))
    cluster.decide()
    cluster.put(work("w2", utilisation=10))
    cluster.decide()
    cluster.put(work("w3", utilisation=10))
    cluster.decide()
    cluster.put(work("w4", utilisation=10))
    cluster.decide()
    assert hosts(cluster, "w1") == {"n0": 1} and all(hosts(cluster, f"w{each}") == {"n1": 1} for each in (2, 3, 4))


def test_kinds_of_a_gang_on_cards_are_taken_and_given_back() -> None:
    """What is dealt within one gang counts like what was placed before: no amount stays behind."""
    cluster = world(host("n0"), cards("n0"), work("w1", pods=5, kind="a"), policy=PlacementPolicy("Standalone"))
    assert of(cluster.decide(), Admit) == []
    cluster.put(work("w2", pods=4, kind="b"))
    assert of(cluster.decide(), Admit) == ["w2"]
    cluster.finish("w2")
    cluster.put(work("w3", pods=4, kind="a"))
    assert of(cluster.decide(), Admit) == ["w3"]


@pytest.mark.parametrize("dry_run", [False, True])
def test_a_policy_that_is_tried_out_chooses_no_cards_and_says_on_which_hosts_they_would_do(dry_run: bool) -> None:
    policy = PlacementPolicy("Pack", dry_run=dry_run)
    cluster = world(host("n0"), host("n1"), cards("n0", failed=(0,)), cards("n1"), card_gang("w1"), policy=policy)
    (admit,) = (each for each in cluster.decide() if isinstance(each, Admit))
    assert admit.preview == ("main: n1 (1)" if dry_run else "")
    assert placed(cluster, "w1") is None if dry_run else seats(cluster, "w1") == [("GPU-n1-0",)]


@pytest.mark.parametrize("profile", ["Pack", "Spread", "Fragmentation", "Standalone", "Balance", "Edge"])
def test_pods_with_shares_are_placed_on_hosts_of_whose_cards_nothing_is_known(profile: str) -> None:
    """A share by annotation is of no resource, so no resource of the host bounds it, either."""
    anywhere = PodSet("main", 1, {GPU: 0}, shares=(Share(milli=500),), traits=Traits(kind="a"))
    cluster = world(host("n0"), plain_gang("w1", pod_sets=(anywhere,)), policy=PlacementPolicy(profile))
    assert of(cluster.decide(), Admit) == ["w1"] and hosts(cluster, "w1") == {"n0": 1}
    cluster.put(cards("n0"), plain_gang("w2", pod_sets=(anywhere,)))
    assert of(cluster.decide(), Admit) == ["w2"] and seats(cluster, "w2") == [("GPU-n0-0",)]


def test_standalone_and_balance_look_at_the_cards_of_a_host_also_after_a_restart() -> None:
    for profile, said in (("Standalone", "abab"), ("Balance", (90, 10, 10, 10))):
        cluster = world(host("n0"), cards("n0", 2), policy=PlacementPolicy(profile))
        for number, each in enumerate(said):
            cluster.put(work(f"w{number}", **{"kind" if isinstance(each, str) else "utilisation": each}))
            cluster.decide()
            cluster.restart()
        (first,), *others = (seats(cluster, f"w{number}") for number in range(4))
        together = [other == [first] for other in others]
        assert together == ([False, True, False] if profile == "Standalone" else [False, False, False])


def test_cards_with_spaces_in_their_names_are_cards_after_a_restart() -> None:
    device = Device("n0", "class 0 card", 0, resource=GPU)
    cluster = world(host("n0"), NodeCards("n0", (device,)), card_gang("w1", share(500)), card_gang("w2", share(500)))
    assert of(cluster.decide(), Admit) == ["w1", "w2"]
    cluster.restart()
    cluster.put(card_gang("w3", share(500)))
    assert of(cluster.decide(), Admit) == [] and "compute of no card suffices: 1" in why(cluster, "w3")


def test_amounts_of_cards_are_no_accelerators_and_scorers_of_users_do_not_see_them() -> None:
    assert accelerators({GPU: 2, "GPU-8dcd427f#milli": 500, "GPU-8dcd427f#pods": 1}) == 2
    seen: list[object] = []

    def scorer(pod: object, node: Any) -> int:
        seen.append(node["free"])
        return 0

    OWN_SCORERS.put("mine", scorer)
    try:
        policy = PlacementPolicy(scores=(PlacementScore("Plugin", plugin="mine"),))
        cluster = world(host("n0"), cards("n0"), work("w1", kind="a"), work("w2", kind="a"), policy=policy)
        assert of(cluster.decide(), Admit) == ["w1", "w2"]
    finally:
        OWN_SCORERS.remove("mine")
    assert {GPU: 19, "pods": 109} in seen and all(set(each) == {GPU, "pods"} for each in seen)  # type: ignore[call-overload]
