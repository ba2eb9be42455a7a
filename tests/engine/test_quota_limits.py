"""What keeps a ClusterQueue from more quota: its own borrowing limit, that of a cohort, what others keep, or that all is used."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from gangline.engine import BorrowingLimit, Engine
from gangline.engine.model import ClusterQueue, Cohort, Flavor, FlavorQuotas, Put, Quota, ResourceGroup
from gangline.engine.quota.quota_ledger import limits

GPU = "gpu"


def groups(nominal: int, borrow: int | None = None, lend: int | None = None) -> tuple[ResourceGroup, ...]:
    return (ResourceGroup((GPU,), (FlavorQuotas("f", {GPU: Quota(nominal, borrow, lend)}),)),)


def engine(*items: ClusterQueue | Cohort) -> Engine:
    made = Engine()
    for item in (Flavor("f"), *items):
        made.observe(Put(item))
    return made


def test_an_own_borrowing_limit_is_told_with_what_could_be_used_without_it() -> None:
    here = engine(ClusterQueue("a", "lab", groups=groups(8, borrow=4)), ClusterQueue("b", "lab", groups=groups(16)))
    found = here.quota_limits("a", "f", GPU)
    assert found is not None
    assert (found.available, found.unlimited) == (12, 24)
    assert found.binding == (BorrowingLimit("a", cohort=False, limit=4, without=24),)


def test_a_cohorts_limit_is_told_as_the_cohorts() -> None:
    here = engine(
        Cohort("team", "lab", groups=groups(0, borrow=2)),
        ClusterQueue("a", "team", groups=groups(8)),
        ClusterQueue("b", "lab", groups=groups(16)),
    )
    found = here.quota_limits("a", "f", GPU)
    assert found is not None and found.binding == (BorrowingLimit("team", cohort=True, limit=2, without=24),)


def test_a_limit_that_is_not_reached_does_not_bind_and_kept_quota_is_counted() -> None:
    here = engine(
        ClusterQueue("a", "lab", groups=groups(8, borrow=40)), ClusterQueue("b", "lab", groups=groups(16, lend=6))
    )
    found = here.quota_limits("a", "f", GPU)
    assert found is not None
    assert (found.available, found.unlimited, found.kept, found.binding) == (14, 14, 10, ())
    assert here.quota_limits("a", "f", "cpu") is None and here.quota_limits("none", "f", GPU) is None


amounts = st.integers(0, 40)
some = st.none() | amounts


@given(amounts, some, some, amounts, some, amounts, amounts)
def test_without_any_limit_there_is_never_less(
    own: int, borrow: int | None, lend: int | None, top: int, above: int | None, other: int, used: int
) -> None:
    here = engine(
        Cohort("team", "lab", groups=groups(top, borrow=above)),
        ClusterQueue("a", "team", groups=groups(own, borrow, lend)),
        ClusterQueue("b", "lab", groups=groups(other)),
    )
    assert here.quota_limits("a", "f", GPU) is not None
    cell = here._store.queues["a"].cells["f", GPU]  # pyright: ignore[reportPrivateUsage]
    cell.add(used)
    found = limits(cell)
    assert found.available == cell.available() <= found.unlimited
    for limit in found.binding:
        assert found.available < limit.without <= found.unlimited
    if found.unlimited > found.available and len(found.binding) == 1 and not (borrow is not None and above is not None):
        assert found.binding[0].without == found.unlimited
