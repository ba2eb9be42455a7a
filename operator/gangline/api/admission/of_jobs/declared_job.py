"""The rules of job kinds that are only declared (`gangline.api.jobkinds`): those of all jobs, of pods, and the kind's own."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cache
from typing import Final

from gangline.api.admission.findings import (
    FORBIDDEN,
    INVALID,
    NOTHING,
    REQUIRED,
    TOO_MANY,
    AdmissionFacts,
    FieldError,
    Json,
    KindRules,
    forbidden,
    immutable,
    too_many,
)
from gangline.api.admission.of_jobs import jobs, pods, topology_request
from gangline.api.admission.of_jobs.identifiers import prebuilt_path, prebuilt_workload
from gangline.api.jobkinds.declaration import (
    Behaviour,
    Declaration,
    JobError,
    NoPodsError,
    PodSetPlace,
    Problem,
    at,
    shown,
)

MAX_GROUPS: Final = 18  # the most pod sets of a Workload
#: API groups of the kinds that Kueue's gate ValidateRayAndSparkJobUpdates concerns
_MAY_LEAVE: Final = ("ray.io", "sparkoperator.k8s.io")
_REASONS: Final[Mapping[str, str]] = {"": INVALID, "Required": REQUIRED, "Forbidden": FORBIDDEN, "TooMany": TOO_MANY}


@cache
def rules(declaration: Declaration) -> KindRules | None:
    """The rules of a declared kind; None for a kind with a module of its own."""
    behaviour = declaration.behaviour
    if behaviour is None:
        return None

    def check(job: Json, old: Json | None) -> list[FieldError]:
        own = [_error(problem) for problem in declaration.check(job, old)]
        if own or declaration.left_alone(job):
            return own
        errors = [*_prebuilt(declaration, job, old), *_frozen(declaration, job, old)]
        # the operator looks at what another object describes
        return errors if declaration.descriptions else [*errors, *_pods(behaviour, job, old)]

    common = jobs.job_rules(
        check,
        declaration.suspension,
        grown=lambda job, old: _grown(behaviour, job, old),
        managed_by=declaration.managed_by,
        own_manager=declaration.controller,
        may_leave=declaration.resource.group in _MAY_LEAVE,
    )

    def default(job: Json, old: Json | None, context: AdmissionFacts) -> list[str]:
        if declaration.left_alone(job):
            return []
        warnings = common.default(job, old, context)
        if old is None and jobs.queue_name(job):
            declaration.prepare(job)
        changed = old is None or job.get("spec") != old.get("spec")
        return [*warnings, *declaration.unused(job, context.look)] if changed and jobs.queue_name(job) else warnings

    def warn(job: Json) -> list[str]:
        if not jobs.queue_name(job):
            return []
        why = declaration.left_alone(job) or _without_pods(behaviour, job)
        return [f"the {declaration.kind} is not queued: {why}"] if why else list(declaration.warn(job))

    return KindRules(common.validate, default, warn)


def _error(problem: Problem) -> FieldError:
    value = NOTHING if problem.value is None else problem.value
    return FieldError(problem.path, value, problem.message, _REASONS[problem.reason])


def _prebuilt(declaration: Declaration, job: Json, old: Json | None) -> list[FieldError]:
    """Kueue queues jobs of some kinds only by Workloads that it makes itself. A job that was imported keeps its own."""
    named = prebuilt_workload(job)
    if declaration.prebuilt or not named:
        return []
    if old is not None and (prebuilt_workload(old) == named or jobs.is_adopted(job, old)):
        return []
    kind = f"{declaration.resource.api_version}, Kind={declaration.kind}"
    return [forbidden(prebuilt_path(job), f'Is not supported for "{kind}"')]


def _frozen(declaration: Declaration, job: Json, old: Json | None) -> list[FieldError]:
    """Fields that cannot change while the job runs; the write that starts or stops it may change them."""
    held = declaration.suspension.read
    if old is None or held(job) or held(old):
        return []
    return [error for path in declaration.frozen for error in immutable(shown(path), at(job, path), at(old, path))]


def _pods(behaviour: Behaviour, job: Json, old: Json | None) -> list[FieldError]:
    try:
        places = behaviour.places(job)
    except NoPodsError:
        return []
    except JobError as error:
        return [FieldError(error.field or "spec", NOTHING, error.message)]
    if len(places) > MAX_GROUPS:  # the rest costs time in proportion
        return [too_many("spec", len(places), MAX_GROUPS)]
    errors: list[FieldError] = []
    for place in places:
        path = shown(place.path)
        if old is None or at(job, place.path) != at(old, place.path):
            errors += pods.check_pods(path, place.counted)
        errors += topology_request.check_template(path, place.counted, place.count)
    return errors + topology_request.check_groups([(shown(place.path), place.counted, place.count) for place in places])


def _without_pods(behaviour: Behaviour, job: Json) -> str:
    """What is missing in a job that names no pods; "" if it does, or is refused."""
    try:
        behaviour.places(job)
    except NoPodsError as error:
        return str(error)
    except JobError:
        pass
    return ""


def _counts(places: Sequence[PodSetPlace]) -> dict[str, int]:
    return {place.name: place.count for place in places}


def _grown(behaviour: Behaviour, job: Json, old: Json) -> bool:
    """Whether some pod set has more pods than before, or is new."""
    try:
        now, before = _counts(behaviour.places(job)), _counts(behaviour.places(old))
    except JobError:
        return False
    return any(count > before.get(name, 0) for name, count in now.items())
