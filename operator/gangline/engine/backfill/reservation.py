"""A reserved start, and the workloads that were backfilled before one."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeAlias

from gangline.engine.backfill.timeline_outlook import Outlook
from gangline.engine.backfill.timeline_world import Hold
from gangline.engine.model import Millis
from gangline.engine.model.runtime import NEVER
from gangline.engine.queues.workload_state import WorkloadState
from gangline.engine.text.change_log import ChangeLog

#: When all workloads have gone whose end is unknown, those that were backfilled beside a reservation excepted.
FAR: Millis = NEVER - 1
_LOG_LENGTH = 10_000


class Reservation:
    """A gang that is to start at `start`, in `queue`, and what it will hold then."""

    __slots__ = (
        "beside",
        "better",
        "gang",
        "hold",
        "lasts",
        "length",
        "outlook",
        "passed_by",
        "promised",
        "queue",
        "start",
        "worse",
    )

    def __init__(self, gang: WorkloadState, queue: str, length: Millis) -> None:
        self.gang = gang
        self.queue = queue
        #: how long it runs, wherever that is; and with what it will hold
        self.length = self.lasts = length
        self.start: Millis = NEVER
        self.hold: Hold | None = None
        #: the first start that it was promised, NEVER if that was not known
        self.promised: Millis | None = None
        #: somebody stays longer than was thought, or goes earlier
        self.worse = True
        self.better = False
        #: those that may stay beyond the start: they were tested
        self.beside: set[str] = set()
        #: workloads that were backfilled before it since it is reserved
        self.passed_by: set[str] = set()
        #: when it can start at the earliest, by counting
        self.outlook: Outlook | None = None

    @property
    def key(self) -> str:
        return f"{self.gang.key} (reserved)"

    @property
    def end(self) -> Millis:
        return min(NEVER, self.start + self.lasts)

    def hold_from(self, start: Millis, hold: Hold | None, lasts: Millis) -> None:
        """It will hold this from then on, for so long; None = nobody knows yet."""
        self.start, self.hold, self.lasts = start, hold, lasts


class LetIn:
    """The holders that were backfilled before a reserved gang, and a log of those about which there is something new."""

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


#: Whether a reserved head could start in the ledger as it is.
Fits: TypeAlias = Callable[[Reservation], bool]
#: Those in a reserved head's tree that are on their way out.
Leaving: TypeAlias = Callable[[Reservation], Sequence[WorkloadState]]
