"""Topology: the levels of a cluster, outermost first."""

from __future__ import annotations

from typing import Final

from gangline.api import names
from gangline.api.admission import syntax
from gangline.api.admission.findings import (
    AdmissionFacts,
    FieldError,
    Json,
    KindRules,
    duplicate,
    immutable,
    invalid,
    objects,
    required,
    spec,
    text,
    too_many,
)

MAX_LEVELS: Final = 16
HOSTNAME: Final = "kubernetes.io/hostname"


def validate(topology: Json, old: Json | None, context: AdmissionFacts) -> list[FieldError]:
    levels = _levels(topology)
    errors = [] if levels else [required("spec.levels")]
    if len(levels) > MAX_LEVELS:
        errors.append(too_many("spec.levels", len(levels), MAX_LEVELS))
    seen: set[str] = set()
    for i, label in enumerate(levels):
        path = f"spec.levels[{i}].nodeLabel"
        errors += syntax.label_key(path, label)
        if label in seen:
            errors.append(duplicate(path, label))
        seen.add(label)
        if label == HOSTNAME and i < len(levels) - 1:
            errors.append(invalid(path, label, f"the {HOSTNAME} label can only be used at the lowest level"))
    return errors + _update(topology, old)


def _update(topology: Json, old: Json | None) -> list[FieldError]:
    """Levels may change only in v1beta2, and only while hosts are the lowest level before and after."""
    if old is None:
        return []
    new_levels, old_levels = _levels(topology), _levels(old)
    hosts_below = new_levels[-1:] == [HOSTNAME] and old_levels[-1:] == [HOSTNAME]
    if topology.get("apiVersion") == names.V1BETA2 and hosts_below:
        return []
    return immutable("spec.levels", new_levels, old_levels)


def _levels(topology: Json) -> list[str]:
    return [text(level.get("nodeLabel")) for level in objects(spec(topology).get("levels"))]


RULES: Final = KindRules(validate=validate)
