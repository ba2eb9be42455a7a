"""Jobs of every kind whose nodes fail, in every awkward way: what is lost is replaced, once, and nothing else is touched."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
from collections.abc import AsyncIterator
from typing import Any

import pytest
from tests.cluster.conftest import System
from tests.cluster.harness import (
    Api,
    OperatorProcess,
    cluster_queue,
    condition,
    condition_row,
    flavor,
    gpu_job,
    job,
    local_queue,
    priority_class,
    queue_policy,
)
from tests.examples import sampled

from gangline.api.read.workloads import admissions, swap_record
from gangline.devcluster.nodes import EqualNodes, create_pools, delete_pool, fail_node, recover_node
from gangline.engine import model
from gangline.kube import resources as kube
from gangline.kube.errors import NotFound

pytestmark = pytest.mark.cluster

Json = dict[str, Any]
FIELD = "swap-field"
#: Each test has nodes of names of its own: where one that failed comes back under its name at once, Kubernetes' node controller
#: still takes it for not ready, and makes a pod that starts there unready for good, as no kubelet says otherwise.
POOLS = itertools.count()


@pytest.fixture
async def nodes(system: System, api: Api) -> AsyncIterator[list[str]]:
    """Six nodes with eight GPUs each, and a queue for them whose policy trusts a repaired node at once."""
    pool = EqualNodes(f"swap{next(POOLS)}", 6, {"nvidia.com/gpu": 8}, {"field": FIELD})
    await create_pools(api.client, [pool])
    policy = queue_policy("swap", "swap", recovery={"soak": "1s", "tolerationSeconds": 120})
    queue = cluster_queue("swap", 48, preemption={"withinClusterQueue": "LowerPriority"})
    await api.apply(flavor(labels={"field": FIELD}), queue, local_queue("swap", "swap"), policy)
    yield pool.node_names
    system.kill_operators()
    await api.delete_pods()
    await api.wipe()
    await delete_pool(api.client, pool.name)
    with contextlib.suppress(NotFound):
        await api.client.delete(kube.QUEUE_POLICIES, None, "swap")


def gang(name: str, pods: int, **changes: Any) -> Json:
    """An Indexed Job of pods that fill a node each and run until they are asked to end; no failure is forgiven."""
    made = job(name, "swap", pods=pods, gpus=8, runtime="", **changes)
    made["spec"]["completionMode"] = "Indexed"
    return made


async def up(api: Api, name: str) -> list[Json]:
    pods = await api.all(kube.PODS, "default", f"batch.kubernetes.io/job-name={name}")
    return [p for p in pods if p["status"].get("phase") == "Running" and "deletionTimestamp" not in p["metadata"]]


async def runs(api: Api, name: str, pods: int, off: set[str] = frozenset()) -> list[Json]:
    async def complete() -> list[Json]:
        found = await up(api, name)
        good = len(found) == pods and not {pod["spec"]["nodeName"] for pod in found} & off
        return found if good else []

    return await api.until(complete, f"{name} runs with {pods} pods off {sorted(off)}", 120)


async def started(system: System, api: Api, *jobs: Json, operator: str = "operator") -> list[list[Json]]:
    """The jobs are created before the operator starts, and run: the pods of each."""
    await api.create(*jobs)
    system.operator(operator).wait_ready()
    return [await runs(api, *_pods(made)) for made in jobs]


def _pods(made: Json) -> tuple[str, int]:
    """Under which name a job's pods are found, and how many they are."""
    name, spec = made["metadata"]["name"], made["spec"]
    return (f"{name}-worker", spec["workers"]) if made["kind"] == "GPUJob" else (name, spec["parallelism"])


async def recovered(api: Api, name: str, times: int = 1) -> Json:
    async def done() -> Json | None:
        found = await api.workload_of(name)
        assert found is not None
        over = [swap for swap in swap_record.of(found).log if not swap.open]
        return found if len(over) >= times and condition(found, "Recovered") else None

    return await api.until(done, f"{name} has recovered {times} times", 120)


def uids(pods: list[Json]) -> dict[str, str]:
    return {pod["metadata"]["name"]: pod["metadata"]["uid"] for pod in pods}


async def test_only_the_lost_pods_of_an_indexed_job_move(system: System, api: Api, nodes: list[str]) -> None:
    [before] = await started(system, api, gang("train", 3))
    tolerations = before[0]["spec"]["tolerations"]
    assert {t.get("tolerationSeconds") for t in tolerations} == {120}, "as the policy has it"
    victim = before[1]
    await fail_node(api.client, victim["spec"]["nodeName"])
    workload = await recovered(api, "train")
    after = await runs(api, "train", 3, {victim["spec"]["nodeName"]})
    stayed = uids(before).items() & uids(after).items()
    assert len(stayed) == 2, "the others went on"
    [fresh] = [pod for pod in after if pod["metadata"]["name"] not in uids(before)]
    index = "batch.kubernetes.io/job-completion-index"
    assert fresh["metadata"]["labels"][index] == victim["metadata"]["labels"][index]
    found = await api.get(kube.JOBS, "train")
    assert not condition(found, "Failed"), "a pod lost with its node is no failure of the job: backoffLimit is 0"
    assert not found["status"].get("failed")
    assert condition(workload, "Admitted")
    assert condition_row(workload, "Recovered")["reason"] == "Swapped"
    swap = swap_record.of(workload).log[0]
    assert (swap.how, swap.cause, swap.lost) == ("Replace", "NotReady", (victim["spec"]["nodeName"],))
    assert swap.to == (fresh["spec"]["nodeName"],)

    await recover_node(api.client, victim["spec"]["nodeName"])

    await api.until(lambda: gone(api, victim), "the pod that was left behind ends with its node's return")
    assert uids(await up(api, "train")) == uids(after)


async def test_a_failure_while_no_operator_runs_is_healed_by_the_next_one(
    system: System, api: Api, nodes: list[str]
) -> None:
    [before] = await started(system, api, gang("train", 2), operator="first")
    lost = before[0]["spec"]["nodeName"]
    system.kill_operators()
    await fail_node(api.client, lost)
    system.operator("second").wait_ready()
    await recovered(api, "train")
    await runs(api, "train", 2, {lost})
    assert (await api.get(kube.JOBS, "train"))["status"].get("failed", 0) == 0


async def test_several_nodes_at_once_and_then_the_node_that_took_over(
    system: System, api: Api, nodes: list[str]
) -> None:
    [before] = await started(system, api, gang("train", 3))
    lost = {pod["spec"]["nodeName"] for pod in before[:2]}
    for node in sorted(lost):
        await fail_node(api.client, node)
    after = await runs(api, "train", 3, lost)
    [third] = (
        {pod["spec"]["nodeName"] for pod in after}
        - lost
        - {before[2]["spec"]["nodeName"]}
        - {sorted({pod["spec"]["nodeName"] for pod in after} - {before[2]["spec"]["nodeName"]})[0]}
    )
    await recovered(api, "train")
    await fail_node(api.client, third)
    await runs(api, "train", 3, lost | {third})
    workload = await recovered(api, "train", 2)
    assert swap_record.of(workload).swaps == 3
    assert not (await api.get(kube.JOBS, "train"))["status"].get("failed")


async def test_the_spare_fails_before_the_gang_is_whole_and_the_first_node_returns(
    system: System, api: Api, nodes: list[str]
) -> None:
    [before] = await started(system, api, gang("train", 2))
    lost = before[0]["spec"]["nodeName"]
    await fail_node(api.client, lost)

    async def spare() -> str | None:
        pods = await api.all(kube.PODS, "default", "batch.kubernetes.io/job-name=train")
        return next(
            (pod["spec"]["nodeName"] for pod in pods if _uid(pod) not in uids(before).values() and _bound(pod)), None
        )

    second = await api.until(spare, "its replacement is bound", period=0.02)
    await fail_node(api.client, second)
    await recover_node(api.client, lost)  # its pod, which is being deleted, ends now
    after = await runs(api, "train", 2, {second})
    assert before[1]["metadata"]["uid"] in uids(after).values(), "what was not lost goes on"
    record = swap_record.of(await recovered(api, "train"))
    assert record.swaps >= 2, "once more where the pod was bound to the second node before that was tainted"
    assert {node for swap in record.log for node in swap.lost} == {lost, second}
    assert not (await api.get(kube.JOBS, "train"))["status"].get("failed")


async def test_pods_are_deleted_by_force_only_with_evidence_or_consent(
    system: System, api: Api, nodes: list[str]
) -> None:
    made = gang("train", 2)
    made["spec"]["backoffLimit"] = 3  # Kubernetes evicts from nodes out of service at once, and that counts
    [[first, second]] = await started(system, api, made)
    out = [{"key": "node.kubernetes.io/out-of-service", "value": "nodeshutdown", "effect": "NoExecute"}]
    await fail_node(api.client, first["spec"]["nodeName"])
    await api.client.patch(kube.NODES, None, first["spec"]["nodeName"], {"spec": {"taints": out}})
    await api.until(lambda: gone(api, first), "somebody who knows said that the node is out of service")
    await recovered(api, "train")
    assert second["metadata"]["uid"] in uids(await up(api, "train")).values()

    consent = {"spec": {"recovery": {"forceDelete": True}}}
    await api.client.patch(kube.QUEUE_POLICIES, None, "swap", consent)
    await fail_node(api.client, second["spec"]["nodeName"])
    await recovered(api, "train", 2)
    await api.until(lambda: gone(api, second), "the policy consents")

    async def deletions_reported() -> bool:
        events = await api.all(kube.EVENTS, "default")
        forced = " ".join(event["note"] for event in events if event["reason"] == "PodDeletedByForce")
        return all(why in forced for why in ("its node is out of service", "by consent of the queue's policy"))

    await api.until(deletions_reported, "why each was deleted")
    await api.client.patch(kube.NODES, None, first["spec"]["nodeName"], {"spec": {"taints": None}})


async def gone(api: Api, pod: Json) -> bool:
    return _uid(pod) not in {_uid(other) for other in await api.all(kube.PODS, "default")}


def _uid(pod: Json) -> str:
    return pod["metadata"]["uid"]


def _bound(pod: Json) -> bool:
    return bool(pod["spec"].get("nodeName"))


async def test_a_node_that_is_deleted(system: System, api: Api, nodes: list[str]) -> None:
    [[lost, _]] = await started(system, api, gang("train", 2))
    await fail_node(api.client, lost["spec"]["nodeName"])
    await api.client.delete(kube.NODES, None, lost["spec"]["nodeName"])
    await runs(api, "train", 2, {lost["spec"]["nodeName"]})
    await recovered(api, "train")

    await api.until(lambda: gone(api, lost), "the pod on the node that is gone is deleted by force")
    assert not (await api.get(kube.JOBS, "train"))["status"].get("failed")


def gpu_gang(name: str, workers: int, **spec: Any) -> Json:
    return gpu_job(name, "swap", workers=workers, gpus=8, simulated="", **spec)


async def test_a_gpu_job_starts_anew_as_a_whole_and_says_why(system: System, api: Api, nodes: list[str]) -> None:
    [before] = await started(system, api, gpu_gang("llama", 3))
    lost = before[0]["spec"]["nodeName"]
    await fail_node(api.client, lost)
    after = await runs(api, "llama-worker", 3, {lost})
    assert not uids(before).keys() & uids(after).keys()
    workload = await recovered(api, "llama")
    assert condition_row(workload, "Recovered")["reason"] == "Restarted"
    assert after[0]["metadata"]["annotations"]["gangline.io/attempt"] == "1"
    found = await api.get(kube.GPU_JOBS, "llama")
    assert found["status"]["swaps"] == 1
    [interruption] = found["status"]["interruptions"]
    assert interruption["reason"] == "NodeRestart"
    assert lost in interruption["message"]
    assert not condition(found, "Failed")


async def test_a_gpu_job_may_be_queued_again_or_fail_instead(system: System, api: Api, nodes: list[str]) -> None:
    wishes = (("again", "Restart"), ("ends", "Fail"))
    made = [gpu_gang(name, 2, restart={"onNodeFailure": wish}) for name, wish in wishes]
    lost = {pods[0]["spec"]["nodeName"] for pods in await started(system, api, *made)}
    for node in sorted(lost):
        await fail_node(api.client, node)
    await runs(api, "again-worker", 2, lost)
    workload = await recovered(api, "again")
    assert swap_record.of(workload).log[0].how == "Requeue"
    evictions = workload["status"]["schedulingStats"]["evictions"]
    assert [(row["reason"], row["count"]) for row in evictions] == [("NodeFailures", 1)]

    async def failed() -> bool:
        return condition(await api.get(kube.GPU_JOBS, "ends"), "Failed")

    await api.until(failed, "the other one fails", 120)
    assert condition_row(await api.get(kube.GPU_JOBS, "ends"), "Failed")["reason"] == "NodeFailure"


@pytest.mark.parametrize("write", sampled([1, 2, 3, 5, 8]))
async def test_an_operator_that_dies_at_any_write_of_a_swap(
    system: System, api: Api, nodes: list[str], write: int
) -> None:
    """Before its write number so and so; another Job that only replaces pods, and a GPUJob that starts anew."""
    before, llama = await started(system, api, gang("train", 2), gpu_gang("llama", 2), operator="first")
    lost = {before[0]["spec"]["nodeName"], llama[0]["spec"]["nodeName"]}
    system.kill_operators()
    for node in sorted(lost):
        await fail_node(api.client, node)
    dying = system.operator("dying", fault=f"before:{write}")
    await api.until(lambda: dead(dying), "the operator dies", 40)
    system.operator("last").wait_ready()
    after = await runs(api, "train", 2, lost)
    await runs(api, "llama-worker", 2, lost)
    assert len(uids(before).items() & uids(after).items()) == 1
    for name, how in (("train", "Replace"), ("llama", "Restart")):
        record = swap_record.of(await recovered(api, name))
        assert [(swap.how, len(swap.lost)) for swap in record.log] == [(how, 1)], "one loss, one swap"
    assert record.attempt == 1
    assert not (await api.get(kube.JOBS, "train"))["status"].get("failed")
    assert not condition(await api.get(kube.GPU_JOBS, "llama"), "Failed")


async def dead(process: OperatorProcess) -> bool:
    return not process.process.is_alive()


async def test_without_room_lower_priority_makes_room_and_comes_back(
    system: System, api: Api, nodes: list[str]
) -> None:
    await api.apply(priority_class("minor", 1), priority_class("major", 10))
    jobs = gang("low", 3, priority="minor"), gang("high", 3, priority="major")
    _, before = await started(system, api, *jobs)
    lost = before[0]["spec"]["nodeName"]
    await fail_node(api.client, lost)
    await runs(api, "high", 3, {lost})
    assert len(uids(before).items() & uids(await up(api, "high")).items()) == 2
    low = await api.workload_of("low")
    assert low is not None
    assert condition(low, "Evicted")
    await recover_node(api.client, lost)
    await runs(api, "low", 3)


@contextlib.asynccontextmanager
async def racks(system: System, api: Api) -> AsyncIterator[None]:
    """Two racks of four nodes, and the queue placed on them."""
    pools = [EqualNodes(f"rack{n}", 4, {"nvidia.com/gpu": 8}, {"field": "racks", "rack": f"r{n}"}) for n in range(2)]
    await create_pools(api.client, pools)
    levels = [{"nodeLabel": "rack"}, {"nodeLabel": "kubernetes.io/hostname"}]
    topology = {"apiVersion": "kueue.x-k8s.io/v1beta2", "kind": "Topology", "metadata": {"name": "racks"}}
    placed = flavor(labels={"field": "racks"})
    placed["spec"]["topologyName"] = "racks"
    await api.apply(
        {**topology, "spec": {"levels": levels}}, placed, cluster_queue("swap", 64), local_queue("swap", "swap")
    )
    yield
    system.kill_operators()
    await api.delete_pods()
    await api.client.delete(kube.TOPOLOGIES, None, "racks")
    for pool in pools:
        await delete_pool(api.client, pool.name)


def in_one_rack(made: Json) -> Json:
    annotations = made["spec"]["template"]["metadata"]["annotations"]
    annotations["kueue.x-k8s.io/podset-required-topology"] = "rack"
    return made


async def test_a_gang_in_one_rack_gets_another_host_of_that_rack(system: System, api: Api, nodes: list[str]) -> None:
    async with racks(system, api):
        [before] = await started(system, api, in_one_rack(gang("train", 3)))
        here = {pod["spec"]["nodeName"].rpartition("-")[0] for pod in before}
        assert len(here) == 1
        victim = before[0]
        await fail_node(api.client, victim["spec"]["nodeName"])
        after = await runs(api, "train", 3, {victim["spec"]["nodeName"]})
        assert {pod["spec"]["nodeName"].rpartition("-")[0] for pod in after} == here
        assert len(uids(before).items() & uids(after).items()) == 2
        workload = await recovered(api, "train")
        assert condition_row(workload, "Recovered")["reason"] == "Swapped"
        assert not workload["status"].get("unhealthyNodes")


async def test_with_recovery_off_a_placed_gang_is_mended_as_kueue_does_it(
    system: System, api: Api, nodes: list[str]
) -> None:
    off = {"spec": {"recovery": {"enabled": False, "tolerationSeconds": None}}}
    await api.client.patch(kube.QUEUE_POLICIES, None, "swap", off)
    async with racks(system, api):
        made = in_one_rack(gang("train", 2))
        made["spec"]["backoffLimit"] = 3
        [[victim, _]] = await started(system, api, made)
        await fail_node(api.client, victim["spec"]["nodeName"], pods=False)
        await asyncio.sleep(4)
        assert len(await up(api, "train")) == 2, "as long as its pods stay, nothing happens"
        await api.client.delete(kube.PODS, "default", victim["metadata"]["name"])  # as Kubernetes does in the end
        await runs(api, "train", 2, {victim["spec"]["nodeName"]})
        workload = await api.workload_of("train")
        assert workload is not None
        assert swap_record.of(workload).log == ()
        assert not workload["status"].get("unhealthyNodes"), "it was mended"


def bare(name: str, pods: int) -> Json:
    """A Workload of nobody, whose pods need a rack with so many nodes."""
    container = {"name": "main", "image": "training", "resources": {"requests": {"nvidia.com/gpu": "8"}}}
    template = {"spec": {"containers": [container], "restartPolicy": "Never"}}
    pod_set = {"name": "main", "count": pods, "template": template, "topologyRequest": {"required": "rack"}}
    return {
        "apiVersion": "kueue.x-k8s.io/v1beta2",
        "kind": "Workload",
        "metadata": {"name": name, "namespace": "default"},
        "spec": {"queueName": "swap", "podSets": [pod_set]},
    }


async def test_a_failed_node_is_listed_until_it_returns_or_is_replaced(
    system: System, api: Api, nodes: list[str]
) -> None:
    """As in Kueue, for a Workload whose pods are not made by a job that Gangline runs."""
    waits = model.Settings(gates={"TASFailedNodeReplacementFailFast": False}, pods_ready=None)

    async def admitted() -> Json | None:
        found = await api.client.get(kube.WORKLOADS, "default", "whole")
        return found if condition(found, "Admitted") else None

    async def lists(*hosts: str) -> Json:
        async def does() -> Json | None:
            found = await api.client.get(kube.WORKLOADS, "default", "whole")
            rows = found["status"].get("unhealthyNodes") or []
            return found if tuple(row["name"] for row in rows) == hosts else None

        return await api.until(does, f"the Workload lists {hosts}", 60)

    async with racks(system, api):
        system.operator(settings=waits).wait_ready()
        await api.create(bare("whole", 4))
        before = (await api.until(admitted, "it is admitted", 60))["status"]["admission"]
        rack = hosts_of(before)[0].rpartition("-")[0]
        victim = f"{rack}-1"
        await fail_node(api.client, victim)
        await lists(victim)
        await asyncio.sleep(3)
        assert (await lists(victim))["status"]["admission"] == before, "its rack has no other node"
        await recover_node(api.client, victim)
        assert (await lists())["status"]["admission"] == before
        await api.client.delete(kube.NODES, None, victim)
        await lists(victim)
        spare = EqualNodes(f"{rack}x", 1, {"nvidia.com/gpu": 8}, {"field": "racks", "rack": f"r{rack[-1]}"})
        await create_pools(api.client, [spare])
        after = (await lists())["status"]["admission"]
        assert set(hosts_of(before)) - set(hosts_of(after)) == {victim}
        assert set(hosts_of(after)) - set(hosts_of(before)) == set(spare.node_names)
        await api.client.delete(kube.WORKLOADS, "default", "whole")
        await delete_pool(api.client, spare.name)


def hosts_of(admission: Json) -> list[str]:
    value = admissions.admission(admission)
    return [domain.values[-1] for each in value.pod_sets if each.topology for domain in each.topology.domains]


async def test_a_pod_that_may_be_deleted_by_force_is_reported_as_failed(
    system: System, api: Api, nodes: list[str]
) -> None:
    """It belongs to no gang, so Kueue's failure recovery alone looks after it."""
    node = nodes[0]
    pod = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "name": "left",
            "namespace": "default",
            "annotations": {"kueue.x-k8s.io/safe-to-forcefully-delete": "true"},
            "finalizers": ["example.com/witness"],  # it stays to be looked at
        },
        "spec": {
            "nodeName": node,
            "terminationGracePeriodSeconds": 1,
            "containers": [{"name": "main", "image": "none"}],
            "tolerations": [{"operator": "Exists"}],
        },
    }
    await api.create(pod)
    await fail_node(api.client, node)
    silent = {"type": "Ready", "status": "Unknown", "reason": "NodeStatusUnknown", "message": "simulated silence"}
    status = {"status": {"conditions": [silent]}}  # the node controller taints the node
    await api.client.patch(kube.NODES, None, node, status, kind="strategic", subresource="status")
    settings = model.Settings(gates={"FailureRecoveryPolicy": True})
    system.operator(
        "recovering",
        settings=settings,
        replaced={"gangline.control.nodes.recovery.stuck_pods:PATIENCE": 1_000},
    ).wait_ready()
    await api.client.delete(kube.PODS, "default", "left")

    async def failed() -> Json | None:
        found = await api.get(kube.PODS, "left")
        rows = found["status"].get("conditions", ())
        done = any(row["type"] == "KueueFailureRecovery" for row in rows)
        return found if done and not found["metadata"]["deletionGracePeriodSeconds"] else None

    found = await api.until(failed, "the pod has failed and is deleted by force", 60)
    assert found["status"]["phase"] == "Failed"
    assert condition_row(found, "KueueFailureRecovery")["reason"] == "KueueForcefullyDeleted"

    async def deletion_reported() -> bool:
        events = await api.all(kube.EVENTS, "default")
        return any(e["reason"] == "KueueForcefullyDeleted" and e["regarding"]["name"] == "left" for e in events)

    await api.until(deletion_reported, "its event", 30)
    await api.client.patch(kube.PODS, "default", "left", {"metadata": {"finalizers": None}})
