"""JobSets as users write them: held at creation, with the queue as a label, and checked where queueing depends on it."""

from __future__ import annotations

import copy
from typing import Any

from tests.jobs.test_jobset import Json, group, job_set, pods
from tests.objects import altered

from gangline.api import names
from gangline.api.admission import AdmissionFacts, default, validate

QUEUE, CLASS = names.QUEUE_NAME, names.PRIORITY_CLASS
SIMPLE = AdmissionFacts()
WITH_DEFAULTS = AdmissionFacts(
    local_queue_exists=lambda namespace, name: (namespace, name) == ("team", "default"),
    priority_class_exists=lambda name: name == "default",
)


def written(*groups: Json, suspend: bool | None = None, **metadata: Any) -> Json:
    job = job_set(*groups, **metadata)
    del job["spec"]["suspend"], job["status"]
    if suspend is not None:
        job["spec"]["suspend"] = suspend
    return job


def errors(job: Json, old: Json | None = None) -> list[str]:
    return [str(error) for error in validate(job, old, SIMPLE)]


def test_the_seeds_queue_annotation_becomes_the_label_and_the_jobset_is_held():
    result = default(written(annotations={QUEUE: "default-queue"}), None, SIMPLE)
    assert result.obj["spec"]["suspend"] is True
    assert result.obj["metadata"]["labels"] == {QUEUE: "default-queue"}
    assert errors(result.obj) == []
    assert default(result.obj, None, SIMPLE).obj == result.obj


def test_without_a_queue_nothing_changes():
    assert default(written(), None, SIMPLE).obj == written()
    assert errors(written(group(name="a"), group(name="A"))) == []


def test_a_namespaces_default_queue_and_the_default_class_are_filled_in():
    obj = default(written(), None, WITH_DEFAULTS).obj
    assert obj["metadata"]["labels"] == {QUEUE: "default", CLASS: "default"}
    assert obj["spec"]["suspend"] is True


def test_the_default_class_does_not_replace_the_one_that_the_pods_name():
    obj = default(written(group(), group("b", pods(labels={CLASS: "low"}))), None, WITH_DEFAULTS).obj
    assert obj["metadata"]["labels"] == {QUEUE: "default"}


def test_what_a_workload_could_not_hold_is_rejected():
    labels = {QUEUE: "main"}
    assert errors(written(labels=labels)) == []
    crowd = [group(f"g{index}") for index in range(19)]
    assert errors(written(*crowd, labels=labels)) == ["spec.replicatedJobs: Too many: 19: must have at most 18 items"]
    [error] = errors(written(group("Workers"), group("workers"), labels=labels))
    assert error.startswith('spec.replicatedJobs[1].name: Duplicate value: "workers"')
    empty = written(labels=labels)
    empty["spec"]["replicatedJobs"] = []
    assert errors(empty) == [
        "spec.replicatedJobs: Required value: a JobSet in a queue needs at least one replicated job"
    ]


def test_templates_are_checked_at_their_place():
    wrong = pods(
        annotations={names.REQUIRED_TOPOLOGY: "rack", names.PREFERRED_TOPOLOGY: "block"}, overhead={"cpu": "-1"}
    )
    found = errors(written(group(), group("b", wrong), labels={QUEUE: "main"}))
    place = "spec.replicatedJobs[1].template.spec.template"
    assert any(error.startswith(f"{place}.spec.overhead[cpu]: ") for error in found)
    assert any(error.startswith(f"{place}.metadata.annotations") for error in found)


def test_a_slice_may_not_be_larger_than_all_pods_of_the_group():
    asked = {names.REQUIRED_TOPOLOGY: "block", names.SLICE_REQUIRED_TOPOLOGY: "rack", names.SLICE_SIZE: "8"}
    fits, too_large = group(template=pods(annotations=asked)), group(replicas=1, template=pods(annotations=asked))
    assert errors(written(fits, labels={QUEUE: "main"})) == []
    [error] = errors(written(too_large, labels={QUEUE: "main"}))
    assert names.SLICE_SIZE in error


def test_the_queue_can_change_only_while_it_is_held():
    old = written(labels={QUEUE: "main"}, suspend=True)
    new = copy.deepcopy(old)
    new["metadata"]["labels"] = {QUEUE: "other"}
    assert errors(new, old) == []
    old["spec"]["suspend"] = new["spec"]["suspend"] = False
    [error] = errors(new, old)
    assert error.startswith("metadata.labels[kueue.x-k8s.io/queue-name]: Invalid value: ")


def test_any_json_is_answered():
    for spec, wrong in (
        ({}, True),
        ({"replicatedJobs": 3}, True),
        ({"replicatedJobs": [1, {"template": []}]}, True),
        ({"replicatedJobs": [{"name": 7}]}, False),  # its schema tells
    ):
        obj = altered(written(labels={QUEUE: "main"}), spec=spec)
        held = default(obj, None, SIMPLE).obj
        assert held["spec"]["suspend"] is True
        assert bool(errors(held)) == wrong
