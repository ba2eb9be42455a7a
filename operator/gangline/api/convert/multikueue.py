"""MultiKueueConfig and MultiKueueCluster between versions."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from gangline.api.convert.fields import Json, move, own
from gangline.api.convert.notes import Shape
from gangline.api.unchecked import mapping

_SOURCE: Final = "clusterSource"
_KUBECONFIG: Final = "kubeConfig"
_PROFILE: Final = "clusterProfileRef"
_MANAGEMENT: Final = "quotaManagement"
#: v1beta1 requires a kubeconfig, also of a cluster with a ClusterProfile
_NOWHERE: Final = {"location": "", "locationType": "Secret"}

CONFIG_NOTES: Final[Mapping[str, Shape]] = {_MANAGEMENT: str}
CLUSTER_NOTES: Final[Mapping[str, Shape]] = {_KUBECONFIG: {"location": str, "locationType": str}}


def upgrade_config(config: Json, restored: Json) -> Json:
    spec = own(config, "spec")
    if spec is not None:
        move(restored, _MANAGEMENT, spec)
    return {}


def downgrade_config(config: Json, restored: Json) -> Json:
    notes: Json = {}
    move(own(config, "spec"), _MANAGEMENT, notes)
    return notes


def upgrade_cluster(cluster: Json, restored: Json) -> Json:
    """A kubeconfig without a location is none."""
    notes: Json = {}
    spec = own(cluster, "spec")
    if spec is not None:
        source: Json = {}
        if mapping(spec.get(_KUBECONFIG)).get("location"):
            move(spec, _KUBECONFIG, source)
        move(spec, _PROFILE, source)
        if (rest := spec.pop(_KUBECONFIG, _NOWHERE)) != _NOWHERE:
            notes[_KUBECONFIG] = rest
        spec[_SOURCE] = source
    return notes


def downgrade_cluster(cluster: Json, restored: Json) -> Json:
    spec = own(cluster, "spec")
    if spec is not None:
        source = mapping(spec.pop(_SOURCE, None))
        spec[_KUBECONFIG] = source.get(_KUBECONFIG, restored.get(_KUBECONFIG, dict(_NOWHERE)))
        if _PROFILE in source:
            spec[_PROFILE] = source[_PROFILE]
    return {}
