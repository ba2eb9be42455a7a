"""The priority of a job: by the class that it names, else by the cluster's default one, else 0."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from gangline.api import names
from gangline.api.read import parse
from gangline.jobs import workload as workloads
from gangline.jobs.base import JobError, Json, UnknownClassError
from gangline.kube import resources as kube
from gangline.objects import JobObject, Stored


def priority_of(
    job: JobObject, pod_sets: Sequence[Json], find: Callable[[Json], Stored | None], default: Stored | None
) -> tuple[int, Json | None]:
    """Priority and `priorityClassRef`.

    `find` returns the object that a reference names; `default` is the PriorityClass for pods that name none. Raises JobError if
    a class does not exist or has no readable value.
    """
    ref = workloads.priority_source(job, pod_sets, lambda reference: find(reference) is not None)
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
