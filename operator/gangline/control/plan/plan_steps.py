"""Inputs and results of a plan: one job as it was last seen, and steps."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol, TypeAlias

from gangline.control.status import status_changes
from gangline.control.writes.events import EventType
from gangline.jobs.base import Children, Create, Delete, JobKind, Patch
from gangline.kube.resources import Json


class Lookups(Protocol):
    """What the plan needs to know of the rest of the cluster."""

    @property
    def labels_to_copy(self) -> Sequence[str]:
        """Labels of jobs that their Workloads get too."""
        ...

    @property
    def progress_url(self) -> str:
        """The URL at which pods report their progress, "" = none."""
        ...

    def flavor(self, name: str) -> Json | None: ...
    def patience(self, queue: str) -> int | None:
        """Seconds for which pods of a ClusterQueue stay on a failed node; None: as Kubernetes has it."""
        ...

    def host_name(self, node: str) -> str: ...
    def selects_nodes(self, labels: Mapping[str, str]) -> bool:
        """Some node has all these labels."""
        ...

    def priority(self, job: Json, pod_sets: Sequence[Json]) -> tuple[int, Json | None]:
        """Priority and `priorityClassRef` of a job. Raises JobError when the class it names does not exist."""
        ...


@dataclass(frozen=True, slots=True)
class JobView:
    """One job with everything that belongs to it, as last seen."""

    kind: JobKind
    job: Json
    workloads: Sequence[Json]
    children: Children
    #: a managed owner further up has the Workload that counts
    managed_ancestor: bool = False
    #: pods of an earlier attempt of the gang are still there
    held_back: bool = False
    #: a pod of the gang is on an unreachable node
    unreachable: bool = False
    #: deleted pods still run
    lingering: bool = False


# --- steps -------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class PatchJob:
    """Patch the job, or its status."""

    patch: Patch


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

    workload: Json


@dataclass(frozen=True, slots=True)
class PatchWorkload:
    """Merge patch on metadata or spec."""

    workload: Json
    body: Json


@dataclass(frozen=True, slots=True)
class ChangeStatus:
    """Change a Workload's status; `slot` names the change, so that a newer one replaces an older one."""

    workload: Json
    slot: str
    change: status_changes.Change


@dataclass(frozen=True, slots=True)
class Note:
    """An event on the job."""

    kind: EventType
    reason: str
    message: str


#: the steps that are writes
Writing: TypeAlias = PatchJob | Own | CreateWorkload | DeleteWorkload | PatchWorkload | ChangeStatus
Step: TypeAlias = Writing | Note


def fenced(obj: Json, body: Json) -> Json:
    """The patch, which is refused if the object has changed since."""
    return {**body, "metadata": {**body.get("metadata", {}), "resourceVersion": obj["metadata"]["resourceVersion"]}}
