"""Checkpoint preemption: running gangs are stopped for a reserved head at their checkpoints, where little work is lost.

Backfill alone cannot help a head that waits behind workloads that started before it. A gang that declares checkpoints loses
little when it stops, so it may be preempted for a head that is expected to end long before it. The victim then follows the head
in the queue's own order, by what it still has to run: none is stopped only to start again at once.

The cost is bounded: the work that all victims lose since their last checkpoints is at most a share of what the head has waited
so far, both in resource seconds of the head's scarcest resource; less where much was lost lately, and never more than the
queue's budget still covers (`loss_budget`).
"""

from __future__ import annotations

from collections.abc import Container, Iterator, Sequence
from typing import NamedTuple

from gangline.engine.backfill.loss_budget import Losses
from gangline.engine.backfill.reservation import Fits, Leaving, Reservation
from gangline.engine.backfill.timeline import Timeline
from gangline.engine.model import CheckpointPreemption, Millis, Preempt
from gangline.engine.model.runtime import NEVER
from gangline.engine.preemption.simulated_removal import OrderedRemoval, simulate
from gangline.engine.queues.cluster_queue import ClusterQueueState
from gangline.engine.queues.ordering import ANYWHERE, Estimates, flavors_of
from gangline.engine.queues.protection import protected_until, stopped_too_often
from gangline.engine.queues.timed_queue import TimedQueue
from gangline.engine.queues.workload_state import WorkloadState

#: the reason of these evictions
GAVE_WAY = "GaveWay"
#: A head that found no victims is examined again after this time, in milliseconds, or this share of its wait if that is
#: longer; then with the next change, and after the second time in any case.
PAUSE, PAUSE_SHARE = 5_000, 0.01
RECHECK, RECHECK_SHARE = 60_000, 0.05
#: Heads that are expected to run for less count as if they ran for this long, in milliseconds.
SHORTEST: Millis = 60_000


class _Offer(NamedTuple):
    """A gang that may be preempted, and what it would lose: resource · milliseconds."""

    cost: int
    newest: int
    uid: str
    gang: WorkloadState


class VictimsAtCheckpoints:
    """Finds the victims of checkpoint preemption."""

    def __init__(self, timeline: Timeline, estimates: Estimates, losses: Losses, fits: Fits, leaving: Leaving) -> None:
        self._timeline = timeline
        self._estimates = estimates
        self._fits = fits
        self._leaving = leaving
        self._losses = losses
        #: reserved workloads by uid: not examined before the first time, and examined at the second in any case
        self._again: dict[str, tuple[Millis, Millis]] = {}

    def next_due(self, now: Millis) -> Millis | None:
        """When a head without victims may find some, though nothing else happened."""
        again = [self._again.get(r.gang.uid) for r in self._timeline.reservations]
        return min((each[1] for each in again if each is not None and each[1] > now), default=None)

    def victims(
        self,
        reservation: Reservation,
        queue: ClusterQueueState,
        policy: CheckpointPreemption,
        spared: Container[str],
        now: Millis,
    ) -> list[WorkloadState]:
        """The victims that make room for the head: as few as possible, those with the smallest losses, so that the head fits once
        they and the leaving workloads are gone.

        Workloads whose uid is in `spared` are left out. [] if it does not help, costs too much, or the head fits without.
        """
        uid = reservation.gang.uid
        if uid in self._again and now < self._again[uid][0]:
            return []
        waited = max(0, now - reservation.gang.since)
        resource, amount = _scarcest(reservation.gang, queue)
        budget = round(policy.loss_share * self._losses.freedom(queue, resource) * amount * waited)
        asked = self._offers(reservation, queue, policy, resource, budget, now)
        offers = sorted(offer for offer in asked if offer.uid not in spared)
        found = self._choose(reservation, offers, budget)
        if not self._losses.cover(found, queue, now):
            found = []
        self._again.pop(uid, None)
        if not found:
            self._again = {
                r.gang.uid: self._again[r.gang.uid] for r in self._timeline.reservations if r.gang.uid in self._again
            }
            later = max(PAUSE, round(PAUSE_SHARE * waited)), max(RECHECK, round(RECHECK_SHARE * waited))
            self._again[uid] = now + later[0], now + later[1]
        return found

    def _choose(self, reservation: Reservation, offers: Sequence[_Offer], budget: int) -> list[WorkloadState]:
        """Choose the cheapest victims among the offers: as few as needed, within the total budget."""
        gangs = [offer.gang for offer in offers]
        if not gangs:
            return []
        leaving = self._leaving(reservation)
        if not self._timeline.might_fit_without(reservation, [*gangs, *leaving]):
            return []
        with simulate(removed=leaving):
            needed = [] if self._fits(reservation) else self._needed(reservation, gangs)
        cost = {offer.uid: offer.cost for offer in offers}
        return needed if sum(cost[gang.uid] for gang in needed) <= budget else []

    def _offers(
        self,
        reservation: Reservation,
        queue: ClusterQueueState,
        policy: CheckpointPreemption,
        resource: str,
        budget: int,
        now: Millis,
    ) -> Iterator[_Offer]:
        """The gangs that may be preempted, each alone within the budget."""
        head, pending = reservation.gang, queue.pending
        assert isinstance(pending, TimedQueue)
        turn = pending.turn(head)
        least, least_of_backfilled = self._least_left(reservation, policy, now)
        latest = now - policy.min_runtime
        end_of = self._timeline.end_of
        for gang in queue.holders.values():
            if not gang.workload.checkpoint or gang.quota.admitted_at > latest or gang.evicting or not gang.admitted:
                continue
            if stopped_too_often(gang, policy.max_preemptions):
                continue
            if queue.config.victims is not None and protected_until(gang, now):
                continue
            left = end_of(gang.key) - now
            if left < (least_of_backfilled if gang.backfill.backfilled else least) or gang.priority > head.priority:
                continue
            held = _held(gang, resource)
            cost = gang.unsaved(now) * held
            if not held or cost > budget or pending.turn_with(gang, min(left, NEVER)) <= turn:
                continue
            if self._losses.cover((gang,), queue, now):
                yield _Offer(cost, -gang.quota.reserved_at, gang.uid, gang)

    def _least_left(self, reservation: Reservation, policy: CheckpointPreemption, now: Millis) -> tuple[float, float]:
        """The least expected remaining runtime of a victim, in milliseconds; and of a backfilled one.

        For a head that has waited for as long as it runs, half of that is enough: an estimate that is too long must not block
        it.
        """
        head, hold = reservation.gang, reservation.hold
        on = ANYWHERE if hold is None else flavors_of(hold.places)
        length = max(SHORTEST, self._estimates.length(head, 0.5, on))
        least = policy.longer_than * length * length / (length + max(0, now - head.since))
        if policy.longer_than_backfilled is None:
            return least, least
        return least, min(least, policy.longer_than_backfilled * length)

    def _needed(self, reservation: Reservation, gangs: Sequence[WorkloadState]) -> list[WorkloadState]:
        """The first of these without which the head fits; of these, the one that loses most is spared first, if it is not
        needed.
        """
        with OrderedRemoval(gangs, 0) as removal:
            return removal.spare(lambda: self._fits(reservation)) if self._remove_fewest(reservation, removal) else []

    def _remove_fewest(self, reservation: Reservation, removal: OrderedRemoval) -> bool:
        """Remove the first few without which the head fits; False if it does not fit even without all."""
        least = self._timeline.fewest_without(reservation, removal.order)
        if least is None:
            return False
        removal.first(least)
        if self._fits(reservation):
            return True
        low, high = least + 1, len(removal.order)
        removal.first(high)
        if low > high or not self._fits(reservation):
            return False
        while low < high:
            middle = (low + high) // 2
            removal.first(middle)
            if self._fits(reservation):
                high = middle
            else:
                low = middle + 1
        removal.first(high)
        return True


def _held(gang: WorkloadState, resource: str) -> int:
    return sum(amount for (_, name), amount in gang.quota.usage.items() if name == resource)


def _scarcest(gang: WorkloadState, queue: ClusterQueueState) -> tuple[str, int]:
    """The resource of which the gang asks for the largest share of what its queue can have, and the amount."""
    nominal: dict[str, int] = {}
    for (_, resource), cell in queue.cells.items():
        nominal[resource] = nominal.get(resource, 0) + cell.nominal
    wanted = gang.requests()
    shares = [(amount / nominal[name], name) for name, amount in wanted.items() if amount and nominal.get(name)]
    if not shares:
        return "", 0
    _, scarcest = max(shares)
    return scarcest, wanted[scarcest]


def decision(gang: WorkloadState, head: WorkloadState) -> Preempt:
    message = (
        f"The workload gives way, at its last checkpoint, to workload {head.key} (UID: {head.uid}), "
        "which is expected to be done long before it"
    )
    return Preempt(gang.key, gang.uid, GAVE_WAY, message, by=head.key, by_uid=head.uid)
