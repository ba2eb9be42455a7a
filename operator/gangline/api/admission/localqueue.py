"""LocalQueue. One without a ClusterQueue is inactive, until it gets one."""

from __future__ import annotations

from typing import Final

from gangline.api.admission import quotas, syntax
from gangline.api.admission.findings import Context, FieldError, Json, Rules, immutable, mapping, spec


def validate(queue: Json, old: Json | None, context: Context) -> list[FieldError]:
    body = spec(queue)
    target = body.get("clusterQueue")
    errors = syntax.dns_subdomain("spec.clusterQueue", target) if target else []
    if old is not None and (was := spec(old).get("clusterQueue")):
        errors += immutable("spec.clusterQueue", target, was)
    return errors + quotas.check_weight("spec.fairSharing", mapping(body.get("fairSharing")).get("weight"))


RULES: Final = Rules(validate=validate)
