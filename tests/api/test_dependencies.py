"""The annotation by which a job waits for others: what it may say, and what a Workload still waits for."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from gangline.api import admission, dependencies, names
from gangline.api.admission import AdmissionFacts
from gangline.api.dependencies import Dependency, DependencyError, DependencyState
from gangline.api.read import parse

Json = dict[str, Any]


def a_job(**annotations: str) -> Json:
    meta = {"name": "j", "namespace": "ns", "labels": {names.QUEUE_NAME: "lq"}, "annotations": annotations}
    pods = {"spec": {"restartPolicy": "Never", "containers": [{"name": "c", "image": "i"}]}}
    return {"apiVersion": "batch/v1", "kind": "Job", "metadata": meta, "spec": {"suspend": True, "template": pods}}


def test_each_entry_is_a_job_and_a_state() -> None:
    assert dependencies.parse("job/prepare=Succeeded, GPUJob/server.a = Running") == (
        Dependency("job", "prepare", DependencyState.SUCCEEDED),
        Dependency("gpujob", "server.a", DependencyState.RUNNING),
    )


NAMES = st.from_regex(r"[a-z0-9]([a-z0-9.-]{0,20}[a-z0-9])?", fullmatch=True)
ENTRIES = st.builds(Dependency, st.sampled_from(["job", "gpujob", "podgroup"]), NAMES, st.sampled_from(DependencyState))


@given(st.lists(ENTRIES, min_size=1, max_size=dependencies.MOST, unique=True))
def test_what_is_written_is_read_as_it_was(entries: list[Dependency]) -> None:
    assert dependencies.parse(dependencies.written(entries)) == tuple(entries)


@given(st.text(max_size=300))
def test_any_other_text_is_refused_in_words(text: str) -> None:
    try:
        found = dependencies.parse(text)
    except DependencyError as error:
        assert len(str(error)) < 300
    else:
        assert found and all(each.state in list(DependencyState) for each in found)


WRONG = {
    "": "must be KIND/NAME=STATE",
    "prepare": "must be KIND/NAME=STATE",
    "job/prepare": "must be KIND/NAME=STATE",
    "job/prepare=Done": "must be one of Succeeded, Running, Failed, Finished",
    "job/other/prepare=Succeeded": "of the same namespace",
    "job/Prepare=Succeeded": "names no job",
    "j.b/prepare=Succeeded": "names no kind of jobs",
    "job/a=Running,job/a=Running": "lists job/a=Running twice",
    ",".join(f"job/a{n}=Running" for n in range(17)): "may list at most 16 jobs, not 17",
    "job/" + "a" * 5000 + "=Running": "must have at most 4096 characters",
    "job/" + "a" * 254 + "=Running": "names no job",
    "deployment/web=Running": "names a kind that is not one of",
    "pod/a=Running": "names a kind that is not one of",
    "job/j=Succeeded": "a job cannot wait for itself",
}


@pytest.mark.parametrize(("text", "detail"), WRONG.items(), ids=[text[:30] for text in WRONG])
def test_the_webhook_refuses_what_can_never_be_naming_the_field(text: str, detail: str) -> None:
    [error] = admission.validate(a_job(**{names.AFTER: text}), None, AdmissionFacts())
    assert error.path == f"metadata.annotations[{names.AFTER}]" and detail in str(error)


def test_the_webhook_knows_what_may_follow_from_a_failure() -> None:
    after = {names.AFTER: "job/prepare=Succeeded,leaderworkerset/server=Running"}
    for word in ("Hold", "Cancel"):
        assert admission.validate(a_job(**after, **{names.AFTER_FAILED: word}), None, AdmissionFacts()) == []
    [error] = admission.validate(a_job(**after, **{names.AFTER_FAILED: "cancel"}), None, AdmissionFacts())
    assert error.path == f"metadata.annotations[{names.AFTER_FAILED}]" and '"Hold", "Cancel"' in str(error)


def warnings(job: Json) -> tuple[str, ...]:
    return admission.default(job, None, AdmissionFacts()).warnings


def test_what_has_no_effect_is_said() -> None:
    assert any("no effect without" in warning for warning in warnings(a_job(**{names.AFTER_FAILED: "Hold"})))
    prebuilt = a_job(**{names.AFTER: "job/a=Running"})
    prebuilt["metadata"]["labels"][names.PREBUILT_WORKLOAD] = "made"
    assert any(f"{names.AFTER} is ignored" in warning for warning in warnings(prebuilt))


def waits_for(annotations: dict[str, str], status: Json | None = None) -> tuple[str, ...]:
    meta = {"name": "w", "namespace": "ns", "uid": "u", "annotations": annotations}
    spec = {"queueName": "lq", "podSets": [{"name": "main", "count": 1, "template": {"spec": {"containers": []}}}]}
    return parse.workload({"metadata": meta, "spec": spec, "status": status or {}}).waits_for


def test_a_workload_waits_for_what_has_not_come_true_yet() -> None:
    after = "job/a=Succeeded,job/b=Running"
    assert waits_for({names.AFTER: after}) == ("job a to succeed", "job b to run")
    assert waits_for({names.AFTER: after, names.AFTER_MET: "job/a=Succeeded"}) == ("job b to run",)
    assert waits_for({names.AFTER: after, names.AFTER_MET: "job/b=Running,job/a=Succeeded"}) == ()
    assert waits_for({names.AFTER: after, names.REPLACEMENT_FOR: "ns/old"}) == (), "its job runs already"


def test_what_holds_quota_waits_for_nothing_and_a_wrong_annotation_keeps_a_workload_waiting() -> None:
    reserved = {
        "conditions": [{"type": "QuotaReserved", "status": "True", "reason": "QuotaReserved", "message": ""}],
        "admission": {"clusterQueue": "cq", "podSetAssignments": [{"name": "main", "count": 1}]},
    }
    assert waits_for({names.AFTER: "job/a=Succeeded"}, reserved) == ()
    [reason] = waits_for({names.AFTER: "job/a"})
    assert reason.startswith(f"annotation {names.AFTER}: ")


def test_the_example_of_the_page_is_one_that_the_webhook_takes_and_that_waits_for_two() -> None:
    page = (Path(__file__).parents[2] / "docs" / "dependencies.md").read_text()
    job = yaml.safe_load(page.split("```yaml\n")[1].split("```")[0])
    assert admission.validate(job, None, AdmissionFacts()) == [] and not warnings(job)
    assert len(dependencies.parse(job["metadata"]["annotations"][names.AFTER])) == 2
