"""kill -9 at every write: whatever the operator was about to write or had just written, the next one ends in the same state.

The scenario has an admission of a whole gang, a preemption with its stop and resume, and jobs that take each other's place.
In run k of PERIOD the operator dies at its k-th write, and every successor at its PERIOD-th: together the runs put a crash at
every write of the scenario, each in a run with several.
"""

from __future__ import annotations

from collections import Counter

import pytest
from bench.revisions import Revisions
from tests.cluster.conftest import System
from tests.cluster.harness import Api, cluster_queue, condition, flavor, job, local_queue, priority_class
from tests.examples import sampled

from gangline.kube import resources as kube

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(900)]

QUOTA = 8
JOBS = ("low", "high", "small-a", "small-b")
PERIOD = 10


async def _run(system: System, api: Api, moment: str, first: int, period: int = 0) -> int:
    """One scenario with crashes `moment` the `first` write and then every `period`-th (0: no more). Returns how many."""
    name = f"{moment}:{first}+{period}"
    await api.apply(
        flavor(),
        cluster_queue("cq", QUOTA, preemption={"withinClusterQueue": "LowerPriority"}),
        local_queue("lq", "cq"),
        priority_class("p10", 10),
        priority_class("p1000", 1000),
    )
    crashes = 0
    operator = system.operator(fault=f"{moment}:{first}")
    async with Revisions.of(api.official) as revisions:
        await api.create(job("low", "lq", pods=2, gpus=4, runtime="1s", priority="p10"))
        submitted = False

        async def step() -> bool:
            """Drive the scenario: restart what died, send the urgent job once the first one runs."""
            nonlocal operator, submitted, crashes
            if not operator.process.is_alive():
                assert operator.process.exitcode == 137, operator.tail()
                crashes += 1
                operator = system.operator(fault=f"{moment}:{period}" if period else "")
            if not submitted and (await api.get(kube.JOBS, "low"))["spec"]["suspend"] is False:
                submitted = True
                await api.create(
                    job("high", "lq", pods=2, gpus=4, runtime="200ms", priority="p1000"),
                    job("small-a", "lq", pods=1, gpus=4, runtime="200ms", priority="p10"),
                    job("small-b", "lq", pods=2, gpus=2, runtime="200ms", priority="p10"),
                )
            return submitted and await _settled(api)

        try:
            await api.until(step, f"the scenario with {name} is through", 90)
        except AssertionError as error:
            raise AssertionError(f"{name}: {error}\n{operator.tail()}") from None
        proof = await revisions.settle()
    assert not proof.violations, f"{name}: {proof.violations}"
    assert proof.checked >= 2 * len(JOBS), "reservations and pods"
    assert revisions.gaps == 0
    assert not proof.beyond.seconds.get("nvidia.com/gpu")
    await _check(api, name)
    return crashes


async def _settled(api: Api) -> bool:
    """All jobs complete, all Workloads finished and let go, the queue's ledger empty."""
    jobs = {obj["metadata"]["name"]: obj for obj in await api.all(kube.JOBS, "default")}
    if not all(name in jobs and condition(jobs[name], "Complete") for name in JOBS):
        return False
    workloads = await api.all(kube.WORKLOADS, "default")
    if not all(condition(w, "Finished") and not w["metadata"].get("finalizers") for w in workloads):
        return False
    status = (await api.get(kube.CLUSTER_QUEUES, "cq")).get("status", {})
    counts = [status.get(f"{kind}Workloads") for kind in ("pending", "reserving", "admitted")]
    return counts == [0, 0, 0] and status["flavorsReservation"][0]["resources"][0]["total"] == "0"


async def _check(api: Api, fault: str) -> None:
    workloads = await api.all(kube.WORKLOADS, "default")
    assert len(workloads) == len(JOBS), f"{fault}: one Workload per job: {[w['metadata']['name'] for w in workloads]}"
    pods = Counter(pod["metadata"]["labels"]["job-name"] for pod in await api.all(kube.PODS, "default"))
    for name, count in (("high", 2), ("small-a", 1), ("small-b", 2)):
        assert pods[name] == count, f"{fault}: {name} ran {pods[name]} pods instead of {count}"


@pytest.mark.parametrize("first", sampled(range(1, PERIOD + 1)))
async def test_killed_before_every_write(system: System, api: Api, first: int) -> None:
    assert await _run(system, api, "before", first, PERIOD) >= 2


@pytest.mark.parametrize("number", sampled([2, 5, 9, 14]))
async def test_killed_after_a_write(system: System, api: Api, number: int) -> None:
    assert await _run(system, api, "after", number) == 1
