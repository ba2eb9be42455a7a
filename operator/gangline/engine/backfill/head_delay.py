"""The delay that backfill causes for heads: counted exactly, moment by moment, against the same moment without backfill.

A reserved head is *delayed* while it would fit if the workloads that were backfilled before it were not there. The time for
which that is so is counted under the first of the causes below whose workloads explain it (`revocation.DelayCauses`). A head is
*late* if it starts after the first start that was promised to it since it waits, whatever became of its reservation meanwhile.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass

from gangline.engine.model import Millis
from gangline.engine.model.units import seconds
from gangline.engine.queues.workload_parts import NO_NAMES
from gangline.engine.queues.workload_state import WorkloadState

#: by backfilled workloads that are overdue (with `revoke: Any`: by any backfilled ones): should stay 0
BACKFILL = "backfill"
#: by workloads within their time: others ended before their estimates, and the head could have started before its promise
EARLY_END = "early_end"
#: by workloads that would have been revoked, had the loss budget covered it
BUDGET = "loss_budget"
#: by workloads that are being stopped, whose pods are ending
STOPPING = "stopping"

#: A start is late when it is later than promised by more than this.
LATE: Millis = 60_000
#: Number of started heads that are kept.
_REMEMBERED = 1000


@dataclass(frozen=True, slots=True)
class HeadStart:
    """How a reserved head fared. Times in milliseconds; `promised`: the first start that was, None if none could be."""

    workload: str
    cluster_queue: str
    promised: Millis | None
    started: Millis


@dataclass(slots=True)
class Lateness:
    """How many heads of a ClusterQueue started that were promised a start, how many later than first promised, and by how much
    in all.
    """

    promised: int = 0
    late: int = 0
    total: Millis = 0

    @property
    def seconds(self) -> float:
        return seconds(self.total)


class HeadDelayLedger:
    def __init__(self) -> None:
        #: by ClusterQueue
        self.lateness: dict[str, Lateness] = {}
        #: (ClusterQueue, cause) -> milliseconds
        self.totals: dict[tuple[str, str], Millis] = {}
        self.starts: deque[HeadStart] = deque(maxlen=_REMEMBERED)
        #: ClusterQueue -> since when its head is delayed, and the cause
        self._open: dict[str, tuple[Millis, str]] = {}

    def note(self, now: Millis, delayed: Mapping[str, str]) -> None:
        """Set the causes of the delays that hold from now on, by ClusterQueue; those that held until now are counted."""
        for queue, (since, cause) in self._open.items():
            if now > since:
                self.totals[queue, cause] = self.totals.get((queue, cause), 0) + now - since
        self._open = {queue: (now, cause) for queue, cause in delayed.items()}

    def started(self, gang: WorkloadState, queue: str, now: Millis) -> None:
        """A workload that is, or was, reserved a start holds its quota: what was promised to it is settled.

        What was said only as it started was no promise.
        """
        promised = (
            gang.backfill.promised[1]
            if gang.backfill.promised is not None and gang.backfill.promised[0] < now
            else None
        )
        gang.backfill.promised, gang.backfill.passed_by = None, NO_NAMES
        self.starts.append(HeadStart(gang.key, queue, promised, now))
        if promised is not None:
            sums = self.lateness.setdefault(queue, Lateness())
            sums.promised += 1
            sums.late += now > promised + LATE
            sums.total += max(0, now - promised)

    def seconds(self) -> dict[str, dict[str, float]]:
        """ClusterQueue -> cause -> seconds so far."""
        found: dict[str, dict[str, float]] = {}
        for (queue, cause), waited in sorted(self.totals.items()):
            found.setdefault(queue, {})[cause] = seconds(waited)
        return found
