"""Revocation: backfilled workloads are preempted again so that a reserved workload can start when it was promised.

Which workloads passed which reservation is kept, and updated only for those that the timeline reports as changed.
"""

from __future__ import annotations

from collections.abc import Container, Iterable, Iterator, Sequence, Set

from gangline.engine.backfill.head_delay import BACKFILL, BUDGET, EARLY_END, STOPPING
from gangline.engine.backfill.loss_budget import Losses, at_risk
from gangline.engine.backfill.reservation import FAR, Fits, Leaving, Reservation, follows
from gangline.engine.backfill.timeline import Timeline
from gangline.engine.model import Backfill, Millis, Preempt
from gangline.engine.model.runtime import NEVER
from gangline.engine.preemption.simulated_removal import OrderedRemoval, simulate
from gangline.engine.queues.cluster_queue import ClusterQueueState, queue_of
from gangline.engine.queues.ordering import Estimates
from gangline.engine.queues.timed_queue import TimedQueue
from gangline.engine.queues.workload_state import WorkloadState
from gangline.engine.state.store import Store
from gangline.engine.text.change_log import ChangeLog

#: the reason of these evictions
REVOKED = "BackfillRevoked"
#: A head whose victims the loss budget did not cover is examined again after this time, in milliseconds, or this share of its
#: wait if that is longer.
PAUSE, PAUSE_SHARE = 60_000, 0.02


class _Passers:
    """The workloads that were backfilled before one reservation and are not being evicted: when each is overdue."""

    __slots__ = ("gangs", "newest_first", "seen")

    def __init__(self) -> None:
        #: the end of the timeline's log that was processed
        self.seen = ChangeLog.UNREAD
        self.gangs: dict[str, tuple[Millis, WorkloadState]] = {}
        self.newest_first: list[tuple[Millis, WorkloadState]] = []


class Revoking:
    """Finds the workloads to revoke."""

    def __init__(
        self, store: Store, timeline: Timeline, estimates: Estimates, losses: Losses, fits: Fits, leaving: Leaving
    ) -> None:
        self._store = store
        self._timeline = timeline
        self._estimates = estimates
        self._fits = fits
        self._leaving = leaving
        self._losses = losses
        #: reserved workloads by uid whose victims the loss budget does not cover, and when they are examined again
        self._unpaid: dict[str, Millis] = {}
        self._passers: dict[Reservation, _Passers] = {}

    def passed_by(self, reservation: Reservation) -> list[WorkloadState]:
        """The workloads that were backfilled before it while it waited, and are not being evicted."""
        return [gang for _, gang in self._passed_by(reservation) if gang.holds and not gang.evicting]

    def awaited_by(self, reservation: Reservation) -> list[WorkloadState]:
        """The workloads that passed it and on whose end it counts: not those that may stay beside it, nor those that are
        expected to stay longer, so that it was planned beside them.

        It only looks: ranks that are kept with workloads when they are first asked for are not asked for here, so decisions do
        not depend on it.
        """
        own, end_of = self._store.queues[reservation.queue], self._timeline.end_of
        return [
            gang
            for key, gang in self._timeline.backfilled_holders.gangs.items()
            if key not in reservation.beside
            and not gang.evicting
            and end_of(key) <= reservation.start
            and (key in reservation.gang.backfill.passed_by or _started_meanwhile(gang, reservation, own))
        ]

    def victims(self, reservation: Reservation, any_: bool, spared: Container[str], now: Millis) -> list[WorkloadState]:
        """The victims that make room for the head: as few as possible of those that may be revoked, newest first, so that the
        head fits once the leaving workloads are gone.

        `any_`: every workload backfilled before it may be, else only overdue ones; never those whose uid is in `spared`. [] if
        that does not help, if the head fits without, or if the loss budget does not cover it.
        """
        if now < self._unpaid.get(reservation.gang.uid, 0):
            return []
        self._unpaid.pop(reservation.gang.uid, None)
        able = [
            gang
            for when, gang in self._passed_by(reservation)
            if (any_ or when <= now) and not gang.evicting and gang.uid not in spared
        ]
        if not able:
            return []
        leaving = self._leaving(reservation)
        if not self._timeline.might_fit_without(reservation, [*able, *leaving]):
            return []
        with simulate(removed=leaving), OrderedRemoval(able, 0) as removal:
            if self._fits(reservation):
                return []
            removal.first(len(able))
            if not self._fits(reservation):
                return []
            found = removal.spare(lambda: self._fits(reservation))
        return self._paid(reservation, found, able, leaving, now)

    def _paid(
        self,
        reservation: Reservation,
        found: list[WorkloadState],
        able: Sequence[WorkloadState],
        leaving: Sequence[WorkloadState],
        now: Millis,
    ) -> list[WorkloadState]:
        """The victims that are `found` if the budget covers them, else those that lose least, else none."""
        head = self._store.queues[reservation.queue]
        if self._losses.cover(found, head, now):
            return found
        covered = [gang for gang in able if self._losses.cover((gang,), head, now)]
        cheapest = sorted(covered, key=lambda gang: (_cost(gang, now), gang.uid))
        with simulate(removed=leaving), OrderedRemoval(cheapest) as removal:
            found = removal.spare(lambda: self._fits(reservation)) if self._fits(reservation) else []
        if found and self._losses.cover(found, head, now):
            return found
        gang = reservation.gang
        self._unpaid = {r.gang.uid: t for r in self._timeline.reservations if (t := self._unpaid.get(r.gang.uid))}
        self._unpaid[gang.uid] = now + max(PAUSE, round(PAUSE_SHARE * max(0, now - gang.since)))
        return []

    def unpaid(self, gang: WorkloadState) -> bool:
        """Whether the head would start, if the loss budget covered its victims."""
        return gang.uid in self._unpaid

    def next_due(self, now: Millis) -> Millis | None:
        """When next the loss budget may cover the victims of a head that it did not cover before."""
        return min((at for at in self._unpaid.values() if at > now), default=None)

    def overdue_at(self, gang: WorkloadState) -> Millis:
        """When a backfilled workload becomes overdue, because it has run longer than it was admitted for."""
        queue = queue_of(gang)
        policy = queue.config.backfill if queue is not None else None
        policy = policy or Backfill()
        length = self._estimates.length(gang, policy.candidate)
        return NEVER if length >= FAR else self._timeline.has_run_for(gang, round(length * policy.overdue_factor))

    def overdue_times(self, now: Millis) -> Iterable[Millis]:
        """The times from `now` on at which workloads that passed a reservation become overdue."""
        for reservation in self._timeline.reservations:
            policy = self._store.queues[reservation.queue].config.backfill
            if policy is not None and policy.revoke == "Overdue":
                yield from (when for when, _ in self._passed_by(reservation) if now < when < FAR)

    def decision(self, gang: WorkloadState, head: WorkloadState, now: Millis) -> Preempt:
        overdue = self.overdue_at(gang) <= now
        why = (
            "the workload ran longer than it was let in for"
            if overdue
            else "the workload was let in only until that one could start"
        )
        message = f"Backfill was revoked to let workload {head.key} (UID: {head.uid}) start: {why}"
        return Preempt(gang.key, gang.uid, REVOKED, message, by=head.key, by_uid=head.uid)

    # --- who passed whom ----------------------------------------------------------------------------------------------

    def _passed_by(self, reservation: Reservation) -> list[tuple[Millis, WorkloadState]]:
        """The workloads that were backfilled before it and are not being evicted, newest first; and when each is overdue."""
        backfilled_holders = self._timeline.backfilled_holders
        known = self._passers.get(reservation)
        news = backfilled_holders.log.since(known.seen) if known is not None else None
        if known is None or news is None:
            self._passers = {each: self._passers[each] for each in self._timeline.reservations if each in self._passers}
            known = self._passers[reservation] = _Passers()
            self._look_again(known, backfilled_holders.gangs, reservation)
        elif news:
            own = self._store.queues[reservation.queue]
            others = [key for key, (_, gang) in known.gangs.items() if gang.queue is not own]  # their quota moves
            self._look_again(known, {*news, *others}, reservation)
        known.seen = backfilled_holders.log.end
        return known.newest_first

    def _look_again(self, known: _Passers, keys: Iterable[str], reservation: Reservation) -> None:
        own, gangs = self._store.queues[reservation.queue], self._timeline.backfilled_holders.gangs
        for key in keys:
            known.gangs.pop(key, None)
            gang = gangs.get(key)
            if gang is not None and not gang.evicting and _passed(gang, reservation, own):
                known.gangs[key] = self.overdue_at(gang), gang
        known.newest_first = sorted(known.gangs.values(), key=lambda each: (-each[1].quota.reserved_at, each[1].uid))


def _cost(gang: WorkloadState, now: Millis) -> int:
    return at_risk(gang, 0, now) * max(gang.quota.usage.values(), default=0)


def _passed(gang: WorkloadState, reservation: Reservation, own: ClusterQueueState) -> bool:
    """Whether the workload is in the same tree, started while the reserved one waited, and follows it in order."""
    queue = queue_of(gang)
    if queue is None or queue.root is not own.root:
        return False
    if gang.key in reservation.gang.backfill.passed_by:
        return True
    if not _started_meanwhile(gang, reservation, own):
        return False
    pending, head = own.pending, reservation.gang
    if queue is own:
        return isinstance(pending, TimedQueue) and pending.turn(gang) > pending.turn(head)
    return follows(gang, head)


def _started_meanwhile(gang: WorkloadState, reservation: Reservation, own: ClusterQueueState) -> bool:
    """Whether the workload started while the reserved one waited, in its queue, or with quota that another queue of its tree
    borrows.
    """
    queue = queue_of(gang)
    if queue is None or queue.root is not own.root or gang.quota.reserved_at <= reservation.gang.since:
        return False
    return queue is own or queue.over_quota(gang.quota.usage)


# --- delay causes -----------------------------------------------------------------------------------------------------
# Why a reserved head waits: which of the workloads that were backfilled before it keep it from starting right now.
#
# All that passed it while it waited count, whether its reservation was made anew meanwhile or not.


class DelayCauses:
    """Finds the cause that `head_delay` counts."""

    def __init__(self, store: Store, timeline: Timeline, revoking: Revoking, fits: Fits, leaving: Leaving) -> None:
        self._store = store
        self._leaving = leaving
        self._timeline = timeline
        self._revoking = revoking
        self._fits = fits

    def of(self, reservation: Reservation, now: Millis) -> str:
        """The cause of a head's delay; "" = it could not start without backfilled workloads either, or could start beside
        them.
        """
        stopping = self._stopping(reservation)
        passed = self._revoking.passed_by(reservation)
        everyone = [*passed, *stopping]
        if not everyone or not self._fits_without(reservation, everyone) or self._fits(reservation):
            return ""
        if stopping and self._fits_without(reservation, stopping):
            return STOPPING
        ending = self._leaving(reservation)
        if ending and self._fits_without(reservation, ending):
            return STOPPING  # a revoked workload would have to end first, too
        policy = self._store.queues[reservation.queue].config.backfill
        avoidable = BUDGET if self._revoking.unpaid(reservation.gang) else BACKFILL
        if policy is not None and policy.revoke == "Any":
            return avoidable
        overdue = [gang for gang in passed if self._revoking.overdue_at(gang) <= now]
        return avoidable if overdue and self._fits_without(reservation, [*overdue, *stopping]) else EARLY_END

    def _stopping(self, reservation: Reservation) -> list[WorkloadState]:
        """Backfilled workloads that passed the head and are being evicted. Forgets whoever holds nothing any more."""
        head = reservation.gang
        holders = dict(self._holders(head.backfill.passed_by))
        head.backfill.passed_by = set(holders)
        return [gang for gang in holders.values() if gang.evicting and gang.backfill.backfilled]

    def _holders(self, keys: Set[str]) -> Iterator[tuple[str, WorkloadState]]:
        for key in keys:
            gang = self._store.gangs.get(key)
            if gang is not None and gang.holds:
                yield key, gang

    def _fits_without(self, reservation: Reservation, gangs: Sequence[WorkloadState]) -> bool:
        if not self._timeline.might_fit_without(reservation, gangs):
            return False
        with simulate(removed=gangs):
            return self._fits(reservation)
