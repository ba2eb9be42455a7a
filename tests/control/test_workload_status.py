"""What decisions write into the status of a Workload."""

from __future__ import annotations

from typing import Any

import pytest

from gangline.api.read import conditions
from gangline.control.writes.status import older_words, run_changes, status_changes
from gangline.control.writes.status.change import Change
from gangline.engine.model import AskChecks, Evict, Explanation, Preempt, Withdraw

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
            {"name": "rejected", "state": "Rejected", "message": "never", "retryCount": 3},
            {"name": "pending", "state": "Pending", "message": "asked"},
        ],
    }


@pytest.mark.parametrize("change", [status_changes.evict(EVICT), status_changes.preempt(PREEMPT)])
def test_whoever_is_sent_away_is_checked_again(change: Change) -> None:
    status = running()
    change(status, NOW)
    at = "2026-02-02T02:40:00Z"
    again = "Reset to Pending after eviction. Previously: "
    assert status["admissionChecks"] == [
        {"name": "ready", "state": "Pending", "message": f"{again}Ready", "lastTransitionTime": at},
        {
            "name": "retry",
            "state": "Pending",
            "message": f"{again}Retry",
            "lastTransitionTime": at,
            "requeueAfterSeconds": 30,
            "retryCount": 2,
        },
        {
            "name": "rejected",
            "state": "Pending",
            "message": f"{again}Rejected",
            "lastTransitionTime": at,
            "retryCount": 3,
        },
        {"name": "pending", "state": "Pending", "message": "asked"},
    ]
    assert "unhealthyNodes" not in status, "they were of the placement that it gives up"


def test_whoever_waits_is_told_its_checks_but_not_who_holds_quota_meanwhile() -> None:
    decision = AskChecks("team/w", "w", ("capacity",))
    waiting: dict[str, Any] = {"conditions": [], "admissionChecks": [{"name": "old", "state": "Ready"}]}
    status_changes.list_checks(decision)(waiting, NOW)
    assert [(row["name"], row["state"]) for row in waiting["admissionChecks"]] == [("capacity", "Pending")]
    reserved: dict[str, Any] = {"conditions": [{"type": "QuotaReserved", "status": "True"}], "admissionChecks": []}
    status_changes.list_checks(decision)(reserved, NOW)
    assert reserved["admissionChecks"] == []


def test_a_reservation_ends_with_its_queue_unless_it_was_admitted_meanwhile() -> None:
    change = status_changes.withdraw(Withdraw("team/w", "w", "ClusterQueue q"))
    status: dict[str, Any] = {"admission": {}, "conditions": [{"type": "QuotaReserved", "status": "True"}]}
    change(status, NOW)
    assert "admission" not in status
    assert conditions.find(status["conditions"], "QuotaReserved")["status"] == "False"  # type: ignore[index]
    status = {"admission": {}, "conditions": [{"type": "Admitted", "status": "True"}]}
    change(status, NOW)
    assert "admission" in status


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


def said(status: dict[str, Any], kind: str) -> tuple[str, str, str]:
    found = conditions.find(status["conditions"], kind)
    assert found is not None
    return found["status"], found["reason"], found["message"]


def test_whoever_waits_is_said_not_to_be_admitted() -> None:
    status: dict[str, Any] = {}
    status_changes.pending(Explanation("WaitingForQuota", "1 more needed"))(status, NOW)
    assert said(status, "QuotaReserved") == ("False", "WaitingForQuota", "1 more needed")
    assert said(status, "Admitted") == ("False", "NoReservation", "The workload has no reservation")


def test_older_words_say_so_only_of_whoever_was_admitted_before() -> None:
    new: dict[str, Any] = {}
    status_changes.pending(Explanation("WaitingForQuota", "1 more needed"))(new, NOW)
    older_words.translate({}, new)
    assert [row["type"] for row in new["conditions"]] == ["QuotaReserved"]
    before = {"conditions": [{"type": "Admitted", "status": "True", "reason": "Admitted"}]}
    again: dict[str, Any] = {"conditions": [dict(before["conditions"][0])]}
    status_changes.pending(Explanation("WaitingForQuota", "1 more needed"))(again, NOW)
    older_words.translate(before, again)
    assert said(again, "Admitted")[:2] == ("False", "NoReservation")


@pytest.mark.parametrize("reason", ["Deactivated", "DeactivatedDueToAdmissionCheck"])
def test_whoever_was_deactivated_is_said_to_be_when_its_quota_is_released(reason: str) -> None:
    status: dict[str, Any] = {"admission": {"clusterQueue": "main"}, "conditions": []}
    conditions.put(status["conditions"], "Evicted", True, reason, "by hand", now=NOW)
    status_changes.release(status, NOW)
    assert said(status, "QuotaReserved") == ("False", "Deactivated", "The workload is deactivated")
    assert said(status, "Requeued") == ("False", reason, "by hand")


def test_a_reservation_that_was_made_before_its_explanation_is_written_stands() -> None:
    reserved = {
        "type": "QuotaReserved",
        "status": "True",
        "reason": "QuotaReserved",
        "message": "",
        "lastTransitionTime": "",
    }
    status: dict[str, Any] = {"admission": {"clusterQueue": "main"}, "conditions": [dict(reserved)]}
    status_changes.pending(Explanation("WaitingForQuota", "1 more needed"))(status, NOW)
    assert status == {"admission": {"clusterQueue": "main"}, "conditions": [reserved]}


def test_whoever_was_too_late_waits_for_its_start() -> None:
    status: dict[str, Any] = {"admission": {"clusterQueue": "main"}, "conditions": []}
    status_changes.evict(EVICT)(status, NOW)
    status_changes.release(status, NOW)
    assert said(status, "PodsReady") == ("False", "WaitForStart", run_changes.NOT_READY)


def test_a_waiting_workload_that_is_deactivated_forgets_its_pauses() -> None:
    status: dict[str, Any] = {"requeueState": {"count": 2, "requeueAt": "2026-02-02T02:41:00Z"}}
    status_changes.pending(Explanation("WaitingForQuota", "1 more needed"))(status, NOW)
    assert status["requeueState"]["count"] == 2
    status_changes.pending(Explanation("Deactivated", "The workload is deactivated"))(status, NOW)
    assert "requeueState" not in status


def test_a_waiting_workload_that_is_deactivated_is_evicted_once() -> None:
    status: dict[str, Any] = {}
    for _ in range(2):
        status_changes.pending(Explanation("Deactivated", "The workload is deactivated"))(status, NOW)
    assert said(status, "Evicted") == ("True", "Deactivated", "The workload is deactivated")
    assert [row["count"] for row in status["schedulingStats"]["evictions"]] == [1]


def test_what_was_said_of_a_workload_when_it_was_tried_stands() -> None:
    status: dict[str, Any] = {}
    status_changes.pending(Explanation("WaitingForQuota", "1 more needed"))(status, NOW)
    status_changes.bypassed(Explanation("WaitingForQuota", "2 more needed"))(status, NOW)
    assert said(status, "QuotaReserved") == ("False", "WaitingForQuota", "1 more needed")
    status_changes.pending(Explanation("Suspended", "LocalQueue lq is inactive"))(status, NOW)
    status_changes.bypassed(Explanation("WaitingForQuota", "2 more needed"))(status, NOW)
    assert said(status, "QuotaReserved") == ("False", "WaitingForQuota", status_changes.BYPASSED)


def test_nothing_is_admitted_without_quota() -> None:
    status: dict[str, Any] = {"admissionChecks": [{"name": "c", "state": "Ready"}]}
    status_changes.complete_admission()(status, NOW)
    assert status.get("conditions", []) == []


def test_one_whose_devices_cannot_be_counted_is_not_queued_until_they_can() -> None:
    status: dict[str, Any] = {}
    status_changes.pending(Explanation("Misconfigured", "no such devices", not_queued=True))(status, NOW)
    row = conditions.find(status["conditions"], "Requeued")
    assert row is not None
    assert (row["status"], row["reason"], row["message"]) == ("False", "Inadmissible", "no such devices")
    status_changes.pending(Explanation("WaitingForQuota", "1 more needed"))(status, NOW)
    assert conditions.find(status["conditions"], "Requeued") is None
    status["conditions"].append({"type": "Requeued", "status": "False", "reason": "PodsReadyTimeout"})
    status_changes.pending(Explanation("WaitingForQuota", "2 more needed"))(status, NOW)
    assert conditions.find(status["conditions"], "Requeued") is not None, "it backs off"
