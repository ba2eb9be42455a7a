"""Sixty nodes, forty gangs, and everything fails: nodes, repairs, nodes that are replaced, writes, the operator itself.

GANGLINE_CHAOS_SECONDS says how long (default 20; beyond a minute gangs that end are followed by others, so that there are
always forty), GANGLINE_CHAOS_SEED which history (default: the same one every time). For several minutes:

    GANGLINE_CHAOS_SECONDS=300 GANGLINE_CHAOS_SEED=1 pytest -s tests/cluster/test_chaos.py
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import random
import time
from collections import Counter
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from typing import Any

import pytest
from bench.revisions import Revisions
from tests.cluster.conftest import System
from tests.cluster.harness import (
    Api,
    cluster_queue,
    condition,
    condition_row,
    flavor,
    gpu_job,
    job,
    local_queue,
    priority_class,
    queue_policy,
)
from tests.cluster.stand_in import StandIn, uninstall
from tests.cluster.witness import Witness
from tests.controlplane import PATIENCE

from gangline.api import names
from gangline.api.read.workloads import swap_record
from gangline.devcluster.nodes import EqualNodes, create_pools, delete_pool, fail_node, recover_node
from gangline.kube import resources as kube
from gangline.kube.errors import NotFound

pytestmark = pytest.mark.cluster

Json = dict[str, Any]
SECONDS = float(os.environ.get("GANGLINE_CHAOS_SECONDS", "20"))
SEED = int(os.environ.get("GANGLINE_CHAOS_SEED", "6"))
GANGS = 40
#: from then on gangs that end are followed by others, in seconds before the end
LAST_ARRIVAL = 60.0
SHORT = SECONDS < LAST_ARRIVAL
#: seconds that pods run; who has time is in the way of who has not
RUNTIMES = {
    "low": (2, 6) if SHORT else (30, 90),
    "middle": (2, 6) if SHORT else (10, 40),
    "high": (2, 6 if SHORT else 25),
}
#: between two things that go wrong, in seconds
PAUSES = (0.1, 1.0) if SHORT else (0.2, 2.0)
#: for all gangs to end when nothing goes wrong any more, in seconds
DRAINED = 240.0 if SHORT else 500.0
SLICE = "example.com/slice"
POOLS = [EqualNodes(f"chaos{n}", 4, {"nvidia.com/gpu": 8}, {"field": "chaos", SLICE: f"slice{n}"}) for n in range(15)]
NODES = sorted(name for pool in POOLS for name in pool.node_names)
PRIORITIES = {"low": 1, "middle": 10, "high": 100}
#: nodes that are down at the same time, at most
DOWN = 6


@pytest.fixture
async def field_of_chaos(system: System, api: Api) -> AsyncIterator[None]:
    await create_pools(api.client, POOLS)
    stand_in = StandIn(system).start()
    healing = {"soak": "1s", "tolerationSeconds": 120, "swapBudget": 100}
    policy = queue_policy("chaos", "chaos", recovery=healing)
    queue = cluster_queue("chaos", 480, preemption={"withinClusterQueue": "LowerPriority"})
    classes = [priority_class(name, value) for name, value in PRIORITIES.items()]
    await api.apply(flavor(labels={"field": "chaos"}), queue, local_queue("chaos", "chaos"), policy, *classes)
    yield
    system.kill_operators()
    await uninstall(api, stand_in)
    await api.delete_pods()
    await api.wipe()
    for pool in POOLS:
        await delete_pool(api.client, pool.name)
    with contextlib.suppress(NotFound):
        await api.client.delete(kube.QUEUE_POLICIES, None, "chaos")


# --- gangs ------------------------------------------------------------------------------------------------------------


def gang(number: int, chance: random.Random) -> Json:
    """A Job, a GPUJob or a JobSet, with whole slices for itself or without; forty of them want more than there is."""
    pods, gpus = chance.choice([(1, 8), (2, 6), (4, 8), (8, 8), (12, 8), (4, 4), (8, 2)])
    level = chance.choice(list(PRIORITIES))
    runtime = f"{chance.randint(*RUNTIMES[level])}s"
    name = f"gang-{number:03}"
    kind = chance.choices(["Job", "GPUJob", "JobSet", "SlicedJobSet"], [5, 3, 2, 2])[0]
    if kind == "GPUJob":
        return gpu_job(name, "chaos", workers=pods, gpus=gpus, simulated=runtime, priority=level)
    if kind == "JobSet":
        return job_set(name, min(pods, 2), max(1, pods // 2), gpus, runtime, level)
    if kind == "SlicedJobSet":
        return sliced(job_set(name, chance.randint(1, 3), 4, 8, runtime, level))
    made = job(name, "chaos", pods=pods, gpus=gpus, runtime=runtime, priority=level)
    made["spec"]["completionMode"] = "Indexed"
    return made


def job_set(name: str, jobs: int, pods: int, gpus: int, runtime: str, level: str) -> Json:
    """`jobs` Jobs of so many pods each."""
    body = job(name, "", pods=pods, gpus=gpus, runtime=runtime)["spec"]
    del body["suspend"]
    return {
        "apiVersion": "jobset.x-k8s.io/v1alpha2",
        "kind": "JobSet",
        "metadata": queued(name, level),
        "spec": {
            "failurePolicy": {"maxRestarts": 100},
            "replicatedJobs": [{"name": "slice", "replicas": jobs, "template": {"spec": body}}],
        },
    }


def sliced(made: Json) -> Json:
    """Each of its Jobs alone in a slice."""
    made["metadata"]["annotations"] = {names.EXCLUSIVE_TOPOLOGY: SLICE}
    return made


def queued(name: str, level: str) -> Json:
    labels = {"kueue.x-k8s.io/queue-name": "chaos", "kueue.x-k8s.io/priority-class": level}
    return {"name": name, "namespace": "default", "labels": labels}


# --- what goes wrong --------------------------------------------------------------------------------------------------


@dataclass
class Chaos:
    """What goes wrong, and when; one seed decides it."""

    system: System
    api: Api
    chance: random.Random
    end: float = field(default_factory=lambda: time.monotonic() + SECONDS)
    down: set[str] = field(default_factory=set)
    operators: int = 0
    counts: Counter[str] = field(default_factory=Counter)

    async def run(self) -> None:
        self._start_operator()
        while (
            time.monotonic() < self.end or self.counts["fail"] < 5 or not self.counts["repair"]
        ):  # on slow machines, too
            await asyncio.sleep(self.chance.uniform(*PAUSES))
            await self._strike()
        for node in sorted(self.down):
            await recover_node(self.api.client, node)

    async def _strike(self) -> None:
        what = self.chance.choices(["fail", "repair", "replace", "kill", "meddle"], [10, 7, 2, 1, 3])[0]
        healthy = sorted(set(NODES) - self.down)
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
            manifests = (made for pool in POOLS for made in pool.manifests())
            await self.api.create(next(made for made in manifests if made["metadata"]["name"] == node))
        elif what == "kill":
            self.system.kill_operators()
            await asyncio.sleep(self.chance.uniform(0, 2))
            self._start_operator()
        elif what == "meddle":
            await self._meddle()
        else:
            return
        self.counts[what] += 1

    async def _meddle(self) -> None:
        """Somebody else writes Workloads, so that writes of ours collide with theirs."""
        body = {"metadata": {"annotations": {"example.com/seen": str(self.chance.random())}}}
        for workload in await self.api.all(kube.WORKLOADS, "default"):
            with contextlib.suppress(NotFound):
                await self.api.client.patch(kube.WORKLOADS, "default", workload["metadata"]["name"], body)

    def _start_operator(self) -> None:
        self.operators += 1
        name = f"chaos-{self.operators}"
        audit = self.system.directory / f"{name}.audit" if not SHORT else None
        self.system.operator(name, audit=audit)


async def submit(api: Api, chance: random.Random, end: float) -> list[Json]:
    """Forty gangs, and for as long as there is time another one for each that has ended."""
    gangs: list[Json] = []

    async def another() -> None:
        gangs.append(gang(len(gangs), chance))
        await api.create(gangs[-1])

    for _ in range(GANGS):
        await another()
        await asyncio.sleep(SECONDS / 4 / GANGS if SHORT else 0.5)
    while time.monotonic() < end - LAST_ARRIVAL:
        workloads = await api.all(kube.WORKLOADS, "default")
        for _ in range(GANGS - len(gangs) + sum(condition(w, "Finished") for w in workloads)):
            await another()
        await asyncio.sleep(1.0)
    return gangs


# --- the test ---------------------------------------------------------------------------------------------------------


@pytest.mark.timeout(SECONDS + DRAINED + 160)
async def test_no_gang_is_lost_torn_or_run_twice(system: System, api: Api, field_of_chaos: None) -> None:
    chaos = Chaos(system, api, random.Random(SEED))
    async with Witness.at(api.official, patience=PATIENCE) as witness, Revisions.of(api.official) as revisions:
        running = asyncio.ensure_future(chaos.run())
        gangs = await submit(api, random.Random(SEED), chaos.end)
        await running
        await api.until(lambda: all_over(api, len(gangs)), "every gang has ended", DRAINED, period=0.5)
        proof = await revisions.settle()

    workloads = await api.all(kube.WORKLOADS, "default")
    swaps = Counter(swap.how for workload in workloads for swap in swap_record.of(workload).log)
    kinds = Counter(made["kind"] for made in gangs)
    print(f"seed {SEED}: {dict(kinds)}; {dict(chaos.counts)}; swaps {dict(swaps)}; {witness.events} events")
    report = [*witness.violations[:20], *(json.dumps(scene, indent=1) for scene in witness.scenes[:5])]
    assert not witness.violations, "\n".join(report)
    assert not proof.violations, "\n".join(proof.violations[:20])
    assert revisions.gaps == 0
    assert proof.checked > len(gangs)
    assert witness.events > 1000
    assert witness.looks > SECONDS
    assert {"fail", "repair"} <= chaos.counts.keys()
    assert {"Job", "GPUJob", "JobSet"} <= kinds.keys()
    assert swaps or SHORT
    for made in gangs:
        await finished_exactly_once(api, made, workloads, witness)


async def all_over(api: Api, gangs: int) -> bool:
    found = await api.all(kube.WORKLOADS, "default")
    return len(found) == gangs and all(condition(workload, "Finished") for workload in found)


async def finished_exactly_once(api: Api, made: Json, workloads: list[Json], witness: Witness) -> None:
    name, resource = made["metadata"]["name"], kube.BY_KIND[made["kind"]]
    found = await api.get(resource, name)
    done = "Completed" if resource == kube.JOB_SETS else "Complete"
    assert condition(found, done), f"{made['kind']} {name}: {found.get('status')}"
    assert not condition(found, "Failed")
    mine = [w for w in workloads if any(ref["name"] == name for ref in w["metadata"]["ownerReferences"])]
    assert [condition_row(workload, "Finished")["reason"] for workload in mine] == ["Succeeded"]
    if resource == kube.JOBS:
        assert found["status"]["succeeded"] == made["spec"]["completions"]
        for index in range(made["spec"]["completions"]):
            ended = witness.succeeded.get((found["metadata"]["uid"], str(index)), set())
            may_repeat = preempted(mine[0]) or lost_nodes(mine[0])
            assert len(ended) == 1 or may_repeat, f"{name}: index {index} was done {len(ended)} times"


def lost_nodes(workload: Json) -> bool:
    """A pod on a node that nobody hears from may have ended, or may yet end there, after it was replaced."""
    return names.RECOVERY in (workload["metadata"].get("annotations") or {})


def preempted(workload: Json) -> bool:
    """A pod that ends in the very second in which its Job is suspended does not count for Kubernetes: it runs again."""
    return bool((workload["status"].get("schedulingStats") or {}).get("evictions"))
