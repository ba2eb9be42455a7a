"""A job that others wait for, and an array with a limit, through a failed node and a killed operator."""

from __future__ import annotations

from typing import Any

import pytest
from tests.cluster.conftest import System
from tests.cluster.harness import Api, condition_row
from tests.cluster.test_recovery import gang, nodes, recovered, runs, started, up

from gangline.api import names
from gangline.devcluster.nodes import fail_node
from gangline.kube import resources as kube

__all__ = ["nodes"]

pytestmark = pytest.mark.cluster
Json = dict[str, Any]


def task(number: int) -> Json:
    made = gang(f"sweep-{number}", 1)
    made["metadata"]["labels"][names.ARRAY] = "sweep"
    made["metadata"]["annotations"][names.ARRAY_LIMIT] = "1"
    return made


async def succeed(api: Api, name: str) -> None:
    """Let the running pods of a Job succeed."""
    body = {"metadata": {"annotations": {"gangline.io/simulated-exit-code": "0"}}}
    for pod in await up(api, name):
        await api.client.patch(kube.PODS, "default", pod["metadata"]["name"], body)


async def test_whoever_waits_for_a_job_waits_through_its_recovery(system: System, api: Api, nodes: list[str]) -> None:
    [before] = await started(system, api, gang("prepare", 2), operator="first")
    train = gang("train", 1)
    train["metadata"]["annotations"][names.AFTER] = "job/prepare=Succeeded"
    await api.create(train, task(0), task(1))
    lost = before[0]["spec"]["nodeName"]

    async def reason(name: str) -> str:
        workload = await api.workload_of(name)
        row = condition_row(workload, "QuotaReserved") if workload else {}
        return "holds" if row.get("status") == "True" else row.get("reason", "")

    async def stands(**wanted: str) -> bool:
        return {name: await reason(name.replace("_", "-")) for name in wanted} == wanted

    wait, full = "WaitingForDependencies", "WaitingForArrayTasks"
    await api.until(lambda: stands(train=wait, sweep_0="holds", sweep_1=full), "one waits for a job, one for its turn")
    [swept] = await runs(api, "sweep-0", 1)
    system.kill_operators()
    await fail_node(api.client, lost)
    await fail_node(api.client, swept["spec"]["nodeName"])
    system.operator("second").wait_ready()
    await recovered(api, "prepare")
    await recovered(api, "sweep-0")
    assert await stands(train=wait, sweep_0="holds", sweep_1=full), "a failed node ends nobody's wait"

    await succeed(api, "prepare")
    await succeed(api, "sweep-0")
    await runs(api, "train", 1, {lost})
    await runs(api, "sweep-1", 1, {lost})
    workload = await api.workload_of("train")
    assert workload is not None
    assert workload["metadata"]["annotations"][names.AFTER_MET] == "job/prepare=Succeeded"
    assert not (await api.get(kube.JOBS, "prepare"))["status"].get("failed"), "its backoffLimit is 0"
