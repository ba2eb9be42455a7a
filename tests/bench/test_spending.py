"""The judge of budgets sees a start that was granted to who had used theirs, by instants and by its own clock."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest
from tests.cluster.spending import OFF, Spending

Json = dict[str, Any]
BEGIN = 1_790_000_000.0


def stamp(at: float) -> str:
    return datetime.fromtimestamp(at, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def workload(
    name: str, gpus: int, reserved: float, finished: float | None = None, released: float | None = None
) -> Json:
    rows = [
        {"type": "QuotaReserved", "status": "True", "lastTransitionTime": stamp(BEGIN + reserved)}
        if released is None
        else {"type": "QuotaReserved", "status": "False", "lastTransitionTime": stamp(BEGIN + released)}
    ]
    if finished is not None:
        rows.append({"type": "Finished", "status": "True", "lastTransitionTime": stamp(BEGIN + finished)})
    assigned = [{"resourceUsage": {"nvidia.com/gpu": str(gpus)}}]
    meta = {"uid": name, "name": name, "namespace": "team"}
    return {
        "metadata": meta,
        "status": {"conditions": rows, "admission": {"podSetAssignments": assigned}},
    }


@pytest.fixture
def spending() -> Spending:
    """Of `team`, with 40 GPU-seconds."""
    return Spending({"team": 40 / 3600}, lambda found: (found["metadata"]["namespace"],))


def take(spending: Spending, seen: Json, at: float, *, gone: bool = False) -> None:
    spending.take(seen, gone=gone, at=BEGIN + at)


def test_a_start_before_the_budget_is_used_is_right(spending: Spending) -> None:
    take(spending, workload("a", 4, 0), 0.2)
    take(spending, workload("b", 1, 9), 9.5)
    take(spending, workload("a", 4, 0, finished=20), 20.1)
    assert spending.violations == []
    assert spending.granted["team"] == 2
    assert spending.used("team", BEGIN + 19) * 3600 == 80 + 10


@pytest.mark.parametrize("end", [{"finished": 10.0}, {"released": 10.0}, {}])
def test_a_start_once_it_is_used_is_a_violation(spending: Spending, end: Json) -> None:
    take(spending, workload("a", 4, 0), 0.2)
    if end:
        take(spending, workload("a", 4, 0, **end), 10.2)
    take(spending, workload("b", 1, 10), 10.3)
    (found,) = spending.violations
    assert found.startswith("b got quota at")


def test_a_start_is_a_violation_although_its_instants_are_from_a_clock_that_was_put_back(spending: Spending) -> None:
    take(spending, workload("a", 4, 0), 0.2)
    take(spending, workload("b", 1, -590), 10.3 + OFF)
    (found,) = spending.violations
    assert found.startswith("b was seen with quota at")


def test_one_workload_that_is_granted_again_is_another_start_and_one_that_is_written_again_is_none(
    spending: Spending,
) -> None:
    for at in (0.2, 1.0):
        take(spending, workload("a", 1, 0), at)
    take(spending, workload("a", 1, 0, released=5), 5.1)
    take(spending, workload("a", 1, 7), 7.1)
    take(spending, workload("a", 1, 7), 9.0, gone=True)
    assert spending.granted["team"] == 2
    assert spending.used("team", BEGIN + 100) * 3600 == pytest.approx(5 + 2)
