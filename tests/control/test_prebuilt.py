"""Jobs that name a Workload that exists already: it is theirs, and they get no other."""

from __future__ import annotations

import copy
from typing import Any

import pytest
from tests.control.test_plan import JOB_KIND, NOW, Lookups, a_job, admitted, kinds, running_job
from tests.objects import JobObject, WorkloadObject

from gangline.control.feed.mirror import Mirror
from gangline.control.kinds import job_plan
from gangline.control.kinds.steps import ChangeStatus, DeleteWorkload, JobView, Note, PatchWorkload, Step
from gangline.jobs import workload as workloads
from gangline.jobs.base import Children
from gangline.kube import resources as kube

Json = dict[str, Any]
LABEL = "kueue.x-k8s.io/prebuilt-workload-name"


def naming_job(**changes: Any) -> JobObject:
    job = a_job(**changes)
    job["metadata"]["labels"][LABEL] = "mine"
    return job


def prebuilt(job: JobObject, *, owned: bool = False) -> WorkloadObject:
    """A Workload for such a job, written by someone else."""
    pod_sets = JOB_KIND.pod_sets(job)
    body = {
        "apiVersion": "kueue.x-k8s.io/v1beta2",
        "kind": "Workload",
        "metadata": {"name": "mine", "namespace": "ns", "uid": "w", "resourceVersion": "2"},
        "spec": {"queueName": "lq", "podSets": copy.deepcopy(pod_sets), "priority": 3},
        "status": {},
    }
    if owned:
        body["metadata"]["ownerReferences"] = [workloads.owner_reference(JOB_KIND, job)]
    return WorkloadObject(body)


def steps(job: JobObject, named: WorkloadObject | None, *more: WorkloadObject) -> list[Step]:
    owned = [*([named] if named is not None and named.owners else []), *more]
    return job_plan.plan(JobView(JOB_KIND, job, owned, Children(), named=named), Lookups())


def test_a_job_gets_no_workload_while_the_one_that_it_names_is_missing() -> None:
    [note] = steps(naming_job(), None)
    assert isinstance(note, Note)
    assert (note.kind, note.reason, note.message) == (
        "Warning",
        "PrebuiltWorkloadNotFound",
        "Prebuilt workload ns/mine: not found",
    )
    assert kinds(steps(naming_job(suspend=False), None)) == ["PatchJob", "Note", "Note"], "and does not run"


def test_the_workload_that_it_names_becomes_its_own() -> None:
    job = naming_job()
    [step] = steps(job, prebuilt(job))
    assert isinstance(step, PatchWorkload)
    assert step.body["metadata"] == {
        "labels": {"kueue.x-k8s.io/job-uid": "job-uid"},
        "ownerReferences": [workloads.owner_reference(JOB_KIND, job)],
    }
    assert steps(job, prebuilt(job, owned=True)) == [], "then it waits"


def test_the_workload_of_another_job_is_left_to_it() -> None:
    job, other = naming_job(), a_job(uid="other")
    named = prebuilt(other, owned=True)
    [note] = job_plan.plan(JobView(JOB_KIND, job, (), Children(), named=named), Lookups())
    assert isinstance(note, Note)
    assert note.message.endswith("controlled by another object")


def test_a_workload_of_its_own_is_deleted_so_that_quota_is_taken_once() -> None:
    job = naming_job()
    own = WorkloadObject(workloads.build(JOB_KIND, job, JOB_KIND.pod_sets(job), queue="lq", priority=7))
    own["metadata"] |= {"uid": "o", "resourceVersion": "3"}
    first, second = steps(job, prebuilt(job, owned=True), own)
    assert isinstance(first, DeleteWorkload)
    assert first.workload["metadata"]["uid"] == "o"
    assert isinstance(second, Note)


def test_an_admitted_prebuilt_workload_starts_its_job_and_lets_it_run() -> None:
    job = naming_job()
    named = prebuilt(job, owned=True)
    admitted(named["status"], NOW)
    assert kinds(steps(job, named)) == ["PatchJob", "Note"]
    running = running_job(named)
    running["metadata"] = job["metadata"]
    running["status"] = {"active": 2, "ready": 2}
    assert [s.slot for s in steps(running, named)] == ["pods-ready"]  # type: ignore[union-attr]


@pytest.mark.parametrize(
    "change",
    [
        lambda spec: spec["podSets"][0].update(count=3),
        lambda spec: spec["podSets"][0].update(name="other"),
        lambda spec: spec.update(maximumExecutionTimeSeconds=5),
        lambda spec: spec["podSets"][0]["template"]["spec"].update(tolerations=[{"key": "a", "operator": "Exists"}]),
        lambda spec: spec["podSets"][0]["template"]["spec"]["containers"][0].update(image="other"),
        lambda spec: spec["podSets"][0]["template"]["spec"].update(containers=["hostile"]),
    ],
    ids=["count", "name", "limit", "tolerations", "image", "hostile"],
)
def test_a_workload_that_describes_another_job_is_finished_as_out_of_sync(change: Any) -> None:
    job = naming_job()
    named = prebuilt(job, owned=True)
    change(named["spec"])
    [step] = steps(job, named)
    assert isinstance(step, ChangeStatus)
    step.change(named["status"], NOW)
    [row] = named["status"]["conditions"]
    assert (row["type"], row["reason"], row["message"]) == (
        "Finished",
        "OutOfSync",
        "The prebuilt workload is out of sync with its user job",
    )
    assert steps(job, named) == []
    assert kinds(steps(naming_job(suspend=False), named))[0] == "PatchJob", "such a job is stopped first"


def test_equal_amounts_are_in_sync_however_they_are_written_and_so_are_other_labels() -> None:
    job = naming_job()
    named = prebuilt(job, owned=True)
    template = named["spec"]["podSets"][0]["template"]
    template["spec"]["containers"][0]["resources"]["requests"]["cpu"] = "1000m"
    template["metadata"] = {"labels": {"team": "a"}}
    assert steps(job, named) == []


def test_only_the_queue_of_a_prebuilt_workload_follows_its_job() -> None:
    job = naming_job()
    named = prebuilt(job, owned=True)
    job["metadata"]["labels"]["kueue.x-k8s.io/queue-name"] = "next"
    [step] = steps(job, named)
    assert step.body == {"spec": {"queueName": "next"}}  # type: ignore[union-attr]


def test_the_mirror_plans_a_job_when_the_workload_that_it_names_comes_and_goes() -> None:
    mirror = Mirror(lambda change: None)
    changed = mirror.changes.jobs.subscribe(worth=lambda ref: True)
    job = naming_job()
    mirror.upsert(kube.JOBS, job)
    assert changed.take() == {(kube.JOBS, "ns/j")}
    named = prebuilt(job)
    mirror.upsert(kube.WORKLOADS, named)
    assert changed.take() == {(kube.JOBS, "ns/j")}
    assert mirror.named_workload(job) is named
    mirror.remove(kube.WORKLOADS, "ns/mine")
    assert changed.take() == {(kube.JOBS, "ns/j")}
    assert mirror.named_workload(job) is None
    renamed = copy.deepcopy(job)
    del renamed["metadata"]["labels"][LABEL]
    renamed["metadata"]["resourceVersion"] = "9"
    mirror.upsert(kube.JOBS, renamed)
    changed.take()
    mirror.upsert(kube.WORKLOADS, prebuilt(job))
    assert changed.take() == set()


def test_the_annotation_has_precedence_over_the_label() -> None:
    job = naming_job()
    job["metadata"]["annotations"] = {LABEL: "another"}
    [note] = steps(job, None)
    assert isinstance(note, Note)
    assert note.message == "Prebuilt workload ns/another: not found"
