"""Attempts and their sums: nothing counts twice, nothing is left out, and a window cuts off what lies outside of it."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from datetime import datetime
from typing import Any
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gangline.forecast.history import attempts, usage
from gangline.forecast.history.attempts import JobAttempt
from gangline.forecast.history.usage import BY, DAY, Group, UsageSum, Window

HOUR = 3600.0
T = 1_790_000_000.0


def attempt(**fields: Any) -> JobAttempt:
    """8 GPUs from T on: ready after 100 s, ended after 1,100 s; it waited for 500 s."""
    given = {
        "uid": "w", "reserved": T, "submitted": T - 500, "queued": T - 500, "namespace": "ml", "workload": "w", "user": "mira",
        "job_kind": "Job", "job_name": "train", "local_queue": "a", "cluster_queue": "a", "flavor": "h100", "gpus": 8,
        "started": T, "ready": T + 100, "ended": T + 1100, "end": attempts.SUCCEEDED,
    }  # fmt: skip
    return JobAttempt(**given | fields)


def parts(each: JobAttempt, now: float = T + 5000) -> tuple[float, float, float]:
    """Seconds in which it started, was useful, and did what is lost."""
    found = each.stages(now)
    return found.working - found.reserved, found.losing - found.working, found.ended - found.losing


# --- one attempt ------------------------------------------------------------------------------------------------------


def test_what_succeeds_is_useful_but_for_its_start() -> None:
    assert parts(attempt()) == (100, 1000, 0)
    assert parts(attempt(ended=None, end="")) == (100, 4900, 0), "one in progress has lost nothing"
    assert parts(attempt(ready=None)) == (0, 1100, 0), "it succeeded before anybody saw its pods ready"
    assert parts(attempt(ready=None, reports_ready=False, started=T + 10)) == (10, 1090, 0)


@pytest.mark.parametrize(
    ("end", "reason", "loss"),
    [
        (attempts.PREEMPTED, "InClusterQueue", "preemption"),
        (attempts.FAILED, "Failed", "failure"),
        (attempts.CANCELLED, "", "cancel"),
        (attempts.EVICTED, "Deactivated", "eviction"),
        (attempts.EVICTED, "NodeFailures", "failure"),
        (attempts.EVICTED, "MaximumExecutionTimeExceeded", "overrun"),
        (attempts.EVICTED, "Overrun", "overrun"),
        (attempts.EVICTED, "Stalled", "overrun"),
        (attempts.RELEASED, "OnHold", ""),
        (attempts.SUCCEEDED, "", ""),
    ],
)
def test_what_is_lost_to_which_end(end: str, reason: str, loss: str) -> None:
    found = attempt(end=end, reason=reason)
    assert found.loss == loss
    assert parts(found) == ((100, 0, 1000) if loss else (100, 1000, 0))
    saved = replace(found, checkpoint=300.0)  # checkpoints at 300, 600 and 900 s of its run, so 200 s are lost
    assert parts(saved) == ((100, 800, 200) if loss else (100, 1000, 0))
    assert saved.saved(T) == 800


def test_a_start_that_nobody_saw_ready_lost_no_work() -> None:
    stuck = attempt(ready=None, end=attempts.EVICTED, reason="PodsReadyTimeout")
    assert parts(stuck) == (1100, 0, 0)


def test_while_a_node_is_replaced_nothing_useful_is_done() -> None:
    assert parts(attempt(unready=50.0)) == (150, 950, 0)
    assert parts(attempt(unready=50.0, unready_since=T + 900, end="", ended=None), T + 1100) == (350, 750, 0)


TIMES = st.one_of(st.none(), st.floats(-10.0, 5e5))
ATTEMPTS = st.builds(
    lambda reserved, waited, started, ready, unready, since, ended, **more: JobAttempt(
        uid="w",
        reserved=T + reserved,
        submitted=T + reserved - waited,
        queued=T + reserved - waited,
        started=None if started is None else T + reserved + started,
        ready=None if ready is None else T + reserved + ready,
        unready=unready,
        unready_since=None if since is None else T + reserved + since,
        ended=None if ended is None else T + reserved + ended,
        **more,
    ),
    reserved=st.floats(0, 1e6),
    waited=st.floats(0, 1e6),
    started=TIMES,
    ready=TIMES,
    unready=st.floats(0, 1e5),
    since=TIMES,
    ended=TIMES,
    reports_ready=st.booleans(),
    checkpoint=st.one_of(st.none(), st.floats(0.001, 1e5)),
    end=st.sampled_from(["", *attempts.FINAL, attempts.PREEMPTED, attempts.EVICTED, attempts.RELEASED]),
    reason=st.sampled_from(["", "Stalled", "NodeFailures"]),
    gpus=st.integers(0, 4096),
    idle=st.one_of(st.none(), st.floats(0, 1e9)),
    cluster_queue=st.sampled_from("ab"),
    local_queue=st.sampled_from("ab"),
    namespace=st.sampled_from("mn"),
    user=st.sampled_from(["", "mira"]),
)


@given(ATTEMPTS)
def test_an_attempt_is_useful_lost_and_starting_and_nothing_else(each: JobAttempt) -> None:
    starting, useful, lost = parts(each, T + 2e6)
    ended = max(each.reserved, each.ended if each.ended is not None else T + 2e6)
    assert min(starting, useful, lost) >= 0
    assert starting + useful + lost == pytest.approx(ended - each.reserved)
    assert 0 <= each.saved(T + 2e6) <= useful + lost


# --- sums -------------------------------------------------------------------------------------------------------------


def sums(window: Window, *found: JobAttempt) -> dict[Group, UsageSum]:
    by_group: dict[Group, UsageSum] = {}
    usage.add(by_group, found, window)
    return by_group


@given(st.lists(ATTEMPTS, max_size=8), st.floats(0, 1e6), st.floats(1, 1e6), st.sampled_from(BY))
def test_sums_are_of_all_hours_in_the_window_by_whatever_they_are_grouped(
    found: list[JobAttempt], after: float, length: float, by: str
) -> None:
    since = T + after
    until = since + length
    hours = 0.0
    for each in found:
        ended = max(each.reserved, each.ended if each.ended is not None else until)
        hours += each.gpus * max(0.0, min(until, ended) - max(since, each.reserved)) / HOUR
    by_group = sums(Window(since, until, by), *found)
    assert sum(each.hours for each in by_group.values()) == pytest.approx(hours, abs=1e-3)
    for each in by_group.values():
        assert (each.idle or 0.0) <= each.useful + 1e-6
    merged = UsageSum()
    for each in by_group.values():
        merged.merge(each)
    whole = UsageSum()
    for each in sums(Window(since, until), *found).values():
        whole.merge(each)
    assert (merged.attempts, len(merged.jobs), sorted(merged.waits)) == (
        whole.attempts,
        len(whole.jobs),
        sorted(whole.waits),
    )
    assert merged.waited == pytest.approx(whole.waited, abs=1e-3)
    for cause, lost in whole.lost.items():
        assert merged.lost[cause] == pytest.approx(lost, abs=1e-3)


def test_a_window_cuts_each_part() -> None:
    preempted = attempt(end=attempts.PREEMPTED, checkpoint=600.0)  # 100 s of start, 500 s useful, 500 s lost
    (found,) = sums(Window(T + 50, T + 700), preempted).values()
    assert (found.starting, found.useful, found.lost["preemption"]) == (
        pytest.approx(8 * 50 / HOUR),
        pytest.approx(8 * 500 / HOUR),
        pytest.approx(8 * 100 / HOUR),
    )
    assert (found.attempts, found.preemptions, list(found.waits), found.waited) == (1, 0, [], 0.0)
    assert sums(Window(T + 2000, T + 3000), preempted) == {} == sums(Window(T - 900, T - 800), preempted)
    (found,) = sums(Window(T - 100, T + 9000), preempted).values()
    assert (list(found.waits), found.waited, found.preemptions) == ([500.0], pytest.approx(8 * 100 / HOUR), 1)


def test_idle_time_is_a_part_of_the_useful_one() -> None:
    (found,) = sums(Window(T, T + 600), attempt(idle=8 * 200.0)).values()
    assert found.idle == pytest.approx(8 * 100 / HOUR), "half of its work is in the window, so half of what was idle"
    (found,) = sums(Window(T, T + 9000), attempt(idle=1e9), attempt(uid="x")).values()
    assert found.idle == pytest.approx(8 * 1000 / HOUR)
    (found,) = sums(Window(T, T + 9000), attempt()).values()
    assert found.idle is None, "nobody measured"


def test_old_hours_weigh_less() -> None:
    window = Window(T - 1e6, T + 1100, half_life=500.0)
    (found,) = sums(window, attempt(ended=None, end="")).values()
    steps = sum(8 * 0.5 ** ((1100 - at - 0.5) / 500) for at in range(1100))
    assert found.weighted == pytest.approx(steps, rel=1e-4)
    (half,) = sums(Window(T - 1e6, T + 1600, half_life=500.0), attempt()).values()
    assert half.weighted == pytest.approx(found.weighted / 2)


def test_days_are_those_of_utc() -> None:
    midnight = T // 86_400 * 86_400 + 86_400
    late = attempt(
        reserved=midnight - 100,
        started=midnight - 100,
        ready=midnight - 100,
        queued=midnight - 200,
        ended=midnight + 86_500,
    )
    by_day = sums(Window(midnight - 9e5, midnight + 9e5, DAY), late)
    days = sorted(by_day.items())
    assert [round(each.hours * HOUR / 8) for _, each in days] == [100, 86_400, 100]
    assert [each.attempts for _, each in days] == [0, 0, 1], "it is counted where it ended"
    assert [day[1] for day, _ in days] == ["2026-09-21", "2026-09-22", "2026-09-23"]
    assert days[0][1].waited == pytest.approx(8 * 100 / HOUR)


@given(
    st.lists(
        st.tuples(
            st.integers(0, 400), st.integers(0, 90), st.integers(0, 90), st.integers(0, 300), st.integers(1, 64),
            st.sampled_from(["", *attempts.FINAL, attempts.PREEMPTED, attempts.EVICTED]), st.sampled_from([None, 30, 7]),
            st.sampled_from(["h100", "a100"]),
        ),
        max_size=12,
    ),
    st.integers(0, 300),
    st.integers(1, 400),
    st.sampled_from(BY),
)  # fmt: skip
def test_sums_are_those_of_a_count_second_by_second(
    given_: list[tuple[Any, ...]], after: int, length: int, by: str
) -> None:
    """The midnight of Berlin is in the middle of the time. Nothing here uses what makes the sums."""
    zone = ZoneInfo("Europe/Berlin")
    midnight = round(datetime(2026, 9, 22, tzinfo=zone).timestamp())
    begin, since = midnight - 300, midnight - 300 + after
    until = since + length
    found: list[JobAttempt] = []
    expected: dict[str, Counter[str]] = {}
    for number, (at, started, ready, ran, gpus, end, checkpoint, flavor) in enumerate(given_):
        reserved = begin + at
        working = reserved + started + ready
        ended = working + ran
        each = attempt(
            uid=f"w{number}", reserved=reserved, queued=reserved, started=reserved + started, ready=working, ended=ended,
            end=end or attempts.RELEASED, checkpoint=checkpoint, gpus=gpus, flavor=flavor, user=f"u{number % 2}",
        )  # fmt: skip
        if not end:
            each, ended = replace(each, end="", ended=None), until
        found.append(each)
        run = ended - reserved - started
        unsaved = run % checkpoint if checkpoint else run
        cause = {"Preempted": "preemption", "Evicted": "eviction", "Failed": "failure", "Cancelled": "cancel"}.get(end)
        group = {
            "clusterQueue": "a", "localQueue": "a", "namespace": "ml", "user": each.user, "flavor": flavor, "jobKind": "Job",
        }  # fmt: skip
        for second in range(max(since, reserved), min(until, ended)):
            name = group[by] if by != DAY else datetime.fromtimestamp(second, zone).date().isoformat()
            kind = "starting" if second < working else cause if cause and second >= ended - unsaved else "useful"
            counted = expected.setdefault(name, Counter())
            counted[kind] += gpus
            counted["all"] += gpus
            counted[f"on {flavor}"] += gpus
    by_group = sums(Window(since, until, by, zone=zone), *found)
    for (_, name), each in by_group.items():
        counted = expected.get(name, Counter[str]())
        assert each.hours * HOUR == pytest.approx(counted["all"], abs=1e-3)
        assert each.starting * HOUR == pytest.approx(counted["starting"], abs=1e-3)
        assert each.useful * HOUR == pytest.approx(counted["useful"], abs=1e-3)
        for cause, lost in each.lost.items():
            assert lost * HOUR == pytest.approx(counted[cause], abs=1e-3), cause
        for flavor, hours in each.flavors.items():
            assert hours.used * HOUR == pytest.approx(counted[f"on {flavor}"], abs=1e-3)
        assert sum(hours.lost for hours in each.flavors.values()) == pytest.approx(sum(each.lost.values()))
    assert set(expected) <= {name for _, name in by_group}


def test_days_of_a_zone_have_23_to_25_hours() -> None:
    zone = ZoneInfo("Europe/Berlin")
    for date, hours in (((2026, 3, 29), 23), ((2026, 10, 25), 25), ((2026, 10, 26), 24)):
        since = datetime(*date, tzinfo=zone).timestamp() - 86_400
        whole = attempt(reserved=since, queued=since, started=since, ready=since, ended=None, end="", gpus=1)
        by_day = sums(Window(since, since + 4 * 86_400, DAY, zone=zone), whole)
        assert round(by_day["", datetime(*date).date().isoformat()].hours, 6) == hours


def test_groups_that_bear_one_name_in_two_namespaces_are_two() -> None:
    theirs = attempt(uid="x", namespace="other")
    window = Window(T, T + 9000)
    assert set(sums(replace(window, by="user"), attempt(), theirs)) == {("ml", "mira"), ("other", "mira")}
    assert set(sums(replace(window, by="flavor"), attempt(), theirs)) == {("", "h100")}
    assert sums(replace(window, queues=frozenset({"b"})), attempt()) == {}
