from __future__ import annotations

from typing import Any

import pytest
from tests.console.objects import GPU, NOW, cluster_queue, condition, flavor, local_queue, pending, running, workload

from gangline.bounded import some
from gangline.control.answers.explanation import NAMED, explain, needs, ordinal
from gangline.control.answers.workloads.snapshot import AnswerSnapshot, snapshot

QUEUES = [
    cluster_queue("vision", flavor("a100", 40, 40), pending=2, admitted=2),
    cluster_queue("language", flavor("a100", 24, 24, borrowing_limit=8), admitted=1),
]
ROUTES = [local_queue(), local_queue(namespace="team-language", to="language")]
HOLDERS = [
    running("big", pods=4, priority=100),
    running("small", gpus=8),
    running("theirs", "language", namespace="team-language", pods=3),
]


def short(amount: int) -> str:
    return f"couldn't assign flavors to pod set main: insufficient unused quota for {GPU} in flavor a100, {amount} more needed"


def explained(obj: dict[str, Any], *others: dict[str, Any], queues: list[dict[str, Any]] = QUEUES) -> dict[str, str]:
    seen, view = look(obj, *others, queues=queues)
    lines: dict[str, str] = {}
    for line in explain(view, seen, NOW):
        lines[line.label] = f"{lines[line.label]} | {line.text}" if line.label in lines else line.text
    return lines


def look(obj, *others, queues=QUEUES) -> tuple[AnswerSnapshot, Any]:
    seen = snapshot([obj, *others, *HOLDERS], queues, ROUTES)
    return seen, next(v for v in seen.workloads if v.uid == obj["metadata"]["uid"])


def test_a_waiting_job_hears_its_place_its_quota_and_who_is_ahead():
    first = pending("first", "WaitingForQuota", short(8), priority=1000, ago=5)
    lines = explained(pending("mine", "WaitingForQuota", short(8), ago=90), first)
    assert lines["state"] == "Pending for 90s, 2nd of 2 waiting in ClusterQueue vision (cohort lab)"
    assert lines["asks for"] == "8 nvidia.com/gpu in 1 pod, all at once; priority 0"
    assert lines["because"] == "WaitingForQuota: a100: 8 more GPUs needed"
    assert lines["quota"] == "a100: vision uses 40 of its 40 GPUs; cohort lab uses 64 of 64"
    assert lines["ahead"] == "job/first (8 GPUs, priority 1000)"
    assert lines["held by"] == (
        "a100: job/big (32, running 10s), job/theirs of language (24, running 10s), job/small (8, running 10s)"
    )


def test_it_names_the_smallest_job_whose_end_would_do():
    assert explained(pending("mine", "WaitingForQuota", short(8)))["needs"] == (
        "8 more GPUs of a100 free: the end of job/small (8) frees as much"
    )
    assert "the end of job/theirs (24)" in explained(pending("mine", "WaitingForQuota", short(9)))["needs"]


def test_where_no_single_job_is_enough_it_counts_the_largest():
    assert explained(pending("mine", "WaitingForQuota", short(50)))["needs"] == (
        "50 more GPUs of a100 free: the end of its 2 largest holders frees as much"
    )


def test_a_queue_that_may_still_borrow_is_helped_by_others():
    lines = explained(pending("mine", "WaitingForQuota", short(8), namespace="team-language", gpus=8))
    assert "job/big of vision (32" in lines["held by"]
    assert "job/theirs (24" in lines["held by"]


def test_every_pod_set_needs_room_and_any_flavor_will_do():
    both = f"{short(8)}, insufficient unused quota for {GPU} in flavor h100, 4 more needed"
    message = f"{both}; {short(1).replace('pod set main', 'pod set reward')}"
    assert explained(pending("mine", "WaitingForQuota", message))["needs"] == (
        "for main: 8 more GPUs of a100 free: the end of job/small (8) frees as much — or 4 more GPUs of h100 free; "
        "and for reward: 1 more GPU of a100 free: the end of job/small (8) frees as much"
    )


def test_a_queue_at_its_borrowing_limit_is_only_helped_by_its_own():
    queues = [
        cluster_queue("vision", flavor("a100", 40, 32)),
        cluster_queue("language", flavor("a100", 24, 32, 8, borrowing_limit=8)),
    ]
    lines = explained(pending("mine", "WaitingForQuota", short(8), namespace="team-language"), queues=queues)
    assert "job/big" not in lines["held by"]
    assert "job/theirs" in lines["held by"]
    assert "may borrow 8" in lines["quota"]


def test_a_job_that_never_fits_is_told_so_and_what_would_help():
    message = (
        f"couldn't assign flavors to pod set main: insufficient quota for {GPU} in flavor a100, previously considered "
        "podsets requests (0) + current podset request (64) > maximum capacity (32)"
    )
    lines = explained(pending("huge", "ExceedsMaxQuota", message, namespace="team-language", gpus=64))
    assert lines["state"].endswith("; it will never fit")
    assert lines["needs"] == (
        "to ask for less: at most 32 GPUs of a100 (it asks 64); "
        "an administrator can raise the nominalQuota and the borrowingLimit"
    )
    assert "held by" not in lines


def test_a_preempted_job_is_told_what_happened():
    back = workload(
        "back",
        condition("QuotaReserved", False, "WaitingForQuota", short(8)),
        condition("Evicted", True, "Preempted"),
        condition("Preempted", True, "InClusterQueue", "Preempted to accommodate a workload"),
    )
    assert "InClusterQueue: Preempted to accommodate a workload" in explained(back)["before"]


def test_a_preemptor_waits_for_its_victims():
    message = short(8) + ". Pending the preemption of 2 workload(s)"
    lines = explained(pending("urgent", "WaitingForPreemptedWorkloads", message))
    assert lines["because"] == "WaitingForPreemptedWorkloads: waits for 2 preempted workloads to stop"
    assert "pods of the preempted workloads have to end" in lines["needs"]


def test_an_unknown_local_queue_is_named():
    lines = explained(pending("lost", "Misconfigured", "LocalQueue nope doesn't exist", queue="nope"))
    assert lines["needs"].startswith("a LocalQueue 'nope' in namespace team-vision")
    assert lines["needs"].endswith("; LocalQueues of namespace team-vision: gpus"), "none of another namespace"
    assert lines["because"] == "Misconfigured: LocalQueue nope doesn't exist"


def test_a_local_queue_that_leads_nowhere_is_named():
    seen = snapshot([pending("lost")], [], [local_queue(to="gone")])
    assert needs(seen.workloads[0], seen).startswith("ClusterQueue gone, which its LocalQueue gpus names")


def test_a_stopped_queue_is_the_reason_before_all_others():
    queues = [cluster_queue("vision", flavor("a100", 40, 40), active=False)]
    lines = explained(pending("mine", "WaitingForQuota", short(8)), queues=queues)
    assert lines["needs"] == "ClusterQueue vision has to become active: Can't admit new workloads: is stopped."


@pytest.mark.parametrize(
    ("reason", "words"),
    [
        ("NoMatchingFlavor", "node selector"),
        ("AdmissionGated", "admission-gated-by"),
        ("OnHold", "hold has to be removed"),
        ("WaitingForPodsReady", "all their pods ready"),
        ("TopologyPlacementFailed", "topology domain"),
        ("SomethingNew", "evaluated again"),
    ],
)
def test_every_other_reason_has_a_remedy(reason, words):
    assert words in explained(pending("mine", reason, "a message"))["needs"]


def test_a_job_that_its_author_holds_is_inactive_and_says_what_releases_it():
    mine = pending("mine", "AdmissionGated", "Admission is gated by: gangline.io/hold")
    mine["metadata"].setdefault("annotations", {})["gangline.io/hold"] = "true"
    lines = explained(mine)
    assert lines["state"].startswith("Inactive for ")
    assert lines["because"] == "it is held, and does not start before it is released"
    assert lines["needs"] == "gangline release job/mine -n team-vision"


def test_a_running_job_is_not_told_to_wait():
    seen, view = look(running("mine", priority=7))
    lines = {line.label: line.text for line in explain(view, seen, NOW)}
    assert lines == {
        "state": "Running for 10s in ClusterQueue vision (cohort lab)",
        "asks for": "8 nvidia.com/gpu in 1 pod, all at once; priority 7",
        "because": "on a100",
    }


def test_a_failed_job_is_told_its_message():
    lines = explained(
        workload("bad", condition("Finished", True, "Failed", "Job has reached the specified backoff limit"))
    )
    assert lines["because"] == "Failed: Job has reached the specified backoff limit"


def test_long_lists_are_cut():
    assert some(map(str, range(7)), NAMED) == "0, 1, 2, 3, 4 and 2 more"
    assert some(["a"], NAMED) == "a"


@pytest.mark.parametrize(
    ("n", "word"), [(1, "1st"), (2, "2nd"), (3, "3rd"), (4, "4th"), (11, "11th"), (113, "113th"), (122, "122nd")]
)
def test_ordinals(n, word):
    assert ordinal(n) == word


def test_a_run_that_is_late_or_hangs_says_so():
    run = running("late")
    late = condition("Overrun", True, "Overdue", "The workload has run for 3h")
    idle = condition("Stalled", False, "Idle", "The workload holds GPUs that it does not use")
    run["status"]["conditions"] += [late, idle]
    assert explained(run)["warning"] == "The workload has run for 3h | The workload holds GPUs that it does not use"
    run["status"]["conditions"][-1] = condition("Stalled", False, "Recovered", "The workload shows signs of life again")
    run["status"]["conditions"][-2] = condition("Overrun", False, "Overdue", "Previously")
    assert "warning" not in explained(run)
