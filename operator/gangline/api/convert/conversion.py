"""Conversion between v1beta1 and v1beta2: a pure function that loses nothing either way.

What one version says and the other has no field for is noted in an annotation (`names.V1BETA1_FIELDS` on v1beta2 objects,
`names.V1BETA2_FIELDS` on v1beta1 objects) and put back on the way back. All other annotations are left alone. Topology
assignments come back with the same domains in the same order, though perhaps cut into other slices. A note is left out only where
an object's own annotations leave no room for it: who then writes it in the other version writes it without those fields.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Final

from gangline.api import names
from gangline.api.convert import clusterqueue, notes, small, workload
from gangline.api.convert.fields import Json
from gangline.api.read.topology_slices import SlicesError

#: Changes an object in place and returns what the new version has no field for; its second argument is what the
#: opposite step returned when the object last came the other way.
_Step = Callable[[Json, Json], Json]


class ConversionError(ValueError):
    """This object can't be converted; the message says why and names the field."""


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
    "Cohort": _SAME,
    "ResourceFlavor": _SAME,
    "Topology": _SAME,
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
    # these speak of v1beta2 objects
    notes.take(out, names.V1BETA1_FIELDS, steps.notes)
    notes.take(out, names.LEGACY_RECLAIM, clusterqueue.RECLAIM_NOTES)
    noted = steps.upgrade(out, notes.take(out, names.V1BETA2_FIELDS, steps.notes))
    reclaim = noted.pop(clusterqueue.RECLAIM, None)
    notes.write(out, names.LEGACY_RECLAIM, reclaim)
    notes.write(out, names.V1BETA1_FIELDS, noted)
    return out


def _downgraded(obj: Json, steps: _Steps) -> Json:
    """It never fails for an object that is stored: its kind could not be listed any more."""
    out = {**obj, "apiVersion": names.V1BETA1}
    notes.take(out, names.V1BETA2_FIELDS, steps.notes)  # it speaks of v1beta1 objects
    restored = notes.take(out, names.V1BETA1_FIELDS, steps.notes)
    if reclaim := notes.take(out, names.LEGACY_RECLAIM, clusterqueue.RECLAIM_NOTES):
        restored[clusterqueue.RECLAIM] = reclaim
    notes.write(out, names.V1BETA2_FIELDS, steps.downgrade(out, restored))
    return out
