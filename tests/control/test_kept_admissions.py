"""What an admission writes into a job counts only as far as the API server has kept it, for every kind."""

from __future__ import annotations

import copy
from collections.abc import Iterator, Sequence
from typing import Any

import pytest
from tests.control.test_node_loss import EXAMPLES
from tests.control.test_plan import JOB_KIND, NOW, Lookups, a_job, a_workload, admitted
from tests.jobs.foreign import CASES, OWN, OWN_CASE, TRAIN_JOB
from tests.merging import merge_patch
from tests.objects import JobObject, WorkloadObject

from gangline import jobs
from gangline.api import admission, names
from gangline.api.jobkinds.declaration import DESCRIPTION
from gangline.api.read import conditions
from gangline.control.kinds import job_plan
from gangline.control.kinds.injection import pod_set_infos
from gangline.control.kinds.start_and_stop import Starts
from gangline.control.kinds.steps import ChangeStatus, JobView, Note, PatchJob, Step
from gangline.control.writes.status import run_changes, status_changes
from gangline.jobs import kind_of, podspec
from gangline.jobs.base import Children, JobKind, PodSetInfo
from gangline.kube.errors import Conflict, Invalid

Json = dict[str, Any]
DESCRIPTIONS = {case.name: case.description for case in CASES if case.description is not None}
#: kinds into which an admission is written
NAMES = ("Job", "JobSet", *(case.name for case in (*CASES, OWN_CASE)))
PARTS = ("nodeSelector", "labels", "annotations", "tolerations", "schedulingGates")
each_kind = pytest.mark.parametrize("name", NAMES)


@pytest.fixture(autouse=True)
def own_kind() -> Iterator[None]:
    jobs.declare([OWN])
    yield
    jobs.declare([])


def held(name: str) -> JobObject:
    job = admission.default(copy.deepcopy(EXAMPLES[name]), None, admission.AdmissionFacts()).obj
    return JobObject({**job, DESCRIPTION: DESCRIPTIONS[name]} if name in DESCRIPTIONS else job)


def kind_named(name: str) -> JobKind:
    found = kind_of(EXAMPLES[name]["apiVersion"], name)
    assert found is not None
    return found


def infos(kind: JobKind, job: JobObject) -> list[PodSetInfo]:
    return [
        PodSetInfo(
            row["name"],
            row["count"],
            node_selector={"pool": "a"},
            tolerations=[{"key": "pool", "operator": "Exists"}],
            labels={names.PODSET: row["name"]},
            annotations={names.WORKLOAD_ANNOTATION: "w"},
            scheduling_gates=[{"name": names.TOPOLOGY_GATE}],
        )
        for row in kind.pod_sets(job)
    ]


def started(kind: JobKind, job: JobObject, wanted: Sequence[PodSetInfo]) -> JobObject:
    while kind.is_suspended(job):
        patch = kind.start(job, wanted)
        assert patch is not None
        job = merge_patch(job, patch.body)
    return job


def without(value: Any, part: str) -> Any:
    """The job as an API server stores it that does not know this field of pods."""
    if isinstance(value, list):
        return [without(item, part) for item in value]
    if not isinstance(value, dict):
        return value
    return {key: without(item, part) for key, item in value.items() if key != part}


@each_kind
@pytest.mark.parametrize("part", PARTS)
def test_what_was_dropped_is_missed(name: str, part: str) -> None:
    kind, job = kind_named(name), held(name)
    wanted = infos(kind, job)
    running = started(kind, job, wanted)
    assert kind.not_kept(running, wanted) == []
    cut = JobObject({**running, "spec": without(running.spec, part)})
    lost = kind.not_kept(cut, wanted)
    assert len(lost) == len(wanted) and all(part in each for each in lost), lost


@each_kind
def test_what_others_add_is_nobodys_loss(name: str) -> None:
    kind, job = kind_named(name), held(name)
    wanted = infos(kind, job)

    def more(value: Any) -> Any:
        if isinstance(value, list):
            return [more(item) for item in value]
        if not isinstance(value, dict):
            return value
        filled = {key: more(item) for key, item in value.items()}
        for part in PARTS[:3]:
            if isinstance(filled.get(part), dict):
                filled[part] |= {"example.com/more": "x"}
        if isinstance(filled.get("tolerations"), list):
            rows = [{**row, "effect": row.get("effect", "")} for row in filled["tolerations"]]
            filled["tolerations"] = [{"key": "other", "operator": "Exists"}, *rows]
        return filled

    running = started(kind, job, wanted)
    assert kind.not_kept(JobObject({**running, "spec": more(running.spec)}), wanted) == []


def test_empty_fields_are_no_loss() -> None:
    wanted = {"tolerations": [{"key": "a", "operator": "Exists", "value": "", "effect": None}], "labels": {"x": ""}}
    kept = {"tolerations": [{"key": "a", "operator": "Exists"}], "labels": {"x": ""}}
    assert podspec.lacking(kept, wanted) == []
    assert podspec.lacking({**kept, "labels": {}}, wanted) == ["labels[x]"]
    assert podspec.lacking({**kept, "tolerations": [{"key": "b", "operator": "Exists"}]}, wanted) == ["tolerations"]


# --- the plan ---------------------------------------------------------------------------------------------------------


def steps(job: JobObject, workload: WorkloadObject, **view: Any) -> list[Step]:
    return job_plan.plan(JobView(JOB_KIND, job, (workload,), Children(), **view), Lookups())


def test_a_job_whose_admission_was_not_kept_is_suspended_at_once_and_says_what_is_lost() -> None:
    workload = a_workload(a_job(), a=admitted)
    wanted = pod_set_infos(workload, Lookups())
    running = started(JOB_KIND, a_job(), wanted)
    assert not any(isinstance(step, PatchJob) for step in steps(running, workload, written=wanted)), "all is kept"

    del running["spec"]["template"]["spec"]["nodeSelector"]
    change, note, stop, stopped = steps(running, workload, written=wanted)
    assert isinstance(stop, PatchJob) and stop.patch.body["spec"]["suspend"] is True
    assert isinstance(stopped, Note) and stopped.reason == "Stopped"
    assert isinstance(note, Note) and (note.kind, note.reason) == ("Warning", names.PODS_REFUSED)
    assert "(spec.template: nodeSelector[pool])" in note.message and "admission webhook of jobs.batch" in note.message
    assert isinstance(change, ChangeStatus)
    change.change(workload["status"], NOW)
    row = conditions.find(workload["status"]["conditions"], names.PODS_REFUSED)
    assert row is not None and (row["status"], row["reason"], row["message"]) == (
        "True",
        run_changes.NOT_KEPT,
        note.message,
    )

    # it is not tried again before its quota was given to others
    again = steps(a_job(), workload)
    assert not any(isinstance(step, PatchJob) for step in again), again
    assert any(isinstance(step, PatchJob) for step in steps(running, workload)), "nor does it run after a crash"
    status_changes.release(workload["status"], NOW)
    admitted(workload["status"], NOW)
    assert any(isinstance(step, PatchJob) for step in steps(a_job(), workload))


def test_a_start_that_is_refused_is_said_and_tried_again() -> None:
    workload = a_workload(a_job(), a=admitted)
    change, note, start, *_ = steps(a_job(), workload, start_refused="The CRD has no x")
    assert isinstance(note, Note) and note.message == "The CRD has no x"
    assert isinstance(start, PatchJob) and start.starts_with
    assert isinstance(change, ChangeStatus)
    change.change(workload["status"], NOW)
    assert run_changes.why_not_started(workload) == run_changes.UNKNOWN_FIELD
    assert [type(step) for step in steps(a_job(), workload, start_refused="The CRD has no x")] == [PatchJob, Note]

    accepted = steps(started(JOB_KIND, a_job(), pod_set_infos(workload, Lookups())), workload)
    for step in accepted:
        if isinstance(step, ChangeStatus):
            step.change(workload["status"], NOW)
    assert not run_changes.why_not_started(workload)


# --- fields that an API server does not know --------------------------------------------------------------------------


def unknown(*fields: str) -> Invalid:
    message = ", ".join(f'unknown field "{field}"' for field in fields)
    return Invalid(
        400, "BadRequest", f"TrainJob in version v1alpha1 cannot be handled: strict decoding error: {message}"
    )


def test_the_answer_to_a_strict_write_names_the_fields() -> None:
    assert unknown("spec.runtimePatches", "spec.a[0].b").unknown_fields == ("spec.runtimePatches", "spec.a[0].b")
    assert Invalid(422, "Invalid", "spec.x: Required value").unknown_fields == ()


def test_an_older_trainer_gets_overrides_and_one_that_has_neither_is_named() -> None:
    kind, starts = kind_named("TrainJob"), Starts()
    ref, other = (kind.resource, "default/mine"), (kind.resource, "default/other")
    job = held("TrainJob")
    del job["spec"]["runtimePatches"]
    wanted = infos(kind, job)
    assert starts.informed(kind, job) is job

    assert starts.has_alternative(ref, unknown("spec.runtimePatches"))
    assert starts.has_alternative(other, unknown("spec.runtimePatches")), "it was sent before the answer to the first"
    assert not starts.why_refused(ref)
    running = started(kind, starts.informed(kind, job), wanted)
    assert "runtimePatches" not in running["spec"]
    assert [row["targetJobs"] for row in running["spec"]["podTemplateOverrides"]] == [
        [{"name": name}] for name in TRAIN_JOB.counts
    ]
    assert kind.not_kept(running, wanted) == []

    assert not starts.has_alternative(ref, unknown("spec.podTemplateOverrides"))
    reason = starts.why_refused(ref)
    assert reason.startswith("The CRD trainjobs.trainer.kubeflow.org has no field for the admission of the job")
    assert "(spec.runtimePatches, spec.podTemplateOverrides)" in reason
    assert "Kubeflow Trainer 2.0 or newer is needed" in reason
    assert starts.informed(kind, job) is job, "the CRD may be newer by the next attempt"


def test_other_refusals_are_not_about_fields() -> None:
    kind, starts = kind_named("PyTorchJob"), Starts()
    ref = (kind.resource, "default/mine")
    assert not starts.has_alternative(ref, Conflict(409, "Conflict", 'unknown field "spec.x"'))
    assert not starts.has_alternative(ref, Invalid(422, "Invalid", "no"))
    assert starts.why_refused(ref) == ""
    assert not starts.has_alternative(ref, unknown("spec.pytorchReplicaSpecs.Worker.template.metadata.labels"))
    assert "(spec.pytorchReplicaSpecs.Worker.template.metadata.labels)" in starts.why_refused(ref)
