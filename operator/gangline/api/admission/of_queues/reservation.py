"""Reservation: it is valid if it can be read as the operator reads it; the error names the field."""

from __future__ import annotations

from typing import Final

from gangline.api.admission import syntax
from gangline.api.admission.findings import (
    NOTHING,
    AdmissionFacts,
    FieldError,
    Json,
    KindRules,
    mapping,
    metadata,
    spec,
    text,
)
from gangline.api.reservations import reservation
from gangline.api.spec_fields import SpecError

#: characters of the longest name: it is a part of the names of windows, and of a label's value
LONGEST_NAME: Final = 63


def validate(obj: Json, old: Json | None, context: AdmissionFacts) -> list[FieldError]:
    del context
    errors: list[FieldError] = []
    name = text(metadata(obj).get("name"))
    if old is None and len(name) > LONGEST_NAME:
        errors.append(FieldError("metadata.name", NOTHING, f"must be no more than {LONGEST_NAME} characters"))
    errors += syntax.label_map("spec.nodes.matchLabels", mapping(spec(obj).get("nodes")).get("matchLabels"))
    try:
        reservation(obj)
    except SpecError as error:
        errors.append(FieldError(error.path, NOTHING, error.message))
    return errors


def warn(obj: Json) -> list[str]:
    """Nodes given by name and by labels are reserved together, which an author may not expect."""
    nodes = mapping(spec(obj).get("nodes"))
    given = [name for name in ("names", "matchLabels", "anyOf") if nodes.get(name)]
    if len(given) < 2:
        return []
    return [f"spec.nodes: {' and '.join(given)} add up: a node that any of them selects is reserved"]


RULES: Final = KindRules(validate=validate, warn=warn)
