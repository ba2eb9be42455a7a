"""A gang survives its nodes: the published GKE recipe, its text unchanged, on simulated node pools."""

from __future__ import annotations

import pytest
from tests.cluster.conftest import System
from tests.cluster.harness import Api, condition, condition_row
from tests.cluster.hotswap import HIGH, LOW, field, node_pool

from gangline.api.read.workloads import swap_record

pytestmark = pytest.mark.cluster


async def test_high_moves_to_the_spare_pool_and_low_is_never_disturbed(system: System, api: Api) -> None:
    async with field(system, api, "spare") as here:
        system.operator().wait_ready()
        await here.submit(LOW, HIGH)
        before = {name: {pod["metadata"]["uid"] for pod in await here.runs(name)} for name in (LOW, HIGH)}
        [broken, kept] = sorted(await here.pools_of(HIGH))
        [spare] = {pool.name for pool in here.pools} - await here.pools_of(LOW) - {broken, kept}

        await here.fail(f"{broken}-1")
        await here.recovered(HIGH)
        pods = await here.runs(HIGH)
        assert {node_pool(pod) for pod in pods} == {kept, spare}
        assert not {pod["metadata"]["uid"] for pod in pods} & before[HIGH], "a JobSet starts anew as a whole"
        assert {pod["metadata"]["uid"] for pod in await here.runs(LOW)} == before[LOW]

        workload = await here.workload(HIGH)
        assert condition(workload, "Admitted")
        assert not condition(workload, "Evicted")
        said = condition_row(workload, "Recovered")
        assert said["reason"] == "Restarted"
        assert f"{broken}-1 (NotReady)" in said["message"]
        record = swap_record.of(workload)
        [swap] = record.log
        assert (record.attempt, record.swaps, swap.how, swap.lost) == (1, 1, "Restart", (f"{broken}-1",))
        assert swap.detected <= swap.decided <= (swap.created or 0) <= (swap.running or 0)
        assert {node.rpartition("-")[0] for node in swap.to} == {spare}
        assert not condition(await here.workload(LOW), "Evicted")


async def test_low_makes_room_for_high_and_resumes_when_the_node_is_repaired(system: System, api: Api) -> None:
    async with field(system, api, "preempt") as here:
        system.operator().wait_ready()
        await here.submit(LOW, HIGH)
        for name in (LOW, HIGH):
            await here.runs(name)
        broken = min(await here.pools_of(HIGH))
        await here.fail(f"{broken}-2")
        await here.recovered(HIGH)
        pools = {node_pool(pod) for pod in await here.runs(HIGH)}
        assert broken not in pools
        low = await here.workload(LOW)
        assert condition(low, "Evicted")
        assert not condition(low, "QuotaReserved")

        async def says_so() -> bool:
            return condition_row(await here.workload(LOW), "QuotaReserved")["reason"] == "WaitingForCapacity"

        await api.until(says_so, "low says that it waits for nodes: of 64 chips of quota 32 are free")
        assert (
            "2 free domains of cloud.google.com/gke-nodepool needed for pod set slice, 1 available"
            in (condition_row(await here.workload(LOW), "QuotaReserved")["message"])
        )

        second = min(pools)  # while low waits, high is struck again: two pools are left for it
        await here.fail(f"{second}-0")
        await here.recovered(HIGH, 2)
        assert {node_pool(pod) for pod in await here.runs(HIGH)}.isdisjoint({broken, second})
        assert not condition(await here.workload(LOW), "QuotaReserved"), "low can't run without a second pool"

        await here.repair(f"{broken}-2")
        await here.repair(f"{second}-0")
        await here.runs(LOW)
        assert len(await here.runs(HIGH)) == 8
