"""What nobody reads of a job costs nothing to plan, whatever its kind: templates are shared, not copied."""

from __future__ import annotations

import copy
from collections.abc import Iterator
from typing import Any

import pytest
from tests.cluster import declared
from tests.control.test_plan import Lookups
from tests.fuzz import worst
from tests.jobs.every_kind import gang
from tests.jobs.foreign import OWN
from tests.objects import JobObject, WorkloadObject

from gangline import jobs
from gangline.api.jobkinds.declaration import DESCRIPTION
from gangline.control.kinds import elastic_plan
from gangline.control.kinds.steps import CreateWorkload, JobView
from gangline.jobs import kind_of
from gangline.jobs.base import Children

Json = dict[str, Any]
CASES = {case.name: case for case in declared.ALL}
#: steps of the interpreter for a value that is compared with the one in the Workload; reading it as JSON takes none
PER_VALUE = 60
FEW, MANY = 500, 4000


@pytest.fixture(autouse=True)
def _configured() -> Iterator[None]:
    jobs.declare([OWN])
    yield
    jobs.declare([])


def templates(value: Any) -> Iterator[Json]:
    """Every pod spec in a job."""
    if isinstance(value, dict):
        if isinstance(value.get("containers"), list):
            yield value
        for inner in value.values():
            yield from templates(inner)
    elif isinstance(value, list):
        for inner in value:
            yield from templates(inner)


def nested(values: int, levels: int = 20) -> list[Any]:
    rows: list[Any] = []
    for _ in range(values // levels):
        row: list[Any] = []
        for _ in range(levels - 1):
            row = [row]
        rows.append(row)
    return rows


def view(name: str, values: int, *, suspended: bool = True) -> JobView:
    case = CASES[name]
    obj = gang(name, created=1).job
    assert obj is not None
    job = JobObject(copy.deepcopy(obj[1]))
    kind = kind_of(job["apiVersion"], job["kind"])
    assert kind is not None
    if case.description is not None:
        job[DESCRIPTION] = declared.with_gpus(copy.deepcopy(case.description))
    pods = list(templates(job))
    for pod in pods:
        pod["unknown"] = nested(values // len(pods))
    if not suspended:
        kind.declaration.suspension.release(job)
    return JobView(kind=kind, job=job, workloads=[], children=Children())


def stored(view: JobView) -> WorkloadObject:
    """The Workload of the job as the API server answers it."""
    [body] = [step.body for step in elastic_plan.plan(view, Lookups()) if isinstance(step, CreateWorkload)]
    body["metadata"] |= {"uid": "workload", "resourceVersion": "1", "creationTimestamp": "2026-01-31T12:00:00Z"}
    return WorkloadObject({**copy.deepcopy(body), "status": {}})


def cost(name: str, values: int, *, waits: bool) -> int:
    asked = view(name, values)
    if waits:
        workload = stored(view(name, values))
        # an empty field makes both differ, so that they have to be compared field by field
        for pod in templates(workload):
            pod["volumes"] = []
        asked = JobView(kind=asked.kind, job=asked.job, workloads=[workload], children=Children())
    elastic_plan.plan(asked, Lookups())
    return worst.steps(lambda: elastic_plan.plan(asked, Lookups()))


@pytest.mark.parametrize("name", CASES)
def test_a_new_job_costs_the_same_whatever_is_in_its_templates(name: str) -> None:
    few, many = cost(name, FEW, waits=False), cost(name, MANY, waits=False)
    assert many <= few + 500, f"{few} → {many} steps"


@pytest.mark.parametrize("name", CASES)
def test_comparing_a_job_with_its_workload_looks_at_each_value_once(name: str) -> None:
    few, many = cost(name, FEW, waits=True), cost(name, MANY, waits=True)
    assert many - few <= PER_VALUE * (MANY - FEW), f"{few} → {many} steps"


@pytest.mark.parametrize("name", CASES)
def test_stopping_a_job_costs_the_same_whatever_is_in_its_templates(name: str) -> None:
    def steps(values: int) -> int:
        asked = view(name, values, suspended=False)
        workload = stored(view(name, values))
        pod_sets = workload["spec"]["podSets"]
        asked.kind.stop(asked.job, pod_sets)
        return worst.steps(lambda: asked.kind.stop(asked.job, pod_sets))

    few, many = steps(FEW), steps(MANY)
    assert many <= few + 500, f"{few} → {many} steps"
