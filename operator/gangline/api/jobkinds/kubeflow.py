"""kubeflow.org: the five kinds of the training operator (v1), and MPIJob (v2beta1).

Each has a map from the type of a replica to its number and its pod template; each type is a pod set, in a fixed order.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from gangline.api import names
from gangline.api.jobkinds.declaration import (
    Behaviour,
    Declaration,
    JobError,
    Json,
    Key,
    NoPodsError,
    Path,
    PodSetPlace,
    Suspension,
    Words,
    at,
    condition,
    ended_by_conditions,
    labelled,
    mapping_at,
    number_at,
    put,
    shown,
    template_at,
    without_condition,
)
from gangline.kube.resources import Resource

GROUP: Final = "kubeflow.org"
INDEX_LABEL: Final = "training.kubeflow.org/replica-index"
_POLICY: Final = ("spec", "runPolicy")
_MPI: Final = "mpiReplicaSpecs"
#: digits of the index of a pod
_LONGEST_INDEX: Final = 9
_NOTES: Final = ("metadata", "annotations")
_HELD: Final = Suspension((*_POLICY, "suspend"))


def _places(kind: str, field: str, types: tuple[str, ...]) -> Callable[[Json], list[PodSetPlace]]:
    def places(job: Json) -> list[PodSetPlace]:
        path: Path = ("spec", field)
        written = mapping_at(job, path)
        for name in written:
            if name not in types:
                raise JobError(
                    f"a {kind} has no replicas of this type, only {', '.join(types)}", shown((*path, Key(name)))
                )
        found = [_place(job, (*path, Key(name)), name) for name in types if written.get(name) is not None]
        if not found:
            raise NoPodsError("at least one type of replicas is needed", shown(path))
        return found

    return places


def _place(job: Json, path: Path, name: str) -> PodSetPlace:
    template = (*path, "template")
    return PodSetPlace(
        name=name.lower(),
        count=number_at(job, (*path, "replicas"), 1),
        path=template,
        counted=template_at(job, template),
        index_label=INDEX_LABEL,
    )


def _active(job: Json) -> bool:
    return any(row.get("active") for row in map(_fields, mapping_at(job, ("status", "replicaStatuses")).values()))


def _idle(job: Json) -> Json:
    """Older CRDs require both fields."""
    rows = mapping_at(job, ("status", "replicaStatuses"))
    replicas = {name: {**_fields(row), "active": 0} for name, row in rows.items()}
    return {**without_condition(mapping_at(job, ("status",)), "Running"), "replicaStatuses": replicas}


def _fields(value: object) -> Json:
    return mapping_at({"at": value}, ("at",))


def _declared(kind: str, field: str, *types: str, version: str = "v1", shipped: bool = False) -> Declaration:
    return Declaration(
        resource=Resource(GROUP, version, f"{kind.lower()}s", kind=kind),
        framework=f"{GROUP}/{kind.lower()}",
        suspension=_HELD,
        behaviour=Behaviour(
            places=_places(kind, field, types),
            finished=ended_by_conditions("Succeeded", "Failed"),
            ready=condition("Running"),
            active=_active,
            idle=_idle,
        ),
        shipped=shipped,
        priority_class=(*_POLICY, "schedulingPolicy", "priorityClass"),
        managed_by=(*_POLICY, "managedBy"),
        expiry=(*_POLICY, "ttlSecondsAfterFinished"),
        prebuilt=kind != "JAXJob",
        creates=_children(field),
        prepare=_number_workers,
        found_by=("training.kubeflow.org/job-name",),
        pod_set_of=labelled(f"training.kubeflow.org/{'job-role' if kind == 'MPIJob' else 'replica-type'}"),
        controller=f"{GROUP}/{'mpi' if kind == 'MPIJob' else 'training'}-operator",
        words=Words(
            pod_sets=f"{', '.join(name.lower() for name in types)}: `{field}.<type>.replicas`",
            ready="Running",
            finished="Succeeded, Failed",
        ),
    )


def _children(field: str) -> Callable[[Json, Json], bool]:
    """Pods, each named by its type and index; the launcher of an MPIJob is a Job."""

    def creates(job: Json, child: Json) -> bool:
        name, own = str(child["metadata"].get("name") or ""), job["metadata"]["name"]
        if child.get("kind") == "Job":
            return field == _MPI and name == f"{own}-launcher"
        base, _, index = name.rpartition("-")
        if child.get("kind") != "Pod" or not index.isdecimal() or len(index) > _LONGEST_INDEX:
            return False
        written = mapping_at(job, ("spec", field))
        return any(
            base == f"{own}-{role.lower()}" and int(index) < number_at(job, ("spec", field, role, "replicas"), 1)
            for role in written
        )

    return creates


def _number_workers(job: Json) -> None:
    """Number the other workers' pods of an MPIJob from 1 where its launcher is the first worker.

    Pod sets that are placed as one group are numbered as such.
    """
    roles = {role: ("spec", _MPI, role, "template") for role in ("Launcher", "Worker")}
    if at(job, ("spec", "runLauncherAsWorker")) is not True or not all(at(job, path) for path in roles.values()):
        return
    if not at(job, (*roles["Launcher"], *_NOTES, names.PODSET_GROUP)):
        put(job, (*roles["Worker"], *_NOTES, names.POD_INDEX_OFFSET), "1")


KINDS: Final = (
    _declared("PyTorchJob", "pytorchReplicaSpecs", "Master", "Worker"),
    _declared("TFJob", "tfReplicaSpecs", "Chief", "Master", "PS", "Worker", "Evaluator"),
    _declared("XGBoostJob", "xgbReplicaSpecs", "Master", "Worker"),
    _declared("PaddleJob", "paddleReplicaSpecs", "Master", "Worker"),
    _declared("JAXJob", "jaxReplicaSpecs", "Worker"),
    _declared("MPIJob", _MPI, "Launcher", "Worker", version="v2beta1", shipped=True),
)
