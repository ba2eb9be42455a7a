"""JobProfile: it is valid if it can be read as the operator reads it; the error names the field."""

from __future__ import annotations

from typing import Final

from gangline.api.admission.findings import NOTHING, AdmissionFacts, FieldError, Json, KindRules
from gangline.api.profiles import profile
from gangline.api.spec_fields import SpecError


def validate(obj: Json, old: Json | None, context: AdmissionFacts) -> list[FieldError]:
    del old, context
    try:
        profile(obj)
    except SpecError as error:
        return [FieldError(error.path, NOTHING, error.message)]
    return []


RULES: Final = KindRules(validate=validate)
