"""kill -9 at every write while racks have power caps: no start takes a rack over its cap at any revision.

As in `test_crash`: in run k of PERIOD the operator dies at its k-th write, and every successor at its PERIOD-th.
`bench.power_proof` judges, by the status of Workloads and by pods; it shares no code with the operator.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest
from bench.power_proof import Cap, PowerProof
from bench.revisions import Revisions
from tests.cluster.conftest import System
from tests.cluster.harness import Api, cluster_queue, condition, condition_row, flavor, job, local_queue, queue_policy
from tests.examples import sampled

from gangline.api.names import GPU_WATTS, IDLE_WATTS
from gangline.devcluster.nodes import EqualNodes, create_pools, delete_pool
from gangline.kube import resources as kube
from gangline.kube.resources import Json

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(900)]

#: more than the writes that are under way at once, since these are lost with the operator
PERIOD = 25
RACK, POWERED = "example.com/rack", {"example.com/powered": "yes"}
RACKS = [EqualNodes(f"rack-{name}", 2, {"nvidia.com/gpu": 4}, {RACK: name, **POWERED}) for name in "ab"]
IDLE, GPU = 100, 500
#: watts of a rack with three GPUs at work, and with five
LOW, HIGH = 2 * IDLE + 3 * GPU, 2 * IDLE + 5 * GPU
#: one GPU each: more than the six that two racks may have at work at first
SMALL = [f"small-{number}" for number in range(8)]


def capped(watts: int) -> Json:
    cap = {"domainLabel": RACK, "capWatts": watts, "percent": 100}
    return queue_policy("capped", "capped", placement={"profile": "Pack", "power": [cap]})


@asynccontextmanager
async def racks(api: Api) -> AsyncIterator[None]:
    """Two racks, a queue with a policy that caps their power, and one without."""
    await create_pools(api.client, RACKS)
    try:
        for name in (name for pool in RACKS for name in pool.node_names):
            written = {IDLE_WATTS: str(IDLE), GPU_WATTS: str(GPU)}
            await api.client.patch(kube.NODES, None, name, {"metadata": {"annotations": written}})
        await api.apply(
            capped(LOW),
            flavor("racks", POWERED),
            *(cluster_queue(name, 16, flavors=("racks",)) for name in ("capped", "plain")),
            *(local_queue(f"lq-{name}", name) for name in ("capped", "plain")),
        )
        yield
    finally:
        await api.wipe()
        for pool in RACKS:
            await delete_pool(api.client, pool.name)


async def _run(system: System, api: Api, moment: str, first: int, period: int = 0) -> int:
    """Small jobs of both queues fill the racks up to their caps; a large one waits until these are raised."""
    name = f"{moment}:{first}+{period}"
    crashes, raised = 0, False
    async with racks(api), Revisions.of(api.official) as revisions:
        power = revisions.proof.power = PowerProof([Cap(RACK, LOW, 100)])
        operator = system.operator(fault=f"{moment}:{first}")
        queues = ("lq-capped", "lq-plain")
        await api.create(*(job(each, queues[index % 2], runtime="1s") for index, each in enumerate(SMALL)))
        await api.create(job("large", "lq-capped", gpus=4, runtime="200ms"))

        async def step() -> bool:
            nonlocal operator, crashes, raised
            if not operator.process.is_alive():
                assert operator.process.exitcode == 137, operator.tail()
                crashes += 1
                operator = system.operator(fault=f"{moment}:{period}" if period else "")
            if not raised:
                workload = await api.workload_of("large")
                row = condition_row(workload, "QuotaReserved") if workload else {}
                if f"power of {RACK}=" in row.get("message", ""):
                    raised = True
                    power.caps[:] = [Cap(RACK, HIGH, 100)]
                    await api.apply(capped(HIGH))
            jobs = [await api.get(kube.JOBS, each) for each in (*SMALL, "large")]
            return raised and all(condition(each, "Complete") for each in jobs)

        try:
            await api.until(step, f"the scenario with {name} is through", 240)
        except AssertionError as error:
            raise AssertionError(f"{name}, raised: {raised}: {error}\n{operator.tail()}") from None
        proof = await revisions.settle()
        assert not proof.violations, f"{name}: {proof.violations}"
        assert LOW <= power.most <= HIGH, "the racks were used up to their caps"
        assert power.checked >= 2 * (len(SMALL) + 1), "each by its admission, and by its pod"
        assert revisions.gaps == 0
        system.kill_operators()
    return crashes


@pytest.mark.parametrize("first", sampled(range(1, PERIOD + 1)))
async def test_killed_before_every_write(system: System, api: Api, first: int) -> None:
    assert await _run(system, api, "before", first, PERIOD) >= 2


@pytest.mark.parametrize("number", sampled([4, 9, 15, 20]))
async def test_killed_after_a_write(system: System, api: Api, number: int) -> None:
    assert await _run(system, api, "after", number) == 1
