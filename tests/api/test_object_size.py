"""How large an object of a user may be: it is refused with the field that is to blame, and fields that are unknown are kept."""

from __future__ import annotations

import copy
from typing import Any

import pytest
from tests.cluster import declared
from tests.fuzz import worst
from tests.jobs.every_kind import gang
from tests.jobs.gangs import gpu_job

from gangline.api import admission, object_size
from gangline.api.admission import AdmissionFacts

Json = dict[str, Any]


def nested(levels: int) -> list[Any]:
    return [nested(levels - 1)] if levels > 1 else []


def refusals(obj: Json, old: Json | None = None) -> list[str]:
    return [str(error) for error in admission.validate(obj, old, AdmissionFacts())]


def with_unknown(value: Any) -> Json:
    job = gpu_job()
    job["spec"]["template"]["spec"]["fieldOfALaterRelease"] = value
    return job


@pytest.mark.parametrize("name", [case.name for case in declared.ALL if case.name != "TrainingRun"])
def test_honest_jobs_are_far_from_the_limits(name: str) -> None:
    found = gang(name, created=1)
    assert found.job is not None
    for obj in (found.job[1], found.workload):
        assert not object_size.has_more_than(object_size.MOST_VALUES // 100, obj)
        assert not object_size.is_deeper_than(object_size.MOST_LEVELS // 2, obj)


def test_a_field_that_is_not_known_is_kept() -> None:
    job = with_unknown({"a": [1, {"b": "c"}]})
    assert not refusals(job)
    assert admission.default(job, None, AdmissionFacts()).obj["spec"]["template"] == job["spec"]["template"]


@pytest.mark.parametrize(
    ("value", "said"),
    [
        (nested(88), "has more than 40 levels of objects and lists"),
        ([[] for _ in range(30_000)], "the object has more than 30,000 fields and list entries"),
        ({f"k{n}": n for n in range(30_000)}, "the object has more than 30,000 fields and list entries"),
    ],
)
def test_too_much_is_refused_with_its_field(value: Any, said: str) -> None:
    [refusal] = refusals(with_unknown(value))
    assert refusal.replace("[0]", "") == f"spec.template.spec.fieldOfALaterRelease: Too long: {said}"


def test_what_is_stored_already_can_be_suspended_and_mended() -> None:
    old = with_unknown(nested(88))
    held = copy.deepcopy(old)
    held["spec"]["suspend"] = True
    assert not refusals(held, old)
    assert not refusals(gpu_job(), old)
    assert refusals(old, gpu_job())


def test_an_object_is_looked_at_up_to_the_limit() -> None:
    def steps(values: int) -> int:
        job = with_unknown([[] for _ in range(values)])
        return worst.steps(lambda: object_size.excess(job))

    assert steps(320_000) <= steps(40_000) * 1.1
