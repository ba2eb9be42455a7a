"""JobProfile: it is valid if it can be read as the operator reads it; the error names the field."""

from __future__ import annotations

from typing import Final

from gangline.api.admission.findings import AdmissionFacts, FieldError, Json, KindRules, errors_of
from gangline.api.profiles import profile


def validate(obj: Json, old: Json | None, context: AdmissionFacts) -> list[FieldError]:
    del old, context
    return errors_of(lambda: profile(obj))


RULES: Final = KindRules(validate=validate)
