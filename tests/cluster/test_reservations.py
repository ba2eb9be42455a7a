"""A maintenance on a real API server: a node is emptied, cordoned and given back, and the job on it goes on."""

from __future__ import annotations

import time
from typing import Any

import pytest
from tests.cluster import harness
from tests.cluster.conftest import System

from gangline.api import names
from gangline.api.read.conditions import timestamp
from gangline.devcluster.nodes import EqualNodes, create_pools, delete_pool
from gangline.kube import resources as kube

pytestmark = pytest.mark.cluster
Json = dict[str, Any]

#: seconds until the window, and of the window
AHEAD, OPEN = 15, 20


def maintenance(node: str) -> Json:
    start = (int(time.time()) + AHEAD) * 1000
    window = {"start": timestamp(start), "end": timestamp(start + OPEN * 1000)}
    spec = {"window": window, "nodes": {"names": [node]}, "notice": "10s", "stopBefore": "3s"}
    return {"apiVersion": "gangline.io/v1alpha1", "kind": "Reservation", "metadata": {"name": "upkeep"}, "spec": spec}


async def test_a_node_is_emptied_cordoned_and_given_back_and_the_job_goes_on(system: System) -> None:
    pool = EqualNodes("upkeep", 1, {"nvidia.com/gpu": 8}, {"upkeep": "yes"})
    async with harness.connect(system.kubeconfig) as api:
        await create_pools(api.client, [pool])
        try:
            (node,) = pool.node_names
            await api.apply(
                harness.flavor("upkeep", {"upkeep": "yes"}),
                harness.cluster_queue("upkeep", 8, flavors=("upkeep",)),
                harness.local_queue("upkeep", "upkeep"),
            )
            system.operator("upkeep").wait_ready()
            await api.create(harness.job("train", "upkeep", gpus=8, runtime=""))

            async def runs() -> bool:
                pods = await api.all(kube.PODS, "default", "batch.kubernetes.io/job-name=train")
                return any(
                    pod["status"].get("phase") == "Running" and "deletionTimestamp" not in pod["metadata"]
                    for pod in pods
                )

            await api.until(runs, "the job runs")
            await api.create(maintenance(node))

            async def evicted() -> bool:
                workload = await api.workload_of("train")
                return (
                    workload is not None
                    and harness.condition_row(workload, names.EVICTED).get("reason") == "Reservation"
                )

            async def empty() -> bool:
                return not await runs()

            async def cordoned() -> bool:
                return (await api.get(kube.NODES, node))["spec"].get("unschedulable") is True

            async def free() -> bool:
                found = await api.get(kube.NODES, node)
                marks = found["metadata"].get("annotations") or {}
                return not found["spec"].get("unschedulable") and names.CORDONED_FOR not in marks

            await api.until(evicted, "the job is evicted for the window", AHEAD + 30)
            await api.until(cordoned, "the node is cordoned", 30)
            await api.until(empty, "nothing runs in the window", 30)
            await api.until(free, "the node is given back", AHEAD + OPEN + 30)
            await api.until(runs, "the job goes on", 60)
        finally:
            await delete_pool(api.client, pool.name)
