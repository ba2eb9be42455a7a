"""MultiKueueConfig and MultiKueueCluster, and the admission checks that would use them. Their schemas hold all rules."""

from __future__ import annotations

from typing import Final

from gangline.api import names
from gangline.api.admission.findings import Context, FieldError, Json, Rules

#: the controller of admission checks that send workloads to other clusters
CONTROLLER: Final = f"{names.GROUP}/multikueue"
CHECK_WARNING: Final = (
    "Gangline sends no workloads to other clusters yet: ClusterQueues with this check are inactive, unless another "
    "controller manages it"
)


def validate(obj: Json, old: Json | None, context: Context) -> list[FieldError]:
    return []


def warn(obj: Json) -> list[str]:
    return [f"{obj.get('kind')} is stored, but Gangline sends no workloads to other clusters yet"]


RULES: Final = Rules(validate=validate, warn=warn)
