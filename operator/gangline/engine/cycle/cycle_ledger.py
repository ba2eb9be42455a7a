"""The ledgers during one scheduling cycle: without the victims that its attempts chose, and with what these attempts assume.

Each attempt of a cycle sees what the earlier ones took. Nothing of that is copied: it is done on the ledgers themselves, and
`close` undoes it. The preemption candidates that are kept (`Preemptor.known`) are valid for as long as no queue of the tree
gets more than it had; whatever here may give a queue more drops them.
"""

from __future__ import annotations

from collections.abc import Generator, Iterable, Mapping, Sequence
from contextlib import contextmanager

from gangline.engine.cycle.attempt import Attempt
from gangline.engine.preemption.preemptor import Preemptor
from gangline.engine.preemption.simulated_removal import SimulatedRemoval
from gangline.engine.queues.cluster_queue import QuotaHold
from gangline.engine.queues.quota_holds import held_for_others
from gangline.engine.queues.workload_state import WorkloadState
from gangline.engine.quota.quota_ledger import Cell


class CycleLedger:
    """The ledgers of a cycle. `lasting`: victims stay removed from one attempt to the next, as nothing else reads the ledgers
    meanwhile.
    """

    def __init__(self, preemptor: Preemptor, quota_holds: Sequence[QuotaHold], *, lasting: bool) -> None:
        self._preemptor = preemptor
        self._quota_holds = quota_holds
        self._lasting = lasting
        #: victims chosen so far, by all attempts
        self.victims: dict[WorkloadState, None] = {}
        self._removal = SimulatedRemoval()
        self._removed = False
        self._assumed: list[tuple[Cell, int]] = []
        self._assumed_rooms: list[str] = []
        self.forget_candidates()

    def forget_candidates(self) -> None:
        """A queue has more than before: its workloads may be preempted now."""
        self._preemptor.known.clear()

    @contextmanager
    def as_seen_by(self, gang: WorkloadState) -> Generator[None]:
        """What is held for other preemptors counts as used."""
        with held_for_others(self._quota_holds, gang):
            yield

    # --- victims ------------------------------------------------------------------------------------------------------

    @contextmanager
    def without_victims(self) -> Generator[None]:
        """Take all victims that were chosen so far out of the ledgers for the length of a `with`."""
        if not self._removed:
            self._removed = True
            self._removal.remove(*self.victims)
        try:
            yield
        finally:
            if not self._lasting:
                self.with_victims()

    def with_victims(self) -> None:
        """Victims hold what they have, from now on."""
        if self._removed:
            self._removed = False
            self._removal.end()
            self.forget_candidates()

    def choose(self, victim: WorkloadState) -> None:
        self.victims[victim] = None
        if self._removed:
            self._removal.remove(victim)

    # --- assumptions --------------------------------------------------------------------------------------------------

    def assume(self, attempt: Attempt, usage: Mapping[Cell, int]) -> None:
        """Count the attempt's usage for the rest of the cycle."""
        if attempt.assignment.asks_for_places:
            key = f"{attempt.gang.key} (assumed)"
            self._preemptor.take_room(key, attempt.assignment, attempt.queue.name)
            self._assumed_rooms.append(key)
        known = self._preemptor.known
        over_quota = _count_over_quota(usage) if known else 0
        for cell, amount in usage.items():
            cell.add(amount)
            self._assumed.append((cell, amount))
        if known and _count_over_quota(usage) != over_quota:
            self.forget_candidates()

    @contextmanager
    def without_assumptions(self) -> Generator[None]:
        """Quota as it is held, and no more."""
        for cell, amount in self._assumed:
            cell.remove(amount)
        try:
            yield
        finally:
            for cell, amount in self._assumed:
                cell.add(amount)

    def close(self) -> None:
        """The cycle is over: its assumptions are void."""
        self.with_victims()
        for cell, amount in reversed(self._assumed):
            cell.remove(amount)
        for key in self._assumed_rooms:
            self._preemptor.node_ledger.end_assumption(key)


def _count_over_quota(cells: Iterable[Cell]) -> int:
    """How many of these cells and of those above them are over their quota. Roots do not count, since they cannot be asked to
    give anything back.
    """
    count = 0
    for cell in cells:
        while cell.parent is not None:
            count += cell.usage > cell.subtree
            cell = cell.parent
    return count
