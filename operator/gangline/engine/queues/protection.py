"""Which running workloads are protected from preemption, and until when: what the policy of their own queue says.

Protection holds against every workload that wants the room, of the same queue or another one, however it would be made: by
preemption within a queue, reclamation, fair sharing, checkpoint preemption, or healing. It does not hold against the revocation
of backfill, on which terms a workload was backfilled; nor against nodes that fail, limits of run time, deactivation, and queues
that are drained.
"""

from __future__ import annotations

from gangline.engine.model import Millis, VictimPolicy
from gangline.engine.model.runtime import NEVER
from gangline.engine.queues.cluster_queue import queue_of
from gangline.engine.queues.workload_state import WorkloadState
from gangline.engine.text.accelerators import accelerators_of
from gangline.engine.text.wording import minute_text

#: Ends of protection are waited for in steps of this, so that gangs that started together wake others once.
STEP: Millis = 1000


def protected_until(gang: WorkloadState, now: Millis) -> Millis:
    """Until when a holder is not to be stopped: a time after `now`, NEVER while it runs at all, or 0 if it may be.

    A workload that is being evicted is not protected any more.
    """
    policy = _policy(gang)
    if policy is None or gang.evicting:
        return 0
    if _for_good(gang, policy):
        return NEVER
    if not gang.admitted:  # it has quota but does not run yet: nothing is lost with it
        return 0
    end = gang.admitted_at + policy.min_runtime
    return end if end > now else 0


def may_be_protected(gang: WorkloadState) -> bool:
    """Whether there is a time, once it has started, at which it is not to be stopped."""
    policy = _policy(gang)
    return policy is not None and (policy.min_runtime > 0 or _for_good(gang, policy))


def stopped_too_often(gang: WorkloadState, most: int | None) -> bool:
    """It was preempted `most` times already, whatever for; None = there is no limit."""
    return most is not None and gang.workload.preemptions >= most


def _policy(gang: WorkloadState) -> VictimPolicy | None:
    queue = queue_of(gang)
    return queue.config.victims if queue is not None else None


def _for_good(gang: WorkloadState, policy: VictimPolicy) -> bool:
    """By its priority, by what it asks for whether or not it was granted all of it, or since it was stopped too often."""
    if policy.non_preemptible_from is not None and gang.priority >= policy.non_preemptible_from:
        return True
    if stopped_too_often(gang, policy.max_preemptions):
        return True
    if policy.non_preemptible_gpus is None:
        return False
    # all its pods count, those that have finished by now included
    return accelerators_of(gang.workload.pod_sets) >= policy.non_preemptible_gpus


def remark(until: Millis) -> str:
    """What a gang is told that could preempt others if they were not protected; the first of them is so `until` then."""
    protected = ". Those that it could preempt are protected by the policy of their queue"
    return protected if until >= NEVER else f"{protected}, the first until {minute_text(until)}"


class Waits:
    """Queues with gangs that wait for others not to be protected any more, and when the first of those is not."""

    def __init__(self) -> None:
        self._ends: dict[str, Millis] = {}

    def note(self, queue: str, until: Millis) -> None:
        if until < NEVER:
            end = -(-until // STEP) * STEP
            self._ends[queue] = min(end, self._ends.get(queue, end))

    def next_due(self) -> Millis | None:
        return min(self._ends.values(), default=None)

    def take_over(self, now: Millis) -> list[str]:
        """The queues whose gangs may try again, in order; they are not waited for any more."""
        over = sorted(queue for queue, end in self._ends.items() if end <= now)
        for queue in over:
            del self._ends[queue]
        return over
