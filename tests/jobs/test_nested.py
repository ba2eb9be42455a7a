"""Chains of owners: what a queued object creates is not queued twice, and waits with the topmost of them."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest
from tests.jobs.foreign import component, template
from tests.objects import JobObject, PodObject, Stored, WorkloadObject, altered, as_stored

from gangline import jobs
from gangline.api import admission, jobkinds
from gangline.api.admission.findings import AdmissionFacts
from gangline.api.jobkinds import appwrapper, others, ray, trainjob
from gangline.api.read import configuration
from gangline.api.read.configuration import ManagedJobs
from gangline.api.read.configuration.fields import ConfigurationError
from gangline.control.answers.workloads import unqueued
from gangline.control.feed import watched_kinds
from gangline.control.feed.mirror import Mirror
from gangline.control.kinds import job_plan
from gangline.control.kinds.steps import CreateWorkload, JobView, Note, Own, PatchJob
from gangline.install import rights
from gangline.jobs import kind_of, owners
from gangline.jobs.base import Children, Delete
from gangline.kube import resources as kube
from gangline.kube.resources import Json, Resource

QUEUE = "kueue.x-k8s.io/queue-name"
JOB_SET = ("jobset.x-k8s.io", "JobSet")
#: of a controller of its own, which brings Workloads
SANDBOX = others.kind("Sandbox.v1.agents.example.com")


@pytest.fixture(autouse=True)
def external() -> Iterator[None]:
    jobs.declare([], [SANDBOX])
    yield
    jobs.declare([])


def an_object(
    api_version: str, kind: str, name: str, owner: Stored | None = None, *, queue: bool = False, **spec: Any
) -> Any:
    meta: Json = {"name": name, "namespace": "ns", "uid": f"uid-{kind}-{name}", "resourceVersion": "1"}
    if queue:
        meta["labels"] = {QUEUE: "main"}
    if owner is not None:
        head = {"apiVersion": owner["apiVersion"], "kind": owner["kind"], "name": owner["metadata"]["name"]}
        meta["ownerReferences"] = [{**head, "uid": owner["metadata"]["uid"], "controller": True}]
    return as_stored({"apiVersion": api_version, "kind": kind, "metadata": meta, "spec": spec, "status": {}})


def a_job(name: str, owner: Stored | None = None, *, queue: bool = False) -> JobObject:
    return an_object("batch/v1", "Job", name, owner, queue=queue, parallelism=1, template=template())


def a_job_set(owner: Stored | None = None, *, queue: bool = False, name: str = "set") -> JobObject:
    row = {"name": "w", "replicas": 1, "template": {"spec": a_job("x")["spec"]}}
    return an_object("jobset.x-k8s.io/v1alpha2", "JobSet", name, owner, queue=queue, replicatedJobs=[row])


def a_wrapper(*, queue: bool = False) -> JobObject:
    inside = component("jobset.x-k8s.io/v1alpha2", "JobSet", a_job_set()["spec"])
    inside["template"]["metadata"]["name"] = "set"
    return an_object("workload.codeflare.dev/v1beta2", "AppWrapper", "wrapper", queue=queue, components=[inside])


def resource_of(obj: Stored) -> Resource:
    kind = kind_of(obj["apiVersion"], obj["kind"])
    return kind.resource if kind is not None else SANDBOX


def a_mirror(managed: ManagedJobs, *objects: Stored) -> Mirror:
    mirror = Mirror(observe=lambda change: None, managed=managed)
    for obj in objects:
        mirror.upsert(resource_of(obj), obj)
    return mirror


def workload_of(owner: Stored, *, admitted: bool) -> WorkloadObject:
    status = "True" if admitted else "False"
    made = an_object("kueue.x-k8s.io/v1beta2", "Workload", "w", owner)
    return altered(made, status={"conditions": [{"type": "Admitted", "status": status}]})


# --- Job, JobSet and AppWrapper, as Kueue's reconciler documents it ---------------------------------------------------

ALL_JOBS = ManagedJobs(without_queue=True)
NO_JOB_SETS = ManagedJobs(unlisted=frozenset({JOB_SET}))


@pytest.mark.parametrize(
    ("managed", "queued", "expected"),
    [
        (ManagedJobs(), "", None),
        (ManagedJobs(), "Job JobSet", "JobSet"),
        (ManagedJobs(), "Job AppWrapper", "AppWrapper"),
        (ManagedJobs(), "Job JobSet AppWrapper", "AppWrapper"),
        (NO_JOB_SETS, "AppWrapper", "AppWrapper"),
        (NO_JOB_SETS, "Job JobSet", None),
        (ALL_JOBS, "", "AppWrapper"),
        (ALL_JOBS, "Job JobSet", "AppWrapper"),
        (ALL_JOBS, "Job AppWrapper", "AppWrapper"),
        (ALL_JOBS, "Job JobSet AppWrapper", "AppWrapper"),
        (ManagedJobs(without_queue=True, unlisted=frozenset({JOB_SET})), "", "AppWrapper"),
    ],
)
@pytest.mark.parametrize("admitted", [False, True])
def test_the_topmost_queued_owner_counts(
    managed: ManagedJobs, queued: str, expected: str | None, admitted: bool
) -> None:
    wrapper = a_wrapper(queue="AppWrapper" in queued)
    job_set = a_job_set(wrapper, queue="JobSet" in queued)
    job = a_job("set-w-0", job_set, queue="Job " in f"{queued} ")
    mirror = a_mirror(managed, wrapper, job_set, job)
    assert mirror.managed_ancestor(job) is (expected is not None)
    if expected is not None:
        mirror.upsert(
            kube.WORKLOADS, workload_of({"JobSet": job_set, "AppWrapper": wrapper}[expected], admitted=admitted)
        )
        # a JobSet suspends its own Jobs, an AppWrapper does not suspend what it wraps
        assert mirror.waits_with_ancestor(job) is (expected == "AppWrapper" and not admitted)


@pytest.mark.parametrize(("depth", "too_deep"), [(10, False), (11, True)])
def test_a_job_with_more_than_ten_owners_above_one_another_is_left_as_it_is(depth: int, too_deep: bool) -> None:
    owner: Json | None = None
    chain: list[Json] = []
    for level in range(depth):
        owner = an_object("agents.example.com/v1", "Sandbox", f"s{level}", owner)
        chain.append(owner)
    job = a_job("deep", owner, queue=True)
    job["spec"]["suspend"] = True
    mirror = a_mirror(ManagedJobs(), *chain, job)
    assert mirror.is_nested_too_deep(job) is too_deep
    view = view_of(mirror, job)
    steps = job_plan.plan(view, mirror)
    if not too_deep:
        assert isinstance(steps[0], CreateWorkload)
        return
    message = "Terminated search for Kueue-managed Job because ancestor depth exceeded limit of 10"
    assert steps == [Note("Warning", "JobNestingTooDeep", message)]
    cause = unqueued.cause_of(mirror, kube.JOBS, job)
    assert cause is not None
    assert (cause.managed, cause.message) == (True, "it has more than 10 owners, one above the other")

    # an owner among the ten waits for quota: the job's pods would run without any
    chain[-1]["metadata"] |= {"labels": {QUEUE: "main"}, "resourceVersion": "2"}
    running = altered(job, spec={**job["spec"], "suspend": False})
    mirror = a_mirror(ManagedJobs(), *chain, running)
    held, _, note = job_plan.plan(view_of(mirror, running), mirror)
    assert isinstance(held, PatchJob)
    assert held.patch.body == {"spec": {"suspend": True}}
    assert note == steps[0]

    deleted = altered(job, metadata={**job["metadata"], "deletionTimestamp": "2026-01-01T00:00:00Z"})
    assert job_plan.plan(view_of(a_mirror(ManagedJobs(), *chain, deleted), deleted), mirror) == []


def view_of(mirror: Mirror, job: JobObject) -> JobView:
    kind = kind_of(job["apiVersion"], job["kind"])
    assert kind is not None
    return JobView(
        kind=kind,
        job=job,
        workloads=mirror.workloads_of(job),
        children=Children(),
        managed_ancestor=mirror.managed_ancestor(job),
        waits_with_ancestor=mirror.waits_with_ancestor(job),
        nested_too_deep=mirror.is_nested_too_deep(job),
    )


def test_of_a_job_in_a_namespace_that_is_not_selected_nothing_is_managed() -> None:
    managed = ManagedJobs(selector=None, unlisted=frozenset({("workload.codeflare.dev", "AppWrapper")}))
    wrapper = a_wrapper(queue=True)
    assert not a_mirror(managed, wrapper).managed_ancestor(a_job_set(wrapper))


# --- a TrainJob, its JobSet and its Jobs ------------------------------------------------------------------------------


def test_a_train_job_its_job_set_and_its_jobs() -> None:
    train = an_object("trainer.kubeflow.org/v1alpha1", "TrainJob", "tune", queue=True, runtimeRef={"name": "torch"})
    job_set = a_job_set(train, name="tune", queue=True)  # a runtime may put the queue's label on it
    job = a_job("tune-w-0", job_set)
    mirror = a_mirror(ManagedJobs(), train, job_set, job)
    for child in (job_set, job):
        assert mirror.managed_ancestor(child)
        assert not mirror.waits_with_ancestor(child)  # the trainer suspends them with their TrainJob
    assert not mirror.managed_ancestor(a_job_set(train, name="forged"))
    assert trainjob.TRAIN_JOB.holds_children


def test_a_ray_job_its_cluster_and_the_job_of_the_cluster() -> None:
    ray_job = an_object("ray.io/v1", "RayJob", "r", queue=True)
    ray_job["status"] = {"rayClusterName": "r-abcde"}
    cluster = an_object("ray.io/v1", "RayCluster", "r-abcde", ray_job, queue=True)
    cleanup = a_job("r-abcde-redis-cleanup", cluster)
    mirror = a_mirror(ManagedJobs(), ray_job, cluster, cleanup)
    for child in (cluster, cleanup):
        assert mirror.managed_ancestor(child)
        assert mirror.waits_with_ancestor(child)
    mirror.upsert(kube.WORKLOADS, workload_of(ray_job, admitted=True))
    assert not mirror.waits_with_ancestor(cleanup)


def test_a_ray_cluster_that_was_made_while_its_service_was_held_is_made_anew() -> None:
    """KubeRay passes `suspend` on only when it creates the cluster."""
    service = an_object("ray.io/v1", "RayService", "s", queue=True, rayClusterConfig={"suspend": True})
    service["status"] = {"pendingServiceStatus": {"rayClusterName": "s-abcde"}}
    cluster = an_object("ray.io/v1", "RayCluster", "s-abcde", service, suspend=True)
    cluster["status"] = {"state": "suspended"}
    mirror = a_mirror(ManagedJobs(), service, cluster)
    assert not mirror.made_while_held(cluster)
    mirror.upsert(kube.WORKLOADS, workload_of(service, admitted=True))
    assert not mirror.made_while_held(cluster)
    assert mirror.waits_with_ancestor(cluster)  # while the service stops, though its Workload is still admitted
    changed = mirror.changes.jobs.subscribe(worth=lambda ref: True)
    meta = {**service["metadata"], "resourceVersion": "2"}
    running = altered(service, metadata=meta, spec={"rayClusterConfig": {"suspend": False}})
    mirror.upsert(ray.RAY_SERVICE.resource, running)
    assert (ray.RAY_CLUSTER.resource, "ns/s-abcde") in changed.take()
    assert mirror.made_while_held(cluster)
    assert not mirror.made_while_held(service)
    assert not mirror.waits_with_ancestor(cluster)

    kind = kind_of("ray.io/v1", "RayCluster")
    assert kind is not None
    view = JobView(
        kind=kind, job=cluster, workloads=[], children=Children(), managed_ancestor=True, made_while_held=True
    )
    meta = cluster["metadata"]
    gone = Own(Delete(ray.RAY_CLUSTER.resource, "ns", "s-abcde", meta["uid"], "Background"))
    assert job_plan.plan(view, mirror) == [gone]
    for other in (
        altered(cluster, spec={"suspend": False}),  # it runs
        altered(cluster, status={"state": "ready"}),  # its pods still run
        altered(cluster, metadata={**meta, "deletionTimestamp": "2026-01-01T00:00:00Z"}),
    ):
        assert job_plan.plan(replace(view, job=other), mirror) == []
    assert job_plan.plan(replace(view, made_while_held=False), mirror) == []

    meta = {**service["metadata"], "resourceVersion": "3"}
    mirror.upsert(ray.RAY_SERVICE.resource, altered(running, metadata=meta, status={}))  # it names no such cluster
    assert not mirror.made_while_held(cluster)


def test_a_ray_service_runs_as_long_as_its_clusters() -> None:
    """What KubeRay says of a suspended one stays as it was."""
    service = an_object("ray.io/v1", "RayService", "s", queue=True, rayClusterConfig={"suspend": True})
    service["status"] = {"conditions": [{"type": "Ready", "status": "True"}]}
    kind = kind_of("ray.io/v1", "RayService")
    assert kind is not None
    clusters = [an_object("ray.io/v1", "RayCluster", name, service) for name in ("s-active", "s-pending")]
    clusters[0]["status"] = {"state": "ready"}
    assert kind.is_active(service, Children())
    assert kind.is_active(service, Children(jobs=clusters))
    clusters[0]["status"] = {"state": "suspended"}
    assert kind.is_active(service, Children(jobs=clusters))  # they are not held
    clusters = [altered(each, spec={"suspend": True}) for each in clusters]
    assert not kind.is_active(service, Children(jobs=clusters))


# --- owners with controllers of their own -----------------------------------------------------------------------------


def test_a_job_of_an_external_owner_waits_for_the_workload_of_that_owner() -> None:
    sandbox = an_object("agents.example.com/v1", "Sandbox", "box", queue=True)
    job = a_job("any", sandbox, queue=True)
    mirror = a_mirror(ManagedJobs(), job)
    assert mirror.managed_ancestor(job)  # its owner is not known yet
    assert not mirror.waits_with_ancestor(job)
    changed = mirror.changes.jobs.subscribe(worth=lambda ref: True)
    mirror.upsert(SANDBOX, sandbox)
    assert changed.take() == {(kube.JOBS, "ns/any")}
    assert mirror.managed_ancestor(job)
    assert mirror.waits_with_ancestor(job)
    mirror.upsert(kube.WORKLOADS, workload_of(sandbox, admitted=True))
    assert not mirror.waits_with_ancestor(job)
    assert mirror.job_of(workload_of(sandbox, admitted=True)) is None  # it is decided, and nothing is started
    mirror.remove(SANDBOX, "ns/box")
    assert mirror.managed_ancestor(job)  # Kubernetes is about to delete it


def test_an_external_owner_without_a_queue_leaves_its_jobs_to_theirs() -> None:
    sandbox = an_object("agents.example.com/v1", "Sandbox", "box")
    job = a_job("any", sandbox, queue=True)
    assert not a_mirror(ManagedJobs(), sandbox, job).managed_ancestor(job)
    assert a_mirror(ALL_JOBS, sandbox, job).managed_ancestor(job)
    in_other_namespace = altered(
        sandbox, metadata={**sandbox["metadata"], "namespace": "other", "labels": {QUEUE: "main"}}
    )
    assert not a_mirror(ManagedJobs(), in_other_namespace).owner_of(job)


def test_an_external_owner_between_two_others() -> None:
    inside = component("agents.example.com/v1", "Sandbox", {})
    inside["template"]["metadata"]["name"] = "box"
    wrapper = an_object("workload.codeflare.dev/v1beta2", "AppWrapper", "wrapper", queue=True, components=[inside])
    sandbox = an_object("agents.example.com/v1", "Sandbox", "box", wrapper)
    job = a_job("any", sandbox)
    mirror = a_mirror(ManagedJobs(), wrapper, sandbox, job)
    mirror.upsert(kube.WORKLOADS, workload_of(wrapper, admitted=True))
    assert mirror.managed_ancestor(job)
    assert not mirror.waits_with_ancestor(job)
    assert appwrapper.APP_WRAPPER.identity in {each.identity for each in jobkinds.known()}


def test_the_child_of_an_external_owner_is_not_held_at_birth() -> None:
    sandbox = an_object("agents.example.com/v1", "Sandbox", "box", queue=True)
    asked: list[Json] = []

    def owned(namespace: str, reference: Json, child: Json) -> bool:
        asked.append(reference)
        return True

    job = a_job("any", sandbox, queue=True)
    assert admission.default(job, None, AdmissionFacts(owner_is_queued=owned)).obj == job
    assert asked
    jobs.declare([])
    assert admission.default(job, None, AdmissionFacts(owner_is_queued=owned)).obj["spec"]["suspend"] is True


def test_external_kinds_are_read_from_the_configuration_watched_and_granted() -> None:
    listed = ["Sandbox.v1.agents.example.com", "Policy.v1beta1.example.com", "Job.v1.batch"]
    chosen = configuration.load({"integrations": {"externalFrameworks": listed}}).jobs.external
    assert [each.plural for each in chosen] == ["sandboxs", "policies"]  # as Kubernetes guesses them
    assert SANDBOX in watched_kinds.resources()
    assert SANDBOX in watched_kinds.optional()
    made = rights.manifests(external=chosen)
    rules = {row["metadata"]["name"]: row["rules"] for row in made if row["kind"] == "ClusterRole"}
    [rule] = [rule for rule in rules["gangline-operator-external"] if rule["apiGroups"] == ["agents.example.com"]]
    assert (rule["resources"], rule["verbs"]) == (["sandboxs"], ["get", "list", "watch"])
    assert rules["gangline-webhooks-external"][0]["verbs"] == ["get"]


@pytest.mark.parametrize(
    "name", ["Sandbox", "Sandbox.v1", "sandbox..example.com", "Sandbox.v1.example_com", "A.v1." + "a" * 400, ""]
)
def test_an_external_kind_of_the_wrong_form_names_its_field(name: str) -> None:
    with pytest.raises(ConfigurationError, match=r"^integrations\.externalFrameworks\[0\]: "):
        configuration.load({"integrations": {"externalFrameworks": [name]}})
    with pytest.raises(ConfigurationError, match="at most 64 kinds"):
        configuration.load({"integrations": {"externalFrameworks": [f"K{i}.v1.example.com" for i in range(65)]}})


# --- the pods of a job ------------------------------------------------------------------------------------------------


def a_pod(name: str, **labels: str) -> PodObject:
    return PodObject({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name, "labels": labels}})


TRAINING = {"metadata": {"name": "t"}, "spec": {"pytorchReplicaSpecs": {"Master": {}, "Worker": {"replicas": 2}}}}
CLUSTER = {"metadata": {"name": "c"}, "spec": {"workerGroupSpecs": [{"groupName": "gpu"}]}}


@pytest.mark.parametrize(
    ("owner", "pod", "made"),
    [
        ({"apiVersion": "kubeflow.org/v1", "kind": "PyTorchJob", **TRAINING}, a_pod("t-master-0"), True),
        ({"apiVersion": "kubeflow.org/v1", "kind": "PyTorchJob", **TRAINING}, a_pod("t-worker-1"), True),
        ({"apiVersion": "kubeflow.org/v1", "kind": "PyTorchJob", **TRAINING}, a_pod("t-worker-2"), False),
        ({"apiVersion": "kubeflow.org/v1", "kind": "PyTorchJob", **TRAINING}, a_pod("t-worker-x"), False),
        ({"apiVersion": "kubeflow.org/v1", "kind": "PyTorchJob", **TRAINING}, a_pod("t-worker-" + "0" * 99), False),
        ({"apiVersion": "kubeflow.org/v1", "kind": "PyTorchJob", **TRAINING}, a_pod("other"), False),
        (
            {"apiVersion": "ray.io/v1", "kind": "RayCluster", **CLUSTER},
            a_pod("c-gpu-x7k2p", **{"ray.io/cluster": "c", "ray.io/group": "gpu"}),
            True,
        ),
        (
            {"apiVersion": "ray.io/v1", "kind": "RayCluster", **CLUSTER},
            a_pod("c-head-x7k2p", **{"ray.io/cluster": "c", "ray.io/group": "headgroup"}),
            True,
        ),
        (
            {"apiVersion": "ray.io/v1", "kind": "RayCluster", **CLUSTER},
            a_pod("c-x", **{"ray.io/cluster": "c", "ray.io/group": "other"}),
            False,
        ),
        ({"apiVersion": "ray.io/v1", "kind": "RayCluster", **CLUSTER}, a_pod("c-x"), False),
    ],
)
def test_a_pod_has_to_be_one_that_its_owner_makes(owner: Json, pod: PodObject, made: bool) -> None:
    assert owners.creates(JobObject(owner), pod) is made
