"""The delay that backfill causes for heads: counted exactly, moment by moment, against the same moment without backfill.

A reserved head is *delayed* while it would fit if the workloads that were backfilled before it were not there. The time for
which that is so is counted under the first of the causes below whose workloads explain it.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass

from gangline.engine.backfill.reservation import FAR, Reservation
from gangline.engine.model import Millis
from gangline.engine.model.units import seconds

#: by backfilled workloads that are overdue (with `revoke: Any`: by any backfilled ones): should stay 0
BACKFILL = "backfill"
#: by workloads within their time: others ended before their estimates, and the head could have started before its promise
EARLY_END = "early_end"
#: by workloads that are being stopped, whose pods are ending
STOPPING = "stopping"

#: Number of started heads that are kept.
_REMEMBERED = 1000


@dataclass(frozen=True, slots=True)
class HeadStart:
    """How a reserved head fared. Times in milliseconds; `promised` None if no start could be promised."""

    workload: str
    cluster_queue: str
    promised: Millis | None
    started: Millis


class HeadDelays:
    def __init__(self) -> None:
        #: (ClusterQueue, cause) -> milliseconds
        self.totals: dict[tuple[str, str], Millis] = {}
        self.starts: deque[HeadStart] = deque(maxlen=_REMEMBERED)
        #: ClusterQueue -> since when its head is delayed, and the cause
        self._open: dict[str, tuple[Millis, str]] = {}

    def note(self, now: Millis, delayed: Mapping[str, tuple[Reservation, str]]) -> None:
        """Set the delays that hold from now on; those that held until now are counted."""
        for queue, (since, cause) in self._open.items():
            if now > since:
                self.totals[queue, cause] = self.totals.get((queue, cause), 0) + now - since
        self._open = {queue: (now, cause) for queue, (_, cause) in delayed.items()}

    def started(self, reservation: Reservation, now: Millis) -> None:
        promised = reservation.promised
        self.starts.append(
            HeadStart(
                reservation.gang.key,
                reservation.queue,
                promised if promised is not None and promised < FAR else None,
                now,
            )
        )

    def seconds(self) -> dict[str, dict[str, float]]:
        """ClusterQueue -> cause -> seconds so far."""
        found: dict[str, dict[str, float]] = {}
        for (queue, cause), waited in sorted(self.totals.items()):
            found.setdefault(queue, {})[cause] = seconds(waited)
        return found
