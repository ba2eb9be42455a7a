"""Reservation: nodes that are kept for somebody, or for nobody, in windows of time."""

from __future__ import annotations

from typing import Annotated, Literal, TypeAlias

from pydantic import Field

from gangline.api.reservations import (
    MOST_LABELS,
    MOST_NAMES,
    MOST_QUEUES,
    MOST_RECALLS,
    MOST_RESOURCES,
    MOST_USERS,
    USUAL_FIRMNESS,
)
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
    Quantity,
    Time,
)
from gangline.api.schema.json_schema import LIST_SET, ApiModel
from gangline.api.schema.v1alpha1.time_window import TimeWindow


class NodesOfFlavor(ApiModel):
    """Some nodes of a ResourceFlavor, whichever: so many, or as many as offer so much of its resources."""

    flavor: ObjectName
    """The ResourceFlavor."""
    count: PositiveInt32 | None = None
    """The number of its nodes. The first by name are taken, usable ones before others; they stay the same while they exist."""
    resources: Annotated[dict[str, Quantity], Field(max_length=MOST_RESOURCES)] | None = None
    """The amounts of the flavor to keep, in place of a number of nodes: nvidia.com/gpu: 16. As many nodes are taken, in the same
    order, as offer that together. Nodes are reserved as a whole: the last one may offer more than is left to cover."""


class ReservedNodes(ApiModel):
    """The reserved nodes: by name, by labels, or some of a flavor. A node that any of these selects is reserved."""

    names: Annotated[list[ObjectName], Field(max_length=MOST_NAMES), LIST_SET] | None = None
    """Nodes by name."""
    match_labels: Annotated[dict[str, LabelValue], Field(max_length=MOST_LABELS)] | None = None
    """Nodes with all these labels."""
    any_of: NodesOfFlavor | None = None
    """Some nodes of a flavor."""


#: the value of the label gangline.io/user
UserName: TypeAlias = Annotated[str, Field(min_length=1, max_length=63)]


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
    users: Annotated[list[UserName], Field(max_length=MOST_USERS), LIST_SET] | None = None
    """Workloads of these users: the label gangline.io/user of the job. Its author writes it; if users must not write each other's
    names, check it with a ValidatingAdmissionPolicy."""


class ReservationSpec(ApiModel):
    """When, which nodes, and for whom."""

    window: TimeWindow
    """When the nodes are reserved."""
    nodes: ReservedNodes
    """The reserved nodes."""
    for_: Annotated[ReservedFor | None, Field(alias="for")] = None
    """Whose workloads may use the nodes in the windows. Unset: nobody's, it is a maintenance. Its nodes are cordoned in the
    windows."""
    firm: Literal["Hard", "Soft"] = USUAL_FIRMNESS
    """Hard: no pod of others is on the nodes in the windows. Soft: others may be there until a workload whom the window is for
    waits and would fit without them; then as many of them as it needs get the event SaveBy, and are stopped after the notice."""
    notice: Duration = USUAL_NOTICE
    """So long before a window begins its beginning is announced to the workloads that still run on its nodes, by the event SaveBy
    and the annotation gangline.io/save-by of their pods. Those that a soft window recalls have as long. At most 7 days."""
    stop_before: Duration = USUAL_LEAD
    """So long before a window begins these workloads are stopped: their pods' grace periods should be over by then. Those whose
    pods took longer to end so far are stopped as much earlier, but not before the notice. At most 1 day."""
    start_with_checkpoints: Duration | None = None
    """Workloads that declare checkpoints may start on the nodes though they may not have ended by then, if they can run for so
    long, and for the time between two checkpoints, until they are stopped. Unset: they start only if they will have ended, like
    all others. At most 7 days, and for Hard reservations only."""


class WindowStatus(ApiModel):
    """A window that is open, or comes next."""

    start: Time
    """The beginning of the window."""
    end: Time
    """The end of the window."""


class RecallStatus(ApiModel):
    """A workload that has to leave the nodes of a soft window."""

    workload: Annotated[str, Field(max_length=317)]
    """The workload, as namespace/name."""
    by: Annotated[str, Field(max_length=317)]
    """The workload that needs the nodes, as namespace/name."""
    until: Time
    """When it is stopped."""


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
    recalls: Annotated[list[RecallStatus], Field(max_length=MOST_RECALLS)] | None = None
    """The workloads that have to leave the nodes of a soft window, those that leave first are first. Another operator reads them
    here, so that nobody gets another deadline."""


class Reservation(KubeObject):
    """Nodes that are kept for some queues, or for nobody (a maintenance), once or every week. Nothing else starts there that may
    not have ended by then, and what still runs is stopped.
    """

    spec: ReservationSpec
    """When, which nodes, and for whom."""
    status: ReservationStatus | None = None
    """The reservation's status."""
