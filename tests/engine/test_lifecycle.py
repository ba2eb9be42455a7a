"""Losing quota, completing an admission, coming back to the queue."""

from __future__ import annotations

from dataclasses import replace

import pytest
from tests.builders.engine import GPU, START, EngineWorld, cluster_queue, gang, of, reported_pending

from gangline.engine.model import (
    Admission,
    AdmissionCheck,
    Admit,
    AskChecks,
    BoundPod,
    CheckRef,
    CheckState,
    ClusterQueue,
    CompleteAdmission,
    Evict,
    Flavor,
    Gone,
    LocalQueue,
    Node,
    PodSet,
    PodSetAssignment,
    PodsReadyPolicy,
    Put,
    Requeue,
    Settings,
    Withdraw,
    WorkloadPods,
)
from gangline.engine.queues.workload_state import queue_time
from gangline.engine.state.inactive import why_inactive
from gangline.engine.state.lifecycle import NODES_WITHIN

CHECKED = cluster_queue("q", 8, checks=(CheckRef("capacity"), CheckRef("elsewhere", ("h100",))))


def evictions(decisions: object) -> list[Evict]:
    return [decision for decision in decisions if isinstance(decision, Evict)]  # pyright: ignore


def checked_world() -> EngineWorld:
    world = EngineWorld(AdmissionCheck("capacity"), AdmissionCheck("elsewhere"), CHECKED, gang("w", 8))
    (admit,) = world.decide()
    assert isinstance(admit, Admit)
    assert (admit.admitted, admit.checks) == (False, ("capacity",))
    return world


def test_a_check_that_its_queue_got_later_is_asked_as_well() -> None:
    checks = map(AdmissionCheck, ("capacity", "elsewhere", "license"))
    world = EngineWorld(*checks, CHECKED, gang("w", 4))
    world.decide()
    world.put(cluster_queue("q", 8, checks=(CheckRef("capacity"), CheckRef("license"))))
    world.change("w", checks=(CheckState("capacity", "Ready"),))
    (asked,) = world.decide()
    assert isinstance(asked, AskChecks) and asked.checks == ("capacity", "license")
    assert world.decide() == [], "once"
    world.change("w", checks=(CheckState("capacity", "Ready"), CheckState("license", "Ready")))
    assert of(world.decide(), CompleteAdmission) == ["w"]


def test_checks_follow_those_of_the_queue_while_it_waits_for_them_and_while_it_runs() -> None:
    """As in Kueue; what runs goes on, whatever the state of a check that its queue got later."""
    checks = map(AdmissionCheck, ("capacity", "license"))
    world = EngineWorld(*checks, cluster_queue("q", 8, checks=(CheckRef("capacity"),)), gang("w", 4))
    world.decide()
    world.change("w", checks=(CheckState("capacity", "Pending"),))
    world.put(cluster_queue("q", 8))
    decisions = [*world.decide(), *world.decide()]
    assert of(decisions, CompleteAdmission) == ["w"], "nothing stands in its way any more"
    assert [each.checks for each in decisions if isinstance(each, AskChecks)] == [()]
    world.change("w", checks=())
    world.put(cluster_queue("q", 8, checks=(CheckRef("license"),)))
    (asked,) = world.decide()
    assert isinstance(asked, AskChecks) and asked.checks == ("license",)
    assert world.decide() == [], "once"
    world.change("w", checks=(CheckState("license", "Pending"),))
    assert world.decide() == [], "it runs on"
    world.put(cluster_queue("q", 8))
    (asked,) = world.decide()
    assert isinstance(asked, AskChecks) and asked.checks == ()


def test_who_waits_for_checks_and_requests_more_by_now_is_queued_again() -> None:
    """A RuntimeClass or a LimitRange was edited: the pods that are to be made are not those for which quota was reserved."""
    world = checked_world()
    world.change("w", checks=(CheckState("capacity", "Ready"),), pod_sets=(PodSet("main", 1, {GPU: 4}),))
    assert of(world.decide(), CompleteAdmission) == ["w"], "less is no harm"
    world = checked_world()
    world.change("w", checks=(CheckState("capacity", "Ready"),), pod_sets=(PodSet("main", 1, {GPU: 10}),))
    (evict,) = evictions(world.decide())
    assert evict.reason == "RequestsChanged"
    assert evict.message == (
        "The pods of pod set main request 10 of nvidia.com/gpu by now, and 8 are reserved: it is queued again"
    )


def test_who_runs_keeps_what_was_reserved_whatever_its_pods_request_by_now() -> None:
    world = EngineWorld(cluster_queue("q", 8), gang("w", 8))
    world.decide()
    world.change("w", pod_sets=(PodSet("main", 1, {GPU: 10}),))
    assert world.decide() == []


def test_who_waits_is_asked_the_checks_of_every_flavor() -> None:
    checks = map(AdmissionCheck, ("capacity", "elsewhere", "license"))
    world = EngineWorld(*checks, CHECKED, gang("first", 8), gang("w", 8))
    asked = [each for each in world.decide() if isinstance(each, AskChecks)]
    assert [(each.workload, each.checks) for each in asked] == [("team/w", ("capacity",))]
    world.change("w", checks=(CheckState("capacity", "Ready"),))
    assert not [each for each in world.decide() if isinstance(each, AskChecks)]
    world.put(cluster_queue("q", 8, checks=(CheckRef("capacity"), CheckRef("license", ("a100", "h100")))))
    asked = [each for each in world.decide() if isinstance(each, AskChecks)]
    assert ("team/w", ("capacity", "license")) in [(each.workload, each.checks) for each in asked]
    world.change("w", checks=(CheckState("capacity", "Ready"), CheckState("license", "Pending")))
    world.put(cluster_queue("q", 8))
    asked = [each for each in world.decide() if isinstance(each, AskChecks)]
    assert ("team/w", ()) in [(each.workload, each.checks) for each in asked]


def test_what_is_reserved_in_a_queue_that_is_gone_starts_and_ends() -> None:
    admission = Admission("gone", (PodSetAssignment("main", 1, {GPU: "a100"}, {GPU: 4}),))
    held = gang("w", 4, admission=admission, reserved_at=START, max_execution_seconds=60)
    world = EngineWorld(cluster_queue("q", 8), held)
    assert of(world.decide(), CompleteAdmission) == ["w"]
    world.change("w", admitted=True, admitted_at=world.now)
    world.now += 61_000
    (evict,) = evictions(world.decide(lost=("team/w",)))
    assert evict.underlying_cause == "MaximumExecutionTimeExceeded"
    held = replace(held, admitted=True, admitted_at=START, active=False)
    world.engine.observe(Put(held))
    assert evictions(world.decide()) == [], "it is being written"
    checked = gang("w", 4, admission=admission, reserved_at=START, checks=(CheckState("capacity", "Pending"),))
    world = EngineWorld(cluster_queue("q", 8), checked)
    assert of(world.decide(), CompleteAdmission) == []


@pytest.mark.parametrize("local", [False, True])
def test_what_is_reserved_only_leaves_a_queue_that_is_deleted(local: bool) -> None:
    world = checked_world()
    if local:
        world.put(LocalQueue("team", "q", "q", terminating=True))
    else:
        world.put(replace(CHECKED, terminating=True))
    [gone] = [each for each in world.decide() if isinstance(each, Withdraw)]
    assert gone.ended == f"{'LocalQueue' if local else 'ClusterQueue'} q"
    world.decide()
    assert world.engine.usage("q") == {}


def test_what_runs_stays_in_a_queue_that_is_deleted() -> None:
    world = EngineWorld(cluster_queue("q", 8), gang("w", 8))
    world.decide()
    world.put(replace(cluster_queue("q", 8), terminating=True))
    assert world.decide() == []


def test_the_local_queues_of_a_queue_that_is_gone_are_told() -> None:
    world = EngineWorld(cluster_queue("q", 8), gang("w", 4))
    world.decide()
    world.engine.drain_changed_local_queues()
    world.engine.observe(Gone(ClusterQueue, "q"))
    world.decide()
    assert world.engine.drain_changed_local_queues() == {"team/q"}


def test_who_is_active_again_is_told_again_why_it_waits() -> None:
    world = EngineWorld(cluster_queue("q", 8), gang("holds", 8), gang("w", 8))
    first = reported_pending(world.decide())["w"].explanation
    world.change("w", active=False)
    assert reported_pending(world.decide())["w"].explanation.reason == "Deactivated"
    world.change("w", active=True)
    again = reported_pending(world.decide())["w"].explanation
    assert (again.reason, again.message) == (first.reason, first.message)
    assert reported_pending(world.decide()) == {}


def test_a_deactivated_workload_is_told_so_while_it_backs_off() -> None:
    world = EngineWorld(cluster_queue("q", 8), gang("w", 1, requeue_at=START + 2_000_000, requeue_count=2))
    world.decide()
    world.change("w", active=False)
    assert reported_pending(world.decide())["w"].explanation.reason == "Deactivated"


def test_admission_completes_when_the_checks_are_ready() -> None:
    world = checked_world()
    assert world.decide() == []
    world.change("w", checks=(CheckState("capacity", "Ready"),))
    assert of(world.decide(), CompleteAdmission) == ["w"]
    assert world.decide() == []


def test_a_retry_evicts_and_comes_back_after_the_longest_pause() -> None:
    world = checked_world()
    checks = (
        CheckState("capacity", "Retry", "no nodes", at=world.now, requeue_after_seconds=60),
        CheckState("budget", "Retry", "", at=world.now, requeue_after_seconds=5),
    )
    world.change("w", checks=checks)
    at = world.now
    (evict,) = evictions(world.decide())
    assert (evict.reason, evict.requeue_at) == ("AdmissionCheck", at + 60_000)
    assert evict.message == 'Evicted due to AdmissionChecks in Retry state: "budget"; "capacity" (no nodes)'
    world.complete_evictions()
    assert world.engine.usage("q") == {}
    assert [type(decision) for decision in world.decide()] == [AskChecks], "budget is none of its queue's"
    world.now = at + 60_000
    decisions = world.decide()
    assert of(decisions, Requeue) == ["w"]
    assert of(decisions, Admit) == ["w"]


def test_a_rejection_deactivates() -> None:
    world = checked_world()
    world.change("w", checks=(CheckState("capacity", "Rejected"),))
    (evict,) = evictions(world.decide())
    assert (evict.reason, evict.underlying_cause, evict.deactivate) == ("Deactivated", "AdmissionCheck", True)


def test_hold_takes_back_what_does_not_run_yet_and_drain_takes_all() -> None:
    world = checked_world()
    world.put(cluster_queue("p", 8), gang("runs", 8, "p"))
    world.decide()
    world.put(cluster_queue("p", 8, stop_policy="Hold"))
    world.put(cluster_queue("q", 8, checks=CHECKED.checks, stop_policy="Hold"))
    (evict,) = evictions(world.decide())
    assert (evict.workload, evict.reason, evict.message) == (
        "team/w",
        "ClusterQueueStopped",
        "The ClusterQueue is stopped",
    )
    world.put(cluster_queue("p", 8, stop_policy="HoldAndDrain"))
    assert of(world.decide(), Evict) == ["runs"]
    world.complete_evictions()
    assert of(world.decide(), Requeue) == []
    world.put(cluster_queue("p", 8))
    decisions = world.decide()
    assert [d.reason for d in decisions if isinstance(d, Requeue)] == ["ClusterQueueRestarted"]
    assert of(decisions, Admit) == ["runs"]


def test_a_stopped_local_queue_drains_its_own_only() -> None:
    world = EngineWorld(cluster_queue("q", 8), LocalQueue("team", "other", "q"), gang("w1", 2), gang("w2", 2, "other"))
    world.decide()
    world.put(LocalQueue("team", "other", "q", stop_policy="HoldAndDrain"))
    (evict,) = evictions(world.decide())
    assert (evict.workload, evict.reason) == ("team/w2", "LocalQueueStopped")
    world.complete_evictions()
    world.put(LocalQueue("team", "other", "q"))
    decisions = world.decide()
    assert [d.reason for d in decisions if isinstance(d, Requeue)] == ["LocalQueueRestarted"]
    assert of(decisions, Admit) == ["w2"]


def test_a_deactivated_workload_goes_and_comes_back_when_it_is_active_again() -> None:
    world = EngineWorld(cluster_queue("q", 8), gang("w", 2))
    world.decide()
    world.change("w", active=False)
    (evict,) = evictions(world.decide())
    assert (evict.reason, evict.message, evict.deactivate) == ("Deactivated", "The workload is deactivated", False)
    world.complete_evictions()
    world.decide()
    world.change("w", active=True)
    decisions = world.decide()
    assert [d.reason for d in decisions if isinstance(d, Requeue)] == ["Reactivated"]
    assert of(decisions, Admit) == ["w"]


def test_pods_that_do_not_get_ready_are_put_back_with_a_growing_pause() -> None:
    policy = PodsReadyPolicy(timeout_seconds=300, backoff_base_seconds=60, backoff_max_seconds=100, backoff_limit=2)
    world = EngineWorld(cluster_queue("q", 8), gang("w", 2), settings=Settings(pods_ready=policy))
    pauses: list[int] = []
    for _ in range(2):
        world.decide()
        assert world.decide() == []
        admitted_at = world.workloads["team/w"].admitted_at
        assert world.engine.next_wakeup(world.now) == admitted_at + 300_000
        world.now = admitted_at + 300_000 - 1000
        (evict,) = evictions(world.decide())
        assert (evict.reason, evict.message) == ("PodsReadyTimeout", "Exceeded the PodsReady timeout team/w")
        assert evict.requeue_at is not None
        pauses.append(evict.requeue_at - world.now)
        world.complete_evictions()
        world.now = evict.requeue_at
    assert pauses == [60_000, 100_000]
    world.decide()
    world.now += 300_000
    (evict,) = evictions(world.decide())
    assert (evict.deactivate, evict.underlying_cause) == (True, "RequeuingLimitExceeded")
    assert evict.message == "The workload is deactivated due to exceeding the maximum number of re-queuing retries"


def test_a_gang_that_lost_a_pod_has_the_recovery_timeout() -> None:
    policy = PodsReadyPolicy(timeout_seconds=300, recovery_timeout_seconds=30)
    world = EngineWorld(cluster_queue("q", 8), gang("w", 2), settings=Settings(pods_ready=policy))
    world.decide()
    world.change("w", pods_ready=True, pods_ready_at=world.now)
    assert world.decide() == []
    world.now += 1_000_000
    lost_at = world.now
    world.change("w", pods_ready=False, pods_were_ready=True, pods_ready_at=lost_at)
    assert world.decide() == []
    assert world.engine.next_wakeup(world.now) == lost_at + 30_000


def test_a_gang_put_back_for_its_pods_queues_behind_those_created_before_that() -> None:
    policy = PodsReadyPolicy(timeout_seconds=300, backoff_base_seconds=1)
    world = EngineWorld(cluster_queue("q", 8), gang("w1", 8), gang("w2", 8), settings=Settings(pods_ready=policy))
    world.decide()
    world.now += 300_000
    world.decide()
    world.complete_evictions()
    assert world.running() == []
    world.now += 10_000
    assert of(world.decide(), Admit) == ["w2"]


def test_the_execution_time_counts_over_admissions() -> None:
    world = EngineWorld(cluster_queue("q", 8), gang("w", 2, max_execution_seconds=100, past_execution_seconds=40))
    world.decide()
    assert world.decide() == []
    admitted_at = world.workloads["team/w"].admitted_at
    assert world.engine.next_wakeup(world.now) == admitted_at + 60_000
    world.now = admitted_at + 60_000
    (evict,) = evictions(world.decide())
    assert (evict.deactivate, evict.underlying_cause) == (True, "MaximumExecutionTimeExceeded")


@pytest.mark.parametrize(
    ("after_seconds", "policy", "minutes"),
    [
        (300.0, PodsReadyPolicy(), 5),
        (300.0, None, 5),
        (None, PodsReadyPolicy(timeout_seconds=600), 10),
        (None, None, 31),
    ],
    ids=["a policy", "a policy without waitForPodsReady", "waitForPodsReady alone", "neither"],
)
def test_refused_pods_do_not_hold_quota_for_ever(
    after_seconds: float | None, policy: PodsReadyPolicy | None, minutes: int
) -> None:
    """Evicted after the policy's time, else at Kueue's limit, else at its default, counted from the refusal on."""
    queue = cluster_queue("q", 8, refused_seconds=after_seconds)
    world = EngineWorld(queue, gang("w", 8), settings=Settings(pods_ready=policy))
    assert of(world.decide(), Admit) == ["w"]
    admitted = world.workloads["team/w"].admitted_at
    refused = admitted if minutes != 31 else admitted + 60_000
    world.change("w", refused_at=refused)
    world.now = admitted + minutes * 60_000 - 2000
    assert of(world.decide(), Evict) == []
    world.now = admitted + minutes * 60_000
    (eviction,) = [decision for decision in world.decide() if isinstance(decision, Evict)]
    by_policy = after_seconds is not None or policy is None
    assert eviction.reason == ("PodsRefused" if by_policy else "PodsReadyTimeout")
    assert eviction.requeue_count == 1
    assert eviction.requeue_at is not None
    assert eviction.requeue_at > world.now, "with a pause, so that others come first"


def test_pods_that_are_accepted_again_end_the_count() -> None:
    world = EngineWorld(cluster_queue("q", 8, refused_seconds=60.0), gang("w", 8), settings=Settings(pods_ready=None))
    world.decide()
    world.change("w", refused_at=world.now)
    world.now += 50_000
    world.decide()
    world.change("w", refused_at=0)
    world.now += 3_600_000
    assert of(world.decide(), Evict) == []


def test_a_workload_that_somebody_wants_deactivated_is() -> None:
    """As the manager of other clusters wants it, when its own workload is evicted."""
    world = EngineWorld(cluster_queue("q", 8), gang("w", 2))
    world.decide()
    world.change("w", deactivation=("EvictedOnManagerCluster", "Evicted on manager: preempted"))
    (evict,) = evictions(world.decide())
    assert (evict.deactivate, evict.underlying_cause) == (True, "EvictedOnManagerCluster")
    assert evict.message == "The workload is deactivated due to Evicted on manager: preempted"


def test_an_evicted_workload_that_got_its_quota_back_by_other_hands_is_judged_again() -> None:
    """Another client wrote both in one update, so it was never seen without quota."""
    queue = cluster_queue("q", 8, checks=(CheckRef("c"),))
    world = EngineWorld(AdmissionCheck("c", "example.com/c"), queue, gang("w", 2))
    world.decide()
    for _ in range(2):
        world.change("w", checks=(CheckState("c", "Retry", "no", requeue_after_seconds=2),))
        (evict,) = evictions(world.decide())
        assert evict.reason == "AdmissionCheck"
        assert world.workloads["team/w"].evicted
        world.change("w", evicted="", checks=(CheckState("c"),))
        assert not evictions(world.decide())
        assert world.running() == ["w"]


def test_so_is_one_that_waits() -> None:
    world = EngineWorld(cluster_queue("q", 8), gang("w0", 8), gang("w1", 2))
    world.decide()
    world.change("w1", deactivation=("EvictedOnManagerCluster", "Evicted on manager: preempted"))
    (evict,) = evictions(world.decide())
    assert (evict.workload, evict.deactivate, evict.underlying_cause) == ("team/w1", True, "EvictedOnManagerCluster")
    assert not evictions(world.decide())


def test_so_is_one_that_waits_if_a_check_that_was_asked_early_rejects_it() -> None:
    for evicted, message in (
        ("", ['The workload is deactivated due to AdmissionCheck in Rejected state: "c" (no)']),
        ("x", []),
    ):
        world = EngineWorld(cluster_queue("q", 8), gang("w0", 8), gang("w1", 2))
        world.decide()
        world.change("w1", checks=(CheckState("c", "Rejected", "no"),), evicted=evicted)
        assert [evict.message for evict in evictions(world.decide()) if evict.workload == "team/w1"] == message


MULTIKUEUE = "kueue.x-k8s.io/multikueue"
NODES = AdmissionCheck("n", "kueue.x-k8s.io/provisioning-request")


@pytest.mark.parametrize(
    ("refs", "reason", "words"),
    [
        ((CheckRef("a"),), "", ""),
        (
            (CheckRef("b"), CheckRef("a")),
            "MultipleMultiKueueAdmissionChecks",
            "Cannot use multiple MultiKueue AdmissionChecks on the same ClusterQueue, found: a,b",
        ),
        (
            (CheckRef("a", ("a100",)),),
            "MultiKueueAdmissionCheckAppliedPerFlavor",
            "Cannot specify MultiKueue AdmissionCheck per flavor, found: a",
        ),
        (
            (CheckRef("a"), CheckRef("n")),
            "MultiKueueWithProvisioningRequest",
            "Cannot use both MultiKueue and ProvisioningRequest AdmissionChecks together, found: a, n",
        ),
    ],
)
def test_one_check_sends_workloads_to_other_clusters_alone(refs: tuple[CheckRef, ...], reason: str, words: str) -> None:
    checks = {"a": AdmissionCheck("a", MULTIKUEUE), "b": AdmissionCheck("b", MULTIKUEUE), "n": NODES}
    queue = cluster_queue("q", 8, checks=refs)
    world = EngineWorld(*checks.values(), queue, gang("w", 8))
    assert bool(of(world.decide(), Admit)) == (reason == "")
    said = (reason, f"Can't admit new workloads: {words}.") if reason else ("", "")
    # a topology of other clusters need not exist here
    flavors = {"a100": Flavor("a100", topology="theirs")}
    assert why_inactive(queue, flavors, {}, checks, in_cycle=False) == said


# --- nodes that an autoscaler makes -----------------------------------------------------------------------------------


def growing_world(**fields: object) -> EngineWorld:
    flavor = Flavor("a100", {"pool": "a"}, autoscaled=True)
    node = Node("n1", {"pool": "a"}, {GPU: 4, "pods": 110})
    world = EngineWorld(flavor, node, cluster_queue("q", 8), gang("w1", 4, pods=2), gang("w2", 8))
    assert of(world.decide(), Admit) == ["w1"], "quota alone bounds it"
    world.change("w1", pods_ready_at=world.now, **fields)
    return world


def test_quota_is_not_kept_for_nodes_that_do_not_come() -> None:
    world = growing_world()
    bound = BoundPod("p", "main", "n1", None, False, False, 0)
    world.put(WorkloadPods("team/w1", (bound,)))
    assert world.decide() == []
    due = world.engine.next_wakeup(world.now)
    assert due == world.workloads["team/w1"].admitted_at + NODES_WITHIN
    world.now = due
    (evict,) = evictions(world.decide())
    assert (evict.workload, evict.reason) == ("team/w1", "NodesMissing")
    assert evict.message == "Nodes of flavor a100 have not come within 15m: 1 pods have none"
    assert evict.requeue_at is not None and evict.requeue_at > world.now, "others may use its quota meanwhile"


def test_it_is_queued_again_at_its_old_place() -> None:
    waiting = gang("w1", 4, evicted="NodesMissing", evicted_at=START + 9_000_000, requeued=True)
    assert queue_time(waiting, Settings()) == waiting.created


@pytest.mark.parametrize("fields", [{"pods_ready": True}, {"pods_were_ready": True}, {"unowned": True}])
def test_who_runs_or_does_not_say_whether_it_does_keeps_its_quota(fields: dict[str, object]) -> None:
    world = growing_world(**fields)
    world.now += 2 * NODES_WITHIN
    assert evictions(world.decide()) == []


def test_pods_that_have_nodes_are_waited_for() -> None:
    world = growing_world()
    bound = [BoundPod(name, "main", name, None, False, False, 0) for name in ("n1", "n2")]
    world.put(Node("n2", {"pool": "a"}, {GPU: 4, "pods": 110}), WorkloadPods("team/w1", tuple(bound)))
    world.now += 2 * NODES_WITHIN
    assert evictions(world.decide()) == [], "they may still fetch their image"
