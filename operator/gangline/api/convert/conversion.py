"""Conversion between v1beta1 and v1beta2: a pure function without losses in either direction.

Values for which the other version has no field are noted in an annotation (`names.V1BETA1_FIELDS` on v1beta2 objects,
`names.V1BETA2_FIELDS` on v1beta1 objects) and restored on the way back. All other annotations are unchanged. Topology
assignments return with the same domains in the same order, though perhaps divided into other slices. A note is omitted only if
an object's own annotations leave no room for it: a write in the other version then loses those fields.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Final

from gangline.api import names
from gangline.api.convert import clusterqueue, fields, workload
from gangline.api.convert.fields import Json, Shape, is_time, make, move, own, rename
from gangline.api.read.workloads.admissions import SlicesError
from gangline.api.unchecked import mapping

# --- LocalQueue and AdmissionCheck between versions -------------------------------------------------------------------


_FLAVORS: Final = "flavors"
_DELAY: Final = "retryDelayMinutes"
_DEFAULT_DELAY: Final = 15

_TAINT: Final = {"key": str, "value": str, "effect": str, "timeAdded": is_time}
_FLAVOR: Final = {
    "name": str,
    "resources": [str],
    "nodeLabels": {"*": str},
    "nodeTaints": [_TAINT],
    "topology": {"name": str, "levels": [str]},
}
LOCAL_QUEUE_NOTES: Final[Mapping[str, Shape]] = {_FLAVORS: [_FLAVOR]}
ADMISSION_CHECK_NOTES: Final[Mapping[str, Shape]] = {_DELAY: int}


def upgrade_local_queue(queue: Json, restored: Json) -> Json:
    fields: Json = {}
    status = own(queue, "status")
    rename(status, "flavorUsage", "flavorsUsage")
    move(status, _FLAVORS, fields)
    return fields


def downgrade_local_queue(queue: Json, restored: Json) -> Json:
    rename(own(queue, "status"), "flavorsUsage", "flavorUsage")
    if _FLAVORS in restored:
        make(queue, "status")[_FLAVORS] = restored[_FLAVORS]
    return {}


def upgrade_admission_check(check: Json, restored: Json) -> Json:
    fields: Json = {}
    move(own(check, "spec"), _DELAY, fields)
    return fields if fields.get(_DELAY) != _DEFAULT_DELAY else {}


def downgrade_admission_check(check: Json, restored: Json) -> Json:
    spec = own(check, "spec")
    if spec is not None:
        spec[_DELAY] = restored.get(_DELAY, _DEFAULT_DELAY)
    return {}


# --- MultiKueueConfig and MultiKueueCluster between versions ----------------------------------------------------------


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
    fields: Json = {}
    move(own(config, "spec"), _MANAGEMENT, fields)
    return fields


def upgrade_cluster(cluster: Json, restored: Json) -> Json:
    """A kubeconfig without a location is none."""
    fields: Json = {}
    spec = own(cluster, "spec")
    if spec is not None:
        source: Json = {}
        if mapping(spec.get(_KUBECONFIG)).get("location"):
            move(spec, _KUBECONFIG, source)
        move(spec, _PROFILE, source)
        if (rest := spec.pop(_KUBECONFIG, _NOWHERE)) != _NOWHERE:
            fields[_KUBECONFIG] = rest
        spec[_SOURCE] = source
    return fields


def downgrade_cluster(cluster: Json, restored: Json) -> Json:
    spec = own(cluster, "spec")
    if spec is not None:
        source = mapping(spec.pop(_SOURCE, None))
        spec[_KUBECONFIG] = source.get(_KUBECONFIG, restored.get(_KUBECONFIG, dict(_NOWHERE)))
        if _PROFILE in source:
            spec[_PROFILE] = source[_PROFILE]
    return {}


#: Changes an object in place and returns the values for which the new version has no field; its second argument is the result
#: of the opposite step when the object was last converted the other way.
_Step = Callable[[Json, Json], Json]


class ConversionError(ValueError):
    """An object that cannot be converted; the message says why and names the field."""


@dataclass(frozen=True, slots=True)
class _Steps:
    upgrade: _Step
    downgrade: _Step
    notes: Mapping[str, fields.Shape]


def _nothing(obj: Json, restored: Json) -> Json:
    return {}


_SAME: Final = _Steps(_nothing, _nothing, {})
_STEPS: Final = {
    "ClusterQueue": _Steps(clusterqueue.upgrade, clusterqueue.downgrade, clusterqueue.NOTES),
    "LocalQueue": _Steps(upgrade_local_queue, downgrade_local_queue, LOCAL_QUEUE_NOTES),
    "Workload": _Steps(workload.upgrade, workload.downgrade, workload.NOTES),
    "AdmissionCheck": _Steps(upgrade_admission_check, downgrade_admission_check, ADMISSION_CHECK_NOTES),
    "MultiKueueCluster": _Steps(upgrade_cluster, downgrade_cluster, CLUSTER_NOTES),
    "MultiKueueConfig": _Steps(upgrade_config, downgrade_config, CONFIG_NOTES),
    "Cohort": _SAME,
    "ResourceFlavor": _SAME,
    "Topology": _SAME,
    "ProvisioningRequestConfig": _SAME,
    "WorkloadPriorityClass": _SAME,
}
#: kinds whose two versions differ in their fields
CONVERTED: Final = tuple(kind for kind, steps in _STEPS.items() if steps is not _SAME)


def convert(obj: Json, to_version: str) -> Json:
    """`obj` in another version: `to_version` is "v1beta1" or "v1beta2", with or without the group.

    The original is not changed; untouched parts are shared with it. Raises ConversionError.
    """
    target = to_version if "/" in to_version else f"{names.GROUP}/{to_version}"
    kind, source = str(obj.get("kind")), str(obj.get("apiVersion"))
    steps = _STEPS.get(kind)
    if steps is None or not {source, target} <= {names.V1BETA1, names.V1BETA2}:
        raise ConversionError(f"cannot convert {kind} from {source} to {target}")
    if source == target:
        return dict(obj)
    try:
        return _upgraded(obj, steps) if target == names.V1BETA2 else _downgraded(obj, steps)
    except SlicesError as error:
        raise ConversionError(str(error)) from None


def _upgraded(obj: Json, steps: _Steps) -> Json:
    out = {**obj, "apiVersion": names.V1BETA2}
    # these annotations are about v1beta2 objects
    fields.take(out, names.V1BETA1_FIELDS, steps.notes)
    fields.take(out, names.LEGACY_RECLAIM, clusterqueue.RECLAIM_NOTES)
    noted = steps.upgrade(out, fields.take(out, names.V1BETA2_FIELDS, steps.notes))
    reclaim = noted.pop(clusterqueue.RECLAIM, None)
    fields.write(out, names.LEGACY_RECLAIM, reclaim)
    fields.write(out, names.V1BETA1_FIELDS, noted)
    return out


def _downgraded(obj: Json, steps: _Steps) -> Json:
    """The object as v1beta1. This never fails for a stored object: its kind could not be listed any more."""
    out = {**obj, "apiVersion": names.V1BETA1}
    fields.take(out, names.V1BETA2_FIELDS, steps.notes)  # it is about v1beta1 objects
    restored = fields.take(out, names.V1BETA1_FIELDS, steps.notes)
    if reclaim := fields.take(out, names.LEGACY_RECLAIM, clusterqueue.RECLAIM_NOTES):
        restored[clusterqueue.RECLAIM] = reclaim
    fields.write(out, names.V1BETA2_FIELDS, steps.downgrade(out, restored))
    return out
