"""The quota ledger by itself: numbers to check by hand, and exact undo."""

from __future__ import annotations

import random

from hypothesis import given
from hypothesis import strategies as st

from gangline.engine.model import UNLIMITED, ClusterQueue, Quota
from gangline.engine.queues.cluster_queue import ClusterQueueState
from gangline.engine.quota.quota_ledger import Cell, QuotaNode, reset, settle

FR = ("a100", "gpu")


def queue(name: str, quota: Quota) -> ClusterQueueState:
    node = ClusterQueueState(ClusterQueue(name))
    reset(node, {FR: quota})
    return node


def tree(top: Quota, middle: Quota, *queues: Quota) -> tuple[Cell, ...]:
    """Cells of: the root, the cohort below it, that cohort's queues."""
    root, cohort = QuotaNode("root"), QuotaNode("cohort")
    reset(root, {FR: top})
    reset(cohort, {FR: middle})
    leaves = [queue(f"q{n}", quota) for n, quota in enumerate(queues)]
    cohort.parent = root
    root.cohorts.append(cohort)
    for leaf in leaves:
        leaf.parent = cohort
        cohort.queues.append(leaf)
    settle(root)
    return tuple(node.cells[FR] for node in (root, cohort, *leaves))


def test_unused_quota_can_be_borrowed() -> None:
    root, cohort, a, b = tree(Quota(2), Quota(1), Quota(4), Quota(4))
    assert (root.subtree, cohort.subtree) == (11, 9)
    assert (a.available(), b.available()) == (11, 11)
    a.add(6)
    assert (a.available(), b.available(), cohort.usage, root.usage) == (5, 5, 6, 6)


def test_a_lending_limit_keeps_quota_at_home() -> None:
    root, cohort, a, b = tree(Quota(0), Quota(0), Quota(8, lending_limit=2), Quota(4))
    assert (cohort.subtree, root.subtree) == (6, 6)
    assert (a.potential, b.potential) == (12, 6)
    a.add(6)
    assert (cohort.usage, b.available()) == (0, 6)  # what it keeps to itself does not show above
    a.add(1)
    assert (cohort.usage, b.available()) == (1, 5)


def test_a_borrowing_limit_caps_each_node_on_the_way() -> None:
    _, cohort, a, b = tree(Quota(10), Quota(0, borrowing_limit=3), Quota(2, borrowing_limit=4), Quota(2))
    assert (a.potential, b.potential) == (6, 7)
    b.add(5)
    assert cohort.available() == 2
    assert a.available() == 2


def test_lending_limits_of_a_cohort_count_for_its_whole_subtree() -> None:
    root, cohort, a = tree(Quota(0), Quota(1, lending_limit=2), Quota(9))
    assert (cohort.subtree, cohort.local, root.subtree) == (10, 8, 2)
    assert a.available() == 10


def test_height_is_where_the_amount_can_be_had() -> None:
    root, cohort, a, _ = tree(Quota(10), Quota(0), Quota(2), Quota(2))
    assert (cohort.node.height, root.node.height) == (1, 2)
    assert a.height(2) == (0, True)
    assert a.height(3) == (1, True)
    assert a.height(5) == (2, False)
    assert a.height(99) == (2, False)


def test_unlimited_quota_never_ends() -> None:
    root, _, a, b = tree(Quota(0), Quota(0), Quota(UNLIMITED), Quota(3))
    a.add(10**12)
    assert b.available() > UNLIMITED
    assert root.subtree > UNLIMITED
    _, _, alone, other = tree(Quota(0), Quota(0), Quota(UNLIMITED, lending_limit=0), Quota(3))
    assert other.potential == 3
    assert alone.available() > UNLIMITED


def test_over_use_makes_availability_negative() -> None:
    root, _, a, b = tree(Quota(0), Quota(0), Quota(2), Quota(2))
    a.add(7)
    assert (root.available(), b.available()) == (-3, -3)


def test_what_nobody_has_quota_of_can_still_be_used_up() -> None:
    root = queue("lone", Quota(1))
    settle(root)
    cell = root.cell(("other", "gpu"))
    cell.add(5)
    assert (cell.available(), cell.potential, cell.listed) == (-5, 0, False)


limits = st.one_of(st.none(), st.integers(0, 8))
quotas = st.builds(Quota, st.integers(0, 8), limits, limits)


@given(
    top=st.builds(Quota, st.integers(0, 8)),
    middle=quotas,
    queues=st.lists(quotas, min_size=1, max_size=4),
    amounts=st.lists(st.tuples(st.integers(0, 3), st.integers(0, 9)), max_size=12),
    seed=st.integers(0, 999),
)
def test_taking_away_in_any_order_undoes_adding(
    top: Quota, middle: Quota, queues: list[Quota], amounts: list[tuple[int, int]], seed: int
) -> None:
    root, cohort, *leaves = tree(top, middle, *queues)
    steps = [(leaves[place % len(leaves)], amount) for place, amount in amounts]
    for cell, amount in steps:
        cell.add(amount)
    for cell in (cohort, root):
        children = leaves if cell is cohort else [cohort]
        assert cell.usage == sum(max(0, child.usage - child.local) for child in children)
    random.Random(seed).shuffle(steps)
    for cell, amount in steps:
        cell.remove(amount)
    assert [cell.usage for cell in (root, cohort, *leaves)] == [0] * (2 + len(leaves))
