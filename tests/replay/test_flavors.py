"""Replays of a trace with several flavors: how fast jobs are on which, and what the choice by completion is worth."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result
from tests.bench.interference import SIMULATION
from tests.replay.jobs import made

from gangline import traces
from gangline.console.cli import main
from gangline.engine.model import EarliestCompletion, Gone, Node
from gangline.replay.foresight import Truth
from gangline.replay.policies import Policy
from gangline.replay.replayed import ReplayedCluster, ReplayedJob, ReplayResult
from gangline.replay.simulator import SavingRules, Simulator
from gangline.replay.trace_facts import node_name
from gangline.replay.world import ReplayEvent
from gangline.traces import TraceJob

TWO = {"slow": 8, "fast": 8}
FAST = {"slow": 0.5, "fast": 2.0}
EARLIEST = Policy("earliest", "", flavors=EarliestCompletion())


def play(jobs: list[ReplayedJob], policy: Policy, per_node: int = 8) -> ReplayResult:
    return Simulator(jobs, ReplayedCluster.of_flavors(TWO, per_node), policy.queue, Truth()).run()


def fast(*rows: tuple[float, float, int]) -> list[ReplayedJob]:
    return [replace(job, speeds=FAST) for job in made(*rows)]


@pytest.mark.parametrize("per_node", [8, 0])
def test_a_job_takes_as_long_as_its_flavor_lets_it(per_node: int) -> None:
    first, second = play(fast((0, 100, 8), (0, 100, 8)), Policy("order", ""), per_node=per_node).outcomes
    assert (first.finish, second.finish) == (200_000, 50_000)
    assert (first.length, second.length, first.wait, second.wait) == (200_000, 50_000, 0, 0)


def test_a_job_waits_for_the_flavor_on_which_it_ends_first() -> None:
    jobs = fast((0, 400, 8), (1, 400, 8), (1, 10, 1))
    chosen, in_order = play(jobs, EARLIEST), play(jobs, Policy("order", ""))
    assert [each.finish for each in chosen.outcomes] == [200_000, 400_000, 21_000], (
        "800 s on the slow one, or 200 + 200"
    )
    assert [each.finish for each in in_order.outcomes] == [800_000, 201_000, 206_000]
    assert [stint.flavors for each in chosen.outcomes for stint in each.stints] == [("fast",), ("fast",), ("slow",)]
    assert chosen.outcomes[1].wait == 199_000


def test_jobs_without_speeds_take_as_long_on_all_flavors() -> None:
    outcomes = play(made((0, 100, 8), (0, 100, 8)), EARLIEST).outcomes
    assert [each.finish for each in outcomes] == [100_000, 100_000]


def test_a_job_that_no_flavor_has_room_for_is_impossible() -> None:
    (outcome,) = play(made((0, 100, 9)), EARLIEST).outcomes
    assert outcome.impossible == "asks for 9 of 8 GPUs"


def test_work_that_was_saved_on_one_flavor_is_not_repeated_on_another() -> None:
    """A node is lost: the job has saved 60 of its 100 seconds of work in 35 seconds, and does the others at half speed."""
    events = [ReplayEvent(35_000, (Gone(Node, node_name(1)),), lost=frozenset((1,)))]
    cluster = ReplayedCluster.of_flavors(TWO, 8)
    (job,) = fast((0, 100, 8))
    simulator = Simulator([job], cluster, EARLIEST.queue, Truth(), rules=SavingRules(30_000, restart=5_000))
    simulator._happenings = events
    (outcome,) = simulator.run().outcomes
    first, second = outcome.stints
    assert (first.flavors, second.flavors) == (("fast",), ("slow",))
    assert first.lost == 5_000 + 5_000, "ten seconds of work, at speed 2, and the restart"
    assert (second.start, outcome.finish) == (35_000, 35_000 + 5_000 + 2 * 40_000)


# --- the command ----------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def trace(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two jobs for whole flavors, of which the second one is slow on K80s, and one of which nothing is said."""
    path = tmp_path_factory.mktemp("trace") / "made.csv"
    jobs = [
        TraceJob(id="a", submit=0, duration=1000, gpus=8, flavor_speeds="v100=2,k80=0.5"),
        TraceJob(id="b", submit=1, duration=1000, gpus=8, flavor_speeds="v100=4,k80=0.25"),
        TraceJob(id="c", submit=2, duration=1000, gpus=1),
    ]
    traces.write(path, jobs)
    return path


def command(trace: Path, out: Path, *options: str) -> Result:
    policy = out / "policy.yaml"
    policy.write_text(
        json.dumps(
            {
                "apiVersion": "gangline.io/v1alpha1",
                "kind": "QueuePolicy",
                "metadata": {"name": "earliest"},
                "spec": {"clusterQueues": {"names": ["q"]}, "flavors": {"choose": "EarliestCompletion"}},
            }
        )
    )
    fixed = ("--policy", "besteffort", "--policy-file", str(policy), "--workers", "1", "--out", str(out))
    return CliRunner().invoke(main, ["admin", "replay", str(trace), *fixed, *options])


def figures(out: Path) -> dict[str, Any]:
    return json.loads((out / "replay.json").read_text())


def test_the_trace_says_how_fast_a_job_is(trace: Path, tmp_path: Path) -> None:
    flavors = ("--flavor", "k80=8", "--flavor", "v100=8", "--predictor", "true")
    result = command(trace, tmp_path, *flavors)
    assert result.exit_code == 0, result.output
    document = figures(tmp_path)
    assert "jobs that are as fast on all flavors: 1" in document["notes"]
    assert not any("not played" in note for note in document["notes"])
    found = {name: round(each["makespan"]) for name, each in document["policies"].items()}
    # in order a has the K80s for 2,000 s; else it has the V100s for 500 s, and b for the 250 s after that
    assert found == {"besteffort": 2000, "earliest": 1002}


def test_measured_rates_are_drawn_for_jobs_of_which_the_trace_says_nothing(trace: Path, tmp_path: Path) -> None:
    measured = ("--flavor-speeds", str(SIMULATION), "--predictor", "true")
    result = command(trace, tmp_path, "--flavor", "k80=8", "--flavor", "v100=8", *measured)
    assert result.exit_code == 0, result.output
    document = figures(tmp_path)
    assert not any("as fast on all" in note for note in document["notes"])
    lengths = {name: each["jct"]["mean"] for name, each in document["policies"].items()}
    assert lengths["earliest"] < 0.9 * lengths["besteffort"], "all that was measured is faster on V100s"
    again = command(trace, tmp_path, "--flavor", "v100=8", "--flavor", "k80=8", *measured)
    assert again.exit_code == 0 and figures(tmp_path)["policies"]["earliest"]["jct"]["mean"] == lengths["earliest"]


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (("--flavor", "a=8", "--gpus", "8"), "--gpus says nothing with --flavor"),
        (("--flavor", "a=8"), "would learn from runtimes (model)"),
        (("--flavor", "a=9", "--predictor", "true"), "multiple of --gpus-per-node"),
        (("--flavor", "A=8"), "needs NAME=GPUS"),
        (("--flavor", "a=x"), "needs NAME=GPUS"),
        (("--flavor", "a=8", "--flavor", "a=8"), "each name once"),
        (tuple(part for n in range(17) for part in ("--flavor", f"f{n}=8")), "at most 16"),
        (("--flavor", "a=8", "--predictor", "true", "--tenants"), "not played with --tenants"),
        (("--gpus", "8", "--flavor-speeds", str(SIMULATION)), "says nothing without --flavor"),
        (
            ("--flavor", "a=8", "--predictor", "true", "--flavor-speeds", str(SIMULATION)),
            "no class was measured on all of a",
        ),
        (("--flavor", "a=8", "--predictor", "true", "--flavor-speeds", __file__), "--flavor-speeds"),
    ],
)
def test_what_cannot_be_played_is_named(trace: Path, tmp_path: Path, options: tuple[str, ...], words: str) -> None:
    result = command(trace, tmp_path, *options)
    assert result.exit_code != 0 and words in " ".join(result.output.split())


def test_speeds_of_a_trace_that_cannot_be_read_are_named(tmp_path: Path) -> None:
    path = tmp_path / "bad.csv"
    traces.write(path, [TraceJob(id="a", submit=0, duration=1, gpus=1, flavor_speeds="v100=fast")])
    result = command(path, tmp_path, "--flavor", "v100=8", "--predictor", "true")
    assert result.exit_code != 0 and "job 'a': flavor_speeds" in " ".join(result.output.split())
