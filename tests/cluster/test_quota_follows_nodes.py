"""A QuotaPlan that follows nodes on a real API server: nodes go away and come back, and the operator is killed meanwhile."""

from __future__ import annotations

import contextlib
import time
from typing import Any

import pytest
from tests.cluster import harness
from tests.cluster.conftest import System

from gangline.api import names
from gangline.api.read.conditions import millis_of
from gangline.devcluster.nodes import EqualNodes, create_pools, delete_pool
from gangline.kube import resources as kube
from gangline.kube.errors import NotFound

pytestmark = pytest.mark.cluster
Json = dict[str, Any]
GPU = "nvidia.com/gpu"
DOWN = 12


def plan() -> Json:
    follow = {
        "flavor": "tide",
        "resource": GPU,
        "sharePercent": 100,
        "min": 2,
        "damping": {"down": f"{DOWN}s", "up": "2s"},
    }
    recall = {"notice": "10s", "stopBefore": "3s"}
    spec = {"clusterQueue": "tide", "follow": [follow], "recall": recall}
    return {"apiVersion": "gangline.io/v1alpha1", "kind": "QuotaPlan", "metadata": {"name": "tide"}, "spec": spec}


async def test_quota_falls_with_nodes_after_a_recall_and_rises_again(system: System) -> None:
    """Two nodes of 8 GPUs, and a job on each. A node that is cordoned shortly changes nothing. One that stays cordoned takes
    its share of the quota: the later job is warned, stopped, and goes on once the node is back.
    """
    pool = EqualNodes("tide", 2, {GPU: 8}, {"tide": "yes"})
    async with harness.connect(system.kubeconfig) as api:
        await create_pools(api.client, [pool])
        try:
            await api.apply(
                harness.flavor("tide", {"tide": "yes"}),
                harness.cluster_queue("tide", 1, flavors=("tide",)),
                harness.local_queue("tide", "tide"),
            )
            operator = system.operator("tide")
            operator.wait_ready()
            await api.create(plan())

            async def row() -> Json:
                status = (await api.get(kube.QUOTA_PLANS, "tide")).get("status", {})
                return (status.get("follow") or [{}])[0]

            async def quota(gpus: int) -> bool:
                status = (await api.get(kube.QUOTA_PLANS, "tide")).get("status", {})
                return (status.get("effectiveQuotas") or [{}])[0].get("nominalQuota") == str(gpus)

            async def cordon(node: str, on: bool) -> None:
                await api.client.patch(kube.NODES, None, node, {"spec": {"unschedulable": on or None}})

            async def admitted(name: str) -> bool:
                workload = await api.workload_of(name)
                return workload is not None and harness.condition(workload, "Admitted")

            await api.until(lambda: quota(16), "the quota is what two nodes have")
            await api.create(harness.job("early", "tide", gpus=8, runtime=""))
            await api.until(lambda: admitted("early"), "the first job starts")
            await api.create(harness.job("late", "tide", gpus=8, runtime=""))
            await api.until(lambda: admitted("late"), "the second job starts")
            node = pool.node_names[1]

            await cordon(node, True)

            async def pending() -> bool:
                return "changesAt" in await row()

            await api.until(pending, "the smaller capacity is noticed")
            await cordon(node, False)

            async def settled() -> bool:
                return "changesAt" not in await row() and await quota(16)

            await api.until(settled, "a node that is back in time has changed nothing")

            await cordon(node, True)
            await api.until(pending, "the smaller capacity is noticed again")
            since = (await row())["pendingSince"]
            operator.kill()
            system.operator("tide-too").wait_ready()
            assert (await row())["pendingSince"] == since

            async def recalled() -> bool:
                workload = await api.workload_of("late") or {}
                return harness.condition_row(workload, names.EVICTED).get("reason") == "QuotaRecalled"

            await api.until(recalled, "the later job is recalled", 90)
            await api.until(lambda: quota(8), "the quota has followed")
            assert time.time() * 1000 >= millis_of(since) + DOWN * 1000
            assert await admitted("early"), "who fits into the smaller quota stays"

            await cordon(node, False)
            await api.until(lambda: quota(16), "the quota has followed the node back", 90)
            await api.until(lambda: admitted("late"), "and the job goes on", 90)
        finally:
            with contextlib.suppress(NotFound):
                await api.client.delete(kube.QUOTA_PLANS, None, "tide")
            await api.wipe()
            await delete_pool(api.client, pool.name)
