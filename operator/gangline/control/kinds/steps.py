"""What a plan is made from, one job as last seen, and what it consists of: the steps of the plans of all kinds."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol, TypeAlias

from gangline.control.feed.pod import Pod
from gangline.control.writes.events import EventType
from gangline.control.writes.status.change import Change
from gangline.jobs.base import Children, Create, Delete, JobKind, Patch, PodSetInfo
from gangline.jobs.pods.member import KnownPod
from gangline.kube.resources import Json, Resource
from gangline.objects import JobObject, Stored, WorkloadObject


class Lookups(Protocol):
    """The questions that the plan asks about the rest of the cluster."""

    @property
    def labels_to_copy(self) -> Sequence[str]:
        """Labels of jobs that are copied to their Workloads."""
        ...

    @property
    def annotations_to_copy(self) -> Sequence[str]:
        """Annotations of jobs that are copied to their Workloads."""
        ...

    @property
    def progress_url(self) -> str:
        """The URL to which pods report their progress, "" = none."""
        ...

    def flavor(self, name: str) -> Stored | None: ...
    def patience(self, queue: str) -> int | None:
        """How many seconds pods of a ClusterQueue stay on a failing node; None: the Kubernetes default."""
        ...

    def host_name(self, node: str) -> str: ...
    def selects_nodes(self, labels: Mapping[str, str]) -> bool:
        """Whether some node has all these labels."""
        ...

    def priority(self, job: JobObject, pod_sets: Sequence[Json]) -> tuple[int, Json | None]:
        """Priority and `priorityClassRef` of a job. Raises JobError when the class it names does not exist."""
        ...


@dataclass(frozen=True, slots=True)
class JobView:
    """One job with everything that belongs to it, as last seen."""

    kind: JobKind
    job: JobObject
    workloads: Sequence[WorkloadObject]
    children: Children
    #: a managed ancestor owns this job: the ancestor's Workload counts, the job gets none of its own
    managed_ancestor: bool = False
    #: its kind and its namespace are managed
    in_scope: bool = True
    #: it is only managed if it names a queue
    needs_queue: bool = True
    #: pods of an earlier attempt of the gang still exist
    held_back: bool = False
    #: a pod of the gang is on an unreachable node
    unreachable: bool = False
    #: terminating pods still run
    lingering: bool = False
    #: pods of a gang that is to stop which have lost their controller: nobody else deletes them
    stranded: Sequence[Pod] = ()
    #: it was suspended so soon after its start that its controller may not know it yet
    may_start_pods: bool = False
    #: pods have completed, and all others are ready: a status that counts fewer is a moment old
    completing: bool = False
    #: it belongs to a queued job that holds no quota
    waits_with_ancestor: bool = False
    #: it has more owners, one above the other, than are looked at
    nested_too_deep: bool = False
    #: its owner, which runs now, was held when it created this job, and will not start it
    made_while_held: bool = False
    #: the Workload that its label `prebuilt-workload-name` names, whoever controls it
    named: WorkloadObject | None = None
    #: it grows and shrinks while it runs
    elastic: bool = False
    #: Workloads of nobody that would replace one of an elastic job that names a prebuilt one
    heirs: Sequence[WorkloadObject] = ()
    #: the name of the slice that has replaced the prebuilt Workload which it names, "" = none has
    present: str = ""
    #: the revision of an elastic job, which is part of the names of its Workloads
    revision: str = ""
    #: pod set -> its pods, where another object than the job says how many
    sizes: Mapping[str, int] = field(default_factory=dict[str, int])
    #: pods of an elastic job that are ready or have ended
    ready_pods: int = 0
    #: pod set -> pods of an elastic job that are on nodes, or will be
    started: Mapping[str, int] = field(default_factory=dict[str, int])
    #: the admission that the last write has put into the job, until it was compared with what the API server has kept
    written: Sequence[PodSetInfo] = ()
    #: why the API server has refused the last attempt to start it, "" = it has not
    start_refused: str = ""
    #: whether the API server has a kind
    served: Callable[[Resource], bool] = lambda resource: True

    def pod_sets(self) -> list[Json]:
        """`spec.podSets` of the Workload that describes it. Raises JobError."""
        rows = self.kind.pod_sets(self.job)
        return [{**row, "count": self.sizes.get(row["name"], row["count"])} for row in rows] if self.sizes else rows


# --- steps ------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class PatchJob:
    """Patch the job, or its status. `starts_with`: the admission that the patch writes into the job, () = none."""

    patch: Patch
    starts_with: Sequence[PodSetInfo] = ()


@dataclass(frozen=True, slots=True)
class Own:
    """Create or delete an object that the job owns."""

    write: Create | Delete


@dataclass(frozen=True, slots=True)
class CreateWorkload:
    """Create a Workload for the job."""

    body: Json


@dataclass(frozen=True, slots=True)
class DeleteWorkload:
    """Delete a Workload that is not needed."""

    workload: WorkloadObject


@dataclass(frozen=True, slots=True)
class PatchWorkload:
    """Merge patch on metadata or spec."""

    workload: WorkloadObject
    body: Json


@dataclass(frozen=True, slots=True)
class ChangeStatus:
    """Change a Workload's status; `slot` names the part, so that a newer change replaces an older one of the same part.

    `doubt`: nothing is decided about the Workload until it is known whether the change was written.
    """

    workload: WorkloadObject
    slot: str
    change: Change
    doubt: bool = False


@dataclass(frozen=True, slots=True)
class PatchPod:
    """Merge patch on a pod. `starts_with`: the admission with which the pod passes its gate by it."""

    pod: KnownPod
    body: Json
    starts_with: PodSetInfo | None = None


@dataclass(frozen=True, slots=True)
class PatchPodStatus:
    """Strategic merge patch on a pod's status."""

    pod: KnownPod
    body: Json


@dataclass(frozen=True, slots=True)
class DeletePod:
    """Delete a pod."""

    pod: KnownPod


@dataclass(frozen=True, slots=True)
class Note:
    """An event on the job."""

    kind: EventType
    reason: str
    message: str


@dataclass(frozen=True, slots=True)
class NotePod:
    """An event on a pod."""

    pod: KnownPod
    kind: EventType
    reason: str
    message: str


@dataclass(frozen=True, slots=True)
class NoteWorkload:
    """An event on a Workload."""

    workload: WorkloadObject
    reason: str
    message: str


#: all that a plan can ask for; and those steps that write a Workload
WorkloadStep: TypeAlias = CreateWorkload | DeleteWorkload | PatchWorkload | ChangeStatus
Step: TypeAlias = PatchJob | Own | WorkloadStep | PatchPod | PatchPodStatus | DeletePod | Note | NotePod | NoteWorkload


def fenced(obj: Stored, body: Json) -> Json:
    """The patch with the object's resourceVersion, so that it is refused if the object has changed since."""
    return {**body, "metadata": {**body.get("metadata", {}), "resourceVersion": obj.resource_version}}
