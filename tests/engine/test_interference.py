"""Placement policies that look at company: who shares a card with whom, who waits, and what is known after a restart."""

from __future__ import annotations

from typing import Any

import pytest
from tests.builders.engine import GPU, EngineWorld, of
from tests.builders.engine import gang as plain_gang
from tests.engine.test_card_admission import cards, host, seats, share, why, world

from gangline.engine.model import (
    Admit,
    CompanyPolicy,
    CompanyPrior,
    CompanySpeed,
    Gone,
    JobProfile,
    PlacementPolicy,
    PodSet,
    Traits,
    Workload,
)


def policy(cap: float = 1.25, gain: float = 1.1, unknown: Any = "Alone") -> PlacementPolicy:
    return PlacementPolicy("Interference", interference=CompanyPolicy(cap, gain, unknown))


def work(name: str, kind: str, pods: int = 1, milli: int = 250, **traits: Any) -> Workload:
    traits = {"kind": kind, **traits}
    return plain_gang(name, pod_sets=(PodSet("main", pods, {GPU: 1}, shares=(share(milli),), traits=Traits(**traits)),))


def pair(mine: str, other: str, speed: float, **fields: Any) -> JobProfile:
    return JobProfile(mine, (CompanySpeed(other, speed=speed, **fields),))


def test_known_good_pairs_share_a_card_and_bad_ones_wait_for_another() -> None:
    known = (pair("a", "b", 0.9), JobProfile("b", (CompanySpeed("a", speed=0.95), CompanySpeed("b", speed=0.4))))
    cluster = world(host("n0"), cards("n0", 2), *known, policy=policy())
    cluster.put(work("w1", "b"), work("w2", "b"), work("w3", "a"), work("w4", "b"))
    assert of(cluster.decide(), Admit) == ["w1", "w2", "w3"]
    assert seats(cluster, "w1") == [("GPU-n0-0",)] and seats(cluster, "w2") == [("GPU-n0-1",)]
    assert seats(cluster, "w3") == [("GPU-n0-0",)]
    assert "a pod would be slowed beyond the cap: 1" in why(cluster, "w4")
    cluster.finish("w2")
    assert of(cluster.decide(), Admit) == ["w4"] and seats(cluster, "w4") == [("GPU-n0-1",)]


def test_a_leader_that_has_just_started_knows_who_sits_where() -> None:
    cluster = world(host("n0"), cards("n0"), pair("b", "b", 0.4), policy=policy(), settings=None)
    cluster.put(work("w1", "b"))
    cluster.decide()
    cluster.restart()
    cluster.put(work("w2", "b"))
    assert of(cluster.decide(), Admit) == [] and "slowed beyond the cap" in why(cluster, "w2")


def test_pods_that_wait_start_when_it_becomes_known_that_they_may() -> None:
    cluster = world(host("n0"), cards("n0"), work("w1", "a"), work("w2", "a"), policy=policy())
    assert of(cluster.decide(), Admit) == ["w1"] and "the pods' company is not known: 1" in why(cluster, "w2")
    cluster.put(pair("a", "a", 0.85))
    assert of(cluster.decide(), Admit) == ["w2"]
    cluster.engine.observe(Gone(JobProfile, "a"))
    cluster.put(work("w3", "a"))
    assert of(cluster.decide(), Admit) == [], "it is no longer known"


def test_a_prior_speaks_for_pairs_that_nobody_measured() -> None:
    flat = CompanyPrior("any", constant=0.9, mine=(0.0,) * 3, theirs=(0.0,) * 3, usual=(0.0,) * 3)
    cluster = world(host("n0"), cards("n0"), flat, work("w1", "a"), work("w2", "b"), policy=policy())
    assert of(cluster.decide(), Admit) == ["w1", "w2"]
    cluster.put(work("w3", "c"))
    assert of(cluster.decide(), Admit) == ["w3"], "0.9 beside each of two others is a slowdown of 1.22"
    cluster.put(work("w4", "d"))
    assert of(cluster.decide(), Admit) == [] and "slowed beyond the cap" in why(cluster, "w4")


@pytest.mark.parametrize(("unknown", "admitted"), [("Alone", 1), ("Probe", 2), ("Share", 4)])
def test_what_happens_to_pods_of_which_nothing_is_known(unknown: str, admitted: int) -> None:
    jobs = [work(f"w{number}", f"k{number}") for number in range(5)]
    cluster = world(host("n0"), cards("n0"), *jobs, policy=policy(unknown=unknown))
    assert len(of(cluster.decide(), Admit)) == admitted


def test_a_pair_that_ran_out_of_memory_is_apart() -> None:
    barred = pair("cnn", "vgg16", 1.0, out_of_memory=True)
    cluster = world(
        host("n0"), cards("n0"), barred, work("w1", "vgg16"), work("w2", "cnn"), policy=policy(unknown="Share")
    )
    assert of(cluster.decide(), Admit) == ["w1"]
    assert "the pair ran out of memory on such a card: 1" in why(cluster, "w2")


def test_pods_of_one_gang_are_each_others_company() -> None:
    """Two of it per card are within the cap, three are not."""
    cluster = world(host("n0"), cards("n0", 2), pair("a", "a", 0.85), policy=policy())
    cluster.put(work("w1", "a", pods=5))
    assert of(cluster.decide(), Admit) == []
    cluster.put(work("w2", "a", pods=4))
    assert of(cluster.decide(), Admit) == ["w2"]
    assert sorted(card for (card,) in seats(cluster, "w2")) == ["GPU-n0-0"] * 2 + ["GPU-n0-1"] * 2


def test_a_job_may_allow_less_than_its_queue_and_is_protected_from_those_that_come() -> None:
    known = pair("a", "a", 0.85)
    cluster = world(
        host("n0"), cards("n0"), known, work("w1", "a", max_slowdown=1100), work("w2", "a"), policy=policy()
    )
    assert of(cluster.decide(), Admit) == ["w1"], "0.85 is a slowdown of 1.18"
    cluster.restart()
    cluster.put(work("w3", "a"))
    assert of(cluster.decide(), Admit) == [] and "slowed beyond the cap" in why(cluster, "w3")
    cluster.finish("w1")
    assert of(cluster.decide(), Admit) == ["w2", "w3"]
    cluster.finish("w2")
    cluster.put(work("w4", "a", max_slowdown=1100))
    assert of(cluster.decide(), Admit) == [], "nor does it join others"


def test_pods_that_slow_each_other_down_on_a_node_wait_for_another_node() -> None:
    """LAMMPS beside GROMACS on whichever cards."""
    known = (
        pair("lammps", "gromacs", 0.5, on_node=True),
        JobProfile("gromacs", (CompanySpeed("lammps", speed=0.5, on_node=True), CompanySpeed("gromacs", speed=0.9))),
    )
    cluster = world(host("n0"), cards("n0", 4), *known, policy=policy())
    cluster.put(work("w1", "gromacs"), work("w2", "lammps"), work("w3", "gromacs"))
    assert of(cluster.decide(), Admit) == ["w1", "w3"]
    assert "a pod would be slowed beyond the cap: 1" in why(cluster, "w2")
    cluster.put(host("n1"), cards("n1"))
    assert of(cluster.decide(), Admit) == ["w2"] and seats(cluster, "w2") == [("GPU-n1-0",)]


def test_where_all_are_fastest_together() -> None:
    """Beside b the pod is as fast as alone; beside c it is not; the empty card is no better and stays empty."""
    known = (
        JobProfile("a", (CompanySpeed("b", speed=1.0), CompanySpeed("c", speed=0.85))),
        pair("b", "a", 1.0),
        pair("c", "a", 1.0),
    )
    cluster = world(host("n0"), cards("n0", 3), *known, policy=policy())
    cluster.put(work("w1", "c", milli=600))
    cluster.put(work("w2", "b", milli=500))
    cluster.put(work("w3", "a"))
    cluster.decide()
    assert seats(cluster, "w1") == [("GPU-n0-0",)] and seats(cluster, "w2") == [("GPU-n0-1",)]
    assert seats(cluster, "w3") == [("GPU-n0-1",)]


def test_without_the_policy_profiles_change_nothing() -> None:
    def run(*known: JobProfile) -> tuple[list[str], list[Any]]:
        cluster: EngineWorld = world(host("n0"), cards("n0", 2), *known, policy=PlacementPolicy("Pack"))
        cluster.put(work("w1", "a"), work("w2", "a"), work("w3", "a"))
        return of(cluster.decide(), Admit), [seats(cluster, f"w{number}") for number in (1, 2, 3)]

    assert run() == run(pair("a", "a", 0.1, out_of_memory=True))


def test_many_classes_on_many_cards_do_not_hold_a_decision_up() -> None:
    """Each gang is of a class of its own, so each has all cards looked at for itself: they are admitted in several decisions."""
    nodes = [each for number in range(40) for each in (host(f"n{number}"), cards(f"n{number}", 8))]
    jobs = [work(f"w{number}", f"k{number}", pods=2) for number in range(12)]
    cluster = world(*nodes, *jobs, policy=policy(unknown="Share"))
    admitted = [len(of(cluster.decide(), Admit)) for _ in range(len(jobs))]
    assert sum(admitted) == len(jobs)
    assert max(admitted) <= 4
