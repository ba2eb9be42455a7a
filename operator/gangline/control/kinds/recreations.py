"""How often each Workload was created lately: of a job, of a pod group, of a kind that serves, or a variant.

Whoever may delete Workloads can delete that of a job as soon as it is there, again and again. Each new one costs the API server
more than a deletion: the object with the job's template, its status, pods that stop and start. So after some creations of the
same Workload the next one waits.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable
from typing import Final

from gangline.control.writes.events import EventRecorder
from gangline.kube.resources import Json, key_of
from gangline.objects import Stored
from gangline.tenants import SharedRoom

#: a Workload is created for a job at most so many times …
MOST: Final = 5
#: … within so many seconds
WITHIN: Final = 60.0
#: Workloads whose creations are known
_KNOWN: Final = 20_000


class Recreations:
    """The times at which each Workload was created, the last `MOST` of them. Another owner of the same name has Workloads of its
    own, and so has each size of an elastic job. The owner hears of it by an event when a creation has to wait.
    """

    def __init__(self, recorder: EventRecorder, clock: Callable[[], float] = time.monotonic) -> None:
        self._recorder = recorder
        self._clock = clock
        self._made: SharedRoom[tuple[str, str], deque[float]] = SharedRoom(_KNOWN)

    def may_create(self, workload: Json, owner: Stored) -> bool:
        """Whether this Workload of the owner may be created now. If so, it counts as created."""
        namespace, now = workload["metadata"]["namespace"], self._clock()
        made = self._made.use(namespace, (key_of(workload), owner.uid), lambda: deque[float](maxlen=MOST))
        if len(made) == MOST and now - made[0] < WITHIN:
            message = f"The Workload was deleted and created {MOST} times within {WITHIN:.0f} s: the next one is created later"
            self._recorder.record(owner, "Warning", "WorkloadDeletedAgain", message)
            return False
        made.append(now)
        return True
