"""GPUJobs with shares by DRA on a real scheduler: each pod gets the card of its seat, also where the scheduler would take another
one, while the operator is killed again and again; and when its card fails, its replacement gets the new one."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from typing import Any

import pytest
from bench.revisions import Revisions
from tests.cluster.conftest import System
from tests.cluster.harness import Api, cluster_queue, flavor, gpu_job, local_queue, queue_policy

from gangline.api import names
from gangline.devcluster.nodes import EqualNodes, create_pools, delete_pool
from gangline.kube import resources as kube
from gangline.kube.errors import Conflict, NotFound
from gangline.kube.resources import controller_uid, deleting

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(600)]
Json = dict[str, Any]

POOL = EqualNodes("pinned", 2, {"cpu": 64}, {"example.com/pinned": "yes"})
FIRST, SECOND = POOL.node_names
DRIVER = "pinned-gpu.example.com"
FAULT = "after:5"
GIB = 1024


def uuid(node: str, number: int) -> str:
    return f"GPU-{node}-{number}"


class Driver:
    """Two cards of 40 GiB on each node; each change is a new generation of the node's pool."""

    def __init__(self, api: Api) -> None:
        self._api = api
        self._generation = 0

    async def publish(self, node: str, failed: set[str]) -> None:
        self._generation += 1
        policy = {"default": "1Gi", "validRange": {"min": "1Gi", "step": "1Gi", "max": "40Gi"}}
        devices = [
            {
                "name": f"gpu-{number}",
                "allowMultipleAllocations": True,
                "attributes": {"uuid": {"string": uuid(node, number)}, "index": {"int": number}},
                "capacity": {"memory": {"value": "40Gi", "requestPolicy": policy}, "milli": {"value": "1k"}},
                **(
                    {"taints": [{"key": "example.com/failed", "effect": "NoSchedule"}]}
                    if uuid(node, number) in failed
                    else {}
                ),
            }
            for number in range(2)
        ]
        pool = {"name": node, "generation": self._generation, "resourceSliceCount": 1}
        body = {
            "apiVersion": "resource.k8s.io/v1",
            "kind": "ResourceSlice",
            "metadata": {"name": f"pinned-{node}"},
            "spec": {"driver": DRIVER, "nodeName": node, "pool": pool, "devices": devices},
        }
        try:
            await self._api.client.create(kube.RESOURCE_SLICES, None, body)
        except Conflict:
            await self._api.client.patch(kube.RESOURCE_SLICES, None, f"pinned-{node}", body)


@asynccontextmanager
async def two_cards_per_node(api: Api) -> AsyncIterator[Driver]:
    """Two queues for the same nodes: "placed" has a placement policy, "plain" has none."""
    try:
        await api.client.list(kube.RESOURCE_SLICES)
    except NotFound:
        pytest.skip("this Kubernetes has no ResourceSlices in v1")
    await create_pools(api.client, [POOL])
    selector = {"cel": {"expression": f'device.driver == "{DRIVER}"'}}
    device_class = {"apiVersion": "resource.k8s.io/v1", "kind": "DeviceClass", "metadata": {"name": DRIVER}}
    driver = Driver(api)
    try:
        await api.client.create(kube.DEVICE_CLASSES, None, {**device_class, "spec": {"selectors": [selector]}})
        for node in POOL.node_names:
            await driver.publish(node, set())
        quotas = {"cpu": "64", "gangline.io/gpu-milli": "4000"}
        offered = [{"name": name, "nominalQuota": size} for name, size in quotas.items()]
        groups = [{"coveredResources": list(quotas), "flavors": [{"name": "pinned", "resources": offered}]}]
        await api.apply(
            queue_policy("pinned", "placed", placement={"profile": "Pack"}, recovery={"soak": "1s"}),
            flavor("pinned", dict(POOL.labels)),
            cluster_queue("placed", 0, resourceGroups=groups),
            cluster_queue("plain", 0, resourceGroups=groups),
            local_queue("placed", "placed"),
            local_queue("plain", "plain"),
        )
        yield driver
    finally:
        await api.wipe()
        for resource, name in (
            (kube.DEVICE_CLASSES, DRIVER),
            *((kube.RESOURCE_SLICES, f"pinned-{node}") for node in POOL.node_names),
            (kube.QUEUE_POLICIES, "pinned"),
        ):
            with suppress(NotFound):
                await api.client.delete(resource, None, name)
        await delete_pool(api.client, POOL.name)


def sharing(name: str, queue: str, percent: int, workers: int = 1, memory: str = "4Gi") -> Json:
    share = {"by": "DRA", "deviceClass": DRIVER, "percent": percent, "memory": memory}
    return gpu_job(name, queue, workers=workers, simulated="", share=share)


async def cards_of(api: Api) -> dict[str, list[str]]:
    """Job -> the cards that the claims of its running pods were given, which are those in their environment, if it names any."""
    pods = await api.all(kube.PODS, "default")  # before their claims, which were allocated before they ran
    claims = {claim["metadata"]["name"]: claim for claim in await api.all(kube.RESOURCE_CLAIMS, "default")}
    found: dict[str, list[str]] = {}
    for pod in pods:
        if pod["status"].get("phase") != "Running" or deleting(pod):
            continue
        (claim_status,) = pod["status"]["resourceClaimStatuses"]
        claim = claims.get(claim_status["resourceClaimName"])
        allocation = ((claim or {}).get("status") or {}).get("allocation")
        if claim is None or allocation is None:
            continue  # its pod has just been deleted
        assert controller_uid(claim) == pod["metadata"]["uid"]
        (device,) = allocation["devices"]["results"]
        assert device["pool"] == pod["spec"]["nodeName"]
        card = uuid(device["pool"], int(device["device"].removeprefix("gpu-")))
        assert (pod["metadata"].get("annotations") or {}).get(names.CARDS, card) == card
        found.setdefault(pod["metadata"]["labels"][names.GPUJOB_LABEL], []).append(card)
    return {name: sorted(cards) for name, cards in found.items()}


async def test_each_pod_gets_the_card_of_its_seat(system: System, api: Api) -> None:
    async with two_cards_per_node(api) as driver, Revisions.of(api.official) as revisions:
        every = [uuid(node, number) for node in POOL.node_names for number in range(2)]
        revisions.proof.cards.memory = dict.fromkeys(every, 40 * GIB)
        operator = system.operator(fault=FAULT)

        async def until(wanted: dict[str, int]) -> dict[str, list[str]]:
            """These jobs run, each with so many pods."""

            async def there() -> tuple[dict[str, list[str]]] | None:
                nonlocal operator
                if not operator.process.is_alive():
                    assert operator.process.exitcode == 137, operator.tail()
                    operator = system.operator(fault=FAULT)
                found = await cards_of(api)
                return (found,) if {name: len(cards) for name, cards in found.items()} == wanted else None

            (found,) = await api.until(there, f"{wanted} run", 120)
            return found

        # two pods of one gang are on one host, each on a card of its own
        await api.create(sharing("pair", "placed", 60, workers=2))
        (pair,) = (await until({"pair": 2})).values()
        host = pair[0].removeprefix("GPU-").rpartition("-")[0]
        assert pair == [uuid(host, 0), uuid(host, 1)]
        await api.client.delete(kube.GPU_JOBS, "default", "pair", propagation="Background")
        await until({})

        # the scheduler would give the third the first card, which has room, too
        await api.create(sharing("low", "placed", 30))
        await until({"low": 1})
        await api.create(sharing("high", "placed", 80))
        two = await until({"low": 1, "high": 1})
        await api.create(sharing("rest", "placed", 20))
        where = await until({"low": 1, "high": 1, "rest": 1})
        assert where["low"] == two["low"] == [uuid(host, 0)]
        assert where["high"] == where["rest"] == [uuid(host, 1)]
        claims = [each for each in await api.all(kube.RESOURCE_CLAIMS, "default") if not deleting(each)]
        assert len(claims) == 3, "those of the gang that is gone are gone"
        assert await api.all(kube.RESOURCE_CLAIM_TEMPLATES, "default") == []

        # the card of two gangs fails: their new pods get claims for other ones
        await driver.publish(host, {uuid(host, 1)})

        async def moved() -> dict[str, list[str]] | None:
            found = await until({"low": 1, "high": 1, "rest": 1})
            return found if uuid(host, 1) not in {card for cards in found.values() for card in cards} else None

        after = await api.until(moved, "they have moved", 120)
        assert after["low"] == [uuid(host, 0)]

        # without a placement policy the claims are made of a template, and the scheduler chooses
        await api.create(sharing("free", "plain", 10))
        await until({"low": 1, "high": 1, "rest": 1, "free": 1})
        (template,) = await api.all(kube.RESOURCE_CLAIM_TEMPLATES, "default")
        assert template["metadata"]["ownerReferences"][0]["name"] == "free"
        workload = await api.workload_of("free")
        assert workload is not None
        (row,) = workload["status"]["admission"]["podSetAssignments"]
        assert row["resourceUsage"]["gangline.io/gpu-milli"] == "100"

        proof = await revisions.settle()
        assert not proof.violations, proof.violations
        assert proof.cards.checked >= 7 and revisions.gaps == 0
        system.kill_operators()
