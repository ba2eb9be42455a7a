"""A gang that asks for one rack gets one rack: its pods wait for their places and are sent there, neighbours together."""

from __future__ import annotations

import pytest
from tests.cluster.conftest import System
from tests.cluster.harness import Api, cluster_queue, condition_row, flavor, job, local_queue

from gangline.devcluster.nodes import EqualNodes, create_pools, delete_pool
from gangline.kube import resources as kube

pytestmark = pytest.mark.cluster

RACKS = tuple(
    EqualNodes(f"rack-{name}", 2, {"nvidia.com/gpu": 8}, {"example.com/rack": name, "example.com/tas": "yes"})
    for name in "ab"
)


async def test_a_gang_stays_in_its_rack(system: System, api: Api) -> None:
    await create_pools(api.client, RACKS)
    try:
        system.operator().wait_ready()
        placed = flavor("placed", {"example.com/tas": "yes"})
        placed["spec"]["topologyName"] = "racks"
        topology = {
            "apiVersion": "kueue.x-k8s.io/v1beta2",
            "kind": "Topology",
            "metadata": {"name": "racks"},
            "spec": {"levels": [{"nodeLabel": "example.com/rack"}, {"nodeLabel": "kubernetes.io/hostname"}]},
        }
        await api.apply(topology, placed, cluster_queue("cq", 64, flavors=["placed"]), local_queue("lq", "cq"))
        names = ("one", "two", "three")
        for name in names:
            gang = job(name, "lq", pods=3, gpus=4, runtime="5s")
            gang["spec"]["completionMode"] = "Indexed"
            annotations = gang["spec"]["template"]["metadata"]["annotations"]
            annotations["kueue.x-k8s.io/podset-required-topology"] = "example.com/rack"
            await api.create(gang)

        async def third_waits() -> str:
            waiting = [await api.workload_of(name) for name in names]
            rows = [condition_row(workload, "QuotaReserved") for workload in waiting if workload]
            return next(
                (row["message"] for row in rows if row.get("status") == "False" and "topology" in row["message"]), ""
            )

        message = await api.until(third_waits, "the third gang finds no rack though there is quota")
        assert 'topology "racks"' in message
        await api.finished(*names)
        racks = {
            node["metadata"]["name"]: node["metadata"]["labels"].get("example.com/rack")
            for node in await api.all(kube.NODES)
        }
        for name in names:
            pods = await api.all(kube.PODS, "default", f"job-name={name}")
            assert len(pods) == 3
            assert len({racks[pod["spec"]["nodeName"]] for pod in pods}) == 1
            by_index = {pod["metadata"]["labels"]["batch.kubernetes.io/job-completion-index"]: pod for pod in pods}
            assert by_index["0"]["spec"]["nodeName"] == by_index["1"]["spec"]["nodeName"] or (
                by_index["1"]["spec"]["nodeName"] == by_index["2"]["spec"]["nodeName"]
            ), "neighbours in rank share a node"
    finally:
        for pool in RACKS:
            await delete_pool(api.client, pool.name)
        await api.client.delete(kube.TOPOLOGIES, None, "racks")
