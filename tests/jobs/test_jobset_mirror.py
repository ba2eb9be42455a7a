"""JobSets in the mirror: who their child Jobs belong to, and which priority class they name."""

from __future__ import annotations

from typing import Any

import pytest
from tests.jobs.support import Json
from tests.jobs.test_jobset import job_set, pods
from tests.objects import JobObject

from gangline.api import jobkinds
from gangline.control.feed import watched_kinds
from gangline.control.feed.mirror import Mirror
from gangline.jobs.base import JobError
from gangline.jobs.jobset import JobSet
from gangline.kube import resources as kube
from gangline.objects import view

QUEUE = "kueue.x-k8s.io/queue-name"
PRIORITY = "kueue.x-k8s.io/priority-class"
CHILD = (kube.JOBS, "team/jax-slice-0")


def child(owner_uid: str = "uid") -> JobObject:
    owner = {"apiVersion": "jobset.x-k8s.io/v1alpha2", "kind": "JobSet", "name": "jax", "uid": owner_uid}
    meta = {"name": "jax-slice-0", "namespace": "team", "uid": "c", "labels": {QUEUE: "main"}}
    spec = {"suspend": False, "parallelism": 1, "completions": 1, "template": pods()}
    owners = [{**owner, "controller": True}]
    metadata = {**meta, "ownerReferences": owners}
    return JobObject({"apiVersion": "batch/v1", "kind": "Job", "metadata": metadata, "spec": spec})


def filled(*objects: tuple[kube.Resource, Json]) -> Mirror:
    found = Mirror(observe=lambda change: None)
    for resource, obj in objects:
        found.upsert(resource, view(resource, obj))
    return found


def test_which_kinds_may_be_missing():
    assert {
        *(kube.QUEUE_POLICIES, kube.RESERVATIONS, kube.QUOTA_PLANS, kube.JOB_PROFILES),
        *(kube.RESOURCE_CLAIM_TEMPLATES, kube.DEVICE_CLASSES),
        *(kube.RESOURCE_SLICES, kube.RESOURCE_CLAIMS, kube.OLD_RESOURCE_SLICES, kube.OLD_RESOURCE_CLAIMS),
        *(kube.MULTI_KUEUE_CONFIGS, kube.MULTI_KUEUE_CLUSTERS),
        *(kube.PROVISIONING_CONFIGS, kube.PROVISIONING_REQUESTS),
        *(each.resource for each in jobkinds.BUILT_IN if each.optional),
        *(kube.TRAINING_RUNTIMES, kube.CLUSTER_TRAINING_RUNTIMES),
    } == watched_kinds.optional()
    assert kube.JOB_SETS in watched_kinds.resources()


@pytest.mark.parametrize("where", ["labels", "annotations"])
def test_a_child_job_of_a_queued_jobset_is_left_alone_whatever_its_labels(where: str):
    found = filled((kube.JOB_SETS, job_set(**{where: {QUEUE: "main"}})), (kube.JOBS, child()))
    assert found.managed_ancestor(child())
    assert [job["metadata"]["name"] for job in found.children_of(job_set()).jobs] == ["jax-slice-0"]


def test_a_child_job_of_a_jobset_without_a_queue_is_on_its_own():
    found = filled((kube.JOB_SETS, job_set()), (kube.JOBS, child()))
    assert not found.managed_ancestor(child())


def test_a_child_job_waits_until_its_jobset_is_known():
    found = filled((kube.JOBS, child()))
    assert found.managed_ancestor(child())
    changed = found.changes.jobs.subscribe(worth=lambda ref: True)
    found.upsert(kube.JOB_SETS, job_set())
    assert CHILD in changed
    assert not found.managed_ancestor(child())


def test_an_owner_that_nobody_watches_is_not_waited_for():
    stranger = child()
    stranger["metadata"]["ownerReferences"][0]["apiVersion"] = "example.com/v1"
    assert not filled((kube.JOBS, stranger)).managed_ancestor(stranger)


def classes(*rows: tuple[kube.Resource, str, int]) -> Mirror:
    return filled(
        *[(resource, {"metadata": {"name": name, "uid": name}, "value": value}) for resource, name, value in rows]
    )


SEED = {"template": pods(labels={PRIORITY: "low-priority-job"}, priorityClassName="low-priority-job")}
OURS = (kube.WORKLOAD_PRIORITY_CLASSES, "low-priority-job", 7)
THEIRS = (kube.PRIORITY_CLASSES, "low-priority-job", 1000000)


@pytest.mark.parametrize(
    ("rows", "kind", "value"), [([OURS, THEIRS], "WorkloadPriorityClass", 7), ([THEIRS], "PriorityClass", 1000000)]
)
def test_the_seeds_label_names_either_kind_of_class(rows: list[Any], kind: str, value: int):
    priority, reference = classes(*rows).priority(job_set(), [SEED])
    assert priority == value
    assert reference is not None
    assert (reference["kind"], reference["name"]) == (kind, "low-priority-job")


def test_a_class_that_does_not_exist_is_named():
    with pytest.raises(JobError, match=r'priorityClassName: PriorityClass "low-priority-job" not found'):
        classes().priority(job_set(), [SEED])
    with pytest.raises(JobError, match=r"metadata.labels\[kueue.x-k8s.io/priority-class\]: WorkloadPriorityClass"):
        classes().priority(job_set(labels={PRIORITY: "x"}), JobSet().pod_sets(job_set()))
