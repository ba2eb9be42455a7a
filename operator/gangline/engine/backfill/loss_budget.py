"""The loss budget of a queue: a bucket that fills with its quota over time and pays for the work lost by preemption.

A stopped workload loses what it did since its last checkpoint, in resource seconds. One head may cause little loss (see
`checkpoint_preemption`), but under a backlog heads come all day. So the bucket holds what may be lost in a day, and the emptier
it is, the less a head may cost: it then waits a little longer, until its victims have just saved their work.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from gangline.engine.model import Millis
from gangline.engine.queues.cluster_queue import ClusterQueueState
from gangline.engine.queues.workload_state import WorkloadState

DAY: Millis = 24 * 3_600_000
#: The least share of its full price that a head may cost. (A workload that must not be stopped for heads should declare no
#: checkpoints; and long waits cost more than repeating a little work.)
THRIFT = 0.3


@dataclass(slots=True)
class _Bucket:
    """`left` as of `at`, at most `most`, in resource · milliseconds. Negative, down to -`most`, where more was lost."""

    at: Millis
    most: float
    left: float

    def fill(self, most: float, now: Millis) -> None:
        self.left = min(self.left + most * (now - self.at) / DAY, most)
        self.most, self.at = most, now

    def pay(self, amount: float) -> None:
        self.left = max(self.left - amount, -self.most)


class Losses:
    """The buckets, by queue and resource. A bucket is full when it is first used, after a restart too."""

    def __init__(self) -> None:
        self._buckets: dict[tuple[str, str], _Bucket] = {}

    def freedom(self, queue: ClusterQueueState, resource: str, share: float, now: Millis) -> float:
        """The share of its full price that a head may cost, from `THRIFT` to 1, if `share` of the queue's nominal quota may be
        lost.
        """
        nominal = sum(cell.nominal for (_, name), cell in queue.cells.items() if name == resource)
        most = share * nominal * DAY
        bucket = self._buckets.setdefault((queue.name, resource), _Bucket(now, most, most))
        bucket.fill(most, now)
        return max(THRIFT, bucket.left / most if most else 0.0)

    def note(self, gangs: Iterable[WorkloadState], now: Millis) -> None:
        """These workloads are stopped for others: their queues pay."""
        for gang in gangs:
            for (_, resource), amount in gang.usage.items():
                bucket = self._buckets.get((gang.queue.name, resource)) if gang.queue is not None else None
                if bucket is not None:
                    bucket.pay(amount * gang.unsaved(now))
