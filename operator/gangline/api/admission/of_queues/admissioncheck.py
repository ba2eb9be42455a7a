"""AdmissionCheck."""

from __future__ import annotations

from typing import Final

from gangline.api.admission import syntax
from gangline.api.admission.findings import (
    AdmissionFacts,
    FieldError,
    Json,
    KindRules,
    immutable,
    mapping,
    required,
    spec,
)


def validate(check: Json, old: Json | None, context: AdmissionFacts) -> list[FieldError]:
    controller = spec(check).get("controllerName")
    errors = [] if controller else [required("spec.controllerName")]
    if old is not None:
        errors += immutable("spec.controllerName", controller, spec(old).get("controllerName"))
    parameters = mapping(spec(check).get("parameters"))
    if parameters:
        errors += _parameters(parameters)
    return errors


def _parameters(parameters: Json) -> list[FieldError]:
    errors = syntax.dns_subdomain("spec.parameters.apiGroup", parameters.get("apiGroup"))
    errors += syntax.dns_label("spec.parameters.name", parameters.get("name"))
    if not parameters.get("kind"):
        errors.append(required("spec.parameters.kind"))
    return errors


RULES: Final = KindRules(validate=validate)
