"""Workloads that are sent to other clusters: what is done next, for each state of the workload and its copies."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from tests.builders.objects import Workload

from gangline.api import jobkinds, names
from gangline.api.admission.multikueue import CONTROLLER
from gangline.api.read.configuration.multikueue import INCREMENTAL, MultiKueueSettings
from gangline.control.checks.active_checks import Activity
from gangline.control.checks.multikueue import activity
from gangline.control.checks.multikueue.clusters import copies
from gangline.control.checks.multikueue.clusters.copies import Copy
from gangline.control.checks.multikueue.plan import planning, stopping
from gangline.control.checks.multikueue.plan.steps import (
    Choose,
    ClusterView,
    Finish,
    Follow,
    MirrorStatus,
    MultiKueueView,
    Nominate,
    Reprioritise,
    Send,
    SendJob,
    SentFamily,
    SetCheck,
    Step,
    Stop,
    Wait,
    WithdrawFromCluster,
)
from gangline.control.checks.multikueue.workloads import local_changes
from gangline.jobs import on_other_cluster
from gangline.kube import resources as kube
from gangline.objects import JobObject, PodObject, Stored, WorkloadObject

Json = dict[str, Any]
NOW = 1_800_000_000_000
OWNER = ("batch/v1", "Job")


# --- the world --------------------------------------------------------------------------------------------------------


def condition(kind: str, message: str = "", *, reason: str = "", at: str = "2026-01-31T12:00:00Z") -> Json:
    return {"type": kind, "status": "True", "reason": reason or kind, "message": message, "lastTransitionTime": at}


TEMPLATE = {"spec": {"containers": [{"name": "c", "image": "i"}], "restartPolicy": "Never"}}
SPEC: Json = {
    "queueName": "lq",
    "priority": 5,
    "podSets": [{"name": "main", "count": 2, "template": {**TEMPLATE, "metadata": {"labels": {"app": "x"}}}}],
}


def row(state: str = "Pending", name: str = "elsewhere") -> Json:
    return {"name": name, "state": state, "message": "", "lastTransitionTime": "2026-01-31T12:00:00Z"}


def workload(*conditions: Json, check: Json | None = None, reserved: bool = True, **status: Any) -> WorkloadObject:
    made = Workload("wl", uid="w", labels={names.JOB_UID: "j", "team": "a"}).spec(**SPEC, active=True)
    if reserved:
        made.reserves("cq", {"name": "main"})
    checks = [row() if check is None else check]
    return made.conditions(*conditions).status(**{"admissionChecks": checks, **status}).made


def job(*, suspend: bool = True, manager: str = CONTROLLER, **status: Any) -> JobObject:
    labels = {"controller-uid": "j", "batch.kubernetes.io/job-name": "train", "app": "x"}
    meta = {"name": "train", "namespace": "team", "uid": "j", "resourceVersion": "4"}
    spec = {
        "suspend": suspend,
        "managedBy": manager,
        "parallelism": 2,
        "selector": {"matchLabels": {"controller-uid": "j"}},
        "template": {**TEMPLATE, "metadata": {"labels": labels}},
    }
    return JobObject({"apiVersion": "batch/v1", "kind": "Job", "metadata": meta, "spec": spec, "status": status})


def remote_job(*, suspend: bool = False, **status: Any) -> JobObject:
    meta = {"name": "train", "namespace": "team", "uid": "r", "labels": {names.PREBUILT_WORKLOAD: "wl"}}
    return JobObject({"metadata": meta, "spec": {"suspend": suspend}, "status": status})


def copy(*conditions: Json, **more: Any) -> Copy:
    usual: Json = {"priority": 5, "priority_class": None, "placed": frozenset(), "finalizers": ()}
    usual["spec"] = copies.digest(SPEC)
    return Copy(uid="c", version="7", conditions=list(conditions), **{**usual, **more})


def by_name(*jobs: Json) -> dict[str, JobObject]:
    return {each["metadata"]["name"]: JobObject(each) for each in jobs}


def there(*conditions: Json, job: Json | None = None, blocker: Json | None = None, **more: Any) -> ClusterView:
    jobs, blockers = (by_name(each) if each is not None else {} for each in (job, blocker))
    return ClusterView(True, copy=copy(*conditions), jobs=jobs, blockers=blockers, **more)


EMPTY = ClusterView(True)
ADMITTED = condition(names.ADMITTED)


def lost(seconds: float) -> ClusterView:
    return ClusterView(False, lost_at=NOW - int(seconds * 1000))


def view(workload: WorkloadObject, here: Json | None = None, **clusters: ClusterView) -> MultiKueueView:
    rows = workload["status"]["admissionChecks"]
    return MultiKueueView(
        workload=workload,
        row=rows[0] if rows else None,
        listed=["a", "b"],
        clusters={"a": EMPTY, "b": EMPTY, **clusters},
        jobs=by_name(job() if here is None else here),
        owner=OWNER,
        kind=on_other_cluster(kube.JOBS),
        settings=MultiKueueSettings(worker_lost_timeout=900),
        now=NOW,
    )


def planned(*args: Any, **clusters: ClusterView) -> list[Step]:
    return planning.plan(view(*args, **clusters))


# --- who may be sent --------------------------------------------------------------------------------------------------


def test_a_job_that_its_own_controller_runs_is_rejected() -> None:
    [step] = planned(workload(), job(manager=""))
    assert isinstance(step, SetCheck) and step.state == "Rejected"
    assert step.message == (
        'The owner is not managed by Kueue: Expecting spec.managedBy to be "kueue.x-k8s.io/multikueue" not "", '
        'Previously: "Pending"'
    )


@pytest.mark.parametrize(
    ("owner", "words"),
    [
        (None, "No multikueue adapter found, "),
        (("gangline.io/v1alpha1", "GPUJob"), 'for owner kind "gangline.io/v1alpha1, Kind=GPUJob", '),
    ],
)
def test_kinds_that_run_only_here_are_rejected(owner: tuple[str, str] | None, words: str) -> None:
    [step] = planning.plan(replace(view(workload()), owner=owner, kind=None))
    assert isinstance(step, SetCheck) and words in step.message


@pytest.mark.parametrize("changed", [{"listed": None}, {"jobs": {}}])
def test_without_configuration_or_job_nothing_is_done(changed: Json) -> None:
    assert planning.plan(replace(view(workload(), a=there(ADMITTED)), **changed)) == []


def test_the_field_of_the_kind_names_the_controller() -> None:
    pytorch = next(each.resource for each in jobkinds.BUILT_IN if each.kind == "PyTorchJob")
    chosen = replace(view(workload(), job()), owner=("kubeflow.org/v1", "PyTorchJob"), kind=on_other_cluster(pytorch))
    [step] = planning.plan(chosen)
    assert isinstance(step, SetCheck) and step.state == "Rejected"
    assert f'Expecting spec.runPolicy.managedBy to be "{CONTROLLER}" not ""' in step.message
    managed = {**job(manager=""), "spec": {"runPolicy": {"managedBy": CONTROLLER, "suspend": True}}}
    assert planning.plan(replace(chosen, jobs=by_name({**job(), **managed}))) == [Nominate(["a", "b"])]


# --- offered ----------------------------------------------------------------------------------------------------------


def test_all_connected_clusters_are_asked_at_once() -> None:
    assert planned(workload(), b=lost(1)) == [Nominate(["a"])]
    assert planned(workload(nominatedClusterNames=["b", "a"])) == [Send("a"), Send("b")]
    assert planned(workload(nominatedClusterNames=["a", "b"]), a=there(), b=ClusterView(True, busy=True)) == []


def test_a_cluster_that_cannot_run_the_kind_is_not_asked() -> None:
    other = ClusterView(True, refuses="rayjobs.ray.io are not served there")
    assert planned(workload(), a=other) == [Nominate(["b"])]
    assert planned(workload(nominatedClusterNames=["a", "b"]), a=other) == [Nominate(["b"]), Send("b")]
    nobody = f'No connected cluster can run the job: "a": {other.refuses}; "b": {other.refuses}'
    assert planned(workload(), a=other, b=other) == [SetCheck(row(), "Pending", nobody, "Warning")]
    check_row = {**row(), "message": nobody}
    assert planned(workload(check=check_row), a=other, b=other) == []
    found = planned(workload(check=check_row), a=other)
    assert found == [SetCheck(check_row, "Pending", "The job can run in: b"), Nominate(["b"])]


def test_copies_in_clusters_that_are_not_nominated_are_withdrawn() -> None:
    chosen = replace(
        view(workload(nominatedClusterNames=["a"]), a=there(), b=there()), settings=MultiKueueSettings(dispatcher="own")
    )
    assert planning.plan(chosen) == [WithdrawFromCluster("b", copy(), [])]


def test_other_checks_come_first() -> None:
    waiting = workload()
    waiting["status"]["admissionChecks"].append(row(name="budget"))
    assert planned(waiting) == []
    waiting["status"]["admissionChecks"][1]["state"] = "Ready"
    assert planned(waiting) == [Nominate(["a", "b"])]


def test_rounds_of_an_incremental_dispatcher() -> None:
    settings = MultiKueueSettings(dispatcher=INCREMENTAL, step=2)
    listed = ["d", "c", "b", "a"]

    def more(*nominated: str, round_at: int | None = None, settings: MultiKueueSettings = settings) -> list[Step]:
        return planning.nominate(settings, listed, [], list(nominated), round_at=round_at, now=NOW)[0]

    assert more() == [Nominate(["d", "c"], begins=True)]
    assert more(settings=replace(settings, in_listed_order=False)) == [Nominate(["a", "b"], begins=True)]
    assert more("d", "c", round_at=NOW - 1000) == [Wait(NOW - 1000 + planning.ROUND)]
    assert more("d", "c", round_at=NOW - planning.ROUND) == [Nominate(["d", "c", "b", "a"], begins=True)]
    assert more("d", "c") == [Nominate(["d", "c"], begins=True)], "after a restart the round is counted from there"
    assert more(*listed, round_at=0) == []


# --- it runs ----------------------------------------------------------------------------------------------------------


def test_a_job_that_was_admitted_before_its_queue_got_the_check_runs_on_here() -> None:
    """Whoever its controller is: nothing of it is sent, and the check does not reject it."""
    for manager in (CONTROLLER, ""):
        assert planned(workload(ADMITTED), job(suspend=False, manager=manager), east=EMPTY) == []


def test_the_first_cluster_that_admits_it_wins() -> None:
    early, late = (condition(names.ADMITTED, at=f"2026-01-31T12:00:0{second}Z") for second in (1, 2))
    asked = workload(nominatedClusterNames=["a", "b"])
    steps = planned(asked, a=there(late), b=there(early))
    assert [type(step) for step in steps] == [WithdrawFromCluster, SendJob]
    assert isinstance(steps[0], WithdrawFromCluster) and steps[0].cluster == "a"
    assert isinstance(steps[1], SendJob) and steps[1].cluster == "b"
    spec = steps[1].spec
    assert (spec["suspend"], "managedBy" in spec, "selector" in spec) == (True, False, False)
    assert spec["template"]["metadata"]["labels"] == {"app": "x"}


def test_its_check_is_ready_once_the_job_is_there_and_this_one_may_start() -> None:
    suspended = job(conditions=[{"type": "Suspended", "status": "True"}])
    running = remote_job(active=2, startTime="t")
    [step] = planned(workload(), job(), a=there(ADMITTED, job=running))
    assert isinstance(step, MirrorStatus) and step.status["conditions"][0]["type"] == "Suspended"
    assert "startTime" not in step.status, "it would keep the job from being started"
    assert planned(workload(), suspended, a=there(ADMITTED, job=running)) == [Choose(row(), "a", [])]
    ready = workload(check=row("Ready"), clusterName="a")
    [mirror] = planned(ready, job(suspend=False), a=there(ADMITTED, job=running))
    assert isinstance(mirror, MirrorStatus) and mirror.status == {"active": 2, "startTime": "t"}
    assert planned(ready, job(suspend=False, active=2, startTime="t"), a=there(ADMITTED, job=running)) == []


def test_a_leftover_of_an_earlier_job_goes_first() -> None:
    leftover = remote_job()
    assert planned(workload(), a=there(ADMITTED, blocker=leftover)) == [WithdrawFromCluster("a", None, [leftover])]
    leftover["metadata"]["deletionTimestamp"] = "t"
    assert planned(workload(), a=there(ADMITTED, blocker=leftover)) == []
    assert planned(workload(), a=there(ADMITTED, job=leftover)) == []


def test_a_cluster_that_was_given_up_wins_nothing_when_it_comes_back() -> None:
    chosen = workload(check=row("Ready"), clusterName="b")
    older = condition(names.ADMITTED, at="2025-01-31T12:00:00Z")
    running = job(suspend=False, active=2)
    steps = planned(
        chosen, running, a=there(older, job=remote_job(active=2)), b=there(ADMITTED, job=remote_job(active=2))
    )
    assert [(type(step), getattr(step, "cluster", "")) for step in steps] == [(WithdrawFromCluster, "a")]


def test_what_may_change_while_it_runs_is_passed_on() -> None:
    service = next(each.resource for each in jobkinds.BUILT_IN if each.kind == "RayService")
    kind = on_other_cluster(service)
    assert kind is not None

    def ray_service(config: str | None) -> Json:
        body = {"managedBy": CONTROLLER, "rayClusterSpec": {"suspend": False}, "serveConfigV2": config}
        return {**job(), "spec": {name: value for name, value in body.items() if value is not None}}

    def steps(here: Json, there_: Json, **changed: Any) -> list[Step]:
        remote = copies.read_job({**remote_job(), "spec": there_["spec"]}, kind.suspension, kind.followed)
        chosen = workload(check=row("Ready"), clusterName="a")
        cluster = ClusterView(True, copy=copy(ADMITTED), jobs=by_name(remote), busy=changed.pop("busy", False))
        owner = ("ray.io/v1", "RayService")
        return planning.plan(replace(view(chosen, here, a=cluster), owner=owner, kind=kind, **changed))

    assert steps(ray_service("one"), ray_service("one")) == []
    [step] = steps(ray_service("two"), ray_service("one"))
    assert isinstance(step, Follow) and (step.cluster, step.spec) == ("a", {"serveConfigV2": "two"})
    [step] = steps(ray_service(None), ray_service("one"))
    assert isinstance(step, Follow) and step.spec == {"serveConfigV2": None}
    assert steps(ray_service("two"), ray_service("one"), busy=True) == []
    assert steps(ray_service("two"), ray_service("one"), settings=MultiKueueSettings(jobs_follow=False)) == []


def test_topologies_are_ready_when_the_cluster_has_placed_the_pods() -> None:
    delayed = workload(check=row("Ready"), clusterName="a")
    delayed["status"]["admission"]["podSetAssignments"][0]["delayedTopologyRequest"] = "Pending"
    placed = ClusterView(True, copy=copy(ADMITTED, placed=frozenset({"main"})), jobs=by_name(remote_job(active=2)))
    [step] = planned(delayed, job(suspend=False, active=2), a=placed)
    assert step == Choose(row("Ready"), "a", ["main"])
    local_changes.of(step)(delayed["status"], NOW)
    assert delayed["status"]["admission"]["podSetAssignments"][0]["delayedTopologyRequest"] == "Ready"


def test_the_end_is_mirrored_and_then_copied() -> None:
    ended = condition(names.FINISHED, "Job finished successfully", reason="Succeeded")
    complete = [{"type": "Complete", "status": "True"}]
    ready, remote = workload(check=row("Ready"), clusterName="a"), remote_job(succeeded=2, conditions=complete)
    [mirror] = planned(ready, job(suspend=False, active=2), a=there(ended, job=remote))
    assert isinstance(mirror, MirrorStatus) and mirror.status == {"succeeded": 2, "conditions": complete}
    steps = planned(ready, job(suspend=False, succeeded=2, conditions=complete), a=there(ended, job=remote))
    assert steps == [Finish("Succeeded", "Job finished successfully")]


def test_a_copy_that_did_not_fit_its_job_is_not_the_end() -> None:
    ended = condition(names.FINISHED, reason="OutOfSync")
    [step] = planned(workload(check=row("Ready"), clusterName="a"), a=there(ended))
    assert isinstance(step, SetCheck) and (step.state, step.kind) == ("Retry", "Warning")
    assert planned(workload(), a=there(ended)) == []


@pytest.mark.parametrize("finished", [True, False])
def test_nothing_is_left_where_nothing_runs(finished: bool) -> None:
    ended = workload(condition(names.FINISHED)) if finished else workload(reserved=False)
    running = remote_job()
    assert planned(ended, a=there(job=running), b=lost(1)) == [WithdrawFromCluster("a", copy(), [running])]
    assert planned(ended, a=there(busy=True)) == []


def test_a_workload_without_the_check_is_nowhere() -> None:
    moved = workload()
    moved["status"]["admissionChecks"] = []
    assert planned(moved, a=there()) == [WithdrawFromCluster("a", copy(), [])]


# --- copies -----------------------------------------------------------------------------------------------------------


def test_a_copy_that_asks_for_something_else_is_replaced() -> None:
    other = ClusterView(True, copy=copy(ADMITTED, spec="other"))
    steps = planned(workload(check=row("Ready"), clusterName="a"), a=other)
    assert steps[0] == WithdrawFromCluster("a", other.copy, [], rest=True)
    assert isinstance(steps[1], SetCheck) and steps[1].message.startswith("Admitting remote no longer exists")
    assert planned(workload(nominatedClusterNames=["a", "b"]), a=other, b=there())[0] == steps[0]


def test_another_priority_is_told() -> None:
    low = ClusterView(True, copy=copy(ADMITTED, priority=1), jobs=by_name(remote_job(active=2)))
    steps = planned(workload(check=row("Ready"), clusterName="a"), job(suspend=False, active=2), a=low)
    assert steps == [Reprioritise("a", low.copy)], "and it still runs there"


def test_empty_fields_are_no_difference() -> None:
    noisy = {
        **SPEC,
        "priority": 9,
        "active": False,
        "preemptionGates": [{"name": "g"}],
        "podSets": [
            {
                **SPEC["podSets"][0],
                "topologyRequest": None,
                "template": {**TEMPLATE, "metadata": {"labels": {"app": "x"}, "annotations": {}}},
            }
        ],
    }
    assert copies.digest(noisy) == copies.digest(SPEC)
    assert copies.digest({**SPEC, "queueName": "other"}) != copies.digest(SPEC)


def test_what_is_sent() -> None:
    body = copies.workload_body(workload(), "east", kube.WORKLOADS)
    assert body["metadata"] == {
        "name": "wl",
        "namespace": "team",
        "labels": {"team": "a", names.MULTIKUEUE_ORIGIN: "east"},
    }
    assert body["spec"] == SPEC
    key, known = copies.read_workload({**body, "metadata": {**body["metadata"], "uid": "c", "resourceVersion": "7"}})
    assert (key, known.spec) == ("team/wl", copies.digest(SPEC))
    here = job()
    others = {names.AFTER: "job/a=Succeeded", names.AFTER_FAILED: "Hold"}
    here["metadata"]["annotations"] = {names.STOPPING: "true", "a": "b", **others}
    kind = on_other_cluster(kube.JOBS)
    assert kind is not None
    sent = copies.job_body(kind, here, {}, "wl", "east")["metadata"]
    assert sent["labels"] == {names.MULTIKUEUE_ORIGIN: "east", names.PREBUILT_WORKLOAD: "wl"}
    assert sent["annotations"] == {"a": "b"}
    waited = workload()
    waited["metadata"]["annotations"] = {"a": "b", names.AFTER_MET: "job/a=Succeeded", **others}
    body = copies.workload_body(waited, "east", kube.WORKLOADS)
    assert body["metadata"]["annotations"] == {"a": "b"}, "those jobs are here, and it has waited for them"
    long = copies.job_body(kind, here, {}, "w" * 64, "east")["metadata"]
    assert long["annotations"][names.PREBUILT_WORKLOAD] == "w" * 64
    assert copies.workload_of(JobObject({"metadata": long})) == f"team/{'w' * 64}"


# --- it stops ---------------------------------------------------------------------------------------------------------


def evicted(**status: Any) -> WorkloadObject:
    return workload(condition(names.EVICTED, "preempted", reason="Preempted"), **status)


def test_an_eviction_here_is_told_there_and_its_end_is_mirrored() -> None:
    held, suspended = there(ADMITTED, job=remote_job(active=2)), [{"type": "Suspended", "status": "True"}]
    [stop] = planned(evicted(), job(active=2, conditions=suspended), a=held)
    assert stop == Stop("a", copy(ADMITTED), "Evicted on manager: preempted")
    stopped_there = there(ADMITTED, condition(names.DEACTIVATION_TARGET), job=remote_job(active=2))
    assert planned(evicted(), job(active=2, conditions=suspended), a=stopped_there) == []
    stopped = there(condition(names.EVICTED), job=remote_job(suspend=True, active=0))
    [mirror] = planned(evicted(), job(active=2), a=stopped)
    assert isinstance(mirror, MirrorStatus) and mirror.status == {"active": 0}


def test_a_job_in_no_cluster_has_no_pods() -> None:
    [settled] = planned(evicted(), job(active=2, ready=1, failed=1))
    assert isinstance(settled, MirrorStatus) and settled.status == {"failed": 1}
    assert planned(evicted(), job(failed=1)) == []
    [wait] = planned(evicted(), job(active=2), a=lost(60))
    assert wait == Wait(NOW - 60_000 + 900_000)
    assert isinstance(planned(evicted(), job(active=2), a=lost(901))[0], MirrorStatus)
    assert isinstance(
        planned(evicted(), job(active=2), a=ClusterView(True, jobs=by_name(remote_job())))[0], WithdrawFromCluster
    )


def test_an_eviction_there_queues_it_again_here() -> None:
    ready = workload(check=row("Ready"), clusterName="a")
    [step] = planned(ready, a=there(condition(names.EVICTED)))
    assert isinstance(step, SetCheck) and step.state == "Retry"
    assert step.message == 'Workload evicted on worker cluster: "a", resetting for re-admission. Previously: "Ready"'
    assert planned(workload(check=row("Retry"), clusterName="a"), a=there(condition(names.EVICTED))) == []


@pytest.mark.parametrize(
    ("state", "words"),
    [
        (lost(901), "Admitting remote lost"),
        (EMPTY, "Admitting remote no longer exists"),
    ],
)
def test_a_workload_whose_copy_is_gone_is_queued_again(state: ClusterView, words: str) -> None:
    [step] = planned(workload(check=row("Ready"), clusterName="a"), a=state)
    assert isinstance(step, SetCheck)
    assert (step.state, step.message) == ("Retry", f'{words}, Previously: "Ready"')


DONE: Json = {"succeeded": 2, "conditions": [{"type": "Complete", "status": "True", "message": "done"}]}


@pytest.mark.parametrize("copied", [there(ADMITTED), EMPTY, there(condition(names.FINISHED, reason="OwnerNotFound"))])
def test_a_job_that_deleted_itself_after_its_end_does_not_run_again(copied: ClusterView) -> None:
    """Whatever is left of its copy by then."""
    gone = replace(copied, ended=by_name(remote_job(**DONE)))
    running = workload(check=row("Ready"), clusterName="a")
    [mirror] = planned(running, job(suspend=False, active=2), a=gone)
    assert isinstance(mirror, MirrorStatus) and mirror.status["conditions"][0]["type"] == "Complete"
    assert planned(running, job(suspend=False, **DONE), a=gone) == [], "the job here ends its workload"
    assert planned(running, job(suspend=False, **DONE), a=replace(gone, ended={})) == [], "as after a restart"
    [mirror] = planned(workload(), job(), a=gone)
    assert isinstance(mirror, MirrorStatus), "also where it was over before its check was ready"


def test_a_job_that_was_deleted_there_before_its_end_is_queued_again() -> None:
    orphan = there(condition(names.FINISHED, reason="OwnerNotFound"))
    [step] = planned(workload(check=row("Ready"), clusterName="a"), job(suspend=False, active=2), a=orphan)
    assert isinstance(step, SetCheck) and step.state == "Retry"


def test_a_cluster_has_time_to_come_back() -> None:
    assert planned(workload(check=row("Ready"), clusterName="a"), a=lost(60)) == [Wait(NOW - 60_000 + 900_000)]
    [step] = planned(workload(check=row("Ready")))
    assert isinstance(step, SetCheck) and "no admitting cluster is recorded" in step.message


# --- pods, and what has pods that wait --------------------------------------------------------------------------------

POD_OWNER = ("v1", "Pod")


def pod(name: str, uid: str = "", phase: str = "Pending", *, deleted: bool = False) -> PodObject:
    meta: Json = {"name": name, "namespace": "team", "uid": uid or name, "resourceVersion": "3"}
    if deleted:
        meta["deletionTimestamp"] = "t"
    spec = {"schedulingGates": [{"name": names.ADMISSION_GATE}]}
    return PodObject({"metadata": meta, "spec": spec, "status": {"phase": phase}})


def group(workload: WorkloadObject, *pods: Json, **clusters: ClusterView) -> MultiKueueView:
    kind = on_other_cluster(kube.PODS)
    return replace(view(workload, **clusters), owner=POD_OWNER, kind=kind, jobs=by_name(*pods))


def running(*pods: Json, **more: Any) -> ClusterView:
    return ClusterView(True, copy=copy(ADMITTED, condition(names.QUOTA_RESERVED)), jobs=by_name(*pods), **more)


READY = {"check": row("Ready"), "clusterName": "a"}


def test_all_pods_of_a_group_are_sent_before_its_check_is_ready() -> None:
    two = (pod("p"), pod("q"))
    steps = planning.plan(group(workload(), *two, a=running()))
    assert [(type(step), step.job["metadata"]["name"]) for step in steps if isinstance(step, SendJob)] == [
        (SendJob, "p"),
        (SendJob, "q"),
    ]
    assert len(steps) == 2
    [step] = planning.plan(group(workload(), *two, a=running(pod("p"))))
    assert isinstance(step, SendJob) and step.job == two[1]
    assert step.spec["schedulingGates"] == [{"name": names.ADMISSION_GATE}]
    assert planning.plan(group(workload(), *two, a=running(pod("p"), busy=True))) == []
    assert planning.plan(group(workload(), *two, a=running(*two))) == [Choose(row(), "a", [])]


def test_each_pod_shows_how_far_its_copy_is() -> None:
    here, there_ = (pod("p"), pod("q", phase="Running")), (pod("p", phase="Running"), pod("q", phase="Running"))
    assert planning.plan(group(workload(**READY), *here, a=running(*there_))) == [
        MirrorStatus(here[0], {"phase": "Running"})
    ]
    # what has ended does not run again, should its copy be gone; what has not, does
    ended = (pod("p", phase="Succeeded"), pod("q", phase="Running"))
    assert planning.plan(group(workload(**READY), *ended, a=running(pod("q", phase="Running")))) == []
    steps = planning.plan(group(workload(**READY), *ended, a=running()))
    assert [type(step) for step in steps] == [MirrorStatus, SendJob]
    assert isinstance(steps[0], MirrorStatus) and steps[0].status["phase"] == "Pending"
    leaving = pod("q", phase="Failed", deleted=True)
    assert planning.plan(group(workload(**READY), *ended, a=running(leaving))) == [], "that one has to be gone first"


def test_a_pod_that_is_deleted_here_is_deleted_there() -> None:
    kept = pod("q", phase="Running")
    for here in ((kept,), (pod("p", phase="Running", deleted=True), kept)):
        gone = pod("p", phase="Running")
        steps = planning.plan(group(workload(**READY), *here, a=running(gone, kept)))
        assert steps == [WithdrawFromCluster("a", None, [gone])]
        leaving = pod("p", phase="Running", deleted=True)
        assert planning.plan(group(workload(**READY), *here, a=running(leaving, kept))) == []
    [step] = planning.plan(group(workload(**READY), pod("p", phase="Running", deleted=True), kept, a=running(kept)))
    assert isinstance(step, MirrorStatus) and step.status["phase"] == "Pending", "it runs nowhere any more"


def test_a_leftover_with_the_name_of_a_pod_goes_first() -> None:
    leftover = pod("p", uid="old")
    cluster = running(blockers={"p": leftover})
    steps = planning.plan(group(workload(), pod("p"), pod("q"), a=cluster))
    assert steps[0] == WithdrawFromCluster("a", None, [leftover])
    assert [type(step) for step in steps] == [WithdrawFromCluster, SendJob]


def test_pods_wait_again_where_nothing_runs() -> None:
    """Also without quota: a Workload whose pods wait may lose it before they have said so."""
    two = (pod("p", phase="Running"), pod("q", phase="Failed"))
    for wl in (evicted(), workload(reserved=False)):
        [step] = planning.plan(group(wl, *two))
        assert isinstance(step, MirrorStatus) and (step.job, step.status["phase"]) == (two[0], "Pending")
    assert planning.plan(group(workload(condition(names.FINISHED)), *two)) == []
    assert planning.plan(group(evicted(**READY), *two, a=lost(60))) == [Wait(NOW - 60_000 + 900_000)]
    [step] = planning.plan(group(evicted(**READY), *two, b=lost(60)))
    assert isinstance(step, MirrorStatus), "it was never there"
    left = group(workload(reserved=False), *two, a=ClusterView(True, jobs=by_name(two[0])))
    assert planning.plan(left) == [WithdrawFromCluster("a", None, [two[0]])]


def test_the_quota_is_held_while_pods_may_run_elsewhere() -> None:
    chosen = workload(**READY)
    assert stopping.may_run(group(chosen, pod("p"), a=running(pod("p"))))
    assert not stopping.may_run(group(chosen, pod("p"), a=EMPTY))
    assert stopping.may_run(group(chosen, pod("p"), a=lost(60)))
    assert not stopping.may_run(group(chosen, pod("p"), a=lost(901))), "it is given up"
    assert not stopping.may_run(group(chosen, pod("p"), b=lost(1))), "it was never there"
    released = ClusterView(True, copy=copy(condition(names.EVICTED)), jobs=by_name(pod("p", phase="Running")))
    assert not stopping.may_run(group(chosen, pod("p"), a=released)), "that cluster has taken the quota back"
    [settled] = planning.plan(group(evicted(**READY), pod("p", phase="Running"), a=released))
    assert isinstance(settled, MirrorStatus) and settled.status["phase"] == "Pending", (
        "though a pod of it is kept there"
    )


def test_a_stateful_set_is_one_object() -> None:
    kind = on_other_cluster(kube.STATEFUL_SETS)
    meta = {"name": "db", "namespace": "team", "uid": "s"}
    stored = JobObject({"metadata": meta, "spec": {"replicas": 2}, "status": {}})
    chosen = replace(group(workload(), a=running()), kind=kind, owner=("apps/v1", "StatefulSet"), jobs={"db": stored})
    assert planning.plan(chosen) == [SendJob("a", stored, {"replicas": 2})]
    remote = {**stored, "status": {"readyReplicas": 2}}
    sent = replace(chosen, clusters={**chosen.clusters, "a": running(remote)})
    assert planning.plan(sent) == [Choose(row(), "a", [])], "its controller here writes its status"
    stopping = replace(sent, workload=evicted(clusterName="a"))
    [stop] = planning.plan(stopping)
    assert isinstance(stop, Stop) and stop.message == "Evicted on manager: preempted"
    assert kind is not None
    body = copies.job_body(kind, stored, {}, "wl", "east")["metadata"]
    assert body["annotations"] == {names.MULTIKUEUE_ORIGIN_UID: "s"}
    assert body["labels"] == {names.MULTIKUEUE_ORIGIN: "east", names.PREBUILT_WORKLOAD: "wl"}


LWS = JobObject({"metadata": {"name": "llm", "namespace": "team", "uid": "l"}, "spec": {"replicas": 2}, "status": {}})


def set_of(workload: WorkloadObject, family: SentFamily, **clusters: ClusterView) -> MultiKueueView:
    kind = on_other_cluster(kube.LEADER_WORKER_SETS)
    owner = ("leaderworkerset.x-k8s.io/v1", "LeaderWorkerSet")
    return replace(view(workload, **clusters), owner=owner, kind=kind, jobs={"llm": LWS}, family=family)


def test_groups_of_a_leader_worker_set_run_in_the_cluster_that_the_first_gets() -> None:
    first, other = SentFamily(True, leads=True, cluster=""), SentFamily(True, leads=False, cluster="")
    assert planning.plan(set_of(workload(), replace(first, complete=False))) == [], "not all of them exist"
    assert planning.plan(set_of(workload(), first)) == [Nominate(["a", "b"])]
    assert planning.plan(set_of(workload(), other)) == []
    follows = replace(other, cluster="b")
    assert planning.plan(set_of(workload(), follows)) == [Nominate(["b"])]
    assert planning.plan(set_of(workload(nominatedClusterNames=["b"]), follows)) == [Send("b")]
    assert planning.plan(set_of(workload(nominatedClusterNames=["b"]), follows, b=lost(1))) == []


def test_what_other_groups_use_is_not_deleted() -> None:
    family = SentFamily(True, leads=False, cluster="a")
    shared = ClusterView(True, copy=copy(ADMITTED), jobs={"llm": LWS}, shared=True)
    assert planning.plan(set_of(workload(reserved=False), family, a=shared)) == [
        WithdrawFromCluster("a", copy(ADMITTED), [])
    ]
    last = replace(shared, shared=False)
    assert planning.plan(set_of(workload(reserved=False), family, a=last)) == [
        WithdrawFromCluster("a", copy(ADMITTED), [LWS])
    ]


def test_another_number_of_groups_is_passed_on_by_the_first() -> None:
    fewer = JobObject({**LWS, "spec": {"replicas": 1}})
    there_ = ClusterView(True, copy=copy(ADMITTED, condition(names.QUOTA_RESERVED)), jobs={"llm": fewer})
    first, other = SentFamily(True, leads=True, cluster="a"), SentFamily(True, leads=False, cluster="a")
    assert planning.plan(set_of(workload(**READY), first, a=there_)) == [Follow("a", fewer, {"replicas": 2})]
    assert planning.plan(set_of(workload(**READY), other, a=there_)) == []


def test_a_leader_worker_set_of_very_many_groups_is_not_sent() -> None:
    many = JobObject({**LWS, "spec": {"replicas": 1001}})
    [step] = planning.plan(replace(set_of(workload(), SentFamily(True, leads=True, cluster="")), jobs={"llm": many}))
    assert isinstance(step, SetCheck) and step.state == "Rejected"
    assert "it has 1001 groups, and at most 1000 are sent" in step.message


# --- changes here -----------------------------------------------------------------------------------------------------


def test_a_row_that_has_changed_meanwhile_is_left_alone() -> None:
    status = evicted()["status"]
    status["nominatedClusterNames"] = ["a"]
    local_changes.of(Choose(row("Retry"), "a"))(status, NOW)
    assert status["admissionChecks"] == [row()] and "clusterName" not in status
    local_changes.of(Choose(row(), "a"))(status, NOW)
    assert (status["admissionChecks"][0]["state"], status["clusterName"]) == ("Ready", "a")
    assert "nominatedClusterNames" not in status
    local_changes.of(Nominate(["b"]))(status, NOW)
    assert "nominatedClusterNames" not in status, "it has its cluster"
    local_changes.of(SetCheck(status["admissionChecks"][0], "Retry", "lost"))(status, NOW)
    assert status["admissionChecks"][0]["state"] == "Retry"


# --- the checks -------------------------------------------------------------------------------------------------------


def judged(active: list[str], listed: list[str] | None = None, **parameters: str) -> Activity:
    right = {"apiGroup": names.GROUP, "kind": "MultiKueueConfig", "name": "all"}
    check = Stored({"spec": {"controllerName": CONTROLLER, "parameters": {**right, **parameters}}})
    configs = {"all": Stored({"spec": {"clusters": listed or ["a", "b"]}})}
    known = {name: Stored({"status": {"conditions": [condition(names.ACTIVE)]}}) for name in active}
    known["b"] = Stored({"status": {}})
    return activity.activity_of(check, configs.get, known.get)


def test_the_check_is_active_where_a_cluster_is() -> None:
    assert judged(["a"], ["a"]) == Activity(True, "Active", "The admission check is active")
    assert judged(["a"]) == Activity(True, "SomeActiveClusters", "Inactive clusters: [b]")
    assert judged([]) == Activity(False, "NoUsableClusters", "Missing clusters: [a], Inactive clusters: [b]")
    bad = judged(["a"], name="other")
    message = 'Cannot load the AdmissionChecks parameters: MultiKueueConfig.kueue.x-k8s.io "other" not found'
    assert bad == Activity(False, "BadConfig", message)
    assert 'wrong kind "ConfigMap"' in judged(["a"], kind="ConfigMap").message
