"""Whether an AdmissionCheck of this controller is active: its configuration exists and can be read. Messages are Kueue's."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from gangline.api import names
from gangline.api.read import models
from gangline.api.read.reading import ParseError, child
from gangline.api.schema.v1beta2.provisioning import ProvisioningRequestConfigSpec
from gangline.control.checks.active_checks import ACTIVE, Activity, UnusableError, configuration, named_configuration
from gangline.kube import resources as kube
from gangline.objects import Stored

#: `spec.controllerName` of the AdmissionChecks that are answered here
CONTROLLER: Final = f"{names.GROUP}/provisioning-request"
#: name of a ProvisioningRequestConfig -> the object
ConfigOf = Callable[[str], Stored | None]


def is_ours(check: Stored) -> bool:
    return check.spec.get("controllerName") == CONTROLLER


def config_of(check: Stored, config_named: ConfigOf) -> ProvisioningRequestConfigSpec:
    """The configuration that the check names. Raises UnusableError."""
    wanted = kube.PROVISIONING_CONFIGS
    config = configuration(check, wanted, config_named)
    try:
        return models.read(ProvisioningRequestConfigSpec, child(config, "spec", ""), "spec")
    except ParseError as error:
        raise UnusableError(f"{wanted.kind} {named_configuration(check, wanted)}: {error}") from None


def activity_of(check: Stored, config_named: ConfigOf, *, served: bool) -> Activity:
    """The condition Active of a check. `served`: the API server has ProvisioningRequests."""
    try:
        config_of(check, config_named)
    except UnusableError as error:
        return Activity(False, "BadParametersRef", str(error))
    if not served:
        return Activity(False, "NotServed", f"{kube.PROVISIONING_REQUESTS} are not served: their CRD is not installed")
    return ACTIVE
