"""What decisions tell people beside what they write: conditions that last, events, counts and notices."""

from __future__ import annotations

import copy
from dataclasses import replace
from typing import Any

import pytest
from tests.context import a_context
from tests.objects import Stored, WorkloadObject

from gangline.api.read import conditions, policy_reader
from gangline.api.read.policy_reader import StallPolicy
from gangline.control.decisions.carrying_out import Decisions, grace_of
from gangline.control.feed.mirror import Mirror
from gangline.control.metrics.operator_metrics import Metrics
from gangline.control.writes.notify.notices import Notices
from gangline.control.writes.status import run_changes, status_changes
from gangline.control.writes.status.change import Change
from gangline.engine import model
from gangline.kube import resources as kube
from gangline.objects import view

Json = dict[str, Any]
NOW = 1_700_000_000_000
KEY = "team/job-train"


class Desk:
    """Decisions about one admitted Workload; what they write is written at once."""

    def __init__(self) -> None:
        self.mirror = Mirror(observe=lambda change: None)
        self.metrics = Metrics()
        self.events: list[str] = []
        self.notices: list[tuple[str, str]] = []
        self.slots: list[str] = []
        self.version = 0
        deliver = lambda receiver, terms, notice: self.notices.append((notice.kind, notice.text))  # noqa: E731
        notices = Notices(self.mirror, deliver, now=lambda: NOW)
        context = a_context(mirror=self.mirror, writes=self, notices=notices, recorder=self, metrics=self.metrics)
        nothing: Any = None
        self.decisions = Decisions(context, nothing)
        every = [{"secretRef": {"name": "s"}, "events": ["Admitted", "Overrun", "Evicted", "Preempted"]}]
        policy = {"clusterQueues": {"names": ["cq"]}, "notify": every}
        self.put(kube.QUEUE_POLICIES, {"metadata": {"name": "p"}, "spec": policy})
        self.put(kube.CLUSTER_QUEUES, {"metadata": {"name": "cq"}, "spec": {}})
        template = {"spec": {"containers": [{"name": "c"}], "terminationGracePeriodSeconds": 120}}
        spec = {"queueName": "lq", "podSets": [{"name": "main", "count": 1, "template": template}]}
        workload: Json = {"metadata": {"name": "job-train", "namespace": "team"}, "spec": spec, "status": {}}
        self.assignment = (model.PodSetAssignment("main", 1, {"gpu": "f"}, {"gpu": 1}),)
        status_changes.admit(self.admit())(workload["status"], NOW)
        self.put(kube.WORKLOADS, workload)

    def admit(self) -> model.Admit:
        return model.Admit(KEY, "job-train", model.Admission("cq", self.assignment), True, NOW)

    def put(self, resource: Any, obj: Json) -> None:
        self.version += 1
        obj["metadata"] |= {"uid": obj["metadata"]["name"], "resourceVersion": str(self.version)}
        self.mirror.upsert(resource, view(resource, obj))

    def record(self, obj: Stored, kind: str, reason: str, note: str) -> None:
        self.events.append(reason)

    def send(self, key: Any, verb: str, body: Json, *, done: Any, **_: Any) -> None:
        done(None)

    def change(self, key: str, slot: str, change: Change, *, done: Any = None, **_: Any) -> None:
        self.slots.append(slot)
        raw = copy.deepcopy(self.mirror.get(kube.WORKLOADS, key)) or {}
        before = copy.deepcopy(raw["status"])
        change(raw["status"], NOW)
        self.put(kube.WORKLOADS, raw)
        if done is not None:
            done(None if raw["status"] == before else raw)

    def row(self, kind: str) -> Json:
        raw = self.mirror.get(kube.WORKLOADS, KEY) or {}
        return conditions.find(raw["status"]["conditions"], kind) or {}

    def count(self, name: str, **labels: str) -> float:
        return self.metrics.registry.get_sample_value(name, labels) or 0.0


def overdue() -> model.Warn:
    return model.Warn("Workload", KEY, "Overdue", "has run for 3h; 90 % of such runs end within 1h")


def test_an_overrun_becomes_a_condition_and_is_told_once() -> None:
    desk = Desk()
    desk.decisions.carry_out(overdue())
    assert (desk.row("Overrun")["status"], desk.row("Overrun")["reason"]) == ("True", "Overdue")
    assert desk.events == ["Overdue"]
    assert desk.notices == [("Overrun", "The workload has run for 3h; 90 % of such runs end within 1h")]
    assert desk.count("gangline_overrun_total", state="Overdue") == 1
    value = desk.mirror.workload_value(KEY)
    assert value is not None
    assert (value.overrun, value.overran) == ("Overdue", True)
    desk.decisions.carry_out(overdue())
    assert len(desk.notices) == 1, "nothing was written, so nobody is notified"


def test_a_run_that_ended_leaves_only_the_memory_that_it_was_overdue() -> None:
    desk = Desk()
    desk.decisions.carry_out(overdue())
    desk.change(KEY, "stalled", run_changes.stalled(False, "Idle", "idle"))
    desk.change(KEY, "release", status_changes.release)
    value = desk.mirror.workload_value(KEY)
    assert value is not None
    assert (value.overrun, value.overran, value.stalled) == ("", True, "")
    assert desk.row("Stalled") == {}


def test_a_warning_about_something_else_is_only_an_event() -> None:
    desk = Desk()
    desk.decisions.carry_out(model.Warn("ClusterQueue", "cq", "Breaker", "too many nodes"))
    assert desk.events == ["Breaker"]
    assert desk.notices == []


def test_who_reached_the_hard_limit_is_counted_and_told() -> None:
    desk = Desk()
    cause = "MaximumExecutionTimeExceeded"
    over = model.Evict(KEY, "job-train", "Deactivated", "over", deactivate=True, underlying_cause=cause)
    desk.decisions.carry_out(over)
    assert desk.notices == [("Evicted", "over")]
    assert desk.count("gangline_overrun_total", state="Limit") == 1


def test_who_is_preempted_hears_how_long_is_left() -> None:
    desk = Desk()
    desk.decisions.carry_out(model.Preempt(KEY, "job-train", "InClusterQueue", "For team/urgent", "team/urgent", "u"))
    assert desk.notices == [("Preempted", "For team/urgent. Its pods have 120s to stop")]
    nothing_said = WorkloadObject({"spec": {"podSets": [{"template": {"spec": {}}}]}})
    assert grace_of(nothing_said) == 30, "Kubernetes' default"


def test_an_admission_is_told() -> None:
    desk = Desk()
    raw = copy.deepcopy(desk.mirror.get(kube.WORKLOADS, KEY)) or {}
    raw["status"] = {}
    desk.put(kube.WORKLOADS, raw)
    desk.decisions.carry_out(desk.admit())
    ((kind, text),) = desk.notices
    assert kind == "Admitted"
    assert text.startswith("Admitted by ClusterQueue cq after a wait of ")


# --- policies ---------------------------------------------------------------------------------------------------------


def policy(**spec: Any) -> Stored:
    return Stored({"metadata": {"name": "p"}, "spec": {"clusterQueues": {"names": ["cq"]}, **spec}})


def test_what_a_policy_says_of_overruns_reaches_the_engine() -> None:
    said = {"warnAt": "0.8", "overdueFactor": "2500m", "action": "Requeue", "grace": "10m"}
    assert policy_reader.overrun(policy(overrun=said)) == model.Overrun(0.8, 2.5, "Requeue", 600.0)
    assert policy_reader.overrun(policy(overrun={})) == model.Overrun()
    assert policy_reader.overrun(policy()) is None
    assert policy_reader.overrun(None) is None


@pytest.mark.parametrize(
    ("said", "expected"),
    [
        ({}, StallPolicy()),
        (
            {"after": "20m", "startup": "1h", "grace": "0s", "action": "Restart", "maxActions": 1},
            StallPolicy(1_200_000, 3_600_000, 0, "Restart", 1),
        ),
        ({"action": "None"}, None),
        (None, None),
    ],
)
def test_what_a_policy_says_of_stalls(said: Json | None, expected: StallPolicy | None) -> None:
    assert policy_reader.stall(policy(**({"stall": said} if said is not None else {}))) == expected


def test_places_found_with_the_last_check_do_not_replace_its_write() -> None:
    desk = Desk()
    desk.decisions.carry_out(model.Swap(KEY, "job-train", model.Admission("cq", desk.assignment)))
    desk.decisions.carry_out(model.CompleteAdmission(KEY, "job-train"))
    assert len(set(desk.slots)) == 2, "a change in the slot of one that waits replaces it"


def test_nor_does_an_admission_whose_checks_were_ready_before_replace_its_reservation() -> None:
    desk = Desk()
    desk.decisions.carry_out(replace(desk.admit(), admitted=False, checks=("c",)))
    desk.decisions.carry_out(model.CompleteAdmission(KEY, "job-train"))
    assert len(set(desk.slots)) == 2


OF_A_GROUP = {"annotations": {"kueue.x-k8s.io/is-group-workload": "true"}}
OF_A_POD = {"ownerReferences": [{"apiVersion": "v1", "kind": "Pod", "name": "p", "uid": "p", "controller": True}]}


@pytest.mark.parametrize(("meta", "known"), [({}, False), (OF_A_GROUP, True), (OF_A_POD, True)])
@pytest.mark.parametrize("checked", [False, True])
def test_an_admission_says_at_once_that_the_pods_of_it_are_not_ready(meta: Json, known: bool, checked: bool) -> None:
    """One write less per gang. Nothing is said of the pods of a Workload that nobody makes pods of."""
    desk = Desk()
    workload = copy.deepcopy(desk.mirror.get(kube.WORKLOADS, KEY)) or {}
    workload["metadata"] |= meta
    workload["status"] = {}
    desk.put(kube.WORKLOADS, workload)
    admitted = desk.admit()
    if checked:
        desk.decisions.carry_out(replace(admitted, admitted=False, checks=("c",)))
        assert desk.row("PodsReady") == {}
        desk.decisions.carry_out(model.CompleteAdmission(KEY, "job-train"))
    else:
        desk.decisions.carry_out(admitted)
    assert desk.row("Admitted")["status"] == "True"
    assert desk.row("PodsReady").get("reason") == ("WaitForStart" if known else None)
