"""MultiKueueConfig and MultiKueueCluster in v1beta1."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from gangline.api.schema.common import KubeObject
from gangline.api.schema.json_schema import LIST_SET, ApiModel
from gangline.api.schema.v1beta2 import multikueue as v1beta2


class V1Beta1MultiKueueConfigSpec(ApiModel):
    """The clusters."""

    clusters: Annotated[list[str], Field(min_length=1, max_length=v1beta2.MAX_CLUSTERS), LIST_SET]
    """The MultiKueueClusters among which workloads are distributed."""


class V1Beta1MultiKueueConfig(KubeObject):
    """Clusters among which the workloads of a ClusterQueue are distributed."""

    spec: V1Beta1MultiKueueConfigSpec | None = None
    """The clusters."""


class V1Beta1KubeConfig(ApiModel):
    """A kubeconfig and where it is kept."""

    location: str
    """The name of a Secret with the key `kubeconfig` in the operator's namespace, or a path. Empty with a
    ClusterProfile."""
    location_type: Literal["Secret", "Path"] = "Secret"
    """The kind of place that `location` names."""


class V1Beta1MultiKueueClusterSpec(ApiModel):
    """The way to the cluster."""

    kube_config: V1Beta1KubeConfig
    """A kubeconfig and where it is kept."""
    cluster_profile_ref: v1beta2.ClusterProfileReference | None = None
    """A ClusterProfile, which says how the cluster is reached (gate `MultiKueueClusterProfile`)."""


class V1Beta1MultiKueueCluster(KubeObject):
    """A cluster that workloads may be sent to."""

    spec: V1Beta1MultiKueueClusterSpec | None = None
    """The way to the cluster."""
    status: v1beta2.MultiKueueClusterStatus | None = None
    """Whether the cluster can be reached."""
