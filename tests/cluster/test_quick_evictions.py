"""Gangs that are evicted just as they start: whatever their controllers had begun, none of their pods is bound without quota."""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator
from typing import Any

import pytest
from bench.revisions import Revisions
from tests.cluster import stand_in
from tests.cluster.conftest import System
from tests.cluster.harness import Api, cluster_queue, condition, flavor, job, local_queue
from tests.cluster.test_chaos import job_set

from gangline.devcluster.jobset import controller
from gangline.devcluster.jobset.reconcile import Step
from gangline.kube import resources as kube

pytestmark = pytest.mark.cluster
Json = dict[str, Any]
GANGS = 16
#: seconds between a start and the eviction, at most: until then Jobs are resumed, and their first pods created
LATEST = 0.4
#: seconds that JobSet takes for each of its writes
SLOW = 1.0


class SlowJobSet(controller.StandIn):
    """It goes on with what it has decided, as controllers do that have much to write, whatever is changed meanwhile."""

    async def _take(self, step: Step) -> None:
        await asyncio.sleep(SLOW)
        await super()._take(step)


@pytest.fixture
async def with_job_sets(system: System, api: Api) -> AsyncIterator[System]:
    await controller.install(api.client)
    ready = asyncio.Event()
    running = asyncio.create_task(SlowJobSet(api.client).run(ready.set))
    await ready.wait()
    await api.apply(flavor(), cluster_queue("chaos", 100), local_queue("chaos", "chaos"))
    yield system
    system.kill_operators()
    running.cancel()
    await asyncio.gather(running, return_exceptions=True)
    await stand_in.uninstall(api, stand_in.StandIn(system))


async def test_what_is_evicted_as_it_starts_is_bound_to_no_node(with_job_sets: System, api: Api) -> None:
    with_job_sets.operator().wait_ready()
    chance = random.Random(3)
    async with Revisions.of(api.official) as revisions:
        for number in range(GANGS):
            name, is_job = f"gang-{number:03}", bool(number % 4)
            made = job(name, "chaos", pods=3) if is_job else job_set(name, 1, 2, 1, "60s", "low")
            made["metadata"]["labels"] = {"kueue.x-k8s.io/queue-name": "chaos"}
            await api.create(made)
            workload = await api.until(
                lambda name=name, is_job=is_job: started(api, name, kube.JOBS if is_job else kube.JOB_SETS),
                f"{name} is started",
                period=0.01,
            )
            if not is_job:  # its Job is there, and is about to be resumed
                child = f"{name}-slice-0"
                await api.until(lambda child=child: api.get(kube.JOBS, child), f"{child} is created", period=0.01)
            await asyncio.sleep(chance.uniform(0, LATEST))
            key = workload["metadata"]["name"]
            await api.client.patch(kube.WORKLOADS, "default", key, {"spec": {"active": False}})

        async def over() -> bool:
            found = await api.all(kube.WORKLOADS, "default")
            return len(found) == GANGS and not any(condition(each, "QuotaReserved") for each in found)

        await api.until(over, "no gang holds quota any more", 120)
        await asyncio.sleep(2 * SLOW)  # for what comes too late
        proof = await revisions.settle()
    assert not proof.violations, "\n".join(proof.violations)
    assert revisions.gaps == 0
    assert proof.checked >= GANGS


async def test_quota_is_held_until_a_controller_that_was_late_has_seen_the_end(system: System, api: Api) -> None:
    """The controller of Jobs says nothing before the gang is evicted: it may have read it as it was in between."""
    await api.apply(flavor(), cluster_queue("late", 3), local_queue("late", "late"))
    system.operator().wait_ready()
    system.plane.pause("kube-controller-manager")
    try:
        await api.create(job("first", "late", pods=3))
        workload = await api.until(lambda: started(api, "first", kube.JOBS), "the gang is started")
        key = workload["metadata"]["name"]
        await api.client.patch(kube.WORKLOADS, "default", key, {"spec": {"active": False}})

        async def suspended() -> bool:
            return (await api.get(kube.JOBS, "first"))["spec"]["suspend"]

        await api.until(suspended, "the gang is suspended again")
        await asyncio.sleep(2)
        assert not (await api.get(kube.JOBS, "first")).get("status")
        assert condition(await api.get(kube.WORKLOADS, key), "QuotaReserved")
    finally:
        system.plane.resume("kube-controller-manager")

    async def released() -> bool:
        return not condition(await api.get(kube.WORKLOADS, key), "QuotaReserved")

    await api.until(released, "its quota is free")
    assert not await api.all(kube.PODS, "default")
    made = job("second", "late", pods=3)
    made["spec"]["managedBy"] = "example.com/nobody"
    await api.create(made)
    workload = await api.until(lambda: started(api, "second", kube.JOBS), "another one is started")
    key = workload["metadata"]["name"]
    await api.client.patch(kube.WORKLOADS, "default", key, {"spec": {"active": False}})
    await api.until(released, "nothing is waited for where another controller runs the Job")


async def started(api: Api, name: str, resource: kube.Resource) -> Json | None:
    found = await api.workload_of(name)
    begun = (await api.get(resource, name))["spec"]["suspend"] is False
    return found if found is not None and begun and condition(found, "Admitted") else None
