"""JobSet: its pod sets, what admission injects, how it is put back, and what its status says."""

from __future__ import annotations

import copy
from dataclasses import replace
from typing import Any

import pytest
from tests.jobs.support import Json
from tests.merging import merge_patch
from tests.objects import JobObject, WorkloadObject, altered

from gangline.api.read.workloads import swap_record
from gangline.jobs import kind_of, workload
from gangline.jobs.base import Children, JobError, Patch, PodSetInfo
from gangline.jobs.jobset import JobSet

ATTEMPT = "gangline.io/attempt"
KIND = JobSet()
PRIORITY = "kueue.x-k8s.io/priority-class"


def pods(labels: Json | None = None, annotations: Json | None = None, **spec: Any) -> Json:
    container = {"name": "main", "image": "train:1", "resources": {"limits": {"google.com/tpu": 4}}}
    template: Json = {"spec": {"nodeSelector": {"tpu": "4x4"}, "containers": [container], **spec}}
    metadata = {key: value for key, value in (("labels", labels), ("annotations", annotations)) if value}
    return {"metadata": metadata, **template} if metadata else template


def group(name: str = "slice", template: Json | None = None, replicas: int | None = 2, **spec: Any) -> Json:
    row: Json = {
        "name": name,
        "template": {"spec": {"completions": 4, "parallelism": 4, **spec, "template": template or pods()}},
    }
    return row if replicas is None else {**row, "replicas": replicas}


def job_set(*groups: Json, suspend: bool = True, status: Json | None = None, **metadata: Any) -> JobObject:
    rows = list(groups or [group()])
    return JobObject(
        {
            "apiVersion": "jobset.x-k8s.io/v1alpha2",
            "kind": "JobSet",
            "metadata": {"name": "jax", "namespace": "team", "uid": "uid", **metadata},
            "spec": {"suspend": suspend, "failurePolicy": {"maxRestarts": 3}, "replicatedJobs": rows},
            "status": status or {},
        }
    )


def child(*, suspend: bool = False, status: Json | None = None, leaving: bool = False, **spec: Any) -> JobObject:
    metadata: Json = {"name": "jax-slice-0", "namespace": "team", "uid": "c"}
    if leaving:
        metadata["deletionTimestamp"] = "2026-01-01T00:00:00Z"
    return JobObject({"metadata": metadata, "spec": {"suspend": suspend, **spec}, "status": status or {}})


def patched(job: JobObject, patch: Patch | None) -> JobObject:
    assert patch is not None
    assert patch.subresource == ""
    return merge_patch(job, patch.body)


def info(name: str, count: int = 8, **more: Any) -> PodSetInfo:
    return PodSetInfo(
        name,
        count,
        node_selector={"pool": "v6e"},
        tolerations=[{"key": "google.com/tpu", "operator": "Exists"}],
        labels={"kueue.x-k8s.io/podset": name},
        annotations={"kueue.x-k8s.io/workload": "jobset-jax-12345"},
        **more,
    )


# --- pod sets ---------------------------------------------------------------------------------------------------------


def test_it_is_a_kind_that_can_be_queued():
    kind = kind_of("jobset.x-k8s.io/v1alpha2", "JobSet")
    assert kind is not None
    assert (kind.declaration.framework, kind.declaration.optional) == ("jobset.x-k8s.io/jobset", True)


def test_a_pod_set_per_replicated_job_in_order():
    job = job_set(group("Driver", replicas=1, completions=1, parallelism=1), group("workers", replicas=3))
    assert [(row["name"], row["count"]) for row in KIND.pod_sets(job)] == [("driver", 1), ("workers", 12)]
    assert KIND.pod_sets(job)[1]["template"] == pods()


@pytest.mark.parametrize(
    ("replicas", "spec", "count"),
    [
        (2, {"parallelism": 4, "completions": 2}, 4),
        (2, {"parallelism": 2, "completions": 8}, 4),
        (2, {"parallelism": 3, "completions": None}, 6),
        (2, {"parallelism": None, "completions": 4}, 2),
        (None, {"parallelism": 4, "completions": 4}, 4),
        (0, {}, 0),
    ],
)
def test_pods_that_run_at_once(replicas: int | None, spec: Json, count: int):
    assert KIND.pod_sets(job_set(group(replicas=replicas, **spec)))[0]["count"] == count


@pytest.mark.parametrize("replicas", [2**31, 2**63 - 1, -1, -(2**63)])
def test_a_number_of_pods_that_no_workload_can_say_is_refused_by_name(replicas: int):
    with pytest.raises(JobError, match=r"spec\.replicatedJobs\[1\]\.replicas: .* must be 0 to 2147483647 pods"):
        KIND.pod_sets(job_set(group(), group("b", replicas=replicas, parallelism=4)))


def test_topology_is_asked_for_with_the_index_of_the_job():
    asked = pods(annotations={"kueue.x-k8s.io/podset-required-topology": "rack"})
    [row] = KIND.pod_sets(job_set(group(template=asked)))
    numbers = {
        "podIndexLabel": "batch.kubernetes.io/job-completion-index",
        "subGroupIndexLabel": "jobset.sigs.k8s.io/job-index",
        "subGroupCount": 2,
    }
    assert row["topologyRequest"] == {"required": "rack", **numbers}
    assert KIND.pod_sets(job_set())[0]["topologyRequest"] == numbers


def test_a_wrong_annotation_is_named_with_its_place():
    asked = pods(annotations={"kueue.x-k8s.io/podset-slice-size": "four"})
    with pytest.raises(JobError) as error:
        KIND.pod_sets(job_set(group(), group("b", template=asked)))
    assert error.value.field.startswith("spec.replicatedJobs[1].template.spec.template.metadata.annotations[")


def test_no_replicated_jobs_are_no_gang():
    job = job_set()
    job["spec"]["replicatedJobs"] = []
    with pytest.raises(JobError, match=r"spec\.replicatedJobs: needs at least one replicated job"):
        KIND.pod_sets(job)


# --- start and stop ---------------------------------------------------------------------------------------------------


def test_starting_injects_into_every_template_in_one_patch():
    job = job_set(group("a", pods(labels={"app": "x"})), group("B"))
    before = copy.deepcopy(job)
    started = patched(job, KIND.start(job, [info("b"), info("a", scheduling_gates=[{"name": "g"}])]))
    assert job == before, "the job itself is not touched"
    assert started["spec"]["suspend"] is False
    first, second = (row["template"]["spec"]["template"] for row in started["spec"]["replicatedJobs"])
    assert first["metadata"]["labels"] == {"app": "x", "kueue.x-k8s.io/podset": "a"}
    assert first["spec"]["schedulingGates"] == [{"name": "g"}]
    assert second["metadata"]["labels"] == {"kueue.x-k8s.io/podset": "b"}
    for template in (first, second):
        assert template["metadata"]["annotations"] == {"kueue.x-k8s.io/workload": "jobset-jax-12345"}
        assert template["spec"]["nodeSelector"] == {"tpu": "4x4", "pool": "v6e"}
        assert template["spec"]["tolerations"] == [{"key": "google.com/tpu", "operator": "Exists"}]
    assert {**started["spec"], "replicatedJobs": 0, "suspend": 0} == {**job["spec"], "replicatedJobs": 0, "suspend": 0}


def test_a_running_one_is_not_started_again():
    assert KIND.start(job_set(suspend=False), [info("slice")]) is None


def test_a_selector_in_conflict_with_the_flavor_is_named():
    job = job_set(group(), group("b", pods(nodeSelector={"pool": "v5p"})))
    with pytest.raises(JobError) as error:
        KIND.start(job, [info("slice"), info("b")])
    assert error.value.field == "spec.replicatedJobs[1].template.spec.template.spec.nodeSelector[pool]"


def left_over(*, selector: Json, started: bool = True, **status: Any) -> JobObject:
    """A child Job that JobSet has suspended, with what it was started with."""
    labels = {"kueue.x-k8s.io/podset": "slice"} if started else {}
    made = child(suspend=True, status=status, template=pods(labels=labels, nodeSelector={"tpu": "4x4", **selector}))
    made["spec"]["template"].setdefault("metadata", {})
    made["metadata"] |= {"labels": {"jobset.sigs.k8s.io/replicatedjob-name": "slice"}}
    return made


@pytest.mark.parametrize(
    ("job", "goes"),
    [
        (left_over(selector={"pool": "v5p"}), False),  # JobSet puts the new value there
        (left_over(selector={"spot": "true"}), True),
        (left_over(selector={"spot": "true"}, started=False), False),  # somebody else's word
        (left_over(selector={"spot": "true"}, conditions=[{"type": "Complete", "status": "True"}]), False),
        (left_over(selector={"alpha.jobset.sigs.k8s.io/namespaced-job": "x"}), False),
    ],
)
def test_jobs_that_carry_the_selector_of_another_flavor_are_made_anew(job: Json, goes: bool):
    """JobSet adds to a Job that it resumes and takes nothing away: with both selectors its pods would fit nowhere."""
    found = KIND.outdated_children(job_set(), [info("slice")], Children(jobs=[job]))
    assert [(step.name, step.uid) for step in found] == ([("jax-slice-0", "c")] if goes else [])


def test_a_gate_that_nobody_would_take_off_is_outdated_too():
    job = left_over(selector={})
    job["spec"]["template"]["spec"]["schedulingGates"] = [{"name": "kueue.x-k8s.io/topology"}]
    placed = info("slice", scheduling_gates=[{"name": "kueue.x-k8s.io/topology"}])
    for given, expected in ((info("slice"), 1), (placed, 0)):
        assert len(KIND.outdated_children(job_set(), [given], Children(jobs=[job]))) == expected


@pytest.mark.parametrize("template", [pods(), pods(labels={PRIORITY: "low"}, tolerations=[{"key": "mine"}])])
def test_stopping_suspends_and_restores_in_one_patch(template: Json):
    job = job_set(group("a", template), group("B", template))
    pod_sets = KIND.pod_sets(job)
    running = patched(job, KIND.start(job, [info("a"), info("b")]))
    assert not KIND.is_suspended(running)
    stopped = patched(running, KIND.stop(running, pod_sets))
    assert stopped == job
    assert KIND.is_suspended(stopped)
    assert KIND.stop(stopped, pod_sets) is None


def test_one_that_was_suspended_by_hand_is_still_restored():
    job = job_set()
    running = patched(job, KIND.start(job, [info("slice")]))
    running["spec"]["suspend"] = True
    assert patched(running, KIND.stop(running, KIND.pod_sets(job))) == job


def test_what_has_finished_is_not_stopped():
    status = {"conditions": [{"type": "Completed", "status": "True"}]}
    assert KIND.stop(job_set(suspend=False, status=status), []) is None


def test_its_workload_describes_it_before_during_and_after_a_run():
    job = job_set(group("a", pods(labels={PRIORITY: "low"})), group("b"))
    built = WorkloadObject(workload.build(KIND, job, KIND.pod_sets(job), queue="q", priority=0))
    assert built["metadata"]["name"].startswith("jobset-jax-")
    assert workload.equivalent(built, KIND.pod_sets(job), job)
    running = patched(job, KIND.start(job, [info("a"), info("b")]))
    assert workload.equivalent(built, KIND.pod_sets(running), running)
    running["spec"]["replicatedJobs"][0]["replicas"] = 3
    assert not workload.equivalent(built, KIND.pod_sets(running), running)


# --- status -----------------------------------------------------------------------------------------------------------


def says_suspended(status: str) -> Json:
    return {"conditions": [{"type": "Suspended", "status": status}]}


def progress(**counts: int) -> Json:
    return {"replicatedJobsStatus": [{"name": "slice", **counts}]}


@pytest.mark.parametrize(
    ("status", "children", "active"),
    [
        ({}, [], False),
        (progress(active=1), [], True),
        (progress(active=0, suspended=2), [], False),
        ({}, [child()], True),
        ({}, [child(suspend=True)], False),
        ({}, [child(suspend=True, status={"active": 1})], True),
        ({}, [child(suspend=True, status={"terminating": 1})], False),
        ({}, [child(suspend=True, status={"terminating": 1}, podReplacementPolicy="Failed")], True),
        ({}, [child(status={"conditions": [{"type": "Failed", "status": "True"}]})], False),
        ({}, [child(leaving=True)], False),
        ({}, [child(leaving=True, status={"active": 2})], True),
        (says_suspended("True"), [child(suspend=True, status=says_suspended("True"))], False),
        (says_suspended("False"), [child(suspend=True, status=says_suspended("True"))], True),
        (says_suspended("True"), [child(suspend=True, status=says_suspended("False"))], True),
        (says_suspended("True"), [child(suspend=True, leaving=True, status=says_suspended("False"))], False),
        ({"conditions": [*says_suspended("False")["conditions"], {"type": "Failed", "status": "True"}]}, [], False),
    ],
)
def test_whether_pods_may_run(status: Json, children: list[Json], active: bool):
    assert KIND.is_active(job_set(status=status), Children(children)) is active


def test_a_start_that_jobset_has_not_seen_is_confirmed_before_it_is_stopped():
    """It may be about to resume a Job of it, and would not have to say anything new once it sees that the JobSet is suspended."""
    running = job_set(suspend=False, status=says_suspended("True"))
    patch = KIND.stop(running, KIND.pod_sets(running))
    assert patch is not None
    assert patch.subresource == "status"
    confirmed = merge_patch(running, patch.body)
    stopped = patched(confirmed, KIND.stop(confirmed, KIND.pod_sets(running)))
    assert KIND.is_suspended(stopped)
    assert KIND.is_active(stopped, Children([child(suspend=True)])), "it may yet resume it"
    assert not KIND.is_active(altered(stopped, status=says_suspended("True")), Children([child(suspend=True)]))


def test_one_that_was_started_is_seen_as_suspended_once_jobset_says_anything():
    """It was started, and suspended again, before JobSet first wrote its status."""
    held = job_set(generation=3)
    assert not KIND.has_seen_suspension(held)
    assert KIND.has_seen_suspension(altered(held, status=says_suspended("True")))
    assert KIND.has_seen_suspension(altered(held, status={"conditions": [{"type": "Completed", "status": "True"}]}))
    assert KIND.has_seen_suspension(job_set(generation=1)), "it was never started"
    assert KIND.has_seen_suspension(job_set(generation=3, deletionTimestamp="2026-01-01T00:00:00Z"))
    managed_by_other = job_set(generation=3)
    managed_by_other["spec"]["managedBy"] = "example.com/other"
    assert KIND.has_seen_suspension(managed_by_other)


def test_the_status_of_one_that_is_being_deleted_is_not_believed():
    job = job_set(status=progress(active=1), deletionTimestamp="2026-01-01T00:00:00Z")
    assert not KIND.is_active(job, Children())
    assert KIND.is_active(job, Children([child()]))


@pytest.mark.parametrize(("kind", "success"), [("Completed", True), ("Failed", False)])
def test_how_it_ended(kind: str, success: bool):
    job = job_set(status={"conditions": [{"type": kind, "status": "True", "message": "why"}]})
    outcome = KIND.finished(job)
    assert outcome is not None
    assert (outcome.success, outcome.message) == (success, "why")
    assert KIND.finished(job_set(status={"conditions": [{"type": kind, "status": "False"}]})) is None


def test_ready_when_every_job_is_ready_or_done():
    job = job_set(group("a"), group("b", replicas=1), suspend=False)
    assert not KIND.pods_ready(job)
    rows = [{"name": "a", "ready": 1, "succeeded": 1}, {"name": "b", "ready": 0, "succeeded": 0}]
    job["status"] = {"replicatedJobsStatus": rows}
    assert not KIND.pods_ready(job)
    rows[1]["ready"] = 1
    assert KIND.pods_ready(job)


def test_the_pods_of_jobs_that_succeeded_are_reclaimable():
    job = job_set(group("A"), group("b"), suspend=False)
    del job["spec"]["failurePolicy"]
    assert KIND.reclaimable(job) == {}
    job["status"] = {"replicatedJobsStatus": [{"name": "A", "succeeded": 1}, {"name": "b", "succeeded": 0}]}
    assert KIND.reclaimable(job) == {"a": 4}


def test_nothing_is_reclaimable_while_a_failure_would_run_the_jobs_that_succeeded_again():
    job = job_set(group("A"), group("b"), suspend=False)
    job["status"] = {"replicatedJobsStatus": [{"name": "A", "succeeded": 1}, {"name": "b", "succeeded": 0}]}
    job["spec"]["failurePolicy"] = {"maxRestarts": 2}
    assert KIND.reclaimable(job) == {}
    job["status"] |= {"restarts": 2, "restartsCountTowardsMax": 2}
    assert KIND.reclaimable(job) == {}, "the last restart has begun, and these are the counts of before"
    job["spec"]["failurePolicy"] = {"rules": [{"name": "host", "action": "RestartJobSetAndIgnoreMaxRestarts"}]}
    assert KIND.reclaimable(job) == {}
    job["spec"]["failurePolicy"] = {"rules": [{"name": "one", "action": "RestartJobAndIgnoreMaxRestarts"}]}
    assert KIND.reclaimable(job) == {"a": 4}, "others are left alone"


# --- priority ---------------------------------------------------------------------------------------------------------


def known(*names: str) -> Any:
    return lambda ref: f"{ref['kind']}/{ref['name']}" in names


def source(job: Json, *names: str) -> str:
    ref = workload.priority_source(job, KIND.pod_sets(job), known(*names))
    return f"{ref['kind']}/{ref['name']}" if ref else ""


def test_priority_by_label_on_the_job_set_or_on_its_pods():
    both = ("WorkloadPriorityClass/low", "PriorityClass/low")
    labelled = job_set(labels={PRIORITY: "low"})
    assert source(labelled, *both) == "WorkloadPriorityClass/low"
    assert source(labelled, "PriorityClass/low") == "PriorityClass/low"
    assert source(labelled) == "WorkloadPriorityClass/low", "to be complained about"

    on_pods = job_set(group(template=pods(labels={PRIORITY: "low"}, priorityClassName="mine")))
    assert source(on_pods, *both) == "WorkloadPriorityClass/low"
    assert source(on_pods, "PriorityClass/low") == "PriorityClass/low"
    assert source(on_pods) == "PriorityClass/mine"
    on_pods["metadata"]["labels"] = {PRIORITY: "high"}
    assert source(on_pods, *both) == "WorkloadPriorityClass/high"


# --- lost nodes -------------------------------------------------------------------------------------------------------

EXCLUSIVE = "alpha.jobset.sigs.k8s.io/exclusive-topology"


def test_a_lost_pod_means_that_all_of_it_starts_anew():
    assert KIND.workload_annotations(job_set()) == {"gangline.io/node-loss": "Restart"}


def test_whole_domains_are_those_of_the_jobset_or_of_the_replicated_job():
    slices, driver = group("Slice", replicas=3), group("driver", replicas=None)
    driver["template"]["metadata"] = {"annotations": {EXCLUSIVE: "rack"}}
    found = swap_record.whole_domains(
        KIND.workload_annotations(job_set(slices, driver, annotations={EXCLUSIVE: "pool"}))
    )
    assert found == {"slice": ("pool", 3), "driver": ("rack", 1)}


def test_the_attempt_is_that_of_every_replicated_job():
    job = job_set(group("a"), group("b"))
    assert KIND.attempt(job) == 0
    infos = [info("a"), info("b")]
    started = patched(job, KIND.start(job, [replace(i, annotations={**i.annotations, ATTEMPT: "2"}) for i in infos]))
    assert KIND.attempt(started) == 2
    assert KIND.attempt(patched(started, KIND.stop(started, KIND.pod_sets(job)))) == 0


def test_a_jobset_runs_in_another_cluster():
    rows = [{"name": "workers", "replicas": 2, "template": {"spec": {"parallelism": 1, "template": {"spec": {}}}}}]
    spec = {"suspend": False, "managedBy": "kueue.x-k8s.io/multikueue", "replicatedJobs": rows}
    here = JobObject({"metadata": {"name": "js"}, "spec": spec, "status": {}})
    assert KIND.sent(here, []) == {"suspend": True, "replicatedJobs": rows}
    status = {"replicatedJobsStatus": [{"name": "workers", "active": 2, "ready": 1, "succeeded": 0}]}
    assert KIND.mirrored(here, JobObject({"spec": {}, "status": status})) == status
    here["status"] = status
    assert KIND.mirrored(here, JobObject({"spec": {}, "status": status})) is None
    idle = KIND.mirrored(here, None)
    assert idle is not None and idle["replicatedJobsStatus"][0] == {
        **status["replicatedJobsStatus"][0],
        "active": 0,
        "ready": 0,
    }
    assert KIND.mirrored(altered(here, status=idle), None) is None
