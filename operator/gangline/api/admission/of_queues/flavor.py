"""ResourceFlavor."""

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
from gangline.api.admission.of_queues.finalizers import keep_while_in_use


def default(flavor: Json, old: Json | None, context: AdmissionFacts) -> list[str]:
    keep_while_in_use(flavor, old)
    return []


def validate(flavor: Json, old: Json | None, context: AdmissionFacts) -> list[FieldError]:
    body = spec(flavor)
    errors = [
        *syntax.label_map("spec.nodeLabels", body.get("nodeLabels")),
        *syntax.taints("spec.nodeTaints", body.get("nodeTaints")),
        *syntax.tolerations("spec.tolerations", body.get("tolerations")),
    ]
    topology = body.get("topologyName")
    if topology:
        errors += syntax.dns_subdomain("spec.topologyName", topology)
        if not mapping(body.get("nodeLabels")):
            errors.append(required("spec.nodeLabels", "at least one nodeLabel is required when topology is set"))
    if old is not None and spec(old).get("topologyName"):
        errors += immutable("spec.topologyName", topology, spec(old).get("topologyName"))
    return errors


RULES: Final = KindRules(validate=validate, default=default)
