"""The idle budget of a reserved head: from when on others are held back for it.

Workloads that are held back for a head leave resources idle until it starts: a few for minutes if it is small, half of the
cluster for hours if it is huge. With an idle share, a head holds others back once its wait pays for that: what is planned to be
idle until its start is at most that share of what its queue could use, times its wait so far, both in resource seconds of the
head's scarcest resource. Until then its start is planned and nothing is promised, and every workload that fits may start. From
then on others are held back until the head starts, whatever the rest of the plan costs.

A wait grows with time, and a plan costs at most all that the head needs until the last run has ended: unless the share is 0,
others are held back for every head with a known start at some time.
"""

from __future__ import annotations

from gangline.engine.backfill.reservation import FAR, HeldCapacity, Reservation
from gangline.engine.backfill.timeline import Timeline
from gangline.engine.model import Millis
from gangline.engine.queues.cluster_queue import ClusterQueueState
from gangline.engine.queues.promises import size_class
from gangline.engine.quota.quota_ledger import Cell
from gangline.engine.state.store import Store

_MILLION = 1_000_000


class IdleBudget:
    """Decides which reservations hold others back, and has their starts promised (`queues.promises`)."""

    def __init__(self, store: Store, timeline: Timeline) -> None:
        self._store = store
        self._timeline = timeline
        #: the uids of heads whose wait did not pay yet in this `decide`
        self._unpaid: set[str] = set()

    def begin(self) -> None:
        """A new `decide`."""
        self._unpaid.clear()

    def planned(self, reservation: Reservation, now: Millis) -> None:
        """A start was just planned: others are held back for it at once, if it needs no budget."""
        if self._share(reservation) is None:
            self._hold_back(reservation, now)

    def holds_back(self, reservation: Reservation) -> bool:
        """Whether others are held back for it: its wait has paid for that, or needs no budget, its start was promised, or is not
        known.

        A head without a known start holds back no workload with a known end.
        """
        unknown = reservation.hold is None or reservation.start >= FAR
        gang = reservation.gang
        bound = gang.backfill.holds_back or self._store.promises.promised(gang) is not None
        return unknown or bound or self._share(reservation) is None

    def holds_back_at(self, reservation: Reservation, now: Millis) -> bool:
        """The same at this moment, if its wait pays for it by now. The timeline must be in sync."""
        gang = reservation.gang
        if self.holds_back(reservation):
            return True
        if gang.uid not in self._unpaid and self._paid(reservation, now):
            self._hold_back(reservation, now)
            return True
        self._unpaid.add(gang.uid)
        return False

    def _share(self, reservation: Reservation) -> float | None:
        policy = self._store.queues[reservation.queue].config.backfill
        return policy.idle_share if policy is not None else None

    def _paid(self, reservation: Reservation, now: Millis) -> bool:
        share, hold, queue = self._share(reservation), reservation.hold, self._store.queues[reservation.queue]
        scarcest = None if hold is None else _scarcest(hold, queue)
        if share is None or hold is None or scarcest is None:
            return True
        waited = max(0, now - reservation.gang.since)
        planned = self._planned(scarcest, hold.usage[scarcest.fr], now, reservation.start)
        return _MILLION * planned <= round(share * _MILLION) * scarcest.potential * waited

    def _hold_back(self, reservation: Reservation, now: Millis) -> None:
        """Others are held back for it from now on. The first plan of a wait counts, and may become a promise."""
        gang, hold, queue = reservation.gang, reservation.hold, self._store.queues[reservation.queue]
        if gang.backfill.holds_back or reservation.start >= FAR or hold is None:
            return
        gang.backfill.holds_back = True
        scarcest = _scarcest(hold, queue)
        share = 0.0 if scarcest is None else hold.usage[scarcest.fr] / scarcest.potential
        mode = queue.config.fallen_back
        self._store.promises.plan(gang, queue.name, size_class(share), now, reservation.start, mode)

    def _planned(self, cell: Cell, need: int, now: Millis, start: Millis) -> int:
        """What would be kept idle until the start, as runs end: of what is needed at most, in resource · milliseconds."""
        idle, since, total = cell.available(), now, 0
        for end, amount in self._timeline.releases(cell.node.root, cell.fr, start):
            if idle >= need:
                break
            at = max(now, end)
            total += max(0, idle) * (at - since)
            idle, since = idle + amount, at
        return total + min(need, max(0, idle)) * max(0, start - since)


def _scarcest(hold: HeldCapacity, queue: ClusterQueueState) -> Cell | None:
    """The cell that is scarcest for the head: of what it will hold, it takes the largest share of what its queue could use. None
    if its queue could use nothing.
    """
    cells = [cell for fr, amount in hold.usage.items() if amount > 0 and (cell := queue.cell(fr)).potential > 0]
    return max(cells, key=lambda cell: (hold.usage[cell.fr] / cell.potential, cell.fr), default=None)
