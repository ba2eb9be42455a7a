"""A chain of three jobs, through a preemption, a killed operator and the deletion of a job that was waited for."""

from __future__ import annotations

from typing import Any

import pytest
from tests.cluster.conftest import System
from tests.cluster.harness import (
    Api,
    cluster_queue,
    condition,
    condition_row,
    flavor,
    job,
    local_queue,
    priority_class,
)

from gangline.api import names
from gangline.api.read.conditions import millis_of
from gangline.kube import resources as kube

pytestmark = pytest.mark.cluster
Json = dict[str, Any]


def waiting(name: str, after: str, runtime: str, **annotations: str) -> Json:
    made = job(name, "lq", gpus=2, runtime=runtime, priority="low")
    made["metadata"]["annotations"] = {names.AFTER: after, **annotations}
    return made


async def test_a_chain_runs_in_its_order_whatever_happens_on_the_way(system: System, api: Api) -> None:
    operator = system.operator("first").wait_ready()
    await api.apply(
        flavor(),
        cluster_queue("cq", 2, preemption={"withinClusterQueue": "LowerPriority"}, queueingStrategy="StrictFIFO"),
        local_queue("lq", "cq"),
        priority_class("low", 10),
        priority_class("high", 1000),
    )

    async def row(name: str, kind: str) -> Json:
        workload = await api.workload_of(name)
        return condition_row(workload, kind) if workload else {}

    async def says(name: str, *words: str) -> bool:
        reserved = await row(name, "QuotaReserved")
        return reserved.get("reason") == words[0] and all(word in reserved.get("message", "") for word in words[1:])

    async def admitted(name: str) -> bool:
        return (await row(name, "Admitted")).get("status") == "True"

    async def preempted(name: str) -> bool:
        return (await row(name, "Preempted")).get("status") == "True"

    async def met(name: str) -> str:
        workload = await api.workload_of(name) or {}
        return ((workload.get("metadata") or {}).get("annotations") or {}).get(names.AFTER_MET, "")

    await api.create(waiting("report", "job/train=Succeeded", "1s"))
    await api.create(waiting("train", "job/prepare=Succeeded", "12s"))
    await api.until(
        lambda: says("train", "WaitingForDependencies", "job prepare", "does not exist yet"),
        "it names whom it waits for",
    )
    await api.create(job("prepare", "lq", gpus=2, runtime="5s", priority="low"))
    await api.until(lambda: admitted("prepare"), "those before it in a StrictFIFO queue do not block it")

    await api.create(job("urgent", "lq", gpus=2, runtime="1s", priority="high"))
    await api.until(lambda: preempted("prepare"), "the first job is preempted", period=0.05)
    operator.kill()
    system.operator("second").wait_ready()
    await api.finished("urgent", "prepare")
    await api.until(lambda: met("train"), "it is recorded that the second need not wait any more")
    assert await met("train") == "job/prepare=Succeeded"
    await api.client.delete(kube.JOBS, "default", "prepare")

    await api.until(lambda: admitted("train"), "the second job runs")
    await api.create(job("again", "lq", gpus=2, runtime="1s", priority="high"))
    await api.until(lambda: preempted("train"), "it is preempted, too", period=0.05)
    await api.finished("again", "train", "report")
    ended = millis_of((await row("train", "Finished"))["lastTransitionTime"])
    assert millis_of((await row("report", "Admitted"))["lastTransitionTime"]) >= ended

    await api.create(waiting("never", "job/report=Failed", "1s", **{names.AFTER_FAILED: "Cancel"}))

    async def cancelled() -> bool:
        workload = await api.workload_of("never") or {}
        return bool(workload) and workload["spec"].get("active") is False and condition(workload, "Evicted")

    await api.until(cancelled, "what can't come true any more is cancelled")
    eviction = await row("never", "Evicted")
    assert (
        eviction["reason"] == "DeactivatedDueToDependencyNeverSatisfied"
        and "job report can't fail" in eviction["message"]
    )
    assert (await api.get(kube.JOBS, "never"))["spec"]["suspend"] is True
