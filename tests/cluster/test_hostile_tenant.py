"""A tenant who writes whatever the API server takes: others are admitted as before, and no process ends."""

from __future__ import annotations

import asyncio
import copy
from typing import Any

import pytest
from tests.api import accepted
from tests.cluster.conftest import System
from tests.cluster.harness import Api, cluster_queue, flavor, gpu_job, job, local_queue

from gangline.api import names
from gangline.control.kinds.planner import MOST_CREATIONS as MOST
from gangline.kube import resources as kube
from gangline.kube.errors import ApiError

pytestmark = pytest.mark.cluster

Json = dict[str, Any]

HOSTILE = {
    "gangline.io/expected-runtime": "9" * 100_000,
    "gangline.io/checkpoint-interval": "1h" * 40_000,
    "gangline.io/attempt": "9" * 5000,
    "gangline.io/progress": '{"a":' * 5000 + "1" + "}" * 5000,
    "kueue.x-k8s.io/priority-boost": "9" * 5000,
}


async def served(api: Api, name: str) -> None:
    """Another team's job runs to its end."""
    await api.create(job(name, "others", pods=2, gpus=1, runtime="1s"))
    await api.finished(name)


async def attempt(api: Api, *objects: Json) -> int:
    """Creates what the API server and the webhooks let through."""
    made = 0
    for obj in objects:
        try:
            await api.create(obj)
            made += 1
        except ApiError:
            pass
    return made


def smallest() -> list[Json]:
    """Of every cluster-scoped kind and LocalQueue the smallest object that its schema accepts, and one without a spec."""
    found: list[Json] = []
    for kind, group, version, schema in accepted.schemas():
        if kind in ("Workload", "GPUJob") or version == "v1beta1":
            continue
        for number, body in enumerate((accepted.smallest(schema), {})):
            meta: Json = {"name": f"tiny-{number}"}
            if kind == "LocalQueue":
                meta["namespace"] = "default"
            found.append({"apiVersion": f"{group}/{version}", "kind": kind, "metadata": meta, **body})
    return found


async def test_the_smallest_objects_and_hostile_annotations_cost_nobody_else_anything(system: System, api: Api) -> None:
    operator = system.operator().wait_ready()
    await api.apply(flavor(), cluster_queue("cq", 8), local_queue("others", "cq"), local_queue("mine", "cq"))
    await served(api, "before")
    made = smallest()
    assert await attempt(api, *made) >= 6
    try:
        for number, (name, text) in enumerate(HOSTILE.items()):
            bad = job(f"bad-{number}", "mine", runtime="1s")
            bad["metadata"]["annotations"][name] = text
            inner = copy.deepcopy(bad)
            inner["metadata"]["name"] += "-pods"
            inner["spec"]["template"]["metadata"]["annotations"] |= {name: text}
            del inner["metadata"]["annotations"][name]
            await attempt(api, bad, inner)
        await served(api, "after")
        assert operator.process.is_alive(), operator.tail()
        system.operator("standby", leader_election=True).wait_ready()  # and one that starts with all this reads it, too
    finally:
        for obj in made:
            resource = kube.BY_KIND[obj["kind"]]
            for _ in range(2):
                try:
                    scope = "default" if resource.namespaced else None
                    await api.client.patch(resource, scope, obj["metadata"]["name"], {"metadata": {"finalizers": None}})
                    await api.client.delete(resource, scope, obj["metadata"]["name"])
                except ApiError:
                    break


def nested(levels: int, size: int) -> list[Any]:
    """Lists of lists, `levels` deep, as many as have about `size` bytes as JSON."""
    one: list[Any] = []
    for _ in range(levels - 2):
        one = [one]
    return [copy.deepcopy(one) for _ in range(size // (2 * levels))]


async def test_objects_that_cost_much_delay_no_other_tenant_and_take_nobody_the_lease(system: System, api: Api) -> None:
    """Before work was done in turn, a dozen of these took both operators their lease for as long as they existed."""
    namespace: Json = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "others"}}
    await api.apply(namespace)
    await api.wipe("others")
    operator = system.operator("leader", leader_election=True).wait_ready()
    await api.apply(flavor(), cluster_queue("cq", 8), cluster_queue("theirs", 8))
    await api.apply(local_queue("mine", "cq"), local_queue("others", "theirs", "others"))

    async def lease() -> Json:
        return (await api.get(kube.LEASES, names.KUEUE_LEASE, names.KUEUE_NAMESPACE))["spec"]

    async def others_run(name: str) -> None:
        await api.create(job(name, "others", namespace="others"))
        await api.finished(name, namespace="others")

    try:
        await others_run("before")
        standby = system.operator("standby", leader_election=True).wait_ready()
        before = await lease()
        assert before["holderIdentity"] == "leader"
        for number in range(6):
            large = gpu_job(f"large-{number}", "mine")
            large["spec"]["template"]["spec"]["padding"] = nested(88, 200_000)
            await attempt(api, large)
        for number in range(4):
            await others_run(f"during-{number}")
        now = await lease()
        assert (now["holderIdentity"], now["leaseTransitions"]) == ("leader", before["leaseTransitions"])
        assert operator.process.is_alive() and standby.process.is_alive()
        operator.kill()  # and who takes over, with all this in the cluster, does the others' work first
        await others_run("after")
        assert (await lease())["holderIdentity"] == "standby"
    finally:
        system.kill_operators()
        await api.wipe("others")


async def test_pods_that_only_say_that_they_are_a_gangs_withhold_no_node(system: System, api: Api) -> None:
    """Bound to every node, with a finalizer and a grace of 900 s, being deleted: new work goes to these nodes all the same."""
    pool = [node for node in await api.all(kube.NODES) if node["metadata"]["name"].startswith("gpu")]
    labels = set.intersection(*(set(node["metadata"]["labels"].items()) for node in pool))
    nodes = dict([next(pair for pair in sorted(labels) if "hostname" not in pair[0])])
    operator = system.operator().wait_ready()
    await api.apply(flavor(labels=nodes), cluster_queue("cq", 128), local_queue("others", "cq"))
    for number, node in enumerate(pool):
        pod = {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {
                "name": f"forged-{number}",
                "namespace": "default",
                "annotations": {"kueue.x-k8s.io/workload": "no-such-workload", "gangline.io/attempt": "9" * 5000},
                "labels": {"batch.kubernetes.io/job-completion-index": "9" * 60},
                "finalizers": ["example.com/never"],
            },
            "spec": {
                "nodeName": node["metadata"]["name"],
                "terminationGracePeriodSeconds": 900,
                "containers": [{"name": "main", "image": "example.com/none"}],
            },
        }
        await attempt(api, pod)
    try:
        for number in range(len(pool)):
            await api.client.delete(kube.PODS, "default", f"forged-{number}")
        await asyncio.sleep(1)
        await api.create(job("all", "others", pods=len(pool), gpus=8, runtime="1s"))
        await api.finished("all")
        assert operator.process.is_alive(), operator.tail()
    finally:
        for number in range(len(pool)):
            try:
                await api.client.patch(kube.PODS, "default", f"forged-{number}", {"metadata": {"finalizers": None}})
                await api.client.delete(kube.PODS, "default", f"forged-{number}", grace_seconds=0)
            except ApiError:
                continue


async def test_a_workload_that_is_deleted_again_and_again_is_created_less_often(system: System, api: Api) -> None:
    system.operator("recreations").wait_ready()
    await api.apply(flavor(), cluster_queue("cq", 8), local_queue("others", "cq"), local_queue("mine", "cq"))
    await api.create(job("torn", "mine", gpus=16, runtime="1s"))
    seen: set[str] = set()

    async def warned() -> bool:
        workload = await api.workload_of("torn")
        if workload is not None and "deletionTimestamp" not in workload["metadata"]:
            seen.add(workload["metadata"]["uid"])
            await api.client.delete(kube.WORKLOADS, "default", workload["metadata"]["name"])
        events = await api.all(kube.EVENTS, "default")
        return any(event["reason"] == "WorkloadDeletedAgain" for event in events)

    await api.until(warned, "its owner hears of it")
    assert len(seen) == MOST
    await served(api, "meanwhile")
    await api.client.delete(kube.JOBS, "default", "torn", propagation="Background")
