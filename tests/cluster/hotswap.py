"""The published GKE recipe on simulated node pools: what the hotswap tests set up and look at."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml
from tests.cluster.conftest import System
from tests.cluster.harness import Api, condition, queue_policy
from tests.cluster.stand_in import StandIn, uninstall

from gangline.api.read.workloads import swap_record
from gangline.devcluster.nodes import EqualNodes, create_pools, delete_pool, fail_node, recover_node
from gangline.kube import resources as kube
from gangline.kube.errors import NotFound

Json = dict[str, Any]
EXAMPLE = Path(__file__).parents[2] / "examples" / "gke-hotswap"
POOL = "cloud.google.com/gke-nodepool"
NAME = "jobset.sigs.k8s.io/jobset-name"
LOW, HIGH = "low-jax-trillium", "high-jax-trillium"
GANG = 8  # pods of either JobSet


def manifests(name: str) -> list[Json]:
    return list(yaml.safe_load_all((EXAMPLE / name).read_text()))


def policy(**recovery: Any) -> Json:
    """A node that came back is used again at once, so that nobody waits for it."""
    said = {"soak": "1s", **recovery}
    return queue_policy("hotswap", "tpu-training-cq", recovery=said)


@dataclass
class Field:
    """Node pools, queues and a JobSet controller, as a variant of the example has them."""

    api: Api
    system: System
    pools: list[EqualNodes]

    async def pods(self, job_set: str, *, running: bool = True) -> list[Json]:
        found = await self.api.all(kube.PODS, "default", f"{NAME}={job_set}")
        return [pod for pod in found if not running or (is_up(pod))]

    async def runs(self, job_set: str, seconds: float = 60.0) -> list[Json]:
        async def complete() -> list[Json]:
            pods = await self.pods(job_set)
            return pods if len(pods) == GANG else []

        return await self.api.until(complete, f"{job_set} runs with all its pods", seconds)

    async def submit(self, *job_sets: str) -> None:
        for name in job_sets:
            file = "30-low-jax-trillium.yaml" if name == LOW else "40-high-jax-trillium.yaml"
            await self.api.apply(*manifests(file))

    async def pools_of(self, job_set: str) -> set[str]:
        return {node_pool(pod) for pod in await self.pods(job_set)}

    async def fail(self, node: str, *, silent: bool = False) -> None:
        await fail_node(self.api.client, node, silent=silent)

    async def repair(self, node: str) -> None:
        await recover_node(self.api.client, node)

    async def workload(self, job_set: str) -> Json:
        found = await self.api.workload_of(job_set)
        assert found is not None
        return found

    async def recovered(self, job_set: str, times: int = 1) -> Json:
        """It runs again after it lost nodes so many times."""

        async def done() -> Json | None:
            found = await self.workload(job_set)
            over = [swap for swap in swap_record.of(found).log if not swap.open]
            return found if len(over) >= times and condition(found, "Recovered") else None

        return await self.api.until(done, f"{job_set} says that it has recovered")


def is_up(pod: Json) -> bool:
    return pod["status"].get("phase") == "Running" and "deletionTimestamp" not in pod["metadata"]


def node_pool(pod: Json) -> str:
    """The pool that a pod runs in: nodes are called POOL-NUMBER."""
    return pod["spec"]["nodeName"].rpartition("-")[0]


@contextlib.asynccontextmanager
async def field(system: System, api: Api, variant: str, **recovery: Any) -> AsyncIterator[Field]:
    """`variant` is a folder of the example, "" for the example itself; with its quota and its pools."""
    pools = [
        EqualNodes(**pool) for pool in yaml.safe_load((EXAMPLE / variant / "simulated" / "node-pools.yaml").read_text())
    ]
    await create_pools(api.client, pools)
    stand_in = StandIn(system).start()
    queues = manifests(f"{variant}/queues.yaml" if variant else "20-queues.yaml")
    await api.apply(*manifests("10-priority-classes.yaml"), *queues, policy(**recovery))
    try:
        yield Field(api, system, pools)
    finally:
        system.kill_operators()
        await _clear(api, stand_in, pools)


async def _clear(api: Api, stand_in: StandIn, pools: list[EqualNodes]) -> None:
    await uninstall(api, stand_in)
    await api.delete_pods()
    await api.wipe()
    for pool in pools:
        await delete_pool(api.client, pool.name)
    with contextlib.suppress(NotFound):
        await api.client.delete(kube.QUEUE_POLICIES, None, "hotswap")
    for priority_class in manifests("10-priority-classes.yaml"):
        with contextlib.suppress(NotFound):
            await api.client.delete(kube.PRIORITY_CLASSES, None, priority_class["metadata"]["name"])
