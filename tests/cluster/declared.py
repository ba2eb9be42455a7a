"""Kinds that are only declared, on a real API server: their CRDs, a job of each that fits the tests' nodes, and both processes
configured for them. The CRDs are the tests' own and have no schema.
"""

from __future__ import annotations

import contextlib
import copy
from collections.abc import AsyncIterator, Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import Any

import yaml
from tests.cluster.accounts import RESOURCES
from tests.cluster.conftest import System
from tests.cluster.foreign_kinds import OPEN, crd
from tests.cluster.harness import Api, WebhookProcess, cluster_queue
from tests.jobs.foreign import CASES, DECLARED, OWN, OWN_CASE, Case, Json, conditions, job, template

from gangline.api import jobkinds, names
from gangline.api.jobkinds.declaration import Declaration
from gangline.api.read.configuration import load
from gangline.install import rights
from gangline.jobs import declare
from gangline.kube import resources as kube
from gangline.kube.resources import Resource

#: a controller that no cluster has: the test writes the statuses of Jobs in its place
PLAYER = "tests.example.com/player"
_STARTED, _ENDED = "2026-01-01T00:00:00Z", "2026-01-01T01:00:00Z"


def _condition(kind: str) -> Json:
    """A condition as the API server wants it on a Job."""
    row = {"type": kind, "status": "True", "reason": "Told", "message": "done"}
    return {**row, "lastProbeTime": _ENDED, "lastTransitionTime": _ENDED}


def _of_pods(body: Json) -> Json:
    return {**body["spec"], **body["metadata"]}


JOB = Case(
    job=job(
        "batch/v1",
        "Job",
        {"parallelism": 2, "completions": 2, "managedBy": PLAYER, "template": template(restartPolicy="Never")},
    ),
    counts={"main": 2},
    ready={"startTime": _STARTED, "active": 2, "ready": 2},
    busy={"startTime": _STARTED, "active": 2, "ready": 0},
    rest={"active": 0, "ready": 0},
    succeeded={
        "startTime": _STARTED,
        "completionTime": _ENDED,
        "active": 0,
        "ready": 0,
        "succeeded": 2,
        "conditions": [_condition("SuccessCriteriaMet"), _condition("Complete")],
    },
    failed=None,
    wrong=((("metadata", "labels", names.MAX_EXEC_TIME), "0", f"metadata.labels[{names.MAX_EXEC_TIME}]"),),
    injected=lambda obj: {"main": _of_pods(obj["spec"]["template"])},
)
JOB_SET = Case(
    job=job(
        "jobset.x-k8s.io/v1alpha2",
        "JobSet",
        {
            "replicatedJobs": [
                {"name": "leader", "template": {"spec": {"template": template()}}},
                {
                    "name": "workers",
                    "replicas": 2,
                    "template": {"spec": {"parallelism": 3, "completions": 3, "template": template()}},
                },
            ]
        },
    ),
    counts={"leader": 1, "workers": 6},
    ready={"replicatedJobsStatus": [{"name": "leader", "ready": 1}, {"name": "workers", "ready": 2, "active": 2}]},
    busy={"replicatedJobsStatus": [{"name": "workers", "active": 1}]},
    rest={"replicatedJobsStatus": [{"name": "workers", "suspended": 2}], **conditions("Suspended")},
    succeeded=conditions("Completed", "done"),
    failed=conditions("Failed", "lost"),
    wrong=((("spec", "replicatedJobs"), [], "spec.replicatedJobs"),),
    injected=lambda obj: {
        row["name"]: _of_pods(row["template"]["spec"]["template"]) for row in obj["spec"]["replicatedJobs"]
    },
)
#: Gangline runs it itself, and writes its status
GPU_JOB = Case(
    job=job(
        "gangline.io/v1alpha1",
        "GPUJob",
        {
            "workers": 2,
            "gpusPerWorker": 1,
            "template": {"spec": {"containers": [{"name": "main", "image": "train:1"}]}},
        },
    ),
    counts={"worker": 2},
    ready={},
    busy={},
    rest={},
    succeeded={},
    failed=None,
    wrong=((("spec", "workers"), 0, "spec.workers"),),
)
#: kinds with a module of their own, and those that are only declared
ALL = (JOB, JOB_SET, GPU_JOB, *CASES, OWN_CASE)
#: those that the API server always has
SERVED = ("Job", "GPUJob")
CONFIGURATION: Json = {
    "apiVersion": "config.kueue.x-k8s.io/v1beta2",
    "kind": "Configuration",
    "integrations": {
        "frameworks": [each.framework for each in jobkinds.BUILT_IN if each.framework and not each.by_pods],
        "declared": [DECLARED],
    },
}

#: kinds that describe the pods of jobs
DESCRIPTIONS = tuple(resource for each in jobkinds.BUILT_IN for resource in each.descriptions)


def declaration(case: Case) -> Declaration:
    identity = (case.job["apiVersion"].rpartition("/")[0], case.name)
    return next(each for each in (*jobkinds.BUILT_IN, OWN) if each.identity == identity)


def without_disk(value: Any) -> None:
    """The nodes of these tests have no such label."""
    if isinstance(value, dict):
        value.pop("nodeSelector", None)
    for inner in value.values() if isinstance(value, dict) else value if isinstance(value, list) else ():
        without_disk(inner)


def job_of(case: Case, letter: str = "a") -> Json:
    """One that requests a GPU for each of its pods; `letter` tells it from others of its kind."""
    made: Json = copy.deepcopy(dict(case.job))
    name = f"{letter}-{case.name.lower()}"
    made["metadata"] = {"name": name, "namespace": "default", "labels": made["metadata"]["labels"]}
    del made["status"]
    return with_gpus(made)


def with_gpus(obj: Json) -> Json:
    without_disk(obj)
    spark = "name: gpu\n      quantity: 8", "name: nvidia.com/gpu\n      quantity: 1"
    return yaml.safe_load(yaml.safe_dump(obj).replace("gpu: '8'", "nvidia.com/gpu: '1'").replace(*spark))


def counts(case: Case, letter: str = "a") -> dict[str, int]:
    """Pod sets of an AppWrapper have its name."""
    name = job_of(case, letter)["metadata"]["name"]
    return {pod_set.replace("mine-", f"{name}-"): count for pod_set, count in case.counts.items()}


def everything(name: str, pods: int = 1000, **spec: Any) -> Json:
    """A queue with room for so many pods, whatever they request: KubeRay's containers request CPU and memory."""
    amounts = {"nvidia.com/gpu": 1000, "cpu": 1000, "memory": "1Ti", "pods": pods}
    resources = [{"name": resource, "nominalQuota": amount} for resource, amount in amounts.items()]
    groups = [{"coveredResources": list(amounts), "flavors": [{"name": "gpu", "resources": resources}]}]
    return cluster_queue(name, 0, resourceGroups=groups, **spec)


@contextlib.asynccontextmanager
async def configured(
    system: System,
    api: Api,
    directory: Path,
    configuration: Json,
    schemas: Mapping[str, Json] = MappingProxyType({}),
) -> AsyncIterator[System]:
    """Both processes have the configuration and its rights. The CRDs come when the operator already runs.

    `schemas`: those of some kinds, by their names; others are kept as they are written.
    """
    chosen = load(configuration).jobs
    declare(chosen.declared, chosen.external)
    for body in rights.manifests(declared=chosen.declared, external=chosen.external):
        meta = body["metadata"]
        if meta["name"].endswith(("-declared", "-external")):
            await api.client.patch(
                RESOURCES[body["kind"]], None, meta["name"], body, kind="apply", field_manager="test", force=True
            )
    file = directory / "config.yaml"
    file.write_text(yaml.safe_dump(configuration))
    system.webhooks.stop()
    webhooks = WebhookProcess(system.webhooks.kubeconfig, system.directory, arguments=("--config", str(file))).start()
    system.operator(jobs=chosen).wait_ready()
    kinds = (*DESCRIPTIONS, *chosen.external, *(declaration(case).resource for case in ALL if case.name not in SERVED))
    for resource in kinds:
        body = crd(resource, schemas.get(resource.kind, OPEN))
        await api.client.create(kube.CUSTOM_RESOURCE_DEFINITIONS, None, body)
    yield system
    await _remove(api, kinds)
    system.kill_operators()
    webhooks.stop()
    system.webhooks.start()
    declare([])


async def _remove(api: Api, kinds: Sequence[Resource]) -> None:
    for resource in kinds:
        for found in await api.all(resource):
            meta = found["metadata"]
            await api.client.delete(resource, meta.get("namespace"), meta["name"], propagation="Background")
        await api.client.delete(kube.CUSTOM_RESOURCE_DEFINITIONS, None, crd(resource)["metadata"]["name"])
    await api.wipe()
