"""A TrainJob is rendered from its runtime as Kubeflow's trainer does, and waits where there is none."""

from __future__ import annotations

import copy
from dataclasses import replace
from typing import Any

import pytest
from tests.jobs.foreign import TRAIN_JOB, Json, replicated, runtime, template
from tests.objects import JobObject, WorkloadObject, altered

from gangline.api import admission
from gangline.api.jobkinds.declaration import DESCRIPTION, RUNS_WITH, UNKNOWN_FIELDS, at
from gangline.api.jobkinds.trainjob import MANAGER
from gangline.api.jobkinds.trainjob import TRAIN_JOB as DECLARED
from gangline.control.feed.mirror import Mirror
from gangline.control.kinds import job_plan
from gangline.control.kinds.steps import JobView, Note
from gangline.jobs import kind_of
from gangline.jobs import workload as workloads
from gangline.jobs.base import Children, JobError, PodSetInfo
from gangline.kube import resources as kube

KIND = kind_of("trainer.kubeflow.org/v1alpha1", "TrainJob")
assert KIND is not None
kind = KIND


def train(described_by: Json | None = None, **spec: Any) -> JobObject:
    made = copy.deepcopy(TRAIN_JOB.job)
    made["spec"] = {"runtimeRef": {"name": "torch"}, "suspend": True, **spec}
    return made if described_by is None else JobObject({**made, DESCRIPTION: described_by})


def sizes(job: JobObject) -> dict[str, int]:
    return {row["name"]: row["count"] for row in kind.pod_sets(job)}


def patch(name: str, pods: Json, manager: str = "example.com/team") -> Json:
    row = {"name": name, "template": {"spec": {"template": pods}}}
    return {"manager": manager, "trainingRuntimeSpec": {"template": {"spec": {"replicatedJobs": [row]}}}}


@pytest.mark.parametrize(
    ("of", "spec", "expected"),
    [
        (runtime(), {}, {"dataset-initializer": 1, "node": 2}),
        (runtime(), {"trainer": {"numNodes": 8}}, {"dataset-initializer": 1, "node": 8}),
        (runtime(numNodes=None), {}, {"dataset-initializer": 1, "node": 1}),
        # the Jobs of a step of the training are one, however many their runtime says
        (runtime("r", replicated("node", "trainer", replicas=3)), {}, {"node": 2}),
        # others count as in a JobSet
        (runtime("r", {**replicated("ps", replicas=3)}), {"trainer": {"numNodes": 8}}, {"ps": 3}),
        # with MPI it is the job of this name that has the nodes, with or without the launcher among them
        (
            runtime("r", replicated("launcher"), replicated("node"), torch=None, mpi={}),
            {"trainer": {"numNodes": 8}},
            {"launcher": 1, "node": 8},
        ),
        (
            runtime(
                "r",
                replicated("launcher", "trainer"),
                replicated("node"),
                torch=None,
                mpi={"runLauncherAsNode": True},
                numNodes=1,
            ),
            {"trainer": {"numNodes": 8}},
            {"launcher": 1, "node": 7},
        ),
    ],
)
def test_how_many_pods_it_has(of: Json, spec: Json, expected: dict[str, int]) -> None:
    if of["spec"]["mlPolicy"].get("torch", 1) is None:
        del of["spec"]["mlPolicy"]["torch"]
    assert sizes(train(of, **spec)) == expected


def test_parallelism_counts_where_there_is_no_policy() -> None:
    row = replicated("node", "trainer")
    row["template"]["spec"]["parallelism"] = 5
    of = runtime("r", row)
    del of["spec"]["mlPolicy"]
    assert sizes(train(of)) == {"node": 5}
    assert sizes(train(of, trainer={"numNodes": 7})) == {"node": 7}


def test_image_and_resources_of_the_trainer_and_the_patches_of_the_job() -> None:
    tolerations = [{"key": "spot", "operator": "Exists"}]
    pods = {
        "metadata": {"labels": {"app": "y"}},
        "spec": {
            "nodeSelector": {"zone": "a"},
            "tolerations": tolerations,
            "containers": [{"name": "node", "env": [{"name": "A", "value": "1"}]}],
        },
    }
    trainer = {"image": "mine:2", "resourcesPerNode": {"requests": {"cpu": "4"}, "limits": {"memory": "1Gi"}}}
    job = train(runtime(), trainer=trainer, runtimePatches=[patch("node", pods), patch("node", template(), MANAGER)])
    [_, node] = kind.pod_sets(job)
    assert node["template"]["metadata"]["labels"] == {"app": "y"}
    spec = node["template"]["spec"]
    assert spec["nodeSelector"] == {"disk": "ssd", "zone": "a"}
    assert spec["tolerations"] == tolerations
    [container] = spec["containers"]
    assert container["image"] == "mine:2"
    assert container["env"] == [{"name": "A", "value": "1"}]
    assert container["resources"] == {"requests": {"cpu": "4"}, "limits": {"gpu": "8", "memory": "1Gi"}}
    assert runtime() == job[DESCRIPTION]  # which others use, too


@pytest.mark.parametrize(
    ("job", "field", "said"),
    [
        (train(), "spec.runtimeRef", "the ClusterTrainingRuntime 'torch' does not exist"),
        (
            train(runtimeRef={"name": "own", "kind": "TrainingRuntime"}),
            "spec.runtimeRef",
            "the TrainingRuntime 'default/own' does not exist",
        ),
        (train(runtimeRef={"name": "x", "kind": "Other"}), "spec.runtimeRef", "names no runtime of Kubeflow's trainer"),
        (train(runtimeRef={"name": "x", "apiGroup": "a.b"}), "spec.runtimeRef", "names no runtime"),
        (train({"spec": {}}), "spec.runtimeRef", "the ClusterTrainingRuntime 'torch' has no replicated jobs"),
        (
            train(runtime("torch", {"name": "node"})),
            "spec.runtimeRef",
            "template.spec.template: a pod template is needed",
        ),
        (
            train(runtime(), runtimePatches=[patch("other", {})]),
            "spec.runtimePatches[0].trainingRuntimeSpec.template.spec.replicatedJobs[0].name",
            "has no replicated job 'other'",
        ),
        (train(runtime(), trainer={"numNodes": -1}), "spec.runtimeRef", "spec.trainer.numNodes: must be 0 to"),
    ],
)
def test_what_is_wrong_names_its_field(job: Json, field: str, said: str) -> None:
    with pytest.raises(JobError, match=said) as caught:
        kind.pod_sets(job)
    assert caught.value.field == field


def test_a_patch_of_too_many_levels_is_refused() -> None:
    deep: Json = {}
    for _ in range(60):
        deep = {"affinity": deep}
    of = runtime()
    of["spec"]["template"]["spec"]["replicatedJobs"][1]["template"]["spec"]["template"]["spec"] |= deep
    with pytest.raises(JobError, match="has more than 24 levels"):
        kind.pod_sets(train(of, runtimePatches=[patch("node", {"spec": deep})]))


def test_succeeded_jobs_give_their_quota_back_unless_all_may_run_again() -> None:
    job = altered(train(runtime()), status={"jobsStatus": [{"name": "dataset-initializer", "succeeded": 1}]})
    assert kind.reclaimable(job) == {"dataset-initializer": 1}
    job[DESCRIPTION]["spec"]["template"]["spec"]["failurePolicy"] = {"maxRestarts": 3}
    assert kind.reclaimable(job) == {}


# --- with the mirror --------------------------------------------------------------------------------------------------


def stored(obj: Json) -> Json:
    return altered(obj, metadata={"resourceVersion": "1", **obj["metadata"]})


def test_its_patch_is_withdrawn_only_once_none_of_its_jobs_is_active() -> None:
    """The trainer refuses changes of the patches before."""
    assert KIND is not None
    own = {"manager": MANAGER, "trainingRuntimeSpec": {}}
    others = copy.deepcopy(TRAIN_JOB.job["spec"]["runtimePatches"])
    job = altered(TRAIN_JOB.job, spec={**TRAIN_JOB.job["spec"], "suspend": False, "runtimePatches": [*others, own]})
    running = altered(job, status=TRAIN_JOB.ready)
    first = KIND.stop(running, [])
    assert first is not None
    assert first.body == {"spec": {"suspend": True}}
    suspended = altered(running, spec={**running["spec"], "suspend": True})
    assert KIND.stop(suspended, []) is None
    second = KIND.stop(altered(suspended, status=TRAIN_JOB.rest), [])
    assert second is not None
    assert second.body == {"spec": {"runtimePatches": others}}


def test_a_job_is_planned_again_when_its_runtime_comes_changes_or_goes() -> None:
    mirror = Mirror(observe=lambda change: None)
    changed = mirror.changes.jobs.subscribe(worth=lambda ref: True)
    ref = (DECLARED.resource, "default/mine")
    mirror.upsert(DECLARED.resource, stored(train()))
    assert changed.take() == {ref}
    mirror.upsert(kube.CLUSTER_TRAINING_RUNTIMES, stored(runtime("other")))
    mirror.upsert(kube.TRAINING_RUNTIMES, stored(runtime("torch", namespace="default")))
    assert not changed.take()
    mirror.upsert(kube.CLUSTER_TRAINING_RUNTIMES, stored(runtime()))
    assert changed.take() == {ref}
    job = mirror.described(kind, mirror.objects[DECLARED.resource]["default/mine"], None)
    assert sizes(job) == {"dataset-initializer": 1, "node": 2}
    mirror.remove(kube.CLUSTER_TRAINING_RUNTIMES, "torch")
    assert changed.take() == {ref}


def test_a_running_job_keeps_the_pods_of_its_workload_whatever_becomes_of_its_runtime() -> None:
    mirror = Mirror(observe=lambda change: None)
    job = train(runtime())
    workload = WorkloadObject(workloads.build(kind, job, kind.pod_sets(job), queue="main", priority=0))
    waiting = altered(workload, status={})
    reserved = altered(workload, status={"conditions": [{"type": "QuotaReserved", "status": "True"}]})
    mirror.upsert(kube.CLUSTER_TRAINING_RUNTIMES, stored(runtime("torch", replicated("node", "trainer"), numNodes=64)))
    running = train()
    running["spec"]["suspend"] = False
    before, after = {"dataset-initializer": 1, "node": 2}, {"node": 64}
    assert sizes(mirror.described(kind, running, reserved)) == before
    assert workloads.equivalent(reserved, kind.pod_sets(mirror.described(kind, running, reserved)), running)
    assert sizes(mirror.described(kind, train(), waiting)) == after  # a waiting one is made anew
    assert sizes(mirror.described(kind, running, waiting)) == after  # and one that runs without quota
    mirror.remove(kube.CLUSTER_TRAINING_RUNTIMES, "torch")
    assert sizes(mirror.described(kind, train(), waiting)) == before  # the last that was known
    assert RUNS_WITH not in mirror.described(kind, train(), None)


NO_POLICY = runtime()
del NO_POLICY["spec"]["mlPolicy"]
OTHER_CONTAINER = runtime("torch", replicated("node", "trainer"))
at(OTHER_CONTAINER, ("spec", "template", "spec", "replicatedJobs", 0, "template", "spec", "template", "spec"))[
    "containers"
][0]["name"] = "train"
RESOURCES: Json = {"trainer": {"resourcesPerNode": {"limits": {"gpu": "1"}}}}
IN_VAIN = "spec.trainer.resourcesPerNode is ignored, and takes no quota: the ClusterTrainingRuntime 'torch' has no "


@pytest.mark.parametrize(
    ("of", "spec", "warnings"),
    [
        (runtime(), RESOURCES, []),
        (runtime(), {}, []),
        (OTHER_CONTAINER, {}, []),
        (OTHER_CONTAINER, RESOURCES, [IN_VAIN + 'container "node" in the pods of its trainer']),
        (NO_POLICY, RESOURCES, [IN_VAIN + "mlPolicy"]),
        (
            runtime("torch", replicated("ps")),
            {"trainer": {"numNodes": 8}},
            [
                "spec.trainer.numNodes is ignored: "
                "the ClusterTrainingRuntime 'torch' has no replicated job for the nodes of a training"
            ],
        ),
        # with MPI the launcher trains where it is a node, and so do the others
        (
            runtime("torch", replicated("node"), mpi={}),
            RESOURCES,
            [IN_VAIN + 'container "node" in the pods of its trainer'],
        ),
        # the job's own patch may add the container
        (OTHER_CONTAINER, {**RESOURCES, "runtimePatches": [patch("node", template("node"))]}, []),
        # other faults are errors
        (OTHER_CONTAINER, {**RESOURCES, "runtimePatches": [patch("other", {})]}, []),
    ],
)
def test_fields_of_the_trainer_for_which_its_runtime_has_no_place_are_told(
    of: Json, spec: Json, warnings: list[str]
) -> None:
    context = admission.AdmissionFacts(look=lambda reference: of)
    job = admission.default(train(**spec), None, context)
    assert list(job.warnings) == warnings
    assert not admission.default(job.obj, job.obj, context).warnings, "one warning"
    assert not admission.default(train(**spec), None, admission.AdmissionFacts()).warnings, "its runtime may come later"
    if warnings:
        queued = train(of, **spec)
        assert {row["name"]: row for row in kind.pod_sets(queued)} == {
            row["name"]: row
            for row in kind.pod_sets(train(of, **{name: value for name, value in spec.items() if name != "trainer"}))
        }, "it is as if the field were not there"
        view = JobView(kind=kind, job=queued, workloads=[], children=Children())
        notes = [step for step in job_plan.plan(view, Mirror(observe=lambda change: None)) if isinstance(step, Note)]
        assert [(note.kind, note.message) for note in notes if note.reason == "FieldIgnored"] == [
            ("Warning", warnings[0])
        ]


# --- admission --------------------------------------------------------------------------------------------------------


def admitted(name: str, **more: Any) -> PodSetInfo:
    labels = {"kueue.x-k8s.io/podset": name}
    return PodSetInfo(name, 1, labels=labels, node_selector={"pool": "a"}, **more)


FLAVOR: Json = {"key": "pool.example.com/gpu", "operator": "Equal", "value": "true", "effect": "NoSchedule"}
RUNTIMES: Json = {"key": "user.example.com/dedicated", "operator": "Equal", "value": "training", "effect": "NoSchedule"}


def test_its_patch_has_the_tolerations_of_its_runtime_too_since_they_replace_those() -> None:
    of = runtime("torch", replicated("node", "trainer"))
    at(of, ("spec", "template", "spec", "replicatedJobs", 0, "template", "spec", "template", "spec"))["tolerations"] = [
        RUNTIMES
    ]
    first = kind.start(train(of), [admitted("node", tolerations=[FLAVOR])])
    assert first is not None
    assert "suspend" not in first.body["spec"], "the trainer refuses both in one write"
    [own] = first.body["spec"]["runtimePatches"]
    [row] = own["trainingRuntimeSpec"]["template"]["spec"]["replicatedJobs"]
    pods = row["template"]["spec"]["template"]["spec"]
    assert pods["tolerations"] == [RUNTIMES, FLAVOR]
    assert pods["nodeSelector"] == {"pool": "a"}

    mine = patch("node", {"spec": {"tolerations": [{"key": "mine", "operator": "Exists"}]}})
    theirs = kind.start(train(of, runtimePatches=[mine]), [admitted("node", tolerations=[FLAVOR])])
    assert theirs is not None
    *_, own = theirs.body["spec"]["runtimePatches"]
    [row] = own["trainingRuntimeSpec"]["template"]["spec"]["replicatedJobs"]
    wanted = [{"key": "mine", "operator": "Exists"}, FLAVOR]
    assert row["template"]["spec"]["template"]["spec"]["tolerations"] == wanted

    silent = kind.start(train(of), [admitted("node")])
    assert silent is not None
    [own] = silent.body["spec"]["runtimePatches"]
    [row] = own["trainingRuntimeSpec"]["template"]["spec"]["replicatedJobs"]
    assert "tolerations" not in row["template"]["spec"]["template"]["spec"], "the runtime's own stay"


def override(name: str, **pods: Any) -> Json:
    return {"targetJobs": [{"name": name}], **pods}


def test_overrides_of_older_trainers_are_read_written_and_withdrawn() -> None:
    of = runtime("torch", replicated("node", "trainer"))
    mine = override("node", spec={"nodeSelector": {"pool": "other"}}, metadata={"labels": {"a": "b"}})
    kueues = override("node", spec={"nodeSelector": {"x": "y"}}, metadata={"labels": {"kueue.x-k8s.io/podset": "node"}})
    written = train(of, podTemplateOverrides=[mine, kueues])
    job = altered(written, **{UNKNOWN_FIELDS: {"spec.runtimePatches"}})
    [row] = kind.pod_sets(job)
    assert row["template"]["spec"]["nodeSelector"] == {"disk": "ssd", "pool": "other"}
    assert row["template"]["metadata"]["labels"] == {"app": "x", "a": "b"}
    with pytest.raises(JobError) as refused:
        kind.pod_sets(train(of, podTemplateOverrides=[override("nobody")]))
    assert refused.value.field == "spec.podTemplateOverrides[0].targetJobs[0].name"

    info = replace(admitted("node"), node_selector={"zone": "a"})
    first = kind.start(job, [info])
    assert first is not None
    written = override(
        "node", metadata={"labels": {"kueue.x-k8s.io/podset": "node"}}, spec={"nodeSelector": {"zone": "a"}}
    )
    assert first.body == {"spec": {"podTemplateOverrides": [mine, written]}}
    ready = altered(job, spec={**job["spec"], **first.body["spec"]})
    second = kind.start(ready, [info])
    assert second is not None
    assert second.body == {"spec": {"suspend": False}}
    withdrawn = kind.stop(ready, [row])
    assert withdrawn is not None
    assert withdrawn.body == {"spec": {"podTemplateOverrides": [mine]}}
