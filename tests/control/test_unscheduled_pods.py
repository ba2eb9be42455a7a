"""Which gangs have pods that the scheduler places nowhere, and what is said of them. Without a cluster."""

from __future__ import annotations

from typing import Any, cast

import pytest
from tests.builders.objects import T, a_pod, a_workload
from tests.builders.parts import PartWorld
from tests.control.test_stall_watch import FakeWrites
from tests.objects import PodObject, condition_of

from gangline.api import names
from gangline.api.read import conditions
from gangline.control.feed.pod import GATE
from gangline.control.nodes.stall.unscheduled_pods import PATIENCE, PERIOD, REFRESH, UnscheduledPodsOfRuns
from gangline.control.writes.status import status_changes
from gangline.engine import NOT_SCHEDULED, model
from gangline.kube import resources as kube

Json = dict[str, Any]
FULL = "0/2 nodes are available: 2 Insufficient nvidia.com/gpu. preemption: 0/2 nodes are available: no victims."
TAINTED = "0/2 nodes are available: 2 node(s) had untolerated taint {k: v}. preemption: none."
KEY = "ns/w"


def waiting(name: str, words: str = FULL, *, gated: bool = False, reason: str = "Unschedulable") -> PodObject:
    pod = a_pod(name, "", ready=False, phase="Pending")
    if gated:
        pod["spec"]["schedulingGates"] = [dict(GATE)]
        reason = "SchedulingGated"
    row = {"type": "PodScheduled", "status": "False", "reason": reason, "message": words}
    pod["status"]["conditions"] = [row]
    return pod


class Engine:
    """Says who is the cause."""

    by_job = False

    def matches_no_node(self, workload: str) -> bool:
        return self.by_job


class Place(PartWorld):
    """A gang of four pods, admitted at T."""

    def __init__(self) -> None:
        super().__init__()
        self.engine = Engine()
        self.writes = cast(Any, FakeWrites(self.mirror, lambda: self.now))
        self.part = self.another()
        body = a_workload(owner="train")
        body["metadata"]["uid"] = "u"
        body["spec"]["podSets"][0]["count"] = 4
        body["status"]["admission"]["podSetAssignments"] = [{"name": "main", "count": 4, "flavors": {}}]
        for row in body["status"]["conditions"]:
            row["lastTransitionTime"] = conditions.timestamp(T)
        self.mirror.upsert(kube.WORKLOADS, body)

    def another(self) -> UnscheduledPodsOfRuns:
        return UnscheduledPodsOfRuns(self.context(engine=self.engine))

    def after(self, millis: int, *pods: PodObject) -> Json:
        """The condition, once these pods were seen, and the time is so much later."""
        for pod in pods:
            self.pods.upsert(pod)
        self.now += millis
        self.part.act(self.now)
        raw = self.mirror.get(kube.WORKLOADS, KEY)
        return (condition_of(raw, names.PODS_UNSCHEDULED) if raw is not None else None) or {}

    def value(self) -> model.Workload:
        found = self.mirror.workload_value(KEY)
        assert found is not None
        return found


def test_the_commonest_words_of_the_scheduler_are_said_after_a_moment() -> None:
    place = Place()
    assert place.after(PATIENCE - 1, a_pod("a"), waiting("b", TAINTED), waiting("c"), waiting("d")) == {}
    assert place.part.due == T + PATIENCE
    row = place.after(1)
    assert (row["status"], row["reason"]) == ("True", "Unschedulable")
    assert row["message"] == "3 of 4 pods unscheduled: 0/2 nodes are available: 2 Insufficient nvidia.com/gpu"
    assert place.value().unscheduled == model.Unscheduled(T + PATIENCE, row["message"])


def test_words_that_change_are_written_once_a_minute_and_the_count_goes_on() -> None:
    place = Place()
    first = place.after(PATIENCE, waiting("a"))
    place.after(PERIOD, waiting("a", TAINTED))
    assert place.after(PERIOD) == first
    row = place.after(REFRESH)
    assert "untolerated taint" in row["message"]
    assert row["lastTransitionTime"] == first["lastTransitionTime"]
    assert place.writes.changes == 2
    place.after(REFRESH)
    assert place.writes.changes == 2, "nothing else is to be said"


@pytest.mark.parametrize(
    "pod",
    [waiting("a", gated=True), a_pod("a", "", ready=False, phase="Pending"), waiting("a", reason="SchedulerError")],
    ids=["at a gate", "not tried yet", "not the nodes"],
)
def test_only_pods_that_the_scheduler_cannot_place_count(pod: PodObject) -> None:
    assert Place().after(PATIENCE, pod) == {}


def test_it_is_over_when_all_pods_are_there_and_have_nodes() -> None:
    place = Place()
    place.after(PATIENCE, waiting("a"), a_pod("b"), a_pod("c"), a_pod("d"))
    place.pods.remove("ns/a")
    assert place.after(PERIOD)["status"] == "True", "its successor may be placed nowhere again"
    row = place.after(PERIOD, a_pod("e", ready=False))
    assert (row["status"], row["reason"]) == ("False", "Scheduled")
    assert place.value().unscheduled == model.Unscheduled(place.now // 1000 * 1000)
    place.after(1)
    assert place.part.due is None, "it is not looked at any more"


def test_another_operator_goes_on_from_the_condition() -> None:
    place = Place()
    first = place.after(PATIENCE, waiting("a"), a_pod("b"), a_pod("c"), a_pod("d"))
    place.part = place.another()
    place.part.lead()
    assert place.after(PERIOD) == first
    assert place.writes.changes == 1
    place.part = place.another()  # while nobody leads the pod gets a node
    place.pods.upsert(a_pod("a"))
    place.part.lead()
    assert place.after(PERIOD)["status"] == "False"


@pytest.mark.parametrize(
    ("words", "by_job", "reason"),
    [
        (FULL, False, "Unschedulable"),
        ("0/2 nodes are available: 2 node(s) didn't match Pod's node affinity/selector.", True, "CausedByJob"),
        ('0/2 nodes are available: persistentvolumeclaim "data" not found.', False, "CausedByJob"),
        ("0/2 nodes are available: pod has unbound immediate PersistentVolumeClaims.", False, "Unschedulable"),
    ],
)
def test_whether_the_job_is_the_cause(words: str, by_job: bool, reason: str) -> None:
    place = Place()
    place.engine.by_job = by_job
    assert place.after(PATIENCE, waiting("a", words))["reason"] == reason


def test_words_of_others_are_bounded_and_printable() -> None:
    row = Place().after(PATIENCE, waiting("a", "0/1 \x1b[2J\u202e" + "x" * 100_000))
    assert len(row["message"]) < 600
    assert row["message"].isprintable()


def evict(cause: str) -> model.Evict:
    return model.Evict(KEY, "u", "PodsReadyTimeout", "0/2 nodes", requeue_at=T, waited_for=cause)


def test_an_eviction_keeps_the_place_only_where_pods_were_unscheduled() -> None:
    for cause, counted, kept in ((NOT_SCHEDULED, NOT_SCHEDULED, True), ("", "WaitForStart", False)):
        place = Place()
        place.after(PATIENCE, waiting("a"))
        place.writes.change(KEY, "evict", status_changes.evict(evict(cause)))
        place.writes.change(KEY, "release", status_changes.release)
        raw = place.mirror.get(kube.WORKLOADS, KEY)
        assert raw is not None
        (row,) = raw["status"]["schedulingStats"]["evictions"]
        assert (row["reason"], row["underlyingCause"]) == ("PodsReadyTimeout", counted)
        value = place.value()
        assert (value.unscheduled is not None) is kept
        assert value.unscheduled is None or value.unscheduled.message == ""
