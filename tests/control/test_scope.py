"""Which jobs the mirror takes for managed, by kind, namespace and owner."""

from __future__ import annotations

from typing import Any

from tests.objects import JobObject

from gangline.api.read.configuration import ManagedJobs
from gangline.control.feed.mirror import Mirror
from gangline.control.feed.watched_kinds import JOB_KINDS
from gangline.engine import model
from gangline.kube import resources as kube

Json = dict[str, Any]
JOB = JOB_KINDS[kube.JOBS]
SELECTED = model.LabelSelector((model.Expression("gpus", "In", ("managed",)),))


def a_mirror(managed: ManagedJobs) -> Mirror:
    return Mirror(observe=lambda change: None, managed=managed)


def namespace(version: str, **labels: str) -> Json:
    return {"metadata": {"name": "team", "uid": "n", "resourceVersion": version, "labels": labels}}


def a_job(name: str, queue: str = "", owner: Json | None = None) -> JobObject:
    labels = {"kueue.x-k8s.io/queue-name": queue} if queue else {}
    meta = {"name": name, "namespace": "team", "uid": name, "resourceVersion": "1", "labels": labels}
    return JobObject(
        {
            "apiVersion": "batch/v1",
            "kind": "Job",
            "metadata": {**meta, "ownerReferences": [owner] if owner else []},
            "spec": {"parallelism": 1, "template": {"spec": {}}},
        }
    )


def test_a_namespace_is_in_scope_while_its_labels_say_so() -> None:
    mirror = a_mirror(ManagedJobs(selector=SELECTED))
    job = a_job("train", "main")
    mirror.upsert(kube.JOBS, job)
    assert not mirror.in_scope(JOB, job), "the namespace is not known yet"
    changed = mirror.changes.jobs.subscribe(worth=lambda ref: True)
    mirror.upsert(kube.NAMESPACES, namespace("1", gpus="managed"))
    assert mirror.in_scope(JOB, job)
    assert changed.take() == {(kube.JOBS, "team/train")}
    mirror.upsert(kube.NAMESPACES, namespace("2"))
    assert not mirror.in_scope(JOB, job)
    assert changed.take() == {(kube.JOBS, "team/train")}


def test_without_a_selector_every_namespace_is() -> None:
    mirror = a_mirror(ManagedJobs())
    assert mirror.in_scope(JOB, a_job("train", "main"))
    assert mirror.in_scope(JOB, a_job("train"))
    unlisted = a_mirror(ManagedJobs(unlisted=frozenset({("batch", "Job")})))
    assert not unlisted.in_scope(JOB, a_job("train", "main"))


def test_an_owner_counts_if_it_is_managed_itself() -> None:
    """A JobSet that names no queue keeps its Jobs from having Workloads only where all jobs are managed."""
    owner = {"apiVersion": "jobset.x-k8s.io/v1alpha2", "kind": "JobSet", "name": "set", "uid": "s", "controller": True}
    meta = {"name": "set", "namespace": "team", "uid": "s", "resourceVersion": "1"}
    row = {"name": "workers", "replicas": 1, "template": {"spec": {"parallelism": 1, "template": {"spec": {}}}}}
    job_set = {"apiVersion": owner["apiVersion"], "kind": "JobSet", "metadata": meta, "spec": {"replicatedJobs": [row]}}
    child = a_job("set-workers-0", owner=owner)
    kinds = frozenset({("jobset.x-k8s.io", "JobSet")})
    for managed, known, expected in (
        (ManagedJobs(), True, False),
        (ManagedJobs(without_queue=True), True, True),
        (ManagedJobs(without_queue=True, unlisted=kinds), True, False),
        (ManagedJobs(), False, True),  # it waits for its owner
        (ManagedJobs(unlisted=kinds), False, False),
    ):
        mirror = a_mirror(managed)
        if known:
            mirror.upsert(kube.JOB_SETS, {**job_set, "metadata": dict(meta)})
        mirror.upsert(kube.JOBS, child)
        assert mirror.managed_ancestor(child) is expected, managed
