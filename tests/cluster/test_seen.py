"""What a user with rights in one namespace sees when something else than quota is in the way: nodes, kinds, limits, names."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from tests.cluster import harness
from tests.cluster.conftest import System
from tests.cluster.test_answers import HERE, Person, people

from gangline.control.process.operator_process import ForecastOptions
from gangline.kube.resources import JOBS, PODS, Resource

__all__ = ["people"]

pytestmark = pytest.mark.cluster
Json = dict[str, Any]
DEPLOYMENTS = Resource("apps", "v1", "deployments", kind="Deployment")
NODE = "gpu-3"
QUEUE = "kueue.x-k8s.io/queue-name"
#: the unmanaged pod's namespace
SECRET_NAMESPACE = "secret-team"


def hoarder(name: str, gpus: int) -> Json:
    """A pod outside of any queue."""
    container = {"name": "c", "image": "i", "resources": {"limits": {"nvidia.com/gpu": str(gpus)}}}
    spec = {"containers": [container], "nodeSelector": {"kubernetes.io/hostname": NODE}}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name, "namespace": SECRET_NAMESPACE}, "spec": spec}


def deployment(name: str) -> Json:
    pods = {"metadata": {"labels": {"app": name}}, "spec": {"containers": [{"name": "c", "image": "i"}]}}
    meta = {"name": name, "namespace": "default", "labels": {QUEUE: "mine"}}
    spec = {"replicas": 0, "selector": {"matchLabels": {"app": name}}, "template": pods}
    return {"apiVersion": "apps/v1", "kind": "Deployment", "metadata": meta, "spec": spec}


async def test_a_user_hears_what_is_in_the_way(
    system: System, api: harness.Api, people: dict[str, Person], tmp_path: Path
) -> None:
    forecasts = ForecastOptions(str(tmp_path / "history.db"), tmp_path / "model.gz", use_model=False)
    system.operator("seen", visibility=HERE, forecasts=forecasts).wait_ready()
    alice = people["alice"]
    one_node = harness.flavor("one", {"kubernetes.io/hostname": NODE})
    limited = harness.cluster_queue("limited", 4, cohort="lab")
    limited["spec"]["resourceGroups"][0]["flavors"][0]["resources"][0]["borrowingLimit"] = "0"
    await api.apply(
        *(one_node, harness.flavor(), harness.cluster_queue("small", 8, flavors=("one",)), limited),
        *(harness.cluster_queue("spare", 8, cohort="lab"), harness.local_queue("mine", "small")),
        harness.local_queue("narrow", "limited"),
    )
    await api.client.create(PODS, SECRET_NAMESPACE, hoarder("hoarder", 6))

    async def said(*arguments: str) -> str:
        result = await alice.run(*arguments)
        assert result.exit_code == 0, result.output
        assert SECRET_NAMESPACE not in result.output and "hoarder" not in result.output, "another team's name"
        return result.stdout

    async def until(words: str, *arguments: str) -> str:
        async def there() -> bool:
            return words in (await alice.run(*arguments)).stdout

        await api.until(there, f"{' '.join(arguments)} says {words!r}")
        return await said(*arguments)

    # a kind that is not queued
    await api.client.create(DEPLOYMENTS, "default", deployment("serving"))
    queue = await until("serving", "queue")
    assert "Not managed" in queue and '"deployment" is not listed in integrations.frameworks' in queue
    assert '"deployment" is not listed in integrations.frameworks' in await said("why", "serving")

    # a pod outside of any queue is where the job would run
    await api.create(harness.job("crowded", "mine", gpus=8, runtime="600s"))
    why = await until("WaitingForCapacity", "why", "crowded")
    assert "one: 2 GPUs of 8 free on 1 node" in why
    assert "outside of any queue: hidden-" in why and "(6 GPUs)" in why
    await api.client.delete(JOBS, "default", "crowded", propagation="Background")

    # admitted, and its pod waits for another one, which only the scheduler knows
    admitted = harness.job("admitted", "mine", gpus=2, runtime="600s")
    beside = {"labelSelector": {"matchLabels": {"app": "nobody"}}, "topologyKey": "kubernetes.io/hostname"}
    affinity = {"podAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [beside]}}
    admitted["spec"]["template"]["spec"]["affinity"] = affinity
    await api.create(admitted)
    why = await until("not scheduled", "why", "admitted")
    assert "1 of 1 pods not scheduled" in why and "pod affinity" in why
    assert "1 pod is not scheduled" in await said("queue")
    (node,) = [each for each in json.loads(await said("nodes", "-o", "json")) if each["metadata"]["name"] == NODE]
    assert (node["flavors"], node["used"]["nvidia.com/gpu"]) == (["gpu", "one"], "6")
    assert "outside queues, 6" in await said("nodes")

    # a borrowing limit, which is not a full cluster
    await api.create(harness.job("runs", "narrow", gpus=4, runtime="600s"))
    await until("Running", "queue", "-q", "limited")
    waits = harness.job("waits", "narrow", gpus=4, runtime="60s")
    waits["metadata"]["annotations"] = {"gangline.io/expected-runtime": "banana"}
    await api.create(waits)
    why = await until("borrowingLimit of ClusterQueue limited (0) binds", "why", "waits")
    assert "'banana' is ignored" in why
    assert "borrowingLimit of gpu in ClusterQueue limited +4 nvidia.com/gpu (an administrator): starts now" in why
    assert "job/runs (4, running" in why and "ends in" in why

    # what was promised
    await until("waits", "eta")
    await until("first promise: after runs ends", "eta", "waits", "--history")

    # names that do not exist
    lacks = harness.job("lacks", "mine", priority="gold")
    await api.create(lacks)
    assert "gold" in await until("Not queued", "why", "lacks")
    assert "Not queued" in await said("queue")

    # wider than any node
    await api.create(harness.job("wide", "mine", gpus=16))
    assert "each pod of main asks 16 GPUs, and no node of one has more than 8" in await until(
        "never fit", "why", "wide"
    )
    assert "Never fits" in await said("queue")
    await api.client.delete(DEPLOYMENTS, "default", "serving")
    await api.client.delete(PODS, SECRET_NAMESPACE, "hoarder")
