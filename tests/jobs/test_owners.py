"""An owner counts only if it really makes such a child."""

from __future__ import annotations

from typing import Any

import pytest
from tests.objects import JobObject, altered

from gangline.control.feed.mirror import Mirror
from gangline.jobs import owners
from gangline.kube import resources as kube

Json = dict[str, Any]
QUEUED = {"kueue.x-k8s.io/queue-name": "main"}


def a_job(name: str, pods: int | None = None, owner: JobObject | None = None, **labels: str) -> JobObject:
    meta: Json = {"name": name, "namespace": "ns", "uid": f"uid-{name}", "resourceVersion": "1", "labels": labels}
    if owner is not None:
        head = {"apiVersion": owner["apiVersion"], "kind": owner["kind"], "name": owner.name}
        meta["ownerReferences"] = [{**head, "uid": owner.uid, "controller": True}]
    spec: Json = {"template": {"spec": {"containers": [{"name": "c"}]}}} | ({"parallelism": pods} if pods else {})
    return JobObject({"apiVersion": "batch/v1", "kind": "Job", "metadata": meta, "spec": spec, "status": {}})


def a_job_set(replicas: int = 2, pods: int = 4) -> JobObject:
    row = {"name": "w", "replicas": replicas, "template": {"spec": a_job("x", pods)["spec"]}}
    meta = {"name": "js", "namespace": "ns", "uid": "uid-js", "resourceVersion": "1", "labels": QUEUED}
    spec = {"replicatedJobs": [row]}
    head = {"apiVersion": "jobset.x-k8s.io/v1alpha2", "kind": "JobSet"}
    return JobObject({**head, "metadata": meta, "spec": spec, "status": {}})


def a_gpu_job() -> JobObject:
    role = {"name": "worker", "replicas": 3, "gpus": 1, "template": {"spec": {"containers": [{"name": "c"}]}}}
    meta = {"name": "g", "namespace": "ns", "uid": "uid-g", "resourceVersion": "1", "labels": QUEUED}
    head = {"apiVersion": "gangline.io/v1alpha1", "kind": "GPUJob"}
    return JobObject({**head, "metadata": meta, "spec": {"roles": [role]}})


@pytest.mark.parametrize(
    ("owner", "child", "made"),
    [
        (a_job_set(), a_job("js-w-0", 4), True),
        (a_job_set(), a_job("js-w-1", 1), True),
        (a_job_set(), a_job("js-w-2", 4), False),
        (a_job_set(), a_job("js-w-0", 40), False),
        (a_job_set(), a_job("js-x-0", 4), False),
        (a_job_set(), a_job("js-w-00000000000000000000", 4), False),
        (a_job_set(), a_job("other", 4), False),
        (a_job_set(), a_job_set(), False),
        (a_gpu_job(), a_job("g-worker", 3), True),
        (a_gpu_job(), a_job("g-worker", 4), False),
        (a_gpu_job(), a_job("g-other", 1), False),
        (a_job("j"), a_job("c"), False),
        (altered(a_gpu_job(), spec={"roles": "spoilt"}), a_job("g-worker", 1), False),
        (altered(a_job_set(), spec={"replicatedJobs": [None]}), a_job("js-w-0", 1), False),
        ({"apiVersion": "example.com/v1", "kind": "Other"}, a_job("c"), True),
        ({"apiVersion": "ray.io/v1", "kind": "RayJob", "metadata": {"name": "r"}}, a_job("r-x7k2p"), True),
        ({"apiVersion": "ray.io/v1", "kind": "RayJob", "metadata": {"name": "r"}}, a_job("c"), False),
        ({"apiVersion": "ray.io/v1", "kind": "RayJob"}, a_job("c"), False),
        ({"apiVersion": "kubeflow.org/v1", "kind": "PyTorchJob", "metadata": {"name": "p"}}, a_job("p"), False),
        (
            {"apiVersion": "kubeflow.org/v2beta1", "kind": "MPIJob", "metadata": {"name": "m"}},
            a_job("m-launcher"),
            True,
        ),
        ({"apiVersion": "kubeflow.org/v2beta1", "kind": "MPIJob", "metadata": {"name": "m"}}, a_job("m-2"), False),
    ],
)
def test_kind_name_and_size_have_to_be_those_that_the_owner_makes(owner: Json, child: JobObject, made: bool) -> None:
    assert owners.creates(JobObject(owner), child) is made


def test_a_forged_reference_to_a_queued_job_sets_nobody_free() -> None:
    mirror = Mirror(observe=lambda change: None)
    honest, gang = a_job("honest", **QUEUED), a_job_set()
    mirror.upsert(kube.JOBS, honest)
    mirror.upsert(kube.JOB_SETS, gang)
    assert mirror.managed_ancestor(a_job("js-w-0", 4, gang))
    assert not mirror.managed_ancestor(a_job("forged", 4, gang, **QUEUED))
    assert not mirror.managed_ancestor(a_job("js-w-0", 400, gang, **QUEUED))
    assert not mirror.managed_ancestor(a_job("forged", 4, honest, **QUEUED))


def test_an_owner_in_another_namespace_is_none() -> None:
    mirror = Mirror(observe=lambda change: None)
    gang = a_job_set()
    mirror.upsert(kube.JOB_SETS, gang)
    child = a_job("js-w-0", 4, gang, **QUEUED)
    child["metadata"]["namespace"] = "other"
    assert not mirror.managed_ancestor(child)
