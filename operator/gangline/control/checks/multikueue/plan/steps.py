"""Input and output of the plan for one workload: what it and its copies look like, and steps."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TypeAlias

from gangline.api.read.configuration.multikueue import MultiKueueSettings
from gangline.control.checks.multikueue.clusters.copies import Copy
from gangline.control.writes.events import EventType
from gangline.jobs.base import RunsOnOtherCluster
from gangline.kube.resources import Json
from gangline.objects import JobObject, WorkloadObject


@dataclass(frozen=True, slots=True)
class ClusterView:
    """One cluster, as far as it concerns the workload."""

    #: it is known what the cluster holds now
    connected: bool
    #: since when it is not connected, in ms
    lost_at: int = 0
    #: a write there is in flight, or rests after a refusal
    busy: bool = False
    #: a write there is in flight
    in_flight: bool = False
    copy: Copy | None = None
    #: the jobs that use the quota of the copy, by name: one, or the pods of a group
    jobs: Mapping[str, JobObject] = field(default_factory=dict[str, JobObject])
    #: those that had finished when they were deleted there, and are not there any more
    ended: Mapping[str, JobObject] = field(default_factory=dict[str, JobObject])
    #: jobs with the names of these, for other workloads: leftovers
    blockers: Mapping[str, JobObject] = field(default_factory=dict[str, JobObject])
    #: copies of other Workloads use the same jobs
    shared: bool = False
    #: for a slice of an elastic job: the copy of the one that it replaces
    before: Copy | None = None
    #: for a slice that another one has replaced: the job still runs there
    goes_on: bool = False
    #: why the job cannot run there, as far as its kind goes; "" = it can
    refuses: str = ""


@dataclass(frozen=True, slots=True)
class SentFamily:
    """The Workloads of one object, which run in one cluster."""

    #: all of them exist
    complete: bool
    #: this is the first one: it speaks for all
    leads: bool
    #: the cluster in which others of them run, "" = none
    cluster: str


@dataclass(frozen=True, slots=True)
class Chain:
    """A Workload as a slice of an elastic job."""

    #: another one has taken its place here
    over: bool = False
    #: the key of the one that it replaces, "" = of none
    replaces: str = ""
    #: which is not over here yet
    waits: bool = False


@dataclass(frozen=True, slots=True)
class MultiKueueView:
    """A Workload, its job, and what exists for it, as last seen. Times are in ms."""

    workload: WorkloadObject
    #: the row of this controller in `status.admissionChecks`; None: it has none
    row: Json | None
    #: the clusters of the check's configuration, in its order; None: it has none that can be used
    listed: Sequence[str] | None
    #: all clusters by name, listed or not
    clusters: Mapping[str, ClusterView]
    #: its jobs by name: one, or the pods of a group; none of them may be there
    jobs: Mapping[str, JobObject]
    #: `apiVersion` and `kind` of its owner; None: it has none
    owner: tuple[str, str] | None
    #: the owner's kind; None: its jobs run only here
    kind: RunsOnOtherCluster | None
    settings: MultiKueueSettings
    now: int
    #: when the last round of an incremental dispatcher began; None: not known
    round_at: int | None = None
    #: for an object with several Workloads
    family: SentFamily | None = None
    #: for an elastic job
    chain: Chain | None = None


# --- steps ------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class SetCheck:
    """Give the check another state. `row`: the check as it was; `kind` of the event about it."""

    row: Json
    state: str
    message: str
    kind: EventType = "Normal"


@dataclass(frozen=True, slots=True)
class Choose:
    """Let the workload run in this cluster: the check is ready. `placed`: its pod sets that have their nodes there."""

    row: Json
    cluster: str
    placed: Sequence[str] = ()


@dataclass(frozen=True, slots=True)
class Nominate:
    """Write `status.nominatedClusterNames`; `begins`: a round of an incremental dispatcher begins."""

    clusters: Sequence[str]
    begins: bool = False


@dataclass(frozen=True, slots=True)
class Finish:
    reason: str
    message: str


@dataclass(frozen=True, slots=True)
class MirrorStatus:
    """Give the job here another status."""

    job: JobObject
    status: Json


@dataclass(frozen=True, slots=True)
class Wait:
    """Look again at this time, in ms."""

    until: int


@dataclass(frozen=True, slots=True)
class Send:
    """Create the copy of the Workload in a cluster. `gates`: its preemption gates, None = those of the Workload."""

    cluster: str
    gates: Sequence[str] | None = None


@dataclass(frozen=True, slots=True)
class SendJob:
    """Create a job in the cluster that runs the workload."""

    cluster: str
    job: JobObject
    spec: Json


@dataclass(frozen=True, slots=True)
class WithdrawFromCluster:
    """Delete these jobs, and the copy, in a cluster. `rest`: not at once again if that was not enough."""

    cluster: str
    copy: Copy | None
    jobs: Sequence[JobObject]
    rest: bool = False


@dataclass(frozen=True, slots=True)
class Reprioritise:
    """Give the copy the priority of the workload."""

    cluster: str
    copy: Copy


@dataclass(frozen=True, slots=True)
class OpenGate:
    """Let the copy have others preempted for it."""

    cluster: str
    copy: Copy


@dataclass(frozen=True, slots=True)
class Follow:
    """Give the job in a cluster, as last seen, what the job here asks for now."""

    cluster: str
    job: JobObject
    spec: Json


@dataclass(frozen=True, slots=True)
class Cut:
    """Give the copy the smaller size of the slice here."""

    cluster: str
    copy: Copy


@dataclass(frozen=True, slots=True)
class Resize:
    """Give the job in a cluster, as last seen, the size of the job here, and the slice here as the one that it runs with."""

    cluster: str
    remote: JobObject
    job: JobObject


@dataclass(frozen=True, slots=True)
class Stop:
    """Have the copy evicted, because the workload here is. `of`: the key of the slice whose copy that is, "" = of this one."""

    cluster: str
    copy: Copy
    message: str
    of: str = ""


OnOtherCluster: TypeAlias = (
    Send | SendJob | WithdrawFromCluster | Reprioritise | OpenGate | Follow | Cut | Resize | Stop
)
Here: TypeAlias = SetCheck | Choose | Nominate | Finish | MirrorStatus
Step: TypeAlias = OnOtherCluster | Here | Wait
