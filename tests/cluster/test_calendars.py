"""Training by night and serving by day, at speed: quota is recalled before it changes hands, through a killed operator."""

from __future__ import annotations

import time
from typing import Any

import pytest
from tests.cluster import harness
from tests.cluster.conftest import System
from tests.cluster.harness import condition, condition_row

from gangline.api import names
from gangline.api.read.conditions import timestamp
from gangline.kube import resources as kube

pytestmark = pytest.mark.cluster
Json = dict[str, Any]

#: seconds until the day, of the day, and for which the job of the day may run: it starts only if it ends by night
AHEAD, DAY, LIMIT = 20, 45, 30


def plan(queue: str, start: int, gpus: int) -> Json:
    window = {"start": timestamp(start * 1000), "end": timestamp((start + DAY) * 1000)}
    quotas = [{"flavor": "gpu", "resource": "nvidia.com/gpu", "nominalQuota": gpus, "borrowingLimit": 0}]
    overrides = [{"name": "day", "window": window, "quotas": quotas}]
    recall = {"notice": "12s", "stopBefore": "3s"}
    spec = {"clusterQueue": queue, "overrides": overrides, "recall": recall}
    return {"apiVersion": "gangline.io/v1alpha1", "kind": "QuotaPlan", "metadata": {"name": queue}, "spec": spec}


def keeping_to_itself(queue: Json) -> Json:
    """The ClusterQueue, which borrows nothing."""
    queue["spec"]["resourceGroups"][0]["flavors"][0]["resources"][0]["borrowingLimit"] = 0
    return queue


async def test_quota_changes_hands_by_the_calendar_without_a_preemption(system: System) -> None:
    async with harness.connect(system.kubeconfig) as api:
        await api.apply(
            harness.flavor(),
            keeping_to_itself(harness.cluster_queue("training", 8, cohort="pool")),
            keeping_to_itself(harness.cluster_queue("serving", 0, cohort="pool")),
            harness.local_queue("training", "training"),
            harness.local_queue("serving", "serving"),
        )
        operator = system.operator("first").wait_ready()
        await api.create(harness.job("train", "training", gpus=8, runtime=""))

        async def suspended(name: str) -> bool:
            return (await api.get(kube.JOBS, name))["spec"]["suspend"]

        async def trains() -> bool:
            return not await suspended("train")

        await api.until(trains, "training runs by night")
        start = int(time.time()) + AHEAD
        await api.create(plan("training", start, 0), plan("serving", start, 8))
        serve = harness.job("serve", "serving", gpus=8, runtime="5s")
        serve["metadata"]["labels"]["kueue.x-k8s.io/max-exec-time-seconds"] = str(LIMIT)
        await api.create(serve)

        async def next_change_shown() -> bool:
            status = (await api.get(kube.QUOTA_PLANS, "training")).get("status") or {}
            return "nextChange" in status and not condition(await api.get(kube.QUOTA_PLANS, "training"), names.CONFLICT)

        async def warned() -> bool:
            status = (await api.get(kube.QUOTA_PLANS, "training")).get("status") or {}
            return bool(status.get("recalled"))

        await api.until(next_change_shown, "the status has the next change")
        await api.until(warned, "training is warned of when it is stopped", AHEAD)
        operator.kill()
        system.operator("second").wait_ready()

        async def recalled() -> bool:
            workload = await api.workload_of("train")
            assert workload is not None
            return condition_row(workload, names.EVICTED).get("reason") == "QuotaRecalled"

        async def serves() -> bool:
            return not await suspended("serve")

        await api.until(recalled, "training is recalled", AHEAD + 20)
        assert await suspended("serve") or time.time() >= start - 1
        await api.until(serves, "serving starts by day", 30)
        assert time.time() >= start - 1
        assert await suspended("train")
        await api.until(trains, "training goes on by night", DAY + 40)
        assert time.time() >= start + DAY - 1
        await api.finished("serve")
        for name in ("train", "serve"):
            workload = await api.workload_of(name)
            assert workload is not None and not condition(workload, names.PREEMPTED)
