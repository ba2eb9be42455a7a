"""Jobs that run in another cluster: what is sent there, and what the job here shows."""

from __future__ import annotations

import copy
from collections.abc import Iterator
from dataclasses import replace

import pytest
from tests.control.test_node_loss import EXAMPLES
from tests.jobs.foreign import CASES, OWN, OWN_CASE, Case, Json, template
from tests.merging import merge_patch
from tests.objects import JobObject, altered

from gangline import jobs
from gangline.api import admission, jobkinds
from gangline.api.admission.multikueue import CONTROLLER
from gangline.api.jobkinds.declaration import DESCRIPTION, at, put
from gangline.control.checks.multikueue.clusters import copies
from gangline.jobs import kind_of, on_other_cluster
from gangline.jobs.base import Children, JobKind, PodSetInfo, RunsOnOtherCluster
from gangline.jobs.declared import ExternalKind
from gangline.kube.resources import Resource

SENDABLE = replace(OWN, managed_by=("spec", "run", "managedBy"))
#: those that have a field for the name of their controller
SENT = tuple(
    case for case in CASES if jobkinds.declaration_of(case.job["apiVersion"].partition("/")[0], case.name).managed_by
)  # type: ignore[union-attr]
ALL = (*SENT, OWN_CASE)
each_kind = pytest.mark.parametrize("case", ALL, ids=lambda case: case.name)


@pytest.fixture(autouse=True)
def own_kind() -> Iterator[None]:
    jobs.declare([SENDABLE])
    yield
    jobs.declare([])


def kinds(case: Case) -> tuple[JobKind, RunsOnOtherCluster]:
    kind = kind_of(case.job["apiVersion"], case.job["kind"])
    assert kind is not None
    found = on_other_cluster(kind.resource)
    assert found is not None and found is kind
    return kind, found


def here(case: Case, status: Json | None = None, *, suspended: bool = False) -> JobObject:
    job = copy.deepcopy(case.job)
    kind, sent = kinds(case)
    put(job, sent.managed_by, CONTROLLER)
    (kind.declaration.suspension.hold if suspended else kind.declaration.suspension.release)(job)
    known = {} if case.description is None else {DESCRIPTION: case.description}
    return JobObject({**job, **known, "status": status or {}})


def there(case: Case, status: Json, *, suspended: bool = False) -> JobObject:
    """As the operator keeps it."""
    kind, _ = kinds(case)
    return copies.read_job(here(case, status, suspended=suspended), kind.declaration.suspension)


@each_kind
def test_the_job_is_sent_suspended_as_its_user_wrote_it(case: Case) -> None:
    kind, sent = kinds(case)
    written = JobObject(admission.default(here(case), None, admission.AdmissionFacts()).obj)
    written |= {name: value for name, value in here(case).items() if name == DESCRIPTION}
    pod_sets = kind.pod_sets(written)
    infos = [PodSetInfo(name, count, node_selector={"pool": "a"}) for name, count in case.counts.items()]
    start = kind.start(written, infos)
    assert start is not None
    started = merge_patch(written, start.body)
    for job in (written, started):
        body = {"spec": sent.sent(job, pod_sets)}
        assert kind.is_suspended(altered(written, **body))
        assert at(body, sent.managed_by) is None
        assert kind.pod_sets(altered(written, **body)) == pod_sets
    assert at(started, sent.managed_by) == CONTROLLER, "the job here stays as it is"


@each_kind
def test_the_job_here_shows_how_far_the_other_one_is(case: Case) -> None:
    _, sent = kinds(case)
    for status in (case.ready, case.busy, case.succeeded):
        if status is not None:
            assert sent.mirrored(here(case), there(case, status)) == status
            assert sent.mirrored(here(case, status), there(case, status)) is None


@each_kind
def test_a_job_that_is_still_to_start_here_shows_no_pods(case: Case) -> None:
    """They would be taken for those of an earlier run, which keep it from starting."""
    kind, sent = kinds(case)
    waiting = here(case, suspended=True)
    for status in (case.ready, case.busy):
        assert sent.mirrored(waiting, there(case, status)) is None
        if kind.is_active(altered(waiting, status=status), Children()):
            assert sent.mirrored(waiting, there(case, status, suspended=True)) is None
    if case.succeeded is not None:
        assert sent.mirrored(waiting, there(case, case.succeeded)) == case.succeeded


@each_kind
def test_a_job_that_is_stopped_shows_pods_until_the_last_has_ended_there(case: Case) -> None:
    kind, sent = kinds(case)
    busy = next(status for status in (case.busy, case.ready) if kind.is_active(here(case, status), Children()))
    stopping = here(case, busy, suspended=True)
    assert sent.mirrored(stopping, there(case, busy)) is None
    assert kind.is_active(stopping, Children())
    ended = sent.mirrored(stopping, there(case, case.rest, suspended=True))
    assert ended == case.rest
    assert not kind.is_active(altered(stopping, status=ended), Children())


@each_kind
def test_where_no_cluster_has_the_job_no_pod_of_it_runs(case: Case) -> None:
    kind, sent = kinds(case)
    for status in (case.ready, case.busy):
        job = here(case, status, suspended=True)
        idle = sent.mirrored(job, None)
        assert (idle is not None) == kind.is_active(job, Children())
        if idle is not None:
            quiet = altered(job, status=idle)
            assert not kind.is_active(quiet, Children())
            assert not kind.pods_ready(quiet)
            assert sent.mirrored(quiet, None) is None, "once"
    for status in (case.rest, case.succeeded, case.failed):
        assert status is None or sent.mirrored(here(case, status), None) is None, "what ended stays as it ended"


@pytest.mark.parametrize("case", [case for case in CASES if case.job["apiVersion"].startswith("kubeflow")])
def test_fields_that_kubeflow_requires_stay(case: Case) -> None:
    """CRDs of training-operator require both."""
    status = {
        "conditions": [
            {"type": "Created", "status": "True", "lastTransitionTime": "t"},
            {"type": "Running", "status": "True", "lastTransitionTime": "t"},
        ],
        "replicaStatuses": {"Worker": {"active": 2, "succeeded": 1}},
        "startTime": "t",
    }
    _, sent = kinds(case)
    assert sent.mirrored(here(case, status, suspended=True), None) == {
        **status,
        "conditions": [status["conditions"][0], {**status["conditions"][1], "status": "False"}],
        "replicaStatuses": {"Worker": {"active": 0, "succeeded": 1}},
    }


def test_kinds_without_a_field_for_their_controller_stay_here() -> None:
    jobs.declare([OWN])
    assert on_other_cluster(OWN.resource) is None
    gpu_job = next(each for each in jobkinds.BUILT_IN if each.kind == "GPUJob")
    assert on_other_cluster(gpu_job.resource) is None


def test_a_jobset_that_is_still_to_start_here_shows_no_pods() -> None:
    job_set = next(each for each in jobkinds.BUILT_IN if each.kind == "JobSet")
    kind = on_other_cluster(job_set.resource)
    assert kind is not None
    rows = [{"name": "w", "replicas": 1, "template": {"spec": {"template": template()}}}]
    job = JobObject({"metadata": {"name": "js"}, "spec": {"suspend": True, "replicatedJobs": rows}, "status": {}})
    status = {"replicatedJobsStatus": [{"name": "w", "active": 1}]}
    assert kind.mirrored(job, JobObject({"spec": {"suspend": False}, "status": status})) is None


# --- kinds of other controllers ---------------------------------------------------------------------------------------


def test_a_kind_of_another_controller_is_sent_as_it_is() -> None:
    resource = Resource("example.com", "v1", "runs", kind="Run")
    jobs.declare([], sent=[resource])
    kind = on_other_cluster(resource)
    assert isinstance(kind, ExternalKind) and isinstance(kind, RunsOnOtherCluster)
    assert kind_of("example.com/v1", "Run") is None, "it is not queued here"
    spec = {"managedBy": CONTROLLER, "suspend": False, "pods": 3}
    job = JobObject({"spec": spec, "status": {"phase": "Waiting"}})
    assert kind.sent(job, []) == {"suspend": False, "pods": 3}
    assert kind.mirrored(job, JobObject({"status": {"phase": "Running"}})) == {"phase": "Running"}
    assert kind.mirrored(job, JobObject({"status": {"phase": "Waiting"}})) is None
    assert kind.mirrored(job, None) is None
    jobs.declare([])
    assert on_other_cluster(resource) is None


@pytest.mark.parametrize(
    "resource", [each.resource for each in jobkinds.BUILT_IN if each.expiry], ids=lambda resource: resource.kind
)
def test_no_job_deletes_itself_there_before_its_end_is_read(resource: Resource) -> None:
    found = next(each for each in jobkinds.BUILT_IN if each.resource == resource)
    made = on_other_cluster(resource)
    assert made is not None
    job = JobObject(copy.deepcopy(EXAMPLES[resource.kind]))
    put(job, found.expiry, 0)
    kind = kind_of(resource.api_version, resource.kind)
    assert kind is not None
    assert at({"spec": made.sent(job, kind.pod_sets(job))}, found.expiry) is None
    assert at(job, found.expiry) == 0, "here it does"


def test_kinds_that_delete_themselves_after_their_end() -> None:
    kinds = {each.kind for each in jobkinds.BUILT_IN if each.expiry}
    assert kinds == {"Job", "JobSet", "PyTorchJob", "TFJob", "XGBoostJob", "PaddleJob", "JAXJob", "MPIJob"}
