"""Deployments, StatefulSets and LeaderWorkerSets as users write them, and a system that queues them."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import yaml
from tests.cluster import leader_worker_sets
from tests.cluster.harness import Api, WebhookProcess, cluster_queue, condition, flavor, local_queue, priority_class
from tests.cluster.leader_worker_sets import Controller

from gangline.api import names
from gangline.api.jobkinds import own
from gangline.kube import resources as kube
from gangline.kube.errors import NotFound

if TYPE_CHECKING:
    from tests.cluster.conftest import System

Json = dict[str, Any]
#: plain pods are not listed: those of the other kinds are queued all the same
CONFIGURATION: Json = {
    "apiVersion": "config.kueue.x-k8s.io/v1beta2",
    "kind": "Configuration",
    "integrations": {"frameworks": ["batch/job", *(each.framework for each in own.SERVING_KINDS)]},
}


def template(gpus: int = 1, image: str = "example.com/serve:1", **labels: str) -> Json:
    """Of pods that serve until they are asked to end."""
    container = {"name": "main", "image": image, "resources": {"limits": {"nvidia.com/gpu": str(gpus)}}}
    return {
        "metadata": {"labels": labels},
        "spec": {
            "terminationGracePeriodSeconds": 1,
            "tolerations": [{"operator": "Exists"}],
            "containers": [container],
        },
    }


def _head(api_version: str, kind: str, name: str, queue: str, priority: str) -> Json:
    labels = {names.QUEUE_NAME: queue} if queue else {}
    labels |= {names.PRIORITY_CLASS: priority} if priority else {}
    return {
        "apiVersion": api_version,
        "kind": kind,
        "metadata": {"name": name, "namespace": "default", "labels": labels},
    }


def deployment(name: str, queue: str, replicas: int, *, priority: str = "", **given: Any) -> Json:
    return {
        **_head("apps/v1", "Deployment", name, queue, priority),
        "spec": {
            "replicas": replicas,
            "selector": {"matchLabels": {"app": name}},
            "template": template(**given, app=name),
        },
    }


def stateful_set(
    name: str, queue: str, replicas: int, *, priority: str = "", policy: str = "OrderedReady", **given: Any
) -> Json:
    return {
        **_head("apps/v1", "StatefulSet", name, queue, priority),
        "spec": {
            "replicas": replicas,
            "serviceName": name,
            "podManagementPolicy": policy,
            "selector": {"matchLabels": {"app": name}},
            "template": template(**given, app=name),
        },
    }


def leader_worker_set(
    name: str, queue: str, replicas: int, size: int, *, priority: str = "", startup: str = "LeaderCreated", **given: Any
) -> Json:
    """With a leader template of its own."""
    both = {
        "size": size,
        "restartPolicy": "RecreateGroupOnPodRestart",
        "leaderTemplate": template(**given, app=name),
        "workerTemplate": template(**given, app=name),
    }
    return {
        **_head("leaderworkerset.x-k8s.io/v1", "LeaderWorkerSet", name, queue, priority),
        "spec": {"replicas": replicas, "startupPolicy": startup, "leaderWorkerTemplate": both},
    }


# --- the system -------------------------------------------------------------------------------------------------------

KINDS = (kube.DEPLOYMENTS, kube.STATEFUL_SETS, kube.LEADER_WORKER_SETS)


@contextlib.asynccontextmanager
async def queueing_of(system: System, api: Api, directory: Path, configuration: Json, gpus: int) -> AsyncIterator[None]:
    """The webhooks queue what the configuration lists; there is a queue of so many GPUs, and LeaderWorkerSets are served.

    What is left behind goes while the operator still runs.
    """
    await api.client.create(kube.CUSTOM_RESOURCE_DEFINITIONS, None, leader_worker_sets.crd())
    file = directory / "config.yaml"
    file.write_text(yaml.safe_dump(configuration))
    system.webhooks.stop()
    webhooks = WebhookProcess(system.webhooks.kubeconfig, system.directory, arguments=("--config", str(file))).start()
    await api.apply(
        flavor(labels={"gangline.io/node-pool": "gpu"}),
        cluster_queue("cq", gpus, preemption={"withinClusterQueue": "LowerPriority"}),
        local_queue("lq", "cq"),
        *(priority_class(name, value) for name, value in (("low", 10), ("middle", 100), ("high", 1000))),
    )

    async def marked() -> bool:
        stored = await api.client.create(
            kube.LEADER_WORKER_SETS, "default", leader_worker_set("dry", "lq", 1, 2), query={"dryRun": "All"}
        )
        notes = stored["spec"]["leaderWorkerTemplate"]["workerTemplate"]["metadata"].get("annotations") or {}
        return names.SUSPENDED_BY_PARENT in notes

    await api.until(marked, "the webhooks mark templates")
    controller = Controller(api).start()
    try:
        yield
        for resource in (*KINDS, kube.JOBS):
            for found in await api.all(resource, "default"):
                with contextlib.suppress(NotFound):
                    await api.client.delete(resource, "default", found["metadata"]["name"], propagation="Background")
        await api.until(lambda: empty(api), "nothing is left", 60)
    finally:
        await controller.stop()
        system.kill_operators()
        for found in await api.all(kube.PODS, "default"):
            body = {"metadata": {"finalizers": None}}
            with contextlib.suppress(NotFound):
                await api.client.patch(kube.PODS, "default", found["metadata"]["name"], body)
        await api.delete_pods()
        crd = leader_worker_sets.crd()["metadata"]["name"]
        await api.client.delete(kube.CUSTOM_RESOURCE_DEFINITIONS, None, crd)
        webhooks.stop()
        system.webhooks.start()


async def empty(api: Api) -> bool:
    """No pods that may run, no Workloads but those that have finished, and no quota in use."""
    pods = [
        pod for pod in await api.all(kube.PODS, "default") if pod["status"].get("phase") not in ("Succeeded", "Failed")
    ]
    workloads = [w for w in await api.all(kube.WORKLOADS, "default") if not condition(w, "Finished")]
    return not pods and not workloads and await used(api) == 0


async def used(api: Api) -> int:
    status = (await api.get(kube.CLUSTER_QUEUES, "cq"))["status"]
    return int(status["flavorsUsage"][0]["resources"][0]["total"])
