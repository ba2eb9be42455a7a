"""The common types of admission rules: their inputs, their findings, and accessors for unchecked JSON.

Defaulting runs before the API server has validated an object against its schema, so a rule may meet any JSON at any place. The
accessors here turn a value of the wrong type into an empty one: the schema reports the type, the rules report the content.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Collection
from dataclasses import dataclass
from itertools import islice
from typing import Final, TypeAlias, cast

from gangline.api.jobkinds.declaration import Look, Reference
from gangline.api.spec_fields import SpecError
from gangline.api.unchecked import listing as listing
from gangline.api.unchecked import mapping as mapping
from gangline.kube.resources import Json

# reasons of a metav1.StatusCause
INVALID: Final = "FieldValueInvalid"
REQUIRED: Final = "FieldValueRequired"
DUPLICATE: Final = "FieldValueDuplicate"
FORBIDDEN: Final = "FieldValueForbidden"
NOT_SUPPORTED: Final = "FieldValueNotSupported"
NOT_FOUND: Final = "FieldValueNotFound"
TOO_MANY: Final = "FieldValueTooMany"
TOO_LONG: Final = "FieldValueTooLong"
WRONG_TYPE: Final = "FieldValueTypeInvalid"

#: the beginning of a field error's text, as in Kubernetes
_TITLES: Final = {
    INVALID: "Invalid value",
    REQUIRED: "Required value",
    DUPLICATE: "Duplicate value",
    FORBIDDEN: "Forbidden",
    NOT_SUPPORTED: "Unsupported value",
    NOT_FOUND: "Not found",
    TOO_MANY: "Too many",
    TOO_LONG: "Too long",
    WRONG_TYPE: "Invalid value",
}

IMMUTABLE: Final = "field is immutable"
NEGATIVE: Final = "must be greater than or equal to 0"

#: stands for "no value to show": objects and lists would only clutter the message
NOTHING: Final = object()
#: longer values are cut in messages, so that an error does not repeat a megabyte of annotation
_SHOWN: Final = 256
#: number of supported values that a message lists
_MOST_CHOICES: Final = 32


@dataclass(frozen=True, slots=True)
class FieldError:
    """One thing wrong with one field. `str()` is the line that Kubernetes would print for it."""

    path: str
    value: object
    message: str
    reason: str = INVALID

    @property
    def detail(self) -> str:
        """The message without the path, which a StatusCause has separately."""
        parts = [_TITLES[self.reason]]
        if self.value is not NOTHING:
            parts.append(_shown(self.value))
        if self.message:
            parts.append(self.message)
        return ": ".join(parts)

    def __str__(self) -> str:
        return f"{self.path}: {self.detail}"


def errors_of(read: Callable[[], object]) -> list[FieldError]:
    """What keeps a reader of specs from reading one: the field and the reason of its SpecError."""
    try:
        read()
    except SpecError as error:
        return [FieldError(error.path, NOTHING, error.message)]
    return []


def _shown(value: object) -> str:
    text = json.dumps(value, default=str, ensure_ascii=False, separators=(",", ":"))
    if len(text) > _SHOWN:
        return f"{text[:_SHOWN]}… ({len(text)} characters)"
    return text


def invalid(path: str, value: object, message: str) -> FieldError:
    return FieldError(path, value, message)


def required(path: str, message: str = "") -> FieldError:
    return FieldError(path, NOTHING, message, REQUIRED)


def duplicate(path: str, value: object, message: str = "") -> FieldError:
    return FieldError(path, value, message, DUPLICATE)


def forbidden(path: str, message: str) -> FieldError:
    return FieldError(path, NOTHING, message, FORBIDDEN)


def not_supported(path: str, value: object, choices: Collection[str]) -> FieldError:
    """The error of a value that is not among the supported ones. Of many choices the first ones are listed: choices are the
    user's own, and so may be numerous.
    """
    named = ", ".join(f'"{choice}"' for choice in islice(choices, _MOST_CHOICES))
    more = f" and {len(choices) - _MOST_CHOICES} more" if len(choices) > _MOST_CHOICES else ""
    return FieldError(path, value, f"supported values: {named}{more}", NOT_SUPPORTED)


def not_found(path: str, value: object) -> FieldError:
    return FieldError(path, value, "", NOT_FOUND)


def too_many(path: str, count: int, limit: int) -> FieldError:
    return FieldError(path, count, f"must have at most {limit} items", TOO_MANY)


def wrong_type(path: str, value: object, message: str) -> FieldError:
    return FieldError(path, value, message, WRONG_TYPE)


def label_path(label: str) -> str:
    return f"metadata.labels[{label}]"


def annotation_path(annotation: str, prefix: str = "metadata") -> str:
    return f"{prefix}.annotations[{annotation}]"


def immutable(path: str, new: object, old: object) -> list[FieldError]:
    """An error if the field changed."""
    return [] if new == old else [invalid(path, new, IMMUTABLE)]


def _no_local_queue(namespace: str, name: str) -> bool:
    return False


def _no_name(name: str) -> bool:
    return False


def _no_owner(namespace: str, reference: Json, child: Json) -> bool:
    return False


def _no_waiting_owner(namespace: str, reference: Json) -> bool:
    return False


def _every_namespace(namespace: str, queued: bool) -> bool:
    return True


def _no_warnings(obj: Json) -> tuple[str, ...]:
    return ()


def _unknown(reference: Reference) -> Json | None:
    return None


@dataclass(frozen=True, slots=True)
class AdmissionFacts:
    """The facts of the cluster that a rule may ask for. The answers come from outside, so that the rules stay pure."""

    #: whether there is a LocalQueue of this (namespace, name)
    local_queue_exists: Callable[[str, str], bool] = _no_local_queue
    #: whether there is a WorkloadPriorityClass of this name
    priority_class_exists: Callable[[str], bool] = _no_name
    #: whether the owner in this (namespace, owner reference), or an ancestor of it, is in a queue, and creates this child
    owner_is_queued: Callable[[str, Json, Json], bool] = _no_owner
    #: whether jobs in this namespace are managed, of those that name a queue (True) or of those that do not
    namespace_is_managed: Callable[[str, bool], bool] = _every_namespace
    #: jobs that name no queue are managed too
    without_queue: bool = False
    #: whether a check of the ClusterQueue behind this (namespace, LocalQueue) sends workloads to other clusters
    runs_on_other_cluster: Callable[[str, str], bool] = _no_local_queue
    #: whether it is certain that there is no LocalQueue of this (namespace, name), and no WorkloadPriorityClass of this name
    local_queue_is_missing: Callable[[str, str], bool] = _no_local_queue
    priority_class_is_missing: Callable[[str], bool] = _no_name
    #: the rules of a kind whose jobs `may_leave` (`jobs.job_rules`) hold for one that loses its queue, too
    leaving_checked: bool = True
    #: jobs may grow and shrink while they run (the gate ElasticJobsViaWorkloadSlices)
    elastic: bool = True
    #: the groups of a queued LeaderWorkerSet keep their size (the gate LWSImmutableGroupSize)
    group_size_stays: bool = True
    #: the object that describes the pods of a job; None if it is not there, or not known
    look: Look = _unknown
    #: whether an administrator has said which priority classes jobs of this namespace may name
    classes_are_limited: Callable[[str], bool] = _no_name
    #: whether the queued one among the owners of a child, in this (namespace, owner reference), waits for its quota now
    owner_waits: Callable[[str, Json], bool] = _no_waiting_owner
    #: whether it is certain that there is no ClusterQueue of this name
    cluster_queue_is_missing: Callable[[str], bool] = _no_name
    #: the time, in milliseconds since 1970; 0 = it is not known
    now: int = 0
    #: what the operator says of a Reservation or QuotaPlan: what keeps it from being honoured, and what could be instead. Nothing
    #: where none answers
    warnings_of_plan: Callable[[Json], tuple[str, ...]] = _no_warnings


@dataclass(frozen=True, slots=True)
class DefaultedObject:
    """A defaulted object and warnings for its author."""

    obj: Json
    warnings: tuple[str, ...] = ()


#: completes the object and returns warnings. Only the object itself may be changed: what is in it belongs to the request as well,
#: and is replaced by changed copies (`fill`, `jobkinds.declaration.put`)
Default: TypeAlias = Callable[[Json, Json | None, AdmissionFacts], list[str]]
Validate: TypeAlias = Callable[[Json, Json | None, AdmissionFacts], list[FieldError]]
#: what the author of a valid object should know
Warn: TypeAlias = Callable[[Json], list[str]]


#: what the author of a valid object should know of it beside the rest of the cluster
Doubt: TypeAlias = Callable[[Json, AdmissionFacts], list[str]]


def _no_default(obj: Json, old: Json | None, context: AdmissionFacts) -> list[str]:
    return []


def _no_warning(obj: Json) -> list[str]:
    return []


def _no_doubt(obj: Json, context: AdmissionFacts) -> list[str]:
    return []


@dataclass(frozen=True, slots=True)
class KindRules:
    """The rules of one kind."""

    validate: Validate
    default: Default = _no_default
    warn: Warn = _no_warning
    doubt: Doubt = _no_doubt


# --- reading JSON of unknown shape ------------------------------------------------------------------------------------


def objects(value: object) -> list[Json]:
    """The entries of a list as objects; a wrong entry reads as an empty object, so indices stay correct."""
    return [mapping(entry) for entry in listing(value)]


def text(value: object) -> str:
    return value if isinstance(value, str) else ""


def whole(value: object, default: int) -> int:
    """An integer field, or `default` if it is missing or not an integer."""
    return value if isinstance(value, int) and not isinstance(value, bool) else default


def metadata(obj: Json) -> Json:
    return mapping(obj.get("metadata"))


def spec(obj: Json | None) -> Json:
    return mapping((obj or {}).get("spec"))


def labels_of(obj: Json | None) -> Json:
    return mapping(metadata(obj or {}).get("labels"))


def annotations_of(obj: Json | None) -> Json:
    return mapping(metadata(obj or {}).get("annotations"))


def fill(parent: Json, key: str) -> Json | None:
    """The object at `key`, created if it is missing, to be modified; None if another value is there.

    It is a copy in the place of the one that was there, which the request still shows as it came.
    """
    child: object = parent.get(key)
    if child is not None and not isinstance(child, dict):
        return None
    own = parent[key] = dict(cast(Json, child or {}))
    return own
