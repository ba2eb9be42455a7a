"""One job of each kind that is only declared, as its user writes it, and the statuses that its controller gives it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from tests.objects import JobObject

from gangline.api.jobkinds import declaration_of, spark, trainjob
from gangline.api.jobkinds.declaration import at, put
from gangline.api.read.configuration import declared_kinds

Json = dict[str, Any]


def template(name: str = "main", **spec: Any) -> Json:
    container = {"name": name, "image": "train:1", "resources": {"requests": {"cpu": "1"}, "limits": {"gpu": "8"}}}
    return {
        "metadata": {"labels": {"app": "x"}},
        "spec": {"containers": [container], "nodeSelector": {"disk": "ssd"}, **spec},
    }


def job(api_version: str, kind: str, spec: Json, **metadata: Any) -> JobObject:
    labels = {"kueue.x-k8s.io/queue-name": "main"}
    meta = {"name": "mine", "namespace": "default", "uid": "u1", "labels": labels, **metadata}
    return JobObject({"apiVersion": api_version, "kind": kind, "metadata": meta, "spec": spec, "status": {}})


def in_templates(obj: Json) -> dict[str, Json]:
    """Pod set -> what an admission added to its pods, of a kind with pod templates."""
    found: dict[str, Json] = {}
    declaration = declaration_of(obj["apiVersion"].rpartition("/")[0], obj["kind"])
    assert declaration is not None
    assert declaration.behaviour is not None
    for place in declaration.behaviour.places(obj):
        written = at(obj, place.path)
        found[place.name] = {**written["spec"], **written["metadata"]}
    return found


def more_replicas(obj: Json) -> None:
    """Some pod set has 50 replicas."""
    declaration = declaration_of(obj["apiVersion"].rpartition("/")[0], obj["kind"])
    assert declaration is not None
    assert declaration.behaviour is not None
    places = declaration.behaviour.places(obj)
    place = places[1 if len(places) > 1 else 0]
    put(obj, (*place.path[:-1], "size" if "helpers" in place.path else "replicas"), 50)


@dataclass(frozen=True)
class Case:
    job: JobObject
    #: pod set -> pods
    counts: dict[str, int]
    #: statuses: all pods ready, running but not ready, suspended with no pods, ended
    ready: Json
    busy: Json
    rest: Json
    succeeded: Json | None
    failed: Json | None
    #: what a user may get wrong: (path of the change, value, path that the error names)
    wrong: tuple[tuple[tuple[str | int, ...], Any, str], ...] = ()
    #: pod set -> what an admission added to its pods
    injected: Callable[[Json], dict[str, Json]] = in_templates
    #: a change by which the job gets more pods; None: its shape is fixed
    grow: Callable[[Json], None] | None = more_replicas
    #: what its end says
    finish: str = "done"
    #: the object that describes its pods
    description: Json | None = None

    @property
    def name(self) -> str:
        return str(self.job["kind"])


def conditions(kind: str, message: str = "", status: str = "True") -> Json:
    """One condition, with all that the kinds' own schemas ask of it."""
    row = {"type": kind, "status": status, "reason": "Told", "message": message}
    return {"conditions": [{**row, "lastTransitionTime": "2026-01-01T00:00:00Z"}]}


def kubeflow(kind: str, written: str, *types: str, version: str = "v1") -> Case:
    replicas = {
        name: {"replicas": i + 1, "restartPolicy": "Never", "template": template()} for i, name in enumerate(types)
    }
    return Case(
        job=job(f"kubeflow.org/{version}", kind, {written: replicas, "runPolicy": {"cleanPodPolicy": "Running"}}),
        counts={name.lower(): i + 1 for i, name in enumerate(types)},
        ready={**conditions("Running"), "replicaStatuses": {types[-1]: {"active": 1}}},
        busy={"replicaStatuses": {types[-1]: {"active": 1}}},
        rest={"replicaStatuses": {types[-1]: {}}},
        succeeded=conditions("Succeeded", "done"),
        failed=conditions("Failed", "lost"),
        wrong=(
            (("spec", written, types[0], "replicas"), -1, f"spec.{written}[{types[0]}].replicas"),
            (("spec", written, types[0], "replicas"), "2", f"spec.{written}[{types[0]}].replicas"),
            (("spec", written, types[0], "template"), None, f"spec.{written}[{types[0]}].template"),
            (("spec", written, "Boss"), {"template": template()}, f"spec.{written}[Boss]"),
        ),
    )


def cluster_spec(**more: Any) -> Json:
    return {
        "headGroupSpec": {"rayStartParams": {}, "template": template("head")},
        "workerGroupSpecs": [
            {"groupName": "Small", "replicas": 3, "minReplicas": 0, "maxReplicas": 9, "template": template()},
            {"groupName": "slice", "replicas": 2, "numOfHosts": 4, "template": template()},
        ],
        **more,
    }


CLUSTER = {"head": 1, "small": 3, "slice": 8}


def cluster_faults(at: tuple[str, ...]) -> tuple[tuple[tuple[str | int, ...], Any, str], ...]:
    where = ".".join(at)
    groups = [{"groupName": f"g{i}", "template": template()} for i in range(18)]
    return (
        ((*at, "workerGroupSpecs", 0, "groupName"), "head", f"{where}.workerGroupSpecs[0].groupName"),
        ((*at, "workerGroupSpecs", 1, "replicas"), -3, f"{where}.workerGroupSpecs[1].replicas"),
        ((*at, "enableInTreeAutoscaling"), True, f"{where}.enableInTreeAutoscaling"),
        ((*at, "headGroupSpec", "template"), {}, f"{where}.headGroupSpec.template.spec"),
        (
            (*at, "workerGroupSpecs"),
            groups,
            f"{where}.workerGroupSpecs",
        ),
    )


def in_patch(obj: Json) -> dict[str, Json]:
    [own] = [row for row in obj["spec"]["runtimePatches"] if row["manager"] == trainjob.MANAGER]
    rows = own["trainingRuntimeSpec"]["template"]["spec"]["replicatedJobs"]
    pods = {row["name"]: row["template"]["spec"]["template"] for row in rows}
    return {name: {**written["spec"], **written["metadata"]} for name, written in pods.items()}


def beside_components(obj: Json) -> dict[str, Json]:
    rows = [info for row in obj["spec"]["components"] for info in row.get("podSetInfos") or ()]
    return {f"{obj['metadata']['name']}-{i}": row for i, row in enumerate(rows)}


def in_roles(obj: Json) -> dict[str, Json]:
    found = {role: obj["spec"][role] for role in (spark.DRIVER, spark.EXECUTOR)}
    return {role: {**body, **(at(body, ("template", "spec")) or {})} for role, body in found.items()}


def replicated(name: str, step: str = "", **spec: Any) -> Json:
    labels = {"trainer.kubeflow.org/trainjob-ancestor-step": step} if step else {}
    pods = template("node" if step == "trainer" else step or "main")
    return {"name": name, "template": {"metadata": {"labels": labels}, "spec": {"template": pods}}, **spec}


def runtime(name: str = "torch", *rows: Json, namespace: str = "", **policy: Any) -> Json:
    jobs = rows or (replicated("dataset-initializer", "dataset-initializer"), replicated("node", "trainer"))
    meta = {"name": name, "uid": f"runtime-{name}", **({"namespace": namespace} if namespace else {})}
    return {
        "apiVersion": "trainer.kubeflow.org/v1alpha1",
        "kind": "TrainingRuntime" if namespace else "ClusterTrainingRuntime",
        "metadata": meta,
        "spec": {"mlPolicy": {"numNodes": 2, "torch": {}, **policy}, "template": {"spec": {"replicatedJobs": [*jobs]}}},
    }


def child(name: str, **given: int) -> Json:
    """What a TrainJob says of one of its Jobs: always all counts."""
    counts = dict.fromkeys(("active", "failed", "ready", "succeeded", "suspended"), 0)
    return {"name": name, **counts, **given}


TRAIN_JOB = Case(
    job=job(
        "trainer.kubeflow.org/v1alpha1",
        "TrainJob",
        {
            "runtimeRef": {"name": "torch"},
            "trainer": {"numNodes": 4, "image": "mine:2"},
            "runtimePatches": [
                {
                    "manager": "example.com/team",
                    "trainingRuntimeSpec": {
                        "template": {
                            "spec": {
                                "replicatedJobs": [
                                    {
                                        "name": "node",
                                        "template": {"spec": {"template": {"spec": {"nodeSelector": {"zone": "a"}}}}},
                                    }
                                ]
                            }
                        }
                    },
                }
            ],
        },
    ),
    counts={"dataset-initializer": 1, "node": 4},
    ready={"jobsStatus": [child("dataset-initializer", ready=1), child("node", ready=1, active=1)]},
    busy={"jobsStatus": [child("node", active=1)]},
    rest={"jobsStatus": [child("node", suspended=1)]},
    succeeded=conditions("Complete", "done"),
    failed=conditions("Failed", "lost"),
    wrong=(
        (("spec", "trainer", "numNodes"), -1, "spec.trainer.numNodes"),
        (("spec", "trainer", "numNodes"), "many", "spec.trainer.numNodes"),
    ),
    injected=in_patch,
    grow=None,
    description=runtime(),
)


def component(api_version: str, kind: str, spec: Json, **more: Any) -> Json:
    meta = {"name": f"wrapped-{kind.lower()}"}
    return {"template": {"apiVersion": api_version, "kind": kind, "metadata": meta, "spec": spec}, **more}


def more_wrapped(obj: Json) -> None:
    obj["spec"]["components"][0]["template"]["spec"]["pytorchReplicaSpecs"]["Worker"]["replicas"] = 50


APP_WRAPPER = Case(
    job=job(
        "workload.codeflare.dev/v1beta2",
        "AppWrapper",
        {
            "components": [
                component(
                    "kubeflow.org/v1",
                    "PyTorchJob",
                    {
                        "pytorchReplicaSpecs": {
                            "Master": {"template": template()},
                            "Worker": {"replicas": 2, "template": template()},
                        }
                    },
                ),
                component("v1", "Service", {"clusterIP": "None"}),
                component(
                    "example.com/v1",
                    "Thing",
                    {"parts": [{"pods": template()}]},
                    podSets=[{"replicas": 3, "path": "template.spec.parts[0].pods"}],
                ),
            ]
        },
    ),
    counts={"mine-0": 1, "mine-1": 2, "mine-2": 3},
    ready=conditions("PodsReady"),
    busy=conditions("QuotaReserved"),
    rest={"phase": "Suspended", **conditions("QuotaReserved", status="False")},
    succeeded={"phase": "Succeeded"},
    failed={"phase": "Failed"},
    wrong=(
        (("spec", "components", 2, "podSets", 0, "replicas"), -1, "spec.components[2].podSets[0].replicas"),
        (("spec", "components", 2, "podSets", 0, "path"), "spec.x", "spec.components[2].podSets[0].path"),
        (
            ("spec", "components", 2, "podSets", 0, "path"),
            "template.spec.parts[1].pods",
            "spec.components[2].podSets[0].path",
        ),
        (("spec", "components", 2, "podSets", 0, "path"), "template..", "spec.components[2].podSets[0].path"),
        (("spec", "components", 2, "podSets", 0, "path"), None, "spec.components[2].podSets[0].path"),
        (("spec", "components"), [], "spec.components"),
        (
            ("spec", "components", 0, "template", "spec", "pytorchReplicaSpecs", "Worker", "replicas"),
            "2",
            "spec.components[0].template.spec.pytorchReplicaSpecs[Worker].replicas",
        ),
    ),
    injected=beside_components,
    grow=more_wrapped,
    finish="AppWrapper finished successfully",
)


def more_executors(obj: Json) -> None:
    obj["spec"]["executor"]["instances"] = 50


SPARK = Case(
    job=job(
        "sparkoperator.k8s.io/v1beta2",
        "SparkApplication",
        {
            "type": "Python",
            "mode": "cluster",
            "sparkVersion": "3.5.3",
            "mainApplicationFile": "local:///app/x.py",
            "nodeSelector": {"disk": "ssd"},
            "driver": {"coreRequest": "100m", "memory": "512m", "labels": {"app": "x"}},
            "executor": {
                "instances": 3,
                "coreRequest": "1",
                "memory": "1g",
                "gpu": {"name": "gpu", "quantity": 8},
                "tolerations": [{"key": "spot", "operator": "Exists"}],
            },
        },
    ),
    counts={"driver": 1, "executor": 3},
    ready={
        "driverInfo": {},
        "applicationState": {"state": "RUNNING"},
        "executorState": {"1": "RUNNING", "2": "RUNNING", "3": "COMPLETED"},
    },
    busy={"driverInfo": {}, "applicationState": {"state": "SUBMITTED"}},
    rest={"driverInfo": {}, "applicationState": {"state": "SUSPENDED"}},
    succeeded={"driverInfo": {}, "applicationState": {"state": "COMPLETED", "errorMessage": "done"}},
    failed={"driverInfo": {}, "applicationState": {"state": "SUBMISSION_FAILED", "errorMessage": "lost"}},
    wrong=(
        (("spec", "mode"), "client", "spec.mode"),
        (("spec", "dynamicAllocation"), {"enabled": True}, "spec.dynamicAllocation.enabled"),
        (("spec", "executor", "instances"), -1, "spec.executor.instances"),
        (("spec", "executor", "memory"), "lots", "spec.executor.memory"),
        (("spec", "driver", "coreRequest"), "1x", "spec.driver.coreRequest"),
        (("spec", "driver"), None, "spec.driver"),
        (("spec", "executor", "gpu", "quantity"), "8", "spec.executor.gpu.quantity"),
    ),
    injected=in_roles,
    grow=more_executors,
)

CASES = (
    kubeflow("PyTorchJob", "pytorchReplicaSpecs", "Master", "Worker"),
    kubeflow("TFJob", "tfReplicaSpecs", "Chief", "PS", "Worker", "Evaluator"),
    kubeflow("XGBoostJob", "xgbReplicaSpecs", "Master", "Worker"),
    kubeflow("PaddleJob", "paddleReplicaSpecs", "Master", "Worker"),
    kubeflow("JAXJob", "jaxReplicaSpecs", "Worker"),
    kubeflow("MPIJob", "mpiReplicaSpecs", "Launcher", "Worker", version="v2beta1"),
    Case(
        job=job("ray.io/v1", "RayCluster", cluster_spec()),
        counts=CLUSTER,
        ready={"state": "ready"},
        busy={"state": "failed"},
        rest={"state": "suspended"},
        succeeded=None,
        failed=None,
        wrong=cluster_faults(("spec",)),
    ),
    Case(
        job=job("ray.io/v1", "RayService", {"serveConfigV2": "x", "rayClusterConfig": cluster_spec()}),
        counts=CLUSTER,
        ready=conditions("Ready"),
        busy=conditions("Ready"),
        rest={},
        succeeded=None,
        failed=None,
        wrong=cluster_faults(("spec", "rayClusterConfig")),
    ),
    Case(
        job=job(
            "ray.io/v1",
            "RayJob",
            {"entrypoint": "python x.py", "shutdownAfterJobFinishes": True, "rayClusterSpec": cluster_spec()},
        ),
        counts={**CLUSTER, "submitter": 1},
        ready={"jobDeploymentStatus": "Running", "rayClusterStatus": {"state": "ready"}},
        busy={"jobDeploymentStatus": "Initializing"},
        rest={"jobDeploymentStatus": "Suspended"},
        succeeded={"jobDeploymentStatus": "Complete", "jobStatus": "SUCCEEDED", "message": "done"},
        failed={"jobDeploymentStatus": "Failed", "jobStatus": "FAILED", "message": "lost"},
        wrong=(
            *cluster_faults(("spec", "rayClusterSpec")),
            (("spec", "shutdownAfterJobFinishes"), False, "spec.shutdownAfterJobFinishes"),
            (("spec", "rayClusterSpec"), None, "spec.rayClusterSpec"),
            (("spec", "clusterSelector"), {"ray.io/cluster": "a"}, "spec.clusterSelector"),
        ),
    ),
    TRAIN_JOB,
    APP_WRAPPER,
    SPARK,
)

#: a kind of these tests' own invention, declared in a configuration file only
DECLARED: Json = {
    "group": "example.com",
    "version": "v1alpha1",
    "kind": "TrainingRun",
    "active": "spec.active",
    "pods": [
        {"name": "leader", "template": "spec.leader.template"},
        {
            "each": "spec.groups",
            "name": "title",
            "template": "pods",
            "count": "replicas * hosts",
            "indexLabel": "example.com/i",
        },
        {"each": "spec.helpers", "template": "pods", "count": "2 * size.pods"},
    ],
    "ready": {"path": "status.phase", "values": ["Running"]},
    "running": {"path": "status.pods"},
    "succeeded": {"condition": "Done"},
    "failed": {"path": "status.phase", "values": ["Broken", "Lost"]},
    "priorityClass": "spec.priorityClassName",
    "immutable": ["spec.recipe"],
}
[OWN] = declared_kinds.load([DECLARED])
OWN_CASE = Case(
    job=job(
        "example.com/v1alpha1",
        "TrainingRun",
        {
            "leader": {"template": template()},
            "groups": [
                {"title": "Fast", "replicas": 2, "hosts": 3, "pods": template()},
                {"title": "slow", "pods": template()},
            ],
            "helpers": {"Cache": {"size": {"pods": 2}, "pods": template()}},
            "recipe": "a",
        },
    ),
    counts={"leader": 1, "fast": 6, "slow": 1, "cache": 4},
    ready={"phase": "Running", "pods": 12},
    busy={"phase": "Starting", "pods": 1},
    rest={"phase": "Held", "pods": 0},
    succeeded=conditions("Done", "done"),
    failed={"phase": "Lost"},
    wrong=(
        (("spec", "groups", 0, "replicas"), -1, "spec.groups[0].replicas"),
        (("spec", "groups", 0, "replicas"), 2**31, "spec.groups[0].replicas"),
        (("spec", "groups", 0, "pods"), "x", "spec.groups[0].pods"),
        (("spec", "groups", 1, "title"), None, "spec.groups[1].title"),
        (("spec", "helpers", "Cache", "size", "pods"), "many", "spec.helpers[Cache].size.pods"),
        (("spec", "leader"), None, "spec.leader.template"),
    ),
)
