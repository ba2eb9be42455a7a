"""Gangs are whole on nodes: what is admitted runs, by kube-scheduler's own scores, whatever else is applied at the same time."""

from __future__ import annotations

from collections import Counter
from collections.abc import AsyncIterator

import pytest
from tests.cluster.conftest import System
from tests.cluster.harness import (
    Api,
    Json,
    cluster_queue,
    condition,
    condition_row,
    flavor,
    gpu_job,
    job,
    local_queue,
)

from gangline.api import names
from gangline.devcluster.nodes import EqualNodes, create_pools, delete_pool
from gangline.kube import resources as kube

pytestmark = pytest.mark.cluster

LABELS = {"example.com/whole": "yes"}
POOL = EqualNodes("whole", 8, {"nvidia.com/gpu": 8}, LABELS)
GPUS = 64
UNBOUND = "gangline.engine.recovery.losses"


@pytest.fixture
async def nodes(api: Api) -> AsyncIterator[None]:
    await create_pools(api.client, [POOL])
    yield
    await api.delete_pods()
    await delete_pool(api.client, POOL.name)


async def start(system: System, api: Api, **replaced: int) -> None:
    system.operator(replaced={f"{UNBOUND}:{name}": value for name, value in replaced.items()}).wait_ready()
    await api.apply(flavor(labels=LABELS), cluster_queue("cq", GPUS), local_queue("lq", "cq"))


def pod(name: str, gpus: int, *, node: str = "", **labels: str) -> Json:
    limits = {"resources": {"limits": {"nvidia.com/gpu": str(gpus)}}}
    where = {"nodeSelector": {"kubernetes.io/hostname": node}} if node else {}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "namespace": "default", "labels": labels},
        "spec": {"containers": [{"name": "c", "image": "x", **limits}], **where},
    }


async def use_of_nodes(api: Api) -> Counter[str]:
    """GPUs of running pods by node."""
    found = Counter[str]()
    for each in await api.all(kube.PODS, "default"):
        if each["status"].get("phase") == "Running":
            found[each["spec"]["nodeName"]] += int(
                each["spec"]["containers"][0]["resources"]["limits"]["nvidia.com/gpu"]
            )
    return found


async def all_run(api: Api, gpus: int, *, pods: int = 0) -> Counter[str]:
    """The use of nodes once so many GPUs are in use, by at least so many pods."""

    async def running() -> bool:
        there = [each for each in await api.all(kube.PODS, "default") if each["status"].get("phase") == "Running"]
        return len(there) >= pods and sum((await use_of_nodes(api)).values()) == gpus

    await api.until(running, f"{gpus} GPUs are in use")
    return await use_of_nodes(api)


@pytest.mark.usefixtures("nodes")
async def test_whole_nodes_and_single_gpus_that_are_applied_at_once_all_run(system: System, api: Api) -> None:
    """The scheduler would spread the eight pods with one GPU each over eight nodes, and leave none whole."""
    await start(system, api)
    await api.create(job("ones", "lq", pods=8, gpus=1, runtime="1h"), job("eights", "lq", pods=7, gpus=8, runtime="1h"))
    assert set((await all_run(api, GPUS)).values()) == {8}


@pytest.mark.usefixtures("nodes")
async def test_a_gang_of_whole_nodes_runs_beside_jobs_that_came_before(system: System, api: Api) -> None:
    await start(system, api)
    small = [job(f"small-{number}", "lq", pods=1, gpus=2, runtime="1h") for number in range(12)]
    await api.create(*small)
    await all_run(api, 24)
    await api.create(job("gang", "lq", pods=5, gpus=8, runtime="1h"))
    assert set((await all_run(api, GPUS)).values()) == {8}
    gang = await api.workload_of("gang")
    assert gang is not None and condition(gang, "Admitted")
    template = (await api.get(kube.JOBS, "gang"))["spec"]["template"]["spec"]
    assert "affinity" not in template, "a pod that replaces another may go to another node"
    assert template["schedulingGates"] == [{"name": names.DOMAIN_GATE}]


@pytest.mark.usefixtures("nodes")
async def test_jobs_and_gpu_jobs_run_beside_each_other_until_every_node_is_full(system: System, api: Api) -> None:
    await start(system, api)
    await api.create(
        job("ones", "lq", pods=8, gpus=1, runtime="1h"),
        gpu_job("eights", "lq", workers=5, gpus=8, simulated="1h"),
        job("fours", "lq", pods=4, gpus=4, runtime="1h"),
    )
    assert set((await all_run(api, GPUS)).values()) == {8}


@pytest.mark.usefixtures("nodes")
async def test_a_replacement_and_a_restarted_operator_keep_to_the_plan(system: System, api: Api) -> None:
    await start(system, api)
    jobs = [job("ones", "lq", pods=8, gpus=1, runtime="1h"), job("eights", "lq", pods=7, gpus=8, runtime="1h")]
    for each in jobs:
        each["spec"]["backoffLimit"] = 6
    await api.create(*jobs)
    await all_run(api, GPUS)
    system.kill_operators()
    pods = await api.all(kube.PODS, "default")
    gone = [next(each for each in pods if each["metadata"]["name"].startswith(f"{job}-")) for job in ("ones", "eights")]
    for each in gone:
        await api.client.delete(kube.PODS, "default", each["metadata"]["name"])
    system.operator("second").wait_ready()
    assert set((await all_run(api, GPUS)).values()) == {8}
    names_now = {each["metadata"]["name"] for each in await api.all(kube.PODS, "default")}
    assert names_now.isdisjoint(each["metadata"]["name"] for each in gone)


@pytest.mark.usefixtures("nodes")
async def test_room_that_pods_of_others_take_is_nobodys(system: System, api: Api) -> None:
    await start(system, api)
    await api.create(pod("foreign", 1, node="whole-0"))
    await all_run(api, 1)
    await api.create(job("eights", "lq", pods=8, gpus=8, runtime="1h"))

    async def waits() -> bool:
        found = await api.workload_of("eights")
        return found is not None and "insufficient healthy capacity" in str(found.get("status"))

    await api.until(waits, "the gang waits for nodes, and holds nothing")
    await api.client.delete(kube.PODS, "default", "foreign")
    assert set((await all_run(api, GPUS)).values()) == {8}


PORTS = [{"containerPort": 4000, "hostPort": 4000}]


def with_a_port(body: Json) -> Json:
    """Its pods use a port of the node. The engine sends one to a node, and does not know which ports of nodes others use."""
    spec = body["spec"] if body["kind"] == "Pod" else body["spec"]["template"]["spec"]
    spec["containers"][0]["ports"] = PORTS
    return body


@pytest.mark.usefixtures("nodes")
async def test_a_pod_that_the_scheduler_refuses_on_its_node_gets_another_one(system: System, api: Api) -> None:
    await start(system, api, TOLERATED=2_000)
    await api.create(with_a_port(pod("neighbour", 0, node="whole-0")))
    await all_run(api, 0, pods=1)
    await api.create(with_a_port(job("gang", "lq", pods=7, gpus=8, runtime="1h")))
    used = await all_run(api, 56)
    assert used["whole-0"] == 0
    assert not (await api.get(kube.JOBS, "gang"))["status"].get("failed"), "a deleted pod counts as no failure"
    events = [each["reason"] for each in await api.all(kube.EVENTS, "default")]
    assert "PodsUnschedulable" in events and "Recovered" in events


@pytest.mark.usefixtures("nodes")
async def test_a_gang_that_fits_nowhere_gives_its_quota_to_others(system: System, api: Api) -> None:
    await start(system, api, TOLERATED=2_000)
    await api.create(with_a_port(pod("neighbour", 0, node="whole-0")))
    await all_run(api, 0, pods=1)
    await api.create(with_a_port(job("gang", "lq", pods=8, gpus=8, runtime="1h")))

    async def evicted() -> bool:
        found = await api.workload_of("gang")
        return found is not None and condition(found, "Evicted")

    await api.until(evicted, "the gang is sent back to its queue")
    gang = await api.workload_of("gang")
    assert gang is not None
    row = condition_row(gang, "Evicted")
    assert row["reason"] == "NodeFailures"
    assert "can't be bound to node whole-0, where room is kept for it: 0/" in row["message"]
    assert gang["status"]["requeueState"]["count"] == 1
    await api.create(job("others", "lq", pods=8, gpus=8, runtime="1h"))
    assert set((await all_run(api, GPUS)).values()) == {8}
