"""QuotaPlan: the quotas of a ClusterQueue over time."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from gangline.api.followed_capacity import MOST_FOLLOWED, MOST_PERCENT, USUAL_DOWN, USUAL_UP
from gangline.api.quota_plans import MOST_OVERRIDES, MOST_QUOTAS
from gangline.api.schedules import USUAL_LEAD, USUAL_NOTICE
from gangline.api.schema.common import (
    DNS_LABEL,
    Conditions,
    Duration,
    Int32,
    Int64,
    KubeObject,
    ObjectName,
    Quantity,
    ResourceName,
    Time,
)
from gangline.api.schema.json_schema import LIST_SET, ApiModel, list_map
from gangline.api.schema.v1alpha1.time_window import TimeWindow

_OverrideName = Annotated[str, Field(max_length=63, pattern=DNS_LABEL)]
_OverrideNames = Annotated[list[_OverrideName], Field(max_length=MOST_OVERRIDES), LIST_SET]


class PlannedQuota(ApiModel):
    """The quota of one resource of a flavor. What is not given stays as the ClusterQueue says."""

    flavor: ObjectName
    """The ResourceFlavor."""
    resource: ResourceName
    """The resource, such as nvidia.com/gpu."""
    nominal_quota: Quantity | None = None
    """The quota that belongs to the ClusterQueue."""
    borrowing_limit: Quantity | None = None
    """The most that it may borrow from its cohort."""
    lending_limit: Quantity | None = None
    """The most of its nominal quota that it lends to its cohort. More than its nominal quota counts as all of it."""


class QuotaOverride(ApiModel):
    """Other quotas in a window of time."""

    name: _OverrideName
    """A name for it, which messages give."""
    window: TimeWindow
    """When these quotas apply."""
    quotas: Annotated[list[PlannedQuota], Field(min_length=1, max_length=MOST_QUOTAS), list_map("flavor", "resource")]
    """The quotas in the window."""


class Damping(ApiModel):
    """How long another capacity must last before the quota follows it, so that a node that comes and goes changes nothing. Of
    several changes in one direction meanwhile the smallest counts first.
    """

    down: Duration = USUAL_DOWN
    """The time that a smaller capacity has to last. At most 1 day."""
    up: Duration = USUAL_UP
    """The time that a larger capacity has to last. At most 1 day."""


class FollowedQuota(ApiModel):
    """The nominal quota of one resource of a flavor as a share of what the flavor's usable nodes have of it."""

    flavor: ObjectName
    """The ResourceFlavor. Its nodes are those with its labels."""
    resource: ResourceName
    """The resource, such as nvidia.com/gpu."""
    share_percent: Annotated[int, Field(ge=0, le=MOST_PERCENT)]
    """The share in percent, of the nodes that are ready, trusted and not cordoned. The quota is rounded down."""
    min: Quantity | None = None
    """The least quota, whatever nodes there are."""
    max: Quantity | None = None
    """The largest quota, whatever nodes there are."""
    damping: Damping | None = None
    """How long another capacity must last before the quota follows it."""


class QuotaRecall(ApiModel):
    """How running workloads that exceed a smaller quota learn of it, and end."""

    notice: Duration = USUAL_NOTICE
    """So long before the quota falls this is announced to the workloads that exceed it then, by the event SaveBy and the
    annotation gangline.io/save-by of their pods. At most 7 days."""
    stop_before: Duration = USUAL_LEAD
    """So long before the quota falls these workloads are stopped: their pods' grace periods should be over by then. At most 1
    day."""
    start_with_checkpoints: Duration | None = None
    """Workloads that declare checkpoints may start before a fall though they may not have ended by then, if they can run for so
    long, and for the time between two checkpoints, until they are stopped. Unset: they start only if they will have ended, like
    all others. At most 7 days."""


class QuotaPlanSpec(ApiModel):
    """Which ClusterQueue, and its quotas over time."""

    cluster_queue: ObjectName
    """The ClusterQueue. If several QuotaPlans name it, the oldest is in force."""
    overrides: Annotated[list[QuotaOverride], Field(max_length=MOST_OVERRIDES), list_map("name")] | None = None
    """Other quotas in windows of time. Where windows overlap, the override that comes later in this list wins."""
    follow: Annotated[list[FollowedQuota], Field(max_length=MOST_FOLLOWED), list_map("flavor", "resource")] | None = (
        None
    )
    """Nominal quotas that follow the capacity of nodes. An active override of the same quota wins."""
    recall: QuotaRecall | None = None
    """Recall before a quota falls: workloads start only if they end by then or still fit, and running ones that exceed the
    smaller quota are warned and stopped. Unset: only new starts follow the quota, as in Kueue."""


class QuotaChangeAhead(ApiModel):
    """The next change of quotas."""

    time: Time
    """When quotas change."""
    overrides: _OverrideNames | None = None
    """The overrides that are active from then on."""
    quotas: Annotated[list[PlannedQuota], Field(max_length=MOST_QUOTAS)] | None = None
    """The quotas from then on, of what the plan changes at any time; the first 64."""


class FollowedCapacity(ApiModel):
    """A quota that follows nodes: what nodes have, what of it counts, and the quota that this gives."""

    flavor: ObjectName
    """The ResourceFlavor."""
    resource: ResourceName
    """The resource."""
    nodes: Int32
    """How many nodes have the flavor's labels."""
    usable_nodes: Int32
    """How many of these are ready, trusted and not cordoned."""
    usable_capacity: Quantity
    """What these have of the resource."""
    capacity: Quantity
    """The capacity that counts, after damping."""
    nominal_quota: Quantity
    """The share of it, within the bounds."""
    pending_capacity: Quantity | None = None
    """The capacity that counts next if nodes stay as they are."""
    pending_since: Time | None = None
    """Since when there has been less than what counts, or more."""
    changes_at: Time | None = None
    """When it counts, if nodes stay as they are."""
    overridden_by: _OverrideName | None = None
    """The active override that gives the nominal quota instead."""


class QuotaPlanStatus(ApiModel):
    """The plan's status."""

    conditions: Conditions | None = None
    """Active: whether the plan is in force for its ClusterQueue. Conflict: whether something keeps it from being honoured, such
    as a flavor of which the ClusterQueue has no quota. Oversubscribed: whether the shares of all ClusterQueues that follow the
    nodes of a flavor sum above 100 %."""
    observed_generation: Int64 | None = None
    """The metadata.generation that this status is about."""
    active_overrides: _OverrideNames | None = None
    """The overrides that are active."""
    effective_quotas: Annotated[list[PlannedQuota], Field(max_length=MOST_QUOTAS)] | None = None
    """The present quotas, of what the plan changes at any time; the first 64."""
    follow: Annotated[list[FollowedCapacity], Field(max_length=MOST_FOLLOWED)] | None = None
    """The quotas that follow nodes. A new operator goes on from here."""
    next_change: QuotaChangeAhead | None = None
    """The next change."""
    recalled_for: Time | None = None
    """The change that has just come, while workloads that exceed its quotas are still stopped: an operator that was not there
    then does it."""
    recalled: Annotated[list[Annotated[str, Field(max_length=317)]], Field(max_length=32)] | None = None
    """The workloads, as namespace/name, that are to save their work and are stopped before the next change; the first 32."""


class QuotaPlan(KubeObject):
    """The quotas of a ClusterQueue over time: serving by day and training by night, a team's sprint week. The ClusterQueue itself
    stays as it is written.
    """

    spec: QuotaPlanSpec
    """Which ClusterQueue, and its quotas over time."""
    status: QuotaPlanStatus | None = None
    """The plan's status."""
