"""What decisions write into the status of a Workload."""

from __future__ import annotations

from typing import Any

import pytest

from gangline.control.status import status_changes
from gangline.engine.model import AskChecks, Evict, Preempt

NOW = 1_770_000_000_000

EVICT = Evict("team/w", "u", "PodsReadyTimeout", "too slow", requeue_at=NOW + 60_000, requeue_count=1)
PREEMPT = Preempt("team/w", "u", "InClusterQueue", "for another", "team/v", "v")


def running() -> dict[str, Any]:
    return {
        "conditions": [],
        "unhealthyNodes": [{"name": "n1"}],
        "admissionChecks": [
            {"name": "ready", "state": "Ready", "message": "here it is", "podSetUpdates": [{"name": "main"}]},
            {"name": "retry", "state": "Retry", "message": "no", "requeueAfterSeconds": 30, "retryCount": 1},
            {"name": "pending", "state": "Pending", "message": "asked"},
        ],
    }


@pytest.mark.parametrize("change", [status_changes.evict(EVICT), status_changes.preempt(PREEMPT)])
def test_whoever_is_sent_away_is_checked_again(change: status_changes.Change) -> None:
    status = running()
    change(status, NOW)
    at = "2026-02-02T02:40:00Z"
    again = "Reset to Pending after eviction. Previously: "
    assert status["admissionChecks"] == [
        {"name": "ready", "state": "Pending", "message": f"{again}Ready", "lastTransitionTime": at},
        {"name": "retry", "state": "Pending", "message": f"{again}Retry", "lastTransitionTime": at, "retryCount": 2},
        {"name": "pending", "state": "Pending", "message": "asked"},
    ]
    assert "unhealthyNodes" not in status, "they were of the placement that it gives up"


def test_without_checks_none_are_listed() -> None:
    status: dict[str, Any] = {"conditions": []}
    status_changes.preempt(PREEMPT)(status, NOW)
    assert "admissionChecks" not in status


def test_checks_that_were_answered_keep_their_answers_when_others_join_them() -> None:
    status = running()
    status_changes.ask_checks(AskChecks("team/w", "u", ("ready", "new")))(status, NOW)
    assert [(row["name"], row["state"]) for row in status["admissionChecks"]] == [
        ("ready", "Ready"),
        ("new", "Pending"),
    ]
