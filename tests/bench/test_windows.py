"""How the benchmark of time sizes its clusters, and what it compares."""

from __future__ import annotations

import argparse
from pathlib import Path

import pytest
from bench.windows import Window, cells, gpus_for, options_of, ratios
from tests.replay.jobs import made, trace_jobs

from bench import windows
from gangline import traces


def test_a_cluster_is_sized_for_what_runs_in_the_second_half() -> None:
    # until 7200: 16 GPUs from 3600 on, and 8 more for half of that time
    jobs = made((0, 99_999, 16), (5400, 1800, 8), (0, 60, 40))
    assert gpus_for(jobs, 7200.0, 1.0) == 40, "the largest job fits"
    assert gpus_for(jobs, 7200.0, 0.4) == 56, "20 GPUs are busy: 50, in whole nodes"


def test_ratios_are_to_the_better_one_of_the_others() -> None:
    def waits(mean: float, p99: float, most: float) -> dict[str, object]:
        return {"wait": {"mean": mean, "p99": p99, "max": most}}

    found = ratios(waits(10, 300, 400), [waits(20, 100, 0), waits(5, 200, 0)])
    assert found == {"mean": 2.0, "p99": 3.0, "max": None}


def test_every_cell_is_measured(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(windows, "WINDOWS", {"made": Window("made.csv", "0")})
    traces.write(tmp_path / "made.csv", trace_jobs(150, days=1.0))
    arguments = ["--traces", str(tmp_path), "--windows", "made", "--days", "1", "--loads", "0.9,1.2"]
    options: argparse.Namespace = options_of([*arguments, "--checkpoints", "30m,none", "--predictors", "random,true"])
    found = list(cells(traces.load(tmp_path / "made.csv"), "made", options))
    assert len({(cell["load"], cell["predictor"], cell["checkpoint_seconds"]) for cell in found}) == len(found) == 8
    assert found[0]["gpus"] > found[-1]["gpus"]
    for cell in found:
        best = min(each["wait"]["mean"] for each in cell["plain"].values())
        assert cell["ratios"]["mean"] == pytest.approx(cell["wait"]["mean"] / best)
