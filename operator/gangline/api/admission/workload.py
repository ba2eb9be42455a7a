"""Workload: the gang in the queue. Its defaults (a pod set is called main, …) are all in the schema."""

from __future__ import annotations

from typing import Final

from gangline.api import names
from gangline.api.admission import amounts, syntax
from gangline.api.admission.findings import (
    IMMUTABLE,
    AdmissionFacts,
    FieldError,
    Json,
    KindRules,
    annotation_path,
    annotations_of,
    duplicate,
    forbidden,
    immutable,
    invalid,
    listing,
    mapping,
    metadata,
    not_found,
    not_supported,
    objects,
    required,
    spec,
    text,
    too_many,
    whole,
)
from gangline.api.admission.of_jobs import allowed_classes, jobs, pods

# --- the status of a Workload: rules for admission, reclaiming and admission checks -----------------------------------
#
# The operator's own status writes obey them by construction. The rules are for writes of other clients, and only those that
# seem to break one get here: the API server decides by the conditions of `gangline_webhooks.conditions`, which
# therefore say the same as these rules.


#: parts of a pod set assignment that may be set or changed after admission
_MOVABLE = ("topologyAssignment", "delayedTopologyRequest")
#: annotation on Workloads of elastic jobs: the one that this one replaces, on the same cluster
_REPLACEMENT = f"{names.GROUP}/workload-slice-replacement-for"


def status(workload: Json | None) -> Json:
    return mapping((workload or {}).get("status"))


def has_quota(workload: Json) -> bool:
    return any(
        condition.get("type") == names.QUOTA_RESERVED and condition.get("status") == "True"
        for condition in objects(status(workload).get("conditions"))
    )


def validate_status(workload: Json, old: Json | None) -> list[FieldError]:
    if old is not None and status(workload) == status(old):
        return []
    counts = {text(each.get("name")): whole(each.get("count"), 1) for each in objects(spec(workload).get("podSets"))}
    errors = [
        *_admission(workload, old, counts),
        *_reclaimable(workload, old, counts),
        *_checks(workload, counts),
    ]
    if old is not None:
        errors += [*_admission_update(workload, old), *_reclaimable_update(workload, old)]
        errors += [*_checks_update(workload, old), *_cluster_update(workload, old)]
    return errors


def _holds_nothing(workload: Json | None) -> bool:
    """Whether the Workload has quota, but no admission says which."""
    return workload is not None and has_quota(workload) and not mapping(status(workload).get("admission"))


def _admission(workload: Json, old: Json | None, counts: dict[str, int]) -> list[FieldError]:
    if not has_quota(workload):
        return []
    admission = mapping(status(workload).get("admission"))
    if not admission:  # one that was so before may be mended step by step
        message = "must be set while the QuotaReserved condition is true"
        return [] if _holds_nothing(old) else [required("status.admission", message)]
    errors: list[FieldError] = []
    for i, assignment in enumerate(objects(admission.get("podSetAssignments"))):
        path = f"status.admission.podSetAssignments[{i}]"
        if text(assignment.get("name")) not in counts:
            errors.append(not_found(f"{path}.name", assignment.get("name")))
        errors += _usage(f"{path}.resourceUsage", assignment)
    return errors


def _usage(path: str, assignment: Json) -> list[FieldError]:
    count = whole(assignment.get("count"), 0)
    errors: list[FieldError] = []
    for resource, value in mapping(assignment.get("resourceUsage")).items():
        used = amounts.amount_or_none(value, resource)
        if count > 0 and used is not None and used % count:
            errors.append(invalid(f"{path}[{resource}]", value, f"is not a multiple of {count}"))
    return errors


def _reclaimable(workload: Json, old: Json | None, counts: dict[str, int]) -> list[FieldError]:
    stale = objects(status(old).get("reclaimablePods")) if jobs.is_elastic(workload) else []
    errors: list[FieldError] = []
    for entry in objects(status(workload).get("reclaimablePods")):
        name, count = text(entry.get("name")), whole(entry.get("count"), 0)
        path = f"status.reclaimablePods[{name}]"
        if name not in counts:
            errors.append(not_supported(f"{path}.name", name, counts))
        elif count > counts[name] and not any(
            text(was.get("name")) == name and whole(was.get("count"), 0) == count for was in stale
        ):  # an elastic job that has shrunk since may leave a count that is too large
            errors.append(invalid(f"{path}.count", count, f"should be less or equal to {counts[name]}"))
    return errors


def _checks(workload: Json, counts: dict[str, int]) -> list[FieldError]:
    errors: list[FieldError] = []
    for i, check in enumerate(objects(status(workload).get("admissionChecks"))):
        for j, update in enumerate(objects(check.get("podSetUpdates"))):
            path = f"status.admissionChecks[{i}].podSetUpdates[{j}]"
            if text(update.get("name")) not in counts:
                errors.append(not_supported(f"{path}.name", update.get("name"), counts))
            errors += syntax.tolerations(f"{path}.tolerations", update.get("tolerations"))
            errors += syntax.label_map(f"{path}.nodeSelector", update.get("nodeSelector"))
            errors += syntax.label_map(f"{path}.labels", update.get("labels"))
            errors += syntax.annotation_map(f"{path}.annotations", update.get("annotations"))
    return errors


def _admission_update(workload: Json, old: Json) -> list[FieldError]:
    """An admission is set or cleared as a whole; only placements may change within it.

    One that was left behind when the quota was released, as by a client that applies fields of its own only, is replaced.
    """
    if not has_quota(old):
        return []
    new_admission, old_admission = status(workload).get("admission"), status(old).get("admission")
    if not new_admission or not old_admission or _settled(new_admission) == _settled(old_admission):
        return []
    return immutable("status.admission", new_admission, old_admission)


def _settled(admission: object) -> Json:
    """The admission without places; equal amounts are equal however they are written, and an empty map is as good as none."""
    assignments = [
        {key: value for key, value in assignment.items() if key not in _MOVABLE and value not in ({}, None)}
        | {"resourceUsage": _used(assignment)}
        for assignment in objects(mapping(admission).get("podSetAssignments"))
    ]
    return {**mapping(admission), "podSetAssignments": assignments}


def _used(assignment: Json) -> Json:
    usage = mapping(assignment.get("resourceUsage"))
    return {resource: amounts.amount_or_none(value, resource) or value for resource, value in usage.items()}


def _reclaimable_update(workload: Json, old: Json) -> list[FieldError]:
    """Errors of a change of the reclaimable pods. While quota is held, released pods stay released, except those of pod sets that
    have shrunk since they were admitted.
    """
    if not (has_quota(workload) and has_quota(old)):
        return []
    after = {
        text(entry.get("name")): whole(entry.get("count"), 0)
        for entry in objects(status(workload).get("reclaimablePods"))
    }
    shrunk = _shrunk(workload)
    errors: list[FieldError] = []
    for entry in objects(status(old).get("reclaimablePods")):
        name, count = text(entry.get("name")), whole(entry.get("count"), 0)
        path = f"status.reclaimablePods[{name}]"
        if name in shrunk:
            continue
        if name not in after:
            errors.append(required(path, "cannot be removed"))
        elif after[name] < count:
            errors.append(invalid(f"{path}.count", after[name], f"cannot be less than {count}"))
    return errors


def _shrunk(workload: Json) -> set[str]:
    """The pod sets of an elastic job that have fewer pods than they were admitted with."""
    if not jobs.is_elastic(workload):
        return set()
    now = {text(each.get("name")): whole(each.get("count"), 1) for each in objects(spec(workload).get("podSets"))}
    assignments = objects(mapping(status(workload).get("admission")).get("podSetAssignments"))
    admitted = {text(each.get("name")): whole(each.get("count"), 0) for each in assignments}
    return {name for name, count in admitted.items() if count > now.get(name, 0)}


def _checks_update(workload: Json, old: Json) -> list[FieldError]:
    """The updates of a ready check stay the same."""
    after = {text(check.get("name")): check for check in objects(status(workload).get("admissionChecks"))}
    errors: list[FieldError] = []
    for i, was in enumerate(objects(status(old).get("admissionChecks"))):
        check = after.get(text(was.get("name")))
        if check is not None and check.get("state") == was.get("state") == "Ready":
            path = f"status.admissionChecks[{i}].podSetUpdates"
            errors += immutable(path, check.get("podSetUpdates"), was.get("podSetUpdates"))
    return errors


def _cluster_update(workload: Json, old: Json) -> list[FieldError]:
    """A cluster is chosen among the nominated ones. The schema keeps it then."""
    cluster, chosen_before = status(workload).get("clusterName"), status(old).get("clusterName")
    if cluster is None or chosen_before is not None or _REPLACEMENT in annotations_of(workload):
        return []
    if cluster in listing(status(old).get("nominatedClusterNames")):
        return []
    message = "when setting clusterName it must be one of the nominatedClusterNames"
    return [invalid("status.clusterName", cluster, message)]


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
    errors += allowed_classes.priority_errors(workload, old, context)
    errors += validate_status(workload, old)
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
    errors = [*jobs.check_gates_update(workload, old), *_same_predecessor(workload, old)]
    before, after = spec(old).get("podSets"), spec(workload).get("podSets")
    if before == after or not has_quota(old):
        return errors
    if len(objects(before)) != len(objects(after)):
        return [*errors, invalid("spec.podSets", after, IMMUTABLE)]
    for i, (was, new) in enumerate(zip(objects(before), objects(after), strict=True)):
        errors += immutable(f"spec.podSets.{i}", _with_count_of(was, new), was)
    return errors


def _same_predecessor(workload: Json, old: Json) -> list[FieldError]:
    """A slice of an elastic job names the one that it replaces when it is made: what that one holds is counted as its own."""
    path = annotation_path(_REPLACEMENT)
    after, before = (annotations_of(each).get(_REPLACEMENT) for each in (workload, old))
    return [] if after is None or after == before else [forbidden(path, "can only be set at creation")]


def _with_count_of(was: Json, new: Json) -> Json:
    """A pod set that has released pods, as an elastic job does, as if it had not."""
    shrunk = whole(new.get("count"), 1) < whole(was.get("count"), 1)
    return {**new, "count": was.get("count")} if shrunk else new


RULES: Final = KindRules(validate=validate)
