"""How the benchmark of time sizes its clusters, and what it compares."""

from __future__ import annotations

import argparse
from pathlib import Path

import pytest
from bench.windows import Window, averaged, cells, gpus_for, options_of, ratios
from tests.replay.jobs import made, trace_jobs

from bench import windows
from gangline import traces


def test_a_cluster_is_sized_for_what_runs_in_the_second_half() -> None:
    # until 7200: 16 GPUs from 3600 on, and 8 more for half of that time
    jobs = made((0, 99_999, 16), (5400, 1800, 8), (0, 60, 40))
    assert gpus_for(jobs, 7200.0, 1.0) == 40, "the largest job fits"
    assert gpus_for(jobs, 7200.0, 0.4) == 56, "20 GPUs are busy: 50, in whole nodes"


def _waits(mean: float, p99: float, most: float) -> dict[str, object]:
    return {"wait": {"mean": mean, "p99": p99, "max": most}}


def test_ratios_are_to_the_better_one_of_the_others() -> None:
    found = ratios([_waits(10, 300, 400)], {"besteffort": [_waits(20, 100, 0)], "easy": [_waits(5, 200, 0)]})
    assert found == {"mean": (2.0, None), "p99": (3.0, None), "max": None}


def test_the_error_of_a_ratio_is_what_differs_between_copies() -> None:
    plain = {"easy": [_waits(10, 10, 10), _waits(30, 30, 30)], "besteffort": [_waits(99, 99, 99)] * 2}
    found = ratios([_waits(20, 10, 0), _waits(60, 70, 0)], plain)
    assert found["mean"] == (2.0, 0.0), "each copy is twice as bad: no chance in that"
    assert found["p99"] == (2.0, 0.5), "10 below and 10 above twice the other's"


def test_averages_leave_out_what_a_copy_lacks() -> None:
    found = averaged([{"a": 1, "b": {"c": 2.0}, "d": None}, {"a": 3, "b": {"c": 4.0}, "d": 5.0}])
    assert found == {"a": 2, "b": {"c": 3.0}, "d": None}


def test_a_cell_is_measured(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(windows, "WINDOWS", {"made": Window("made.csv", "0")})
    traces.write(tmp_path / "made.csv", trace_jobs(60, days=1.0))
    arguments = ["--traces", str(tmp_path), "--windows", "made", "--days", "1", "--loads", "0.9", "--copies", "2"]
    options: argparse.Namespace = options_of([*arguments, "--checkpoints", "30m", "--predictors", "true"])
    [cell] = cells(traces.load(tmp_path / "made.csv"), "made", options)
    best = min(each["wait"]["mean"] for each in cell["plain"].values())
    assert cell["ratios"]["mean"]["value"] == pytest.approx(cell["wait"]["mean"] / best)
    runs = cell["copies"]["besteffort"]
    assert len(runs) == 2
    assert runs[0]["wait"] != runs[1]["wait"], "the second one is shaken"
