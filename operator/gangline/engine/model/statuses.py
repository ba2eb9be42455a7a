"""Statuses of queues, for the console and for the objects' own status."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from gangline.engine.model.units import Millis


@dataclass(frozen=True, slots=True)
class ResourceUsage:
    flavor: str
    resource: str
    total: int
    borrowed: int


@dataclass(frozen=True, slots=True)
class QueueStatus:
    """The live state of a ClusterQueue or LocalQueue, as their status shows it."""

    active: bool
    reason: str  # Active condition: Ready, Stopped, FlavorNotFound, …
    message: str
    pending: int
    reserving: int
    admitted: int
    reservation: tuple[ResourceUsage, ...]  # held by QuotaReserved workloads, every flavor and resource of the queue
    usage: tuple[ResourceUsage, ...]  # held by Admitted workloads
    weighted_share: int = 0
    #: admission fair sharing (LocalQueues): consumed so far in engine units, and when that was last decayed
    consumed: Mapping[str, float] = field(default_factory=dict[str, float])
    consumed_at: Millis = 0


@dataclass(frozen=True, slots=True)
class LocalQueueFigures:
    """Sizes of a LocalQueue, for metrics. `active`: pending and offered to the scheduler, `inadmissible`: pending and not.

    `reservation` and `usage` are by (flavor, resource) and have every pair of the ClusterQueue. `fair_usage`: its usage over
    time, None where usage does not count. `admitted`: keys of workloads.
    """

    active: int = 0
    inadmissible: int = 0
    reserving: int = 0
    admitted: tuple[str, ...] = ()
    reservation: Mapping[tuple[str, str], int] = field(default_factory=dict[tuple[str, str], int])
    usage: Mapping[tuple[str, str], int] = field(default_factory=dict[tuple[str, str], int])
    fair_usage: float | None = None


@dataclass(frozen=True, slots=True)
class QuotaFigures:
    """Quota of a ClusterQueue for one flavor and resource; a limit of None is none."""

    nominal: int
    borrowing_limit: int | None
    lending_limit: int | None
    reservation: int
    usage: int


@dataclass(frozen=True, slots=True)
class ClusterQueueFigures:
    """Sizes of a ClusterQueue, for metrics. `reason`: why it admits nothing, so that nothing of it is active; "" = it admits.

    `cohorts`: its cohort, that one's parent, … up to the root; none if they form a cycle. `shapes`: how many different shapes the
    active and the inadmissible workloads have. `pending`: the requests of all that waits, by resource. `weighted_share`: NaN
    where its weight is 0 and it borrows.
    """

    reason: str
    active: int
    inadmissible: int
    reserving: int
    admitted: int
    shapes: tuple[int, int]
    cohorts: tuple[str, ...]
    quotas: Mapping[tuple[str, str], QuotaFigures]
    pending: Mapping[str, int]
    weighted_share: float
    local_queues: Mapping[str, LocalQueueFigures]


@dataclass(frozen=True, slots=True)
class CohortFigures:
    """Sizes of a cohort's whole subtree, for metrics; amounts are by (flavor, resource), without zeros.

    `admitted` is by ClusterQueue. `declared`: the Cohort exists as an object, and is not only named.
    """

    parent: str
    root: str
    declared: bool
    quota: Mapping[tuple[str, str], int]
    reservation: Mapping[tuple[str, str], int]
    admitted: Mapping[str, int]
    weighted_share: float
