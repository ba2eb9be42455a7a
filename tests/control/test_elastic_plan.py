"""The plan of an elastic job: a new slice when it grows, a cut when it shrinks, and one job whatever slices it has."""

from __future__ import annotations

import copy
from typing import Any

import pytest
from tests.control.test_plan import JOB_KIND, NOW, Lookups, a_job, evicted, kinds
from tests.control.test_plan import _merge as merge
from tests.merging import merge_patch
from tests.objects import JobObject, PodObject, WorkloadObject

from gangline.api import names
from gangline.api.read import parse
from gangline.control.feed import slices
from gangline.control.feed.pod import Pod, read_pod
from gangline.control.kinds import elastic_plan
from gangline.control.kinds.injection import behind_gate, pod_set_infos
from gangline.control.kinds.steps import ChangeStatus, CreateWorkload, DeleteWorkload, JobView, PatchWorkload, Step
from gangline.control.nodes.gates.elastic_gates import to_start, without_gate
from gangline.control.writes.status import run_changes, status_changes
from gangline.engine import model
from gangline.jobs import workload as workloads
from gangline.jobs.base import Children

Json = dict[str, Any]


def elastic(pods: int, *, suspend: bool = True, generation: int = 1, **more: Any) -> JobObject:
    job = a_job(suspend=suspend, annotations={names.ELASTIC: "true"}, generation=generation, **more)
    job["spec"] |= {"parallelism": pods, "completions": 100}
    return job


def admit(pods: int, *, checks: tuple[str, ...] = ()) -> Any:
    assignment = model.PodSetAssignment("main", pods, {"cpu": "f"}, {"cpu": 1000 * pods})
    decision = model.Admit("ns/j", "w", model.Admission("cq", (assignment,)), not checks, NOW, checks=checks)
    return status_changes.admit(decision)


def a_slice(pods: int, number: int = 1, old: WorkloadObject | None = None, *changes: Any) -> WorkloadObject:
    job = elastic(pods)
    body = workloads.build(JOB_KIND, job, JOB_KIND.pod_sets(job), queue="lq", priority=7, extra=str(number))
    body = slices.first(body) if old is None else slices.successor(body, old)
    stamp = f"2026-01-01T00:00:{number:02}Z"
    body["metadata"] |= {"uid": f"w{number}", "resourceVersion": "2", "creationTimestamp": stamp}
    body["status"] = {}
    for change in changes:
        change(body["status"], NOW)
    return WorkloadObject(body)


def steps(job: Json, *owned: Json, **view: Any) -> list[Step]:
    fields = {"elastic": True, "revision": str(job["metadata"].get("generation", 1)), **view}
    before = copy.deepcopy((job, owned))
    result = elastic_plan.plan(JobView(JOB_KIND, job, owned, Children(), **fields), Lookups())
    assert (job, owned) == before, "a plan changes nothing"
    return result


def running(pods: int, workload: WorkloadObject, **more: Any) -> JobObject:
    job = elastic(pods, **more)
    infos = behind_gate(pod_set_infos(workload, Lookups()), JOB_KIND.resizable(job))
    patch = JOB_KIND.start(job, infos)
    assert patch is not None
    merge(job, patch.body)
    return job


def changed(step: Step) -> Json:
    """The status after a change of an empty one."""
    assert isinstance(step, ChangeStatus)
    status: Json = {}
    step.change(status, NOW)
    return status["conditions"][0]


# --- growing and shrinking --------------------------------------------------------------------------------------------


def test_the_first_workload_is_the_first_slice() -> None:
    [create, _] = steps(elastic(2))
    assert isinstance(create, CreateWorkload)
    meta = create.body["metadata"]
    assert meta["annotations"] == {names.ELASTIC: "true", names.SLICE_NAME: meta["name"]}
    assert meta["name"] == workloads.name_for("Job", "batch", "j", "job-uid", "1"), "its name has the job's generation"


def test_a_job_starts_with_its_pods_behind_the_gate() -> None:
    [patch, *_] = steps(elastic(2), a_slice(2, 1, None, admit(2)))
    template = patch.patch.body["spec"]["template"]  # type: ignore[union-attr]
    gates = [names.ELASTIC_GATE, names.DOMAIN_GATE]  # one for its slice, then one for its node
    assert template["spec"]["schedulingGates"] == [{"name": gate} for gate in gates]
    assert template["metadata"]["annotations"][names.SLICE_NAME] == a_slice(2)["metadata"]["name"]


def test_a_job_that_grows_gets_a_second_slice_and_runs_on() -> None:
    first = a_slice(2, 1, None, admit(2))
    [create, _] = steps(running(6, first, generation=3), first)
    assert isinstance(create, CreateWorkload)
    meta, [pod_set] = create.body["metadata"], create.body["spec"]["podSets"]
    assert meta["annotations"] == {
        names.ELASTIC: "true",
        names.SLICE_NAME: first["metadata"]["name"],
        names.REPLACEMENT_FOR: f"ns/{first['metadata']['name']}",
    }
    assert meta["name"] == workloads.name_for("Job", "batch", "j", "job-uid", "3")
    assert pod_set == {**first["spec"]["podSets"][0], "count": 6}, "without what the admission has added to the job"


def test_a_slice_that_waits_is_changed_and_not_replaced() -> None:
    first = a_slice(2, 1, None, admit(2), run_changes.pods_ready(True))
    second = a_slice(6, 2, first)
    assert steps(running(6, first), first, second) == []
    for pods in (4, 8, 1):
        [patch, _] = steps(running(pods, first), first, second)
        assert isinstance(patch, PatchWorkload) and patch.workload is second
        assert patch.body["spec"]["podSets"][0]["count"] == pods


def test_a_job_that_waits_is_changed_too() -> None:
    [patch, _] = steps(elastic(5), a_slice(2))
    assert isinstance(patch, PatchWorkload) and patch.body["spec"]["podSets"][0]["count"] == 5


def test_a_job_that_shrinks_cuts_its_slice() -> None:
    first = a_slice(6, 1, None, admit(6))
    [patch, _] = steps(running(3, first), first)
    assert isinstance(patch, PatchWorkload) and patch.workload is first
    assert patch.body["spec"]["podSets"] == [{**first["spec"]["podSets"][0], "count": 3}]


def test_a_job_that_grew_before_it_started_starts_with_what_it_has() -> None:
    first = a_slice(2, 1, None, admit(2))
    second = a_slice(6, 2, first)
    result = steps(elastic(6), first, second)
    assert kinds(result) == ["PatchJob", "Note"]
    assert result[0].patch.body["spec"]["suspend"] is False  # type: ignore[union-attr]


def test_another_template_is_another_job() -> None:
    first = a_slice(2, 1, None, admit(2))
    second = a_slice(6, 2, first)
    job = running(6, first)
    job["spec"]["template"]["spec"]["containers"][0]["image"] = "another"
    result = steps(job, first, second)
    assert [step.workload for step in result if isinstance(step, DeleteWorkload)] == [first, second]
    assert any(kind == "PatchJob" for kind in kinds(result)), "it is stopped"


# --- replacing --------------------------------------------------------------------------------------------------------


def test_a_superseded_slice_is_declared_finished_first() -> None:
    first = a_slice(2, 1, None, admit(2))
    second = a_slice(6, 2, first, admit(6))
    assert steps(running(6, first), first, second) == []


def test_a_replaced_slice_is_let_go_and_says_nothing_of_the_job() -> None:
    over = run_changes.finish_because(slices.REPLACED, "m")
    first = a_slice(2, 1, None, admit(2), over)
    second = a_slice(6, 2, first, admit(6), run_changes.pods_ready(False))
    result = steps(running(6, second), first, second)
    assert kinds(result) == ["PatchWorkload"] and result[0].body == {"metadata": {"finalizers": None}}  # type: ignore[union-attr]
    assert kinds(steps(running(6, second), first, second, elastic=False)) == ["PatchWorkload"], "also without the gate"


def test_a_job_runs_on_while_the_checks_of_its_new_slice_are_open() -> None:
    first = a_slice(2, 1, None, admit(2), run_changes.finish_because(slices.REPLACED, "m"))
    second = a_slice(6, 2, first, admit(6, checks=("budget",)))
    first["metadata"].pop("finalizers")
    assert steps(running(6, first), first, second) == []


def test_one_slice_waits_at_a_time() -> None:
    """Two operators at work, or one that died: of several that wait, the newest stays."""
    first = a_slice(2, 1, None, admit(2))
    second, third = a_slice(6, 2, first), a_slice(6, 3, first)
    [step] = steps(running(6, first), first, second, third)
    assert step.workload is second and changed(step)["reason"] == slices.OUT_OF_SYNC  # type: ignore[union-attr]


# --- the end ----------------------------------------------------------------------------------------------------------


def test_an_evicted_job_is_stopped_before_its_quota_is_given_back() -> None:
    first = a_slice(2, 1, None, admit(2), evicted)
    second = a_slice(6, 2, first)
    job = running(6, first)
    job["status"] = {"active": 2}
    assert kinds(steps(job, first, second)) == ["PatchJob", "Note"]
    stopped = elastic(6)
    [step] = steps(stopped, first, second)
    assert step.workload is first and changed(step)["reason"] == slices.REPLACED  # type: ignore[union-attr]
    assert steps(stopped, first, second, lingering=True) == []


def test_an_evicted_job_without_a_second_slice_keeps_its_place_in_the_queue() -> None:
    first = a_slice(2, 1, None, admit(2), evicted)
    [step] = steps(elastic(6), first)
    assert isinstance(step, ChangeStatus) and step.slot == "release"


def test_a_deactivated_job_does_not_return_as_its_second_slice() -> None:
    first = a_slice(2, 1, None, admit(2), evicted)
    first["spec"]["active"] = False
    second = a_slice(6, 2, first)
    [step] = steps(elastic(6), first, second)
    assert step.workload is second and changed(step)["reason"] == slices.OUT_OF_SYNC  # type: ignore[union-attr]


def test_a_finished_job_finishes_all_its_slices() -> None:
    first = a_slice(2, 1, None, admit(2))
    second = a_slice(6, 2, first)
    job = running(6, first)
    job["status"] = {"conditions": [{"type": "Complete", "status": "True", "message": "done"}]}
    done = [step for step in steps(job, first, second) if isinstance(step, ChangeStatus)]
    assert [(step.workload is first, step.slot) for step in done] == [(True, "finish"), (False, "slice-over")]
    assert all(changed(step)["reason"] == "Succeeded" for step in done)


def test_a_deleted_job_lets_all_its_slices_go() -> None:
    first = a_slice(2, 1, None, admit(2))
    second = a_slice(6, 2, first)
    job = elastic(6, deletionTimestamp="2026-01-01T00:00:00Z")
    assert [step.workload for step in steps(job, first, second)] == [first, second]  # type: ignore[union-attr]


def test_a_running_slice_is_ready_when_its_own_pods_are() -> None:
    first = a_slice(2, 1, None, admit(2), run_changes.pods_ready(False))
    second = a_slice(6, 2, first)
    job = running(6, first)
    assert steps(job, first, second, ready_pods=1) == []
    [step] = steps(job, first, second, ready_pods=2)
    assert step.workload is first and changed(step)["status"] == "True"  # type: ignore[union-attr]


def test_sizes_come_from_the_cluster_that_an_autoscaler_sizes() -> None:
    [patch, _] = steps(elastic(2), a_slice(2), sizes={"main": 9})
    assert patch.body["spec"]["podSets"][0]["count"] == 9  # type: ignore[union-attr]


# --- which slice is which ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("order", [1, -1])
def test_the_slice_whose_pods_run(order: int) -> None:
    first = a_slice(2, 1, None, admit(2))
    second = a_slice(6, 2, first)
    assert slices.current([first, second][::order]) is first
    second = a_slice(6, 2, first, admit(6))
    assert slices.current([first, second][::order]) is second
    over = a_slice(2, 1, None, admit(2), run_changes.finish_because(slices.REPLACED, "m"))
    assert slices.current([over, second][::order]) is second
    assert slices.current([over]) is over
    assert slices.current([]) is None


def test_the_execution_time_of_a_job_goes_on_with_its_next_slice() -> None:
    first = a_slice(2, 1, None, admit(2))
    first["status"]["accumulatedPastExecutionTimeSeconds"] = 100
    assert slices.ran_for(first, NOW + 7_000) == 107
    assert slices.ran_for(a_slice(2), NOW) == 0
    status: Json = {}
    status_changes.going_on(admit(6), 107)(status, NOW)
    assert status["accumulatedPastExecutionTimeSeconds"] == 107 and status["admission"]["clusterQueue"] == "cq"


# --- gates ------------------------------------------------------------------------------------------------------------


def a_pod(name: str, *gates: str, pod_set: str = "main", phase: str = "Pending", **meta: Any) -> PodObject:
    return PodObject(
        {
            "metadata": {
                "name": name,
                "namespace": "ns",
                "uid": name,
                "resourceVersion": "5",
                "labels": {names.PODSET: pod_set},
                "annotations": {names.WORKLOAD_ANNOTATION: "second", names.SLICE_NAME: "first"},
                **meta,
            },
            "spec": {"schedulingGates": [{"name": gate} for gate in gates]} if gates else {},
            "status": {"phase": phase},
        }
    )


def started(counts: dict[str, int], *pods: Json) -> list[str]:
    read: list[Pod] = [read_pod(pod, "ns/second") for pod in pods]
    return [pod.name for pod in to_start(counts, read)]


def test_as_many_pods_start_as_are_admitted() -> None:
    gate = names.ELASTIC_GATE
    waiting = [a_pod(name, gate) for name in ("c", "a", "b")]
    assert started({"main": 2}, *waiting) == ["a", "b"]
    assert started({"main": 2}, *waiting, a_pod("z")) == ["a"]
    assert started({"main": 2}, *waiting, a_pod("y"), a_pod("z", deletionTimestamp="2026-01-01T00:00:00Z")) == []
    assert started({"main": 2}, *waiting, a_pod("z", phase="Succeeded")) == ["a", "b"]
    assert started({"main": 1, "head": 1}, a_pod("h", gate, pod_set="head"), *waiting) == ["a", "h"]
    assert started({}, *waiting) == []


def test_other_gates_stay() -> None:
    patch = without_gate(a_pod("a", names.ELASTIC_GATE, names.TOPOLOGY_GATE))
    assert patch["spec"]["schedulingGates"] == [{"name": names.TOPOLOGY_GATE}]
    assert without_gate(a_pod("a", names.ELASTIC_GATE))["spec"]["schedulingGates"] is None


def test_of_pods_that_a_job_gave_up_nothing_is_left_to_release() -> None:
    held = a_slice(20, 1, None, admit(20), run_changes.pods_ready(True), run_changes.reclaim({"main": 15}))
    job = running(20, held)
    job["spec"] |= {"parallelism": 10, "completions": 20}
    job["status"] = {"succeeded": 15, "active": 5, "ready": 5}
    [cut, _] = steps(job, held)
    assert isinstance(cut, PatchWorkload) and cut.body["spec"]["podSets"][0]["count"] == 10
    assert parse.workload(held).reclaimable == {"main": 15}
    held = merge_patch(held, cut.body)
    assert parse.workload(held).reclaimable == {}, "fifteen pods of twenty have ended, and not fifteen of ten"
    [release] = [step for step in steps(job, held) if isinstance(step, ChangeStatus) and step.slot == "reclaim"]
    release.change(held["status"], NOW)
    assert held["status"]["reclaimablePods"] == [{"name": "main", "count": 5}], "five pods run, and hold quota"
    assert parse.workload(held).reclaimable == {"main": 5}
    [forget] = steps(job, held)
    assert isinstance(forget, PatchWorkload)
    held = merge_patch(held, forget.body)
    assert names.OUTDATED_RECLAIMABLE not in held["metadata"]["annotations"]
    assert not [step for step in steps(job, held) if isinstance(step, ChangeStatus) and step.slot == "reclaim"]
    job["status"]["succeeded"] = 0
    [release] = [step for step in steps(job, held) if isinstance(step, ChangeStatus) and step.slot == "reclaim"]
    release.change(held["status"], NOW)
    assert "reclaimablePods" not in held["status"]
