"""Small parts by themselves: selection, partial admission, quantities, messages, shares."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from tests.builders.engine import GPU, EngineWorld, cluster_queue, gang, group

from gangline.api import quantity as api_quantity
from gangline.engine.flavors import partial_admission
from gangline.engine.flavors.assignment import obstacle
from gangline.engine.model import (
    ClusterQueue,
    Cohort,
    Expression,
    Flavor,
    PodSet,
    Put,
    Quota,
    Settings,
    Taint,
    Toleration,
)
from gangline.engine.queues.cluster_queue import ClusterQueueState
from gangline.engine.queues.workload_state import CountedPodSet
from gangline.engine.quota.quota_ledger import NO_SHARE, DominantShare, QuotaNode, Standing, reset, settle, standing
from gangline.engine.text import quantity_text

SPOT = Flavor("spot", {"pool": "spot", "zone": "z1"}, (Taint("spot", "true"),))


def pods(**fields: object) -> PodSet:
    return PodSet("main", 1, {GPU: 1}, **fields)  # pyright: ignore


TOLERANT = (Toleration("spot", "Exists"),)


@pytest.mark.parametrize(
    ("pod_set", "text"),
    [
        (pods(), "untolerated taint spot=true:NoSchedule in flavor spot"),
        (pods(tolerations=TOLERANT), ""),
        (pods(tolerations=TOLERANT, node_selector={"zone": "z2"}), "flavor spot doesn't match node affinity"),
        (
            pods(tolerations=TOLERANT, node_selector={"zone": "z1", "disk": "ssd"}),
            "",
        ),  # disk is not the flavor's business
        (
            pods(tolerations=TOLERANT, affinity=((Expression("zone", "NotIn", ("z1",)),),)),
            "flavor spot doesn't match node affinity",
        ),
        (
            pods(
                tolerations=TOLERANT,
                affinity=((Expression("zone", "In", ("z9",)),), (Expression("zone", "Exists"),)),
            ),
            "",
        ),
        (
            pods(
                tolerations=TOLERANT,
                affinity=((Expression("zone", "In", ("z9",)),), (Expression("disk", "In", ("ssd",)),)),
            ),
            "",  # a term that says nothing of the flavor's keys matches everything
        ),
    ],
)
def test_what_keeps_a_pod_set_off_a_flavor(pod_set: PodSet, text: str) -> None:
    assert obstacle(pod_set, SPOT) == text


def test_a_preference_of_a_taint_is_not_binding_and_flavors_may_tolerate() -> None:
    assert obstacle(pods(), Flavor("f", taints=(Taint("a", "b", "PreferNoSchedule"),))) == ""
    assert obstacle(pods(), Flavor("f", taints=(Taint("a", "b"),), tolerations=(Toleration("a", "Equal", "b"),))) == ""


@given(
    sizes=st.lists(st.tuples(st.integers(0, 30), st.integers(0, 30)), min_size=1, max_size=3), limit=st.integers(0, 90)
)
def test_partial_admission_finds_the_least_reduction(sizes: list[tuple[int, int]], limit: int) -> None:
    demands = [
        CountedPodSet(PodSet(f"p{n}", count, {}, min_count=least), count) for n, (count, least) in enumerate(sizes)
    ]
    deltas = [max(0, count - least) for count, least in sizes]
    total = sum(deltas)
    steps = (
        [[c - d * i // total for (c, _), d in zip(sizes, deltas, strict=True)] for i in range(total + 1)]
        if total
        else []
    )

    def fits(counts: Sequence[int]) -> list[int] | None:
        return list(counts) if sum(counts) <= limit else None

    expected = next((counts for counts in steps if sum(counts) <= limit), None)
    assert partial_admission.search(demands, fits) == expected


@example(resource="memory", amount=1000)
@given(resource=st.sampled_from(("cpu", "memory", GPU, "pods")), amount=st.integers(0, 2**62))
def test_quantities_are_canonical(resource: str, amount: int) -> None:
    text = quantity_text.text(resource, amount)
    assert api_quantity.parse(text, resource) == amount
    assert text == api_quantity.format(amount, resource)


@pytest.mark.parametrize(
    ("resource", "amount", "text"),
    [
        ("cpu", 1500, "1500m"),
        ("cpu", 2000, "2"),
        ("cpu", 0, "0"),
        ("memory", 2**30, "1Gi"),
        (GPU, 2000, "2k"),
        (GPU, 32, "32"),
    ],
)
def test_quantities_as_examples(resource: str, amount: int, text: str) -> None:
    assert quantity_text.text(resource, amount) == text


def test_shares_order_as_they_should() -> None:
    assert (
        NO_SHARE
        < DominantShare(False, 1.0)
        < DominantShare(False, 999.0)
        < DominantShare(True, 0.1)
        < DominantShare(True, 5.0)
    )


def test_the_dominant_resource_decides_and_weights_divide() -> None:
    quotas = {"a100": {"cpu": 10_000, GPU: Quota(4)}}
    world = EngineWorld(
        Cohort("pool", groups=(group({"a100": {"cpu": 10_000, GPU: 4}}),)),
        cluster_queue("q", cohort="pool", groups=(group(quotas),), weight=2.0),
        gang("w", pod_sets=(PodSet("main", 1, {"cpu": 15_000, GPU: 6}),)),
    )
    world.decide()
    # cpu: 5 of 20 borrowed = 250; GPUs: 2 of 8 = 250; of equal ones either; weight 2
    queue = world.engine._store.queues["q"]
    assert standing(queue).share == DominantShare(False, 125.0)
    assert world.engine.queue_status("q").weighted_share == 125
    world.engine.observe(Put(cluster_queue("q", cohort="pool", groups=(group(quotas),), weight=0.0)))
    assert world.engine.queue_status("q").weighted_share == 2**63 - 1


def test_a_share_counts_a_single_lendable_unit() -> None:
    queue = ClusterQueueState(ClusterQueue("q"))
    parent = QuotaNode("cohort")
    reset(parent, {("a100", "gpu"): Quota(1)})
    reset(queue, {("a100", "gpu"): Quota(0)})
    queue.parent = parent
    parent.queues.append(queue)
    settle(parent)
    queue.cells["a100", "gpu"].add(1)
    assert standing(queue).share == DominantShare(False, 1000.0)


def test_a_share_with_nothing_lendable_is_zero() -> None:
    """As after quota was taken away from a queue that uses it."""
    queue, parent = ClusterQueueState(ClusterQueue("q")), QuotaNode("cohort")
    for node in (parent, queue):
        reset(node, {("a100", "gpu"): Quota(0)})
    queue.parent = parent
    parent.queues.append(queue)
    settle(parent)
    queue.cells["a100", "gpu"].add(1)
    assert standing(queue) == Standing(True, DominantShare(False, 0.0))


def test_without_fungibility_the_best_flavor_is_taken() -> None:
    groups = (group({"a100": {GPU: 2}, "h100": {GPU: 4}}),)
    settings = Settings(pods_ready=None, gates={"FlavorFungibility": False})
    world = EngineWorld(Flavor("h100"), cluster_queue("q", groups=groups), gang("w1", 4), settings=settings)
    world.decide()
    admission = world.workloads["team/w1"].admission
    assert admission is not None and admission.pod_sets[0].flavors == {GPU: "h100"}
