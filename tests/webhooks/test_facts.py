"""What rules ask of the cluster: answered once, remembered for a moment, and never in the way."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from gangline.api import admission, names
from gangline.api.admission import Context
from gangline.api.read.configuration import ManagedJobs
from gangline.engine import model
from gangline.kube.client import NotFound, Resource, Unavailable
from gangline_webhooks import facts
from gangline_webhooks.facts import Facts

Json = dict[str, Any]


class Cluster:
    """Objects by plural and name; counts reads."""

    def __init__(self, **objects: Json) -> None:
        self.objects = objects
        self.reads: list[str] = []
        self.down = False

    async def get(self, resource: Resource, namespace: str | None, name: str, *, within: float | None = None) -> Json:
        assert within is not None
        assert within <= 1.0
        self.reads.append(f"{resource.plural}/{name}")
        await asyncio.sleep(0)
        if self.down:
            raise Unavailable(0, "Refused", "nobody there")
        key = f"{resource.plural}_{name}"
        if key not in self.objects:
            raise NotFound(404)
        return self.objects[key]


class Clock:
    now = 0.0

    def __call__(self) -> float:
        return self.now


def asks_for_queue(context: Context) -> bool:
    return context.local_queue_exists("team", "default")


async def test_answers_are_remembered_and_forgotten():
    cluster, clock = Cluster(localqueues_default={}), Clock()
    known = Facts(cluster, clock)
    assert await known.run(asks_for_queue) is True
    assert await known.run(asks_for_queue) is True
    assert len(cluster.reads) == 1
    clock.now += facts.YES_LASTS
    assert await known.run(asks_for_queue) is True
    assert len(cluster.reads) == 2


async def test_a_no_is_soon_doubted():
    cluster, clock = Cluster(), Clock()
    known = Facts(cluster, clock)
    assert await known.run(asks_for_queue) is False
    cluster.objects["localqueues_default"] = {}
    assert await known.run(asks_for_queue) is False
    clock.now += facts.NO_LASTS
    assert await known.run(asks_for_queue) is True


async def test_many_askers_make_one_read():
    cluster = Cluster(localqueues_default={})
    known = Facts(cluster)
    assert all(await asyncio.gather(*(known.run(asks_for_queue) for _ in range(50))))
    assert len(cluster.reads) == 1


async def test_a_rule_may_ask_several_things():
    known = Facts(Cluster(localqueues_default={}, workloadpriorityclasses_default={}))

    def rule(context: Context) -> tuple[bool, bool, bool]:
        return (
            context.local_queue_exists("team", "default"),
            context.priority_class_exists("default"),
            context.priority_class_exists("other"),
        )

    assert await known.run(rule) == (True, True, False)


def owner(kind: str, name: str, *, queue: str = "", parent: Json | None = None) -> Json:
    meta: Json = {"name": name, "uid": f"uid-{name}"}
    if queue:
        meta["labels"] = {names.QUEUE_NAME: queue}
    if parent:
        meta["ownerReferences"] = [parent]
    return {"kind": kind, "metadata": meta}


#: of a kind of which nothing is known but who owns it
CHILD: Json = {"kind": "Job", "metadata": {"name": "c"}}


def reference(kind: str, name: str, version: str = "gangline.io/v1alpha1") -> Json:
    return {"apiVersion": version, "kind": kind, "name": name, "uid": f"uid-{name}", "controller": True}


@pytest.mark.parametrize(
    ("objects", "queued"),
    [
        ({"gpujobs_a": owner("GPUJob", "a", queue="main")}, True),
        ({"gpujobs_a": owner("GPUJob", "a")}, False),
        ({}, False),
        ({"gpujobs_a": {**owner("GPUJob", "a", queue="main"), "metadata": {"uid": "another"}}}, False),
        ({"gpujobs_a": {**owner("GPUJob", "a", queue="main"), "metadata": None}}, False),
        (
            {
                "gpujobs_a": owner("GPUJob", "a", parent=reference("JobSet", "b", "jobset.x-k8s.io/v1alpha2")),
                "jobsets_b": owner("JobSet", "b", queue="main"),
            },
            True,
        ),
        ({"gpujobs_a": owner("GPUJob", "a", parent=reference("GPUJob", "a"))}, False),  # its own ancestor
    ],
)
async def test_owners_are_followed_up(objects: dict[str, Json], queued: bool):
    cluster = Cluster(**objects)
    assert (
        await Facts(cluster).run(lambda context: context.owner_is_queued("team", reference("GPUJob", "a"), CHILD))
        is queued
    )
    assert len(cluster.reads) <= facts.MAX_DEPTH


async def test_without_an_api_server_jobs_stay_as_they_are_and_nobody_waits():
    cluster, clock = Cluster(localqueues_default={}), Clock()
    known = Facts(cluster, clock)
    cluster.down = True
    assert await known.run(asks_for_queue) is False
    assert await known.run(lambda context: context.owner_is_queued("team", reference("GPUJob", "a"), CHILD)) is True
    assert len(cluster.reads) == 1  # the second question was not even tried
    cluster.down = False
    clock.now += facts.FAILURE_LASTS
    assert await known.run(asks_for_queue) is True


async def test_no_namespace_no_question():
    cluster = Cluster()
    assert await Facts(cluster).run(lambda context: context.local_queue_exists("", "default")) is False
    assert cluster.reads == []


# --- which jobs are managed -------------------------------------------------------------------------------------------

SELECTED = model.LabelSelector((model.Expression("gpus", "In", ("managed",)),))
EVERY_JOB = ManagedJobs(without_queue=True, selector=SELECTED)


def a_job(queue: str = "", **meta: Any) -> Json:
    labels = {"kueue.x-k8s.io/queue-name": queue} if queue else {}
    return {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {"name": "j", "namespace": "team", "labels": labels, **meta},
        "spec": {"template": {}},
    }


def a_cluster(**labels: str) -> Cluster:
    return Cluster(
        localqueues_default={}, workloadpriorityclasses_default={}, namespaces_team={"metadata": {"labels": labels}}
    )


async def defaulted(known: Facts, job: Json) -> tuple[bool, Json]:
    """Whether it is suspended, and its labels."""
    result = (await known.run(lambda context: admission.default(job, None, context))).obj
    return result["spec"].get("suspend", False), result["metadata"]["labels"]


@pytest.mark.parametrize("queue", ["", "main"])
async def test_only_jobs_in_selected_namespaces_are_held_and_given_a_queue(queue: str):
    inside, outside = a_cluster(gpus="managed"), a_cluster(gpus="free")
    held, labels = await defaulted(Facts(inside, managed=EVERY_JOB), a_job(queue))
    assert held
    assert labels == {"kueue.x-k8s.io/queue-name": queue or "default", "kueue.x-k8s.io/priority-class": "default"}
    assert await defaulted(Facts(outside, managed=EVERY_JOB), a_job(queue)) == (
        False,
        a_job(queue)["metadata"]["labels"],
    )


async def test_a_job_without_a_queue_is_held_where_all_jobs_are_managed():
    without_default = Cluster(namespaces_team={"metadata": {"labels": {"gpus": "managed"}}})
    assert await defaulted(Facts(without_default, managed=EVERY_JOB), a_job()) == (True, {})
    assert await defaulted(Facts(without_default, managed=ManagedJobs(selector=SELECTED)), a_job()) == (False, {})
    without_default.down = True  # the operator corrects it
    assert await defaulted(Facts(without_default, managed=EVERY_JOB), a_job()) == (False, {})


async def test_where_nothing_is_selected_no_namespace_is_read():
    cluster = a_cluster()
    held, labels = await defaulted(Facts(cluster, managed=ManagedJobs(priority_by_default=False)), a_job())
    assert held
    assert labels == {"kueue.x-k8s.io/queue-name": "default"}
    assert cluster.reads == ["localqueues/default"]
    assert await defaulted(Facts(cluster, managed=ManagedJobs(queue_by_default=False)), a_job()) == (False, {})


async def test_the_selector_of_older_versions_leaves_queued_jobs_to_their_queue():
    older = ManagedJobs(without_queue=True, selector=SELECTED, selector_holds_for_queued=False)
    held, _ = await defaulted(Facts(a_cluster(gpus="free"), managed=older), a_job("main"))
    assert held
    held, _ = await defaulted(Facts(a_cluster(gpus="free"), managed=older), a_job())
    assert not held


async def test_an_owner_that_names_no_queue_is_managed_where_all_are():
    owner = {"apiVersion": "jobset.x-k8s.io/v1alpha2", "kind": "JobSet", "name": "set", "uid": "u", "controller": True}
    child = a_job(ownerReferences=[owner])
    child["metadata"]["name"] = "set-workers-0"
    row = {"name": "workers", "replicas": 1, "template": {"spec": {}}}
    cluster = Cluster(
        jobsets_set={**owner, "metadata": {"uid": "u", "name": "set"}, "spec": {"replicatedJobs": [row]}},
        namespaces_team={"metadata": {"labels": {"gpus": "managed"}}},
    )
    assert (await defaulted(Facts(cluster, managed=EVERY_JOB), child))[0] is False
    unlisted = ManagedJobs(without_queue=True, selector=SELECTED, unlisted=frozenset({("jobset.x-k8s.io", "JobSet")}))
    assert (await defaulted(Facts(cluster, managed=unlisted), child))[0] is True
