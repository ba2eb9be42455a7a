"""LocalQueue in v1beta1."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from gangline.api.schema.common import KubeObject, LabelKey, LabelValue, ObjectName, ResourceName, Taint
from gangline.api.schema.json_schema import ATOMIC_MAP, LIST_SET, ApiModel, list_map
from gangline.api.schema.v1beta2 import localqueue as v1beta2


class TopologyInfo(ApiModel):
    """A topology."""

    name: ObjectName
    """The name of the topology."""
    levels: Annotated[list[LabelKey], Field(min_length=1, max_length=16)]
    """The levels of the topology, as node labels."""


class FlavorInfo(ApiModel):
    """A flavor that the ClusterQueue has."""

    name: ObjectName
    """The name of the flavor."""
    resources: Annotated[list[ResourceName], Field(max_length=64), LIST_SET] | None = None
    """The resources that the flavor provides."""
    node_labels: Annotated[dict[str, LabelValue], Field(max_length=8), ATOMIC_MAP] | None = None
    """The node labels of the flavor."""
    node_taints: Annotated[list[Taint], Field(max_length=8)] | None = None
    """The taints of the flavor."""
    topology: TopologyInfo | None = None
    """The topology of the flavor."""


class V1Beta1LocalQueueStatus(v1beta2.LocalQueueStatusBase):
    """The present usage of the queue's workloads."""

    flavor_usage: v1beta2.LocalQueueUsages | None = None
    """Quota held by admitted workloads."""
    flavors: Annotated[list[FlavorInfo], Field(max_length=64), list_map("name")] | None = None
    """No longer filled in."""


class V1Beta1LocalQueue(KubeObject):
    """A namespace's access to a ClusterQueue. A job names it in the label kueue.x-k8s.io/queue-name."""

    spec: v1beta2.LocalQueueSpec | None = None
    """The ClusterQueue of the LocalQueue, and settings."""
    status: V1Beta1LocalQueueStatus | None = None
    """The present usage of the queue's workloads."""
