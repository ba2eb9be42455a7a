"""RayClusters and RayJobs that an autoscaler sizes: they grow and shrink beside Jobs, and no quota is given twice."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from bench.revisions import Revisions
from tests.cluster.conftest import System
from tests.cluster.harness import Api, WebhookProcess, cluster_queue, condition, flavor, job, local_queue
from tests.cluster.ray_clusters import CLUSTERS, JOBS, cluster_spec, create, elastic, pods_of, resize, served, states
from tests.cluster.test_elastic import admitted, slices, usage

from gangline.api import names
from gangline.api.read import configuration
from gangline.kube import resources as kube

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(300)]
Json = dict[str, Any]
CONFIGURATION: Json = {
    "apiVersion": "config.kueue.x-k8s.io/v1beta2",
    "kind": "Configuration",
    "integrations": {"frameworks": ["batch/job", "ray.io/raycluster", "ray.io/rayjob"]},
}


@pytest.fixture
async def with_ray(system: System, api: Api, tmp_path: Path) -> AsyncIterator[System]:
    file = tmp_path / "config.yaml"
    file.write_text(yaml.safe_dump(CONFIGURATION))
    system.webhooks.stop()
    webhooks = WebhookProcess(system.webhooks.kubeconfig, system.directory, arguments=("--config", str(file))).start()
    async with served(api):
        system.operator(jobs=configuration.load(CONFIGURATION).jobs).wait_ready()
        yield system
    await api.delete_pods()
    system.kill_operators()
    webhooks.stop()
    system.webhooks.start()


async def test_a_ray_cluster_scales_4_16_4_beside_jobs(with_ray: System, api: Api) -> None:
    await api.apply(flavor(labels={"gangline.io/node-pool": "gpu"}), cluster_queue("cq", 20), local_queue("lq", "cq"))
    async with Revisions.of(api.official) as revisions:
        spec = cluster_spec(4, enableInTreeAutoscaling=False)
        made = await create(api, CLUSTERS, elastic("RayCluster", "grows", spec))
        gates = made["spec"]["workerGroupSpecs"][0]["template"]["spec"]["schedulingGates"]
        assert gates == [{"name": names.ELASTIC_GATE}]

        async def running(workers: int) -> bool:
            return await states(api, "grows") == {"Running": workers + 1}

        await api.until(lambda: running(4), "head and four workers run")
        first = {pod["metadata"]["uid"] for pod in await pods_of(api, "grows")}
        before = [job(f"before-{i}", "lq", pods=4, gpus=2, runtime="6s") for i in range(2)]
        await api.create(*before)

        async def full() -> bool:
            return await usage(api) == 20

        await api.until(full, "the Jobs have the rest of the quota")
        await resize(api, "grows", 16)

        async def waits() -> bool:
            return (await states(api, "grows"))["gated"] == 12 and len(await slices(api, "grows")) == 2

        await api.until(waits, "twelve workers wait, and the cluster goes on")
        assert (await states(api, "grows"))["Running"] == 5
        await api.create(*(job(f"after-{i}", "lq", pods=2, gpus=4, runtime="1s") for i in range(3)))
        await api.until(lambda: running(16), "all sixteen run", 90)
        assert await usage(api) == 16
        assert first < {pod["metadata"]["uid"] for pod in await pods_of(api, "grows")}, "no pod was started anew"
        await resize(api, "grows", 4)
        await api.until(lambda: running(4), "four are left")
        await api.finished(*(f"before-{i}" for i in range(2)), *(f"after-{i}" for i in range(3)), seconds=90)

        async def settled() -> bool:
            own = await slices(api, "grows")
            live = [each for each in own if admitted(each)]
            over = [each for each in own if condition(each, "Finished")]
            sizes = [{row["name"]: row["count"] for row in each["spec"]["podSets"]} for each in live]
            return sizes == [{"head": 1, "workers": 4}] and len(over) == len(own) - 1 and await usage(api) == 4

        await api.until(settled, "one slice holds quota for what runs")
        proof = await revisions.settle()
    assert not proof.violations, proof.violations
    assert proof.checked >= 30
    assert (await api.get(CLUSTERS, "grows"))["spec"]["suspend"] is False


async def test_a_ray_job_follows_the_cluster_that_an_autoscaler_sizes(with_ray: System, api: Api) -> None:
    amounts = {"nvidia.com/gpu": 8, "cpu": 100, "memory": "1Ti"}
    resources = [{"name": name, "nominalQuota": amount} for name, amount in amounts.items()]
    groups = [{"coveredResources": list(amounts), "flavors": [{"name": "gpu", "resources": resources}]}]
    await api.apply(flavor(), cluster_queue("cq", 0, resourceGroups=groups), local_queue("lq", "cq"))
    spec = {
        "entrypoint": "python train.py",
        "shutdownAfterJobFinishes": True,
        "submissionMode": "HTTPMode",
        "rayClusterSpec": cluster_spec(2, enableInTreeAutoscaling=True),
    }
    await create(api, JOBS, elastic("RayJob", "tunes", spec))

    async def running(workers: int) -> bool:
        return await states(api, "tunes-cluster") == {"Running": workers + 1}

    await api.until(lambda: running(2), "head and two workers run")
    await resize(api, "tunes-cluster", 6)
    await api.until(lambda: running(6), "six workers run")

    async def one_of(workers: int) -> bool:
        live = [each for each in await slices(api, "tunes") if admitted(each)]
        return len(live) == 1 and live[0]["spec"]["podSets"][1]["count"] == workers

    await api.until(lambda: one_of(6), "a slice of the RayJob has quota for them")
    assert not await slices(api, "tunes-cluster"), "the cluster is not queued itself"
    await resize(api, "tunes-cluster", 1)
    await api.until(lambda: one_of(1), "the quota of the others is free")

    # it is stopped as a whole, and comes back as its user wrote it
    await api.client.patch(kube.CLUSTER_QUEUES, None, "cq", {"spec": {"stopPolicy": "HoldAndDrain"}})

    async def stopped() -> bool:
        held = (await api.get(JOBS, "tunes"))["spec"].get("suspend") is True
        return held and not await pods_of(api, "tunes-cluster")

    await api.until(stopped, "it is suspended, and its pods are gone")
    await api.client.patch(kube.CLUSTER_QUEUES, None, "cq", {"spec": {"stopPolicy": "None"}})
    # Kubernetes deletes its former cluster in the foreground, and looks for kinds that are new only twice a minute
    await api.until(lambda: running(2), "it runs with two workers again", 120)
    await api.until(lambda: one_of(2), "and has quota for them")
