"""The priority classes that jobs of a namespace may name, as an administrator's annotation on the namespace lists them."""

from __future__ import annotations

import copy
from typing import Any

import pytest
from fastapi.testclient import TestClient
from tests.builders.written import gpujob, job
from tests.cluster.serving import deployment
from tests.webhooks.test_app import post, review
from tests.webhooks.test_facts import Cluster

from gangline.api import names
from gangline.api.read.configuration import ManagedJobs
from gangline_webhooks.app import Readiness, create_app
from gangline_webhooks.facts import Facts

Json = dict[str, Any]
CLASS, BOOST = names.PRIORITY_CLASS, names.PRIORITY_BOOST
LABEL = f"metadata.labels[{CLASS}]"


def client_of(allowed: str | None) -> TestClient:
    """A client of webhooks in a cluster whose namespace `team` has this annotation."""
    notes = {} if allowed is None else {names.ALLOWED_CLASSES: allowed}
    cluster = Cluster(
        namespaces_team={"metadata": {"name": "team", "annotations": notes}},
        workloadpriorityclasses_normal={"value": 10},
        workloadpriorityclasses_urgent={"value": 1000},
        priorityclasses_usual={"value": 0, "globalDefault": True},
        priorityclasses_high={"value": 1000},
    )
    managed = ManagedJobs(unlisted=frozenset())
    return TestClient(create_app(Facts(cluster, managed=managed), Readiness()))


def said(allowed: str | None, obj: Json, old: Json | None = None) -> str:
    """The refusal, "" for none."""
    with client_of(allowed) as client:
        response = post(client, "/validate", review(obj, old))
    return "" if response["allowed"] else response["status"]["message"]


def labelled(obj: Json, name: str) -> Json:
    obj = copy.deepcopy(obj)
    obj["metadata"].setdefault("labels", {})[CLASS] = name
    return obj


def in_team(obj: Json) -> Json:
    obj["metadata"]["namespace"] = "team"
    return obj


def with_pods_class(name: str) -> Json:
    obj = job(queue="main")
    obj["spec"]["template"]["spec"]["priorityClassName"] = name
    return obj


def with_pods_label(name: str) -> Json:
    obj = job(queue="main")
    obj["spec"]["template"].setdefault("metadata", {}).setdefault("labels", {})[CLASS] = name
    return obj


URGENT = {
    "label of a Job": labelled(job(queue="main"), "urgent"),
    "label of a GPUJob": labelled(gpujob(queue="main"), "urgent"),
    "label of a Deployment": labelled(in_team(deployment("d", "main", 1)), "urgent"),
    "label of the pods": with_pods_label("urgent"),
    "class of the pods": with_pods_class("urgent"),
}


@pytest.mark.parametrize("obj", URGENT.values(), ids=URGENT)
def test_a_class_that_is_not_listed_is_refused_with_those_that_are(obj: Json) -> None:
    refusal = said("low, normal", obj)
    assert 'Unsupported value: "urgent": supported values: "low", "normal"' in refusal
    assert said("low,urgent", obj) == ""
    assert said(None, obj) == ""


def test_a_refusal_names_the_field() -> None:
    assert said("low", URGENT["label of a Job"]).startswith(f"{LABEL}: ")
    assert said("low", URGENT["class of the pods"]).startswith("priorityClassName: ")


def test_an_empty_list_allows_no_class_but_the_usual_ones() -> None:
    assert "may name no priority class" in said("", URGENT["label of a Job"])
    assert said("", job(queue="main")) == ""
    assert said("", labelled(job(queue="main"), "default")) == ""
    assert said("", with_pods_class("usual")) == ""
    assert said("", with_pods_class("high")) != ""


def test_a_boost_above_zero_is_refused() -> None:
    boosted = job(queue="main", annotations={BOOST: "5"})
    assert said("low", boosted).startswith(f"metadata.annotations[{BOOST}]: ")
    assert said(None, boosted) == ""
    assert said("low", job(queue="main", annotations={BOOST: "-5"})) == ""


def test_a_change_is_checked_and_what_was_there_before_is_not() -> None:
    old = labelled(job(queue="main"), "normal")
    assert said("low", labelled(old, "urgent"), old) != ""
    changed = copy.deepcopy(old)
    changed["spec"]["parallelism"] = 3
    changed["spec"]["suspend"] = True
    assert said("low", changed, old) == ""
    boosted = copy.deepcopy(old)
    boosted["metadata"]["annotations"] = {BOOST: "9"}
    assert said("low", boosted, old) != ""


def test_a_job_without_a_queue_may_name_any() -> None:
    assert said("low", labelled(job(), "urgent")) == ""


# --- Workloads --------------------------------------------------------------------------------------------------------


def workload(name: str = "", priority: int = 0, boost: str = "", version: str = "v1beta2", **spec: Any) -> Json:
    if name and version == "v1beta2":
        spec["priorityClassRef"] = {"group": names.GROUP, "kind": "WorkloadPriorityClass", "name": name}
    elif name:
        spec |= {"priorityClassName": name, "priorityClassSource": "kueue.x-k8s.io/workloadpriorityclass"}
    template = {"spec": {"containers": [{"name": "c", "resources": {"requests": {"cpu": "1"}}}]}}
    return {
        "apiVersion": f"kueue.x-k8s.io/{version}",
        "kind": "Workload",
        "metadata": {"name": "w", "namespace": "team", "annotations": {BOOST: boost} if boost else {}},
        "spec": {
            "queueName": "main",
            "priority": priority,
            "podSets": [{"name": "main", "count": 1, "template": template}],
            **spec,
        },
    }


@pytest.mark.parametrize("version", ["v1beta1", "v1beta2"])
def test_the_priority_of_a_workload_is_that_of_an_allowed_class(version: str) -> None:
    waiting = workload("normal", 10, version=version)
    assert said("normal", workload("normal", 10, version=version)) == ""
    assert "spec.priorityClass" in said("normal", workload("urgent", 1000, version=version), waiting)
    raised = said("normal", workload("normal", 999, version=version), waiting)
    assert raised.startswith("spec.priority: Invalid value: 999: must not be above 10")
    assert said("normal", workload(priority=5, version=version), workload(version=version)).startswith(
        "spec.priority: "
    )
    assert said("normal", workload("normal", 10, "7", version=version), waiting).startswith("metadata.annotations")
    assert said(None, workload("urgent", 2000, "7", version=version), waiting) == ""


def test_a_workload_that_keeps_its_priority_is_no_question_of_classes() -> None:
    held = workload("urgent", 1000, active=False)
    assert said("low", held, workload("urgent", 1000)) == ""


def test_a_workload_replaces_no_other_one_after_it_was_made() -> None:
    """What a slice replaces is counted as its own: whoever may change Workloads could make a team's quota free."""
    changed = workload()
    changed["metadata"]["annotations"] = {names.REPLACEMENT_FOR: "team/theirs"}
    assert "can only be set at creation" in said(None, changed, workload())
    assert said(None, workload(), changed) == ""
