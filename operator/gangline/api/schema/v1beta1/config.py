"""AdmissionCheck and Topology in v1beta1; the other configuration kinds are the same in both versions."""

from __future__ import annotations

from typing import Annotated

from gangline.api.schema import common
from gangline.api.schema.common import Int64, KubeObject, Quantity, Time
from gangline.api.schema.json_schema import ApiModel, Cel, checked
from gangline.api.schema.v1beta2 import config as v1beta2


class V1Beta1AdmissionCheckSpec(v1beta2.AdmissionCheckSpecBase):
    """The controller of the check."""

    retry_delay_minutes: Int64 = 15
    """Has no effect."""


class V1Beta1AdmissionCheck(KubeObject):
    """A condition that a controller must confirm before a workload with quota starts."""

    spec: V1Beta1AdmissionCheckSpec | None = None
    """The controller of the check."""
    status: v1beta2.AdmissionCheckStatus | None = None
    """Whether the controller handles the check."""


class V1Beta1AdmissionFairSharingStatus(ApiModel):
    """Usage over time."""

    consumed_resources: dict[str, Quantity]
    """What was used, older use counting less and less."""
    last_update: Time
    """The time at which the usage was last computed."""


class V1Beta1FairSharingStatus(common.FairSharingStatus):
    """The member's status in fair sharing."""

    admission_fair_sharing_status: V1Beta1AdmissionFairSharingStatus | None = None
    """This is not filled in: usage over time is that of LocalQueues."""


class V1Beta1TopologySpec(ApiModel):
    """The hierarchy."""

    levels: Annotated[v1beta2.Levels, checked(*v1beta2.LEVEL_RULES, Cel("self == oldSelf", "field is immutable"))]
    """The levels, from the widest (a block) to the narrowest (a rack, a node). They can't be changed."""


class V1Beta1Topology(KubeObject):
    """The hierarchy of nodes, from large domains to small ones, by which gangs are placed close together."""

    spec: V1Beta1TopologySpec | None = None
    """The hierarchy."""
