"""A job that its controller will not run has no quota: its Workload is on hold, until the job can run."""

from __future__ import annotations

import copy
from dataclasses import replace
from typing import Any

import pytest
from tests.control.test_node_loss import NOW, admitted, view
from tests.control.test_plan import Lookups
from tests.jobs.foreign import CASES
from tests.objects import JobObject

from gangline.api import admission, names
from gangline.control.kinds import elastic_plan, job_plan
from gangline.control.kinds.steps import ChangeStatus
from gangline.control.writes.status import status_changes
from gangline.jobs import kind_of
from gangline.jobs.base import Children
from gangline.kube.resources import condition_of

Json = dict[str, Any]
RAY_JOB = next(case for case in CASES if case.name == "RayJob")
FOUND = kind_of("ray.io/v1", "RayJob")
assert FOUND is not None
KIND = FOUND


def ray_job(status: str, notes: Json | None = None) -> JobObject:
    made = copy.deepcopy(RAY_JOB.job)
    made["metadata"] |= {"resourceVersion": "1", "annotations": notes or {}}
    held = admission.default(made, None, admission.AdmissionFacts()).obj
    return JobObject({**held, "status": {"jobDeploymentStatus": status}})


def started(job: JobObject) -> JobObject:
    return JobObject({**job, "spec": {**job.spec, "suspend": False}})


@pytest.mark.parametrize("elastic", [False, True])
def test_a_ray_job_that_ray_refuses_gives_its_quota_back_and_stays_as_it_is(elastic: bool) -> None:
    notes: Json = {names.ELASTIC: "true"} if elastic else {}
    workload = admitted(KIND, RAY_JOB, ray_job("New", notes))
    seen = replace(view(KIND, RAY_JOB, started(ray_job("ValidationFailed", notes)), workload), elastic=elastic)
    [step] = elastic_plan.plan(seen, Lookups())
    assert isinstance(step, ChangeStatus)
    step.change(workload["status"], NOW)
    row = condition_of(workload, "QuotaReserved")
    assert row is not None
    assert (row["status"], row["reason"], row["message"]) == ("False", "OnHold", "Job is on hold")
    assert not workload.admitted
    assert "admission" not in workload["status"]
    assert elastic_plan.plan(seen, Lookups()) == []


def test_it_keeps_the_quota_of_pods_that_may_still_run() -> None:
    workload = admitted(KIND, RAY_JOB, ray_job("New"))
    seen = view(KIND, RAY_JOB, started(ray_job("ValidationFailed")), workload)
    cluster = JobObject({"apiVersion": "ray.io/v1", "kind": "RayCluster", "metadata": {"name": "c"}, "spec": {}})
    assert job_plan.plan(replace(seen, children=Children(jobs=[cluster])), Lookups()) == []
    assert job_plan.plan(replace(seen, lingering=True), Lookups()) == []


def test_one_that_waits_is_not_admitted_and_one_that_was_mended_queues_again() -> None:
    workload = admitted(KIND, RAY_JOB, ray_job("New"))
    workload["status"] = {}
    [step] = job_plan.plan(view(KIND, RAY_JOB, ray_job("ValidationFailed"), workload), Lookups())
    assert isinstance(step, ChangeStatus)
    step.change(workload["status"], NOW)
    [step] = job_plan.plan(view(KIND, RAY_JOB, ray_job("New"), workload), Lookups())
    assert isinstance(step, ChangeStatus)
    step.change(workload["status"], NOW)
    assert not status_changes.is_on_hold(workload["status"]["conditions"])


def test_a_hold_of_somebody_else_on_a_job_of_another_kind_stays() -> None:
    case = next(each for each in CASES if each.name == "RayCluster")
    kind = kind_of("ray.io/v1", "RayCluster")
    assert kind is not None
    held = JobObject(admission.default(case.job, None, admission.AdmissionFacts()).obj)
    held["metadata"]["resourceVersion"] = "1"
    workload = admitted(kind, case, held)
    workload["status"] = {}
    status_changes.put_on_hold("by hand")(workload["status"], NOW)
    before = copy.deepcopy(workload)
    for step in job_plan.plan(view(kind, case, held, workload), Lookups()):
        assert not isinstance(step, ChangeStatus), step
    assert workload == before
