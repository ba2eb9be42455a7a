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


def soft(node: str) -> Json:
    start = (int(time.time()) - 1) * 1000
    window = {"start": timestamp(start), "end": timestamp(start + 600_000)}
    spec = {"window": window, "nodes": {"names": [node]}, "for": {"users": ["mira"]}, "firm": "Soft", "notice": "8s"}
    return {"apiVersion": "gangline.io/v1alpha1", "kind": "Reservation", "metadata": {"name": "deadline"}, "spec": spec}


async def test_others_use_a_soft_window_until_its_user_needs_the_node_also_when_the_operator_is_killed(
    system: System,
) -> None:
    pool = EqualNodes("soft", 1, {"nvidia.com/gpu": 8}, {"soft": "yes"})
    async with harness.connect(system.kubeconfig) as api:
        await create_pools(api.client, [pool])
        try:
            (node,) = pool.node_names
            await api.apply(
                harness.flavor("soft", {"soft": "yes"}),
                harness.cluster_queue("soft", 16, flavors=("soft",)),
                harness.local_queue("soft", "soft"),
            )
            operator = system.operator("soft")
            operator.wait_ready()
            await api.create(soft(node))
            await api.create(harness.job("other", "soft", gpus=8, runtime=""))

            async def runs(job: str) -> bool:
                pods = await api.all(kube.PODS, "default", f"batch.kubernetes.io/job-name={job}")
                return any(
                    pod["status"].get("phase") == "Running" and "deletionTimestamp" not in pod["metadata"]
                    for pod in pods
                )

            async def recalls() -> list[Json]:
                return (await api.get(kube.RESERVATIONS, "deadline")).get("status", {}).get("recalls") or []

            async def eviction() -> str:
                workload = await api.workload_of("other")
                assert workload is not None
                return harness.condition_row(workload, names.EVICTED).get("reason", "")

            async def told() -> bool:
                pods = await api.all(kube.PODS, "default", "batch.kubernetes.io/job-name=other")
                return any(names.SAVE_BY in (pod["metadata"].get("annotations") or {}) for pod in pods)

            await api.until(lambda: runs("other"), "the job of another user runs in the window", 60)
            assert await recalls() == [] and await eviction() == ""
            mine = harness.job("mine", "soft", gpus=8, runtime="")
            mine["metadata"].setdefault("labels", {})[names.USER] = "mira"
            await api.create(mine)

            async def recalled() -> bool:
                return bool(await recalls())

            await api.until(recalled, "the other one is recalled", 30)
            await api.until(told, "its pod learns by when to save", 30)
            (row,) = await recalls()
            operator.kill()
            system.operator("soft").wait_ready()
            assert (await recalls() or [row]) == [row], "the deadline stays"
            await api.until(lambda: runs("mine"), "the job of the user runs", 90)
            assert await eviction() == "Reservation"
            assert not await runs("other")

            async def over() -> bool:
                return not await recalls()

            await api.until(over, "nobody is recalled any more", 30)
        finally:
            await api.client.delete(kube.RESERVATIONS, None, "deadline")
            await delete_pool(api.client, pool.name)


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
