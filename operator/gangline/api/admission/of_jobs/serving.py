"""Deployments, StatefulSets and LeaderWorkerSets: their pod templates are marked, so that their pods wait in their place.

A mark is made again with every change, since `kubectl replace` writes a template without it. What a Workload was made from stays
as it is: the requests of the pods, the size of a group, and the replicas of a StatefulSet but for zero.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final, cast

from gangline.api import names, quantity
from gangline.api.admission.findings import (
    IMMUTABLE,
    NOTHING,
    AdmissionFacts,
    FieldError,
    Json,
    KindRules,
    annotation_path,
    annotations_of,
    fill,
    forbidden,
    immutable,
    invalid,
    labels_of,
    mapping,
    metadata,
    objects,
    text,
    whole,
)
from gangline.api.admission.of_jobs import job_warnings, jobs, pods, topology_request
from gangline.api.admission.of_jobs.dependencies import check_dependencies
from gangline.api.jobkinds import Declaration
from gangline.api.jobkinds.declaration import Path, at, put, shown
from gangline.api.jobkinds.own import (
    DEPLOYMENT,
    GROUP_SIZE,
    LEADER_TEMPLATE,
    LEADER_WORKER_SET,
    MOST_REPLICAS,
    REPLICAS,
    STATEFUL_SET,
    TEMPLATE,
    WORKER_TEMPLATE,
)

#: fields of a pod that decide what it counts and where it runs: those of Kueue's role hash
_SHAPE: Final = (
    *("nodeSelector", "affinity", "tolerations", "runtimeClassName", "priority", "topologySpreadConstraints"),
    *("overhead", "resourceClaims"),
)
_REPLICAS: Final = shown(REPLICAS)


@dataclass(frozen=True, slots=True)
class _Template:
    """One pod template of a kind: what the webhook writes on it."""

    path: Path
    #: labels that its pods get from the object
    labels: tuple[str, ...] = ()
    #: more marks
    managed: bool = False
    serving: bool = False
    #: its pods are counted from 1, where there is a leader
    after_leader: bool = False

    def mark(self, obj: Json, framework: str) -> None:
        written = at(obj, self.path)
        if not isinstance(written, dict):
            return
        template = dict(cast(Json, written))
        put(obj, self.path, template)
        meta = fill(template, "metadata")
        notes = fill(meta, "annotations") if meta is not None else None
        labels = fill(meta, "labels") if meta is not None and (self.labels or self.managed) else None
        if notes is not None:
            notes[names.SUSPENDED_BY_PARENT] = framework
            if self.serving:
                notes[names.POD_GROUP_SERVING] = "true"
            if self.after_leader and _has_leader(obj) and names.PODSET_GROUP not in notes:
                notes[names.POD_INDEX_OFFSET] = "1"
        if labels is not None:
            if self.managed:
                labels[names.MANAGED] = "true"
            labels.update({key: value for key in self.labels if (value := text(labels_of(obj).get(key)))})


@dataclass(frozen=True, slots=True)
class _Marks:
    """Implements `jobs.JobHolding`: the pods wait, and the object itself counts as held while none of them is ready."""

    declaration: Declaration
    templates: tuple[_Template, ...]

    def read(self, job: Json) -> bool:
        return not whole(at(job, ("status", "readyReplicas")), 0)

    def hold(self, job: Json) -> None:
        for each in self.templates:
            each.mark(job, self.declaration.framework)

    def are_on(self, job: Json | None) -> bool:
        return any(_suspending_parent(job, each.path) == self.declaration.framework for each in self.templates)


_COPIED: Final = (names.QUEUE_NAME, names.PRIORITY_CLASS)
_DEPLOYMENT: Final = _Marks(DEPLOYMENT, (_Template(TEMPLATE, _COPIED, managed=True),))
_STATEFUL_SET: Final = _Marks(STATEFUL_SET, (_Template(TEMPLATE),))
_LEADER_WORKER_SET: Final = _Marks(
    LEADER_WORKER_SET,
    (
        _Template(LEADER_TEMPLATE, _COPIED, serving=True),
        _Template(WORKER_TEMPLATE, _COPIED, serving=True, after_leader=True),
    ),
)


def _suspending_parent(obj: Json | None, path: Path) -> str:
    return text(annotations_of(mapping(at(obj or {}, path))).get(names.SUSPENDED_BY_PARENT))


def _has_leader(obj: Json) -> bool:
    return at(obj, LEADER_TEMPLATE) is not None


def _is_of_another(marks: _Marks, obj: Json) -> bool:
    """Whether this is a StatefulSet that a LeaderWorkerSet has made: that one is queued."""
    found = _suspending_parent(obj, TEMPLATE) if marks is _STATEFUL_SET else ""
    return found not in ("", marks.declaration.framework)


def _rules(marks: _Marks) -> KindRules:
    def default(obj: Json, old: Json | None, context: AdmissionFacts) -> list[str]:
        if _is_of_another(marks, obj):
            return []
        if old is not None and not jobs.queue_name(obj) and not marks.are_on(old):
            return []  # a queue that is the namespace's default by now does not stop what serves already
        return jobs.hold_queued(obj, context, marks)

    def validate(obj: Json, old: Json | None, context: AdmissionFacts) -> list[FieldError]:
        if _is_of_another(marks, obj) or not (jobs.queue_name(obj) or jobs.queue_name(old) or context.without_queue):
            return []
        waits = old is not None and _waits(obj, context)  # asked first: after each question a rule begins anew
        errors = [*_new(marks, obj), *_own(marks, obj, old)]
        return errors if old is None else errors + _update(marks, obj, old, context, waits=waits)

    def warn(obj: Json) -> list[str]:
        return _warnings(marks, obj)

    return KindRules(validate, default, warn)


# --- validation -------------------------------------------------------------------------------------------------------


def _new(marks: _Marks, obj: Json) -> list[FieldError]:
    errors = [*jobs.check_queue(obj), *jobs.check_max_exec_time(obj), *jobs.check_gates(obj), *check_dependencies(obj)]
    errors += jobs.check_durations(obj)
    if jobs.is_elastic(obj):
        resource = marks.declaration.resource
        message = f'elastic job is not supported for "{resource.api_version}, Kind={resource.kind}"'
        errors.append(forbidden(annotation_path(jobs.ELASTIC), message))
    return errors


def _own(marks: _Marks, obj: Json, old: Json | None) -> list[FieldError]:
    """What the kind's templates say to queueing. Those of Kubernetes' own kinds are checked by the API server."""
    if marks is not _LEADER_WORKER_SET:
        count = 1 if marks is _DEPLOYMENT else whole(at(obj, REPLICAS), 1) or 1
        return topology_request.check_template(shown(TEMPLATE), mapping(at(obj, TEMPLATE)), count)
    errors: list[FieldError] = []
    replicas = at(obj, REPLICAS)
    if replicas is not None and not 0 <= whole(replicas, -1) <= MOST_REPLICAS:
        limit = f"<= {MOST_REPLICAS}" if whole(replicas, -1) > 0 else ">= 0"
        shown_as = str(replicas)[:20]
        errors.append(
            invalid(_REPLICAS, replicas, f"invalid LeaderWorkerSet replicas: must be {limit}, got {shown_as}")
        )
    size = whole(at(obj, GROUP_SIZE), 1)
    leads = _has_leader(obj)
    counted = [(WORKER_TEMPLATE, size - 1 if leads else size)]
    if leads:
        counted.insert(0, (LEADER_TEMPLATE, 1))
    templates = [(shown(path), mapping(at(obj, path)), count) for path, count in counted]
    for (path, template, count), (place, _) in zip(templates, counted, strict=True):
        if old is None or at(old, place) != at(obj, place):
            errors += pods.check_pods(path, template)
        errors += topology_request.check_template(path, template, count)
    return errors + topology_request.check_groups(templates)


def _update(marks: _Marks, obj: Json, old: Json, context: AdmissionFacts, *, waits: bool) -> list[FieldError]:
    new_queue, old_queue = jobs.queue_name(obj), jobs.queue_name(old)
    held = marks.read(old)
    free = (held and new_queue) or _is_imported(obj, old)
    errors = [] if free else immutable(jobs.QUEUE_PATH, new_queue, old_queue)
    errors += jobs.check_priority_update(obj, old, held=held)
    errors += jobs.check_gates_update(obj, old)
    if marks is _DEPLOYMENT or not waits:
        return errors
    if marks is _STATEFUL_SET:
        return [*errors, *_same_pods(TEMPLATE, obj, old), *_replicas(obj, old)]
    errors += [error for path in (LEADER_TEMPLATE, WORKER_TEMPLATE) for error in _same_pods(path, obj, old)]
    if not context.group_size_stays:
        return errors
    sizes = (whole(at(each, GROUP_SIZE), 1) for each in (obj, old))
    return errors + immutable(shown(GROUP_SIZE), *sizes)


def _is_imported(obj: Json, old: Json) -> bool:
    """Whether the object gets a queue while it runs, from `gangline admin import`, which sees to it that its pods run on."""
    return not jobs.queue_name(old) and bool(jobs.queue_name(obj)) and names.IMPORTING in annotations_of(obj)


def _waits(obj: Json, context: AdmissionFacts) -> bool:
    """Whether the pods of the object wait, as `jobs.hold_queued` decides it."""
    if jobs.belongs_to_queued_owner(obj, context):
        return False
    queued = bool(jobs.queue_name(obj))
    namespace = text(metadata(obj).get("namespace"))
    return (queued or context.without_queue) and context.namespace_is_managed(namespace, queued)


def _replicas(obj: Json, old: Json) -> list[FieldError]:
    """Errors of a change of the replicas, which is allowed only to zero and from zero, since the Workload counts all replicas."""
    new, before = whole(at(obj, REPLICAS), 1), whole(at(old, REPLICAS), 1)
    if new and before:
        return immutable(_REPLICAS, new, before)
    if new and whole(at(obj, ("status", "replicas")), 0) > 0:
        return [forbidden(_REPLICAS, "scaling down is still in progress")]
    return []


# --- the shape of pods ------------------------------------------------------------------------------------------------


def _same_pods(path: Path, obj: Json, old: Json) -> Sequence[FieldError]:
    """The pods of a template request the same as before, and run on the same nodes; images, for one, may change."""
    new, before = at(obj, path), at(old, path)
    if new is None or before is None:
        return [] if new is before else [invalid(shown(path), NOTHING, IMMUTABLE)]
    mine, theirs = (mapping(mapping(template).get("spec")) for template in (new, before))
    place = f"{shown(path)}.spec"
    errors = [error for name in _SHAPE for error in _same(f"{place}.{name}", mine.get(name), theirs.get(name))]
    for name in pods.CONTAINER_LISTS:
        errors += _same_containers(f"{place}.{name}", objects(mine.get(name)), objects(theirs.get(name)))
    return errors + _same(f"{place}.resources", *(_requests(spec) for spec in (mine, theirs)))


def _same_containers(path: str, new: list[Json], old: list[Json]) -> list[FieldError]:
    if len(new) != len(old):
        return [invalid(path, NOTHING, IMMUTABLE)]
    errors: list[FieldError] = []
    for i, (mine, theirs) in enumerate(zip(new, old, strict=True)):
        errors += _same(f"{path}[{i}].resources.requests", *(_requests(container) for container in (mine, theirs)))
        errors += _same(f"{path}[{i}].ports", mine.get("ports"), theirs.get("ports"))
    return errors


def _same(path: str, new: object, old: object) -> list[FieldError]:
    return [] if _plain(new) == _plain(old) else [invalid(path, NOTHING, IMMUTABLE)]


def _requests(of: Json) -> Json:
    """What a container, or a pod as a whole, requests: its limit where it says nothing else, as Kubernetes counts it.

    Quantities are numbers: equal ones are equal, however they are written.
    """
    resources = mapping(of.get("resources"))
    found: Json = {}
    for name, written in {**mapping(resources.get("limits")), **mapping(resources.get("requests"))}.items():
        try:
            found[name] = quantity.parse_number(written)
        except quantity.QuantityError:
            found[name] = written
    return found


def _plain(value: object) -> Any:
    """The value without nulls and empty values, which are equal to absent ones."""
    if isinstance(value, dict):
        fields = {key: _plain(inner) for key, inner in cast("dict[str, object]", value).items()}
        return {key: inner for key, inner in fields.items() if inner not in (None, [], {})} or None
    if isinstance(value, list):
        return [_plain(inner) for inner in cast("list[object]", value)] or None
    return value


# --- warnings ---------------------------------------------------------------------------------------------------------


def _warnings(marks: _Marks, obj: Json) -> list[str]:
    if not jobs.queue_name(obj):
        return []
    kind = marks.declaration.kind
    found = [fault for fault in (job_warnings.node_loss_fault(obj), job_warnings.runtime_hint_fault(obj)) if fault]
    if names.PREBUILT_WORKLOAD in {**labels_of(obj), **annotations_of(obj)}:
        found.append(f"{names.PREBUILT_WORKLOAD} has no effect on a {kind}: its Workloads are made for it")
    if marks is _DEPLOYMENT:
        unheeded = [key for key in (names.MAX_EXEC_TIME,) if key in labels_of(obj)]
        unheeded += [
            key for key in (names.ADMISSION_GATED_BY, *names.DEPENDENCIES, *names.HINTS) if key in annotations_of(obj)
        ]
        rule = f"has no effect on a {kind}: its pods are queued, so write it in spec.template"
        found += [f"{key} {rule}" for key in unheeded]
    return found


DEPLOYMENT_RULES: Final = _rules(_DEPLOYMENT)
STATEFUL_SET_RULES: Final = _rules(_STATEFUL_SET)
LEADER_WORKER_SET_RULES: Final = _rules(_LEADER_WORKER_SET)
