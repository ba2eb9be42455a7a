"""Chains of owners on a real API server: what a queued object creates has no Workload, and waits with that object."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from tests.cluster import declared
from tests.cluster.conftest import System
from tests.cluster.declared import CONFIGURATION, everything, with_gpus
from tests.cluster.harness import Api, condition, flavor, local_queue
from tests.jobs.foreign import Json, component, replicated, runtime, template

from gangline.api import jobkinds, names
from gangline.api.jobkinds import appwrapper, others, trainjob
from gangline.kube import resources as kube
from gangline.kube.errors import NotFound
from gangline.kube.resources import Resource

pytestmark = pytest.mark.cluster
SANDBOX = "Sandbox.v1.agents.example.com"
CONFIGURED: Json = {
    **CONFIGURATION,
    "integrations": {
        **CONFIGURATION["integrations"],
        "frameworks": [each.framework for each in jobkinds.BUILT_IN if each.framework] + ["pod"],
        "externalFrameworks": [SANDBOX],
    },
}
LABELS = {names.QUEUE_NAME: "main"}
A_JOB: Json = {"template": {"spec": {"containers": [{"name": "c", "image": "i"}], "restartPolicy": "Never"}}}
PYTORCH_JOBS = Resource("kubeflow.org", "v1", "pytorchjobs", kind="PyTorchJob")


@pytest.fixture
async def configured(system: System, api: Api, tmp_path: Path) -> AsyncIterator[System]:
    async with declared.configured(system, api, tmp_path, CONFIGURED) as running:
        yield running


async def created(api: Api, resource: Resource, body: Json) -> Json:
    """Of a kind that may be served in a moment only."""

    async def create() -> Any:
        try:
            return await api.client.create(resource, "default" if resource.namespaced else None, body)
        except NotFound:
            return None

    return await api.until(create, f"a {resource.kind} is created")


def an_object(resource: Resource, name: str, spec: Json, owner: Json | None = None, **labels: str) -> Json:
    meta: Json = {"name": name, "labels": labels}
    if resource.namespaced:
        meta["namespace"] = "default"
    if owner is not None:
        head = {"apiVersion": owner["apiVersion"], "kind": owner["kind"], "name": owner["metadata"]["name"]}
        meta["ownerReferences"] = [{**head, "uid": owner["metadata"]["uid"], "controller": True}]
    return {"apiVersion": resource.api_version, "kind": resource.kind, "metadata": meta, "spec": spec}


async def admitted(api: Api, name: str) -> Json:
    async def found() -> Json | None:
        workload = await api.workload_of(name)
        return workload if workload is not None and condition(workload, "Admitted") else None

    return await api.until(found, f"{name} is admitted")


async def suspended(api: Api, resource: Resource, name: str, *path: str) -> None:
    async def held() -> bool:
        found: Any = (await api.get(resource, name))["spec"]
        for part in path:
            found = found.get(part) or {}
        return found.get("suspend") is True

    await api.until(held, f"{name} is suspended")


async def test_what_a_queued_object_creates_is_not_queued_twice(configured: System, api: Api) -> None:
    """The children are written as their owners' controllers write them, some before their owner is admitted."""
    await api.apply(flavor(labels={"gangline.io/node-pool": "gpu"}), everything("cq"), local_queue("main", "cq"))
    await _stop(api, "HoldAndDrain")

    replicas = {"Worker": {"replicas": 2, "template": template()}}
    training = component("kubeflow.org/v1", "PyTorchJob", {"pytorchReplicaSpecs": replicas})
    body = an_object(appwrapper.APP_WRAPPER.resource, "wrapper", {"components": [training]}, **LABELS)
    wrapper = await created(api, appwrapper.APP_WRAPPER.resource, with_gpus(body))
    sandbox = await created(api, _sandboxes(), an_object(_sandboxes(), "box", {}, **LABELS))
    tune = an_object(trainjob.TRAIN_JOB.resource, "tune", {"runtimeRef": {"name": "torch"}}, **LABELS)
    train = await created(api, trainjob.TRAIN_JOB.resource, tune)
    of = with_gpus(runtime("torch", replicated("node", "trainer")))
    await created(api, kube.CLUSTER_TRAINING_RUNTIMES, of)

    # children that are there too early are held: as Kueue's reconciler does, and not at birth
    inner = wrapper["spec"]["components"][0]["template"]
    early = await created(
        api, PYTORCH_JOBS, an_object(PYTORCH_JOBS, "wrapped-pytorchjob", inner["spec"], wrapper, **LABELS)
    )
    await suspended(api, PYTORCH_JOBS, "wrapped-pytorchjob", "runPolicy")
    boxed = an_object(kube.JOBS, "boxed", A_JOB, sandbox, **LABELS)
    await created(api, kube.JOBS, boxed)
    await suspended(api, kube.JOBS, "boxed")
    forged = an_object(PYTORCH_JOBS, "forged", inner["spec"], wrapper, **LABELS)
    await created(api, PYTORCH_JOBS, forged)

    await _stop(api, "None")
    for name in ("wrapper", "tune", "forged"):
        await admitted(api, name)
    pods = an_object(kube.PODS, "wrapped-pytorchjob-worker-0", template()["spec"], early, **LABELS)
    pod = await created(api, kube.PODS, with_gpus(pods))
    assert "schedulingGates" not in pod["spec"]  # it belongs to a gang that has its quota
    rows = [{**replicated("node", replicas=1)}]
    await created(api, kube.JOB_SETS, an_object(kube.JOB_SETS, "tune", {"replicatedJobs": rows}, train, **LABELS))

    # the Workload of the sandbox comes from its own controller, and is decided
    count = {"name": "main", "count": 1, "template": {"spec": {"containers": [{"name": "c", "image": "i"}]}}}
    own = an_object(kube.WORKLOADS, "of-the-box", {"queueName": "main", "podSets": [count]}, sandbox)
    await created(api, kube.WORKLOADS, own)
    await admitted(api, "box")
    late = an_object(kube.JOBS, "boxed-2", A_JOB, sandbox, **LABELS)
    assert not (await created(api, kube.JOBS, late))["spec"].get("suspend")

    owners = {row["name"] for w in await api.all(kube.WORKLOADS) for row in w["metadata"]["ownerReferences"]}
    assert owners == {"wrapper", "tune", "forged", "box"}
    assert not (await api.get(kube.JOBS, "boxed-2"))["spec"].get("suspend")
    await api.client.delete(kube.JOB_SETS, "default", "tune")
    await api.client.delete(kube.PODS, "default", pod["metadata"]["name"], grace_seconds=0)


async def _stop(api: Api, policy: str) -> None:
    await api.client.patch(kube.CLUSTER_QUEUES, None, "cq", {"spec": {"stopPolicy": policy}})


def _sandboxes() -> Resource:
    return others.kind(SANDBOX)
