"""Units and sizes that everything in the engine shares."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TypeAlias

#: A quota of this size or more is unlimited; sums saturate here (Kueue uses int64).
UNLIMITED = 2**63 - 1

Millis: TypeAlias = int

Requests: TypeAlias = Mapping[str, int]
