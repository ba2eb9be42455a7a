"""A placement policy on flavors without a topology: pods are bound to the hosts that it chooses, and who waits gets a reason."""

from __future__ import annotations

import pytest
from tests.cluster.conftest import System
from tests.cluster.harness import Api, cluster_queue, condition_row, flavor, job, local_queue, queue_policy

from gangline.devcluster.nodes import EqualNodes, create_pools, delete_pool
from gangline.kube import resources as kube

pytestmark = pytest.mark.cluster

POOL = EqualNodes("policy", 4, {"nvidia.com/gpu": 8}, {"example.com/policy": "yes"})


async def hosts(api: Api, name: str) -> dict[str, int]:
    """The hosts of a gang by its admission, which are those of its pods."""
    workload = await api.workload_of(name)
    assert workload is not None
    (assigned,) = workload["status"]["admission"]["podSetAssignments"]
    assignment = assigned["topologyAssignment"]
    assert assignment["levels"] == ["kubernetes.io/hostname"]
    found: dict[str, int] = {}
    for pod in await api.all(kube.PODS, "default", f"job-name={name}"):
        where = pod["spec"]["nodeName"]
        assert pod["spec"]["nodeSelector"]["kubernetes.io/hostname"] == where
        found[where] = found.get(where, 0) + 1
    return found


async def on_its_nodes(api: Api) -> list[str]:
    """All pods there, of every namespace."""
    pods = [pod for pod in await api.all(kube.PODS) if pod["spec"].get("nodeName") in POOL.node_names]
    return [f"{pod['spec']['nodeName']}: {pod['metadata']['namespace']}/{pod['metadata']['name']}" for pod in pods]


async def test_pods_go_where_the_policy_says(system: System, api: Api) -> None:
    await create_pools(api.client, (POOL,))
    try:
        system.operator().wait_ready()
        queues = [cluster_queue(name, 64, flavors=["policy"]) for name in ("packed", "spread")]
        await api.apply(
            queue_policy("packed", "packed", placement={"profile": "Pack"}),
            queue_policy("spread", "spread", placement={"scores": [{"name": "Spread"}]}),
            flavor("policy", {"example.com/policy": "yes"}),
            *queues,
            local_queue("packed", "packed"),
            local_queue("spread", "spread"),
        )
        await api.create(job("wide", "spread", pods=4, gpus=1, runtime="600s"))
        await api.until(lambda: _running(api, "wide", 4), "the pods of the spread gang run")
        assert sorted((await hosts(api, "wide")).values()) == [1, 1, 1, 1], await on_its_nodes(api)
        await api.create(job("tight", "packed", pods=4, gpus=1, runtime="600s"))
        await api.until(lambda: _running(api, "tight", 4), "the pods of the packed gang run")
        assert list((await hosts(api, "tight")).values()) == [4]
        await api.create(job("large", "packed", pods=4, gpus=7, runtime="600s"))

        async def waiting_message() -> str:
            workload = await api.workload_of("large")
            row = condition_row(workload, "QuotaReserved") if workload else {}
            return row.get("message", "") if row.get("status") == "False" else ""

        message = await api.until(waiting_message, "the large gang says why it waits")
        assert "allows to fit only 3 out of 4 pod(s)" in message and 'resource "nvidia.com/gpu": 1' in message
        await api.client.delete(kube.JOBS, "default", "tight", propagation="Background")
        await api.until(lambda: _running(api, "large", 4), "the large gang runs once the hosts are free")
        assert sorted((await hosts(api, "large")).values()) == [1, 1, 1, 1]
    finally:
        await api.wipe()
        await delete_pool(api.client, POOL.name)


async def _running(api: Api, name: str, count: int) -> bool:
    pods = await api.all(kube.PODS, "default", f"job-name={name}")
    return sum(pod["status"].get("phase") == "Running" for pod in pods) == count
