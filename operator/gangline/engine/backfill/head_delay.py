"""By how much backfill delays those at the head: counted exactly, moment by moment, against the same moment without it.

A reserved head is *delayed* while it would fit if those that were backfilled before it were not there. What is counted is the
time for which that is so, under the first of the causes below whose gangs suffice for it.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass

from gangline.engine.backfill.reservation import FAR, Reservation
from gangline.engine.model import Millis
from gangline.engine.model.units import seconds

#: by backfilled workloads that are overdue (with `revoke: Any`: by any that were backfilled): should stay 0
BACKFILL = "backfill"
#: by gangs within their time: others ended before their estimates, and the head could have started before its promise
EARLY_END = "early_end"
#: by gangs that were told to go and whose pods are ending
STOPPING = "stopping"

#: Heads whose promise and start are remembered.
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
        #: ClusterQueue -> since when its head is delayed, and by what
        self._open: dict[str, tuple[Millis, str]] = {}

    def note(self, now: Millis, delayed: Mapping[str, tuple[Reservation, str]]) -> None:
        """What holds from now on; what held until now is counted."""
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
