"""Needs in the reason of a waiting workload are met, in random situations: it starts, or waits for something else."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from hypothesis import given
from hypothesis import strategies as st
from tests.engine.test_nothing_is_missed import CPU, Cluster, job, node, queue
from tests.examples import examples

from gangline.engine.model import ClusterQueue, Explanation, Flavor, FlavorQuotas, PreemptionPolicy, Workload

FLAVORS = (Flavor("a", {"pool": "shared"}), Flavor("b", {"pool": "shared"}), Flavor("plenty"))
QUEUES = (
    queue("qa", "a", cpus=20, cohort="pool", preemption=PreemptionPolicy("LowerPriority", "Any")),
    queue("qc", "b", "a", cpus=8, cohort="pool"),
    queue("qb", "b", cpus=40, strategy="StrictFIFO"),
    queue("qp", "plenty", cpus=6),
)
JOBS = st.tuples(
    st.sampled_from([each.name for each in QUEUES]),
    st.sampled_from((1, 2, 4, 8, 30)),
    st.integers(1, 4),
    st.integers(0, 2),
)


def alone(world: Cluster, key: str) -> None:
    """Nobody else waits: who precedes it could take what it is given."""
    for other in sorted(world.workloads):
        if other != key and world.workloads[other].admission is None:
            world.delete(world.workloads[other].name)


def with_quota(config: ClusterQueue, flavor: str, more: int) -> ClusterQueue:
    def raised(quotas: FlavorQuotas) -> FlavorQuotas:
        if quotas.name != flavor:
            return quotas
        return replace(
            quotas, resources={CPU: replace(quotas.resources[CPU], nominal=quotas.resources[CPU].nominal + more)}
        )

    groups = tuple(replace(each, flavors=tuple(map(raised, each.flavors))) for each in config.groups)
    return replace(config, groups=groups)


def follow(world: Cluster, workload: Workload, explanation: Explanation) -> bool:
    """Do what the explanation says is needed. False if that is nothing that can be done here."""
    config = world.engine._store.cluster_queues[workload.queue]
    match explanation.reason:
        case "WaitingForQuota" | "ExceedsMaxQuota" if explanation.short:
            world.put(with_quota(config, explanation.flavor, explanation.short))
        case "WaitingForCapacity":
            requests = workload.pod_sets[0].requests[CPU]
            for _ in range(explanation.short):
                world.put(node(f"new{len(world.engine._store.nodes)}", requests))
        case _:
            return False
    return True


@examples(1000)
@given(
    nodes=st.lists(st.sampled_from((4, 8, 8, 16)), max_size=4),
    jobs=st.lists(JOBS, min_size=2, max_size=12),
    which=st.data(),
)
def test_what_is_needed_helps(nodes: list[int], jobs: list[tuple[str, int, int, int]], which: st.DataObject) -> None:
    world = Cluster(*FLAVORS, *QUEUES, *(node(f"n{number}", cpus) for number, cpus in enumerate(nodes)))
    for number, (where, cpus, pods, priority) in enumerate(jobs):
        world.put(job(f"w{number}", where, cpus, pods, priority=priority))
        if number % 3 == 0:
            world.settle()
    world.settle()
    waiting = sorted(key for key, each in world.workloads.items() if each.admission is None)
    if not waiting:
        return
    key = which.draw(st.sampled_from(waiting))
    alone(world, key)
    seen: set[Any] = set()
    for _ in range(12):
        world.settle()
        world.complete_evictions()
        world.settle()
        workload = world.workloads[key]
        if workload.admission is not None:
            return
        explanation = world.engine.explain(key)
        assert explanation is not None and explanation.needs, "it waits, and hears nothing"
        case = explanation.reason, explanation.flavor, explanation.resource, explanation.short
        assert case not in seen, f"that was done, and is asked for again: {explanation}"
        seen.add(case)
        if explanation.reason == "WaitingForPreemptedWorkloads":
            continue
        assert follow(world, workload, explanation), explanation
    raise AssertionError(f"{len(seen)} things were done, and it waits: {world.engine.explain(key)}")
