"""The story of a workload as `gangline why --history` prints it."""

from __future__ import annotations

import re

from gangline.console.views import history


def test_the_operator_tells_a_story_and_people_read_a_clock() -> None:
    rows = [
        {"at": 1_700_000_000.0, "state": "Pending", "cause": "", "decision": ""},
        {"at": 1_700_000_001.5, "state": "Admitted", "cause": "Quota reserved", "decision": "Admit"},
        {"at": None, "state": "Evicting", "cause": "Preempted for ml/b", "decision": "Preempt"},
    ]
    events = history.of_answer({"events": rows})
    assert [event.at for event in events] == [1_700_000_000.0, 1_700_000_001.5, None]
    lines = history.rendered(events)
    assert [re.sub(r"\d", "9", line) for line in lines[:2]] == [
        "9999-99-99 99:99:99  Pending",
        "9999-99-99 99:99:99  Admitted  Quota reserved",
    ]
    assert lines[2] == "just now             Evicting  Preempted for ml/b"
    assert events[1].as_json()["decision"] == "Admit"
    assert history.of_answer({"events": []}) == []


def test_without_an_operator_the_conditions_tell() -> None:
    rows = [
        {
            "type": "Evicted",
            "status": "True",
            "lastTransitionTime": "2026-01-01T00:00:20Z",
            "message": "Preempted to …",
        },
        {
            "type": "QuotaReserved",
            "status": "False",
            "lastTransitionTime": "2026-01-01T00:00:30Z",
            "message": "no quota",
        },
        {"type": "Admitted", "status": "False", "lastTransitionTime": "2026-01-01T00:00:30Z"},
        {"type": "PodsReady", "status": "True", "lastTransitionTime": "2026-01-01T00:00:05Z"},
    ]
    meta = {"creationTimestamp": "2026-01-01T00:00:00Z"}
    found = history.of_conditions({"metadata": meta, "status": {"conditions": rows}})
    assert [(event.state, event.cause) for event in found] == [
        ("Pending", "Created"),
        ("Evicting", "Preempted to …"),
        ("Pending", "no quota"),
    ]
