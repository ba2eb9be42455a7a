"""How fast a job says that it runs on which flavor: the annotation gangline.io/flavor-speeds, such as `a100=2.5,v100=1,cpu=0.1`.

At speed 1 the job takes as long as its author expects (gangline.io/expected-runtime), at 2 half of that. A flavor without a speed
has speed 1, unless runs have shown another.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from typing import Final

from gangline import bounded
from gangline.api import names

#: flavors that a job may name, and the highest and the least speed there
MOST_FLAVORS: Final = 64
FASTEST, SLOWEST = 1000.0, 0.001
WANTED: Final = (
    f"must be up to {MOST_FLAVORS} different flavors with numbers from {SLOWEST:g} to {FASTEST:g},"
    " such as a100=2.5,v100=1,cpu=0.1"
)
_SPEED: Final = re.compile(r"([a-z0-9](?:[a-z0-9.-]{0,251}[a-z0-9])?)=([0-9]{1,4}(?:\.[0-9]{1,6})?)")
_NOTHING: Final[Mapping[str, float]] = {}


@bounded.parser(16_384, instead=None, worst=("a=1,", "a=", ",", "=", "a-", "1."))
def speeds(written: str) -> Mapping[str, float] | None:
    """The speed on each flavor; None if that cannot be read."""
    parts = [part.strip() for part in written.split(",", MOST_FLAVORS)]
    found = [match for part in parts if (match := _SPEED.fullmatch(part)) is not None]
    known = {match[1]: float(match[2]) for match in found}
    if len(known) < len(parts) or len(parts) > MOST_FLAVORS:
        return None
    return known if all(SLOWEST <= speed <= FASTEST for speed in known.values()) else None


def relative(rates: Mapping[str, float]) -> dict[str, float]:
    """Speeds by flavor, 1 on average, of work that does so much per second there."""
    usual = math.exp(sum(map(math.log, rates.values())) / max(1, len(rates)))
    return {name: rate / usual for name, rate in rates.items()}


def declared_speeds(annotations: Mapping[str, object]) -> Mapping[str, float]:
    """What a job with these annotations, or its Workload, says; nothing where that cannot be read."""
    written = annotations.get(names.FLAVOR_SPEEDS)
    return (speeds(written) or _NOTHING) if isinstance(written, str) else _NOTHING
