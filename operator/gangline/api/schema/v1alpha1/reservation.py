"""Reservation: nodes that are kept for somebody, or for nobody, in windows of time."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from gangline.api.reservations import MOST_LABELS, MOST_NAMES, MOST_QUEUES
from gangline.api.schedules import USUAL_LEAD, USUAL_NOTICE
from gangline.api.schema.common import (
    DNS_LABEL,
    Conditions,
    Count,
    Duration,
    Int64,
    KubeObject,
    LabelValue,
    ObjectName,
    PositiveInt32,
    Time,
)
from gangline.api.schema.json_schema import LIST_SET, ApiModel
from gangline.api.schema.v1alpha1.time_window import TimeWindow


class NodesOfFlavor(ApiModel):
    """Some nodes of a ResourceFlavor, whichever."""

    flavor: ObjectName
    """The ResourceFlavor."""
    count: PositiveInt32
    """The number of its nodes. The first by name are taken, usable ones before others; they stay the same while they exist."""


class ReservedNodes(ApiModel):
    """The reserved nodes: by name, by labels, or some of a flavor. A node that any of these selects is reserved."""

    names: Annotated[list[ObjectName], Field(max_length=MOST_NAMES), LIST_SET] | None = None
    """Nodes by name."""
    match_labels: Annotated[dict[str, LabelValue], Field(max_length=MOST_LABELS)] | None = None
    """Nodes with all these labels."""
    any_of: NodesOfFlavor | None = None
    """Some nodes of a flavor."""


class QueueReference(ApiModel):
    """A LocalQueue."""

    namespace: Annotated[str, Field(max_length=63, pattern=DNS_LABEL)]
    """The LocalQueue's namespace."""
    name: ObjectName
    """The LocalQueue's name."""


class ReservedFor(ApiModel):
    """Whose workloads may use the nodes in the windows."""

    cluster_queues: Annotated[list[ObjectName], Field(max_length=MOST_QUEUES), LIST_SET] | None = None
    """Workloads of these ClusterQueues."""
    local_queues: Annotated[list[QueueReference], Field(max_length=MOST_QUEUES)] | None = None
    """Workloads of these LocalQueues."""


class ReservationSpec(ApiModel):
    """When, which nodes, and for whom."""

    window: TimeWindow
    """When the nodes are reserved."""
    nodes: ReservedNodes
    """The reserved nodes."""
    for_: Annotated[ReservedFor | None, Field(alias="for")] = None
    """Whose workloads may use the nodes in the windows. Unset: nobody's, it is a maintenance. Its nodes are cordoned in the
    windows."""
    notice: Duration = USUAL_NOTICE
    """So long before a window begins its beginning is announced to the workloads that still run on its nodes, by the event SaveBy
    and the annotation gangline.io/save-by of their pods. At most 7 days."""
    stop_before: Duration = USUAL_LEAD
    """So long before a window begins these workloads are stopped: their pods' grace periods should be over by then. At most 1
    day."""


class WindowStatus(ApiModel):
    """A window that is open, or comes next."""

    start: Time
    """The beginning of the window."""
    end: Time
    """The end of the window."""


class ReservationStatus(ApiModel):
    """The reservation's status."""

    conditions: Conditions | None = None
    """Scheduled: whether it has a window ahead, or an open one. Active: whether a window is open. Conflict: whether something
    keeps it from being honoured, such as another reservation of the same nodes."""
    observed_generation: Int64 | None = None
    """The metadata.generation that this status is about."""
    windows: Annotated[list[WindowStatus], Field(max_length=8)] | None = None
    """The open window and the next ones."""
    nodes: Annotated[list[ObjectName], Field(max_length=64), LIST_SET] | None = None
    """The reserved nodes, by name; the first 64."""
    node_count: Count | None = None
    """The number of reserved nodes."""
    draining: Annotated[list[Annotated[str, Field(max_length=317)]], Field(max_length=32)] | None = None
    """The workloads, as namespace/name, that still have pods on the nodes though the window has begun; the first 32."""


class Reservation(KubeObject):
    """Nodes that are kept for some queues, or for nobody (a maintenance), once or every week. Nothing else starts there that may
    not have ended by then, and what still runs is stopped.
    """

    spec: ReservationSpec
    """When, which nodes, and for whom."""
    status: ReservationStatus | None = None
    """The reservation's status."""
