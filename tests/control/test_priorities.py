"""What a job's priority class is worth; a class that makes no sense costs only the jobs that name it."""

from __future__ import annotations

from typing import Any

import pytest
from tests.control.test_minimal_objects import whole
from tests.objects import JobObject, Stored

from gangline.api import names
from gangline.control.feed.mirror import Mirror
from gangline.jobs.base import JobError, PriorityClassError
from gangline.kube import resources as kube

Json = dict[str, Any]
LABEL = "kueue.x-k8s.io/priority-class"


def priority(body: Json, label: str = "a") -> int:
    """Of a job with this label, where there is one WorkloadPriorityClass, "a", and "b" besides."""
    mirror = Mirror(observe=lambda change: None)
    for name, said in (("a", body), ("b", {"value": 7})):
        mirror.upsert(kube.WORKLOAD_PRIORITY_CLASSES, whole("WorkloadPriorityClass", said, name))
    found, reference = mirror.priority(JobObject({"metadata": {"labels": {LABEL: label}}}), [])
    assert reference == {"group": "kueue.x-k8s.io", "kind": "WorkloadPriorityClass", "name": label}
    return found


def test_a_class_is_worth_its_value() -> None:
    assert priority({"value": -5, "description": "whenever"}) == -5


@pytest.mark.parametrize(
    ("body", "complaint"),
    [
        ({}, "value: is required"),
        ({"value": None}, "value: is required"),
        ({"value": "high"}, "value: must be a whole number"),
        ({"value": True}, "value: must be a whole number"),
    ],
)
def test_a_class_without_a_priority_is_an_error_of_the_jobs_that_name_it(body: Json, complaint: str) -> None:
    with pytest.raises(JobError) as caught:
        priority(body)
    assert caught.value.message == f'WorkloadPriorityClass "a": {complaint}'
    assert caught.value.field == f"metadata.labels[{LABEL}]"
    assert priority(body, "b") == 7


# --- the classes that a namespace allows ------------------------------------------------------------------------------


def asked(allowed: str | None, *, label: str = "", of_pods: str = "", boost: str = "") -> tuple[int, Json | None]:
    """The priority of a job in a namespace with this annotation."""
    mirror = Mirror(observe=lambda change: None)
    notes = {} if allowed is None else {names.ALLOWED_CLASSES: allowed}
    mirror.upsert(kube.NAMESPACES, Stored({"metadata": {"name": "team", "uid": "n", "annotations": notes}}))
    for name, value in (("low", 1), ("high", 100), ("default", 3)):
        mirror.upsert(kube.WORKLOAD_PRIORITY_CLASSES, whole("WorkloadPriorityClass", {"value": value}, name))
    mirror.upsert(kube.PRIORITY_CLASSES, whole("PriorityClass", {"value": 2, "globalDefault": True}, "usual"))
    mirror.upsert(kube.PRIORITY_CLASSES, whole("PriorityClass", {"value": 50}, "pods"))
    labels = {LABEL: label} if label else {}
    annotations = {names.PRIORITY_BOOST: boost} if boost else {}
    job = JobObject({"metadata": {"namespace": "team", "labels": labels, "annotations": annotations}})
    return mirror.priority(job, [{"template": {"spec": {"priorityClassName": of_pods} if of_pods else {}}}])


def test_a_job_gets_the_priority_of_a_class_that_its_namespace_allows() -> None:
    assert asked("low", label="low")[0] == 1
    assert asked("low")[0] == 2
    assert asked("low", of_pods="usual")[0] == 2
    assert asked("low", label="default")[0] == 3
    assert asked("low, pods", of_pods="pods")[0] == 50
    assert asked(None, label="high", boost="7")[0] == 100


@pytest.mark.parametrize(
    ("given", "field"),
    [
        ({"label": "high"}, f"metadata.labels[{LABEL}]"),
        ({"of_pods": "pods"}, "priorityClassName"),
        ({"label": "low", "boost": "7"}, f"metadata.annotations[{names.PRIORITY_BOOST}]"),
    ],
)
def test_a_job_gets_no_other_priority_however_it_passed_the_webhooks(given: Json, field: str) -> None:
    with pytest.raises(PriorityClassError) as caught:
        asked("low", **given)
    assert caught.value.field == field
