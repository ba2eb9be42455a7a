"""A LeaderWorkerSet of 16 groups and an elastic RayCluster, both scaled up and down, a group of 64 pods and Jobs want more GPUs
than there are, while operators are killed: no gang is torn, and no GPU is granted twice.

GANGLINE_CHAOS_SECONDS says how long (default 20), GANGLINE_CHAOS_SEED which history.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import os
import random
import time
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from bench.revisions import Revisions
from tests.cluster.conftest import System
from tests.cluster.harness import Api, condition, job
from tests.cluster.leader_worker_sets import GROUP
from tests.cluster.queued_pods import gang
from tests.cluster.ray_clusters import CLUSTERS, cluster_spec, create, elastic, resize, served, states
from tests.cluster.serving import CONFIGURATION, leader_worker_set, queueing_of
from tests.cluster.test_elastic import admitted, slices
from tests.cluster.witness import Witness
from tests.controlplane import PATIENCE

from gangline.api import names
from gangline.api.read import configuration
from gangline.kube import resources as kube
from gangline.kube.errors import AlreadyExists, ApiError

pytestmark = pytest.mark.cluster
Json = dict[str, Any]
SECONDS = float(os.environ.get("GANGLINE_CHAOS_SECONDS", "20"))
SEED = int(os.environ.get("GANGLINE_CHAOS_SEED", "6"))
GPUS, GROUPS, SIZE, PODS, JOBS = 96, 16, 4, 64, 10
#: workers of the RayCluster
FEW, MANY = 4, 16
CHOSEN: Json = {
    **CONFIGURATION,
    "integrations": {"frameworks": [*CONFIGURATION["integrations"]["frameworks"], "pod", "ray.io/raycluster"]},
}
MANAGED = configuration.load(CHOSEN).jobs
SET, CLUSTER = "serve", "tune"


@pytest.fixture
async def queueing(system: System, api: Api, tmp_path: Path) -> AsyncIterator[System]:
    async with queueing_of(system, api, tmp_path, CHOSEN, GPUS), served(api):
        yield system


@dataclass
class Chaos:
    """What happens, and when; one seed decides it."""

    system: System
    api: Api
    chance: random.Random = field(default_factory=lambda: random.Random(SEED))
    workers: Iterator[int] = field(default_factory=lambda: itertools.cycle((MANY, FEW)))
    operators: int = 0
    scaled: int = 0
    resized: int = 0
    replaced: int = 0

    async def run(self) -> None:
        end = time.monotonic() + SECONDS
        while time.monotonic() < end or min(self.operators, self.scaled, self.resized) < 3:  # on slow machines, too
            await asyncio.sleep(self.chance.uniform(0.5, 2.0))
            dice = self.chance.random()
            if dice < 0.4:
                self.system.kill_operators()
                await asyncio.sleep(self.chance.uniform(0, 1))
                self.start_operator()
            elif dice < 0.7:
                await self.scale(self.chance.choice([2, 6, 10, GROUPS]))
            else:
                await resize(self.api, CLUSTER, next(self.workers))
                self.resized += 1
        await self.scale(GROUPS)  # beside which and few workers each Job has room
        await resize(self.api, CLUSTER, FEW)

    async def scale(self, replicas: int) -> None:
        await self.api.client.patch(kube.LEADER_WORKER_SETS, "default", SET, {"spec": {"replicas": replicas}})
        self.scaled += 1

    def start_operator(self) -> None:
        self.operators += 1
        self.system.operator(f"chaos-{self.operators}", jobs=MANAGED)

    async def replace_pods(self) -> None:
        """The owner of the pod group: it makes another pod for each that was deleted."""
        while True:
            await asyncio.sleep(0.5)
            with contextlib.suppress(ApiError):
                await self._replace_pods()

    async def _replace_pods(self) -> None:
        pods = await self.api.all(kube.PODS, "default", f"{names.POD_GROUP}=train")
        missing = PODS - sum("deletionTimestamp" not in pod["metadata"] for pod in pods)
        if await self.ended():
            return
        for _ in range(missing):
            self.replaced += 1
            made = train()[0]
            made["metadata"]["name"] = f"train-r{self.replaced}"
            with contextlib.suppress(AlreadyExists):
                await self.api.create(made)

    async def ended(self) -> bool:
        found = {each["metadata"]["name"]: each for each in await self.api.all(kube.WORKLOADS, "default")}
        return "train" in found and condition(found["train"], "Finished")


def train() -> list[Json]:
    return gang("train", "lq", {1: PODS}, priority="middle", runtime="5s")


@pytest.mark.timeout(SECONDS + 400)
async def test_nothing_that_serves_or_trains_is_torn_or_counted_twice(queueing: System, api: Api) -> None:
    chaos = Chaos(queueing, api)
    async with Witness.at(api.official, GPUS, PATIENCE) as witness, Revisions.of(api.official) as revisions:
        queueing.kill_operators()
        chaos.start_operator()
        await api.create(leader_worker_set(SET, "lq", GROUPS, SIZE, priority="low"))
        await create(api, CLUSTERS, ray_cluster())
        running = asyncio.ensure_future(chaos.run())
        owner = asyncio.ensure_future(chaos.replace_pods())
        await api.create(*train())
        jobs = [f"job-{i}" for i in range(JOBS)]
        for name in jobs:
            level = chaos.chance.choice(["low", "middle", "high"])
            size = chaos.chance.choice([4, 8, 12])
            await api.create(job(name, "lq", pods=size, gpus=2, runtime="3s", priority=level))
            await asyncio.sleep(SECONDS / 2 / JOBS)
        await running
        await api.finished(*jobs, seconds=200)
        await api.until(chaos.ended, "the pod group has ended", 200)
        owner.cancel()
        await api.until(lambda: serves(api), "all groups serve", 200)
        for workers in (FEW, MANY, FEW):
            await resize(api, CLUSTER, workers)
            await api.until(lambda wanted=workers: has(api, wanted), f"the RayCluster has {workers} workers", 90)
        proof = await revisions.settle()
    for pod in await api.all(
        kube.PODS, "default", f"{names.POD_GROUP}=train"
    ):  # its owner has made too many at the end
        await api.client.delete(kube.PODS, "default", pod["metadata"]["name"])
    assert not witness.violations, "\n".join(witness.violations[:20])
    assert not proof.violations, "\n".join(proof.violations[:20])
    assert revisions.gaps == 0
    assert proof.checked > GROUPS * SIZE + PODS
    print(
        f"seed {SEED}: {chaos.operators} operators, {chaos.scaled} times groups and {chaos.resized} times workers scaled, "
        f"{chaos.replaced} pods replaced, {proof.checked} grants and pods checked"
    )


def ray_cluster() -> Json:
    spec = cluster_spec(FEW, enableInTreeAutoscaling=False)
    return elastic("RayCluster", CLUSTER, spec, **{names.PRIORITY_CLASS: "middle"})


async def has(api: Api, workers: int) -> bool:
    """Head and so many workers run, with quota of one slice."""
    if await states(api, CLUSTER) != {"Running": workers + 1}:
        return False
    sizes = [
        [pod_set["count"] for pod_set in each["spec"]["podSets"]]
        for each in await slices(api, CLUSTER)
        if admitted(each)
    ]
    return sizes == [[1, workers]]


async def serves(api: Api) -> bool:
    """Sixteen whole groups, each with quota of its own."""
    pods = await api.all(kube.PODS, "default", f"app={SET}")
    groups: dict[str, int] = {}
    for pod in pods:
        if condition(pod, "Ready") and "deletionTimestamp" not in pod["metadata"]:
            group = pod["metadata"]["labels"].get(GROUP, "")
            groups[group] = groups.get(group, 0) + 1
    mine = [
        w
        for w in await api.all(kube.WORKLOADS, "default")
        if names.COMPONENT_INDEX in w["metadata"].get("annotations", {})
    ]
    return (
        len(pods) == GROUPS * SIZE
        and set(groups.values()) == {SIZE}
        and sum(condition(w, "Admitted") for w in mine) == GROUPS
    )
