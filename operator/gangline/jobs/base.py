"""The interface of a job kind: a few pure functions on the job's JSON.

A kind says how its pods are grouped, how it is suspended, started and stopped, and when it has finished. It never talks to the
API server: it returns the writes that would advance the job by one step, and is called again when the job has changed
(level-triggered, so a crash between two steps loses nothing).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol, TypeAlias, runtime_checkable

from gangline.api import names
from gangline.api.read import swap_record
from gangline.kube.resources import Json, Resource


class JobError(Exception):
    """The job itself is wrong: it cannot be queued or started as it is. `field` is the JSON path of the cause."""

    def __init__(self, message: str, field: str = "") -> None:
        super().__init__(f"{field}: {message}" if field else message)
        self.field = field
        self.message = message


class UnknownClassError(JobError):
    """The label of the job names a WorkloadPriorityClass that does not exist."""


@dataclass(frozen=True, slots=True)
class PodSetInfo:
    """The additions of an admission to the pod template of one pod set."""

    name: str
    count: int
    node_selector: Mapping[str, str] = field(default_factory=dict[str, str])
    tolerations: Sequence[Json] = ()
    labels: Mapping[str, str] = field(default_factory=dict[str, str])
    annotations: Mapping[str, str] = field(default_factory=dict[str, str])
    scheduling_gates: Sequence[Json] = ()
    #: tolerations with an end: how long pods stay on a failed node. They do not identify the gang.
    patience: Sequence[Json] = ()
    #: host names of nodes to avoid, if the kind lets its pods' affinity be changed
    avoid: Sequence[str] = ()


@dataclass(frozen=True, slots=True)
class Outcome:
    """How a job ended; `message` is copied to the Workload's Finished condition."""

    success: bool
    message: str


@dataclass(frozen=True, slots=True)
class RuntimeHints:
    """The runtime hints of a job, in seconds; None = none, or none that can be read."""

    expected: float | None = None
    limit: float | None = None  # it is stopped after this long


@dataclass(frozen=True, slots=True)
class Patch:
    """A JSON merge patch on the job itself; `subresource` "" or "status"."""

    body: Json
    subresource: str = ""


@dataclass(frozen=True, slots=True)
class Create:
    """Create an object that the job owns (owner reference and namespace are in the body)."""

    resource: Resource
    body: Json


@dataclass(frozen=True, slots=True)
class Delete:
    resource: Resource
    namespace: str
    name: str
    uid: str
    propagation: str = "Foreground"


JobWrite: TypeAlias = Patch | Create | Delete


@dataclass(frozen=True, slots=True)
class Children:
    """The objects that the job owns, as last seen: its child Jobs and the Services of its gang."""

    jobs: Sequence[Json] = ()
    services: Sequence[Json] = ()


def checkpoints(job: Json, interval: str | None = None) -> dict[str, str]:
    """The checkpoint interval, for its Workload: `interval` of its spec, else by its own annotation."""
    interval = interval or (job["metadata"].get("annotations") or {}).get(names.CHECKPOINT_INTERVAL)
    return {names.CHECKPOINT_INTERVAL: interval} if interval else {}


def node_loss(job: Json) -> dict[str, str]:
    """The job's own setting for lost pods, for its Workload: "Restart" if the whole gang must then start again."""
    interval = (job["metadata"].get("annotations") or {}).get(names.NODE_LOSS)
    return {names.NODE_LOSS: interval} if interval in (swap_record.REPLACE, swap_record.RESTART) else {}


class JobKind(Protocol):
    """One module per kind implements this; `gangline.jobs.KINDS` lists them."""

    resource: Resource
    api_version: str
    kind: str
    framework: str  # Kueue's integration name, such as "batch/job"
    owns_children: bool  # True: `sync` creates and deletes objects of its own
    optional: bool  # True: it is not a kind of Kubernetes itself, so a cluster may lack it

    def is_suspended(self, job: Json) -> bool:
        """The job is suspended, completely: no step of a stop is left to do."""
        ...

    def pod_sets(self, job: Json) -> list[Json]:
        """`spec.podSets` of the Workload (v1beta2 JSON). Raises JobError."""
        ...

    def start(self, job: Json, infos: Sequence[PodSetInfo]) -> Patch | None:
        """The one patch that starts a suspended job with its admission injected. Raises JobError on conflicting keys.

        None if the job already runs as admitted.
        """
        ...

    def stop(self, job: Json, pod_sets: Sequence[Json]) -> Patch | None:
        """The next patch on the way back to the suspended job that `pod_sets` came from.

        None if it is there, or if the next step has to wait for its pods to end: `is_suspended` distinguishes these.
        """
        ...

    def runtime_hints(self, job: Json) -> RuntimeHints:
        """The runtime hints of its author. Never raises: errors of the job are reported elsewhere."""
        ...

    def workload_annotations(self, job: Json) -> dict[str, str]:
        """Annotations of its Workload: values without a field in Kueue's schema that have to outlive this process."""
        ...

    def attempt(self, job: Json) -> int | None:
        """The attempt of its gang that the job runs, from the pods' annotation that `start` set.

        None for a kind that owns its children: `sync` handles attempts there.
        """
        ...

    def is_active(self, job: Json, children: Children) -> bool:
        """Pods of the job may still run: its quota must stay held."""
        ...

    def finished(self, job: Json) -> Outcome | None: ...

    def pods_ready(self, job: Json) -> bool: ...

    def reclaimable(self, job: Json) -> dict[str, int]:
        """Pod set -> pods that have ended for good while the job still runs (their quota may be released)."""
        ...

    def sync(self, job: Json, infos: Sequence[PodSetInfo] | None, children: Children) -> list[JobWrite]:
        """Writes that bring the objects the job owns, and its status, up to date.

        `infos` is the admission it runs with, None while it is suspended.
        """
        ...


# --- what only some kinds do ------------------------------------------------------------------------------------------


@runtime_checkable
class Expires(Protocol):
    """It fails when its time is up; other kinds are only suspended, as in Kueue."""

    def expire(self, job: Json, at: str) -> Patch | None:
        """It was stopped at `at` because its time was up. None if its status says so, or if another limit stopped it."""
        ...


@runtime_checkable
class Restarts(Protocol):
    """It can start its whole gang again in place."""

    def restart(self, job: Json, reason: str, message: str, at: str) -> Patch | None:
        """None if it does not run, or was restarted as often as it may be."""
        ...


@runtime_checkable
class AnswersRefusals(Protocol):
    """Its status names the children that the API server does not accept."""

    def rejected(self, job: Json, message: str) -> Patch | None:
        """`message` is the API server's answer to a create. None if it is not about the content, and may be temporary."""
        ...


@runtime_checkable
class ShowsRefusedPods(Protocol):
    """Its status says that the API server refuses its pods."""

    def pods_refused(self, job: Json, refused: bool, reason: str, message: str, at: str) -> Patch | None:
        """On what ground they are refused, or that they no longer are. None if its status says so."""
        ...


@runtime_checkable
class LeavesBehind(Protocol):
    """Objects of an earlier run may keep the next one from starting as admitted."""

    def outdated_children(self, job: Json, infos: Sequence[PodSetInfo], children: Children) -> Sequence[Delete]:
        """The children that have to be deleted before it starts with `infos`."""
        ...
