"""What the cluster adds to the requests of pods counts in quota, and a namespace's limits hold a workload back, as in Kueue."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import suppress
from fractions import Fraction
from typing import Any

import pytest
from click.testing import CliRunner
from tests.cluster.conftest import System
from tests.cluster.harness import Api, cluster_queue, condition, condition_row, flavor, job, local_queue

from gangline.api.read.counting.device_claims import Devices, DeviceSource
from gangline.api.read.counting.resource_rules import ResourceRules, Transformation
from gangline.console.cli import main
from gangline.kube import resources as kube
from gangline.kube.errors import Conflict, NotFound
from gangline.kube.resources import Resource

pytestmark = pytest.mark.cluster
Json = dict[str, Any]
NAMESPACE = "counted"
GPU = "nvidia.com/gpu"
DRIVER, MIG, MEMORY = "gpu.example.com", "mig.example.com", "example.com/gpu-memory"
#: each GPU counts as 10 credits as well, and MIG instances as their memory
RULES = ResourceRules(
    transformations={GPU: Transformation({"example.com/credits": Fraction(10)})},
    devices=Devices(
        {"gpu.example.com": "example.com/devices", MIG: MEMORY},
        {MIG: (DeviceSource("counter", MEMORY, DRIVER, "memory", f"device.driver == '{DRIVER}'"),)},
    ),
)
QUOTAS = {GPU: 8, "cpu": 6, "example.com/credits": 100, "example.com/devices": 2, MEMORY: "20Gi"}


def queue() -> Json:
    quotas = [{"name": name, "nominalQuota": size} for name, size in QUOTAS.items()]
    groups = [{"coveredResources": list(QUOTAS), "flavors": [{"name": "gpu", "resources": quotas}]}]
    return cluster_queue("counting", 0, resourceGroups=groups)


def limit_range(**row: Json) -> Json:
    limits = {"type": "Container", "default": {"cpu": "2"}, "max": {"cpu": "2"}, **row}
    return {
        "apiVersion": "v1",
        "kind": "LimitRange",
        "metadata": {"name": "defaults", "namespace": NAMESPACE},
        "spec": {"limits": [limits]},
    }


def of(name: str, *, pods: int = 1, cpu: str = "", **spec: Any) -> Json:
    """A Job of pods with one GPU each, whose template says no more."""
    body = job(name, "lq", pods=pods, runtime="600s", namespace=NAMESPACE)
    template = body["spec"]["template"]["spec"]
    template |= spec
    template["containers"][0]["resources"]["requests"] = {GPU: "1", **({"cpu": cpu} if cpu else {})}
    return body


async def served(api: Api, resource: Resource) -> bool:
    try:
        await api.client.list(resource)
    except NotFound:
        return False
    return True


Look = Callable[[str], Awaitable[Json | None]]


async def devices_of_claims(api: Api, waiting: Look, usage: Look) -> None:
    """They count once their template is there."""
    claims = [{"name": "devices", "resourceClaimTemplateName": "two"}]
    await api.create(of("claims", cpu="100m", resourceClaims=claims))
    workload = await api.until(lambda: waiting("claims"), "the one with claims waits")
    assert condition_row(workload, "QuotaReserved")["message"].endswith(
        'ResourceClaimTemplate.resource.k8s.io "two" not found'
    )
    asked = {"name": "gpus", "exactly": {"deviceClassName": "gpu.example.com", "count": 2}}
    template = {"metadata": {"name": "two"}, "spec": {"spec": {"devices": {"requests": [asked]}}}}
    whole = {"apiVersion": "resource.k8s.io/v1", "kind": "ResourceClaimTemplate"}
    await api.client.create(kube.RESOURCE_CLAIM_TEMPLATES, NAMESPACE, {**whole, **template})
    assert (await api.until(lambda: usage("claims"), "its devices count"))["example.com/devices"] == "2"

    await api.client.delete(kube.RESOURCE_CLAIM_TEMPLATES, NAMESPACE, "two")


def instances(generation: int, **profiles: str) -> Json:
    """A ResourceSlice with an instance of each profile, which consumes so much memory."""
    devices = [
        {
            "name": f"mig-{profile.replace('_', '-')}",
            "attributes": {"profile": {"string": profile}},
            "consumesCounters": [{"counterSet": "card-0", "counters": {"memory": {"value": memory}}}],
        }
        for profile, memory in profiles.items()
    ]
    spec = {
        "driver": DRIVER,
        "pool": {"name": "p", "generation": generation, "resourceSliceCount": 1},
        "allNodes": True,
    }
    head = {"apiVersion": "resource.k8s.io/v1", "kind": "ResourceSlice", "metadata": {"name": "counting"}}
    return {**head, "spec": {**spec, "devices": devices}}


async def devices_that_selectors_select(api: Api, waiting: Look, usage: Look) -> None:
    """They count as what they consume, once there are such devices."""
    head = {"apiVersion": "resource.k8s.io/v1", "kind": "DeviceClass", "metadata": {"name": MIG}}
    every = {"cel": {"expression": "has(device.attributes['gpu.example.com'].profile)"}}
    await api.client.create(kube.DEVICE_CLASSES, None, {**head, "spec": {"selectors": [every]}})
    for profile in ("narrow", "wide"):
        only = {"cel": {"expression": f"device.attributes['{DRIVER}'].profile == '{profile}'"}}
        asked = {"name": "mig", "exactly": {"deviceClassName": MIG, "selectors": [only]}}
        template = {"metadata": {"name": profile}, "spec": {"spec": {"devices": {"requests": [asked]}}}}
        whole = {"apiVersion": "resource.k8s.io/v1", "kind": "ResourceClaimTemplate"}
        await api.client.create(kube.RESOURCE_CLAIM_TEMPLATES, NAMESPACE, {**whole, **template})
        claims = [{"name": "mig", "resourceClaimTemplateName": profile}]
        await api.create(of(profile, cpu="100m", resourceClaims=claims))

    words = f"CEL selector in DeviceClass {MIG}: 0 device(s) match in the cluster but 1 requested"

    async def judged() -> Json | None:
        """Once its CEL selectors have been evaluated, which takes a moment."""
        found = await waiting("narrow")
        return found if found and condition_row(found, "QuotaReserved")["message"].endswith(words) else None

    workload = await api.until(judged, "there is no such device")
    row = condition_row(workload, "QuotaReserved")
    assert row["reason"] == "Misconfigured", row
    row = condition_row(workload, "Requeued")
    assert (row["status"], row["reason"]) == ("False", "Inadmissible") and row["message"].endswith(words), row

    await api.client.create(kube.RESOURCE_SLICES, None, instances(1, narrow="4864Mi"))
    assert (await api.until(lambda: usage("narrow"), "the narrow instance counts"))[MEMORY] == "4864Mi"
    workload = await api.workload_of("narrow", NAMESPACE)
    assert workload is not None and condition_row(workload, "Requeued") == {}
    assert await api.until(lambda: waiting("wide"), "no instance is wide")

    await api.client.delete(kube.RESOURCE_SLICES, None, "counting")
    await api.client.create(kube.RESOURCE_SLICES, None, instances(2, narrow="4864Mi", wide="10Gi"))
    assert (await api.until(lambda: usage("wide"), "the wide instance counts"))[MEMORY] == "10Gi"
    assert (await usage("narrow") or {})[MEMORY] == "4864Mi", "a holder keeps what was reserved"

    await api.client.delete(kube.RESOURCE_SLICES, None, "counting")
    await api.client.delete(kube.DEVICE_CLASSES, None, MIG)
    for profile in ("narrow", "wide"):
        await api.client.delete(kube.RESOURCE_CLAIM_TEMPLATES, NAMESPACE, profile)


async def test_defaults_overhead_limits_transformations_and_claims(system: System, api: Api) -> None:
    body = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": NAMESPACE}}
    with suppress(Conflict):
        await api.client.create(kube.NAMESPACES, None, body)
    kata = {"apiVersion": "node.k8s.io/v1", "kind": "RuntimeClass", "metadata": {"name": "kata"}, "handler": "kata"}
    await api.apply(
        {**kata, "overhead": {"podFixed": {"cpu": "250m"}}},
        limit_range(defaultRequest={"cpu": "2"}, min={"cpu": "200m"}),
        flavor(),
        queue(),
        local_queue("lq", "counting", NAMESPACE),
    )
    system.operator("counting", resources=RULES).wait_ready()

    async def usage(name: str) -> Json | None:
        workload = await api.workload_of(name, NAMESPACE)
        if workload is None or not condition(workload, "Admitted"):
            return None
        return workload["status"]["admission"]["podSetAssignments"][0]["resourceUsage"]

    async def waiting(name: str) -> Json | None:
        workload = await api.workload_of(name, NAMESPACE)
        return workload if workload and condition_row(workload, "QuotaReserved").get("status") == "False" else None

    # a default request, overhead and credits: 2 pods of 2 + 0.25 CPUs
    await api.create(of("first", pods=2, runtimeClassName="kata"))
    first = await api.until(lambda: usage("first"), "the first is admitted")
    assert first == {"cpu": "4500m", GPU: "2", "example.com/credits": "20"}

    # 2 CPUs more are too many, until the LimitRange changes
    await api.create(of("second"))
    workload = await api.until(lambda: waiting("second"), "the second waits")
    assert (
        "insufficient unused quota for cpu in flavor gpu, 500m more needed"
        in (condition_row(workload, "QuotaReserved")["message"])
    )
    (requested,) = workload["status"]["resourceRequests"]
    assert requested["resources"] == {"cpu": "2", GPU: "1", "example.com/credits": "10"}
    await api.apply(limit_range(defaultRequest={"cpu": "500m"}, min={"cpu": "200m"}))
    second = await api.until(lambda: usage("second"), "the second is admitted")
    assert second == {"cpu": "500m", GPU: "1", "example.com/credits": "10"}
    assert "resourceRequests" not in (await api.workload_of("second", NAMESPACE) or {})["status"]
    assert await usage("first") == first, "a holder keeps what was reserved"

    # less than the namespace allows, until it does
    await api.create(of("small", cpu="100m"))
    workload = await api.until(lambda: waiting("small"), "the small one waits")
    row = condition_row(workload, "QuotaReserved")
    words = (
        "resources didn't satisfy LimitRange constraints: spec.podSets[0].template.spec.containers[0]: "
        'Invalid value: ["cpu"]: requests must not be below the limitRange min'
    )
    assert (row["reason"], row["message"]) == ("Misconfigured", words)
    command = ["why", "small", "-n", NAMESPACE, "--kubeconfig", str(system.kubeconfig)]
    why = await asyncio.to_thread(CliRunner().invoke, main, command)
    assert "requests must not be below the limitRange min" in why.output.replace("\n", " "), why.output
    await api.apply(limit_range(defaultRequest={"cpu": "500m"}, min={"cpu": "100m"}))
    assert await api.until(lambda: usage("small"), "the small one is admitted")

    if await served(api, kube.RESOURCE_CLAIM_TEMPLATES):  # from Kubernetes 1.34 on
        await devices_of_claims(api, waiting, usage)
        await devices_that_selectors_select(api, waiting, usage)
    await api.wipe(NAMESPACE)
    await api.client.delete(kube.LIMIT_RANGES, NAMESPACE, "defaults")
    await api.client.delete(kube.RUNTIME_CLASSES, None, "kata")
