"""The world: the quota trees and the nodes a second time, as they will be at some moment.

It is made of the same parts as the present, so that a simulation of the future asks exactly the questions that an admission
will be asked: quota through all ancestors, flavors, and a place for every pod.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from gangline.engine.flavors.assignment import Assignment, Mode
from gangline.engine.flavors.flavor_assigner import Assigner
from gangline.engine.model import Admission, ClusterQueue
from gangline.engine.nodes.capacity import Capacity
from gangline.engine.nodes.packer import Member, NodeAssignment
from gangline.engine.preemption.preemptor import Need, Preemptor, Victim
from gangline.engine.queues.cluster_queue import ClusterQueueState
from gangline.engine.queues.cohort_hierarchy import CohortHierarchy
from gangline.engine.queues.workload_state import WorkloadState
from gangline.engine.quota.quota_ledger import Cell, FlavorResource
from gangline.engine.state.store import Store
from gangline.engine.topology.placement import has_placements
from gangline.engine.topology.topologies import Topologies


class Hold:
    """What a workload holds: quota, and places for pods."""

    __slots__ = ("admission", "assigned", "members", "places", "queue", "usage")

    def __init__(
        self,
        queue: str,
        usage: Mapping[FlavorResource, int],
        admission: Admission | None,
        members: Sequence[Member] = (),
        assigned: NodeAssignment | None = None,
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


class World:
    """The world, built from the facts of `store`; `put` and `drop` are each other's exact undo."""

    def __init__(self, store: Store) -> None:
        self._hierarchy = CohortHierarchy()
        self._topologies = Topologies()
        for flavor in store.flavors.values():
            self._topologies.put_flavor(flavor)
        for topology in store.topologies.values():
            self._topologies.put_topology(topology)
        store.topology.mirror_to(self._topologies)
        for name, cohort in store.cohorts.items():
            self._hierarchy.put_cohort(cohort, name)
        for name, config in store.cluster_queues.items():
            self._hierarchy.put_queue(config, name)

        def configure(queue: ClusterQueueState, config: ClusterQueue) -> None:
            queue.configure(replace(config, ordering=None, backfill=None), store.settings, None)
            real = store.queues.get(queue.name)
            queue.delays_topology = real is not None and real.delays_topology

        self._hierarchy.settle(configure)
        for queue in self._hierarchy.queues.values():
            queue.bind(store.flavors)
        self._capacity = Capacity(store.health, store.flavors)
        for node in store.health.nodes.values():
            self._capacity.rooms.put(node, usable=store.health.usable(node.name))
        self._preemptor = Preemptor(store.settings, self._topologies, _nothing_there, self._capacity)
        self._held: dict[str, tuple[Hold, list[tuple[Cell, int]]]] = {}

    @property
    def topologies(self) -> Topologies:
        return self._topologies

    def queue(self, name: str) -> ClusterQueueState | None:
        return self._hierarchy.queues.get(name)

    def put(self, key: str, hold: Hold) -> None:
        """`key` holds this from now on; it must hold nothing so far."""
        queue = self._hierarchy.queues.get(hold.queue)
        cells = [] if queue is None else [(queue.cell(fr), amount) for fr, amount in hold.usage.items()]
        for cell, amount in cells:
            cell.add(amount)
        if hold.admission is not None:
            self._topologies.put_holder(key, hold.admission)
        if hold.assigned is not None:
            self._capacity.occupy(key, hold.members, hold.assigned, 1)
        self._held[key] = hold, cells

    def drop(self, key: str) -> None:
        """`key` holds nothing any more; unknown keys are ignored."""
        known = self._held.pop(key, None)
        if known is None:
            return
        hold, cells = known
        for cell, amount in cells:
            cell.remove(amount)
        if hold.admission is not None:
            self._topologies.remove_holder(key)
        if hold.assigned is not None:
            self._capacity.occupy(key, hold.members, hold.assigned, -1)

    def holds(self, key: str) -> bool:
        return key in self._held

    def hold(self, key: str) -> Hold:
        return self._held[key][0]

    def fit(self, gang: WorkloadState, queue: str) -> Assignment | None:
        """Flavors and places for the whole gang, without preemption; None if it does not fit."""
        state = self._hierarchy.queues.get(queue)
        if state is None:
            return None
        assignment = Assigner(gang, state, self._preemptor).assign(None)
        return assignment if assignment.mode is Mode.FIT else None

    def has_room(self, hold: Hold) -> bool:
        """Whether exactly this could be held as well."""
        queue = self._hierarchy.queues.get(hold.queue)
        if queue is None:
            return False
        if any(amount > max(0, queue.cell(fr).available()) for fr, amount in hold.usage.items()):
            return False
        if hold.admission is not None and not self._topologies.has_room(hold.admission):
            return False
        return hold.assigned is None or self._has_room(hold.members, hold.assigned)

    def _has_room(self, members: Sequence[Member], assigned: NodeAssignment) -> bool:
        rooms, owners = self._capacity.rooms, self._capacity.rooms.owners
        self._capacity.occupy(_SIMULATED, members, assigned, 1)
        taken = [room for name in assigned.nodes() if (room := rooms.get(name)) is not None]
        free = not any(room.overfull for room in taken) and all(len(owners(domain)) == 1 for domain in assigned.domains)
        self._capacity.occupy(_SIMULATED, members, assigned, -1)
        return free


#: key of the holder in a simulation
_SIMULATED = ""


def _nothing_there(need: Need) -> list[Victim]:
    del need
    return []


def hold_of(assignment: Assignment, queue: str) -> Hold:
    """What an assignment would hold."""
    usage: dict[FlavorResource, int] = {}
    for cell, amount in assignment.usage.items():
        usage[cell.fr] = usage.get(cell.fr, 0) + amount
    capacity_request = assignment.capacity_request
    members = capacity_request.members if capacity_request is not None else ()
    return Hold(
        queue,
        usage,
        assignment.admission(queue),
        members,
        capacity_request.assigned if capacity_request is not None else None,
    )
