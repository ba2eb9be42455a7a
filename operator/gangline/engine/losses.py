"""How much work a queue may lose in the long run by stopping gangs for others: a bucket that fills with the time it has quota.

Whoever is stopped loses what it did since its last checkpoint, in resource seconds. One head pays little for that (see
`giveway`), but heads come all day: the bucket bounds what all of them cost together, on any load.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from gangline.engine.cluster_queue import ClusterQueueState
from gangline.engine.gang import Gang
from gangline.engine.model import Millis

#: A budget that nobody uses is kept for so long, in milliseconds: a week.
KEPT: Millis = 7 * 24 * 3_600_000


@dataclass(slots=True)
class _Bucket:
    """`left` as of `at`, in resource · milliseconds; below 0 where more was lost than there was, which then has to fill first."""

    at: Millis
    left: float = 0.0

    def fill(self, rate: float, now: Millis) -> None:
        self.left = min(self.left + rate * (now - self.at), rate * KEPT)
        self.at = now


class Losses:
    """The buckets, by queue and resource. One is empty when it is first asked for: after a restart, too."""

    def __init__(self) -> None:
        self._buckets: dict[tuple[str, str], _Bucket] = {}

    def left(self, queue: ClusterQueueState, resource: str, share: float, now: Millis) -> int:
        """What may still be lost, in resource · milliseconds, if `share` of the queue's nominal quota may be."""
        bucket = self._buckets.setdefault((queue.name, resource), _Bucket(now))
        nominal = sum(cell.nominal for (_, name), cell in queue.cells.items() if name == resource)
        bucket.fill(share * nominal, now)
        return max(0, round(bucket.left))

    def note(self, gangs: Iterable[Gang], now: Millis) -> None:
        """These are stopped for others: their queues pay."""
        for gang in gangs:
            for (_, resource), amount in gang.usage.items():
                bucket = self._buckets.get((gang.queue.name, resource)) if gang.queue is not None else None
                if bucket is not None:
                    bucket.left -= amount * gang.unsaved(now)
