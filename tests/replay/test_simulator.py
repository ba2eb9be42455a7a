"""The production engine under a virtual clock against rules that can be worked out by hand."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import replace

import pytest
from tests.replay.jobs import made, reference, trace_jobs

from gangline.engine.model import Admission, Backfill, Change, ClusterQueue, Workload
from gangline.replay.foresight import Blind, RequestedTimes, Truth
from gangline.replay.policies import POLICIES, QUEUE, chosen
from gangline.replay.replayed import ReplayedCluster, ReplayedJob, ReplayedOutcome, ReplayError, ReplayResult, replayed
from gangline.replay.simulator import SavingRules, Simulator
from gangline.replay.trace_facts import Workloads, facts, quotas_by_use
from gangline.replay.world import ReplayEvent

HOUR = 3_600_000


def run(jobs: list[ReplayedJob], policy: str, gpus: int, per_node: int = 8, **options: object) -> ReplayResult:
    """With true durations wherever a policy wants to know any."""
    chosen_policy = POLICIES[policy]
    believed = Blind() if chosen_policy.predictor == "blind" else Truth()
    simulator = Simulator(
        jobs,
        ReplayedCluster(gpus, per_node),
        chosen_policy.queue,
        believed,
        ranked=chosen_policy.ranked,
        **options,  # type: ignore[arg-type]
    )
    return simulator.run()


def starts(result: ReplayResult) -> list[float | None]:
    """In seconds."""
    return [None if outcome.start is None else outcome.start / 1000 for outcome in result.outcomes]


def oldest(job: ReplayedJob) -> float:
    return 0.0


def shortest(job: ReplayedJob) -> float:
    return job.duration


@pytest.mark.parametrize(
    ("policy", "strict", "order"),
    [
        ("fifo", True, oldest),
        ("besteffort", False, oldest),
        ("sjf-strict", True, shortest),
        ("sjf", False, shortest),
    ],
)
@pytest.mark.parametrize("seed", [1, 2])
def test_every_start_is_that_of_the_reference_rule(
    policy: str, strict: bool, order: Callable[[ReplayedJob], float], seed: int
) -> None:
    jobs = replayed(trace_jobs(300, seed))
    result = run(jobs, policy, 48)
    assert [outcome.start for outcome in result.outcomes] == reference(jobs, 6, strict=strict, order=order)
    assert all(outcome.finish == (outcome.start or 0) + outcome.job.duration for outcome in result.outcomes)


def test_small_gangs_go_where_they_fit_most_tightly() -> None:
    """3 free on one node, 5 on the other: a gang of 3 goes to the first, so that one of 5 still fits."""
    jobs = made((0, 100, 5), (0, 100, 3), (1, 50, 3), (2, 50, 5))
    result = run(jobs, "besteffort", 16)
    assert [outcome.stints[0].places for outcome in result.outcomes] == [((0, 5),), ((0, 3),), ((1, 3),), ((1, 5),)]


def test_large_gangs_take_whole_nodes_and_the_rest_elsewhere() -> None:
    jobs = made((0, 100, 6), (1, 100, 18))
    result = run(jobs, "besteffort", 32)
    assert sorted(result.outcomes[1].stints[0].places) == [(0, 2), (1, 8), (2, 8)]


def test_a_job_larger_than_the_cluster_is_told_apart_from_one_that_waits() -> None:
    result = run(made((0, 10, 8), (0, 10, 24)), "fifo", 16)
    assert result.outcomes[1].impossible == "asks for 24 of 16 GPUs"
    assert result.outcomes[0].finish == 10_000


def test_finishes_count_before_arrivals_of_the_same_instant() -> None:
    assert starts(run(made((0, 10, 8), (10, 10, 8)), "fifo", 8)) == [0, 10]


# --- backfill ---------------------------------------------------------------------------------------------------------


def test_backfill_never_delays_the_reserved_head() -> None:
    """The second job waits for the first; the third would outlast it, the fourth is gone by then."""
    jobs = made((0, 100, 8), (1, 50, 16), (2, 200, 4), (3, 90, 4))
    assert starts(run(jobs, "besteffort", 16)) == [0, 202, 2, 3]
    assert starts(run(jobs, "easy-true", 16)) == [0, 100, 150, 3]


def overstaying(revoke: str, **fields: object) -> tuple[ReplayedOutcome, ReplayedOutcome, ReplayResult]:
    """A head is reserved for 1:40; who was let in before it said 1:30 and goes on for an hour."""
    jobs = made((0, 100, 8, 100), (1, 50, 16, 50), (2, 3600, 8, 90))
    queue = ClusterQueue("replay", backfill=Backfill(running=0.5, candidate=0.5, revoke=revoke))
    result = Simulator(jobs, ReplayedCluster(16), queue, RequestedTimes(HOUR), **fields).run()  # type: ignore[arg-type]
    return result.outcomes[1], result.outcomes[2], result


def test_who_overstays_keeps_the_head_waiting_unless_that_is_revoked() -> None:
    head, other, result = overstaying("Never")
    assert head.start == 3_602_000 and other.evictions == 0
    assert result.head_delay["backfill"] == pytest.approx(3502, abs=1)


@pytest.mark.parametrize("revoke", ["Overdue", "Any"])
def test_revoked_backfill_costs_the_head_nothing_and_starts_again(revoke: str) -> None:
    head, other, result = overstaying(revoke, rules=SavingRules(restart=60_000))
    assert head.start == 100_000
    assert other.evictions == 1 and other.stints[0].end == 100_000
    assert other.lost == 98_000 + 60_000
    assert other.finish == 150_000 + 3_600_000 + 60_000
    assert sum(result.head_delay.values()) == 0


def test_saved_work_is_not_done_again() -> None:
    _, other, _ = overstaying("Any", rules=SavingRules(checkpoint=30_000, restart=0))
    assert other.lost == 98_000 - 90_000
    assert other.finish == 150_000 + 3_600_000 - 90_000
    assert other.wait == 150_000 - 100_000 + 8_000


class Limited:
    """One GPU, on which the first job is stopped for good after ten minutes."""

    def begins(self) -> Iterable[Change]:
        cluster = ReplayedCluster(1, 0)
        return facts(cluster, POLICIES["besteffort"].queue, None)

    def later(self) -> list[ReplayEvent]:
        return []

    def of(self, job: ReplayedJob) -> Workload:
        made = Workloads(ReplayedCluster(1, 0), QUEUE, by_tenant=False, ranked=False).of(job)
        return replace(made, max_execution_seconds=600 if job.number == 0 else None)

    def places(self, admission: Admission) -> tuple[tuple[int, int], ...]:
        return ()

    def number(self, node: str) -> int | None:
        return None


def test_a_job_that_the_engine_deactivates_does_not_start_again() -> None:
    jobs = made((0, 3600, 1), (1, 60, 1))
    result = Simulator(jobs, ReplayedCluster(1, 0), POLICIES["besteffort"].queue, Blind(), world=Limited()).run()
    stopped, other = result.outcomes
    assert [(stint.start, stint.end, stint.evicted) for stint in stopped.stints] == [(0, 600_000, "Deactivated")]
    assert stopped.finish is None and (other.start, other.finish) == (600_000, 660_000)
    assert (result.samples[-1].waiting, result.samples[-1].waiting_gpus, result.samples[-1].allocated) == (0, 0, 0)


# --- tenants ----------------------------------------------------------------------------------------------------------


def test_tenants_share_the_cluster_by_their_use_and_lend_the_rest() -> None:
    jobs = replayed(trace_jobs(200, 3))
    quotas = quotas_by_use(jobs, ReplayedCluster(48), {job.tenant for job in jobs})
    assert sum(quotas.values()) == 48 and all(quota % 8 == 0 for quota in quotas.values())
    alone = [job for job in jobs if job.tenant == jobs[0].tenant]
    result = run(replayed(job.trace for job in alone if job.trace), "besteffort", 48, quotas=quotas)
    assert all(outcome.finish is not None for outcome in result.outcomes)
    assert max(sample.allocated for sample in result.samples) > quotas[jobs[0].tenant]


def test_the_same_input_gives_the_same_replay() -> None:
    jobs = replayed(trace_jobs(100, 5))
    first, second = (run(jobs, "gangline-true", 32, rules=SavingRules(HOUR // 2)) for _ in range(2))
    assert [outcome.stints for outcome in first.outcomes] == [outcome.stints for outcome in second.outcomes]
    assert any(outcome.evictions for outcome in first.outcomes)


def test_what_makes_no_sense_is_said() -> None:
    with pytest.raises(ReplayError, match="--gpus 20 is no multiple of --gpus-per-node 8"):
        ReplayedCluster(20)
    with pytest.raises(ReplayError, match="--policy easiest: use some of fifo"):
        chosen("fifo,easiest")
