"""Running gangs with checkpoints that give way to a reserved head."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.builders.engine import START, cluster_queue
from tests.engine.clockwork import Clockwork, Job, not_overcommitted
from tests.examples import examples

from gangline.engine.backfill.checkpoint_preemption import GAVE_WAY
from gangline.engine.model import Backfill, CheckpointPreemption, Ordering

HOUR = 3600
ORDER = Ordering("AgedShortestFirst", age_weight=3.0, age_cap_seconds=86_400.0)
RULE = CheckpointPreemption(longer_than=3.0, loss_share=0.2, min_runtime_seconds=900.0)

#: holds everything for ten hours and saves its work every half hour
LONG = Job(0, 10 * HOUR, 8, forecast=((0.5, 10 * HOUR), (0.9, 20 * HOUR)), checkpoint=1800)
#: arrives later and needs ten minutes of everything
SHORT = Job(2 * HOUR, 600, 8, forecast=((0.5, 600), (0.9, 900)))


def clock(
    rule: CheckpointPreemption | None = RULE,
    nodes: int = 0,
    ordering: Ordering | None = ORDER,
    gpus: int = 8,
    budget: float | None = None,
) -> Clockwork:
    backfill = Backfill(revoke="Overdue", checkpoint_preemption=rule, loss_budget=budget, restart_seconds=0.0)
    made = Clockwork(cluster_queue("q", gpus, backfill=backfill, ordering=ordering), nodes=nodes)
    made.checks.append(not_overcommitted)
    return made


@pytest.mark.parametrize("nodes", [0, 1])
def test_a_long_run_gives_way_to_a_short_head_and_comes_back(nodes: int) -> None:
    world = clock(nodes=nodes)
    world.run([LONG, SHORT])
    long, short = world.runs["j0"], world.runs["j1"]
    assert long.evictions == [GAVE_WAY]
    assert short.starts[0] < 3 * HOUR, "it does not wait for the ten hours to end"
    assert long.starts[1] == short.end, "it comes back as soon as the short one is done"
    assert long.end is not None


def test_what_is_lost_is_little_against_what_the_head_waited() -> None:
    world = clock()
    world.run([LONG, replace(SHORT, at=2 * HOUR + 1000)])  # nearly 17 minutes after a checkpoint
    stopped = world.runs["j1"].starts[0]
    lost, waited = stopped % 1800, stopped - (2 * HOUR + 1000)
    assert lost <= RULE.loss_share * waited
    assert waited >= 790, "before that the loss was too much"


@pytest.mark.parametrize(
    ("long", "short", "rule", "why"),
    [
        (replace(LONG, checkpoint=None), SHORT, RULE, "it declares no checkpoints: all would be lost"),
        (LONG, SHORT, None, "the policy does not say so"),
        (LONG, replace(SHORT, forecast=()), RULE, "nobody knows how long the head takes"),
        (LONG, replace(SHORT, lasts=4 * HOUR, forecast=((0.5, 4 * HOUR),)), RULE, "the head is not that much shorter"),
        (replace(LONG, priority=1), SHORT, RULE, "it has the higher priority"),
        (LONG, SHORT, replace(RULE, min_runtime_seconds=12.0 * HOUR), "it has not run for long enough"),
        (LONG, SHORT, replace(RULE, loss_share=0.0), "nothing may be lost, and the head never came at a checkpoint"),
    ],
)
def test_nobody_is_stopped(long: Job, short: Job, rule: CheckpointPreemption | None, why: str) -> None:
    world = clock(rule)
    world.run([long, replace(short, at=short.at + 7)])
    assert world.runs["j0"].evictions == [], why
    assert world.runs["j1"].starts == [world.runs["j0"].end]


def test_who_goes_first_by_the_order_does_not_give_way() -> None:
    """By age alone the long one is first: it would start again at once."""
    world = clock(ordering=None)
    world.run([LONG, SHORT])
    assert world.runs["j0"].evictions == []


def test_who_would_go_first_again_for_its_age_does_not_give_way() -> None:
    world = clock(ordering=replace(ORDER, max_wait_seconds=2.0 * HOUR))
    world.run([LONG, SHORT])
    assert world.runs["j0"].evictions == [], "it was there two hours ago"


def test_a_head_that_waits_long_asks_for_less() -> None:
    """Thrice the head's twelve hours is more than the long one has left; but the forecast is wrong, and the head waits."""
    long = replace(LONG, lasts=36 * HOUR, forecast=((0.5, 36 * HOUR), (0.9, 40 * HOUR)))
    world = clock()
    world.run([long, replace(SHORT, forecast=((0.5, 12 * HOUR), (0.9, 14 * HOUR)))])
    assert world.runs["j0"].evictions == [GAVE_WAY]
    assert 3 * HOUR < world.runs["j1"].starts[0] < 5 * HOUR


@pytest.mark.parametrize(("backfilled", "stopped"), [(None, False), (0.5, True)])
def test_who_was_let_in_early_may_be_asked_for_less(backfilled: float | None, stopped: bool) -> None:
    """It was let in since the head had to wait for ten hours; but the head could start in its place after three."""
    world = clock(replace(RULE, longer_than=50.0, longer_than_backfilled=backfilled))
    first = Job(0, 3 * HOUR, 4, forecast=((0.5, 10 * HOUR), (0.9, 11 * HOUR)))
    head = Job(HOUR, HOUR, 8, forecast=((0.5, HOUR), (0.9, 2 * HOUR)))
    early = Job(HOUR + 60, 8 * HOUR, 4, forecast=((0.5, 7 * HOUR), (0.9, 8 * HOUR)), checkpoint=1800)
    world.run([first, head, early])
    assert world.runs["j2"].starts[0] == HOUR + 60, "backfilled"
    assert (world.runs["j2"].evictions == [GAVE_WAY]) is stopped
    assert (world.runs["j1"].starts[0] < 4 * HOUR) is stopped


@pytest.mark.parametrize(("most", "times"), [(None, 2), (2, 2), (1, 1)])
def test_nobody_is_asked_more_often_than_the_policy_allows(most: int | None, times: int) -> None:
    world = clock(replace(RULE, max_preemptions=most))
    world.run([LONG, SHORT, replace(SHORT, at=5 * HOUR)])
    assert world.runs["j0"].evictions == [GAVE_WAY] * times
    assert all(run.end is not None for run in world.runs.values())


def lost_so_far(world: Clockwork, name: str, every: int) -> list[tuple[int, int]]:
    """(when it was stopped, what it has lost by then), in seconds."""
    start, lost, found = START, 0, []
    for at, what, who in world.log:
        if who == name and what == GAVE_WAY:
            lost += (at - start) // 1000 % every
            found.append(((at - START) // 1000, lost))
        elif who == name:
            start = at
    return found


def test_where_much_was_lost_heads_cost_less() -> None:
    """Every two hours a head comes, when the long one has just done a good part of what it saves every half hour."""
    heads = [replace(SHORT, at=2 * HOUR * n + 1200) for n in range(1, 13)]
    long = replace(LONG, lasts=48 * HOUR, forecast=((0.5, 48 * HOUR), (0.9, 60 * HOUR)))
    stops: dict[float | None, list[tuple[int, int]]] = {}
    for budget in (None, 0.02):
        world = clock(replace(RULE, loss_share=5.0), budget=budget)
        world.run([long, *heads])
        stops[budget] = lost_so_far(world, "j0", 1800)
        assert all(run.end is not None for run in world.runs.values())
        assert len(stops[budget]) == len(heads), "all heads come to their turn"
    assert stops[0.02][-1][1] < stops[None][-1][1] / 2
    assert all(lost <= 0.02 * (86_400 + at) / 2 for at, lost in stops[0.02])


def test_those_that_lose_least_go_and_no_more_than_needed() -> None:
    """Two run beside each other; the one that saved its work a moment ago is enough."""
    half = replace(LONG, gpus=4)
    world = clock(replace(RULE, loss_share=2.0))
    world.run([half, replace(half, at=300), replace(SHORT, at=2 * HOUR + 400, gpus=4)])
    assert world.runs["j0"].evictions == []
    assert world.runs["j1"].evictions == [GAVE_WAY], "its last checkpoint was 100 s ago, the other's 400 s"


@st.composite
def days(draw: st.DrawFn) -> list[Job]:
    found: list[Job] = []
    for _ in range(draw(st.integers(3, 14))):
        lasts = draw(st.integers(1, 40)) * 60
        guess = max(60, round(lasts * draw(st.sampled_from([0.2, 1.0, 5.0]))))
        found.append(
            Job(
                draw(st.integers(0, 60)) * 60,
                lasts,
                draw(st.sampled_from([1, 2, 4, 8])),
                draw(st.sampled_from([1, 1, 2])),
                forecast=((0.1, guess // 4), (0.5, guess), (0.9, guess * 3)) if draw(st.booleans()) else (),
                priority=draw(st.sampled_from([0, 0, 0, 1])),
                checkpoint=draw(st.sampled_from([None, 60, 300])),
            )
        )
    return found


@examples(25)
@given(days(), st.sampled_from([0, 3]), st.sampled_from([1.0, 3.0]), st.sampled_from([0.05, 1.0]))
def test_all_end_and_the_same_day_is_decided_the_same(day: list[Job], nodes: int, longer: float, share: float) -> None:
    rule = CheckpointPreemption(
        longer_than=longer, loss_share=share, min_runtime_seconds=120.0, longer_than_backfilled=0.3, max_preemptions=2
    )
    worlds = [clock(rule, nodes, gpus=24) for _ in range(2)]
    for world in worlds:
        world.run(day)
        assert all(run.end is not None for run in world.runs.values())
        stopped = {name for name, run in world.runs.items() if GAVE_WAY in run.evictions}
        assert all(day[int(name[1:])].checkpoint for name in stopped)
        assert all(run.evictions.count(GAVE_WAY) <= 2 for run in world.runs.values())
    assert worlds[0].log == worlds[1].log
    assert worlds[0].now >= START
