"""Counts how many runs of each tenant, and of each size, took no longer than their q90: forecasts that are right on the whole may
be wrong for some.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple

from gangline.forecast.history.runs import Run
from gangline.forecast.quantiles import LEVELS, Forecast

#: groups with fewer finished runs are not shown: chance moves them by more than a few percent
LEAST: Final = 200
#: tenants that are counted, of one namespace and in all; those that come later are not
MOST_OF_NAMESPACE: Final = 20
MOST_TENANTS: Final = 2_000

_Q90: Final = LEVELS.index(0.9)


class CoveredGroup(NamedTuple):
    by: str  #: tenant | size
    name: str


class Coverage(NamedTuple):
    finished: int
    covered: int


@dataclass(slots=True)
class Groups:
    """The counts of finished runs by group. A tenant is a LocalQueue; a size is 1, 2-8 or >8 accelerators."""

    counts: dict[CoveredGroup, Coverage] = field(default_factory=dict[CoveredGroup, Coverage])

    def ended(self, run: Run, at_start: Forecast) -> None:
        """Count a run that has finished, with its forecast when it started."""
        covered = run.seconds is not None and run.seconds <= at_start.values[_Q90]
        tenant = CoveredGroup("tenant", f"{run.namespace}/{run.queue}")
        if tenant in self.counts or self._has_room(run.namespace):
            self._count(tenant, covered)
        self._count(CoveredGroup("size", "1" if run.gpus <= 1 else "2-8" if run.gpus <= 8 else ">8"), covered)

    def _has_room(self, namespace: str) -> bool:
        """Whether one more LocalQueue of this namespace is counted: users create them, under any names."""
        own = sum(group.name.startswith(f"{namespace}/") for group in self.counts if group.by == "tenant")
        return own < MOST_OF_NAMESPACE and len(self.counts) < MOST_TENANTS

    def _count(self, group: CoveredGroup, covered: bool) -> None:
        before = self.counts.get(group, Coverage(0, 0))
        self.counts[group] = Coverage(before.finished + 1, before.covered + covered)

    def shown(self) -> Iterator[tuple[CoveredGroup, Coverage]]:
        """The groups with enough runs to judge by."""
        return ((group, each) for group, each in sorted(self.counts.items()) if each.finished >= LEAST)

    def saved(self) -> list[list[Any]]:
        return [[*group, *each] for group, each in sorted(self.counts.items())]


def counts_of(rows: list[list[Any]]) -> dict[CoveredGroup, Coverage]:
    """Read counts that `Groups.saved` made. Raises TypeError or ValueError for anything else."""
    return {CoveredGroup(str(by), str(name)): Coverage(int(ended), int(covered)) for by, name, ended, covered in rows}
