"""The measures of a replay on outcomes that can be worked out by hand."""

from __future__ import annotations

import json

import pytest
from tests.replay.jobs import made

from gangline.engine.model import ReservedHead
from gangline.replay import metrics
from gangline.replay.replayed import ReplayedCluster, ReplayedOutcome, ReplayResult, Sample, Stint


def outcome(number: int, submit: float, start: float, duration: float, gpus: int, tenant: str = "a") -> ReplayedOutcome:
    from dataclasses import replace

    (job,) = made((submit, duration, gpus))
    end = round((start + duration) * 1000)
    stint = Stint(round(start * 1000), end)
    return ReplayedOutcome(replace(job, number=number, tenant=tenant), [stint], finish=end)


def result(*outcomes: ReplayedOutcome, gpus: int = 16, **fields: object) -> ReplayResult:
    return ReplayResult(ReplayedCluster(gpus), list(outcomes), **fields)  # type: ignore[arg-type]


def test_waits_by_size_and_slowdowns() -> None:
    m = metrics.of(result(outcome(0, 0, 0, 5, 1), outcome(1, 0, 30, 40, 8), outcome(2, 0, 90, 30, 12)))
    assert (m["wait"]["mean"], m["wait"]["p50"], m["wait"]["max"]) == (40, 30, 90)
    assert (m["wait_gt8"]["mean"], m["wait_le8"]["mean"], m["wait_1"]["mean"], m["wait_2_8"]["mean"]) == (90, 15, 0, 30)
    assert m["jct"]["mean"] == (5 + 70 + 120) / 3
    assert m["bounded_slowdown"] == pytest.approx((1 + 70 / 40 + 120 / 30) / 3)
    assert m["bounded_slowdown_60"] == pytest.approx((1 + 70 / 60 + 120 / 60) / 3)
    assert m["per_processor_slowdown"] == pytest.approx(1.0)
    assert m["makespan"] == 120


def test_quantiles_lie_between_neighbours() -> None:
    m = metrics.of(result(*(outcome(n, 0, n * 10, 5, 1) for n in range(11))))
    assert (m["wait"]["p50"], m["wait"]["p90"], m["wait"]["p99"]) == (50, 90, pytest.approx(99))


def test_lost_work_counts_against_useful_use() -> None:
    evicted = outcome(0, 0, 100, 100, 8)
    evicted.stints.insert(0, Stint(0, 50_000, lost=50_000))
    evicted.evictions = 1
    samples = [Sample(0, 8, 1, 8), Sample(100_000, 8, 0, 0), Sample(200_000, 0, 0, 0)]
    m = metrics.of(result(evicted, samples=samples))
    assert m["gpu_hours_lost_share"] == pytest.approx(0.5)
    assert m["wait"]["mean"] == 100
    assert m["first_start"]["mean"] == 0
    assert m["utilisation"] == pytest.approx(0.5)  # 8 of 16 while one waited
    assert m["useful_utilisation"] == pytest.approx(0.25)
    assert (m["evictions"], m["evictions_per_1000"]) == (1, 1000)


def test_unfinished_and_impossible_jobs_are_counted_never_dropped() -> None:
    waiting, large = (ReplayedOutcome(job) for job in made((0, 10, 8), (0, 10, 32)))
    large.impossible = "asks for 32 of 16 GPUs"
    m = metrics.of(result(outcome(0, 0, 0, 10, 8), waiting, large))
    assert (m["jobs"], m["finished"], m["unfinished"], m["impossible"]) == (3, 1, 1, 1)


def head(started: int, promised: int | None = None, cause: str = "") -> ReservedHead:
    """A head whose start was planned for the first second."""
    return ReservedHead("replay/x", "q", planned=1000, started=started, promised=promised, cause=cause)


def test_plans_and_promises_are_judged_by_how_late_heads_started() -> None:
    m = metrics.of(
        result(
            outcome(0, 0, 0, 10, 8),
            heads={0: head(1000), 1: head(50_000, 60_000), 2: head(121_000, 61_000), 3: head(122_000, 61_999, "nodes")},
            head_delay={"backfill": 3.0, "early_end": 4.0, "loss_budget": 5.0},
        )
    )
    assert (m["head_delay_backfill_seconds"], m["head_delay_early_end_seconds"]) == (3, 4)
    assert m["head_delay_loss_budget_seconds"] == 5
    assert (m["heads"], m["heads_late_share"], m["heads_mean_lateness"]) == (
        4,
        pytest.approx(1 / 2),
        pytest.approx(290 / 4),
    )
    assert m["promises"] == {
        "made": 3,
        "coverage": pytest.approx(2 / 3),
        "mean_lateness": pytest.approx(120.001 / 3),
        "mean_length": pytest.approx(182.999 / 3),
        "median_length": 61.0,
        "missed_by": {"nodes": 1},
    }


def test_who_is_passed_by_later_ones_of_the_same_tenant() -> None:
    outcomes = [outcome(0, 0, 100, 1, 1), outcome(1, 1, 10, 1, 1), outcome(2, 2, 20, 1, 1), outcome(3, 3, 5, 1, 1, "b")]
    assert metrics.overtaken(outcomes).tolist() == [2, 0, 0, 0]


def test_fairness_is_one_when_all_get_the_same_share_and_half_when_one_of_two_gets_all() -> None:
    hour = 3600.0
    even = result(
        outcome(0, 0, 0, hour, 8, "a"), outcome(1, 0, 0, hour, 8, "b"), samples=[Sample(0, 16, 0, 0)]
    )  # fmt: skip
    # a second submission fixes the end of the window
    even.outcomes += [outcome(2, hour, hour, 10, 1, "a"), outcome(3, hour, hour, 10, 1, "b")]
    assert metrics.fairness(even)["jain_1h"] == pytest.approx(1.0)
    one = result(
        outcome(0, 0, 0, hour, 8, "a"), outcome(1, 0, hour, hour, 8, "b"), outcome(2, hour, hour, 10, 1, "a"),
        samples=[Sample(0, 8, 1, 8)],
    )  # fmt: skip
    assert metrics.fairness(one)["jain_1h"] == pytest.approx(0.5)


def test_nothing_at_all_is_still_valid_json() -> None:
    text = json.dumps(metrics.of(result()), allow_nan=False)
    assert json.loads(text)["wait"]["mean"] is None
