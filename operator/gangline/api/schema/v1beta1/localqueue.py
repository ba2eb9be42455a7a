"""LocalQueue in v1beta1."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from gangline.api.schema.common import KubeObject, LabelKey, LabelValue, ObjectName, ResourceName, Taint
from gangline.api.schema.json_schema import ATOMIC_MAP, LIST_SET, Model, list_map
from gangline.api.schema.v1beta2 import localqueue as v1beta2


class TopologyInfo(Model):
    """A topology."""

    name: ObjectName
    """Its name."""
    levels: Annotated[list[LabelKey], Field(min_length=1, max_length=16)]
    """Its levels, as node labels."""


class FlavorInfo(Model):
    """A flavor that the ClusterQueue has."""

    name: ObjectName
    """The flavor."""
    resources: Annotated[list[ResourceName], Field(max_length=64), LIST_SET] | None = None
    """The resources it provides."""
    node_labels: Annotated[dict[str, LabelValue], Field(max_length=8), ATOMIC_MAP] | None = None
    """Its node labels."""
    node_taints: Annotated[list[Taint], Field(max_length=8)] | None = None
    """Its taints."""
    topology: TopologyInfo | None = None
    """Its topology."""


class LocalQueueStatus(v1beta2.LocalQueueStatusBase):
    """The present usage of the queue's workloads."""

    flavor_usage: v1beta2.LocalQueueUsages | None = None
    """Quota held by admitted workloads."""
    flavors: Annotated[list[FlavorInfo], Field(max_length=64), list_map("name")] | None = None
    """No longer filled in."""


class LocalQueue(KubeObject):
    """A namespace's access to a ClusterQueue. A job names it in the label kueue.x-k8s.io/queue-name."""

    spec: v1beta2.LocalQueueSpec | None = None
    """Its ClusterQueue."""
    status: LocalQueueStatus | None = None
    """The present usage of the queue's workloads."""
