"""Conversion between v1beta1 and v1beta2: a pure function that loses nothing either way.

What one version says and the other has no field for is noted in an annotation (`names.V1BETA1_FIELDS` on v1beta2 objects,
`names.V1BETA2_FIELDS` on v1beta1 objects) and put back on the way back. All other annotations are left alone. Topology
assignments come back with the same domains in the same order, though perhaps cut into other slices.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final, cast

from gangline.api import names
from gangline.api.convert import clusterqueue, small, workload
from gangline.api.convert.fields import Json, own
from gangline.api.topology_slices import SlicesError

#: Changes an object in place and returns what the new version has no field for; its second argument is what the
#: opposite step returned when the object last came the other way.
_Step = Callable[[Json, Json], Json]


class ConversionError(ValueError):
    """This object can't be converted; the message says why and names the field."""


@dataclass(frozen=True, slots=True)
class _Steps:
    upgrade: _Step
    downgrade: _Step


def _nothing(obj: Json, restored: Json) -> Json:
    return {}


_SAME: Final = _Steps(_nothing, _nothing)
_STEPS: Final = {
    "ClusterQueue": _Steps(clusterqueue.upgrade, clusterqueue.downgrade),
    "LocalQueue": _Steps(small.upgrade_local_queue, small.downgrade_local_queue),
    "Workload": _Steps(workload.upgrade, workload.downgrade),
    "AdmissionCheck": _Steps(small.upgrade_admission_check, small.downgrade_admission_check),
    "Cohort": _SAME,
    "ResourceFlavor": _SAME,
    "Topology": _SAME,
    "WorkloadPriorityClass": _SAME,
}


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
    for stale in (names.V1BETA1_FIELDS, names.LEGACY_RECLAIM):  # these speak of v1beta2 objects
        _take_notes(out, stale)
    notes = steps.upgrade(out, _take_notes(out, names.V1BETA2_FIELDS))
    reclaim = notes.pop(clusterqueue.RECLAIM, None)
    _write_notes(out, names.LEGACY_RECLAIM, reclaim)
    _write_notes(out, names.V1BETA1_FIELDS, notes)
    return out


def _downgraded(obj: Json, steps: _Steps) -> Json:
    out = {**obj, "apiVersion": names.V1BETA1}
    _take_notes(out, names.V1BETA2_FIELDS)  # it speaks of v1beta1 objects
    noted = _take_notes(out, names.V1BETA1_FIELDS)
    if reclaim := _take_notes(out, names.LEGACY_RECLAIM):
        noted[clusterqueue.RECLAIM] = reclaim
    _write_notes(out, names.V1BETA2_FIELDS, steps.downgrade(out, noted))
    return out


def _take_notes(obj: Json, annotation: str) -> Json:
    """Takes the annotation off; text that is not ours is left where it is."""
    metadata = own(obj, "metadata")
    annotations = own(metadata, "annotations")
    notes = _parsed(annotations.get(annotation)) if annotations else {}
    if metadata is not None and annotations is not None and notes:
        del annotations[annotation]
        if not annotations:
            del metadata["annotations"]
    return notes


def _parsed(text: Any) -> Json:
    try:
        value = json.loads(text) if isinstance(text, str) else None
    except (ValueError, RecursionError):
        return {}
    return cast(Json, value) if isinstance(value, dict) else {}


def _write_notes(obj: Json, annotation: str, notes: Json | None) -> None:
    if not notes:
        return
    metadata = own(obj, "metadata") or {}
    annotations = own(metadata, "annotations") or {}
    annotations[annotation] = json.dumps(notes, sort_keys=True, separators=(",", ":"), ensure_ascii=False)
    obj["metadata"] = {**metadata, "annotations": annotations}
