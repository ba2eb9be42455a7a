"""Pods and StatefulSets that run in another cluster: what is sent there, and what those here show."""

from __future__ import annotations

from typing import Any

import pytest
from tests.cluster.serving import stateful_set
from tests.jobs.plain_pods import a_pod, changed
from tests.merging import merge_patch
from tests.objects import JobObject, PodObject, altered, condition_of

from gangline.api import names
from gangline.api.read import merge
from gangline.jobs import on_other_cluster
from gangline.jobs.base import RunsOnOtherCluster
from gangline.jobs.pods import member
from gangline.kube import resources as kube

Json = dict[str, Any]
GATED: Json = {
    "type": "PodScheduled",
    "status": "False",
    "reason": "SchedulingGated",
    "message": "Scheduling is blocked due to non-empty scheduling gates",
}
SCHEDULED: Json = {"type": "PodScheduled", "status": "True"}
UNSCHEDULABLE: Json = {"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": "0/3 nodes"}
READY: Json = {"type": "Ready", "status": "True"}


def kind() -> RunsOnOtherCluster:
    found = on_other_cluster(kube.PODS)
    assert found is not None
    return found


def here(**status: Any) -> PodObject:
    return altered(a_pod("p"), status={"phase": "Pending", "qosClass": "Burstable", "conditions": [GATED], **status})


def there(*conditions: Json, phase: str = "Running", **status: Any) -> PodObject:
    return altered(
        a_pod("p"), status={"phase": phase, "conditions": list(conditions), "qosClass": "Guaranteed", **status}
    )


def test_a_pod_is_sent_as_it_waits() -> None:
    pod = here()
    pod["spec"] |= {"priorityClassName": "high", "priority": 7, "preemptionPolicy": "Never", "serviceAccountName": "a"}
    sent = kind().sent(pod, [])
    assert {"name": names.ADMISSION_GATE} in sent["schedulingGates"]
    assert sent["priorityClassName"] == "high" and sent["serviceAccountName"] == "a"
    assert not {"priority", "preemptionPolicy", "nodeName"} & sent.keys(), "that cluster has numbers of its own"
    assert not kind().marks(pod)
    del pod["spec"]["priorityClassName"]
    assert kind().sent(pod, [])["priority"] == 7


def test_a_pod_shows_the_status_of_the_other() -> None:
    running = there(SCHEDULED, READY, hostIP="10.0.0.1")
    shown = kind().mirrored(here(), running)
    assert shown == {**running["status"], "qosClass": "Burstable"}, "its own quality of service cannot change"
    assert kind().mirrored(altered(here(), status=shown), running) is None
    assert kind().mirrored(here(), altered(a_pod("p"), status={})) is None


def test_it_says_that_it_waits_at_its_gate_until_the_other_has_a_node() -> None:
    """A cluster autoscaler would add nodes for a pod that cannot be scheduled."""
    waiting = there(UNSCHEDULABLE, {"type": "Initialized", "status": "True"}, phase="Pending")
    shown = kind().mirrored(here(), waiting)
    assert shown is not None and condition_of({"status": shown}, "PodScheduled") == GATED
    assert condition_of({"status": shown}, "Initialized") is not None
    back = kind().mirrored(here(phase="Running", conditions=[SCHEDULED]), waiting)
    row = condition_of({"status": back}, "PodScheduled") or {}
    assert (row["status"], row["reason"]) == ("False", "SchedulingGated")


def test_a_pod_that_its_cluster_stops_starts_anew_elsewhere() -> None:
    stopped = there({"type": "TerminationTarget", "status": "True"}, phase="Failed")
    assert kind().mirrored(here(phase="Running"), stopped) is None
    deleted = changed(here(), deleted=True)
    assert kind().mirrored(deleted, there(READY)) is None


@pytest.mark.parametrize(
    "status", [{"phase": "Running"}, {"conditions": [SCHEDULED], "containerStatuses": [{"name": "c"}]}]
)
def test_a_pod_that_runs_nowhere_waits(status: Json) -> None:
    pod = here(**status)
    idle = kind().mirrored(pod, None)
    assert idle is not None
    assert idle["phase"] == "Pending" and idle["qosClass"] == "Burstable" and "containerStatuses" not in idle
    assert {**(condition_of({"status": idle}, "PodScheduled") or {}), "lastTransitionTime": None} == {
        **GATED,
        "lastTransitionTime": None,
    }
    patched = merge_patch(pod, {"status": merge.difference(pod["status"], idle)})
    assert kind().mirrored(patched, None) is None, "once"


@pytest.mark.parametrize("phase", ["Succeeded", "Failed"])
def test_what_has_ended_stays_as_it_ended(phase: str) -> None:
    assert kind().mirrored(here(phase=phase, conditions=[SCHEDULED]), None) is None


def test_a_member_keeps_the_status_of_its_pod_while_it_waits() -> None:
    pod = here(phase="Running", conditions=[SCHEDULED, READY])
    waiting = member.read(pod)
    assert waiting.seen() == altered(waiting.manifest(), status=pod["status"])
    assert (waiting.gated, waiting.started, waiting.ready) == (True, False, True)
    assert "status" not in member.read(changed(pod, started=True)).seen()


def test_a_pod_of_a_deployment_that_was_sent_here_uses_the_workload_that_it_names() -> None:
    pod = here()
    pod["metadata"]["annotations"][names.SUSPENDED_BY_PARENT] = "deployment"
    pod["metadata"]["labels"][names.PREBUILT_WORKLOAD] = "wl"
    assert member.read(pod).prebuilt == "", "of one that was made here, it would be that of all its pods"
    pod["metadata"]["labels"][names.MULTIKUEUE_ORIGIN] = "east"
    assert member.read(pod).prebuilt == "wl"


def test_a_stateful_set_is_sent_as_a_whole() -> None:
    found = on_other_cluster(kube.STATEFUL_SETS)
    assert found is not None and found.pods_wait
    parent = JobObject(stateful_set("db", "lq", 3))
    parent["metadata"]["uid"] = "u"
    assert found.sent(parent, []) == parent["spec"]
    assert found.marks(parent) == {names.MULTIKUEUE_ORIGIN_UID: "u"}
    assert found.mirrored(altered(parent, status={"replicas": 0}), JobObject({"status": {"replicas": 3}})) is None
