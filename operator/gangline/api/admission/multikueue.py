"""MultiKueueConfig and MultiKueueCluster. Their schemas hold all rules; what may have no effect is a warning."""

from __future__ import annotations

from typing import Final

from gangline.api import names
from gangline.api.admission.findings import Context, FieldError, Json, Rules, spec

#: controller of admission checks that send workloads to other clusters, and of the jobs that run there
CONTROLLER: Final = f"{names.GROUP}/multikueue"


def validate(obj: Json, old: Json | None, context: Context) -> list[FieldError]:
    return []


def warn(obj: Json) -> list[str]:
    if spec(obj).get("quotaManagement") == "Automated":
        return [
            "spec.quotaManagement: Automated has an effect only where the feature gate MultiKueueManagerQuotaAutomation is on"
        ]
    return []


RULES: Final = Rules(validate=validate, warn=warn)
