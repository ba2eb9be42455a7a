"""Which of those that may be preempted go, where the preemptor's queue has a policy on victims."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from itertools import combinations

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from tests.builders.engine import GPU, START, EngineWorld, cluster_queue, cohort, gang, group, of
from tests.engine.node_world import NodeWorld, node, plain, queue
from tests.examples import examples

from gangline.engine.model import (
    FairSharing,
    PodSet,
    Preempt,
    PreemptionPolicy,
    Settings,
    VictimPolicy,
    Workload,
)
from gangline.engine.preemption.simulated_removal import OrderedRemoval
from gangline.engine.preemption.victim_search import STEPS, FewestSearch

LOWER = PreemptionPolicy("LowerPriority")
RECLAIM = PreemptionPolicy("LowerPriority", "Any")
LEAST_LOST = VictimPolicy(choice="LeastLostWork")
FEWEST = VictimPolicy(choice="FewestGangs")
FAIR = Settings(pods_ready=None, fair_sharing=FairSharing())
QUICK = examples(80)


def started(
    policy: VictimPolicy | None, *running: tuple[int, Workload], gpus: int = 8, later: int = 3600
) -> EngineWorld:
    """Each is started at its second; then `later` seconds have passed since the first."""
    world = EngineWorld(cluster_queue("q", gpus, preemption=LOWER, victims=policy))
    begin = world.now
    for at, workload in running:
        world.now = begin + at * 1000 - 1000
        world.put(workload)
        world.decide()
    assert len(world.running()) == len(running)
    world.now = begin + later * 1000 - 1000
    return world


def victims(world: EngineWorld, gpus: int, priority: int = 100) -> list[str]:
    world.put(gang("preemptor", gpus, priority=priority))
    return sorted(of(world.decide(), Preempt))


# --- least lost work --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("policy", "goes"), [(None, "new"), (LEAST_LOST, "saved")])
def test_who_saved_its_work_goes_before_the_newest(policy: VictimPolicy | None, goes: str) -> None:
    saved, new = gang("saved", 4, checkpoint_seconds=600.0), gang("new", 4)
    assert victims(started(policy, (0, saved), (3000, new)), 4) == [goes]


def test_what_is_lost_is_device_time() -> None:
    """Four devices for ten minutes against one for half an hour."""
    large, small = gang("large", 4), gang("small", 1)
    assert victims(started(LEAST_LOST, (0, small), (1200, large), later=1800, gpus=5), 1) == ["small"]


def test_a_lower_priority_goes_first_whatever_it_loses() -> None:
    long, short = gang("long", 4), gang("short", 4, priority=1)
    assert victims(started(LEAST_LOST, (0, long), (3000, short)), 4) == ["long"]


def test_one_goes_where_less_is_lost_than_with_several() -> None:
    """In the order alone, `s1` and `s2` would go: with each of them less is lost than with `large`."""
    s1, s2, large = gang("s1", 2), gang("s2", 2), gang("large", 4)
    world = started(LEAST_LOST, (0, s1), (0, s2), (1300, large), later=3600)
    lost = [(2 * 3600, "s1"), (2 * 3600, "s2"), (4 * 2300, "large")]
    assert lost == sorted(lost), "each of the small ones loses less than the large one, both lose more"
    assert victims(world, 4) == ["large"]


def test_several_go_where_less_is_lost_than_with_one() -> None:
    s1, s2, large = gang("s1", 2), gang("s2", 2), gang("large", 4)
    assert victims(started(LEAST_LOST, (0, large), (1300, s1), (1300, s2)), 4) == ["s1", "s2"]


def test_who_gives_back_what_is_not_its_own_still_goes_before_the_own() -> None:
    for settings_ in (Settings(pods_ready=None), FAIR):
        world = EngineWorld(
            cluster_queue("q", 8, "pool", preemption=RECLAIM, victims=LEAST_LOST),
            cluster_queue("other", 0, "pool"),
            settings=settings_,
        )
        world.put(gang("own", 4, checkpoint_seconds=1.0), gang("b1", 2, "other"), gang("b2", 2, "other"))
        world.decide()
        world.now += 600_000
        assert victims(world, 4) == ["b1", "b2"]


@pytest.mark.parametrize(("policy", "goes"), [(None, "new"), (LEAST_LOST, "saved")])
def test_under_fair_sharing_who_saved_its_work_goes(policy: VictimPolicy | None, goes: str) -> None:
    world = EngineWorld(
        cluster_queue("q", 4, "pool", preemption=RECLAIM, victims=policy),
        cluster_queue("other", 4, "pool"),
        settings=FAIR,
    )
    world.put(gang("saved", 4, "other", checkpoint_seconds=600.0))
    world.decide()
    world.now += 3_000_000
    world.put(gang("new", 4, "other"))
    world.decide()
    world.now += 610_000
    assert victims(world, 4) == [goes]


# --- fewest gangs -----------------------------------------------------------------------------------------------------


def test_one_large_goes_in_the_place_of_many_small() -> None:
    small = [(n, gang(f"s{n}", 1, created=START)) for n in range(1, 5)]
    large = gang("large", 4)
    assert len(victims(started(None, (0, large), *small), 4)) == 4
    assert victims(started(FEWEST, (0, large), *small), 4) == ["large"]


def test_among_equals_kueues_order_decides() -> None:
    """Two of two fit in several ways: the lowest priorities, then the newest."""
    names = [gang("a", 2, priority=1), gang("b", 2), gang("c", 2), gang("d", 2)]
    world = started(FEWEST, *((n, each) for n, each in enumerate(names)))
    assert victims(world, 4) == ["c", "d"]


def test_the_smallest_set_is_the_first_in_kueues_order() -> None:
    """Of three that free all that is needed alone it is the one of the lowest priority."""
    world = started(
        FEWEST,
        *((n, gang(f"s{n}", 1)) for n in range(1, 4)),
        (5, gang("x", 3, priority=3)),
        (6, gang("y", 3, priority=2)),
        (7, gang("z", 3, priority=4)),
        gpus=12,
    )
    assert victims(world, 3) == ["y"]


def test_those_on_their_way_out_count_for_nothing() -> None:
    """Of the five that are needed, w1 frees three anyway: one gang for the other two is found, though it is the oldest."""
    w1, old, n1, n2 = gang("w1", 3), gang("old", 3), gang("n1", 1), gang("n2", 1)
    for policy, stopped in ((None, ["n1", "n2"]), (FEWEST, ["old"])):
        world = started(policy, (0, old), (1, w1), (2, n1), (3, n2))
        world.change("w1", evicted="Preempted", evicted_at=world.now)
        assert victims(world, 5) == stopped


def test_a_large_queue_is_searched_in_the_order_of_size() -> None:
    """Two resources and many gangs: the exact search gives up, and what frees most is tried."""
    quotas = group({"a100": {GPU: 200, "memory": 2000}})
    world = EngineWorld(cluster_queue("q", groups=(quotas,), preemption=LOWER, victims=FEWEST))

    def both(name: str, gpus: int, memory: int) -> Workload:
        return gang(name, pod_sets=(PodSet("main", 1, {GPU: gpus, "memory": memory}),))

    world.put(*(both(f"w{n}", n % 3 + 1, 30 - 9 * (n % 3)) for n in range(90)))
    while world.engine.next_wakeup(world.now) == world.now:
        world.decide()
    held = len(world.running())
    high = gang("high", priority=9, pod_sets=(PodSet("main", 1, {GPU: 60, "memory": 600}),))
    world.put(high)
    stopped = of(world.decide(), Preempt)
    assert held > 80 and 0 < len(stopped) < 40


@pytest.mark.parametrize(("policy", "stopped"), [(None, ["s1", "s2", "s3", "s4"]), (FEWEST, ["large"])])
def test_where_room_on_nodes_is_what_is_lacking(policy: VictimPolicy | None, stopped: list[str]) -> None:
    """Quota is there; one node is full of small gangs, the other of a large one."""
    world = NodeWorld(node("n0"), node("n1"), queue(100, victims=policy))
    for each in (*(plain(f"s{number}", 1, chips=1) for number in range(1, 5)), plain("large", 1, priority=1)):
        world.put(each)
        world.settle(2)
    assert len({pod.node for name in ("s1", "s2", "s3", "s4") for pod in world.pods[f"team/{name}"]}) == 1
    world.put(plain("high", 1, priority=5))
    assert sorted(of(world.decide(), Preempt)) == stopped


# --- whatever is asked for --------------------------------------------------------------------------------------------

GANGS = st.lists(st.tuples(st.integers(0, 4), st.integers(0, 4), st.integers(0, 3)), min_size=1, max_size=7)


def two_resources(
    policy: VictimPolicy, gangs: Sequence[tuple[int, int, int]], need: tuple[int, int], fair: bool
) -> tuple[dict[str, tuple[int, int]], tuple[int, int], list[str]]:
    """What each of the running gangs holds, what is free, and who is stopped for a gang that needs so much."""
    quotas = group({"a100": {GPU: 10, "memory": 10}})
    world = EngineWorld(
        cluster_queue("q", groups=(quotas,), preemption=LOWER, victims=policy),
        settings=FAIR if fair else Settings(pods_ready=None),
    )
    for number, (gpus, memory, priority) in enumerate(gangs):
        pod_sets = (PodSet("main", 1, {GPU: gpus, "memory": memory}),)
        world.put(gang(f"w{number}", priority=priority, pod_sets=pod_sets))
    world.decide()
    held = {name: gangs[int(name[1:])][:2] for name in world.running()}
    free = (10 - sum(gpus for gpus, _ in held.values()), 10 - sum(memory for _, memory in held.values()))
    world.put(gang("high", priority=9, pod_sets=(PodSet("main", 1, {GPU: need[0], "memory": need[1]}),)))
    return held, free, of(world.decide(), Preempt)


def enough(
    held: Mapping[str, tuple[int, int]], names: Iterable[str], free: tuple[int, int], need: tuple[int, int]
) -> bool:
    chosen = list(names)
    return all(free[i] + sum(held[name][i] for name in chosen) >= need[i] for i in (0, 1))


@QUICK
@given(GANGS, st.tuples(st.integers(1, 10), st.integers(1, 10)), st.booleans())
def test_nobody_could_do_with_fewer(gangs: list[tuple[int, int, int]], need: tuple[int, int], fair: bool) -> None:
    held, free, stopped = two_resources(FEWEST, gangs, need, fair)
    least = next(
        size
        for size in range(len(held) + 1)
        if any(enough(held, each, free, need) for each in combinations(held, size))
    )
    assert len(stopped) == least
    assert enough(held, stopped, free, need)


@QUICK
@given(GANGS, st.tuples(st.integers(1, 10), st.integers(1, 10)), st.sampled_from([LEAST_LOST, FEWEST]), st.booleans())
def test_nobody_goes_in_vain(
    gangs: list[tuple[int, int, int]], need: tuple[int, int], policy: VictimPolicy, fair: bool
) -> None:
    held, free, stopped = two_resources(policy, gangs, need, fair)
    for name in stopped:
        assert not enough(held, [other for other in stopped if other != name], free, need)


BORROW = PreemptionPolicy("LowerOrNewerEqualPriority", "LowerPriority", "LowerPriority", 2)


def cohort_victims(
    policy: VictimPolicy, jobs: Sequence[tuple[str, int, int]], last: tuple[int, int], configured: Settings
) -> tuple[EngineWorld, list[str]]:
    """Who is stopped for the one gang that comes to a cohort in which all others run."""
    world = EngineWorld(
        cohort("pool", 2),
        mine := cluster_queue("q", 6, "pool", preemption=replace(BORROW, reclaim_within_cohort="Any")),
        cluster_queue("other", 4, "pool", preemption=BORROW),
        cluster_queue("third", 2, "pool"),
        settings=configured,
    )
    for number, (where, gpus, priority) in enumerate(jobs):
        world.put(gang(f"w{number}", gpus, where, priority=priority))
        world.decide()
    only_runners(world)
    world.put(replace(mine, victims=policy))
    world.put(gang("last", last[0], priority=last[1], created=START + 10_000_000))
    return world, of(world.decide(), Preempt)


def only_runners(world: EngineWorld, but: str = "") -> None:
    world.complete_evictions()
    for each in list(world.workloads.values()):
        if each.admission is None and each.name != but:
            world.delete(each.name)


@QUICK
@given(
    st.lists(st.tuples(st.sampled_from(["q", "other", "third"]), st.integers(1, 5), st.integers(0, 2)), max_size=8),
    st.tuples(st.integers(1, 10), st.integers(0, 3)),
    st.booleans(),
)
@example(  # once two were on their way out, shares chose three more
    jobs=[("q", 2, 0), ("other", 3, 0), ("third", 4, 0), ("q", 1, 0), ("other", 1, 0), ("other", 3, 0)],
    last=(5, 1),
    fair=True,
)
@example(  # the youngest first, "other" would have what it borrows back and nothing more to give
    jobs=[("other", 1, 0), ("other", 1, 0), ("other", 3, 0), ("third", 1, 0)], last=(10, 1), fair=False
)
def test_in_a_cohort_there_are_never_more_and_always_enough(
    jobs: list[tuple[str, int, int]], last: tuple[int, int], fair: bool
) -> None:
    configured = FAIR if fair else Settings(pods_ready=None)
    counts: dict[str, int] = {}
    for choice in ("Kueue", "FewestGangs", "LeastLostWork"):
        world, stopped = cohort_victims(VictimPolicy(choice=choice), jobs, last, configured)
        counts[choice] = len(stopped)
        if stopped:
            only_runners(world, but="last")
            world.decide()
            assert "last" in world.running()
    assert counts["FewestGangs"] <= counts["Kueue"]
    assert (counts["FewestGangs"] > 0) == (counts["Kueue"] > 0)
    assert (counts["LeastLostWork"] > 0) == (counts["Kueue"] > 0)


# --- the search itself ------------------------------------------------------------------------------------------------


def search(frees: Sequence[Mapping[str, int]], lacking: Mapping[str, int]) -> tuple[FewestSearch[str], list[int]]:
    """Sums decide; what is taken is noted."""
    taken: list[int] = []

    def take(place: int) -> bool:
        taken.append(place)
        return True

    def give_back(place: int) -> None:
        assert taken.pop() == place

    def is_enough() -> bool:
        return all(sum(frees[place].get(key, 0) for place in taken) >= amount for key, amount in lacking.items())

    return FewestSearch(frees, lacking, take, give_back, is_enough), taken


@given(
    st.lists(st.fixed_dictionaries({"a": st.integers(0, 5), "b": st.integers(0, 5)}), max_size=7),
    st.fixed_dictionaries({"a": st.integers(-2, 12), "b": st.integers(-2, 12)}),
    st.integers(0, 8),
)
def test_the_first_smallest_set_is_found(frees: list[dict[str, int]], lacking: dict[str, int], limit: int) -> None:
    expected = next(
        (
            list(places)
            for size in range(1, limit)
            for places in combinations(range(len(frees)), size)
            if all(sum(frees[place][key] for place in places) >= amount for key, amount in lacking.items())
        ),
        None,
    )
    found, taken = search(frees, lacking)
    assert found.below(limit) == expected
    assert not taken and not found.gave_up


def test_one_resource_is_searched_without_detours() -> None:
    frees = [{"a": 1 + place % 7} for place in range(2000)]
    found, _ = search(frees, {"a": 7 * 40})
    places = found.below(41)
    assert places is not None and len(places) == 40 and all(frees[place]["a"] == 7 for place in places)
    assert found._steps == 40 <= STEPS


def test_a_search_that_takes_too_long_is_given_up() -> None:
    frees = [{"a": place % 2, "b": 1 - place % 2} for place in range(200)]
    found = FewestSearch(frees, {"a": 20, "b": 20}, lambda place: True, lambda place: None, lambda: False)
    assert found.below(60) is None
    assert found.gave_up


# --- simulated removal -----------------------------------------------------------------------------------------------------


def test_those_that_need_not_go_are_brought_back_last_first() -> None:
    world = started(None, (0, gang("a", 2)), (1, gang("b", 4)), (2, gang("c", 2)))
    a, b, c = (world.engine._store.gangs[f"team/{name}"] for name in "abc")
    [(cell, _)] = a.quota.cells
    with OrderedRemoval([a, b, c]) as removal:
        assert removal.spare(lambda: cell.available() >= 4) == [b]
        assert cell.available() == 4
    with OrderedRemoval([a, b, c]) as removal:
        assert removal.spare(lambda: cell.available() >= 5) == [a, b]
    with OrderedRemoval([c], 1) as removal:
        assert removal.spare(lambda: False) == [c], "the last one is not put back: then nobody would be removed"
    assert cell.available() == 0


# --- converged first --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("choice", ["Kueue", "LeastLostWork", "FewestGangs"])
@pytest.mark.parametrize("fair", [False, True])
def test_g6_of_equal_priority_whose_training_has_converged_goes_first(choice: str, fair: bool) -> None:
    """Without the field it would be the newest, or that which saved its work."""
    policy = VictimPolicy(choice, converged_first=True)
    world = EngineWorld(
        cluster_queue("q", 4, "pool", preemption=RECLAIM, victims=policy),
        cluster_queue("other", 4, "pool"),
        settings=FAIR if fair else Settings(pods_ready=None),
    )
    world.put(gang("converged", 4, "other", converged=True))
    world.decide()
    world.now += 600_000
    world.put(gang("new", 4, "other", checkpoint_seconds=1.0))
    world.decide()
    world.now += 600_000
    assert victims(world, 4) == ["converged"]


def test_no_higher_priority_goes_because_it_has_converged() -> None:
    converged, low = gang("converged", 4, priority=1, converged=True), gang("low", 4)
    assert victims(started(VictimPolicy(converged_first=True), (0, converged), (0, low)), 4) == ["low"]


def test_nobody_goes_because_it_has_converged() -> None:
    converged = gang("converged", 4, converged=True)
    assert victims(started(VictimPolicy(converged_first=True), (0, converged)), 4) == []
    assert victims(started(VictimPolicy(converged_first=True), (0, converged)), 8, priority=0) == []


def test_without_the_field_phases_decide_nothing() -> None:
    converged, new = gang("converged", 4, converged=True), gang("new", 4)
    assert victims(started(None, (0, converged), (3000, new)), 4) == ["new"]


def test_two_converged_go_rather_than_one_that_learns_and_loses_less() -> None:
    policy = VictimPolicy("LeastLostWork", converged_first=True)
    first, second = gang("c1", 2, converged=True), gang("c2", 2, converged=True)
    saved = gang("saved", 4, checkpoint_seconds=1.0)
    assert victims(started(policy, (0, first), (0, second), (0, saved)), 4) == ["c1", "c2"]
