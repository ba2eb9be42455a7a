"""Elastic jobs: which kinds may be, what their pods wait for, and what they cannot ask for."""

from __future__ import annotations

from typing import Final

from gangline.api import jobkinds, names
from gangline.api.admission import multikueue
from gangline.api.admission.findings import (
    FieldError,
    Json,
    annotations_of,
    forbidden,
    invalid,
    metadata,
    objects,
    text,
)
from gangline.api.jobkinds import ray
from gangline.api.jobkinds.declaration import Declaration, JobError, Path, at, mapping_at, put, shown

GATE: Final[Json] = {"name": names.ELASTIC_GATE}
#: where a kind without a behaviour of its own has its pods
_TEMPLATE: Final[Path] = ("spec", "template")
PATH: Final = f"metadata.annotations[{names.ELASTIC}]"


def is_elastic(obj: Json) -> bool:
    return annotations_of(obj).get(names.ELASTIC) == "true"


def without_annotation(obj: Json) -> Json:
    """The same job where no job is elastic: the annotation means nothing."""
    if not is_elastic(obj):
        return obj
    kept = {key: value for key, value in annotations_of(obj).items() if key != names.ELASTIC}
    return {**obj, "metadata": {**metadata(obj), "annotations": kept}}


def check(job: Json) -> list[FieldError]:
    """Errors of a job that asks to be elastic: only some kinds can be, and the pods of a RayCluster must be created behind the
    gate, where they wait until its slice is admitted.
    """
    if not is_elastic(job):
        return []
    declaration = _declaration(job)
    if declaration is None or not declaration.elastic:
        return [forbidden(PATH, f'elastic job is not supported for "{_shown_kind(job)}"')]
    if declaration is not ray.RAY_CLUSTER:
        return []
    return [
        invalid(
            f"{shown(path)}.spec.schedulingGates",
            at(job, (*path, "spec", "schedulingGates")),
            "an elastic job must have the ElasticJobSchedulingGate",
        )
        for path in _templates(job)
        if not _is_gated(job, path)
    ]


def hold_pods(job: Json) -> None:
    """The pods of an elastic job are created behind a gate, which is removed from as many as its slice has quota for."""
    for path in _templates(job) if resizes(job) else ():
        if not _is_gated(job, path) and isinstance(at(job, (*path, "spec")), dict):
            gates = objects(at(job, (*path, "spec", "schedulingGates")))
            put(job, (*path, "spec", "schedulingGates"), [*gates, dict(GATE)])


def pods_wait(job: Json) -> bool:
    """Whether all pods that the job may get wait behind the gate, so that it may grow while it runs."""
    templates = _templates(job) if resizes(job) else []
    return bool(templates) and all(_is_gated(job, path) for path in templates)


def resizes(job: Json) -> bool:
    """Whether the job may grow and shrink while it runs: by its kind, and by the wish of its author. A job that runs in another
    cluster may do so only if its own spec says how large it is.
    """
    declaration = _declaration(job)
    if not is_elastic(job) or declaration is None or not declaration.elastic:
        return False
    return not declaration.sized_by or not runs_on_other_cluster(job)


def runs_on_other_cluster(job: Json) -> bool:
    """Whether the job's controller in this cluster leaves the job to another cluster."""
    declaration = _declaration(job)
    return (
        declaration is not None
        and bool(declaration.managed_by)
        and at(job, declaration.managed_by) == multikueue.CONTROLLER
    )


def _is_gated(job: Json, path: Path) -> bool:
    return GATE in objects(at(job, (*path, "spec", "schedulingGates")))


def _templates(job: Json) -> list[Path]:
    """The templates of the pods whose number may change: not of those that the job's controller makes by itself."""
    declaration = _declaration(job)
    if declaration is None or declaration.behaviour is None:
        return [_TEMPLATE]
    try:
        places = declaration.behaviour.places(job)
    except JobError:  # the checks of the job report it
        return []
    return [place.path for place in places if place.default is None and mapping_at(job, place.path)]


def _declaration(job: Json) -> Declaration | None:
    return jobkinds.declaration_of(text(job.get("apiVersion")).rpartition("/")[0], text(job.get("kind")))


def _shown_kind(job: Json) -> str:
    group, _, version = text(job.get("apiVersion")).rpartition("/")
    return f"{group}/{version}, Kind={text(job.get('kind'))}"
