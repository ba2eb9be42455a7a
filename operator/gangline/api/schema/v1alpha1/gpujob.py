"""GPUJob: a gang of workers with GPUs, as short to write as it can be."""

from __future__ import annotations

from typing import Annotated, Literal

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
from gangline.api.schema.json_schema import Cel, Model, checked, list_map, rules
from gangline.api.schema.v1beta2.workload import MAX_POD_SETS, PodTemplate

_IMMUTABLE = checked(Cel("self == oldSelf", "field is immutable"))


class Role(Model):
    """Workers that are all alike."""

    model_config = rules(
        Cel("!has(self.minReplicas) || self.minReplicas <= self.replicas", "minReplicas must not exceed replicas")
    )
    name: PodSetName
    """The role's name, such as worker, launcher, ps or master. It becomes the pod set's name."""
    replicas: PositiveInt32 = 1
    """How many pods."""
    min_replicas: PositiveInt32 | None = None
    """The job may also start with fewer pods of this role, down to this many. Only one role can say so."""
    gpus: Count = 0
    """GPUs per pod. They are added to the requests of the template's first container, unless it names them itself."""
    template: PodTemplate
    """What each pod looks like."""


class Runtime(Model):
    """How long the job runs."""

    expected: Duration | None = None
    """What the author expects, such as 3h. Only a hint: it is used until history knows better."""
    limit: Duration | None = None
    """The job is stopped for good after it has run this long in total. Backfill counts on it."""
    checkpoint_interval: Duration | None = None
    """How often it saves its work: what stopping it costs at most."""
    steps: Annotated[int, Field(ge=1)] | None = None
    """How many steps it does: with secondsPerStep another way to say what is expected."""
    seconds_per_step: Annotated[Quantity, Field()] | None = None
    """How long a step takes, in seconds, such as 1500m."""


class Restart(Model):
    """What happens when something breaks."""

    max_restarts: Count = 3
    """How often the gang may be restarted before the job fails."""
    on_node_failure: Literal["Swap", "Restart", "Fail"] = "Swap"
    """Swap: replace the dead node, keep the quota and the healthy nodes. Restart: stop and queue again. Fail: give
    up."""
    on_pod_failure: Literal["RestartGang", "RestartPod", "Fail"] = "RestartGang"
    """RestartGang: all pods start anew together. RestartPod: only the failed one. Fail: give up."""


class Progress(Model):
    """How the job shows that it is alive."""

    heartbeat: Duration
    """Silence longer than this counts as evidence that it hangs."""


class Placement(Model):
    """Where the pods should be, relative to each other."""

    model_config = rules(
        Cel(
            "[has(self.required), has(self.preferred), has(self.unconstrained)].filter(x, x).size() <= 1",
            "only one of required, preferred and unconstrained can be set",
        )
    )
    required: LabelKey | None = None
    """All pods of a role must be in one domain of this level, given as node label."""
    preferred: LabelKey | None = None
    """All pods of a role should be in one domain of this level."""
    unconstrained: bool | None = None
    """Any nodes will do, but they are chosen node by node."""


class GPUJobSpec(Model):
    """The gang and how it runs."""

    model_config = rules(
        Cel("has(self.roles) != has(self.template)", "exactly one of roles and template must be set"),
        Cel(
            "!has(self.roles) || !has(self.workers) && !has(self.gpusPerWorker) && !has(self.minWorkers)",
            "workers, minWorkers and gpusPerWorker belong to the short form; with roles each role has its own",
        ),
        Cel(
            "!has(self.minWorkers) || self.minWorkers <= (has(self.workers) ? self.workers : 1)",
            "minWorkers must not exceed workers",
        ),
        Cel("has(self.roles) == has(oldSelf.roles)", "the form of a job can't be changed"),
    )
    framework: Annotated[Literal["PyTorch", "TensorFlow", "JAX", "MPI", "None"], _IMMUTABLE] = "None"
    """Sets the environment by which the pods find each other. It can't be changed."""
    suspend: bool = False
    """True while the job waits. Gangline sets and clears it."""
    workers: PositiveInt32 | None = None
    """Short form: how many pods (1 if left out), all alike."""
    min_workers: PositiveInt32 | None = None
    """Short form: the job may also start with fewer pods, down to this many."""
    gpus_per_worker: Count | None = None
    """Short form: GPUs per pod."""
    template: PodTemplate | None = None
    """Short form: what each pod looks like."""
    roles: Annotated[list[Role], Field(min_length=1, max_length=MAX_POD_SETS), list_map("name")] | None = None
    """Long form: the gang by roles. All of it starts together, or nothing."""
    gpu_resource: ResourceName = "nvidia.com/gpu"
    """The resource that GPUs are counted in, such as nvidia.com/gpu, amd.com/gpu or google.com/tpu."""
    runtime: Runtime | None = None
    """How long the job runs: hints and a limit."""
    restart: Restart = Restart()
    """What happens when something breaks."""
    progress: Progress | None = None
    """How the job shows that it is alive."""
    topology: Placement | None = None
    """Where the pods should be, relative to each other."""


class Forecast(Model):
    """How long it will run in total, in seconds."""

    p50: Int64
    """It takes no longer than this with a chance of one half."""
    p90: Int64
    """It takes no longer than this with a chance of nine in ten."""
    source: Annotated[str, Field(max_length=63)]
    """What that is based on: Model, Hint, Limit, History (finished jobs of its kind), Global (all finished jobs) or
    Default (nothing is known yet)."""
    samples: Count = 0
    """How many finished jobs it was learnt from."""


class ExpectedStart(Model):
    """When the job will start, as things stand now."""

    earliest: Annotated[Time | None, Field(alias="from")] = None
    """Not before this."""
    latest: Annotated[Time | None, Field(alias="to")] = None
    """Most likely before this."""
    because: Annotated[str, Field(max_length=1024)] | None = None
    """What it waits for."""


class RolePlacement(Model):
    """Where pods of a role run."""

    role: PodSetName
    """The role."""
    flavor: Annotated[str, Field(max_length=253)] | None = None
    """The flavor it got."""
    nodes: Annotated[list[Annotated[str, Field(max_length=253)]], Field(max_length=64)] | None = None
    """Nodes or topology domains; the first 64."""


class RoleStatus(Model):
    """How the pods of one role are."""

    name: PodSetName
    """The role."""
    replicas: Count = 0
    """How many pods it was started with."""
    ready: Count = 0
    """Pods that are ready."""
    succeeded: Count = 0
    """Pods that ended well."""
    failed: Count = 0
    """Pods that ended badly."""


class Interruption(Model):
    """One time that pods of the job were made anew."""

    time: Time
    """When."""
    reason: Annotated[str, Field(max_length=128)]
    """NodeReplace, NodeRestart or NodeRequeue where nodes failed, else the reason of the Job that failed."""
    message: Annotated[str, Field(max_length=1024)]
    """What happened."""


class GPUJobStatus(Model):
    """How the job is."""

    conditions: Conditions | None = None
    """Complete, Failed and Suspended."""
    observed_generation: Int64 | None = None
    """The metadata.generation that this status is about."""
    phase: Literal["Pending", "Starting", "Running", "Recovering", "Suspending", "Succeeded", "Failed"] | None = None
    """How it is, in one word."""
    gpus: Count | None = None
    """GPUs of the whole gang."""
    ready: Annotated[str, Field(max_length=32)] | None = None
    """Ready pods of all pods, such as 7/8."""
    roles: Annotated[list[RoleStatus], Field(max_length=MAX_POD_SETS), list_map("name")] | None = None
    """How the pods of each role are."""
    start_time: Time | None = None
    """When it was last started."""
    completion_time: Time | None = None
    """When it ended."""
    restarts: Count | None = None
    """How often the gang was restarted."""
    swaps: Count | None = None
    """How many nodes were replaced under it."""
    interruptions: Annotated[list[Interruption], Field(max_length=8)] | None = None
    """What made it stop and start anew, in whole or in part; the latest 8."""
    forecast: Forecast | None = None
    """How long it will run."""
    expected_start: ExpectedStart | None = None
    """When it will start."""
    placement: Annotated[list[RolePlacement], Field(max_length=MAX_POD_SETS), list_map("role")] | None = None
    """Where it runs."""


class GPUJob(KubeObject):
    """A gang of workers with GPUs that starts when all of it can run. The label kueue.x-k8s.io/queue-name says which
    LocalQueue it waits in."""

    spec: GPUJobSpec
    """The gang and how it runs."""
    status: GPUJobStatus | None = None
    """How the job is."""
