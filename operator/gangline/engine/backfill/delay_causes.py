"""Why a reserved head waits: which of the workloads that were backfilled before it keep it from starting right now.

All that passed it while it waited count, whether its reservation was made anew meanwhile or not.
"""

from __future__ import annotations

from collections.abc import Iterator, Set

from gangline.engine.backfill.head_delay import BACKFILL, BUDGET, EARLY_END, STOPPING
from gangline.engine.backfill.reservation import Fits, Reservation
from gangline.engine.backfill.revocation import Revoking
from gangline.engine.backfill.timeline import Timeline
from gangline.engine.model import Millis
from gangline.engine.preemption.simulated_removal import simulate
from gangline.engine.queues.workload_state import WorkloadState
from gangline.engine.state.store import Store


class DelayCauses:
    """Finds the cause that `head_delay` counts."""

    def __init__(self, store: Store, timeline: Timeline, revoking: Revoking, fits: Fits) -> None:
        self._store = store
        self._timeline = timeline
        self._revoking = revoking
        self._fits = fits

    def of(self, reservation: Reservation, now: Millis) -> str:
        """The cause of a head's delay; "" = it could not start without backfilled workloads either, or could start beside
        them.
        """
        stopping = self._stopping(reservation)
        passed = self._revoking.passed_by(reservation)
        everyone = [*passed, *stopping]
        if not everyone or not self._fits_without(reservation, everyone) or self._fits(reservation):
            return ""
        if stopping and self._fits_without(reservation, stopping):
            return STOPPING
        policy = self._store.queues[reservation.queue].config.backfill
        avoidable = BUDGET if self._revoking.unpaid(reservation.gang) else BACKFILL
        if policy is not None and policy.revoke == "Any":
            return avoidable
        overdue = [gang for gang in passed if self._revoking.overdue_at(gang) <= now]
        return avoidable if overdue and self._fits_without(reservation, [*overdue, *stopping]) else EARLY_END

    def _stopping(self, reservation: Reservation) -> list[WorkloadState]:
        """Backfilled workloads that passed the head and are being evicted. Forgets whoever holds nothing any more."""
        head = reservation.gang
        holders = dict(self._holders(head.backfill.passed_by))
        head.backfill.passed_by = set(holders)
        return [gang for gang in holders.values() if gang.evicting and gang.backfill.backfilled]

    def _holders(self, keys: Set[str]) -> Iterator[tuple[str, WorkloadState]]:
        for key in keys:
            gang = self._store.gangs.get(key)
            if gang is not None and gang.holds:
                yield key, gang

    def _fits_without(self, reservation: Reservation, gangs: list[WorkloadState]) -> bool:
        if not self._timeline.might_fit_without(reservation, gangs):
            return False
        with simulate(removed=gangs):
            return self._fits(reservation)
