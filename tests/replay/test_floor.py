"""The floor in a replay: forecasts that are worse than none are given up."""

from __future__ import annotations

import random
from collections.abc import Iterable, Mapping
from dataclasses import replace
from pathlib import Path

import pytest
from tests.replay.jobs import made, trace_jobs
from tests.replay.recount import Schedule
from tests.replay.test_foresight import corrupted, of_the_past

from gangline.engine.floor import floor as floors
from gangline.engine.floor import world as worlds
from gangline.engine.floor.floor import Floor
from gangline.engine.floor.modes import PLAIN, under
from gangline.engine.floor.waits import LANE
from gangline.engine.model import Millis, RuntimeForecast
from gangline.replay import metrics, policies, side_by_side
from gangline.replay.foresight import Blind, Truth
from gangline.replay.replayed import ReplayedCluster, ReplayedJob, ReplayResult, Stint, replayed
from gangline.replay.simulator import SavingRules, Simulator

HOUR = 3_600_000


class UpsideDown(Blind):
    """Short jobs are forecast to be long, and long ones short."""

    def __init__(self, believed: Mapping[int, Millis] | None = None) -> None:
        """`believed`: durations by the number of a job, instead of the true ones."""
        super().__init__()
        self._believed = believed or {}
        self._news: list[RuntimeForecast] = []

    def submitted(self, job: ReplayedJob, now: Millis) -> None:
        duration = self._believed.get(job.number, job.duration)
        median = max(60_000, HOUR * HOUR // (4 * max(60_000, duration)))
        self._news.append(RuntimeForecast(job.key, ((0.5, median), (0.9, 2 * median))))

    def news(self, now: Millis, wanted: bool) -> Iterable[RuntimeForecast]:
        news, self._news = self._news, []
        return news


def run(jobs: list[ReplayedJob], *, floor: bool, believed: Mapping[int, Millis] | None = None) -> ReplayResult:
    queue = replace(policies.POLICIES["gangline"].queue, floor=floor)
    return Simulator(jobs, ReplayedCluster(112), queue, UpsideDown(believed), rules=SavingRules(None)).run()


@pytest.fixture(scope="module")
def fallen() -> ReplayResult:
    """A schedule in which a queue falls back, since short jobs are forecast to be long."""
    return run(replayed(trace_jobs(350, seed=11, days=1.2)), floor=True)


def mean(result: ReplayResult) -> float:
    waits = [outcome.wait or 0 for outcome in result.outcomes]
    return sum(waits) / len(waits) / 1000


def test_forecasts_that_are_worse_than_none_are_given_up(fallen: ReplayResult) -> None:
    jobs = replayed(trace_jobs(350, seed=11, days=1.2))
    plain = Simulator(
        jobs, ReplayedCluster(112), policies.POLICIES["besteffort"].queue, Blind(), rules=SavingRules(None)
    ).run()
    without, with_floor = run(jobs, floor=False), fallen
    assert plain.modes == without.modes == []
    assert with_floor.modes[0][1] == f"ClusterQueue/{policies.QUEUE}"
    assert metrics.of(with_floor)["modes"][0]["mode"] == with_floor.modes[0][2] != "Policy"
    assert mean(without) > 1.1 * mean(plain)
    assert mean(with_floor) - mean(plain) < 0.5 * (mean(without) - mean(plain))


@pytest.mark.parametrize("foresight", [UpsideDown, Truth])
def test_a_counterfactual_is_what_a_replay_of_its_mode_is(
    monkeypatch: pytest.MonkeyPatch, foresight: type[UpsideDown] | type[Truth]
) -> None:
    """In reality workloads start, stop and start again that have long ended in the worlds; and what was evicted is forecast
    without what it saved.
    """
    monkeypatch.setattr(worlds, "LAG", 10**15)  # no length is drawn
    jobs, queue = replayed(trace_jobs(350, seed=11, days=1.2)), policies.POLICIES["gangline"].queue
    simulator = Simulator(jobs, ReplayedCluster(112), queue, foresight(), rules=SavingRules(60_000, restart=0))
    result, floor = simulator.run(), simulator._floor  # pyright: ignore[reportPrivateUsage]
    assert floor is not None and sum(outcome.evictions for outcome in result.outcomes) > 20
    known = floor._jobs  # pyright: ignore[reportPrivateUsage]
    assert len(known) == len(jobs)
    for mode in PLAIN:
        plain = replace(under(queue, mode), floor=False)
        alone = Simulator(jobs, ReplayedCluster(112), plain, foresight(), rules=SavingRules(60_000, restart=0)).run()
        found = {key: job.waited[LANE[mode]] / 1000 for key, job in known.items()}
        expected = {outcome.job.key: (outcome.wait or 0) / 1000 for outcome in alone.outcomes}
        assert found == pytest.approx(expected, abs=0.5)


def test_a_second_count_agrees_with_a_schedule_in_which_a_queue_fell_back(fallen: ReplayResult, tmp_path: Path) -> None:
    """By code that shares nothing with the engine; and from the fall to best effort on, no job waits though it fits."""
    result = fallen
    side_by_side.write(result, tmp_path, "floor")
    measures, found = metrics.of(result), Schedule(tmp_path, "floor", 14, 8)
    assert found.over_committed() == []
    assert sum(found.waits()) / len(found.waits()) == pytest.approx(measures["wait"]["mean"])
    assert sum(run.lost * run.gpus for run in found.runs) / 3600 == pytest.approx(measures["gpu_hours_lost"])
    causes = ("backfill", "loss_budget", "early_end")
    delay = sum(measures[f"head_delay_{cause}_seconds"] for cause in causes)
    assert 0 < delay <= found.head_delay(by_age=False) + 1e-6
    (fell, _, mode), *later = [(at / 1000, tree, mode) for at, tree, mode in result.modes]
    assert mode in ("BestEffort", "Easy")
    until = later[0][0] if later else float("inf")
    idle = found.idle_work()
    assert any(at < fell for at in idle), "the policy holds work back for reserved heads"
    if mode == "BestEffort":
        assert not [at for at in idle if fell <= at < until]
        assert not [head for head in found.heads if fell < head.since < until]


def test_the_floor_knows_no_future(fallen: ReplayResult) -> None:
    """The durations of all jobs that have not ended by a date are tripled: modes and schedule before it stay as they were."""
    whole, believed = fallen, {outcome.job.number: outcome.job.duration for outcome in fallen.outcomes}
    assert whole.modes
    ends = sorted(outcome.finish for outcome in whole.outcomes if outcome.finish is not None)
    at = max(ends[len(ends) // 2], whole.modes[0][0] + HOUR)
    other = run(corrupted(whole, at), floor=True, believed=believed)
    assert of_the_past(whole, at) == of_the_past(other, at)
    assert [each for each in whole.modes if each[0] < at] == [each for each in other.modes if each[0] < at]


# --- sleep ------------------------------------------------------------------------------------------------------------


def rushes(seed: int) -> list[ReplayedJob]:
    """Four days with a rush each, and jobs between them that find room; whoever is forecast wrongly waits in a rush."""
    chance = random.Random(seed)
    jobs: list[tuple[float, float, int]] = []
    for day in range(4):
        jobs += [(86_400 * day + chance.uniform(0, 1200), chance.expovariate(1 / 900), 4) for _ in range(60)]
        jobs += [(86_400 * day + 1200 * (9 + number), chance.uniform(60, 1000), 4) for number in range(55)]
    return made(*sorted(jobs))


@pytest.mark.parametrize("upside_down", [False, True])
def test_a_floor_that_sleeps_knows_what_one_knows_that_does_not(
    monkeypatch: pytest.MonkeyPatch, upside_down: bool
) -> None:
    jobs, wake_up = rushes(3), Floor._wake_up  # pyright: ignore[reportPrivateUsage]
    woken: list[Millis] = []

    def noted(floor: Floor) -> None:
        woken.append(floor._now)  # pyright: ignore[reportPrivateUsage]
        wake_up(floor)

    monkeypatch.setattr(Floor, "_wake_up", noted)
    found: list[tuple[list[list[Stint]], list[tuple[str, str]], list[list[Millis]]]] = []
    for quiet in (0, 10**15):
        monkeypatch.setattr(floors, "QUIET", quiet)
        foresight = UpsideDown() if upside_down else Truth()
        queue = policies.POLICIES["gangline"].queue
        simulator = Simulator(jobs, ReplayedCluster(16), queue, foresight, rules=SavingRules(None))
        result = simulator.run()
        floor = simulator._floor  # pyright: ignore[reportPrivateUsage]
        assert floor is not None
        lanes = [job.waited for job in floor._jobs.values()]  # pyright: ignore[reportPrivateUsage]
        modes = [(tree, mode) for _, tree, mode in result.modes]
        found.append(([outcome.stints for outcome in result.outcomes], modes, lanes))
    assert found[0] == found[1]
    assert bool(found[0][1]) is upside_down
    assert len(woken) == 4 + 1, "once a day, and once in all"
