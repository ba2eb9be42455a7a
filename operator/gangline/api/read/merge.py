"""JSON merge patches (RFC 7396), as API servers apply them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, cast

from gangline.kube.resources import Json


def difference(current: Mapping[str, Any], wanted: Mapping[str, Any]) -> Json:
    """The patch that turns `current` into `wanted`; empty if they are equal.

    Keys to be removed are null (null and no key are equal), lists that differ are replaced as a whole.
    """
    patch: Json = {key: None for key in current if wanted.get(key) is None and current[key] is not None}
    for key, value in wanted.items():
        have = current.get(key)
        if value is None or value is have or value == have:
            continue
        if isinstance(value, dict) and isinstance(have, dict):
            patch[key] = difference(cast("Json", have), cast("Json", value))
        else:
            patch[key] = value
    return patch
