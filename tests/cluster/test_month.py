"""A month of jobs in a live cluster: the report has the GPU-hours of the trace, whatever became of the operator meanwhile."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.cluster import month
from tests.cluster.conftest import System

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(600)]
JOBS = int(os.environ.get("GANGLINE_MONTH_JOBS", "60"))
KILLS = 2


@pytest.fixture
def idle(tmp_path: Path) -> Iterator[System]:
    with month.control_plane(tmp_path) as system:
        yield system


async def test_the_report_has_the_gpu_hours_of_a_month_like_that_of_venus(idle: System) -> None:
    """`make bench-month TRACES=…` plays a month of Venus itself."""
    jobs = month.made_up(JOBS, seed=49)
    found = month.runs(jobs, month.begin_of(time.time()))
    gpus = month.gpus_for(jobs, load=0.5)
    played = await month.play(idle, found, gpus, KILLS)
    assert all(run.finished for run in found)
    assert len(idle.running) == 1 + KILLS
    assert played.player.waited > 0, "some wait for others: otherwise the queue has nothing to do"
    report = played.report
    assert report.attempts == JOBS, "each job is one attempt"
    assert report.difference <= 0.001, report
    assert max(report.worst.values()) <= 0.001, report
    assert played.player.late == 0 or played.player.steps, "nothing but a clock that had to go on makes a job late"
