"""What is done about Workloads themselves: orphans finish, cleared gates are said, and decisions are reported as in Kueue."""

from __future__ import annotations

import time
from typing import Any

import pytest
from tests.builders.objects import a_pod
from tests.context import a_context
from tests.control.test_plan import NOW, a_job, a_workload, admitted
from tests.objects import Stored, WorkloadObject, as_stored

from gangline.api.read import conditions
from gangline.control.decisions.carrying_out import Decisions
from gangline.control.decisions.reports import WAITS, FreshWorkloads
from gangline.control.feed.mirror import Mirror
from gangline.control.feed.pod import Pod, read_pod
from gangline.control.isolation.quarantine import Quarantine
from gangline.control.kinds.unowned_workloads import PATIENCE, UnownedWorkloads
from gangline.control.kinds.upkeep import ClassPriorities, ClearedGates
from gangline.control.metrics.operator_metrics import Metrics
from gangline.control.parts.messages import Messages, WriteResolved
from gangline.control.writes.outgoing import Write
from gangline.control.writes.status import gate_changes, run_changes, status_changes
from gangline.control.writes.status.change import Change
from gangline.engine import Engine, model
from gangline.kube import resources as kube
from gangline.kube.errors import Conflict, Forbidden
from gangline.kube.reflector import Upsert
from gangline.kube.resources import ObjectKey, key_of

Json = dict[str, Any]
GATED = "kueue.x-k8s.io/admission-gated-by"


class WorkloadPartsWorld:
    """A mirror, and in place of writes and recorder: changes are made at once, events are kept."""

    def __init__(self, *objects: Stored) -> None:
        self.mirror = Mirror(lambda change: None)
        for obj in objects:
            self.mirror.upsert(kube.BY_KIND[obj["kind"]], obj)
        self.patched: list[Json] = []
        self.events: list[tuple[str, str, str, str]] = []
        self.series: set[str] = set()

    def pending(self, *_: Any) -> bool:
        return False

    def change(self, key: str, slot: str, change: Change, *, done: Any = None, **_: Any) -> None:
        workload = self.mirror.objects[kube.WORKLOADS][key]
        change(workload["status"], NOW)
        if done is not None:
            done(workload)

    def send(self, key: ObjectKey, verb: str, body: Json, *, done: Any = None, **_: Any) -> None:
        self.patched.append(body)
        found = self.mirror.get(key.resource, key.text)
        if found is not None and "spec" in body:
            found["spec"].update(body["spec"])
        if done is not None:
            done(found)

    def submit(self, write: Write) -> None:
        self.patched.append(write.body)
        if write.on_done is not None:
            write.on_done(None)

    def record(self, obj: Stored, kind: str, reason: str, note: str, *, one_series: bool = False) -> None:
        self.events.append((obj.name, kind, reason, note))
        if one_series:
            self.series.add(reason)


def row(workload: WorkloadObject, kind: str) -> tuple[str, str, str]:
    found = conditions.find(workload["status"]["conditions"], kind)
    assert found is not None
    return found["status"], found["reason"], found["message"]


# --- gates ------------------------------------------------------------------------------------------------------------


def gated(status: Json, now: int) -> None:
    status_changes.pending(model.Explanation("AdmissionGated", "Admission is gated by: a.b/c"))(status, now)


def test_a_workload_whose_last_gate_was_removed_is_said_to_be_admissible_once() -> None:
    workload = a_workload(a_job(), gated=gated)
    workload["metadata"]["annotations"] = {GATED: "a.b/c"}
    world = WorkloadPartsWorld(workload)
    part = ClearedGates(a_context(mirror=world.mirror, writes=world, recorder=world))  # type: ignore[arg-type]
    world.mirror.changes.workloads.add(key_of(workload))
    part.act(NOW)
    assert world.events == []
    del workload["metadata"]["annotations"]
    world.mirror.changes.workloads.add(key_of(workload))
    part.act(NOW)
    assert row(workload, "QuotaReserved") == (
        "False",
        "PendingEvaluation",
        "AdmissionGatedBy cleared, waiting for quota reservation",
    )
    world.mirror.changes.workloads.add(key_of(workload))
    part.act(NOW)
    [(_, *event)] = world.events
    assert event == ["Normal", "AdmissionGateCleared", "Admission gate cleared, workload is now admissible"]


def test_a_decision_that_was_made_meanwhile_stands() -> None:
    workload = a_workload(a_job(), gated=gated, admitted=admitted)
    gate_changes.gates_cleared(workload["status"], NOW)
    assert row(workload, "QuotaReserved")[0] == "True"


# --- priorities -------------------------------------------------------------------------------------------------------


def a_class(value: int, name: str = "high") -> Stored:
    meta = {"name": name, "uid": f"uid-{name}", "resourceVersion": str(value)}
    return Stored(
        {"apiVersion": "kueue.x-k8s.io/v1beta2", "kind": "WorkloadPriorityClass", "metadata": meta, "value": value}
    )


def of_class(name: str, priority: int, kind: str = "WorkloadPriorityClass", status: Any = None) -> WorkloadObject:
    workload = a_workload(a_job(), admitted=admitted if status is None else status)
    workload["metadata"] |= {"name": name, "uid": f"uid-{name}"}
    workload["spec"] |= {"priority": priority, "priorityClassRef": {"kind": kind, "name": "high"}}
    return workload


def finished(status: Json, now: int) -> None:
    run_changes.finish(True, "done")(status, now)


def followers(world: WorkloadPartsWorld) -> ClassPriorities:
    return ClassPriorities(
        a_context(mirror=world.mirror, writes=world, quarantine=Quarantine(lambda *_: None), wake=lambda: None)
    )  # type: ignore[arg-type]


def test_running_workloads_follow_the_new_value_of_their_class() -> None:
    high = a_class(100)
    done, pods = of_class("done", 100, status=finished), of_class("pods", 100, kind="PriorityClass")
    world = WorkloadPartsWorld(high, of_class("a", 100), done, pods)
    part = followers(world)
    part.observe(kube.WORKLOAD_PRIORITY_CLASSES, Upsert(high))
    part.act(NOW)
    assert world.patched == [], "it has the priority of its class"
    high = a_class(7)
    world.mirror.upsert(kube.WORKLOAD_PRIORITY_CLASSES, high)
    part.observe(kube.WORKLOAD_PRIORITY_CLASSES, Upsert(high))
    part.act(NOW)
    assert world.patched == [{"spec": {"priority": 7}, "metadata": {"resourceVersion": "2"}}]
    world.mirror.upsert(kube.WORKLOADS, of_class("a", 7))
    part.act(NOW)
    assert len(world.patched) == 1


def test_a_priority_written_by_hand_lasts_until_the_class_changes_or_another_operator_leads() -> None:
    high = a_class(100)
    world = WorkloadPartsWorld(high, of_class("a", 5))
    part = followers(world)
    part.observe(kube.WORKLOAD_PRIORITY_CLASSES, Upsert(high))
    part._changed_classes.clear()
    part.observe(kube.WORKLOAD_PRIORITY_CLASSES, Upsert(high))
    part.act(NOW)
    assert world.patched == []
    part.lead()
    part.act(NOW)
    assert [patch["spec"] for patch in world.patched] == [{"priority": 100}]


async def test_a_workload_that_changed_meanwhile_is_asked_for_again() -> None:
    world = WorkloadPartsWorld(a_class(100), of_class("a", 5))
    part = followers(world)
    refuse: list[Any] = []

    def send(*_: Any, failed: Any, **__: Any) -> None:
        refuse.append(failed)

    world.send = send  # type: ignore[method-assign]
    world.expected = lambda error: isinstance(error, Conflict)  # type: ignore[attr-defined]
    part.lead()
    part.act(NOW)
    part.act(NOW)
    assert len(refuse) == 1
    refuse[0](Conflict(409, "Conflict", "changed"))
    part.act(NOW)
    assert len(refuse) == 2
    refuse[1](Forbidden(403, "Forbidden", "no"))
    part.act(NOW)
    assert len(refuse) == 2, "nobody is asked for ever"


# --- orphans ----------------------------------------------------------------------------------------------------------


class Running:
    """In place of `DepartedWorkloads`: the pods that are of a Workload, or claim to be."""

    def __init__(self, *pods: Pod) -> None:
        self.pods = list(pods)

    def pods_of(self, workload: str) -> list[Pod]:
        return self.pods

    def runs(self, workload: str) -> bool:
        return any(not pod.ended for pod in self.pods)


class Nothing:
    def __getattr__(self, name: str) -> Any:
        return Nothing()

    def __call__(self, *args: Any, **named: Any) -> Any:
        return Nothing()


def unowned(world: WorkloadPartsWorld, *pods: Pod) -> UnownedWorkloads:
    nothing: Any = Nothing()
    departed: Any = Running(*pods)
    return UnownedWorkloads(
        a_context(
            mirror=world.mirror,
            pods=nothing,
            owners=nothing,
            writes=world,
            writer=world,
            quarantine=Quarantine(lambda *_: None),
        ),
        departed,
    )  # type: ignore[arg-type]


def orphaned(*changes: Change) -> WorkloadObject:
    """The Workload of a job that was deleted with --cascade=orphan."""
    workload = a_workload(a_job(), **{f"{number}": change for number, change in enumerate(changes)})
    del workload["metadata"]["ownerReferences"]
    return workload


def preempted(status: Json, now: int) -> None:
    status_changes.preempt(model.Preempt("ns/j", "w", "InClusterQueue", "m", "ns/o", "o"))(status, now)


def test_a_workload_whose_job_was_orphaned_keeps_its_quota_while_its_pods_run() -> None:
    workload = orphaned(admitted)
    world = WorkloadPartsWorld(workload)
    part = unowned(world, read_pod(a_pod("p"), "ns/j"))
    part._reconcile(workload.key, NOW)
    assert conditions.find(workload["status"]["conditions"], "Finished") is None
    assert world.patched == [], "its pods run, and it keeps its finalizer"
    part._departed.pods.clear()  # type: ignore[attr-defined]
    part._reconcile(workload.key, NOW)
    assert row(workload, "Finished")[:2] == ("True", "OwnerNotFound")


@pytest.mark.parametrize("why", ["preempted", "deleted"])
def test_pods_that_an_orphaned_job_left_are_stopped_with_their_workload(why: str) -> None:
    """Nobody else would stop them: their quota could never be preempted."""
    workload = orphaned(admitted, *([preempted] if why == "preempted" else []))
    if why == "deleted":
        workload["metadata"]["deletionTimestamp"] = "2026-11-25T01:00:00Z"
    world = WorkloadPartsWorld(workload)
    pods = [read_pod(a_pod("runs"), "ns/j"), read_pod(a_pod("stops", due=NOW), "ns/j")]
    part = unowned(world, *pods)
    part._reconcile(workload.key, NOW)
    assert world.patched == [{"uid": "uid-runs"}]
    assert workload["status"]["admission"]["clusterQueue"] == "cq"


def test_a_job_that_lost_its_owner_is_suspended_when_their_gang_is_preempted() -> None:
    """Its pods would come back as fast as they are deleted."""
    workload, child = orphaned(admitted, preempted), a_job(suspend=False, queue="", name="set-0", uid="c")
    world = WorkloadPartsWorld(workload, child)
    pod = a_pod("p")
    pod["metadata"]["ownerReferences"] = [
        {"apiVersion": "batch/v1", "kind": "Job", "name": "set-0", "uid": "c", "controller": True}
    ]
    unowned(world, read_pod(pod, "ns/j"))._reconcile(workload.key, NOW)
    assert world.patched == [{"metadata": {"resourceVersion": "1"}, "spec": {"suspend": True}}]


@pytest.mark.parametrize("runs", [False, True])
def test_an_inactive_workload_without_any_owner_gives_back_its_quota(runs: bool) -> None:
    """Nobody else would take it: a ClusterQueue that it names could never be deleted."""
    workload = a_workload(a_job(), admitted=admitted, evicted=deactivated)
    del workload["metadata"]["ownerReferences"], workload["metadata"]["labels"]
    world = WorkloadPartsWorld(workload)
    part = unowned(world, *([read_pod(a_pod("p"), "ns/j")] if runs else []))
    part._reconcile(workload.key, NOW)
    assert ("admission" in workload["status"]) is True, "it is still active"
    workload["spec"]["active"] = False
    part._reconcile(workload.key, NOW)
    assert ("admission" in workload["status"]) is runs
    assert row(workload, "QuotaReserved")[0] == str(runs)


def deactivated(status: Json, now: int) -> None:
    status_changes.evict(model.Evict("ns/j", "w", "Deactivated", "The workload is deactivated"))(status, now)


def test_a_workload_that_was_parted_from_its_job_finishes_and_may_go() -> None:
    workload = a_workload(a_job(), admitted=admitted)
    del workload["metadata"]["ownerReferences"]
    world = WorkloadPartsWorld(workload)
    part = unowned(world)
    part._reconcile(workload.key, NOW)
    assert row(workload, "Finished") == ("True", "OwnerNotFound", "The workload's owner no longer exists")
    assert world.patched == []
    part._reconcile(workload.key, NOW)
    assert world.patched == [{"metadata": {"finalizers": None, "resourceVersion": "2"}}]


def test_a_workload_that_never_had_a_job_waits_for_its_author() -> None:
    workload = a_workload(a_job(), admitted=admitted)
    del workload["metadata"]["ownerReferences"], workload["metadata"]["labels"]["kueue.x-k8s.io/job-uid"]
    world = WorkloadPartsWorld(workload)
    unowned(world)._reconcile(workload.key, NOW)
    assert conditions.find(workload["status"]["conditions"], "Finished") is None
    assert world.patched == []


def test_an_evicted_workload_that_never_had_a_job_keeps_its_quota_for_a_minute_at_most() -> None:
    """As in Kueue its author stops it and releases the quota; who does not would keep it for good."""
    workload, other = a_workload(a_job(), admitted=admitted), a_workload(a_job(name="o", uid="other"))
    del workload["metadata"]["ownerReferences"], workload["metadata"]["labels"]["kueue.x-k8s.io/job-uid"]
    world = WorkloadPartsWorld(workload, other)
    status_changes.preempt(model.Preempt(key_of(workload), "w", "InClusterQueue", "m", key_of(other), "p"))(
        workload["status"], NOW
    )
    part = unowned(world, read_pod(a_pod("p"), "ns/j"))
    since = conditions.millis_of(conditions.find(workload["status"]["conditions"], "Evicted")["lastTransitionTime"])  # type: ignore[index]
    part._reconcile(workload.key, since + PATIENCE - 1)
    assert part._deadlines == {key_of(workload): since + PATIENCE}
    assert workload["status"]["admission"]["clusterQueue"] == "cq"
    assert row(workload, "QuotaReserved")[0] == row(workload, "Evicted")[0] == "True"
    assert world.patched == [], "its author stops its pods"
    part._reconcile(workload.key, since + PATIENCE)
    assert world.patched == [{"uid": "uid-p"}]
    assert row(workload, "QuotaReserved")[0] == "True", "its pod still runs"
    part._departed.pods.clear()  # type: ignore[attr-defined]
    part._reconcile(workload.key, since + PATIENCE)
    assert "admission" not in workload["status"]
    assert row(workload, "QuotaReserved")[0] == "False"


def test_an_admission_that_its_author_left_behind_is_cleared() -> None:
    workload = a_workload(a_job(), admitted=admitted)
    del workload["metadata"]["ownerReferences"], workload["metadata"]["labels"]["kueue.x-k8s.io/job-uid"]
    conditions.put(workload["status"]["conditions"], "QuotaReserved", False, "Pending", "by its author", now=NOW)
    unowned(WorkloadPartsWorld(workload))._reconcile(workload.key, NOW)
    assert "admission" not in workload["status"]
    assert row(workload, "QuotaReserved") == ("False", "Pending", "by its author")


def test_a_deleted_workload_is_let_go_when_its_last_write_is_resolved() -> None:
    """Its pod went while a write of ours was in flight: the answer may bring nothing new that would make us look again."""
    workload = a_workload(a_job(), admitted=admitted)
    workload["metadata"]["deletionTimestamp"] = "2026-11-25T01:00:00Z"
    world = WorkloadPartsWorld(workload)
    part = unowned(world)
    part._reconcile(workload.key, NOW)
    world.patched.clear()
    part._writes = InFlight()  # type: ignore[assignment]
    part._reconcile(workload.key, NOW)
    assert part._changed.take() == set()
    world.mirror.messages.publish(WriteResolved(None, None, ObjectKey.of(kube.WORKLOADS, workload)))
    assert part._changed.take() == {key_of(workload)}


class InFlight:
    def pending(self, *_: Any) -> bool:
        return True


def test_an_eviction_event_names_the_cause_of_a_deactivation_only() -> None:
    workload = a_workload(a_job(), admitted=admitted)
    world = WorkloadPartsWorld(workload)
    for reason, cause in (("PodsReadyTimeout", "WaitForStart"), ("Deactivated", "RequeuingLimitExceeded")):
        decision = model.Evict(key_of(workload), "w", reason, "m", underlying_cause=cause)
        decisions(world, Engine())._report_evicted(decision, workload, workload)
    assert [reason for _, _, reason, _ in world.events] == [
        "EvictedDueToPodsReadyTimeout",
        "EvictedDueToDeactivatedDueToRequeuingLimitExceeded",
    ]


# --- events -----------------------------------------------------------------------------------------------------------


def decisions(world: WorkloadPartsWorld, engine: Engine) -> Decisions:
    class Notices:
        def notify(self, *_: Any) -> None: ...

    return Decisions(
        a_context(
            mirror=world.mirror,
            writes=world,
            engine=engine,
            notices=Notices(),
            recorder=world,
            metrics=Metrics(),
            messages=Messages(),
        ),
        None,
    )  # type: ignore[arg-type]


def test_what_somebody_did_is_said_soon_and_what_it_waits_for_now_and_then() -> None:
    workload = a_workload(a_job())
    workload["status"] = {}
    world = WorkloadPartsWorld(workload)
    delays: list[float] = []

    def change(key: str, slot: str, change: Change, *, not_before: float, done: Any, **_: Any) -> None:
        delays.append(round(not_before - time.monotonic()))
        done(workload)

    world.change = change  # type: ignore[method-assign, assignment]
    part = decisions(world, Engine())
    for reason, message in (
        ("WaitingForQuota", "2 more needed"),
        ("WaitingForQuota", "1 more needed"),
        ("WaitingForPodsReady", "of another one"),
        ("Suspended", "LocalQueue lq is inactive"),
        ("Suspended", "ClusterQueue cq is inactive"),
        ("WaitingForQuota", "1 more needed"),
    ):
        part.carry_out(model.ReportPending(key_of(workload), "w", model.Explanation(reason, message)))
    assert delays == [1, 10, 10, 1, 10, 1]


def two_workloads() -> tuple[WorkloadObject, WorkloadObject]:
    victim = a_workload(a_job(), admitted=admitted)
    other = a_job(name="o", uid="other")
    preemptor = a_workload(other)
    preemptor["metadata"] |= {"uid": "p", "annotations": {"kueue.x-k8s.io/priority-boost": "5"}}
    return victim, preemptor


def test_a_preemption_names_both_priorities_on_both_workloads() -> None:
    victim, preemptor = two_workloads()
    victim["spec"]["priority"] = 3
    for gate, ranks in (
        (True, "effective priority: 12 (base: 7, boost: 5)"),
        (False, "effective priority: 7 (base: 7, boost: 0)"),
    ):
        world = WorkloadPartsWorld(victim, preemptor)
        engine = Engine(model.Settings(gates={"PriorityBoost": gate}))
        decision = model.Preempt(key_of(victim), "w", "InClusterQueue", "make room", key_of(preemptor), "p")
        decisions(world, engine)._report_preempted(decision, victim, victim)
        both = f"preemptor {ranks}; preemptee effective priority: 3 (base: 3, boost: 0)"
        [evicted, preempted, by] = world.events
        assert evicted[1:] == ("Normal", "EvictedDueToPreempted", "make room")
        assert preempted[1:] == ("Normal", "Preempted", f"make room; {both}")
        assert by == (
            preemptor["metadata"]["name"],
            "Normal",
            "PreemptedWorkload",
            f"Preempted workload {key_of(victim)} (UID: w) in ClusterQueue cq; {both}",
        )
        assert world.series == {"PreemptedWorkload"}


def test_a_deactivation_says_its_cause() -> None:
    for cause, because, said in (
        (
            "MaximumExecutionTimeExceeded",
            "exceeding the maximum execution time",
            ("MaximumExecutionTimeExceeded", "The maximum execution time (60s) exceeded"),
        ),
        (
            "AdmissionCheck",
            'AdmissionCheck in Rejected state: "a" (no)',
            ("AdmissionCheckRejected", 'Deactivated due to AdmissionCheck in Rejected state: "a" (no)'),
        ),
        ("RequeuingLimitExceeded", "exceeding the maximum number of re-queuing retries", None),
    ):
        workload = a_workload(a_job(), admitted=admitted)
        workload["spec"]["maximumExecutionTimeSeconds"] = 60
        world = WorkloadPartsWorld(workload)
        message = f"The workload is deactivated due to {because}"
        decision = model.Evict(key_of(workload), "w", "Deactivated", message, deactivate=True, underlying_cause=cause)
        decisions(world, Engine())._deactivate(decision)
        warnings = [(reason, note) for _, kind, reason, note in world.events if kind == "Warning"]
        assert warnings == ([said] if said else [])


def test_a_gated_workload_is_told_as_in_kueue() -> None:
    workload = a_workload(a_job())
    world = WorkloadPartsWorld(workload)
    explanation = model.Explanation("AdmissionGated", "Admission is gated by: a.b/c")
    decisions(world, Engine())._report_pending(model.ReportPending(key_of(workload), "w", explanation))
    [(_, *event)] = world.events
    assert event == ["Normal", "AdmissionGated", "Workload admission is gated by: a.b/c"]


def test_a_workload_like_one_that_was_tried_says_so_where_a_gate_asks_for_it() -> None:
    """The event keeps the reason."""
    explanation = model.Explanation("WaitingForQuota", "1 more needed")
    for explicit, words in ((True, status_changes.BYPASSED), (False, "1 more needed")):
        workload = a_workload(a_job())
        world = WorkloadPartsWorld(workload)
        engine = Engine(model.Settings(gates={"UnadmittedWorkloadsExplicitStatus": explicit}))
        report = model.ReportPending(key_of(workload), "w", explanation, by_equivalence=True)
        decisions(world, engine)._report_pending(report)
        assert row(workload, "QuotaReserved") == ("False", "WaitingForQuota", words)
        assert [note for *_, note in world.events] == ["1 more needed"]


def test_an_eviction_of_a_workload_that_waits_counts_in_its_status_alone() -> None:
    workload = a_workload(a_job())
    world = WorkloadPartsWorld(workload)
    decision = model.Evict(
        key_of(workload), "w", "Deactivated", "m", deactivate=True, underlying_cause="AdmissionCheck"
    )
    decisions(world, Engine())._deactivate(decision)
    assert row(workload, "Evicted") == ("True", "DeactivatedDueToAdmissionCheck", "m")
    assert [reason for _, _, reason, _ in world.events] == ["AdmissionCheckRejected"]


# --- the first condition ----------------------------------------------------------------------------------------------


def a_queue(kind: str, name: str, **spec: Any) -> Stored:
    meta = {"name": name, "uid": name, "resourceVersion": "1"}
    if kind == "LocalQueue":
        meta["namespace"] = "ns"
    return as_stored({"apiVersion": "kueue.x-k8s.io/v1beta2", "kind": kind, "metadata": meta, "spec": spec})


def fresh(workload: WorkloadObject, *queues: Stored) -> WorkloadPartsWorld:
    """A part that sees the Workload appear."""
    world = WorkloadPartsWorld(*queues)
    part = FreshWorkloads(a_context(mirror=world.mirror, writes=world))  # type: ignore[arg-type]
    workload["status"] = workload.get("status") or {}
    world.mirror.upsert(kube.WORKLOADS, workload)
    part.act(NOW)
    return world


def test_a_new_workload_is_said_to_wait_for_its_evaluation() -> None:
    queue = a_queue("LocalQueue", a_workload(a_job())["spec"]["queueName"], clusterQueue="cq")
    cluster_queue = a_queue("ClusterQueue", "cq")
    workload = a_workload(a_job())
    fresh(workload, queue, cluster_queue)
    assert row(workload, "QuotaReserved") == (
        "False",
        "PendingEvaluation",
        "Workload is pending evaluation in the scheduling queue",
    )
    assert row(workload, "Admitted") == ("False", "NoReservation", "The workload has no reservation")


def test_a_reason_that_is_about_to_be_written_is_not_replaced() -> None:
    status: Json = {}
    status_changes.pending(model.Explanation("WaitingForQuota", "1 more needed"))(status, NOW)
    status_changes.first_said(WAITS)(status, NOW)
    assert row({"status": status}, "QuotaReserved") == ("False", "WaitingForQuota", "1 more needed")
    world = WorkloadPartsWorld()
    slots: list[str] = []
    world.change = lambda key, slot, change, **_: slots.append(slot)  # type: ignore[method-assign, misc]
    part = FreshWorkloads(a_context(mirror=world.mirror, writes=world))  # type: ignore[arg-type]
    workload = a_workload(a_job())
    workload["status"] = {}
    for obj in (
        a_queue("LocalQueue", workload["spec"]["queueName"], clusterQueue="cq"),
        a_queue("ClusterQueue", "cq"),
        workload,
    ):
        world.mirror.upsert(kube.BY_KIND[obj["kind"]], obj)
    part.act(NOW)
    assert slots == ["fresh"], "a change in the slot of one that waits replaces it"


def test_what_keeps_it_from_being_tried_is_not_covered_up() -> None:
    name = a_workload(a_job())["spec"]["queueName"]
    queue, stopped = (a_queue("LocalQueue", name, clusterQueue="cq", stopPolicy=stop) for stop in ("None", "Hold"))
    cluster_queue = a_queue("ClusterQueue", "cq")
    inactive, gated, reserved = (a_workload(a_job()) for _ in range(3))
    inactive["spec"]["active"] = False
    gated["metadata"]["annotations"] = {GATED: "a.b/c"}
    reserved["status"] = {"conditions": [{"type": "QuotaReserved", "status": "True", "reason": "QuotaReserved"}]}
    for workload, *queues in (
        (a_workload(a_job()),),
        (a_workload(a_job()), queue),
        (a_workload(a_job()), stopped, cluster_queue),
        (inactive, queue, cluster_queue),
        (gated, queue, cluster_queue),
        (reserved, queue, cluster_queue),
    ):
        before = len(workload.get("status", {}).get("conditions", ()))
        fresh(workload, *queues)
        assert len(workload["status"].get("conditions", ())) == before
