"""Cohort. A cycle among cohorts is not refused here: it makes the tree inactive, as in Kueue."""

from __future__ import annotations

from typing import Final

from gangline.api.admission import syntax
from gangline.api.admission.findings import AdmissionFacts, FieldError, Json, KindRules, mapping, spec
from gangline.api.admission.of_queues import quotas


def validate(cohort: Json, old: Json | None, context: AdmissionFacts) -> list[FieldError]:
    body = spec(cohort)
    parent = body.get("parentName")
    rules = quotas.QuotaRules(has_parent=bool(parent), parent_word="parent", lending_within_nominal=False)
    errors = syntax.dns_subdomain("spec.parentName", parent) if parent else []
    errors += quotas.check_groups("spec.resourceGroups", body.get("resourceGroups"), rules)
    return errors + quotas.check_weight("spec.fairSharing", mapping(body.get("fairSharing")).get("weight"))


RULES: Final = KindRules(validate=validate)
