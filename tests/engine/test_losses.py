"""The loss budget: a limit of what is lost by evictions for reserved heads, at all times."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.builders.engine import GPU, START, EngineWorld, cluster_queue, gang
from tests.engine.clockwork import Clockwork, Job, not_overcommitted
from tests.examples import examples

from gangline.engine.backfill.loss_budget import DAY, THRIFT, Losses
from gangline.engine.model import Backfill, CheckpointPreemption, LocalQueue, Ordering
from gangline.engine.queues.cluster_queue import ClusterQueueState
from gangline.engine.queues.workload_state import WorkloadState

#: (when, GPU milliseconds lost)
Lost = tuple[int, int]


def lossy(budget: float | None, restart: float = 0.0) -> Backfill:
    return Backfill(loss_budget=budget, restart_seconds=restart)


def holder(backfill: Backfill) -> tuple[ClusterQueueState, WorkloadState]:
    """A queue with 8 GPUs, half of which a workload without checkpoints holds."""
    world = EngineWorld(cluster_queue("q", 8, backfill=backfill), LocalQueue("team", "q", "q"), gang("a", 4))
    world.decide()
    store = world.engine._store  # pyright: ignore[reportPrivateUsage]
    assert store.gangs["team/a"].holds
    return store.queues["q"], store.gangs["team/a"]


def test_it_fills_from_nothing_pays_and_never_owes() -> None:
    queue, running = holder(lossy(0.1))
    began, losses = running.quota.admitted_at, Losses()
    losses.keep([queue], began)
    assert losses.freedom(queue, GPU) == THRIFT
    assert not losses.cover([running], queue, began + 1), "it is empty at first: nobody knows what was lost before"
    losses.keep([queue], began + DAY // 2)
    assert losses.freedom(queue, GPU) == pytest.approx(0.5)
    losses.keep([queue], began + 3 * DAY)
    assert losses.freedom(queue, GPU) == 1.0, "it holds no more than half of a day's losses"
    # half of all GPUs: in a tenth of a day they lose half of what the queue may lose in a day
    assert losses.cover([running], queue, began + DAY // 10)
    assert not losses.cover([running], queue, began + DAY // 10 + 1)
    losses.pay([running], queue, began + DAY // 10)
    assert not losses.cover([running], queue, began + 1)
    losses.pay([running], queue, began + DAY)
    losses.keep([queue], began + 3 * DAY + DAY // 2)
    assert losses.freedom(queue, GPU) == pytest.approx(0.5), "it never owes"


def test_each_millisecond_counts() -> None:
    queue, running = holder(lossy(0.000_001))
    losses = Losses()
    for now in range(DAY // 1000):
        losses.keep([queue], now)
    losses.keep([queue], DAY)
    at_once = Losses()
    at_once.keep([queue], 0)
    at_once.keep([queue], DAY)
    assert losses.freedom(queue, GPU) == at_once.freedom(queue, GPU) == 1.0
    assert losses.cover([running], queue, running.quota.admitted_at + 86)
    assert not losses.cover([running], queue, running.quota.admitted_at + 87), (
        "a millionth of eight GPUs for half a day"
    )


def test_a_restart_is_lost_too_and_the_head_pays_for_those_without_a_budget() -> None:
    queue, running = holder(lossy(0.1, restart=3600))
    losses = Losses()
    losses.keep([queue], START)
    losses.keep([queue], START + DAY)
    assert losses.cover([running], queue, running.quota.admitted_at + DAY // 10 - 3_600_000)
    assert not losses.cover([running], queue, running.quota.admitted_at + DAY // 10 - 3_599_999)
    without, _ = holder(lossy(None))
    nobody = Losses()
    nobody.keep([without], START)
    assert nobody.freedom(without, GPU) == 1.0
    assert nobody.cover([running], without, START + 99 * DAY), "no budget, no limit"


def test_without_a_budget_to_speak_of_nothing_is_lost() -> None:
    queue, running = holder(lossy(0.0))
    losses = Losses()
    losses.keep([queue], START)
    losses.keep([queue], START + 9 * DAY)
    assert losses.freedom(queue, GPU) == THRIFT
    assert not losses.cover([running], queue, running.quota.admitted_at + 1)


@examples(200)
@given(
    st.lists(st.tuples(st.integers(0, DAY), st.integers(0, DAY), st.sampled_from([0.0, 0.003, 0.1, 1.0]))),
    st.booleans(),
)
def test_in_no_time_more_is_lost_than_it_allows(steps: list[tuple[int, int, float]], restarts: bool) -> None:
    """Whatever is asked whenever, settings that change and restarts included."""
    queue, running = holder(lossy(1.0))
    losses, now, lost, most = Losses(), START, list[Lost](), 0.0
    for wait, ran, share in steps:
        now += wait
        queue.config = replace(queue.config, backfill=lossy(share))
        most = max(most, share)
        losses = Losses() if restarts and ran % 3 == 0 else losses
        losses.keep([queue], now)
        running.quota.admitted_at = now - ran
        if losses.cover([running], queue, now):
            losses.pay([running], queue, now)
            lost.append((now, 4 * ran))
    within(lost, 8, most)


def within(lost: Sequence[Lost], gpus: int, share: float) -> None:
    """In no stretch of time is more lost than half of the budget times (1 + its length in days)."""
    for first, (since, _) in enumerate(lost):
        total = 0
        for at, amount in lost[first:]:
            total += amount
            assert total <= share * gpus * (DAY + at - since) / 2 + 1e-6, (since, at)


# --- as the engine decides ----------------------------------------------------------------------------------------------


def stopped(world: Clockwork, jobs: Sequence[Job], restart: int) -> list[Lost]:
    """What each eviction lost, by the log alone: work since the last checkpoint or the start, and the restart."""
    since: dict[str, int] = {}
    found: list[Lost] = []
    for at, what, who in world.log:
        if what in ("Start", "Backfill"):
            since[who] = at
        elif what != "End":
            job, ran = jobs[int(who[1:])], at - since[who]
            lost = ran if job.checkpoint is None else ran % (job.checkpoint * 1000)
            found.append((at, (lost + restart * 1000) * job.gpus * job.pods))
    return found


@st.composite
def hours(draw: st.DrawFn) -> list[Job]:
    """Jobs that outlast their forecasts, some of which save their work, before gangs that need all."""
    found: list[Job] = []
    for _ in range(draw(st.integers(3, 16))):
        lasts = draw(st.integers(1, 90)) * 60
        guess = max(60, round(lasts * draw(st.sampled_from([0.1, 0.5, 1.0, 3.0]))))
        found.append(
            Job(
                draw(st.integers(0, 240)) * 60,
                lasts,
                draw(st.sampled_from([1, 2, 4, 8])),
                draw(st.sampled_from([1, 1, 2, 3])),
                forecast=((0.1, guess // 4), (0.5, guess), (0.9, guess * 3)),
                checkpoint=draw(st.sampled_from([None, 60, 600])),
            )
        )
    return found


@examples(40)
@given(hours(), st.sampled_from([0.0, 0.01, 0.1]), st.sampled_from(["Overdue", "Any"]), st.sampled_from([0, 60]))
def test_no_schedule_loses_more(jobs: list[Job], share: float, revoke: str, restart: int) -> None:
    policy = Backfill(
        revoke=revoke,
        overdue_factor=0.25,
        loss_budget=share,
        restart_seconds=restart,
        checkpoint_preemption=CheckpointPreemption(
            longer_than=1.0, loss_share=5.0, min_runtime_seconds=60.0, longer_than_backfilled=0.3
        ),
    )
    order = Ordering("AgedShortestFirst", age_weight=5.0)
    world = Clockwork(cluster_queue("q", 24, backfill=policy, ordering=order), nodes=3)
    world.checks.append(not_overcommitted)
    world.run(jobs)
    assert all(run.end is not None for run in world.runs.values()), "who is not evicted for, waits"
    lost = stopped(world, jobs, restart)
    within(lost, 24, share)
    if not share:
        assert not lost
    first = min((job.at for job in jobs), default=0) * 1000 + START
    for number, (at, _) in enumerate(lost):
        assert sum(amount for _, amount in lost[: number + 1]) <= share * 24 * (at - first) / 2 + 1e-6


def test_a_head_waits_for_the_budget_and_the_delay_is_said() -> None:
    """Who overran its forecast is revoked as soon as the budget covers it, and not before."""
    long = Job(0, 4 * 3600, 4, forecast=((0.5, 4 * 3600), (0.9, 4 * 3600)))
    head = Job(60, 600, 8, forecast=((0.5, 600), (0.9, 600)))
    passer = Job(120, 10 * 3600, 4, forecast=((0.5, 600), (0.9, 600)))
    for share in (None, 0.0, 1.0):
        policy = Backfill(revoke="Overdue", loss_budget=share, restart_seconds=0.0)
        world = Clockwork(cluster_queue("q", 8, backfill=policy))
        world.run([long, head, passer])
        delays = world.engine.head_delay_seconds().get("q")
        if share == 0.0:
            assert world.runs["j1"].starts == [world.runs["j2"].end]
            assert delays == {"loss_budget": pytest.approx(10 * 3600 - 4 * 3600 + 120, abs=2)}
        else:
            assert world.runs["j2"].evictions == ["BackfillRevoked"]
            assert delays is None
        if share == 1.0:
            (at, amount), *_ = stopped(world, [long, head, passer], 0)
            assert amount <= 8 * (at - START) / 2
