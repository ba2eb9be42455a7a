"""Warnings for the author of a job on apply, which refuse nothing: names that do not exist yet, hints without effect."""

from __future__ import annotations

from typing import Final

from gangline.api import names, quantity
from gangline.api.admission import syntax
from gangline.api.admission.findings import AdmissionFacts, Json, annotations_of, labels_of, metadata, objects, text
from gangline.api.admission.of_jobs import identifiers
from gangline.api.jobkinds import Declaration, declaration_of
from gangline.api.jobkinds.node_loss import BY_ITS_PODS
from gangline.bounded import shown

#: of a job that is managed all the same (`manageJobsWithoutQueueName`)
HELD_WITHOUT_QUEUE: Final = f"it names no queue (label {names.QUEUE_NAME}): it is held until it names one"


def missing(namespace: str, labels: Json, context: AdmissionFacts) -> list[str]:
    """What a job names by its labels and what does not exist (yet): it waits for that."""
    queue = text(labels.get(names.QUEUE_NAME))
    found: list[str] = []
    if not syntax.dns_subdomain("", queue) and context.local_queue_is_missing(namespace, queue):
        found.append(f"LocalQueue {queue} does not exist in namespace {namespace}: the job waits until it does")
    priority = text(labels.get(names.PRIORITY_CLASS))
    if not syntax.dns_subdomain("", priority) and context.priority_class_is_missing(priority):
        found.append(f"WorkloadPriorityClass {priority} does not exist: the job is not queued until it does")
    return found


def runtime_hint_fault(job: Json) -> str:
    """Why the expected runtime that a job's annotation gives is ignored; "" if it is not, or if there is none."""
    value = annotations_of(job).get(names.EXPECTED_RUNTIME)
    if value is None:
        return ""
    try:
        valid = quantity.parse_duration(text(value)) > 0
    except quantity.QuantityError:
        valid = False
    if valid:
        return ""
    said = f"annotation {names.EXPECTED_RUNTIME}: {shown(value)} is ignored"
    return f"{said}: it must be a duration above zero, such as 90m or 2h30m"


def hint(job: Json, old: Json | None) -> list[str]:
    """Warnings about annotations that are ignored, unless they were ignored before this write."""
    known = [] if old is None else _ignored(old)
    return [fault for fault in _ignored(job) if fault not in known]


def _ignored(job: Json) -> list[str]:
    return [
        fault
        for fault in (
            runtime_hint_fault(job),
            node_loss_fault(job),
            _dependency_fault(job),
            *_unread(job),
            *identifiers.ignored(job),
        )
        if fault
    ]


def _dependency_fault(job: Json) -> str:
    """Why a job does not wait for those that its annotation names; "" if it does, or if it names none."""
    written = annotations_of(job)
    if names.AFTER_FAILED in written and names.AFTER not in written:
        return f"annotation {names.AFTER_FAILED} has no effect without {names.AFTER}"
    if names.AFTER in written and identifiers.prebuilt_workload(job):
        return f"annotation {names.AFTER} is ignored: the Workload that the job names would have to have it"
    return ""


def node_loss_fault(job: Json) -> str:
    """Why the annotation that says what to do about lost nodes is ignored; "" if it is not, or if there is none."""
    declaration = _declaration(job)
    return (declaration.node_loss if declaration is not None else BY_ITS_PODS).fault(annotations_of(job))


def _unread(job: Json) -> list[str]:
    """Kueue's annotations that say nothing of a job of this kind."""
    declaration, written = _declaration(job), annotations_of(job)
    unread = declaration.unread if declaration is not None else ()
    return [f"annotation {key} is ignored: {why}" for key, why in unread if key in written]


def _declaration(job: Json) -> Declaration | None:
    return declaration_of(text(job.get("apiVersion")).rpartition("/")[0], text(job.get("kind")))


def outside(job: Json, context: AdmissionFacts) -> list[str]:
    """A job of our own kind that names no queue, and is no part of another job."""
    if labels_of(job).get(names.QUEUE_NAME) or context.without_queue or _has_controller(job):
        return []
    return [f"it names no queue (label {names.QUEUE_NAME}): it runs at once, outside any queue, and takes no quota"]


def _has_controller(job: Json) -> bool:
    return any(owner.get("controller") is True for owner in objects(metadata(job).get("ownerReferences")))
