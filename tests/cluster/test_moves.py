"""Room made by moving on a real API server: two small jobs are on two nodes, and a gang needs one of these nodes whole."""

from __future__ import annotations

from typing import Any

import pytest
from tests.cluster import harness
from tests.cluster.conftest import System

from gangline.api import names
from gangline.devcluster.nodes import EqualNodes, create_pools, delete_pool
from gangline.kube import resources as kube

pytestmark = pytest.mark.cluster
Json = dict[str, Any]


async def test_a_gang_starts_where_a_job_was_and_that_goes_on_elsewhere(system: System) -> None:
    pool = EqualNodes("moving", 2, {"nvidia.com/gpu": 8}, {"moving": "yes"})
    async with harness.connect(system.kubeconfig) as api:
        await create_pools(api.client, [pool])

        async def node_of(name: str) -> str:
            """The node on which the job's pod runs; "" = on none."""
            pods = await api.all(kube.PODS, "default", f"batch.kubernetes.io/job-name={name}")
            running = [
                pod
                for pod in pods
                if pod["status"].get("phase") == "Running" and "deletionTimestamp" not in pod["metadata"]
            ]
            return running[0]["spec"]["nodeName"] if running else ""

        async def start(name: str, gpus: int) -> str:
            await api.create(harness.job(name, "moving", gpus=gpus, runtime=""))

            async def runs() -> bool:
                return bool(await node_of(name))

            await api.until(runs, f"{name} runs", 60)
            return await node_of(name)

        try:
            moves = {"lostGpuHoursPerDay": "10", "after": "0s", "longestLoss": "1h"}
            await api.apply(
                harness.flavor("moving", {"moving": "yes"}),
                harness.cluster_queue("moving", 16, flavors=("moving",)),
                harness.local_queue("moving", "moving"),
                harness.queue_policy("moving", "moving", moves=moves),
            )
            operator = system.operator("moving").wait_ready()
            await start("full0", 7)
            small = await start("small0", 1)
            await start("full1", 7)
            other = await start("small1", 1)
            assert small != other
            for name in ("full0", "full1"):
                await api.client.delete(kube.JOBS, "default", name, propagation="Background")
            await api.create(harness.job("gang", "moving", gpus=8, runtime=""))

            async def moved() -> bool:
                found = [await api.workload_of(name) for name in ("small0", "small1")]
                rows = [harness.condition_row(each, names.PREEMPTED) for each in found if each is not None]
                return any(row.get("reason") == "Moved" or "make room for" in row.get("message", "") for row in rows)

            async def all_run() -> bool:
                there = [await node_of(name) for name in ("gang", "small0", "small1")]
                return all(there) and there[1] == there[2] != there[0]

            await api.until(moved, "a job is moved", 60)
            operator.kill()
            system.operator("moving-again").wait_ready()
            await api.until(all_run, "the gang runs, and the jobs go on beside each other", 120)
        finally:
            await delete_pool(api.client, pool.name)
