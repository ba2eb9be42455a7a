"""The Workload of a job: name, content, and whether it still fits."""

from __future__ import annotations

import copy
from typing import Any

import pytest
from tests.jobs.support import batch_job, template
from tests.merging import merge_patch
from tests.objects import JobObject, WorkloadObject

from gangline.api import names
from gangline.api.admission.of_jobs.jobs import queue_name
from gangline.jobs import KINDS, kind_of, workload
from gangline.jobs.base import AnswersRefusals, Expires, JobError, LeavesBehind, PodSetInfo, Restarts
from gangline.jobs.job import BatchJob

KIND = BatchJob()


@pytest.mark.parametrize(
    ("extra", "expected"),
    [("", "job-name-ef3a1"), ("1", "job-name-2514c")],
)
def test_names_are_those_of_kueue(extra: str, expected: str):
    assert workload.name_for("Job", "batch", "name", "uid", extra) == expected


def test_a_long_name_is_cut_before_the_hash():
    name = workload.name_for("Job", "batch", "n" * 253, "uid")
    assert len(name) == 253
    assert name.startswith("job-nnn")
    assert name[-6] == "-"


def test_every_kind_is_found_by_its_name():
    assert all(kind_of(kind.api_version, kind.kind) is kind for kind in KINDS)
    assert kind_of("apps/v1", "Deployment") is None


@pytest.mark.parametrize(
    ("does", "kinds"),
    [
        (Expires, ["GPUJob"]),
        (Restarts, ["GPUJob"]),
        (AnswersRefusals, ["GPUJob"]),
        (LeavesBehind, ["JobSet"]),
    ],
)
def test_what_only_some_kinds_do(does: type, kinds: list[str]):
    assert [kind.kind for kind in KINDS if isinstance(kind, does)] == kinds


@pytest.mark.parametrize(
    ("labels", "annotations", "expected"),
    [
        ({}, {}, ""),
        ({names.QUEUE_NAME: "a"}, {}, "a"),
        ({}, {names.QUEUE_NAME: "b"}, "b"),
        ({names.QUEUE_NAME: "a"}, {names.QUEUE_NAME: "b"}, "a"),
    ],
)
def test_queue_name(labels: dict[str, str], annotations: dict[str, str], expected: str):
    assert queue_name({"metadata": {"labels": labels, "annotations": annotations}}) == expected


def test_priority_comes_from_the_label_then_from_the_first_pod_set_that_names_a_class():
    job = batch_job()
    plain, named = template(), template(priorityClassName="high")
    assert workload.priority_source(job, [{"template": plain}]) is None
    assert workload.priority_source(job, [{"template": plain}, {"template": named}]) == {
        "group": "scheduling.k8s.io",
        "kind": "PriorityClass",
        "name": "high",
    }
    job["metadata"]["labels"] = {names.PRIORITY_CLASS: "prod"}
    assert workload.priority_source(job, [{"template": named}]) == {
        "group": "kueue.x-k8s.io",
        "kind": "WorkloadPriorityClass",
        "name": "prod",
    }


def test_a_hold_of_the_author_follows_the_job() -> None:
    built, job = _pair()
    assert workload.changed_annotations(KIND, built, job) == {}
    job["metadata"]["annotations"] = {names.HOLD: "true"}
    assert workload.changed_annotations(KIND, built, job) == {names.HOLD: "true"}
    built["metadata"]["annotations"] = {names.HOLD: "true"}
    assert workload.changed_annotations(KIND, built, job) == {}
    job["metadata"]["annotations"] = {}
    assert workload.changed_annotations(KIND, built, job) == {names.HOLD: None}


def test_what_a_job_waits_for_follows_the_job() -> None:
    built, job = _pair()
    after = {names.AFTER: "job/a=Succeeded", names.AFTER_FAILED: "Cancel"}
    job["metadata"]["annotations"] = dict(after)
    assert workload.changed_annotations(KIND, built, job) == after
    assert workload.changed_dependencies(built, job.annotations) == after
    built["metadata"]["annotations"] = {**after, names.AFTER_MET: "job/a=Succeeded"}
    assert workload.changed_annotations(KIND, built, job) == {}
    job["metadata"]["annotations"] = {}
    gone = dict.fromkeys(after)
    assert workload.changed_annotations(KIND, built, job) == workload.changed_dependencies(built, {}) == gone


def test_the_limit_of_an_array_follows_the_job() -> None:
    built, job = _pair()
    job["metadata"]["annotations"] = {names.ARRAY_LIMIT: "3"}
    assert workload.changed_annotations(KIND, built, job) == {}, "of no array"
    job["metadata"]["labels"] = {names.ARRAY: "sweep"}
    wanted = {names.ARRAY: "sweep", names.ARRAY_LIMIT: "3"}
    assert workload.changed_annotations(KIND, built, job) == wanted
    new = workload.build(KIND, job, KIND.pod_sets(job), queue="q", priority=0)
    assert new["metadata"]["annotations"] == wanted
    built["metadata"]["annotations"] = dict(wanted)
    assert workload.changed_annotations(KIND, built, job) == {}
    job["metadata"]["annotations"] = {}
    assert workload.changed_annotations(KIND, built, job) == dict.fromkeys(wanted)


def test_build():
    job = batch_job(
        annotations={
            "provreq.kueue.x-k8s.io/maxRunDurationSeconds": "60",
            names.ADMISSION_GATED_BY: "example.com/gate",
            names.PRIORITY_BOOST: "5",
            names.HOLD: "true",
            "other": "x",
            "note": "copied",
        }
    )
    job["metadata"]["labels"] = {names.MAX_EXEC_TIME: "3600", "team": "ml", "private": "y"}
    ref = {"group": "kueue.x-k8s.io", "kind": "WorkloadPriorityClass", "name": "prod"}
    pod_sets = KIND.pod_sets(job)
    built = workload.build(
        KIND,
        job,
        pod_sets,
        queue="q",
        priority=7,
        priority_class_ref=ref,
        labels_to_copy=["team", "absent"],
        annotations_to_copy=["note", "absent"],
    )
    assert built["apiVersion"] == "kueue.x-k8s.io/v1beta2"
    assert built["spec"] == {
        "queueName": "q",
        "podSets": pod_sets,
        "priority": 7,
        "priorityClassRef": ref,
        "maximumExecutionTimeSeconds": 3600,
    }
    meta = built["metadata"]
    assert meta["name"] == workload.name_for("Job", "batch", "train", "uid")
    assert meta["labels"] == {"kueue.x-k8s.io/job-uid": "uid", "team": "ml"}
    assert meta["finalizers"] == ["kueue.x-k8s.io/resource-in-use"]
    assert meta["annotations"] == {k: v for k, v in job["metadata"]["annotations"].items() if k != "other"}
    assert meta["ownerReferences"] == [
        {
            "apiVersion": "batch/v1",
            "kind": "Job",
            "name": "train",
            "uid": "uid",
            "controller": True,
            "blockOwnerDeletion": True,
        }
    ]


@pytest.mark.parametrize("text", ["", "0", "-1", "1h", "1.5"])
def test_a_bad_time_limit_is_named(text: str):
    job = batch_job()
    job["metadata"]["labels"] = {names.MAX_EXEC_TIME: text}
    with pytest.raises(JobError, match=r"metadata.labels\[kueue.x-k8s.io/max-exec-time-seconds\]"):
        workload.build(KIND, job, KIND.pod_sets(job), queue="q", priority=0)


# --- equivalence ------------------------------------------------------------------------------------------------------

MIN = {names.MIN_PARALLELISM: "2"}


def _pair(**kwargs: Any) -> tuple[WorkloadObject, JobObject]:
    job = batch_job(**kwargs)
    built = WorkloadObject(workload.build(KIND, job, KIND.pod_sets(job), queue="q", priority=0))
    return copy.deepcopy(
        built
    ), job  # as the API server would answer: what it shares with the job is not changed with it


def _admit(built: WorkloadObject, count: int) -> None:
    built["status"] = {"admission": {"clusterQueue": "cq", "podSetAssignments": [{"name": "main", "count": count}]}}


def _start(job: JobObject, count: int) -> JobObject:
    info = PodSetInfo("main", count, node_selector={"pool": "x"}, tolerations=[{"key": "t"}], labels={"l": "v"})
    patch = KIND.start(job, [info])
    assert patch is not None
    return merge_patch(job, patch.body)


def _equivalent(built: WorkloadObject, job: JobObject) -> bool:
    return workload.equivalent(built, KIND.pod_sets(job), job)


def test_equivalent_through_a_whole_life():
    built, job = _pair(annotations=MIN)
    assert _equivalent(built, job)
    _admit(built, 3)
    assert _equivalent(built, job), "admitted, not yet started"
    running = _start(job, 3)
    assert _equivalent(built, running), "running with fewer pods"
    stopping = merge_patch(running, {"metadata": {"annotations": {names.STOPPING: "true"}}, "spec": {"suspend": True}})
    assert _equivalent(built, stopping)
    del built["status"]
    assert _equivalent(built, stopping), "the stop is not complete, so the template still carries the admission"


def test_a_waiting_workload_of_kueues_is_equivalent():
    """Kueue numbers the pods of every Job, as if a topology were asked for."""
    built, job = _pair()
    built["spec"]["podSets"][0]["topologyRequest"] = {"podIndexLabel": "batch.kubernetes.io/job-completion-index"}
    assert _equivalent(built, job)


def _uid(built: WorkloadObject, job: JobObject) -> None:
    job["metadata"]["uid"] = "another"


def _limit(built: WorkloadObject, job: JobObject) -> None:
    job["metadata"]["labels"] = {names.MAX_EXEC_TIME: "60"}


def _parallelism(built: WorkloadObject, job: JobObject) -> None:
    job["spec"]["parallelism"] = 3


def _least(built: WorkloadObject, job: JobObject) -> None:
    job["metadata"]["annotations"][names.MIN_PARALLELISM] = "1"


def _selector(built: WorkloadObject, job: JobObject) -> None:
    job["spec"]["template"]["spec"]["nodeSelector"] = {"pool": "y"}


def _image(built: WorkloadObject, job: JobObject) -> None:
    job["spec"]["template"]["spec"]["containers"][0]["image"] = "train:2"


def _topology(built: WorkloadObject, job: JobObject) -> None:
    built["spec"]["podSets"][0]["topologyRequest"] = {"required": "rack"}


def _renamed(built: WorkloadObject, job: JobObject) -> None:
    built["spec"]["podSets"][0]["name"] = "worker"


@pytest.mark.parametrize("change", [_uid, _limit, _parallelism, _least, _selector, _image, _topology, _renamed])
def test_a_changed_job_is_not_equivalent(change: Any):
    built, job = _pair(annotations=dict(MIN))
    change(built, job)
    assert not _equivalent(built, job)


@pytest.mark.parametrize("change", [_uid, _limit, _parallelism, _image])
def test_a_changed_job_is_not_equivalent_while_it_runs(change: Any):
    built, job = _pair()
    _admit(built, 4)
    running = _start(job, 4)
    assert _equivalent(built, running)
    change(built, running)
    assert not _equivalent(built, running)


def test_a_running_job_of_another_size_than_admitted_is_not_equivalent():
    built, job = _pair(annotations=dict(MIN))
    running = _start(copy.deepcopy(job), 3)
    _admit(built, 2)
    assert not _equivalent(built, running)
    _admit(built, 3)
    assert _equivalent(built, running)
