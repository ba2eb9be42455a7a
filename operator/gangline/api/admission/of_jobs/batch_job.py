"""batch/v1 Job."""

from __future__ import annotations

from typing import Final

from gangline.api import names
from gangline.api.admission import syntax
from gangline.api.admission.findings import (
    IMMUTABLE,
    FieldError,
    Json,
    KindRules,
    annotation_path,
    annotations_of,
    forbidden,
    invalid,
    mapping,
    spec,
    text,
    whole,
)
from gangline.api.admission.of_jobs import jobs, pods, topology_request
from gangline.api.jobkinds import own
from gangline.api.jobkinds.declaration import SPEC_SUSPEND

MIN_PATH: Final = annotation_path(names.MIN_PARALLELISM)
SYNC_PATH: Final = annotation_path(names.COMPLETIONS_EQUAL_PARALLELISM)
TEMPLATE_PATH: Final = "spec.template"


def pods_count(job: Json) -> int:
    """The number of concurrent pods: the size of the gang."""
    parallelism = whole(spec(job).get("parallelism"), 1)
    return min(parallelism, whole(spec(job).get("completions"), parallelism))


def _check(job: Json, old: Json | None) -> list[FieldError]:
    template = mapping(spec(job).get("template"))
    changed_minimum = old is None or _annotation(job, names.MIN_PARALLELISM) != _annotation(old, names.MIN_PARALLELISM)
    errors = _synced_completions(job)
    if changed_minimum:
        errors += _minimum(job)
    if old is None or template != spec(old).get("template"):
        errors += pods.check_pods(TEMPLATE_PATH, template)
    if old is None or SPEC_SUSPEND.read(job):  # a started job may run with fewer pods than its user wrote
        errors += topology_request.check_template(TEMPLATE_PATH, template, pods_count(job))
    errors += _elastic(job, template)
    return errors if old is None else errors + _update(job, old)


def _annotation(job: Json, name: str) -> object:
    return annotations_of(job).get(name)


def _minimum(job: Json) -> list[FieldError]:
    """job-min-parallelism: at least 1 and less than the gang, and not for a job that resizes itself."""
    value = _annotation(job, names.MIN_PARALLELISM)
    if value is None:
        return []
    try:
        minimum = syntax.go_int(text(value))
    except ValueError as error:
        return [invalid(MIN_PATH, value, str(error))]
    errors: list[FieldError] = []
    if not 0 < minimum < pods_count(job):
        errors.append(invalid(MIN_PATH, minimum, f"should be between 0 and {pods_count(job) - 1}"))
    if jobs.is_elastic(job):
        errors.append(invalid(MIN_PATH, value, "partial admission and elastic job cannot be used together"))
    return errors


def _synced_completions(job: Json) -> list[FieldError]:
    value = _annotation(job, names.COMPLETIONS_EQUAL_PARALLELISM)
    if value is None:
        return []
    try:
        enabled = syntax.go_bool(text(value))
    except ValueError as error:
        return [invalid(SYNC_PATH, value, str(error))]
    if not enabled:
        return []
    body = spec(job)
    errors: list[FieldError] = []
    if body.get("completionMode", "NonIndexed") != "Indexed":
        errors.append(invalid(SYNC_PATH, value, "should not be enabled for NonIndexed jobs"))
    if whole(body.get("parallelism"), 1) != whole(body.get("completions"), 1):
        message = f"should be equal to parallelism when {names.COMPLETIONS_EQUAL_PARALLELISM} is annotation is true"
        errors.append(invalid("spec.completions", body.get("completions"), message))
    return errors


def _elastic(job: Json, template: Json) -> list[FieldError]:
    if not jobs.is_elastic(job):
        return []
    kinds = {names.REQUIRED_TOPOLOGY: "required", names.PREFERRED_TOPOLOGY: "preferred"}
    asked = [key for key in kinds if key in annotations_of(template)][:1]
    return [
        forbidden(
            f"{TEMPLATE_PATH}.metadata.annotations.{key}", f"{kinds[key]} topology is not supported with elastic jobs"
        )
        for key in asked
    ]


def _update(job: Json, old: Json) -> list[FieldError]:
    errors: list[FieldError] = []
    new_count, old_count = (whole(spec(each).get("parallelism"), 1) for each in (job, old))
    held, was_held = SPEC_SUSPEND.read(job), SPEC_SUSPEND.read(old)
    # the stop that restores the full parallelism suspends in the same write or has done so before
    if names.MIN_PARALLELISM in annotations_of(old) and not was_held and not held and new_count != old_count:
        message = "cannot change when partial admission is enabled and the job is not suspended"
        errors.append(forbidden("spec.parallelism", message))
    if not held and not was_held and _is_synced(job) != _is_synced(old):
        errors.append(forbidden(SYNC_PATH, f"{IMMUTABLE} while the job is not suspended"))
    return errors


def _grown(job: Json, old: Json) -> bool:
    """Whether the Job has more concurrent pods than before. With partial admission the change is refused instead."""
    return names.MIN_PARALLELISM not in annotations_of(old) and pods_count(job) > pods_count(old)


def _is_synced(job: Json) -> bool:
    try:
        return syntax.go_bool(text(_annotation(job, names.COMPLETIONS_EQUAL_PARALLELISM)))
    except ValueError:
        return False


RULES: Final[KindRules] = jobs.job_rules(
    _check, grown=_grown, managed_by=own.JOB.managed_by, own_manager=own.JOB.controller
)
