"""Units and sizes used by the whole engine."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TypeAlias

#: A quota of this size or more is unlimited; sums saturate here (Kueue uses int64).
UNLIMITED = 2**63 - 1

#: The engine's one unit of time: a moment since the epoch, or a span. A time that manifests and configurations state in
#: seconds is stored in seconds (`…_seconds`) and read in this unit through the property beside it.
Millis: TypeAlias = int

SECOND: Millis = 1000

Requests: TypeAlias = Mapping[str, int]


def millis(seconds: float) -> Millis:
    return round(seconds * SECOND)


def seconds(span: Millis) -> float:
    return span / SECOND


def millis_or_none(seconds: float | None) -> Millis | None:
    return None if seconds is None else millis(seconds)


def whole_second(moment: Millis) -> Millis:
    """The moment as Kubernetes writes it: without the fraction of the second."""
    return moment // SECOND * SECOND
