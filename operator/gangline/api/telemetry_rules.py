"""The telemetry rules of a QueuePolicy: what queries to Prometheus measure of nodes, and which numbers violate a rule. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from gangline.api import quantity
from gangline.engine.model import READING, Millis

#: milliseconds between two questions of a rule, and how that is said
SHORTEST_PERIOD: Final[Millis] = 5_000
LONGEST_PERIOD: Final[Millis] = 3_600_000
PERIODS: Final = "must be from 5s to 1h"


@dataclass(frozen=True, slots=True)
class Limit:
    """Numbers above or below a limit violate it; a node that violates it does so until its number has come back to `clear`."""

    limit: float
    clear: float
    above: bool

    def violated(self, value: float, *, before: bool) -> bool:
        """Whether a number violates it. `before`: whether the node did so by its last number."""
        bound = self.clear if before else self.limit
        return value > bound if self.above else value < bound

    @property
    def text(self) -> str:
        """The numbers that violate it, in words."""
        until = f" (until {self.clear:g})" if self.clear != self.limit else ""
        return f"{'above' if self.above else 'below'} {self.limit:g}{until}"


def limit(above: str | int | None, below: str | int | None, clear_at: str | int | None) -> Limit:
    """The limit of these fields. Raises ValueError."""
    if (above is None) == (below is None):
        raise ValueError("set above or below")
    bound = quantity.parse_number(above if above is not None else below or 0)
    clear = bound if clear_at is None else quantity.parse_number(clear_at)
    if above is not None and clear > bound:
        raise ValueError("clearAt must not be higher than above")
    if above is None and clear < bound:
        raise ValueError("clearAt must not be lower than below")
    return Limit(bound, clear, above is not None)


@dataclass(frozen=True, slots=True)
class TelemetryRule:
    """A rule of spec.placement.telemetry of a QueuePolicy."""

    policy: str
    name: str
    query: str
    node_label: str  # "" = the usual ones
    period: Millis
    exclude: Limit | None
    evict: Limit | None
    periods: int  # so many in a row until a workload is evicted
    dry_run: bool

    @property
    def reading(self) -> str:
        """The key under which nodes have what the rule says of them."""
        return f"{READING}{self.policy}/{self.name}"

    @property
    def excludes(self) -> bool:
        """Whether it may exclude nodes."""
        return self.exclude is not None or self.evict is not None
