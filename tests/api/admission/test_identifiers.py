"""Which of annotation and label names a job's Workload and a pod's group, with and without the gate."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from gangline.api import admission, names
from gangline.api.admission import AdmissionFacts
from gangline.api.admission.of_jobs import identifiers
from gangline.api.read.configuration import gates
from gangline.api.read.configuration.managed_jobs import load
from gangline.jobs.pods.member import group_name

Json = dict[str, Any]
LONG = "w" * 64
KEYS = (names.PREBUILT_WORKLOAD, names.POD_GROUP)


@pytest.fixture(autouse=True)
def order() -> Iterator[None]:
    yield
    identifiers.choose(annotations_first=True)


def obj(key: str, *, annotation: str | None = None, label: str | None = None, **notes: str) -> Json:
    labels: Json = {names.QUEUE_NAME: "main"} | ({key: label} if label is not None else {})
    annotations: Json = dict(notes) | ({key: annotation} if annotation is not None else {})
    meta: Json = {"name": "x", "namespace": "ns", "labels": labels, "annotations": annotations}
    pod = {"spec": {"containers": [{"name": "c"}]}}
    if key == names.POD_GROUP:
        annotations.setdefault(names.POD_GROUP_TOTAL, "2")
        return {"apiVersion": "v1", "kind": "Pod", "metadata": meta, **pod}
    return {"apiVersion": "batch/v1", "kind": "Job", "metadata": meta, "spec": {"suspend": True, "template": pod}}


def named(key: str, made: Json) -> str:
    return group_name(made) if key == names.POD_GROUP else identifiers.prebuilt_workload(made)


def errors(made: Json) -> list[str]:
    return [str(error) for error in admission.validate(made, None, AdmissionFacts())]


@pytest.mark.parametrize("key", KEYS)
@pytest.mark.parametrize(
    ("written", "with_gate", "without"),
    [
        ({"annotation": "a"}, "a", ""),
        ({"label": "b"}, "b", "b"),
        ({"annotation": "a", "label": "b"}, "a", "b"),
        ({"annotation": "", "label": "b"}, "b", "b"),
        ({"annotation": LONG}, LONG, LONG),
        ({"annotation": LONG, "label": "b"}, LONG, "b"),
        ({}, "", ""),
    ],
)
def test_which_of_the_two_is_read(key: str, written: Json, with_gate: str, without: str) -> None:
    assert named(key, obj(key, **written)) == with_gate
    identifiers.choose(annotations_first=False)
    assert named(key, obj(key, **written)) == without


@pytest.mark.parametrize("key", KEYS)
@pytest.mark.parametrize("value", [None, 7, [], {}])
def test_values_of_other_types_name_nothing(key: str, value: Any) -> None:
    for first in (True, False):
        identifiers.choose(annotations_first=first)
        made = obj(key)
        made["metadata"]["annotations"][key] = made["metadata"]["labels"][key] = value
        assert named(key, made) == ""
        identifiers.ignored(made)


@pytest.mark.parametrize("key", KEYS)
def test_what_is_not_read_is_told(key: str) -> None:
    warned = admission.default(obj(key, annotation="a", label="b"), None, AdmissionFacts()).warnings
    assert f"the {key} label 'b' is ignored: the annotation says 'a'" in warned
    identifiers.choose(annotations_first=False)
    off = "is ignored, since the gate WorkloadIdentifierAnnotations is off:"
    warned = admission.default(obj(key, annotation="a", label="b"), None, AdmissionFacts()).warnings
    assert f"the {key} annotation 'a' {off} the label says 'b'" in warned
    warned = admission.default(obj(key, annotation="a"), None, AdmissionFacts()).warnings
    assert f"the {key} annotation 'a' {off} write it as a label" in warned
    assert admission.default(obj(key, label="b"), None, AdmissionFacts()).warnings == ()


def test_only_what_is_read_has_to_be_a_name() -> None:
    path = f"metadata.{{}}[{names.PREBUILT_WORKLOAD}]"
    wrong = obj(names.PREBUILT_WORKLOAD, annotation="a", label="B_")
    assert errors(wrong) == []
    identifiers.choose(annotations_first=False)
    assert errors(wrong)[0].startswith(path.format("labels"))
    wrong = obj(names.PREBUILT_WORKLOAD, annotation="A_", label="b")
    assert errors(wrong) == []
    identifiers.choose(annotations_first=True)
    assert errors(wrong)[0].startswith(path.format("annotations"))


def test_without_the_gate_a_total_count_needs_the_label() -> None:
    assert errors(obj(names.POD_GROUP, annotation="g")) == []
    identifiers.choose(annotations_first=False)
    (error,) = errors(obj(names.POD_GROUP, annotation="g"))
    assert error.startswith(f"metadata.labels[{names.POD_GROUP}]: Required value: both the")


def test_a_pod_that_was_marked_while_the_gate_was_on_stays_in_its_group() -> None:
    pod = obj(names.POD_GROUP, annotation="statefulset-db-12345", **{names.SUSPENDED_BY_PARENT: "statefulset"})
    identifiers.choose(annotations_first=False)
    assert group_name(pod) == "statefulset-db-12345"


@pytest.mark.parametrize(
    ("version", "given", "first"),
    [
        ("0.15", {}, False),
        ("0.17", {}, False),
        ("0.17", {"WorkloadIdentifierAnnotations": True}, True),
        ("0.17", {"AllAlpha": True}, True),
        ("0.18", {}, True),
        ("0.20", {}, True),
        ("0.20", {"WorkloadIdentifierAnnotations": False}, False),
        ("0.20", {"AllBeta": False}, False),
    ],
)
def test_the_gate_follows_the_version(version: str, given: dict[str, bool], first: bool) -> None:
    assert load({}, gates.Gates(version, given)).annotated_identifiers is first


def test_names_that_no_label_can_hold_are_written_as_annotations() -> None:
    assert identifiers.part_for("w") == identifiers.part_for(LONG) == "annotations"
    identifiers.choose(annotations_first=False)
    assert (identifiers.part_for("w"), identifiers.part_for(LONG)) == ("labels", "annotations")
