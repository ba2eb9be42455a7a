"""QueuePolicy.spec.placement.search: places that are found only by a search, or that keep pods closer together."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import combinations
from typing import Any

import hypothesis.strategies as st
import pytest
from hypothesis import given
from tests.builders.engine import GPU, EngineWorld, gang, group, of
from tests.examples import examples

from gangline.engine.model import (
    Admit,
    ClusterQueue,
    Flavor,
    Node,
    PlacementFilter,
    PlacementPolicy,
    PlacementSearch,
    PodSet,
    PowerCap,
    Topology,
    TopologyRequest,
)
from gangline.engine.occupancy.fitting import HOSTNAME
from gangline.engine.placing.placement_search import MOST_STEPS, SearchBudget
from gangline.engine.topology.leaf_ranking import OF_POLICY

RACK, DISK, HEAT = "rack", "disk", "example.com/heat"
POOL = {"pool": "a"}
RACKS = (
    Flavor("plain", POOL, topology="racks"),
    Topology("racks", (RACK, HOSTNAME)),
    Topology(OF_POLICY, (HOSTNAME,)),
)
#: nodes that are hotter get no pods
COOL = PlacementFilter("NodeMetric", annotation=HEAT, most=80)
WATTS = 100
NEAR = TopologyRequest(preferred=RACK)
SEARCH = PlacementSearch(budget=60, improve=0, seed=1)


def host(name: str, gpus: int, rack: str = "r0", *, disk: str = "hdd", heat: int = 20) -> Node:
    return Node(
        name,
        {**POOL, RACK: rack, HOSTNAME: name, DISK: disk},
        {GPU: gpus, "pods": 110},
        annotations={HEAT: str(heat)},
        gpu_watts=WATTS,
    )


def world(search: PlacementSearch | None, *items: Any, **policy: Any) -> EngineWorld:
    placement = PlacementPolicy("Pack", search=search, **policy)
    return EngineWorld(*RACKS, ClusterQueue("q", groups=(group({"plain": {GPU: 99}}),), placement=placement), *items)


def pods_on(world: EngineWorld, name: str = "w1") -> dict[str, dict[str, int]] | None:
    """Pod set -> host -> pods; None if the workload waits."""
    admission = world.workloads[f"team/{name}"].admission
    if admission is None:
        return None
    return {
        each.name: {domain.values[-1]: domain.count for domain in each.topology.domains}
        for each in admission.pod_sets
        if each.topology is not None
    }


def searched(world: EngineWorld) -> list[str]:
    return [decision.searched for decision in world.decide() if isinstance(decision, Admit)]


# --- where no places are found ----------------------------------------------------------------------------------------

#: `any` is placed first, on the first of two equal hosts, which is the only one for `fast`
TWO_SETS = (PodSet("any", 4, {GPU: 1}), PodSet("fast", 4, {GPU: 1}, node_selector={DISK: "ssd"}))
TWO_HOSTS = (host("n0", 4, disk="ssd"), host("n1", 4))


def test_a_gang_for_which_one_pod_set_after_the_other_finds_no_places_is_placed_by_the_search() -> None:
    cluster = world(None, *TWO_HOSTS, gang("w1", pod_sets=TWO_SETS))
    assert of(cluster.decide(), Admit) == []
    cluster = world(PlacementSearch(), *TWO_HOSTS, gang("w1", pod_sets=TWO_SETS))
    (text,) = searched(cluster)
    assert text.startswith("a search found places for all pods, where placing one pod set after the other found none; ")
    assert pods_on(cluster) == {"any": {"n1": 4}, "fast": {"n0": 4}}


def test_no_order_of_pod_sets_suffices_and_the_search_closes_hosts() -> None:
    """Each of three pod sets may be on two of three hosts, and two of them have to leave out the one that comes first."""
    nodes = [
        Node(
            f"n{n}",
            {**POOL, RACK: "r0", HOSTNAME: f"n{n}", **{f"with-{other}": "" for other in rest}},
            {GPU: 2, "pods": 9},
        )
        for n, rest in enumerate(("ab", "bc", "ca"))
    ]
    sets = tuple(
        PodSet(name, 2, {GPU: 1}, node_selector={f"with-{name}": ""}, topology=TopologyRequest(unconstrained=True))
        for name in "abc"
    )
    cluster = world(PlacementSearch(), *nodes, gang("w1", pod_sets=sets))
    assert of(cluster.decide(), Admit) == ["w1"]
    found = pods_on(cluster)
    assert found is not None
    assert sorted(host for pods in found.values() for host, count in pods.items() for _ in range(count)) == [
        "n0", "n0", "n1", "n1", "n2", "n2",
    ]  # fmt: skip


@pytest.fixture
def tried(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """How many placements each search tries."""
    found: list[int] = []
    note = SearchBudget.note

    def spy(self: SearchBudget, queue: str, namespace: str, number: int, steps: int) -> None:
        found.append(number)
        note(self, queue, namespace, number, steps)

    monkeypatch.setattr(SearchBudget, "note", spy)
    return found


def test_nothing_is_tried_where_a_pod_set_would_find_no_places_by_itself(tried: list[int]) -> None:
    sets = (TWO_SETS[0], replace(TWO_SETS[1], count=5))
    cluster = world(PlacementSearch(), *TWO_HOSTS, gang("w1", pod_sets=sets))
    assert of(cluster.decide(), Admit) == []
    assert sum(tried) == 0


def test_gangs_that_are_placed_at_once_are_not_searched_for() -> None:
    cluster = world(PlacementSearch(), *TWO_HOSTS, gang("w1", pods=4))
    assert searched(cluster) == [""]


def test_places_that_another_queue_took_in_the_same_cycle_are_searched_for_again(tried: list[int]) -> None:
    """The search gives `any` the host that an older workload of the other queue takes first."""
    cluster = EngineWorld(*RACKS, *TWO_HOSTS, host("n2", 4))
    for name in "qr":
        placement = PlacementPolicy("Pack", search=PlacementSearch())
        quota = group({"plain": {GPU: 99}})
        cluster.put(ClusterQueue(name, cohort="pool", groups=(quota,), placement=placement))
    older = PodSet("main", 4, {GPU: 1}, node_selector={DISK: "hdd"})
    cluster.put(gang("v0", queue="r", pod_sets=(older,)), gang("w1", pod_sets=TWO_SETS))
    assert of(cluster.decide(), Admit) == ["v0", "w1"]
    assert pods_on(cluster, "v0") == {"main": {"n1": 4}}
    assert pods_on(cluster) == {"any": {"n2": 4}, "fast": {"n0": 4}}
    assert len(tried) == 2


def test_a_policy_with_dry_run_says_what_the_search_would_find() -> None:
    cluster = world(SEARCH, *ROOMY, gang("w1", pod_sets=(PodSet("main", 4, {GPU: 1}, topology=NEAR),)), dry_run=True)
    (admit,) = (each for each in cluster.decide() if isinstance(each, Admit))
    assert admit.searched == ""
    assert admit.preview.startswith("main: n9 (4); a search keeps pods closer together: 0 instead of 6 hops")


# --- where pods are far apart -----------------------------------------------------------------------------------------

#: the tightest rack has one GPU on each of four hosts, another one has five on one host
ROOMY = (*(host(f"n{number}", 1) for number in range(4)), host("n9", 5, "r1"))


def test_pods_are_kept_closer_together_where_the_policy_asks_for_it() -> None:
    main = PodSet("main", 4, {GPU: 1}, topology=NEAR)
    usual = world(PlacementSearch(), *ROOMY, gang("w1", pod_sets=(main,)))
    assert searched(usual) == [""]
    assert pods_on(usual) == {"main": dict.fromkeys(("n0", "n1", "n2", "n3"), 1)}
    closer = world(SEARCH, *ROOMY, gang("w1", pod_sets=(main,)))
    (text,) = searched(closer)
    assert text.startswith("a search keeps pods closer together: 0 instead of 6 hops between them, of at least 0; ")
    assert pods_on(closer) == {"main": {"n9": 4}}


def test_improve_says_from_how_many_more_hops_on_places_are_searched_for() -> None:
    """In the tightest rack 4, 1 and 1 of six pods are on a host, with 9 hops; in the other one it is 5 and 1, with 5."""
    nodes = (host("n0", 4), host("n1", 1), host("n2", 1), host("n3", 5, "r1"), host("n4", 3, "r1"))
    main = PodSet("main", 6, {GPU: 1}, topology=NEAR)
    hops: list[int] = []
    for improve in (80, 79):  # 9 hops are 80 % more than 5
        cluster = world(replace(SEARCH, improve=improve), *nodes, gang("w1", pod_sets=(main,)))
        cluster.decide()
        found = pods_on(cluster)
        assert found is not None
        hops.append(_hops(cluster, found["main"]))
    assert hops == [9, 5]


def test_pods_that_need_not_be_near_each_other_stay_where_the_policy_puts_them() -> None:
    asked = TopologyRequest(unconstrained=True)
    for topology in (None, asked):
        main = PodSet("main", 4, {GPU: 1}, topology=topology)
        found = [pods_on(_decided(world(search, *ROOMY, gang("w1", pod_sets=(main,))))) for search in (None, SEARCH)]
        assert found[0] == found[1]


def _decided(cluster: EngineWorld) -> EngineWorld:
    cluster.decide()
    return cluster


def _hops(cluster: EngineWorld, pods: dict[str, int]) -> int:
    """For each pair of pods: 0 on one host, 1 in one rack, else 2."""
    racks = {node.name: node.labels[RACK] for node in cluster.engine._store.nodes.values()}
    each = [name for name, count in pods.items() for _ in range(count)]
    return sum((one != other) + (racks[one] != racks[other]) for one, other in combinations(each, 2))


# --- in sum -----------------------------------------------------------------------------------------------------------


def test_searches_are_bounded_in_sum() -> None:
    budget = SearchBudget()
    budget.note("q", "a", 70, 1)
    assert budget.left("q", "a", 100, 1) == 30
    assert budget.left("q", "b", 100, 1) == 100
    for namespace in "bcde":
        budget.note("q", namespace, 80, 1)
    assert budget.left("q", "f", 100, 1) == 10, "four times as many for the whole ClusterQueue"
    budget.start_over()
    assert budget.left("q", "a", 100, 1) == 100


def test_large_gangs_and_many_hosts_try_fewer_placements_and_leave_steps_for_others() -> None:
    budget, left = SearchBudget(), MOST_STEPS
    for name in "abcdefgh":
        tried = budget.left(name, "a", 1000, 100)
        assert tried == left // 4 // 100, "a quarter of the steps that are left"
        budget.note(name, "a", tried, 100)
        left -= 100 * tried
    assert budget.left("q", "a", 1000, MOST_STEPS) == 0
    assert left > 0


def test_a_placement_takes_steps_by_its_pods_and_by_the_hosts_that_are_looked_at(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Two pod sets of four pods each: of 2 hosts each is on two at most, of 402 all are looked at for each."""
    found: list[int] = []
    left = SearchBudget.left

    def spy(self: SearchBudget, queue: str, namespace: str, budget: int, steps: int) -> int:
        found.append(steps)
        return left(self, queue, namespace, budget, steps)

    monkeypatch.setattr(SearchBudget, "left", spy)
    for more in (0, 400):
        full = [host(f"m{number}", 0) for number in range(more)]
        world(PlacementSearch(), *TWO_HOSTS, *full, gang("w1", pod_sets=TWO_SETS)).decide()
    assert found == [1 + 2 * 2, 1 + 2 * (4 + 402 // 20)]


def test_one_namespace_with_gangs_in_vain_uses_no_more_than_its_budget(tried: list[int]) -> None:
    """Each of four gangs would take the budget for itself: its pod sets fit by themselves, and never together."""
    cluster = world(replace(SEARCH, budget=30), *TWO_HOSTS)
    for number in range(4):
        sets = (replace(TWO_SETS[0], count=5 + number), TWO_SETS[1])
        cluster.put(gang(f"w{number}", pod_sets=sets))
    assert of(cluster.decide(), Admit) == []
    assert len(tried) == 4
    assert sum(tried) == 30


# --- laws -------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Case:
    nodes: tuple[Node, ...]
    sets: tuple[PodSet, ...]
    cap: int | None
    seed: int


@st.composite
def cases(draw: st.DrawFn) -> Case:
    nodes = tuple(
        host(
            f"n{number}",
            draw(st.integers(0, 4)),
            f"r{draw(st.integers(0, 2))}",
            disk=draw(st.sampled_from(("hdd", "ssd"))),
            heat=draw(st.sampled_from((20, 20, 20, 90))),
        )
        for number in range(draw(st.integers(2, 8)))
    )
    asked = st.sampled_from((None, NEAR, TopologyRequest(required=RACK), TopologyRequest(unconstrained=True)))
    sets = tuple(
        PodSet(
            f"s{number}",
            draw(st.integers(1, 5)),
            {GPU: draw(st.integers(1, 2))},
            node_selector=draw(st.sampled_from(({}, {DISK: "ssd"}))),
            topology=draw(asked),
        )
        for number in range(draw(st.integers(1, 3)))
    )
    return Case(nodes, sets, draw(st.sampled_from((None, 300, 500))), draw(st.integers(0, 3)))


def _played(case: Case, search: PlacementSearch | None) -> tuple[EngineWorld, dict[str, dict[str, int]] | None]:
    power = () if case.cap is None else (PowerCap(label=RACK, watts=case.cap, percent=100, gpu_watts=WATTS),)
    cluster = world(search, *case.nodes, gang("w1", pod_sets=case.sets), filters=(COOL,), power=power)
    cluster.decide()
    return cluster, pods_on(cluster)


def _violations(case: Case, found: dict[str, dict[str, int]]) -> Iterator[str]:
    """What places violate, judged from the nodes and pod sets alone."""
    nodes = {node.name: node for node in case.nodes}
    used: Counter[str] = Counter()
    drawn: Counter[str] = Counter()
    for pod_set in case.sets:
        pods = found[pod_set.name]
        if sum(pods.values()) != pod_set.count:
            yield f"{pod_set.name}: {pods}"
        racks = {nodes[name].labels[RACK] for name in pods}
        if pod_set.topology is not None and pod_set.topology.required and len(racks) != 1:
            yield f"{pod_set.name} is in {racks}"
        for name, count in pods.items():
            used[name] += count * pod_set.requests[GPU]
            drawn[nodes[name].labels[RACK]] += count * pod_set.requests[GPU] * WATTS
            if any(nodes[name].labels[key] != value for key, value in pod_set.node_selector.items()):
                yield f"{pod_set.name} is on {name}"
            if int(nodes[name].annotations[HEAT]) > 80:
                yield f"{name} is too hot"
    yield from (f"{name} is over-full" for name, gpus in used.items() if gpus > nodes[name].allocatable[GPU])
    if case.cap is not None:
        yield from (f"{rack} draws {watts}" for rack, watts in drawn.items() if watts > case.cap)


@given(cases())
@examples(60)
def test_l2_the_search_is_never_worse_than_the_usual_way_and_obeys_every_filter(case: Case) -> None:
    """With an equal policy and budget: what starts without the search starts with it, at most as many hops apart; the same seed
    finds the same places.
    """
    search = replace(SEARCH, seed=case.seed, budget=25)
    usual, first = _played(case, None)
    cluster, found = _played(case, search)
    assert found == _played(case, search)[1]
    if first is not None:
        assert found is not None
        near = [each.name for each in case.sets if each.topology is not None and not each.topology.unconstrained]
        assert sum(_hops(cluster, found[name]) for name in near) <= sum(_hops(usual, first[name]) for name in near)
    if found is not None:
        assert list(_violations(case, found)) == []
