"""What a soak would notice: too much quota, two admissions, lost workloads, statuses that lie."""

from __future__ import annotations

import copy
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
from bench.invariants import Ledger, Standing, differences
from bench.memory import WARM_UP, MemoryTrend
from bench.objects import LOCAL_QUEUE, workload
from bench.parameters import read

from gangline.api.read import conditions, render
from gangline.control.writes.status import queue_status, run_changes, status_changes
from gangline.control.writes.status.change import Change
from gangline.engine import model

Json = dict[str, Any]

LOAD = replace(read("baseline", "smoke"), cohorts=1, queues_per_cohort=2)
ONE, TWO = (queue for _, queue in LOAD.queues)
SMALL, MEDIUM, LARGE = (next(kind for kind in LOAD.classes if kind.name == n) for n in ("small", "medium", "large"))
NOW = 1_700_000_000_000


def waiting(queue: str, kind: Any = LARGE, number: int = 0) -> Json:
    made = workload(kind, queue, number)
    made["metadata"] |= {"uid": f"{queue}-{kind.name}-{number}", "resourceVersion": "1"}
    return made


def admitted(queue: str, kind: Any = LARGE, number: int = 0, *, at: int = NOW) -> Json:
    return changed(waiting(queue, kind, number), admit(queue, kind), at=at)


def admit(queue: str, kind: Any = LARGE) -> Change:
    assignment = model.PodSetAssignment("main", kind.pods, {"cpu": "default"}, {"cpu": kind.cores * 1000})
    decision = model.Admit("", "", model.Admission(queue, (assignment,)), admitted=True, at=NOW)
    return status_changes.admit(decision)


def changed(old: Json, *changes: Change, at: int = NOW) -> Json:
    new = copy.deepcopy(old)
    for change in changes:
        change(new.setdefault("status", {}), at)
    return new


def preempted(old: Json, *, at: int) -> Json:
    decision = model.Preempt("", "", "InClusterQueue", "because", by="", by_uid="")
    return changed(old, status_changes.preempt(decision), status_changes.release, at=at)


def finished(old: Json) -> Json:
    return changed(old, run_changes.finish(True, "done"))


def test_a_life_as_it_should_be() -> None:
    ledger = Ledger()
    first = admitted(ONE)
    evicted = preempted(first, at=NOW + 5000)
    again = changed(evicted, admit(ONE), at=NOW + 9000)
    for version in (waiting(ONE), first, first, evicted, again, finished(again)):
        ledger.upsert(version)
    ledger.remove(f"{ONE}/large-0")
    assert (ledger.violations, ledger.admissions, ledger.evictions, ledger.unfinished) == ([], 2, 1, [])


@pytest.mark.parametrize(
    ("second", "blame"),
    [
        (lambda first: admitted(ONE, at=NOW + 2000), "was admitted twice"),
        (lambda first: admitted(TWO), "was admitted twice"),
        (lambda first: preempted(first, at=NOW), None),
    ],
)
def test_a_reservation_changes_by_eviction_only(second: Callable[[Json], Json], blame: str | None) -> None:
    ledger = Ledger()
    first = admitted(ONE)
    ledger.upsert(first)
    other = second(first)
    other["metadata"] = first["metadata"]
    ledger.upsert(other)
    assert (
        [blame in text for text in ledger.violations] == ([True] if blame else []) if blame else not ledger.violations
    )


def test_what_vanishes_or_comes_back_to_life_is_noticed() -> None:
    ledger = Ledger()
    ledger.upsert(waiting(ONE))
    ledger.remove(f"{ONE}/large-0")
    ledger.upsert(finished(admitted(TWO)))
    ledger.upsert(admitted(TWO))
    assert [text.split(" ")[:2] for text in ledger.violations] == [[f"{ONE}/large-0", "was"], [f"{TWO}/large-0", "was"]]


def test_statuses_are_compared_with_what_the_workloads_add_up_to() -> None:
    workloads = [admitted(ONE), waiting(ONE, SMALL), finished(admitted(ONE, MEDIUM))]
    usage = (model.ResourceUsage("default", "cpu", LARGE.cores * 1000, 0),)
    status = model.QueueStatus(
        pending=1, reserving=1, admitted=1, reservation=usage, usage=usage, active=True, reason="Ready", message=""
    )
    queue: Json = {"metadata": {"name": ONE}}
    queue["status"] = queue_status.cluster_queue_status(status, {}, now=NOW, generation=1, fair=False)
    local: Json = {"metadata": {"name": LOCAL_QUEUE, "namespace": ONE}}
    local["status"] = queue_status.local_queue_status(status, {}, now=NOW, generation=1)
    where = {f"{ONE}/{LOCAL_QUEUE}": ONE}
    assert differences(workloads, [queue, local], where) == []
    queue["status"]["pendingWorkloads"] = 2
    local["status"]["flavorsUsage"][0]["resources"][0]["total"] = "19"
    assert [text.split(" ")[1] for text in differences(workloads, [queue, local], where)] == [
        "pendingWorkloads",
        "flavorsUsage",
    ]


def test_memory_grows_by_its_slope_and_lives_may_differ_in_level() -> None:
    trend = MemoryTrend()
    for level in (100.0, 300.0):
        trend.new_life()
        trend.lives[-1] += [(t, level + t / 60) for t in range(0, 600, 2)]  # 1 MB a minute
    assert trend.slope() == pytest.approx(60.0)
    trend.new_life()
    trend.lives[-1] += [(0.0, 0.0), (WARM_UP - 1, 1e6)]  # not yet warm
    assert trend.slope() == pytest.approx(60.0)
    assert MemoryTrend().slope() is None


def test_of_late_memory_the_beginning_does_not_count() -> None:
    trend = MemoryTrend()
    trend.new_life()
    trend.lives[-1] += [(t, min(float(t), 700.0)) for t in range(0, 1400, 2)]
    summary = trend.summary()
    assert summary["slope_mb_per_hour"] > 100
    assert summary["late_slope_mb_per_hour"] == pytest.approx(0.0, abs=0.1)


def test_rendered_admissions_are_read_back() -> None:
    """The ledger reads what the operator writes."""
    body = render.admission(model.Admission(ONE, (model.PodSetAssignment("main", 1, {"cpu": "f"}, {"cpu": 1500}),)))
    row: Json = {"type": "QuotaReserved", "status": "True", "lastTransitionTime": conditions.timestamp(NOW)}
    made = waiting(ONE) | {"status": {"admission": body, "conditions": [row]}}
    assert Standing.of(made).usage == {("f", "cpu"): 1500}
