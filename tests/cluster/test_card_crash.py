"""kill -9 at every write while gangs share cards, and a card fails: none is over-full at any revision, no pod is off its card.

As in `test_crash`: in run k of PERIOD the operator dies at its k-th write, and every successor at its PERIOD-th.
`bench.card_proof` judges, by the status of Workloads and by pods; it shares no code with the operator.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from typing import Any

import pytest
from bench.revisions import Revisions
from tests.cluster.conftest import System
from tests.cluster.harness import Api, cluster_queue, condition_row, flavor, job, local_queue, queue_policy
from tests.examples import sampled

from gangline.api.read.counting.device_claims import Devices
from gangline.api.read.counting.resource_rules import ResourceRules
from gangline.devcluster.nodes import EqualNodes, create_pools, delete_pool
from gangline.kube import resources as kube
from gangline.kube.errors import Conflict, NotFound
from gangline.kube.resources import deleting

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(900)]
Json = dict[str, Any]

PERIOD = 8
POOL = EqualNodes("claimed", 2, {"cpu": 64}, {"example.com/claimed": "yes"})
FIRST, SECOND = POOL.node_names
DRIVER = "crash-gpu.example.com"
CLAIMED = "example.com/claimed-cards"
RULES = ResourceRules(devices=Devices({DRIVER: CLAIMED}))
#: job -> thousandths and GiB of a card that its pod claims
GANGS = {"one": (500, 8), "two": (400, 8), "three": (300, 4)}
GIB = 1024


class Cards:
    """One card of 40 GiB on each node, as its driver publishes it: each change is a new generation of the node's pool."""

    def __init__(self, api: Api) -> None:
        self._api = api
        self._generation = 0

    async def publish(self, node: str, *, healthy: bool) -> None:
        self._generation += 1
        policy = {"default": "1Gi", "validRange": {"min": "1Gi", "step": "1Gi", "max": "40Gi"}}
        device = {
            "name": "gpu-0",
            "allowMultipleAllocations": True,
            "attributes": {"uuid": {"string": f"GPU-{node}"}, "productName": {"string": "Test A100"}},
            "capacity": {"memory": {"value": "40Gi", "requestPolicy": policy}, "milli": {"value": "1k"}},
            **({} if healthy else {"taints": [{"key": "example.com/failed", "effect": "NoSchedule"}]}),
        }
        pool = {"name": node, "generation": self._generation, "resourceSliceCount": 1}
        body = {
            "apiVersion": "resource.k8s.io/v1",
            "kind": "ResourceSlice",
            "metadata": {"name": f"crash-{node}"},
            "spec": {"driver": DRIVER, "nodeName": node, "pool": pool, "devices": [device]},
        }
        try:
            await self._api.client.create(kube.RESOURCE_SLICES, None, body)
        except Conflict:
            await self._api.client.patch(kube.RESOURCE_SLICES, None, f"crash-{node}", body)


def template(name: str, milli: int, memory: int) -> Json:
    asked = {"milli": str(milli), "memory": f"{memory}Gi"}
    exactly = {"deviceClassName": DRIVER, "capacity": {"requests": asked}}
    return {
        "apiVersion": "resource.k8s.io/v1",
        "kind": "ResourceClaimTemplate",
        "metadata": {"name": name, "namespace": "default"},
        "spec": {"spec": {"devices": {"requests": [{"name": "card", "exactly": exactly}]}}},
    }


def claiming(name: str) -> Json:
    body = job(name, "lq", runtime="600s")
    spec = body["spec"]["template"]["spec"]
    spec["resourceClaims"] = [{"name": "card", "resourceClaimTemplateName": name}]
    spec["containers"][0]["resources"] = {"requests": {"cpu": "1"}, "claims": [{"name": "card"}]}
    return body


@asynccontextmanager
async def carded(api: Api) -> AsyncIterator[Cards]:
    """Nodes with a card each, of which the second has failed, and a queue with a placement policy for them."""
    try:
        await api.client.list(kube.RESOURCE_SLICES)
    except NotFound:
        pytest.skip("this Kubernetes has no ResourceSlices in v1")
    cards = Cards(api)
    await create_pools(api.client, [POOL])
    kinds = {"apiVersion": "resource.k8s.io/v1", "kind": "DeviceClass", "metadata": {"name": DRIVER}}
    selector = {"cel": {"expression": f'device.driver == "{DRIVER}"'}}
    made = [(kube.DEVICE_CLASSES, None, {**kinds, "spec": {"selectors": [selector]}})]
    made += [(kube.RESOURCE_CLAIM_TEMPLATES, "default", template(name, *asked)) for name, asked in GANGS.items()]
    try:
        for resource, namespace, body in made:
            await api.client.create(resource, namespace, body)
        await cards.publish(FIRST, healthy=True)
        await cards.publish(SECOND, healthy=False)
        quotas = {"cpu": "64", CLAIMED: "8"}
        offered = [{"name": name, "nominalQuota": size} for name, size in quotas.items()]
        groups = [{"coveredResources": list(quotas), "flavors": [{"name": "claimed", "resources": offered}]}]
        await api.apply(
            queue_policy("claimed", "claimed", placement={"profile": "Pack"}, recovery={"soak": "1s"}),
            flavor("claimed", dict(POOL.labels)),
            cluster_queue("claimed", 0, resourceGroups=groups),
            local_queue("lq", "claimed"),
        )
        yield cards
    finally:
        await api.wipe()
        made += [(kube.RESOURCE_SLICES, None, {"metadata": {"name": f"crash-{node}"}}) for node in POOL.node_names]
        for resource, namespace, body in made:
            with suppress(NotFound):
                await api.client.delete(resource, namespace, body["metadata"]["name"])
        await delete_pool(api.client, POOL.name)


async def running(api: Api) -> dict[str, str]:
    """Job -> the card of its running pod, which is the one that its claim was given."""
    pods = await api.all(kube.PODS, "default")  # before their claims, which were allocated before they ran
    claims = {claim["metadata"]["name"]: claim for claim in await api.all(kube.RESOURCE_CLAIMS, "default")}
    found: dict[str, str] = {}
    for pod in pods:
        if pod["status"].get("phase") != "Running" or deleting(pod):
            continue
        (claim_status,) = pod["status"]["resourceClaimStatuses"]
        given = claims.get(claim_status["resourceClaimName"])
        if given is None:
            continue  # it has just been deleted with its pod
        allocation = (given.get("status") or {}).get("allocation")
        if allocation is None:
            continue  # nor is it given any longer
        (device,) = allocation["devices"]["results"]
        card = pod["metadata"]["annotations"]["gangline.io/cards"]
        assert card == f"GPU-{device['pool']}" == f"GPU-{pod['spec']['nodeName']}", "its claim got its card"
        found[pod["metadata"]["labels"]["job-name"]] = card
    return found


async def why(api: Api, name: str) -> str:
    """The message of a waiting gang; "" = it does not wait."""
    workload = await api.workload_of(name)
    row = condition_row(workload, "QuotaReserved") if workload else {}
    return row.get("message", "") if row.get("status") == "False" else ""


async def _run(system: System, api: Api, moment: str, first: int, period: int = 0) -> int:
    """Two share a card, and a third waits for another one; the first card fails, one of its gangs moves, and it is well again."""
    name = f"{moment}:{first}+{period}"
    one, two = f"GPU-{FIRST}", f"GPU-{SECOND}"
    crashes, stage = 0, "share"
    async with carded(api) as cards, Revisions.of(api.official) as revisions:
        revisions.proof.cards.memory = {one: 40 * GIB, two: 40 * GIB}
        operator = system.operator(fault=f"{moment}:{first}", resources=RULES)
        await api.create(claiming("one"), claiming("two"))

        async def step() -> bool:
            nonlocal operator, crashes, stage
            if not operator.process.is_alive():
                assert operator.process.exitcode == 137, operator.tail()
                crashes += 1
                operator = system.operator(fault=f"{moment}:{period}" if period else "", resources=RULES)
            where = await running(api)
            if stage == "share" and where == {"one": one, "two": one}:
                await api.create(claiming("three"))
                stage = "wait"
            elif stage == "wait" and (message := await why(api, "three")):
                if "compute of no card suffices: 1" in message and "the card has failed: 1" in message:
                    await cards.publish(SECOND, healthy=True)
                    stage = "both"
            elif stage == "both" and where == {"one": one, "two": one, "three": two}:
                await cards.publish(FIRST, healthy=False)
                stage = "moved"
            elif stage == "moved" and set(where.values()) == {two} and len(where) == 2 and where.get("three"):
                (waits,) = GANGS.keys() - where.keys()  # of equal ones the first by uid moves
                if await why(api, waits):
                    await cards.publish(FIRST, healthy=True)
                    stage = "well"
            return stage == "well" and sorted(where.values()) == [one, two, two] and where["three"] == two

        try:
            await api.until(step, f"the scenario with {name} is through", 240)
        except AssertionError as error:
            raise AssertionError(f"{name}, {stage}: {error}\n{operator.tail()}") from None
        proof = await revisions.settle()
        assert not proof.violations, f"{name}: {proof.violations}"
        assert proof.cards.checked >= 2 * len(GANGS) + 4, "reservations and pods, and those of the two that moved again"
        assert revisions.gaps == 0
        system.kill_operators()
    return crashes


@pytest.mark.parametrize("first", sampled(range(1, PERIOD + 1)))
async def test_killed_before_every_write(system: System, api: Api, first: int) -> None:
    assert await _run(system, api, "before", first, PERIOD) >= 2


@pytest.mark.parametrize("number", sampled([4, 9, 15, 20]))
async def test_killed_after_a_write(system: System, api: Api, number: int) -> None:
    assert await _run(system, api, "after", number) == 1
