"""Workload: the gang in the queue. Its defaults (a pod set is called main, …) are all in the schema."""

from __future__ import annotations

from typing import Final

from gangline.api import names
from gangline.api.admission import syntax, workload_status
from gangline.api.admission.findings import (
    IMMUTABLE,
    AdmissionFacts,
    FieldError,
    Json,
    KindRules,
    annotations_of,
    duplicate,
    forbidden,
    immutable,
    invalid,
    mapping,
    metadata,
    objects,
    required,
    spec,
    text,
    too_many,
    whole,
)
from gangline.api.admission.of_jobs import jobs, pods

MAX_POD_SETS: Final = 18
_POSITIVE: Final = "must be greater than 0"
BOOST_PATH: Final = f"metadata.annotations[{names.PRIORITY_BOOST}]"


def validate(workload: Json, old: Json | None, context: AdmissionFacts) -> list[FieldError]:
    """What did not change was checked before, and is in nobody's way."""
    errors: list[FieldError] = []
    if old is None or metadata(old).get("annotations") != metadata(workload).get("annotations"):
        errors += [*_boost(workload), *jobs.check_gates(workload)]
    if old is None or spec(old).get("queueName") != spec(workload).get("queueName"):
        errors += _queue(workload)
    if old is None or spec(old).get("podSets") != spec(workload).get("podSets"):
        errors += _pod_sets(workload)
    errors += workload_status.validate(workload, old)
    return errors if old is None else errors + _update(workload, old)


def _boost(workload: Json) -> list[FieldError]:
    value = annotations_of(workload).get(names.PRIORITY_BOOST)
    if value is None:
        return []
    message = "must be a valid signed integer"
    if not value:
        return [invalid(BOOST_PATH, value, f'{message}; use "0" explicitly, empty string is not allowed')]
    try:
        fits = -(2**31) <= syntax.go_int(text(value)) < 2**31
    except ValueError:
        fits = False
    return [] if fits else [invalid(BOOST_PATH, value, message)]


def _queue(workload: Json) -> list[FieldError]:
    queue = spec(workload).get("queueName")
    return syntax.dns_subdomain("spec.queueName", queue) if queue else []


def _pod_sets(workload: Json) -> list[FieldError]:
    pod_sets = objects(spec(workload).get("podSets"))
    errors: list[FieldError] = []
    seen: set[str] = set()
    if len(pod_sets) > MAX_POD_SETS:  # the rest costs time in proportion
        return [too_many("spec.podSets", len(pod_sets), MAX_POD_SETS)]
    for i, pod_set in enumerate(pod_sets):
        path, name = f"spec.podSets[{i}]", text(pod_set.get("name"))
        errors += syntax.dns_label(f"{path}.name", name)
        if name in seen:
            errors.append(duplicate(f"{path}.name", name))
        seen.add(name)
        errors += _counts(path, pod_set)
        errors += pods.check_pods(f"{path}.template", mapping(pod_set.get("template")))
        errors += _slices(f"{path}.topologyRequest", mapping(pod_set.get("topologyRequest")))
    shrinking = sum(pod_set.get("minCount") is not None for pod_set in pod_sets)
    if shrinking > 1:
        errors.append(invalid("spec.podSets", shrinking, "at most one podSet can use minCount"))
    if shrinking and jobs.is_elastic(workload):
        message = "partial admission and elastic job cannot be used together"
        errors.append(invalid("spec.podSets", shrinking, message))
    return errors


def _slices(path: str, request: Json) -> list[FieldError]:
    """A level for slices and their size belong together."""
    level, size = request.get("podSetSliceRequiredTopology"), request.get("podSetSliceSize")
    at = f"{path}.podSetSliceSize"
    errors: list[FieldError] = []
    if level is not None and size is None:
        errors.append(required(at, "must be set when podSetSliceRequiredTopology is specified"))
    elif level is not None and whole(size, 0) <= 0:
        errors.append(invalid(at, size, _POSITIVE))
    elif level is None and size is not None:
        errors.append(forbidden(at, "may not be set when podSetSliceRequiredTopology is not specified"))
    for i, layer in enumerate(objects(request.get("podsetSliceRequiredTopologyConstraints"))):
        if whole(layer.get("size"), 0) <= 0:
            errors.append(
                invalid(f"{path}.podsetSliceRequiredTopologyConstraints[{i}].size", layer.get("size"), _POSITIVE)
            )
    return errors


def _counts(path: str, pod_set: Json) -> list[FieldError]:
    count, minimum = whole(pod_set.get("count"), 1), pod_set.get("minCount")
    errors: list[FieldError] = []
    if count < 0:
        errors.append(invalid(f"{path}.count", count, "must be greater than or equal to 0"))
    if minimum is not None and not 1 <= whole(minimum, 0) <= count:
        message = f"minCount should be positive and less or equal to count ({count})"
        errors.append(invalid(f"{path}.minCount", minimum, message))
    return errors


def _update(workload: Json, old: Json) -> list[FieldError]:
    """Gates are only removed; and a workload with quota keeps its shape. The schema freezes its queue and priority."""
    errors = jobs.check_gates_update(workload, old)
    before, after = spec(old).get("podSets"), spec(workload).get("podSets")
    if before == after or not workload_status.has_quota(old):
        return errors
    if len(objects(before)) != len(objects(after)):
        return [*errors, invalid("spec.podSets", after, IMMUTABLE)]
    for i, (was, new) in enumerate(zip(objects(before), objects(after), strict=True)):
        errors += immutable(f"spec.podSets.{i}", _with_count_of(was, new), was)
    return errors


def _with_count_of(was: Json, new: Json) -> Json:
    """A pod set that has released pods, as an elastic job does, as if it had not."""
    shrunk = whole(new.get("count"), 1) < whole(was.get("count"), 1)
    return {**new, "count": was.get("count")} if shrunk else new


RULES: Final = KindRules(validate=validate)
