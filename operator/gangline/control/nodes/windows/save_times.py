"""How long pods took to end after their workload was stopped: those that save their work then take as long again.

Measured from the record of attempts: from the eviction of a workload until its quota was given back, which happens when its last
pod is gone. The measure of a job is the 90th percentile of the last stops of jobs like it: of the same namespace, user and name
without its number.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Callable, Collection
from typing import Final, Protocol

from gangline.control.feed.mirror import Mirror
from gangline.control.parts.messages import AttemptNoted, Messages
from gangline.engine import model
from gangline.forecast.errors import StoreError
from gangline.forecast.history.attempts import EVICTED, PREEMPTED, JobAttempt
from gangline.forecast.history.runs import fold
from gangline.objects import WorkloadObject
from gangline.tenants import SharedRoom

log = logging.getLogger(__name__)

#: stops that are kept of jobs that are alike, and kinds of jobs that are known, of all namespaces together
_STOPS: Final = 20
_CLASSES: Final = 5_000
#: the share of stops that took at most as long as a job is given
_LEVEL: Final = 0.9
#: stops of so many seconds are read when this process begins to lead; a record that does not answer is asked again after this
_PAST: Final = 30 * 86_400.0
RETRY: Final = 15.0


class StopRecord(Protocol):
    """The record of attempts."""

    async def ended_by(self, ends: Collection[str], since: float) -> list[JobAttempt]:
        """The last attempts that ended in one of these ways at or after `since`. Raises StoreError."""
        ...


class SaveTimes:
    """What was measured, by kind of job. `now` is in milliseconds since the epoch."""

    def __init__(self, mirror: Mirror, messages: Messages, now: Callable[[], int]) -> None:
        self._mirror = mirror
        self._now = now
        #: by namespace, and by user and name: the last stops, in seconds
        self._stops: SharedRoom[tuple[str, str], deque[float]] = SharedRoom(_CLASSES)
        #: grows with every stop
        self.version = 0
        self._asked = asyncio.Event()
        messages.subscribe(AttemptNoted, lambda message: self._note(message.attempt))

    def _note(self, attempt: JobAttempt) -> None:
        took = attempt.stopping
        if (
            took is None or attempt.ready is None or attempt.loss == "failure"
        ):  # pods on lost nodes do not end by themselves
            return
        self.version += 1
        key = attempt.user, fold(attempt.job_name)
        self._stops.use(attempt.namespace, key, lambda: deque(maxlen=_STOPS)).append(took)

    def of(self, workload: WorkloadObject) -> model.SaveTime | None:
        """How long the pods of a workload take to end; None where no job like it was stopped yet."""
        job = self._mirror.job_of(workload)
        name = job[1].partition("/")[2] if job is not None else workload.name
        stops = self._stops.get(workload.namespace, (self._mirror.user_of(workload), fold(name)))
        if not stops:
            return None
        ranked = sorted(stops)
        return model.SaveTime(workload.key, round(ranked[min(len(ranked) - 1, int(_LEVEL * len(ranked)))] * 1000))

    # --- the past -----------------------------------------------------------------------------------------------------

    def ask(self) -> None:
        """Read what happened before this process began."""
        self._asked.set()

    async def run(self, record: StopRecord) -> None:
        """Read the record once it is asked for, until cancelled."""
        await self._asked.wait()
        warned = False
        while True:
            try:
                found = await record.ended_by((EVICTED, PREEMPTED), self._now() / 1000 - _PAST)
                break
            except StoreError as error:
                if not warned:
                    log.warning("how long jobs took to stop is not known yet: %s", error)
                warned = True
                await asyncio.sleep(RETRY)
        for attempt in sorted(found, key=lambda each: each.ended or 0.0):
            self._note(attempt)
        await asyncio.Event().wait()
