"""Where the pods of an AppWrapper's components are, what of them counts, and which children are its own."""

from __future__ import annotations

import copy
from typing import Any

import pytest
from tests.jobs.foreign import APP_WRAPPER, Json, cluster_spec, component, job, replicated, template
from tests.merging import merge_patch
from tests.objects import WorkloadObject, altered

from gangline.api import names
from gangline.api.jobkinds.appwrapper import path_in_component
from gangline.jobs import kind_of, owners
from gangline.jobs import workload as workloads
from gangline.jobs.base import JobError, PodSetInfo

KIND = kind_of("workload.codeflare.dev/v1beta2", "AppWrapper")
assert KIND is not None
kind = KIND


def wrapper(*components: Json) -> Json:
    made = job("workload.codeflare.dev/v1beta2", "AppWrapper", {"suspend": True, "components": [*components]})
    return copy.deepcopy(made)


def counts(*components: Json) -> list[int]:
    return [row["count"] for row in kind.pod_sets(wrapper(*components))]


@pytest.mark.parametrize(
    ("wrapped", "expected"),
    [
        (component("v1", "Pod", template()["spec"]), [1]),
        (component("apps/v1", "Deployment", {"replicas": 3, "template": template()}), [3]),
        (component("apps/v1", "StatefulSet", {"template": template()}), [1]),
        (component("batch/v1", "Job", {"parallelism": 4, "template": template()}), [4]),
        (component("batch/v1", "Job", {"parallelism": 4, "completions": 2, "template": template()}), [2]),
        (component("batch/v1", "Job", {"completions": 9, "template": template()}), [1]),
        (
            component(
                "jobset.x-k8s.io/v1alpha2", "JobSet", {"replicatedJobs": [replicated("a", replicas=2), replicated("b")]}
            ),
            [2, 1],
        ),
        (
            component("kubeflow.org/v1", "PyTorchJob", {"pytorchReplicaSpecs": {"Worker": {"template": template()}}}),
            [1],
        ),
        (component("ray.io/v1", "RayCluster", cluster_spec()), [1, 3, 8]),
        (component("ray.io/v1", "RayJob", {"rayClusterSpec": cluster_spec()}), [1, 3, 8]),
        (component("example.com/v1", "Thing", {"pods": template()}, podSets=[{"path": "template.spec.pods"}]), [1]),
    ],
)
def test_where_the_pods_of_a_component_are(wrapped: Json, expected: list[int]) -> None:
    assert counts(component("v1", "ConfigMap", {}), wrapped) == expected


def test_the_names_of_pod_sets_and_what_topology_needs() -> None:
    annotations = {
        "workload.codeflare.dev.appwrapper/tas-pod-index-label": "example.com/i",
        "workload.codeflare.dev.appwrapper/tas-sub-group-index-label": "example.com/group",
        "workload.codeflare.dev.appwrapper/tas-sub-group-count": "2",
    }
    pods = template()
    pods["metadata"]["annotations"] = {names.REQUIRED_TOPOLOGY: "rack"}
    declared = [{"path": "template.spec.pods", "replicas": 4, "annotations": annotations}]
    job_set = component("jobset.x-k8s.io/v1alpha2", "JobSet", {"replicatedJobs": [replicated("a", replicas=2)]})
    job_set["template"]["spec"]["replicatedJobs"][0]["template"]["spec"]["template"] = pods
    found = kind.pod_sets(wrapper(component("example.com/v1", "Thing", {"pods": pods}, podSets=declared), job_set))
    assert [row["name"] for row in found] == ["mine-0", "mine-1"]
    assert found[0]["topologyRequest"] == {
        "required": "rack",
        "podIndexLabel": "example.com/i",
        "subGroupIndexLabel": "example.com/group",
        "subGroupCount": 2,
    }
    assert found[1]["topologyRequest"]["subGroupIndexLabel"] == "jobset.sigs.k8s.io/job-index"


def test_what_counts_is_stored_in_kueues_form() -> None:
    """So that a Workload of Kueue is kept."""
    pods = template(volumes=[{"name": "v"}], terminationGracePeriodSeconds=5)
    pods["spec"]["containers"][0] |= {"env": [{"name": "A"}], "image": "registry:5000/train"}
    [row] = kind.pod_sets(wrapper(component("v1", "Pod", pods["spec"])))
    spec = row["template"]["spec"]
    assert "volumes" not in spec
    assert "terminationGracePeriodSeconds" not in spec
    assert spec["restartPolicy"] == "Always"
    assert spec["nodeSelector"] == {"disk": "ssd"}
    assert spec["containers"][0] == {
        "name": "main",
        "image": "registry:5000/train",
        "imagePullPolicy": "Always",
        "resources": {"requests": {"cpu": "1"}, "limits": {"gpu": "8"}},
        "terminationMessagePath": "/dev/termination-log",
        "terminationMessagePolicy": "File",
    }


@pytest.mark.parametrize(
    ("image", "policy"),
    [
        ("a", "Always"),
        ("a:latest", "Always"),
        ("a:1", "IfNotPresent"),
        ("h:1/a", "Always"),
        ("a@sha256:0", "IfNotPresent"),
    ],
)
def test_the_pull_policy_of_an_image(image: str, policy: str) -> None:
    pods = template()
    pods["spec"]["containers"][0]["image"] = image
    [row] = kind.pod_sets(wrapper(component("v1", "Pod", pods["spec"])))
    assert row["template"]["spec"]["containers"][0]["imagePullPolicy"] == policy


def test_an_admission_lies_beside_each_component() -> None:
    held = altered(APP_WRAPPER.job, spec={**APP_WRAPPER.job["spec"], "suspend": True})
    patch = kind.start(held, [PodSetInfo(name, 1, node_selector={"n": name}) for name in APP_WRAPPER.counts])
    assert patch is not None
    running = merge_patch(held, patch.body)
    rows = running["spec"]["components"]
    assert [len(row.get("podSetInfos") or ()) for row in rows] == [2, 0, 1]
    assert rows[2]["podSetInfos"] == [{"nodeSelector": {"n": "mine-2"}}]
    assert [row["template"] for row in rows] == [row["template"] for row in held["spec"]["components"]]
    conflict = [PodSetInfo(name, 1, node_selector={"disk": "hdd"}) for name in APP_WRAPPER.counts]
    with pytest.raises(JobError, match=r"spec.components\[0\].template.*nodeSelector\[disk\]"):
        kind.start(held, conflict)


def test_a_failed_one_has_ended_when_nothing_of_it_is_left() -> None:
    deployed = [{"type": "ResourcesDeployed", "status": "True"}]
    assert kind.finished(altered(wrapper(), status={"phase": "Failed", "conditions": deployed})) is None
    outcome = kind.finished(altered(wrapper(), status={"phase": "Failed"}))
    assert outcome is not None
    assert (outcome.success, outcome.message) == (False, "AppWrapper failed")


@pytest.mark.parametrize(
    ("child", "made"),
    [
        (
            {"apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": "wrapped-job"}, "spec": {"parallelism": 4}},
            True,
        ),
        (
            {"apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": "wrapped-job"}, "spec": {"parallelism": 5}},
            False,
        ),
        ({"apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": "other"}, "spec": {}}, False),
        ({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "wrapped-pod-x7k2p"}, "spec": {}}, True),
        ({"apiVersion": "v1", "kind": "Pod", "metadata": {}, "spec": {}}, False),
        ({"apiVersion": "ray.io/v1", "kind": "RayJob", "metadata": {"name": "wrapped-job"}, "spec": {}}, False),
    ],
)
def test_which_children_are_its_own(child: Json, made: bool) -> None:
    pod = component("v1", "Pod", template()["spec"])
    pod["template"]["metadata"] = {"generateName": "wrapped-pod-"}
    parent = wrapper(component("batch/v1", "Job", {"parallelism": 4, "template": template()}), pod)
    assert owners.creates(parent, child) is made


@pytest.mark.parametrize(
    "text", ["", "spec.x", "template.", "template[x]", "template..a", "template[-1]", "template[", "t" * 600]
)
def test_a_path_that_is_none(text: str) -> None:
    with pytest.raises(ValueError, match=r"path|longer"):
        path_in_component(text)


def test_a_pod_set_needs_a_name_that_a_workload_can_have() -> None:
    parent = wrapper(component("v1", "Pod", template()["spec"]))
    parent["metadata"]["name"] = "a.b"
    with pytest.raises(JobError, match=r"'a\.b-0' cannot be the name of a pod set"):
        kind.pod_sets(parent)


def test_a_workload_of_kueue_describes_it_although_templates_differ_in_what_does_not_count() -> None:
    running = wrapper(component("v1", "Pod", template()["spec"]))
    pod_sets = kind.pod_sets(running)
    body = WorkloadObject(workloads.build(kind, running, pod_sets, queue="main", priority=0))
    body["status"] = {"admission": {"podSetAssignments": [{"name": "mine-0", "count": 1}]}}
    body["spec"]["podSets"][0]["template"]["metadata"]["annotations"] = {"an": "other"}
    running["spec"]["suspend"] = False
    assert workloads.equivalent(body, kind.pod_sets(running), running)
    more: Any = copy.deepcopy(kind.pod_sets(running))
    more[0]["template"]["spec"]["containers"][0]["resources"]["requests"]["cpu"] = "2"
    assert not workloads.equivalent(body, more, running)
