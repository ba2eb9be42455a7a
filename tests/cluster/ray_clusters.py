"""RayClusters and RayJobs as users write them, and a stand-in of KubeRay: pods by the templates of a cluster, the cluster of a
job, and their statuses. The CRDs are the tests' own and have no schema.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections import Counter
from collections.abc import AsyncIterator
from typing import Any

from tests.cluster.foreign_kinds import crd
from tests.cluster.harness import Api

from gangline.api import names
from gangline.api.jobkinds import ray
from gangline.kube import resources as kube
from gangline.kube.errors import ApiError, NotFound
from gangline.kube.resources import Resource

Json = dict[str, Any]
#: label: which pod of its cluster it is; its name is generated, as KubeRay's are
SLOT = "tests.example.com/slot"
CLUSTERS, JOBS = ray.RAY_CLUSTER.resource, ray.RAY_JOB.resource


def template(gpus: int) -> Json:
    limits = {"resources": {"limits": {"nvidia.com/gpu": str(gpus)}}} if gpus else {}
    return {
        "metadata": {"labels": {"app": "ray"}},
        "spec": {"containers": [{"name": "ray", "image": "ray:2", **limits}]},
    }


def cluster_spec(workers: int, **more: Any) -> Json:
    group = {"groupName": "workers", "replicas": workers, "minReplicas": 1, "maxReplicas": 99, "template": template(1)}
    return {"headGroupSpec": {"template": template(0)}, "workerGroupSpecs": [group], **more}


def elastic(kind: str, name: str, spec: Json, **labels: str) -> Json:
    meta = {
        "name": name,
        "namespace": "default",
        "labels": {names.QUEUE_NAME: "lq", **labels},
        "annotations": {names.ELASTIC: "true"},
    }
    return {"apiVersion": "ray.io/v1", "kind": kind, "metadata": meta, "spec": spec}


class KubeRay:
    """Brings pods, clusters and statuses in line with the specs, a few times a second."""

    def __init__(self, api: Api) -> None:
        self._api = api
        self._client = api.client

    async def run(self) -> None:
        while True:
            with contextlib.suppress(ApiError):
                for each in await self._api.all(JOBS, "default"):
                    await self._cluster_of(each)
                for each in await self._api.all(CLUSTERS, "default"):
                    await self._pods_of(each)
            await asyncio.sleep(0.2)

    async def _cluster_of(self, found: Json) -> None:
        meta, held = found["metadata"], bool(found["spec"].get("suspend"))
        name = f"{meta['name']}-cluster"
        if held:
            with contextlib.suppress(NotFound):
                await self._client.delete(CLUSTERS, "default", name, propagation="Foreground")
            await self._say(JOBS, found, {"jobDeploymentStatus": "Suspended", "rayClusterName": None})
            return
        body = elastic("RayCluster", name, {**found["spec"]["rayClusterSpec"], "suspend": False})
        body["metadata"] |= {"ownerReferences": [_owner(found)]}
        await self._say(JOBS, found, {"jobDeploymentStatus": "Running", "rayClusterName": name})
        with contextlib.suppress(ApiError):
            await self._client.create(CLUSTERS, "default", body)

    async def _pods_of(self, found: Json) -> None:
        meta, spec = found["metadata"], found["spec"]
        wanted: dict[str, Json] = {}
        if not spec.get("suspend") and "deletionTimestamp" not in meta:
            wanted[f"{meta['name']}-head"] = spec["headGroupSpec"]["template"]
            for group in spec["workerGroupSpecs"]:
                wanted |= {
                    f"{meta['name']}-{group['groupName']}-{i:02}": group["template"] for i in range(group["replicas"])
                }
        made = await pods_of(self._api, meta["name"])
        pods = {pod["metadata"]["labels"][SLOT]: pod for pod in made}  # one that ends holds its slot until it is gone
        for name in wanted.keys() - pods.keys():
            template = wanted[name]
            labels = {**template["metadata"].get("labels", {}), "ray.io/cluster": meta["name"], SLOT: name}
            head = {**template["metadata"], "generateName": f"{name}-", "namespace": "default", "labels": labels}
            body = {"apiVersion": "v1", "kind": "Pod", "metadata": {**head, "ownerReferences": [_owner(found)]}}
            await self._client.create(kube.PODS, "default", {**body, "spec": template["spec"]})
        for name in pods.keys() - wanted.keys():
            with contextlib.suppress(NotFound):
                await self._client.delete(kube.PODS, "default", pods[name]["metadata"]["name"])
        up = sum(pod["status"].get("phase") == "Running" for pod in pods.values())
        state = "suspended" if not wanted and not made else ("ready" if up == len(wanted) else "unhealthy")
        await self._say(CLUSTERS, found, {"state": state})

    async def _say(self, resource: Resource, found: Json, status: Json) -> None:
        reported = found.get("status") or {}
        if any(reported.get(key) != value for key, value in status.items()):
            name = found["metadata"]["name"]
            await self._client.patch(resource, "default", name, {"status": status}, subresource="status")


def _owner(found: Json) -> Json:
    reference = {
        "apiVersion": found["apiVersion"],
        "kind": found["kind"],
        "controller": True,
        "blockOwnerDeletion": True,
    }
    return {**reference, "name": found["metadata"]["name"], "uid": found["metadata"]["uid"]}


async def pods_of(api: Api, cluster: str) -> list[Json]:
    return await api.all(kube.PODS, "default", f"ray.io/cluster={cluster}")


async def states(api: Api, cluster: str) -> Counter[str]:
    living = [pod for pod in await pods_of(api, cluster) if "deletionTimestamp" not in pod["metadata"]]
    return Counter("gated" if pod["spec"].get("schedulingGates") else pod["status"].get("phase", "") for pod in living)


@contextlib.asynccontextmanager
async def served(api: Api) -> AsyncIterator[None]:
    """Both kinds exist and have their controller; what is left of them goes at the end."""
    for resource in (CLUSTERS, JOBS):
        await api.client.create(kube.CUSTOM_RESOURCE_DEFINITIONS, None, crd(resource))
    controller = asyncio.create_task(KubeRay(api).run())
    yield
    controller.cancel()
    for resource in (JOBS, CLUSTERS):
        for found in await api.all(resource, "default"):
            with contextlib.suppress(NotFound):
                await api.client.delete(resource, "default", found["metadata"]["name"], propagation="Background")
    for pod in await api.all(
        kube.PODS, "default", "ray.io/cluster"
    ):  # by the garbage collector, if it still knew the kind
        with contextlib.suppress(NotFound):
            await api.client.delete(kube.PODS, "default", pod["metadata"]["name"])
    for resource in (JOBS, CLUSTERS):
        await api.client.delete(kube.CUSTOM_RESOURCE_DEFINITIONS, None, crd(resource)["metadata"]["name"])


async def create(api: Api, resource: Resource, body: Json) -> Json:
    """Held by the webhooks: they learn of a new kind when they have registered for it."""
    suspension = (ray.RAY_CLUSTER if resource is CLUSTERS else ray.RAY_JOB).suspension

    async def registered() -> bool:
        try:
            made = await api.client.create(resource, "default", body, query={"dryRun": "All"})
        except NotFound:  # the kind is not served yet
            return False
        return suspension.read(made)

    await api.until(registered, f"the webhooks hold a {resource.kind}")
    return await api.client.create(resource, "default", body)


async def resize(api: Api, cluster: str, workers: int) -> None:
    """As the autoscaler in its head does."""
    change = [{"op": "replace", "path": "/spec/workerGroupSpecs/0/replicas", "value": workers}]
    await api.client.patch(CLUSTERS, "default", cluster, change, kind="json")
