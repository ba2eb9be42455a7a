"""Pods, alone and in groups: a queued one waits at a scheduling gate, and is marked as ours.

Only pods that name a queue or may get one reach these rules, and only where the configuration lists the framework `pod`.
"""

from __future__ import annotations

from typing import Final

from gangline.api import names
from gangline.api.admission import syntax
from gangline.api.admission.findings import (
    AdmissionFacts,
    FieldError,
    Json,
    KindRules,
    annotation_path,
    annotations_of,
    fill,
    forbidden,
    immutable,
    invalid,
    label_path,
    labels_of,
    listing,
    metadata,
    objects,
    required,
    spec,
    text,
)
from gangline.api.admission.of_jobs import jobs, topology_request
from gangline.api.admission.of_jobs.identifiers import pod_group, prebuilt_path, prebuilt_workload
from gangline.api.role_hash import role_hash

_TOTAL_PATH: Final = annotation_path(names.POD_GROUP_TOTAL)
_MANAGED_PATH: Final = label_path(names.MANAGED)
_RETRIABLE_PATH: Final = annotation_path(names.RETRIABLE_IN_GROUP)
_INDEX_PATH: Final = label_path(names.POD_GROUP_INDEX)


# --- defaulting -------------------------------------------------------------------------------------------------------


class _Gate:
    """A queued pod waits at its gate, and stays until we have counted its end."""

    def read(self, job: Json) -> bool:
        return any(gate.get("name") == names.ADMISSION_GATE for gate in objects(spec(job).get("schedulingGates")))

    def hold(self, job: Json) -> None:
        _put(job, "labels", names.MANAGED, "true")
        meta = fill(job, "metadata")
        if meta is not None:
            others = [each for each in listing(meta.get("finalizers")) if each != names.MANAGED]
            meta["finalizers"] = [*others, names.MANAGED]
        _gate(job)


def _gate(pod: Json) -> None:
    """Gates can only be removed from a pod, so it also gets the one at which it waits for its place by topology."""
    body = fill(pod, "spec")
    if body is None:
        return
    gates = listing(body.get("schedulingGates"))
    present = {gate.get("name") for gate in objects(gates)}
    added = [{"name": name} for name in (names.ADMISSION_GATE, names.TOPOLOGY_GATE) if name not in present]
    body["schedulingGates"] = [*gates, *added]
    if source := text(annotations_of(pod).get(names.POD_GROUP_INDEX_LABEL)):
        _put(pod, "labels", names.POD_GROUP_INDEX, text(labels_of(pod).get(source)))
    if names.ROLE_HASH not in annotations_of(pod):
        _put(pod, "annotations", names.ROLE_HASH, role_hash(body))


def _put(pod: Json, part: str, key: str, value: str) -> None:
    meta = fill(pod, "metadata")
    writable = fill(meta, part) if meta is not None else None
    if writable is not None:
        writable[key] = value


# --- validation -------------------------------------------------------------------------------------------------------


def _check(pod: Json, old: Json | None) -> list[FieldError]:
    errors = [*_managed_label(pod), *_group(pod), *_prebuilt(pod)]
    errors += topology_request.check_template("", {"metadata": metadata(pod)}, _total(pod) or 1)
    return errors if old is None else errors + _update(pod, old)


def _managed_label(pod: Json) -> list[FieldError]:
    value = labels_of(pod).get(names.MANAGED)
    if value in (None, "true"):
        return []
    return [forbidden(_MANAGED_PATH, "managed label value can only be 'true'")]


def _total(pod: Json) -> int | None:
    try:
        return syntax.go_int(text(annotations_of(pod).get(names.POD_GROUP_TOTAL)))
    except ValueError:
        return None


def _group(pod: Json) -> list[FieldError]:
    """Name and total count come together, and the count is a number above zero."""
    name, path = pod_group(pod)
    written = annotations_of(pod).get(names.POD_GROUP_TOTAL)
    where = "annotation" if "annotations" in path else "label"
    both = f"both the '{names.POD_GROUP_TOTAL}' annotation and the '{names.POD_GROUP}' {where} should be set"
    if not name:
        return [] if written is None else [required(path, both)]
    errors = syntax.dns_subdomain(path, name)
    if written is None:
        return [*errors, required(_TOTAL_PATH, both)]
    try:
        total = syntax.go_int(text(written))
    except ValueError as error:
        return [*errors, invalid(_TOTAL_PATH, written, str(error))]
    if total < 1:
        message = f"incorrect annotation value '{names.POD_GROUP_TOTAL}={total}': group total count should be greater than zero"
        errors.append(invalid(_TOTAL_PATH, written, message))
    elif total > _MOST_PODS:
        errors.append(invalid(_TOTAL_PATH, written, f"should be at most {_MOST_PODS}"))
    return errors + _index(pod, total)


#: pods of a group: more than any gang has, and few enough to be planned together
_MOST_PODS: Final = 100_000


def _index(pod: Json, total: int) -> list[FieldError]:
    value = labels_of(pod).get(names.POD_GROUP_INDEX)
    if value is None:
        return []
    try:
        index = syntax.go_int(text(value))
    except ValueError as error:
        return [invalid(_INDEX_PATH, value, str(error))]
    return [] if 0 <= index < total else [invalid(_INDEX_PATH, value, f"should be from 0 to {total - 1}")]


def _prebuilt(pod: Json) -> list[FieldError]:
    name, prebuilt = pod_group(pod)[0], prebuilt_workload(pod)
    if name and prebuilt and prebuilt != name:
        return [invalid(prebuilt_path(pod), prebuilt, "prebuilt workload and pod group should be equal")]
    return []


def _update(pod: Json, old: Json) -> list[FieldError]:
    errors: list[FieldError] = []
    (new_name, path), (old_name, _) = pod_group(pod), pod_group(old)
    if old_name:
        errors += immutable(path, new_name, old_name)
    if new_name and _is_final(old) and not _is_final(pod):
        errors.append(forbidden(_RETRIABLE_PATH, "unretriable pod group can't be converted to retriable"))
    return errors


def _is_final(pod: Json) -> bool:
    return annotations_of(pod).get(names.RETRIABLE_IN_GROUP) == "false"


# --- warnings ---------------------------------------------------------------------------------------------------------


def _warn(pod: Json) -> list[str]:
    found: list[str] = []
    owner = jobs.controller_of(pod)
    managed = labels_of(pod).get(names.MANAGED) == "true"
    if managed and names.SUSPENDED_BY_PARENT not in annotations_of(pod) and owner and jobs.could_be_queued(owner):
        found.append(f"pod owner is managed by kueue, label '{names.MANAGED}=true' might lead to unexpected behaviour")
    for key, values in ((names.POD_GROUP_FAST, ("true",)), (names.RETRIABLE_IN_GROUP, ("false", "true"))):
        value = annotations_of(pod).get(key)
        if value is not None and value not in values:
            found.append(f"the annotation {key} is ignored: its value is {text(value)[:63]!r}, not {values[0]!r}")
    return found


_JOB_RULES: Final = jobs.job_rules(_check, _Gate(), checked_without_queue=True)


def _default(pod: Json, old: Json | None, context: AdmissionFacts) -> list[str]:
    """Set the defaults that every job gets. A pod whose owner is managed waits like the others, but its owner cares for
    its end.
    """
    if old is not None:
        return []
    if names.SUSPENDED_BY_PARENT in annotations_of(pod):
        _gate(pod)
        return []
    return _JOB_RULES.default(pod, old, context)


RULES: Final = KindRules(validate=_JOB_RULES.validate, default=_default, warn=_warn)
