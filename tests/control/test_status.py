"""What decisions and the ledger look like in the statuses that users and tools read."""

from __future__ import annotations

from typing import Any

from gangline.api.read import conditions
from gangline.control.writes.status import queue_status, run_changes, status_changes
from gangline.control.writes.status.change import Change
from gangline.engine import model

Json = dict[str, Any]
NOW = 1_700_000_000_000


def evict(status: Json, **fields: Any) -> Json:
    status_changes.evict(model.Evict("ns/w", "u", **{"reason": "Deactivated", "message": "m", **fields}))(status, NOW)
    return conditions.find(status["conditions"], "Evicted") or {}


def admit(checks: tuple[str, ...] = (), *, pods_follow: bool = False) -> Change:
    assignment = model.PodSetAssignment("main", 1, {"cpu": "f"}, {"cpu": 1500})
    decision = model.Admit("ns/w", "u", model.Admission("cq", (assignment,)), not checks, NOW, checks)
    return status_changes.admit(decision, pods_follow=pods_follow)


def test_a_deactivation_names_its_cause() -> None:
    status: Json = {}
    assert (
        evict(status, underlying_cause="RequeuingLimitExceeded")["reason"] == "DeactivatedDueToRequeuingLimitExceeded"
    )
    assert status["schedulingStats"]["evictions"] == [
        {"reason": "Deactivated", "underlyingCause": "RequeuingLimitExceeded", "count": 1}
    ]
    assert evict({})["reason"] == "Deactivated"


def test_how_a_search_has_found_places_is_recorded_until_they_are_found_without_one() -> None:
    def condition(searched: str, status: Json) -> tuple[str, str, str] | None:
        status_changes.admit(model.Admit("ns/w", "u", model.Admission("cq", ()), True, NOW, searched=searched))(
            status, NOW
        )
        row = conditions.find(status["conditions"], "PlacementSearched")
        return None if row is None else (row["status"], row["reason"], row["message"])

    status: Json = {}
    assert condition("", status) is None
    assert condition("a search did", status) == ("True", "Searched", "a search did")
    assert condition("", status) == ("False", "NotSearched", "Places were found without a search")


def test_an_eviction_for_pods_says_what_they_waited_for() -> None:
    for reason, cause in ((None, "WaitForStart"), ("WaitForStart", "WaitForStart"), ("WaitForRecovery",) * 2):
        status: Json = {"conditions": []}
        if reason is not None:
            conditions.put(status["conditions"], "PodsReady", False, reason, "m", now=NOW)
        assert evict(status, reason="PodsReadyTimeout")["reason"] == "PodsReadyTimeout"
        [row] = status["schedulingStats"]["evictions"]
        assert (row["reason"], row["underlyingCause"]) == ("PodsReadyTimeout", cause)


def test_a_deactivation_ends_the_back_off() -> None:
    status: Json = {}
    evict(status, reason="PodsReadyTimeout", requeue_at=NOW + 60_000, requeue_count=2)
    evict(status, underlying_cause="RequeuingLimitExceeded")
    assert "requeueState" not in status


def test_the_end_of_a_back_off_changes_the_condition_only_where_it_said_so() -> None:
    finished = status_changes.requeue(model.Requeue("team/w", "u", "BackoffFinished"))
    status: Json = {"requeueState": {"count": 1, "requeueAt": "2026-01-01T00:00:00Z"}, "conditions": []}
    finished(status, NOW)
    assert status == {"requeueState": {"count": 1}, "conditions": []}
    conditions.put(status["conditions"], "Requeued", False, "PodsReadyTimeout", "m", now=NOW)
    finished(status, NOW)
    assert [(row["status"], row["reason"]) for row in status["conditions"]] == [("True", "BackoffFinished")]


def test_evictions_are_counted_by_reason() -> None:
    status: Json = {}
    for _ in range(3):
        evict(status, reason="PodsReadyTimeout", requeue_at=NOW + 60_000, requeue_count=2)
    assert status["schedulingStats"]["evictions"][0]["count"] == 3
    assert status["requeueState"] == {"count": 2, "requeueAt": conditions.timestamp(NOW + 60_000)}


def test_admission_reverses_an_eviction_and_keeps_what_it_said() -> None:
    status: Json = {}
    evict(status, reason="Preempted")
    admit(pods_follow=True)(status, NOW + 1000)
    evicted = conditions.find(status["conditions"], "Evicted") or {}
    assert (evicted["status"], evicted["reason"], evicted["message"]) == ("False", "QuotaReserved", "Previously: m")
    assert conditions.is_true(status["conditions"], "Admitted")
    ready = conditions.find(status["conditions"], "PodsReady") or {}
    assert (ready["status"], ready["reason"]) == ("False", "WaitForStart")
    assert status["admission"]["podSetAssignments"][0]["resourceUsage"] == {"cpu": "1500m"}


def test_what_it_counts_for_is_there_while_it_waits() -> None:
    why = model.Explanation("WaitingForQuota", "m")
    rows = [{"name": "main", "resources": {"cpu": "3"}}]
    status: Json = {}
    status_changes.pending(why, rows)(status, NOW)
    assert status["resourceRequests"] == rows
    admit()(status, NOW)
    assert "resourceRequests" not in status
    status = {"resourceRequests": rows}
    status_changes.pending(why)(status, NOW)
    assert "resourceRequests" not in status, "its templates say it now"


def test_a_reservation_that_somebody_else_wrote_stays() -> None:
    status: Json = {}
    admit()(status, NOW)
    before = repr(status)
    status_changes.pending(model.Explanation("AdmissionGated", "m"))(status, NOW + 1000)
    assert repr(status) == before


def test_checks_stand_between_reservation_and_admission() -> None:
    status: Json = {}
    admit(("budget",))(status, NOW)
    assert conditions.is_true(status["conditions"], "QuotaReserved")
    assert (conditions.find(status["conditions"], "Admitted") or {})["reason"] == "UnsatisfiedAdmissionChecks"
    assert [check["state"] for check in status["admissionChecks"]] == ["Pending"]


def test_release_adds_up_the_time_it_ran() -> None:
    status: Json = {}
    admit()(status, NOW)
    evict(status, reason="Preempted")
    status_changes.release(status, NOW + 90_000)
    status_changes.release(status, NOW + 95_000)
    assert status["accumulatedPastExecutionTimeSeconds"] == 90
    assert "admission" not in status
    assert conditions.is_true(status["conditions"], "Requeued")


def test_reclaimable_pods_never_decrease() -> None:
    status: Json = {"reclaimablePods": [{"name": "a", "count": 3}]}
    run_changes.reclaim({"a": 1, "b": 2})(status, NOW)
    assert status["reclaimablePods"] == [{"name": "a", "count": 3}, {"name": "b", "count": 2}]


def test_a_local_queue_without_cluster_queue_lists_no_flavors() -> None:
    gone = model.QueueStatus(
        False, "ClusterQueueDoesNotExist", "Can't submit new workloads to clusterQueue", 0, 0, 0, (), ()
    )
    before = queue_status.local_queue_status(a_queue(), {}, now=NOW, generation=1)
    status = queue_status.local_queue_status(gone, before, now=NOW, generation=1)
    assert {"flavorsUsage", "flavorsReservation"} <= before.keys()
    assert not {"flavorsUsage", "flavorsReservation"} & status.keys()


def a_queue(**fields: Any) -> model.QueueStatus:
    usage = (model.ResourceUsage("f", "cpu", 1500, 500), model.ResourceUsage("f", "nvidia.com/gpu", 8, 0))
    return model.QueueStatus(True, "Ready", "Can admit new workloads", 1, 2, 2, usage, usage, **fields)


def test_queue_statuses_keep_what_is_not_ours_and_the_time_of_what_did_not_change() -> None:
    first = queue_status.cluster_queue_status(a_queue(weighted_share=7), {}, now=NOW, generation=1, fair=True)
    again = queue_status.cluster_queue_status(
        a_queue(), {**first, "other": 1}, now=NOW + 5000, generation=2, fair=False
    )
    assert again["other"] == 1
    assert again["conditions"][0]["lastTransitionTime"] == first["conditions"][0]["lastTransitionTime"]
    assert first["fairSharing"] == {"weightedShare": 7}
    assert first["flavorsUsage"] == [
        {
            "name": "f",
            "resources": [
                {"name": "cpu", "total": "1500m", "borrowed": "500m"},
                {"name": "nvidia.com/gpu", "total": "8", "borrowed": "0"},
            ],
        }
    ]


def test_past_usage_survives_in_the_local_queue() -> None:
    usage = a_queue(consumed={"nvidia.com/gpu": 3.6}, consumed_at=NOW)
    status = queue_status.local_queue_status(usage, {}, now=NOW, generation=1)
    assert status["fairSharing"]["admissionFairSharingStatus"] == {
        "consumedResources": {"cpu": "0", "nvidia.com/gpu": "4"},
        "lastUpdate": conditions.timestamp(NOW),
    }
    assert "fairSharing" not in queue_status.local_queue_status(a_queue(), {}, now=NOW, generation=1)
