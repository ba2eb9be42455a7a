"""The delay that backfill causes for heads: counted exactly, moment by moment, against the same moment without backfill.

A reserved head is *delayed* while it would fit if the workloads that were backfilled before it were not there. The time for
which that is so is counted under the first of the causes below whose workloads explain it (`revocation.DelayCauses`). What a head
was promised, and whether that came true, is in `queues.promises`.
"""

from __future__ import annotations

from collections.abc import Mapping

from gangline.engine.model import Millis
from gangline.engine.model.units import seconds

#: by backfilled workloads that are overdue (with `revoke: Any`: by any backfilled ones): should stay 0
BACKFILL = "backfill"
#: by workloads within their time: others ended before their estimates, and the head could have started before its promise
EARLY_END = "early_end"
#: by workloads that would have been revoked, had the loss budget covered it
BUDGET = "loss_budget"
#: by workloads that are being stopped, whose pods are ending
STOPPING = "stopping"


class HeadDelayLedger:
    def __init__(self) -> None:
        #: (ClusterQueue, cause) -> milliseconds
        self.totals: dict[tuple[str, str], Millis] = {}
        #: ClusterQueue -> since when its head is delayed, and the cause
        self._open: dict[str, tuple[Millis, str]] = {}

    def note(self, now: Millis, delayed: Mapping[str, str]) -> None:
        """Set the causes of the delays that hold from now on, by ClusterQueue; those that held until now are counted."""
        for queue, (since, cause) in self._open.items():
            if now > since:
                self.totals[queue, cause] = self.totals.get((queue, cause), 0) + now - since
        self._open = {queue: (now, cause) for queue, cause in delayed.items()}

    def seconds(self) -> dict[str, dict[str, float]]:
        """ClusterQueue -> cause -> seconds so far."""
        found: dict[str, dict[str, float]] = {}
        for (queue, cause), waited in sorted(self.totals.items()):
            found.setdefault(queue, {})[cause] = seconds(waited)
        return found
