"""Plain pods and pod groups in queues, on a real API server: gates, finalizers, owner references and deletions are its own."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from tests.cluster.conftest import System
from tests.cluster.harness import (
    Api,
    WebhookProcess,
    cluster_queue,
    condition,
    condition_row,
    flavor,
    job,
    local_queue,
    priority_class,
    wait_until,
)
from tests.cluster.queued_pods import CONFIGURATION, gang, pod

from gangline.api import names
from gangline.api.read import configuration
from gangline.kube import resources as kube
from gangline.kube.errors import ApiError, NotFound

pytestmark = pytest.mark.cluster
Json = dict[str, Any]
JOBS = configuration.load(CONFIGURATION).jobs


@pytest.fixture
async def queueing(system: System, api: Api, tmp_path: Path) -> AsyncIterator[System]:
    """Operator and webhooks queue plain pods; there is a queue of 16 GPUs."""
    file = tmp_path / "config.yaml"
    file.write_text(yaml.safe_dump(CONFIGURATION))
    system.webhooks.stop()
    webhooks = WebhookProcess(system.webhooks.kubeconfig, system.directory, arguments=("--config", str(file))).start()
    await api.apply(
        flavor(labels={"gangline.io/node-pool": "gpu"}),
        cluster_queue("cq", 16, preemption={"withinClusterQueue": "LowerPriority"}),
        local_queue("lq", "cq"),
        priority_class("low", 10),
        priority_class("high", 1000),
    )

    async def gated_at_birth() -> bool:
        stored = await api.client.create(kube.PODS, "default", pod("dry", "lq"), query={"dryRun": "All"})
        return {"name": names.ADMISSION_GATE} in stored["spec"].get("schedulingGates", [])

    await api.until(gated_at_birth, "the webhooks gate pods that name a queue")
    yield system
    system.kill_operators()
    await unfinalize(api)
    webhooks.stop()
    system.webhooks.start()


async def unfinalize(api: Api) -> None:
    """What a test leaves behind goes, though no operator runs."""
    for each in await api.all(kube.PODS, "default"):
        try:
            await api.client.patch(kube.PODS, "default", each["metadata"]["name"], {"metadata": {"finalizers": None}})
            await api.client.delete(kube.PODS, "default", each["metadata"]["name"], grace_seconds=0)
        except NotFound:
            continue


async def pods_of(api: Api, group: str) -> list[Json]:
    return await api.all(kube.PODS, "default", f"{names.POD_GROUP}={group}")


async def running(api: Api, group: str) -> int:
    return sum(each["status"].get("phase") == "Running" for each in await pods_of(api, group))


def gated(each: Json) -> bool:
    return bool(each["spec"].get("schedulingGates"))


async def ungated(api: Api, group: str) -> int:
    return sum(not gated(each) for each in await pods_of(api, group))


async def test_a_single_pod_waits_runs_and_is_let_go(queueing: System, api: Api) -> None:
    await api.apply(cluster_queue("cq", 8))
    await api.create(pod("alone", "lq", gpus=8, runtime="1s"), pod("next", "lq", gpus=8, runtime="1s"))
    stored = await api.get(kube.PODS, "alone")
    assert stored["metadata"]["labels"][names.MANAGED] == "true"
    assert stored["metadata"]["finalizers"] == [names.MANAGED]
    assert len(stored["metadata"]["annotations"][names.ROLE_HASH]) == 8
    queueing.operator(jobs=JOBS).wait_ready()

    async def finished(name: str) -> bool:
        workload = await api.workload_of(name)
        return workload is not None and condition(workload, "Finished")

    await api.until(lambda: finished("alone"), "the first pod has run")
    await api.until(lambda: finished("next"), "then the second one has")
    workload = await api.workload_of("alone")
    assert workload is not None
    assert workload["metadata"]["name"].startswith("pod-alone-")
    assert condition_row(workload, "Finished")["reason"] == "Succeeded"

    async def let_go() -> bool:
        found = await api.all(kube.PODS, "default")
        return all(not each["metadata"].get("finalizers") for each in found)

    await api.until(let_go, "the pods have lost their finalizers")
    ran = await api.get(kube.PODS, "alone")
    assert ran["spec"]["nodeSelector"] == {"gangline.io/node-pool": "gpu"}
    assert ran["metadata"]["labels"][names.CLUSTER_QUEUE_LABEL] == "cq"
    assert ran["metadata"]["labels"][names.LOCAL_QUEUE_LABEL] == "lq"


async def test_a_group_of_two_roles_starts_when_it_is_complete(queueing: System, api: Api) -> None:
    queueing.operator(jobs=JOBS).wait_ready()
    pods = gang("train", "lq", {1: 6, 2: 2})
    await api.create(*pods[:7])

    async def says_that_it_waits() -> bool:
        events = await api.all(kube.EVENTS, "default")
        return any("fewer runnable pods than expected" in (each.get("note") or "") for each in events)

    await api.until(says_that_it_waits, "an event says that the group is incomplete")
    assert not await api.all(kube.WORKLOADS, "default")
    assert await ungated(api, "train") == 0
    await api.create(pods[7])

    async def all_run() -> bool:
        return await running(api, "train") == 8

    await api.until(all_run, "all 8 pods run")
    workload = await api.get(kube.WORKLOADS, "train")
    assert workload["metadata"]["annotations"][names.IS_GROUP_WORKLOAD] == "true"
    owners = workload["metadata"]["ownerReferences"]
    assert {row["name"] for row in owners} == {each["metadata"]["name"] for each in pods}
    assert not any(row.get("controller") for row in owners)
    sets = workload["spec"]["podSets"]
    assert sorted(row["count"] for row in sets) == [2, 6]
    assert [row["name"] for row in sets] == sorted(row["name"] for row in sets)

    async def ready() -> bool:
        return condition(await api.get(kube.WORKLOADS, "train"), "PodsReady")

    await api.until(ready, "the Workload says that its pods are ready")

    # one pod too many goes, and is the newest one
    await api.create(pod("train-late", "lq", group="train", total=8))

    async def without_excess() -> bool:
        return {each["metadata"]["name"] for each in await pods_of(api, "train")} == {
            each["metadata"]["name"] for each in pods
        }

    async def excess_deleted() -> bool:
        events = await api.all(kube.EVENTS, "default")
        return any(each.get("reason") == "ExcessPodDeleted" for each in events)

    await api.until(excess_deleted, "an event says that a pod was too many")
    await api.until(without_excess, "the pod that is too many is gone")
    assert await running(api, "train") == 8

    # a pod fails: it stays until another one takes its place
    await api.client.delete(kube.PODS, "default", "train-0")

    async def waits_for_replacement() -> bool:
        return condition(await api.get(kube.WORKLOADS, "train"), names.WAITING_FOR_REPLACEMENT)

    await api.until(waits_for_replacement, "the Workload waits for a replacement")
    await api.get(kube.PODS, "train-0")
    await api.create(pod("train-0b", "lq", group="train", total=8))
    await api.until(all_run, "the replacement runs")
    await api.until(without_first(api), "the replaced pod is gone")

    async def complete() -> bool:
        row = condition_row(await api.get(kube.WORKLOADS, "train"), names.WAITING_FOR_REPLACEMENT)
        return row["status"] == "False"

    await api.until(complete, "the group is complete")

    # all pods are deleted: nothing is left, and the quota is free
    for each in await pods_of(api, "train"):
        await api.client.delete(kube.PODS, "default", each["metadata"]["name"])

    async def empty() -> bool:
        return not await pods_of(api, "train") and not await api.all(kube.WORKLOADS, "default")

    await api.until(empty, "the group and its Workload are gone")

    async def freed() -> bool:
        status = (await api.get(kube.CLUSTER_QUEUES, "cq"))["status"]
        return status["flavorsUsage"][0]["resources"][0]["total"] == "0"

    await api.until(freed, "its quota is free")


def without_first(api: Api) -> Any:
    async def gone() -> bool:
        return all(each["metadata"]["name"] != "train-0" for each in await pods_of(api, "train"))

    return gone


async def test_a_group_is_preempted_as_a_whole_and_returns(queueing: System, api: Api) -> None:
    queueing.operator(jobs=JOBS).wait_ready()
    await api.create(*gang("victim", "lq", {2: 8}, priority="low"))

    async def victim_runs() -> bool:
        return await running(api, "victim") == 8

    await api.until(victim_runs, "the victim runs")
    await api.create(*gang("urgent", "lq", {2: 8}, priority="high", runtime="2s"))

    async def urgent_runs() -> bool:
        victims = [each for each in await pods_of(api, "victim") if each["status"].get("phase") == "Running"]
        if await running(api, "urgent"):
            assert not victims, "no pod of the victim runs beside the group that preempted it"
        return condition(await api.get(kube.WORKLOADS, "urgent"), "Admitted")

    await api.until(urgent_runs, "the urgent group is admitted")
    victim = await api.get(kube.WORKLOADS, "victim")
    assert condition_row(victim, "Evicted")["reason"] == "Preempted"
    held = await pods_of(api, "victim")
    assert len(held) == 8, "the pods stay until they are replaced"
    assert all(condition_row(each, "TerminationTarget")["reason"] == "WorkloadEvictedDueToPreempted" for each in held)

    async def urgent_finished() -> bool:
        return condition(await api.get(kube.WORKLOADS, "urgent"), "Finished")

    await api.until(urgent_finished, "the urgent group finishes")
    row = condition_row(await api.get(kube.WORKLOADS, "urgent"), "Finished")
    assert (row["reason"], row["message"]) == ("Succeeded", "Pods succeeded: 8/8.")

    # without replacements it does not start again; with all of them it does
    replacements = gang("victim", "lq", {2: 8}, priority="low")
    for each in replacements:
        each["metadata"]["name"] += "-again"
    await api.create(*replacements[:7])

    async def replaced() -> bool:
        return len([each for each in await pods_of(api, "victim") if "deletionTimestamp" in each["metadata"]]) == 1

    await api.until(replaced, "seven pods are replaced")
    victim = await api.get(kube.WORKLOADS, "victim")
    assert condition(victim, names.WAITING_FOR_REPLACEMENT)
    assert not condition(victim, "QuotaReserved")
    await api.create(replacements[7])
    await api.until(victim_runs, "the victim runs again")


async def test_an_operator_that_dies_half_way_through_ungating_leaves_no_partial_gang(
    queueing: System, api: Api
) -> None:
    """Operators that write one object at a time, and die after three writes each, until some pods are started. The next starts
    the rest.
    """
    await api.create(*gang("train", "lq", {2: 8}))
    while not await ungated(api, "train"):
        dying = queueing.operator("dying", fault="after:3", jobs=JOBS, max_writes=1)
        wait_until(lambda process=dying.process: not process.is_alive(), 30, "the operator dies")
    assert await ungated(api, "train") < 8
    queueing.operator("next", jobs=JOBS).wait_ready()

    async def all_run() -> bool:
        return await running(api, "train") == 8

    await api.until(all_run, "all 8 pods run")

    # deleting the Workload ends the group
    await api.client.delete(kube.WORKLOADS, "default", "train")

    async def empty() -> bool:
        return not await pods_of(api, "train") and not await api.all(kube.WORKLOADS, "default")

    await api.until(empty, "pods and Workload are gone")


async def test_what_pods_may_say_is_checked(queueing: System, api: Api) -> None:
    lonely = pod("lonely", "lq")
    lonely["metadata"]["labels"][names.POD_GROUP] = "train"
    with pytest.raises(ApiError, match=r"both the 'kueue.x-k8s.io/pod-group-total-count' annotation and the"):
        await api.create(lonely)
    [stored] = await api.create(pod("one", "lq", group="train", total=2))
    assert gated(stored)
    with pytest.raises(ApiError, match="field is immutable"):
        await api.client.patch(kube.PODS, "default", "one", {"metadata": {"labels": {names.POD_GROUP: "other"}}})
    free = pod("free", "")
    del free["metadata"]["labels"][names.QUEUE_NAME]
    [stored] = await api.create(free)
    assert not gated(stored)


async def test_pods_of_a_queued_job_wait_with_it_alone(queueing: System, api: Api) -> None:
    """Even where their template names the queue: they are not queued a second time."""
    queueing.operator(jobs=JOBS).wait_ready()
    body = job("train", "lq", pods=2, runtime="1s")
    body["spec"]["template"]["metadata"]["labels"] = {names.QUEUE_NAME: "lq"}
    await api.create(body)
    await api.finished("train")
    [workload] = await api.all(kube.WORKLOADS, "default")
    assert workload["metadata"]["name"].startswith("job-train-")
    assert not any(names.MANAGED in each["metadata"]["labels"] for each in await api.all(kube.PODS, "default"))
