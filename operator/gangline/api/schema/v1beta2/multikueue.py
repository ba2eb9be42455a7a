"""MultiKueueConfig and MultiKueueCluster: the clusters that workloads may be sent to."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from gangline.api.schema.common import Conditions, KubeObject
from gangline.api.schema.json_schema import ApiModel, Cel, checked, rules

MAX_CLUSTERS = 20

_Name = Annotated[str, Field(min_length=1, max_length=256)]
_UNIQUE = Cel("self.all(x, self.exists_one(y, x == y))", "must be unique")


class MultiKueueConfigSpec(ApiModel):
    """The clusters."""

    clusters: Annotated[
        list[Annotated[str, Field(max_length=256)]], Field(min_length=1, max_length=MAX_CLUSTERS), checked(_UNIQUE)
    ]
    """The MultiKueueClusters among which workloads are distributed, preferred ones first."""
    quota_management: Literal["Manual", "Automated"] | None = None
    """Who sets the quotas of the ClusterQueues of the manager cluster. Left out: Manual."""


class MultiKueueConfig(KubeObject):
    """Clusters among which the workloads of a ClusterQueue are distributed."""

    spec: MultiKueueConfigSpec | None = None
    """The clusters."""


class KubeConfig(ApiModel):
    """A kubeconfig and where it is kept."""

    location: _Name
    """The name of a Secret with the key `kubeconfig` in the operator's namespace, or a path."""
    location_type: Literal["Secret", "Path"] = "Secret"
    """The kind of place that `location` names."""


class ClusterProfileReference(ApiModel):
    """A ClusterProfile."""

    name: _Name
    """The name of the ClusterProfile."""


class ClusterSource(ApiModel):
    """The way to a cluster: one of the two."""

    model_config = rules(
        Cel(
            "has(self.kubeConfig) != has(self.clusterProfileRef)",
            "exactly one of the fields in [kubeConfig clusterProfileRef] must be set",
        )
    )
    kube_config: KubeConfig | None = None
    """A kubeconfig and where it is kept."""
    cluster_profile_ref: ClusterProfileReference | None = None
    """A ClusterProfile, which says how the cluster is reached (gate `MultiKueueClusterProfile`)."""


class MultiKueueClusterSpec(ApiModel):
    """The way to the cluster."""

    cluster_source: ClusterSource
    """The way to the cluster: one of the two."""


class MultiKueueClusterStatus(ApiModel):
    """Whether the cluster can be reached."""

    conditions: Conditions | None = None
    """Active: whether there is a connection."""


class MultiKueueCluster(KubeObject):
    """A cluster that workloads may be sent to."""

    spec: MultiKueueClusterSpec | None = None
    """The way to the cluster."""
    status: MultiKueueClusterStatus | None = None
    """Whether the cluster can be reached."""
