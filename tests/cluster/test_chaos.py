"""Sixty nodes, forty gangs, and everything fails: nodes, repairs, nodes that are replaced, the operator itself.

GANGLINE_CHAOS_SECONDS says how long (default 60), GANGLINE_CHAOS_SEED which history (default: the same one every time).
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import random
import time
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from typing import Any

import pytest
from tests.cluster.conftest import System
from tests.cluster.harness import Api, cluster_queue, condition, condition_row, flavor, job, local_queue, priority_class
from tests.cluster.witness import Witness

from gangline.api import names, recovery
from gangline.devcluster.nodes import NodePool, create_pools, delete_pool, fail_node, recover_node
from gangline.kube import resources as kube
from gangline.kube.errors import NotFound

pytestmark = pytest.mark.cluster

Json = dict[str, Any]
SECONDS = float(os.environ.get("GANGLINE_CHAOS_SECONDS", "60"))
SEED = int(os.environ.get("GANGLINE_CHAOS_SEED", "6"))
GANGS = 40
POOL = NodePool("chaos", 60, {"nvidia.com/gpu": 8}, {"field": "chaos"})
PRIORITIES = {"low": 1, "middle": 10, "high": 100}
#: nodes that are down at the same time, at most
DOWN = 6


@pytest.fixture
async def field_of_chaos(system: System, api: Api) -> AsyncIterator[None]:
    await create_pools(api.client, [POOL])
    policy = {
        "apiVersion": "gangline.io/v1alpha1",
        "kind": "QueuePolicy",
        "metadata": {"name": "chaos"},
        "spec": {
            "clusterQueues": {"names": ["chaos"]},
            "recovery": {"soak": "1s", "tolerationSeconds": 120, "swapBudget": 100},
        },
    }
    queue = cluster_queue("chaos", 480, preemption={"withinClusterQueue": "LowerPriority"})
    classes = [priority_class(name, value) for name, value in PRIORITIES.items()]
    await api.apply(flavor(labels={"field": "chaos"}), queue, local_queue("chaos", "chaos"), policy, *classes)
    yield
    system.kill_operators()
    for pod in await api.all(kube.PODS, "default"):
        with contextlib.suppress(NotFound):
            await api.client.delete(kube.PODS, "default", pod["metadata"]["name"], grace_seconds=0)
    await api.wipe()
    await delete_pool(api.client, POOL.name)
    with contextlib.suppress(NotFound):
        await api.client.delete(kube.QUEUE_POLICIES, None, "chaos")


def gang(number: int, chance: random.Random) -> Json:
    """A Job or a GPUJob; together they want more than there is."""
    pods, gpus = chance.choice([(1, 8), (2, 8), (4, 8), (8, 8), (12, 8), (4, 4), (8, 2)])
    runtime, level = f"{chance.randint(5, 20)}s", chance.choice(list(PRIORITIES))
    name = f"gang-{number:02}"
    if chance.random() < 0.3:
        return gpu_job(name, pods, gpus, runtime, level)
    made = job(name, "chaos", pods=pods, gpus=gpus, runtime=runtime, priority=level)
    made["spec"]["completionMode"] = "Indexed"
    return made


def gpu_job(name: str, pods: int, gpus: int, runtime: str, level: str) -> Json:
    template = {
        "metadata": {"annotations": {"gangline.io/simulated-runtime": runtime}},
        "spec": {"terminationGracePeriodSeconds": 1, "containers": [{"name": "main", "image": "example.com/train"}]},
    }
    labels = {"kueue.x-k8s.io/queue-name": "chaos", "kueue.x-k8s.io/priority-class": level}
    return {
        "apiVersion": "gangline.io/v1alpha1",
        "kind": "GPUJob",
        "metadata": {"name": name, "namespace": "default", "labels": labels},
        "spec": {"workers": pods, "gpusPerWorker": gpus, "template": template},
    }


@dataclass
class Chaos:
    """What goes wrong, and when; told by one seed."""

    system: System
    api: Api
    chance: random.Random
    down: set[str] = field(default_factory=set)
    operators: int = 0
    told: list[str] = field(default_factory=list)

    async def run(self, seconds: float) -> None:
        self._start_operator()
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            await asyncio.sleep(self.chance.uniform(0.3, 2.5))
            await self._strike()
        for node in sorted(self.down):
            await recover_node(self.api.client, node)

    async def _strike(self) -> None:
        what = self.chance.choices(["fail", "repair", "replace", "kill"], [5, 4, 1, 1])[0]
        healthy = sorted(set(POOL.node_names) - self.down)
        if what == "fail" and len(self.down) < DOWN:
            for node in self.chance.sample(healthy, self.chance.choice([1, 1, 1, 2])):
                await fail_node(self.api.client, node)
                self.down.add(node)
        elif what == "repair" and self.down:
            node = self.chance.choice(sorted(self.down))
            await recover_node(self.api.client, node)
            self.down.discard(node)
        elif what == "replace":
            node = self.chance.choice(healthy)
            await self.api.client.delete(kube.NODES, None, node)
            await self.api.create(next(made for made in POOL.manifests() if made["metadata"]["name"] == node))
        elif what == "kill":
            self.system.kill_operators()
            await asyncio.sleep(self.chance.uniform(0, 2))
            self._start_operator()
        else:
            return
        self.told.append(what)

    def _start_operator(self) -> None:
        self.operators += 1
        self.system.operator(f"chaos-{self.operators}")


async def test_no_gang_is_lost_torn_or_run_twice(system: System, api: Api, field_of_chaos: None) -> None:
    chance = random.Random(SEED)
    gangs = [gang(number, chance) for number in range(GANGS)]
    chaos = Chaos(system, api, chance)
    async with Witness.at(api.client) as witness:
        running = asyncio.ensure_future(chaos.run(SECONDS))
        for made in gangs:
            await api.create(made)
            await asyncio.sleep(min(1.0, SECONDS / 2 / GANGS))
        await running
        await api.until(lambda: all_over(api), "every gang has ended", 240, period=1.0)

    assert witness.looks > SECONDS / 2
    assert not witness.violations, "\n".join(witness.violations[:20])
    assert {"fail", "repair"} <= set(chaos.told)
    await finished_exactly_once(api, gangs, witness)


async def all_over(api: Api) -> bool:
    found = await api.all(kube.WORKLOADS, "default")
    return len(found) == GANGS and all(condition(workload, "Finished") for workload in found)


async def finished_exactly_once(api: Api, gangs: list[Json], witness: Witness) -> None:
    workloads = await api.all(kube.WORKLOADS, "default")
    for made in gangs:
        name, resource = made["metadata"]["name"], kube.BY_KIND[made["kind"]]
        found = await api.get(resource, name)
        assert condition(found, "Complete"), f"{made['kind']} {name}: {found.get('status')}"
        mine = [w for w in workloads if any(ref["name"] == name for ref in w["metadata"]["ownerReferences"])]
        assert [condition_row(workload, "Finished")["reason"] for workload in mine] == ["Succeeded"]
        if resource == kube.JOBS:
            assert found["status"]["succeeded"] == made["spec"]["completions"]
            for index in range(made["spec"]["completions"]):
                ended = witness.succeeded.get((found["metadata"]["uid"], str(index)), set())
                may_repeat = preempted(mine[0]) or lost_nodes(mine[0])
                assert len(ended) == 1 or may_repeat, f"{name}: index {index} was done {len(ended)} times"
    swaps = sum(len(recovery.of(workload).log) for workload in workloads)
    print(f"{swaps} swaps of {GANGS} gangs, {witness.looks} looks")


def lost_nodes(workload: Json) -> bool:
    """A pod on a node that nobody hears from may have ended, or may yet end there, after it was replaced."""
    return names.RECOVERY in (workload["metadata"].get("annotations") or {})


def preempted(workload: Json) -> bool:
    """A pod that ends in the very second in which its Job is suspended does not count for Kubernetes: it runs again."""
    return bool((workload["status"].get("schedulingStats") or {}).get("evictions"))
