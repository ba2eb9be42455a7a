"""The exported schedule: a second count from it alone comes to what the replay says."""

from __future__ import annotations

import csv
import json
import random
import sys
from dataclasses import replace
from functools import cache
from pathlib import Path

import pytest
from click.testing import CliRunner
from tests.replay.jobs import made, trace_jobs
from tests.replay.recount import Schedule

from gangline import traces
from gangline.console.cli import main
from gangline.replay import metrics, policies, side_by_side
from gangline.replay.foresight import Guess, RequestedTimes, Truth
from gangline.replay.replayed import ReplayedCluster, ReplayedJob, ReplayResult, replayed
from gangline.replay.simulator import SavingRules, Simulator

NODES = 4


def busy(seed: int) -> list[ReplayedJob]:
    """Jobs of known limits, wrong ones too, on a crowded cluster."""
    rng = random.Random(seed)
    rows = []
    for number in range(160):
        duration = rng.choice((60, 300, 1800, 7200))
        rows.append((number * 60, duration, rng.choice((1, 2, 4, 8, 16, 20)), duration * rng.choice((0.2, 1, 3))))
    return made(*rows)


def played(jobs: list[ReplayedJob], name: str, checkpoint: int | None = 60_000) -> ReplayResult:
    chance = Guess(1, [job.duration / 1000 for job in jobs])
    sources = {"gangline": chance, "gangline-any": chance, "easy-true": Truth()}
    believed = sources.get(name, RequestedTimes(3_600_000))
    policy = policies.POLICIES[name]
    queue = policy.queue
    if name == "gangline":
        queue = replace(queue, backfill=replace(policies.BACKFILL, loss_budget=0.05))
    return Simulator(
        jobs, ReplayedCluster(8 * NODES), queue, believed, rules=SavingRules(checkpoint, restart=10_000)
    ).run()


def exported(result: ReplayResult, folder: Path, name: str) -> Schedule:
    side_by_side.write(result, folder, name)
    return Schedule(folder, name, NODES, 8)


@pytest.mark.parametrize("name", ["besteffort", "easy", "easy-sjbf-true", "gangline", "gangline-any", "gangline-stay"])
def test_a_second_count_agrees(tmp_path: Path, name: str) -> None:
    result = played(busy(1), name)
    measures, found = metrics.of(result), exported(result, tmp_path, name)
    assert found.over_committed() == []
    assert len(found.waits()) == measures["finished"] == len(result.outcomes)
    assert sum(found.waits()) / len(found.waits()) == pytest.approx(measures["wait"]["mean"])
    lost = sum(run.lost * run.gpus for run in found.runs) / 3600
    assert lost == pytest.approx(measures["gpu_hours_lost"])
    causes = ("backfill", "loss_budget", "early_end")
    delay = sum(measures[f"head_delay_{cause}_seconds"] for cause in causes)
    if policies.POLICIES[name].ordering is None:
        assert found.head_delay(by_age=True) == pytest.approx(delay, abs=1e-6)
    else:
        assert delay <= found.head_delay(by_age=False) + 1e-6
    assert sum(run.reason != "" for run in found.runs) == measures["evictions"]
    if name == "besteffort":
        assert found.idle_work() == [] and not found.heads
    else:
        assert found.heads
        assert found.idle_work(), "work is held back for reserved heads"
    if name == "gangline-any":
        assert measures["evictions"] > 0


def test_a_second_count_finds_what_is_wrong(tmp_path: Path) -> None:
    """The check itself: a run moved to a busy node, and one that starts an hour late, are noticed."""
    result = played(busy(1), "besteffort")
    broken = exported(result, tmp_path, "besteffort")
    first = min(broken.runs, key=lambda run: run.start)
    others = [run for run in broken.runs if run.start < first.end and run is not first]
    broken.runs[broken.runs.index(first)] = replace(first, nodes={next(iter(others[0].nodes)): 8})
    assert broken.over_committed() != []
    late = exported(result, tmp_path, "besteffort")
    last = max(late.runs, key=lambda run: run.start)
    late.runs[late.runs.index(last)] = replace(last, start=last.start + 3600, end=last.end + 3600)
    late.times = sorted({*late.times, last.start + 3600})
    assert late.idle_work() != []


def test_parquet_has_the_rows_of_the_csv_with_types(tmp_path: Path) -> None:
    result = played(busy(1), "gangline")
    side_by_side.write(result, tmp_path, "plain")
    with (tmp_path / "plain.csv").open() as file:
        rows = list(csv.DictReader(file))
    parquet = pytest.importorskip("pyarrow.parquet", reason="the extra `parquet` is not installed")
    side_by_side.write(result, tmp_path, "plain", "parquet")
    found = parquet.read_table(tmp_path / "plain.parquet").to_pylist()
    assert len(found) == len(rows) and list(found[0]) == list(side_by_side.RUNS)
    for parquet_row, row in zip(found, rows, strict=True):
        assert [parquet_row["id"], parquet_row["outcome"]] == [row["id"], row["outcome"]]
        assert parquet_row["start"] == (float(row["start"]) if row["start"] else None)
        assert " ".join(f"{each['node']}:{each['gpus']}" for each in parquet_row["nodes"] or ()) == row["nodes"]
    assert len(parquet.read_table(tmp_path / "plain-heads.parquet")) == len(result.headships) > 0


def test_columns_are_typed() -> None:
    result = played(made((0, 60, 8), (10, 30, 999)), "besteffort")
    first, large = (row for row in side_by_side._runs(result))  # pyright: ignore[reportPrivateUsage]
    found = side_by_side.typed(side_by_side.RUNS, [first, large])
    assert found["start"] == [0.0, None] and found["end"] == [60.0, None] and found["promised"] == [None, None]
    assert found["outcome"] == ["finished", "impossible"] and found["backfilled"] == [False, None]
    assert found["nodes"][1] is None and sum(each["gpus"] for each in found["nodes"][0]) == 8


def test_without_pyarrow_parquet_is_refused_before_anything_is_played(
    trace: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    code, said = replay(trace, tmp_path / "out", "--policy", "besteffort", "--schedule-format", "parquet")
    assert code == 1 and "pip install 'gangline[parquet]'" in said
    assert not (tmp_path / "out").exists()


def guessing(jobs: list[ReplayedJob], name: str) -> ReplayResult:
    """A replay of jobs that are guessed as those of `busy(3)` ran."""
    past = [job.duration / 1000 for job in busy(3)]
    believed = RequestedTimes(3_600_000) if name == "easy" else Guess(1, past)
    return Simulator(
        jobs, ReplayedCluster(8 * NODES), policies.POLICIES[name].queue, believed, rules=SavingRules(60_000)
    ).run()


@cache
def whole_of(name: str) -> ReplayResult:
    return guessing(busy(3), name)


@pytest.mark.parametrize("name", ["gangline", "gangline-any", "easy"])
@pytest.mark.parametrize("share", [0.25, 0.5, 0.75])
def test_nothing_is_decided_by_what_has_not_happened_yet(tmp_path: Path, name: str, share: float) -> None:
    """The durations of all jobs that have not ended by a date are tripled: the schedule before it stays as it was."""
    jobs, whole = busy(3), whole_of(name)
    ends = sorted(outcome.finish for outcome in whole.outcomes if outcome.finish is not None)
    at = ends[round(share * len(ends))]
    other = [
        replace(job, duration=job.duration * 3) if outcome.finish is None or outcome.finish >= at else job
        for job, outcome in zip(jobs, whole.outcomes, strict=True)
    ]
    views: list[object] = []
    for number, result in enumerate((whole, guessing(other, name))):
        found = exported(result, tmp_path / str(number), name)
        runs = [
            (run.job, run.start, run.end if run.end < at / 1000 else None, run.backfilled, sorted(run.nodes.items()))
            for run in found.runs
            if run.start < at / 1000
        ]
        views.append((sorted(runs, key=str), [(h.job, h.since) for h in found.heads if h.until < at / 1000]))
    assert views[0] == views[1]


# --- checkpoints of each job --------------------------------------------------------------------------------------------


def test_saving_takes_time_and_a_stop_loses_what_was_not_saved() -> None:
    rules = SavingRules(600_000, restart=0, save=30_000)
    (job,) = made((0, 1800, 8))
    assert rules.applied(job).duration == 1_860_000, "two saves; there is nothing to save at the end"
    assert rules.applied(replace(job, saves=None)).duration == 1_800_000
    own = rules.applied(replace(job, saves=900_000, save=60_000))
    assert (own.duration, own.saves, own.saving) == (1_860_000, 960_000, 60_000)
    assert rules.applied(replace(job, saves=1)).saves == 31_000, "at most once a second"


def test_the_trace_says_how_each_job_saves(tmp_path: Path) -> None:
    path = tmp_path / "trace.csv"
    rows = [
        "id,submit,duration,gpus,checkpoint,save",
        "a,0,3600,8,600,6",
        "b,0,3600,8,0,",
        "c,0,3600,8,,",
        "d,0,1,8,1e300,1e300",
    ]
    path.write_text("\n".join(rows) + "\n")
    a, b, c, d = replayed(traces.load(path).jobs)
    rules = SavingRules(1_800_000, save=1_000)
    assert [rules.applied(job).saves for job in (a, b, c)] == [606_000, None, 1_801_000]
    assert [rules.applied(job).saving for job in (a, b, c)] == [30_000, 0, 1_000]
    assert rules.applied(d).saving == 0
    again = tmp_path / "again.csv.gz"
    traces.write(again, traces.load(path).jobs)
    assert traces.load(again).jobs == traces.load(path).jobs


# --- the command --------------------------------------------------------------------------------------------------------

OWN = """
apiVersion: gangline.io/v1alpha1
kind: QueuePolicy
metadata: {name: ours}
spec:
  clusterQueues: {names: [any]}
  order: {key: AgedShortestFirst, ageWeight: "3"}
  backfill: {depth: 1, revoke: Overdue, lossBudget: "0.01"}
  recovery: {}
---
apiVersion: v1
kind: ConfigMap
metadata: {name: other}
"""


@pytest.fixture(scope="module")
def trace(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("trace") / "made.csv.gz"
    traces.write(path, [*trace_jobs(150, days=1.0), replace(trace_jobs(1)[0], id="huge", gpus=999)])
    return path


def replay(trace: Path, out: Path, *options: str) -> tuple[int, str]:
    fixed = ("--gpus", "32", "--workers", "1", "--predictor", "random", "--out", str(out))
    result = CliRunner().invoke(main, ["admin", "replay", str(trace), *fixed, *options])
    return result.exit_code, result.output


def test_policies_of_a_file_are_played_beside_the_others_and_all_is_exported(trace: Path, tmp_path: Path) -> None:
    file = tmp_path / "ours.yaml"
    file.write_text(OWN)
    options = (
        "--policy",
        "besteffort",
        "--policy-file",
        str(file),
        "--schedule",
        "--jitter",
        "2",
        "--jitter-share",
        "0.02",
    )
    code, text = replay(trace, tmp_path / "out", *options, "--save-cost", "10s")
    assert code == 0, text
    document = json.loads((tmp_path / "out" / "replay.json").read_text())
    assert list(document["policies"]) == ["besteffort", "ours"]
    assert (document["rules"]["jitter"], document["rules"]["save_cost_seconds"]) == (0.02, 10)
    assert document["policies"]["ours"]["impossible"] == 1 and document["policies"]["ours"]["gpu_hours_saving"] > 0
    assert "ours: spec.recovery is not played in a replay" in text
    assert "besteffort: 2 shaken runs: wait " in text and " ± " in text
    assert "0+1" in text, "nothing unfinished, one impossible"
    found = Schedule(tmp_path / "out" / "schedule", "ours", NODES, 8)
    assert found.over_committed() == []
    assert [row["id"] for row in found.rows if row["outcome"] == "impossible"] == ["huge"]
    assert "0+1" not in (tmp_path / "out" / "report.html").read_text()
    assert ">impossible<" in (tmp_path / "out" / "report.html").read_text()


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("a: [", "is not YAML"),
        ("a: &a [1]\nb: *a", "aliases are not supported"),
        ("kind: Pod", "has no QueuePolicy"),
        (OWN.replace("name: ours", "name: easy"), "the name easy is taken"),
        (OWN.replace("name: ours", "name: ../../ours"), "is no name"),
        (OWN.replace("depth: 1", "depth: many"), "QueuePolicy ours: spec.backfill.depth"),
        (OWN.replace("revoke: Overdue", "revok: Overdue"), "spec.backfill.revok: there is no such field"),
        ("kind: QueuePolicy\nmetadata: {name: x}\nspec: 3", "spec must be an object"),
        (OWN + "---" + OWN, "the name ours is taken"),
        ("x" * 200_001, "is longer than"),
    ],
)
def test_what_is_wrong_with_a_file_is_named(trace: Path, tmp_path: Path, text: str, words: str) -> None:
    file = tmp_path / "ours.yaml"
    file.write_text(text)
    code, said = replay(trace, tmp_path / "out", "--policy", "besteffort", "--policy-file", str(file))
    assert code == 1 and words in said, said
    assert "Traceback" not in said
