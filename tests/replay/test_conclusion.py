"""The conclusion of a replay, and a replay that goes on after it was interrupted."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result
from tests.replay.jobs import trace_jobs

from gangline import traces
from gangline.console.cli import main
from gangline.replay import conclusion, side_by_side
from gangline.replay.replay_plan import ReplayPlan
from gangline.replay.replayed import ReplayedCluster
from gangline.replay.run import Replay, shaken_lines
from gangline.traces.trace import TraceJob


def spread(jobs: int, mean: float) -> dict[str, Any]:
    return {"jobs": jobs, "mean": mean, "p99": 2 * mean}


def measures(mean: float, lost: float = 0.0, tenants: dict[str, float] | None = None, **more: Any) -> dict[str, Any]:
    of_tenants = {name: spread(50, wait) for name, wait in (tenants or {}).items()}
    sizes = {name: spread(50, mean) for name in conclusion.SIZES}
    heads = {"heads": 0, "heads_late_share": None, "heads_mean_lateness": None, "promises": {}}
    return {"wait": spread(150, mean), **sizes, "wait_by_tenant": of_tenants, "gpu_hours_lost": lost, **heads, **more}


def sentences(found: dict[str, dict[str, Any]], shaken: dict[str, list[dict[str, Any]]] | None = None) -> list[str]:
    compared = conclusion.comparisons(found, shaken or {}, ["ours"])
    return conclusion.sentences(compared, found)


def test_hours_of_waiting_are_those_of_all_jobs() -> None:
    found = {"besteffort": measures(7200), "easy": measures(4800), "ours": measures(2400, lost=12.5)}
    first, second, sizes = sentences(found)
    assert first == (
        "ours against besteffort: all jobs together wait 200 hours less (-67%). 12.5 GPU hours more are lost."
    )
    assert "ours against easy: all jobs together wait 100 hours less (-50%)." in second
    assert sizes.startswith("ours against easy, mean waits by size: 1 GPU 4,800 → 2,400 s (-50%), 2 to 8"), "the better"


@pytest.mark.parametrize(
    ("ours", "chance"), [((2400.0, 2500.0, 2300.0), False), ((4000.0, 6000.0, 5000.0), True)], ids=["sure", "chance"]
)
def test_what_may_be_chance_is_called_so(ours: tuple[float, ...], chance: bool) -> None:
    found = {"easy": measures(4800), "ours": measures(ours[0])}
    shaken = {"easy": [measures(4800)] * 2, "ours": [measures(mean) for mean in ours[1:]]}
    said = sentences(found, shaken)[0]
    assert "over shaken copies" in said and ("may be chance" in said) == chance


def test_tenants_that_lose_are_named_the_most_first() -> None:
    before = {"a": 100.0, "b": 100.0, "c": 100.0, "d": 0.0}
    after = {"a": 104.0, "b": 150.0, "c": 400.0, "d": 30.0}
    found = {"easy": measures(4800, tenants=before), "ours": measures(2400, tenants=after)}
    said = sentences(found)[-1]
    assert "3 of 4 tenants wait longer" in said and "most of all c 100 → 400 s (+300%) (50 jobs), b" in said
    assert "d 0 → 30 s" in said, "a share of nothing is none"


def test_promises_and_policies_that_are_only_compared_with() -> None:
    promised = {"made": 30, "coverage": 0.9, "mean_lateness": 12.0, "mean_length": 3600.0, "missed_by": {"forecast": 3}}
    found = {"easy": measures(4800), "ours": measures(2400, heads=40, promises=promised)}
    assert sentences(found)[-1] == (
        "ours held others back for 40 heads and promised 30 of them a start, 3,600 s ahead on average: 90.0% of these were kept "
        "within a minute (missed by forecast 3); on average they were 12 s late."
    )
    nothing = {**promised, "made": 0, "coverage": None}
    found = {"easy": measures(4800), "ours": measures(2400, heads=40, promises=nothing)}
    assert sentences(found)[-1] == "ours held others back for 40 heads and promised 0 of them a start."
    assert sentences({"ours": measures(1)}) == [] and sentences({"easy": measures(1)}) == []


# --- the command ------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def trace(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("trace") / "made.csv"
    traces.write(path, trace_jobs(150))
    return path


def replay(trace: Path, out: Path, *options: str) -> Result:
    fixed = ("--gpus", "32", "--predictor", "true", "--workers", "1", "--policy", "besteffort,gangline")
    return CliRunner().invoke(main, ["admin", "replay", str(trace), *fixed, "--out", str(out), *options])


def test_a_report_ends_with_its_conclusion_and_a_log_has_a_line_for_each_quarter(trace: Path, tmp_path: Path) -> None:
    result = replay(trace, tmp_path)
    assert result.exit_code == 0, result.output
    assert "gangline against besteffort: all jobs together wait" in result.stdout
    assert result.stderr.count("besteffort: ") == 1, "a message tells of 250 jobs, and there are fewer"
    assert "besteffort: 150 of 150 jobs" in result.stderr
    (compared,) = json.loads((tmp_path / "replay.json").read_text())["conclusion"]
    assert (compared["policy"], compared["against"]) == ("gangline", "besteffort")
    assert "<h2>Conclusion</h2>" in (tmp_path / "report.html").read_text()


def test_an_interrupted_replay_goes_on_and_comes_to_the_same(
    trace: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = replay(trace, tmp_path / "whole")
    played: list[str] = []
    play = side_by_side.play

    def interrupted(plan: Any, policy: Any, *arguments: Any) -> Any:
        played.append(policy.name)
        if played == ["besteffort", "gangline"]:
            raise KeyboardInterrupt
        return play(plan, policy, *arguments)

    monkeypatch.setattr(side_by_side, "play", interrupted)
    assert replay(trace, tmp_path / "broken").exit_code != 0
    again = replay(trace, tmp_path / "broken")
    assert again.exit_code == 0, again.output
    assert played == ["besteffort", "gangline", "gangline"]
    assert sorted(each.name for each in (tmp_path / "broken").iterdir()) == ["replay.json", "report.html"]
    found = [json.loads((tmp_path / name / "replay.json").read_text()) for name in ("whole", "broken")]
    for each in found:
        for measured in each["policies"].values():
            del measured["replay_seconds"]
    assert found[0] == found[1]
    assert whole.exit_code == 0


def test_a_run_of_other_parameters_or_a_damaged_file_does_not_count(
    trace: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    played: list[str] = []
    play = side_by_side.play

    def noted(plan: Any, policy: Any, *arguments: Any) -> Any:
        played.append(policy.name)
        if len(played) == 2:
            raise KeyboardInterrupt
        return play(plan, policy, *arguments)

    monkeypatch.setattr(side_by_side, "play", noted)
    replay(trace, tmp_path)
    (kept,) = (tmp_path / "unfinished").iterdir()
    kept.write_text("{")
    assert replay(trace, tmp_path, "--restart", "2m").exit_code == 0
    assert played[2:] == ["besteffort", "gangline"]


def test_jobs_that_run_longer_than_can_be_played_are_named_and_so_is_a_beginning_after_the_end(tmp_path: Path) -> None:
    path = tmp_path / "long.csv"
    traces.write(path, [TraceJob("a", 0.0, 100.0, 1), TraceJob("b", 10.0, 1e300, 1)])
    result = replay(path, tmp_path / "out")
    assert "· jobs that run longer than 30 days are played as if they ended then: 1" in result.stdout
    result = replay(path, tmp_path / "out", "--from", "1000")
    assert "--from 1000 s is after the last job, which was submitted at 10 s" in result.output


def shaken(made: int, coverage: float | None, length: float | None) -> dict[str, Any]:
    """The measures of a shaken run that made so many promises."""
    promises = {"made": made, "coverage": coverage, "mean_length": length, "mean_lateness": None if not made else 20.0}
    waits = {name: {"mean": 60.0, "p99": 600.0, "max": 900.0} for name in ("wait", "wait_gt8")}
    return {**waits, "bounded_slowdown": 2.0, "gpu_hours_lost_share": 0.01, "promises": promises}


def test_promises_of_shaken_runs_are_averaged_over_those_that_promised_anything() -> None:
    plan = ReplayPlan(ReplayedCluster(8), (), 0.0, 1.0)
    runs = {
        "ours": [shaken(4, 1.0, 300.0), shaken(6, 0.5, 500.0), shaken(0, None, None)],
        "plain": [shaken(0, None, None)],
    }
    said = shaken_lines(Replay(plan, "gangline", [], runs, {}, 0.0, []))
    assert said["ours"].endswith(", 3 promised starts, 400 s ahead, of which 75.0% ± 35.4% were kept")
    assert said["plain"].endswith("lost 1.00%"), "nothing is said of promises where none was made"
