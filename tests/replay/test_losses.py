"""What a replay loses by evictions: never more than the policy's budget, by the schedule alone."""

from __future__ import annotations

from dataclasses import replace

import pytest
from tests.replay.jobs import trace_jobs

from gangline.replay import policies
from gangline.replay.foresight import Guess
from gangline.replay.replayed import ReplayedCluster, ReplayedJob, ReplayResult, replayed
from gangline.replay.simulator import SavingRules, Simulator

DAY = 86_400_000
GPUS = 48


def run(jobs: list[ReplayedJob], budget: float | None, checkpoint: int | None) -> ReplayResult:
    backfill = replace(policies.BACKFILL, loss_budget=budget)
    queue = replace(policies.POLICIES["gangline"].queue, backfill=backfill)
    chance = Guess(3, [job.duration / 1000 for job in jobs])
    return Simulator(jobs, ReplayedCluster(GPUS), queue, chance, rules=SavingRules(checkpoint)).run()


@pytest.mark.parametrize("checkpoint", [1_800_000, None])
def test_no_more_is_lost_in_any_time_than_the_budget_allows(checkpoint: int | None) -> None:
    jobs = replayed(trace_jobs(500, days=1.5))
    share = 0.01
    free = run(jobs, None, checkpoint)
    held = run(jobs, share, checkpoint)

    def lost(result: ReplayResult) -> list[tuple[int, int]]:
        return sorted(
            (stint.end, stint.lost * outcome.job.gpus)
            for outcome in result.outcomes
            for stint in outcome.stints
            if stint.evicted
        )

    start = jobs[0].submit
    for number, (since, _) in enumerate(lost(held)):
        total = 0
        for at, amount in lost(held)[number:]:
            total += amount
            assert total <= share * GPUS * (DAY + at - since) / 2
    for number, (at, _) in enumerate(lost(held), start=1):
        assert sum(amount for _, amount in lost(held)[:number]) <= share * GPUS * (at - start) / 2, "empty at first"
    total = sum(amount for _, amount in lost(free))
    assert total > share * GPUS * (jobs[-1].submit - start), "without a budget it is much more"
    assert all(outcome.finish is not None for outcome in held.outcomes)
    assert held.head_delay.get("backfill", 0) == 0
    assert held.head_delay["loss_budget"] > 0
