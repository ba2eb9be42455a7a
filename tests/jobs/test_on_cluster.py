"""The real API server accepts every step, and the real controllers run what comes of it."""

from __future__ import annotations

import asyncio
import contextlib
import uuid
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import yaml
from tests.jobs.support import Json

from gangline.devcluster.nodes import EqualNodes, create_pools, delete_pool
from gangline.jobs import workload
from gangline.jobs.base import Children, Create, Delete, JobKind, Patch, PodSetInfo
from gangline.jobs.gpujob import GPUJobKind
from gangline.jobs.job import BatchJob
from gangline.kube import config
from gangline.kube import resources as kube
from gangline.kube.client import ApiClient
from gangline.kube.errors import AlreadyExists, Conflict, Invalid, NotFound
from gangline.kube.resources import Resource
from gangline.objects import JobObject, WorkloadObject

pytestmark = pytest.mark.cluster

CRDS = Path(__file__).parents[2] / "crds"
TIMEOUT = 60.0  # seconds


@dataclass
class Cluster:
    """One test's namespace and node pool."""

    client: ApiClient
    namespace: str
    pool: dict[str, str]

    def info(self, name: str, count: int, **more: Any) -> PodSetInfo:
        return PodSetInfo(name, count, node_selector=self.pool, **more)

    async def get(self, kind: JobKind, name: str) -> JobObject:
        return JobObject(await self.client.get(kind.resource, self.namespace, name))

    async def mine(self, resource: Resource, owner: Json) -> list[JobObject]:
        found = map(JobObject, (await self.client.list(resource, self.namespace)).items)
        uid = owner["metadata"]["uid"]
        return [item for item in found if uid in [row["uid"] for row in item.owners]]

    async def patch(self, kind: JobKind, job: Json, patch: Patch) -> JobObject:
        body = {**patch.body}
        body["metadata"] = {**body.get("metadata", {}), "resourceVersion": job["metadata"]["resourceVersion"]}
        name = job["metadata"]["name"]
        return JobObject(
            await self.client.patch(kind.resource, self.namespace, name, body, subresource=patch.subresource)
        )

    async def turn(self, kind: JobKind, name: str, decide: Callable[[Json], Patch | None]) -> None:
        """Decide from the newest state and write it, again when another controller was faster."""

        async def attempt() -> Json | None:
            job = await self.get(kind, name)
            patch = decide(job)
            assert patch is not None
            with contextlib.suppress(Conflict):
                return await self.patch(kind, job, patch)
            return None

        await _until(attempt, f"{kind.kind} {name}")

    async def sync(self, name: str, infos: Sequence[PodSetInfo] | None) -> tuple[Json, Children]:
        """One round of what the operator does for a GPUJob."""
        kind = GPUJobKind()
        job = await self.get(kind, name)
        children = Children(await self.mine(kube.JOBS, job), await self.mine(kube.SERVICES, job))
        for write in kind.sync(job, infos, children):
            match write:
                case Patch():
                    with contextlib.suppress(Conflict):  # seen too late: the next round decides again
                        job = await self.patch(kind, job, write)
                case Create(resource, body):
                    await self.client.create(resource, self.namespace, body)
                case Delete(resource, namespace, child, uid, propagation):
                    with contextlib.suppress(NotFound):
                        await self.client.delete(resource, namespace, child, propagation=propagation, uid=uid)
        return job, children

    async def sync_until(
        self, name: str, infos: Sequence[PodSetInfo] | None, done: Callable[[Json, Children], bool]
    ) -> Json:
        async def step() -> Json | None:
            job, children = await self.sync(name, infos)
            return job if done(job, children) else None

        return await _until(step, f"GPUJob {name}")


async def _until(step: Callable[[], Awaitable[Json | None]], what: str) -> Json:
    async with asyncio.timeout(TIMEOUT):
        while True:
            if (found := await step()) is not None:
                return found
            await asyncio.sleep(0.2)
    raise AssertionError(what)


@pytest.fixture
async def cluster(control_plane: Any) -> AsyncIterator[Cluster]:
    name = f"jobs-{uuid.uuid4().hex[:8]}"
    async with ApiClient(config.load(control_plane.kubeconfig)) as client:
        await client.create(
            kube.NAMESPACES, None, {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}}
        )
        await _install(client, "gangline.io_gpujobs.yaml")
        await create_pools(client, [EqualNodes(name, 2, {"nvidia.com/gpu": 8}, {"test-pool": name})])
        try:
            yield Cluster(client, name, {"test-pool": name})
        finally:
            await delete_pool(client, name)
            await client.delete(kube.NAMESPACES, None, name)


async def _install(client: ApiClient, crd: str) -> None:
    body = yaml.safe_load((CRDS / crd).read_text())
    with contextlib.suppress(AlreadyExists):
        await client.create(kube.CUSTOM_RESOURCE_DEFINITIONS, None, body)

    async def served() -> Json | None:
        with contextlib.suppress(NotFound):
            await client.list(kube.GPU_JOBS)
            return {}
        return None

    await _until(served, crd)


def _pods(runtime: str = "") -> Json:
    container = {"name": "main", "image": "train:1", "resources": {"requests": {"cpu": "1"}}}
    annotations = {"gangline.io/simulated-runtime": runtime} if runtime else {}
    return {"metadata": {"annotations": annotations}, "spec": {"containers": [container], "restartPolicy": "Never"}}


async def test_a_job_is_started_stopped_and_started_elsewhere(cluster: Cluster):
    kind = BatchJob()
    body = {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {"name": "train", "annotations": {"kueue.x-k8s.io/job-min-parallelism": "1"}},
        "spec": {"suspend": True, "parallelism": 3, "completions": 3, "template": _pods()},
    }
    job = JobObject(await cluster.client.create(kube.JOBS, cluster.namespace, body))
    original, pod_sets = job["spec"], kind.pod_sets(job)
    built = workload.build(kind, job, pod_sets, queue="q", priority=0)

    info = cluster.info(
        "main", 2, tolerations=[{"key": "gpu", "operator": "Exists"}], labels={"l": "v"}, annotations={"a": "v"}
    )
    await cluster.turn(kind, "train", lambda now: kind.start(now, [info]))

    async def running() -> Json | None:
        now = await cluster.get(kind, "train")
        return now if kind.pods_ready(now) else None

    job = await _until(running, "the Job's pods")
    assert job["status"]["active"] == 2
    assert kind.is_active(job, Children())
    built["status"] = {"admission": {"podSetAssignments": [{"name": "main", "count": 2}]}}
    assert workload.equivalent(WorkloadObject(built), kind.pod_sets(job), job)

    steps = 0

    async def stopped() -> Json | None:
        nonlocal steps
        now = await cluster.get(kind, "train")
        patch = kind.stop(now, pod_sets)
        if patch is None:
            return now if kind.is_suspended(now) else None
        with contextlib.suppress(Conflict):  # the Job controller wrote in between
            await cluster.patch(kind, now, patch)
            steps += 1
        return None

    job = await _until(stopped, "the stop")
    assert steps in (2, 3), "newer Job controllers clear the start time by themselves"
    assert not kind.is_active(job, Children())
    assert job["spec"] == original
    del built["status"]
    assert workload.equivalent(WorkloadObject(built), kind.pod_sets(job), job)

    await cluster.turn(kind, "train", lambda now: kind.start(now, [cluster.info("main", 3)]))
    job = await _until(running, "the Job's pods again")
    assert job["status"]["active"] == 3


def _gpu_job(name: str, **spec: Any) -> Json:
    return {
        "apiVersion": "gangline.io/v1alpha1",
        "kind": "GPUJob",
        "metadata": {"name": name},
        "spec": {
            "suspend": True,
            "workers": 4,
            "gpusPerWorker": 2,
            "framework": "PyTorch",
            "template": _pods(),
            **spec,
        },
    }


async def _start(cluster: Cluster, body: Json) -> list[PodSetInfo]:
    kind = GPUJobKind()
    job = JobObject(await cluster.client.create(kube.GPU_JOBS, cluster.namespace, body))
    infos = [cluster.info(item["name"], item["count"]) for item in kind.pod_sets(job)]
    name = job["metadata"]["name"]
    await cluster.sync_until(name, None, lambda now, _: now.get("status", {}).get("phase") == "Pending")
    await cluster.turn(kind, name, lambda now: kind.start(now, infos))
    return infos


async def test_a_gang_runs_is_held_and_runs_to_its_end(cluster: Cluster):
    kind = GPUJobKind()
    infos = await _start(cluster, _gpu_job("llama"))
    job = await cluster.sync_until("llama", infos, lambda now, _: kind.pods_ready(now))
    assert job["status"]["phase"] == "Running"
    assert job["status"]["ready"] == "4/4"
    assert job["status"]["gpus"] == 8

    pods = (await cluster.client.list(kube.PODS, cluster.namespace)).items
    assert sorted(pod["spec"]["hostname"] for pod in pods) == [f"llama-worker-{index}" for index in range(4)]
    assert {pod["spec"]["subdomain"] for pod in pods} == {"llama"}
    service = await cluster.client.get(kube.SERVICES, cluster.namespace, "llama")
    assert service["spec"]["clusterIP"] == "None"

    await cluster.turn(kind, "llama", lambda now: kind.stop(now, kind.pod_sets(now)))
    await cluster.sync_until("llama", None, lambda now, children: not kind.is_active(now, children))
    assert (await cluster.client.list(kube.PODS, cluster.namespace)).items == []
    await cluster.sync_until("llama", None, lambda now, _: now["status"]["phase"] == "Pending")

    await cluster.turn(kind, "llama", lambda now: kind.start(now, infos))
    await cluster.sync_until("llama", infos, lambda now, _: kind.pods_ready(now))
    for pod in (await cluster.client.list(kube.PODS, cluster.namespace)).items:
        body = {"metadata": {"annotations": {"gangline.io/simulated-exit-code": "0"}}}
        await cluster.client.patch(kube.PODS, cluster.namespace, pod["metadata"]["name"], body)
    job = await cluster.sync_until("llama", infos, lambda now, _: kind.finished(now) is not None)
    outcome = kind.finished(job)
    assert outcome is not None
    assert outcome.success
    assert job["status"]["phase"] == "Succeeded"
    assert job["status"]["roles"] == [{"name": "worker", "replicas": 4, "ready": 0, "succeeded": 4, "failed": 0}]


async def test_a_failed_pod_restarts_the_gang_and_then_fails_it(cluster: Cluster):
    kind = GPUJobKind()
    template = _pods("1s")
    template["metadata"]["annotations"]["gangline.io/simulated-exit-code"] = "7"
    infos = await _start(cluster, _gpu_job("broken", template=template, restart={"maxRestarts": 1}))
    job = await cluster.sync_until("broken", infos, lambda now, _: kind.finished(now) is not None)
    outcome = kind.finished(job)
    assert outcome is not None
    assert not outcome.success
    assert outcome.message.startswith("worker: ")
    assert job["status"]["restarts"] == 1


async def test_a_template_that_the_api_server_rejects_fails_the_job(cluster: Cluster):
    kind = GPUJobKind()
    template = _pods()
    template["spec"]["containers"][0]["imagePullPolicy"] = "Sometimes"
    infos = await _start(cluster, _gpu_job("odd", template=template))
    with pytest.raises(Invalid) as refused:
        await cluster.sync("odd", infos)
    await cluster.turn(kind, "odd", lambda now: kind.rejected(now, refused.value.message))
    job = await cluster.sync_until("odd", infos, lambda now, _: kind.finished(now) is not None)
    outcome = kind.finished(job)
    assert outcome is not None
    assert "spec.template.spec.containers[0].imagePullPolicy" in outcome.message
