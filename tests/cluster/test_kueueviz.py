"""The calls of KueueViz's backend, and the fields that its pages show: lists, single objects, watches, events of a Workload."""

from __future__ import annotations

import asyncio
from typing import Any

import orjson
import pytest
from bench.official import Kind
from tests.cluster import harness
from tests.cluster.conftest import System
from tests.cluster.harness import Api, condition_row

from gangline.kube import resources as kube

pytestmark = pytest.mark.cluster
Json = dict[str, Any]
KINDS = ("workloads", "clusterqueues", "localqueues", "resourceflavors", "cohorts")
GPUS = [{"name": "nvidia.com/gpu", "total": "4"}]


async def test_what_the_dashboard_asks_for_is_there(system: System, api: Api) -> None:
    system.operator("viz").wait_ready()
    queues = {kind: Kind("kueue.x-k8s.io", "v1beta2", kind) for kind in KINDS}
    before = await api.official.list(queues["workloads"])
    cohort = {"apiVersion": "kueue.x-k8s.io/v1beta2", "kind": "Cohort", "metadata": {"name": "research"}, "spec": {}}
    await api.apply(
        cohort, harness.flavor(), harness.cluster_queue("viz", 4, cohort="research"), harness.local_queue("viz", "viz")
    )
    await api.create(harness.job("runs", "viz", gpus=4, runtime="600s"))
    await api.until(lambda: is_admitted(api, "runs"), "the first job runs")
    await api.create(harness.job("waits", "viz", gpus=1))

    async def both_counted() -> bool:
        queues = [await api.get(kind, "viz") for kind in (kube.CLUSTER_QUEUES, kube.LOCAL_QUEUES)]
        statuses = [queue.get("status") or {} for queue in queues]
        return all((each.get("admittedWorkloads"), each.get("pendingWorkloads")) == (1, 1) for each in statuses)

    await api.until(both_counted, "the statuses of both queues count both")
    lists = {kind: (await api.official.list(place)).items for kind, place in queues.items()}
    assert all(lists.values()), "every page has something to show"

    queue = await api.get(kube.CLUSTER_QUEUES, "viz")
    assert queue["spec"]["cohortName"] == "research"
    assert queue["spec"].keys() >= {"preemption", "flavorFungibility", "queueingStrategy", "resourceGroups"}
    used = [{"name": "nvidia.com/gpu", "total": "4", "borrowed": "0"}]
    assert (
        queue["status"]["flavorsUsage"] == queue["status"]["flavorsReservation"] == [{"name": "gpu", "resources": used}]
    )
    assert condition_row(queue, "Active")["reason"] == "Ready"
    local = await api.get(kube.LOCAL_QUEUES, "viz")
    assert local["spec"]["clusterQueue"] == "viz"
    assert (
        local["status"]["flavorsUsage"] == local["status"]["flavorsReservation"] == [{"name": "gpu", "resources": GPUS}]
    )

    workload = await api.workload_of("runs")
    assert workload is not None
    pods = await api.all(kube.PODS, "default")
    job = workload["metadata"]["labels"]["kueue.x-k8s.io/job-uid"]
    assert {pod["metadata"]["labels"]["controller-uid"] for pod in pods} == {job}, (
        "a Workload's pods are found by its job"
    )
    await the_events(api, workload["metadata"]["name"])
    await the_watch(api, queues["workloads"], before.version)


async def is_admitted(api: Api, job: str) -> bool:
    workload = await api.workload_of(job)
    return workload is not None and harness.condition(workload, "Admitted")


async def the_events(api: Api, workload: str) -> None:
    """The page of a Workload asks for its events by name."""
    path = f"/api/v1/namespaces/default/events?fieldSelector=involvedObject.name%3D{workload}"

    async def reasons() -> bool:
        found = orjson.loads(await api.client.raw(path))["items"]
        return {"QuotaReserved", "Admitted"} <= {event["reason"] for event in found}

    await api.until(reasons, "its events say that it was admitted")


async def the_watch(api: Api, kind: Kind, version: str) -> None:
    """An informer that listed before all this sees both Workloads arrive, and one of them admitted."""
    seen: dict[str, bool] = {}
    async with asyncio.timeout(30):
        async for event in api.official.watch(kind, version):
            name = event.object["metadata"].get("name", "")
            seen[name] = seen.get(name, False) or harness.condition(event.object, "Admitted")
            if sorted(seen.values()) == [False, True]:
                return
