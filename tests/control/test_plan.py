"""The plan of a job in every situation it can be in: which step comes next, and that nothing comes when nothing is due."""

from __future__ import annotations

import copy
import dataclasses
from typing import Any

import pytest
from tests.builders.objects import a_pod
from tests.jobs.gangs import KIND as GPU_KIND
from tests.jobs.gangs import gpu_job, role
from tests.objects import JobObject, PodObject, Stored, WorkloadObject

from gangline.api import names
from gangline.api.read import conditions
from gangline.api.read.workloads import swap_record
from gangline.api.read.workloads.swap_record import RecordedSwap
from gangline.control.feed.pod import read_pod
from gangline.control.kinds import job_plan
from gangline.control.kinds.injection import pod_set_infos, unconstrained
from gangline.control.kinds.job_planning import completing
from gangline.control.kinds.steps import (
    ChangeStatus,
    CreateWorkload,
    DeleteWorkload,
    JobView,
    Note,
    Own,
    PatchJob,
    PatchWorkload,
    Step,
)
from gangline.control.writes.status import run_changes, status_changes
from gangline.control.writes.status.change import Change
from gangline.engine import model
from gangline.jobs import KINDS
from gangline.jobs import workload as workloads
from gangline.jobs.base import Children, Delete, JobError, PriorityClassError, UnknownClassError
from gangline.kube import resources as kube

Json = dict[str, Any]
JOB_KIND = next(kind for kind in KINDS if kind.kind == "Job")
NOW = 1_700_000_000_000


class Lookups:
    progress_url = ""
    labels_to_copy = ()
    annotations_to_copy = ()

    def flavor(self, name: str) -> Stored | None:
        tolerations = [{"key": "gpu", "operator": "Exists"}]
        return Stored({"spec": {"nodeLabels": {"pool": name}, "tolerations": tolerations}})

    def patience(self, queue: str) -> int | None:
        return None

    def host_name(self, node: str) -> str:
        return node

    def selects_nodes(self, labels: Any) -> bool:
        return labels == {"pool": "f"}

    def priority(self, job: Json, pod_sets: Any) -> tuple[int, Json | None]:
        if job["metadata"]["labels"].get("kueue.x-k8s.io/priority-class") == "missing":
            raise JobError("not found", "metadata.labels")
        return 7, None


def a_job(*, suspend: bool = True, queue: str = "lq", status: Json | None = None, **meta: Any) -> JobObject:
    return JobObject(
        {
            "apiVersion": "batch/v1",
            "kind": "Job",
            "metadata": {
                "name": "j",
                "namespace": "ns",
                "uid": "job-uid",
                "resourceVersion": "1",
                "labels": {"kueue.x-k8s.io/queue-name": queue} if queue else {},
                **meta,
            },
            "spec": {
                "suspend": suspend,
                "parallelism": 2,
                "completions": 2,
                "template": {"spec": {"containers": [{"name": "c", "resources": {"requests": {"cpu": "1"}}}]}},
            },
            "status": status or {},
        }
    )


def a_workload(job: Json, **changes: Any) -> WorkloadObject:
    body = workloads.build(JOB_KIND, job, JOB_KIND.pod_sets(job), queue="lq", priority=7)
    body["metadata"] |= {"uid": "w", "resourceVersion": "2", "creationTimestamp": "2026-01-01T00:00:00Z"}
    body["status"] = {}
    for change in changes.values():
        change(body["status"], NOW)
    return WorkloadObject(body)


def admitted(status: Json, now: int) -> None:
    assignment = model.PodSetAssignment("main", 2, {"cpu": "f"}, {"cpu": 2000})
    decision = model.Admit("ns/j", "w", model.Admission("cq", (assignment,)), True, now)
    status_changes.admit(decision)(status, now)


def evicted(status: Json, now: int) -> None:
    decision = model.Preempt("ns/j", "w", "InClusterQueue", "make room", "ns/other", "o")
    status_changes.preempt(decision)(status, now)


def test_a_waiting_job_that_loses_its_queue_leaves_the_queue() -> None:
    """Its Workload used to stay queued, and was admitted later although the job named no queue any more."""
    left = a_job(queue="")
    (patched,) = [step for step in steps(left, a_workload(left)) if isinstance(step, PatchWorkload)]
    assert patched.body["spec"] == {"queueName": None}
    gone = a_workload(left)
    del gone["spec"]["queueName"]
    assert not [step for step in steps(left, gone) if isinstance(step, PatchWorkload)]
    back = a_job(queue="other")
    (patched,) = [step for step in steps(back, gone) if isinstance(step, PatchWorkload)]
    assert patched.body["spec"] == {"queueName": "other"}


def steps(job: Json, *owned: Json, ancestor: bool = False, lingering: bool = False) -> list[Step]:
    view = JobView(JOB_KIND, job, owned, Children(), ancestor, lingering=lingering)
    before = copy.deepcopy((job, owned))
    result = job_plan.plan(view, Lookups())
    assert (job, owned) == before, "a plan changes nothing"
    return result


def kinds(result: list[Step]) -> list[str]:
    return [type(step).__name__ for step in result]


def pod_status(phase: str, ready: str, reason: str = "") -> Json:
    return {"status": {"phase": phase, "conditions": [{"type": "Ready", "status": ready, "reason": reason}]}}


READY, UNREADY = pod_status("Running", "True"), pod_status("Running", "False", "ContainersNotReady")
COMPLETED, SUCCEEDED = (pod_status(phase, "False", "PodCompleted") for phase in ("Running", "Succeeded"))
FAILED = pod_status("Failed", "False", "PodFailed")
GOING = {**READY, "metadata": {"name": "p", "namespace": "ns", "deletionTimestamp": "2026-01-01T00:00:00Z"}}


def running_job(workload: WorkloadObject) -> JobObject:
    job = a_job()
    patch = JOB_KIND.start(job, pod_set_infos(workload, Lookups()))
    assert patch is not None
    job["spec"] |= {"suspend": False, "template": {**job["spec"]["template"]}}
    _merge(job, patch.body)
    return job


def _merge(target: Json, body: Json) -> None:
    for key, value in body.items():
        if isinstance(value, dict) and isinstance(target.get(key), dict):
            _merge(target[key], value)
        elif value is None:
            target.pop(key, None)
        else:
            target[key] = value


def test_a_job_without_a_queue_is_left_alone() -> None:
    assert steps(a_job(queue="")) == []


def test_a_child_of_a_managed_job_is_left_alone() -> None:
    assert steps(a_job(), ancestor=True) == []


def test_a_held_job_gets_its_workload() -> None:
    result = steps(a_job())
    assert kinds(result) == ["CreateWorkload", "Note"]
    body = result[0].body  # type: ignore[union-attr]
    assert (body["spec"]["queueName"], body["spec"]["priority"]) == ("lq", 7)


def test_a_job_that_slipped_through_is_stopped_first() -> None:
    result = steps(a_job(suspend=False, status={"active": 2}))
    assert kinds(result) == ["PatchJob", "Note"]
    assert result[1] == Note("Normal", "Stopped", "Missing Workload; unable to restore pod templates")
    assert result[0].patch.body["spec"]["suspend"] is True  # type: ignore[union-attr]


def test_a_held_job_with_pods_left_waits_for_them() -> None:
    assert steps(a_job(status={"active": 1})) == []


def test_a_missing_priority_class_is_an_error_of_the_job() -> None:
    job = a_job()
    job["metadata"]["labels"]["kueue.x-k8s.io/priority-class"] = "missing"
    with pytest.raises(JobError, match="not found"):
        steps(job)


def test_a_gang_that_needs_a_kind_which_is_not_served_is_not_queued() -> None:
    share = {"by": "DRA", "percent": 50, "memory": "8Gi", "deviceClass": "gpu.example.com"}
    job = gpu_job(role("w", 1, 1, share=share))
    job["metadata"]["labels"] = {names.QUEUE_NAME: "lq"}
    view = JobView(kind=GPU_KIND, job=job, workloads=[], children=Children(), served=lambda resource: False)
    with pytest.raises(JobError) as refused:
        job_plan.plan(view, Lookups())
    assert refused.value.field == "spec.roles[0].share.by"
    assert refused.value.message == (
        "needs ResourceClaimTemplate of resource.k8s.io/v1, which this cluster does not serve"
    )
    served = dataclasses.replace(view, served=lambda resource: True)
    assert any(isinstance(step, CreateWorkload) for step in job_plan.plan(served, Lookups()))


def test_a_waiting_job_just_waits() -> None:
    job = a_job()
    assert steps(job, a_workload(job)) == []


def test_an_admitted_job_is_started_with_its_flavor() -> None:
    job = a_job()
    result = steps(job, a_workload(job, a=admitted))
    assert kinds(result) == ["PatchJob", "Note"]
    spec = result[0].patch.body["spec"]  # type: ignore[union-attr]
    assert spec["suspend"] is False
    assert spec["template"]["spec"]["nodeSelector"] == {"pool": "f"}


def test_a_running_job_reports_its_pods() -> None:
    workload = a_workload(a_job(), a=admitted)
    job = running_job(workload)
    assert kinds(steps(job, workload)) == ["ChangeStatus"]  # PodsReady=False: not all pods are up yet
    job["status"] = {"active": 2, "ready": 2}
    result = steps(job, workload)
    assert [step.slot for step in result] == ["pods-ready"]  # type: ignore[union-attr]
    result[0].change(workload["status"], NOW)  # type: ignore[union-attr]
    assert conditions.is_true(workload["status"]["conditions"], "PodsReady")
    assert steps(job, workload) == []


def test_a_pod_that_completes_before_its_peers_has_not_failed() -> None:
    """For a moment it is neither ready nor succeeded."""
    workload = a_workload(a_job(), a=admitted, b=run_changes.pods_ready(True))
    job = running_job(workload)
    job["status"] = {"active": 2, "ready": 1}
    view = JobView(JOB_KIND, job, (workload,), Children(), managed_ancestor=False, completing=True)
    assert job_plan.plan(view, Lookups()) == []
    [change] = job_plan.plan(dataclasses.replace(view, unreachable=True), Lookups())
    assert change.slot == "pods-ready", "a lost node is another matter"  # type: ignore[union-attr]
    [change] = steps(job, workload)
    assert change.slot == "pods-ready", "so is a pod that failed"  # type: ignore[union-attr]


@pytest.mark.parametrize(
    ("pods", "expected"),
    [
        ([READY, READY], False),
        ([READY, COMPLETED], True),
        ([READY, SUCCEEDED], True),  # its Job has counted it, and the status that follows the Job's has not
        ([COMPLETED, SUCCEEDED], True),
        ([READY, FAILED], False),
        ([SUCCEEDED, FAILED], False),  # one that failed beside it is another matter
        ([SUCCEEDED, UNREADY], False),
        ([SUCCEEDED, GOING], False),
        ([SUCCEEDED], False),
    ],
)
def test_a_gang_completes_while_each_pod_is_ready_or_has_completed(pods: list[Json], expected: bool) -> None:
    workload = a_workload(a_job(), a=admitted)
    read = [
        read_pod(PodObject({"metadata": {"name": f"p{n}", "namespace": "ns"}, "spec": {}, **pod}), "ns/j")
        for n, pod in enumerate(pods)
    ]
    assert completing(workload, read) is expected


def test_quota_is_not_released_while_pods_that_were_told_to_go_still_run() -> None:
    """Their Job counts them no longer; but who was admitted instead would find no room."""
    held = a_job(suspend=True)
    workload = a_workload(held, admitted=admitted, evicted=evicted)
    assert steps(held, workload, lingering=True) == []
    assert kinds(steps(held, workload)) == ["ChangeStatus"]
    gone = a_job(suspend=True, deletionTimestamp="2026-01-01T00:00:00Z")
    workload = a_workload(held, admitted=admitted)
    workload["metadata"]["finalizers"] = [names.IN_USE_FINALIZER]
    assert steps(gone, workload, lingering=True) == []
    assert kinds(steps(gone, workload)) == ["PatchWorkload"]


def test_a_check_that_contradicts_a_flavor_starts_nothing_and_both_are_named() -> None:
    """Kueue refuses it as well; the later one won here, and the pods ran on nodes of which no quota was counted."""
    held = a_job(suspend=True)
    workload = a_workload(held, admitted=admitted)
    update = {"name": "main", "nodeSelector": {"pool": "g", "zone": "b"}}
    workload["status"]["admissionChecks"] = [{"name": "nodes", "state": "Ready", "podSetUpdates": [update]}]
    finish, note = steps(held, workload)
    assert isinstance(finish, ChangeStatus) and isinstance(note, Note)
    assert note.reason == "FailedToStart"
    assert note.message == 'nodeSelector[pool] is "f" by flavor f and "g" by admission check nodes'
    update["nodeSelector"]["pool"] = "f"
    (start, *_) = steps(held, workload)
    assert isinstance(start, PatchJob)
    assert start.patch.body["spec"]["template"]["spec"]["nodeSelector"] == {"pool": "f", "zone": "b"}


def test_pods_that_lost_their_controller_are_deleted_when_their_gang_stops() -> None:
    """Their tenant took them from their Job: nobody else would delete them, and the gang's quota would never be free."""
    held = a_job(suspend=True)
    workload = a_workload(held, admitted=admitted, evicted=evicted)
    pod = read_pod(a_pod("p"), "ns/j")
    view = JobView(JOB_KIND, held, [workload], Children(), lingering=True, stranded=[pod])
    assert job_plan.plan(view, Lookups()) == [Own(Delete(kube.PODS, "ns", "p", "uid-p", "Background"))]
    gone = a_job(suspend=True, deletionTimestamp="2026-01-01T00:00:00Z")
    view = JobView(JOB_KIND, gone, [a_workload(held, admitted=admitted)], Children(), lingering=True, stranded=[pod])
    assert job_plan.plan(view, Lookups()) == [Own(Delete(kube.PODS, "ns", "p", "uid-p", "Background"))]


def test_a_job_that_is_deleted_while_its_pods_stay_lets_its_workload_answer_for_them() -> None:
    gone = a_job(suspend=False, deletionTimestamp="2026-01-01T00:00:00Z", finalizers=["orphan"])
    workload = a_workload(a_job(), admitted=admitted)
    workload["metadata"]["finalizers"] = [names.IN_USE_FINALIZER]
    assert steps(gone, workload) == []


def test_an_evicted_job_is_stopped_then_its_quota_released() -> None:
    workload = a_workload(a_job(), a=admitted)
    job = running_job(workload)
    evicted(workload["status"], NOW)
    assert kinds(steps(job, workload)) == ["PatchJob", "Note"]
    assert steps(job, workload)[1] == Note("Normal", "Stopped", "make room")
    stopped = a_job(status={"active": 1})
    assert steps(stopped, workload) == [], "pods still end: the quota stays held"
    result = steps(a_job(), workload)
    assert [step.slot for step in result] == ["release"]  # type: ignore[union-attr]
    result[0].change(workload["status"], NOW)  # type: ignore[union-attr]
    assert "admission" not in workload["status"]
    assert conditions.is_true(workload["status"]["conditions"], "Requeued")
    assert steps(a_job(), workload) == []


def test_a_job_suspended_by_hand_still_loses_what_admission_injected() -> None:
    workload = a_workload(a_job(), a=admitted)
    job = running_job(workload)
    evicted(workload["status"], NOW)
    job["spec"]["suspend"] = True
    (step,) = steps(job, workload)
    assert isinstance(step, PatchJob)
    _merge(job, step.patch.body)
    assert "nodeSelector" not in job["spec"]["template"]["spec"]
    assert [s.slot for s in steps(job, workload)] == ["release"]  # type: ignore[union-attr]


def test_a_finished_job_finishes_its_workload_then_lets_it_go() -> None:
    workload = a_workload(a_job(), a=admitted)
    job = running_job(workload)
    job["status"] = {"conditions": [{"type": "Complete", "status": "True", "message": "done"}]}
    result = steps(job, workload)
    assert kinds(result) == ["ChangeStatus", "Note"]
    result[0].change(workload["status"], NOW)  # type: ignore[union-attr]
    (let_go,) = steps(job, workload)
    assert isinstance(let_go, PatchWorkload)
    assert let_go.body == {"metadata": {"finalizers": None}}
    workload["metadata"]["finalizers"] = []
    assert steps(job, workload) == []


def test_a_changed_job_takes_its_waiting_workload_along() -> None:
    workload = a_workload(a_job())
    job = a_job()
    job["spec"]["parallelism"] = job["spec"]["completions"] = 4
    result = steps(job, workload)
    assert kinds(result) == ["PatchWorkload", "Note"]
    assert result[0].body["spec"]["podSets"][0]["count"] == 4  # type: ignore[union-attr]


def test_a_workload_being_deleted_stops_its_job_before_it_goes() -> None:
    workload = a_workload(a_job(), a=admitted)
    job = running_job(workload)
    workload["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:00Z"
    assert kinds(steps(job, workload)) == ["PatchJob", "Note"]
    assert steps(job, workload)[1] == Note("Normal", "Stopped", "Workload is deleted")
    assert kinds(steps(a_job(), workload)) == ["PatchWorkload"]


def test_surplus_workloads_are_deleted_and_the_one_with_quota_stays() -> None:
    job = a_job()
    holder, extra = a_workload(job, a=admitted), a_workload(job)
    extra["metadata"] |= {"name": "extra", "uid": "x", "creationTimestamp": "2025-01-01T00:00:00Z"}
    result = steps(job, extra, holder)
    assert isinstance(result[0], DeleteWorkload)
    assert result[0].workload["metadata"]["name"] == "extra"
    assert result[1] == Note("Normal", "DeletedWorkload", "Deleted not matching Workload: ns/extra")
    assert kinds(result)[2:] == ["PatchJob", "Note"]


def test_of_several_waiting_workloads_one_that_describes_the_job_stays() -> None:
    job = a_job()
    same, other = a_workload(job), a_workload(job)
    other["metadata"] |= {"name": "a-before-the-other", "uid": "x", "creationTimestamp": "2025-01-01T00:00:00Z"}
    other["spec"]["podSets"][0]["count"] += 1
    result = steps(job, other, same)
    assert isinstance(result[0], DeleteWorkload)
    assert result[0].workload["metadata"]["name"] == "a-before-the-other"
    assert kinds(result)[1:] == ["Note"]


def test_a_job_being_deleted_lets_its_workload_go_when_its_pods_are_gone() -> None:
    workload = a_workload(a_job(), a=admitted)
    job = running_job(workload)
    job["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:00Z"
    job["status"] = {"active": 2}
    assert steps(job, workload) == []
    job["status"] = {}
    assert kinds(steps(job, workload)) == ["PatchWorkload"]


def test_a_conflicting_selector_is_a_failed_start() -> None:
    job = a_job()
    job["spec"]["template"]["spec"]["nodeSelector"] = {"pool": "other"}
    workload = a_workload(job, a=admitted)
    result = steps(job, workload)
    assert kinds(result) == ["ChangeStatus", "Note"]
    result[0].change(workload["status"], NOW)  # type: ignore[union-attr]
    assert conditions.find(workload["status"]["conditions"], "Finished")["reason"] == "FailedToStart"  # type: ignore[index]


# --- gates and priority classes ---------------------------------------------------------------------------------------

GATED = "kueue.x-k8s.io/admission-gated-by"


@pytest.mark.parametrize("holding", [False, True])
def test_gates_that_the_job_no_longer_lists_are_removed_from_its_workload_in_every_state(holding: bool) -> None:
    job = a_job(annotations={GATED: "a.b/one, a.b/two"})
    workload = a_workload(job, **({"admitted": admitted} if holding else {}))
    assert workload["metadata"]["annotations"][GATED] == "a.b/one, a.b/two"
    job["metadata"]["annotations"][GATED] = "a.b/two"
    patch, note = steps(job, workload)
    assert isinstance(patch, PatchWorkload)
    assert patch.body == {"metadata": {"annotations": {GATED: "a.b/two"}}}
    assert note == Note("Normal", "UpdatedWorkload", 'Updated workload AdmissionGatedBy to "a.b/two"')
    del job["metadata"]["annotations"]
    patch, _ = steps(job, workload)
    assert patch.body == {"metadata": {"annotations": {GATED: None}}}  # type: ignore[union-attr]


def test_gates_are_never_added() -> None:
    job = a_job(annotations={GATED: "a.b/one"})
    workload = a_workload(job)
    job["metadata"]["annotations"][GATED] = "a.b/one,a.b/two"
    assert steps(job, workload) == []
    job["metadata"]["annotations"][GATED] = "a.b/other"
    assert steps(job, workload) == []


def test_what_checks_say_meanwhile_is_an_event_of_the_job() -> None:
    def asked(status: Json, now: int) -> None:
        assignment = model.PodSetAssignment("main", 2, {"cpu": "f"}, {"cpu": 2000})
        decision = model.Admit("ns/j", "w", model.Admission("cq", (assignment,)), False, now, ("a", "b", "c"))
        status_changes.admit(decision)(status, now)

    job = a_job()
    workload = a_workload(job, asked=asked)
    assert steps(job, workload) == []
    first, _, last = workload["status"]["admissionChecks"]
    first["message"], last["message"] = "no capacity yet", "2 of 3"
    assert steps(job, workload) == [Note("Normal", "UpdatedAdmissionCheck", "a: no capacity yet; c: 2 of 3")]
    last["state"] = "Ready"
    assert steps(job, workload) == [Note("Normal", "UpdatedAdmissionCheck", "a: no capacity yet")]


class Classes(Lookups):
    """There is the WorkloadPriorityClass "high", worth 100."""

    def priority(self, job: Json, pod_sets: Any) -> tuple[int, Json | None]:
        name = job["metadata"]["labels"].get(names.PRIORITY_CLASS)
        if name not in (None, "high"):
            raise UnknownClassError(f'WorkloadPriorityClass "{name}" not found', "metadata.labels")
        return (100, workload_class("high")) if name else (0, None)


def workload_class(name: str) -> Json:
    return {"group": "kueue.x-k8s.io", "kind": "WorkloadPriorityClass", "name": name}


def relabelled(name: str, reference: Json | None) -> tuple[Json, list[Step]]:
    """The steps of an admitted job whose label now names this class, while its Workload has that one."""
    job = a_job()
    workload = a_workload(job, admitted=admitted)
    if reference is not None:
        workload["spec"] |= {"priority": 1, "priorityClassRef": reference}
    job["metadata"]["labels"][names.PRIORITY_CLASS] = name
    return workload, job_plan.plan(JobView(JOB_KIND, job, [workload], Children()), Classes())


def test_another_priority_class_is_followed_while_quota_is_held() -> None:
    workload, (patch, note) = relabelled("high", workload_class("low"))
    assert isinstance(patch, PatchWorkload)
    assert patch.body == {"spec": {"priority": 100, "priorityClassRef": workload_class("high")}}
    assert note == Note(
        "Normal", "UpdatedWorkload", f"Updated workload priority class: ns/{workload['metadata']['name']}"
    )


@pytest.mark.parametrize(
    "reference",
    [
        None,
        {"group": "scheduling.k8s.io", "kind": "PriorityClass", "name": "low"},
        workload_class("high"),
    ],
    ids=["none", "of pods", "the same"],
)
def test_a_class_is_not_added_nor_changed_into_another_kind_while_quota_is_held(reference: Json | None) -> None:
    _, result = relabelled("high", reference)
    assert kinds(result) == ["PatchJob", "Note"], "it starts"


def test_a_class_that_does_not_exist_is_reported_and_does_not_keep_an_admitted_job_from_starting() -> None:
    _, result = relabelled("gone", workload_class("low"))
    assert result[0] == Note("Warning", "WorkloadPriorityClassNotFound", 'WorkloadPriorityClass "gone" not found')
    assert kinds(result) == ["Note", "PatchJob", "Note"]


class Limited(Lookups):
    """The namespace does not allow the class that the job names."""

    def priority(self, job: Json, pod_sets: Any) -> tuple[int, Json | None]:
        raise PriorityClassError('Unsupported value: "urgent"', "metadata.labels")


def limited(*, queue: str, **changes: Any) -> list[Step]:
    job = a_job(queue=queue)
    workload = a_workload(job, **changes)
    workload["spec"] |= {"queueName": "lq", "priority": 1, "priorityClassRef": workload_class("low")}
    job["metadata"]["labels"][names.PRIORITY_CLASS] = "urgent"
    return job_plan.plan(JobView(JOB_KIND, job, [workload], Children()), Limited())


def test_a_waiting_job_that_names_a_class_which_is_not_allowed_keeps_its_priority_and_is_followed_otherwise() -> None:
    refused = Note("Warning", "PriorityClassNotAllowed", 'Unsupported value: "urgent"')
    patch, note = limited(queue="other")
    assert isinstance(patch, PatchWorkload)
    assert patch.body == {"spec": {"queueName": "other"}}
    assert note == refused
    assert limited(queue="lq") == [refused]
    assert kinds(limited(queue="lq", admitted=admitted)) == ["Note", "PatchJob", "Note"]


def test_a_job_whose_admitted_workload_somebody_has_made_smaller_does_not_run_on_its_quota() -> None:
    workload = a_workload(a_job(), admitted=admitted)
    running = running_job(workload)
    assert "DeleteWorkload" not in kinds(steps(running, workload))
    for smaller in ({"count": 1}, {"template": {"spec": {"containers": [{"name": "c"}]}}}):
        patched = copy.deepcopy(workload)
        patched["spec"]["podSets"][0] |= smaller
        assert kinds(steps(running, patched))[0] == "PatchJob", "it is stopped"


# --- limits -----------------------------------------------------------------------------------------------------------


def test_a_changed_time_limit_of_a_waiting_job_is_followed() -> None:
    job = a_job()
    workload = a_workload(job)
    job["metadata"]["labels"]["kueue.x-k8s.io/max-exec-time-seconds"] = "60"
    (patch, _) = steps(job, workload)
    assert isinstance(patch, PatchWorkload)
    assert patch.body["spec"]["maximumExecutionTimeSeconds"] == 60
    workload["spec"] |= patch.body["spec"]
    assert steps(job, workload) == []


def test_a_gpujob_whose_time_is_up_fails_where_others_are_only_held() -> None:
    def expired(status: Json, now: int) -> None:
        cause = "MaximumExecutionTimeExceeded"
        decision = model.Evict("ns/j", "w", "Deactivated", "over", deactivate=True, underlying_cause=cause)
        status_changes.evict(decision)(status, now)

    gpujob = gpu_job(suspend=False, runtime={"limit": "90m"})
    workload = WorkloadObject(workloads.build(GPU_KIND, gpujob, GPU_KIND.pod_sets(gpujob), queue="lq", priority=7))
    workload["metadata"] |= {"uid": "w", "resourceVersion": "2"}
    workload["status"] = {}
    for change in (admitted, expired):
        change(workload["status"], NOW)
    view = JobView(GPU_KIND, gpujob, [workload], Children())
    (step,) = job_plan.plan(view, Lookups())
    assert isinstance(step, PatchJob)
    assert step.patch.body["status"]["conditions"][0]["reason"] == "DeadlineExceeded"

    held = a_job(suspend=False)
    assert kinds(steps(held, a_workload(held, admitted=admitted, expired=expired))) == ["PatchJob", "Note"]


def test_pods_are_told_where_to_report_to_only_if_the_operator_says_so() -> None:
    class Reachable(Lookups):
        progress_url = "http://operator:8080"

    workload = a_workload(a_job(), admitted=admitted)
    (info,) = pod_set_infos(workload, Reachable())
    assert (
        info.annotations["gangline.io/progress-url"]
        == f"http://operator:8080/progress/ns/{workload['metadata']['name']}/w"
    )
    (info,) = pod_set_infos(workload, Lookups())
    assert "gangline.io/progress-url" not in info.annotations


def test_pods_of_a_workload_that_another_cluster_has_sent_say_so() -> None:
    workload = a_workload(a_job(), admitted=admitted)
    (info,) = pod_set_infos(workload, Lookups())
    assert "kueue.x-k8s.io/multikueue-worker-workload-pod" not in info.labels
    workload["metadata"].setdefault("labels", {})[names.MULTIKUEUE_ORIGIN] = "east"
    (info,) = pod_set_infos(workload, Lookups())
    assert info.labels["kueue.x-k8s.io/multikueue-worker-workload-pod"] == "true"


def test_a_workload_without_a_queue_starts_its_pods_too() -> None:
    workload = a_workload(a_job(), admitted=admitted)
    assert pod_set_infos(workload, Lookups())[0].labels[names.LOCAL_QUEUE_LABEL] == workload["spec"]["queueName"]
    del workload["spec"]["queueName"]
    assert names.LOCAL_QUEUE_LABEL not in pod_set_infos(workload, Lookups())[0].labels


def not_ready_again(status: Json, now: int) -> None:
    run_changes.pods_ready(True)(status, now)
    run_changes.pods_ready(False)(status, now)


@pytest.mark.parametrize("before", [run_changes.pods_ready(True), not_ready_again])
@pytest.mark.parametrize("job", [a_job(), a_job(suspend=False, status={"active": 2, "ready": 2})])
def test_pods_count_as_not_started_once_somebody_took_the_quota_back(job: Json, before: Change) -> None:
    def taken(status: Json, now: int) -> None:
        before(status, now)
        conditions.put(status["conditions"], "QuotaReserved", False, "Pending", "by hand", now=now)
        conditions.put(status["conditions"], "Admitted", False, "NoReservation", "by hand", now=now)

    workload = a_workload(a_job(), admitted=admitted, taken=taken)

    def ready_changes() -> list[ChangeStatus]:
        return [step for step in steps(job, workload) if isinstance(step, ChangeStatus) and step.slot == "pods-ready"]

    [step] = ready_changes()
    step.change(workload["status"], NOW)
    ready = conditions.find(workload["status"]["conditions"], "PodsReady")
    assert ready is not None
    assert (ready["status"], ready["reason"]) == ("False", "WaitForStart")
    assert not ready_changes(), "once"


class Flavors(Lookups):
    """The flavor `f` with other fields; `selected`: there are nodes with its labels."""

    def __init__(self, *, selected: bool = True, annotations: Json | None = None, **spec: Any) -> None:
        self.selected, self.annotations, self.spec = selected, annotations or {}, spec

    def flavor(self, name: str) -> Stored | None:
        spec = {"nodeLabels": {"pool": name}, **self.spec}
        return Stored({"metadata": {"annotations": self.annotations}, "spec": spec})

    def selects_nodes(self, labels: Any) -> bool:
        return self.selected


@pytest.mark.parametrize(
    ("flavors", "whole", "gated"),
    [
        (Flavors(), False, True),
        (Flavors(), True, True),
        (Flavors(selected=False), False, False),
        (Flavors(selected=False), True, False),
        (Flavors(annotations={names.AUTOSCALED: "true"}), False, False),
        (Flavors(topologyName="t"), False, False),
    ],
)
def test_pods_wait_to_be_sent_to_nodes_wherever_nodes_bound_the_gang(
    flavors: Flavors, whole: bool, gated: bool
) -> None:
    workload = a_workload(a_job(), admitted=admitted)
    if whole:
        workload["metadata"]["annotations"] = {names.WHOLE_DOMAINS: '{"main": {"by": "rack", "count": 2}}'}
    (info,) = pod_set_infos(workload, flavors)
    assert info.scheduling_gates == ([{"name": names.DOMAIN_GATE}] if gated else [])


def test_pods_go_where_the_scheduler_puts_them_if_it_alone_can_judge_their_rules() -> None:
    workload = a_workload(a_job(), admitted=admitted)
    spread = {"maxSkew": 1, "topologyKey": "zone", "whenUnsatisfiable": "DoNotSchedule"}
    workload["spec"]["podSets"][0]["template"]["spec"]["topologySpreadConstraints"] = [spread]
    (info,) = pod_set_infos(workload, Flavors())
    assert info.scheduling_gates == []


def test_pods_that_a_check_sends_to_nodes_of_its_own_are_sent_to_no_others() -> None:
    workload = a_workload(a_job(), admitted=admitted)
    update = {"name": "main", "nodeSelector": {"provisioned": "x"}}
    workload["status"]["admissionChecks"] = [{"name": "c", "state": "Ready", "podSetUpdates": [update]}]
    (info,) = pod_set_infos(workload, Flavors())
    assert info.scheduling_gates == []


def test_placed_pods_say_that_they_asked_for_any_place_so_that_kueue_opens_their_gates() -> None:
    job = a_job()
    workload = a_workload(job, admitted=admitted)
    host = {"levels": ["kubernetes.io/hostname"], "slices": []}

    def says() -> bool:
        (info,) = unconstrained(pod_set_infos(workload, Lookups()), workload)
        return info.annotations.get(names.UNCONSTRAINED_TOPOLOGY) == "true"

    assert not says(), "not placed"
    (assignment,) = workload["status"]["admission"]["podSetAssignments"]
    assignment["topologyAssignment"] = host
    assert says()
    (pod_set,) = workload["spec"]["podSets"]
    pod_set["topologyRequest"] = {"podIndexLabel": "batch.kubernetes.io/job-completion-index"}
    assert says(), "how pods are numbered is no place"
    started = JOB_KIND.start(job, unconstrained(pod_set_infos(workload, Lookups()), workload))
    assert started is not None
    _merge(job, started.body)
    assert JOB_KIND.pod_sets(job)[0]["topologyRequest"]["unconstrained"] is True
    assert workloads.equivalent(workload, JOB_KIND.pod_sets(job), job), "it goes on"
    while stopped := JOB_KIND.stop(job, workload["spec"]["podSets"]):
        _merge(job, stopped.body)
    assert job["spec"]["suspend"] is True
    assert names.UNCONSTRAINED_TOPOLOGY not in str(job["spec"]), "the template is the user's again"
    for request in ({"required": "rack"}, {"preferred": "rack"}, {"unconstrained": True}):
        pod_set["topologyRequest"] = {**request, "podSetSliceRequiredTopology": "host", "podSetSliceSize": 2}
        assert not says()
    pod_set["topologyRequest"] = {"podSetSliceRequiredTopology": "host", "podSetSliceSize": 2}
    assert says(), "slices alone name no level for all pods"


# --- nodes that were lost ---------------------------------------------------------------------------------------------


def restarted(workload: WorkloadObject, *lost: str) -> WorkloadObject:
    """The engine said that the gang has to start anew."""
    swap = RecordedSwap("Restart", "NotReady", lost or ("n1",), NOW, NOW)
    annotations = {names.RECOVERY: swap_record.write(swap_record.of(workload).with_loss(swap))}
    return WorkloadObject({**workload, "metadata": {**workload["metadata"], "annotations": annotations}})


def test_a_gang_that_has_to_start_anew_stops_and_starts_on_the_same_admission() -> None:
    workload = a_workload(a_job(), a=admitted)
    job = running_job(workload)
    lost = restarted(workload)
    stopping = steps(job, lost)
    assert kinds(stopping) == ["PatchJob", "Note"], "the event is said once, with the first of the steps"
    assert stopping[0].patch.body["spec"] == {"suspend": True}  # type: ignore[union-attr]
    _merge(job, stopping[0].patch.body)  # type: ignore[union-attr]
    while not JOB_KIND.is_suspended(job):
        [step] = steps(job, lost)
        _merge(job, step.patch.body)  # type: ignore[union-attr]
    starting = steps(job, lost)
    assert kinds(starting) == ["PatchJob", "Note"]
    _merge(job, starting[0].patch.body)  # type: ignore[union-attr]
    pods = job["spec"]["template"]
    assert pods["metadata"]["annotations"][names.ATTEMPT] == "1"
    [wish] = pods["spec"]["affinity"]["nodeAffinity"]["preferredDuringSchedulingIgnoredDuringExecution"]
    [other] = wish["preference"]["matchExpressions"]
    assert other == {"key": "kubernetes.io/hostname", "operator": "NotIn", "values": ["n1"]}
    assert kinds(steps(job, lost)) == ["ChangeStatus"], "it runs: only its readiness is written"


def test_a_gang_that_only_replaces_pods_goes_on() -> None:
    workload = a_workload(a_job(), a=admitted)
    swap = RecordedSwap("Replace", "NotReady", ("n1",), NOW, NOW)
    annotations = {names.RECOVERY: swap_record.write(swap_record.SwapRecord().with_loss(swap))}
    lost = WorkloadObject({**workload, "metadata": {**workload["metadata"], "annotations": annotations}})
    assert "PatchJob" not in kinds(steps(running_job(workload), lost))


def test_the_next_attempt_waits_for_the_pods_of_the_last() -> None:
    lost = restarted(a_workload(a_job(), a=admitted))
    view = JobView(JOB_KIND, a_job(), [lost], Children(), held_back=True)
    assert job_plan.plan(view, Lookups()) == []
    run_changes.pods_ready(True)(lost["status"], NOW)
    [step] = job_plan.plan(view, Lookups())
    assert isinstance(step, ChangeStatus)
    step.change(lost["status"], NOW)
    assert not lost.is_true(names.PODS_READY), "it does not count as running meanwhile"
    assert job_plan.plan(view, Lookups()) == []


def test_a_gang_with_a_pod_on_a_dead_node_does_not_count_as_running() -> None:
    """Nobody takes back what a dead node last said of its pods."""
    workload = a_workload(a_job(), a=admitted, b=run_changes.pods_ready(True))
    job = running_job(workload)
    job["status"] = {"ready": 2, "active": 2}
    for unreachable, expected in ((False, []), (True, ["ChangeStatus"])):
        view = JobView(JOB_KIND, job, [workload], Children(), unreachable=unreachable)
        assert kinds(job_plan.plan(view, Lookups())) == expected


def test_a_waiting_workload_follows_what_its_job_says_of_lost_pods() -> None:
    job = a_job(annotations={names.NODE_LOSS: "Restart"})
    old = a_workload(a_job())
    [step] = steps(job, old)
    assert step == PatchWorkload(old, {"metadata": {"annotations": {names.NODE_LOSS: "Restart"}}})
    assert steps(job, a_workload(job)) == []
    [step] = steps(a_job(), a_workload(job))
    assert step.body == {"metadata": {"annotations": {names.NODE_LOSS: None}}}  # type: ignore[union-attr]


def test_patience_with_failing_nodes_comes_from_the_queues_policy() -> None:
    class Patient(Lookups):
        def patience(self, queue: str) -> int | None:
            return {"cq": 15}.get(queue)

    [info] = pod_set_infos(a_workload(a_job(), a=admitted), Patient())
    assert {(row["key"], row["tolerationSeconds"]) for row in info.patience} == {
        ("node.kubernetes.io/not-ready", 15),
        ("node.kubernetes.io/unreachable", 15),
    }


# --- which jobs are managed -------------------------------------------------------------------------------------------


def test_where_all_jobs_are_managed_one_without_a_queue_waits_for_it():
    job = a_job(queue="")
    assert job_plan.plan(JobView(JOB_KIND, job, [], Children()), Lookups()) == []
    created, note = job_plan.plan(JobView(JOB_KIND, job, [], Children(), needs_queue=False), Lookups())
    assert isinstance(created, CreateWorkload)
    assert "queueName" not in created.body["spec"]
    assert isinstance(note, Note)
    assert kinds(
        job_plan.plan(JobView(JOB_KIND, a_job(queue="", suspend=False), [], Children(), needs_queue=False), Lookups())
    ) == ["PatchJob", "Note"]


def test_a_job_out_of_scope_is_left_as_it_is():
    job = a_job()
    workload = a_workload(job, admitted=admitted)
    assert job_plan.plan(JobView(JOB_KIND, job, [], Children(), in_scope=False), Lookups()) == []
    assert job_plan.plan(JobView(JOB_KIND, job, [workload], Children(), in_scope=False), Lookups()) == []
    leaving = a_job(deletionTimestamp="2026-01-01T00:00:00Z")
    view = JobView(JOB_KIND, leaving, [workload], Children(), in_scope=False)
    assert kinds(job_plan.plan(view, Lookups())) == ["PatchWorkload"], "its quota comes back"
