"""Pods that outlive their Workload: what they hold is granted to nobody until they have ended."""

from __future__ import annotations

import contextlib
from typing import Any

import pytest
from tests.cluster.conftest import System
from tests.cluster.harness import Api, cluster_queue, condition, flavor, job, local_queue, priority_class

from gangline.kube import resources as kube
from gangline.kube.errors import NotFound

pytestmark = pytest.mark.cluster
Json = dict[str, Any]


def slow(name: str, seconds: int) -> Json:
    """A job whose pod takes so long to stop."""
    found = job(name, "lq", gpus=8, runtime="1h")
    template = found["spec"]["template"]
    template["metadata"]["annotations"]["gangline.io/simulated-shutdown"] = f"{seconds}s"
    template["spec"]["terminationGracePeriodSeconds"] = 2 * seconds
    return found


class Scene:
    """One queue of 8 GPUs, a job that has them, and one that waits for them."""

    def __init__(self, api: Api) -> None:
        self.api = api

    async def begin(self, stopping: int = 4) -> None:
        await self.api.apply(flavor(), cluster_queue("cq", 8), local_queue("lq", "cq"))
        await self.api.create(slow("first", stopping))
        await self.api.until(lambda: self.pods("first", "Running"), "it runs")
        await self.api.create(job("second", "lq", gpus=8, runtime="1h"))
        await self.api.until(lambda: self.api.workload_of("second"), "the second one waits")

    async def pods(self, name: str, phase: str = "Running") -> list[Json]:
        pods = await self.api.all(kube.PODS, "default", f"batch.kubernetes.io/job-name={name}")
        return [pod for pod in pods if pod["status"].get("phase") == phase]

    async def never_both(self) -> None:
        """Until the second one is admitted: not while a pod of the first one runs."""

        async def taken_over() -> bool:
            runs = await self.pods("first")  # asked first: what runs then ran before, too
            workload = await self.api.workload_of("second")
            admitted = workload is not None and condition(workload, "QuotaReserved")
            assert not (admitted and runs and await self.pods("first")), "granted to both"
            return admitted

        await self.api.until(taken_over, "the second one follows", period=0.02)


@pytest.mark.parametrize("finalizer", ["kept", "taken off"])
async def test_a_workload_is_deleted_by_hand_while_its_pods_run(system: System, api: Api, finalizer: str) -> None:
    system.operator().wait_ready()
    scene = Scene(api)
    await scene.begin(stopping=8)
    first = await api.workload_of("first")
    assert first is not None
    name = first["metadata"]["name"]
    await api.client.delete(kube.WORKLOADS, "default", name)
    if finalizer == "taken off":
        with contextlib.suppress(NotFound):
            await api.client.patch(kube.WORKLOADS, "default", name, {"metadata": {"finalizers": None}})
    await api.client.patch(kube.JOBS, "default", "first", {"metadata": {"annotations": {"note": "stays"}}})

    async def stopped_pods() -> bool:
        pods = await scene.pods("first")
        return not pods or any("deletionTimestamp" in pod["metadata"] for pod in pods)

    await api.until(stopped_pods, "the job is stopped", period=0.05)
    await api.client.patch(kube.JOBS, "default", "first", {"spec": {"suspend": True}})
    await api.client.delete(kube.JOBS, "default", "first", propagation="Background")
    await scene.never_both()


async def test_a_job_is_deleted_and_its_pods_take_their_time(system: System, api: Api) -> None:
    """Also where the operator that knew them is killed meanwhile."""
    first = system.operator("first").wait_ready()
    scene = Scene(api)
    await scene.begin(stopping=9)
    workload = await api.workload_of("first")
    assert workload is not None
    await api.client.delete(kube.JOBS, "default", "first", propagation="Background")

    async def gone() -> bool:
        return not [found for found in await api.all(kube.JOBS, "default") if found["metadata"]["name"] == "first"]

    await api.until(gone, "the job is gone", period=0.02)
    await api.client.delete(
        kube.WORKLOADS, "default", workload["metadata"]["name"]
    )  # as the garbage collector, in time
    first.kill()
    system.operator("second").wait_ready()
    await scene.never_both()
    await api.until(lambda: _workloads(api, 1), "nothing is left of the first one")


@pytest.mark.parametrize("restarted", [False, True])
async def test_a_job_is_deleted_and_its_pods_are_not(system: System, api: Api, restarted: bool) -> None:
    """With `--cascade=orphan` nothing stops them: they keep their quota, and a preemption stops them."""
    first = system.operator("first").wait_ready()
    scene = Scene(api)
    await scene.begin(stopping=3)
    await api.client.delete(kube.JOBS, "default", "first", propagation="Orphan")

    async def parted() -> bool:
        pods = await scene.pods("first")
        workloads = await api.all(kube.WORKLOADS, "default")
        assert pods, "they run on"
        return not any("ownerReferences" in each["metadata"] for each in pods) and any(
            "ownerReferences" not in each["metadata"] for each in workloads
        )

    await api.until(parted, "neither pods nor Workload have an owner any more", period=0.02)
    if restarted:
        first.kill()
        system.operator("second").wait_ready()
    await api.create(job("third", "lq", gpus=8, runtime="1h"))
    await api.until(lambda: api.workload_of("third"), "the third one waits")
    waiting = await api.workload_of("second")
    assert waiting is not None and not condition(waiting, "QuotaReserved")
    assert await scene.pods("first"), "whose quota is theirs"
    await api.apply(
        priority_class("high", 100),
        cluster_queue("cq", 8, preemption={"withinClusterQueue": "LowerPriority"}),
    )
    await api.create(job("urgent", "lq", gpus=8, runtime="1h", priority="high"))

    async def taken_over() -> bool:
        runs = await scene.pods("first")
        workload = await api.workload_of("urgent")
        admitted = workload is not None and condition(workload, "QuotaReserved")
        assert not (admitted and runs and await scene.pods("first")), "granted to both"
        return admitted

    await api.until(taken_over, "they are stopped, and their quota is used", period=0.02)

    async def ended() -> bool:
        rows = [each for each in await api.all(kube.WORKLOADS, "default") if "ownerReferences" not in each["metadata"]]
        return all(condition(each, "Finished") for each in rows)

    await api.until(ended, "their Workload has finished")


async def _workloads(api: Api, number: int) -> bool:
    return len(await api.all(kube.WORKLOADS, "default")) == number
