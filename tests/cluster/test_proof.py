"""Quota is never granted twice: Workloads are deleted by hand under load and preemption, and every revision is looked at."""

from __future__ import annotations

import asyncio
import contextlib
import os
import random
import time
from typing import Any

import pytest
from bench.proof import Proof
from bench.revisions import Revisions
from tests.cluster.conftest import System
from tests.cluster.harness import Api, cluster_queue, condition, flavor, job, local_queue, priority_class

from gangline.kube import resources as kube
from gangline.kube.errors import Conflict, NotFound

Json = dict[str, Any]
GPU = "nvidia.com/gpu"
PRIORITIES = {"low": 1, "middle": 10, "high": 100}
QUEUES = ("one", "two")
SECONDS = float(os.environ.get("GANGLINE_PROOF_SECONDS", "25"))
SEED = int(os.environ.get("GANGLINE_PROOF_SEED", "1"))

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(SECONDS + 120)]


def a_job(number: int, chance: random.Random) -> Json:
    """Of one to four pods, which take up to three seconds to stop."""
    made = job(
        f"job-{number:03}",
        chance.choice(QUEUES),
        pods=chance.choice((1, 2, 4)),
        gpus=chance.choice((4, 8)),
        runtime=f"{chance.randint(2, 8)}s",
        priority=chance.choice(list(PRIORITIES)),
    )
    template = made["spec"]["template"]
    template["metadata"]["annotations"]["gangline.io/simulated-shutdown"] = f"{chance.choice((0, 1, 3))}s"
    template["spec"]["terminationGracePeriodSeconds"] = 10
    return made


async def delete_one(api: Api, chance: random.Random) -> None:
    """A Workload or its job, of those that hold quota; of some Workloads the finalizers are taken off, too."""
    holders = [w for w in await api.all(kube.WORKLOADS, "default") if condition(w, "QuotaReserved")]
    holders = [w for w in holders if not condition(w, "Finished")]
    if not holders:
        return
    workload = chance.choice(holders)
    name = workload["metadata"]["name"]
    with contextlib.suppress(NotFound, Conflict):
        if chance.random() < 0.3:
            owner = workload["metadata"]["ownerReferences"][0]["name"]
            await api.client.delete(
                kube.JOBS, "default", owner, propagation=chance.choice(("Background", "Foreground"))
            )
            return
        await api.client.delete(kube.WORKLOADS, "default", name)
        if chance.random() < 0.5:
            await api.client.patch(kube.WORKLOADS, "default", name, {"metadata": {"finalizers": None}})


def summary(proof: Proof) -> str:
    held, used, beyond = (level.seconds.get(GPU, 0.0) for level in (proof.reserved, proof.used, proof.beyond))
    sums = f"GPU-seconds: {held:.0f} granted, {used:.0f} used, {beyond:.0f} of them beyond a reservation"
    return f"seed {SEED}: {proof.revisions} revisions, {proof.checked} reservations and pods checked; {sums}"


async def test_workloads_deleted_by_hand_under_load_free_nothing_that_runs(system: System, api: Api) -> None:
    chance = random.Random(SEED)
    preemption = {"withinClusterQueue": "LowerPriority", "reclaimWithinCohort": "Any"}
    await api.apply(
        flavor(),
        *(cluster_queue(name, 32, cohort="pool", preemption=preemption) for name in QUEUES),
        *(local_queue(name, name) for name in QUEUES),
        *(priority_class(name, value) for name, value in PRIORITIES.items()),
    )
    system.operator().wait_ready()
    async with Revisions.of(api.official) as revisions:
        end, number = time.monotonic() + SECONDS, 0
        while time.monotonic() < end:
            waiting = [w for w in await api.all(kube.WORKLOADS, "default") if not condition(w, "QuotaReserved")]
            for _ in range(12 - len(waiting)):
                number += 1
                await api.create(a_job(number, chance))
            await asyncio.sleep(chance.uniform(0.1, 0.5))
            await delete_one(api, chance)
        proof = await revisions.settle()
    print(summary(proof))
    assert not proof.violations, "\n".join(proof.violations[:20])
    assert revisions.gaps == 0
    assert proof.checked > SECONDS
    assert 0 < proof.used.seconds[GPU] - proof.beyond.seconds.get(GPU, 0.0) <= proof.reserved.seconds[GPU]
