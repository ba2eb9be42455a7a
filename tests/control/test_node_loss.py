"""What becomes of a job of each kind when it loses a node: as its kind says, or as its author chooses, and always as a whole."""

from __future__ import annotations

import copy
from collections.abc import Iterator
from typing import Any

import pytest
from tests.control.test_plan import NOW, Lookups
from tests.jobs.foreign import CASES, OWN, OWN_CASE, Case
from tests.jobs.gangs import gpu_job
from tests.merging import merge_patch
from tests.objects import JobObject, WorkloadObject, altered

from gangline import jobs
from gangline.api import admission, jobkinds, names
from gangline.api.jobkinds.declaration import DESCRIPTION, RUNS_WITH
from gangline.api.read.workloads import swap_record
from gangline.api.read.workloads.swap_record import REPLACE, RESTART, RecordedSwap, SwapRecord
from gangline.control.kinds import job_plan
from gangline.control.kinds.steps import JobView, PatchJob
from gangline.control.writes.status import status_changes
from gangline.engine import model
from gangline.jobs import kind_of
from gangline.jobs import workload as workloads
from gangline.jobs.base import Children, JobKind

Json = dict[str, Any]
TEMPLATE: Json = {"spec": {"containers": [{"name": "main", "image": "train:1"}]}}
HEAD: Json = {"name": "mine", "namespace": "default", "uid": "u", "labels": {names.QUEUE_NAME: "main"}}
JOB: Json = {"apiVersion": "batch/v1", "kind": "Job", "metadata": HEAD, "spec": {"template": TEMPLATE}, "status": {}}
JOB_SET: Json = {
    "apiVersion": "jobset.x-k8s.io/v1alpha2",
    "kind": "JobSet",
    "metadata": HEAD,
    "spec": {"replicatedJobs": [{"name": "w", "template": {"spec": JOB["spec"]}}]},
    "status": {},
}
SERVING: Json = {"spec": {"replicas": 2, "selector": {"matchLabels": {"app": "x"}}, "template": TEMPLATE}}
OTHERS = {
    "Job": JOB,
    "JobSet": JOB_SET,
    "GPUJob": gpu_job(),
    "Deployment": {"apiVersion": "apps/v1", "kind": "Deployment", "metadata": HEAD, **SERVING},
    "StatefulSet": {"apiVersion": "apps/v1", "kind": "StatefulSet", "metadata": HEAD, **SERVING},
    "LeaderWorkerSet": {
        "apiVersion": "leaderworkerset.x-k8s.io/v1",
        "kind": "LeaderWorkerSet",
        "metadata": HEAD,
        "spec": {"replicas": 2, "leaderWorkerTemplate": {"size": 2, "workerTemplate": TEMPLATE}},
    },
    "Pod": {"apiVersion": "v1", "kind": "Pod", "metadata": HEAD, **TEMPLATE},
}
EXAMPLES = {**OTHERS, **{case.name: case.job for case in (*CASES, OWN_CASE)}}
#: kind -> what it does by itself, and what its author may choose
EITHER = (REPLACE, RESTART)
DOES: dict[str, tuple[str, tuple[str, ...]]] = {
    "Job": (REPLACE, EITHER),
    "JobSet": (RESTART, ()),
    "GPUJob": (RESTART, ()),
    "Deployment": (REPLACE, ()),
    "StatefulSet": (REPLACE, ()),
    "LeaderWorkerSet": (REPLACE, ()),
    "Pod": (REPLACE, ()),
    **{case.name: (RESTART, EITHER) for case in (*CASES, OWN_CASE)},
}


@pytest.fixture(autouse=True)
def own_kind() -> Iterator[None]:
    jobs.declare([OWN])
    yield
    jobs.declare([])


def test_every_kind_has_an_answer() -> None:
    assert {each.kind for each in jobkinds.known()} | {"Pod"} == DOES.keys() == EXAMPLES.keys()
    for each in jobkinds.known():
        assert (each.node_loss.usual, each.node_loss.choices) == DOES[each.kind]
        assert each.node_loss.words


@pytest.mark.parametrize("name", DOES)
@pytest.mark.parametrize("chosen", [None, REPLACE, RESTART, "Requeue", 5])
def test_the_author_chooses_where_the_kind_can_do_both_and_is_told_where_it_cannot(name: str, chosen: Any) -> None:
    job = JobObject(copy.deepcopy(EXAMPLES[name]))
    if chosen is not None:
        job["metadata"].setdefault("annotations", {})[names.NODE_LOSS] = chosen
    usual, choices = DOES[name]
    warnings = [
        line
        for line in (
            *admission.default(job, None, admission.AdmissionFacts()).warnings,
            *(admission.warnings(job) if kind_of(job["apiVersion"], name) is None else ()),
        )
        if names.NODE_LOSS in line
    ]
    assert len(warnings) == (chosen is not None and chosen not in choices), warnings
    if warnings:
        assert f"{str(chosen)!r} is ignored" in warnings[0]
    kind = kind_of(job["apiVersion"], name)
    if kind is not None:
        expected = chosen if chosen in choices else usual
        assert kind.workload_annotations(job).get(names.NODE_LOSS, REPLACE) == expected


def test_a_fault_that_was_there_before_is_not_told_again() -> None:
    job = altered(JOB, metadata={**HEAD, "annotations": {names.NODE_LOSS: "Maybe"}})
    assert admission.default(job, None, admission.AdmissionFacts()).warnings
    assert not admission.default(job, job, admission.AdmissionFacts()).warnings


@pytest.mark.parametrize("case", [*CASES, OWN_CASE], ids=lambda case: case.name)
def test_a_job_that_restarts_stops_whole_and_starts_whole_once_its_old_pods_have_ended(case: Case) -> None:
    kind = kind_of(case.job["apiVersion"], case.name)
    assert kind is not None
    held = JobObject(admission.default(case.job, None, admission.AdmissionFacts()).obj)
    held["metadata"]["resourceVersion"] = "1"
    workload = admitted(kind, case, described(case, held))
    running = started(kind, case, held, workload)
    running["status"] = case.ready
    assert "PatchJob" not in names_of(view(kind, case, running, workload))

    lost = SwapRecord().with_loss(RecordedSwap(RESTART, "NotReady", ("n1",), NOW - 3000, NOW))
    workload["metadata"]["annotations"][names.RECOVERY] = swap_record.write(lost)
    stopped = next_one(view(kind, case, running, workload), running)
    assert kind.declaration.suspension.read(stopped), "the whole job is suspended"
    assert "PatchJob" not in names_of(view(kind, case, altered(stopped, status=case.busy), workload)), (
        "its pods still run"
    )
    stopped["status"] = case.rest
    if case.name != "TrainJob":  # its next start replaces what the last one has written
        assert stopped["spec"] == held["spec"]
    assert "PatchJob" not in names_of(view(kind, case, stopped, workload, held_back=True)), "old pods are still there"

    again = started(kind, case, stopped, workload)
    assert case.injected(described(case, again)).keys() == case.counts.keys(), "all of the gang"
    for pods in case.injected(described(case, again)).values():
        assert pods["annotations"][names.ATTEMPT] == "1"


def described(case: Case, job: JobObject) -> JobObject:
    return job if case.description is None else JobObject({**job, DESCRIPTION: case.description})


def admitted(kind: JobKind, case: Case, job: JobObject) -> WorkloadObject:
    body = workloads.build(kind, job, kind.pod_sets(job), queue="main", priority=7)
    body["metadata"] |= {"uid": "w", "resourceVersion": "2"}
    body["status"] = {}
    rows = tuple(model.PodSetAssignment(name, count, {"cpu": "f"}, {}) for name, count in case.counts.items())
    status_changes.admit(model.Admit("default/w", "w", model.Admission("cq", rows), True, NOW))(body["status"], NOW)
    return WorkloadObject(body)


def view(kind: JobKind, case: Case, job: JobObject, workload: WorkloadObject, *, held_back: bool = False) -> JobView:
    whole = described(case, job)
    if case.description is not None and not kind.declaration.suspension.read(job):
        whole[RUNS_WITH] = workload["spec"]["podSets"]
    return JobView(kind, whole, [workload], Children(), held_back=held_back)


def names_of(seen: JobView) -> list[str]:
    return [type(step).__name__ for step in job_plan.plan(seen, Lookups())]


def next_one(seen: JobView, job: JobObject) -> JobObject:
    """The job after the one write to it that the plan has."""
    [patch] = [step.patch for step in job_plan.plan(seen, Lookups()) if isinstance(step, PatchJob)]
    return merge_patch(job, patch.body)


def started(kind: JobKind, case: Case, job: JobObject, workload: WorkloadObject) -> JobObject:
    """The job once it runs: some kinds need two writes."""
    for _ in range(2):
        if kind.is_suspended(job):
            job = next_one(view(kind, case, job, workload), job)
    assert not kind.is_suspended(job)
    return job
