"""Preemption frees what the gang can use, or preempts nobody; and what was freed on nodes stays the preemptor's."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.builders.engine import of
from tests.engine.test_nothing_is_missed import Cluster, job, node, queue
from tests.examples import examples

from gangline.engine.model import (
    Admit,
    BoundPod,
    Flavor,
    Gone,
    Preempt,
    PreemptionPolicy,
    WorkloadPods,
)

LOWER = PreemptionPolicy("LowerPriority")
FLAVORS = (Flavor("a", {"pool": "shared"}), Flavor("b", {"pool": "shared"}))


def bind(world: Cluster, name: str, *nodes: str) -> None:
    world.put(
        WorkloadPods(f"team/{name}", tuple(BoundPod(f"{name}-{n}", "main", each, n) for n, each in enumerate(nodes)))
    )


def stop(world: Cluster, name: str) -> None:
    """An evicted workload has stopped."""
    world.engine.observe(Gone(WorkloadPods, f"team/{name}"))
    world.change(name, admission=None, admitted=False, reserved_at=0, requeued=True)


@pytest.mark.parametrize("thief", ["another queue of its cohort", "a queue of another tree"])
def test_what_victims_free_on_nodes_is_not_taken_by_others(thief: str) -> None:
    """`urgent` needs both nodes; the victims stop one after the other, and `thief` would fit on what the first one left."""
    cohort = "pool" if "cohort" in thief else ""
    world = Cluster(*FLAVORS, node("n0"), node("n1"))
    world.put(queue("qa", "a", cpus=16, cohort=cohort, preemption=LOWER), queue("qb", "b", cpus=16, cohort=cohort))
    world.put(job("v1", "qa", 8), job("v2", "qa", 8))
    assert of(world.settle(), Admit) == ["v1", "v2"]
    bind(world, "v1", "n0")
    bind(world, "v2", "n1")
    world.put(job("urgent", "qa", 8, pods=2, priority=10))
    assert sorted(of(world.settle(), Preempt)) == ["v1", "v2"]
    world.put(job("thief", "qb", 8, priority=5))
    assert not of(world.settle(), Admit)
    stop(world, "v1")
    assert not of(world.settle(), Admit)
    stop(world, "v2")
    assert of(world.settle(), Admit) == ["urgent"]
    world.delete("v1")
    world.delete("v2")
    world.finish("urgent")
    assert of(world.settle(), Admit) == ["thief"]


def test_nobody_is_preempted_where_that_frees_no_whole_node() -> None:
    """Pods of another tree sit on both nodes: what could be preempted of the own queue leaves no room for a pod of 8."""
    world = Cluster(*FLAVORS, node("n0"), node("n1"), queue("qa", "a", cpus=8, preemption=LOWER), queue("qb", "b"))
    world.put(job("o1", "qb", 1, pods=2), job("low", "qa", 7))
    world.settle()
    bind(world, "o1", "n0", "n1")
    bind(world, "low", "n0")
    world.put(job("urgent", "qa", 8, priority=10))
    decisions = world.settle()
    assert not of(decisions, Preempt) and world.running() == ["low", "o1"]
    world.finish("o1")
    assert of(world.settle(), Preempt) == ["low"], "the other node is whole now, and quota is all that is missing"


def test_what_is_held_is_given_up_with_the_preemptor() -> None:
    """The preemptor is deleted while a victim still stops: what the other one left is for everybody."""
    world = Cluster(*FLAVORS, node("n0"), node("n1"), queue("qa", "a", cpus=16, preemption=LOWER), queue("qb", "b"))
    world.put(job("v1", "qa", 8), job("v2", "qa", 8))
    world.settle()
    world.put(job("urgent", "qa", 8, pods=2, priority=10), job("thief", "qb", 8))
    world.settle()
    stop(world, "v1")
    world.settle()
    world.delete("urgent")
    assert (world.settle() and "thief" in world.running()) or "v1" in world.running()


CLUSTER: tuple[Any, ...] = (
    *FLAVORS,
    queue("qa", "a", cpus=20, cohort="pool", preemption=PreemptionPolicy("LowerPriority", "Any")),
    queue("qc", "b", "a", cpus=8, cohort="pool"),
    queue("qb", "b", cpus=16, preemption=LOWER),
    *(node(f"n{number}") for number in range(4)),
)
JOBS = st.tuples(
    st.sampled_from(("qa", "qb", "qc")), st.sampled_from((1, 2, 4, 8)), st.integers(1, 4), st.integers(0, 3)
)


@examples(150)
@given(jobs=st.lists(JOBS, min_size=4, max_size=14), later=st.lists(JOBS, max_size=6), rest=st.data())
def test_every_preemptor_starts_once_its_victims_have_stopped(
    jobs: list[tuple[str, int, int, int]], later: list[tuple[str, int, int, int]], rest: st.DataObject
) -> None:
    """Whoever arrives meanwhile, unless it is more urgent; nobody here may reclaim what it borrows."""
    world = Cluster(*CLUSTER)
    waiting: dict[str, int] = {}

    def settle() -> None:
        for decision in world.settle():
            match decision:
                case Preempt(by=by):
                    waiting[by] = world.workloads[by].priority
                case Admit(workload=key):
                    waiting.pop(key, None)
                    kept = world.engine._store.capacity._holdings[key].assigned.kept
                    bind(
                        world, key.partition("/")[2], *(name for (_, name), count in kept.items() for _ in range(count))
                    )
                case _:
                    pass

    for number, (where, cpus, pods, priority) in enumerate(jobs):
        world.put(job(f"w{number}", where, cpus, pods, priority=priority))
        if number % 3 == 2:
            settle()
    settle()
    for number, (where, cpus, pods, priority) in enumerate(later):
        most = min([priority, *waiting.values()])
        world.put(job(f"late{100 + number}", where, cpus, pods, priority=most))
        if names := world.evicted():
            stop(world, rest.draw(st.sampled_from(names)))
        settle()
    for _ in range(30):
        if not (names := world.evicted()):
            break
        stop(world, names[0])
        settle()
    assert not waiting, f"preempted in vain: {waiting}"


def test_whoever_waits_for_nodes_hears_how_many_are_needed_free_and_freeable() -> None:
    world = Cluster(*FLAVORS, *(node(f"n{number}") for number in range(5)))
    world.put(queue("qa", "a", cpus=99, preemption=LOWER), queue("qb", "b", cpus=99))
    world.put(job("low1", "qa", 8, pods=1), job("other", "qb", 8, pods=2))
    world.settle()
    world.put(job("urgent", "qa", 8, pods=5, priority=10))
    assert not of(world.settle(), Preempt)
    explanation = world.engine.explain("team/urgent")
    assert explanation is not None and explanation.reason == "WaitingForCapacity"
    assert explanation.message.endswith(". 5 whole nodes of a needed: 2 free now, 1 can be freed by preemption")
    assert explanation.holders == ("team/other", "team/low1"), "those on most nodes first, of whichever tree"


def test_behind_the_head_of_a_strict_queue() -> None:
    world = Cluster(*FLAVORS, queue("qa", "a", cpus=4, strategy="StrictFIFO"))
    world.put(job("big1", "qa", 9), job("small2", "qa", 1))
    world.settle()
    explanation = world.engine.explain("team/small2")
    assert explanation is not None
    assert explanation.message == (
        "Workload waits behind team/big1, which is first in the StrictFIFO ClusterQueue qa and can never start as things are"
    )
    assert explanation.needs.startswith(
        "team/big1 must start, be deleted or be deactivated. ClusterQueue qa must be able to use 9"
    )
    world.change("big1", active=False)
    assert of(world.settle(), Admit) == ["small2"]


def test_whoever_precedes_the_preemptor_keeps_the_room_that_it_took() -> None:
    """A gang of higher priority in its queue takes a node that is held: the preemptor looks for other room, and starts later."""
    strict = queue("qa", "a", cpus=16, preemption=LOWER, strategy="StrictFIFO")
    world = Cluster(*FLAVORS, node("n0"), node("n1"), strict)
    world.put(job("v1", "qa", 8))
    world.settle()
    bind(world, "v1", "n0")
    world.put(job("urgent", "qa", 8, pods=2, priority=10))
    assert of(world.settle(), Preempt) == ["v1"]
    world.put(job("first", "qa", 4, priority=20))
    assert of(world.settle(), Admit) == ["first"]
    world.put(node("n0", disk=""))  # with other labels: all assignments are computed again
    world.settle()
    assert not world.engine._store.capacity._holdings["team/first"].assigned.missing
    stop(world, "v1")
    world.settle()
    world.finish("first")
    assert of(world.settle(), Admit) == ["urgent"]
