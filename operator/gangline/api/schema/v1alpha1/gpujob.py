"""GPUJob: a gang of workers with GPUs, in a short form."""

from __future__ import annotations

from typing import Annotated, Literal, TypeAlias

from pydantic import Field

from gangline.api.schema.common import (
    Conditions,
    Count,
    Duration,
    Int64,
    KubeObject,
    LabelKey,
    PodSetName,
    PositiveInt32,
    Quantity,
    ResourceName,
    Time,
)
from gangline.api.schema.json_schema import ApiModel, Cel, checked, list_map, rules
from gangline.api.schema.v1beta2.workload import MAX_POD_SETS, PodTemplate

_COMPUTE = "^([a-z0-9][a-z0-9.-]{0,62}/)?(milli|cores)$"
_IMMUTABLE = checked(Cel("self == oldSelf", "field is immutable"))


#: A name as values of labels are.
ShareName: TypeAlias = Annotated[
    str, Field(min_length=1, max_length=63, pattern=r"^[A-Za-z0-9]([-A-Za-z0-9_.]*[A-Za-z0-9])?$")
]


class ShareSpec(ApiModel):
    """Parts of GPUs, where something in the cluster shares them out."""

    by: Literal["HAMi", "KAI", "DRA", "VisibleDevices", "Annotations"]
    """Who shares them out: HAMi (the pods request nvidia.com/gpucores and nvidia.com/gpumem-percentage), KAI (they have the
    annotation gpu-fraction and request no GPU; their schedulerName is the template's) or DRA (each has a ResourceClaim for
    capacity of cards). VisibleDevices: a container runtime that trusts the environment variable NVIDIA_VISIBLE_DEVICES, which
    names the chosen cards; the template's annotation gangline.io/gpu-visible-devices may name another variable. Annotations:
    something else does, and the pods say by gangline.io/gpu-share what they use."""
    percent: Annotated[int, Field(ge=1, le=99)]
    """How much of each GPU a pod uses: of its compute power, and of its memory unless that is given. Quota of
    gangline.io/gpu-milli counts it."""
    memory: Quantity | None = None
    """How much memory of each GPU a pod uses, such as 8Gi: not with KAI, which divides it as the compute power; required with
    DRA. Quota of gangline.io/gpu-mem counts it."""
    device_class: Annotated[str, Field(max_length=253)] | None = None
    """DRA: the DeviceClass of the cards."""
    compute: Annotated[str, Field(max_length=69, pattern=_COMPUTE)] | None = None
    """DRA: the capacity by which the driver counts compute: milli (thousandths, if unset) or cores (percent), with a domain if it
    has one, such as example.com/cores; memory then has it, too."""
    affinity: ShareName | None = None
    """The pods sit on cards with others of this name, if there are any with room. Names are of the namespace, and placement
    policies obey them."""
    anti_affinity: ShareName | None = None
    """The pods never sit on a card with another one of this name."""
    exclusion: ShareName | None = None
    """The pods sit on cards with pods of this name only, and no others sit there."""


class RoleSpec(ApiModel):
    """Equal workers."""

    model_config = rules(
        Cel("!has(self.minReplicas) || self.minReplicas <= self.replicas", "minReplicas must not exceed replicas")
    )
    name: PodSetName
    """The role's name, such as worker, launcher, ps or master. It becomes the pod set's name."""
    replicas: PositiveInt32 = 1
    """The number of pods."""
    min_replicas: PositiveInt32 | None = None
    """The job may start with fewer pods of this role, down to this number. Only one role can have it."""
    gpus: Count = 0
    """GPUs per pod. They are added to the requests of the template's first container, unless it requests them itself."""
    share: ShareSpec | None = None
    """The part of each of these GPUs that a pod uses; the template requests no GPU itself then."""
    template: PodTemplate
    """The template of each pod."""


class RuntimeSpec(ApiModel):
    """The job's runtime."""

    expected: Duration | None = None
    """The author's expected runtime, such as 3h. Only a hint: finished jobs correct it."""
    limit: Duration | None = None
    """The job is stopped for good after this total runtime. Backfill relies on it."""
    checkpoint_interval: Duration | None = None
    """The interval between checkpoints: the most work that is lost when it is stopped."""
    steps: Annotated[int, Field(ge=1)] | None = None
    """The number of steps: with secondsPerStep another form of the expected runtime."""
    seconds_per_step: Annotated[Quantity, Field()] | None = None
    """The seconds per step, such as 1500m."""


class RestartSpec(ApiModel):
    """The reaction to failures."""

    max_restarts: Count = 3
    """The number of restarts of the gang before the job fails."""
    on_node_failure: Literal["Swap", "Restart", "Fail"] = "Swap"
    """Swap: replace the failed node, keep the quota and the healthy nodes. Restart: stop and requeue. Fail: the job fails."""
    on_pod_failure: Literal["RestartGang", "RestartPod", "Fail"] = "RestartGang"
    """RestartGang: all pods start again together. RestartPod: only the failed one. Fail: the job fails."""


class ProgressSpec(ApiModel):
    """The job's signs of life."""

    heartbeat: Duration
    """A longer time without a report counts as evidence that the job hangs."""


class GPUJobPlacementSpec(ApiModel):
    """The placement of the pods relative to each other."""

    model_config = rules(
        Cel(
            "[has(self.required), has(self.preferred), has(self.unconstrained)].filter(x, x).size() <= 1",
            "only one of required, preferred and unconstrained can be set",
        )
    )
    required: LabelKey | None = None
    """All pods of a role must be in one domain of this level, which is a node label."""
    preferred: LabelKey | None = None
    """All pods of a role should be in one domain of this level."""
    unconstrained: bool | None = None
    """Any nodes, but chosen by topology."""


class GPUJobSpec(ApiModel):
    """The gang and its settings."""

    model_config = rules(
        Cel("has(self.roles) != has(self.template)", "exactly one of roles and template must be set"),
        Cel(
            "!has(self.roles)"
            " || !has(self.workers) && !has(self.gpusPerWorker) && !has(self.minWorkers) && !has(self.share)",
            "workers, minWorkers, gpusPerWorker and share belong to the short form; with roles each role has its own",
        ),
        Cel(
            "!has(self.minWorkers) || self.minWorkers <= (has(self.workers) ? self.workers : 1)",
            "minWorkers must not exceed workers",
        ),
        Cel("has(self.roles) == has(oldSelf.roles)", "the form of a job can't be changed"),
    )
    framework: Annotated[Literal["PyTorch", "TensorFlow", "JAX", "MPI", "None"], _IMMUTABLE] = "None"
    """The framework whose environment variables the pods get, by which they find each other. Immutable."""
    suspend: bool = False
    """true while the job waits. Gangline sets and clears it."""
    workers: PositiveInt32 | None = None
    """Short form: the number of equal pods (1 if unset)."""
    min_workers: PositiveInt32 | None = None
    """Short form: the job may start with fewer pods, down to this number."""
    gpus_per_worker: Count | None = None
    """Short form: GPUs per pod."""
    share: ShareSpec | None = None
    """Short form: the part of each of these GPUs that a pod uses."""
    template: PodTemplate | None = None
    """Short form: the template of each pod."""
    roles: Annotated[list[RoleSpec], Field(min_length=1, max_length=MAX_POD_SETS), list_map("name")] | None = None
    """Long form: the gang by roles. All of it starts together, or not at all."""
    gpu_resource: ResourceName = "nvidia.com/gpu"
    """The resource name of GPUs, such as nvidia.com/gpu, amd.com/gpu or google.com/tpu."""
    runtime: RuntimeSpec | None = None
    """The job's runtime: hints and a limit."""
    restart: RestartSpec = RestartSpec()
    """The reaction to failures."""
    progress: ProgressSpec | None = None
    """The job's signs of life."""
    topology: GPUJobPlacementSpec | None = None
    """The placement of the pods relative to each other."""


class ForecastStatus(ApiModel):
    """The forecast of its total runtime, in seconds."""

    p50: Int64
    """The median."""
    p90: Int64
    """The 90th percentile."""
    source: Annotated[str, Field(max_length=63)]
    """The basis of the forecast: Model, Hint, Limit, History (similar finished jobs), Global (all finished jobs) or Default (no
    finished jobs yet)."""
    samples: Count = 0
    """The number of finished jobs on which the forecast is based."""


class ExpectedStartStatus(ApiModel):
    """The expected start of the job at present."""

    earliest: Annotated[Time | None, Field(alias="from")] = None
    """The earliest time at which the start is likely."""
    latest: Annotated[Time | None, Field(alias="to")] = None
    """The time before which the job will most likely have started."""
    because: Annotated[str, Field(max_length=1024)] | None = None
    """The reason for the wait."""


class RolePlacement(ApiModel):
    """The flavor and the nodes of one role."""

    role: PodSetName
    """The role."""
    flavor: Annotated[str, Field(max_length=253)] | None = None
    """The flavor that the role got."""
    nodes: Annotated[list[Annotated[str, Field(max_length=253)]], Field(max_length=64)] | None = None
    """Nodes or topology domains; the first 64."""


class RoleStatus(ApiModel):
    """The pods of one role."""

    name: PodSetName
    """The role."""
    replicas: Count = 0
    """The number of pods at the start."""
    ready: Count = 0
    """Pods that are ready."""
    succeeded: Count = 0
    """Pods that succeeded."""
    failed: Count = 0
    """Pods that failed."""


class Interruption(ApiModel):
    """One replacement of pods of the job."""

    time: Time
    """The time."""
    reason: Annotated[str, Field(max_length=128)]
    """NodeReplace, NodeRestart or NodeRequeue after node failures, else the reason of the failed Job."""
    message: Annotated[str, Field(max_length=1024)]
    """What happened."""


class GPUJobStatus(ApiModel):
    """The job's status."""

    conditions: Conditions | None = None
    """Complete, Failed and Suspended."""
    observed_generation: Int64 | None = None
    """The metadata.generation that this status is about."""
    phase: Literal["Pending", "Starting", "Running", "Recovering", "Suspending", "Succeeded", "Failed"] | None = None
    """The phase of the job."""
    gpus: Count | None = None
    """GPUs of the whole gang."""
    ready: Annotated[str, Field(max_length=32)] | None = None
    """The number of ready pods and of all pods, such as 7/8."""
    roles: Annotated[list[RoleStatus], Field(max_length=MAX_POD_SETS), list_map("name")] | None = None
    """The pods of each role."""
    start_time: Time | None = None
    """The time at which the job last started."""
    completion_time: Time | None = None
    """The time at which the job ended."""
    restarts: Count | None = None
    """The number of restarts of the gang."""
    swaps: Count | None = None
    """The number of nodes that were replaced under the job."""
    interruptions: Annotated[list[Interruption], Field(max_length=8)] | None = None
    """The latest 8 restarts, of the whole gang or of single pods."""
    forecast: ForecastStatus | None = None
    """The forecast of the job's runtime."""
    expected_start: ExpectedStartStatus | None = None
    """The expected start of the job."""
    placement: Annotated[list[RolePlacement], Field(max_length=MAX_POD_SETS), list_map("role")] | None = None
    """The flavor and the nodes of each role."""


class GPUJob(KubeObject):
    """A gang of workers with GPUs that starts when all of it can run. The label kueue.x-k8s.io/queue-name names its
    LocalQueue.
    """

    spec: GPUJobSpec
    """The gang and its settings."""
    status: GPUJobStatus | None = None
    """The job's status."""
