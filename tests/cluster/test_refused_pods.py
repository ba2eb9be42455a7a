"""Admitted gangs whose pods the API server refuses: what is said, and that they do not hold their quota for ever."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from typing import Any

import pytest
from click.testing import CliRunner
from tests.cluster.conftest import System
from tests.cluster.harness import (
    Api,
    cluster_queue,
    condition,
    condition_row,
    flavor,
    gpu_job,
    job,
    local_queue,
    queue_policy,
)

from gangline.console.cli import main
from gangline.engine import model
from gangline.kube import resources as kube
from gangline.kube.errors import Conflict
from gangline.kube.resources import Resource

pytestmark = pytest.mark.cluster
Json = dict[str, Any]
RESOURCE_QUOTAS = Resource("", "v1", "resourcequotas", kind="ResourceQuota")
SQUEEZED, GUARDED = "squeezed", "guarded"


async def namespace(api: Api, name: str, **labels: str) -> None:
    body = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name, "labels": labels}}
    with suppress(Conflict):
        await api.client.create(kube.NAMESPACES, None, body)


def in_namespace(obj: Json, name: str) -> Json:
    return {**obj, "metadata": {**obj["metadata"], "namespace": name}}


async def test_a_resource_quota_and_pod_security(system: System, api: Api) -> None:
    """Each is said on Workload and job in the API server's words; the quota goes to whoever waits; later they run."""
    policy = model.PodsReadyPolicy(backoff_base_seconds=2, backoff_max_seconds=2)
    system.operator("refusing", settings=model.Settings(pods_ready=policy)).wait_ready()
    await namespace(api, SQUEEZED)
    await namespace(api, GUARDED, **{"pod-security.kubernetes.io/enforce": "restricted"})
    few = {"metadata": {"name": "few"}, "spec": {"hard": {"pods": "1"}}}
    with suppress(Conflict):  # of a run before this one
        await api.client.create(RESOURCE_QUOTAS, SQUEEZED, {"apiVersion": "v1", "kind": "ResourceQuota", **few})

    async def counted() -> bool:
        found = await api.client.get(RESOURCE_QUOTAS, SQUEEZED, "few")
        return "hard" in found.get("status", {})

    await api.until(counted, "the quota is in force")
    await api.apply(
        flavor(),
        cluster_queue("shared", 3),
        cluster_queue("own", 4),
        queue_policy("soon", "shared", refusedPods={"after": "1s"}),
        local_queue("lq", "shared", SQUEEZED),
        local_queue("lq", "own", GUARDED),
        local_queue("lq", "shared"),
    )
    gang = in_namespace(gpu_job("gang", "lq", workers=3, simulated=""), SQUEEZED)
    await api.create(gang, job("plain", "lq", gpus=2, namespace=GUARDED))

    async def refused(job: str, where: str) -> Json | None:
        workload = await api.workload_of(job, where)
        return workload if workload and condition_row(workload, "PodsRefused").get("status") == "True" else None

    async def says_refused() -> Json | None:
        found = await api.get(kube.GPU_JOBS, "gang", SQUEEZED)
        return found if condition(found, "PodsRefused") else None

    async def holds_quota() -> bool:
        return condition(await api.workload_of("gang", SQUEEZED) or {}, "Admitted")

    await api.until(holds_quota, "the gang is admitted")
    await api.create(job("waits", "lq", gpus=3, runtime="2s"))  # for what the gang holds in vain
    row = condition_row(await api.until(says_refused, "the GPUJob says it", 40), "PodsRefused")
    assert row["reason"] == "ExceededQuota"
    assert "exceeded quota: few, requested: pods=1, used: pods=1, limited: pods=1" in row["message"]
    await api.finished("waits")
    evicted = (await api.workload_of("gang", SQUEEZED) or {})["status"]["schedulingStats"]["evictions"]
    assert [stats["reason"] for stats in evicted] == ["PodsRefused"]

    workload = await api.until(lambda: refused("plain", GUARDED), "the Workload of the Job says it", 40)
    row = condition_row(workload, "PodsRefused")
    assert row["reason"] == "PodSecurity"
    assert 'violates PodSecurity "restricted:latest"' in row["message"]
    assert condition(workload, "Admitted"), "without a policy it keeps its quota as long as waitForPodsReady allows"

    async def recorded() -> bool:
        events = await api.all(kube.EVENTS, GUARDED)
        about = {event["regarding"]["kind"] for event in events if event["reason"] == "PodsRefused"}
        return {"Workload", "Job"} <= about

    await api.until(recorded, "events say it of both")
    command = ["why", "plain", "-n", GUARDED, "--kubeconfig", str(system.kubeconfig)]
    why = await asyncio.to_thread(CliRunner().invoke, main, command)
    assert "its pods are refused (PodSecurity)" in why.output, why.output

    await api.client.delete(RESOURCE_QUOTAS, SQUEEZED, "few")

    async def runs() -> bool:
        found = await api.get(kube.GPU_JOBS, "gang", SQUEEZED)
        return found["status"].get("ready") == "3/3" and not condition(found, "PodsRefused")

    await api.until(runs, "the gang runs", 60)
    await api.wipe(SQUEEZED)
    await api.wipe(GUARDED)
