"""A manager and two worker clusters: pods, and what has pods that wait in its place, run in the workers.

The LeaderWorkerSet controller is a stand-in (`leader_worker_sets`).
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import AsyncExitStack, ExitStack, suppress
from pathlib import Path
from typing import Any

import pytest
import yaml
from tests.cluster import leader_worker_sets
from tests.cluster.conftest import FIRST, MANAGER, SECOND, System, Trio
from tests.cluster.harness import Api, WebhookProcess, cluster_queue, condition, connect, flavor, local_queue
from tests.cluster.queued_pods import gang, pod
from tests.cluster.serving import deployment, leader_worker_set, stateful_set
from tests.cluster.test_multikueue import CHECK, CHECKED, ORIGIN, REPLACED, Clusters, config, register, with_operators

from gangline.api import names
from gangline.api.jobkinds import own
from gangline.api.read import configuration
from gangline.api.read.configuration.multikueue import USUAL, MultiKueueSettings, sent
from gangline.kube import resources as kube
from gangline.kube.errors import ApiError, Conflict, NotFound
from gangline.kube.resources import Resource

pytestmark = pytest.mark.cluster
Json = dict[str, Any]

CONFIGURATION: Json = {
    "apiVersion": "config.kueue.x-k8s.io/v1beta2",
    "kind": "Configuration",
    "integrations": {"frameworks": ["batch/job", "pod", *(each.framework for each in own.SERVING_KINDS)]},
}
JOBS = configuration.load(CONFIGURATION).jobs
#: what may be left in a worker
KINDS = (kube.WORKLOADS, kube.STATEFUL_SETS, kube.LEADER_WORKER_SETS, kube.PODS)


@pytest.fixture(scope="module")
def systems(trio: Trio) -> Iterator[dict[str, System]]:
    """The three clusters, whose webhooks queue pods; the workers with their operators."""
    found = trio.systems()
    with ExitStack() as stack:
        for system in found.values():
            asyncio.run(serve_leader_worker_sets(system))
            file = Path(system.directory) / "config.yaml"
            file.write_text(yaml.safe_dump(CONFIGURATION))
            system.webhooks.stop()
            stack.callback(system.webhooks.start)
            webhooks = WebhookProcess(
                system.webhooks.kubeconfig, system.directory, arguments=("--config", str(file))
            ).start()
            stack.callback(webhooks.stop)
        yield stack.enter_context(with_operators(found, jobs=JOBS))


async def serve_leader_worker_sets(system: System) -> None:
    async with connect(system.kubeconfig) as api:
        with suppress(Conflict):  # a first run of the same test has made it
            await api.client.create(kube.CUSTOM_RESOURCE_DEFINITIONS, None, leader_worker_sets.crd())


class Pods(Clusters):
    """The manager, its workers, and the pods of all three."""

    def operator(self, **settings: Any) -> None:
        system = self.systems[MANAGER]
        system.kill_operators()
        chosen = MultiKueueSettings(**{"gc_interval": 1.0, "worker_lost_timeout": 4.0, **settings})
        system.operator(MANAGER, replaced=REPLACED, multikueue=chosen, jobs=JOBS).wait_ready(60)

    async def pods(self, cluster: str, selector: str = "") -> list[Json]:
        return [each for each in await self.apis[cluster].all(kube.PODS, "default", selector) if remains(each)]

    async def waits(self) -> bool:
        """All pods here stand at their gates."""
        return all(gated(each) for each in await self.pods(MANAGER))

    async def workload(self, start: str) -> Json:
        every = await self.manager.all(kube.WORKLOADS, "default")
        return next((each for each in every if each["metadata"]["name"].startswith(start)), {})

    async def chosen(self, start: str, *, count: int = 1, seconds: float = 90.0) -> str:
        """The cluster in which that Workload runs, once so many pods run there, and as many here say so."""

        async def found() -> str:
            cluster = ((await self.workload(start)).get("status") or {}).get("clusterName")
            if not cluster:
                return ""
            there = [each for each in await self.pods(cluster) if each["status"].get("phase") == "Running"]
            here = [each for each in await self.pods(MANAGER) if each["status"].get("phase") == "Running"]
            return cluster if len(there) == count and len(here) == count else ""

        return await self.manager.until(found, f"{start} runs in another cluster, and its pods here say so", seconds)

    async def states_in_clusters(self) -> str:
        """What there is in the workers, a line each: states of Workloads, gates of pods, phases."""
        rows: list[str] = []
        for name in (FIRST, SECOND):
            for kind in KINDS:
                for each in await self.apis[name].all(kind, "default"):
                    status, gates = each.get("status") or {}, each["spec"].get("schedulingGates")
                    states = [f"{row['type']}={row['status']}" for row in status.get("conditions") or ()]
                    rows.append(f"{name} {kind.kind} {each['metadata']['name']} {status.get('phase')} {gates} {states}")
        return "\n".join(rows)

    async def left(self, *clusters: str, seconds: float = 90.0) -> None:
        async def nothing() -> bool:
            every = [await self.apis[name].all(kind, "default", ORIGIN) for name in clusters for kind in KINDS]
            return not any(every)

        await self.manager.until(nothing, f"nothing is left in {', '.join(clusters)}", seconds)


def remains(each: Json) -> bool:
    return "deletionTimestamp" not in each["metadata"]


def gated(each: Json) -> bool:
    return bool(each["spec"].get("schedulingGates"))


@pytest.fixture
async def clusters(systems: dict[str, System]) -> AsyncIterator[Pods]:
    """Queues with room for three pods in each worker, and for many on the manager."""
    async with AsyncExitStack() as stack:
        apis = {name: await stack.enter_async_context(connect(each.kubeconfig)) for name, each in systems.items()}
        found = Pods(systems, apis)
        for name in (FIRST, SECOND):
            await apis[name].apply(flavor(), cluster_queue("cq", 3), local_queue("lq", "cq"))
            await register(systems[name], apis[name], apis[MANAGER], name, sent(JOBS, USUAL))
        await apis[MANAGER].apply(config(FIRST, SECOND), CHECK, flavor())
        await apis[MANAGER].apply(cluster_queue("cq", 8, admissionChecksStrategy=CHECKED), local_queue("lq", "cq"))
        controllers = [leader_worker_sets.Controller(api).start() for api in apis.values()]
        for api in apis.values():
            await api.until(lambda api=api: gates(api), "the webhooks gate pods that name a queue")
        yield found
        for api in apis.values():
            await empty(api, (kube.DEPLOYMENTS, kube.LEADER_WORKER_SETS, kube.STATEFUL_SETS, kube.PODS))
        systems[MANAGER].kill_operators()
        for controller in controllers:
            await controller.stop()
        for api in apis.values():
            await unfinalize(api)
            await api.wipe()
        refused = [line for each in systems.values() for line in each.new_refusals() if not each.restarted]
        restarted = any(each.restarted for each in systems.values())
        assert not [
            line for line in refused if not (restarted and "multikueue.clusters.remote_cluster: cluster" in line)
        ]


async def gates(api: Api) -> bool:
    with suppress(ApiError):
        stored = await api.client.create(kube.PODS, "default", pod("dry", "lq"), query={"dryRun": "All"})
        return gated(stored)
    return False


async def empty(api: Api, kinds: Sequence[Resource]) -> None:
    for kind in kinds:
        for each in await api.all(kind, "default"):
            with suppress(NotFound):
                await api.client.delete(kind, "default", each["metadata"]["name"], propagation="Background")


async def unfinalize(api: Api) -> None:
    for each in await api.all(kube.PODS, "default"):
        with suppress(NotFound):
            await api.client.patch(kube.PODS, "default", each["metadata"]["name"], {"metadata": {"finalizers": None}})
            await api.client.delete(kube.PODS, "default", each["metadata"]["name"], grace_seconds=0)


async def test_a_pod_runs_to_its_end_in_the_cluster_that_takes_it(clusters: Pods) -> None:
    await clusters.quota(worker_1=0, worker_2=3)
    clusters.operator()
    await clusters.manager.create(pod("solo", "lq", runtime="8s"))
    assert await clusters.chosen("pod-solo") == SECOND
    [here] = await clusters.pods(MANAGER)
    [there] = await clusters.pods(SECOND)
    assert gated(here) and not here["spec"].get("nodeName"), "it waits at its gate, whatever its status says"
    assert here["status"]["conditions"] and condition(here, "Ready") and condition(here, "PodScheduled")
    assert (
        there["metadata"]["labels"][names.PREBUILT_WORKLOAD]
        == (await clusters.workload("pod-solo"))["metadata"]["name"]
    )
    assert there["metadata"]["labels"][names.MULTIKUEUE_WORKER_POD] == "true"

    async def ended() -> bool:
        [pod_here] = await clusters.pods(MANAGER)
        return pod_here["status"]["phase"] == "Succeeded" and condition(await clusters.workload("pod-solo"), "Finished")

    await clusters.manager.until(ended, "the pod here has ended, and its Workload is finished", 60)
    await clusters.left(FIRST, SECOND)
    [here] = await clusters.pods(MANAGER)
    assert not here["metadata"].get("finalizers")


async def test_a_group_runs_in_one_cluster_and_moves_when_that_is_lost(clusters: Pods) -> None:
    """Its pods here wait again until the other cluster runs it; the one that comes back has nothing of it left."""
    clusters.operator()
    await clusters.manager.create(*gang("trio", "lq", {1: 3}))
    first = await clusters.chosen("trio", count=3)
    other = SECOND if first == FIRST else FIRST
    assert await clusters.pods(other) == []
    system = clusters.systems[first]
    system.restarted = True
    system.plane.stop_component("kube-apiserver")
    try:

        async def moved() -> bool:
            return ((await clusters.workload("trio")).get("status") or {}).get("clusterName") == other

        await clusters.manager.until(moved, "the other cluster runs it", 120)
    finally:
        system.restart_apiserver()
    assert await clusters.chosen("trio", count=3) == other
    await clusters.left(first, seconds=120)
    # one of its pods is deleted here: so it is there, and its place waits for another pod
    await clusters.manager.client.delete(kube.PODS, "default", "trio-1")

    async def two() -> bool:
        return sorted(each["metadata"]["name"] for each in await clusters.pods(other)) == ["trio-0", "trio-2"]

    await clusters.manager.until(two, "the copy of the deleted pod is deleted", 60)
    [replacement] = gang("trio", "lq", {1: 1}, total=3)
    replacement["metadata"]["name"] = "trio-9"
    await clusters.manager.create(replacement)

    async def three() -> bool:
        there = [each for each in await clusters.pods(other) if each["status"].get("phase") == "Running"]
        return sorted(each["metadata"]["name"] for each in there) == ["trio-0", "trio-2", "trio-9"]

    await clusters.manager.until(three, "the new pod runs there, too", 60)


async def test_an_eviction_here_stops_the_pods_there_and_they_start_again(clusters: Pods) -> None:
    clusters.operator()
    await clusters.manager.create(*gang("duo", "lq", {1: 2}))
    await clusters.chosen("duo", count=2)
    await clusters.manager.client.patch(kube.WORKLOADS, "default", "duo", {"spec": {"active": False}})

    async def released() -> bool:
        waiting = [each for each in await clusters.pods(MANAGER) if each["status"].get("phase") == "Pending"]
        return not condition(await clusters.workload("duo"), "QuotaReserved") and len(waiting) == 2

    await clusters.manager.until(released, "its quota is free, and its pods wait again", 90)
    await clusters.left(FIRST, SECOND)
    assert await clusters.waits()
    await clusters.manager.client.patch(kube.WORKLOADS, "default", "duo", {"spec": {"active": True}})
    await clusters.chosen("duo", count=2)


async def test_copies_of_pods_that_were_deleted_meanwhile_are_collected(clusters: Pods) -> None:
    clusters.operator()
    await clusters.manager.create(pod("solo", "lq"))
    cluster = await clusters.chosen("pod-solo")
    clusters.systems[MANAGER].kill_operators()
    name = (await clusters.workload("pod-solo"))["metadata"]["name"]
    await unfinalize(clusters.manager)
    with suppress(NotFound):
        await clusters.manager.client.patch(kube.WORKLOADS, "default", name, {"metadata": {"finalizers": None}})
        await clusters.manager.client.delete(kube.WORKLOADS, "default", name)
    assert len(await clusters.pods(cluster)) == 1
    clusters.operator()
    await clusters.left(FIRST, SECOND)


async def test_pods_of_a_deployment_are_sent_one_by_one(clusters: Pods) -> None:
    """Room for two in each worker, so the three are spread; the Deployment says that all are available."""
    await clusters.quota(worker_1=2, worker_2=2)
    clusters.operator()
    await clusters.manager.create(deployment("web", "lq", 3))

    async def available() -> bool:
        status = (await clusters.manager.get(kube.DEPLOYMENTS, "web")).get("status") or {}
        return status.get("availableReplicas") == 3

    await clusters.manager.until(available, "all three are available", 120)
    counts = [len(await clusters.pods(name)) for name in (FIRST, SECOND)]
    assert sorted(counts) == [1, 2]
    assert await clusters.waits()
    await clusters.manager.client.patch(kube.DEPLOYMENTS, "default", "web", {"spec": {"replicas": 1}})

    async def one() -> bool:
        return sum([len(await clusters.pods(name)) for name in (FIRST, SECOND)]) == 1

    await clusters.manager.until(one, "one is left", 90)


async def test_a_stateful_set_runs_as_a_whole_in_one_cluster(clusters: Pods) -> None:
    clusters.operator()
    [stored] = await clusters.manager.create(stateful_set("db", "lq", 3, policy="Parallel"))

    async def runs() -> str:
        cluster = ((await clusters.workload("statefulset-db")).get("status") or {}).get("clusterName")
        there = await clusters.pods(cluster) if cluster else []
        return cluster if sum(each["status"].get("phase") == "Running" for each in there) == 3 else ""

    cluster = await clusters.manager.until(runs, "its three pods run in another cluster", 120)
    copy = await clusters.apis[cluster].get(kube.STATEFUL_SETS, "db")
    assert copy["metadata"]["annotations"][names.MULTIKUEUE_ORIGIN_UID] == stored["metadata"]["uid"]
    assert await clusters.waits()

    async def ready() -> bool:
        return condition(await clusters.workload("statefulset-db"), "PodsReady")

    await clusters.manager.until(ready, "the Workload here says that they are ready", 60)
    # to nothing, and up again
    await clusters.manager.client.patch(kube.STATEFUL_SETS, "default", "db", {"spec": {"replicas": 0}})
    await clusters.left(FIRST, SECOND)
    await clusters.manager.client.patch(kube.STATEFUL_SETS, "default", "db", {"spec": {"replicas": 2}})

    async def two() -> bool:
        every = [*await clusters.pods(FIRST), *await clusters.pods(SECOND)]
        return sum(each["status"].get("phase") == "Running" for each in every) == 2

    await clusters.manager.until(two, "two pods run again", 120)
    await clusters.manager.client.delete(kube.STATEFUL_SETS, "default", "db", propagation="Background")
    await clusters.left(FIRST, SECOND)


async def test_all_groups_of_a_leader_worker_set_run_in_one_cluster(clusters: Pods) -> None:
    """Each worker has room for it, and for one more group."""
    await clusters.quota(worker_1=6, worker_2=6)
    clusters.operator()
    await clusters.manager.create(leader_worker_set("llm", "lq", 2, 2))

    async def runs(pods: int) -> str:
        every = await clusters.manager.all(kube.WORKLOADS, "default")
        chosen = {(each.get("status") or {}).get("clusterName") for each in every}
        cluster = chosen.pop() if len(chosen) == 1 else None
        there = await clusters.pods(cluster) if cluster else []
        ready = all(condition(each, "PodsReady") for each in every)
        return cluster if ready and sum(each["status"].get("phase") == "Running" for each in there) == pods else ""

    try:
        cluster = await clusters.manager.until(lambda: runs(4), "both groups run in the same cluster", 120)
    except AssertionError as error:
        raise AssertionError(f"{await clusters.states_in_clusters()}\n{error}") from None
    other = SECOND if cluster == FIRST else FIRST
    assert await clusters.apis[other].all(kube.LEADER_WORKER_SETS, "default") == []
    assert await clusters.waits()
    body: Json = {"spec": {"replicas": 3}}
    await clusters.manager.client.patch(kube.LEADER_WORKER_SETS, "default", "llm", body)
    assert await clusters.manager.until(lambda: runs(6), "the third group runs there, too", 120) == cluster
    body = {"spec": {"replicas": 1}}
    await clusters.manager.client.patch(kube.LEADER_WORKER_SETS, "default", "llm", body)
    assert await clusters.manager.until(lambda: runs(2), "one group is left", 120) == cluster
    await clusters.manager.client.delete(kube.LEADER_WORKER_SETS, "default", "llm", propagation="Background")
    await clusters.left(FIRST, SECOND)
