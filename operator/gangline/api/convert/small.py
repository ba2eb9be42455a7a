"""LocalQueue and AdmissionCheck between versions."""

from __future__ import annotations

from typing import Final

from gangline.api.convert.fields import Json, make, move, own, rename

_FLAVORS: Final = "flavors"
_DELAY: Final = "retryDelayMinutes"
_DEFAULT_DELAY: Final = 15


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
