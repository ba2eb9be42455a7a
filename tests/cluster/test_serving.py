"""Deployments, StatefulSets and LeaderWorkerSets in queues, with Kubernetes' own controllers of the first two.

The LeaderWorkerSet controller is a stand-in (`leader_worker_sets`). Plain pods are not listed in the configuration.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest
from tests.cluster import leader_worker_sets
from tests.cluster.conftest import System
from tests.cluster.harness import Api, condition, condition_row, job
from tests.cluster.serving import (
    CONFIGURATION,
    deployment,
    empty,
    leader_worker_set,
    queueing_of,
    stateful_set,
    used,
)

from gangline.api import names
from gangline.api.read import configuration
from gangline.kube import resources as kube
from gangline.kube.errors import ApiError, NotFound
from gangline.kube.resources import Resource

pytestmark = pytest.mark.cluster
Json = dict[str, Any]
JOBS = configuration.load(CONFIGURATION).jobs


@pytest.fixture
async def queueing(system: System, api: Api, tmp_path: Path, request: pytest.FixtureRequest) -> AsyncIterator[System]:
    """Operator and webhooks queue the three kinds; a queue of 4 GPUs. The parameter: feature gates."""
    gates: Json = getattr(request, "param", {})
    chosen = {**CONFIGURATION, "featureGates": gates}
    async with queueing_of(system, api, tmp_path, chosen, 4):
        system.operator(jobs=configuration.load(chosen).jobs).wait_ready()
        yield system


async def pods_of(api: Api, name: str) -> list[Json]:
    return await api.all(kube.PODS, "default", f"app={name}")


def gated(pod: Json) -> bool:
    return bool(pod["spec"].get("schedulingGates"))


def running(pods: list[Json]) -> list[Json]:
    return [
        pod for pod in pods if pod["status"].get("phase") == "Running" and "deletionTimestamp" not in pod["metadata"]
    ]


def counts(api: Api, name: str, *, run: int, wait: int = 0) -> Callable[[], Awaitable[bool]]:
    """So many pods of it run, and so many wait at their gate."""

    async def found() -> bool:
        pods = await pods_of(api, name)
        return (len(running(pods)), sum(map(gated, pods)), len(pods)) == (run, wait, run + wait)

    return found


def uses(api: Api, gpus: int) -> Callable[[], Awaitable[bool]]:
    async def found() -> bool:
        return await used(api) == gpus

    return found


async def patch(api: Api, resource: Resource, name: str, body: Json, **given: Any) -> Json:
    return await api.client.patch(resource, "default", name, body, **given)


async def refused(api: Api, resource: Resource, name: str, body: Json, said: str) -> None:
    with pytest.raises(ApiError, match=said):
        await patch(api, resource, name, body)


async def workload_named(api: Api, start: str) -> Json:
    """The one Workload whose name starts so, once it is there."""

    async def found() -> Any:
        every = await api.all(kube.WORKLOADS, "default")
        named = [each for each in every if each["metadata"]["name"].startswith(start)]
        return named[0] if len(named) == 1 else None

    return await api.until(found, f"there is one Workload {start}…")


def says(api: Api, start: str, kind: str, status: str, reason: str = "") -> Callable[[], Awaitable[bool]]:
    """The one Workload whose name starts so has this condition."""

    async def found() -> bool:
        row = condition_row(await workload_named(api, start), kind)
        return row.get("status") == status and reason in ("", row.get("reason"))

    return found


async def test_pods_of_a_deployment_are_queued_one_by_one(queueing: System, api: Api) -> None:
    [stored] = await api.create(deployment("web", "lq", 3, priority="low"))
    marks = stored["spec"]["template"]["metadata"]
    assert marks["labels"] == {
        "app": "web",
        names.MANAGED: "true",
        names.QUEUE_NAME: "lq",
        names.PRIORITY_CLASS: "low",
    }
    assert marks["annotations"] == {names.SUSPENDED_BY_PARENT: "deployment"}
    await api.until(counts(api, "web", run=3), "three pods run")
    for pod in await pods_of(api, "web"):
        assert pod["spec"]["nodeSelector"] == {"gangline.io/node-pool": "gpu"}
        assert not pod["metadata"].get("finalizers")
    for workload in await api.all(kube.WORKLOADS, "default"):
        assert workload["metadata"]["name"].startswith("pod-web-")
        assert (workload["spec"]["priority"], workload["spec"]["queueName"]) == (10, "lq")
    await api.until(uses(api, 3), "three GPUs are in use")

    # more replicas than there is quota: only the difference waits
    await patch(api, kube.DEPLOYMENTS, "web", {"spec": {"replicas": 6}})
    await api.until(counts(api, "web", run=4, wait=2), "four of six run")
    await patch(api, kube.DEPLOYMENTS, "web", {"spec": {"replicas": 3}})
    await api.until(counts(api, "web", run=3), "three are left")
    await api.until(uses(api, 3), "their quota alone is in use")

    # another image: pods are replaced within the quota
    before = {pod["metadata"]["name"] for pod in await pods_of(api, "web")}
    container = {"name": "main", "image": "example.com/serve:2"}
    await patch(
        api, kube.DEPLOYMENTS, "web", {"spec": {"template": {"spec": {"containers": [container]}}}}, kind="strategic"
    )

    async def rolled_out() -> bool:
        pods = await pods_of(api, "web")
        return len(running(pods)) == len(pods) == 3 and not before & {pod["metadata"]["name"] for pod in pods}

    await api.until(rolled_out, "all pods have the new image", 60)

    # preempted: its pods stop, and their successors wait until there is quota again
    await api.create(job("urgent", "lq", pods=2, runtime="600s", priority="high"))
    await api.until(counts(api, "web", run=2, wait=1), "one pod has made room")
    await api.client.delete(kube.JOBS, "default", "urgent", propagation="Background")
    await api.until(counts(api, "web", run=3), "all run again")

    # what it may not say
    labels = {names.QUEUE_NAME: "other"}
    await refused(
        api, kube.DEPLOYMENTS, "web", {"metadata": {"labels": labels}}, r"metadata.labels\[.*queue-name\].*immutable"
    )
    bad = deployment("bad", "lq", 1)
    bad["metadata"]["annotations"] = {"kueue.x-k8s.io/elastic-job": "true"}
    with pytest.raises(ApiError, match=r'elastic-job.*not supported for "apps/v1, Kind=Deployment"'):
        await api.create(bad)

    await api.client.delete(kube.DEPLOYMENTS, "default", "web", propagation="Background")
    await api.until(lambda: empty(api), "nothing is left")


async def test_a_stateful_set_is_queued_as_a_whole(queueing: System, api: Api) -> None:
    await api.create(stateful_set("db", "lq", 5, priority="low"))
    await api.until(counts(api, "db", run=0, wait=1), "its first pod waits: there is no quota for five")
    workload = await workload_named(api, "statefulset-db-")
    meta = workload["metadata"]
    assert meta["ownerReferences"][0]["kind"] == "StatefulSet"
    assert meta["annotations"][names.JOB_OWNER_GVK] == "apps/v1, Kind=StatefulSet"
    assert meta["annotations"][names.JOB_OWNER_NAME] == "db"
    await api.until(lambda: is_member(api, "db"), "the pod is a member of the group")
    [pod] = await pods_of(api, "db")
    notes = pod["metadata"]["annotations"]
    assert notes[names.POD_GROUP] == notes[names.PREBUILT_WORKLOAD] == meta["name"]
    assert (notes[names.ROLE_HASH], notes[names.POD_GROUP_TOTAL]) == ("main", "5")
    assert notes[names.POD_GROUP_FAST] == notes[names.POD_GROUP_SERVING] == "true"

    # smaller while it waits: through zero
    await refused(api, kube.STATEFUL_SETS, "db", {"spec": {"replicas": 3}}, r"spec.replicas: .*immutable")
    await patch(api, kube.STATEFUL_SETS, "db", {"spec": {"replicas": 0}})
    await api.until(says(api, "statefulset-db-", "QuotaReserved", "False", "OnHold"), "it is on hold")
    await api.until(counts(api, "db", run=0), "it has no pods")

    async def scaled_up() -> Any:
        return await patch(api, kube.STATEFUL_SETS, "db", {"spec": {"replicas": 3}})

    await api.until(scaled_up, "it may be scaled up again")
    await api.until(counts(api, "db", run=3), "its three pods run")
    workload = await workload_named(api, "statefulset-db-")
    assert [row["count"] for row in workload["spec"]["podSets"]] == [3]
    await api.until(says(api, "statefulset-db-", "PodsReady", "True"), "its pods are ready")
    await api.until(uses(api, 3), "it holds quota for three")

    # another image: pods are replaced one by one, within the quota
    before = {pod["metadata"]["uid"] for pod in await pods_of(api, "db")}
    await image(api, kube.STATEFUL_SETS, "db", "example.com/serve:2")
    await api.until(lambda: rolled_out(api, "db", before, 3), "all pods have the new image", 60)
    await api.until(uses(api, 3), "it holds quota for three")

    # preempted as a whole, and back again; while it waits, another image is rolled out
    await api.create(job("urgent", "lq", pods=2, runtime="600s", priority="high"))
    await api.until(says(api, "statefulset-db-", "Evicted", "True", "Preempted"), "it is preempted")
    await api.until(lambda: all_wait(api, "db"), "its first pod waits")
    before = {pod["metadata"]["uid"] for pod in await pods_of(api, "db")}
    await image(api, kube.STATEFUL_SETS, "db", "example.com/serve:3")
    await api.until(lambda: waits_with(api, "db", "example.com/serve:3"), "the pod that waits has the new image")
    await api.client.delete(kube.JOBS, "default", "urgent", propagation="Background")
    await api.until(lambda: rolled_out(api, "db", before, 3), "its three pods run again", 60)
    await api.until(uses(api, 3), "it holds quota for three, and the urgent job none")

    # the scale subresource passes by the webhooks: fewer pods give quota back, more wait
    await patch(api, kube.STATEFUL_SETS, "db", {"spec": {"replicas": 2}}, subresource="scale")
    await api.until(uses(api, 2), "quota of one pod is free")
    await patch(api, kube.STATEFUL_SETS, "db", {"spec": {"replicas": 4}}, subresource="scale")
    await api.until(counts(api, "db", run=2, wait=1), "the next pod waits")

    async def scaled_event() -> bool:
        return any(each.get("reason") == "ScaledBeyondQuota" for each in await api.all(kube.EVENTS, "default"))

    await api.until(scaled_event, "an event says why")
    assert await used(api) == 2
    await patch(api, kube.STATEFUL_SETS, "db", {"spec": {"replicas": 0}}, subresource="scale")
    await api.until(uses(api, 0), "its quota is free")

    await api.until(lambda: up(api, "db", 4), "it may be scaled up again")
    await api.until(counts(api, "db", run=4), "its four pods run")
    await api.until(uses(api, 4), "it holds quota for four")
    more = {
        "spec": {
            "template": {"spec": {"containers": [{"name": "main", "resources": {"limits": {"nvidia.com/gpu": "2"}}}]}}
        }
    }
    with pytest.raises(ApiError, match=r"spec.template.spec.containers\[0\].resources.requests.*immutable"):
        await patch(api, kube.STATEFUL_SETS, "db", more, kind="strategic")

    await api.client.delete(kube.STATEFUL_SETS, "default", "db", propagation="Background")
    await api.until(lambda: empty(api), "nothing is left")


async def is_member(api: Api, name: str) -> bool:
    return all(names.POD_GROUP in pod["metadata"]["annotations"] for pod in await pods_of(api, name))


async def up(api: Api, name: str, replicas: int) -> Json:
    return await patch(api, kube.STATEFUL_SETS, name, {"spec": {"replicas": replicas}})


async def image(api: Api, resource: Resource, name: str, value: str) -> None:
    containers = {"spec": {"template": {"spec": {"containers": [{"name": "main", "image": value}]}}}}
    await patch(api, resource, name, containers, kind="strategic")


async def rolled_out(api: Api, name: str, before: set[str], count: int) -> bool:
    pods = await pods_of(api, name)
    return len(running(pods)) == len(pods) == count and not before & {pod["metadata"]["uid"] for pod in pods}


async def waits_with(api: Api, name: str, value: str) -> bool:
    return {pod["spec"]["containers"][0]["image"] for pod in await pods_of(api, name) if gated(pod)} == {value}


async def all_wait(api: Api, name: str) -> bool:
    """Its first pod, and those that its controller made anew while the first was still ready."""
    pods = await pods_of(api, name)
    return bool(pods) and all(map(gated, pods))


async def workloads_are(api: Api, count: int) -> bool:
    return len(await api.all(kube.WORKLOADS, "default")) == count


async def test_groups_of_a_leader_worker_set_are_queued_one_by_one(queueing: System, api: Api) -> None:
    [stored] = await api.create(leader_worker_set("llm", "lq", 2, 2, priority="low"))
    for part in ("leaderTemplate", "workerTemplate"):
        meta = stored["spec"]["leaderWorkerTemplate"][part]["metadata"]
        assert meta["labels"] == {"app": "llm", names.QUEUE_NAME: "lq", names.PRIORITY_CLASS: "low"}
        assert meta["annotations"][names.SUSPENDED_BY_PARENT] == "leaderworkerset.x-k8s.io/leaderworkerset"
    await api.until(counts(api, "llm", run=4), "both groups run")
    workload = await workload_named(api, "leaderworkerset-llm-1-")
    meta = workload["metadata"]
    assert meta["annotations"][names.COMPONENT_INDEX] == "1"
    assert [(row["name"], row["count"]) for row in workload["spec"]["podSets"]] == [("leader", 1), ("worker", 1)]
    await api.until(says(api, "leaderworkerset-llm-1-", "PodsReady", "True"), "the group is ready")
    await api.until(uses(api, 4), "four GPUs are in use")

    # one group more: it waits alone, whole; one group less: its quota is free
    await patch(api, kube.LEADER_WORKER_SETS, "llm", {"spec": {"replicas": 3}})
    await api.until(counts(api, "llm", run=4, wait=2), "the third group waits")
    await patch(api, kube.LEADER_WORKER_SETS, "llm", {"spec": {"replicas": 1}})
    await api.until(counts(api, "llm", run=2), "one group is left")
    await api.until(uses(api, 2), "its quota alone is in use")
    await api.until(lambda: workloads_are(api, 1), "one Workload is left")
    await patch(api, kube.LEADER_WORKER_SETS, "llm", {"spec": {"replicas": 2}})
    await api.until(counts(api, "llm", run=4), "both groups run")

    # another image
    before = {pod["metadata"]["uid"] for pod in await pods_of(api, "llm")}
    both = (await api.get(kube.LEADER_WORKER_SETS, "llm"))["spec"]["leaderWorkerTemplate"]
    for part in ("leaderTemplate", "workerTemplate"):
        both[part]["spec"]["containers"][0]["image"] = "example.com/serve:2"
    await patch(api, kube.LEADER_WORKER_SETS, "llm", {"spec": {"leaderWorkerTemplate": both}})
    await api.until(lambda: rolled_out(api, "llm", before, 4), "all pods have the new image", 90)
    await api.until(uses(api, 4), "four GPUs are in use")

    # one group is preempted, whole, and comes back whole
    await api.create(job("urgent", "lq", pods=1, runtime="600s", priority="high"))

    async def one_waits() -> bool:
        pods = await pods_of(api, "llm")
        waiting = [pod["metadata"]["labels"].get(leader_worker_sets.GROUP) for pod in pods if gated(pod)]
        return (len(running(pods)), len(pods), len(waiting)) == (2, 4, 2) and len({*waiting} - {None}) == 1

    await api.until(one_waits, "one group has made room")
    await api.client.delete(kube.JOBS, "default", "urgent", propagation="Background")
    await api.until(counts(api, "llm", run=4), "both groups run again")

    # what it may not say
    size = {"spec": {"leaderWorkerTemplate": {"size": 3}}}
    await refused(api, kube.LEADER_WORKER_SETS, "llm", size, r"spec.leaderWorkerTemplate.size: .*immutable")
    with pytest.raises(ApiError, match=r"spec.replicas: .*1000000"):
        await api.create(leader_worker_set("bad", "lq", 1_000_001, 2))

    await api.client.delete(kube.LEADER_WORKER_SETS, "default", "llm", propagation="Background")
    await api.until(lambda: empty(api), "nothing is left")


@pytest.mark.parametrize("queueing", [{"LWSImmutableGroupSize": False}], indirect=True)
async def test_a_group_of_another_size_queues_again_with_that_size(queueing: System, api: Api) -> None:
    await api.create(leader_worker_set("llm", "lq", 1, 2), job("beside", "lq", pods=1, runtime="600s"))
    await api.until(counts(api, "llm", run=2), "the group runs")
    await api.until(uses(api, 3), "three GPUs are in use")

    async def sized(size: int, *, run: int, wait: int, gpus: int) -> None:
        body = {"spec": {"leaderWorkerTemplate": {"size": size}}}
        await patch(api, kube.LEADER_WORKER_SETS, "llm", body)
        await api.until(counts(api, "llm", run=run, wait=wait), f"of {size} pods {run} run", 60)
        await api.until(uses(api, gpus), f"{gpus} GPUs are in use")
        workload = await workload_named(api, "leaderworkerset-llm-0-")
        assert [row["count"] for row in workload["spec"]["podSets"]] == [1, size - 1]

    await sized(3, run=3, wait=0, gpus=4)
    await sized(4, run=0, wait=4, gpus=1)
    await sized(2, run=2, wait=0, gpus=3)


@pytest.mark.parametrize("queueing", [{"WorkloadIdentifierAnnotations": False}], indirect=True)
async def test_labels_name_the_group_where_annotations_are_not_read(queueing: System, api: Api) -> None:
    await api.create(stateful_set("db", "lq", 2), leader_worker_set("llm", "lq", 1, 2))
    for name, start in (("db", "statefulset-db-"), ("llm", "leaderworkerset-llm-0-")):
        await api.until(counts(api, name, run=2), f"both pods of {name} run")
        key = (await workload_named(api, start))["metadata"]["name"]
        for pod in await pods_of(api, name):
            labels, notes = pod["metadata"]["labels"], pod["metadata"]["annotations"]
            assert labels[names.POD_GROUP] == labels[names.PREBUILT_WORKLOAD] == key
            assert not {names.POD_GROUP, names.PREBUILT_WORKLOAD} & notes.keys()
    await api.until(uses(api, 4), "four GPUs are in use")
    await patch(api, kube.STATEFUL_SETS, "db", {"spec": {"replicas": 0}})
    await api.until(uses(api, 2), "the StatefulSet has given its quota back")


async def test_workers_that_come_after_their_leader_start_after_it(queueing: System, api: Api) -> None:
    await api.create(leader_worker_set("late", "lq", 1, 3, startup="LeaderReady", priority="low"))
    await api.until(counts(api, "late", run=3), "the group runs")
    await api.until(uses(api, 3), "three GPUs are in use")
    await api.create(job("urgent", "lq", pods=2, runtime="600s", priority="high"))
    await api.until(counts(api, "late", run=0, wait=1), "its leader waits")
    await api.client.delete(kube.JOBS, "default", "urgent", propagation="Background")
    await api.until(counts(api, "late", run=3), "the group runs again")


async def test_who_claims_to_belong_to_a_group_gets_nothing_of_its_quota(queueing: System, api: Api) -> None:
    await api.create(stateful_set("db", "lq", 1))
    await api.until(counts(api, "db", run=1), "its pod runs")
    real = (await pods_of(api, "db"))[0]
    body = stateful_set("x", "", 1)["spec"]["template"]
    thief: Json = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "thief", "namespace": "default"}, **body}
    thief["metadata"] = {"name": "thief", "namespace": "default", "annotations": {}}
    kept = (names.MANAGED, names.QUEUE_NAME)
    thief["metadata"]["labels"] = {key: real["metadata"]["labels"][key] for key in kept}
    of_group = (names.SUSPENDED_BY_PARENT, names.POD_GROUP, names.POD_GROUP_TOTAL, names.ROLE_HASH)
    thief["metadata"]["annotations"] = {key: real["metadata"]["annotations"][key] for key in of_group}
    await api.create(thief)
    await api.client.delete(kube.PODS, "default", "db-0")

    async def replaced() -> bool:
        pods = running(await pods_of(api, "db"))
        return bool(pods) and pods[0]["metadata"]["uid"] != real["metadata"]["uid"]

    await api.until(replaced, "its next pod runs")
    assert gated(await api.get(kube.PODS, "thief"))
    await api.client.delete(kube.PODS, "default", "thief")


async def test_an_operator_that_dies_at_every_few_writes_brings_all_of_them_up(queueing: System, api: Api) -> None:
    queueing.kill_operators()
    await api.create(deployment("web", "lq", 1), leader_worker_set("llm", "lq", 1, 2), stateful_set("db", "lq", 1))

    async def all_run() -> bool:
        return len(running(await api.all(kube.PODS, "default"))) == 4

    for attempt in range(40):
        if await all_run():
            break
        dying = queueing.operator(f"dying{attempt}", fault="after:2", jobs=JOBS, max_writes=1)
        dying.process.join(5)
        dying.kill()
    queueing.operator("last", jobs=JOBS).wait_ready()
    await api.until(all_run, "all pods run")
    await api.until(uses(api, 4), "each is counted once")
    assert len(await api.all(kube.WORKLOADS, "default")) == 3


async def test_a_deployment_that_is_older_than_its_queue_goes_on(queueing: System, api: Api) -> None:
    """It names a queue only now: its pods are replaced by such that are queued."""
    await api.create(deployment("old", "", 1))
    await api.until(counts(api, "old", run=1), "it runs without a queue")
    assert not await api.all(kube.WORKLOADS, "default")
    with pytest.raises(ApiError, match="immutable"):
        await patch(api, kube.DEPLOYMENTS, "old", {"metadata": {"labels": {names.QUEUE_NAME: "lq"}}})
    await patch(api, kube.DEPLOYMENTS, "old", {"spec": {"replicas": 0}})
    await api.until(counts(api, "old", run=0), "it has no pods")

    async def queued() -> Any:
        body = {"metadata": {"labels": {names.QUEUE_NAME: "lq"}}, "spec": {"replicas": 1}}
        return await patch(api, kube.DEPLOYMENTS, "old", body)

    await api.until(queued, "it may name a queue now")
    await api.until(counts(api, "old", run=1), "it runs in the queue")
    await api.until(uses(api, 1), "one GPU is in use")
    assert condition((await api.all(kube.WORKLOADS, "default"))[0], "Admitted")


async def test_nothing_is_held_in_a_namespace_without_the_crd_of_leader_worker_sets(system: System, api: Api) -> None:
    """The operator works where a kind is not installed, and learns of it later."""
    system.operator(jobs=JOBS).wait_ready()
    with pytest.raises(NotFound):
        await api.client.create(kube.LEADER_WORKER_SETS, "default", leader_worker_set("x", "lq", 1, 2))
