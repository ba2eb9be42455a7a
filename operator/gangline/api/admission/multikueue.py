"""MultiKueueConfig and MultiKueueCluster. Their schemas hold all rules; what may have no effect is a warning."""

from __future__ import annotations

from typing import Any, Final

from gangline.api import names
from gangline.api.admission.findings import AdmissionFacts, FieldError, Json, KindRules, spec

#: controller of admission checks that send workloads to other clusters, and of the jobs that run there
CONTROLLER: Final = f"{names.GROUP}/multikueue"
_WITH_GATE: Final = "has an effect only where the feature gate"


def validate(obj: Json, old: Json | None, context: AdmissionFacts) -> list[FieldError]:
    return []


def warn(obj: Json) -> list[str]:
    wanted = spec(obj)
    if wanted.get("quotaManagement") == "Automated":
        return [f"spec.quotaManagement: Automated {_WITH_GATE} MultiKueueManagerQuotaAutomation is on"]
    source: Any = wanted.get("clusterSource")
    if isinstance(source, dict) and "clusterProfileRef" in source:
        return [f"spec.clusterSource.clusterProfileRef {_WITH_GATE} MultiKueueClusterProfile is on"]
    return []


RULES: Final = KindRules(validate=validate, warn=warn)
