"""Which running workloads are protected from preemption, and until when, by the policy of their own queue.

Protection holds against every workload that needs the room, of the same queue or another one, and against every way to make
room: preemption within a queue, reclamation, fair sharing, checkpoint preemption, healing. It does not hold against the
revocation of backfill, since the workload was backfilled on those terms; nor against failed nodes, time limits, deactivation,
and drained queues.
"""

from __future__ import annotations

from gangline.engine.model import Millis, VictimPolicy, accelerators_of
from gangline.engine.model.runtime import NEVER
from gangline.engine.queues.cluster_queue import queue_of
from gangline.engine.queues.workload_state import WorkloadState
from gangline.engine.text.wording import minute_text

#: Ends of protection are rounded up to multiples of this, so that gangs that started together wake others once.
STEP: Millis = 1000


def protected_until(gang: WorkloadState, now: Millis) -> Millis:
    """The time until which a holder is protected: after `now`, NEVER while it runs at all, or 0 if it is not.

    A workload that is being evicted is not protected.
    """
    policy = _policy(gang)
    if policy is None or gang.evicting:
        return 0
    if _for_good(gang, policy):
        return NEVER
    if not gang.admitted:  # it has quota but does not run yet: no work would be lost
        return 0
    end = gang.quota.admitted_at + policy.min_runtime
    return end if end > now else 0


def may_be_protected(gang: WorkloadState) -> bool:
    """Whether the policy can protect the workload at some time after its start."""
    policy = _policy(gang)
    return policy is not None and (policy.min_runtime > 0 or _for_good(gang, policy))


def stopped_too_often(gang: WorkloadState, most: int | None) -> bool:
    """Whether the workload was preempted `most` times already, for whatever reason; None = no limit."""
    return most is not None and gang.workload.preemptions >= most


def _policy(gang: WorkloadState) -> VictimPolicy | None:
    queue = queue_of(gang)
    return queue.config.victims if queue is not None else None


def _for_good(gang: WorkloadState, policy: VictimPolicy) -> bool:
    """Whether the workload is protected for good: by its priority, by its size (as requested, granted or not), or because it was
    preempted too often.
    """
    if policy.non_preemptible_from is not None and gang.priority >= policy.non_preemptible_from:
        return True
    if stopped_too_often(gang, policy.max_preemptions):
        return True
    if policy.non_preemptible_gpus is None:
        return False
    # all its pods count, those that have finished included
    return accelerators_of(gang.workload.pod_sets) >= policy.non_preemptible_gpus


def remark(until: Millis) -> str:
    """The remark for a gang that could preempt others if they were not protected; the first protection ends at `until`."""
    protected = ". Those that it could preempt are protected by the policy of their queue"
    return protected if until >= NEVER else f"{protected}, the first until {minute_text(until)}"


class Waits:
    """Queues with gangs that wait for the end of a protection, and when the first one ends."""

    def __init__(self) -> None:
        self._ends: dict[str, Millis] = {}

    def note(self, queue: str, until: Millis) -> None:
        if until < NEVER:
            end = -(-until // STEP) * STEP
            self._ends[queue] = min(end, self._ends.get(queue, end))

    def next_due(self) -> Millis | None:
        return min(self._ends.values(), default=None)

    def take_over(self, now: Millis) -> list[str]:
        """The queues whose gangs may try again, in order; they are removed."""
        over = sorted(queue for queue, end in self._ends.items() if end <= now)
        for queue in over:
            del self._ends[queue]
        return over
