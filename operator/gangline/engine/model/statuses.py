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
