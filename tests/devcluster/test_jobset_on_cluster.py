"""The stand-in for JobSet on the real control plane: it accepts every step, and its controllers run what comes of it."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest
import yaml

from gangline.devcluster import nodes
from gangline.devcluster.errors import DevClusterError
from gangline.devcluster.jobset.__main__ import work as play
from gangline.devcluster.jobset.controller import CRD, StandIn, install
from gangline.devcluster.nodes import EqualNodes
from gangline.kube import config
from gangline.kube.client import ApiClient
from gangline.kube.errors import NotFound
from gangline.kube.resources import (
    CUSTOM_RESOURCE_DEFINITIONS,
    JOB_SETS,
    JOBS,
    PODS,
    SERVICES,
    VALIDATING_WEBHOOKS,
    Resource,
)

pytestmark = pytest.mark.cluster

Json = dict[str, Any]
NAME = yaml.safe_load(CRD.read_text())["metadata"]["name"]
POOL = "example.com/pool"


@pytest.fixture
async def client(kubeconfig: Path) -> AsyncIterator[ApiClient]:
    async with ApiClient(config.load(kubeconfig)) as opened:
        yield opened
        with contextlib.suppress(NotFound):
            await opened.delete(CUSTOM_RESOURCE_DEFINITIONS, None, NAME)
        await until(lambda: absent(opened), "the CRD is gone")


async def absent(client: ApiClient) -> bool:
    try:
        await client.get(CUSTOM_RESOURCE_DEFINITIONS, None, NAME)
    except NotFound:
        return True
    return False


@pytest.fixture
async def at_work(client: ApiClient) -> AsyncIterator[None]:
    """The stand-in runs, on four nodes in two pools."""
    await install(client)
    await install(client)  # again, as after a restart
    pools = [EqualNodes(f"{name}pool", 2, {"google.com/tpu": 4}, {POOL: name, "zone": name}) for name in ("a", "b")]
    await nodes.create_pools(client, pools)
    ready = asyncio.Event()
    work = asyncio.create_task(StandIn(client).run(ready.set))
    await ready.wait()
    yield
    work.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await work
    for pool in pools:
        await nodes.delete_pool(client, pool.name)


async def until(condition: Callable[[], Awaitable[Any]], what: str, seconds: float = 30.0) -> Any:
    async with asyncio.timeout(seconds):
        while not (found := await condition()):
            await asyncio.sleep(0.1)
    assert found, what
    return found


def job_set(namespace: str, **spec: Any) -> Json:
    container = {"name": "main", "image": "x", "resources": {"limits": {"google.com/tpu": 4}}}
    template = {"spec": {"terminationGracePeriodSeconds": 1, "containers": [container]}}
    group = {
        "name": "slice",
        "replicas": 2,
        "template": {"spec": {"completions": 2, "parallelism": 2, "backoffLimit": 0, "template": template}},
    }
    annotations = {"alpha.jobset.sigs.k8s.io/exclusive-topology": POOL}
    return {
        "apiVersion": "jobset.x-k8s.io/v1alpha2",
        "kind": "JobSet",
        "metadata": {"name": "jax", "namespace": namespace, "annotations": annotations},
        "spec": {"replicatedJobs": [group], **spec},
    }


class Watcher:
    """One JobSet as the test sees it."""

    def __init__(self, client: ApiClient, namespace: str) -> None:
        self.client, self.namespace = client, namespace

    async def create(self, **spec: Any) -> None:
        await self.client.create(JOB_SETS, self.namespace, job_set(self.namespace, **spec))

    async def patch(self, spec: Json) -> None:
        await self.client.patch(JOB_SETS, self.namespace, "jax", {"spec": spec})

    async def pods(self) -> list[Json]:
        return (await self.client.list(PODS, self.namespace)).items

    async def runs(self, count: int = 4) -> list[Json]:
        async def running() -> list[Json]:
            pods = await self.pods()
            return pods if len(pods) == count and all(pod["status"]["phase"] == "Running" for pod in pods) else []

        return await until(running, f"{count} pods run")

    async def end(self, pods: list[Json], code: int) -> None:
        body = {"metadata": {"annotations": {"gangline.io/simulated-exit-code": str(code)}}}
        for pod in pods:
            await self.client.patch(PODS, self.namespace, pod["metadata"]["name"], body)

    async def status(self, wanted: Callable[[Json], bool]) -> Json:
        async def asked() -> Json | None:
            status = (await self.client.get(JOB_SETS, self.namespace, "jax")).get("status", {})
            return status if wanted(status) else None

        return await until(asked, "the status is as wanted")


@pytest.fixture
def watcher(client: ApiClient, namespace: str) -> Watcher:
    return Watcher(client, namespace)


async def test_each_job_runs_alone_in_a_domain_until_all_are_done(at_work: None, watcher: Watcher) -> None:
    await watcher.create()
    pods = await watcher.runs()
    where = {
        (pod["metadata"]["labels"]["jobset.sigs.k8s.io/job-index"], pod["spec"]["nodeSelector"][POOL]) for pod in pods
    }
    assert where == {("0", "a"), ("1", "b")}
    service = await watcher.client.get(SERVICES, watcher.namespace, "jax")
    assert service["spec"]["clusterIP"] == "None"
    await watcher.status(lambda status: status["replicatedJobsStatus"][0]["ready"] == 2)
    await watcher.end(pods, 0)
    status = await watcher.status(lambda status: status.get("terminalState") == "Completed")
    assert status["replicatedJobsStatus"][0]["succeeded"] == 2


async def test_suspended_and_resumed_with_another_template(at_work: None, watcher: Watcher) -> None:
    await watcher.create(suspend=True)
    await watcher.status(lambda status: status.get("replicatedJobsStatus", [{}])[0].get("suspended") == 2)
    assert await watcher.pods() == []
    await watcher.patch({"suspend": False})
    await watcher.runs()
    await watcher.patch({"suspend": True})

    async def quiet() -> bool:
        return not await watcher.pods()

    await until(quiet, "no pods are left")
    await watcher.status(lambda status: status["replicatedJobsStatus"][0]["active"] == 0)
    [group] = job_set(watcher.namespace)["spec"]["replicatedJobs"]
    group["replicas"] = 1
    group["template"]["spec"]["template"]["spec"]["nodeSelector"] = {"zone": "b"}
    await watcher.patch({"suspend": False, "replicatedJobs": [group]})

    async def moved() -> bool:
        pods = await watcher.pods()
        return any(pod["spec"]["nodeSelector"] == {"zone": "b", POOL: "b"} for pod in pods)

    await until(moved, "the Job runs where the new template says")


@pytest.mark.parametrize("strategy", ["Recreate", "BlockingRecreate"])
async def test_restarts_and_the_end_of_them(at_work: None, watcher: Watcher, strategy: str) -> None:
    await watcher.create(failurePolicy={"maxRestarts": 1, "restartStrategy": strategy})
    first = await watcher.runs()
    await watcher.end(first[:1], 1)
    old = {pod["metadata"]["uid"] for pod in first}

    async def replaced() -> list[Json]:
        pods = [pod for pod in await watcher.pods() if pod["metadata"]["uid"] not in old]
        return pods if len(pods) == 4 and all(pod["status"]["phase"] == "Running" for pod in pods) else []

    second = await until(replaced, "all pods are new")
    await watcher.status(lambda status: status["restarts"] == 1)
    await watcher.end(second[:1], 1)
    status = await watcher.status(lambda status: status.get("terminalState") == "Failed")
    failed = next(row for row in status["conditions"] if row["type"] == "Failed")
    assert failed["reason"] == "ReachedMaxRestarts"

    async def only_the_failed_job_is_left() -> bool:
        jobs = (await watcher.client.list(JOBS, watcher.namespace)).items
        return len(jobs) == 1

    await until(only_the_failed_job_is_left, "what still ran is taken down")


async def test_it_does_not_fight_the_real_one(client: ApiClient) -> None:
    crd = yaml.safe_load(CRD.read_text())
    del crd["metadata"]["labels"]
    await client.create(CUSTOM_RESOURCE_DEFINITIONS, None, crd)
    with pytest.raises(DevClusterError, match="has JobSet itself"):
        await install(client)


async def test_it_steps_aside_for_good_when_jobset_itself_arrives(client: ApiClient, watcher: Watcher) -> None:
    ready = asyncio.Event()
    work = asyncio.create_task(play(client, ready.set))
    await ready.wait()
    await watcher.create(suspend=True)
    await until(lambda: exists(client, JOBS, watcher.namespace), "the stand-in makes its Jobs")
    webhooks = {
        "apiVersion": "admissionregistration.k8s.io/v1",
        "kind": "ValidatingWebhookConfiguration",
        "metadata": {"name": "jobset-validating-webhook-configuration"},
    }
    ready.clear()  # before they are there: the stand-in may see them sooner than their creator hears of it
    await client.create(VALIDATING_WEBHOOKS, None, webhooks)
    try:
        await ready.wait()
        for job in (await client.list(JOBS, watcher.namespace)).items:
            await client.delete(JOBS, watcher.namespace, job["metadata"]["name"], propagation="Background")
        await asyncio.sleep(2)
        assert (await client.list(JOBS, watcher.namespace)).items == [], "it makes none any more"
        assert not work.done(), "and it does not end, as whoever started it would take that for a failure"

        ready.clear()
        another = asyncio.create_task(play(client, ready.set))
        await ready.wait()
        assert (await client.list(JOBS, watcher.namespace)).items == [], "one that is started later does nothing at all"
        another.cancel()
    finally:
        await client.delete(VALIDATING_WEBHOOKS, None, "jobset-validating-webhook-configuration")
        work.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await work


async def exists(client: ApiClient, resource: Resource, namespace: str) -> bool:
    return bool((await client.list(resource, namespace)).items)
