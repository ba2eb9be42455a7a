"""How often the Workload of a job was created lately.

Whoever may delete Workloads can delete that of a job as soon as it is there, again and again. Each new one costs the API server
more than a deletion: the object with the job's template, its status, pods that stop and start. So after some creations of the
same Workload the next one waits.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable
from typing import Final

from gangline.kube.resources import Json, key_of
from gangline.tenants import SharedRoom

#: a Workload is created for a job at most so many times …
MOST: Final = 5
#: … within so many seconds
WITHIN: Final = 60.0
#: Workloads whose creations are known
_KNOWN: Final = 20_000


class Recreations:
    """The times at which each Workload was created, the last `MOST` of them. Another job of the same name has Workloads of its
    own, and so has each size of an elastic job.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._made: SharedRoom[tuple[str, str], deque[float]] = SharedRoom(_KNOWN)

    def may_create(self, workload: Json, job_uid: str) -> bool:
        """Whether this Workload of the job with this UID may be created now. If so, it counts as created."""
        namespace, now = workload["metadata"]["namespace"], self._clock()
        made = self._made.use(namespace, (key_of(workload), job_uid), lambda: deque[float](maxlen=MOST))
        if len(made) == MOST and now - made[0] < WITHIN:
            return False
        made.append(now)
        return True
