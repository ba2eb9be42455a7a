"""LocalQueue: the door of a namespace to a ClusterQueue."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from gangline.api.schema.common import (
    Conditions,
    FairSharing,
    Int32,
    Int64,
    KubeObject,
    ObjectName,
    Quantity,
    ResourceName,
    StopPolicy,
    Time,
)
from gangline.api.schema.json_schema import ApiModel, Cel, checked, list_map


class LocalQueueSpec(ApiModel):
    """The ClusterQueue of a LocalQueue."""

    cluster_queue: Annotated[ObjectName, checked(Cel("self == oldSelf", "field is immutable"))] | None = None
    """The ClusterQueue whose quota workloads of this queue use. It can't be changed."""
    stop_policy: StopPolicy = "None"
    """None: the queue works. Hold: nothing new is admitted. HoldAndDrain: running workloads are evicted too."""
    fair_sharing: FairSharing | None = None
    """How much this queue counts against the other LocalQueues of its ClusterQueue, where that shares by usage."""


class LocalQueueResourceUsage(ApiModel):
    """The usage of one resource."""

    name: ResourceName
    """The resource."""
    total: Quantity | None = None
    """All that is in use."""


class LocalQueueFlavorUsage(ApiModel):
    """The usage of one flavor."""

    name: ObjectName
    """The flavor."""
    resources: Annotated[list[LocalQueueResourceUsage], Field(max_length=64), list_map("name")]
    """Usage by resource."""


LocalQueueUsages = Annotated[list[LocalQueueFlavorUsage], Field(max_length=64), list_map("name")]


class AdmissionFairSharingStatus(ApiModel):
    """Usage over time."""

    consumed_resources: dict[str, Quantity] | None = None
    """What this queue used, older use counting less and less."""
    last_update: Time | None = None
    """The time at which the usage was last computed."""


class LocalQueueFairSharingStatus(ApiModel):
    """The queue's status in fair sharing."""

    weighted_share: Int64 | None = None
    """Share of what can be lent, in thousandths, divided by the weight."""
    admission_fair_sharing_status: AdmissionFairSharingStatus | None = None
    """Usage over time, where the ClusterQueue orders by it."""


class LocalQueueStatusBase(ApiModel):
    """What both versions of a LocalQueue's status say alike."""

    conditions: Conditions | None = None
    """Active: whether workloads can get through this queue, and if not, why."""
    pending_workloads: Int32 | None = None
    """Workloads that wait."""
    reserving_workloads: Int32 | None = None
    """Workloads that hold quota, admitted or not."""
    admitted_workloads: Int32 | None = None
    """Admitted workloads that have not finished."""
    flavors_reservation: LocalQueueUsages | None = None
    """Quota held by all workloads that have it reserved, started or not."""
    fair_sharing: LocalQueueFairSharingStatus | None = None
    """The queue's status in fair sharing."""


class LocalQueueStatus(LocalQueueStatusBase):
    """The present usage of the queue's workloads."""

    flavors_usage: LocalQueueUsages | None = None
    """Quota held by admitted workloads."""


class LocalQueue(KubeObject):
    """A namespace's access to a ClusterQueue. A job names it in the label kueue.x-k8s.io/queue-name."""

    spec: LocalQueueSpec | None = None
    """The ClusterQueue of the LocalQueue, and settings."""
    status: LocalQueueStatus | None = None
    """The present usage of the queue's workloads."""
