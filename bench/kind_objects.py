"""A gang of each job kind as its user writes it, with the statuses by which its controller tells of its life.

The controllers themselves are not there: `bench.kinds` writes these statuses in their place.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from bench.objects import CLASS_LABEL, LOCAL_QUEUE
from bench.parameters import WorkloadClass
from gangline.api import jobkinds, names
from gangline.api.jobkinds import Declaration
from gangline.kube import resources as kube
from gangline.kube.resources import Json, Resource


@dataclass(frozen=True, slots=True)
class Gang:
    """One kind: `spec` of a gang with `pods` pods, and the statuses while all pods run, and at the end (None: it has none)."""

    declaration: Declaration
    spec: Json
    running: Json
    ended: Json | None

    @property
    def resource(self) -> Resource:
        return self.declaration.resource

    def build(self, kind: WorkloadClass, namespace: str, number: int) -> Json:
        labels = {names.QUEUE_NAME: LOCAL_QUEUE, CLASS_LABEL: kind.name}
        meta = {"name": f"{self.resource.kind.lower()}-{number}", "namespace": namespace, "labels": labels}
        return {
            "apiVersion": self.resource.api_version,
            "kind": self.resource.kind,
            "metadata": meta,
            "spec": self.spec,
        }


def gangs(pods: int) -> list[Gang]:
    """One of each kind with a suspend field; GPUJobs are Jobs."""
    return [*_kubeflow(pods), *_ray(pods), *_others(pods), _job(pods)]


def descriptions() -> list[Json]:
    """Objects that describe the pods of some of the gangs."""
    labels = {"trainer.kubeflow.org/trainjob-ancestor-step": "trainer"}
    row = {"name": "node", "template": {"metadata": {"labels": labels}, "spec": {"template": _template("node")}}}
    runtime = kube.CLUSTER_TRAINING_RUNTIMES
    spec = {"mlPolicy": {"numNodes": 1}, "template": {"spec": {"replicatedJobs": [row]}}}
    return [{"apiVersion": runtime.api_version, "kind": runtime.kind, "metadata": {"name": "bench"}, "spec": spec}]


def crds() -> list[Json]:
    """CRDs of these kinds, without a schema."""
    kinds = [each.declaration for each in gangs(1) if each.resource != kube.JOBS]
    return [_crd(each) for each in (*(each.resource for each in kinds), *_described(kinds))]


def _described(kinds: list[Declaration]) -> list[Resource]:
    return [resource for each in kinds for resource in each.descriptions]


def _crd(resource: Resource) -> Json:
    schema = {"openAPIV3Schema": {"type": "object", "x-kubernetes-preserve-unknown-fields": True}}
    version = {"name": resource.version, "served": True, "storage": True, "schema": schema}
    approved = {"api-approved.kubernetes.io": "unapproved, of a benchmark"}  # wanted in groups below k8s.io
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": f"{resource.plural}.{resource.group}", "annotations": approved},
        "spec": {
            "group": resource.group,
            "scope": "Namespaced" if resource.namespaced else "Cluster",
            "names": {"plural": resource.plural, "singular": resource.kind.lower(), "kind": resource.kind},
            "versions": [{**version, "subresources": {"status": {}}}],
        },
    }


# --- the kinds --------------------------------------------------------------------------------------------------------


def _declared(kind: str) -> Declaration:
    return next(each for each in jobkinds.BUILT_IN if each.kind == kind)


def _template(name: str = "main") -> Json:
    resources = {"requests": {"cpu": "1"}}
    container = {"name": name, "image": "example.com/train", "resources": resources}
    return {"spec": {"containers": [container], "restartPolicy": "Never"}}


def _true(condition: str) -> Json:
    return {"conditions": [{"type": condition, "status": "True"}]}


#: kind -> the field with its replicas, and the types of which it has some
_KUBEFLOW: Final = {
    "PyTorchJob": ("pytorchReplicaSpecs", "Master", "Worker"),
    "TFJob": ("tfReplicaSpecs", "Chief", "Worker"),
    "XGBoostJob": ("xgbReplicaSpecs", "Master", "Worker"),
    "PaddleJob": ("paddleReplicaSpecs", "Master", "Worker"),
    "JAXJob": ("jaxReplicaSpecs", "Worker"),
    "MPIJob": ("mpiReplicaSpecs", "Launcher", "Worker"),
}


def _kubeflow(pods: int) -> list[Gang]:
    found: list[Gang] = []
    for kind, (field, *types) in _KUBEFLOW.items():
        sizes = dict.fromkeys(types[:-1], 1) | {types[-1]: max(1, pods + 1 - len(types))}
        replicas = {name: {"replicas": size, "template": _template()} for name, size in sizes.items()}
        running = {**_true("Running"), "replicaStatuses": {name: {"active": size} for name, size in sizes.items()}}
        found.append(Gang(_declared(kind), {field: replicas}, running, _true("Succeeded")))
    return found


def _ray(pods: int) -> list[Gang]:
    group = {"groupName": "workers", "replicas": max(1, pods - 1), "template": _template()}
    cluster = {"headGroupSpec": {"template": _template("head")}, "workerGroupSpecs": [group]}
    job = {"submissionMode": "HTTPMode", "shutdownAfterJobFinishes": True, "rayClusterSpec": cluster}
    runs = {"jobDeploymentStatus": "Running", "rayClusterStatus": {"state": "ready"}}
    ended = {"jobDeploymentStatus": "Complete", "jobStatus": "SUCCEEDED"}
    return [
        Gang(_declared("RayJob"), job, runs, ended),
        Gang(_declared("RayCluster"), cluster, {"state": "ready"}, None),
        Gang(_declared("RayService"), {"rayClusterConfig": cluster}, _true("Ready"), None),
    ]


def _job(pods: int) -> Gang:
    """Kubernetes' own controller leaves it to another one, and its API wants the whole status."""
    started, over = "2026-01-01T00:00:00Z", "2026-01-01T01:00:00Z"
    condition_fields = {
        "status": "True",
        "reason": "Told",
        "message": "done",
        "lastProbeTime": over,
        "lastTransitionTime": over,
    }
    rows = [{"type": condition, **condition_fields} for condition in ("SuccessCriteriaMet", "Complete")]
    ended = {"completionTime": over, "active": 0, "ready": 0, "succeeded": pods, "conditions": rows}
    spec = {"parallelism": pods, "completions": pods, "managedBy": "example.com/bench", "template": _template()}
    return Gang(_declared("Job"), spec, {"startTime": started, "active": pods, "ready": pods}, ended)


def _others(pods: int) -> list[Gang]:
    row = {"name": "workers", "template": {"spec": {"parallelism": pods, "completions": pods, "template": _template()}}}
    wrapped = {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {"name": "wrapped"},
        "spec": row["template"]["spec"],
    }
    executor = {"coreRequest": "1", "instances": max(1, pods - 1)}
    spark = {"mode": "cluster", "type": "Python", "driver": {"coreRequest": "1"}, "executor": executor}
    started = {str(i): "RUNNING" for i in range(max(1, pods - 1))}
    return [
        Gang(
            _declared("TrainJob"),
            {"runtimeRef": {"name": "bench"}, "trainer": {"numNodes": pods}},
            {"jobsStatus": [{"name": "node", "ready": 1, "active": 1}]},
            _true("Complete"),
        ),
        Gang(
            _declared("AppWrapper"),
            {"components": [{"template": wrapped}]},
            _true("PodsReady"),
            {"phase": "Succeeded"},
        ),
        Gang(
            _declared("SparkApplication"),
            spark,
            {"applicationState": {"state": "RUNNING"}, "executorState": started},
            {"applicationState": {"state": "COMPLETED"}},
        ),
        Gang(
            _declared("JobSet"),
            {"replicatedJobs": [row]},
            {"replicatedJobsStatus": [{"name": "workers", "ready": 1, "active": 1}]},
            _true("Completed"),
        ),
    ]
