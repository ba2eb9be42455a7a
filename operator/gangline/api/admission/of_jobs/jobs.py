"""Rules of all job kinds: queue name, priority class, suspension, gates.

A kind's module builds its `KindRules` with `job_rules`, passing only what differs. A job is suspended while `spec.suspend` is
true; a kind that keeps it in another field passes its own `JobHolding`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, Protocol

from gangline import bounded
from gangline.api import flavor_speeds, jobkinds, names, quantity
from gangline.api.admission import multikueue, syntax
from gangline.api.admission.findings import (
    IMMUTABLE,
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
    label_path,
    labels_of,
    metadata,
    objects,
    required,
    text,
)
from gangline.api.admission.of_jobs import elastic, job_warnings
from gangline.api.admission.of_jobs.dependencies import check_dependencies
from gangline.api.admission.of_jobs.elastic import is_elastic as is_elastic
from gangline.api.admission.of_jobs.identifiers import prebuilt_path, prebuilt_workload
from gangline.api.jobkinds.declaration import SPEC_SUSPEND, Path, at, put
from gangline.api.schedules import instant

ELASTIC: Final = names.ELASTIC
LONGEST_GATE: Final = 63
WORKLOAD_PRIORITY_DEFAULT: Final = "default"


def queued_owners() -> frozenset[tuple[str, str]]:
    """Group and kind of objects that may wait in a queue and own others: a child of a queued one is never queued itself."""
    external = frozenset((each.group, each.kind) for each in jobkinds.external())
    return external | {each.identity for each in jobkinds.known()}


QUEUE_PATH: Final = label_path(names.QUEUE_NAME)
PRIORITY_PATH: Final = label_path(names.PRIORITY_CLASS)
MAX_EXEC_PATH: Final = label_path(names.MAX_EXEC_TIME)
GATED_PATH: Final = annotation_path(names.ADMISSION_GATED_BY)


def queue_name(job: Json | None) -> str:
    """The LocalQueue of a job; the label has precedence over the annotation of older manifests. "" = none."""
    return text(labels_of(job).get(names.QUEUE_NAME)) or text(annotations_of(job).get(names.QUEUE_NAME))


def controller_of(obj: Json) -> Json | None:
    """The owner reference of the controller, if there is one."""
    owners = objects(metadata(obj).get("ownerReferences"))
    return next((owner for owner in owners if owner.get("controller") is True), None)


def could_be_queued(owner: Json) -> bool:
    """Whether the owner reference is of a kind that may wait in a queue."""
    group = text(owner.get("apiVersion")).rpartition("/")[0]
    identity = (group, text(owner.get("kind")))
    return jobkinds.declaration_of(*identity) is not None or jobkinds.external_kind(*identity) is not None


def may_lead_to_queued(owner: Json) -> bool:
    """Whether the owner may be queued, or is a pod, which may have an owner that is: executors of Spark belong to their driver's
    pod.
    """
    return could_be_queued(owner) or (owner.get("apiVersion"), owner.get("kind")) == ("v1", "Pod")


class JobHolding(Protocol):
    """How a kind keeps its jobs from running: a suspend field, or the gate of a pod."""

    def read(self, job: Json) -> bool:
        """Whether the job is held."""
        ...

    def hold(self, job: Json) -> None: ...


#: a kind's own checks: (job, old) -> errors
Checks = Callable[[Json, Json | None], list[FieldError]]


#: whether a job asks for more pods than before: (job, old) -> yes or no
Grown = Callable[[Json, Json], bool]


def job_rules(
    checks: Checks,
    suspension: JobHolding = SPEC_SUSPEND,
    *,
    grown: Grown | None = None,
    checked_without_queue: bool = False,
    managed_by: Path = (),
    may_leave: bool = False,
    own_manager: str = "",
) -> KindRules:
    """The rules of a job kind. A job without a queue is not managed, unless the kind is our own or the context says so.

    `grown` is given for a kind whose size may change while it runs, `managed_by` for one that may run in another cluster: the
    field with the name of its controller. `own_manager` is the name there that means its usual one. `may_leave`: Kueue has a
    gate by which such a job may lose its queue while it runs, and then is none of ours.
    """

    def default(job: Json, old: Json | None, context: AdmissionFacts) -> list[str]:
        starts = (old is None or suspension.read(old)) and not suspension.read(job)
        if starts and belongs_to_queued_owner(job, context):
            return _hold_with_owner(job, context, suspension)
        if old is None:
            made = hold_queued(job, context, suspension) + _default_manager(job, context, managed_by, own_manager)
            return (
                made
                + job_warnings.hint(job, None)
                + (job_warnings.outside(job, context) if checked_without_queue else [])
            )
        resizes = context.elastic and elastic.pods_wait(old)
        return (
            job_warnings.hint(job, old)
            + _normalise_queue(job)
            + (_hold_what_grew(job, old, suspension, grown) if grown is not None and not resizes else [])
        )

    def validate(job: Json, old: Json | None, context: AdmissionFacts) -> list[FieldError]:
        if not context.elastic:
            job, old = elastic.without_annotation(job), elastic.without_annotation(old) if old is not None else None
        leaving = bool(queue_name(old)) and (context.leaving_checked or not may_leave)
        queued = bool(queue_name(job)) or leaving or context.without_queue
        errors = _validate_common(job, old, context, suspension) if queued else []
        return errors + checks(job, old) if queued or checked_without_queue else errors

    return KindRules(validate=validate, default=default)


# --- defaulting -------------------------------------------------------------------------------------------------------


def hold_queued(job: Json, context: AdmissionFacts, suspension: JobHolding) -> list[str]:
    """Queue label, priority class and suspension of a new job, in Kueue's order."""
    if belongs_to_queued_owner(job, context):
        return []
    warnings = _normalise_queue(job)
    written = dict(labels_of(job))  # what is filled in below exists
    if not queue_name(job):
        _default_queue(job, context)
    if queue_name(job) or context.without_queue:
        namespace = text(metadata(job).get("namespace"))
        if context.namespace_is_managed(namespace, bool(queue_name(job))):
            _default_priority(job, context)
            suspension.hold(job)
            warnings += job_warnings.missing(namespace, written, context)
            warnings += [] if queue_name(job) else [job_warnings.HELD_WITHOUT_QUEUE]
            if context.elastic:
                elastic.hold_pods(job)
    return warnings


def _hold_with_owner(job: Json, context: AdmissionFacts, suspension: JobHolding) -> list[str]:
    """A child of a queued job needs no queue, but it runs no sooner than that job: an owner reference is written by anybody.

    The operator would suspend it too, but only after its pods have started.
    """
    owner = controller_of(job)
    if owner is None or suspension.read(job) or not context.owner_waits(text(metadata(job).get("namespace")), owner):
        return []
    suspension.hold(job)
    kind, name = text(owner.get("kind"))[:63], text(owner.get("name"))[:253]
    return [f'it belongs to {kind} "{name}", which waits for its quota: it is suspended']


def _default_manager(job: Json, context: AdmissionFacts, where: Path, own: str) -> list[str]:
    """A new job whose queue sends workloads to other clusters: its controller here leaves it alone."""
    namespace, queue = text(metadata(job).get("namespace")), text(labels_of(job).get(names.QUEUE_NAME))
    if where and queue and at(job, where) in (None, "", own) and context.runs_on_other_cluster(namespace, queue):
        put(job, where, multikueue.CONTROLLER)
    return []


def _hold_what_grew(job: Json, old: Json, suspension: JobHolding, grown: Grown) -> list[str]:
    """A running job that asks for more pods is suspended in the same write, so that none of them starts without quota.

    The operator would suspend it too, as Kueue does, but only after the pods of the new size have started. It stops one that asks
    for fewer as well: its author hears of both.
    """
    if not queue_name(job) or suspension.read(job):
        return []
    if not grown(job, old):
        shrunk = not suspension.read(old) and grown(old, job)
        warning = "the job asks for fewer pods than it was admitted with: all its pods are stopped, and it queues again"
        return [warning] if shrunk else []
    suspension.hold(job)
    return [
        "the job asks for more pods than it was admitted with: it is suspended and waits in its queue for all of them"
    ]


def _normalise_queue(job: Json) -> list[str]:
    """Copy the queue named by annotation to the label, which all other code reads."""
    label, annotation = text(labels_of(job).get(names.QUEUE_NAME)), text(annotations_of(job).get(names.QUEUE_NAME))
    if not annotation or annotation == label:
        return []
    if label:
        return [f'the {names.QUEUE_NAME} annotation "{annotation[:63]}" is ignored: the label says "{label}"']
    if not syntax.label_value_faults(annotation):  # else validation reports the error in the annotation
        _set_label(job, names.QUEUE_NAME, annotation)
    return []


def _default_queue(job: Json, context: AdmissionFacts) -> None:
    namespace = text(metadata(job).get("namespace"))
    if context.local_queue_exists(namespace, names.LOCAL_QUEUE_DEFAULT) and context.namespace_is_managed(
        namespace, False
    ):
        _set_label(job, names.QUEUE_NAME, names.LOCAL_QUEUE_DEFAULT)


def _default_priority(job: Json, context: AdmissionFacts) -> None:
    if labels_of(job).get(names.PRIORITY_CLASS):
        return
    if context.priority_class_exists(WORKLOAD_PRIORITY_DEFAULT):
        _set_label(job, names.PRIORITY_CLASS, WORKLOAD_PRIORITY_DEFAULT)


def _set_label(job: Json, label: str, value: str) -> None:
    meta = fill(job, "metadata")
    writable = fill(meta, "labels") if meta is not None else None
    if writable is not None:
        writable[label] = value


def belongs_to_queued_owner(job: Json, context: AdmissionFacts) -> bool:
    owner = controller_of(job)
    if owner is None or not may_lead_to_queued(owner):
        return False
    return context.owner_is_queued(text(metadata(job).get("namespace")), owner, job)


# --- validation -------------------------------------------------------------------------------------------------------


def _validate_common(job: Json, old: Json | None, context: AdmissionFacts, suspension: JobHolding) -> list[FieldError]:
    errors = [
        *check_queue(job),
        *_prebuilt(job),
        *check_max_exec_time(job),
        *check_durations(job),
        *_start_by(job),
        *check_flavor_speeds(job),
        *check_gates(job),
        *check_dependencies(job),
        *_array(job),
        *elastic.check(job),
    ]
    if old is None:
        return errors
    held, was_held = suspension.read(job), suspension.read(old)
    return [
        *errors,
        *_queue_update(job, old, context, held=held),
        *_prebuilt_update(job, old, held=held),
        *check_priority_update(job, old, held=held),
        *_max_exec_time_update(job, old, held=held and was_held),
        *check_gates_update(job, old),
        *_elastic_update(job, old),
    ]


def check_queue(job: Json) -> list[FieldError]:
    errors: list[FieldError] = []
    label, annotation = labels_of(job).get(names.QUEUE_NAME), annotations_of(job).get(names.QUEUE_NAME)
    if label is not None:
        errors += syntax.dns_subdomain(QUEUE_PATH, label)
    if annotation is not None and annotation != label:
        path = annotation_path(names.QUEUE_NAME)
        errors += syntax.dns_subdomain(path, annotation)
        if not errors and syntax.label_value_faults(text(annotation)):
            errors.append(invalid(path, annotation, "must be no more than 63 bytes, to be kept as a label"))
    return errors


def _prebuilt(job: Json) -> list[FieldError]:
    name, path = prebuilt_workload(job), prebuilt_path(job)
    label = labels_of(job).get(names.PREBUILT_WORKLOAD)
    written = label if path == label_path(names.PREBUILT_WORKLOAD) else name
    return [] if written is None else syntax.dns_subdomain(path, written)


def check_max_exec_time(job: Json) -> list[FieldError]:
    value = labels_of(job).get(names.MAX_EXEC_TIME)
    if value is None:
        return []
    try:
        seconds = syntax.go_int(text(value))
    except ValueError as error:
        return [invalid(MAX_EXEC_PATH, value, str(error))]
    return [] if seconds > 0 else [invalid(MAX_EXEC_PATH, seconds, "should be greater than 0")]


def check_durations(job: Json) -> list[FieldError]:
    """Annotations that are durations above zero."""
    written = annotations_of(job)
    return [
        error
        for name in (names.CHECKPOINT_INTERVAL, names.UNSCHEDULED_TIMEOUT)
        if name in written
        for error in _duration(annotation_path(name), written[name])
    ]


def _duration(path: str, value: object) -> list[FieldError]:
    try:
        seconds = quantity.parse_duration(text(value))
    except quantity.QuantityError as error:
        return [invalid(path, value, str(error))]
    return [] if seconds > 0 else [invalid(path, value, "should be greater than 0")]


def _start_by(job: Json) -> list[FieldError]:
    """The time by which room is to be made for the job."""
    value = annotations_of(job).get(names.START_BY)
    if value is None:
        return []
    try:
        instant(text(value))
    except (OverflowError, ValueError):
        return [invalid(annotation_path(names.START_BY), value, "must be a time such as 2026-01-31T12:00:00Z")]
    return []


def check_flavor_speeds(job: Json) -> list[FieldError]:
    """How fast the job runs on which flavor."""
    value = annotations_of(job).get(names.FLAVOR_SPEEDS)
    if value is None or flavor_speeds.speeds(text(value)) is not None:
        return []
    return [invalid(annotation_path(names.FLAVOR_SPEEDS), value, flavor_speeds.WANTED)]


def _array(job: Json) -> list[FieldError]:
    """How many tasks of an array may run at a time, and of which array."""
    limit, path = annotations_of(job).get(names.ARRAY_LIMIT), annotation_path(names.ARRAY_LIMIT)
    if limit is None:
        return []
    if not labels_of(job).get(names.ARRAY):
        return [required(label_path(names.ARRAY), "names the array whose tasks the limit is for")]
    known = bounded.whole(text(limit))
    return [] if known else [invalid(path, limit, "should be a whole number greater than 0")]


def _gate_names(job: Json) -> list[str]:
    written = text(annotations_of(job).get(names.ADMISSION_GATED_BY))
    return [gate.strip() for gate in written.split(",")] if written else []


def check_gates(job: Json) -> list[FieldError]:
    """The gates of a job or a Workload."""
    written = annotations_of(job).get(names.ADMISSION_GATED_BY)
    errors: list[FieldError] = []
    seen: set[str] = set()
    for gate in _gate_names(job):
        if not gate:
            errors.append(invalid(GATED_PATH, written, "cannot contain empty gate names"))
        elif gate in seen:
            errors.append(invalid(GATED_PATH, written, f"duplicate gate name: {gate}"))
        elif len(gate) > LONGEST_GATE:
            errors.append(invalid(GATED_PATH, gate, f"may not be more than {LONGEST_GATE} bytes"))
        else:
            errors += [invalid(GATED_PATH, gate, fault) for fault in syntax.domain_path_faults(gate)]
        seen.add(gate)
    return errors


def _queue_update(job: Json, old: Json, context: AdmissionFacts, *, held: bool) -> list[FieldError]:
    new_name, old_name = queue_name(job), queue_name(old)
    errors = [] if held or is_adopted(job, old) else immutable(QUEUE_PATH, new_name, old_name)
    if old_name and not new_name:
        namespace = text(metadata(old).get("namespace"))
        if context.local_queue_exists(namespace, names.LOCAL_QUEUE_DEFAULT):
            message = "queue-name must not be empty in namespace with default queue"
            errors.append(invalid(QUEUE_PATH, "", message))
    return errors


def _prebuilt_update(job: Json, old: Json, *, held: bool) -> list[FieldError]:
    if held or is_elastic(old) or is_adopted(job, old):
        return []
    return immutable(prebuilt_path(job), prebuilt_workload(job), prebuilt_workload(old))


def is_adopted(job: Json, old: Json) -> bool:
    """A running job that was not managed names a queue together with its Workload, as `gangline admin import` writes it.

    If that Workload holds no quota, the job is stopped like any that runs without.
    """
    before = queue_name(old) or prebuilt_workload(old)
    return not before and bool(queue_name(job)) and bool(prebuilt_workload(job))


def check_priority_update(job: Json, old: Json, *, held: bool) -> list[FieldError]:
    new_class, old_class = (
        text(labels_of(job).get(names.PRIORITY_CLASS)),
        text(labels_of(old).get(names.PRIORITY_CLASS)),
    )
    if not held and new_class and not old_class:
        message = "WorkloadPriorityClass cannot be added to a non-suspended workload"
        return [invalid(PRIORITY_PATH, new_class, message)]
    if old_class and not new_class:
        return [invalid(PRIORITY_PATH, new_class, "WorkloadPriorityClass cannot be removed from a workload")]
    return []


def _max_exec_time_update(job: Json, old: Json, *, held: bool) -> list[FieldError]:
    if held:
        return []
    return immutable(MAX_EXEC_PATH, labels_of(job).get(names.MAX_EXEC_TIME), labels_of(old).get(names.MAX_EXEC_TIME))


def check_gates_update(job: Json, old: Json) -> list[FieldError]:
    new_gates, old_gates = _gate_names(job), _gate_names(old)
    if new_gates and not old_gates:
        return [forbidden(GATED_PATH, "cannot add admission gate after creation")]
    if not set(new_gates) <= set(old_gates):
        return [forbidden(GATED_PATH, "can only remove gates, not add new ones")]
    return []


def _elastic_update(job: Json, old: Json) -> list[FieldError]:
    if is_elastic(job) == is_elastic(old):
        return []
    return [invalid(annotation_path(ELASTIC), is_elastic(job), IMMUTABLE)]
