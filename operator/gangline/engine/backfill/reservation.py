"""A reserved start, and the workloads that were backfilled before it."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import TypeAlias

from gangline.engine.backfill.timeline_outlook import TimelineOutlook
from gangline.engine.flavors.assignment import Assignment, Mode
from gangline.engine.flavors.flavor_assigner import Assigner
from gangline.engine.model import Admission, ClusterQueue, Millis
from gangline.engine.model.runtime import NEVER
from gangline.engine.nodes.capacity import Capacity
from gangline.engine.nodes.packer import NodeAssignment, PackedPodSet
from gangline.engine.occupancy.node_ledger import NodeLedger, Placed
from gangline.engine.preemption.preemptor import Need, Preemptor, Victim
from gangline.engine.queues.cluster_queue import ClusterQueueState
from gangline.engine.queues.cohort_hierarchy import CohortHierarchy
from gangline.engine.queues.promises import FORECAST
from gangline.engine.queues.workload_state import WorkloadState
from gangline.engine.quota.quota_ledger import Cell, FlavorResource
from gangline.engine.state.store import Store
from gangline.engine.text.change_log import ChangeLog
from gangline.engine.text.wording import moment_text
from gangline.engine.topology.placement_request import AS_COUNTED, NodeNeeds, has_placements
from gangline.engine.topology.topologies import Topologies

# --- timeline world ---------------------------------------------------------------------------------------------------
# The world: the quota trees and the nodes a second time, as they will be at some moment.
#
# It is made of the same parts as the present, so that a look into the future asks exactly the questions that an admission
# will be asked: quota through all ancestors, flavors, and a place for every pod.


class HeldCapacity:
    """What a workload holds: quota, and places for pods."""

    __slots__ = ("admission", "assigned", "members", "needs", "placed", "places", "queue", "usage")

    def __init__(
        self,
        queue: str,
        usage: Mapping[FlavorResource, int],
        admission: Admission | None,
        members: Sequence[PackedPodSet] = (),
        assigned: NodeAssignment | None = None,
        needs: NodeNeeds = AS_COUNTED,
    ) -> None:
        self.queue = queue
        self.usage = usage
        #: the admission that it was made of
        self.places = admission
        #: None where no topology places are held
        self.admission = admission if admission is not None and has_placements(admission) else None
        #: its assignment to the nodes of flavors without a topology
        self.members = members
        self.assigned = assigned
        self.needs = needs
        #: what its topology places take of spots, once that was asked for
        self.placed: Placed | None = None


class TimelineWorld:
    """The world, built from the facts of `store`; `put` and `drop` are each other's exact undo."""

    def __init__(self, store: Store) -> None:
        self._hierarchy = CohortHierarchy()
        self._rooms = NodeLedger()
        self._topologies = Topologies(self._rooms, store.ranking)
        self._topologies.rank_for(store.topology.of_policies)
        self._topologies.look_at(*store.topology.looked_at)
        for flavor in store.flavors.values():
            self._topologies.put_flavor(flavor)
        for topology in store.topologies.values():
            self._topologies.put_topology(topology)
        store.node_ledger.mirror_to(self._rooms)
        for name, cohort in store.cohorts.items():
            self._hierarchy.put_cohort(cohort, name)
        for name, config in store.cluster_queues.items():
            self._hierarchy.put_queue(config, name)

        def configure(queue: ClusterQueueState, config: ClusterQueue) -> None:
            config = store.informed(replace(config, ordering=None, backfill=None))
            queue.configure(config, store.settings, None)
            real = store.queues.get(queue.name)
            queue.delays_topology = real is not None and real.delays_topology
            queue.multikueue = real is not None and real.multikueue

        self._hierarchy.settle(configure)
        for queue in self._hierarchy.queues.values():
            queue.bind(store.flavors)
        self._capacity = Capacity(store.health, store.flavors, self._rooms)
        self._preemptor = Preemptor(store.settings, self._topologies, _nothing_there, self._capacity)
        self._held: dict[str, tuple[HeldCapacity, list[tuple[Cell, int]]]] = {}
        self._store = store
        self._configure = configure
        #: when quotas change, and how many of these times have come
        self._changes = store.quotas_ahead.instants()
        self._changed = 0

    @property
    def topologies(self) -> Topologies:
        return self._topologies

    def queue(self, name: str) -> ClusterQueueState | None:
        return self._hierarchy.queues.get(name)

    def set_quotas_of(self, moment: Millis) -> None:
        """Let the queues have the quotas of this moment."""
        changed = bisect_right(self._changes, moment)
        if changed == self._changed:
            return
        self._changed = changed
        for name, ahead in self._store.quotas_ahead.known.items():
            config = self._store.cluster_queues.get(name)
            if config is not None:
                groups = ahead.groups_at(moment, config.groups)
                self._hierarchy.put_queue(replace(config, groups=groups), name)
        rebuilt = self._hierarchy.settle(self._configure)
        for queue in rebuilt.queues if rebuilt is not None else ():
            queue.bind(self._store.flavors)
        names = {queue.name for queue in rebuilt.queues} if rebuilt is not None else set[str]()
        for key, (hold, _) in self._held.items():
            if hold.queue in names:
                self._held[key] = hold, self._add(hold)

    def _add(self, hold: HeldCapacity) -> list[tuple[Cell, int]]:
        """Use its quota. Returns the cells."""
        queue = self._hierarchy.queues.get(hold.queue)
        cells = [] if queue is None else [(queue.cell(fr), amount) for fr, amount in hold.usage.items()]
        for cell, amount in cells:
            cell.add(amount)
        return cells

    def put(self, key: str, hold: HeldCapacity) -> None:
        """`key` holds this from now on; it must hold nothing so far."""
        cells = self._add(hold)
        if hold.admission is not None:
            self._rooms.place(key, self.placed(hold))
        if hold.assigned is not None:
            self._rooms.assign(key, hold.assigned.takes(hold.members))
        self._held[key] = hold, cells

    def placed(self, hold: HeldCapacity) -> Placed:
        """What its topology places take."""
        if hold.placed is None:
            hold.placed = self._topologies.taken(hold.admission, hold.needs) if hold.admission is not None else ()
        return hold.placed

    def drop(self, key: str) -> None:
        """`key` holds nothing any more; unknown keys are ignored."""
        known = self._held.pop(key, None)
        if known is None:
            return
        for cell, amount in known[1]:
            cell.remove(amount)
        self._rooms.release(key)

    def holds(self, key: str) -> bool:
        return key in self._held

    def hold(self, key: str) -> HeldCapacity:
        return self._held[key][0]

    def fit(self, gang: WorkloadState, queue: str) -> Assignment | None:
        """Flavors and places for the whole gang, without preemption; None if it does not fit."""
        state = self._hierarchy.queues.get(queue)
        if state is None:
            return None
        assignment = Assigner(gang, state, self._preemptor).assign(None)
        return assignment if assignment.mode is Mode.FIT else None

    def has_room(self, hold: HeldCapacity) -> bool:
        """Whether exactly this could be held as well."""
        queue = self._hierarchy.queues.get(hold.queue)
        if queue is None:
            return False
        if any(amount > max(0, queue.cell(fr).available()) for fr, amount in hold.usage.items()):
            return False
        if hold.admission is not None and not self._topologies.has_room(hold.admission, hold.needs, queue.placement):
            return False
        return hold.assigned is None or self._rooms.has_room(hold.assigned.takes(hold.members))


def _nothing_there(need: Need) -> list[Victim]:
    del need
    return []


def hold_of(assignment: Assignment, queue: str) -> HeldCapacity:
    """What an assignment would hold."""
    usage: dict[FlavorResource, int] = {}
    for cell, amount in assignment.usage.items():
        usage[cell.fr] = usage.get(cell.fr, 0) + amount
    capacity_request = assignment.capacity_request
    members = capacity_request.members if capacity_request is not None else ()
    admission = assignment.admission(queue)
    return HeldCapacity(
        queue,
        usage,
        admission,
        members,
        capacity_request.assigned if capacity_request is not None else None,
        assignment.node_needs(admission),
    )


# --- reservation ------------------------------------------------------------------------------------------------------


#: After the last known end: when all workloads without a known end are gone, except those backfilled beside a reservation.
FAR: Millis = NEVER - 1
_LOG_LENGTH = 10_000


def follows(gang: WorkloadState, head: WorkloadState) -> bool:
    """Whether a workload comes after the head of another queue: by priority, then by age."""
    return (-gang.priority, gang.since, gang.uid) > (-head.priority, head.since, head.uid)


class Reservation:
    """A workload that is planned to start at `start`, in `queue`, and what it will hold then."""

    __slots__ = (
        "beside",
        "better",
        "cause",
        "gang",
        "hold",
        "lasts",
        "length",
        "newcomer",
        "outlook",
        "queue",
        "start",
        "worse",
    )

    def __init__(self, gang: WorkloadState, queue: str, length: Millis) -> None:
        self.gang = gang
        self.queue = queue
        #: its runtime on any flavor, and on those that it will hold
        self.length = self.lasts = length
        self.start: Millis = NEVER
        self.hold: HeldCapacity | None = None
        #: a holder stays longer than expected, or leaves earlier
        self.worse = True
        self.better = False
        #: what may have moved its start (`queues.promises`), and the holder that came, if it was one
        self.cause = FORECAST
        self.newcomer: WorkloadState | None = None
        #: holders that may stay beyond the start: they were tested
        self.beside: set[str] = set()
        #: a lower bound of its start, by counting
        self.outlook: TimelineOutlook | None = None

    @property
    def key(self) -> str:
        return f"{self.gang.key} (reserved)"

    @property
    def end(self) -> Millis:
        return min(NEVER, self.start + self.lasts)

    def may_move(self, cause: str, newcomer: WorkloadState | None = None) -> None:
        """Let its start be later than planned, for this cause."""
        self.worse, self.cause, self.newcomer = True, cause, newcomer

    def hold_from(self, start: Millis, hold: HeldCapacity | None, lasts: Millis) -> None:
        """Let the workload hold this from `start` on, for so long; None = it is not known yet what it holds."""
        self.start, self.hold, self.lasts = start, hold, lasts


class PlannedStart(Reservation):
    """A start that a waiting workload is expected to have, and what it will hold then. Nothing is kept for it."""

    __slots__ = ()

    @property
    def key(self) -> str:
        return f"{self.gang.key} (planned)"


class BackfilledHolders:
    """The holders that were backfilled before a reserved workload, and a log of changes of them."""

    __slots__ = ("gangs", "log")

    def __init__(self) -> None:
        self.gangs: dict[str, WorkloadState] = {}
        self.log: ChangeLog[str] = ChangeLog(_LOG_LENGTH)

    def put(self, key: str, gang: WorkloadState) -> None:
        self.gangs[key] = gang
        self.log.append(key)

    def drop(self, key: str) -> None:
        """Unknown keys are fine."""
        if self.gangs.pop(key, None) is not None:
            self.log.append(key)

    def start_over(self) -> None:
        self.gangs.clear()
        self.log.start_over()


#: Whether a reserved head could start in the present ledger.
Fits: TypeAlias = Callable[[Reservation], bool]
#: The workloads of a reserved head's tree that are on their way out.
Leaving: TypeAlias = Callable[[Reservation], Sequence[WorkloadState]]


def start_text(reservation: Reservation, holds_back: bool, promised: Millis | None) -> str:
    """What is added to the reason of a reserved workload: by when it was promised to start, when it is planned to, and whether
    others are held back for it.
    """
    said = f". Promised to start {moment_text(promised)}" if promised is not None else ""
    if reservation.start >= FAR:
        return f"{said}. It goes first, but nobody knows when those before it will end"
    when = moment_text(reservation.start)
    return f"{said}. Planned to start {when}; " + (
        "others are held back for it" if holds_back else "nothing is kept idle for it yet"
    )


def held_back_text(reservation: Reservation) -> str:
    return f"Workload would delay {reservation.gang.key}, which is reserved to start {moment_text(reservation.start)}"


def preempted_for_text(reservation: Reservation) -> str:
    return f"Workload was preempted for {reservation.gang.key} and waits until that workload has started"
