"""What a replay knows of runtimes: the stand-ins do what their names say, and the forecaster never sees what is to come."""

from __future__ import annotations

import math
import random
from dataclasses import replace

import pytest
from tests.replay.jobs import made, trace_jobs

from gangline.engine.model import Backfill, ClusterQueue
from gangline.forecast.history.runs import Run
from gangline.forecast.learning import training
from gangline.replay import calibration
from gangline.replay.foresight import Foresight, Guess, LastTwo, Noisy, RequestedTimes, Truth, run_of
from gangline.replay.learned import Learned, school
from gangline.replay.replayed import ReplayedCluster, ReplayedJob, ReplayResult, replayed
from gangline.replay.simulator import SavingRules, Simulator

SMALL = training.LearningSettings(rounds=10, min_leaf=10)
DAY = 86_400_000


def quantiles_of(believed: Foresight, job: ReplayedJob) -> dict[float, int]:
    """Quantiles (milliseconds) of a job at its submission."""
    believed.submitted(job, job.submit)
    (forecast,) = believed.news(job.submit, True)
    assert forecast.workload == job.key
    return dict(forecast.quantiles)


def test_truth_is_true_and_counts_what_was_saved() -> None:
    (job,) = made((0, 500, 8))
    believed = Truth(restart=60_000)
    assert set(quantiles_of(believed, job).values()) == {500_000}
    believed.stopped(job, ran=200_000, saved=180_000, now=200_000)
    (again,) = believed.news(200_000, True)
    assert {millis for _, millis in again.quantiles} == {380_000}


def test_limits_are_the_requested_time_or_else_the_default() -> None:
    with_limit, without = made((0, 10, 1, 300), (1, 10, 1))
    believed = RequestedTimes(default=7_200_000)
    assert set(quantiles_of(believed, with_limit).values()) == {300_000}
    assert set(quantiles_of(believed, without).values()) == {7_200_000}


def test_last_two_is_the_mean_of_the_owners_last_two_runs() -> None:
    jobs = made((0, 100, 1), (1000, 300, 1), (2000, 5, 1), (5000, 1, 1))
    believed = LastTwo((), default=3_600_000)
    assert set(quantiles_of(believed, jobs[0]).values()) == {3_600_000}
    for job in jobs[:2]:
        if job.number:
            quantiles_of(believed, job)
        believed.started(job, job.submit)
        believed.finished(job, job.submit + job.duration)
    assert set(quantiles_of(believed, jobs[2]).values()) == {200_000}


def test_noise_is_that_of_the_helios_artifact() -> None:
    believed = Noisy(seed=1)
    jobs = made(*((number, 10_000, 1) for number in range(4000)))
    medians = [quantiles_of(believed, job)[0.5] / job.duration for job in jobs]
    errors = [max(ratio, 1 / ratio) - 1 for ratio in medians]
    for most, share in ((0.101, 0.1), (0.501, 0.5), (1.001, 0.7), (10.01, 0.9), (100.1, 1.0)):
        assert sum(error <= most for error in errors) / len(errors) == pytest.approx(share, abs=0.03)
    assert sum(ratio > 1 for ratio in medians) / len(medians) == pytest.approx(0.5, abs=0.03)


def test_a_guess_knows_nothing_of_the_job() -> None:
    short, long = made((0, 1, 1), (0, 100_000, 1))
    assert quantiles_of(Guess(5, [10.0, 1000.0]), short) == quantiles_of(Guess(5, [10.0, 1000.0]), long)


# --- the product's forecaster -----------------------------------------------------------------------------------------


LEARNED = 20 * DAY // 1000
MADE = trace_jobs(900, days=24.0)


def history(count: int = 10_000) -> list[Run]:
    """Twenty days; every job started when it was submitted."""
    past = replayed(job for job in MADE if job.submit < LEARNED)
    return [
        replace(run_of(job), uid=job.id, start=job.submit / 1000, finish=(job.submit + job.duration) / 1000)
        for job in past[-count:]
    ]


def window() -> list[ReplayedJob]:
    """The four days after it."""
    return replayed(job for job in MADE if job.submit >= LEARNED)


def forecasts(jobs: list[ReplayedJob], retrain: int | None = None) -> Learned:
    """All jobs start when they are submitted, on a cluster without end."""
    believed = Learned(school(history(), LEARNED, LEARNED, SMALL), retrain)
    events = sorted(
        [(job.submit, 1, job) for job in jobs] + [(job.submit + job.duration, 0, job) for job in jobs],
        key=lambda event: (*event[:2], event[2].number),
    )
    for now, submitted, job in events:
        if submitted:
            believed.submitted(job, now)
            believed.started(job, now)
            list(believed.news(now, True))
        else:
            believed.finished(job, now)
    return believed


def test_every_job_is_forecast_by_the_model() -> None:
    jobs = window()
    believed = forecasts(jobs)
    assert set(believed.forecasts) == {job.number for job in jobs}
    scores = calibration.of(jobs, believed)
    assert scores["sources"].get("Model", 0) > 100
    assert scores["mean_abs_log_error"] < 0.8  # the habits' own spread is 0.5
    assert 0.75 <= scores["coverage"]["q90"] <= 1.0


@pytest.mark.parametrize("retrain", [None, DAY])
def test_what_comes_later_changes_nothing_that_was_said_before(retrain: int | None) -> None:
    jobs = window()
    middle = jobs[75].submit
    other = [replace(job, duration=job.duration * 7) if job.submit + job.duration >= middle else job for job in jobs]
    first, second = forecasts(jobs, retrain), forecasts(other, retrain)
    before = [job.number for job in jobs if job.submit < middle]
    assert [first.forecasts[number] for number in before] == [second.forecasts[number] for number in before]
    assert any(first.forecasts[job.number] != second.forecasts[job.number] for job in jobs[100:])
    assert first.models == (1 if retrain is None else 4)


def of_the_past(result: ReplayResult, until: int) -> tuple[object, ...]:
    """All that a replay had done before a time: when it decided, what it started and stopped, and what was promised."""
    stints = [
        [
            (stint.start, stint.end if stint.end < until else None, stint.backfilled)
            for stint in outcome.stints
            if stint.start < until
        ]
        for outcome in result.outcomes
    ]
    promises = {number: head for number, head in result.heads.items() if head.started < until}
    return [sample for sample in result.samples if sample.at < until], stints, promises


def corrupted(result: ReplayResult, at: int) -> list[ReplayedJob]:
    """Everything that has not ended by then takes three times as long."""
    return [
        replace(job, duration=job.duration * 3) if outcome.finish is None or outcome.finish >= at else job
        for job, outcome in zip((outcome.job for outcome in result.outcomes), result.outcomes, strict=True)
    ]


def overstaying_jobs(seed: int) -> list[ReplayedJob]:
    """Jobs whose limits say little of how long they take, so that many are let in before a head and have to go again."""
    rng = random.Random(seed)
    rows = []
    for number in range(150):
        duration = rng.choice((60, 300, 1800, 7200))
        rows.append((number * 40, duration, rng.choice((1, 2, 4, 8, 16)), duration * rng.choice((0.1, 0.3, 1, 2))))
    return made(*rows)


@pytest.mark.parametrize(
    ("seed", "checkpoint", "revoke"),
    [(1, None, "Overdue"), (1, 60_000, "Any"), (2, None, "Any"), (2, 60_000, "Overdue")],
)
def test_no_decision_knows_how_long_a_run_would_have_lasted(seed: int, checkpoint: int | None, revoke: str) -> None:
    queue = ClusterQueue("replay", backfill=Backfill(running=0.5, candidate=0.5, revoke=revoke))

    def played(jobs: list[ReplayedJob]) -> ReplayResult:
        return Simulator(
            jobs, ReplayedCluster(24), queue, RequestedTimes(3_600_000), rules=SavingRules(checkpoint=checkpoint)
        ).run()

    whole = played(overstaying_jobs(seed))
    assert sum(outcome.evictions for outcome in whole.outcomes) > 5
    ends = sorted(outcome.finish for outcome in whole.outcomes if outcome.finish is not None)
    for at in (ends[len(ends) // 4], ends[len(ends) // 2], ends[3 * len(ends) // 4]):
        assert of_the_past(played(corrupted(whole, at)), at) == of_the_past(whole, at)


def test_an_evicted_job_is_known_to_take_longer_than_it_ran() -> None:
    jobs = window()
    believed = Learned(school(history(), LEARNED, LEARNED, SMALL))
    job = jobs[0]
    before = quantiles_of(believed, job)
    believed.started(job, job.submit)
    ran = before[0.95] + 1000
    believed.stopped(job, ran=ran, saved=ran // 2, now=job.submit + ran)
    (again,) = believed.news(job.submit + ran, True)
    assert all(millis >= ran - ran // 2 for _, millis in again.quantiles)
    assert dict(again.quantiles)[0.5] > before[0.95] - ran // 2


def test_without_a_past_there_is_no_model_but_still_forecasts() -> None:
    schooling = school(history(50), LEARNED, LEARNED, SMALL)
    assert "a model needs" in schooling.note
    believed = Learned(schooling)
    quantiles = quantiles_of(believed, window()[0])
    assert all(math.isfinite(millis) and millis > 0 for millis in quantiles.values())
