"""Fields of orders over time and of phases: spec.order and spec.phases of a QueuePolicy."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest

from gangline.api import names
from gangline.api.admission import AdmissionFacts, validate
from gangline.api.phases import PhasePolicy
from gangline.api.queue_orders import WEEKS, known_from
from gangline.api.read import parse, policy_reader
from gangline.api.read.reading import ParseError
from gangline.api.schedules import Span
from gangline.engine.model import OrderWhenFull

Json = dict[str, Any]
DAY = 86_400_000


def policy(**parts: Any) -> Json:
    spec = {"clusterQueues": {"names": ["q"]}, **parts}
    return {"apiVersion": "gangline.io/v1alpha1", "kind": "QueuePolicy", "metadata": {"name": "p"}, "spec": spec}


def window(name: str, key: str, days: str = "Saturday Sunday Monday", time: str = "09:00", **more: Any) -> Json:
    schedule = {"days": days.split(), "time": time, "duration": "8h", "timeZone": "Europe/Berlin", **more}
    return {"name": name, "key": key, "window": {"schedule": schedule}}


def millis(text: str) -> int:
    return round(datetime.fromisoformat(text).replace(tzinfo=UTC).timestamp() * 1000)


def steps(order: Json, known: Span) -> list[tuple[str, str, str]]:
    found = policy_reader.ordering(policy(order=order), known)
    assert found is not None
    return [(f"{datetime.fromtimestamp(s.at / 1000, UTC):%m-%d %H:%M}", s.key, s.window) for s in found.steps]


def test_c5_windows_follow_the_clocks_of_their_zone_on_the_day_on_which_they_are_put_forward() -> None:
    """Berlin's clocks are put forward on 2026-03-29: 9 o'clock is 8:00 UTC on the day before, and 7:00 from then on."""
    order = {"key": "ShortestFirst", "windows": [window("busy", "LargestFirst")]}
    assert steps(order, Span(millis("2026-03-28"), millis("2026-03-30"))) == [
        ("03-28 00:00", "ShortestFirst", ""),
        ("03-28 08:00", "LargestFirst", "busy"),
        ("03-28 16:00", "ShortestFirst", ""),
        ("03-29 07:00", "LargestFirst", "busy"),
        ("03-29 15:00", "ShortestFirst", ""),
    ]


def test_of_windows_that_overlap_the_later_one_in_the_list_counts() -> None:
    order = {
        "windows": [
            window("day", "LargestFirst", time="08:00", timeZone="UTC"),
            window("noon", "SmallestFirst", time="12:00", duration="1h", timeZone="UTC"),
        ]
    }
    assert steps(order, Span(millis("2026-05-02"), millis("2026-05-03"))) == [
        ("05-02 00:00", "Priority", ""),
        ("05-02 08:00", "LargestFirst", "day"),
        ("05-02 12:00", "SmallestFirst", "noon"),
        ("05-02 13:00", "LargestFirst", "day"),
        ("05-02 16:00", "Priority", ""),
    ]


def test_a_window_that_is_open_at_the_beginning_counts_from_there() -> None:
    order = {"windows": [window("day", "LargestFirst", time="08:00", timeZone="UTC")]}
    begin = millis("2026-05-02T10:00")
    assert steps(order, Span(begin, begin + 3_600_000)) == [("05-02 10:00", "LargestFirst", "day")]


def test_windows_of_years_are_all_known() -> None:
    order = {"windows": [window("mondays", "LargestFirst", "Monday")]}
    assert len(steps(order, Span(0, 1000 * DAY))) == 1 + 2 * len(range(4, 1000, 7))


def test_orders_are_known_two_weeks_ahead_and_are_the_same_all_week() -> None:
    begin = known_from(millis("2026-05-02"))
    for day in range(7):
        known = known_from(begin.start + day * DAY + 5)
        assert known == begin
        assert known.end - (begin.start + day * DAY) >= (WEEKS - 1) * 7 * DAY


def test_a_policy_with_one_order_has_no_steps() -> None:
    found = policy_reader.ordering(policy(order={"key": "LargestFirst"}), known_from(0))
    assert found is not None and not found.changes
    assert policy_reader.ordering(policy(order={}), known_from(0)) is None, "as Kueue"


def test_when_full_is_read_with_its_bounds() -> None:
    found = policy_reader.ordering(policy(order={"whenFull": {"key": "SmallestFirst", "of": "ClusterQueue"}}))
    assert found is not None and found.when_full == OrderWhenFull("SmallestFirst", 0.9, 0.75, "ClusterQueue")


@pytest.mark.parametrize(
    ("parts", "named"),
    [
        ({"order": {"windows": [window("a", "LargestFirst")], "whenFull": {"key": "Demand"}}}, ""),
        ({"order": {"windows": [window("a", "LargestFirst"), window("a", "Demand")]}}, "spec.order.windows[1].name"),
        (
            {"order": {"windows": [window("a", "Demand", timeZone="Mars/Olympus")]}},
            "spec.order.windows[0].window.schedule",
        ),
        ({"order": {"windows": [window("a", "Demand", time="25:00")]}}, "spec.order.windows[0].window.schedule.time"),
        ({"order": {"windows": [window(f"w{n}", "Demand") for n in range(17)]}}, "spec.order.windows"),
        ({"order": {"whenFull": {"key": "Demand", "above": "0.5"}}}, "spec.order.whenFull.below"),
        ({"order": {"whenFull": {"key": "Demand", "below": "0.9"}}}, "spec.order.whenFull.below"),
        ({"phases": {}}, ""),
        ({"phases": {"window": "5s"}}, "spec.phases.window"),
        ({"phases": {"window": "2h"}}, "spec.phases.window"),
        ({"phases": {"watching": "0.01"}}, "spec.phases.converged"),
        ({"phases": {"converged": "0"}}, "spec.phases.converged"),
    ],
)
def test_what_is_refused(parts: Json, named: str) -> None:
    errors = [str(error) for error in validate(policy(**parts), None, AdmissionFacts())]
    assert errors == [] if not named else named in errors[0]
    if named:
        with pytest.raises(ParseError):
            policy_reader.ordering(policy(**parts), known_from(0))
            policy_reader.phases(policy(**parts))


def test_phases_are_read() -> None:
    assert policy_reader.phases(policy()) is None and policy_reader.phases(None) is None
    assert policy_reader.phases(policy(phases={"window": "2m", "watching": "0.2"})) == PhasePolicy(120_000, 0.2, 0.01)
    victims = policy_reader.victims(policy(preemption={"convergedFirst": True}))
    assert victims is not None and victims.converged_first


@pytest.mark.parametrize(("status", "converged"), [("True", True), ("False", False)])
def test_the_condition_says_whether_it_has_converged(status: str, converged: bool) -> None:
    pods = {"spec": {"containers": [{"name": "main", "resources": {"requests": {"cpu": "1"}}}]}}
    row = {"type": names.CONVERGED, "status": status, "reason": "Converged", "message": ""}
    found = parse.workload(
        {
            "metadata": {"name": "w", "namespace": "team", "uid": "u"},
            "spec": {"queueName": "q", "podSets": [{"name": "main", "count": 1, "template": pods}]},
            "status": {"conditions": [row]},
        }
    )
    assert found.converged is converged
