"""Limits that came with v1beta2: v1beta1 accepts what exceeds them, as Kueue's does, so that stored objects can still be
changed.

By path in the schema, with `[]` for the items of a list and `{}` for the values of a map: the keywords that v1beta1 lacks.
Limits stay where v1beta2 could not read the object: a longer list of admission checks, an unknown admission mode. So do those
that a webhook of Kueue applies to both versions, such as the length of a label.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, TypeAlias

#: path -> keywords
Limits: TypeAlias = Mapping[str, tuple[str, ...]]

_LENGTH: Final = ("minLength", "maxLength")
_MAP: Final = ("x-kubernetes-list-type", "x-kubernetes-list-map-keys")
_CONDITIONS: Final[Limits] = {"status.conditions": ("maxItems",)}
_FLAVOR: Final = "status.flavors[]"
_REQUEST: Final = "spec.podSets[].topologyRequest"
_PLACE: Final = "status.admission.podSetAssignments[].topologyAssignment"
_STRATEGY: Final = "spec.admissionChecksStrategy.admissionChecks"

ADMISSION_CHECK: Final[Limits] = _CONDITIONS
CLUSTER_QUEUE: Final[Limits] = {
    **_CONDITIONS,
    "spec.admissionChecks": ("x-kubernetes-list-type",),
    _STRATEGY: _MAP,
    f"{_STRATEGY}[].onFlavors": ("x-kubernetes-list-type",),
    "status.pendingWorkloadsStatus.clusterQueuePendingWorkload": ("maxItems",),
}
LOCAL_QUEUE: Final[Limits] = {
    **_CONDITIONS,
    f"{_FLAVOR}.resources[]": _LENGTH,
    f"{_FLAVOR}.nodeLabels{{}}": ("maxLength",),
    f"{_FLAVOR}.nodeTaints[].key": _LENGTH,
    f"{_FLAVOR}.nodeTaints[].value": ("maxLength",),
    f"{_FLAVOR}.nodeTaints[].effect": ("enum",),
    f"{_FLAVOR}.topology.levels[]": _LENGTH,
}
MULTI_KUEUE_CLUSTER: Final[Limits] = _CONDITIONS
WORKLOAD: Final[Limits] = {
    **_CONDITIONS,
    f"{_REQUEST}.required": ("maxLength",),
    f"{_REQUEST}.preferred": ("maxLength",),
    f"{_REQUEST}.podIndexLabel": ("maxLength",),
    f"{_REQUEST}.subGroupIndexLabel": ("maxLength",),
    f"{_REQUEST}.subGroupCount": ("minimum",),
    f"{_REQUEST}.podSetGroupName": ("maxLength",),
    f"{_REQUEST}.podSetSliceRequiredTopology": ("maxLength",),
    f"{_PLACE}.levels[]": _LENGTH,
    f"{_PLACE}.domains[].values[]": ("maxLength",),
    "status.admissionChecks[].name": ("minLength",),
    "status.clusterName": ("maxLength",),
    "status.nominatedClusterNames[]": ("maxLength",),
    "status.schedulingStats.evictions": ("maxItems",),
    "status.unhealthyNodes": ("maxItems", *_MAP),
    "status.unhealthyNodes[].name": ("maxLength",),
}
WORKLOAD_PRIORITY_CLASS: Final[Limits] = {"description": ("maxLength",)}
