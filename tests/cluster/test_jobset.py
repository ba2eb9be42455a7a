"""JobSets, above all those of the published GKE recipe, from `kubectl apply` to the end.

The stand-in plays the JobSet controller. The recipe's manifests say nothing of simulation, so pods end on the test's word.
"""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from tests.cluster import harness
from tests.cluster.conftest import System
from tests.cluster.harness import Api, cluster_queue, condition, condition_row, flavor, job, local_queue, priority_class
from tests.cluster.stand_in import StandIn, uninstall

from gangline.devcluster.nodes import EqualNodes, create_pools, delete_pool
from gangline.kube import resources as kube
from gangline.kube.errors import NotFound

pytestmark = pytest.mark.cluster

Json = dict[str, Any]
EXAMPLE = Path(__file__).parents[2] / "examples" / "gke-hotswap"
POOL = "cloud.google.com/gke-nodepool"
NAME = "jobset.sigs.k8s.io/jobset-name"


def manifests(name: str) -> list[Json]:
    return list(yaml.safe_load_all((EXAMPLE / name).read_text()))


@pytest.fixture
async def jobset(system: System, api: Api) -> AsyncIterator[StandIn]:
    """Two slices of four nodes, as the recipe has them; the stand-in is the test's to start."""
    stand_in = StandIn(system)
    pools = [EqualNodes(**pool) for pool in yaml.safe_load((EXAMPLE / "simulated" / "node-pools.yaml").read_text())]
    await create_pools(api.client, pools)
    yield stand_in
    await uninstall(api, stand_in)
    await api.wipe()
    for pool in pools:
        await delete_pool(api.client, pool.name)
    for found in manifests("10-priority-classes.yaml"):
        with contextlib.suppress(NotFound):
            await api.client.delete(kube.PRIORITY_CLASSES, None, found["metadata"]["name"])


async def pods_of(api: Api, name: str, *, running: bool = True) -> list[Json]:
    pods = await api.all(kube.PODS, "default", f"{NAME}={name}")
    return [pod for pod in pods if not running or pod["status"].get("phase") == "Running"]


async def runs(api: Api, name: str, pods: int = 8) -> None:
    async def running() -> bool:
        return len(await pods_of(api, name)) == pods

    await api.until(running, f"{name} runs with {pods} pods")


async def end_pods(api: Api, name: str, exit_code: int = 0) -> None:
    for pod in await pods_of(api, name):
        body = {"metadata": {"annotations": {"gangline.io/simulated-exit-code": str(exit_code)}}}
        await api.client.patch(kube.PODS, "default", pod["metadata"]["name"], body)


async def completed(api: Api, name: str) -> None:
    async def done() -> bool:
        return condition(await api.get(kube.JOB_SETS, name), "Completed")

    await api.until(done, f"{name} is complete")

    async def accounted() -> bool:
        workload = await api.workload_of(name)
        return workload is not None and condition(workload, "Finished")

    await api.until(accounted, f"the Workload of {name} is finished")


async def test_the_recipes_jobset_is_held_admitted_runs_and_finishes(system: System, api: Api, jobset: StandIn) -> None:
    jobset.start()
    await api.apply(*manifests("10-priority-classes.yaml"), *manifests("20-queues.yaml"))
    await api.apply(*manifests("30-low-jax-trillium.yaml"))
    written = await api.get(kube.JOB_SETS, "low-jax-trillium")
    assert written["spec"]["suspend"] is True, "the webhook holds a JobSet that names a queue"
    assert written["metadata"]["labels"]["kueue.x-k8s.io/queue-name"] == "default-queue"
    assert "kueue.x-k8s.io/priority-class" not in written["metadata"]["labels"]

    system.operator().wait_ready()
    await runs(api, "low-jax-trillium")
    workload = await api.workload_of("low-jax-trillium")
    assert workload is not None
    assert workload["metadata"]["name"].startswith("jobset-low-jax-trillium-")
    assert workload["spec"]["priority"] == 1000000
    assert workload["spec"]["priorityClassRef"]["kind"] == "PriorityClass"
    [assignment] = workload["status"]["admission"]["podSetAssignments"]
    assert (assignment["name"], assignment["count"]) == ("slice", 8)
    assert assignment["flavors"] == {"google.com/tpu": "tpu-v6e-slice"}
    assert assignment["resourceUsage"] == {"google.com/tpu": "32"}

    places: dict[str, set[str]] = {}
    for pod in await pods_of(api, "low-jax-trillium"):
        node = await api.get(kube.NODES, pod["spec"]["nodeName"])
        job = pod["metadata"]["labels"]["jobset.sigs.k8s.io/job-index"]
        places.setdefault(job, set()).add(node["metadata"]["labels"][POOL])
        assert pod["spec"]["nodeSelector"]["cloud.google.com/gke-tpu-accelerator"] == "tpu-v6e-slice"
        assert pod["metadata"]["labels"]["kueue.x-k8s.io/podset"] == "slice"
    assert sorted(places) == ["0", "1"]
    assert sorted(pool for pools in places.values() for pool in pools) == ["pool0", "pool1"], (
        "each slice alone in its pool"
    )

    await end_pods(api, "low-jax-trillium")
    await completed(api, "low-jax-trillium")
    finished = await api.workload_of("low-jax-trillium")
    assert finished is not None
    assert condition_row(finished, "Finished")["message"] == "jobset completed successfully"
    assert len(await api.all(kube.WORKLOADS)) == 1, "its Jobs are not queued themselves"


async def test_admission_by_priority_high_displaces_low_and_low_resumes(
    system: System, api: Api, jobset: StandIn
) -> None:
    """The operator is there before JobSet is, as in a cluster where somebody installs it later."""
    system.operator().wait_ready()
    jobset.start()
    await api.apply(*manifests("10-priority-classes.yaml"), *manifests("20-queues.yaml"))
    [manifest] = manifests("30-low-jax-trillium.yaml")
    tried = await api.client.create(kube.JOB_SETS, "default", manifest, query={"dryRun": "All"})
    await api.apply(manifest)
    await runs(api, "low-jax-trillium")

    await api.apply(*manifests("40-high-jax-trillium.yaml"))
    await runs(api, "high-jax-trillium")
    low = await api.get(kube.JOB_SETS, "low-jax-trillium")
    assert low["spec"]["suspend"] is True
    assert low["spec"] == tried["spec"], "put back exactly as it was stored"
    assert await pods_of(api, "low-jax-trillium", running=False) == []
    workload = await api.workload_of("low-jax-trillium")
    assert workload is not None
    assert condition_row(workload, "Preempted")["reason"] == "InClusterQueue"
    assert not condition(workload, "QuotaReserved")

    await end_pods(api, "high-jax-trillium")
    await completed(api, "high-jax-trillium")
    await runs(api, "low-jax-trillium")
    await end_pods(api, "low-jax-trillium")
    await completed(api, "low-jax-trillium")


async def test_a_failed_pod_restarts_the_whole_jobset_within_its_admission(
    system: System, api: Api, jobset: StandIn
) -> None:
    system.operator().wait_ready()
    jobset.start()
    await api.apply(*manifests("10-priority-classes.yaml"), *manifests("20-queues.yaml"))
    await api.apply(*manifests("30-low-jax-trillium.yaml"))
    await runs(api, "low-jax-trillium")
    before = {pod["metadata"]["uid"] for pod in await pods_of(api, "low-jax-trillium")}
    [victim, *_] = await pods_of(api, "low-jax-trillium")
    body = {"metadata": {"annotations": {"gangline.io/simulated-exit-code": "1"}}}
    await api.client.patch(kube.PODS, "default", victim["metadata"]["name"], body)

    async def restarted() -> bool:
        now = {pod["metadata"]["uid"] for pod in await pods_of(api, "low-jax-trillium")}
        return len(now) == 8 and not now & before

    await api.until(restarted, "all pods are new")
    found = await api.get(kube.JOB_SETS, "low-jax-trillium")
    assert (found["status"]["restarts"], found["spec"]["suspend"]) == (1, False)
    workload = await api.workload_of("low-jax-trillium")
    assert workload is not None
    assert condition(workload, "Admitted")
    assert not condition(workload, "Evicted")


async def test_a_slice_that_succeeded_keeps_its_room_while_its_jobset_may_start_over(
    system: System, api: Api, jobset: StandIn
) -> None:
    """On the room of that slice a second JobSet would start, and the two would have three slices for two afterwards."""
    system.operator().wait_ready()
    jobset.start()
    await api.apply(*manifests("10-priority-classes.yaml"), *manifests("20-queues.yaml"))
    await api.apply(*manifests("40-high-jax-trillium.yaml"))
    await runs(api, "high-jax-trillium")
    [other] = manifests("30-low-jax-trillium.yaml")
    other["spec"]["replicatedJobs"][0]["replicas"] = 1
    await api.apply(other)
    await end_slice(api, "high-jax-trillium", "0", 0)

    async def slice_done() -> bool:
        found = await api.get(kube.JOB_SETS, "high-jax-trillium")
        return found["status"]["replicatedJobsStatus"][0]["succeeded"] == 1

    await api.until(slice_done, "a slice has succeeded")
    await end_slice(api, "high-jax-trillium", "1", 1)

    async def restarted() -> bool:
        return (await api.get(kube.JOB_SETS, "high-jax-trillium"))["status"]["restarts"] == 1

    await api.until(restarted, "all of it starts over")
    await runs(api, "high-jax-trillium")
    workload = await api.workload_of("low-jax-trillium")
    assert workload is not None
    assert not condition(workload, "QuotaReserved")
    assert await pods_of(api, "low-jax-trillium", running=False) == []


async def end_slice(api: Api, name: str, index: str, exit_code: int) -> None:
    body = {"metadata": {"annotations": {"gangline.io/simulated-exit-code": str(exit_code)}}}
    for pod in await pods_of(api, name):
        if pod["metadata"]["labels"]["jobset.sigs.k8s.io/job-index"] == index:
            await api.client.patch(kube.PODS, "default", pod["metadata"]["name"], body)


def small(name: str, queue: str, **labels: str) -> Json:
    container = {"name": "main", "image": "x", "resources": {"limits": {"nvidia.com/gpu": "2"}}}
    pods = {"spec": {"restartPolicy": "Never", "terminationGracePeriodSeconds": 1, "containers": [container]}}
    job = {"metadata": {"labels": labels}, "spec": {"parallelism": 2, "completions": 2, "template": pods}}
    return {
        "apiVersion": "jobset.x-k8s.io/v1alpha2",
        "kind": "JobSet",
        "metadata": {"name": name, "namespace": "default", "labels": {"kueue.x-k8s.io/queue-name": queue}},
        "spec": {"replicatedJobs": [{"name": "Workers", "replicas": 2, "template": job}]},
    }


async def test_child_jobs_that_carry_the_queue_label_are_left_to_their_jobset(
    system: System, api: Api, jobset: StandIn
) -> None:
    jobset.start()
    await api.apply(flavor(labels={"gangline.io/node-pool": "gpu"}), cluster_queue("cq", 8), local_queue("lq", "cq"))
    body = small("queued", "lq", **{"kueue.x-k8s.io/queue-name": "lq"})
    body["spec"]["replicatedJobs"][0]["name"] = "workers"
    await api.create(body)
    system.operator().wait_ready()
    await runs(api, "queued", 4)
    children = await api.all(kube.JOBS, "default")
    assert [child["metadata"]["labels"]["kueue.x-k8s.io/queue-name"] for child in children] == ["lq", "lq"]
    [workload] = await api.all(kube.WORKLOADS)
    assert workload["spec"]["podSets"][0]["count"] == 4

    for pod in await api.all(kube.PODS, "default", "jobset.sigs.k8s.io/job-index=0"):
        done = {"metadata": {"annotations": {"gangline.io/simulated-exit-code": "0"}}}
        await api.client.patch(kube.PODS, "default", pod["metadata"]["name"], done)

    async def reclaimed() -> bool:
        found = await api.workload_of("queued")
        return found is not None and found["status"].get("reclaimablePods") == [{"name": "workers", "count": 2}]

    await api.until(reclaimed, "what the first Job used is reclaimable")
    await end_pods(api, "queued")
    await completed(api, "queued")


async def test_a_jobset_moves_to_a_flavor_with_a_label_of_another_key(
    system: System, api: Api, jobset: StandIn
) -> None:
    """What JobSet resumes keeps the node selector that it had: with both labels no node would do."""
    jobset.start()
    labels = {"spot": {"example.com/spot": "true"}, "steady": {"example.com/tier": "steady"}}
    await create_pools(api.client, [EqualNodes(name, 1, {"nvidia.com/gpu": 8}, said) for name, said in labels.items()])
    flavors = [flavor(name, said) for name, said in labels.items()]
    preemption = {"withinClusterQueue": "LowerPriority"}
    queue = cluster_queue("cq", 8, flavors=labels, preemption=preemption)
    await api.apply(*flavors, queue, local_queue("lq", "cq"), priority_class("urgent", 10))
    body = small("mover", "lq")
    body["spec"]["replicatedJobs"][0]["name"] = "workers"
    await api.create(body)
    system.operator().wait_ready()
    await runs(api, "mover", 4)
    assert {pod["spec"]["nodeName"] for pod in await pods_of(api, "mover")} == {"spot-0"}

    urgent = job("urgent", "lq", gpus=8, runtime="1h", priority="urgent")
    urgent["spec"]["template"]["spec"]["nodeSelector"] = labels["spot"]
    await api.create(urgent)

    async def moved() -> bool:
        return [pod["spec"]["nodeName"] for pod in await pods_of(api, "mover")] == ["steady-0"] * 4

    await api.until(moved, "all of it runs on the other flavor")
    await api.client.delete(kube.JOBS, "default", "urgent", propagation="Background")
    await end_pods(api, "mover")
    await completed(api, "mover")

    async def idle() -> bool:
        return not await api.all(kube.PODS, "default", "batch.kubernetes.io/job-name=urgent")

    await api.until(idle, "its pod is gone")
    for name in labels:
        await delete_pool(api.client, name)


async def test_what_a_jobset_may_not_change_is_refused(system: System, api: Api, jobset: StandIn) -> None:
    jobset.start()
    await api.apply(flavor(), cluster_queue("cq", 8), local_queue("lq", "cq"))
    crowd = small("crowd", "lq")
    crowd["spec"]["replicatedJobs"] = [{**crowd["spec"]["replicatedJobs"][0], "name": name} for name in ("a", "A")]
    with pytest.raises(harness.ApiError, match=r"spec.replicatedJobs\[1\].name"):
        await api.create(crowd)
    unnamed = small("", "lq")
    unnamed["metadata"] = {**unnamed["metadata"], "name": None, "generateName": "run-"}
    [made] = await api.create(unnamed)
    assert made["metadata"]["name"].startswith("run-")
    assert made["spec"]["suspend"] is True
    free = small("free", "")
    del free["metadata"]["labels"]
    free["spec"]["replicatedJobs"][0]["name"] = "workers"
    await api.create(free)
    assert "suspend" not in (await api.get(kube.JOB_SETS, "free"))["spec"]
    relabel = {"metadata": {"labels": {"kueue.x-k8s.io/queue-name": "lq"}}}
    with pytest.raises(harness.ApiError, match="queue-name"):
        await api.client.patch(kube.JOB_SETS, "default", "free", relabel)
