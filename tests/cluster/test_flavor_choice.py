"""Which flavor is worth waiting for, on a real API server: a job waits for the busy fast flavor and says so, others pass it, and
the wait ends when the flavor is free or when it has lasted for long enough.
"""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.cluster.conftest import System
from tests.cluster.harness import Api, Json, cluster_queue, condition_row, flavor, job, local_queue, queue_policy

from gangline.api import names
from gangline.control.process.options import ForecastOptions
from gangline.devcluster.nodes import EqualNodes, create_pools, delete_pool
from gangline.kube import resources as kube

pytestmark = pytest.mark.cluster

LABEL = "example.com/speed"
POOLS = [EqualNodes(name, 1, {"nvidia.com/gpu": 8}, {LABEL: name}) for name in ("slow", "fast")]


def training(name: str, queue: str, *, expected: str, speeds: str = "", gpus: int = 2) -> Json:
    """A Job that runs until it is deleted, and says how long it takes at speed 1."""
    made = job(name, queue, gpus=gpus, runtime="")
    made["metadata"]["annotations"][names.EXPECTED_RUNTIME] = expected
    if speeds:
        made["metadata"]["annotations"][names.FLAVOR_SPEEDS] = speeds
    return made


def two_flavors(name: str) -> Json:
    """A ClusterQueue whose order prefers the slow flavor; two GPUs of the fast one."""
    quotas = [
        {"name": flavor, "resources": [{"name": "nvidia.com/gpu", "nominalQuota": gpus}]}
        for flavor, gpus in (("slow", 8), ("fast", 2))
    ]
    groups = [{"coveredResources": ["nvidia.com/gpu"], "flavors": quotas}]
    return cluster_queue(name, 0, resourceGroups=groups)


async def flavor_of(api: Api, name: str) -> str:
    """The flavor that a job was admitted with, once its pod runs on a node of it; "" before."""
    workload = await api.workload_of(name)
    admission = (workload or {}).get("status", {}).get("admission")
    pods = await api.all(kube.PODS, "default", f"batch.kubernetes.io/job-name={name}")
    if not admission or not any(pod["status"].get("phase") == "Running" for pod in pods):
        return ""
    found = admission["podSetAssignments"][0]["flavors"]["nvidia.com/gpu"]
    assert [pod["spec"]["nodeSelector"][LABEL] for pod in pods] == [found]
    return found


async def in_force(api: Api, policy: str) -> bool:
    return condition_row(await api.get(kube.QUEUE_POLICIES, policy, ""), "Active").get("status") == "True"


async def starts_on(api: Api, name: str, seconds: float = 60) -> str:
    async def where() -> str:
        return await flavor_of(api, name)

    return await api.until(where, f"{name} runs", seconds)


async def waits_for(api: Api, name: str, flavor: str) -> str:
    """The message of a job that waits for a flavor."""

    async def message() -> str:
        row = condition_row(await api.workload_of(name) or {}, "QuotaReserved")
        said = row.get("message", "")
        return said if row.get("status") == "False" and f"Waits for flavor {flavor} until about" in said else ""

    return await api.until(message, f"{name} waits for {flavor}")


async def test_a_job_waits_for_the_flavor_on_which_it_ends_first(system: System, api: Api, tmp_path: Path) -> None:
    forecasts = ForecastOptions(str(tmp_path / "history.db"), tmp_path / "model.gz", use_model=False)
    await create_pools(api.client, POOLS)
    try:
        system.operator(forecasts=forecasts).wait_ready()
        policies = {"patient": "1h", "hasty": "90s"}
        await api.apply(
            *(flavor(pool.name, {LABEL: pool.name}) for pool in POOLS),
            *(two_flavors(name) for name in policies),
            *(local_queue(name, name) for name in policies),
            *(
                queue_policy(name, name, flavors={"choose": "EarliestCompletion", "waitAtMost": wait})
                for name, wait in policies.items()
            ),
        )
        for name in policies:
            await api.until(lambda name=name: in_force(api, name), f"the policy {name} is in force")
        await api.create(training("first", "patient", expected="20m", speeds="slow=1,fast=4"))
        assert await starts_on(api, "first") == "fast", "both are free, and the slow one is first in order"
        await api.create(training("waits", "patient", expected="2h", speeds="slow=1,fast=8"))
        said = await waits_for(api, "waits", "fast")
        assert "insufficient unused quota for nvidia.com/gpu in flavor fast, 2 more needed" in said
        assert "there" in said and "on slow" in said
        await api.create(
            training("little-faster", "patient", expected="5m", speeds="slow=1,fast=1.2"),
            training("same", "patient", expected="2h"),
        )
        assert await starts_on(api, "little-faster") == "slow", "it would not end sooner by waiting"
        assert await starts_on(api, "same") == "slow", "nothing says that a flavor is faster"
        assert await flavor_of(api, "waits") == "", "others have passed it, and it still waits"

        await api.create(training("overdue", "hasty", expected="4m", speeds="slow=1,fast=4"))
        assert await starts_on(api, "overdue") == "fast"
        await api.create(training("short-wait", "hasty", expected="2h", speeds="slow=1,fast=8"))
        await waits_for(api, "short-wait", "fast")
        assert await starts_on(api, "short-wait", 150) == "slow", (
            "the one before it did not end, and it waits no longer"
        )
        assert await flavor_of(api, "overdue") == "fast" and await flavor_of(api, "waits") == ""

        await api.client.delete(kube.JOBS, "default", "first", propagation="Background")
        assert await starts_on(api, "waits") == "fast", "the flavor is free"
    finally:
        await api.wipe()
        for pool in POOLS:
            await delete_pool(api.client, pool.name)
