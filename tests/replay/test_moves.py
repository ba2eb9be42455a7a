"""Room made by moving in replays: who waits only by fragmentation starts at once, and what the moves cost is bounded."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result
from hypothesis import given
from hypothesis import strategies as st
from tests.examples import examples
from tests.replay.jobs import made, trace_jobs

from gangline import traces
from gangline.console.cli import main
from gangline.engine import MOVED
from gangline.engine.model import Moves
from gangline.replay import metrics, policies
from gangline.replay.foresight import Blind, Truth
from gangline.replay.policies import POLICIES, Policy
from gangline.replay.replayed import ReplayedCluster, ReplayedJob, ReplayResult, Stint, replayed
from gangline.replay.simulator import SavingRules, Simulator

MINUTE, HOUR = 60_000, 3_600_000
DAY = 24 * HOUR
#: jobs save their work every half an hour, and a restart takes a minute
RULES = SavingRules(HOUR // 2, restart=MINUTE)
MOVES = Moves(lost_gpu_hours_per_day=10.0, after_seconds=0.0)


def simulator(jobs: list[ReplayedJob], moves: Moves | None, gpus: int = 16, policy: str = "besteffort") -> Simulator:
    queue = replace(POLICIES[policy], moves=moves).queue
    believed = Blind() if policy == "besteffort" else Truth()
    return Simulator(jobs, ReplayedCluster(gpus), queue, believed, rules=RULES)


def scattered(arrives: int) -> list[ReplayedJob]:
    """From minute 10 on each of two nodes has half of its GPUs free; then a job comes that asks for eight on one node."""
    halves = [(0, 36_000, 4), (0, 600, 4)] * 2
    return made(*halves, (60 * arrives, 3600, 8))


def moved(result: ReplayResult) -> list[tuple[ReplayedJob, Stint]]:
    """The runs that were moved, in the order of time."""
    found = [(each.job, stint) for each in result.outcomes for stint in each.stints if stint.evicted == MOVED]
    return sorted(found, key=lambda pair: (pair[1].end, pair[0].number))


# --- by hand ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("arrives", "starts"),
    [
        (31, 31),  # all others have saved their work a minute ago
        (25, 30),  # they would lose more than the ten minutes that the policy allows
        (8, 10),  # they have just begun, and room opens later
    ],
)
def test_who_waits_only_by_fragmentation_starts_once_another_has_moved(arrives: int, starts: int) -> None:
    late = simulator(scattered(arrives), None).run()
    assert late.outcomes[4].start == 10 * HOUR and not moved(late)
    assert "moves" not in metrics.of(late)
    played = simulator(scattered(arrives), MOVES)
    result = played.run()
    assert result.outcomes[4].start == starts * MINUTE
    ((job, stint),) = moved(result)
    unsaved = starts * MINUTE % (HOUR // 2)
    assert (stint.end, stint.lost, stint.moved_for) == (starts * MINUTE, unsaved + MINUTE, 4)
    assert result.outcomes[job.number].stints[1].start == stint.end, "its other room is free at once"
    assert result.outcomes[job.number].finish == 10 * HOUR + stint.lost, "it does again what it lost, and restarts"
    assert metrics.of(result)["moves"] == {
        "moved": 1,
        "jobs": 1,
        "started": 1,
        "gpu_hours_lost": pytest.approx(4 * stint.lost / HOUR),
    }
    log = played.engine._store.preemptions  # pyright: ignore[reportPrivateUsage]
    assert log.lost_by_moves("replay", stint.end) == 4 * stint.lost


def test_a_budget_that_is_spent_lets_the_next_one_wait() -> None:
    """Two pairs of nodes: the budget covers one move, of four GPUs that lose two minutes each."""
    halves = [(0, 36_000, 4), (0, 600, 4)] * 4
    jobs = made(*halves, (60 * 31, 3600, 8), (60 * 31, 3600, 8))
    for hours, starts in ((8 / 60, [31 * MINUTE, 91 * MINUTE]), (16 / 60, [31 * MINUTE] * 2)):
        result = simulator(jobs, replace(MOVES, lost_gpu_hours_per_day=hours), gpus=32).run()
        assert [each.start for each in result.outcomes[8:]] == starts, hours


def test_a_flat_pool_has_no_nodes_between_which_jobs_could_move() -> None:
    queue = replace(POLICIES["besteffort"], moves=MOVES).queue
    result = Simulator(scattered(31), ReplayedCluster(16, 0), queue, Blind(), rules=RULES).run()
    assert not moved(result)


# --- laws -------------------------------------------------------------------------------------------------------------

budgets = st.builds(
    Moves,
    lost_gpu_hours_per_day=st.sampled_from([0.0, 0.5, 2.0, 50.0]),
    longest_loss_seconds=st.sampled_from([60.0, 600.0, 1800.0]),
    settle_seconds=st.sampled_from([0.0, 3600.0]),
    most=st.integers(1, 8),
    after_seconds=st.sampled_from([0.0, 60.0]),
)


@examples(8)
@given(budgets, st.integers(1, 1000), st.sampled_from(["besteffort", "easy-true", "gangline-true"]))
def test_moves_are_within_their_bounds_and_whoever_moves_goes_on(moves: Moves, seed: int, policy: str) -> None:
    jobs = replayed(replace(job, duration=min(job.duration, 20_000.0)) for job in trace_jobs(80, seed, days=1.0))
    result = simulator(jobs, moves, gpus=48, policy=policy).run()
    found = moved(result)
    for number, (job, stint) in enumerate(found):
        assert 0 <= stint.lost - RULES.restart <= moves.longest_loss
        lately = [(other, each) for other, each in found[: number + 1] if each.end > stint.end - DAY]
        assert sum(other.gpus * each.lost for other, each in lately) <= moves.lost_gpu_hours_per_day * HOUR
        again = [each for other, each in found[:number] if other.number == job.number]
        assert all(stint.end >= each.end + moves.settle for each in again)
        assert stint.moved_for is not None and stint.moved_for != job.number
        after = next(each for each in result.outcomes[job.number].stints if each.start >= stint.end)
        assert after.start == stint.end and after.places != stint.places
        assert any(each.start == stint.end for each in result.outcomes[stint.moved_for].stints), "it starts at once"
    for number in {stint.moved_for for _, stint in found}:
        assert sum(stint.moved_for == number for _, stint in found) <= moves.most
    assert all(outcome.finish is not None for outcome in result.outcomes if not outcome.impossible)


def test_a_policy_that_does_not_move_plays_as_one_without_the_part() -> None:
    jobs = replayed(trace_jobs(120, 3))
    plain = simulator(jobs, None, gpus=32).run()
    queue = replace(POLICIES["besteffort"], moves=MOVES, unmoved=True).queue
    still = Simulator(jobs, ReplayedCluster(32), queue, Blind(), rules=RULES).run()
    assert (plain.outcomes, plain.samples, plain.decisions) == (still.outcomes, still.samples, still.decisions)


# --- the command ------------------------------------------------------------------------------------------------------

OURS = """
apiVersion: gangline.io/v1alpha1
kind: QueuePolicy
metadata: {name: NAME}
spec:
  clusterQueues: {names: [replay]}
  moves: {lostGpuHoursPerDay: "50", longestLoss: 30m, after: 0s}
"""


def replay(folder: Path, *options: str, names: tuple[str, ...] = ("ours",)) -> Result:
    trace, file = folder / "made.csv", folder / "policies.yaml"
    traces.write(trace, trace_jobs(150))
    file.write_text("---".join(OURS.replace("NAME", name) for name in names))
    fixed = ("--gpus", "32", "--predictor", "true", "--workers", "1", "--policy", "besteffort", "--out", str(folder))
    return CliRunner().invoke(main, ["admin", "replay", str(trace), *fixed, "--policy-file", str(file), *options])


def test_a_queue_policy_with_moves_is_played_beside_the_same_without(tmp_path: Path) -> None:
    result = replay(tmp_path, "-o", "json")
    assert result.exit_code == 0, result.output
    told: dict[str, Any] = json.loads(result.stdout)
    assert list(told["policies"]) == ["besteffort", "ours", "ours-without-moves"]
    assert not told["notes"] or "spec.moves" not in " ".join(told["notes"])
    figures = told["policies"]["ours"]["moves"]
    assert figures["moved"] >= figures["jobs"] >= 1 and figures["started"] >= 1
    assert 0 < figures["gpu_hours_lost"] == pytest.approx(told["policies"]["ours"]["gpu_hours_lost"])
    assert told["policies"]["ours-without-moves"]["wait"] == told["policies"]["besteffort"]["wait"]
    assert [each["against"] for each in told["conclusion"]] == ["ours-without-moves", "besteffort"]
    assert [each["who"] for each in told["conclusion"][0]["by_size"]] == ["1 GPU", "2 to 8", "more than 8"]
    page = (tmp_path / "report.html").read_text()
    assert f"ours moved {figures['jobs']} jobs {figures['moved']} times, so that {figures['started']} others" in page
    assert "ours against ours-without-moves, mean waits by size: 1 GPU" in page


def test_moves_that_say_nothing_in_a_flat_pool_are_named(tmp_path: Path) -> None:
    result = replay(tmp_path, "--gpus-per-node", "0")
    assert result.exit_code == 0, result.output
    assert "ours: spec.moves is not played in a flat pool" in result.stdout
    assert "without-moves" not in result.stdout


def test_a_name_that_two_policies_would_have_is_refused(tmp_path: Path) -> None:
    result = replay(tmp_path, names=("ours", "ours-without-moves"))
    assert result.exit_code == 1 and "two policies are played as ours-without-moves" in result.output


def test_beside_whom_the_same_without_moves_is_played() -> None:
    ours, own = Policy("ours", "", moves=MOVES), Policy("own", "")
    assert [each.name for each in policies.with_unmoved([ours, own])] == ["ours", "ours-without-moves", "own"]
    windows = policies.with_unmoved(policies.with_comparisons([own]), ["own"])
    assert [each.name for each in windows] == ["own", "own-without-moves", "own-without", "own-drain"]
    assert ours.queue.moves == MOVES and policies.with_unmoved([ours])[1].queue.moves is None
