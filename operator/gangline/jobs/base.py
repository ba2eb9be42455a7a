"""The interface of a job kind: a few pure functions on the job's JSON.

A kind says how its pods are grouped, how it is suspended, started and stopped, and when it has finished. It never talks to the
API server: it returns the writes that would advance the job by one step, and is called again when the job has changed
(level-triggered, so a crash between two steps loses nothing).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, Protocol, TypeAlias, runtime_checkable

from gangline.api import names
from gangline.api.jobkinds.declaration import Declaration, Path, Suspension
from gangline.api.jobkinds.declaration import JobError as JobError
from gangline.api.jobkinds.declaration import JobOutcome as JobOutcome
from gangline.kube.resources import Json, Resource
from gangline.objects import JobObject, Stored


class PriorityClassError(JobError):
    """The job asks for a priority that its namespace does not allow, or by a class that does not exist."""


class UnknownClassError(PriorityClassError):
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
    #: what flavors and admission checks contradict each other about, "" = nothing: such pods are not started
    conflict: str = ""


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
    """The objects that the job owns, as last seen: its child Jobs, the Services of its gang and the ResourceClaimTemplates of its
    pods.
    """

    jobs: Sequence[JobObject] = ()
    services: Sequence[Stored] = ()
    claim_templates: Sequence[Stored] = ()


def checkpoints(job: JobObject, interval: str | None = None) -> dict[str, str]:
    """The checkpoint interval, for its Workload: `interval` of its spec, else by its own annotation."""
    interval = interval or job.annotations.get(names.CHECKPOINT_INTERVAL)
    return {names.CHECKPOINT_INTERVAL: interval} if interval else {}


# --- what controllers have seen ---------------------------------------------------------------------------------------

_SUSPENDED: Final = "Suspended"
_CONTROLLERS: Final = frozenset({None, "", "kubernetes.io/job-controller", "jobset.sigs.k8s.io/jobset-controller"})


def is_stopping(job: JobObject) -> bool:
    """Whether the job is suspended, while its controller, that of Jobs or of JobSets, still reports that it is resumed.

    Until the controller reports the suspension, it may go on with what it had begun, and create pods that nothing counts yet. For
    a job that is being deleted, or is about to end, the report says nothing more.
    """
    row = job.condition(_SUSPENDED)
    if row is None or row.get("status") != "False" or not job.spec.get("suspend"):
        return False
    return not job.deleting and not is_ending(job) and _here(job)


def is_ending(job: JobObject) -> bool:
    """Whether the end of a Job is decided: no pod of it is created any more, and it has ended once those that it has are gone."""
    return any(job.is_true(kind) for kind in ("SuccessCriteriaMet", "FailureTarget"))


def confirmed_start(job: JobObject) -> Patch | None:
    """Says in place of its controller that a job is resumed, where that has not said so yet; None where nothing is to be said.

    A controller that is just starting the job may have pods created after it was suspended again. It has to contradict this
    condition then, and so shows that it has seen the suspension (`is_stopping`).
    """
    row = job.condition(_SUSPENDED)
    if row is None or row.get("status") != "True" or job.spec.get("suspend") or job.deleting or not _here(job):
        return None
    said = {
        **row,
        "status": "False",
        "reason": "Stopping",
        "message": "The job is suspended before its controller saw its start",
    }
    rows: list[Json] = job.status["conditions"]
    return Patch({"status": {"conditions": [said if each is row else each for each in rows]}}, "status")


def has_seen_suspension(job: JobObject) -> bool:
    """Whether the controller of a suspended job, that of Jobs or of JobSets, knows of it, or has never seen it otherwise.

    One that was suspended before its controller had said anything may still get pods: perhaps the controller has seen its start,
    and nothing else. The first generation of a job was never started.
    """
    if job.condition(_SUSPENDED) is not None or not job.spec.get("suspend") or not _here(job):
        return True
    return job.deleting or is_ending(job) or (job.generation or 1) == 1


def _here(job: JobObject) -> bool:
    """Whether the usual controller runs the job, which says what it sees."""
    return job.spec.get("managedBy") in _CONTROLLERS


class SentAlone:
    """Most kinds in another cluster: each job goes there by itself, with one Workload and nothing more to say of it."""

    @property
    def pods_wait(self) -> bool:
        return False

    @property
    def shared(self) -> bool:
        return False

    def unsendable(self, job: JobObject) -> str:
        return ""

    def size_of(self, job: JobObject) -> Json:
        return {}

    def resized(self, remote: JobObject, job: JobObject) -> Json:
        return {}

    def marks(self, job: JobObject) -> Mapping[str, str]:
        return {}

    def finished(self, job: JobObject) -> JobOutcome | None:
        return None


class Declared(SentAlone):
    """What all kinds have from their declaration."""

    declaration: Declaration
    owns_children: bool = False  # True: `sync` creates and deletes objects of its own

    @property
    def resource(self) -> Resource:
        return self.declaration.resource

    @property
    def api_version(self) -> str:
        return self.declaration.resource.api_version

    @property
    def kind(self) -> str:
        return self.declaration.resource.kind

    @property
    def suspension(self) -> Suspension:
        return self.declaration.suspension

    @property
    def managed_by(self) -> Path:
        return self.declaration.managed_by

    @property
    def followed(self) -> Sequence[Path]:
        return self.declaration.followed

    def resizable(self, job: JobObject) -> frozenset[str]:
        return frozenset()

    def node_loss(self, job: JobObject) -> dict[str, str]:
        """The annotations of the job's Workload about lost nodes."""
        said = self.declaration.node_loss.of(job.annotations)
        return {names.NODE_LOSS: said} if said else {}


class JobKind(Protocol):
    """What the operator does with jobs of one kind: `declared.DeclaredKind` for most, a module of its own for some."""

    @property
    def declaration(self) -> Declaration: ...

    @property
    def owns_children(self) -> bool: ...

    @property
    def resource(self) -> Resource: ...

    @property
    def api_version(self) -> str: ...

    @property
    def kind(self) -> str: ...

    def resizable(self, job: JobObject) -> frozenset[str]:
        """The pod sets whose size may change while the job runs, if it is elastic."""
        ...

    def is_suspended(self, job: JobObject) -> bool:
        """Whether the job is suspended, completely: no step of a stop is left to do."""
        ...

    def pod_sets(self, job: JobObject) -> list[Json]:
        """`spec.podSets` of the Workload (v1beta2 JSON). Raises JobError."""
        ...

    def start(self, job: JobObject, infos: Sequence[PodSetInfo]) -> Patch | None:
        """The next patch that starts a suspended job with its admission injected. Raises JobError on conflicting keys.

        Most kinds need one patch, which also unsuspends the job. None if the job already runs as admitted.
        """
        ...

    def not_kept(self, job: JobObject, infos: Sequence[PodSetInfo]) -> list[str]:
        """What a patch of `start` with `infos` has written and a job, as the API server has stored it, lacks."""
        ...

    def stop(self, job: JobObject, pod_sets: Sequence[Json]) -> Patch | None:
        """The next patch on the way back to the suspended job that `pod_sets` came from.

        None if it is there, or if the next step has to wait for its pods to end: `is_suspended` distinguishes these.
        """
        ...

    def runtime_hints(self, job: JobObject) -> RuntimeHints:
        """The runtime hints of its author. Never raises: the job's own checks report its errors."""
        ...

    def workload_annotations(self, job: JobObject) -> dict[str, str]:
        """Annotations of the job's Workload: values without a field in Kueue's schema that have to outlive this process."""
        ...

    def attempt(self, job: JobObject) -> int | None:
        """The attempt of its gang that the job runs, from the pods' annotation that `start` set.

        None for a kind that owns its children: `sync` handles attempts there.
        """
        ...

    def is_active(self, job: JobObject, children: Children) -> bool:
        """Whether pods of the job may still run: its quota must stay held."""
        ...

    def finished(self, job: JobObject) -> JobOutcome | None: ...

    def pods_ready(self, job: JobObject) -> bool: ...

    def reclaimable(self, job: JobObject) -> dict[str, int]:
        """Pod set -> pods that have ended for good while the job still runs (their quota may be released)."""
        ...

    def sync(self, job: JobObject, infos: Sequence[PodSetInfo] | None, children: Children) -> list[JobWrite]:
        """Writes that bring the objects the job owns, and its status, up to date.

        `infos` is the admission it runs with, None while it is suspended.
        """
        ...


# --- what only some kinds do ------------------------------------------------------------------------------------------


@runtime_checkable
class Expires(Protocol):
    """A kind whose jobs fail when their time is up; jobs of other kinds are only suspended, as in Kueue."""

    def expire(self, job: JobObject, at: str) -> Patch | None:
        """Let the status say that the job was stopped at `at` because its time was up. None if its status says so, or if another
        limit stopped it.
        """
        ...


@runtime_checkable
class Restarts(Protocol):
    """A kind whose jobs can start their whole gang again in place."""

    def restart(self, job: JobObject, reason: str, message: str, at: str) -> Patch | None:
        """Start the gang again. None if the job does not run, or was restarted as often as it may be."""
        ...


@runtime_checkable
class AnswersRefusals(Protocol):
    """A kind whose status names the children that the API server does not accept."""

    def rejected(self, job: JobObject, message: str) -> Patch | None:
        """Let the status say that a create was refused: `message` is the API server's answer. None if it is not about the
        content, and may be temporary.
        """
        ...


@runtime_checkable
class NeedsKinds(Protocol):
    """A kind of which some jobs need kinds that not every API server has."""

    def needed_kinds(self, job: JobObject) -> Mapping[Resource, str]:
        """The kinds that the job needs, each with the field that asks for it. Raises JobError."""
        ...


@runtime_checkable
class ShowsRefusedPods(Protocol):
    """A kind whose status says that the API server refuses the pods of a job."""

    def pods_refused(self, job: JobObject, refused: bool, reason: str, message: str, at: str) -> Patch | None:
        """Let the status say on what ground the pods are refused, or that they no longer are. None if it says so already."""
        ...


@runtime_checkable
class LeavesBehind(Protocol):
    """Objects of an earlier run may keep the next one from starting as admitted."""

    def outdated_children(self, job: JobObject, infos: Sequence[PodSetInfo], children: Children) -> Sequence[Delete]:
        """The children that have to be deleted before it starts with `infos`."""
        ...


@runtime_checkable
class ShowsSuspension(Protocol):
    """A kind whose controller says in a job's status that it has seen the suspension."""

    def has_seen_suspension(self, job: JobObject) -> bool:
        """Whether the controller knows of the suspension. False while one that has begun with the job may not know yet that it is
        suspended again.
        """
        ...


@runtime_checkable
class RunsOnOtherCluster(Protocol):
    """A kind whose jobs may run in another cluster, while the job here shows how far it is: a field keeps controllers
    here away.
    """

    @property
    def resource(self) -> Resource: ...

    @property
    def suspension(self) -> Suspension:
        """The place of the suspend field."""
        ...

    @property
    def managed_by(self) -> Path:
        """The path of the field with the name of the job's controller; () = there is none, and the job runs here only, unless its
        pods wait.
        """
        ...

    @property
    def pods_wait(self) -> bool:
        """Whether the pods' gates keep the job from running here."""
        ...

    @property
    def shared(self) -> bool:
        """Whether a job has several Workloads, which all run in one cluster."""
        ...

    def unsendable(self, job: JobObject) -> str:
        """Why the job cannot be sent, whatever the cluster; "" = it can."""
        ...

    @property
    def followed(self) -> Sequence[Path]:
        """Fields in which the other job follows this one while it runs."""
        ...

    def size_of(self, job: JobObject) -> Json:
        """The fields by which an elastic job says how many pods it has; {} = in another cluster it keeps its size."""
        ...

    def resized(self, remote: JobObject, job: JobObject) -> Json:
        """The fields of the spec of `remote`, with their values, after which it has the size of `job`."""
        ...

    def marks(self, job: JobObject) -> Mapping[str, str]:
        """More annotations of the job for another cluster."""
        ...

    def sent(self, job: JobObject, pod_sets: Sequence[Json]) -> Json:
        """`spec` of the job for another cluster: suspended, run by the controller there, with the pod templates of `pod_sets`,
        which no admission here has changed. It does not delete itself: its end is read first, and then it is deleted from here.
        """
        ...

    def finished(self, job: JobObject) -> JobOutcome | None:
        """How the job has ended; None while it has not, or for a kind whose jobs may go at any time."""
        ...

    def mirrored(self, job: JobObject, remote: JobObject | None) -> Json | None:
        """The status for the job here, by the job `remote` that runs for it; None if it has that status.

        Without a `remote` none of its pods runs any more.
        """
        ...
