"""workload.codeflare.dev/v1beta2 AppWrapper: other objects, held back as one, with the paths of their pod templates.

A component declares its pod sets, or its kind is one of which the AppWrapper controller knows where they are. An admission is
written beside the component, and the controller adds it to the pods: the wrapped objects stay as their user wrote them.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Final

from gangline import bounded
from gangline.api.jobkinds import kubeflow, ray
from gangline.api.jobkinds.declaration import (
    MOST_PODS,
    Behaviour,
    Declaration,
    JobError,
    JobOutcome,
    Json,
    Key,
    Path,
    PodSetPlace,
    Words,
    at,
    condition,
    mapping_at,
    number_at,
    rows_at,
    shown,
    template_at,
    without_condition,
)
from gangline.kube.resources import Resource

_GROUP: Final = "workload.codeflare.dev"
_COMPONENTS: Final[Path] = ("spec", "components")
_TEMPLATE: Final = "template"
_DEPLOYED: Final = condition("ResourcesDeployed")
_LONGEST_PATH: Final = 512
_LONGEST_NUMBER: Final = 10
_STEP: Final = re.compile(r"\.([^.\[\]]{1,253})|\[([0-9]{1,4})\]")
_JOB_INDEX: Final = "batch.kubernetes.io/job-completion-index"
_JOBSET_INDEX: Final = "jobset.sigs.k8s.io/job-index"
_ANNOTATION: Final = "workload.codeflare.dev.appwrapper/tas-"


@dataclass(frozen=True, slots=True)
class _Pods:
    """A pod set of a component. `path`: from the job to the pod template, or to a Pod."""

    path: Path
    count: int
    index_label: str = ""
    sub_groups: tuple[str, int] | None = None


# --- where the pods of a component are --------------------------------------------------------------------------------


def _too_long(text: str) -> ValueError:
    return ValueError(f"{bounded.shown(text)} is longer than {_LONGEST_PATH} characters")


@bounded.parser(_LONGEST_PATH, refuse=_too_long, worst=("template.", "[0]", ".a"))
def path_in_component(text: str) -> Path:
    """`template.spec.replicatedJobs[0].template`, as the AppWrapper controller reads it. Raises ValueError."""
    if not text.startswith(_TEMPLATE):
        raise ValueError("first element of the path must be 'template'")
    found: list[str | int] = []
    position = len(_TEMPLATE)
    while position < len(text):
        step = _STEP.match(text, position)
        if step is None:
            raise ValueError(f"{bounded.shown(text)} is not a path such as template.spec.jobs[0].template")
        found.append(Key(step[1]) if step[1] is not None else int(step[2]))
        position = step.end()
    return tuple(found)


def _declared(job: Json, component: Path) -> list[_Pods]:
    """The pod sets that the user of an AppWrapper has written for one of its components. Raises JobError."""
    found: list[_Pods] = []
    for i, row in enumerate(rows_at(job, (*component, "podSets"))):
        where: Path = (*component, "podSets", i)
        written = row.get("path")
        if not isinstance(written, str):
            raise JobError("a path is needed", shown((*where, "path")))
        try:
            path = path_in_component(written)
        except ValueError as error:
            raise JobError(str(error), shown((*where, "path"))) from None
        if not isinstance(at(job, (*component, _TEMPLATE, *path, "spec")), dict):
            raise JobError(f"{bounded.shown(written)} is not the path of a pod template", shown((*where, "path")))
        label, groups = _topology(mapping_at(row, ("annotations",)))
        count = number_at(job, (*where, "replicas"), 1)
        found.append(_Pods((*component, _TEMPLATE, *path), count, label, groups))
    return found


def _topology(annotations: Json) -> tuple[str, tuple[str, int] | None]:
    label, group, count = (
        annotations.get(f"{_ANNOTATION}{name}")
        for name in ("pod-index-label", "sub-group-index-label", "sub-group-count")
    )
    number = bounded.whole(count) if isinstance(count, str) and len(count) <= _LONGEST_NUMBER else None
    groups = (group, number) if isinstance(group, str) and number else None
    return (label if isinstance(label, str) else ""), groups


def _replicas(job: Json, obj: Path, index: str = "") -> Iterable[_Pods]:
    """The object at this path has `template` and `replicas`."""
    path = (*obj, "template")
    if isinstance(at(job, path), dict):
        yield _Pods(path, number_at(job, (*obj, "replicas"), 1), index)


def _of_pod(job: Json, obj: Path) -> Iterable[_Pods]:
    return [_Pods(obj, 1)]


def _of_replicas(job: Json, obj: Path) -> Iterable[_Pods]:
    return _replicas(job, (*obj, "spec"))


def _of_job(job: Json, obj: Path) -> Iterable[_Pods]:
    path = (*obj, "spec", "template")
    if isinstance(at(job, path), dict):
        parallelism = number_at(job, (*obj, "spec", "parallelism"), 1)
        yield _Pods(path, min(parallelism, number_at(job, (*obj, "spec", "completions"), parallelism)), _JOB_INDEX)


def _of_job_set(job: Json, obj: Path) -> Iterable[_Pods]:
    rows: Path = (*obj, "spec", "replicatedJobs")
    for i in range(len(rows_at(job, rows))):
        replicas = number_at(job, (*rows, i, "replicas"), 1)
        for each in _of_job(job, (*rows, i, "template")):
            yield _Pods(each.path, each.count * replicas, each.index_label, (_JOBSET_INDEX, replicas))


def _of_pytorch_job(job: Json, obj: Path) -> Iterable[_Pods]:
    for role in ("Master", "Worker"):
        path: Path = (*obj, "spec", "pytorchReplicaSpecs", Key(role))
        yield from _replicas(job, path, kubeflow.INDEX_LABEL)


def _of_ray(*cluster: str) -> Callable[[Json, Path], Iterable[_Pods]]:
    def pods(job: Json, obj: Path) -> Iterable[_Pods]:
        head: Path = (*obj, *cluster, "headGroupSpec", "template")
        yield _Pods(head, 1)
        groups: Path = (*obj, *cluster, "workerGroupSpecs")
        for i in range(len(rows_at(job, groups))):
            if isinstance(at(job, (*groups, i, "template")), dict):
                yield _Pods((*groups, i, "template"), ray.workers(job, (*groups, i)))

    return pods


#: the kinds whose pods the AppWrapper controller finds by itself
_KNOWN: Final[Mapping[tuple[str, str], Callable[[Json, Path], Iterable[_Pods]]]] = {
    ("v1", "Pod"): _of_pod,
    ("apps/v1", "Deployment"): _of_replicas,
    ("apps/v1", "StatefulSet"): _of_replicas,
    ("batch/v1", "Job"): _of_job,
    ("jobset.x-k8s.io/v1alpha2", "JobSet"): _of_job_set,
    ("kubeflow.org/v1", "PyTorchJob"): _of_pytorch_job,
    ("ray.io/v1", "RayCluster"): _of_ray("spec"),
    ("ray.io/v1", "RayJob"): _of_ray("spec", "rayClusterSpec"),
}


def _components(job: Json) -> list[list[_Pods]]:
    """The pod sets of each component; none for one without pods, such as a Service. Raises JobError."""
    found: list[list[_Pods]] = []
    for i in range(len(rows_at(job, _COMPONENTS))):
        component: Path = (*_COMPONENTS, i)
        pods = _declared(job, component)
        if not pods:
            wrapped = mapping_at(job, (*component, _TEMPLATE))
            infer = _KNOWN.get((str(wrapped.get("apiVersion")), str(wrapped.get("kind"))))
            pods = list(infer(job, (*component, _TEMPLATE))) if infer is not None else []
        found.append(pods)
    return found


def _places(job: Json) -> list[PodSetPlace]:
    every = [pods for component in _components(job) for pods in component]
    if not every:
        raise JobError("no component has pods", shown(_COMPONENTS))
    for pods in every:
        if pods.count > MOST_PODS:
            raise JobError(f"must be 0 to {MOST_PODS} pods", shown(pods.path))
    return [
        PodSetPlace(
            name=_pod_set(job, i),
            count=pods.count,
            path=pods.path,
            counted=_counted(template_at(job, pods.path)),
            index_label=pods.index_label,
            sub_groups=pods.sub_groups,
        )
        for i, pods in enumerate(every)
    ]


def _pod_set(job: Json, number: int) -> str:
    return f"{mapping_at(job, ('metadata',)).get('name') or ''}-{number}"


# --- the template that counts -----------------------------------------------------------------------------------------

#: fields of a pod and of a container that are copied
_OF_POD: Final = (
    *("nodeSelector", "nodeName", "affinity", "tolerations", "priorityClassName", "overhead"),
    "topologySpreadConstraints",
)
_OF_CONTAINER: Final = ("name", "image", "command", "args", "securityContext")


def _counted(template: Json) -> Json:
    """The part of a template that the AppWrapper controller hands to Kueue, with the defaults that it fills in.

    Kueue has stored it in this form, and a Workload with another one would be replaced when Gangline takes over.
    """
    spec = mapping_at(template, ("spec",))
    metadata: Json = {
        part: {key: value for key, value in mapping_at(template, ("metadata", part)).items() if isinstance(value, str)}
        for part in ("labels", "annotations")
    }
    counted: Json = {
        "containers": [_container(row) for row in rows_at(spec, ("containers",))],
        "restartPolicy": spec.get("restartPolicy") or "Always",
        "dnsPolicy": spec.get("dnsPolicy") or "ClusterFirst",
        "securityContext": spec.get("securityContext") or {},
        "schedulerName": spec.get("schedulerName") or "default-scheduler",
        "preemptionPolicy": spec.get("preemptionPolicy") or "PreemptLowerPriority",
        **{part: spec[part] for part in _OF_POD if spec.get(part) is not None},
    }
    if first := rows_at(spec, ("initContainers",)):
        counted["initContainers"] = [_container(row) for row in first]
    if spec.get("terminationGracePeriodSeconds") is None:
        counted["terminationGracePeriodSeconds"] = 30
    return {"metadata": {part: found for part, found in metadata.items() if found}, "spec": counted}


def _container(row: Json) -> Json:
    image = row.get("image")
    resources = mapping_at(row, ("resources",))
    return {
        **{part: row[part] for part in _OF_CONTAINER if row.get(part) is not None},
        "resources": {part: resources[part] for part in ("requests", "limits") if resources.get(part) is not None},
        "terminationMessagePath": row.get("terminationMessagePath") or "/dev/termination-log",
        "terminationMessagePolicy": row.get("terminationMessagePolicy") or "File",
        "imagePullPolicy": row.get("imagePullPolicy")
        or ("Always" if isinstance(image, str) and _is_latest(image) else "IfNotPresent"),
    }


@bounded.parser(4096, instead=False, worst=("a/", ":", "@"))
def _is_latest(image: str) -> bool:
    """Whether an image has the tag latest, or neither a tag nor a digest."""
    name = image.rpartition("/")[2]
    return "@" not in image and (":" not in name or name.endswith(":latest"))


# --- admission --------------------------------------------------------------------------------------------------------


class _BesideComponents:
    """An admission is a list beside each component, with one entry for each of its pod sets."""

    def write(self, job: Json, additions: Mapping[str, Json]) -> None:
        rest = iter(additions.values())
        for row, pods in zip(rows_at(job, _COMPONENTS), _components(job), strict=True):
            row["podSetInfos"] = [next(rest) for _ in pods] or None

    def clear(self, job: Json, originals: Mapping[str, Json]) -> None:
        for row in rows_at(job, _COMPONENTS):
            row.pop("podSetInfos", None)

    def written(self, job: Json) -> Mapping[str, Json]:
        found: dict[str, Json] = {}
        number = 0
        for i, pods in enumerate(_components(job)):
            infos = rows_at(job, (*_COMPONENTS, i, "podSetInfos"))
            found |= {_pod_set(job, number + j): info for j, info in enumerate(infos[: len(pods)])}
            number += len(pods)
        return found


# --- status and children ----------------------------------------------------------------------------------------------


def _finished(job: Json) -> JobOutcome | None:
    """A failed one still has objects to delete for a while."""
    match at(job, ("status", "phase")):
        case "Succeeded":
            return JobOutcome(True, "AppWrapper finished successfully")
        case "Failed" if not _DEPLOYED(job):
            return JobOutcome(False, "AppWrapper failed")
        case _:
            return None


def _idle(job: Json) -> Json:
    return without_condition(without_condition(mapping_at(job, ("status",)), "PodsReady"), "QuotaReserved")


def _creates(job: Json, child: Json) -> bool:
    """Whether the child is a component of the AppWrapper: of that kind and name, and a Job with at most that many pods."""
    for i in range(len(rows_at(job, _COMPONENTS))):
        wrapped = mapping_at(job, (*_COMPONENTS, i, _TEMPLATE))
        if (wrapped.get("apiVersion"), wrapped.get("kind")) != (child.get("apiVersion"), child.get("kind")):
            continue
        meta, name = mapping_at(wrapped, ("metadata",)), str(child["metadata"].get("name") or "")
        prefix = meta.get("generateName")
        named = meta.get("name") == name if meta.get("name") else isinstance(prefix, str) and name.startswith(prefix)
        if named and _parallelism(child) <= _parallelism(wrapped):
            return True
    return False


def _parallelism(obj: Json) -> int:
    return number_at(obj, ("spec", "parallelism"), 1)


APP_WRAPPER: Final = Declaration(
    resource=Resource(_GROUP, "v1beta2", "appwrappers", kind="AppWrapper"),
    framework=f"{_GROUP}/appwrapper",
    behaviour=Behaviour(
        places=_places,
        finished=_finished,
        ready=condition("PodsReady"),
        active=condition("QuotaReserved"),
        idle=_idle,
        injection=_BesideComponents(),
    ),
    shipped=True,
    found_by=("workload.codeflare.dev/appwrapper",),
    managed_by=("spec", "managedBy"),
    controller=f"{_GROUP}/appwrapper-controller",
    creates=_creates,
    derived=True,
    words=Words(
        pod_sets="`<name>-<i>` for each pod set of the components: its replicas",
        ready="PodsReady",
        finished="`status.phase` Succeeded, Failed",
    ),
)
KINDS: Final = (APP_WRAPPER,)
