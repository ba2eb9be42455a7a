"""The status of a Workload: rules for admission, reclaiming and admission checks.

The operator's own status writes obey them by construction and pass through no webhook; the rules are for writes of other
clients.
"""

from __future__ import annotations

from gangline.api import names
from gangline.api.admission import amounts, syntax
from gangline.api.admission.findings import (
    FieldError,
    Json,
    immutable,
    invalid,
    mapping,
    not_found,
    not_supported,
    objects,
    required,
    spec,
    text,
    whole,
)

#: parts of a pod set assignment that may be set or changed after admission
_MOVABLE = ("topologyAssignment", "delayedTopologyRequest")


def status(workload: Json | None) -> Json:
    return mapping((workload or {}).get("status"))


def has_quota(workload: Json) -> bool:
    return any(
        condition.get("type") == names.QUOTA_RESERVED and condition.get("status") == "True"
        for condition in objects(status(workload).get("conditions"))
    )


def validate(workload: Json, old: Json | None) -> list[FieldError]:
    if old is not None and status(workload) == status(old):
        return []
    counts = {text(each.get("name")): whole(each.get("count"), 1) for each in objects(spec(workload).get("podSets"))}
    errors = [*_admission(workload, counts), *_reclaimable(workload, counts), *_checks(workload, counts)]
    errors += _cluster(status(workload))
    if old is not None:
        errors += [*_admission_update(workload, old), *_reclaimable_update(workload, old)]
        errors += [*_checks_update(workload, old), *_cluster_update(workload, old)]
    return errors


def _admission(workload: Json, counts: dict[str, int]) -> list[FieldError]:
    if not has_quota(workload):
        return []
    admission = mapping(status(workload).get("admission"))
    if not admission:
        return [required("status.admission", "must be set while quota is reserved")]
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


def _reclaimable(workload: Json, counts: dict[str, int]) -> list[FieldError]:
    errors: list[FieldError] = []
    for entry in objects(status(workload).get("reclaimablePods")):
        name, count = text(entry.get("name")), whole(entry.get("count"), 0)
        path = f"status.reclaimablePods[{name}]"
        if name not in counts:
            errors.append(not_supported(f"{path}.name", name, counts))
        elif count > counts[name]:
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
            for key in mapping(update.get("annotations")):
                errors += syntax.label_key(f"{path}.annotations", key.lower())
    return errors


def _cluster(state: Json) -> list[FieldError]:
    cluster, nominated = state.get("clusterName"), state.get("nominatedClusterNames")
    if cluster and nominated:
        return [invalid("status.nominatedClusterNames", nominated, "must be empty once clusterName is set")]
    return []


def _admission_update(workload: Json, old: Json) -> list[FieldError]:
    """An admission is set or cleared as a whole; only placements may change within it."""
    new_admission, old_admission = status(workload).get("admission"), status(old).get("admission")
    if not new_admission or not old_admission or _settled(new_admission) == _settled(old_admission):
        return []
    return immutable("status.admission", new_admission, old_admission)


def _settled(admission: object) -> Json:
    assignments = [
        {key: value for key, value in assignment.items() if key not in _MOVABLE}
        for assignment in objects(mapping(admission).get("podSetAssignments"))
    ]
    return {**mapping(admission), "podSetAssignments": assignments}


def _reclaimable_update(workload: Json, old: Json) -> list[FieldError]:
    """While quota is held, released pods stay released."""
    if not (has_quota(workload) and has_quota(old)):
        return []
    after = {
        text(entry.get("name")): whole(entry.get("count"), 0)
        for entry in objects(status(workload).get("reclaimablePods"))
    }
    errors: list[FieldError] = []
    for entry in objects(status(old).get("reclaimablePods")):
        name, count = text(entry.get("name")), whole(entry.get("count"), 0)
        path = f"status.reclaimablePods[{name}]"
        if name not in after:
            errors.append(required(path, "cannot be removed"))
        elif after[name] < count:
            errors.append(invalid(f"{path}.count", after[name], f"cannot be less then {count}"))
    return errors


def _checks_update(workload: Json, old: Json) -> list[FieldError]:
    """The updates of a ready check stay the same."""
    before = {text(check.get("name")): check for check in objects(status(old).get("admissionChecks"))}
    errors: list[FieldError] = []
    for i, check in enumerate(objects(status(workload).get("admissionChecks"))):
        was = before.get(text(check.get("name")))
        if was is not None and check.get("state") == was.get("state") == "Ready":
            path = f"status.admissionChecks[{i}].podSetUpdates"
            errors += immutable(path, check.get("podSetUpdates"), was.get("podSetUpdates"))
    return errors


def _cluster_update(workload: Json, old: Json) -> list[FieldError]:
    new_cluster, old_cluster = status(workload).get("clusterName"), status(old).get("clusterName")
    if old_cluster and new_cluster:
        return immutable("status.clusterName", new_cluster, old_cluster)
    nominated = status(old).get("nominatedClusterNames")
    if new_cluster and isinstance(nominated, list) and new_cluster not in nominated:
        return [invalid("status.clusterName", new_cluster, "must be one of status.nominatedClusterNames")]
    return []
