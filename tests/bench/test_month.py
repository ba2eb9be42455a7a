"""The month that is made up has the shape that it is said to have, and the counts of the trace agree with each other."""

from __future__ import annotations

from statistics import quantiles

import pytest
from tests.cluster import month


def test_the_durations_and_sizes_are_those_of_venus() -> None:
    jobs = month.made_up(20_000, seed=1)
    assert jobs == month.made_up(20_000, seed=1)
    found = quantiles((job.duration for job in jobs), n=20)
    for share, seconds in ((0.25, 47), (0.5, 231), (0.75, 2_267), (0.9, 18_385)):
        assert found[round(share * 20) - 1] == pytest.approx(seconds, rel=0.15)
    mean = sum(job.gpus * job.duration for job in jobs) / len(jobs) / 3600
    assert 10 < mean < 25, "Venus has 20.4 GPU-hours a job in that month, with the sizes that are left out"
    assert sum(job.gpus == 1 for job in jobs) / len(jobs) == pytest.approx(0.53, abs=0.02)


def test_all_ways_to_count_the_trace_agree() -> None:
    jobs = month.made_up(200, seed=2)
    found = month.runs(jobs, month.begin_of(1_790_000_000.0))
    for run in found:
        run.reserved = run.submit + 5
    hours = sum(job.gpus * job.duration for job in jobs) / 3600
    assert sum(month.gpu_hours(found, lambda run: run.namespace).values()) == pytest.approx(hours)
    assert len(month.gpu_hours(found, lambda run: run.user)) == month.USERS
    end = max(run.end for run in found)
    assert sum(month.gpu_hours_by_day(found, found[0].submit, end).values()) == pytest.approx(hours)
    assert found[0].submit % month.DAY == 0
    assert month.gpus_for(jobs, 0.5) >= max(job.gpus for job in jobs)
