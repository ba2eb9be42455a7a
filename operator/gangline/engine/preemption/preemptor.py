"""The preemptor: finds the workloads that have to be preempted so that a gang fits, no more than needed, least valuable first.

This module chooses victims the classic way, by priority and borrowing; `fair_victims` does it by shares. A policy may protect
workloads (`protection`) and set which of the others are chosen (`victim_search`). Every trial runs on the ledger itself:
victims are removed, one by one, and all are put back before the answer is given.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from itertools import chain

from gangline.engine.flavors.assignment import Assignment, Grade, Mode
from gangline.engine.model import Millis, Settings
from gangline.engine.nodes.capacity import Capacity
from gangline.engine.nodes.capacity_request import CapacityRequest
from gangline.engine.occupancy.node_ledger import NOWHERE, NodeLedger
from gangline.engine.preemption.candidates import (
    IN_QUEUE,
    NO_CANDIDATES,
    RECLAMATION,
    Known,
    candidates_elsewhere,
    own_candidates,
    reached_nominal,
    still_candidate,
)
from gangline.engine.preemption.simulated_removal import simulate
from gangline.engine.preemption.victim_search import (
    LEAST_LOST_WORK,
    Need,
    Victim,
    best_attempt,
    choice_of,
    greedy_attempt,
)
from gangline.engine.queues.cluster_queue import ClusterQueueState
from gangline.engine.queues.protection import Waits
from gangline.engine.queues.workload_state import WorkloadState
from gangline.engine.quota.quota_ledger import Cell
from gangline.engine.text.fixes import PODS_IN_SEARCH
from gangline.engine.topology.topologies import Topologies


class Preemptor:
    """Answers the scheduler's two questions about preemption; `find` is the algorithm that chooses victims.

    For a gang that lacks one resource and asks for no other, both questions are the same: the answer is computed once. `now`
    has to be set before any question.
    """

    def __init__(
        self,
        settings: Settings,
        topologies: Topologies,
        find: Callable[[Need], list[Victim]],
        capacity: Capacity,
        known: Known | None = None,
    ) -> None:
        self.settings = settings
        self.topologies = topologies
        #: room on healthy nodes
        self.capacity = capacity
        #: candidates that `find` keeps; to be cleared when a queue of the tree gets more than it had
        self.known: Known = {} if known is None else known
        self.now: Millis = 0
        #: gangs that found no victims because these are protected, by queue
        self.waits = Waits()
        #: some gang found no victims because of protection: when the first one ends; reset by the caller
        self.protected_until: Millis | None = None
        self._find = find
        self._answered: tuple[WorkloadState, Cell, int, list[Victim]] | None = None

    @property
    def node_ledger(self) -> NodeLedger:
        return self.topologies.node_ledger

    def take_room(self, key: str, assignment: Assignment, queue: str) -> None:
        """An assignment takes its room on nodes, until the assumption of that `key` ends."""
        admission, request = assignment.admission(queue), assignment.capacity_request
        placed = self.topologies.taken(admission, assignment.node_needs(admission)) if assignment.placements() else ()
        self.node_ledger.assume(key, placed, request.takes() if request is not None else NOWHERE)

    def possibility(self, gang: WorkloadState, queue: ClusterQueueState, cell: Cell, amount: int) -> Grade:
        """How preemption could free `amount` of one flavor and resource, and how high the gang would borrow then."""
        victims = self._search(Need(gang, queue, (cell.fr,), {cell: amount}, None, None, self.now, []))
        self._answered = gang, cell, amount, victims
        if not victims:
            return Grade(Mode.NO_CANDIDATES, cell.height(amount)[0])
        with simulate(removed=(victim.gang for victim in victims), places=False):
            borrow = cell.height(amount)[0]
        own = any(victim.gang.queue is queue for victim in victims)
        return Grade(Mode.PREEMPT if own else Mode.RECLAIM, borrow)

    def victims(self, gang: WorkloadState, queue: ClusterQueueState, assignment: Assignment) -> list[Victim]:
        """The victims that make room for the whole assignment; none if that is impossible."""
        answered, self._answered = self._answered, None
        cells, requests = assignment.needed(), assignment.requests(with_pods=PODS_IN_SEARCH in queue.fixes)
        if answered is not None and len(cells) == 1 and not assignment.asks_for_places:
            known, cell, amount, victims = answered
            if known is gang and cell is cells[0] and requests == {cell: amount}:
                return victims
        frs = tuple(cell.fr for cell in cells)
        return self._search(
            Need(gang, queue, frs, requests, assignment.placing, assignment.capacity_request, self.now, [])
        )

    def for_room(
        self,
        gang: WorkloadState,
        queue: ClusterQueueState,
        requests: Mapping[Cell, int],
        capacity_request: CapacityRequest,
    ) -> list[Victim]:
        """The victims that make room on the nodes of one flavor, where quota is not missing."""
        frs = tuple(cell.fr for cell in requests)
        return self._search(Need(gang, queue, frs, requests, None, capacity_request, self.now, []))

    def _search(self, need: Need) -> list[Victim]:
        """The victims; if there are none because of protection, record when that ends, and whether it matters."""
        victims = self._chosen(need)
        if not victims and need.spared:
            first = min(need.spared)
            self.waits.note(need.queue.name, first)
            if self._chosen(replace(need, spared=None)):
                known = self.protected_until
                self.protected_until = first if known is None else min(first, known)
        return victims

    def _chosen(self, need: Need) -> list[Victim]:
        """The victims by the queue's policy, or else in Kueue's order: earlier victims decide which ones may follow."""
        victims = _awaited(need) or self._found(need)
        if victims or choice_of(need) != LEAST_LOST_WORK:
            return victims
        return self._found(replace(need, as_kueue=True))

    def _found(self, need: Need) -> list[Victim]:
        """What the search finds; what it takes counts for the round, as looks at rooms do."""
        before = need.effort
        try:
            return self._find(need)
        finally:
            self.node_ledger.looks += need.effort - before


def _awaited(need: Need) -> list[Victim]:
    """The victims that stop for the workload already, if it needs no others. A rule by which one of them could not be chosen any
    more, now that another one has stopped, must not make their stopping vain.
    """
    hold = need.queue.quota_holds.get(need.gang.uid)
    leaving = [gang for gang in hold.victims if gang.holds and gang.evicting and not gang.removed] if hold else []
    if not leaving:
        return []
    with need.removal as removal:
        removal.remove(*leaving)
        return (
            [Victim(gang, IN_QUEUE if gang.queue is need.queue else RECLAMATION) for gang in leaving]
            if need.fits()
            else []
        )


# --- the classic way --------------------------------------------------------------------------------------------------


def classic_victims(need: Need, known: Known) -> list[Victim]:
    queue = need.queue
    own = own_candidates(need)
    by_right, by_priority = candidates_elsewhere(need, known)
    groups = (by_right, by_priority, own)
    if own is NO_CANDIDATES and by_right is NO_CANDIDATES and by_priority is NO_CANDIDATES:
        return []
    rights, priorities = by_right.any(need), by_priority.any(need)
    if not (rights or priorities or own.any(need)):
        return []
    for may_borrow in _attempts(need, rights, priorities):
        parts = chain((group.leaving for group in groups), (group.staying for group in groups))
        candidates = (candidate for part in parts for candidate in part if still_candidate(need, candidate))
        if queue.config.victims is not None:
            victims = best_attempt(need, list(candidates), may_borrow)
        else:
            victims = greedy_attempt(need, candidates, may_borrow)
        if victims:
            return victims
    return []


def _attempts(need: Need, by_right: bool, by_priority: bool) -> tuple[bool, ...]:
    """Whether borrowing is allowed, attempt by attempt."""
    no_borrowing_victims = need.queue.config.preemption.borrow_within_cohort == "Never"
    if not (by_right or by_priority):
        return (True,)
    if no_borrowing_victims and reached_nominal(need):
        return (True,)
    if no_borrowing_victims and not by_right:
        return (False, True)
    return (True, False)
