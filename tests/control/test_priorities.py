"""What a job's priority class is worth; a class that makes no sense costs only the jobs that name it."""

from __future__ import annotations

from typing import Any

import pytest
from tests.control.test_minimal_objects import whole
from tests.objects import JobObject

from gangline.control.feed.mirror import Mirror
from gangline.jobs.base import JobError
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
