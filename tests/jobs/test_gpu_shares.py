"""GPUJobs whose pods use parts of GPUs: what their pods ask for, and what that counts for."""

from __future__ import annotations

from typing import Any

import pytest
from tests.jobs.gangs import gpu_job, pod_template, role

from gangline.api.names import GPU_MEM, GPU_MILLI
from gangline.api.read import parse
from gangline.jobs.base import JobError
from gangline.jobs.gpujob import gang

Json = dict[str, Any]


def template(job: Json) -> Json:
    return gang.read(job).roles[0].template


def milli(pod: Json) -> int:
    return charges(pod)[GPU_MILLI]


def charges(pod: Json) -> Json:
    body = {"name": "main", "count": 1, "template": pod}
    read = parse.workload({"metadata": {"namespace": "a", "name": "b", "uid": "c"}, "spec": {"podSets": [body]}})
    return dict(read.pod_sets[0].charges)


@pytest.mark.parametrize(("gpus", "percent", "counted"), [(1, 50, 500), (2, 20, 400), (1, 99, 990), (4, 1, 40)])
def test_hami_divides_every_gpu_that_the_pod_requests(gpus: int, percent: int, counted: int) -> None:
    pod = template(gpu_job(role("w", 1, gpus, share={"by": "HAMi", "percent": percent})))
    asked = {
        "nvidia.com/gpu": str(gpus),
        "nvidia.com/gpucores": str(percent),
        "nvidia.com/gpumem-percentage": str(percent),
    }
    resources = pod["spec"]["containers"][0]["resources"]
    assert asked.items() <= resources["limits"].items() and asked.items() <= resources["requests"].items()
    assert milli(pod) == counted


@pytest.mark.parametrize(("gpus", "percent", "counted"), [(1, 50, 500), (2, 60, 1200), (1, 5, 50)])
def test_kais_pods_request_no_gpu_and_are_annotated(gpus: int, percent: int, counted: int) -> None:
    pod = template(gpu_job(role("w", 1, gpus, share={"by": "KAI", "percent": percent})))
    annotations = pod["metadata"]["annotations"]
    assert annotations["gpu-fraction"] == f"0.{percent:02}"
    assert annotations.get("gpu-fraction-num-devices") == (str(gpus) if gpus > 1 else None)
    resources = pod["spec"]["containers"][0].get("resources") or {}
    assert not any(name.startswith("nvidia.com/") for part in resources.values() for name in part)
    assert milli(pod) == counted


def test_hami_bounds_memory_in_mib_where_it_is_given() -> None:
    pod = template(gpu_job(role("w", 1, 2, share={"by": "HAMi", "percent": 20, "memory": "1Gi"})))
    limits = pod["spec"]["containers"][0]["resources"]["limits"]
    assert {"nvidia.com/gpu": "2", "nvidia.com/gpucores": "20", "nvidia.com/gpumem": "1024"}.items() <= limits.items()
    assert "nvidia.com/gpumem-percentage" not in limits
    assert charges(pod) == {GPU_MILLI: 400, GPU_MEM: 2 << 30}


def test_annotations_say_what_something_else_shares_out() -> None:
    share = {"by": "Annotations", "percent": 50, "memory": "8Gi"}
    pod = template(gpu_job(role("w", 1, 2, share=share), gpuResource="amd.com/gpu"))
    annotations = pod["metadata"]["annotations"]
    expected = {"gangline.io/gpu-share": "500m", "gangline.io/gpu-memory": "8192Mi", "gangline.io/gpu-count": "2"}
    assert expected.items() <= annotations.items()
    assert not (pod["spec"]["containers"][0].get("resources") or {}).get("limits")
    assert charges(pod) == {GPU_MILLI: 1000, GPU_MEM: 16 << 30}


def test_the_short_form_has_a_share_too() -> None:
    job = gpu_job(workers=2, gpusPerWorker=1, share={"by": "KAI", "percent": 25}, template=pod_template())
    pod = template(job)
    assert pod["metadata"]["annotations"]["gpu-fraction"] == "0.25"
    assert "share" not in pod["spec"]


def test_what_the_user_wrote_is_not_changed() -> None:
    job = gpu_job(role("w", 1, 1, share={"by": "KAI", "percent": 25}))
    template(job)
    assert job == gpu_job(role("w", 1, 1, share={"by": "KAI", "percent": 25}))


HALF = {"by": "HAMi", "percent": 50}
CLAIMED = {"by": "DRA", "percent": 50, "memory": "8Gi", "deviceClass": "gpu.example.com"}


def test_a_share_by_a_claim_counts_once_and_its_template_claims_nothing_yet() -> None:
    pod = template(gpu_job(role("w", 1, 2, share={**CLAIMED, "compute": "cores"}), gpuResource="amd.com/gpu"))
    assert pod["metadata"]["annotations"] == {
        "gangline.io/gpu-share": "500m",
        "gangline.io/gpu-memory": "8192Mi",
        "gangline.io/gpu-count": "2",
        "gangline.io/gpu-device-class": "gpu.example.com",
        "gangline.io/gpu-compute": "cores",
    }
    assert "resourceClaims" not in pod["spec"]
    assert charges(pod) == {GPU_MILLI: 1000, GPU_MEM: 16 << 30}


def test_a_share_by_visible_devices_tells_every_container_the_chosen_cards() -> None:
    share = {"by": "VisibleDevices", "percent": 50, "memory": "8Gi"}
    job = gpu_job(role("w", 1, 2, share=share), gpuResource="amd.com/gpu")
    pod = template(job)
    chosen = {"apiVersion": "v1", "fieldPath": "metadata.annotations['gangline.io/cards']"}
    for container in pod["spec"]["containers"]:
        assert container["env"][-1] == {"name": "NVIDIA_VISIBLE_DEVICES", "valueFrom": {"fieldRef": chosen}}
        assert "gpu" not in str(container.get("resources", {}))
    assert charges(pod) == {GPU_MILLI: 1000, GPU_MEM: 16 << 30}

    body = job["spec"]["roles"][0]["template"]
    body["metadata"] = {"annotations": {"gangline.io/gpu-visible-devices": "ROCR_VISIBLE_DEVICES"}}
    assert [row["name"] for row in template(job)["spec"]["containers"][0]["env"]] == ["ROCR_VISIBLE_DEVICES"]
    job["spec"]["roles"][0]["share"] = {"by": "KAI", "percent": 50}
    with pytest.raises(
        JobError, match=r"share.by: KAI chooses the cards of pods, and the template has gangline.io/gpu-vis"
    ):
        template(job)


@pytest.mark.parametrize(
    ("fields", "job", "said"),
    [
        ({"gpus": 0, "share": HALF}, {}, "spec.roles[0].share: there is no GPU to share: give their number"),
        ({"gpus": 1, "share": {"by": "HAMi"}}, {}, "spec.roles[0].share.percent: must be a whole number from 1 to 99"),
        ({"gpus": 1, "share": {"by": "HAMi", "percent": 100}}, {}, "spec.roles[0].share.percent: must be"),
        (
            {"gpus": 1, "share": {"by": "Run", "percent": 5}},
            {},
            "spec.roles[0].share.by: must be HAMi, KAI, DRA, VisibleDevices or Annotations",
        ),
        ({"gpus": 1, "share": {**HALF, "memory": "much"}}, {}, "spec.roles[0].share.memory: must be memory of a card"),
        (
            {"gpus": 1, "share": {"by": "KAI", "percent": 5, "memory": "1Gi"}},
            {},
            "spec.roles[0].share.memory: KAI divides",
        ),
        (
            {"gpus": 1, "share": {**CLAIMED, "deviceClass": "GPU!"}},
            {},
            "spec.roles[0].share.deviceClass: must be the name",
        ),
        (
            {"gpus": 1, "share": {**CLAIMED, "memory": None}},
            {},
            "spec.roles[0].share.memory: is required: a claim that",
        ),
        ({"gpus": 1, "share": {**CLAIMED, "compute": "x"}}, {}, "spec.roles[0].share.compute: must be milli or cores"),
        ({"gpus": 33, "share": CLAIMED}, {}, "spec.roles[0].share: a claim has at most 32 GPUs"),
        (
            {"gpus": 1, "share": {**HALF, "compute": "milli"}},
            {},
            "spec.roles[0].share.compute: belongs to a claim",
        ),
        (
            {"gpus": 1, "share": HALF},
            {"gpuResource": "amd.com/gpu"},
            "spec.roles[0].share: HAMi shares nvidia.com/gpu out",
        ),
    ],
)
def test_a_share_that_cannot_be_asked_for_is_refused(fields: Json, job: Json, said: str) -> None:
    gpus = fields.pop("gpus")
    with pytest.raises(JobError) as refused:
        gang.read(gpu_job(role("w", 1, gpus, **fields), **job))
    assert f"{refused.value.field}: {refused.value.message}".startswith(said)


@pytest.mark.parametrize(
    "asks",
    [
        {"resources": {"limits": {"nvidia.com/gpu": "1"}}},
        {"resources": {"requests": {"nvidia.com/gpucores": "10"}}},
        {"annotations": {"gpu-memory": "2000"}},
    ],
)
def test_a_template_does_not_ask_for_gpus_besides(asks: Json) -> None:
    fields = role("w", 1, 1, share=HALF)
    if "annotations" in asks:
        fields["template"]["metadata"] = asks
    else:
        fields["template"]["spec"]["containers"][0].update(asks)
    with pytest.raises(JobError, match="the template asks for GPUs itself"):
        gang.read(gpu_job(fields))


@pytest.mark.parametrize("by", ["HAMi", "KAI", "Annotations"])
def test_a_share_has_names_whoever_shares_the_gpus_out(by: str) -> None:
    sharing_names = {"affinity": "near", "antiAffinity": "apart", "exclusion": "mine"}
    pod = template(gpu_job(role("w", 1, 1, share={"by": by, "percent": 50, **sharing_names})))
    annotations = pod["metadata"]["annotations"]
    assert {key: annotations[f"gangline.io/gpu-{key}"] for key in ("affinity", "anti-affinity", "exclusion")} == {
        "affinity": "near",
        "anti-affinity": "apart",
        "exclusion": "mine",
    }
    body = {"name": "main", "count": 1, "template": pod}
    read = parse.workload({"metadata": {"namespace": "a", "name": "b", "uid": "c"}, "spec": {"podSets": [body]}})
    assert read.pod_sets[0].shares[0].names == ("affinity a/near", "anti-affinity a/apart", "exclusion a/mine")


@pytest.mark.parametrize("field", ["affinity", "antiAffinity", "exclusion"])
@pytest.mark.parametrize("name", ["", "a/b", "a" * 64, 5])
def test_a_share_has_no_name_that_is_none(field: str, name: object) -> None:
    with pytest.raises(JobError) as caught:
        template(gpu_job(role("w", 1, 1, share={"by": "HAMi", "percent": 50, field: name})))
    assert f"share.{field}" in str(caught.value)


def test_a_template_with_another_name_is_refused() -> None:
    named = role("w", 1, 1, share={"by": "HAMi", "percent": 50, "exclusion": "mine"})
    named["template"]["metadata"] = {"annotations": {"gangline.io/gpu-exclusion": "yours"}}
    with pytest.raises(JobError) as caught:
        template(gpu_job(named))
    assert "share.exclusion" in str(caught.value) and "yours" in str(caught.value)
