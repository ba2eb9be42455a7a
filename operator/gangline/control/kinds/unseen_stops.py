"""Jobs that were suspended again so soon that their controllers may not know it yet."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterable
from typing import Final

from gangline.control.feed.changes import JobRef
from gangline.control.feed.pod import Pod
from gangline.jobs.base import JobKind, ShowsSuspension
from gangline.objects import JobObject

#: Seconds that a controller has to say that it knows of a suspension; it takes one at most. One that is away sees nothing but
#: the suspension when it comes back.
PATIENCE: Final = 5.0


class UnseenStops:
    """Remembers jobs whose suspension their controllers may not have seen. `again` is called with a job whose controller has said
    nothing for `patience` seconds.
    """

    def __init__(self, again: Callable[[JobRef], None], patience: float = PATIENCE) -> None:
        self._again = again
        self._patience = patience
        #: job -> its uid, and time.monotonic() of when this was first seen of it
        self._since: dict[JobRef, tuple[str, float]] = {}

    def may_start_pods(self, ref: JobRef, kind: JobKind, job: JobObject, pods: Iterable[Pod]) -> bool:
        """Whether the job's controller may still create pods of the suspended job, or has yet to delete some of these."""
        if not isinstance(kind, ShowsSuspension) or kind.has_seen_suspension(job):
            self.forget(ref)
            return False
        if any(not pod.ended for pod in pods):
            return True
        uid, now = job.uid, time.monotonic()
        if self._since.get(ref, ("", 0.0))[0] != uid:
            self._since[ref] = uid, now
            asyncio.get_running_loop().call_later(self._patience, self._again, ref)
        return now < self._since[ref][1] + self._patience

    def forget(self, ref: JobRef) -> None:
        self._since.pop(ref, None)
