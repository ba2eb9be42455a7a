"""Workloads behind a check that asks a cluster autoscaler for nodes: what is requested, and what the check says of it."""

from __future__ import annotations

import copy
from typing import Any

import pytest
from tests.builders.objects import Workload

from gangline.api import names
from gangline.api.schema.v1beta2.provisioning import ProvisioningRequestConfigSpec, RetryStrategy
from gangline.control.checks.provisioning import activity, bodies, planning
from gangline.control.checks.provisioning.bodies import groups
from gangline.control.checks.provisioning.planning import (
    AdoptTemplate,
    CreateRequest,
    CreateTemplate,
    DeleteRequest,
    DeleteTemplate,
    Refused,
    Remark,
    SetChecks,
    Step,
)
from gangline.objects import Stored, WorkloadObject

Json = dict[str, Any]
CLASS = "atomic.example.com"


# --- the world --------------------------------------------------------------------------------------------------------


def condition(kind: str, status: bool = True, message: str = "") -> Json:
    return {"type": kind, "status": str(status), "reason": kind, "message": message}


def pod_set(name: str = "main", count: int = 2, gpus: int = 1, **spec: Any) -> Json:
    container = {"name": "c", "image": "i", "resources": {"limits": {"nvidia.com/gpu": str(gpus)}} if gpus else {}}
    return {"name": name, "count": count, "template": {"spec": {"containers": [container], **spec}}}


def row(state: str = "Pending", name: str = "nodes", **more: Any) -> Json:
    return {"name": name, "state": state, "message": "", "lastTransitionTime": "2026-01-31T12:00:00Z", **more}


def workload(*pod_sets: Json, checks: list[Json] | None = None, **more: Any) -> WorkloadObject:
    """One that holds quota; `conditions` besides."""
    sets = pod_sets or (pod_set(),)
    assignments = [{"name": each["name"], "count": each["count"], "flavors": {"gpu": "a100"}} for each in sets]
    meta = {"uid": "w", "annotations": more.get("annotations", {})}
    made = Workload("wl", **meta).pod_sets(*sets).spec(active=more.get("active", True)).reserves("cq", *assignments)
    return (
        made.conditions(*more.get("conditions", ())).status(admissionChecks=[row()] if checks is None else checks).made
    )


def config(**fields: Any) -> ProvisioningRequestConfigSpec:
    return ProvisioningRequestConfigSpec(provisioning_class_name=CLASS, **fields)


FLAVOR = Stored({"spec": {"nodeLabels": {"gpu": "a100"}, "tolerations": [{"key": "gpu", "operator": "Exists"}]}})


class Cluster:
    """What exists besides the Workload; carries out the planner's steps as an API server would."""

    def __init__(
        self, workload: WorkloadObject, asked: ProvisioningRequestConfigSpec | None = None, **more: Any
    ) -> None:
        self.workload = workload
        self.checks: dict[str, Any] = {"nodes": asked or config()}
        self.requests: dict[str, Stored] = {}
        self.templates: dict[str, Stored] = {}
        self.flavor: Stored | None = FLAVOR
        self.more = more
        self.count = 0

    def plan(self) -> list[Step]:
        mine = [each for each in self.requests.values() if owner_of(each) == "w"]
        view = planning.ProvisioningView(
            self.workload,
            self.checks,
            mine,
            [each for each in self.templates.values() if owner_of(each) == "w"],
            self.requests.get,
            self.templates.get,
            exists=lambda ref: ref["uid"] in {"w", *(each["metadata"]["uid"] for each in self.requests.values())},
            flavor=lambda name: self.flavor,
            **self.more,
        )
        return planning.plan(view)

    def step(self) -> list[str]:
        """Plan once and carry it out; the names of the steps."""
        steps = self.plan()
        for step in steps:
            match step:
                case SetChecks(rows):
                    known = {before["name"]: after for before, after in rows}
                    checks = self.workload["status"]["admissionChecks"]
                    self.workload["status"]["admissionChecks"] = [known.get(each["name"], each) for each in checks]
                case CreateTemplate(_, body):
                    self._store(self.templates, body)
                case CreateRequest(_, body):
                    self._store(self.requests, body)
                case AdoptTemplate(template, body):
                    template["metadata"]["ownerReferences"] = body["metadata"]["ownerReferences"]
                case DeleteRequest(request):
                    del self.requests[request["metadata"]["name"]]
                case DeleteTemplate(template):
                    del self.templates[template["metadata"]["name"]]
                case _:
                    pass
        return [type(step).__name__ for step in steps]

    def settle(self) -> list[str]:
        """All steps until nothing is left to do."""
        taken: list[str] = []
        for _ in range(10):
            steps = self.step()
            if not steps:
                return taken
            taken += steps
        raise AssertionError(f"no end: {taken}")

    def _store(self, objects: dict[str, Stored], body: Json) -> None:
        assert body["metadata"]["name"] not in objects
        self.count += 1
        stored = Stored(copy.deepcopy(body))
        stored["metadata"] |= {"uid": f"u{self.count}", "resourceVersion": str(self.count)}
        objects[body["metadata"]["name"]] = stored

    def answer(self, *conditions: Json, attempt: int = 1, **status: Any) -> None:
        self.requests[f"wl-nodes-{attempt}"]["status"] = {"conditions": list(conditions), **status}

    @property
    def row(self) -> Json:
        return self.workload["status"]["admissionChecks"][0]


def owner_of(obj: Json) -> str:
    return next(ref["uid"] for ref in obj["metadata"]["ownerReferences"] if ref["controller"])


# --- the request ------------------------------------------------------------------------------------------------------


def test_templates_come_first_then_the_request_then_it_owns_them() -> None:
    cluster = Cluster(workload(pod_set("driver", 1), pod_set("worker", 4)))
    assert cluster.step() == ["CreateTemplate", "CreateTemplate"]
    assert {owner_of(each) for each in cluster.templates.values()} == {"w"}
    assert cluster.step() == ["CreateRequest"]
    assert cluster.settle() == ["AdoptTemplate", "AdoptTemplate"]
    [request] = cluster.requests.values()
    assert request["metadata"]["labels"] == {"kueue.x-k8s.io/managed": "true"}
    assert request["spec"] == {
        "provisioningClassName": CLASS,
        "parameters": {},
        "podSets": [
            {"podTemplateRef": {"name": "ppt-wl-nodes-1-driver"}, "count": 1},
            {"podTemplateRef": {"name": "ppt-wl-nodes-1-worker"}, "count": 4},
        ],
    }
    assert {owner_of(each) for each in cluster.templates.values()} == {request["metadata"]["uid"]}


def test_a_template_has_the_flavors_labels_and_counts_limits_as_requests() -> None:
    cluster = Cluster(workload(pod_set(nodeSelector={"zone": "a"})))
    cluster.step()
    template = cluster.templates["ppt-wl-nodes-1-main"]["template"]
    assert template["spec"]["nodeSelector"] == {"zone": "a", "gpu": "a100"}
    assert template["spec"]["tolerations"] == [{"key": "gpu", "operator": "Exists"}]
    assert template["spec"]["containers"][0]["resources"]["requests"] == {"nvidia.com/gpu": "1"}
    assert "requests" not in cluster.workload["spec"]["podSets"][0]["template"]["spec"]["containers"][0]["resources"]


def test_parameters_come_from_the_configuration_and_the_job_s_annotations_win() -> None:
    own = {"provreq.kueue.x-k8s.io/ValidUntilSeconds": "60", "provreq.kueue.x-k8s.io/zone": "b", "other": "x"}
    asked = config(parameters={"ValidUntilSeconds": "0", "p": "v"})
    cluster = Cluster(workload(annotations=own), asked)
    cluster.settle()
    [request] = cluster.requests.values()
    assert request["spec"]["parameters"] == {"ValidUntilSeconds": "60", "p": "v", "zone": "b"}
    cluster.workload["metadata"]["annotations"] = {"provreq.kueue.x-k8s.io/ValidUntilSeconds": "90"}
    assert cluster.settle() == [], "later annotations change nothing"


def test_a_pod_set_with_fewer_pods_is_requested_with_these() -> None:
    behind = workload(pod_set(count=4))
    behind["status"]["admission"]["podSetAssignments"][0]["count"] = 3
    [group] = groups(behind, config())
    assert group.count == 3


def test_a_job_whose_node_selector_contradicts_its_flavor_is_told() -> None:
    cluster = Cluster(workload(pod_set(nodeSelector={"gpu": "h100"})))
    [refused] = cluster.plan()
    assert isinstance(refused, Refused)
    assert refused.message.startswith('Error creating PodTemplate "ppt-wl-nodes-1-main": template.spec.nodeSelector')


def test_what_an_earlier_admission_prepared_is_replaced() -> None:
    """This process ended after it had made the template; meanwhile the workload was given another flavor."""
    cluster = Cluster(workload())
    cluster.step()
    cluster.flavor = Stored({"spec": {"nodeLabels": {"gpu": "h100"}}})
    assert cluster.step() == ["DeleteTemplate"]
    assert cluster.settle() == ["CreateTemplate", "CreateRequest", "AdoptTemplate"]
    [template] = cluster.templates.values()
    assert template["template"]["spec"]["nodeSelector"] == {"gpu": "h100"}


def test_a_name_that_is_taken_is_waited_for_or_asked_for() -> None:
    """What a deleted owner left behind goes away; what somebody else has is for the API server to refuse."""
    left = {"kind": "Workload", "name": "wl", "uid": "before", "controller": True}
    cluster = Cluster(workload())
    name = "ppt-wl-nodes-1-main"
    cluster.templates[name] = Stored({"metadata": {"name": name, "ownerReferences": [left]}})
    assert cluster.step() == ["DeleteTemplate"]
    meta = {"name": "wl-nodes-1", "uid": "r0", "ownerReferences": [left]}
    cluster.requests["wl-nodes-1"] = Stored({"metadata": meta, "spec": {}})
    assert cluster.plan() == []

    cluster = Cluster(workload())
    foreign = {**left, "kind": "ProvisioningRequest", "name": "r", "uid": "r0"}
    cluster.requests["r"] = Stored({"metadata": {"name": "r", "uid": "r0", "ownerReferences": [left]}})
    cluster.templates[name] = Stored({"metadata": {"name": "x", "ownerReferences": [foreign]}})
    assert [type(step) for step in cluster.plan()] == [CreateTemplate]


@pytest.mark.parametrize(("managed", "needed"), [(None, True), (["nvidia.com/gpu"], True), (["google.com/tpu"], False)])
def test_only_pods_that_use_a_managed_resource_are_requested(managed: list[str] | None, needed: bool) -> None:
    cluster = Cluster(workload(), config(managed_resources=managed))
    cluster.settle()
    assert bool(cluster.requests) == needed
    said = ("Pending", "") if needed else ("Ready", "the provisioning request is not needed")
    assert (cluster.row["state"], cluster.row["message"]) == said


def test_a_pod_set_without_a_managed_resource_is_left_out() -> None:
    found = groups(workload(pod_set("cpu", gpus=0), pod_set("gpu")), config(managed_resources=["nvidia.com/gpu"]))
    assert [group.name for group in found] == ["gpu"]
    assert groups(workload(pod_set(count=0)), config()) == []


@pytest.mark.parametrize(
    ("policy", "merged"),
    [
        (None, ["a=1", "b=2", "c=4", "d=8"]),
        ("IdenticalPodTemplates", ["a=3", "c=4", "d=8"]),
        ("IdenticalWorkloadSchedulingRequirements", ["a=7", "d=8"]),
    ],
)
def test_alike_pod_sets_are_requested_as_one(policy: Any, merged: list[str]) -> None:
    sets = (
        pod_set("a", 1),
        pod_set("b", 2),
        pod_set("c", 4, priorityClassName="high"),
        pod_set("d", 8, nodeSelector={"zone": "b"}),
    )
    found = groups(workload(*sets), config(pod_set_merge_policy=policy))
    assert [f"{group.name}={group.count}" for group in found] == merged


# --- names ------------------------------------------------------------------------------------------------------------


def test_the_attempt_is_read_from_the_name() -> None:
    assert bodies.request_name("wl", "nodes", 3) == "wl-nodes-3"
    assert bodies.attempt_of("wl-nodes-12", "wl", "nodes") == 12
    for other in ("wl-nodes-", "wl-nodes-x", "wl-nodes-1-1", "wl-other-1", "a-wl-nodes-1", "wl-nodes-" + "9" * 99):
        assert bodies.attempt_of(other, "wl", "nodes") is None


def test_long_names_are_cut_and_still_tell_their_attempt() -> None:
    long = "w" * 246
    named = [bodies.request_name(long, "n", number) for number in (1, 2, 12)]
    assert all(len(name) <= 253 for name in named)
    assert [bodies.attempt_of(name, long, "n") for name in named] == [1, 2, 12]
    assert bodies.attempt_of(named[0], long, "m") is None
    assert ".-" not in bodies.request_name("w" * 246 + ".w", "n", 1)


# --- what the check says ----------------------------------------------------------------------------------------------


def after(cluster: Cluster, *conditions: Json, **status: Any) -> Json:
    cluster.settle()
    cluster.answer(*conditions, **status)
    cluster.settle()
    return cluster.row


def test_it_waits_and_tells_when_the_nodes_are_expected() -> None:
    cluster = Cluster(workload(checks=[row(message="Reset to Pending after eviction. Previously: Ready")]))
    assert after(cluster)["message"] == "", "what an earlier state said does not hold any more"
    assert after(cluster, condition("Accepted"))["state"] == "Pending"
    said = after(cluster, condition("Accepted"), condition("Provisioned", False, "in 5 minutes"))
    assert (said["state"], said["message"]) == ("Pending", "in 5 minutes")


def test_provisioned_makes_it_ready_and_the_pods_use_the_nodes() -> None:
    keys = [
        {"key": "example.com/pool", "value_from_provisioning_class_detail": "Pool"},
        {"key": "example.com/zone", "value_from_provisioning_class_detail": "Zone"},
    ]
    cluster = Cluster(workload(), config(pod_set_updates={"node_selector": keys}))
    cluster.settle()
    cluster.answer(
        condition("Provisioned", message="3 nodes"), provisioningClassDetails={"Pool": "p7", "Zone": "no way"}
    )
    steps = cluster.plan()
    assert [type(step) for step in steps] == [SetChecks, Remark], "a detail that cannot be a label is reported"
    cluster.settle()
    assert (cluster.row["state"], cluster.row["message"]) == ("Ready", "3 nodes")
    assert cluster.row["podSetUpdates"] == [
        {
            "name": "main",
            "annotations": {
                "autoscaling.x-k8s.io/consume-provisioning-request": "wl-nodes-1",
                "autoscaling.x-k8s.io/provisioning-class-name": CLASS,
            },
            "nodeSelector": {"example.com/pool": "p7"},
        }
    ]


def test_all_pod_sets_of_a_merged_request_use_its_nodes() -> None:
    cluster = Cluster(workload(pod_set("a"), pod_set("b")), config(pod_set_merge_policy="IdenticalPodTemplates"))
    ready = after(cluster, condition("Provisioned"))
    assert [update["name"] for update in ready["podSetUpdates"]] == ["a", "b"]
    assert all("nodeSelector" not in update for update in ready["podSetUpdates"])


def test_a_failure_is_retried_with_a_pause_and_the_next_attempt_has_another_name() -> None:
    cluster = Cluster(workload())
    said = after(cluster, condition("Failed", message="no quota in zone"))
    assert (said["state"], said["message"]) == ("Retry", "Retrying after failure: no quota in zone")
    assert said["requeueAfterSeconds"] == 60
    assert list(cluster.requests) == ["wl-nodes-1"], "not before its quota was given back"

    evicted(cluster)
    assert cluster.settle() == ["DeleteRequest"]
    reserved(cluster, row(retryCount=1))
    cluster.templates.clear()  # by Kubernetes, after their request
    cluster.settle()
    assert list(cluster.requests) == ["wl-nodes-2"]
    cluster.answer(condition("Failed", message="again"), attempt=2)
    cluster.settle()
    assert (cluster.row["state"], cluster.row["requeueAfterSeconds"]) == ("Retry", 120)


def evicted(cluster: Cluster) -> None:
    status = cluster.workload["status"]
    status["conditions"] = [condition(names.EVICTED)]
    status.pop("admission", None)


def reserved(cluster: Cluster, *checks: Json) -> None:
    cluster.workload["status"] = workload(checks=list(checks))["status"]


def test_requests_of_an_evicted_workload_stay_where_the_gate_says_so() -> None:
    """Kueue's behaviour before 0.19: the failed request stays, and the next attempt follows it."""
    cluster = Cluster(workload(), clean_up=False)
    after(cluster, condition("Failed", message="no"))
    evicted(cluster)
    assert cluster.settle() == []
    reserved(cluster, row(retryCount=1))
    assert cluster.settle() == [
        *("SetChecks", "CreateTemplate", "CreateRequest", "SetChecks", "DeleteRequest", "AdoptTemplate"),
    ]
    assert list(cluster.requests) == ["wl-nodes-2"]
    assert (cluster.row["state"], cluster.row["message"]) == ("Pending", "")


def test_after_the_last_attempt_it_is_rejected() -> None:
    cluster = Cluster(workload(checks=[row(retryCount=3)]))
    cluster.settle()
    assert list(cluster.requests) == ["wl-nodes-4"]
    cluster.answer(condition("Failed", message="out of stock"), attempt=4)
    cluster.settle()
    assert (cluster.row["state"], cluster.row["message"]) == ("Rejected", "out of stock")
    assert list(cluster.requests) == ["wl-nodes-4"]


@pytest.mark.parametrize(
    ("retry", "times", "seconds"),
    [
        ({}, 1, 60),
        ({}, 2, 120),
        ({}, 5, 960),
        ({}, 6, 1800),
        ({}, 2**40, 1800),
        ({"backoff_base_seconds": 100, "backoff_max_seconds": 50}, 1, 100),
        ({"backoff_base_seconds": 100, "backoff_max_seconds": 50}, 2, 50),
        ({"backoff_max_seconds": 0}, 99, 2**31 - 1),
        ({"backoff_base_seconds": -5}, 1, 0),
    ],
)
def test_pauses_double_up_to_the_limit(retry: Json, times: int, seconds: int) -> None:
    assert planning.wait(RetryStrategy(**retry), times) == seconds


def test_an_expired_booking_is_a_failure_until_the_workload_is_admitted() -> None:
    cluster = Cluster(workload())
    said = after(cluster, condition("Provisioned"), condition("BookingExpired", message="10 min"))
    assert (said["state"], said["message"]) == ("Retry", "Retrying after booking expired: 10 min")

    running = Cluster(workload())
    after(running, condition("Provisioned"))
    running.workload["status"]["conditions"].append(condition(names.ADMITTED))
    running.answer(condition("Provisioned"), condition("BookingExpired", message="10 min"))
    assert running.settle() == []
    assert running.row["state"] == "Ready"


def test_revoked_capacity_rejects_even_a_running_workload_but_no_inactive_one() -> None:
    for active, state in ((True, "Rejected"), (False, "Ready")):
        cluster = Cluster(workload(active=active))
        after(cluster, condition("Provisioned"))
        cluster.workload["status"]["conditions"].append(condition(names.ADMITTED))
        cluster.answer(condition("Provisioned"), condition("CapacityRevoked", message="scaled down"))
        cluster.settle()
        assert cluster.row["state"] == state


def test_a_running_workload_does_without_its_request_and_configuration() -> None:
    cluster = Cluster(workload())
    after(cluster, condition("Provisioned"))
    cluster.workload["status"]["conditions"].append(condition(names.ADMITTED))
    cluster.checks = {"nodes": None}
    assert cluster.settle() == []
    cluster.checks = {"nodes": config()}
    cluster.requests.clear()
    assert cluster.settle() == []
    assert cluster.row["state"] == "Ready"


# --- when nothing, or something else, is to be requested ---------------------------------------------------------------


def test_without_a_configuration_the_check_says_so_and_nothing_is_requested() -> None:
    cluster = Cluster(workload())
    cluster.settle()
    cluster.checks = {"nodes": None}
    assert cluster.settle() == ["SetChecks", "DeleteRequest"]
    assert (cluster.row["state"], cluster.row["message"]) == ("Pending", "the check is not active")


def test_a_changed_configuration_asks_anew_under_the_same_name() -> None:
    cluster = Cluster(workload())
    cluster.settle()
    cluster.checks = {"nodes": config(parameters={"zone": "b"})}
    assert cluster.step() == ["DeleteRequest"]
    cluster.templates.clear()  # by Kubernetes, after their request
    assert cluster.settle() == ["CreateTemplate", "CreateRequest", "AdoptTemplate"]
    assert cluster.requests["wl-nodes-1"]["spec"]["parameters"] == {"zone": "b"}


@pytest.mark.parametrize("kind", [names.FINISHED, names.EVICTED])
def test_requests_and_templates_go_with_the_run(kind: str) -> None:
    requested, prepared = Cluster(workload()), Cluster(workload())
    requested.settle()
    prepared.step()
    for cluster, steps in ((requested, ["DeleteRequest"]), (prepared, ["DeleteTemplate"])):
        cluster.workload["status"]["conditions"].append(condition(kind))
        assert cluster.settle() == steps


def test_nothing_is_requested_without_quota_or_for_a_workload_that_goes() -> None:
    waiting = workload()
    waiting["status"] = {"admissionChecks": [row()], "conditions": []}
    assert Cluster(waiting).plan() == []
    going = Cluster(workload())
    going.settle()
    going.workload["metadata"]["deletionTimestamp"] = "2026-01-31T12:00:00Z"
    assert going.settle() == ["DeleteRequest"]


def test_checks_of_other_controllers_are_left_alone_and_others_requests_go() -> None:
    cluster = Cluster(workload(checks=[row(), row(name="other")]))
    cluster.settle()
    assert list(cluster.requests) == ["wl-nodes-1"]
    cluster.workload["status"]["admissionChecks"] = [row(name="other")]
    assert cluster.settle() == ["DeleteRequest"]
    assert cluster.row == row(name="other")


def test_two_checks_have_a_request_each() -> None:
    cluster = Cluster(workload(checks=[row(), row(name="more")]))
    cluster.checks["more"] = config(parameters={"p": "v"})
    cluster.settle()
    assert sorted(cluster.requests) == ["wl-more-1", "wl-nodes-1"]
    cluster.answer(condition("Provisioned"))
    cluster.settle()
    assert [each["state"] for each in cluster.workload["status"]["admissionChecks"]] == ["Ready", "Pending"]


def test_requests_that_are_being_deleted_are_neither_used_nor_deleted_again() -> None:
    cluster = Cluster(workload())
    cluster.settle()
    cluster.answer(condition("Provisioned"))
    cluster.requests["wl-nodes-1"]["metadata"]["deletionTimestamp"] = "2026-01-31T12:00:00Z"
    assert cluster.plan() == []


# --- the AdmissionCheck -----------------------------------------------------------------------------------------------


def check(**parameters: Any) -> Stored:
    spec: Json = {"controllerName": "kueue.x-k8s.io/provisioning-request"}
    return Stored({"spec": spec | ({"parameters": parameters} if parameters else {})})


RIGHT = {"apiGroup": "kueue.x-k8s.io", "kind": "ProvisioningRequestConfig", "name": "c"}


@pytest.mark.parametrize(
    ("parameters", "message"),
    [
        ({}, "missing parameters reference"),
        ({**RIGHT, "name": ""}, "empty name: bad parameters reference"),
        (
            {**RIGHT, "apiGroup": "x"},
            'wrong group "x", expecting "kueue.x-k8s.io": bad parameters reference',
        ),
        (
            {**RIGHT, "kind": "Other"},
            'wrong kind "Other", expecting "ProvisioningRequestConfig": bad parameters reference',
        ),
        ({**RIGHT, "name": "gone"}, 'ProvisioningRequestConfig.kueue.x-k8s.io "gone" not found'),
        ({**RIGHT, "name": "bad"}, "ProvisioningRequestConfig bad: spec.provisioningClassName: is required"),
    ],
)
def test_a_check_is_inactive_without_a_right_configuration(parameters: Json, message: str) -> None:
    configs = {"c": Stored({"spec": {"provisioningClassName": CLASS}}), "bad": Stored({"spec": {"parameters": {}}})}
    found = activity.activity_of(check(**parameters), configs.get, served=True)
    assert found == activity.Activity(False, "BadParametersRef", message)


def test_a_check_is_active_where_requests_are_served() -> None:
    configs = {"c": Stored({"spec": {"provisioningClassName": CLASS}})}
    assert activity.activity_of(check(**RIGHT), configs.get, served=True).active
    found = activity.activity_of(check(**RIGHT), configs.get, served=False)
    assert (found.active, found.reason) == (False, "NotServed")


def test_nothing_is_requested_for_a_job_that_was_admitted_before_its_queue_got_the_check() -> None:
    running = workload(pod_set(), checks=[row()])
    running["status"]["conditions"].append(condition(names.ADMITTED))
    assert Cluster(running).step() == []
