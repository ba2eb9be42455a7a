"""A manager and two worker clusters: jobs of the manager run in the workers."""

from __future__ import annotations

import asyncio
import base64
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import AsyncExitStack, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import yaml
from tests.cluster.accounts import RESOURCES
from tests.cluster.conftest import FIRST, MANAGER, SECOND, System, Trio
from tests.cluster.foreign_kinds import crd
from tests.cluster.harness import (
    Api,
    WebhookProcess,
    cluster_queue,
    condition,
    condition_row,
    connect,
    flavor,
    job,
    local_queue,
)
from tests.cluster.test_elastic import admitted, elastic_job, pods_of, resize, slices, usage

from gangline.api import jobkinds, names
from gangline.api.admission.multikueue import CONTROLLER
from gangline.api.read import configuration
from gangline.api.read.configuration.multikueue import INCREMENTAL, MultiKueueSettings
from gangline.install import rights
from gangline.kube import resources as kube
from gangline.kube.errors import NotFound

pytestmark = pytest.mark.cluster
Json = dict[str, Any]

ROLE = "gangline-multikueue"
ORIGIN = f"{names.MULTIKUEUE_ORIGIN}=multikueue"
#: times of the manager in the tests
REPLACED = {
    "gangline.control.checks.multikueue.clusters.remote_cluster:PROBE": 1.0,
    "gangline.control.checks.multikueue.clusters.remote_cluster:FIRST_PAUSE": 0.5,
    "gangline.control.checks.multikueue.clusters.remote_cluster:REREAD": 2.0,
    "gangline.control.checks.multikueue.clusters.remote_cluster:ABSENT_RETRY": 1.0,
    "gangline.control.checks.multikueue.plan.planning:ROUND": 2000,
}


CONFIGURATION: Json = {
    "apiVersion": "config.kueue.x-k8s.io/v1beta2",
    "kind": "Configuration",
    "integrations": {"frameworks": ["batch/job", "jobset.x-k8s.io/jobset", "kubeflow.org/pytorchjob"]},
}
JOBS = configuration.load(CONFIGURATION).jobs
[PYTORCH_JOBS] = [each.resource for each in jobkinds.BUILT_IN if each.kind == "PyTorchJob"]


@contextmanager
def with_operators(found: dict[str, System], **workers: Any) -> Iterator[dict[str, System]]:
    """The three clusters; the workers with their operators, which are started with these options and end with the block."""
    for system in found.values():
        system.new_refusals()
        system.restarted = False
    try:
        for name in (FIRST, SECOND):
            found[name].operator(name, **workers).wait_ready(60)
        yield found
    finally:
        for system in found.values():
            system.kill_operators()
            asyncio.run(withdraw_answers(system))


async def withdraw_answers(system: System) -> None:
    async with connect(system.kubeconfig) as api:
        await api.withdraw_answers()


@pytest.fixture(scope="module")
def systems(trio: Trio) -> Iterator[dict[str, System]]:
    with with_operators(trio.systems(), jobs=JOBS) as found:
        yield found


@dataclass
class Clusters:
    systems: dict[str, System]
    apis: dict[str, Api]

    @property
    def manager(self) -> Api:
        return self.apis[MANAGER]

    async def quota(self, **gpus: int) -> None:
        for name, most in gpus.items():
            await self.apis[name.replace("_", "-")].apply(cluster_queue("cq", most))

    def operator(self, **settings: Any) -> None:
        """The manager's operator, alone."""
        system = self.systems[MANAGER]
        system.kill_operators()
        chosen = MultiKueueSettings(**{"gc_interval": 1.0, "worker_lost_timeout": 4.0, **settings})
        system.operator(MANAGER, replaced=REPLACED, multikueue=chosen, jobs=JOBS).wait_ready(60)

    async def there(self, cluster: str, name: str) -> Json | None:
        """The job of this name in a worker."""
        with suppress(NotFound):
            return await self.apis[cluster].get(kube.JOBS, name)
        return None

    async def copies(self, cluster: str) -> list[Json]:
        return await self.apis[cluster].all(kube.WORKLOADS, "default", ORIGIN)

    async def status(self, name: str) -> Json:
        return ((await self.manager.workload_of(name)) or {}).get("status", {})

    async def runs_in(self, name: str, *, seconds: float = 60.0) -> str:
        """The cluster in which the job of the manager runs."""

        async def chosen() -> str:
            cluster = (await self.status(name)).get("clusterName")
            remote = await self.there(cluster, name) if cluster else None
            here = await self.manager.get(kube.JOBS, name)
            mirrored = (here.get("status") or {}).get("active") == 1 and not here["spec"]["suspend"]
            return cluster if remote is not None and remote["status"].get("active") == 1 and mirrored else ""

        return await self.manager.until(chosen, f"{name} runs in another cluster, and its job here says so", seconds)

    async def nothing_left(self, *clusters: str, seconds: float = 60.0) -> None:
        await self.manager.until(lambda: self._empty(clusters), f"nothing is left in {', '.join(clusters)}", seconds)

    async def _empty(self, clusters: tuple[str, ...]) -> bool:
        for name in clusters:
            if await self.copies(name) or await self.apis[name].all(kube.JOBS, "default", ORIGIN):
                return False
        return True


@pytest.fixture
async def clusters(systems: dict[str, System]) -> AsyncIterator[Clusters]:
    """Queues with room for one job in each worker, and for many on the manager."""
    async with AsyncExitStack() as stack:
        apis = {name: await stack.enter_async_context(connect(each.kubeconfig)) for name, each in systems.items()}
        found = Clusters(systems, apis)
        for name in (FIRST, SECOND):
            await apis[name].apply(flavor(), cluster_queue("cq", 1), local_queue("lq", "cq"))
            # the account of the first cluster may send Jobs and JobSets alone
            sent = (kube.JOBS, kube.JOB_SETS, PYTORCH_JOBS)[: 2 if name == FIRST else 3]
            await register(systems[name], apis[name], apis[MANAGER], name, sent)
        await apis[MANAGER].apply(config(FIRST, SECOND), CHECK, flavor())
        await apis[MANAGER].apply(cluster_queue("cq", 8, admissionChecksStrategy=CHECKED), local_queue("lq", "cq"))
        yield found
        systems[MANAGER].kill_operators()
        for api in apis.values():
            await api.wipe()
        refused = [line for each in systems.values() for line in each.new_refusals() if not each.restarted]
        # a worker that starts again knows nobody's rights for a moment, and the manager tells what it said
        restarted = any(each.restarted for each in systems.values())
        assert not [
            line for line in refused if not (restarted and "multikueue.clusters.remote_cluster: cluster" in line)
        ]


CHECKED = {"admissionChecks": [{"name": "elsewhere"}]}
CHECK = {
    "apiVersion": names.V1BETA2,
    "kind": "AdmissionCheck",
    "metadata": {"name": "elsewhere"},
    "spec": {
        "controllerName": CONTROLLER,
        "parameters": {"apiGroup": names.GROUP, "kind": "MultiKueueConfig", "name": "all"},
    },
}


def config(*clusters: str) -> Json:
    return {
        "apiVersion": names.V1BETA2,
        "kind": "MultiKueueConfig",
        "metadata": {"name": "all"},
        "spec": {"clusters": list(clusters)},
    }


async def register(system: System, worker: Api, manager: Api, name: str, sent: Sequence[kube.Resource]) -> None:
    """The steps of docs/multikueue.md: an account in the worker with the rights of a manager, and its kubeconfig here."""
    role = rights.worker_role(ROLE, sent, quotas=True)
    binding = {
        "apiVersion": role["apiVersion"],
        "kind": "ClusterRoleBinding",
        "metadata": {"name": ROLE},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": ROLE},
        "subjects": [{"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": MANAGER}],
    }
    for body in (role, binding):
        await worker.client.patch(
            RESOURCES[body["kind"]], None, ROLE, body, kind="apply", field_manager="test", force=True
        )
    text = system.plane.issue_kubeconfig(MANAGER).read_bytes()
    await manager.apply(
        {
            "apiVersion": "v1",
            "kind": "Secret",
            "metadata": {"name": name, "namespace": names.KUEUE_NAMESPACE},
            "data": {"kubeconfig": base64.b64encode(text).decode()},
        },
        {
            "apiVersion": names.V1BETA2,
            "kind": "MultiKueueCluster",
            "metadata": {"name": name},
            "spec": {"clusterSource": {"kubeConfig": {"location": name}}},
        },
    )


async def test_the_first_cluster_with_room_runs_the_job(clusters: Clusters) -> None:
    """Both are asked at once, one has no room; the other runs the job to its end, and nothing is left of it there."""
    await clusters.quota(worker_1=0, worker_2=1)
    clusters.operator()

    async def active() -> bool:
        check = await clusters.manager.get(kube.ADMISSION_CHECKS, "elsewhere")
        known = [await clusters.manager.get(kube.MULTI_KUEUE_CLUSTERS, name) for name in (FIRST, SECOND)]
        return condition(check, "Active") and all(condition(each, "Active") for each in known)

    await clusters.manager.until(active, "both clusters are connected", 60)
    [created] = await clusters.manager.create(job("train", "lq", runtime="8s"))
    assert created["spec"]["managedBy"] == CONTROLLER
    assert await clusters.runs_in("train") == SECOND
    status = await clusters.status("train")
    [row] = status["admissionChecks"]
    assert (row["state"], row["message"]) == ("Ready", f'The workload was admitted on "{SECOND}"')
    assert "nominatedClusterNames" not in status
    remote = await clusters.there(SECOND, "train") or {}
    assert "managedBy" not in remote["spec"]
    assert await clusters.there(FIRST, "train") is None
    assert await clusters.copies(FIRST) == []
    assert await clusters.manager.all(kube.PODS, "default") == []
    await clusters.manager.finished("train")

    async def finished() -> bool:
        return condition((await clusters.manager.workload_of("train")) or {}, "Finished")

    await clusters.manager.until(finished, "the workload has finished here")
    await clusters.nothing_left(FIRST, SECOND)


async def test_a_job_that_would_delete_itself_at_once_runs_once(clusters: Clusters) -> None:
    """The worker's copy has no time to live, so its end is read; the job here goes by its own."""
    await clusters.quota(worker_1=0, worker_2=1)
    clusters.operator()
    short = job("short", "lq", runtime="5s")
    short["spec"]["ttlSecondsAfterFinished"] = 0
    await clusters.manager.create(short)
    assert await clusters.runs_in("short") == SECOND
    remote = await clusters.there(SECOND, "short") or {}
    assert "ttlSecondsAfterFinished" not in remote["spec"]
    await clusters.nothing_left(FIRST, SECOND)

    async def gone() -> bool:
        return all(each["metadata"]["name"] != "short" for each in await clusters.manager.all(kube.JOBS, "default"))

    await clusters.manager.until(gone, "the job here deletes itself after its end")
    events = [event for event in await clusters.manager.all(kube.EVENTS) if event["reason"] == "MultiKueue"]
    assert not any("no longer exists" in event["note"] for event in events)


async def test_a_lost_cluster_is_given_up_and_wins_nothing_when_it_comes_back(clusters: Clusters) -> None:
    clusters.operator()
    await clusters.manager.create(job("train", "lq", runtime=""))
    first = await clusters.runs_in("train")
    other = SECOND if first == FIRST else FIRST
    system = clusters.systems[first]
    system.restarted = True
    system.plane.stop_component("kube-apiserver")
    try:

        async def moved() -> bool:
            return (await clusters.status("train")).get("clusterName") == other

        await clusters.manager.until(moved, "the other cluster runs it", 90)
        lost = await clusters.manager.get(kube.MULTI_KUEUE_CLUSTERS, first)
        assert condition_row(lost, "Active")["reason"] == "ClientConnectionFailed"
        evictions = (await clusters.status("train"))["schedulingStats"]["evictions"]
        assert [row["reason"] for row in evictions] == ["AdmissionCheck"]
    finally:
        system.restart_apiserver()
    assert await clusters.runs_in("train") == other
    await clusters.nothing_left(first, seconds=90)
    assert await clusters.runs_in("train") == other
    await clusters.manager.client.delete(kube.JOBS, "default", "train", propagation="Background")
    await clusters.nothing_left(FIRST, SECOND)


async def test_quotas_here_follow_those_of_the_workers(clusters: Clusters) -> None:
    automated = config(FIRST, SECOND)
    automated["spec"]["quotaManagement"] = "Automated"
    await clusters.manager.apply(automated)
    clusters.operator(sums_quotas=True)

    async def follows(most: str) -> bool:
        queue = await clusters.manager.get(kube.CLUSTER_QUEUES, "cq")
        [group] = queue["spec"]["resourceGroups"]
        return condition(queue, names.QUOTA_AUTOMATION) and group["flavors"][0]["resources"][0]["nominalQuota"] == most

    await clusters.manager.until(lambda: follows("2"), "one each", 30)
    await clusters.quota(worker_1=3)
    await clusters.manager.until(lambda: follows("4"), "one worker has more", 30)


async def test_copies_without_a_workload_are_collected(clusters: Clusters) -> None:
    """The job is deleted while no operator runs."""
    clusters.operator()
    await clusters.manager.create(job("train", "lq", runtime=""))
    await clusters.runs_in("train")
    clusters.systems[MANAGER].kill_operators()
    await clusters.manager.client.delete(kube.JOBS, "default", "train", propagation="Background")
    workload = await clusters.manager.workload_of("train") or {}
    name = workload["metadata"]["name"]
    with suppress(NotFound):
        await clusters.manager.client.patch(kube.WORKLOADS, "default", name, {"metadata": {"finalizers": None}})
        await clusters.manager.client.delete(kube.WORKLOADS, "default", name)
    assert [each["metadata"]["name"] for each in [*await clusters.copies(FIRST), *await clusters.copies(SECOND)]] == [
        name
    ]
    clusters.operator()
    await clusters.nothing_left(FIRST, SECOND)


async def test_an_incremental_dispatcher_asks_one_cluster_after_the_other(clusters: Clusters) -> None:
    await clusters.quota(worker_1=0, worker_2=1)
    clusters.operator(dispatcher=INCREMENTAL, step=1)
    await clusters.manager.create(job("train", "lq", runtime=""))

    async def first_alone() -> bool:
        return (await clusters.status("train")).get("nominatedClusterNames") == [FIRST]

    await clusters.manager.until(first_alone, "the first cluster is asked alone", period=0.05)
    assert await clusters.runs_in("train") == SECOND


async def test_an_eviction_here_stops_the_job_there(clusters: Clusters) -> None:
    clusters.operator()
    await clusters.manager.create(job("train", "lq", runtime=""))
    cluster = await clusters.runs_in("train")
    workload = await clusters.manager.workload_of("train") or {}
    body = {"spec": {"active": False}}
    await clusters.manager.client.patch(kube.WORKLOADS, "default", workload["metadata"]["name"], body)

    async def released() -> bool:
        found = await clusters.manager.workload_of("train") or {}
        here = await clusters.manager.get(kube.JOBS, "train")
        return not condition(found, "QuotaReserved") and here["spec"]["suspend"] and not here["status"].get("active")

    await clusters.manager.until(released, "its quota is released", 60)
    await clusters.nothing_left(FIRST, SECOND)
    events = await clusters.apis[cluster].all(kube.EVENTS, "default")
    assert any("EvictedOnManagerCluster" in str(event) for event in events)


async def test_a_job_whose_workload_is_taken_away_queues_again(clusters: Clusters) -> None:
    """Without its finalizer a Workload goes at once, and its job here goes on saying that pods run."""
    clusters.operator()
    await clusters.manager.create(job("train", "lq", runtime=""))
    cluster = await clusters.runs_in("train")
    gone = ((await clusters.manager.workload_of("train")) or {})["metadata"]
    before = ((await clusters.there(cluster, "train")) or {})["metadata"]["uid"]
    with suppress(NotFound):
        await clusters.manager.client.patch(kube.WORKLOADS, "default", gone["name"], {"metadata": {"finalizers": None}})
        await clusters.manager.client.delete(kube.WORKLOADS, "default", gone["name"])

    async def queued_again() -> bool:
        found = await clusters.manager.workload_of("train")
        return found is not None and found["metadata"]["uid"] != gone["uid"]

    await clusters.manager.until(queued_again, "it has a Workload again", 60)
    anew = await clusters.runs_in("train")
    assert ((await clusters.there(anew, "train")) or {})["metadata"]["uid"] != before


# --- elastic jobs ---


async def test_an_elastic_job_grows_and_shrinks_where_it_runs(clusters: Clusters) -> None:
    """2 → 5 → 8, for which there is no room → 3: no pod of the first two restarts, and no other cluster gets anything."""
    await clusters.quota(worker_1=6)
    clusters.operator()
    await clusters.manager.create(elastic_job("train", 2))
    await _size(clusters, pods=2, quota=2)
    before = await _running(clusters)
    assert await clusters.copies(SECOND) == []
    await asyncio.sleep(1.1)  # of pods that became ready in the same second, Kubernetes would delete any

    await resize(clusters.manager, "train", 5)
    await _size(clusters, pods=5, quota=5)
    [old, new] = await slices(clusters.apis[FIRST], "train")
    assert condition_row(old, "Finished")["reason"] == "WorkloadSliceReplaced" and admitted(new)
    remote = await clusters.there(FIRST, "train") or {}
    assert remote["metadata"]["labels"][names.PREBUILT_WORKLOAD] == new["metadata"]["name"]

    await resize(clusters.manager, "train", 8)

    async def waits() -> bool:
        last = (await slices(clusters.apis[FIRST], "train"))[-1]
        return condition_row(last, "QuotaReserved").get("message", "").endswith("2 more needed")

    await clusters.manager.until(waits, "the worker has no room for three more", 60)
    await _size(clusters, pods=5, quota=5)
    clusters.operator()  # another operator goes on with what it finds

    await resize(clusters.manager, "train", 3)
    await _size(clusters, pods=3, quota=3)
    assert before <= await _running(clusters), "the first two pods have run all the time"
    assert await clusters.copies(SECOND) == []
    await clusters.manager.client.delete(kube.JOBS, "default", "train", propagation="Background")
    await clusters.nothing_left(FIRST, SECOND)


async def _running(clusters: Clusters) -> set[str]:
    found = await clusters.apis[FIRST].all(kube.PODS, "default", "job-name=train")
    return {pod["metadata"]["uid"] for pod in found if pod["status"].get("phase") == "Running"}


async def _size(clusters: Clusters, *, pods: int, quota: int) -> None:
    async def so() -> bool:
        here = await clusters.manager.get(kube.JOBS, "train")
        shown = (here.get("status") or {}).get("active"), here["spec"]["suspend"]
        living = await pods_of(clusters.apis[FIRST], "train")
        return shown == (pods, False) and living == {"Running": pods} and await usage(clusters.apis[FIRST]) == quota

    await clusters.manager.until(so, f"{pods} pods run in the worker, and the job here says so", 90)


# --- kinds that are only declared ---


def pytorch_job(name: str) -> Json:
    container = {"name": "pytorch", "image": "train", "resources": {"requests": {"nvidia.com/gpu": "1"}}}
    container["resources"]["limits"] = container["resources"]["requests"]
    replicas = {
        kind: {"replicas": count, "restartPolicy": "Never", "template": {"spec": {"containers": [container]}}}
        for kind, count in (("Master", 1), ("Worker", 2))
    }
    return {
        "apiVersion": PYTORCH_JOBS.api_version,
        "kind": PYTORCH_JOBS.kind,
        "metadata": {"name": name, "namespace": "default", "labels": {names.QUEUE_NAME: "lq"}},
        "spec": {"runPolicy": {"cleanPodPolicy": "None"}, "pytorchReplicaSpecs": replicas},
    }


@pytest.fixture
async def trained(clusters: Clusters, tmp_path: Path) -> AsyncIterator[Clusters]:
    """All clusters have PyTorchJobs, and the manager's webhooks manage them."""
    for api in clusters.apis.values():
        await api.client.create(kube.CUSTOM_RESOURCE_DEFINITIONS, None, crd(PYTORCH_JOBS))
    system = clusters.systems[MANAGER]
    file = tmp_path / "config.yaml"
    file.write_text(yaml.safe_dump(CONFIGURATION))
    system.webhooks.stop()
    webhooks = WebhookProcess(system.webhooks.kubeconfig, system.directory, arguments=("--config", str(file))).start()
    yield clusters
    webhooks.stop()
    system.webhooks.start()
    for api in clusters.apis.values():
        for found in await api.all(PYTORCH_JOBS, "default"):
            await api.client.delete(PYTORCH_JOBS, "default", found["metadata"]["name"], propagation="Background")
        await api.client.delete(kube.CUSTOM_RESOURCE_DEFINITIONS, None, f"{PYTORCH_JOBS.plural}.{PYTORCH_JOBS.group}")


async def test_a_pytorchjob_runs_in_the_cluster_that_takes_it(trained: Clusters) -> None:
    """The account of the first cluster may not send PyTorchJobs, which is said. The other cluster runs it, until it is evicted
    here, and then again to its end. The test plays the training operator there."""
    await trained.quota(worker_1=8, worker_2=8)
    trained.operator()
    manager, worker = trained.manager, trained.apis[SECOND]

    async def connected_without_kind() -> bool:
        row = condition_row(await manager.get(kube.MULTI_KUEUE_CLUSTERS, FIRST), "Active")
        return row.get("status") == "True" and "may not list pytorchjobs.kubeflow.org" in row["message"]

    await manager.until(connected_without_kind, "the first cluster is connected, without PyTorchJobs", 60)

    async def create() -> Any:
        try:
            return await manager.client.create(PYTORCH_JOBS, "default", pytorch_job("tune"))
        except NotFound:  # the kind is not served yet
            return None

    stored = await manager.until(create, "the job is created")
    assert stored["spec"]["runPolicy"] == {"cleanPodPolicy": "None", "suspend": True, "managedBy": CONTROLLER}

    async def started() -> Any:
        with suppress(NotFound):
            found = await worker.get(PYTORCH_JOBS, "tune")
            return None if found["spec"]["runPolicy"]["suspend"] else found
        return None

    there = await manager.until(started, "it starts in the second cluster", 90)  # with the scene here if it does not
    assert "managedBy" not in there["spec"]["runPolicy"]
    labels = there["spec"]["pytorchReplicaSpecs"]["Worker"]["template"]["metadata"]["labels"]
    assert labels[names.MULTIKUEUE_WORKER_POD] == "true"
    await write_status(worker, running("True", active=2))

    async def shown() -> bool:
        here = await manager.get(PYTORCH_JOBS, "tune")
        workload = await manager.workload_of("tune") or {}
        same = here.get("status", {}).get("replicaStatuses") == {"Worker": {"active": 2}}
        return same and not here["spec"]["runPolicy"]["suspend"] and condition(workload, "PodsReady")

    await manager.until(shown, "the job here says how far it is", 60)
    assert (await trained.status("tune"))["clusterName"] == SECOND

    # evicted here: it is stopped there, and its quota is held until its last pod there has ended
    name = ((await manager.workload_of("tune")) or {})["metadata"]["name"]
    await manager.client.patch(kube.WORKLOADS, "default", name, {"spec": {"active": False}})

    async def stopped() -> bool:
        return (await worker.get(PYTORCH_JOBS, "tune"))["spec"]["runPolicy"]["suspend"]

    await worker.until(stopped, "it is stopped there", 60)
    assert condition((await manager.workload_of("tune")) or {}, "QuotaReserved")
    await write_status(worker, running("False", active=0))

    async def released() -> bool:
        here = await manager.get(PYTORCH_JOBS, "tune")
        workload = await manager.workload_of("tune") or {}
        return not condition(workload, "QuotaReserved") and here["spec"] == stored["spec"]

    await manager.until(released, "its quota is free, and it is as its user wrote it", 60)
    await trained.nothing_left(FIRST, SECOND)
    assert await worker.all(PYTORCH_JOBS, "default") == []

    # and again, to its end
    await manager.client.patch(kube.WORKLOADS, "default", name, {"spec": {"active": True}})
    await manager.until(started, "it starts again", 90)
    await write_status(worker, {"conditions": [row_of("Succeeded", "True")], "replicaStatuses": {}})

    async def finished() -> bool:
        here = await manager.get(PYTORCH_JOBS, "tune")
        workload = await manager.workload_of("tune") or {}
        return condition(here, "Succeeded") and condition(workload, "Finished")

    await manager.until(finished, "it has finished here, too", 60)
    await trained.nothing_left(FIRST, SECOND)
    assert await worker.all(PYTORCH_JOBS, "default") == []


def row_of(kind: str, status: str) -> Json:
    moment = "2026-01-31T12:00:00Z"
    return {"type": kind, "status": status, "reason": kind, "message": "", "lastTransitionTime": moment}


def running(status: str, *, active: int) -> Json:
    return {"conditions": [row_of("Running", status)], "replicaStatuses": {"Worker": {"active": active}}}


async def write_status(worker: Api, status: Json) -> None:
    """As the training operator does."""
    await worker.client.patch(PYTORCH_JOBS, "default", "tune", {"status": status}, subresource="status")
