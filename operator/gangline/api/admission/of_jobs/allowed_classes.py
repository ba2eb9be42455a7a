"""Which priority classes the jobs of a namespace may name: an administrator's annotation on the namespace, which neither a
researcher nor a team lead may write.

What is listed holds for WorkloadPriorityClasses and for PriorityClasses of pods alike. What a job gets that names no class may
always be named: the WorkloadPriorityClass `default`, and the PriorityClass that is the cluster's default one.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import dataclass
from typing import Final

from gangline.api import names
from gangline.api.admission import syntax
from gangline.api.admission.findings import (
    AdmissionFacts,
    FieldError,
    Json,
    annotation_path,
    annotations_of,
    invalid,
    mapping,
    metadata,
    not_supported,
    spec,
    text,
    whole,
)
from gangline.api.admission.of_jobs.jobs import WORKLOAD_PRIORITY_DEFAULT
from gangline.kube import resources

_BOOST_PATH: Final = annotation_path(names.PRIORITY_BOOST)
_NONE: Final = 'jobs in this namespace may name no priority class but "default"'


@dataclass(frozen=True, slots=True)
class AllowedClasses:
    """The priority classes that jobs of one namespace may name; `listed` is None where they may name any, as in Kueue."""

    listed: Collection[str] | None = None

    @classmethod
    def of(cls, namespace: Json | None) -> AllowedClasses:
        """What the annotation of a Namespace says; without one, or of a namespace that is not known, nothing."""
        written = annotations_of(namespace).get(names.ALLOWED_CLASSES)
        return cls() if written is None else cls(_listed(text(written)))

    def errors(self, name: str, path: str, boost: str, *, is_default: Callable[[], bool]) -> list[FieldError]:
        """The errors of a job that names this class ("" = none) in the field `path`, and that has this annotation for a boost.
        `is_default` says whether its class is the PriorityClass that pods get which name none.
        """
        if self.listed is None:
            return []
        found: list[FieldError] = []
        if name and name not in self.listed and name != WORKLOAD_PRIORITY_DEFAULT and not is_default():
            found.append(not_supported(path, name, self.listed) if self.listed else invalid(path, name, _NONE))
        if _raises(boost):
            message = "must not be above 0 in a namespace whose priority classes are limited"
            found.append(invalid(_BOOST_PATH, boost, message))
        return found


def _listed(written: str) -> tuple[str, ...]:
    return tuple(dict.fromkeys(name.strip() for name in written.split(",") if name.strip()))


def _raises(boost: str) -> bool:
    """Whether an annotation for a boost is a number above 0: others do not count."""
    try:
        return syntax.go_int(boost) > 0
    except ValueError:
        return False


def of_namespace(obj: Json, context: AdmissionFacts) -> AllowedClasses:
    """The classes that are allowed in the namespace of an object."""
    namespace = text(metadata(obj).get("namespace"))
    if not context.classes_are_limited(namespace):
        return AllowedClasses()
    return AllowedClasses.of(context.look((resources.NAMESPACES, namespace)))


# --- the priority of a Workload ---------------------------------------------------------------------------------------


def priority_errors(workload: Json, old: Json | None, context: AdmissionFacts) -> list[FieldError]:
    """The errors of the priority of a Workload: who may change Workloads gives no job more than its class is worth."""
    asked = _asked(workload)
    if asked == ("", 0, "") or (old is not None and asked == _asked(old)):
        return []
    allowed = of_namespace(workload, context)
    if allowed.listed is None:
        return []
    name, priority, boost = asked
    reference = mapping(spec(workload).get("priorityClassRef"))
    path = "spec.priorityClassRef.name" if reference else "spec.priorityClassName"
    kind = _kind_of_class(workload)
    found = context.look((kind, name)) if name else None
    errors = allowed.errors(name, path, boost, is_default=lambda: _is_default(kind, found))
    if not name and priority > 0:
        message = "must not be above 0 without a priority class, in a namespace whose priority classes are limited"
        errors.append(invalid("spec.priority", priority, message))
    elif found is not None and priority > whole(found.get("value"), priority):
        message = f"must not be above {found['value']}, the value of {kind.kind} {name}"
        errors.append(invalid("spec.priority", priority, message))
    return errors


def _asked(workload: Json) -> tuple[str, int, str]:
    """The class, the number and the boost from which the priority of a Workload is made."""
    written = spec(workload)
    name = text(mapping(written.get("priorityClassRef")).get("name")) or text(written.get("priorityClassName"))
    boost = text(annotations_of(workload).get(names.PRIORITY_BOOST))
    return name, whole(written.get("priority"), 0), boost


def _kind_of_class(workload: Json) -> resources.Resource:
    written = spec(workload)
    source = text(mapping(written.get("priorityClassRef")).get("kind")) or text(written.get("priorityClassSource"))
    of_pods = source in ("PriorityClass", "scheduling.k8s.io/priorityclass")
    return resources.PRIORITY_CLASSES if of_pods else resources.WORKLOAD_PRIORITY_CLASSES


def _is_default(kind: resources.Resource, found: Json | None) -> bool:
    return kind is resources.PRIORITY_CLASSES and found is not None and found.get("globalDefault") is True
