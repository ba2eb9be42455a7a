"""Usage over time in the status of ClusterQueues, which only v1beta1 has."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from gangline.api import quantity
from gangline.api.convert.fields import Json, move, own
from gangline.api.convert.notes import Shape, is_time

_USAGE: Final = "admissionFairSharingStatus"
#: characters of the longest quantity that is restored
_LONGEST: Final = 64


def _is_quantity(value: Any) -> bool:
    if type(value) not in (int, str) or len(str(value)[: _LONGEST + 1]) > _LONGEST:
        return False
    try:
        quantity.parse(value)
    except quantity.QuantityError:
        return False
    return True


NOTES: Final[Mapping[str, Shape]] = {
    _USAGE: {"consumedResources": {"*": _is_quantity}, "lastUpdate": is_time},
}


def upgrade(obj: Json, restored: Json) -> Json:
    notes: Json = {}
    move(own(own(obj, "status"), "fairSharing"), _USAGE, notes)
    return notes


def downgrade(obj: Json, restored: Json) -> Json:
    """Restored as long as there is a status in fair sharing."""
    fair = own(own(obj, "status"), "fairSharing")
    if fair is not None and _USAGE in restored:
        fair[_USAGE] = restored[_USAGE]
    return {}
