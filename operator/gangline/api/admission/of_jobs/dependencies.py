"""Rules of the annotations by which a job waits for others. Cycles are the operator's to find: only it knows these jobs."""

from __future__ import annotations

from typing import Final

from gangline.api import dependencies, names
from gangline.api.admission.findings import (
    FieldError,
    Json,
    annotation_path,
    annotations_of,
    invalid,
    metadata,
    not_supported,
    text,
)
from gangline.api.dependencies import DependencyError, DependencyPolicy

AFTER_PATH: Final = annotation_path(names.AFTER)
AFTER_FAILED_PATH: Final = annotation_path(names.AFTER_FAILED)


def check_dependencies(job: Json) -> list[FieldError]:
    """The annotations of a job about the jobs that it waits for."""
    annotations = annotations_of(job)
    return [*_listed(job, annotations.get(names.AFTER)), *_policy(annotations.get(names.AFTER_FAILED))]


def _listed(job: Json, written: object) -> list[FieldError]:
    if written is None:
        return []
    try:
        found = dependencies.parse(text(written))
    except DependencyError as error:
        return [invalid(AFTER_PATH, written, str(error))]
    known = dependencies.kinds()
    itself = f"{text(job.get('kind')).lower()}/{text(metadata(job).get('name'))}"
    errors: list[FieldError] = []
    for each in found:
        if each.kind not in known:
            choices = ", ".join(sorted(known))
            errors.append(invalid(AFTER_PATH, str(each), f"names a kind that is not one of {choices}"))
        elif each.job == itself:
            errors.append(invalid(AFTER_PATH, str(each), "a job cannot wait for itself"))
    return errors


def _policy(written: object) -> list[FieldError]:
    if written is None or written in list(DependencyPolicy):
        return []
    return [not_supported(AFTER_FAILED_PATH, text(written), list(DependencyPolicy))]
