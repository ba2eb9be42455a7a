"""JobSet itself at work: gangs that take whole domains are whole, or not there at all.

Needs JobSet's manager and its CRD on this machine (`real_jobset`); the other tests have the stand-in.
"""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator
from typing import Any

import pytest
import yaml
from bench.revisions import Revisions
from tests.cluster import real_jobset
from tests.cluster.conftest import System
from tests.cluster.harness import Api, condition
from tests.cluster.hotswap import EXAMPLE, HIGH, LOW, Field, manifests, node_pool, policy
from tests.cluster.real_jobset import RealJobSet

from gangline.devcluster.nodes import EqualNodes, create_pools, delete_pool
from gangline.kube import resources as kube
from gangline.kube.errors import NotFound

pytestmark = [
    pytest.mark.cluster,
    pytest.mark.skipif(not real_jobset.at_hand(), reason=f"{real_jobset.PROGRAM} or {real_jobset.CRD_FILE} is not set"),
]

Json = dict[str, Any]
INDEX = "jobset.sigs.k8s.io/job-index"


@pytest.fixture
async def here(system: System, api: Api) -> AsyncIterator[Field]:
    """Four slices, two for either JobSet of the recipe; JobSet and an operator run."""
    pools = [
        EqualNodes(**pool)
        for pool in yaml.safe_load((EXAMPLE / "preempt" / "simulated" / "node-pools.yaml").read_text())
    ]
    await create_pools(api.client, pools)
    jobset = await RealJobSet(system).start(api)
    await api.apply(*manifests("10-priority-classes.yaml"), *manifests("preempt/queues.yaml"), policy())
    system.operator().wait_ready()
    found = Field(api, system, pools)
    try:
        async with Revisions.of(api.official) as revisions:
            yield found
            proof = await revisions.settle()
        await withdraw(found, LOW, HIGH)
    finally:
        system.kill_operators()
        await jobset.stop(api)
    assert not proof.violations, "\n".join(proof.violations[:20])
    assert (revisions.gaps, proof.checked > 0) == (0, True)
    await api.wipe()
    for pool in pools:
        await delete_pool(api.client, pool.name)
    for resource, name in ((kube.QUEUE_POLICIES, "hotswap"), *_classes()):
        with contextlib.suppress(NotFound):
            await api.client.delete(resource, None, name)


def _classes() -> list[tuple[Any, str]]:
    return [(kube.PRIORITY_CLASSES, found["metadata"]["name"]) for found in manifests("10-priority-classes.yaml")]


async def withdraw(field: Field, *job_sets: str) -> None:
    """Delete JobSets, and wait until nothing of them is left."""
    for name in job_sets:
        with contextlib.suppress(NotFound):
            await field.api.client.delete(kube.JOB_SETS, "default", name, propagation="Background")

    async def gone() -> bool:
        left = (kube.JOB_SETS, kube.JOBS, kube.PODS, kube.WORKLOADS)
        return not any([await field.api.all(resource, "default") for resource in left])

    await field.api.until(gone, "nothing is left of the JobSets", 60)


async def end(field: Field, job_set: str, index: str, exit_code: int) -> None:
    """The pods of one Job of a JobSet end."""
    for pod in await field.pods(job_set):
        if pod["metadata"]["labels"][INDEX] == index:
            body = {"metadata": {"annotations": {"gangline.io/simulated-exit-code": str(exit_code)}}}
            await field.api.client.patch(kube.PODS, "default", pod["metadata"]["name"], body)


async def preempted_by_the_scheduler(api: Api) -> list[str]:
    events = await api.all(kube.EVENTS, "default")
    return [event["regarding"]["name"] for event in events if event["reason"] == "Preempted" and _of_pod(event)]


def _of_pod(event: Json) -> bool:
    return event["regarding"]["kind"] == "Pod"


async def test_jobsets_of_different_priority_that_start_together_share_no_domain(here: Field) -> None:
    """JobSet keeps only Jobs of equal priority apart. Left to themselves, 5 out of 6 such pairs share a domain."""
    for _ in range(4):
        await here.submit(LOW, HIGH)
        pools = {name: {node_pool(pod) for pod in await here.runs(name)} for name in (LOW, HIGH)}
        assert len(pools[LOW] | pools[HIGH]) == 4
        assert await preempted_by_the_scheduler(here.api) == []
        await withdraw(here, LOW, HIGH)


async def test_a_slice_that_succeeded_keeps_its_room_while_its_jobset_may_start_over(here: Field) -> None:
    """On the room of that slice a second JobSet would start, and the two would have five slices for four domains afterwards."""
    await here.submit(HIGH)
    await here.runs(HIGH)
    [other] = manifests("30-low-jax-trillium.yaml")
    other["spec"]["replicatedJobs"][0]["replicas"] = 3
    await here.api.apply(other)
    await end(here, HIGH, "0", 0)

    async def slice_done() -> bool:
        found = await here.api.get(kube.JOB_SETS, HIGH)
        return found["status"]["replicatedJobsStatus"][0]["succeeded"] == 1

    await here.api.until(slice_done, "a slice of high has succeeded")
    await end(here, HIGH, "1", 1)

    async def restarted() -> bool:
        return (await here.api.get(kube.JOB_SETS, HIGH))["status"].get("restarts") == 1

    await here.api.until(restarted, "high starts over")
    await here.runs(HIGH)
    assert not condition(await here.workload(LOW), "QuotaReserved")
    assert await here.pods(LOW, running=False) == []
