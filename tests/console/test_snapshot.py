from __future__ import annotations

import pytest
from tests.console.objects import (
    GPU,
    NOW,
    cluster_queue,
    condition,
    flavor,
    local_queue,
    pending,
    running,
    workload,
)

from gangline.control.answers.workloads.snapshot import JobState, pod_requests, snapshot
from gangline.control.answers.workloads.words import why
from gangline.objects import Stored, WorkloadObject

QUEUES = [cluster_queue("vision", flavor("a100", 40, used=56, borrowed=16, borrowing_limit=24), pending=2, admitted=3)]


def view_of(obj):
    return snapshot([obj], QUEUES, [local_queue()]).workloads[0]


@pytest.mark.parametrize(
    ("conditions", "state", "reason"),
    [
        ([], JobState.PENDING, ""),
        ([condition("QuotaReserved", False, "WaitingForQuota")], JobState.PENDING, "WaitingForQuota"),
        ([condition("QuotaReserved", True)], JobState.RESERVED, "QuotaReserved"),
        (
            [condition("QuotaReserved", True), condition("Admitted", False, "UnsatisfiedAdmissionChecks")],
            JobState.RESERVED,
            "UnsatisfiedAdmissionChecks",
        ),
        ([condition("QuotaReserved", True), condition("Admitted", True)], JobState.STARTING, "Admitted"),
        (
            [
                condition("QuotaReserved", True),
                condition("Admitted", True),
                condition("PodsReady", False, "WaitForStart"),
            ],
            JobState.STARTING,
            "Admitted",
        ),
        (
            [condition("QuotaReserved", True), condition("Admitted", True), condition("PodsReady", True, "Started")],
            JobState.RUNNING,
            "Started",
        ),
        (
            [
                condition("QuotaReserved", True),
                condition("Admitted", True),
                condition("PodsReady", True, "Started"),
                condition("Evicted", True, "Preempted"),
            ],
            JobState.STOPPING,
            "Preempted",
        ),
        (
            [condition("QuotaReserved", False, "PendingEvaluation"), condition("Evicted", True, "Preempted")],
            JobState.PENDING,
            "PendingEvaluation",
        ),
        ([condition("Finished", True, "Succeeded"), condition("Admitted", True)], JobState.SUCCEEDED, "Succeeded"),
        ([condition("Finished", True, "Failed")], JobState.FAILED, "Failed"),
        ([condition("Finished", True, "OutOfSync")], JobState.FAILED, "OutOfSync"),
        ([condition("Finished", False)], JobState.PENDING, ""),
    ],
)
def test_the_state_follows_from_the_conditions(conditions, state, reason):
    view = view_of(workload("w", *conditions))
    assert (view.state, view.reason) == (state, reason)


def test_a_deactivated_workload_is_inactive_only_when_it_holds_nothing():
    evicted = condition("Evicted", True, "Deactivated")
    assert view_of(workload("w", evicted, active=False)).state is JobState.INACTIVE
    still_there = workload("w", evicted, condition("QuotaReserved", True), active=False)
    assert view_of(still_there).state is JobState.STOPPING


def test_since_is_when_the_state_began():
    view = view_of(running("w", ago=100))
    assert view.created == NOW - 100
    assert view.since == NOW - 10


def test_never_fits_is_told_by_the_condition_not_by_size_or_name():
    assert view_of(pending("w", "ExceedsMaxQuota", "too much", gpus=1)).never_fits
    assert not view_of(pending("never-fits", "WaitingForQuota", "later", gpus=4096)).never_fits
    assert not view_of(workload("w", condition("QuotaReserved", True, "ExceedsMaxQuota"), gpus=4096)).never_fits
    finished = workload(
        "w", condition("QuotaReserved", False, "ExceedsMaxQuota"), condition("Finished", True, "Failed")
    )
    assert not view_of(finished).never_fits


def test_gpus_come_from_the_template_while_pending_and_from_the_admission_after():
    assert view_of(pending("w", gpus=4, pods=3)).gpus == 12
    partly = running("w", gpus=4, pods=3)
    partly["status"]["admission"]["podSetAssignments"][0]["resourceUsage"][GPU] = "8"
    view = view_of(partly)
    assert view.gpus == 8
    assert view.held == {("a100", GPU): 8}
    assert view.flavors == ("a100",)


def test_pod_requests_take_limits_where_there_is_no_request_and_the_largest_init_container():
    spec = {
        "containers": [
            {"resources": {"limits": {GPU: 2, "cpu": "4"}, "requests": {"cpu": "500m"}}},
            {"resources": {"requests": {"cpu": "1"}}},
            {},
        ],
        "initContainers": [{"resources": {"requests": {"cpu": "1", GPU: 3}}}],
    }
    assert pod_requests(spec) == {GPU: 3, "cpu": 1500}


def test_an_amount_that_is_no_quantity_counts_as_nothing():
    assert view_of(pending("odd", gpus="many")).gpus == 0


def test_tpus_and_mig_slices_count_as_gpus_and_network_cards_do_not():
    obj = pending("w", gpus=0)
    resources = {"google.com/tpu": 4, "nvidia.com/mig-1g.10gb": 2, "rdma/ib": 8, "memory": "1Gi"}
    obj["spec"]["podSets"][0]["template"]["spec"]["containers"][0]["resources"] = {"limits": resources}
    assert view_of(obj).gpus == 6


def test_position_is_by_priority_then_age_within_a_cluster_queue():
    objects = [
        pending("young", ago=10),
        pending("old", ago=50),
        pending("urgent", priority=1000, ago=1),
        pending("elsewhere", namespace="team-language", ago=99),
        pending("lost", queue="no-such-queue", ago=99),
        running("busy", ago=99),
    ]
    routes = [local_queue(), local_queue(namespace="team-language", to="language")]
    seen = snapshot(objects, QUEUES, routes)
    assert {v.job_name: v.position for v in seen.workloads} == {
        "urgent": 0,
        "old": 1,
        "young": 2,
        "elsewhere": 0,
        "lost": None,
        "busy": None,
    }
    assert seen.waiting == {"vision": 3, "language": 1}


def test_what_runs_is_shown_first_then_the_line_then_what_ended():
    objects = [
        workload("done", condition("Finished", True, "Succeeded")),
        pending("second", ago=10),
        pending("first", ago=20),
        running("busy"),
    ]
    seen = snapshot(objects, QUEUES, [local_queue()])
    assert [v.job_name for v in seen.workloads] == ["busy", "first", "second", "done"]


def test_a_workload_without_an_owner_stands_for_itself():
    obj = pending("w")
    del obj["metadata"]["ownerReferences"]
    view = view_of(obj)
    assert (view.job_kind, view.job_name) == ("Workload", "job-w-1a2b3")


def test_a_cluster_queue_shows_quota_limits_and_use():
    queue = snapshot([], QUEUES, []).queue("vision")
    assert queue is not None and queue.active
    (share,) = queue.flavors
    assert (share.nominal, share.used, share.borrowed, share.borrowing_limit, share.lending_limit) == (
        40,
        56,
        16,
        24,
        None,
    )
    assert (queue.pending, queue.admitted, queue.cohort) == (2, 3, "lab")


def test_a_new_cluster_queue_without_status_is_not_active_yet():
    bare = Stored({"metadata": {"name": "new"}, "spec": {}})
    queue = snapshot([], [bare], []).queue("new")
    assert queue is not None
    assert not queue.active and "operator" in queue.message
    assert queue.flavors == ()


def test_a_preempted_workload_remembers_why_it_lost_its_place_until_it_has_a_new_one():
    back = workload(
        "w",
        condition("QuotaReserved", False, "WaitingForQuota"),
        condition("Evicted", True, "Preempted", "evicted"),
        condition("Preempted", True, "InCohortReclamation", "to accommodate"),
    )
    assert view_of(back).evicted == "InCohortReclamation: to accommodate"
    assert view_of(running("w")).evicted == ""


def test_pods_ready_of_an_earlier_start_does_not_count():
    again = workload(
        "w",
        condition("QuotaReserved", True, ago=5),
        condition("Admitted", True, ago=5),
        condition("PodsReady", True, "Started", ago=20),
    )
    assert view_of(again).state is JobState.STARTING
    again["status"]["conditions"][2] = condition("PodsReady", True, "Started", ago=5)
    assert view_of(again).state is JobState.RUNNING


def test_a_preempted_workload_names_the_job_that_it_made_room_for():
    message = (
        "Preempted to accommodate a workload (UID: uid-urgent, JobUID: x) due to prioritization in the ClusterQueue; y"
    )
    victim = running("victim")
    victim["status"]["conditions"].append(condition("Evicted", True, "Preempted", message))
    views = {v.job_name: v for v in snapshot([victim, pending("urgent")], QUEUES, [local_queue()]).workloads}
    assert views["victim"].evicted == "preempted for job/urgent (prioritization in the ClusterQueue)"
    alone = view_of(victim)
    assert alone.evicted == "preempted for another job (prioritization in the ClusterQueue)"
    assert why(alone) == alone.evicted


def test_a_group_is_called_after_the_object_that_it_was_made_for():
    def owned(kind: str, name: str, index: str = "") -> WorkloadObject:
        api_version = "apps/v1" if kind == "StatefulSet" else "leaderworkerset.x-k8s.io/v1"
        notes = {
            "kueue.x-k8s.io/is-group-workload": "true",
            "kueue.x-k8s.io/job-owner-gvk": f"{api_version}, Kind={kind}",
            "kueue.x-k8s.io/job-owner-name": name,
        }
        notes |= {"kueue.x-k8s.io/component-workload-index": index} if index else {}
        owners = [{"apiVersion": api_version, "kind": kind, "name": name, "uid": "u1"}]
        owners.append({"apiVersion": "v1", "kind": "Pod", "name": f"{name}-0", "uid": "u2"})
        meta = {"name": "w", "namespace": "ns", "uid": "w", "annotations": notes, "ownerReferences": owners}
        return WorkloadObject({"metadata": meta, "spec": {"podSets": []}, "status": {}})

    assert view_of(owned("StatefulSet", "db")).job == "statefulset/db"
    assert view_of(owned("LeaderWorkerSet", "llm", "1")).job == "leaderworkerset/llm-1"
    gone = owned("StatefulSet", "db")
    gone["metadata"]["ownerReferences"].pop(0)
    assert view_of(gone).job == "podgroup/w"
