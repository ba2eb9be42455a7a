"""Recalls: others leave the nodes of a soft window once a workload needs them for whom the window is.

Others may use the nodes of a soft window as if there were none. When a workload waits that the window is for, does not fit, and
would fit without others on these nodes, the fewest of them are recalled: they are asked to save their work, and are stopped after
the window's notice, not before it begins. From then on nobody else starts there until that workload has started, or waits no
more. Whoever needs no longer what was recalled for it recalls nobody: a recall that has not been carried out ends with its cause.

All of it follows from the present in each round. Only the deadlines are kept: a workload that has one keeps it.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from typing import Final

from gangline.engine.flavors.assignment import Assignment, Mode
from gangline.engine.flavors.flavor_assigner import Assigner
from gangline.engine.model import Decision, Millis, Recall, ReservedWindow
from gangline.engine.model.units import SECOND
from gangline.engine.preemption.preemptor import Preemptor, without_victims
from gangline.engine.preemption.simulated_removal import OrderedRemoval, SimulatedRemoval
from gangline.engine.queues.cluster_queue import ClusterQueueState, queue_of
from gangline.engine.queues.workload_state import WorkloadState
from gangline.engine.quota.quota_ledger import Cell
from gangline.engine.state.lifecycle import recall_text, save_by
from gangline.engine.state.store import Store
from gangline.engine.text.decision_error import DecisionError
from gangline.engine.text.wording import minute_text

#: waiting workloads that are regarded in a round, of each queue and in all
MOST: Final = 32
#: of longer queues only one workload of each shape is regarded
MANY: Final = 2_000


class Recalls:
    def __init__(self, store: Store) -> None:
        self._store = store
        self._plain = without_victims(store.settings, store.topology, store.capacity, store.quotas_ahead)
        #: the workloads, by uid, that may need others to leave and are about to be tried: nobody is recalled for them before
        self._untried: set[str] = set()

    @property
    def undecided(self) -> bool:
        """Whether somebody may be recalled though no fact arrives."""
        return bool(self._untried)

    def run(self, now: Millis) -> list[Decision]:
        """Bring recalls and the marks of soft windows up to date. Returns what those learn who are recalled now."""
        store = self._store
        windows = store.windows.soft_ones() if store.windows else []
        if not (windows or store.windows.needed or store.recalls):
            self._untried.clear()
            return []
        plan = _Plan(store, self._plain, windows, self._untried)
        try:
            for gang in plan.waiting():
                try:
                    plan.regard(gang, now)
                except Exception as error:
                    raise DecisionError(gang.key) from error
        finally:
            plan.end()
        self._untried = plan.untried
        if store.windows.need(frozenset(plan.needed)):
            store.regard_windows()
            store.settle()
        before = dict(store.recalls)
        leaving = ((key, store.gangs.get(key)) for key in before)
        plan.recalls |= {key: before[key] for key, gang in leaving if gang is not None and gang.holds and gang.evicting}
        store.recalls.clear()
        store.recalls.update(plan.recalls)
        for key in sorted(before.keys() ^ plan.recalls.keys()):
            if (gang := store.gangs.get(key)) is not None:
                store.reviews[key] = gang
        new = (recall for key, recall in sorted(plan.recalls.items()) if key not in before)
        return [save_by(store.gangs[recall.workload], recall.until, recall_text(recall)) for recall in new]

    def remark(self, gang: WorkloadState) -> str:
        """What is added to the reason of a workload for which others are recalled; "" for others."""
        mine = [recall for recall in self._store.recalls.values() if recall.by == gang.key]
        if not mine:
            return ""
        others = f" and {len(mine) - 1} more" if len(mine) > 1 else ""
        first, last = min(recall.workload for recall in mine), max(recall.until for recall in mine)
        return f". The workload starts once {first}{others} left nodes of a reservation, by {minute_text(last)}"


class _Plan:
    """One look at all soft windows: ledgers in which those whom they are for have started one after the other."""

    def __init__(
        self, store: Store, plain: Preemptor, windows: list[ReservedWindow], tried_by_now: Collection[str]
    ) -> None:
        self._store = store
        self._plain = plain
        self._windows = windows
        self._tried_by_now = tried_by_now
        self._trials: list[SimulatedRemoval] = []
        self._taken: list[tuple[Cell, int]] = []
        self._assumed: list[str] = []
        #: queues of which a workload would not fit even so that goes first
        self._blocked: set[str] = set()
        self._left: set[str] = set()
        self._leaving_left = False
        #: window -> the workloads that may be recalled from its nodes
        self._intruders: dict[str, dict[str, WorkloadState]] = {}
        self.needed: set[str] = set()
        self.untried: set[str] = set()
        self.recalls: dict[str, Recall] = {}

    def end(self) -> None:
        """The ledgers are again as they were."""
        for cell, amount in reversed(self._taken):
            cell.remove(amount)
        for key in self._assumed:
            self._plain.node_ledger.end_assumption(key)
        for trial in reversed(self._trials):
            trial.end()

    # --- who waits ----------------------------------------------------------------------------------------------------

    def waiting(self) -> list[WorkloadState]:
        """The waiting workloads that could start, whom a window is for, in order."""
        found = [gang for name in sorted(self._queues()) for gang in self._first_of(self._store.queues[name])]
        return sorted(found, key=lambda gang: (-gang.priority, gang.since, gang.uid))[:MOST]

    def _queues(self) -> set[str]:
        """The ClusterQueues in which somebody may wait whom a window is for."""
        store, found = self._store, set[str]()
        for window in self._windows:
            found |= window.cluster_queues
            routes = (store.local_queues.get(key) for key in window.local_queues)
            found |= {route.cluster_queue for route in routes if route is not None}
            for key in store.windows.submitters if window.users else ():
                queue = queue_of(gang) if (gang := store.gangs.get(key)) is not None else None
                found |= {queue.name} if queue is not None else set()
        return found & store.queues.keys()

    def _first_of(self, queue: ClusterQueueState) -> list[WorkloadState]:
        store, policy = self._store, self._store.settings.pods_ready
        if not queue.in_service or (policy is not None and policy.block_admission and store.unready):
            return []
        pending = queue.pending
        everyone = pending.in_queue_order() if pending.total() <= MANY else list(pending.one_of_each())
        ready = (g for g in everyone[: 1 if pending.strict else None] if not g.closed_gates and store.may_try(g))
        return [gang for _, gang in zip(range(MOST), (each for each in ready if self._mine(each)), strict=False)]

    def _mine(self, gang: WorkloadState) -> list[ReservedWindow]:
        return [window for window in self._windows if self._store.windows.is_for(window, gang)]

    # --- what each needs ----------------------------------------------------------------------------------------------

    def regard(self, gang: WorkloadState, now: Millis) -> None:
        """Let a workload start if it can, once others have left the nodes of its windows."""
        queue = queue_of(gang)
        if queue is None or queue.name in self._blocked:
            return
        mine = self._mine(gang)
        others, victims = self._others(mine), list[WorkloadState]()
        assignment = self._fit(gang, queue, now)
        if assignment is None:
            self._let_leave()
            assignment = self._fit(gang, queue, now)
        if assignment is None:
            victims = self._fewest(gang, queue, [each for each in others if each.key not in self._left], now)
            assignment = self._fit(gang, queue, now) if victims else None
        if assignment is None:
            if queue.reserves or queue.pending.strict:
                self._blocked.add(queue.name)
            return
        self._start(gang, queue, assignment)
        untried = _is_untried(gang, queue) and gang.uid not in self._tried_by_now
        if (
            untried or victims or any(each.evicting for each in others)
        ):  # others must not take its room before it starts
            self.needed.update(window.name for window in mine)
        if untried and victims:
            self.untried.add(gang.uid)
        for victim in victims:
            if not untried or victim.key in self._store.recalls:
                self.recalls[victim.key] = self._recall(victim, gang, mine, now)

    def _fit(self, gang: WorkloadState, queue: ClusterQueueState, now: Millis) -> Assignment | None:
        with self._store.windows.at_start(gang, now):
            found = Assigner(gang, queue, self._plain).assign(None)
        return found if found.mode is Mode.FIT else None

    def _start(self, gang: WorkloadState, queue: ClusterQueueState, assignment: Assignment) -> None:
        """Give a workload its quota and its room, for the rest of this look."""
        for cell, amount in assignment.usage.items():
            cell.add(amount)
            self._taken.append((cell, amount))
        self._assumed.append(f"{gang.key} (after recalls)")
        self._plain.take_room(self._assumed[-1], assignment, queue.name)

    # --- who leaves ---------------------------------------------------------------------------------------------------

    def _others(self, mine: Iterable[ReservedWindow]) -> list[WorkloadState]:
        """Those on the nodes of these windows that none of the windows there is for. First those that were recalled already,
        then by priority, the newest first.
        """
        found = {key: each for window in mine for key, each in self._on(window).items()}
        recalled = self._store.recalls
        return sorted(
            found.values(),
            key=lambda each: (each.key not in recalled, each.priority, -each.quota.reserved_at, each.uid),
        )

    def _on(self, window: ReservedWindow) -> dict[str, WorkloadState]:
        """The holders on the nodes of a window that it is not for. Those whom another soft window of the same node is for stay:
        otherwise two windows would recall each other's workloads in turn.
        """
        windows, known = self._store.windows, self._intruders.get(window.name)
        if known is None:
            known = self._intruders[window.name] = {}
            for node in windows.nodes_of(window.name):
                here = [each for each in self._windows if each in windows.on(node)]
                for holder in self._store.holders_on(node):
                    if holder.holds and not any(windows.is_for(each, holder) for each in here):
                        known[holder.key] = holder
        return known

    def _let_leave(self) -> None:
        """Those who are being evicted, for whatever reason, have left."""
        if not self._leaving_left:
            self._leaving_left = True
            holders = (each for queue in self._store.queues.values() for each in queue.holders.values())
            self._remove(each for each in holders if each.evicting)

    def _remove(self, gangs: Iterable[WorkloadState]) -> None:
        """Let these have left, for the rest of this look."""
        gone = list({gang.key: gang for gang in gangs if gang.key not in self._left}.values())
        if gone:
            trial = SimulatedRemoval()
            self._trials.append(trial)
            trial.remove(*gone)
            self._left.update(gang.key for gang in gone)

    def _fewest(
        self, gang: WorkloadState, queue: ClusterQueueState, others: list[WorkloadState], now: Millis
    ) -> list[WorkloadState]:
        """The first few of these without which the workload fits, of which each is needed; they have left then. [] if it does not
        fit without all of them.
        """

        def fits() -> bool:
            return self._fit(gang, queue, now) is not None

        if not others:
            return []
        with OrderedRemoval(others) as removal:
            if not fits():
                return []
            low, high = 1, len(others)
            while low < high:
                middle = (low + high) // 2
                removal.first(middle)
                if fits():
                    high = middle
                else:
                    low = middle + 1
            removal.first(high)
            needed = removal.spare(fits)
        self._remove(needed)
        return needed

    def _recall(
        self, victim: WorkloadState, gang: WorkloadState, mine: Iterable[ReservedWindow], now: Millis
    ) -> Recall:
        """A workload that has a deadline keeps it. A new one is a whole second, as statuses keep it."""
        known = self._store.recalls.get(victim.key)
        first = next(window for window in mine if victim.key in self._on(window))
        until = -(-max(now + first.notice, first.begin) // SECOND) * SECOND if known is None else known.until
        return Recall(victim.key, first.reservation, until, gang.key)


def _is_untried(gang: WorkloadState, queue: ClusterQueueState) -> bool:
    """Whether the workload was not found to fit nowhere yet."""
    if queue.pending.strict:
        return queue.pending.tried != gang.uid
    return gang.bucket is not None and not gang.bucket.blocked
