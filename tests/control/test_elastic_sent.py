"""An elastic job that another cluster sent: it names a prebuilt Workload, and goes from one slice to the next while it runs."""

from __future__ import annotations

import copy
from typing import Any

import pytest
from tests.control.test_elastic_plan import a_slice, admit, changed, elastic
from tests.control.test_elastic_plan import running as started
from tests.control.test_plan import JOB_KIND, Lookups, evicted, kinds

from gangline.api import names
from gangline.control.feed import slices
from gangline.control.feed.mirror import Mirror
from gangline.control.kinds import elastic_plan
from gangline.control.kinds.steps import ChangeStatus, JobView, PatchWorkload, Step
from gangline.control.writes.status import run_changes
from gangline.jobs.base import Children
from gangline.kube import resources as kube

Json = dict[str, Any]
ORIGIN = {names.MULTIKUEUE_ORIGIN: "manager"}
OVER = run_changes.finish_because(slices.REPLACED, "m")


def sent(workload: Json, *, taken: bool = True) -> Json:
    """A copy as the manager sends it; `taken`: by the job here."""
    meta = workload["metadata"]
    meta["labels"] = {**meta.get("labels", {}), **ORIGIN}
    meta.pop("finalizers", None)
    if not taken:
        meta.pop("ownerReferences")
        meta["labels"].pop(names.JOB_UID)
    return workload


def named(job: Json, workload: Json, *, origin: bool = True) -> Json:
    job["metadata"]["labels"] = {
        **job["metadata"].get("labels", {}),
        **(ORIGIN if origin else {}),
        names.PREBUILT_WORKLOAD: workload["metadata"]["name"],
    }
    return job


def steps(job: Json, name: Json, *owned: Json, **view: Any) -> list[Step]:
    before = copy.deepcopy((job, owned))
    fields: Json = {"elastic": True, "named": name, **view}
    result = elastic_plan.plan(JobView(JOB_KIND, job, owned, Children(), **fields), Lookups())
    assert (job, owned) == before, "a plan changes nothing"
    return result


def running(pods: int, with_: Json, name: Json, **more: Any) -> Json:
    return named(started(pods, with_), name, **more)


def test_it_takes_the_next_slice_before_that_is_admitted() -> None:
    first = sent(a_slice(2, 1, None, admit(2)))
    second = sent(a_slice(6, 2, first), taken=False)
    [adopt] = steps(running(2, first, first), first, first, heirs=[second])
    assert isinstance(adopt, PatchWorkload) and adopt.workload is second
    meta = adopt.body["metadata"]
    assert meta["labels"] == {names.JOB_UID: "job-uid"} and meta["ownerReferences"][0]["uid"] == "job-uid"
    assert meta["annotations"] == {names.CUT_WITH_JOB: "true"}


@pytest.mark.parametrize("broken", ["origin", "template", "slice"])
def test_it_takes_nothing_that_was_not_sent_for_it(broken: str) -> None:
    first = sent(a_slice(2, 1, None, admit(2), run_changes.pods_ready(False)))
    second = sent(a_slice(6, 2, first), taken=False)
    if broken == "origin":
        second["metadata"]["labels"] = {names.MULTIKUEUE_ORIGIN: "another"}
    elif broken == "slice":
        second["metadata"]["annotations"].pop(names.ELASTIC)
    else:
        second["spec"]["podSets"][0]["template"]["spec"]["containers"][0]["image"] = "another"
    assert steps(running(2, first, first), first, first, heirs=[second]) == []


def test_it_runs_on_with_a_slice_that_waits_beside_its_own() -> None:
    first = sent(a_slice(2, 1, None, admit(2), run_changes.pods_ready(True)))
    second = sent(a_slice(6, 2, first))
    assert steps(running(2, first, first), first, first, second) == []


def test_it_runs_on_with_the_next_slice_before_it_names_that() -> None:
    first = sent(a_slice(2, 1, None, admit(2), OVER))
    second = sent(a_slice(6, 2, first, admit(6), run_changes.pods_ready(False)))
    job = running(2, second, first)
    assert steps(job, first, first, second) == []
    job = running(6, second, second)
    assert steps(job, second, first, second) == []


def test_a_larger_size_may_be_seen_before_the_slice_for_it() -> None:
    first = sent(a_slice(2, 1, None, admit(2), run_changes.pods_ready(False)))
    assert steps(running(6, first, first), first, first) == []
    nobody = a_slice(2, 1, None, admit(2), run_changes.pods_ready(False))
    nobody["metadata"].pop("finalizers")
    stopped = steps(running(6, nobody, nobody, origin=False), nobody, nobody)
    assert kinds(stopped) == ["PatchJob", "Note"], "nobody sends a larger Workload: it is stopped, as any that differs"


def test_its_slice_is_cut_when_the_pods_have_ended() -> None:
    first = sent(a_slice(6, 1, None, admit(6), run_changes.pods_ready(False)))
    job = running(3, first, first)
    assert steps(job, first, first, started={"main": 5}) == []
    [cut, _] = steps(job, first, first, started={"main": 3})
    assert isinstance(cut, PatchWorkload) and cut.body["spec"]["podSets"][0]["count"] == 3


def test_a_slice_is_not_cut_by_a_job_that_has_not_its_size_yet() -> None:
    first = sent(a_slice(2, 1, None, admit(2), OVER))
    second = sent(a_slice(6, 2, first, admit(6), run_changes.pods_ready(False)))
    assert steps(running(2, second, first), first, first, second) == []


def test_it_is_stopped_as_a_whole() -> None:
    first = sent(a_slice(2, 1, None, admit(2), evicted))
    second = sent(a_slice(6, 2, first))
    job = running(2, first, first)
    job["status"] = {"active": 2}
    assert kinds(steps(job, first, first, second)) == ["PatchJob", "Note"]
    [step] = steps(named(elastic(2), first), first, first, second)
    assert step.workload is first and changed(step)["reason"] == slices.REPLACED  # type: ignore[union-attr]


def test_its_end_is_that_of_all_its_slices() -> None:
    first = sent(a_slice(2, 1, None, admit(2)))
    second = sent(a_slice(6, 2, first))
    job = running(2, first, first)
    job["status"] = {"conditions": [{"type": "Complete", "status": "True", "message": "done"}]}
    done = [step for step in steps(job, first, first, second) if isinstance(step, ChangeStatus)]
    assert {changed(step)["reason"] for step in done} == {"Succeeded"} and len(done) == 2


def test_without_any_slice_it_is_stopped() -> None:
    first = sent(a_slice(2, 1, None, admit(2), OVER))
    assert kinds(steps(running(2, first, first), first, first)) == ["PatchJob", "Note"]


def test_the_mirror_knows_the_slices_of_nobody_that_would_replace_one() -> None:
    mirror = Mirror(lambda change: None)
    first = sent(a_slice(2))
    second = sent(a_slice(6, 2, first), taken=False)
    changed_jobs = mirror.changes.jobs.subscribe(worth=lambda ref: True)
    job = {**named(elastic(2), first), "apiVersion": "batch/v1", "kind": "Job"}
    for resource, each in ((kube.JOBS, job), (kube.WORKLOADS, first)):
        mirror.upsert(resource, each)
    changed_jobs.take()
    mirror.upsert(kube.WORKLOADS, second)
    assert changed_jobs.take() == {(kube.JOBS, "ns/j")}, "its job is looked at"
    assert mirror.heirs_of([first]) == [second] and mirror.heirs_of([second]) == []
    taken = copy.deepcopy(first["metadata"]["ownerReferences"])
    mirror.upsert(
        kube.WORKLOADS, {**second, "metadata": {**second["metadata"], "resourceVersion": "9", "ownerReferences": taken}}
    )
    assert mirror.heirs_of([first]) == []


def test_a_running_job_grows_once_its_last_slice_was_taken_elsewhere() -> None:
    first = a_slice(2, 1, None, admit(2), OVER)
    first["metadata"].pop("finalizers")
    waits = a_slice(6, 2, first, admit(6, checks=("elsewhere",)))
    job = started(8, first, generation=3)
    job["spec"]["managedBy"] = "kueue.x-k8s.io/multikueue"

    def planned(*owned: Json) -> list[str]:
        return kinds(
            elastic_plan.plan(JobView(JOB_KIND, job, owned, Children(), elastic=True, revision="3"), Lookups())
        )

    assert planned(first, waits) == []
    assert planned(first, a_slice(6, 2, first, admit(6))) == ["CreateWorkload", "Note"]
