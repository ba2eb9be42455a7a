"""Elastic jobs: which kinds may be, what is filled in, and what happens when one grows."""

from __future__ import annotations

import copy
from typing import Any

import pytest
from tests.builders.written import Json, gpujob, job
from tests.jobs.test_declared import CASES, held

from gangline.api import names
from gangline.api.admission import AdmissionFacts, default, validate
from gangline.api.admission.of_jobs.elastic import resizes

ON, OFF = AdmissionFacts(), AdmissionFacts(elastic=False)
GATE = {"name": "kueue.x-k8s.io/elastic-job"}
RAY = ("RayCluster", "RayJob", "RayService")
#: the field of the cluster
CLUSTER_IN = {"RayCluster": "", "RayJob": "rayClusterSpec", "RayService": "rayClusterConfig"}


def errors(obj: Json, old: Json | None = None, context: AdmissionFacts = ON) -> list[str]:
    return [str(error) for error in validate(obj, old, context)]


def elastic(obj: Json) -> Json:
    obj = copy.deepcopy(obj)
    obj["metadata"].setdefault("annotations", {})[names.ELASTIC] = "true"
    return obj


def case(kind: str) -> Json:
    return held(next(case for case in CASES if case.name == kind))


def grown(pods: int, **spec: Any) -> Json:
    obj = elastic(job(queue="main"))
    obj["spec"] |= {"parallelism": pods, "suspend": False, **spec}
    return obj


def test_its_pods_are_created_behind_a_gate() -> None:
    made = default(elastic(job(queue="main")), None, ON).obj
    assert made["spec"]["template"]["spec"]["schedulingGates"] == [GATE]
    assert default(made, None, ON).obj["spec"]["template"]["spec"]["schedulingGates"] == [GATE]
    assert errors(made) == []


@pytest.mark.parametrize("kind", RAY)
def test_the_pods_of_all_groups_are_created_behind_a_gate(kind: str) -> None:
    made = default(elastic(case(kind)), None, ON).obj
    cluster = made["spec"].get(CLUSTER_IN[kind], made["spec"])
    templates = [cluster["headGroupSpec"]["template"], *(group["template"] for group in cluster["workerGroupSpecs"])]
    assert all(template["spec"]["schedulingGates"] == [GATE] for template in templates)
    assert errors(made) == []


@pytest.mark.parametrize(
    ("obj", "context"), [(job(queue="main"), ON), (elastic(job(queue="")), ON), (elastic(job(queue="main")), OFF)]
)
def test_no_other_job_gets_the_gate(obj: Json, context: AdmissionFacts) -> None:
    assert "schedulingGates" not in default(obj, None, context).obj["spec"]["template"]["spec"]


@pytest.mark.parametrize("kind", [each.name for each in CASES if each.name not in RAY])
def test_other_kinds_are_refused(kind: str) -> None:
    obj = elastic(case(kind))
    gvk = f"{obj['apiVersion']}, Kind={obj['kind']}"
    refused = f'metadata.annotations[{names.ELASTIC}]: Forbidden: elastic job is not supported for "{gvk}"'
    assert refused in errors(obj)
    assert refused not in errors(obj, None, OFF)


def test_a_gpujob_is_not_elastic() -> None:
    assert any("elastic job is not supported" in error for error in errors(elastic(gpujob(queue="main"))))


def test_a_ray_cluster_needs_the_gate() -> None:
    missing = [error for error in errors(elastic(case("RayCluster"))) if "ElasticJobSchedulingGate" in error]
    assert len(missing) >= 2
    assert missing[0].startswith("spec.headGroupSpec.template.spec.schedulingGates: Invalid value")


@pytest.mark.parametrize("kind", RAY)
def test_autoscaling_is_for_elastic_jobs_alone(kind: str) -> None:
    obj = case(kind)
    cluster = obj["spec"].get(CLUSTER_IN[kind], obj["spec"])
    cluster["enableInTreeAutoscaling"] = True
    assert any("enableInTreeAutoscaling" in error for error in errors(obj))
    made = default(elastic(obj), None, ON).obj
    assert errors(made) == []
    assert any("enableInTreeAutoscaling" in error for error in errors(made, None, OFF))


def test_an_elastic_job_grows_without_being_stopped() -> None:
    old = default(grown(2), None, ON).obj
    old["spec"]["suspend"] = False
    new = copy.deepcopy(old)
    new["spec"]["parallelism"] = 6
    result = default(new, old, ON)
    assert (result.obj["spec"]["suspend"], result.warnings) == (False, ())
    assert errors(new, old) == []
    stopped = default(new, old, OFF)
    assert stopped.obj["spec"]["suspend"] is True and stopped.warnings


def test_a_job_in_another_cluster_grows_without_being_stopped() -> None:
    sent = elastic(job(queue="main"))
    sent["spec"]["managedBy"] = "kueue.x-k8s.io/multikueue"
    old = default(sent, None, ON).obj
    assert old["spec"]["template"]["spec"]["schedulingGates"] == [GATE]
    old["spec"]["suspend"] = False
    new = copy.deepcopy(old)
    new["spec"]["parallelism"] = 6
    assert default(new, old, ON).obj["spec"]["suspend"] is False and errors(new, old) == []


@pytest.mark.parametrize("kind", ["RayJob", "RayService"])
def test_what_a_cluster_there_sizes_is_not_resized_from_here(kind: str) -> None:
    sent = elastic(case(kind))
    sent["spec"]["managedBy"] = "kueue.x-k8s.io/multikueue"
    assert not resizes(sent)
    sent["spec"]["managedBy"] = "ray.io/kuberay-operator"
    assert resizes(sent)


def test_a_running_elastic_job_may_name_its_next_slice() -> None:
    old = default(grown(2), None, ON).obj
    old["metadata"]["labels"][names.PREBUILT_WORKLOAD] = "first"
    old["spec"]["suspend"] = False
    new = copy.deepcopy(old)
    new["metadata"]["labels"][names.PREBUILT_WORKLOAD] = "second"
    assert errors(new, old) == []
    assert any("field is immutable" in error for error in errors(new, old, OFF))


def test_one_whose_pods_would_start_at_once_is_stopped() -> None:
    """It was created before the gate was on, or somebody took the scheduling gate away."""
    old, new = grown(2), grown(6)
    assert default(new, old, ON).obj["spec"]["suspend"] is True


def test_a_ray_cluster_grows_without_being_stopped() -> None:
    old = default(elastic(case("RayCluster")), None, ON).obj
    old["spec"]["suspend"] = False
    new = copy.deepcopy(old)
    new["spec"]["workerGroupSpecs"][0]["replicas"] = 16
    assert default(new, old, ON).obj["spec"]["suspend"] is False
    assert errors(new, old) == []


def test_partial_admission_and_elastic_exclude_each_other() -> None:
    obj = elastic(job(queue="main", annotations={names.MIN_PARALLELISM: "1"}))
    obj["spec"]["parallelism"] = 4
    assert errors(obj) == [
        f'metadata.annotations[{names.MIN_PARALLELISM}]: Invalid value: "1": '
        "partial admission and elastic job cannot be used together"
    ]
    assert errors(obj, None, OFF) == []
