"""Whoever has gone is forgotten, whatever was still to be looked at again because of them."""

from __future__ import annotations

import gc

import pytest
from tests.builders.engine import cluster_queue
from tests.engine.clockwork import Clockwork, Job

from gangline.engine.model import Backfill
from gangline.engine.queues.workload_state import WorkloadState

DAY = 86_400


def gangs() -> int:
    gc.collect()
    return sum(isinstance(found, WorkloadState) for found in gc.get_objects())


@pytest.mark.parametrize("backfill", [None, Backfill()], ids=["plain", "timed"])
def test_runs_that_end_long_before_their_time_leave_nothing_behind(backfill: Backfill | None) -> None:
    before, kept, reviews = gangs(), list[int](), list[int]()

    def measure(clock: Clockwork) -> None:
        if len(clock.runs) == 400 and not kept:
            kept.append(gangs() - before)
            reviews.append(len(clock.engine._scheduler.backfill.timeline._reviews))

    clock = Clockwork(cluster_queue("q", 8, backfill=backfill))
    clock.checks.append(measure)
    clock.run(Job(20 * number, 10, forecast=((0.5, DAY), (0.9, 2 * DAY)), limit=3 * DAY) for number in range(400))
    assert kept[0] < 100
    assert reviews[0] < 100
