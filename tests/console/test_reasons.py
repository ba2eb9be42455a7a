from __future__ import annotations

import pytest
from tests.console.objects import GPU

from gangline.control.answers.workloads.reasons import PreemptionCause, ReportedObstacle, brief, parse, preemption
from gangline.engine.queues.workload_parts import FlavorWait

SHORT = f"insufficient unused quota for {GPU} in flavor a100, 8 more needed"
BIG = (
    f"insufficient quota for {GPU} in flavor h100, previously considered podsets requests (16) "
    "+ current podset request (64) > maximum capacity (48)"
)


def frame(*reasons: str, pod_set: str = "main") -> str:
    return f"couldn't assign flavors to pod set {pod_set}: {', '.join(reasons)}"


def test_what_is_short_is_read_with_flavor_resource_and_amount():
    assert parse(frame(SHORT)).obstacles == (ReportedObstacle("short", SHORT, "main", "a100", GPU, amount=8),)


def test_what_is_too_big_is_read_with_the_most_that_could_be_had():
    (obstacle,) = parse(frame(BIG)).obstacles
    assert (obstacle.kind, obstacle.flavor, obstacle.amount, obstacle.requested) == ("too-big", "h100", 48, 80)


def test_amounts_are_in_the_units_of_their_resource():
    cpu = parse(frame("insufficient unused quota for cpu in flavor default, 1500m more needed")).obstacles[0]
    memory = parse(frame("insufficient unused quota for memory in flavor default, 2Gi more needed")).obstacles[0]
    assert (cpu.amount, memory.amount) == (1500, 2 * 1024**3)


@pytest.mark.parametrize(
    ("text", "kind", "flavor", "resource"),
    [
        ("resource example.com/fpga unavailable in ClusterQueue", "undeclared", "", "example.com/fpga"),
        ("flavor h100 doesn't match node affinity", "affinity", "h100", ""),
        ("untolerated taint {gpu present NoSchedule <nil>} in flavor h100", "taint", "h100", ""),
        ("flavor h200 not found", "missing", "h200", ""),
        ('topology "rack" allows to fit only 3 out of 4 pod(s)', "topology", "", ""),
        ("something that a later version says", "other", "", ""),
    ],
)
def test_every_kind_of_obstacle_is_recognised(text, kind, flavor, resource):
    (obstacle,) = parse(frame(text)).obstacles
    assert (obstacle.kind, obstacle.flavor, obstacle.resource) == (kind, flavor, resource)


def test_what_the_queue_has_no_quota_for_outranks_what_is_in_use():
    message = frame(SHORT, "resource example.com/fpga unavailable in ClusterQueue")
    assert brief("NoMatchingFlavor", message) == "the queue has no quota for example.com/fpga"


def test_several_flavors_and_pod_sets_are_told_apart():
    message = (
        frame("flavor h100 doesn't match node affinity", SHORT, pod_set="actor") + "; " + frame(BIG, pod_set="reward")
    )
    assert [(o.pod_set, o.kind, o.flavor) for o in parse(message).obstacles] == [
        ("actor", "affinity", "h100"),
        ("actor", "short", "a100"),
        ("reward", "too-big", "h100"),
    ]


def test_a_pending_preemption_is_counted_and_not_part_of_the_last_reason():
    parsed = parse(frame(SHORT) + ". Pending the preemption of 3 workload(s)")
    assert parsed.preempting == 3
    assert parsed.obstacles[0].text == SHORT


def test_a_failed_preemption_is_not_a_pending_one():
    parsed = parse(frame(SHORT) + ". Preempting 2 workload(s) failed, will retry.")
    assert parsed.preempting == 0
    assert parsed.obstacles[0].text == SHORT


def test_text_outside_the_frame_has_no_obstacles():
    assert parse("LocalQueue gpus doesn't exist").obstacles == ()
    assert parse("").obstacles == ()


@pytest.mark.parametrize(
    ("reason", "message", "words"),
    [
        ("WaitingForQuota", frame(SHORT), "a100: 8 more GPUs needed"),
        ("ExceedsMaxQuota", frame(BIG), "h100: asks 80 GPUs, can never get more than 48"),
        (
            "ExceedsMaxQuota",
            frame("flavor a100 doesn't match node affinity", BIG),
            "h100: asks 80 GPUs, can never get more than 48",
        ),
        ("NoMatchingFlavor", frame(f"resource {GPU} unavailable in ClusterQueue"), f"the queue has no quota for {GPU}"),
        (
            "WaitingForPreemptedWorkloads",
            frame(SHORT) + ". Pending the preemption of 1 workload(s)",
            "waits for 1 preempted workload to stop",
        ),
        ("Misconfigured", "LocalQueue gpus doesn't exist", "LocalQueue gpus doesn't exist"),
        ("OnHold", "", "OnHold"),
    ],
)
def test_a_cell_says_the_cause_in_a_few_words(reason, message, words):
    assert brief(reason, message) == words


def test_the_causes_of_several_pod_sets_are_told_apart():
    actor = frame(SHORT, pod_set="actor")
    reward = frame(f"insufficient unused quota for {GPU} in flavor h100, 1 more needed", pod_set="reward")
    assert brief("WaitingForQuota", f"{actor}; {reward}") == (
        "actor: a100: 8 more GPUs needed | reward: h100: 1 more GPU needed"
    )


def test_equal_causes_of_several_pod_sets_are_said_once():
    assert brief("WaitingForQuota", frame(SHORT) + "; " + frame(SHORT, pod_set="b")) == "a100: 8 more GPUs needed"


def test_the_flavor_that_it_waits_for_is_said_with_both_ends() -> None:
    wait = FlavorWait("a100", 1_767_225_600_000, 1_767_229_200_000, "v100", 1_767_243_600_000, 1_767_240_000_000)
    assert brief("WaitingForQuota", frame(SHORT) + wait.text) == (
        "a100: 8 more GPUs needed. Waits for flavor a100 until about 2026-01-01 00:00 UTC: "
        "expected end 2026-01-01 01:00 UTC there, 2026-01-01 05:00 UTC on v100"
    )


def test_a_preemption_is_read_with_who_and_why():
    message = (
        "InCohortReclamation: Preempted to accommodate a workload (UID: 7f84, JobUID: d95a) due to reclamation within the "
        "cohort; preemptor path: /lab/language; preemptee path: /lab/vision"
    )
    assert preemption(message) == PreemptionCause("7f84", "reclamation within the cohort", "d95a")
    assert preemption("The ClusterQueue is stopped") is None


def test_nodes_that_lack_room_are_named_beside_quota_that_is_in_use():
    remark = "4 whole nodes of h100 needed: 1 free now, none can be freed by preemption"
    nodes = "insufficient healthy capacity in flavor h100: room for 1 out of 4 pods of pod set main"
    message = f"{frame(SHORT, f'{nodes} (1 of its 8 nodes can`t be used)')}. {remark}"
    assert [(o.kind, o.flavor, o.amount, o.requested) for o in parse(message).obstacles] == [
        ("short", "a100", 8, 0),
        ("nodes", "h100", 1, 4),
    ]
    short = f"a100: 8 more GPUs needed; h100: its nodes have room for 1 of 4 pods. {remark}"
    assert brief("WaitingForCapacity", message) == short
