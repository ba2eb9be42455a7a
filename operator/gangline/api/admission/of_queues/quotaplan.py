"""QuotaPlan: it is valid if it can be read as the operator reads it; the error names the field."""

from __future__ import annotations

from typing import Final

from gangline.api.admission.findings import NOTHING, AdmissionFacts, FieldError, Json, KindRules
from gangline.api.quota_plans import quota_plan
from gangline.api.spec_fields import SpecError


def validate(obj: Json, old: Json | None, context: AdmissionFacts) -> list[FieldError]:
    del old, context
    try:
        facts = quota_plan(obj)
    except SpecError as error:
        return [FieldError(error.path, NOTHING, error.message)]
    if not facts.overrides:
        return [FieldError("spec.overrides", NOTHING, "give at least one override")]
    return []


RULES: Final = KindRules(validate=validate)
