"""Windows of Reservations in replays: nobody else is in them, deadlines save work, and what they cost is computed by hand."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.replay.jobs import made, trace_jobs

from gangline.engine.model import (
    Deadline,
    FlavorQuotas,
    Gone,
    Put,
    Quota,
    QuotaAhead,
    QuotaStep,
    ReservedWindow,
    ResourceGroup,
)
from gangline.replay import metrics, windows
from gangline.replay.foresight import Blind, RequestedTimes, Truth
from gangline.replay.planned import Planned, PlannedWindow
from gangline.replay.policies import POLICIES, QUEUE, WindowHandling
from gangline.replay.replayed import ReplayedCluster, ReplayedJob, ReplayResult, replayed
from gangline.replay.simulator import SavingRules, Simulator
from gangline.replay.trace_facts import FLAVOR, GPU, node_name
from gangline.replay.world import ReplayEvent

MINUTE, HOUR = 60_000, 3_600_000


def window(begin: int, end: int, *nodes: int, notice: int = 30 * MINUTE, **fields: Any) -> ReservedWindow:
    names = frozenset(map(node_name, nodes))
    return ReservedWindow(f"weekly/{begin}", "weekly", begin, end, names, notice=notice, **fields)


def planned(*reserved: ReservedWindow, known: int = 0) -> Planned:
    """Windows that are known from a time on, until they end."""
    events = [ReplayEvent(known, tuple(map(Put, reserved)))]
    events += [ReplayEvent(each.end, (Gone(ReservedWindow, each.name),)) for each in reserved]
    ordered = tuple(sorted(events, key=lambda event: event.at))
    return Planned(ordered, tuple(PlannedWindow(each, each.nodes) for each in reserved))


def play(
    jobs: list[ReplayedJob],
    plan: Planned,
    handling: WindowHandling = "announced",
    *,
    policy: str = "easy-true",
    gpus: int = 16,
    rules: SavingRules = SavingRules(),  # noqa: B008
    limit: int | None = None,
) -> ReplayResult:
    queue = POLICIES[policy].queue
    believed = RequestedTimes(limit) if limit is not None else Blind() if policy == "besteffort" else Truth()
    return Simulator(jobs, ReplayedCluster(gpus), queue, believed, rules=rules, planned=plan, handling=handling).run()


def hours(*rows: tuple[float, float, int]) -> list[ReplayedJob]:
    """Jobs from (submit, duration, GPUs), in hours."""
    return made(*((submit * 3600, duration * 3600, gpus) for submit, duration, gpus in rows))


# --- who runs where ---------------------------------------------------------------------------------------------------


def test_only_who_ends_in_time_starts_on_the_nodes_of_a_window_and_nobody_is_stopped() -> None:
    """Two nodes, the second one is reserved from 4:00 to 6:00: of three jobs of a node each the long ones share the first."""
    plan = planned(window(4 * HOUR, 6 * HOUR, 1))
    result = play(hours((0, 5, 8), (0, 5, 8), (0, 3, 8)), plan)
    assert [outcome.stints[0].places[0][0] for outcome in result.outcomes] == [0, 0, 1]
    assert [outcome.start for outcome in result.outcomes] == [0, 5 * HOUR, 0]
    assert not any(outcome.evictions for outcome in result.outcomes)
    found = windows.of(result)
    assert found == {}, "it begins after the last submission"


def test_a_drain_stops_at_the_beginning_what_nobody_held_back() -> None:
    plan = planned(window(4 * HOUR, 6 * HOUR, 1))
    jobs = hours((0, 5, 8), (0, 5, 8), (7, 1, 8))
    result = play(jobs, plan, "drain", rules=SavingRules(checkpoint=HOUR))
    first, second, _ = result.outcomes
    assert first.finish == 5 * HOUR and not first.evictions
    assert [(stint.start, stint.end) for stint in second.stints] == [
        (0, 4 * HOUR),
        (5 * HOUR, 6 * HOUR + MINUTE),  # on the first node, when that is free
    ]
    assert second.stints[0].evicted == "Reservation" and second.stints[0].lost == MINUTE, "it had saved at 4:00"
    measures = metrics.of(result)["windows"]
    assert measures["stopped"] == 1 and measures["gpu_hours_of_others_inside"] == 0
    assert measures["gpu_hours_lost"] == pytest.approx(8 / 60)


def test_without_windows_nothing_is_stopped_and_the_use_of_the_same_hours_is_known() -> None:
    plan = planned(window(4 * HOUR, 6 * HOUR, 1))
    result = play(hours((0, 5, 8), (0, 5, 8), (7, 1, 8)), plan, "without")
    measures = metrics.of(result)["windows"]
    assert [outcome.start for outcome in result.outcomes] == [0, 0, 7 * HOUR]
    assert measures["gpu_hours_of_others_inside"] == 8, "from 4:00 to 5:00"
    assert measures["each"][0]["busy_by_hour_before"][:5] == [16, 16, 16, 16, 0]
    assert measures["each"][0]["busy_inside"] == 8


@pytest.mark.parametrize(
    ("saves", "cost", "notice", "lost"),
    [
        (2 * HOUR, 0, 30 * MINUTE, 1),  # it saves at the deadline: the restart alone
        (2 * HOUR, 10 * MINUTE, 30 * MINUTE, 11),  # and what it would have done while it saved
        (2 * HOUR, 10 * MINUTE, 5 * MINUTE, 51),  # the notice is too short: since 2:00 … 2:10, the end of its last save
        (2 * HOUR, 0, 0, 61),  # nobody warned it
        (None, 0, 30 * MINUTE, 181),  # it can't save
    ],
)
def test_a_job_that_is_told_of_its_deadline_loses_what_it_did_since_it_saved(
    saves: int | None, cost: int, notice: int, lost: int
) -> None:
    """It was believed to take two hours, and takes longer; the window begins after three."""
    plan = planned(window(3 * HOUR, 5 * HOUR, 0, notice=notice))
    rules = SavingRules(checkpoint=saves, save=cost)
    (outcome, _) = play(hours((0, 4, 8), (9, 1, 8)), plan, gpus=8, rules=rules, limit=2 * HOUR).outcomes
    assert outcome.stints[0].end == 3 * HOUR and outcome.stints[0].lost == lost * MINUTE
    assert outcome.finish is not None


def test_whom_a_window_is_for_runs_in_it() -> None:
    mine = window(HOUR, 3 * HOUR, 0, cluster_queues=frozenset({"replay"}))
    result = play(hours((0, 4, 8), (5, 1, 8)), planned(mine), gpus=8)
    assert not result.outcomes[0].evictions
    assert metrics.of(result)["windows"]["gpu_hours_of_others_inside"] == 0
    assert result.windows[0].guests == {0, 1}


def test_a_window_of_a_drain_is_told_when_it_begins_and_a_change_before_counts() -> None:
    first, moved = window(4 * HOUR, 6 * HOUR, 1), window(8 * HOUR, 9 * HOUR, 1)
    plan = Planned(
        (
            ReplayEvent(0, (Put(first), Put(moved))),
            ReplayEvent(HOUR, (Gone(ReservedWindow, first.name),)),
            ReplayEvent(9 * HOUR, (Gone(ReservedWindow, moved.name),)),
        )
    )
    assert list(plan.under("drain")) == [
        ReplayEvent(8 * HOUR, (Put(moved),)),
        ReplayEvent(9 * HOUR, (Gone(ReservedWindow, moved.name),)),
    ]
    assert not plan.under("without") and tuple(plan.under("announced")) == plan.events


# --- laws -------------------------------------------------------------------------------------------------------------


@st.composite
def reserved(draw: st.DrawFn) -> Planned:
    found: list[ReservedWindow] = []
    at = draw(st.integers(1, 6)) * HOUR
    for _ in range(draw(st.integers(1, 3))):
        length = draw(st.integers(1, 8)) * HOUR
        nodes = draw(st.sets(st.integers(0, 5), min_size=1, max_size=3))
        found.append(window(at, at + length, *nodes, notice=draw(st.integers(0, 2)) * HOUR // 2))
        at += length + draw(st.integers(0, 6)) * HOUR
    return planned(*found)


@settings(max_examples=8, deadline=None)
@given(
    reserved(),
    st.integers(1, 1000),
    st.sampled_from(["easy", "easy-true", "besteffort", "gangline-true"]),
    st.sampled_from([None, HOUR // 2]),
)
def test_nobody_else_is_in_a_window_and_a_deadline_loses_no_more_than_a_drain(
    plan: Planned, seed: int, policy: str, checkpoint: int | None
) -> None:
    jobs = replayed(replace(job, duration=min(job.duration, 20_000.0)) for job in trace_jobs(60, seed, days=1.0))
    lost: dict[str, float] = {}
    for handling in ("announced", "drain"):
        limit = 6 * HOUR if policy == "easy" else None
        result = play(jobs, plan, handling, policy=policy, gpus=48, rules=SavingRules(checkpoint), limit=limit)
        for outcome in result.outcomes:
            for stint in outcome.stints:
                for each in result.windows:
                    overlap = min(stint.end, each.end) - max(stint.start, each.stops)
                    assert overlap <= 0 or not each.nodes & {node for node, _ in stint.places}
        assert all(outcome.finish is not None for outcome in result.outcomes if not outcome.impossible)
        lost[handling] = metrics.of(result).get("windows", {}).get("gpu_hours_lost", 0.0)
    if policy != "easy":  # all lengths are known, or none: nobody is stopped
        assert lost["announced"] == 0
    assert lost["announced"] <= lost["drain"]


@settings(max_examples=12, deadline=None)
@given(st.integers(0, 10_000), st.sampled_from(("easy-true", "gangline-no-floor", "gangline", "easy-sjbf-true")))
def test_what_is_known_ahead_and_changes_nothing_changes_no_start(seed: int, policy: str) -> None:
    """A window of nodes that nobody uses, or the same quota later: the engine looks at more, and decides as without."""
    jobs = replayed(trace_jobs(60, seed, days=0.5))
    far = window(10**9 * MINUTE, 10**9 * MINUTE + HOUR, 99)
    rules = SavingRules(checkpoint=10 * MINUTE)
    quotas = (ResourceGroup((GPU,), (FlavorQuotas(FLAVOR, {GPU: Quota(16)}),)),)
    step = QuotaAhead(QUEUE, "plan", (QuotaStep(far.begin, quotas),), Deadline(30 * MINUTE, MINUTE))
    alone, *beside = (
        [outcome.stints for outcome in play(jobs, plan, policy=policy, rules=rules).outcomes]
        for plan in (Planned(), planned(far), Planned(quotas=(ReplayEvent(0, (Put(step),)),)))
    )
    assert beside == [alone, alone]
