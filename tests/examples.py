"""How many examples the property tests try: so many as they say themselves, `GANGLINE_EXAMPLES` times over (`make fuzz`)."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Any, TypeVar

from hypothesis import HealthCheck, settings

#: 1 in `make test`; on CI hypothesis draws the same examples each time, so that what is new is found by `make fuzz`
TIMES = int(os.environ.get("GANGLINE_EXAMPLES", "1"))


T = TypeVar("T")
#: `make test` tries one of so many runs of a scenario that differ by the moment of a kill
SAMPLED = 3


def sampled(runs: Sequence[T]) -> Sequence[T]:
    """Every third run, which takes a third of the time in `make test`; all of them with `make fuzz`."""
    return runs if TIMES > 1 else runs[::SAMPLED]


def examples(number: int, **more: Any) -> settings:
    """`number` examples. Machines are shared and slow at times: none fails for the time that it takes."""
    more.setdefault("suppress_health_check", [HealthCheck.too_slow])
    return settings(max_examples=number * TIMES, deadline=None, **more)
