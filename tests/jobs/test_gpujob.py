"""GPUJob: what it asks for, and its children through starts, failures, restarts, holds and ends."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.jobs.gangs import CREATED, KIND, FakeNamespace, admitted, gpu_job, pod_template, role
from tests.merging import merge_patch
from tests.objects import JobObject, WorkloadObject

from gangline.api import names
from gangline.api.schema.v1alpha1.gpujob import GPUJob as Model
from gangline.jobs import gpujob as owned
from gangline.jobs import workload
from gangline.jobs.base import Children, Delete, JobError, JobOutcome, PodSetInfo
from gangline.jobs.gpujob import status

# --- what it asks for -------------------------------------------------------------------------------------------------


def test_short_form():
    (pod_set,) = KIND.pod_sets(gpu_job(minWorkers=1))
    assert (pod_set["name"], pod_set["count"], pod_set["minCount"]) == ("worker", 2, 1)
    (container,) = pod_set["template"]["spec"]["containers"]
    assert container["resources"] == {"requests": {"nvidia.com/gpu": "8"}, "limits": {"nvidia.com/gpu": "8"}}
    assert pod_set["template"]["spec"]["restartPolicy"] == "Never"


def test_one_pod_set_per_role_in_order():
    job = gpu_job(role("launcher", 1), role("worker", 4, gpus=2, minReplicas=2), gpuResource="amd.com/gpu")
    launcher, worker = KIND.pod_sets(job)
    assert (launcher["name"], launcher["count"]) == ("launcher", 1)
    assert "resources" not in launcher["template"]["spec"]["containers"][0]
    assert (worker["name"], worker["count"], worker["minCount"]) == ("worker", 4, 2)
    assert worker["template"]["spec"]["containers"][0]["resources"]["limits"] == {"amd.com/gpu": "2"}


def test_a_template_that_names_its_gpus_is_left_alone():
    template = pod_template()
    template["spec"]["containers"].append({"name": "b", "resources": {"limits": {"nvidia.com/gpu": 3}}})
    (pod_set,) = KIND.pod_sets(gpu_job(role("worker", 1, gpus=8, template=template)))
    assert pod_set["template"]["spec"]["containers"] == template["spec"]["containers"]


def test_topology_of_the_spec():
    (pod_set,) = KIND.pod_sets(gpu_job(topology={"required": "rack"}))
    assert pod_set["topologyRequest"] == {
        "required": "rack",
        "podIndexLabel": "batch.kubernetes.io/job-completion-index",
    }


@pytest.mark.parametrize(
    ("job", "field"),
    [
        (gpu_job(workers=0), "spec.workers"),
        (gpu_job(minWorkers=3), "spec.minWorkers"),
        (gpu_job(template={}), "spec.template.spec.containers"),
        (gpu_job(template=pod_template(restartPolicy="Always")), "spec.template.spec.restartPolicy"),
        (gpu_job(roles=[]), "spec.roles"),
        (gpu_job(role("a", 1), role("a", 1)), "spec.roles[1].name"),
        (gpu_job(role("a", 1), role("", 1)), "spec.roles[1].name"),
        (gpu_job(role("a", 0)), "spec.roles[0].replicas"),
        (gpu_job(name="1st"), "metadata.name"),
        (gpu_job(name="a.b"), "metadata.name"),
        (gpu_job(name="n" * 56, workers=10), "metadata.name"),
        (gpu_job(runtime={"limit": "soon"}), "spec.runtime.limit"),
        (gpu_job(runtime={"limit": "0s"}), "spec.runtime.limit"),
    ],
)
def test_what_makes_no_gang_is_refused_by_field(job: dict[str, Any], field: str):
    with pytest.raises(JobError) as caught:
        KIND.pod_sets(job)
    assert caught.value.field == field


def test_the_samples_are_valid_gpujobs():
    for job in (gpu_job(), gpu_job(role("launcher", 1), role("worker", 4, gpus=8), framework="MPI")):
        Model.model_validate(job)


# --- start and stop ---------------------------------------------------------------------------------------------------


def test_start_and_stop_turn_the_switch():
    job = gpu_job()
    start = KIND.start(job, admitted(job))
    assert start is not None
    assert start.body == {"spec": {"suspend": False}}
    running = merge_patch(job, start.body)
    assert KIND.start(running, admitted(job)) is None
    stop = KIND.stop(running, KIND.pod_sets(running))
    assert stop is not None
    assert merge_patch(running, stop.body) == job
    assert KIND.stop(job, KIND.pod_sets(job)) is None


def test_start_names_a_conflict_before_anything_is_written():
    job = gpu_job(role("worker", 1, template=pod_template(nodeSelector={"pool": "a100"})))
    with pytest.raises(JobError) as caught:
        KIND.start(job, admitted(job))
    assert caught.value.field == "spec.roles[0].template.spec.nodeSelector[pool]"


# --- children ---------------------------------------------------------------------------------------------------------


def _started(*roles: dict[str, Any], **spec: Any) -> tuple[FakeNamespace, list[PodSetInfo]]:
    job = gpu_job(*roles, **{"suspend": False, **spec})
    space, infos = FakeNamespace(job), admitted(job)
    space.settle(infos)
    return space, infos


def test_children_of_a_running_job():
    job = gpu_job(suspend=False, framework="PyTorch", runtime={"limit": "90m"})
    job["metadata"]["labels"] = {names.QUEUE_NAME: "research"}
    job["spec"]["template"]["metadata"] = {"labels": {names.QUEUE_NAME: "research", "app": "llama"}}
    space = FakeNamespace(job)
    space.settle([PodSetInfo("worker", 2, node_selector={"pool": "h100"}, labels={names.PODSET: "worker"})])

    service = space.services["llama"]
    assert service["spec"]["clusterIP"] == "None"
    assert service["spec"]["publishNotReadyAddresses"] is True
    assert service["spec"]["selector"] == {"gangline.io/gpujob": "llama"}

    child = space.jobs["llama-worker"]
    assert child["metadata"]["namespace"] == "team"
    assert child["metadata"]["labels"] == {"gangline.io/gpujob": "llama", "gangline.io/role": "worker"}
    (owner,) = child["metadata"]["ownerReferences"]
    assert (owner["kind"], owner["uid"], owner["controller"]) == ("GPUJob", "gpujob-uid", True)
    spec = child["spec"]
    assert (spec["completionMode"], spec["completions"], spec["parallelism"]) == ("Indexed", 2, 2)
    assert spec["activeDeadlineSeconds"] == 5400
    template = spec["template"]
    assert template["spec"]["nodeSelector"] == {"pool": "h100"}
    assert template["spec"]["subdomain"] == "llama"
    assert template["metadata"]["labels"] == {
        "app": "llama",
        "gangline.io/gpujob": "llama",
        "gangline.io/role": "worker",
        names.PODSET: "worker",
    }


@pytest.mark.parametrize(
    ("restart", "limit"),
    [
        ({}, 0),
        ({"maxRestarts": 5}, 0),
        ({"onPodFailure": "RestartPod", "maxRestarts": 5}, 5),
        ({"onPodFailure": "RestartPod"}, 3),
        ({"onPodFailure": "Fail", "maxRestarts": 5}, 0),
    ],
)
def test_backoff_limit(restart: dict[str, Any], limit: int):
    space, _ = _started(restart=restart)
    assert space.jobs["llama-worker"]["spec"]["backoffLimit"] == limit


def test_partial_admission_makes_a_smaller_gang():
    job = gpu_job(role("worker", 8, gpus=4, minReplicas=2), suspend=False, framework="PyTorch")
    space = FakeNamespace(job)
    space.settle(admitted(job, worker=3))
    assert space.jobs["llama-worker"]["spec"]["completions"] == 3
    assert space.job["status"]["gpus"] == 12
    assert space.job["status"]["ready"] == "0/3"


def test_a_job_without_a_queue_runs_as_it_is_written():
    space = FakeNamespace(gpu_job(suspend=False))
    space.settle([])
    assert space.jobs["llama-worker"]["spec"]["parallelism"] == 2


def test_held_jobs_own_no_jobs():
    space, infos = _started()
    space.job["spec"]["suspend"] = True
    writes = space.sync(infos)  # held, whatever the admission says
    assert [type(write) for write in writes][:1] == [Delete]
    assert writes[0].propagation == "Foreground"  # type: ignore[union-attr]
    assert space.job["status"]["phase"] == "Suspending"
    assert KIND.is_active(space.job, space.children), "its pods may still run"
    space.sync(None)
    space.collect()
    assert not KIND.is_active(space.job, space.children)
    space.settle(None)
    assert space.job["status"]["phase"] == "Pending"
    assert space.condition("Suspended")
    assert not space.jobs
    assert "roles" not in space.job["status"]


def test_a_child_is_not_made_again_before_the_old_one_is_gone():
    space, infos = _started()
    space.jobs["llama-worker"]["metadata"]["deletionTimestamp"] = "2026-01-01T09:00:00Z"
    before = space.created
    space.sync(infos)
    space.sync(infos)
    assert space.created == before
    space.collect()
    space.settle(infos)
    assert space.created == before + 1


@pytest.mark.parametrize(
    "other",
    [
        PodSetInfo("worker", 1, node_selector={"pool": "h100"}),
        PodSetInfo("worker", 2, node_selector={"pool": "a100"}),
        PodSetInfo("worker", 2, node_selector={"pool": "h100"}, tolerations=[{"key": "gpu"}]),
    ],
)
def test_children_of_another_admission_are_replaced_as_a_whole(other: PodSetInfo):
    space, infos = _started(role("driver", 1), role("worker", 2))
    old = {name: space.admission(name) for name in space.jobs}
    space.sync([infos[0], other])
    assert all("deletionTimestamp" in child["metadata"] for child in space.jobs.values())
    space.collect()
    space.settle([infos[0], other])
    assert set(space.jobs) == {"llama-driver", "llama-worker"}
    assert all(space.admission(name) != old[name] for name in old)


def test_labels_of_an_admission_do_not_restart_a_gang():
    space, (info,) = _started()
    relabelled = PodSetInfo("worker", info.count, node_selector=info.node_selector, labels={"new": "label"})
    assert space.sync([relabelled]) == []


# --- status -----------------------------------------------------------------------------------------------------------


def test_phases_and_counts():
    space, infos = _started(role("driver", 1), role("worker", 2, gpus=4))
    assert space.job["status"]["phase"] == "Starting"
    assert space.job["status"]["gpus"] == 8
    assert not KIND.pods_ready(space.job)
    space.report("llama-driver", ready=1, active=1)
    space.report("llama-worker", ready=2, active=2)
    space.settle(infos)
    assert space.job["status"]["phase"] == "Running"
    assert space.job["status"]["ready"] == "3/3"
    assert KIND.pods_ready(space.job)
    assert not space.condition("Suspended")
    space.report("llama-worker", ready=1, failed=1)
    space.settle(infos)
    assert space.job["status"]["phase"] == "Recovering"
    assert not KIND.pods_ready(space.job)
    assert space.job["status"]["roles"][1] == {"name": "worker", "replicas": 2, "ready": 1, "succeeded": 0, "failed": 1}
    Model.model_validate(space.job)


def test_pods_that_succeeded_count_before_their_job_counts_them():
    space, infos = _started(role("worker", 2))
    space.report("llama-worker", ready=1, active=1, uncountedTerminatedPods={"succeeded": ["uid"]})
    space.settle(infos)
    assert KIND.pods_ready(space.job)
    assert space.job["status"]["phase"] == "Running"


def test_conditions_of_others_survive():
    other = {"type": "Stalled", "status": "True", "reason": "r", "message": "m", "lastTransitionTime": "x"}
    job = gpu_job(status={"conditions": [other], "swaps": 2})
    space = FakeNamespace(job)
    space.settle(None)
    assert space.job["status"]["conditions"][0] == other
    assert space.job["status"]["swaps"] == 2


# --- the end ----------------------------------------------------------------------------------------------------------


def test_complete_when_all_roles_are():
    space, infos = _started(role("driver", 1), role("worker", 2))
    space.report("llama-worker", succeeded=2)
    space.finish("llama-worker", "Complete")
    space.settle(infos)
    assert KIND.finished(space.job) is None
    space.report("llama-driver", succeeded=1)
    space.finish("llama-driver", "Complete")
    space.settle(infos)
    assert KIND.finished(space.job) == JobOutcome(True, "All pods of the gang succeeded")
    assert space.job["status"]["phase"] == "Succeeded"
    assert [row["succeeded"] for row in space.job["status"]["roles"]] == [1, 2]
    assert space.job["status"]["completionTime"]
    assert set(space.jobs) == {"llama-driver", "llama-worker"}, "the logs stay"
    Model.model_validate(space.job)


@pytest.mark.parametrize(
    ("framework", "roles", "ends"),
    [
        ("MPI", ("launcher", "worker"), ["launcher"]),
        ("TensorFlow", ("chief", "worker", "ps"), ["chief"]),
        ("TensorFlow", ("worker", "ps"), ["worker"]),
    ],
)
def test_roles_that_only_serve_are_taken_down_at_the_end(framework: str, roles: tuple[str, ...], ends: list[str]):
    space, infos = _started(*[role(name, 1) for name in roles], framework=framework)
    for name in ends:
        space.finish(f"llama-{name}", "Complete")
    space.sync(infos)
    assert space.condition("SuccessCriteriaMet")
    assert KIND.finished(space.job) is None, "pods still run, and hold their quota"
    assert KIND.is_active(space.job, space.children)
    space.collect()
    space.settle(infos)
    assert KIND.finished(space.job) == JobOutcome(True, f"All pods of {', '.join(ends)} succeeded")
    assert set(space.jobs) == {f"llama-{name}" for name in ends}


def test_a_gang_that_ended_while_it_was_evicted_has_ended():
    space, _ = _started()
    space.finish("llama-worker", "Complete")
    space.job["spec"]["suspend"] = True
    space.settle(None)
    assert KIND.finished(space.job) == JobOutcome(True, "All pods of the gang succeeded")


def test_a_failure_restarts_the_whole_gang_until_the_limit():
    space, infos = _started(role("driver", 1), role("worker", 2), restart={"maxRestarts": 2})
    for count in (1, 2):
        space.finish("llama-worker", "Failed", "BackoffLimitExceeded", "Job has reached the specified backoff limit")
        space.settle(infos)
        assert space.job["status"]["restarts"] == count
        assert KIND.finished(space.job) is None
        assert all(space.admission(name).endswith(f"-{count}") for name in space.jobs)
        assert not any(child.get("status") for child in space.jobs.values()), "all of them are new"
    space.finish("llama-worker", "Failed", "BackoffLimitExceeded", "Job has reached the specified backoff limit")
    space.settle(infos)
    assert KIND.finished(space.job) == JobOutcome(False, "worker: Job has reached the specified backoff limit")
    assert set(space.jobs) == {"llama-worker"}, "the other role is taken down"
    assert space.job["status"]["phase"] == "Failed"


@pytest.mark.parametrize(("queue", "left"), [("", [36_000 - 60, 36_000 - 240]), ("research", [36_000, 36_000])])
def test_without_a_queue_the_limit_is_for_all_attempts_together(queue: str, left: list[int]):
    job = gpu_job(suspend=False, runtime={"limit": "10h"})
    job["metadata"]["labels"] = {names.QUEUE_NAME: queue} if queue else {}
    space, infos = FakeNamespace(job), admitted(job)
    space.settle(infos)
    for expected in left:
        space.finish("llama-worker", "Failed", "BackoffLimitExceeded", "lost a rank")
        space.settle(infos)
        assert space.jobs["llama-worker"]["spec"]["activeDeadlineSeconds"] == expected
    space.job["spec"]["runtime"]["limit"] = "60s"
    space.finish("llama-worker", "Failed", "BackoffLimitExceeded", "lost a rank")
    space.settle(infos)
    assert space.jobs["llama-worker"]["spec"]["activeDeadlineSeconds"] == (60 if queue else 1)


@pytest.mark.parametrize(
    ("restart", "reason"), [({"onPodFailure": "Fail"}, "BackoffLimitExceeded"), ({}, "DeadlineExceeded")]
)
def test_final_failures(restart: dict[str, Any], reason: str):
    space, infos = _started(restart=restart)
    space.finish("llama-worker", "Failed", reason, "over")
    space.settle(infos)
    assert KIND.finished(space.job) == JobOutcome(False, "worker: over")
    assert space.condition("Failed")["reason"] == reason  # type: ignore[index]


def test_a_restart_survives_a_crash_between_its_steps():
    space, infos = _started()
    space.finish("llama-worker", "Failed", "BackoffLimitExceeded")
    (first,) = KIND.sync(space.job, infos, space.children)
    (again,) = KIND.sync(space.job, infos, space.children)
    assert first == again, "decided again, not counted twice"
    space.carry_out(first)
    assert isinstance(KIND.sync(space.job, infos, space.children)[0], Delete)


def test_a_rejected_child_fails_the_job_by_field():
    space, infos = _started(role("driver", 1), role("worker", 2))
    del space.jobs["llama-worker"]
    message = 'Job.batch "llama-worker" is invalid: spec.template.spec.containers[0].image: Required value'
    patch = KIND.rejected(space.job, message)
    assert patch is not None
    space.carry_out(patch)
    space.settle(infos)
    assert space.jobs == {}
    assert KIND.finished(space.job) == JobOutcome(
        False, "spec.roles[1].template.spec.containers[0].image: Required value"
    )
    assert space.condition("Failed")["reason"] == "InvalidTemplate"  # type: ignore[index]


def test_an_answer_that_may_pass_fails_nothing():
    assert KIND.rejected(gpu_job(), 'jobs.batch "llama-worker" is forbidden: exceeded quota: team') is None


@pytest.mark.parametrize(
    ("child", "active"),
    [
        ({"status": {}}, True),
        ({"status": {"conditions": [{"type": "Complete", "status": "True"}]}}, False),
        ({"status": {"conditions": [{"type": "Failed", "status": "True"}], "terminating": 1}}, True),
        ({"status": {"conditions": [{"type": "Failed", "status": "True"}], "active": 1}}, True),
    ],
)
def test_is_active(child: dict[str, Any], active: bool):
    assert KIND.is_active(gpu_job(), Children(jobs=[JobObject({"metadata": {}, **child})])) is active
    assert not KIND.is_active(gpu_job(), Children())


# --- idempotence ------------------------------------------------------------------------------------------------------

events = st.lists(
    st.sampled_from(["ready", "fail", "complete", "lose", "hold", "admit", "resize"]), min_size=1, max_size=12
)


@given(events, st.sampled_from(["RestartGang", "RestartPod", "Fail"]))
def test_sync_converges_whatever_happens(history: list[str], policy: str):
    """After every event a few rounds of sync settle everything, and a gang never runs in part or twice."""
    job = gpu_job(role("driver", 1), role("worker", 3, minReplicas=1), restart={"onPodFailure": policy})
    space = FakeNamespace(job)
    sizes, size = [3, 1, 2], 0
    infos: list[PodSetInfo] | None = None
    for event in history:
        names_now = sorted(name for name, child in space.jobs.items() if not child.get("status", {}).get("conditions"))
        match event:
            case "hold":
                infos, space.job["spec"]["suspend"] = None, True
            case "admit" | "resize":
                size += event == "resize"
                infos, space.job["spec"]["suspend"] = admitted(job, worker=sizes[size % 3]), False
            case "lose" if names_now:
                del space.jobs[names_now[0]]
            case "ready" if names_now:
                space.report(names_now[-1], ready=1, active=1)
            case "fail" if names_now:
                space.finish(names_now[-1], "Failed", "BackoffLimitExceeded")
            case "complete" if names_now:
                space.finish(names_now[0], "Complete")
            case _:
                pass
        space.settle(infos)
        assert space.sync(infos) == []
        if KIND.finished(space.job):
            assert not KIND.is_active(space.job, space.children)
        elif infos is None:
            assert space.jobs == {}
        else:
            assert set(space.jobs) == {"llama-driver", "llama-worker"}
            assert len({space.admission(name) for name in space.jobs}) == 1


# --- limits and stalls ------------------------------------------------------------------------------------------------


def test_its_limit_counts_over_all_attempts_as_kueues_does():
    job = gpu_job(runtime={"limit": "90m"})
    built = WorkloadObject(workload.build(KIND, job, KIND.pod_sets(job), queue="q", priority=0))
    assert built["spec"]["maximumExecutionTimeSeconds"] == 5400
    assert workload.equivalent(built, KIND.pod_sets(job), job)
    job["metadata"]["labels"] = {names.MAX_EXEC_TIME: "60"}
    assert workload.max_execution_seconds(job) == 60, "the shorter one holds"


def test_it_fails_when_its_limit_is_reached():
    space, _ = _started(runtime={"limit": "90m"})
    space.job["spec"]["suspend"] = False
    patch = KIND.expire(space.job, "2026-01-01T00:00:00Z")
    assert patch is not None
    space.carry_out(patch)
    assert KIND.expire(space.job, "2026-01-01T00:00:09Z") is None, "decided once"
    space.settle(None)
    assert KIND.finished(space.job) == JobOutcome(
        False, "The job has run for 5400 s in total, which is spec.runtime.limit"
    )
    assert space.condition("Failed")["reason"] == "DeadlineExceeded"  # type: ignore[index]


def test_the_limit_of_a_label_only_holds_it_as_kueue_does():
    space, _ = _started(runtime={"limit": "90m"})
    space.job["metadata"]["labels"] = {names.MAX_EXEC_TIME: "60"}
    assert KIND.expire(space.job, "2026-01-01T00:00:00Z") is None


def test_a_stalled_gang_starts_anew_where_it_is_until_the_limit():
    space, infos = _started(restart={"maxRestarts": 1})
    space.job["spec"]["suspend"] = False
    patch = KIND.restart(space.job, "Stalled", "no progress for 16m", "2026-01-01T00:00:00Z")
    assert patch is not None
    before = space.admission("llama-worker")
    space.carry_out(patch)
    space.settle(infos)
    assert space.admission("llama-worker") != before
    assert space.job["status"]["restarts"] == 1
    assert KIND.restart(space.job, "Stalled", "again", "2026-01-01T00:00:00Z") is None


# --- checkpoints ---------------------------------------------------------------------------------------------------------


def test_its_workload_says_how_often_it_saves_its_work():
    said = "gangline.io/checkpoint-interval"
    assert KIND.workload_annotations(gpu_job(runtime={"checkpointInterval": "30m"}))[said] == "30m"
    by_annotation = gpu_job()
    by_annotation["metadata"].setdefault("annotations", {})[said] = "1h"
    assert KIND.workload_annotations(by_annotation)[said] == "1h"
    assert said not in KIND.workload_annotations(gpu_job())


# --- lost nodes -------------------------------------------------------------------------------------------------------


def test_a_gang_that_restarts_as_a_whole_says_so_and_one_that_replaces_pods_does_not():
    assert KIND.workload_annotations(gpu_job()) == {"gangline.io/node-loss": "Restart"}
    assert KIND.workload_annotations(gpu_job(restart={"onPodFailure": "RestartPod"})) == {}
    assert KIND.workload_annotations(gpu_job(restart={"onNodeFailure": "Restart"})) == {
        "gangline.io/node-loss": "Requeue"
    }
    assert KIND.workload_annotations(gpu_job(restart={"onNodeFailure": "Fail"})) == {"gangline.io/node-loss": "Fail"}
    assert KIND.attempt(gpu_job()) is None


def test_a_new_attempt_makes_the_children_stale_and_no_attempt_keeps_those_of_older_versions():
    plain = [PodSetInfo("worker", 2, node_selector={"pool": "a"})]
    again = [PodSetInfo("worker", 2, node_selector={"pool": "a"}, annotations={"gangline.io/attempt": "1"})]
    assert owned.stamp(plain, 3, owned.attempt(plain)) == owned.stamp(plain, 3)
    assert owned.stamp(again, 3, owned.attempt(again)) != owned.stamp(plain, 3)
    patient = [PodSetInfo("worker", 2, node_selector={"pool": "a"}, patience=[{"key": "x"}], avoid=["n"])]
    assert owned.stamp(patient, 3) == owned.stamp(plain, 3), "an edited policy restarts no gang"


def test_interruptions_are_told_with_their_reasons_the_latest_only():
    job = gpu_job()
    for number in range(10):
        patch = status.interrupted(job, number, "Restart", f"lost node n{number}", CREATED)
        job = merge_patch(job, patch.body)
    assert job["status"]["swaps"] == 9
    rows = job["status"]["interruptions"]
    assert [row["message"] for row in rows] == [f"lost node n{number}" for number in range(2, 10)]
    assert {row["reason"] for row in rows} == {"NodeRestart"}
