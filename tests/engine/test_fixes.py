"""Each quirk of Kueue that has a named fix: the harm without it, the cure with it."""

from __future__ import annotations

from tests.builders.engine import EngineWorld, cluster_queue, cohort, gang, group, of

from gangline.engine.model import (
    FIXES,
    HOLD_QUOTA,
    STILL_HELD,
    Admit,
    BoundPod,
    Flavor,
    Fungibility,
    Node,
    PodSet,
    Preempt,
    PreemptionPolicy,
    Settings,
    Topology,
    WorkloadPods,
)
from gangline.engine.model.settings import FALSE_FIT, FREE_PLACES, NO_READMIT, PODS_IN_SEARCH


def with_fix(name: str, on: bool) -> Settings:
    return Settings(pods_ready=None, fixes={"*": frozenset({name} if on else ())})


def test_the_names() -> None:
    assert (
        frozenset(
            {
                "PreemptionOverBorrowingFalseFit",
                "PodsInVictimSearch",
                "HoldFreedQuota",
                "NoReadmitBeforePreemptor",
                "QuotaOfVictimsStillHeld",
                "PlacesOfFinishedPods",
            }
        )
        == FIXES
    )


# --- PreemptionOverBorrowingFalseFit ----------------------------------------------------------------------------------


def false_fit(on: bool) -> list[str]:
    """cpu fits by borrowing, memory must be reclaimed without borrowing. Who is preempted in three decisions?"""
    policy = PreemptionPolicy("Never", "Any", "LowerPriority")
    taste = Fungibility("TryNextFlavor", "TryNextFlavor", "PreemptionOverBorrowing")
    mine = group({"a100": {"cpu": 1000, "memory": 10}})
    other = group({"a100": {"cpu": 9000, "memory": 0}})
    world = EngineWorld(
        cluster_queue("q", cohort="pool", groups=(mine,), preemption=policy, fungibility=taste),
        cluster_queue("other", cohort="pool", groups=(other,)),
        settings=with_fix(FALSE_FIT, on),
    )
    world.put(gang("borrower", queue="other", pod_sets=(PodSet("main", 1, {"cpu": 1000, "memory": 8}),)))
    world.decide()
    assert world.running() == ["borrower"]
    world.put(gang("owner", queue="q", priority=1, pod_sets=(PodSet("main", 1, {"cpu": 4000, "memory": 10}),)))
    return [name for _ in range(3) for name in of(world.decide(), Preempt)]


def test_a_gang_that_only_seems_to_fit_is_skipped_for_ever() -> None:
    assert false_fit(on=False) == []


def test_the_resource_that_lacks_decides() -> None:
    assert false_fit(on=True) == ["borrower"]


# --- PodsInVictimSearch -----------------------------------------------------------------------------------------------


def pods_in_search(on: bool) -> tuple[list[str], list[str]]:
    """Ten pods of quota and ten GPUs: a gang of 6 pods × 1 GPU meets one of 2 pods × 4 GPUs and one of 8 pods × 0 GPUs."""
    quotas = {"a100": {"nvidia.com/gpu": 10, "pods": 10}}
    world = EngineWorld(
        cluster_queue("q", groups=(group(quotas),), preemption=PreemptionPolicy("LowerPriority")),
        gang("w1", 4, pods=2),
        gang("w2", 0, pods=8, priority=1),
        settings=with_fix(PODS_IN_SEARCH, on),
    )
    world.decide()
    assert world.running() == ["w1", "w2"]
    world.put(gang("w3", 1, pods=6, priority=5))
    victims: list[str] = []
    for _ in range(4):
        victims += of(world.decide(), Preempt)
        world.complete_evictions()
    return victims, world.running()


def test_victims_that_free_no_pods_are_chosen_and_the_gang_never_starts() -> None:
    victims, running = pods_in_search(on=False)
    assert "w3" not in running
    assert victims == []  # chosen, found wanting in the recheck, skipped: in every cycle


def test_victims_must_free_pods_too() -> None:
    victims, running = pods_in_search(on=True)
    assert victims == ["w1", "w2"]
    assert "w3" in running


# --- HoldFreedQuota ---------------------------------------------------------------------------------------------------


def stolen(on: bool) -> list[str]:
    """The preemptor borrows, so its turn comes after a gang that does not. Who starts when its victim has stopped?"""
    policy = PreemptionPolicy("LowerPriority", "Any", "LowerPriority")
    world = EngineWorld(
        cohort("pool", 4),
        cluster_queue("a", 4, "pool", preemption=policy),
        cluster_queue("c", 4, "pool"),
        settings=with_fix(HOLD_QUOTA, on),
    )
    world.put(gang("low", 8, "a"))
    world.decide()
    world.put(gang("urgent", 12, "a", priority=9))
    assert of(world.decide(), Preempt) == ["low"]
    world.put(gang("thief", 4, "c", priority=1))
    world.complete_evictions()
    return of(world.decide(), Admit)


def test_freed_quota_is_taken_by_whoever_comes_first() -> None:
    assert stolen(on=False) == ["thief", "low"]


def test_freed_quota_is_held_for_the_preemptor() -> None:
    assert stolen(on=True) == ["urgent"]


def test_held_quota_does_not_bind_a_higher_priority_in_the_queue() -> None:
    world = EngineWorld(
        cluster_queue("q", 8, preemption=PreemptionPolicy("LowerPriority"), strategy="StrictFIFO"),
        settings=with_fix(HOLD_QUOTA, True),
    )
    world.put(gang("low", 8))
    world.decide()
    world.put(gang("high", 8, priority=1))
    world.decide()
    world.put(gang("highest", 8, priority=2))
    world.complete_evictions()
    assert of(world.decide(), Admit) == ["highest"]


def test_held_quota_is_free_again_when_the_preemptor_is_gone() -> None:
    world = EngineWorld(
        cluster_queue("q", 8, preemption=PreemptionPolicy("LowerPriority")), settings=with_fix(HOLD_QUOTA, True)
    )
    world.put(gang("low", 8))
    world.decide()
    world.put(gang("high", 8, priority=1))
    world.decide()
    world.delete("high")
    world.complete_evictions()
    assert of(world.decide(), Admit) == ["low"]


# --- NoReadmitBeforePreemptor -----------------------------------------------------------------------------------------


def readmitted(on: bool) -> list[list[str]]:
    """A preemptor gets stuck behind a giant in its StrictFIFO queue while its victim, in another queue, fits again."""
    world = EngineWorld(
        cohort("pool"),
        cluster_queue("a", 8, "pool", strategy="StrictFIFO", preemption=PreemptionPolicy("Never", "Any")),
        cluster_queue("b", 0, "pool"),
        settings=with_fix(NO_READMIT, on),
    )
    world.put(gang("victim", 8, "b"))
    world.decide()
    world.put(gang("owner", 8, "a"))
    assert of(world.decide(), Preempt) == ["victim"]
    world.put(gang("giant", 100, "a", priority=9))
    world.complete_evictions()
    stuck = of(world.decide(), Admit)
    world.delete("giant")
    decisions = world.decide()
    return [stuck, of(decisions, Preempt), of(decisions, Admit)]


def test_a_victim_comes_back_before_its_preemptor_only_to_be_preempted_again() -> None:
    assert readmitted(on=False) == [["victim"], ["victim"], []]


def test_a_victim_waits_until_its_preemptor_has_started() -> None:
    assert readmitted(on=True) == [[], [], ["owner"]]


def test_a_victim_is_told_whom_it_waits_for_and_returns_when_that_gives_up() -> None:
    world = EngineWorld(
        cohort("pool"),
        cluster_queue("a", 8, "pool", preemption=PreemptionPolicy("Never", "Any")),
        cluster_queue("b", 0, "pool"),
        settings=with_fix(NO_READMIT, True),
    )
    world.put(gang("victim", 8, "b"))
    world.decide()
    world.put(gang("owner", 8, "a"))
    world.decide()
    world.delete("owner")
    world.complete_evictions()
    assert of(world.decide(), Admit) == ["victim"]


# --- QuotaOfVictimsStillHeld ------------------------------------------------------------------------------------------


def crowded(on: bool) -> tuple[list[str], int]:
    """Twelve GPUs, one of them free: somebody of eight has to go for an urgent one of four, and two small ones see room."""
    policy = PreemptionPolicy("LowerPriority", "Any")
    queues = [cluster_queue(name, 4, cohort="pool", preemption=policy) for name in ("a", "b", "c")]
    world = EngineWorld(*queues, settings=with_fix(STILL_HELD, on))
    world.put(gang("big", 8, queue="a"), gang("mine", 3, queue="b"))
    world.decide()
    assert sorted(world.running()) == ["big", "mine"]
    world.put(gang("urgent", 4, queue="a", priority=9), gang("one", 1, queue="b"), gang("another", 1, queue="c"))
    started = of(world.decide(), Admit)
    held = sum(amount for queue in "abc" for amount in world.engine.usage(queue).get("a100", {}).values())
    return started, held


def test_more_than_there_is_gets_admitted_while_a_victim_has_not_gone() -> None:
    assert crowded(on=False) == (["another", "one"], 13)


def test_what_victims_still_hold_is_not_granted() -> None:
    assert crowded(on=True) == (["another"], 12)


# --- PlacesOfFinishedPods ---------------------------------------------------------------------------------------------


def beside_a_finished_pod(on: bool, *alive: str) -> list[str]:
    """Of two pods on two hosts one has finished; the others are seen on these hosts. Does a job of one such pod start?"""
    hosts = Topology("hosts", ("kubernetes.io/hostname",))
    nodes = [Node(f"h{n}", {"kubernetes.io/hostname": f"h{n}"}, {"cpu": 8, "pods": 9}) for n in range(2)]
    placed = Flavor("placed", topology="hosts")
    queue = cluster_queue("q", groups=(group({"placed": {"cpu": 16}}),))
    world = EngineWorld(placed, hosts, *nodes, queue, settings=with_fix(FREE_PLACES, on))
    world.put(gang("pair1", pod_sets=(PodSet("main", 2, {"cpu": 8}),)))
    world.decide()
    world.put(WorkloadPods("team/pair1", tuple(BoundPod(f"p-{host}", "main", host) for host in alive)))
    world.change("pair1", reclaimable={"main": 1})
    world.put(gang("one2", pod_sets=(PodSet("main", 1, {"cpu": 8}),)))
    return of(world.decide(), Admit)


def test_a_finished_pods_place_stays_taken() -> None:
    assert beside_a_finished_pod(False, "h1") == []


def test_a_finished_pods_place_is_free() -> None:
    assert beside_a_finished_pod(True, "h1") == ["one2"]
    assert beside_a_finished_pod(True) == [], "the other pod is not seen yet: its place may be either"
    assert beside_a_finished_pod(True, "h0", "h1") == [], "nor has the finished one left"
