"""Whether an object on the API server is as it should be."""

from __future__ import annotations

from typing import cast

from gangline.kube.resources import Json


def contains(live: object, wanted: object) -> bool:
    """Whether `live` has all values of `wanted`; additions of the API server do not matter."""
    if isinstance(wanted, dict):
        if not isinstance(live, dict):
            return False
        have = cast(Json, live)
        return all(key in have and contains(have[key], value) for key, value in cast(Json, wanted).items())
    if isinstance(wanted, list):
        if not isinstance(live, list) or len(live) != len(cast("list[object]", wanted)):
            return False
        return all(map(contains, cast("list[object]", live), cast("list[object]", wanted)))
    return live == wanted
