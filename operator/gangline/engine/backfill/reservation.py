"""A reserved start, and the workloads that were backfilled before it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeAlias

from gangline.engine.backfill.timeline_outlook import TimelineOutlook
from gangline.engine.backfill.timeline_world import HeldCapacity
from gangline.engine.model import Millis
from gangline.engine.model.runtime import NEVER
from gangline.engine.queues.workload_state import WorkloadState
from gangline.engine.text.change_log import ChangeLog
from gangline.engine.text.wording import moment_text

#: After the last known end: when all workloads without a known end are gone, except those backfilled beside a reservation.
FAR: Millis = NEVER - 1
_LOG_LENGTH = 10_000


class Reservation:
    """A workload that is planned to start at `start`, in `queue`, and what it will hold then."""

    __slots__ = (
        "beside",
        "better",
        "gang",
        "hold",
        "lasts",
        "length",
        "outlook",
        "queue",
        "start",
        "worse",
    )

    def __init__(self, gang: WorkloadState, queue: str, length: Millis) -> None:
        self.gang = gang
        self.queue = queue
        #: its runtime on any flavor, and on those that it will hold
        self.length = self.lasts = length
        self.start: Millis = NEVER
        self.hold: HeldCapacity | None = None
        #: a holder stays longer than expected, or leaves earlier
        self.worse = True
        self.better = False
        #: holders that may stay beyond the start: they were tested
        self.beside: set[str] = set()
        #: a lower bound of its start, by counting
        self.outlook: TimelineOutlook | None = None

    @property
    def key(self) -> str:
        return f"{self.gang.key} (reserved)"

    @property
    def end(self) -> Millis:
        return min(NEVER, self.start + self.lasts)

    def hold_from(self, start: Millis, hold: HeldCapacity | None, lasts: Millis) -> None:
        """Let the workload hold this from `start` on, for so long; None = it is not known yet what it holds."""
        self.start, self.hold, self.lasts = start, hold, lasts


class BackfilledHolders:
    """The holders that were backfilled before a reserved workload, and a log of changes of them."""

    __slots__ = ("gangs", "log")

    def __init__(self) -> None:
        self.gangs: dict[str, WorkloadState] = {}
        self.log: ChangeLog[str] = ChangeLog(_LOG_LENGTH)

    def put(self, key: str, gang: WorkloadState) -> None:
        self.gangs[key] = gang
        self.log.append(key)

    def drop(self, key: str) -> None:
        """Unknown keys are fine."""
        if self.gangs.pop(key, None) is not None:
            self.log.append(key)

    def start_over(self) -> None:
        self.gangs.clear()
        self.log.start_over()


#: Whether a reserved head could start in the present ledger.
Fits: TypeAlias = Callable[[Reservation], bool]
#: The workloads of a reserved head's tree that are on their way out.
Leaving: TypeAlias = Callable[[Reservation], Sequence[WorkloadState]]


def start_text(reservation: Reservation, holds_back: bool) -> str:
    """What is added to the reason of a reserved workload: when it starts, and whether others are held back for it."""
    if reservation.start >= FAR:
        return ". It goes first, but nobody knows when those before it will end"
    when = moment_text(reservation.start)
    return (
        f". Reserved to start {when}" if holds_back else f". Planned to start {when}; nothing is kept idle for it yet"
    )


def held_back_text(reservation: Reservation) -> str:
    return f"Workload would delay {reservation.gang.key}, which is reserved to start {moment_text(reservation.start)}"


def preempted_for_text(reservation: Reservation) -> str:
    return f"Workload was preempted for {reservation.gang.key} and waits until that workload has started"
