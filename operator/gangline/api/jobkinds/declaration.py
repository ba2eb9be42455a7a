"""The record of one job kind: how it is called, how it is suspended, where its pods are, and what its status says.

All functions are pure, on the job's JSON. Those that read what users wrote raise JobError, which names the field.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, Protocol, TypeAlias, cast

from gangline.api.jobkinds.node_loss import RESTARTS, NodeLoss
from gangline.kube.resources import Json, Resource

#: the most pods that a pod set of a Workload can have
MOST_PODS: Final = 2**31 - 1


class JobError(Exception):
    """The job itself is wrong: it cannot be queued or started as it is. `field` is the JSON path of the cause."""

    def __init__(self, message: str, field: str = "") -> None:
        super().__init__(f"{field}: {message}" if field else message)
        self.field = field
        self.message = message


class NoPodsError(JobError):
    """The job names no pods. As in Kueue it may be created, and is not queued while that is so."""


@dataclass(frozen=True, slots=True)
class JobOutcome:
    """How a job ended; `message` is copied to the Workload's Finished condition."""

    success: bool
    message: str


# --- paths ------------------------------------------------------------------------------------------------------------


class Key(str):
    """A part of a path that is the key of a map, not a field: shown in brackets."""

    __slots__ = ()


#: names of fields, keys of maps and positions in lists, from the job inwards
Path: TypeAlias = tuple[str | int, ...]


def shown(path: Path) -> str:
    """The path as messages name it: spec.workerGroupSpecs[0].template, spec.pytorchReplicaSpecs[Master].template."""
    text = "".join(f"[{part}]" if isinstance(part, Key | int) else f".{part}" for part in path)
    return text.removeprefix(".")


def at(obj: object, path: Path) -> Any:
    """What is at the path; None where nothing is, or where something on the way has another type."""
    found: object = obj
    for part in path:
        if isinstance(part, int) and isinstance(found, list):
            items = cast("list[object]", found)
            found = items[part] if part < len(items) else None
        elif isinstance(part, str) and isinstance(found, dict):
            fields = cast("dict[str, object]", found)
            found = fields.get(part)
        else:
            return None
    return found


def put(obj: Json, path: Path, value: object) -> None:
    """Write a value, with the objects on the way to it; nothing where something on the way has another type.

    `obj` itself changes. Objects and lists on the way are replaced by changed copies: whoever else has them sees no change.
    """
    way: list[Any] = [obj]
    for part in path[:-1]:
        outer = cast(object, way[-1])
        inner = at(outer, (part,))
        if inner is None and isinstance(part, str) and isinstance(outer, dict):
            way.append({})
        elif isinstance(inner, dict | list):
            way.append(cast(Any, inner).copy())
        else:
            return
    if isinstance(way[-1], dict):
        way[-1][path[-1]] = value
        for place, part, own in zip(way, path[:-1], way[1:], strict=False):
            place[part] = own


def drop(obj: Json, path: Path) -> None:
    """Remove what is at the path, as `put` writes it."""
    inner = mapping_at(obj, path[:-1])
    if len(path) == 1:
        obj.pop(str(path[0]), None)
    elif path[-1] in inner:
        put(obj, path[:-1], {name: value for name, value in inner.items() if name != path[-1]})


def mapping_at(obj: object, path: Path) -> Json:
    """The object at the path; {} for anything else."""
    found = at(obj, path)
    return cast(Json, found) if isinstance(found, dict) else {}


def rows_at(obj: object, path: Path) -> list[Json]:
    """The list at the path; a wrong entry reads as an empty object, so that positions stay correct."""
    found = at(obj, path)
    rows = cast("list[object]", found) if isinstance(found, list) else []
    return [cast(Json, row) if isinstance(row, dict) else {} for row in rows]


def number_at(obj: object, path: Path, default: int) -> int:
    """A count that a user wrote, from 0. Raises JobError."""
    value = at(obj, path)
    if value is None:
        return default
    if not isinstance(value, int) or isinstance(value, bool):
        raise JobError("must be a whole number", shown(path))
    if not 0 <= value <= MOST_PODS:
        raise JobError(f"must be 0 to {MOST_PODS}, is {str(value)[:40]}", shown(path))
    return value


# --- the record -------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Suspension:
    """Where a kind keeps its suspend field. `inverted`: the field is true while the job may run, such as `active`."""

    path: Path = ("spec", "suspend")
    inverted: bool = False

    def read(self, job: Json) -> bool:
        """Whether the job is held."""
        return at(job, self.path) is (not self.inverted)

    def hold(self, job: Json) -> None:
        put(job, self.path, not self.inverted)

    def release(self, job: Json) -> None:
        put(job, self.path, self.inverted)

    def cel(self, of: str) -> str:
        """The CEL expression of `read` for `object` or `oldObject`."""
        found = of + "".join(f".?{part}" for part in self.path)
        return f"{found}.orValue(true) == false" if self.inverted else f"{found}.orValue(false) == true"

    @property
    def shown(self) -> str:
        return shown(self.path)


SPEC_SUSPEND: Final = Suspension()


@dataclass(frozen=True, slots=True)
class PodSetPlace:
    """One pod set of a job, and where in the job the additions of an admission go."""

    name: str
    count: int
    #: the pod template
    path: Path
    #: what the Workload gets: the template with the containers that the job's controller adds to the pods
    counted: Json
    #: the template that the job's controller makes where none is written; one that admission has written is removed again
    default: Json | None = None
    #: the pods' label with their index in the pod set, "" = none
    index_label: str = ""
    #: the pods' label with the index of their group, and the number of groups
    sub_groups: tuple[str, int] | None = None


#: says yes or no of a job's status
Test: TypeAlias = Callable[[Json], bool]


def _nothing_reclaimable(job: Json) -> dict[str, int]:
    return {}


class Injection(Protocol):
    """How a job takes its admission where the pods' templates are not the place for it. Each changes the job in place."""

    def write(self, job: Json, additions: Mapping[str, Json]) -> None:
        """`additions`: pod set -> {labels, annotations, nodeSelector, tolerations, schedulingGates}, those that there are."""
        ...

    def clear(self, job: Json, originals: Mapping[str, Json]) -> None:
        """Back to what the user wrote. `originals`: pod set -> its template in the Workload."""
        ...

    def written(self, job: Json) -> Mapping[str, Json]:
        """Pod set -> its additions, as they stand in the job; none for pod sets that have got nothing."""
        ...


def _no_status(job: Json) -> Json:
    return {}


@dataclass(frozen=True, slots=True)
class Behaviour:
    """What Gangline has to know to queue, start, observe and stop a job."""

    #: the pod sets in order. Raises JobError.
    places: Callable[[Json], Sequence[PodSetPlace]]
    finished: Callable[[Json], JobOutcome | None]
    #: all pods of the gang are ready
    ready: Test
    #: pods may still run
    active: Test
    #: pod set -> pods that have ended for good while the job still runs
    reclaimable: Callable[[Json], dict[str, int]] = _nothing_reclaimable
    #: None: an admission goes into the templates at the paths of the pod sets
    injection: Injection | None = None
    #: lists of an injection that the job's controller puts in place of those of the pods, instead of adding to them
    replaced: tuple[str, ...] = ()
    #: what is injected is written first, while the job is suspended: its controller refuses both in one write
    injected_first: bool = False
    #: what was injected may be withdrawn only once none of the job's pods runs, in a second write
    withdrawn_at_rest: bool = False
    #: the status of an active job once none of its pods runs; asked for where its controller does not write it, since it ran in
    #: another cluster
    idle: Callable[[Json], Json] = _no_status


@dataclass(frozen=True, slots=True)
class Problem:
    """A rule that a job breaks. `path` is shown as it is; `value` only where one is given."""

    path: str
    message: str
    value: object = None
    #: "" = an invalid value; else Required, Forbidden or TooMany
    reason: str = ""


def _no_problem(job: Json, old: Json | None) -> Sequence[Problem]:
    return ()


def _always_created_by_it(job: Json, child: Json) -> bool:
    return True


def _never(job: Json) -> str:
    return ""


def _unprepared(job: Json) -> None:
    return None


def _no_warning(job: Json) -> Sequence[str]:
    return ()


def _no_reference(job: Json) -> Reference | None:
    return None


def _no_sizes(job: Json) -> Json:
    return {}


def _unchanged(job: Json, other: Json) -> Json:
    return {}


def _no_words(labels: Mapping[str, str]) -> str:
    return ""


def _all_used(job: Json, look: Look) -> Sequence[str]:
    return ()


#: another object of the cluster: its kind, and `namespace/name` or `name`
Reference: TypeAlias = tuple[Resource, str]
#: finds such an object; None if there is none, or if it is not known
Look: TypeAlias = Callable[[Reference], Json | None]
#: where a job carries the object that describes its pods, and the pod sets that it runs with: beside its own fields, which
#: have no such names, in the operator only
DESCRIPTION: Final = "(description)"
RUNS_WITH: Final = "(runs with)"
#: where a job carries the fields of its kind that the API server was seen not to know, of those in `Declaration.alternatives`
UNKNOWN_FIELDS: Final = "(unknown fields)"


@dataclass(frozen=True, slots=True)
class Words:
    """The kind in the table of docs/job-kinds.md."""

    pod_sets: str = ""
    ready: str = ""
    finished: str = ""


@dataclass(frozen=True, slots=True)
class Declaration:
    """One job kind. All that depends on a kind's name or on where its fields are follows from this record."""

    resource: Resource
    #: Kueue's name of the kind in `integrations.frameworks`; "" for a kind of our own, which is always managed
    framework: str = ""
    suspension: Suspension = SPEC_SUSPEND
    #: None for a kind with a module of its own in `gangline.jobs`
    behaviour: Behaviour | None = None
    #: False: a kind of Kubernetes itself, which no cluster lacks
    optional: bool = True
    #: managed without a list of frameworks
    by_default: bool = False
    #: listed in the configuration that Kueue ships, and so in ours
    shipped: bool = False
    #: the name of a PriorityClass, which has precedence over those of the pods; () = none
    priority_class: Path = ()
    #: the name of the controller that runs the job; () = the kind has no such field
    managed_by: Path = ()
    #: the name there that means the kind's usual controller
    controller: str = ""
    #: how long a job stays after its end before its controller deletes it; () = it stays
    expiry: Path = ()
    #: fields of a job here that the one in another cluster follows while it runs
    followed: tuple[Path, ...] = ()
    #: fields that cannot change while the job runs
    frozen: tuple[Path, ...] = ()
    #: the kind's own rules: (job, old) -> problems. The rules of all kinds are in `admission.of_jobs.jobs`.
    check: Callable[[Json, Json | None], Sequence[Problem]] = _no_problem
    #: why a job that names a queue is left alone all the same, "" = it is not
    left_alone: Callable[[Json], str] = _never
    #: whether the job's controller creates such a child: any user can write an owner reference
    creates: Callable[[Json, Json], bool] = _always_created_by_it
    #: its controller will not run the job as it is, so its Workload is put on hold
    on_hold: Test | None = None
    #: its jobs may grow and shrink while they run, where their author says so
    elastic: bool = False
    #: where the status names the RayCluster that runs the job, whose autoscaler sizes its groups; () = none does
    sized_by: tuple[Path, ...] = ()
    #: the fields that say how many pods such a job has, reduced to what two jobs differ by
    size: Callable[[Json], Json] = _no_sizes
    #: the change of the spec of one job after which it has the size of another: (the one, the other) -> fields
    resized: Callable[[Json, Json], Json] = _unchanged
    #: the job's controller suspends what it has created whenever the job is suspended
    holds_children: bool = False
    #: the job's controller neither stops what it has created nor starts what it has created held: children are suspended with the
    #: job, and those that are suspended when it starts are deleted, so that the controller makes them anew
    remakes_children: bool = False
    #: the pod set of a pod, by the labels that its controller gives it; "" = they do not say
    pod_set_of: Callable[[Mapping[str, str]], str] = _no_words
    #: the labels by which its controller finds its pods, besides their owner; the first has the job's name
    found_by: tuple[str, ...] = ()
    #: it is never suspended: its pods wait in its place, one by one or in groups (`gangline.jobs.serving`)
    by_pods: bool = False
    #: the other object that describes the job's pods; the job carries it as DESCRIPTION when it is planned
    described_by: Callable[[Json], Reference | None] = _no_reference
    #: the kinds of such objects
    descriptions: tuple[Resource, ...] = ()
    #: the templates of the pod sets are made of other fields, so they are compared as Kueue compares them
    derived: bool = False
    #: the pod sets of a job as Kueue, or an earlier version, has counted them: a running job with such a Workload goes on
    counted_before: Callable[[Json], Sequence[Json]] | None = None
    #: fields that different versions of the kind have for the same thing: an admission goes into the first that is known
    alternatives: tuple[Path, ...] = ()
    #: the software that has a field into which an admission can go, as its users call it
    needs: str = ""
    #: fields of a job for which that object has no place, as sentences for its author
    unused: Callable[[Json, Look], Sequence[str]] = _all_used
    #: a job may name a prebuilt Workload
    prebuilt: bool = True
    #: writes into a new job what its pods need to be placed
    prepare: Callable[[Json], None] = _unprepared
    #: what the author of a valid job should know
    warn: Callable[[Json], Sequence[str]] = _no_warning
    #: annotations of Kueue's that are not read on its jobs, each with the reason
    unread: tuple[tuple[str, str], ...] = ()
    #: what becomes of its jobs when nodes fail
    node_loss: NodeLoss = RESTARTS
    words: Words = field(default_factory=Words)

    @property
    def group(self) -> str:
        return self.resource.group

    @property
    def kind(self) -> str:
        return self.resource.kind

    @property
    def identity(self) -> tuple[str, str]:
        """Group and kind."""
        return self.resource.group, self.resource.kind


# --- what many kinds have in common -----------------------------------------------------------------------------------


def condition(kind: str, status: str = "True") -> Test:
    """The job has this condition."""
    return lambda job: any(
        row.get("type") == kind and row.get("status") == status for row in rows_at(job, ("status", "conditions"))
    )


def labelled(key: str) -> Callable[[Mapping[str, str]], str]:
    """The name of a pod set is the value of this label of its pods, in lower case as in a Workload."""
    return lambda labels: labels.get(key, "").lower()


def without_condition(status: Json, kind: str) -> Json:
    """The same status with this condition False, if it has it."""
    rows = rows_at(status, ("conditions",))
    if not any(row.get("type") == kind and row.get("status") == "True" for row in rows):
        return status
    return {**status, "conditions": [{**row, "status": "False"} if row.get("type") == kind else row for row in rows]}


def value(path: Path, *values: object) -> Test:
    """One of these values is at the path."""
    return lambda job: at(job, path) in values


def positive(path: Path) -> Test:
    """A number above 0 is at the path."""
    return lambda job: isinstance(found := at(job, path), int) and found > 0


def ended_by_conditions(succeeded: str, failed: str) -> Callable[[Json], JobOutcome | None]:
    """Finished when one of these conditions is true; its message is the outcome's."""

    def finished(job: Json) -> JobOutcome | None:
        for row in rows_at(job, ("status", "conditions")):
            if row.get("type") in (succeeded, failed) and row.get("status") == "True":
                return JobOutcome(row.get("type") == succeeded, str(row.get("message") or ""))
        return None

    return finished


Ending: TypeAlias = Callable[[Json], JobOutcome | None]


def ended_by_values(path: Path, succeeded: Sequence[object], failed: Sequence[object], message: Path = ()) -> Ending:
    """Finished when one of these values is at the path; `message` is the path of the outcome's message."""

    def finished(job: Json) -> JobOutcome | None:
        found = at(job, path)
        if found is None or (found not in succeeded and found not in failed):
            return None
        return JobOutcome(found in succeeded, str((at(job, message) if message else found) or ""))

    return finished


def never_finished(job: Json) -> JobOutcome | None:
    return None


def template_at(job: Json, path: Path) -> Json:
    """A pod template that has to be there. Raises JobError."""
    found = at(job, path)
    if not isinstance(found, dict):
        raise JobError("a pod template is needed", shown(path))
    body = cast(Json, found)
    if not isinstance(body.get("spec"), dict):
        raise JobError("a pod template is needed", shown((*path, "spec")))
    return body
