"""Reservations: what is refused, and which windows a schedule means, over changes of the clocks too."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gangline.api import admission
from gangline.api.reservations import SomeNodes, reservation
from gangline.api.schedules import LONGEST_ONCE, Span, Weekly, common, first_common, meet, windows
from gangline.engine.model import Deadline

MINUTE, HOUR, DAY = 60_000, 3_600_000, 86_400_000


def instant(text: str) -> int:
    return round(datetime.fromisoformat(text).timestamp() * 1000)


def shown(spans: list[Span]) -> list[str]:
    return [f"{datetime.fromtimestamp(span.start / 1000, UTC):%m-%d %H:%M}" for span in spans]


def resource(**spec: Any) -> dict[str, Any]:
    given = {"window": {"start": "2026-12-01T17:40:00Z", "end": "2026-12-01T20:00:00Z"}, "nodes": {"names": ["n1"]}}
    return {
        "apiVersion": "gangline.io/v1alpha1",
        "kind": "Reservation",
        "metadata": {"name": "weekly"},
        "spec": {**given, **spec},
    }


def schedule(**fields: Any) -> dict[str, Any]:
    return {"schedule": {"days": ["Sunday"], "time": "17:40", "duration": "6h", **fields}}


# --- reading ----------------------------------------------------------------------------------------------------------


def test_a_reservation_is_read_with_its_defaults() -> None:
    read = reservation(resource())
    assert read.when == Span(instant("2026-12-01T17:40:00Z"), instant("2026-12-01T20:00:00Z"))
    assert (read.deadline, read.maintenance) == (Deadline(30 * MINUTE, MINUTE), True)
    owned = {"clusterQueues": ["a"], "localQueues": [{"namespace": "team", "name": "b"}], "users": ["mira"]}
    read = reservation(resource(**{"for": owned}))
    assert (read.owners, read.maintenance, read.soft) == (({"a"}, {"team/b"}, {"mira"}), False, False)
    assert reservation(resource(**{"for": {"users": ["mira"]}, "firm": "Soft"})).soft
    amounts = {"flavor": "a", "resources": {"nvidia.com/gpu": 16, "cpu": "1500m"}}
    wanted = SomeNodes("a", amounts=(("cpu", 1500), ("nvidia.com/gpu", 16)))
    assert reservation(resource(nodes={"anyOf": amounts})).any_of == wanted


@pytest.mark.parametrize(
    ("spec", "field"),
    [
        ({"window": {}}, "spec.window"),
        ({"window": {"start": "2026-12-01T17:40:00Z"}}, "spec.window.end"),
        ({"window": {"start": "2026-12-01T17:40:00Z", "end": "2026-12-01T17:40:00Z"}}, "spec.window.end"),
        ({"window": {"start": "2026-12-01T17:40:00Z", "end": "2029-12-01T17:40:00Z"}}, "spec.window.end"),
        ({"window": {"start": "soon", "end": "2029-12-01T17:40:00Z"}}, "spec.window.start"),
        ({"window": {**schedule(), "start": "2026-12-01T17:40:00Z"}}, "spec.window"),
        ({"window": schedule(days=[])}, "spec.window.schedule.days"),
        ({"window": schedule(days=["Funday"])}, "spec.window.schedule.days[0]"),
        ({"window": schedule(time="24:00")}, "spec.window.schedule.time"),
        ({"window": schedule(duration="0s")}, "spec.window.schedule.duration"),
        ({"window": schedule(duration="169h")}, "spec.window.schedule.duration"),
        ({"window": schedule(timeZone="Mars/Olympus")}, "spec.window.schedule.timeZone"),
        ({"window": schedule(timeZone="../../etc/passwd")}, "spec.window.schedule.timeZone"),
        ({"window": schedule(timeZone="A" * 5000)}, "spec.window.schedule.timeZone"),
        ({"nodes": {}}, "spec.nodes"),
        ({"nodes": {"names": ["n"] * 1001}}, "spec.nodes.names"),
        ({"nodes": {"anyOf": {"flavor": "a", "count": 0}}}, "spec.nodes.anyOf.count"),
        ({"nodes": {"anyOf": {"flavor": "a"}}}, "spec.nodes.anyOf"),
        ({"nodes": {"anyOf": {"flavor": "a", "count": 1, "resources": {"cpu": 1}}}}, "spec.nodes.anyOf"),
        ({"nodes": {"anyOf": {"flavor": "a", "resources": {"cpu": 0}}}}, "spec.nodes.anyOf.resources"),
        ({"nodes": {"anyOf": {"flavor": "a", "resources": {"cpu": "9" * 999}}}}, "spec.nodes.anyOf.resources"),
        ({"nodes": {"anyOf": {"flavor": "a", "resources": {"cpu": []}}}}, "spec.nodes.anyOf.resources"),
        ({"for": {}}, "spec.for"),
        ({"for": {"users": [""]}}, "spec.for.users[0]"),
        ({"for": {"users": ["a"] * 65}}, "spec.for.users"),
        ({"firm": "Soft"}, "spec.firm"),
        ({"firm": "Steel", "for": {"users": ["a"]}}, "spec.firm"),
        ({"notice": "169h"}, "spec.notice"),
        ({"stopBefore": "-1m"}, "spec.stopBefore"),
        ({"startWithCheckpoints": "169h"}, "spec.startWithCheckpoints"),
        ({"startWithCheckpoints": "1h", "firm": "Soft", "for": {"users": ["a"]}}, "spec.startWithCheckpoints"),
    ],
)
def test_what_cannot_be_honoured_is_refused_by_its_field(spec: dict[str, Any], field: str) -> None:
    errors = admission.validate(resource(**spec), None, admission.AdmissionFacts())
    assert [error.path for error in errors] == [field]


def test_a_valid_one_is_accepted_and_nodes_that_add_up_are_said() -> None:
    assert (
        admission.validate(resource(window=schedule(timeZone="Europe/Berlin")), None, admission.AdmissionFacts()) == []
    )
    both = resource(nodes={"names": ["n1"], "matchLabels": {"a": "b"}})
    assert "add up" in admission.warnings(both)[0]
    assert admission.warnings(resource()) == []


def test_a_window_that_is_over_and_queues_that_are_not_there_are_said() -> None:
    once = resource(window={"start": "2026-12-01T08:00:00Z", "end": "2026-12-01T10:00:00Z"})
    end = instant("2026-12-01T10:00:00Z")
    assert admission.warnings(once, admission.AdmissionFacts(now=end - 1)) == []
    [told] = admission.warnings(once, admission.AdmissionFacts(now=end))
    assert told == "spec.window: the window is over, so it has no effect"
    assert admission.warnings(resource(window=schedule()), admission.AdmissionFacts(now=end)) == []
    owners = {
        "clusterQueues": ["a", *(f"x{n}" for n in range(20))],
        "localQueues": [{"namespace": "ml", "name": name} for name in "ab"],
    }
    facts = admission.AdmissionFacts(
        cluster_queue_is_missing=lambda name: name != "a",
        local_queue_is_missing=lambda namespace, name: (namespace, name) == ("ml", "b"),
    )
    assert admission.warnings(resource(**{"for": owners}), facts) == [
        *(f"spec.for.clusterQueues: there is no ClusterQueue {name} yet" for name in ("x0", "x1", "x10")),
        "spec.for.localQueues: there is no LocalQueue ml/b yet",
    ], "so many are asked for"


def test_a_long_name_is_refused() -> None:
    named = resource() | {"metadata": {"name": "a" * 64}}
    assert [e.path for e in admission.validate(named, None, admission.AdmissionFacts())] == ["metadata.name"]


# --- windows ----------------------------------------------------------------------------------------------------------

BERLIN = Weekly(frozenset({6}), 2 * 60 + 30, HOUR, "Europe/Berlin")


def test_a_window_keeps_its_time_of_day_when_the_clocks_change() -> None:
    late = Weekly(frozenset({6}), 18 * 60, 2 * HOUR, "Europe/Berlin")
    assert shown(windows(late, instant("2026-10-17T00:00:00Z"), 3)) == ["10-18 16:00", "10-25 17:00", "11-01 17:00"]


def test_a_time_that_the_clocks_skip_comes_as_much_later_and_one_that_comes_twice_counts_once() -> None:
    spring = windows(BERLIN, instant("2026-03-28T00:00:00Z"), 1)
    assert shown(spring) == ["03-29 01:30"]  # 3:30 in summer time
    assert spring[0].end - spring[0].start == HOUR
    assert shown(windows(BERLIN, instant("2026-10-24T00:00:00Z"), 2)) == ["10-25 00:30", "11-01 01:30"]


def test_windows_that_overlap_are_one_and_an_endless_one_is_cut() -> None:
    both = Weekly(frozenset({0, 1}), 12 * 60, 36 * HOUR, "UTC")
    assert [(s.end - s.start) // HOUR for s in windows(both, instant("2026-11-29T00:00:00Z"), 2)] == [60, 60]
    endless = Weekly(frozenset(range(7)), 0, DAY, "UTC")
    (first, second) = windows(endless, instant("2026-11-29T12:00:00Z"), 2)
    assert first.end == second.start
    assert first.end - first.start <= LONGEST_ONCE


def test_a_window_that_is_over_does_not_come_again() -> None:
    once = Span(0, HOUR)
    assert windows(once, HOUR - 1, 4) == [once]
    assert windows(once, HOUR, 4) == []


ZONES = ("UTC", "Europe/Berlin", "America/New_York", "Australia/Lord_Howe", "Asia/Kathmandu", "Pacific/Apia")


@settings(max_examples=40, deadline=None)
@given(
    days=st.frozensets(st.integers(0, 6), min_size=1),
    minute=st.integers(0, 24 * 60 - 1),
    zone=st.sampled_from(ZONES),
    after=st.sampled_from(
        ("2026-03-07", "2026-03-28", "2026-04-04", "2026-10-03", "2026-10-24", "2026-10-31", "2026-06-01")
    ),
)
def test_windows_begin_when_the_clocks_show_their_time(
    days: frozenset[int], minute: int, zone: str, after: str
) -> None:
    """Against a look at the clocks in every minute. Days on which the time is skipped are left to the test above."""
    begin = datetime.fromisoformat(f"{after}T00:00:00+00:00")
    found = {s.start for s in windows(Weekly(days, minute, MINUTE, zone), round(begin.timestamp() * 1000), 99)}
    seen: dict[Any, int] = {}
    shows: set[Any] = set()
    for number in range(4 * 24 * 60):
        moment = begin + timedelta(minutes=number)
        local = moment.astimezone(ZoneInfo(zone))
        shows.add(local.date())
        if local.weekday() in days and local.hour * 60 + local.minute == minute:
            seen.setdefault(local.date(), round(moment.timestamp() * 1000))
    # the first minute may be the second time that the clocks show it; and the last day is not seen whole
    whole = {day: start for day, start in seen.items() if day not in (min(shows), max(shows))}
    assert set(whole.values()) <= found
    skipped = [start for start in found if start not in seen.values()]
    for start in skipped:
        if begin.timestamp() * 1000 + DAY <= start < begin.timestamp() * 1000 + 3 * DAY:
            local = datetime.fromtimestamp(start / 1000, ZoneInfo(zone))
            assert local.hour * 60 + local.minute != minute, "the clocks skipped it on that day"


SPANS = st.builds(
    lambda start, length: Span(start * HOUR, (start + length) * HOUR), st.integers(0, 240), st.integers(1, 90)
)
SCHEDULES = st.builds(
    Weekly,
    st.frozensets(st.integers(0, 6), min_size=1, max_size=3),
    st.integers(0, 23).map(lambda hour: hour * 60),
    st.integers(1, 30).map(lambda hours: hours * HOUR),
    st.sampled_from(("UTC", "America/New_York")),
)


@given(one=SPANS | SCHEDULES, other=SPANS | SCHEDULES, after=st.integers(0, 300).map(lambda hour: hour * HOUR))
def test_the_first_windows_that_two_have_in_common(one: Span | Weekly, other: Span | Weekly, after: int) -> None:
    """Against all pairs of windows of the first weeks."""
    both = first_common(one, other, after)
    pairs = [(a, b) for a in windows(one, after, 30) for b in windows(other, after, 30) if meet(a, b)]
    assert (both is None) == (not pairs)
    if both is not None:
        assert meet(*both)
        assert common(*both).start == min(common(a, b).start for a, b in pairs)
    swapped = first_common(other, one, after)
    assert (swapped and (swapped[1], swapped[0])) == both
