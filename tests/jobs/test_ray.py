"""Groups of Ray's workers count the pods that KubeRay runs for them."""

from __future__ import annotations

import copy
from typing import Any

import pytest
from tests.jobs.foreign import CASES, Json, template

from gangline.api import admission
from gangline.jobs import kind_of
from gangline.jobs.base import JobKind

CLUSTERS = {case.name: case for case in CASES if case.job["apiVersion"] == "ray.io/v1"}
WHERE = {"RayCluster": (), "RayJob": ("rayClusterSpec",), "RayService": ("rayClusterConfig",)}
each_kind = pytest.mark.parametrize("name", WHERE)


def kind_named(name: str) -> JobKind:
    found = kind_of("ray.io/v1", name)
    assert found is not None
    return found


def with_group(name: str, **sizes: Any) -> Json:
    job = copy.deepcopy(CLUSTERS[name].job)
    spec = job["spec"]
    for part in WHERE[name]:
        spec = spec[part]
    spec["workerGroupSpecs"] = [{"groupName": "w", "template": template(), **sizes}]
    return job


@each_kind
@pytest.mark.parametrize(
    ("sizes", "pods"),
    [
        ({"minReplicas": 4, "maxReplicas": 8}, 4),
        ({"replicas": 0, "minReplicas": 4, "maxReplicas": 8}, 4),  # the CRD's default of replicas
        ({"replicas": 9, "maxReplicas": 1}, 1),
        ({"replicas": 9, "minReplicas": 2, "maxReplicas": 1}, 1),
        ({"replicas": 3, "suspend": True}, 0),
        ({"replicas": 3, "minReplicas": 5, "maxReplicas": 8, "suspend": True}, 0),
        ({"replicas": 3, "suspend": False}, 3),
        ({"replicas": 5, "minReplicas": 0, "maxReplicas": 9}, 5),
        ({"replicas": 9, "maxReplicas": 2, "numOfHosts": 4}, 8),
        ({}, 1),
    ],
)
def test_what_runs_is_counted(name: str, sizes: Json, pods: int) -> None:
    rows = {row["name"]: row["count"] for row in kind_named(name).pod_sets(with_group(name, **sizes))}
    assert rows["w"] == pods


@each_kind
@pytest.mark.parametrize("field", ["replicas", "minReplicas", "maxReplicas", "numOfHosts"])
@pytest.mark.parametrize("value", [-1, "4", 2**31])
def test_numbers_that_are_none_are_refused(name: str, field: str, value: Any) -> None:
    errors = admission.validate(with_group(name, **{field: value}), None, admission.AdmissionFacts())
    assert [error.path.rpartition(".")[2] for error in errors] == [field]


@each_kind
def test_a_product_that_no_pod_set_can_have_is_refused(name: str) -> None:
    job = with_group(name, replicas=2**16, numOfHosts=2**16)
    assert [error.path.rpartition(".")[2] for error in admission.validate(job, None, admission.AdmissionFacts())] == [
        "replicas"
    ]


@each_kind
def test_a_running_cluster_that_asks_for_more_by_its_bounds_waits_for_them(name: str) -> None:
    """Whatever its `replicas` say."""
    kind = kind_named(name)
    before = with_group(name, replicas=0, minReplicas=0)
    kind.declaration.suspension.release(before)
    after = with_group(name, replicas=0, minReplicas=4)
    kind.declaration.suspension.release(after)
    assert kind.is_suspended(admission.default(after, before, admission.AdmissionFacts()).obj)
