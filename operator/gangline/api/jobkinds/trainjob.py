"""trainer.kubeflow.org/v1alpha1 TrainJob: its pods are described by a runtime, an object of its own with a JobSet's template.

A job is rendered as Kubeflow's trainer does: the runtime's template, the job's patches, the number of nodes and the resources
of its trainer. An admission is one more patch, under the name by which Kueue writes its own. While a job runs, its pods are
those of its Workload: the trainer keeps to the runtime with which the job started, whatever becomes of it.

Patches are `spec.runtimePatches` since Trainer 2.2, and `spec.podTemplateOverrides` in Trainer 2.0 and 2.1. No version has both.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, cast

from gangline.api import names
from gangline.api.jobkinds.declaration import (
    DESCRIPTION,
    MOST_PODS,
    RUNS_WITH,
    UNKNOWN_FIELDS,
    Behaviour,
    Declaration,
    JobError,
    Json,
    Look,
    Path,
    PodSetPlace,
    Problem,
    Reference,
    Words,
    at,
    ended_by_conditions,
    labelled,
    mapping_at,
    number_at,
    put,
    rows_at,
    shown,
    template_at,
)
from gangline.kube.resources import CLUSTER_TRAINING_RUNTIMES, TRAINING_RUNTIMES, Resource

_GROUP: Final = "trainer.kubeflow.org"
_RUNTIME: Final = ("spec", "runtimeRef")
_NODES: Final = ("spec", "trainer", "numNodes")
_PATCHES: Final[Path] = ("spec", "runtimePatches")
#: in Trainer 2.0 and 2.1
_OVERRIDES: Final[Path] = ("spec", "podTemplateOverrides")
_POLICY: Final[Path] = ("spec", "mlPolicy")
_JOBS: Final[Path] = ("trainingRuntimeSpec", "template", "spec", "replicatedJobs")
#: the owner of the patch with an admission
MANAGER: Final = f"{names.GROUP}/manager"
#: in a replicated job: the template of its pods
_TEMPLATE: Final[Path] = ("template", "spec", "template")
#: on a replicated job of a runtime: which step of the training it is
_STEP: Final = "trainer.kubeflow.org/trainjob-ancestor-step"
_TRAINER: Final = "trainer"
#: the steps of which there is always one Job
_STEPS: Final = (_TRAINER, "dataset-initializer", "model-initializer")
#: the training's replicated job with MPI, and the container of the training
_NODE: Final = "node"
_JOB_INDEX: Final = "batch.kubernetes.io/job-completion-index"
_JOBSET_INDEX: Final = "jobset.sigs.k8s.io/job-index"
#: a rule of a JobSet by which it runs its Jobs again as often as need be
_UNLIMITED: Final = "RestartJobSetAndIgnoreMaxRestarts"
_DEEPEST: Final = 24
#: lists whose entries a patch merges, by the field that names an entry; other lists are replaced
_KEYS: Final[Mapping[str, str]] = {
    **dict.fromkeys(("containers", "initContainers", "env", "volumes", "imagePullSecrets", "schedulingGates"), "name"),
    "volumeMounts": "mountPath",
}


def _runtime_of(job: Json) -> Reference | None:
    """The runtime that a job names; None where it is of a kind that the trainer does not have."""
    reference, namespace = mapping_at(job, _RUNTIME), mapping_at(job, ("metadata",)).get("namespace")
    kind, name = reference.get("kind") or CLUSTER_TRAINING_RUNTIMES.kind, str(reference.get("name") or "")
    if (reference.get("apiGroup") or _GROUP) != _GROUP or not name:
        return None
    if kind == TRAINING_RUNTIMES.kind:
        return TRAINING_RUNTIMES, f"{namespace}/{name}"
    return (CLUSTER_TRAINING_RUNTIMES, name) if kind == CLUSTER_TRAINING_RUNTIMES.kind else None


def _check(job: Json, old: Json | None) -> list[Problem]:
    """What is wrong whatever its runtime says; the rest is the operator's to tell."""
    try:
        number_at(job, _NODES, 1)
    except JobError as error:
        return [Problem(error.field, error.message)]
    return []


# --- rendering --------------------------------------------------------------------------------------------------------


class _Rendered:
    """One replicated job of the JobSet that the trainer makes."""

    def __init__(self, row: Json, replicas: int, pods_each: int) -> None:
        self.name = str(row.get("name") or "")
        template = template_at(row, _TEMPLATE)
        containers = [dict(each) for each in rows_at(template, ("spec", "containers"))]
        self.template: Json = {**template, "spec": {**template["spec"], "containers": containers}}
        self.replicas = replicas
        self.pods_each = pods_each


def _rendered(job: Json) -> list[_Rendered]:
    """The replicated jobs of the JobSet that the trainer makes. Raises JobError; what is wrong in the runtime is an error of
    `spec.runtimeRef`.
    """
    runtime = _description(job)
    rows = _runtime_jobs(runtime)
    _patch(job, rows)
    try:
        found = [_one(job, runtime, row) for row in rows]
    except JobError as error:
        raise JobError(f"{_named(job)}: {error}", shown(_RUNTIME)) from None
    if not found:
        raise JobError(f"{_named(job)} has no replicated jobs", shown(_RUNTIME))
    return found


def _runtime_jobs(runtime: Json) -> list[Json]:
    """The replicated jobs of a runtime, to be changed."""
    return [dict(row) for row in rows_at(runtime, ("spec", "template", "spec", "replicatedJobs"))]


def _description(job: Json) -> Json:
    found = job.get(DESCRIPTION)
    if isinstance(found, dict):
        return cast(Json, found)
    if _runtime_of(job) is None:
        raise JobError("names no runtime of Kubeflow's trainer", shown(_RUNTIME))
    raise JobError(f"{_named(job)} does not exist", shown(_RUNTIME))


def _named(job: Json) -> str:
    reference = _runtime_of(job)
    return f"the {reference[0].kind} {reference[1][:253]!r}" if reference is not None else "the runtime"


def _one(job: Json, runtime: Json, row: Json) -> _Rendered:
    step, policy = _step(row), mapping_at(runtime, _POLICY)
    pods = number_at(row, ("template", "spec", "parallelism"), 1)
    if step == _TRAINER and policy:
        pods = number_at(policy, ("numNodes",), 1)
    pods = max(pods, 1)
    if at(job, _NODES) is not None and _has_the_nodes(policy, row):
        wanted = number_at(job, _NODES, 1)
        pods = max(wanted - 1, 1) if policy.get("mpi") is not None and _launches_as_node(policy) else wanted
    replicas = 1 if step in _STEPS else number_at(row, ("replicas",), 1)
    made = _Rendered(row, replicas, pods)
    if replicas * pods > MOST_PODS:
        raise JobError(f"must be 0 to {MOST_PODS} pods", f"replicatedJobs[{made.name[:63]}].replicas")
    if _has_the_resources(policy, row):
        _give(made.template, mapping_at(job, ("spec", "trainer", "resourcesPerNode")))
    if step == _TRAINER:
        image = at(job, ("spec", "trainer", "image"))
        for container in rows_at(made.template, ("spec", "containers")):
            if container.get("name") == _NODE and isinstance(image, str):
                container["image"] = image
    return made


def _launches_as_node(policy: Json) -> bool:
    return at(policy, ("mpi", "runLauncherAsNode")) is True


def _has_the_nodes(policy: Json, row: Json) -> bool:
    """Whether the pods of this replicated job are the nodes of the training."""
    if policy.get("mpi") is not None:
        return row.get("name") == _NODE
    return _step(row) == _TRAINER


def _has_the_resources(policy: Json, row: Json) -> bool:
    """Whether the pods of the row get `resourcesPerNode`, in the container of the training."""
    return bool(_step(row) == _TRAINER and policy) or (_launches_as_node(policy) and row.get("name") == _NODE)


def _step(row: Json) -> object:
    return at(row, ("template", "metadata", "labels", _STEP))


def _give(template: Json, resources: Json) -> None:
    """What each node of the training gets, on top of what its runtime requests."""
    for container in rows_at(template, ("spec", "containers")):
        if container.get("name") == _NODE and resources:
            have = mapping_at(container, ("resources",))
            merged = {
                part: {**mapping_at(have, (part,)), **mapping_at(resources, (part,))} for part in ("requests", "limits")
            }
            container["resources"] = {**have, **{part: amounts for part, amounts in merged.items() if amounts}}
            return


def _patch(job: Json, rows: list[Json]) -> None:
    """Apply the patches of the job to the runtime's replicated jobs, in order; that of an admission is none of the user's."""
    for i, patch in enumerate(rows_at(job, _PATCHES)):
        if patch.get("manager") == MANAGER:
            continue
        for j, change in enumerate(rows_at(patch, _JOBS)):
            target = next((row for row in rows if row.get("name") == change.get("name")), None)
            if target is None:
                where = shown((*_PATCHES, i, *_JOBS, j, "name"))
                raise JobError(f"{_named(job)} has no replicated job {str(change.get('name'))[:63]!r}", where)
            merged = _merged(target, change, shown((*_PATCHES, i, *_JOBS, j)))
            target.clear()
            target.update(merged)
    for i, override in enumerate(rows_at(job, _OVERRIDES)):
        if _is_admission(override):
            continue
        pods = {part: override[part] for part in ("metadata", "spec") if part in override}
        for j, named in enumerate(rows_at(override, ("targetJobs",))):
            where = shown((*_OVERRIDES, i, "targetJobs", j, "name"))
            target = next((row for row in rows if row.get("name") == named.get("name")), None)
            if target is None:
                raise JobError(f"{_named(job)} has no replicated job {str(named.get('name'))[:63]!r}", where)
            merged = _merged(template_at(target, _TEMPLATE), pods, shown((*_OVERRIDES, i)))
            put(target, _TEMPLATE, merged)


def _is_admission(override: Json) -> bool:
    """Whether an admission wrote this override: its pods are labelled with their pod set, as Kueue does."""
    return bool(at(override, ("metadata", "labels", names.PODSET)))


def _merged(base: Json, change: Json, where: str, depth: int = 0) -> Json:
    """A strategic merge patch, as far as runtime patches have fields."""
    if depth > _DEEPEST:
        raise JobError(f"has more than {_DEEPEST} levels", where)
    result = dict(base)
    for name, value in change.items():
        have: Any = result.get(name)
        if value is None:
            result.pop(name, None)
        elif isinstance(value, dict) and isinstance(have, dict):
            result[name] = _merged(cast(Json, have), cast(Json, value), where, depth + 1)
        elif isinstance(value, list) and isinstance(have, list) and name in _KEYS:
            result[name] = _merged_rows(rows_at(base, (name,)), rows_at(change, (name,)), _KEYS[name], where, depth + 1)
        else:
            result[name] = value
    return result


def _merged_rows(base: list[Json], change: list[Json], key: str, where: str, depth: int) -> list[Json]:
    found = list(base)
    for row in change:
        at_row = next((i for i, have in enumerate(found) if have.get(key) == row.get(key)), None)
        if at_row is None:
            found.append(row)
        else:
            found[at_row] = _merged(found[at_row], row, where, depth)
    return found


def _unused(job: Json, look: Look) -> list[str]:
    """Fields of the trainer for which its runtime has no place: Kubeflow's trainer passes over them, and so do pod sets."""
    asked, reference = mapping_at(job, ("spec", "trainer")), _runtime_of(job)
    fields = [name for name in ("numNodes", "resourcesPerNode") if asked.get(name)]
    runtime = look(reference) if fields and reference is not None else None
    if runtime is None:
        return []
    policy, rows = mapping_at(runtime, _POLICY), _runtime_jobs(runtime)
    try:
        _patch({**job, DESCRIPTION: runtime}, rows)
    except JobError:
        return []  # it is reported as an error
    found: list[str] = []
    if "numNodes" in fields and not any(_has_the_nodes(policy, row) for row in rows):
        found.append(
            f"spec.trainer.numNodes is ignored: {_named(job)} has no replicated job for the nodes of a training"
        )
    if "resourcesPerNode" in fields and not any(_has_the_resources(policy, row) and _trains(row) for row in rows):
        what = f'container "{_NODE}" in the pods of its trainer' if policy else "mlPolicy"
        found.append(f"spec.trainer.resourcesPerNode is ignored, and takes no quota: {_named(job)} has no {what}")
    return found


def _trains(row: Json) -> bool:
    containers = rows_at(row, ("template", "spec", "template", "spec", "containers"))
    return any(container.get("name") == _NODE for container in containers)


# --- pod sets ---------------------------------------------------------------------------------------------------------


def _places(job: Json) -> list[PodSetPlace]:
    if isinstance(running := job.get(RUNS_WITH), list):
        return [_as_admitted(row) for row in cast("list[Json]", running)]
    return [
        PodSetPlace(
            name=each.name.lower(),
            count=each.replicas * each.pods_each,
            path=_RUNTIME,
            counted=each.template,
            index_label=_JOB_INDEX,
            sub_groups=(_JOBSET_INDEX, each.replicas),
        )
        for each in _rendered(job)
    ]


def _as_admitted(row: Json) -> PodSetPlace:
    """A pod set of the Workload with which the job runs."""
    asked = mapping_at(row, ("topologyRequest",))
    groups = (
        (str(asked["subGroupIndexLabel"]), asked.get("subGroupCount") or 1) if "subGroupIndexLabel" in asked else None
    )
    label = str(asked.get("podIndexLabel") or "")
    return PodSetPlace(
        str(row["name"]), row.get("count", 1), _RUNTIME, row["template"], index_label=label, sub_groups=groups
    )


class _AsPatch:
    """An admission is a patch of the runtime with a row for each replicated job, or an override for each replicated job."""

    def write(self, job: Json, additions: Mapping[str, Json]) -> None:
        if shown(_PATCHES) in job.get(UNKNOWN_FIELDS, ()):
            overrides = [{"targetJobs": [{"name": name}], **_pods(added)} for name, added in additions.items()]
            put(job, _OVERRIDES, [*_others(job, _OVERRIDES), *overrides])
            return
        own: Json = {"manager": MANAGER}
        put(own, _JOBS, [_row(name, added) for name, added in additions.items()])
        put(job, _PATCHES, [*_others(job, _PATCHES), own])

    def clear(self, job: Json, originals: Mapping[str, Json]) -> None:
        for path in (_PATCHES, _OVERRIDES):
            if at(job, path) is not None:
                put(job, path, _others(job, path) or None)

    def written(self, job: Json) -> Mapping[str, Json]:
        own = next((row for row in rows_at(job, _PATCHES) if row.get("manager") == MANAGER), Json())
        pods = {str(row.get("name")): mapping_at(row, _TEMPLATE) for row in rows_at(own, _JOBS)}
        for row in filter(_is_admission, rows_at(job, _OVERRIDES)):
            pods |= {str(named.get("name")): row for named in rows_at(row, ("targetJobs",))}
        return {name: {**mapping_at(row, ("metadata",)), **mapping_at(row, ("spec",))} for name, row in pods.items()}


def _others(job: Json, path: Path) -> list[Json]:
    """The user's patches, or overrides."""
    return [row for row in rows_at(job, path) if row.get("manager") != MANAGER and not _is_admission(row)]


def _row(name: str, added: Json) -> Json:
    return {"name": name, "template": {"spec": {"template": _pods(added)}}}


def _pods(added: Json) -> Json:
    metadata = {part: added[part] for part in ("labels", "annotations") if part in added}
    spec = {part: added[part] for part in ("nodeSelector", "tolerations", "schedulingGates") if part in added}
    return {"metadata": metadata, "spec": spec}


# --- status and children ----------------------------------------------------------------------------------------------


def _progress(job: Json) -> dict[str, Json]:
    """Replicated job -> its row of the status, which counts Jobs, not pods."""
    return {str(row.get("name")): row for row in rows_at(job, ("status", "jobsStatus"))}


def _count(row: Json, *fields: str) -> int:
    return sum(value for name in fields if isinstance(value := row.get(name), int))


def _jobs_of(job: Json) -> list[tuple[str, int, int]]:
    """(replicated job, Jobs, pods of each); where the runtime is gone, those with which the job runs, one Job each."""
    try:
        return [(each.name, each.replicas, each.pods_each) for each in _rendered(job)]
    except JobError:
        return [(place.name, 1, place.count) for place in _places(job)]


def _ready(job: Json) -> bool:
    done = sum(_count(row, "ready", "succeeded") for row in _progress(job).values())
    return done >= sum(replicas for _, replicas, _ in _jobs_of(job))


def _active(job: Json) -> bool:
    return any(_count(row, "active") for row in _progress(job).values())


def _idle(job: Json) -> Json:
    status = mapping_at(job, ("status",))
    rows = rows_at(job, ("status", "jobsStatus"))
    return {**status, "jobsStatus": [{**row, "active": 0, "ready": 0} for row in rows]} if rows else status


def _reclaimable(job: Json) -> dict[str, int]:
    """The pods of Jobs that succeeded for good: not where the JobSet may run all of its Jobs again after a failure."""
    progress, policy = _progress(job), mapping_at(job.get(DESCRIPTION), ("spec", "template", "spec", "failurePolicy"))
    restarts = policy.get("maxRestarts") or any(row.get("action") == _UNLIMITED for row in rows_at(policy, ("rules",)))
    if not progress or restarts:
        return {}
    most = {place.name: place.count for place in _places(job)}
    ended = {
        name.lower(): min(_count(progress[name], "succeeded"), replicas) * pods
        for name, replicas, pods in _jobs_of(job)
        if name in progress
    }
    return {name: count for name, count in ended.items() if 0 < count <= most.get(name, 0)}


def _creates(job: Json, child: Json) -> bool:
    """Whether the child is the JobSet of the job's name."""
    return child.get("kind") == "JobSet" and child["metadata"].get("name") == job["metadata"]["name"]


TRAIN_JOB: Final = Declaration(
    resource=Resource(_GROUP, "v1alpha1", "trainjobs", kind="TrainJob"),
    framework=f"{_GROUP}/trainjob",
    behaviour=Behaviour(
        places=_places,
        finished=ended_by_conditions("Complete", "Failed"),
        ready=_ready,
        active=_active,
        reclaimable=_reclaimable,
        idle=_idle,
        injection=_AsPatch(),
        replaced=("tolerations",),  # Kubernetes' strategic merge has no key for them
        injected_first=True,  # Trainer 2.0 and 2.1 refuse overrides in the write that unsuspends the job
        withdrawn_at_rest=True,  # the trainer refuses changes of the patches while Jobs of the JobSet are active
    ),
    alternatives=(_PATCHES, _OVERRIDES),
    needs="Kubeflow Trainer 2.0",
    shipped=True,
    managed_by=("spec", "managedBy"),
    controller=f"{_GROUP}/trainjob-controller",
    check=_check,
    creates=_creates,
    holds_children=True,
    described_by=_runtime_of,
    descriptions=(TRAINING_RUNTIMES, CLUSTER_TRAINING_RUNTIMES),
    derived=True,
    unused=_unused,
    pod_set_of=labelled("jobset.sigs.k8s.io/replicatedjob-name"),
    words=Words(
        pod_sets="each replicated job of its runtime, with `spec.trainer` and the job's patches of the runtime",
        ready="all Jobs ready or succeeded",
        finished="Complete, Failed",
    ),
)
KINDS: Final = (TRAIN_JOB,)
