"""Gangs that lose a node: a RayCluster, for all kinds with a suspend field, and a group of plain pods (Jobs: test_recovery)."""

from __future__ import annotations

import itertools
from collections.abc import AsyncIterator
from typing import Any

import pytest
from tests.cluster.conftest import System
from tests.cluster.harness import Api, cluster_queue, condition, condition_row, flavor, local_queue
from tests.cluster.queued_pods import gang, pod
from tests.cluster.ray_clusters import CLUSTERS, SLOT, cluster_spec, create, elastic, pods_of
from tests.cluster.test_elastic_ray import with_ray
from tests.cluster.test_pods import JOBS, queueing

from gangline.api import names
from gangline.api.read.workloads import swap_record
from gangline.devcluster.nodes import EqualNodes, create_pools, delete_pool, fail_node
from gangline.kube import resources as kube

__all__ = ["queueing", "with_ray"]  # fixtures
pytestmark = [pytest.mark.cluster, pytest.mark.timeout(300)]
Json = dict[str, Any]
FIELD = "ray-field"
POOLS = itertools.count()


@pytest.fixture
async def pool(system: System, api: Api) -> AsyncIterator[EqualNodes]:
    """Six nodes of one GPU each."""
    made = EqualNodes(f"ray{next(POOLS)}", 6, {"nvidia.com/gpu": 1}, {"field": FIELD})
    await create_pools(api.client, [made])
    await api.apply(flavor(labels={"field": FIELD}), cluster_queue("cq", 6), local_queue("lq", "cq"))
    yield made
    await api.delete_pods()
    await api.wipe()
    await delete_pool(api.client, made.name)


@pytest.mark.parametrize("chosen", [None, "Replace"])
async def test_a_ray_cluster_that_loses_a_node_is_whole_again_on_others(
    pool: EqualNodes, with_ray: System, api: Api, chosen: str | None
) -> None:
    body = elastic("RayCluster", "train", cluster_spec(3))
    body["metadata"]["annotations"] = {names.NODE_LOSS: chosen} if chosen else {}
    await create(api, CLUSTERS, body)

    async def whole(off: str = "") -> list[Json]:
        found = [pod for pod in await pods_of(api, "train") if "deletionTimestamp" not in pod["metadata"]]
        up = [pod for pod in found if pod["status"].get("phase") == "Running" and pod["spec"]["nodeName"] != off]
        return found if len(up) == len(found) == 4 else []

    async def ready() -> bool:
        found = await api.workload_of("train")
        return found is not None and condition(found, "PodsReady")

    before = await api.until(whole, "head and three workers run", 90)
    await api.until(ready, "the cluster is ready", 60)
    victim = next(pod for pod in before if pod["metadata"]["labels"][SLOT] == "train-workers-01")
    lost = victim["spec"]["nodeName"]
    await fail_node(api.client, lost)

    async def recovered() -> Json | None:
        found = await api.workload_of("train")
        return found if found is not None and condition(found, "Recovered") else None

    workload = await api.until(recovered, "it has recovered", 120)
    after = await api.until(lambda: whole(lost), "all four run on other nodes", 60)
    swap = swap_record.of(workload).log[0]
    assert (swap.how, swap.lost) == (chosen or "Restart", (lost,))
    assert condition_row(workload, "Recovered")["reason"] == ("Swapped" if chosen else "Restarted")
    assert condition(workload, "Admitted")
    stayed = {pod["metadata"]["uid"] for pod in before} & {pod["metadata"]["uid"] for pod in after}
    on_it = sum(pod["spec"]["nodeName"] == lost for pod in before)
    assert len(stayed) == (4 - on_it if chosen else 0)
    attempts = {pod["metadata"]["annotations"].get(names.ATTEMPT) for pod in after}
    assert attempts == ({None} if chosen else {"1"}), "no pod of one attempt beside one of another"

    # the pod on the dead node cannot end: nothing ties it to the cluster any more
    left = await api.get(kube.PODS, victim["metadata"]["name"])
    assert left["metadata"]["annotations"][names.LEFT_BEHIND].endswith(workload["metadata"]["name"])
    assert "ray.io/cluster" not in left["metadata"]["labels"]
    assert "ownerReferences" not in left["metadata"]


async def test_a_group_of_pods_keeps_the_place_of_a_pod_that_was_lost_until_another_one_comes(
    pool: EqualNodes, queueing: System, api: Api
) -> None:
    await api.apply(
        flavor("ray", {"field": FIELD}), cluster_queue("pods", 6, flavors=("ray",)), local_queue("gq", "pods")
    )
    queueing.operator(jobs=JOBS).wait_ready()
    members, another = gang("g", "gq", {1: 3}), pod("g-new", "gq", group="g", total=3)
    for each in (*members, another):
        del each["spec"]["tolerations"]  # or the scheduler could bind a pod to the node that was lost
    await api.create(*members)

    async def up() -> list[Json]:
        found = [pod for pod in await api.all(kube.PODS, "default") if "deletionTimestamp" not in pod["metadata"]]
        return [pod for pod in found if pod["status"].get("phase") == "Running"]

    async def has(kind: str, status: str) -> bool:
        return condition_row(await api.get(kube.WORKLOADS, "g"), kind).get("status") == status

    async def three(off: str = "") -> list[Json]:
        found = await up()
        return found if len(found) == 3 and off not in {pod["spec"]["nodeName"] for pod in found} else []

    before = await api.until(three, "all three run", 60)
    await api.until(lambda: has("PodsReady", "True"), "the group is ready")
    lost = next(pod for pod in before if pod["metadata"]["name"] == "g-1")["spec"]["nodeName"]
    await fail_node(api.client, lost)
    await api.until(lambda: has("WaitingForReplacementPods", "True"), "the group waits for another pod", 60)
    await api.until(lambda: has("Recovered", "False"), "it has not recovered")
    stayed = {pod["metadata"]["uid"] for pod in before if pod["metadata"]["name"] != "g-1"}
    assert {pod["metadata"]["uid"] for pod in await up()} == stayed, "the others run on"
    assert await has("QuotaReserved", "True"), "the place of the lost one is kept"

    await api.create(another)
    after = await api.until(lambda: three(lost), "the group is whole again, on other nodes", 60)
    assert stayed < {pod["metadata"]["uid"] for pod in after}
    await api.until(lambda: has("Recovered", "True"), "it has recovered", 60)
    await api.until(lambda: has("WaitingForReplacementPods", "False"), "it waits for none")
    assert [swap.how for swap in swap_record.of(await api.get(kube.WORKLOADS, "g")).log] == ["Replace"]
