"""Elastic jobs on a real API server: they grow and shrink while they run, and no quota is given twice."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest
from tests.cluster.conftest import System
from tests.cluster.harness import Api, cluster_queue, condition, condition_row, flavor, job, local_queue, priority_class

from gangline.api import names
from gangline.kube import resources as kube

pytestmark = pytest.mark.cluster
Json = dict[str, Any]


def elastic_job(name: str, pods: int, *, runtime: str = "600s", priority: str = "") -> Json:
    body = job(name, "lq", pods=pods, runtime=runtime, priority=priority)
    body["metadata"]["annotations"] = {names.ELASTIC: "true"}
    body["spec"] |= {"completions": 100, "suspend": False}
    return body


async def resize(api: Api, name: str, pods: int) -> None:
    await api.client.patch(kube.JOBS, "default", name, {"spec": {"parallelism": pods}})


async def slices(api: Api, name: str) -> list[Json]:
    found = await api.all(kube.WORKLOADS, "default")
    own = [each for each in found if any(ref["name"] == name for ref in each["metadata"].get("ownerReferences", ()))]
    return sorted(own, key=lambda each: (each["metadata"]["creationTimestamp"], len(each["metadata"]["annotations"])))


async def pods_of(api: Api, name: str) -> Counter[str]:
    """Living pods of a Job: those that run, and those that wait at a gate."""
    found = await api.all(kube.PODS, "default", f"job-name={name}")
    living = [pod for pod in found if "deletionTimestamp" not in pod["metadata"]]
    return Counter("gated" if pod["spec"].get("schedulingGates") else pod["status"].get("phase", "") for pod in living)


async def usage(api: Api, queue: str = "cq") -> int:
    """The quota that is reserved in the queue; 0 before its status is written for the first time."""
    rows = (await api.get(kube.CLUSTER_QUEUES, queue)).get("status", {}).get("flavorsReservation", [])
    return int(rows[0]["resources"][0]["total"]) if rows else 0


def admitted(workload: Json) -> bool:
    return condition(workload, "Admitted") and not condition(workload, "Finished")


async def test_a_job_grows_and_shrinks_under_quota_pressure(system: System, api: Api) -> None:
    """2 → 6 → 3: the growth waits while another job has the quota, and no pod ever restarts."""
    system.operator().wait_ready()
    await api.apply(flavor(), cluster_queue("cq", 8), local_queue("lq", "cq"))
    await api.create(elastic_job("grows", 2))

    async def two() -> bool:
        return await pods_of(api, "grows") == {"Running": 2}

    await api.until(two, "two pods run")
    [first] = await slices(api, "grows")
    assert first["metadata"]["annotations"] == {
        names.ELASTIC: "true",
        names.SLICE_NAME: first["metadata"]["name"],
    }
    before = {pod["metadata"]["uid"] for pod in await api.all(kube.PODS, "default", "job-name=grows")}
    await api.create(job("beside", "lq", pods=1, gpus=4, runtime="600s"))

    async def beside() -> bool:
        return (await pods_of(api, "beside"))["Running"] == 1

    await api.until(beside, "the other job runs")

    await resize(api, "grows", 6)

    async def waits() -> bool:
        own = await slices(api, "grows")
        if len(own) != 2 or await pods_of(api, "grows") != {"Running": 2, "gated": 4}:
            return False
        return condition_row(own[1], "QuotaReserved").get("message", "").endswith("2 more needed")

    await api.until(waits, "the job goes on with two pods while four wait, and asks for the difference alone")
    first, second = await slices(api, "grows")
    assert admitted(first) and not condition(second, "QuotaReserved")
    assert second["metadata"]["annotations"] == {
        names.ELASTIC: "true",
        names.SLICE_NAME: first["metadata"]["name"],
        names.REPLACEMENT_FOR: f"default/{first['metadata']['name']}",
    }
    assert (await api.get(kube.JOBS, "grows"))["spec"]["suspend"] is False
    assert await usage(api) == 6

    await api.client.delete(kube.JOBS, "default", "beside", propagation="Background")

    async def six() -> bool:
        return await pods_of(api, "grows") == {"Running": 6} and await usage(api) == 6

    await api.until(six, "six pods run with a quota of six")

    async def replaced() -> bool:
        first, _ = await slices(api, "grows")
        return condition(first, "Finished") and not first["metadata"].get("finalizers")

    await api.until(replaced, "the old slice is over")
    first, second = await slices(api, "grows")
    row = condition_row(first, "Finished")
    assert row["reason"] == "WorkloadSliceReplaced"
    assert row["message"] == (
        f"Replaced to accommodate a workload (UID: {second['metadata']['uid']}, "
        f"JobUID: {second['metadata']['labels'][names.JOB_UID]}) due to workload slice aggregation"
    )

    async def replaced_events() -> list[Json]:
        found = [each for each in await api.all(kube.EVENTS, "default") if each["reason"] == "WorkloadSliceReplaced"]
        return [each for each in found if each["regarding"]["uid"] == first["metadata"]["uid"]]

    await api.until(replaced_events, "an event says it, which is written after the status")
    assert len(await replaced_events()) == 1
    now = {pod["metadata"]["uid"] for pod in await api.all(kube.PODS, "default", "job-name=grows")}
    assert before < now, "the first pods still run"

    async def ready() -> bool:
        return condition((await slices(api, "grows"))[1], "PodsReady")

    await api.until(ready, "the gang is ready")

    await resize(api, "grows", 3)

    async def three() -> bool:
        return await pods_of(api, "grows") == {"Running": 3} and await usage(api) == 3

    await api.until(three, "three pods run, and the quota of the others is free")
    own = await slices(api, "grows")
    assert len(own) == 2 and own[1]["spec"]["podSets"][0]["count"] == 3
    await api.create(job("after", "lq", pods=1, gpus=5, runtime="1s"))
    await api.finished("after")
    assert (await api.get(kube.JOBS, "grows"))["spec"]["suspend"] is False


async def test_a_job_with_two_slices_is_preempted_and_returns_with_its_new_size(system: System, api: Api) -> None:
    system.operator().wait_ready()
    await api.apply(
        flavor(),
        cluster_queue("cq", 8, preemption={"withinClusterQueue": "LowerPriority"}),
        local_queue("lq", "cq"),
        priority_class("low", 10),
        priority_class("high", 1000),
    )
    await api.create(
        elastic_job("grows", 4, priority="low"), job("beside", "lq", pods=1, gpus=4, runtime="600s", priority="high")
    )

    async def runs() -> bool:
        return await pods_of(api, "grows") == {"Running": 4} and (await pods_of(api, "beside"))["Running"] == 1

    await api.until(runs, "both run")
    await resize(api, "grows", 6)

    async def waits() -> bool:
        return (await pods_of(api, "grows"))["gated"] == 2

    await api.until(waits, "two pods wait")
    await api.create(job("urgent", "lq", pods=1, gpus=4, runtime="2s", priority="high"))
    await api.finished("urgent")
    row = [condition_row(each, "Preempted") for each in await slices(api, "grows")]
    assert any(each.get("reason") == "InClusterQueue" for each in row)
    await api.client.delete(kube.JOBS, "default", "beside", propagation="Background")

    async def back() -> bool:
        return await pods_of(api, "grows") == {"Running": 6} and await usage(api) == 6

    await api.until(back, "the job runs with six pods")
    own = await slices(api, "grows")
    assert sum(map(admitted, own)) == 1

    await api.client.delete(kube.JOBS, "default", "grows", propagation="Background")

    async def gone() -> bool:
        return not await slices(api, "grows") and await usage(api) == 0

    await api.until(gone, "nothing is left of it")
