"""batch/v1 Job: pod sets, start, the stop in three steps, and what its status means."""

from __future__ import annotations

import copy
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.jobs.support import batch_job, template
from tests.merging import merge_patch
from tests.objects import altered

from gangline.api import names
from gangline.jobs import podspec
from gangline.jobs.base import Children, JobError, JobOutcome, PodSetInfo
from gangline.jobs.job import BatchJob, indexes

KIND = BatchJob()
STOPPING = {names.STOPPING: "true"}
SAYS_SUSPENDED, SAYS_RESUMED = (
    {"conditions": [{"type": "Other", "status": "True"}, {"type": "Suspended", "status": status}]}
    for status in ("True", "False")
)


@pytest.mark.parametrize(
    ("suspend", "annotations", "expected"),
    [(True, {}, True), (False, {}, False), (True, STOPPING, False), (False, STOPPING, False)],
)
def test_is_suspended(suspend: bool, annotations: dict[str, str], expected: bool):
    assert KIND.is_suspended(batch_job(suspend=suspend, annotations=annotations)) is expected


@pytest.mark.parametrize(
    ("parallelism", "completions", "count"),
    [(4, 4, 4), (4, 2, 2), (2, 10, 2), (3, None, 3), (None, None, 1), (None, 5, 1)],
)
def test_the_pod_set_has_as_many_pods_as_run_at_once(parallelism: int | None, completions: int | None, count: int):
    (pod_set,) = KIND.pod_sets(batch_job(parallelism=parallelism, completions=completions))
    assert pod_set["name"] == "main"
    assert pod_set["count"] == count
    assert "minCount" not in pod_set
    assert pod_set["topologyRequest"] == {"podIndexLabel": "batch.kubernetes.io/job-completion-index"}


def test_the_template_of_the_pod_set_lacks_what_the_api_server_generated():
    (pod_set,) = KIND.pod_sets(batch_job())
    assert pod_set["template"]["metadata"]["labels"] == {"app": "llama", "batch.kubernetes.io/job-name": "train"}
    assert pod_set["template"]["spec"] == template()["spec"]


def test_topology_is_asked_for_by_completion_index():
    mine = template()
    mine["metadata"]["annotations"] = {names.PREFERRED_TOPOLOGY: "rack"}
    (pod_set,) = KIND.pod_sets(batch_job(template=mine))
    assert pod_set["topologyRequest"] == {
        "preferred": "rack",
        "podIndexLabel": "batch.kubernetes.io/job-completion-index",
    }


@pytest.mark.parametrize(
    ("spec", "annotations", "field"),
    [
        ({"parallelism": -1}, {}, "spec.parallelism"),
        ({"completions": -1}, {}, "spec.completions"),
        ({}, {names.MIN_PARALLELISM: "two"}, f"metadata.annotations[{names.MIN_PARALLELISM}]"),
        ({}, {names.MIN_PARALLELISM: "0"}, f"metadata.annotations[{names.MIN_PARALLELISM}]"),
        ({}, {names.MIN_PARALLELISM: "5"}, f"metadata.annotations[{names.MIN_PARALLELISM}]"),
    ],
)
def test_a_job_that_makes_no_sense_is_refused_by_field(spec: dict[str, Any], annotations: dict[str, str], field: str):
    with pytest.raises(JobError) as caught:
        KIND.pod_sets(batch_job(annotations=annotations, **spec))
    assert caught.value.field == field


def test_start_patches_only_what_admission_adds():
    info = PodSetInfo("main", 4, node_selector={"pool": "a100"}, labels={names.PODSET: "main"})
    patch = KIND.start(batch_job(), [info])
    assert patch is not None
    assert patch.subresource == ""
    assert patch.body == {
        "spec": {
            "suspend": False,
            "template": {
                "metadata": {"labels": {names.PODSET: "main"}},
                "spec": {"nodeSelector": {"pool": "a100"}},
            },
        }
    }


def test_start_of_a_running_job_is_nothing():
    assert KIND.start(batch_job(suspend=False), [PodSetInfo("main", 4)]) is None


def test_start_of_a_half_stopped_job_is_a_mistake_of_the_caller():
    with pytest.raises(ValueError, match="still being stopped"):
        KIND.start(batch_job(annotations=STOPPING), [PodSetInfo("main", 4)])


@pytest.mark.parametrize(("equal", "completions"), [("true", 3), ("1", 3), ("false", 4), (None, 4)])
def test_partial_admission_cuts_parallelism(equal: str | None, completions: int):
    annotations = {names.MIN_PARALLELISM: "2"} | ({names.COMPLETIONS_EQUAL_PARALLELISM: equal} if equal else {})
    job = batch_job(annotations=annotations)
    patch = KIND.start(job, [PodSetInfo("main", 3)])
    assert patch is not None
    started = merge_patch(job, patch.body)
    assert started["spec"]["parallelism"] == 3
    assert started["spec"]["completions"] == completions


def test_parallelism_is_left_alone_without_partial_admission():
    patch = KIND.start(batch_job(parallelism=9, completions=4), [PodSetInfo("main", 4)])
    assert patch is not None
    assert patch.body == {"spec": {"suspend": False}}


def _apply(job: dict[str, Any], patch: Any) -> dict[str, Any]:
    """What the API server makes of a patch, and what it would refuse."""
    changed = merge_patch(job, patch.body)
    if patch.subresource == "status":
        assert changed["spec"]["suspend"], "status.startTime can't be removed from a running Job"
        return altered(job, status=changed["status"])
    if changed["spec"]["template"] != job["spec"]["template"]:
        assert job["spec"]["suspend"], "the template of a running Job is immutable"
        assert not job["status"].get("startTime"), "the template of a Job with a start time is immutable"
        assert not job["status"].get("active"), "the template of a Job with active pods is immutable"
    return altered(changed, status=job["status"])


def _pods_gone(job: dict[str, Any]) -> dict[str, Any]:
    return altered(job, status={**job["status"], "active": 0})


def _stopped(job: dict[str, Any], pod_sets: list[dict[str, Any]]) -> tuple[dict[str, Any], int]:
    steps = 0
    for _ in range(8):
        patch = KIND.stop(job, pod_sets)
        if patch is not None:
            assert not KIND.is_suspended(job) or steps == 0
            job = _apply(job, patch)
            steps += 1
        elif KIND.is_suspended(job):
            return job, steps
        else:
            assert job["status"]["active"], "there is nothing to wait for"
            job = _pods_gone(job)
    raise AssertionError("the stop does not end")


def _run(job: dict[str, Any], info: PodSetInfo) -> dict[str, Any]:
    patch = KIND.start(job, [info])
    assert patch is not None
    return altered(_apply(job, patch), status={"startTime": "2026-01-01T00:00:00Z", "active": info.count})


def test_stop_takes_three_steps():
    job = batch_job()
    running = _run(job, PodSetInfo("main", 4, node_selector={"pool": "a100"}))
    pod_sets = KIND.pod_sets(job)

    first = KIND.stop(running, pod_sets)
    assert first is not None
    assert first.body == {"metadata": {"annotations": STOPPING}, "spec": {"suspend": True}}
    running = _apply(running, first)
    assert not KIND.is_suspended(running)
    assert KIND.stop(running, pod_sets) is None, "its pods still run"
    running = _pods_gone(running)

    second = KIND.stop(running, pod_sets)
    assert second is not None
    assert (second.body, second.subresource) == ({"status": {"startTime": None}}, "status")
    running = _apply(running, second)
    assert not KIND.is_suspended(running)

    third = KIND.stop(running, pod_sets)
    assert third is not None
    assert third.body == {
        "metadata": {"annotations": {names.STOPPING: None}},
        "spec": {"template": {"spec": {"nodeSelector": None}}},
    }
    running = _apply(running, third)
    assert KIND.is_suspended(running)
    assert KIND.stop(running, pod_sets) is None


def test_a_job_suspended_by_hand_is_put_back_too():
    job = batch_job()
    running = _run(job, PodSetInfo("main", 4, node_selector={"pool": "a100"}))
    by_hand = merge_patch(running, {"spec": {"suspend": True}})
    stopped, steps = _stopped(by_hand, KIND.pod_sets(job))
    assert steps == 3
    assert stopped["spec"] == job["spec"]


def test_a_start_time_that_the_job_controller_removed_is_not_removed_again():
    job = batch_job()
    running = _run(job, PodSetInfo("main", 4, node_selector={"pool": "a100"}))
    first = KIND.stop(running, KIND.pod_sets(job))
    assert first is not None
    suspended = altered(_apply(running, first), status={"active": 0})
    stopped, steps = _stopped(suspended, KIND.pod_sets(job))
    assert steps == 1
    assert stopped["spec"] == job["spec"]


def test_a_job_without_a_known_past_is_just_suspended():
    running = batch_job(suspend=False, status={"startTime": "2026-01-01T00:00:00Z", "active": 1})
    stopped, _ = _stopped(running, [])
    assert KIND.is_suspended(stopped)
    assert stopped["spec"]["template"] == running["spec"]["template"]


def test_a_finished_job_is_not_stopped():
    done = batch_job(suspend=False, status={"conditions": [{"type": "Complete", "status": "True"}]})
    assert KIND.stop(done, KIND.pod_sets(done)) is None


words = st.sampled_from(["a", "b", "c", "d"])
maps = st.dictionaries(words, st.just("v"), max_size=3)
tolerations = st.lists(words.map(lambda key: {"key": key, "operator": "Exists"}), max_size=3, unique_by=str)
infos = st.builds(
    PodSetInfo,
    name=st.just("main"),
    count=st.integers(1, 6),
    node_selector=maps,
    tolerations=tolerations,
    labels=maps,
    annotations=maps,
    scheduling_gates=st.lists(words.map(lambda name: {"name": name}), max_size=2, unique_by=str),
)


@st.composite
def jobs(draw: st.DrawFn) -> dict[str, Any]:
    mine = template()
    for part, name, values in (
        ("metadata", "labels", maps),
        ("metadata", "annotations", maps),
        ("spec", "nodeSelector", maps),
        ("spec", "tolerations", tolerations),
    ):
        if value := draw(values):
            mine[part][name] = {**mine[part].get(name, {}), **value} if isinstance(value, dict) else value
    pods = draw(st.integers(1, 6))
    annotations = {names.MIN_PARALLELISM: "1"} if draw(st.booleans()) else {}
    if annotations and draw(st.booleans()):
        annotations[names.COMPLETIONS_EQUAL_PARALLELISM] = "true"
    return batch_job(annotations=annotations, parallelism=pods, completions=pods, template=mine)


@given(jobs(), infos)
def test_a_stop_undoes_a_start_exactly(job: dict[str, Any], info: PodSetInfo):
    pod_sets = copy.deepcopy(KIND.pod_sets(job))
    info = replace(info, count=min(info.count, pod_sets[0]["count"]))
    stopped, _ = _stopped(_run(job, info), pod_sets)
    assert stopped["spec"] == job["spec"]
    assert KIND.is_suspended(stopped)
    assert podspec.same(KIND.pod_sets(stopped)[0]["template"], pod_sets[0]["template"])


# --- status -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("spec", "status", "active"),
    [
        ({}, {}, False),
        ({}, {"active": 0}, False),
        ({}, {"active": 2}, True),
        ({}, {"terminating": 2}, False),
        ({"podReplacementPolicy": "Failed"}, {"terminating": 2}, True),
        ({"podReplacementPolicy": "Failed"}, {"terminating": 0}, False),
        ({}, SAYS_RESUMED, True),  # its controller has not seen yet that it is suspended
        ({}, SAYS_SUSPENDED, False),
        ({"suspend": False}, SAYS_RESUMED, False),
        ({"managedBy": "example.com/other"}, SAYS_RESUMED, False),
        ({"managedBy": "kubernetes.io/job-controller"}, SAYS_RESUMED, True),
    ],
)
def test_is_active(spec: dict[str, Any], status: dict[str, Any], active: bool):
    assert KIND.is_active(batch_job(status=status, **spec), Children()) is active


def test_a_controller_is_not_waited_for_that_says_nothing_more():
    job = batch_job(status=SAYS_RESUMED)
    job["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:00Z"
    assert not KIND.is_active(job, Children())


def test_a_start_that_its_controller_has_not_seen_is_confirmed_before_the_job_is_stopped():
    """A controller that is just creating its pods would not have to say anything new once it sees that the Job is suspended."""
    running = batch_job(suspend=False, status=SAYS_SUSPENDED)
    patch = KIND.stop(running, KIND.pod_sets(running))
    assert patch is not None
    assert (patch.subresource, list(patch.body)) == ("status", ["status"])
    confirmed = merge_patch(running, patch.body)
    assert [row["type"] for row in confirmed["status"]["conditions"]] == ["Other", "Suspended"]
    suspends = KIND.stop(confirmed, KIND.pod_sets(running))
    assert suspends is not None
    suspended = merge_patch(confirmed, suspends.body)
    assert suspended["spec"]["suspend"]
    assert KIND.stop(suspended, KIND.pod_sets(running)) is None
    assert KIND.is_active(suspended, Children()), "it may yet create pods"
    stopped, _ = _stopped(altered(suspended, status=SAYS_SUSPENDED), KIND.pod_sets(running))
    assert KIND.is_suspended(stopped)
    assert not KIND.is_active(stopped, Children())


@pytest.mark.parametrize(
    ("generation", "spec", "status", "seen"),
    [
        (3, {}, {}, False),
        (3, {}, {"startTime": "2026-01-01T00:00:00Z"}, False),
        (3, {}, SAYS_SUSPENDED, True),
        (3, {}, SAYS_RESUMED, True),  # that it has not is the part of `is_active`
        (1, {}, {}, True),
        (None, {}, {}, True),
        (3, {"suspend": False}, {}, True),
        (3, {"managedBy": "example.com/other"}, {}, True),
        (3, {}, {"conditions": [{"type": "FailureTarget", "status": "True"}]}, True),
        (3, {}, {"conditions": [{"type": "Complete", "status": "True"}]}, True),
    ],
)
def test_one_that_was_started_is_seen_as_suspended_once_its_controller_says_anything(
    generation: int | None, spec: dict[str, Any], status: dict[str, Any], seen: bool
):
    job = batch_job(status=status, **spec)
    if generation is not None:
        job["metadata"]["generation"] = generation
    assert KIND.has_seen_suspension(job) is seen


@pytest.mark.parametrize("end", ["SuccessCriteriaMet", "FailureTarget"])
def test_one_that_is_about_to_end_keeps_its_start_time_and_is_not_waited_for_without(end: str):
    """Its controller no longer says that it is suspended, and the API server lets none end that has not started."""
    rows = [{"type": end, "status": "True"}, *SAYS_RESUMED["conditions"]]
    job = batch_job(annotations=STOPPING, status={"startTime": "2026-01-01T00:00:00Z", "conditions": rows})
    assert KIND.stop(job, KIND.pod_sets(job)) is None
    assert not KIND.is_suspended(job)
    del job["status"]["startTime"]
    stopped, _ = _stopped(job, KIND.pod_sets(job))
    assert KIND.is_suspended(stopped)
    assert not KIND.is_active(stopped, Children())


@pytest.mark.parametrize("said", [{}, {"managedBy": "example.com/other"}])
def test_nothing_is_confirmed_for_a_controller_that_says_nothing(said: dict[str, Any]):
    running = batch_job(suspend=False, status=SAYS_SUSPENDED if said else {}, **said)
    patch = KIND.stop(running, KIND.pod_sets(running))
    assert patch is not None
    assert patch.body["spec"] == {"suspend": True}


@pytest.mark.parametrize(
    ("condition", "expected"),
    [
        (
            {"type": "Complete", "status": "True", "message": "Reached expected number"},
            JobOutcome(True, "Reached expected number"),
        ),
        ({"type": "Failed", "status": "True", "message": "Backoff"}, JobOutcome(False, "Backoff")),
        ({"type": "Failed", "status": "True"}, JobOutcome(False, "")),
        ({"type": "Failed", "status": "False"}, None),
        ({"type": "FailureTarget", "status": "True"}, None),
        ({"type": "SuccessCriteriaMet", "status": "True"}, None),
    ],
)
def test_finished(condition: dict[str, str], expected: JobOutcome | None):
    assert KIND.finished(batch_job(status={"conditions": [condition]})) == expected


@pytest.mark.parametrize(
    ("status", "ready"),
    [
        ({}, False),
        ({"ready": 3}, False),
        ({"ready": 4}, True),
        ({"ready": 2, "succeeded": 2}, True),
        ({"ready": 2, "succeeded": 1, "uncountedTerminatedPods": {"succeeded": ["u1"]}}, True),
        ({"ready": 2, "succeeded": 1, "uncountedTerminatedPods": {"failed": ["u1"]}}, False),
    ],
)
def test_pods_ready(status: dict[str, Any], ready: bool):
    assert KIND.pods_ready(batch_job(status=status)) is ready


INDEXED = {"completionMode": "Indexed"}


@pytest.mark.parametrize(
    ("spec", "status", "expected"),
    [
        ({}, {}, {}),
        ({}, {"succeeded": 1}, {"main": 1}),
        ({}, {"succeeded": 4}, {"main": 4}),
        ({"completions": 10}, {"succeeded": 6}, {}),
        ({"completions": 10}, {"succeeded": 7}, {"main": 1}),
        ({"parallelism": 1, "completions": 1}, {"succeeded": 1}, {}),
        ({"parallelism": 9, "completions": 3}, {"succeeded": 1}, {"main": 1}),
        ({"parallelism": 2, "completions": None}, {"succeeded": 3}, {"main": 2}),
        (INDEXED, {"succeeded": 1, "completedIndexes": "0"}, {"main": 1}),
        (INDEXED, {"completedIndexes": "0-1", "failedIndexes": "3"}, {"main": 3}),
        (INDEXED, {"completedIndexes": "0-1", "failedIndexes": "1"}, {"main": 2}),
        ({**INDEXED, "parallelism": 3, "completions": 3}, {"completedIndexes": "2", "failedIndexes": "4"}, {"main": 1}),
    ],
)
def test_reclaimable(spec: dict[str, Any], status: dict[str, Any], expected: dict[str, int]):
    assert KIND.reclaimable(batch_job(suspend=False, status=status, **spec)) == expected


@pytest.mark.parametrize(
    ("text", "expected"), [("", set()), ("3", {3}), ("0-3,5", {0, 1, 2, 3, 5}), ("1,3-4", {1, 3, 4})]
)
def test_indexes(text: str, expected: set[int]):
    assert indexes(text) == expected


def test_a_job_owns_nothing():
    assert not KIND.owns_children
    assert KIND.sync(batch_job(), [PodSetInfo("main", 4)], Children()) == []


def test_what_another_cluster_gets_is_the_job_as_its_user_wrote_it():
    original = batch_job()
    started = batch_job(suspend=False, managedBy="kueue.x-k8s.io/multikueue", selector={"matchLabels": {"a": "b"}})
    started["spec"]["template"]["spec"]["nodeSelector"] = {"gpu": "a100"}
    spec = KIND.sent(started, KIND.pod_sets(original))
    assert spec["suspend"] and not {"managedBy", "selector"} & spec.keys()
    assert spec["template"]["metadata"]["labels"] == {"app": "llama"}
    assert "nodeSelector" not in spec["template"]["spec"]


def test_counts_of_ended_pods_never_decrease():
    """The API server refuses that; a job that moved to another cluster begins anew there."""
    here = batch_job(suspend=False, status={"failed": 2, "active": 1})
    there = batch_job(suspend=False, status={"active": 4, "startTime": "t"})
    assert KIND.mirrored(here, there) == {"active": 4, "startTime": "t", "failed": 2}
    assert KIND.mirrored(batch_job(suspend=False, status=there["status"]), there) is None
