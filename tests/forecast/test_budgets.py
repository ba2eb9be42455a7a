"""Budgets: periods with their daylight saving times, and sums that count every GPU-hour of the record once."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime
from itertools import pairwise
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gangline.forecast.history.attempts import JobAttempt
from gangline.forecast.history.budgets import (
    MOST_OWNERS,
    ROLLING,
    Budget,
    BudgetUse,
    Period,
    UsedSpan,
)

BERLIN = ZoneInfo("Europe/Berlin")


def at(text: str, zone: ZoneInfo | None = None) -> float:
    return datetime.fromisoformat(text).replace(tzinfo=zone or UTC).timestamp()


@pytest.mark.parametrize(
    ("kind", "begin", "end"),
    [
        ("Day", "2026-11-29", "2026-11-30"),
        ("Week", "2026-11-23", "2026-11-30"),
        ("Month", "2026-11-01", "2026-12-01"),
        ("Quarter", "2026-10-01", "2027-01-01"),
        ("Year", "2026-01-01", "2027-01-01"),
    ],
)
def test_a_calendar_period_begins_and_ends_at_midnight(kind: str, begin: str, end: str) -> None:
    period, now = Period(kind), at("2026-11-29T07:00:00")
    assert (period.begin(now), period.end(now)) == (at(begin), at(end))
    assert period.begin(at(begin)) == at(begin)
    assert period.end(at(begin) - 1) == at(begin)


@pytest.mark.parametrize(("day", "hours"), [("2026-03-29", 23), ("2026-10-25", 25), ("2026-11-01", 24)])
def test_days_last_as_long_as_they_do_where_the_zone_is(day: str, hours: int) -> None:
    period, noon = Period("Day", BERLIN), at(f"{day}T12:00:00", BERLIN)
    begin, end = period.begin(noon), period.end(noon)
    assert end is not None
    assert end - begin == hours * 3600


@pytest.mark.parametrize("zone", ["America/Sao_Paulo", "Asia/Beirut", "Pacific/Apia", "Africa/Cairo", "America/Havana"])
def test_periods_follow_each_other_without_gap_or_overlap_where_midnight_is_skipped_or_repeated(zone: str) -> None:
    period = Period("Day", ZoneInfo(zone))
    begins = [period.begin(at("2011-01-01") + 3 * 3600 * number) for number in range(8 * 400)]
    assert begins == sorted(begins)
    for before, after in pairwise(dict.fromkeys(begins)):
        assert period.end(before) == after


def test_a_rolling_window_moves_in_steps_and_has_no_end() -> None:
    period = Period(ROLLING, length=24_000.0)
    now = at("2026-11-29T07:00:13")
    assert period.step == 100
    assert 24_000 <= now - period.begin(now) < 24_100
    assert period.end(now) is None
    assert period.begin(now) % 100 == 0


def attempt(uid: str, start: float, gpus: int = 4, **more: object) -> JobAttempt:
    base = JobAttempt(
        uid,
        start,
        start,
        start,
        namespace="team",
        workload=uid,
        user="alice",
        local_queue="q",
        cluster_queue="research",
        gpus=gpus,
    )
    return replace(base, **more)  # type: ignore[arg-type]


def use(*budgets: Budget) -> BudgetUse:
    return BudgetUse(budgets, {"research": "p", "other": "p"})


def test_what_runs_counts_as_it_runs_and_what_ended_once() -> None:
    sums, now = use(Budget("p", "b", "User", 100.0)), at("2026-11-10")
    (account,) = sums.note(attempt("a", now - 3600), now)
    assert account == (0, "alice")
    assert sums.used(account, now) == 4
    assert sums.used(account, now + 1800) == 6
    assert sums.reaches(account, 1.0, now) == now + 24 * 3600
    ended = attempt("a", now - 3600, ended=now + 3600)
    sums.note(ended, now + 3600)
    sums.note(ended, now + 3600)  # written again
    assert sums.used(account, now + 7200) == 8
    assert sums.reaches(account, 1.0, now) is None


def test_use_before_the_period_does_not_count_and_a_clock_that_is_put_back_gives_no_negative_use() -> None:
    sums, now = use(Budget("p", "b", "User", 100.0)), at("2026-12-01T01:00:00")
    (account,) = sums.note(attempt("a", at("2026-11-30T20:00:00")), now)
    assert sums.used(account, now) == 4
    assert sums.used(account, at("2026-11-30T19:00:00")) == 0
    sums.note(attempt("b", now, ended=None), now)
    assert sums.used(account, now - 60) == pytest.approx(4 - 4 / 60)


def test_an_attempt_that_goes_on_after_a_recorded_end_counts_from_there() -> None:
    sums, now = use(Budget("p", "b", "User", 100.0)), at("2026-11-10")
    sums.add_past(UsedSpan("research", "team", "q", "alice", 4, now - 3600, now - 1800), now)
    sums.note(attempt("a", now - 3600), now, counted=now - 1800)
    assert sums.used((0, "alice"), now) == 4


def test_owners_are_those_of_the_scope_and_only_those_that_are_named() -> None:
    budgets = (
        Budget("p", "q", "ClusterQueue"),
        Budget("p", "lq", "LocalQueue"),
        Budget("p", "ns", "Namespace"),
        Budget("p", "bob", "User", only=frozenset({"bob"})),
        Budget("another", "u", "User"),
    )
    sums = use(*budgets)
    assert sums.concerned("research", "team", "q", "alice") == ((0, "research"), (1, "team/q"), (2, "team"))
    assert sums.concerned("research", "team", "q", "bob")[-1] == (3, "bob")
    assert sums.concerned("unknown", "team", "q", "alice") == ()


def test_namespaces_with_one_value_of_a_label_have_one_budget_and_those_without_it_another() -> None:
    labels = {"a1": {"team": "a"}, "a2": {"team": "a"}, "b": {}}
    sums = BudgetUse((Budget("p", "b", "NamespaceLabel", 1.0, label="team"),), {"research": "p"}, labels)
    now = at("2026-11-10")
    for namespace in ("a1", "a2", "b", "gone"):
        sums.add_past(UsedSpan("research", namespace, "q", "alice", 1, now - 3600, now), now)
    assert {owner: sums.used((0, owner), now) for _, owner in sums.accounts()} == {"a": 2, "": 2}


def test_jobs_with_one_value_of_a_label_have_one_budget_in_all_namespaces() -> None:
    sums, now = use(Budget("p", "b", "JobLabel", 1.0, label="project")), at("2026-11-10")
    for namespace, labels in (
        ("one", (("project", "x"), ("team", "a"))),
        ("two", (("project", "x"),)),
        ("two", (("team", "x"),)),
        ("two", ()),
    ):
        sums.add_past(UsedSpan("research", namespace, "q", "alice", 1, now - 3600, now, labels), now)
    running = replace(attempt("a", now - 3600), gpus=1, labels=(("project", "y"),))
    assert sums.note(running, now) == ((0, "y"),)
    assert {owner: sums.used((0, owner), now) for _, owner in sums.accounts()} == {"x": 2, "": 2, "y": 1}
    budget = sums.budgets[0]
    assert (budget.whose("x"), budget.whose("")) == ("jobs with project=x", "jobs without the label project")


@pytest.mark.parametrize("per", ["User", "JobLabel"])
def test_a_namespace_that_makes_up_users_gets_one_account_for_the_rest_and_others_are_not_concerned(
    per: str,
) -> None:
    """And one that makes up values of a label."""
    sums, now = use(Budget("p", "b", per, 1.0, label="project")), at("2026-11-10")
    for number in range(MOST_OWNERS + 10):
        name = f"user-{number}"
        span = UsedSpan("research", "evil", "q", name, 1, now - 60, now, (("project", name),))
        sums.add_past(span, now)
    assert len(sums.accounts()) == MOST_OWNERS + 1
    assert sums.used((0, "(others of evil)"), now) == pytest.approx(10 / 60)
    assert sums.concerned("research", "team", "q", "carol", (("project", "carol"),)) == ((0, "carol"),)
    sums.forget(at("2026-12-01"))
    assert sums.accounts() == []
    assert sums.concerned("research", "evil", "q", "new", (("project", "new"),)) == ((0, "new"),)


# --- against a count of the whole record ------------------------------------------------------------------------------

PERIODS = st.sampled_from(
    [Period("Day", BERLIN), Period("Week"), Period("Month", BERLIN), Period(ROLLING, length=50_000.0)]
)
STEP = st.tuples(
    st.sampled_from(["begin", "end", "grow", "restart", "again", "back"]), st.integers(0, 40_000), st.integers(0, 9)
)


def counted(record: dict[str, JobAttempt], begin: float, now: float) -> float:
    """The GPU-hours of all attempts between two instants."""
    total = 0.0
    for each in record.values():
        end = now if each.ended is None else min(now, each.ended)
        total += each.gpus * max(0.0, end - max(begin, each.reserved))
    return total / 3600


@settings(deadline=None)
@given(PERIODS, st.lists(STEP, max_size=40))
def test_no_hour_counts_twice_over_random_histories_with_restarts(
    period: Period, steps: list[tuple[str, int, int]]
) -> None:
    """A restart knows the attempts that ended from the store, and those in progress from their Workloads."""
    budget = Budget("p", "b", "User", 100.0, period)
    sums, record, now = use(budget), dict[str, JobAttempt](), at("2026-10-24T12:00:00")
    reopened: set[str] = set()
    for number, (what, wait, which) in enumerate(steps):
        now += wait
        running = [each for each in record.values() if each.ended is None]
        ended = [each for each in record.values() if each.ended is not None]
        if what == "back":  # the clock is put back for a while
            earlier = sums.used((0, "alice"), now - 2 * wait)
            most = counted(record, 0.0, now)
            assert 0 <= earlier <= most + 1e-6
            continue
        if what == "begin" or (what != "restart" and not running):
            new = attempt(f"u{number}", now, which)
        elif what == "again" and ended:  # its Workload holds the quota again within the same second
            old = ended[which % len(ended)]
            new = replace(old, ended=None)
            sums.note(new, now, counted=old.ended or 0.0)
            record[new.key] = new
            reopened.add(new.key)
            continue
        elif what == "restart" or what == "again":
            sums = use(budget)
            for each in ended:
                sums.add_past(
                    UsedSpan("research", "team", "q", "alice", each.gpus, each.reserved, each.ended or 0.0), now
                )
            for each in running:
                sums.note(each, now)
            continue
        else:
            new = running[which % len(running)]
            if what == "grow" and new.key in reopened:  # within the second in which it went on
                continue
            new = replace(new, ended=now) if what == "end" else replace(new, gpus=new.gpus + 1)
        record[new.key] = new
        sums.note(new, now)
        assert sums.used((0, "alice"), now) == pytest.approx(counted(record, period.begin(now), now), abs=1e-6)
        sums.forget(now)
    assert sums.used((0, "alice"), now) == pytest.approx(counted(record, period.begin(now), now), abs=1e-6)
