"""Cards by an environment variable: who gets it, and who is refused."""

from __future__ import annotations

import copy
from typing import Any

import pytest

from gangline.api import admission
from gangline.api.admission import AdmissionFacts

Json = dict[str, Any]
VISIBLE, SHARE = "gangline.io/gpu-visible-devices", "gangline.io/gpu-share"
NVIDIA = "NVIDIA_VISIBLE_DEVICES"
ENV = {
    "name": NVIDIA,
    "valueFrom": {"fieldRef": {"apiVersion": "v1", "fieldPath": "metadata.annotations['gangline.io/cards']"}},
}


def template(annotations: Json | None = None, resources: Json | None = None, **spec: Any) -> Json:
    annotations = {SHARE: "500m", VISIBLE: NVIDIA} if annotations is None else annotations
    container = {"name": "c", "image": "i", "resources": resources or {}}
    return {"metadata": {"annotations": annotations}, "spec": {"containers": [container], **spec}}


def obj(kind: str, **spec: Any) -> Json:
    group = {"Job": "batch/v1", "Deployment": "apps/v1", "JobSet": "jobset.x-k8s.io/v1alpha2"}[kind]
    labels = {"kueue.x-k8s.io/queue-name": "q"}
    return {
        "apiVersion": group,
        "kind": kind,
        "metadata": {"name": "j", "namespace": "ns", "labels": labels},
        "spec": spec,
    }


def environments(body: Json) -> list[object]:
    """`env` of all containers in `body`, in order."""
    found: list[object] = []
    for key, value in body.items():
        if key in ("containers", "initContainers"):
            found += [container.get("env") for container in value]
        elif isinstance(value, dict):
            found += environments(value)
        elif isinstance(value, list):
            found += [each for row in value if isinstance(row, dict) for each in environments(row)]
    return found


def test_every_container_is_told_once() -> None:
    first = {"name": "first", "image": "i", "env": [{"name": "A", "value": "1"}]}
    own = {"name": "own", "image": "i", "env": [{"name": NVIDIA, "value": "none"}]}
    body = template(initContainers=[first, own])
    job = obj("Job", template=body)
    before = copy.deepcopy(job)
    made = admission.default(job, None, AdmissionFacts()).obj
    assert job == before
    spec = made["spec"]["template"]["spec"]
    assert [row["env"] for row in spec["initContainers"]] == [[*first["env"], ENV], own["env"]]
    assert environments({"containers": spec["containers"]}) == [[ENV]]
    assert admission.default(made, None, AdmissionFacts()).obj == made


def test_every_kind_of_job_is_told_wherever_it_keeps_its_templates() -> None:
    rows = [{"name": name, "template": {"spec": {"template": template()}}} for name in ("a", "b")]
    assert environments(admission.default(obj("JobSet", replicatedJobs=rows), None, AdmissionFacts()).obj) == [
        [ENV],
        [ENV],
    ]
    pod = {"apiVersion": "v1", "kind": "Pod", **template()}
    pod["metadata"] |= {"name": "p", "namespace": "ns"}
    assert environments(admission.default(pod, None, AdmissionFacts()).obj) == [[ENV]]
    assert environments(
        admission.default(obj("Job", template=template({SHARE: "500m"})), None, AdmissionFacts()).obj
    ) == [None]


@pytest.mark.parametrize("odd", [[], "x", 1, None, {"a": 1}, [1], [{"name": NVIDIA}], [[]]])
def test_what_is_no_pod_template_is_left_to_other_rules(odd: Any) -> None:
    for path in ("metadata", "annotations", "containers", "initContainers", "env"):
        body = template()
        whole = body["metadata"] | {"annotations": odd} if path == "annotations" else body["metadata"]
        body["metadata"] = odd if path == "metadata" else whole
        if path == "env":
            body["spec"]["containers"][0]["env"] = odd
        elif path.endswith("ontainers"):
            body["spec"][path] = odd
        admission.default(obj("Job", template=body), None, admission.AdmissionFacts())


def test_what_runs_keeps_its_environment_and_what_serves_gets_new_pods() -> None:
    job, serves = obj("Job", template=template()), obj("Deployment", template=template())
    assert environments(admission.default(job, job, AdmissionFacts()).obj) == [None]
    assert environments(admission.default(serves, serves, AdmissionFacts()).obj) == [[ENV]]


@pytest.mark.parametrize(
    ("annotations", "resources", "said"),
    [
        ({VISIBLE: NVIDIA, "gangline.io/gpu-memory": "8Gi"}, {}, ""),
        ({VISIBLE: "ROCR_VISIBLE_DEVICES", SHARE: "1"}, {}, ""),
        (
            {VISIBLE: "A-B", SHARE: "1"},
            {},
            "must be the name of an environment variable, such as NVIDIA_VISIBLE_DEVICES",
        ),
        ({VISIBLE: "", SHARE: "1"}, {}, "must be the name of an environment variable"),
        ({VISIBLE: "A" * 64, SHARE: "1"}, {}, "must be the name of an environment variable"),
        ({VISIBLE: NVIDIA}, {}, "is for pods that say by gangline.io/gpu-share or gangline.io/gpu-memory"),
        (
            {VISIBLE: NVIDIA},
            {"limits": {"nvidia.com/gpu": "1"}},
            "the component that shares out what the pod requests",
        ),
        ({VISIBLE: NVIDIA, "gpu-fraction": "0.5"}, {}, "the component that shares out what the pod requests"),
        (
            {VISIBLE: NVIDIA, SHARE: "1", "gangline.io/gpu-memory": "8Gi", "gangline.io/gpu-device-class": "gpu"},
            {},
            "the pod has a claim, which gives it its cards",
        ),
    ],
)
def test_only_pods_with_a_share_that_nobody_else_gives_them_are_told(
    annotations: Json, resources: Json, said: str
) -> None:
    body = template(annotations, resources)
    body["spec"]["restartPolicy"] = "Never"
    job = obj("Job", suspend=True, template=body)
    found = [str(error) for error in admission.validate(job, None, AdmissionFacts())]
    where = f"spec.template.metadata.annotations[{VISIBLE}]: Invalid value"
    assert [each for each in found if not each.startswith(where)] == []
    assert [said in each for each in found] == ([True] if said else [])
