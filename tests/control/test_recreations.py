"""A Workload that somebody deletes again and again is made anew less often than it is deleted."""

from __future__ import annotations

from typing import Any

from tests.builders.objects import Workload
from tests.builders.parts import Recorder
from tests.objects import WorkloadObject, as_stored

from gangline.control.kinds.planner import CREATIONS_WITHIN as WITHIN
from gangline.control.kinds.planner import MOST_CREATIONS as MOST
from gangline.control.kinds.planner import Recreations


def workload(name: str = "job-train-1a2b3") -> WorkloadObject:
    return Workload(name).made


def owner(uid: str = "uid") -> Any:
    return as_stored({"metadata": {"namespace": "team", "name": "train", "uid": uid}})


def test_after_some_creations_the_next_one_waits() -> None:
    now = 1000.0
    recorder = Recorder()
    recreations = Recreations(recorder, lambda: now)  # type: ignore[arg-type]
    made = 0
    for _ in range(600):
        now += 0.5
        made += recreations.may_create(workload(), owner())
    assert {reason for reason, _ in recorder.said} == {"WorkloadDeletedAgain"}
    assert len(recorder.said) == 600 - made
    assert made == MOST * 300 // WITHIN


def test_another_job_of_that_name_and_other_workloads_are_not_held_up() -> None:
    recreations = Recreations(Recorder(), lambda: 0.0)  # type: ignore[arg-type]
    assert [recreations.may_create(workload(), owner()) for _ in range(MOST + 1)] == [True] * MOST + [False]
    assert recreations.may_create(workload(), owner("another uid"))
    assert recreations.may_create(workload("job-train-9z8y7"), owner())
