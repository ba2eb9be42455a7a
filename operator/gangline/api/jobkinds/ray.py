"""ray.io/v1 RayCluster, RayJob and RayService: a head, groups of workers, and what KubeRay adds to their pods by itself.

KubeRay's containers count with the amounts that it gives them: the autoscaler's sidecar, the submitter of a RayJob (a Job, or
a sidecar of the head), and the Job that cleans Redis up, which runs after the head and so raises the head's requests.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

from gangline.api import names, quantity
from gangline.api.jobkinds.declaration import (
    MOST_PODS,
    Behaviour,
    Declaration,
    JobError,
    JobOutcome,
    Json,
    Path,
    PodSetPlace,
    Problem,
    Suspension,
    Words,
    at,
    condition,
    mapping_at,
    never_finished,
    number_at,
    rows_at,
    shown,
    template_at,
    value,
    without_condition,
)
from gangline.kube.resources import Resource

_GROUP: Final = "ray.io"
_OPERATOR: Final = f"{_GROUP}/kuberay-operator"
_HEAD: Final = "head"
#: on the pods of a cluster: the name of their group
_GROUP_LABEL: Final = "ray.io/group"
_HEAD_GROUP: Final = "headgroup"
_SUBMITTER: Final = "submitter"
#: containers that KubeRay makes
_AUTOSCALER_CONTAINER: Final = "autoscaler"
_SUBMITTER_CONTAINER: Final = "ray-job-submitter"
_AUTOSCALER: Final[Json] = {
    "requests": {"cpu": "500m", "memory": "512Mi"},
    "limits": {"cpu": "500m", "memory": "512Mi"},
}
_SUBMITTER_NEEDS: Final[Json] = {
    "requests": {"cpu": "500m", "memory": "200Mi"},
    "limits": {"cpu": "1", "memory": "1Gi"},
}
_REDIS_CLEANUP: Final = {"cpu": "200m", "memory": "256Mi"}
_FAULT_TOLERANT: Final = "ray.io/ft-enabled"
#: states of a RayCluster without pods
_AT_REST: Final = (None, "", "suspended")
_COUNTS_OF_WORKERS: Final = ("availableWorkerReplicas", "readyWorkerReplicas")
#: of a RayJob: what is about the cluster that it had, and about the program that ran there
_OF_THE_RUN: Final = ("dashboardURL", "jobStatus", "rayClusterName", "rayClusterStatus")
_MOST_POD_SETS: Final = 18
_GROUPS: Final[Path] = ("spec", "workerGroupSpecs")
#: what says how many pods a group has
_SIZES: Final = ("replicas", "minReplicas", "maxReplicas", "numOfHosts", "suspend")


# --- pod sets ---------------------------------------------------------------------------------------------------------


def _cluster_places(job: Json, cluster: Path, extra: Sequence[Json] = ()) -> list[PodSetPlace]:
    """The head and the groups of the cluster at the path; `extra` are containers that the head gets besides its own."""
    head = (*cluster, "headGroupSpec", "template")
    return [
        PodSetPlace(name=_HEAD, count=1, path=head, counted=_counted_head(job, cluster, head, extra)),
        *(
            _group(job, (*cluster, "workerGroupSpecs", i))
            for i in range(len(rows_at(job, (*cluster, "workerGroupSpecs"))))
        ),
    ]


def _group(job: Json, path: Path) -> PodSetPlace:
    name = at(job, (*path, "groupName"))
    if not isinstance(name, str) or not name:
        raise JobError("a group of workers needs a name", shown((*path, "groupName")))
    template = (*path, "template")
    return PodSetPlace(name=name.lower(), count=workers(job, path), path=template, counted=template_at(job, template))


def workers(job: Json, group: Path) -> int:
    """The pods that KubeRay runs for the group of workers at this path: it keeps the replicas within their bounds, and runs none
    for a suspended group. Raises JobError.
    """
    replicas, hosts = number_at(job, (*group, "replicas"), 1), number_at(job, (*group, "numOfHosts"), 1)
    least, most = number_at(job, (*group, "minReplicas"), 0), number_at(job, (*group, "maxReplicas"), MOST_PODS)
    if at(job, (*group, "suspend")) is True:
        return 0
    count = (least if replicas < least else min(replicas, most)) * max(1, hosts)
    if count > MOST_PODS:
        raise JobError(f"{count} pods: must be 0 to {MOST_PODS}", shown((*group, "replicas")))
    return count


def _counted_head(job: Json, cluster: Path, path: Path, extra: Sequence[Json]) -> Json:
    template = template_at(job, path)
    sidecars = [*([_autoscaler(job, cluster)] if _scales(job, cluster) else []), *extra]
    cleans_up = _cleans_redis_up(job, cluster)
    if not sidecars and not cleans_up:
        return template
    containers = rows_at(template, ("spec", "containers"))
    if cleans_up:
        if not containers:
            raise JobError("the head needs a container", shown((*path, "spec", "containers")))
        containers[0] = _with_raised_requests(containers[0])
    return {**template, "spec": {**template["spec"], "containers": [*containers, *sidecars]}}


def _scales(job: Json, cluster: Path) -> bool:
    return at(job, (*cluster, "enableInTreeAutoscaling")) is True


def _autoscaler(job: Json, cluster: Path) -> Json:
    resources = at(job, (*cluster, "autoscalerOptions", "resources"))
    return {"name": _AUTOSCALER_CONTAINER, "resources": _AUTOSCALER if resources is None else resources}


def _cleans_redis_up(job: Json, cluster: Path) -> bool:
    annotated = at(job, ("metadata", "annotations", _FAULT_TOLERANT))
    return str(annotated).lower() == "true" or at(job, (*cluster, "gcsFaultToleranceOptions")) is not None


def _with_raised_requests(container: Json) -> Json:
    """The container with at least the requests of the Job that cleans Redis up."""
    resources = dict(mapping_at(container, ("resources",)))
    requests = dict(mapping_at(resources, ("requests",)))
    for name, least in _REDIS_CLEANUP.items():
        try:
            enough = name in requests and quantity.parse_number(requests[name]) >= quantity.parse_number(least)
        except quantity.QuantityError:
            continue  # the API server refuses such pods
        requests[name] = requests[name] if enough else least
    return {**container, "resources": {**resources, "requests": requests}}


def _places(cluster: Path) -> Callable[[Json], list[PodSetPlace]]:
    return lambda job: _cluster_places(job, cluster)


def sizes(job: Json, cluster: Json) -> dict[str, int]:
    """Pod set -> its pods, by the RayCluster that runs the job, where an autoscaler sizes it; {} where none does.

    Raises JobError.
    """
    if not any(_scales(job, where) for where in (_IN_JOB, _IN_SERVICE)):
        return {}
    groups = rows_at(cluster, (*_CLUSTER, "workerGroupSpecs"))
    found = [_group(cluster, (*_CLUSTER, "workerGroupSpecs", i)) for i in range(len(groups))]
    return {place.name: place.count for place in found}


def _size(job: Json) -> Json:
    """Worker group -> what says how many pods it has."""
    return {str(row.get("groupName")): [row.get(each) for each in _SIZES] for row in rows_at(job, _GROUPS)}


def _resized(job: Json, other: Json) -> Json:
    """`workerGroupSpecs` of a RayCluster, its groups as large as those of the same names in the other one."""
    wanted = _size(other)
    rows = rows_at(job, _GROUPS)
    resized = [_with_size(row, wanted.get(str(row.get("groupName")))) for row in rows]
    return {} if resized == rows else {_GROUPS[-1]: resized}


def _with_size(row: Json, wanted: list[Any] | None) -> Json:
    if wanted is None:
        return row
    kept = {name: value for name, value in row.items() if name not in _SIZES}
    return kept | {name: value for name, value in zip(_SIZES, wanted, strict=True) if value is not None}


# --- RayCluster and RayService ----------------------------------------------------------------------------------------


def _cluster_check(cluster: Path) -> Callable[[Json, Json | None], list[Problem]]:
    """Kueue's rules of clusters."""

    def check(job: Json, old: Json | None) -> list[Problem]:
        found: list[Problem] = []
        if _scales(job, cluster) and not _is_elastic(job):
            found.append(
                Problem(shown((*cluster, "enableInTreeAutoscaling")), _NO_SCALING[bool(cluster[1:])], value=True)
            )
        groups = rows_at(job, (*cluster, "workerGroupSpecs"))
        if len(groups) + 1 > _MOST_POD_SETS:
            where = shown((*cluster, "workerGroupSpecs"))
            message = f"must have at most {_MOST_POD_SETS} items"
            found.append(Problem(where, message, value=len(groups) + 1, reason="TooMany"))
        found += [
            Problem(
                shown((*cluster, "workerGroupSpecs", i, "groupName")),
                '"head" is reserved for the head group',
                reason="Forbidden",
            )
            for i, group in enumerate(groups)
            if group.get("groupName") == _HEAD
        ]
        return found

    return check


#: by whether the cluster is part of another object
_NO_SCALING: Final = {
    False: "a kueue-managed RayCluster can use autoscaling only as an elastic job: "
    'enable the ElasticJobsViaWorkloadSlices feature gate and set the "kueue.x-k8s.io/elastic-job": "true" annotation',
    True: "a kueue managed job should only use autoscaling when workload slicing is enabled",
}


def _is_elastic(job: Json) -> bool:
    return at(job, ("metadata", "annotations", names.ELASTIC)) == "true"


def _cluster_is_active(job: Json) -> bool:
    return at(job, ("status", "state")) not in _AT_REST


def _idle_cluster(job: Json) -> Json:
    status = mapping_at(job, ("status",))
    counts = {name: 0 for name in _COUNTS_OF_WORKERS if name in status}
    return {**without_condition(status, "HeadPodReady"), **counts, "state": "suspended"}


def _service_is_active(job: Json) -> bool:
    return condition("Ready")(job)


def _of_cluster(job: Json, child: Json) -> bool:
    """Whether the child is a pod of a group of the cluster, of which KubeRay keeps the wanted number; or the Job that cleans
    Redis up.
    """
    own = str(job["metadata"]["name"])
    if child.get("kind") == "Pod":
        groups = [_HEAD_GROUP, *(row.get("groupName") for row in rows_at(job, ("spec", "workerGroupSpecs")))]
        labels = mapping_at(child, ("metadata", "labels"))
        return labels.get("ray.io/cluster") == own and labels.get("ray.io/group") in groups
    return child.get("kind") == "Job" and str(child["metadata"]["name"]).startswith(own[:40])


def _idle_service(job: Json) -> Json:
    return without_condition(mapping_at(job, ("status",)), "Ready")


def _own_cluster(*paths: Path) -> Callable[[Json, Json], bool]:
    """The RayCluster that the status names; KubeRay writes the name before it creates the cluster."""

    def creates(job: Json, child: Json) -> bool:
        name = child["metadata"]["name"]
        if child.get("kind") == "Job":
            return str(name).startswith(str(job["metadata"]["name"])[:40])
        return child.get("kind") == "RayCluster" and name in [at(job, path) for path in paths]

    return creates


_CLUSTER: Final[Path] = ("spec",)
_IN_JOB: Final[Path] = ("spec", "rayClusterSpec")
_IN_SERVICE: Final[Path] = ("spec", "rayClusterConfig")
_CLUSTER_OF_JOB: Final[Path] = ("status", "rayClusterName")
_CLUSTERS_OF_SERVICE: Final[tuple[Path, ...]] = (
    ("status", "activeServiceStatus", "rayClusterName"),
    ("status", "pendingServiceStatus", "rayClusterName"),
)


def _group_of(labels: Mapping[str, str]) -> str:
    """The pod set of a pod of a cluster, by its group."""
    group = labels.get(_GROUP_LABEL, "").lower()
    return _HEAD if group == _HEAD_GROUP else group


#: Kueue keeps there what it reads off the RayCluster
_UNREAD: Final = tuple(
    (key, "sizes and generation are those of the RayCluster itself")
    for key in (names.RAY_CLUSTER_GENERATION, names.RAY_CLUSTER_SIZES)
)
RAY_CLUSTER: Final = Declaration(
    resource=Resource(_GROUP, "v1", "rayclusters", kind="RayCluster"),
    framework="ray.io/raycluster",
    behaviour=Behaviour(
        places=_places(_CLUSTER),
        finished=never_finished,
        ready=value(("status", "state"), "ready"),
        active=_cluster_is_active,
        idle=_idle_cluster,
    ),
    shipped=True,
    managed_by=("spec", "managedBy"),
    controller=_OPERATOR,
    elastic=True,
    size=_size,
    resized=_resized,
    check=_cluster_check(_CLUSTER),
    creates=_of_cluster,
    unread=_UNREAD,
    found_by=("ray.io/cluster",),
    pod_set_of=_group_of,
    words=Words(
        pod_sets="`head`: 1; each worker group: replicas within their bounds × numOfHosts",
        ready="`status.state` ready",
        finished="never",
    ),
)
RAY_SERVICE: Final = Declaration(
    resource=Resource(_GROUP, "v1", "rayservices", kind="RayService"),
    framework="ray.io/rayservice",
    suspension=Suspension((*_IN_SERVICE, "suspend")),
    behaviour=Behaviour(
        places=_places(_IN_SERVICE),
        finished=never_finished,
        ready=condition("Ready"),
        active=_service_is_active,
        idle=_idle_service,
    ),
    shipped=True,
    managed_by=("spec", "managedBy"),
    controller=_OPERATOR,
    followed=(("spec", "serveConfigV2"),),
    elastic=True,
    check=_cluster_check(_IN_SERVICE),
    sized_by=_CLUSTERS_OF_SERVICE[:1],
    remakes_children=True,  # KubeRay passes `suspend` on to a cluster when it creates it, and never later
    creates=_own_cluster(*_CLUSTERS_OF_SERVICE),
    unread=_UNREAD,
    found_by=("ray.io/cluster",),
    pod_set_of=_group_of,
    words=Words(pod_sets="as a RayCluster", ready="Ready", finished="never"),
)


# --- RayJob -----------------------------------------------------------------------------------------------------------


def _job_places(job: Json) -> list[PodSetPlace]:
    mode = at(job, ("spec", "submissionMode")) or "K8sJobMode"
    sidecar = {"name": _SUBMITTER_CONTAINER, "resources": _SUBMITTER_NEEDS}
    places = _cluster_places(job, _IN_JOB, [sidecar] if mode == "SidecarMode" else ())
    return [*places, _submitter(job)] if mode == "K8sJobMode" else places


def _submitter(job: Json) -> PodSetPlace:
    """The pod of the Job that submits to the cluster; without a template KubeRay makes one with the head's image."""
    path = ("spec", "submitterPodTemplate")
    image = at(job, (*_IN_JOB, "headGroupSpec", "template", "spec", "containers", 0, "image"))
    container = {"name": _SUBMITTER_CONTAINER, "image": image, "resources": _SUBMITTER_NEEDS}
    default: Json = {"spec": {"containers": [container], "restartPolicy": "Never"}}
    template = default if at(job, path) is None else template_at(job, path)
    return PodSetPlace(name=_SUBMITTER, count=1, path=path, counted=template, default=default)


def _job_check(job: Json, old: Json | None) -> list[Problem]:
    """Kueue's rules of RayJobs."""
    selector, cluster = mapping_at(job, ("spec", "clusterSelector")), at(job, _IN_JOB)
    if selector and cluster is not None:
        return [
            Problem("spec.clusterSelector", "a kueue managed job should not use an existing cluster", value=selector)
        ]
    if selector:
        return []
    if cluster is None:
        message = "rayClusterSpec is required for Kueue-managed jobs that don't use clusterSelector"
        return [Problem("spec.rayClusterSpec", message, reason="Required")]
    found: list[Problem] = []
    if at(job, ("spec", "shutdownAfterJobFinishes")) is not True:
        message = "a kueue managed job should delete the cluster after finishing"
        found.append(Problem("spec.shutdownAfterJobFinishes", message, value=False))
    return [*found, *_cluster_check(_IN_JOB)(job, old)]


def _uses_another_cluster(job: Json) -> str:
    return (
        "it runs in an existing cluster (spec.clusterSelector)" if mapping_at(job, ("spec", "clusterSelector")) else ""
    )


def _job_finished(job: Json) -> JobOutcome | None:
    """Complete means that the submitted program has ended: whether it succeeded stands in another field."""
    if at(job, ("status", "jobDeploymentStatus")) not in ("Complete", "Failed"):
        return None
    succeeded = at(job, ("status", "jobStatus")) == "SUCCEEDED"
    return JobOutcome(succeeded, str(at(job, ("status", "message")) or ""))


def _job_is_active(job: Json) -> bool:
    return at(job, ("status", "jobDeploymentStatus")) not in (None, "", "Suspended")


def _idle_job(job: Json) -> Json:
    rest = {name: value for name, value in mapping_at(job, ("status",)).items() if name not in _OF_THE_RUN}
    return {**rest, "jobDeploymentStatus": "Suspended"}


RAY_JOB: Final = Declaration(
    resource=Resource(_GROUP, "v1", "rayjobs", kind="RayJob"),
    framework="ray.io/rayjob",
    behaviour=Behaviour(
        places=_job_places,
        finished=_job_finished,
        ready=value(("status", "rayClusterStatus", "state"), "ready"),
        active=_job_is_active,
        idle=_idle_job,
    ),
    shipped=True,
    managed_by=("spec", "managedBy"),
    controller=_OPERATOR,
    elastic=True,
    check=_job_check,
    left_alone=_uses_another_cluster,
    on_hold=value(("status", "jobDeploymentStatus"), "ValidationFailed"),
    sized_by=(_CLUSTER_OF_JOB,),
    creates=_own_cluster(_CLUSTER_OF_JOB),
    unread=_UNREAD,
    found_by=("ray.io/cluster",),
    pod_set_of=lambda labels: _group_of(labels) or _SUBMITTER,
    words=Words(
        pod_sets="as a RayCluster; `submitter`: 1 in K8sJobMode",
        ready="`status.rayClusterStatus.state` ready",
        finished="`status.jobDeploymentStatus` Complete, Failed",
    ),
)

KINDS: Final = (RAY_JOB, RAY_CLUSTER, RAY_SERVICE)
