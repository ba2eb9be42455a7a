"""The priority of a job: by the class that it names, else by the cluster's default one, else 0. A class that the job's namespace
does not allow is refused.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from gangline.api import names
from gangline.api.admission.findings import annotations_of, text
from gangline.api.admission.of_jobs.allowed_classes import AllowedClasses
from gangline.api.read import parse
from gangline.jobs import workload as workloads
from gangline.jobs.base import JobError, Json, PriorityClassError, UnknownClassError
from gangline.kube import resources as kube
from gangline.objects import JobObject, Stored

#: any class may be named
ANY_CLASS = AllowedClasses()


def priority_of(
    job: JobObject,
    pod_sets: Sequence[Json],
    find: Callable[[Json], Stored | None],
    default: Stored | None,
    allowed: AllowedClasses = ANY_CLASS,
) -> tuple[int, Json | None]:
    """Priority and `priorityClassRef`.

    `find` returns the object that a reference names; `default` is the PriorityClass for pods that name none, whose name the API
    server writes into them. Raises JobError if a class does not exist, has no readable value or is not `allowed`.
    """
    ref = workloads.priority_source(job, pod_sets, lambda reference: find(reference) is not None)
    if allowed.listed is not None:
        _refuse_others(job, pod_sets, ref, default, allowed)
    if ref is None:
        if default is None:
            return 0, None
        ref = {"group": kube.PRIORITY_CLASSES.group, "kind": "PriorityClass", "name": default.name}
        return parse.priority_class(default), ref
    found, called = find(ref), f'{ref["kind"]} "{ref["name"]}"'
    ours = ref["kind"] == kube.WORKLOAD_PRIORITY_CLASSES.kind
    where = f"metadata.labels[{names.PRIORITY_CLASS}]" if ours else "priorityClassName"
    if found is None:
        raise (UnknownClassError if ours else JobError)(f"{called} not found", where)
    try:
        return parse.priority_class(found), ref
    except parse.ParseError as error:
        raise JobError(f"{called}: {error}", where) from None


def _refuse_others(
    job: JobObject, pod_sets: Sequence[Json], ref: Json | None, default: Stored | None, allowed: AllowedClasses
) -> None:
    """Raise PriorityClassError if the job asks for a priority that is not allowed."""
    name = text(ref["name"]) if ref is not None else ""
    of_pods = ref is not None and ref["kind"] == kube.PRIORITY_CLASSES.kind
    errors = allowed.errors(
        name,
        workloads.where_class_is_named(job, pod_sets, name),
        text(annotations_of(job).get(names.PRIORITY_BOOST)),
        is_default=lambda: of_pods and default is not None and default.name == name,
    )
    if errors:
        raise PriorityClassError(errors[0].detail, errors[0].path)
