"""kill -9 at every write while a job grows and shrinks: no quota is given twice, no pod restarts, and the end is the same.

As in `test_crash`: in run k of PERIOD the operator dies at its k-th write, and every successor at its PERIOD-th.
"""

from __future__ import annotations

import pytest
from bench.revisions import Revisions
from tests.cluster.conftest import System
from tests.cluster.harness import Api, cluster_queue, condition, flavor, job, local_queue
from tests.cluster.test_elastic import admitted, elastic_job, pods_of, resize, slices, usage
from tests.examples import sampled

from gangline.kube import resources as kube

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(900)]
PERIOD = 9


async def _run(system: System, api: Api, moment: str, first: int, period: int = 0) -> int:
    """2 → 6 → 3 pods beside another job that has the quota at first. Returns how often the operator died."""
    name = f"{moment}:{first}+{period}"
    await api.apply(flavor(), cluster_queue("cq", 8), local_queue("lq", "cq"))
    crashes, stage = 0, "starts"
    uids: set[str] = set()
    operator = system.operator(fault=f"{moment}:{first}")
    async with Revisions.of(api.official) as revisions:
        await api.create(elastic_job("grows", 2), job("beside", "lq", pods=1, gpus=4, runtime="600s"))

        async def step() -> bool:
            nonlocal operator, crashes, stage, uids
            if not operator.process.is_alive():
                assert operator.process.exitcode == 137, operator.tail()
                crashes += 1
                operator = system.operator(fault=f"{moment}:{period}" if period else "")
            pods = await pods_of(api, "grows")
            if stage == "starts" and pods == {"Running": 2} and (await pods_of(api, "beside"))["Running"] == 1:
                uids = {pod["metadata"]["uid"] for pod in await api.all(kube.PODS, "default", "job-name=grows")}
                await resize(api, "grows", 6)
                stage = "waits"
            elif stage == "waits" and len(await slices(api, "grows")) == 2 and pods == {"Running": 2, "gated": 4}:
                await api.client.delete(kube.JOBS, "default", "beside", propagation="Background")
                stage = "grows"
            elif stage == "grows" and pods == {"Running": 6}:
                await resize(api, "grows", 3)
                stage = "shrinks"
            return stage == "shrinks" and pods == {"Running": 3} and await _settled(api)

        try:
            await api.until(step, f"the scenario with {name} is through", 240)
        except AssertionError as error:
            raise AssertionError(f"{name}, {stage}: {error}\n{operator.tail()}") from None
        proof = await revisions.settle()
    assert not proof.violations, f"{name}: {proof.violations}"
    assert proof.checked >= 8, "reservations and pods"
    assert revisions.gaps == 0
    left = {pod["metadata"]["uid"] for pod in await api.all(kube.PODS, "default", "job-name=grows")}
    assert left & uids or len(left) == 3, "its pods were not restarted"
    return crashes


async def _settled(api: Api) -> bool:
    """One slice holds quota for three pods; the other ones are finished and let go."""
    own = await slices(api, "grows")
    running = [each for each in own if admitted(each)]
    over = [each for each in own if condition(each, "Finished") and not each["metadata"].get("finalizers")]
    if len(running) != 1 or len(over) != len(own) - 1 or running[0]["spec"]["podSets"][0]["count"] != 3:
        return False
    return await usage(api) == 3 and condition(running[0], "PodsReady")


@pytest.mark.parametrize("first", sampled(range(1, PERIOD + 1)))
async def test_killed_before_every_write(system: System, api: Api, first: int) -> None:
    assert await _run(system, api, "before", first, PERIOD) >= 1


@pytest.mark.parametrize("number", sampled([6, 9, 12]))
async def test_killed_after_a_write(system: System, api: Api, number: int) -> None:
    assert await _run(system, api, "after", number) == 1
