"""Kinds that are only declared: held, admitted whole, observed, stopped and put back exactly; bad input names its field."""

from __future__ import annotations

import copy
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest
from tests.jobs.foreign import CASES, DECLARED, OWN, OWN_CASE, Case, Json, job, template
from tests.merging import merge_patch
from tests.objects import JobObject, WorkloadObject, altered

from gangline import jobs
from gangline.api import admission, jobkinds, names
from gangline.api.jobkinds.declaration import DESCRIPTION, RUNS_WITH, at
from gangline.api.read import parse
from gangline.api.read.configuration import declared_kinds
from gangline.api.read.configuration.fields import ConfigurationError
from gangline.jobs import kind_of, workload
from gangline.jobs.base import Children, JobError, JobKind, JobOutcome, PodSetInfo

ALL = (*CASES, OWN_CASE)
each_kind = pytest.mark.parametrize("case", ALL, ids=lambda case: case.name)


@pytest.fixture(autouse=True)
def own_kind() -> Iterator[None]:
    jobs.declare([OWN])
    yield
    jobs.declare([])


def kind(case: Case) -> JobKind:
    found = kind_of(case.job["apiVersion"], case.job["kind"])
    assert found is not None
    return found


def held(case: Case) -> JobObject:
    """As it is stored, with what the operator knows of it."""
    made = copy.deepcopy(admission.default(case.job, None, admission.AdmissionFacts()).obj)
    return JobObject(made if case.description is None else {**made, DESCRIPTION: case.description})


def infos(case: Case) -> list[PodSetInfo]:
    return [
        PodSetInfo(
            name,
            count,
            node_selector={"pool": f"for-{name}"},
            tolerations=[{"key": "gpu", "operator": "Exists"}],
            labels={"kueue.x-k8s.io/podset": name},
            annotations={"kueue.x-k8s.io/workload": "w"},
            scheduling_gates=[{"name": "kueue.x-k8s.io/topology"}],
        )
        for name, count in case.counts.items()
    ]


def with_status(obj: JobObject, status: Json) -> JobObject:
    return altered(obj, status=status)


def started(case: Case) -> JobObject:
    found = held(case)
    while kind(case).is_suspended(found):  # some need two writes
        patch = kind(case).start(found, infos(case))
        assert patch is not None
        found = merge_patch(found, patch.body)
    return found


def test_every_declared_kind_is_in_the_table() -> None:
    declared = {each.identity for each in jobkinds.known() if each.behaviour is not None}
    assert declared == {(case.job["apiVersion"].rpartition("/")[0], case.name) for case in ALL}


@each_kind
def test_a_new_job_is_held_and_valid(case: Case) -> None:
    assert not kind(case).is_suspended(case.job)
    assert kind(case).is_suspended(held(case))
    assert admission.default(held(case), None, admission.AdmissionFacts()).obj == held(case)
    assert not admission.validate(held(case), None, admission.AdmissionFacts())
    unqueued = copy.deepcopy(case.job)
    del unqueued["metadata"]["labels"]
    assert admission.default(unqueued, None, admission.AdmissionFacts()).obj == unqueued


@each_kind
def test_completing_a_job_changes_nothing_in_the_request(case: Case) -> None:
    """The completed job shares what stays as it is, and what changes is replaced."""
    written = copy.deepcopy(case.job)
    written["metadata"].setdefault("annotations", {})[names.ELASTIC] = "true"
    behaviour = kind(case).declaration.behaviour
    assert behaviour is not None
    for place in behaviour.places({**written, DESCRIPTION: case.description}):
        if isinstance(found := at(written, place.path), dict):
            found.setdefault("metadata", {}).setdefault("annotations", {})[names.GPU_VISIBLE] = "VISIBLE"
    before = copy.deepcopy(written)
    context = admission.AdmissionFacts(runs_on_other_cluster=lambda *_: True)
    completed = admission.default(written, None, context).obj
    assert written == before and completed != before
    grown = admission.default(written, completed, context).obj
    assert written == before and grown is not completed


@each_kind
def test_its_pod_sets(case: Case) -> None:
    pod_sets = kind(case).pod_sets(held(case))
    assert {row["name"]: row["count"] for row in pod_sets} == case.counts
    assert list(case.counts) == [row["name"] for row in pod_sets]
    body = workload.build(kind(case), held(case), pod_sets, queue="main", priority=0)
    assert workload.equivalent(WorkloadObject({**body, "status": {}}), pod_sets, held(case))
    assert body["metadata"]["ownerReferences"][0]["kind"] == case.name


@each_kind
def test_admission_goes_into_every_template(case: Case) -> None:
    running = started(case)
    assert not kind(case).is_suspended(running)
    for name, written in case.injected(running).items():
        assert written["nodeSelector"]["pool"] == f"for-{name}"
        assert written["labels"]["kueue.x-k8s.io/podset"] == name
        assert {"key": "gpu", "operator": "Exists"} in written["tolerations"]
        assert written["schedulingGates"] == [{"name": "kueue.x-k8s.io/topology"}]
    assert case.injected(running).keys() == case.counts.keys()
    assert kind(case).start(running, infos(case)) is None
    body = workload.build(kind(case), held(case), kind(case).pod_sets(held(case)), queue="main", priority=0)
    if case.description is not None:
        running[RUNS_WITH] = body["spec"]["podSets"]
    assert workload.equivalent(WorkloadObject(body), kind(case).pod_sets(running), running)


@each_kind
def test_each_start_says_which_attempt_it_is(case: Case) -> None:
    assert kind(case).attempt(held(case)) == 0
    rows = [replace(row, annotations={**row.annotations, "gangline.io/attempt": "3"}) for row in infos(case)]
    patch = kind(case).start(held(case), rows)
    assert patch is not None
    assert kind(case).attempt(merge_patch(held(case), patch.body)) == 3


@each_kind
def test_a_stop_puts_back_exactly_what_its_user_wrote(case: Case) -> None:
    pod_sets = kind(case).pod_sets(held(case))
    patch = kind(case).stop(started(case), pod_sets)
    assert patch is not None
    stopped = merge_patch(started(case), patch.body)
    if case.job["kind"] == "TrainJob":  # in a second write
        patch = kind(case).stop(stopped, pod_sets)
        assert patch is not None
        stopped = merge_patch(stopped, patch.body)
    stopped["metadata"] = {name: value for name, value in stopped["metadata"].items() if value}  # {} is stored as none
    assert stopped == held(case)
    assert kind(case).stop(stopped, pod_sets) is None


@each_kind
def test_what_its_status_says(case: Case) -> None:
    k, running = kind(case), started(case)
    assert k.pods_ready(with_status(running, case.ready))
    assert k.is_active(with_status(running, case.busy), Children())
    assert not k.is_active(with_status(running, case.rest), Children())
    assert not k.pods_ready(with_status(running, case.rest))
    assert not k.is_active(running, Children())
    assert k.finished(with_status(running, case.ready)) is None
    for status, success in ((case.succeeded, True), (case.failed, False)):
        if status is not None:
            outcome = k.finished(with_status(running, status))
            assert outcome is not None
            assert outcome.success is success
            assert k.stop(with_status(running, status), k.pod_sets(running)) is None
    if case.succeeded is not None:
        assert k.finished(with_status(running, case.succeeded)) == JobOutcome(True, case.finish)


@pytest.mark.parametrize(
    ("case", "path", "value", "named"),
    [
        pytest.param(case, *wrong, id=f"{case.name}-{wrong[2]}-{i}")
        for case in ALL
        for i, wrong in enumerate(case.wrong)
    ],
)
def test_bad_input_is_refused_naming_the_field(case: Case, path: Any, value: Any, named: str) -> None:
    bad = held(case)
    parent = at(bad, path[:-1])
    parent[path[-1]] = value
    errors = admission.validate(bad, None, admission.AdmissionFacts())
    assert next(error.path for error in errors) == named, [str(error) for error in errors]


@pytest.mark.parametrize("case", [case for case in CASES if case.job["apiVersion"].startswith("kubeflow.org/")])
def test_a_job_that_names_no_pods_is_taken_as_by_kueue_and_its_author_is_told_that_it_is_not_queued(case: Case) -> None:
    [field] = [key for key in case.job["spec"] if key.endswith("ReplicaSpecs")]
    bare = held(case)
    bare["spec"][field] = {}
    assert admission.validate(bare, None, admission.AdmissionFacts()) == []
    defaulted = admission.default(bare, None, admission.AdmissionFacts())
    assert kind(case).is_suspended(defaulted.obj)
    [warning] = [line for line in admission.warnings(defaulted.obj) if "is not queued" in line]
    assert f"spec.{field}" in warning
    with pytest.raises(JobError):
        kind(case).pod_sets(bare)


@each_kind
def test_a_running_job_that_grows_is_held_again(case: Case) -> None:
    if case.grow is None:
        return
    running = started(case)
    grown = copy.deepcopy(running)
    case.grow(grown)
    result = admission.default(grown, running, admission.AdmissionFacts())
    assert kind(case).is_suspended(result.obj)
    assert result.warnings
    assert not kind(case).is_suspended(admission.default(running, running, admission.AdmissionFacts()).obj)


@each_kind
def test_any_shape_is_answered(case: Case) -> None:
    """Objects as a hostile user writes them: each error is one that names a field."""
    for odd in (None, "x", 7, [], [None], {}, {"a": None}, True):
        for name in [*case.job["spec"], "template", "runPolicy"]:
            bad = held(case)
            bad["spec"][name] = odd
            admission.default(bad, None, admission.AdmissionFacts())
            admission.validate(bad, None, admission.AdmissionFacts())
            try:
                kind(case).pod_sets(bad)
            except JobError as error:
                assert error.field, str(error)


# --- what single kinds do ---------------------------------------------------------------------------------------------


def ray(kind: str) -> Case:
    return next(case for case in CASES if case.name == kind)


def test_containers_that_kuberay_adds_count() -> None:
    obj = held(ray("RayCluster"))
    obj["metadata"]["annotations"] = {"kueue.x-k8s.io/elastic-job": "true", "ray.io/ft-enabled": "True"}
    obj["spec"]["enableInTreeAutoscaling"] = True
    head = kind(ray("RayCluster")).pod_sets(obj)[0]["template"]["spec"]["containers"]
    assert [row["name"] for row in head] == ["head", "autoscaler"]
    assert head[0]["resources"]["requests"] == {"cpu": "1", "memory": "256Mi"}
    assert head[1]["resources"]["requests"] == {"cpu": "500m", "memory": "512Mi"}
    obj["spec"]["autoscalerOptions"] = {"resources": {"requests": {"cpu": "2"}}}
    assert kind(ray("RayCluster")).pod_sets(obj)[0]["template"]["spec"]["containers"][1]["resources"]["requests"] == {
        "cpu": "2"
    }
    assert [row["name"] for row in obj["spec"]["headGroupSpec"]["template"]["spec"]["containers"]] == ["head"]


@pytest.mark.parametrize(("name", "where"), [("RayJob", "rayClusterSpec"), ("RayService", "rayClusterConfig")])
def test_an_autoscaler_sizes_the_cluster_that_runs_the_job(name: str, where: str) -> None:
    job = copy.deepcopy(next(case for case in CASES if case.name == name).job)
    cluster: Json = {"spec": copy.deepcopy(job["spec"][where])}
    cluster["spec"]["workerGroupSpecs"][0]["replicas"] = 7
    assert jobkinds.ray.sizes(job, cluster) == {}
    job["spec"][where]["enableInTreeAutoscaling"] = True
    assert jobkinds.ray.sizes(job, cluster) == {"small": 7, "slice": 8}


def test_the_submitter_of_a_ray_job() -> None:
    case = ray("RayJob")
    obj = held(case)
    submitter = kind(case).pod_sets(obj)[-1]["template"]["spec"]["containers"][0]
    assert (submitter["image"], submitter["resources"]["requests"]["cpu"]) == ("train:1", "500m")
    assert "submitterPodTemplate" not in obj["spec"]
    assert started(case)["spec"]["submitterPodTemplate"]["spec"]["nodeSelector"] == {"pool": "for-submitter"}
    obj["spec"]["submissionMode"] = "SidecarMode"
    pod_sets = kind(case).pod_sets(obj)
    assert [row["name"] for row in pod_sets] == ["head", "small", "slice"]
    assert [row["name"] for row in pod_sets[0]["template"]["spec"]["containers"]] == ["head", "ray-job-submitter"]
    obj["spec"]["submissionMode"] = "HTTPMode"
    assert len(kind(case).pod_sets(obj)[0]["template"]["spec"]["containers"]) == 1


def test_a_ray_job_in_an_existing_cluster_is_left_alone_with_a_warning() -> None:
    obj = job("ray.io/v1", "RayJob", {"clusterSelector": {"ray.io/cluster": "a"}, "entrypoint": "x"})
    assert admission.default(obj, None, admission.AdmissionFacts()).obj == obj
    assert not admission.validate(obj, None, admission.AdmissionFacts())
    [warning] = admission.warnings(obj)
    assert "spec.clusterSelector" in warning


def test_a_ray_service_keeps_its_cluster_where_kuberay_reads_it() -> None:
    case = ray("RayService")
    assert "rayClusterConfig" in case.job["spec"]
    obj = held(case)
    assert obj["spec"]["rayClusterConfig"]["suspend"] is True
    assert kind(case).is_suspended(obj)


@pytest.mark.parametrize("framework", ["RayCluster", "RayJob", "RayService", "PyTorchJob"])
def test_a_running_job_keeps_its_queue_but_of_ray_where_the_gate_lets_it_go(framework: str) -> None:
    case = next(each for each in CASES if each.job["kind"] == framework)
    old = started(case)
    new = copy.deepcopy(old)
    del new["metadata"]["labels"][names.QUEUE_NAME]
    [error] = admission.validate(new, old, admission.AdmissionFacts())
    assert (error.path, error.message) == (f"metadata.labels[{names.QUEUE_NAME}]", "field is immutable")
    allowed = not admission.validate(new, old, admission.AdmissionFacts(leaving_checked=False))
    assert allowed == framework.startswith("Ray")


def test_the_priority_class_of_a_kubeflow_job_itself_comes_first() -> None:
    case = CASES[0]
    obj = copy.deepcopy(case.job)
    obj["spec"]["runPolicy"]["schedulingPolicy"] = {"priorityClass": "high"}
    obj["spec"]["pytorchReplicaSpecs"]["Master"]["template"]["spec"]["priorityClassName"] = "low"
    found = workload.priority_source(obj, kind(case).pod_sets(obj))
    assert found is not None
    assert found["name"] == "high"


def test_an_admission_that_conflicts_with_the_template_names_the_field() -> None:
    case = CASES[0]
    row = infos(case)
    row[1] = PodSetInfo("worker", 2, node_selector={"disk": "hdd"})
    with pytest.raises(JobError, match=r"spec.pytorchReplicaSpecs\[Worker\].template.spec.nodeSelector\[disk\]"):
        kind(case).start(held(case), row)


def test_fields_that_the_configuration_freezes() -> None:
    running = started(OWN_CASE)
    changed = copy.deepcopy(running)
    changed["spec"]["recipe"] = "b"
    assert [str(e) for e in admission.validate(changed, running, admission.AdmissionFacts())] == [
        'spec.recipe: Invalid value: "b": field is immutable'
    ]
    assert not admission.validate(
        altered(changed, spec={**changed["spec"], "active": False}), running, admission.AdmissionFacts()
    )


# --- the declaration in a configuration file --------------------------------------------------------------------------


def row(**changes: Any) -> Json:
    return {**copy.deepcopy(DECLARED), **changes}


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"group": "example"}, "group: a group such as example.com is wanted, not 'example'"),
        ({"group": "kueue.x-k8s.io"}, "group: kueue.x-k8s.io has no kinds of users"),
        ({"group": "ray.io", "kind": "RayJob"}, "kind: RayJob of ray.io is declared already"),
        ({"version": "one"}, "version: a version such as v1 is wanted, not 'one'"),
        ({"kind": "run"}, "kind: a kind such as TrainingRun is wanted, not 'run'"),
        ({"plural": "Runs"}, "plural: a plural such as trainingruns is wanted, not 'Runs'"),
        ({"suspend": "spec.suspend"}, "active: may not be set together with suspend"),
        ({"active": "status.active"}, "active: 'status.active' does not begin with spec."),
        ({"active": "spec"}, "active: 'spec' does not begin with spec."),
        ({"active": "spec." + "a." * 11 + "a"}, "active: .* has more than 12 fields"),
        ({"active": "spec." + "a" * 300}, "active: .* is longer than 256 characters"),
        ({"active": "spec.[0]"}, r"active: 'spec.\[0\]' is not a path such as spec.workers.replicas"),
        ({"pods": []}, "pods: 1 to 18 entries are wanted"),
        ({"pods": [{}]}, r"pods\[0\].template: '' is not a path"),
        ({"pods": [{"template": "status.x"}]}, r"pods\[0\].template: 'status.x' does not begin with spec."),
        ({"pods": [{"template": "spec.x", "count": "a * * b"}]}, r"pods\[0\].count: '' is not a path"),
        ({"pods": [{"template": "spec.x", "count": "a*b*c*d*e"}]}, r"pods\[0\].count: .* has more than 4 factors"),
        ({"pods": [{"template": "spec.x", "name": "A"}]}, r"pods\[0\].name: a name in lower case is wanted, not 'A'"),
        (
            {"pods": [{"each": "spec.x", "template": "y", "name": "a.b"}]},
            r"pods\[0\].name: one field of the entry is wanted",
        ),
        (
            {"pods": [{"template": "spec.x", "indexLabel": "a b"}]},
            r"pods\[0\].indexLabel: 'a b' is not the key of a label",
        ),
        ({"ready": None}, "ready: either a condition or a path is wanted"),
        ({"running": {"condition": "A", "path": "status.a"}}, "running: either a condition or a path is wanted"),
        ({"succeeded": {"condition": "A", "values": ["x"]}}, "succeeded.values: only a path has values"),
        ({"failed": {"path": "spec.a"}}, "failed.path: 'spec.a' does not begin with status."),
        ({"failed": {"condition": "a b"}}, "failed.condition: the type of a condition is wanted, not 'a b'"),
        ({"immutable": ["metadata.name"]}, r"immutable\[0\]: 'metadata.name' does not begin with spec."),
        ({"immutable": ["spec.a"] * 33}, "immutable: at most 32 paths are wanted"),
    ],
)
def test_a_bad_declaration_names_its_field(changes: Json, said: str) -> None:
    with pytest.raises(ConfigurationError, match=rf"^integrations\.declared\[0\]\.{said}"):
        declared_kinds.load([row(**changes)])


def test_declarations_are_bounded_and_differ() -> None:
    with pytest.raises(ConfigurationError, match=r"declared\[1\].kind: TrainingRun of example.com is declared already"):
        declared_kinds.load([row(), row()])
    with pytest.raises(ConfigurationError, match="at most 32 kinds"):
        declared_kinds.load([row(kind=f"K{i}") for i in range(33)])


def test_declared_kinds_are_known_until_others_are_declared() -> None:
    assert jobkinds.declaration_of("example.com", "TrainingRun") == OWN
    jobs.declare([])
    assert kind_of("example.com/v1alpha1", "TrainingRun") is None
    assert kind_of("ray.io/v1", "RayJob") is not None
    with pytest.raises(admission.UnknownKindError):
        admission.validate(OWN_CASE.job, None, admission.AdmissionFacts())


def test_a_name_that_no_pod_set_can_have_is_refused() -> None:
    obj = copy.deepcopy(OWN_CASE.job)
    obj["spec"]["groups"] = [{"title": "a b", "pods": template()}]
    with pytest.raises(JobError, match="'a b' cannot be the name of a pod set"):
        kind(OWN_CASE).pod_sets(obj)


@pytest.mark.parametrize(
    ("as_worker", "launcher", "numbered"),
    [(True, {}, True), (False, {}, False), (None, {}, False), (True, {names.PODSET_GROUP: "gang"}, False)],
)
def test_workers_beside_a_launcher_that_works_are_numbered_from_one(
    as_worker: bool | None, launcher: dict[str, str], numbered: bool
) -> None:
    [case] = [case for case in CASES if case.name == "MPIJob"]
    written = copy.deepcopy(case.job)
    written["spec"] |= {} if as_worker is None else {"runLauncherAsWorker": as_worker}
    written["spec"]["mpiReplicaSpecs"]["Launcher"]["template"]["metadata"] = {"annotations": launcher}
    made = admission.default(written, None, admission.AdmissionFacts()).obj
    notes = at(made, ("spec", "mpiReplicaSpecs", "Worker", "template", "metadata", "annotations")) or {}
    assert notes.get("kueue.x-k8s.io/pod-index-offset") == ("1" if numbered else None)


@each_kind
def test_annotations_in_which_kueue_keeps_the_state_of_a_ray_cluster_are_not_read_and_their_author_is_told(
    case: Case,
) -> None:
    keys = [f"kueue.x-k8s.io/raycluster-{end}" for end in ("generation", "podset-replica-sizes")]
    written = copy.deepcopy(case.job)
    written["metadata"]["annotations"] = dict.fromkeys(keys, "3")
    warnings = admission.default(written, None, admission.AdmissionFacts()).warnings
    expected = keys if case.job["apiVersion"] == "ray.io/v1" else []
    assert [line.split()[1] for line in warnings if "raycluster" in line] == expected
    assert not admission.default(written, written, admission.AdmissionFacts()).warnings, "one warning"


def at_template(case: Case, obj: Json) -> Json:
    """The object with labels and annotations of some pod of the job, as its user writes it."""
    declaration = kind(case).declaration
    assert declaration.behaviour is not None
    found = at(obj, declaration.behaviour.places(obj)[0].path)
    assert isinstance(found, dict)
    return found if case.name == "SparkApplication" else found.setdefault("metadata", {})


@each_kind
@pytest.mark.parametrize(
    ("part", "written", "detail"),
    [
        ("labels", {"a/b/c": "x"}, "prefix part a lowercase RFC 1123 subdomain must consist of"),
        ("labels", {"a": "x y z"}, "a valid label must be"),
        ("annotations", {"a b": "x"}, "name part must consist of"),
        ("annotations", {"a": "x" * 300_000}, "may not be more than 262144 bytes"),
    ],
)
def test_pods_that_cannot_exist_are_refused_or_hold_no_quota(case: Case, part: str, written: Json, detail: str) -> None:
    """The same words for a job and for its Workload, which may be older than the rule, or have pods that no webhook sees."""
    made = copy.deepcopy(held(case))
    if case.description is not None:
        rows = made[DESCRIPTION]["spec"]["template"]["spec"]["replicatedJobs"]
        rows[-1]["template"]["spec"]["template"]["metadata"] = {part: written}
    else:
        at_template(case, made)[part] = written
        errors = admission.validate(made, None, admission.AdmissionFacts())
        assert any(f".metadata.{part}" in error.path and detail in error.detail for error in errors), errors
    body = workload.build(kind(case), made, kind(case).pod_sets(made), queue="main", priority=0)
    body["metadata"]["uid"] = "w"
    said = parse.workload(body).violation
    assert f".template.metadata.{part}: " in said and detail in said


@each_kind
def test_pods_that_can_exist_are_no_violation(case: Case) -> None:
    body = workload.build(kind(case), held(case), kind(case).pod_sets(held(case)), queue="main", priority=0)
    body["metadata"]["uid"] = "w"
    assert parse.workload(body).violation == ""
