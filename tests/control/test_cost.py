"""What a Job costs the operator must not grow unnoticed. Counted are calls and writes, never seconds."""

from __future__ import annotations

import pytest
from scripts import cost

#: a count may differ by so much: a tick more or less of the event loop, and small changes that nobody needs to speak of
TOLERANCE = 0.03


async def test_a_job_costs_what_is_recorded() -> None:
    """`python -m scripts.cost --record` keeps new counts. Say in the commit and in CHANGELOG.md what a higher one is good for."""
    recorded = cost.recorded()
    if recorded is None:
        pytest.skip(f"no counts are recorded for Python {cost.PYTHON}")
    found = await cost.counted()
    for what in ("callsOfAJob", "callsOfARound"):
        grown = found[what] / recorded[what] - 1
        assert grown <= TOLERANCE, f"{what}: {grown:+.1%}, {found[what]:,} against {recorded[what]:,}"
        assert grown >= -TOLERANCE, f"{what}: {grown:+.1%}. Keep the gain: python -m scripts.cost --record"
    # statuses of queues are written at most so often a second: on a slow machine more of them for each Job
    of_jobs = [{k: n for k, n in each["writesOfAJob"].items() if "queues" not in k} for each in (found, recorded)]
    assert of_jobs[0] == of_jobs[1]
