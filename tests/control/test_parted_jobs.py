"""Jobs whose Workload is gone while another cluster ran them: they show no pods any more once no cluster has them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from tests.control.test_multikueue import ADMITTED, condition, job, row, workload
from tests.control.test_multikueue_part import KEY, START, Room, Worker, owned

from gangline.api import names
from gangline.api.admission.multikueue import CONTROLLER
from gangline.api.jobkinds.ray import RAY_CLUSTER
from gangline.control.checks.multikueue.clusters import clusters as clusters_module
from gangline.control.feed.owned_objects import Children
from gangline.control.feed.watched_kinds import JOB_KINDS
from gangline.control.parts import attempts
from gangline.kube import resources as kube
from gangline.kube.reflector import Removed, Upsert
from gangline.kube.resources import Json, Resource
from gangline.objects import JobObject

CLUSTERS = RAY_CLUSTER.resource
JOB_KEY = "team/train"


def ray_cluster(**status: Any) -> Json:
    pod = {"spec": {"containers": [{"name": "c", "image": "i"}]}}
    spec = {"suspend": True, "managedBy": CONTROLLER, "headGroupSpec": {"template": pod}}
    return {"metadata": {"name": "train", "namespace": "team", "uid": "j"}, "spec": spec, "status": status}


def of_ray(made: Json) -> Json:
    ref = {"apiVersion": CLUSTERS.api_version, "kind": CLUSTERS.kind, "name": "train", "uid": "j", "controller": True}
    return {**made, "metadata": {**made["metadata"], "ownerReferences": [ref]}}


@pytest.fixture(autouse=True)
def stand_ins(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr(clusters_module, "RemoteCluster", Worker)
    monkeypatch.setattr(attempts, "LONGEST_PAUSE", 0.0)
    Worker.made = {}
    yield
    Worker.made = {}


def runs_there(cluster: str, resource: Resource, *, version: str = "6", leaving: bool = False) -> None:
    worker = Worker.made[cluster]
    labels = {names.MULTIKUEUE_ORIGIN: "multikueue", names.PREBUILT_WORKLOAD: "wl"}
    meta: Json = {"name": "train", "namespace": "team", "uid": "there", "resourceVersion": version, "labels": labels}
    if leaving:
        meta["deletionTimestamp"] = "2026-01-31T12:00:00Z"
    worker.store.sink(resource)(Upsert(JobObject({"metadata": meta, "spec": {"suspend": False}, "status": {}})))


def is_active(room: Room, resource: Resource) -> bool:
    found = room.mirror.get(resource, JOB_KEY)
    assert found is not None
    return JOB_KINDS[resource].is_active(found, Children())


def written(room: Room, resource: Resource) -> int:
    return int(
        (room.mirror.get(resource, JOB_KEY) or {"metadata": {"resourceVersion": "0"}})["metadata"]["resourceVersion"]
    )


KINDS = {
    kube.JOBS: (job(active=2, ready=2), owned, ()),
    CLUSTERS: (ray_cluster(state="ready", readyWorkerReplicas=2), of_ray, ("ray.io/raycluster",)),
}


async def parted(resource: Resource, settings: Any = None) -> Room:
    """A job that `b` runs, whose Workload is gone."""
    body, owns, frameworks = KINDS[resource]
    room = Room(settings, *frameworks)
    room.part.lead()
    room.put(resource, body)
    room.put(kube.WORKLOADS, owns(workload(ADMITTED, check=row("Ready"), clusterName="b")))
    room.act()
    for worker in Worker.made.values():
        worker.sent.clear()
    runs_there("b", resource)
    room.act()
    assert is_active(room, resource)
    room.mirror.remove(kube.WORKLOADS, KEY)
    return room


@pytest.mark.parametrize("resource", KINDS)
async def test_it_shows_pods_until_its_job_there_is_gone(resource: Resource) -> None:
    room = await parted(resource)
    room.act()
    assert is_active(room, resource), "it still runs there"
    assert await Worker.made["b"].carry_out() == [f"delete {resource.kind}"]
    room.act()
    assert not is_active(room, resource)
    before = written(room, resource)
    for _ in range(3):
        room.act()
    assert written(room, resource) == before, "it is written once"
    await room.part.close()


async def test_a_job_that_is_on_its_way_out_there_still_runs() -> None:
    room = await parted(kube.JOBS)
    runs_there("b", kube.JOBS, version="8", leaving=True)
    room.act()
    assert is_active(room, kube.JOBS)
    Worker.made["b"].store.sink(kube.JOBS)(Removed(JOB_KEY, "there"))
    room.act()
    assert not is_active(room, kube.JOBS)
    await room.part.close()


async def test_a_lost_cluster_may_run_it_until_it_is_given_up() -> None:
    room = await parted(kube.JOBS)
    Worker.made["b"].connected, Worker.made["b"].lost_at = False, START
    room.act()
    assert is_active(room, kube.JOBS) and room.part.due == START + 60_000, "the next search for copies comes first"
    room.act(START + 899_000)
    assert is_active(room, kube.JOBS) and room.part.due == START + 900_000
    room.act(START + 900_000)
    assert not is_active(room, kube.JOBS)
    await room.part.close()


async def test_without_any_cluster_nothing_runs_elsewhere() -> None:
    room = await parted(kube.JOBS)
    for name in ("a", "b"):
        room.mirror.remove(kube.MULTI_KUEUE_CLUSTERS, name)
    room.part.observe(kube.MULTI_KUEUE_CLUSTERS, Upsert({}))
    room.act()
    assert not is_active(room, kube.JOBS)
    await room.part.close()


async def test_a_process_that_never_saw_the_workload_looks_too() -> None:
    """The operator was down when the Workload went."""
    room = Room()
    room.mirror.remove(kube.WORKLOADS, KEY)
    room.put(kube.JOBS, job(active=2))
    room.part.lead()
    room.act()
    assert not is_active(room, kube.JOBS)
    await room.part.close()


async def test_a_new_workload_without_quota_does_not_speak_for_the_old_run() -> None:
    """A prebuilt one is made again at once; its job could never start while it shows pods."""
    room = await parted(kube.JOBS)
    Worker.made["b"].store.sink(kube.JOBS)(Removed(JOB_KEY, "there"))
    room.put(kube.WORKLOADS, owned(workload(reserved=False)))
    room.act()
    assert not is_active(room, kube.JOBS)
    await room.part.close()


@pytest.mark.parametrize(
    "left",
    [
        job(manager="example.com/other", active=2),
        job(active=2, conditions=[condition("Complete")]),
    ],
    ids=["another controller runs it", "it has ended"],
)
async def test_what_nobody_here_may_say_stays(left: Json) -> None:
    room = Room()
    room.mirror.remove(kube.WORKLOADS, KEY)
    room.put(kube.JOBS, left)
    room.part.lead()
    room.act()
    assert (room.mirror.get(kube.JOBS, JOB_KEY) or {})["status"]["active"] == 2
    await room.part.close()


@pytest.mark.parametrize(
    "speaks", [workload(ADMITTED, check=row("Ready"), clusterName="a"), workload(condition(names.FINISHED))]
)
async def test_a_workload_with_quota_or_a_finished_one_speaks_for_its_job(speaks: Json) -> None:
    room = Room()
    room.put(kube.WORKLOADS, owned(speaks))
    room.put(kube.JOBS, job(active=2))
    room.part.lead()
    room.part._parted.look_at([(kube.JOBS, JOB_KEY)])
    assert not room.part._parted
    room.act()
    assert is_active(room, kube.JOBS)
    await room.part.close()
