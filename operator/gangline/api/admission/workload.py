"""Workload: the gang in the queue. Its defaults (a pod set is called main, …) are all in the schema."""

from __future__ import annotations

from typing import Final

from gangline.api import names
from gangline.api.admission import pods, syntax, workload_status
from gangline.api.admission.findings import (
    Context,
    FieldError,
    Json,
    Rules,
    annotations_of,
    duplicate,
    immutable,
    invalid,
    mapping,
    objects,
    spec,
    text,
    too_many,
    whole,
)

MAX_POD_SETS: Final = 18
BOOST_PATH: Final = f"metadata.annotations[{names.PRIORITY_BOOST}]"


def validate(workload: Json, old: Json | None, context: Context) -> list[FieldError]:
    errors = [*_boost(workload), *_queue(workload)]
    if old is None or spec(old).get("podSets") != spec(workload).get("podSets"):
        errors += _pod_sets(objects(spec(workload).get("podSets")))
    errors += workload_status.validate(workload, old)
    return errors if old is None else errors + _update(workload, old)


def _boost(workload: Json) -> list[FieldError]:
    value = annotations_of(workload).get(names.PRIORITY_BOOST)
    if value is None:
        return []
    try:
        boost = syntax.go_int(text(value))
    except ValueError as error:
        return [invalid(BOOST_PATH, value, str(error))]
    return [] if -(2**31) <= boost < 2**31 else [invalid(BOOST_PATH, value, "must fit in 32 bits")]


def _queue(workload: Json) -> list[FieldError]:
    queue = spec(workload).get("queueName")
    return syntax.dns_subdomain("spec.queueName", queue) if queue else []


def _pod_sets(pod_sets: list[Json]) -> list[FieldError]:
    errors: list[FieldError] = []
    seen: set[str] = set()
    if len(pod_sets) > MAX_POD_SETS:
        errors.append(too_many("spec.podSets", len(pod_sets), MAX_POD_SETS))
    for i, pod_set in enumerate(pod_sets):
        path, name = f"spec.podSets[{i}]", text(pod_set.get("name"))
        errors += syntax.dns_label(f"{path}.name", name)
        if name in seen:
            errors.append(duplicate(f"{path}.name", name))
        seen.add(name)
        errors += _counts(path, pod_set)
        errors += pods.check_requests(f"{path}.template", mapping(pod_set.get("template")))
    shrinking = sum(pod_set.get("minCount") is not None for pod_set in pod_sets)
    if shrinking > 1:
        errors.append(invalid("spec.podSets", shrinking, "at most one podSet can use minCount"))
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
    """A workload with quota keeps its shape, its queue and the source of its priority."""
    if not workload_status.has_quota(old):
        return []
    new_spec, old_spec = spec(workload), spec(old)
    errors: list[FieldError] = []
    if not _only_scales_down(old_spec, new_spec):
        errors += immutable("spec.podSets", new_spec.get("podSets"), old_spec.get("podSets"))
    if workload_status.has_quota(workload):
        errors += immutable("spec.queueName", new_spec.get("queueName"), old_spec.get("queueName"))
    return errors


def _only_scales_down(old_spec: Json, new_spec: Json) -> bool:
    """An elastic job may release pods: the same pod sets, each with at most as many pods as before."""
    before, after = objects(old_spec.get("podSets")), objects(new_spec.get("podSets"))
    if len(before) != len(after):
        return False
    return all(
        whole(new.get("count"), 1) <= whole(was.get("count"), 1) and {**new, "count": 0} == {**was, "count": 0}
        for was, new in zip(before, after, strict=True)
    )


RULES: Final = Rules(validate=validate)
