"""The world misbehaves: API server restarts, two operators, foreign hands, bad input. Nothing is lost, nobody else waits."""

from __future__ import annotations

import asyncio

import pytest
from tests.cluster import authors
from tests.cluster.conftest import System
from tests.cluster.harness import (
    Api,
    cluster_queue,
    condition,
    condition_row,
    flavor,
    job,
    local_queue,
)

from gangline.api import names
from gangline.kube import resources as kube
from gangline.kube.errors import ApiError
from gangline.kube.resources import key_of

pytestmark = pytest.mark.cluster


async def _queue(api: Api, gpus: int = 8) -> None:
    await api.apply(flavor(), cluster_queue("cq", gpus), local_queue("lq", "cq"))


async def test_the_api_server_restarts_under_load(system: System, api: Api) -> None:
    system.operator().wait_ready()
    await _queue(api)
    names = [f"j{number}" for number in range(24)]
    await api.create(*(job(name, "lq", gpus=2, runtime="500ms") for name in names[:12]))
    await asyncio.to_thread(system.restart_apiserver)

    async def created() -> bool:
        await api.create(*(job(name, "lq", gpus=2, runtime="500ms") for name in names[12:]))
        return True

    await api.until(created, "the API server takes jobs again")
    await api.finished(*names, seconds=90)
    workloads = await api.all(kube.WORKLOADS, "default")
    assert len(workloads) == len(names)


async def test_only_the_leader_writes_and_the_standby_takes_over(system: System, api: Api) -> None:
    before = await _now(api)
    one = system.operator("one", leader_election=True).wait_ready()
    await _queue(api)

    async def holder() -> str:
        lease = await api.get(kube.LEASES, names.KUEUE_LEASE, names.KUEUE_NAMESPACE)
        return lease["spec"].get("holderIdentity") or ""

    await api.until(lambda: _is(holder, "one"), "the first one leads")
    two = system.operator("two", leader_election=True).wait_ready()
    await api.create(*(job(f"a{number}", "lq", gpus=2, runtime="500ms") for number in range(6)))
    await api.finished(*(f"a{number}" for number in range(6)))
    assert await holder() == "one"
    assert one.stop() == 0, one.tail()
    await api.until(lambda: _is(holder, "two"), "the standby takes over at once", 10)
    await api.create(*(job(f"b{number}", "lq", gpus=2, runtime="500ms") for number in range(6)))
    await api.finished(*(f"b{number}" for number in range(6)))
    assert two.process.is_alive()
    wrong, right = authors.usurped(authors.written(authors.log(system.directory), after=before))
    assert not wrong, "\n".join(wrong[:20])
    assert min(right["one"], right["two"]) >= 6 * 3, "at least to admit, to start and to finish each job"


async def _now(api: Api) -> int:
    """The revision of the store."""
    return int((await api.official.list(kube.NODES)).version)


async def _is(ask: object, wanted: str) -> bool:
    return await ask() == wanted  # type: ignore[operator]


async def test_foreign_writes_cause_conflicts_and_no_harm(system: System, api: Api) -> None:
    """Somebody keeps touching the Workloads while they are admitted and finished."""
    system.operator().wait_ready()
    await _queue(api)
    names = [f"c{number}" for number in range(12)]
    await api.create(*(job(name, "lq", gpus=4, runtime="300ms") for name in names))
    stop = asyncio.Event()

    async def meddle() -> None:
        number = 0
        while not stop.is_set():
            for workload in await api.all(kube.WORKLOADS, "default"):
                number += 1
                touch = {"metadata": {"annotations": {"example.com/touched": str(number)}}}
                try:
                    await api.client.patch(kube.WORKLOADS, "default", workload["metadata"]["name"], touch)
                except ApiError:
                    continue
            await asyncio.sleep(0.01)

    meddler = asyncio.create_task(meddle())
    try:
        await api.finished(*names, seconds=90)
    finally:
        stop.set()
        await meddler


async def test_a_deleted_workload_stops_its_job_and_the_job_queues_again(system: System, api: Api) -> None:
    system.operator().wait_ready()
    await _queue(api)
    await api.create(job("long", "lq", gpus=4, runtime="2s"))

    async def runs() -> bool:
        return (await api.get(kube.JOBS, "long"))["spec"]["suspend"] is False

    await api.until(runs, "it runs")
    workload = await api.workload_of("long")
    assert workload is not None
    await api.client.delete(kube.WORKLOADS, "default", workload["metadata"]["name"])

    async def replaced() -> bool:
        found = await api.workload_of("long")
        return found is not None and found["metadata"]["uid"] != workload["metadata"]["uid"]

    await api.until(replaced, "a new Workload queues for the job")
    await api.finished("long")


async def test_a_deleted_job_gives_its_quota_back(system: System, api: Api) -> None:
    system.operator().wait_ready()
    await _queue(api)
    await api.create(job("forever", "lq", gpus=8, runtime="1h"), job("next", "lq", gpus=8, runtime="300ms"))

    async def runs() -> bool:
        return (await api.get(kube.JOBS, "forever"))["spec"]["suspend"] is False

    await api.until(runs, "the first one runs")
    await api.client.delete(kube.JOBS, "default", "forever", propagation="Foreground")
    await api.finished("next")


async def test_bad_input_names_the_field_and_stops_nobody_else(system: System, api: Api) -> None:
    system.operator().wait_ready()
    await _queue(api)
    await api.apply(
        {
            "apiVersion": "kueue.x-k8s.io/v1beta2",
            "kind": "Cohort",
            "metadata": {"name": "a"},
            "spec": {"parentName": "b"},
        },
        {
            "apiVersion": "kueue.x-k8s.io/v1beta2",
            "kind": "Cohort",
            "metadata": {"name": "b"},
            "spec": {"parentName": "a"},
        },
        cluster_queue("circular", 8, cohort="a"),
        cluster_queue("flavorless", 8, flavors=["missing"]),
        local_queue("lost", "nowhere"),
        local_queue("flavorless", "flavorless"),
        local_queue("circular", "circular"),
    )
    negative = cluster_queue("negative", 8)
    negative["spec"]["resourceGroups"][0]["flavors"][0]["resources"][0]["nominalQuota"] = "-4"
    with pytest.raises(ApiError, match="nominalQuota"):
        await api.apply(negative)
    absurd = cluster_queue("absurd", 8)
    absurd["spec"]["resourceGroups"][0]["flavors"][0]["resources"][0]["nominalQuota"] = "many"
    with pytest.raises(ApiError, match="nominalQuota"):
        await api.apply(absurd)
    huge = job("huge", "lq")
    huge["metadata"]["annotations"]["example.com/huge"] = "x" * 1_000_000
    with pytest.raises(ApiError, match="annotations"):
        await api.create(huge)

    nothing = job("nothing", "lq", pods=1)
    nothing["metadata"]["annotations"][names.MIN_PARALLELISM] = "0"
    with pytest.raises(ApiError, match=names.MIN_PARALLELISM):
        await api.create(nothing)

    await api.create(job("unknown", "no-such-queue"), job("homeless", "lost"), job("stuck", "circular"))
    await api.create(job("no-flavor", "flavorless"), job("fine", "lq", runtime="300ms"))
    await api.finished("fine")

    async def inactive(name: str) -> str:
        row = condition_row(await api.get(kube.CLUSTER_QUEUES, name), "Active")
        return row.get("message", "") if row.get("status") == "False" else ""

    assert "missing" in await api.until(lambda: inactive("flavorless"), "a missing flavor is named")
    assert await api.until(lambda: inactive("circular"), "a cycle makes the queue inactive")

    async def reason(name: str) -> str:
        workload = await api.workload_of(name)
        return condition_row(workload, "QuotaReserved").get("message", "") if workload else ""

    assert "no-such-queue" in await api.until(lambda: reason("unknown"), "an unknown LocalQueue is named")
    assert "nowhere" in await api.until(lambda: reason("homeless"), "an unknown ClusterQueue is named")
    assert "circular" in await api.until(lambda: reason("stuck"), "an inactive queue is named")


async def test_hold_and_drain_evicts_and_resumes(system: System, api: Api) -> None:
    system.operator().wait_ready()
    await _queue(api)
    await api.create(job("worker", "lq", gpus=4, runtime="1500ms"))

    async def runs() -> bool:
        return (await api.get(kube.JOBS, "worker"))["spec"]["suspend"] is False

    await api.until(runs, "it runs")
    await api.client.patch(kube.CLUSTER_QUEUES, None, "cq", {"spec": {"stopPolicy": "HoldAndDrain"}})

    async def stopped() -> bool:
        workload = await api.workload_of("worker")
        held = (await api.get(kube.JOBS, "worker"))["spec"]["suspend"] is True
        return held and workload is not None and not condition(workload, "QuotaReserved")

    await api.until(stopped, "draining stops it")
    workload = await api.workload_of("worker")
    assert workload is not None
    assert condition_row(workload, "Evicted")["reason"] == "ClusterQueueStopped"
    await api.client.patch(kube.CLUSTER_QUEUES, None, "cq", {"spec": {"stopPolicy": "None"}})
    await api.finished("worker")


async def test_configuration_in_use_waits_for_its_last_user(system: System, api: Api) -> None:
    system.operator().wait_ready()
    await _queue(api)
    await api.create(job("user", "lq", gpus=1, runtime="2s"))

    async def runs() -> bool:
        return (await api.get(kube.JOBS, "user"))["spec"]["suspend"] is False

    await api.until(runs, "it runs")
    await api.client.delete(kube.CLUSTER_QUEUES, None, "cq")
    row = condition_row(await api.get(kube.CLUSTER_QUEUES, "cq"), "Active")
    assert row
    await api.finished("user")

    async def gone() -> bool:
        return "cq" not in [key_of(queue) for queue in await api.all(kube.CLUSTER_QUEUES)]

    await api.until(gone, "the queue goes when its last user has gone")
