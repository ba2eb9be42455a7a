"""The loss budget of a queue: a bucket that fills over time and pays for the work lost by evictions for reserved heads.

A stopped workload loses what it did since its last checkpoint, and a restart, in resource seconds. The budget is a limit, not a
price: no eviction is decided that it does not cover. A bucket holds at most half of what may be lost in a day, fills by as much
in a day, and is empty when it is first used. So in any day no more is lost than the budget allows, in any time t no more than
half of it times (1 + t in days), a restart of the process or not: a new bucket never holds more than the old one would have.

The emptier the bucket, the less a head may cost (see `checkpoint_preemption`): it then waits a little longer, until its victims
have just saved their work.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Final

from gangline.engine.model import Millis
from gangline.engine.queues.cluster_queue import ClusterQueueState, queue_of
from gangline.engine.queues.preemption_log import PreemptionLog
from gangline.engine.queues.workload_state import WorkloadState

DAY: Final[Millis] = 24 * 3_600_000
#: The least share of its full price that a head may cost while there is something left. (Long waits cost more than repeating a
#: little work.)
THRIFT: Final = 0.3
#: Times of starts are whole seconds: a checkpoint may have been this much later than it seems.
_ROUNDING: Final[Millis] = 1_000
_MILLION: Final = 1_000_000


def at_risk(gang: WorkloadState, restart: Millis, now: Millis) -> Millis:
    """The most runtime that is lost if it stops now, and the restart."""
    if not gang.admitted:
        return 0
    ran = max(0, now - gang.quota.admitted_at)
    checkpoint = gang.workload.checkpoint
    if checkpoint is None or ran <= _ROUNDING:
        return ran + restart
    return min(ran, (ran - _ROUNDING) % checkpoint + _ROUNDING) + restart


@dataclass(slots=True)
class _Bucket:
    """`left` as of `at`, in resource · milliseconds · `DAY`, so that no fraction is lost: from 0 to `half` · `DAY`."""

    at: Millis
    half: int  #: of what may be lost in a day, in resource · milliseconds
    left: int = 0

    def fill(self, half: int, now: Millis) -> None:
        """`half` may have changed at any time since."""
        self.left = min(self.left + min(half, self.half) * max(0, now - self.at), half * DAY)
        self.half, self.at = half, max(now, self.at)

    def covers(self, amount: int) -> bool:
        return amount * DAY <= self.left

    def pay(self, amount: int) -> None:
        self.left = max(0, self.left - amount * DAY)


class Losses:
    """The buckets, by queue and resource."""

    def __init__(self, log: PreemptionLog | None = None) -> None:
        self._buckets: dict[tuple[str, str], _Bucket] = {}
        self._log = log if log is not None else PreemptionLog()
        #: new buckets are full: for simulations, which do not know what was lost lately
        self.begin_full = False

    def keep(self, queues: Iterable[ClusterQueueState], now: Millis) -> None:
        """Fill the buckets of these queues; there are no others any more."""
        kept: dict[tuple[str, str], _Bucket] = {}
        for queue in queues:
            for resource, half in _halves(queue):
                bucket = self._buckets.get((queue.name, resource))
                if bucket is None:
                    bucket = _Bucket(now, half, half * DAY if self.begin_full else 0)
                bucket.fill(half, now)
                kept[queue.name, resource] = bucket
        self._buckets = kept

    def freedom(self, queue: ClusterQueueState, resource: str) -> float:
        """The share of its full price that a head of this queue may cost, from `THRIFT` to 1; 1 without a budget."""
        bucket = self._buckets.get((queue.name, resource))
        if bucket is None:
            return 1.0
        return max(THRIFT, bucket.left / (bucket.half * DAY)) if bucket.half else THRIFT

    def cover(self, gangs: Iterable[WorkloadState], head: ClusterQueueState, now: Millis) -> bool:
        """Whether all these may be stopped now for a head of this queue: by its budget, and by the limits of preemption."""
        stopped = tuple(gangs)
        if self._log.obstacle(stopped, head, now) is not None:
            return False
        return all(bucket.covers(amount) for bucket, amount in self._costs(stopped, head, now))

    def pay(self, gangs: Iterable[WorkloadState], head: ClusterQueueState, now: Millis) -> None:
        """Charge the budgets for these workloads, which are stopped for a head of this queue."""
        stopped = tuple(gangs)
        for gang in stopped:
            self._log.note(gang, head, now)
        for bucket, amount in self._costs(stopped, head, now):
            bucket.pay(amount)

    def _costs(
        self, gangs: Iterable[WorkloadState], head: ClusterQueueState, now: Millis
    ) -> Iterator[tuple[_Bucket, int]]:
        """The buckets that would pay, and how much. The queue of a victim pays; that of the head, if the victim's has no
        budget.
        """
        costs: dict[tuple[str, str], int] = {}
        for gang in gangs:
            own = queue_of(gang)
            payer = own if own is not None and self._has_budget(own) else head
            policy = payer.config.backfill
            lost = at_risk(gang, policy.restart if policy is not None else 0, now)
            for (_, resource), amount in gang.quota.usage.items():
                costs[payer.name, resource] = costs.get((payer.name, resource), 0) + amount * lost
        for key, amount in costs.items():
            if (bucket := self._buckets.get(key)) is not None:
                yield bucket, amount

    def _has_budget(self, queue: ClusterQueueState) -> bool:
        return any((queue.name, resource) in self._buckets for _, resource in queue.cells)


def _halves(queue: ClusterQueueState) -> Iterator[tuple[str, int]]:
    """Each resource of which the queue has quota, and half of what may be lost of it in a day."""
    policy = queue.config.backfill
    if policy is None or policy.loss_budget is None:
        return
    nominal: dict[str, int] = {}
    for (_, resource), cell in queue.cells.items():
        nominal[resource] = nominal.get(resource, 0) + cell.nominal
    share = int(policy.loss_budget * _MILLION)
    for resource, amount in nominal.items():
        if amount > 0:
            yield resource, share * amount * DAY // (2 * _MILLION)
