"""LocalQueue and AdmissionCheck between versions."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from gangline.api.convert.fields import Json, make, move, own, rename
from gangline.api.convert.notes import Shape, is_time

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
    notes: Json = {}
    status = own(queue, "status")
    rename(status, "flavorUsage", "flavorsUsage")
    move(status, _FLAVORS, notes)
    return notes


def downgrade_local_queue(queue: Json, restored: Json) -> Json:
    rename(own(queue, "status"), "flavorsUsage", "flavorUsage")
    if _FLAVORS in restored:
        make(queue, "status")[_FLAVORS] = restored[_FLAVORS]
    return {}


def upgrade_admission_check(check: Json, restored: Json) -> Json:
    notes: Json = {}
    move(own(check, "spec"), _DELAY, notes)
    return notes if notes.get(_DELAY) != _DEFAULT_DELAY else {}


def downgrade_admission_check(check: Json, restored: Json) -> Json:
    spec = own(check, "spec")
    if spec is not None:
        spec[_DELAY] = restored.get(_DELAY, _DEFAULT_DELAY)
    return {}
