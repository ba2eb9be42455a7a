"""A telemetry rule on a control plane: a job leaves a node that is too hot, keeps its place, and nothing new goes there."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator

import pytest
from aiohttp import web
from aiohttp.test_utils import TestServer
from tests.cluster.conftest import System
from tests.cluster.harness import Api, Json, cluster_queue, condition_row, flavor, job, local_queue, queue_policy

from gangline.devcluster.nodes import EqualNodes, create_pools, delete_pool
from gangline.kube import resources as kube
from gangline.telemetry import PrometheusSource

pytestmark = pytest.mark.cluster

POOL = EqualNodes("warm", 2, {"nvidia.com/gpu": 8}, {"example.com/warm": "yes"})
RULE: Json = {
    "name": "gpu-temp",
    "query": "max by (node) (DCGM_FI_DEV_GPU_TEMP)",
    "period": "5s",
    "evict": {"above": 90, "clearAt": 80, "periods": 2},
}


class Thermometer:
    """A Prometheus that knows temperatures of nodes."""

    def __init__(self) -> None:
        self.of: dict[str, float] = {}
        app = web.Application()
        app.router.add_post("/api/v1/query", self._query)
        self.server = TestServer(app)

    async def _query(self, request: web.Request) -> web.Response:
        if (await request.post())["query"] != RULE["query"]:
            return web.json_response({"status": "error", "error": "parse error"}, status=400)
        rows = [{"metric": {"node": name}, "value": [time.time(), str(value)]} for name, value in self.of.items()]
        return web.json_response({"status": "success", "data": {"resultType": "vector", "result": rows}})


@pytest.fixture
async def thermometer() -> AsyncIterator[Thermometer]:
    found = Thermometer()
    await found.server.start_server()
    yield found
    await found.server.close()


async def test_a_job_leaves_a_hot_node_and_nothing_goes_there_until_it_is_cool(
    system: System, api: Api, thermometer: Thermometer
) -> None:
    await create_pools(api.client, (POOL,))
    try:
        first, second = POOL.node_names
        thermometer.of = {first: 60, second: 70}
        source = PrometheusSource(str(thermometer.server.make_url("/")))
        operator = system.operator(telemetry=source)
        operator.wait_ready()
        await api.apply(
            queue_policy("warm", "warm", placement={"profile": "Pack", "telemetry": [RULE]}),
            flavor("warm", {"example.com/warm": "yes"}),
            cluster_queue("warm", 16, flavors=["warm"]),
            local_queue("warm", "warm"),
        )
        await api.create(job("long", "warm", pods=1, gpus=8, runtime="600s"))
        await api.until(lambda: _runs_on(api, "long", first), "the job runs on the first node")
        thermometer.of[first] = 95.0

        async def left() -> str:
            workload = await api.workload_of("long")
            rows = workload["status"].get("schedulingStats", {}).get("evictions", []) if workload else []
            return str([(row["reason"], row["count"]) for row in rows]) if rows else ""

        assert await api.until(left, "the job is evicted") == "[('NodeMetric', 1)]"
        await api.until(lambda: _runs_on(api, "long", second), "the job runs on the second node")
        events = [each for each in await api.all(kube.EVENTS, "default") if each["reason"] == "EvictedDueToNodeMetric"]
        assert events and all(f"Node {first} violates telemetry rule gpu-temp" in each["note"] for each in events)
        policy = await api.get(kube.QUEUE_POLICIES, "warm", "")
        assert policy["status"]["telemetry"] == [{"name": "gpu-temp", "measured": 2, "excluded": [first]}]
        assert condition_row(policy, "TelemetryAvailable")["status"] == "True"

        await api.create(job("next", "warm", pods=1, gpus=8, runtime="600s"))

        async def waiting_message() -> str:
            workload = await api.workload_of("next")
            row = condition_row(workload, "QuotaReserved") if workload else {}
            return row.get("message", "") if row.get("status") == "False" else ""

        assert "telemetry rule gpu-temp above 90 (until 80): 1" in await api.until(
            waiting_message, "the next job says why"
        )
        # an operator that starts knows that the node has not cooled down far enough
        thermometer.of[first] = 85.0
        operator.kill()
        operator = system.operator("another", telemetry=source)
        operator.wait_ready()
        samples = {}

        async def measured() -> bool:
            for each in await operator.samples("gangline_telemetry_nodes"):
                samples[each.labels["state"]] = each.value
            return samples.get("measured") == 2

        await api.until(measured, "it has measured")
        assert samples["excluded"] == 1 and not await _runs_on(api, "next", first)
        thermometer.of[first] = 79.0
        await api.until(lambda: _runs_on(api, "next", first), "the next job runs on the first node once it is cool")
        assert await _runs_on(api, "long", second)
    finally:
        await api.wipe()
        await delete_pool(api.client, POOL.name)


async def _runs_on(api: Api, name: str, node: str) -> bool:
    pods = await api.all(kube.PODS, "default", f"job-name={name}")
    return [pod["spec"].get("nodeName") for pod in pods if pod["status"].get("phase") == "Running"] == [node]
