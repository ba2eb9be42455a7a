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
from gangline.api.convert import clusterqueue, multikueue, notes, small, workload
from gangline.api.convert.fields import Json
from gangline.api.read.workloads.admissions import SlicesError

#: Changes an object in place and returns the values for which the new version has no field; its second argument is the result
#: of the opposite step when the object was last converted the other way.
_Step = Callable[[Json, Json], Json]


class ConversionError(ValueError):
    """An object that cannot be converted; the message says why and names the field."""


@dataclass(frozen=True, slots=True)
class _Steps:
    upgrade: _Step
    downgrade: _Step
    notes: Mapping[str, notes.Shape]


def _nothing(obj: Json, restored: Json) -> Json:
    return {}


_SAME: Final = _Steps(_nothing, _nothing, {})
_STEPS: Final = {
    "ClusterQueue": _Steps(clusterqueue.upgrade, clusterqueue.downgrade, clusterqueue.NOTES),
    "LocalQueue": _Steps(small.upgrade_local_queue, small.downgrade_local_queue, small.LOCAL_QUEUE_NOTES),
    "Workload": _Steps(workload.upgrade, workload.downgrade, workload.NOTES),
    "AdmissionCheck": _Steps(
        small.upgrade_admission_check, small.downgrade_admission_check, small.ADMISSION_CHECK_NOTES
    ),
    "MultiKueueCluster": _Steps(multikueue.upgrade_cluster, multikueue.downgrade_cluster, multikueue.CLUSTER_NOTES),
    "MultiKueueConfig": _Steps(multikueue.upgrade_config, multikueue.downgrade_config, multikueue.CONFIG_NOTES),
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
    notes.take(out, names.V1BETA1_FIELDS, steps.notes)
    notes.take(out, names.LEGACY_RECLAIM, clusterqueue.RECLAIM_NOTES)
    noted = steps.upgrade(out, notes.take(out, names.V1BETA2_FIELDS, steps.notes))
    reclaim = noted.pop(clusterqueue.RECLAIM, None)
    notes.write(out, names.LEGACY_RECLAIM, reclaim)
    notes.write(out, names.V1BETA1_FIELDS, noted)
    return out


def _downgraded(obj: Json, steps: _Steps) -> Json:
    """The object as v1beta1. This never fails for a stored object: its kind could not be listed any more."""
    out = {**obj, "apiVersion": names.V1BETA1}
    notes.take(out, names.V1BETA2_FIELDS, steps.notes)  # it is about v1beta1 objects
    restored = notes.take(out, names.V1BETA1_FIELDS, steps.notes)
    if reclaim := notes.take(out, names.LEGACY_RECLAIM, clusterqueue.RECLAIM_NOTES):
        restored[clusterqueue.RECLAIM] = reclaim
    notes.write(out, names.V1BETA2_FIELDS, steps.downgrade(out, restored))
    return out
