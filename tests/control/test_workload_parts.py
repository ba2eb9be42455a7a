"""What is done about Workloads themselves: orphans finish, cleared gates are said, and decisions are reported as in Kueue."""

from __future__ import annotations

from typing import Any

from tests.control.test_plan import NOW, a_job, a_workload, admitted

from gangline.api.read import conditions
from gangline.control.decisions.carrying_out import Decisions
from gangline.control.isolation.quarantine import Quarantine
from gangline.control.mirror.mirror import Mirror
from gangline.control.operator_metrics import Metrics
from gangline.control.parts.messages import Messages
from gangline.control.plan.cleared_gates import ClearedGates
from gangline.control.plan.unowned_workloads import UnownedWorkloads
from gangline.control.status import status_changes
from gangline.engine import Engine, model
from gangline.kube import resources as kube
from gangline.kube.reflector import Upsert
from gangline.kube.resources import ObjectKey, key_of

Json = dict[str, Any]
GATED = "kueue.x-k8s.io/admission-gated-by"


class World:
    """A mirror, and in place of writes and recorder: changes are made at once, events are kept."""

    def __init__(self, *objects: Json) -> None:
        self.mirror = Mirror(lambda change: None)
        for obj in objects:
            self.mirror.upsert(kube.BY_KIND[obj["kind"]], obj)
        self.patched: list[Json] = []
        self.events: list[tuple[str, str, str, str]] = []
        self.series: set[str] = set()

    def pending(self, *_: Any) -> bool:
        return False

    def change(self, key: str, slot: str, change: status_changes.Change, *, done: Any = None, **_: Any) -> None:
        workload = self.mirror.objects[kube.WORKLOADS][key]
        change(workload["status"], NOW)
        if done is not None:
            done(workload)

    def send(self, key: ObjectKey, verb: str, body: Json, *, done: Any = None, **_: Any) -> None:
        self.patched.append(body)
        if done is not None:
            done(None)

    def record(self, obj: Json, kind: str, reason: str, note: str, *, one_series: bool = False) -> None:
        self.events.append((obj["metadata"]["name"], kind, reason, note))
        if one_series:
            self.series.add(reason)


def row(workload: Json, kind: str) -> tuple[str, str, str]:
    found = conditions.find(workload["status"]["conditions"], kind)
    assert found is not None
    return found["status"], found["reason"], found["message"]


# --- gates ------------------------------------------------------------------------------------------------------------


def gated(status: Json, now: int) -> None:
    status_changes.pending(model.Explanation("AdmissionGated", "Admission is gated by: a.b/c"))(status, now)


def test_a_workload_whose_last_gate_was_removed_is_said_to_be_admissible_once() -> None:
    workload = a_workload(a_job(), gated=gated)
    workload["metadata"]["annotations"] = {GATED: "a.b/c"}
    world = World(workload)
    part = ClearedGates(world.mirror, world, world)  # type: ignore[arg-type]
    part.observe(kube.WORKLOADS, Upsert(workload))
    part.act(NOW)
    assert world.events == []
    del workload["metadata"]["annotations"]
    part.observe(kube.WORKLOADS, Upsert(workload))
    part.act(NOW)
    assert row(workload, "QuotaReserved") == (
        "False",
        "PendingEvaluation",
        "AdmissionGatedBy cleared, waiting for quota reservation",
    )
    part.observe(kube.WORKLOADS, Upsert(workload))
    part.act(NOW)
    [(_, *event)] = world.events
    assert event == ["Normal", "AdmissionGateCleared", "Admission gate cleared, workload is now admissible"]


def test_a_decision_that_was_made_meanwhile_stands() -> None:
    workload = a_workload(a_job(), gated=gated, admitted=admitted)
    status_changes.gates_cleared(workload["status"], NOW)
    assert row(workload, "QuotaReserved")[0] == "True"


# --- orphans ----------------------------------------------------------------------------------------------------------


def unowned(world: World) -> UnownedWorkloads:
    class Nothing:
        def __getattr__(self, name: str) -> Any:
            return Nothing()

        def __call__(self, *args: Any, **named: Any) -> Any:
            return Nothing()

    nothing: Any = Nothing()
    return UnownedWorkloads(world.mirror, nothing, nothing, nothing, world, Quarantine(lambda *_: None))  # type: ignore[arg-type]


def test_a_workload_that_was_parted_from_its_job_finishes_and_may_go() -> None:
    workload = a_workload(a_job(), admitted=admitted)
    del workload["metadata"]["ownerReferences"]
    world = World(workload)
    part = unowned(world)
    part._tidy(workload)
    assert row(workload, "Finished") == ("True", "OwnerNotFound", "The workload's owner no longer exists")
    assert world.patched == []
    part._tidy(workload)
    assert world.patched == [{"metadata": {"finalizers": None, "resourceVersion": "2"}}]


def test_a_workload_that_never_had_a_job_waits_for_its_author() -> None:
    workload = a_workload(a_job(), admitted=admitted)
    del workload["metadata"]["ownerReferences"], workload["metadata"]["labels"]["kueue.x-k8s.io/job-uid"]
    world = World(workload)
    unowned(world)._tidy(workload)
    assert conditions.find(workload["status"]["conditions"], "Finished") is None
    assert world.patched == []


# --- events -----------------------------------------------------------------------------------------------------------


def decisions(world: World, engine: Engine) -> Decisions:
    class Notices:
        def notify(self, *_: Any) -> None: ...

    return Decisions(world.mirror, world, engine, None, Notices(), world, Metrics(), Messages())  # type: ignore[arg-type]


def two_workloads() -> tuple[Json, Json]:
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
        world = World(victim, preemptor)
        engine = Engine(model.Settings(gates={"PriorityBoost": gate}))
        decision = model.Preempt(key_of(victim), "w", "InClusterQueue", "make room", key_of(preemptor), "p")
        decisions(world, engine)._report_preempted(decision, victim["status"], victim)
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
        world = World(workload)
        message = f"The workload is deactivated due to {because}"
        decision = model.Evict(key_of(workload), "w", "Deactivated", message, deactivate=True, underlying_cause=cause)
        decisions(world, Engine())._deactivate(decision)
        told = [(reason, note) for _, kind, reason, note in world.events if kind == "Warning"]
        assert told == ([said] if said else [])


def test_a_gated_workload_is_told_as_in_kueue() -> None:
    workload = a_workload(a_job())
    world = World(workload)
    explanation = model.Explanation("AdmissionGated", "Admission is gated by: a.b/c")
    decisions(world, Engine())._report_pending(model.ReportPending(key_of(workload), "w", explanation))
    [(_, *event)] = world.events
    assert event == ["Normal", "AdmissionGated", "Workload admission is gated by: a.b/c"]
