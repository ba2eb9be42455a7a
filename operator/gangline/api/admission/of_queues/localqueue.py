"""LocalQueue. One without a ClusterQueue is inactive, until it gets one; that another is not written over it, the CRD says."""

from __future__ import annotations

from typing import Final

from gangline.api.admission import syntax
from gangline.api.admission.findings import AdmissionFacts, FieldError, Json, KindRules, mapping, spec
from gangline.api.admission.of_queues import quotas


def validate(queue: Json, old: Json | None, context: AdmissionFacts) -> list[FieldError]:
    body = spec(queue)
    target = body.get("clusterQueue")
    errors = syntax.dns_subdomain("spec.clusterQueue", target) if target else []
    return errors + quotas.check_weight("spec.fairSharing", mapping(body.get("fairSharing")).get("weight"))


RULES: Final = KindRules(validate=validate)
