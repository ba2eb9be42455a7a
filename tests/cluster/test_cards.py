"""Cards on a real control plane: shares of them count in quota, and who sits on which is seen, claimed by the scheduler."""

from __future__ import annotations

import asyncio
import json
from contextlib import suppress
from typing import Any

import pytest
from click.testing import CliRunner
from tests.cluster.conftest import System
from tests.cluster.harness import Api, cluster_queue, condition, condition_row, flavor, job, local_queue, queue_policy
from tests.cluster.test_answers import HERE

from gangline.api.read.counting.device_claims import Devices
from gangline.api.read.counting.resource_rules import ResourceRules
from gangline.console.cli import main
from gangline.devcluster.nodes import EqualNodes, create_pools, delete_pool
from gangline.kube import resources as kube
from gangline.kube.errors import Conflict, NotFound
from gangline.kube.resources import deleting

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(600)]
Json = dict[str, Any]

POOL = EqualNodes("carded", 1, {"cpu": 64}, {"example.com/cards": "yes"})
NODE = POOL.node_names[0]
DRIVER = "gpu.example.com"
RULES = ResourceRules(devices=Devices({DRIVER: "example.com/claimed"}))
QUOTAS = {"cpu": "64", "gangline.io/gpu-milli": "1000", "gangline.io/gpu-mem": "80Gi", "example.com/claimed": "8"}


def slice_of(*, failed: bool = False) -> Json:
    """One card of 80 GiB, which may be allocated many times."""
    policy = {"default": "1Gi", "validRange": {"min": "1Gi", "step": "1Gi", "max": "80Gi"}}
    device = {
        "name": "gpu-0",
        "allowMultipleAllocations": True,
        "attributes": {"uuid": {"string": "GPU-aaaa"}, "index": {"int": 0}, "productName": {"string": "Test A100"}},
        "capacity": {"memory": {"value": "80Gi", "requestPolicy": policy}, "milli": {"value": "1k"}},
        **({"taints": [{"key": "example.com/failed", "effect": "NoSchedule"}]} if failed else {}),
    }
    pool = {"name": NODE, "generation": 2 if failed else 1, "resourceSliceCount": 1}
    return {
        "apiVersion": "resource.k8s.io/v1",
        "kind": "ResourceSlice",
        "metadata": {"name": "carded-0"},
        "spec": {"driver": DRIVER, "nodeName": NODE, "pool": pool, "devices": [device]},
    }


def device_class() -> Json:
    selector = {"cel": {"expression": f'device.driver == "{DRIVER}"'}}
    return {
        "apiVersion": "resource.k8s.io/v1",
        "kind": "DeviceClass",
        "metadata": {"name": DRIVER},
        "spec": {"selectors": [selector]},
    }


def template(name: str, milli: int, memory: str) -> Json:
    exactly = {"deviceClassName": DRIVER, "capacity": {"requests": {"milli": str(milli), "memory": memory}}}
    return {
        "apiVersion": "resource.k8s.io/v1",
        "kind": "ResourceClaimTemplate",
        "metadata": {"name": name, "namespace": "default"},
        "spec": {"spec": {"devices": {"requests": [{"name": "card", "exactly": exactly}]}}},
    }


def claiming(name: str, claims: str) -> Json:
    body = job(name, "lq", runtime="600s")
    spec = body["spec"]["template"]["spec"]
    spec["resourceClaims"] = [{"name": "card", "resourceClaimTemplateName": claims}]
    spec["containers"][0]["resources"] = {"requests": {"cpu": "1"}, "claims": [{"name": "card"}]}
    return body


def annotated(name: str, **annotations: str) -> Json:
    body = job(name, "lq", runtime="600s")
    meta = body["spec"]["template"]["metadata"]
    meta["annotations"] = {**(meta.get("annotations") or {}), **annotations}
    body["spec"]["template"]["spec"]["containers"][0]["resources"] = {"requests": {"cpu": "1"}}
    return body


async def test_two_gangs_share_a_card_and_a_third_waits(system: System, api: Api) -> None:
    try:
        await api.client.list(kube.RESOURCE_SLICES)
    except NotFound:
        pytest.skip("this Kubernetes has no ResourceSlices in v1")
    await create_pools(api.client, [POOL])
    quotas = [{"name": name, "nominalQuota": size} for name, size in QUOTAS.items()]
    groups = [{"coveredResources": list(QUOTAS), "flavors": [{"name": "carded", "resources": quotas}]}]
    await api.apply(
        flavor("carded", {"example.com/cards": "yes"}),
        cluster_queue("cards", 0, resourceGroups=groups),
        local_queue("lq", "cards"),
    )
    for resource, namespace, body in (
        (kube.DEVICE_CLASSES, None, device_class()),
        (kube.RESOURCE_SLICES, None, slice_of()),
        (kube.RESOURCE_CLAIM_TEMPLATES, "default", template("large", 600, "7.5Gi")),
        (kube.RESOURCE_CLAIM_TEMPLATES, "default", template("small", 300, "4Gi")),
    ):
        with suppress(Conflict):
            await api.client.create(resource, namespace, body)
    try:
        system.operator("cards", resources=RULES, visibility=HERE).wait_ready()

        async def usage(name: str) -> Json | None:
            workload = await api.workload_of(name)
            admission = ((workload or {}).get("status") or {}).get("admission")
            return admission["podSetAssignments"][0]["resourceUsage"] if admission else None

        async def card() -> Json:
            command = ["nodes", "-o", "json", "--kubeconfig", str(system.kubeconfig)]
            result = await asyncio.to_thread(CliRunner().invoke, main, command)
            assert result.exit_code == 0, result.output
            (node,) = [each for each in json.loads(result.stdout) if each["metadata"]["name"] == NODE] or [{}]
            (found,) = node.get("cards") or [{}]
            return found

        # capacity counts as the card rounds it: 7.5Gi as 8Gi
        await api.create(claiming("one", "large"))
        first = await api.until(lambda: usage("one"), "the first is admitted")
        assert (first["gangline.io/gpu-milli"], first["gangline.io/gpu-mem"]) == ("600", "8Gi")
        await api.create(claiming("two", "small"))
        await api.until(lambda: usage("two"), "the second is admitted")

        async def both_sit() -> Json | None:
            found = await card()
            return found if len(found.get("occupants", ())) == 2 else None

        found = await api.until(both_sit, "both sit on the card")
        assert {each["job"]: each["milli"] for each in found["occupants"]} == {"one": 600, "two": 300}
        assert (found["uuid"], found["freeMilli"], found["freeMemory"]) == ("GPU-aaaa", 100, "68Gi")

        # a third waits, whatever words it uses
        await api.create(annotated("three", **{"gangline.io/gpu-share": "200m"}))

        async def why_three() -> str:
            workload = await api.workload_of("three")
            row = condition_row(workload, "QuotaReserved") if workload else {}
            return row.get("message", "") if row.get("status") == "False" else ""

        message = await api.until(why_three, "the third waits")
        assert "insufficient unused quota for gangline.io/gpu-milli in flavor carded, 100 more needed" in message

        # the card fails
        await api.client.delete(kube.RESOURCE_SLICES, None, "carded-0")
        await api.client.create(kube.RESOURCE_SLICES, None, slice_of(failed=True))

        async def failed() -> bool:
            return (await card()).get("healthy") is False

        await api.until(failed, "the card is seen to have failed")
    finally:
        await api.wipe()
        for resource, namespace, name in (
            (kube.RESOURCE_SLICES, None, "carded-0"),
            (kube.RESOURCE_CLAIM_TEMPLATES, "default", "large"),
            (kube.RESOURCE_CLAIM_TEMPLATES, "default", "small"),
            (kube.DEVICE_CLASSES, None, DRIVER),
        ):
            with suppress(NotFound):
                await api.client.delete(resource, namespace, name)
        await delete_pool(api.client, POOL.name)


# --- cards decide admission -------------------------------------------------------------------------------------------

VISIBLE = "gangline.io/gpu-visible-devices"
SHARED = EqualNodes("sharing", 2, {"cpu": 64}, {"example.com/sharing": "yes"})


def published(node: str, *, healthy: bool) -> Json:
    """One card of 40 GiB, as HAMi's device plugin writes it onto its node."""
    row = f"GPU-{node},10,40960,100,NVIDIA-A100,0,{str(healthy).lower()},0,hami-core:"
    return {"metadata": {"annotations": {"hami.io/node-nvidia-register": row}}}


async def seated(api: Api) -> dict[str, int]:
    """Card -> thousandths that admissions take of it."""
    found: dict[str, int] = {}
    for workload in await api.all(kube.WORKLOADS, "default"):
        admission = (workload.get("status") or {}).get("admission")
        (assigned,) = admission["podSetAssignments"] if admission else ({},)
        assignment = assigned.get("topologyAssignment")
        if assignment is None:
            continue
        assert assignment["levels"] == ["kubernetes.io/hostname", "gangline.io/card-1"]
        for part in assignment["slices"]:
            assert part["domainCount"] == 1
            card, milli, _, _ = part["valuesPerLevel"][1]["universal"].rsplit(":", 3)
            found[card] = found.get(card, 0) + int(milli) * part["podCounts"]["universal"]
    assert all(milli <= 1000 for milli in found.values()), found
    return found


async def running_on(api: Api, name: str) -> str:
    """The card of a job's only pod that runs on the node of that card; "" = none does."""
    pods = await api.all(kube.PODS, "default", f"job-name={name}")
    alive = [pod for pod in pods if pod["status"].get("phase") == "Running" and not deleting(pod)]
    cards = [pod["metadata"]["annotations"]["gangline.io/cards"] for pod in alive]
    assert cards == [f"GPU-{pod['spec']['nodeName']}" for pod in alive], "its card is on its node"
    for pod in alive:
        field_paths = [row["valueFrom"]["fieldRef"]["fieldPath"] for row in pod["spec"]["containers"][0].get("env", ())]
        asks = VISIBLE in pod["metadata"]["annotations"]
        assert field_paths == (["metadata.annotations['gangline.io/cards']"] if asks else []), (
            "its container learns it, if it asks"
        )
    return cards[0] if len(cards) == 1 else ""


async def back_to_kueue(system: System, api: Api, where: dict[str, str]) -> None:
    """While nobody decides, admissions are made as Kueue's are, which names hosts and no cards; the pods run on."""
    system.kill_operators()
    pods = {pod["metadata"]["uid"] for pod in await api.all(kube.PODS, "default") if not deleting(pod)}
    command = ["admin", "to-kueue", "--kubeconfig", str(system.kubeconfig)]
    result = await asyncio.to_thread(CliRunner().invoke, main, command)
    assert result.exit_code == 0 and result.output.count("names no cards any more") == len(where), result.output
    for name, card in where.items():
        workload = await api.workload_of(name)
        assert workload is not None
        (row,) = workload["status"]["admission"]["podSetAssignments"]
        assert row["topologyAssignment"]["levels"] == ["kubernetes.io/hostname"]
        (part,) = row["topologyAssignment"]["slices"]
        assert part["valuesPerLevel"] == [{"universal": card.removeprefix("GPU-")}]
        assert condition(workload, "Admitted") and await running_on(api, name) == card
    assert {pod["metadata"]["uid"] for pod in await api.all(kube.PODS, "default") if not deleting(pod)} == pods
    again = await asyncio.to_thread(CliRunner().invoke, main, command)
    assert again.output.strip() == "No admission names cards."


async def test_cards_decide_admission_and_a_failed_one_moves_its_gang(system: System, api: Api) -> None:
    names = await create_pools(api.client, [SHARED])
    first, second = SHARED.node_names
    assert sorted(names) == sorted([first, second])

    async def publish(node: str, *, healthy: bool) -> None:
        await api.client.patch(kube.NODES, None, node, published(node, healthy=healthy))

    async def on(name: str, card: str) -> None:
        async def there() -> bool:
            await seated(api)
            if not system.running[-1].process.is_alive():
                system.operator(fault="after:3")  # it dies after every third write
            return await running_on(api, name) == card

        await api.until(there, f"{name} runs on {card}")

    await publish(first, healthy=True)
    await publish(second, healthy=False)
    offered = {"name": "sharing", "resources": [{"name": "cpu", "nominalQuota": "64"}]}
    await api.apply(
        queue_policy("sharing", "sharing", placement={"profile": "Pack"}, recovery={"soak": "1s"}),
        flavor("sharing", {"example.com/sharing": "yes"}),
        cluster_queue("sharing", 0, resourceGroups=[{"coveredResources": ["cpu"], "flavors": [offered]}]),
        local_queue("lq", "sharing"),
    )
    try:
        system.operator(fault="after:3")
        for name, share, more in (("one", "500m", {VISIBLE: "NVIDIA_VISIBLE_DEVICES"}), ("two", "400m", {})):
            await api.create(annotated(name, **{"gangline.io/gpu-share": share, **more}))
            await on(name, f"GPU-{first}")
        assert await seated(api) == {f"GPU-{first}": 900}

        await api.create(annotated("three", **{"gangline.io/gpu-share": "300m"}))
        system.kill_operators()
        system.operator().wait_ready()

        async def why_three() -> str:
            workload = await api.workload_of("three")
            row = condition_row(workload, "QuotaReserved") if workload else {}
            return row.get("message", "") if row.get("status") == "False" else ""

        message = await api.until(why_three, "the third waits")
        assert "compute of no card suffices: 1" in message and "the card has failed: 1" in message

        await publish(second, healthy=True)
        await on("three", f"GPU-{second}")
        await publish(first, healthy=False)
        await on("one", f"GPU-{second}")
        assert (await seated(api))[f"GPU-{second}"] == 800, "the second gang finds no room there"
        await back_to_kueue(system, api, {"one": f"GPU-{second}", "three": f"GPU-{second}"})
    finally:
        await api.wipe()
        await delete_pool(api.client, SHARED.name)
