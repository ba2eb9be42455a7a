"""A change of a Workload's status, on plain JSON."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias

from gangline.api.read import conditions
from gangline.kube.resources import Json

#: takes the status, which it changes in place, and the present time in ms
Change: TypeAlias = Callable[[Json, int], None]


def rows_of(status: Json) -> conditions.Conditions:
    """The conditions of a status; an empty list is put there where it has none."""
    return status.setdefault("conditions", [])
