"""EASY and EASY-SJBF on a Standard Workload Format log: a flat pool of ten processors, starts worked out by hand."""

from __future__ import annotations

from pathlib import Path

import pytest

from gangline import traces
from gangline.engine.model import Millis
from gangline.replay import metrics
from gangline.replay.foresight import RequestedTimes, Truth
from gangline.replay.policies import POLICIES
from gangline.replay.replayed import ReplayedCluster, ReplayResult, replayed
from gangline.replay.simulator import Simulator

#: submit, run time, processors, requested time
JOBS = (
    (0, 100, 6, 100),  # 1 starts at once
    (1, 50, 8, 50),  # 2 needs what 1 holds: reserved for 100, when 2 processors will be left over
    (2, 20, 4, 200),  # 3 ends soon, but says that it would be in the way
    (3, 90, 4, 90),  # 4 would be gone by 93
    (3, 40, 4, 60),  # 5 likewise by 63, and is the shorter of the two
    (4, 10, 2, 500),  # 6 says that it lasts for long, but fits beside the reserved one
)
ZERO = 1_000_000_000


@pytest.fixture
def log(tmp_path: Path) -> Path:
    lines = [f"; UnixStartTime: {ZERO}", "; MaxProcs: 10"]
    for number, (submit, ran, processors, request) in enumerate(JOBS, start=1):
        lines.append(f"{number} {submit} -1 {ran} {processors} -1 -1 {processors} {request} -1 1 7 1 1 1 -1 -1 -1")
    path = tmp_path / "small.swf"
    path.write_text("\n".join(lines) + "\n")
    return path


def replay(log: Path, policy: str) -> ReplayResult:
    jobs = replayed(traces.load(log).jobs)
    believed = Truth() if POLICIES[policy].predictor == "true" else RequestedTimes(default=1000)
    return Simulator(jobs, ReplayedCluster(10, per_node=0), POLICIES[policy].queue, believed).run()


def starts(result: ReplayResult) -> dict[str, Millis]:
    return {o.job.id: (o.start or 0) // 1000 - ZERO for o in result.outcomes}


@pytest.mark.parametrize(
    ("policy", "expected"),
    [
        # 4 goes first; 5 would end at 93 + 60; at 93 its processors are free: 6 takes two of them
        ("easy", {"1": 0, "2": 100, "3": 150, "4": 3, "5": 150, "6": 93}),
        # 5 goes before 4, which would then end at 43 + 90, after 100; 6 starts at 43
        ("easy-sjbf", {"1": 0, "2": 100, "3": 150, "4": 150, "5": 3, "6": 43}),
        # 3 is known to be short and goes at 2; at 22 it is the turn of 5 alone; at 62 of 6
        ("easy-true", {"1": 0, "2": 100, "3": 2, "4": 150, "5": 22, "6": 62}),
        ("besteffort", {"1": 0, "2": 140, "3": 2, "4": 22, "5": 100, "6": 100}),
    ],
)
def test_starts(log: Path, policy: str, expected: dict[str, int]) -> None:
    assert starts(replay(log, policy)) == expected


def test_bounded_slowdown_counts_short_runs_as_ten_seconds(log: Path) -> None:
    result = replay(log, "easy")
    completion = [100, 149, 168, 90, 187, 99]
    runtime = [100, 50, 20, 90, 40, 10]
    expected = sum(max(1, c / max(r, 10)) for c, r in zip(completion, runtime, strict=True)) / 6
    assert metrics.of(result)["bounded_slowdown"] == pytest.approx(expected)
