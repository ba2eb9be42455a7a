"""A ClusterQueue's state: a leaf of the quota tree with its flavors, its holders and its pending workloads."""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from itertools import chain
from operator import attrgetter, methodcaller
from typing import Final, TypeVar

from gangline.engine.model import (
    Admission,
    Backfill,
    ClusterQueue,
    Flavor,
    Millis,
    OrderInForce,
    Ordering,
    PlacementPolicy,
    PodSetAssignment,
    Quota,
    ResourceGroup,
    Settings,
)
from gangline.engine.occupancy.fitting import add
from gangline.engine.occupancy.node_ledger import NOWHERE, Assigned, NodeLedger, Placed
from gangline.engine.queues.demand import Demand
from gangline.engine.queues.ordering import Estimates, Ranking
from gangline.engine.queues.pending_queue import PendingQueue
from gangline.engine.queues.timed_queue import TimedQueue
from gangline.engine.queues.workload_parts import NO_CELLS, NO_USAGE, WorkloadShape
from gangline.engine.queues.workload_state import WorkloadState
from gangline.engine.quota.quota_ledger import Cell, FlavorResource, QuotaNode

K = TypeVar("K", bound=Hashable)


@dataclass(slots=True)
class FlavorOption:
    """A flavor as a resource group offers it. `flavor` is None while there is no such ResourceFlavor."""

    name: str
    flavor: Flavor | None
    cells: dict[str, Cell]
    #: the flavor has labels, taints or a topology, so that not every pod set may use it
    selective: bool
    #: its nodes may offer less than its quota promises
    grounded: bool = False


@dataclass(slots=True)
class ResourceGroupFlavors:
    resources: frozenset[str]
    options: list[FlavorOption]


@dataclass(slots=True)
class Way:
    """One flavor for a set of requests: a cell for each resource. `refused` says why it cannot be used, "" = it can."""

    option: FlavorOption
    refused: str
    cells: tuple[Cell, ...]
    #: what the pods select by a label that only other flavors of the group name: label, value, and such a flavor
    unnamed: tuple[tuple[str, str, str], ...] = ()


@dataclass(slots=True)
class GroupNeeds:
    """The resources of one resource group that are asked for, and the flavors to get them from, in the queue's order."""

    amounts: tuple[tuple[str, int], ...]
    ways: tuple[Way, ...]


@dataclass(slots=True)
class PodSetRequests:
    """What the pod sets that share flavors ask for: by pod set, and together by resource group.

    `missing` is a resource that the queue does not have, "" = none; `needs` then has only the resources before it.
    """

    requests: tuple[dict[str, int], ...]
    needs: tuple[GroupNeeds, ...]
    missing: str = ""


@dataclass(slots=True, eq=False)
class QuotaHold:
    """What is held for a preemptor: quota, and where nodes bound it, its `room` on them. See `quota_holds`."""

    gang: WorkloadState
    queue: ClusterQueueState
    usage: dict[FlavorResource, int]
    victims: list[WorkloadState]
    node_ledger: NodeLedger
    #: on the nodes that were found for it without its victims: assigned to them, and placed on spots
    room: Assigned = NOWHERE
    placed: Placed = ()
    #: its victims move: they start again beside it, and it takes none of their quota
    moving: bool = False
    #: for the rest of a cycle it does not count, since the preemptor's usage does
    aside: bool = False

    @property
    def holder(self) -> str:
        """The key under which the room is taken."""
        return f"{self.gang.key} (waits for its victims)"

    def hold_room(self) -> None:
        """Take the part of the room that victims do not take any more."""
        self.node_ledger.restore(self.holder)
        self.node_ledger.assign(self.holder, self._outstanding_room() if self.room is not NOWHERE else NOWHERE)
        if self.placed:
            theirs = [self.node_ledger.placed(victim.key) for victim in self._still_there()]
            self.node_ledger.place(self.holder, _rest(self.placed, chain.from_iterable(theirs)))

    def let_room_go(self) -> None:
        self.node_ledger.restore(self.holder)
        self.node_ledger.assign(self.holder, NOWHERE)
        if self.placed:
            self.node_ledger.place(self.holder, ())

    @property
    def has_room(self) -> bool:
        """Whether it is for certain room on nodes."""
        return bool(self.placed or self.room.on_nodes or self.room.domains)

    @property
    def returns(self) -> bool:
        """Whether it is for a workload that was moved, and goes where room is held for it."""
        return self.gang in self.victims

    def _still_there(self) -> list[WorkloadState]:
        """The victims that still have what they give up. One that moved may have started again."""
        return [victim for victim in self.victims if victim.holds and (victim.evicting or not self.moving)]

    def _outstanding_room(self) -> Assigned:
        theirs = [self.node_ledger.assigned(victim.key) for victim in self._still_there()]
        domains = {domain for each in theirs for domain, _ in each.domains}
        left = _rest(self.room.on_nodes, (taken for each in theirs for taken in each.on_nodes))
        return Assigned(left, tuple(each for each in self.room.domains if each[0] not in domains))

    def outstanding(self) -> dict[FlavorResource, int]:
        """The part of the quota hold that victims do not hold any more."""
        if self.moving:
            return self.usage
        rest = dict(self.usage)
        for victim in self.victims:
            if victim.holds:
                for fr, amount in victim.quota.usage.items():
                    if fr in rest:
                        rest[fr] = max(0, rest[fr] - amount)
        return rest


def _rest(
    wanted: Iterable[tuple[K, Mapping[str, int]]], taken: Iterable[tuple[K, Mapping[str, int]]]
) -> tuple[tuple[K, Mapping[str, int]], ...]:
    """What is wanted of each place beyond what is taken there."""
    known: dict[K, dict[str, int]] = {}
    for place, amounts in taken:
        add(known.setdefault(place, {}), amounts)
    none: Mapping[str, int] = {}
    rest = (
        (place, {name: amount - known.get(place, none).get(name, 0) for name, amount in amounts.items()})
        for place, amounts in wanted
    )
    some = ((place, {name: left for name, left in each.items() if left > 0}) for place, each in rest)
    return tuple((place, each) for place, each in some if each)


class ClusterQueueState(QuotaNode):
    """A ClusterQueue. `in_service`: heads are taken from it, and its workloads may be preempted by other queues."""

    __slots__ = (
        "_order",
        "asked",
        "by_priority",
        "config",
        "delays_topology",
        "demand",
        "fixes",
        "freed",
        "generation",
        "group_of",
        "holders",
        "in_service",
        "lacks_room_of",
        "lacks_spares",
        "merges_labels",
        "moved",
        "multikueue",
        "only_topologies",
        "order",
        "pending",
        "placement",
        "preempts_while_borrowing",
        "preview",
        "quota_holds",
        "timed",
    )

    def __init__(self, config: ClusterQueue, freed: dict[str, None] | None = None) -> None:
        """`freed` gets its name whenever quota of it becomes free, by whatever way."""
        super().__init__(config.name)
        self.freed = freed if freed is not None else {}
        #: gets every holder that comes, leaves or changes, by uid; None = nobody looks at it
        self.moved: dict[str, WorkloadState] | None = None
        self.config = config
        self.in_service = True
        #: grows whenever a holder leaves or changes and when quotas change: earlier progress of flavor scans is void then
        self.generation = 0
        self.group_of: dict[str, ResourceGroupFlavors] = {}
        #: per shape, the requests of its flavors
        self.asked: dict[WorkloadShape, tuple[PodSetRequests, ...]] = {}
        self.pending = PendingQueue()
        #: its policy sets an order or backfill
        self.timed = False
        self._order: tuple[Ordering | None, Backfill | None, tuple[str, ...]] = (None, None, ())
        #: which of its orders is in force, where its policy has several
        self.order: OrderInForce | None = None
        #: what its LocalQueues ask for and hold, where that is their order
        self.demand: Demand | None = None
        self.holders: dict[str, WorkloadState] = {}
        #: the holders in the order in which they would be preempted
        self.by_priority: list[WorkloadState] = []
        self.preempts_while_borrowing = False
        #: the policy that orders nodes for its pods, None = none
        self.placement: PlacementPolicy | None = None
        #: a placement policy that is tried out: its choice is shown, and nothing follows from it
        self.preview: PlacementPolicy | None = None
        #: all its flavors are topology flavors, or it has a placement policy: pods are placed without a topology request
        self.only_topologies = False
        #: flavors on whose nodes workloads found too little room since they were last woken; other trees may share these nodes
        self.lacks_room_of: set[str] = set()
        #: … and that because some nodes are held back as spares, which depends on the priorities of those that run
        self.lacks_spares = False
        #: an admission check provides the nodes: placement waits for it
        self.delays_topology = False
        self.multikueue = False  # its workloads run in other clusters
        self.fixes: frozenset[str] = frozenset()
        #: uid of a preemptor of this queue -> the quota held for it
        self.quota_holds: dict[str, QuotaHold] = {}

    def leaves(self) -> Iterator[QuotaNode]:
        yield self

    @property
    def reserves(self) -> bool:
        """Whether the queue's policy reserves starts for the heads."""
        return self.config.backfill is not None and self.config.backfill.depth > 0

    # --- configuration ------------------------------------------------------------------------------------------------

    def configure(
        self,
        config: ClusterQueue,
        settings: Settings,
        usage: Callable[[str], float] | None,
        estimates: Estimates | None = None,
    ) -> None:
        """Set everything that follows from the object alone; cells are bound once the tree is settled."""
        self.config = config
        self._set_order(config, estimates)
        self.weight = config.weight
        by_usage = isinstance(self.pending, TimedQueue) and self.pending.ranking.by_usage
        self.fair_usage = usage if by_usage or config.admission_mode == "UsageBasedAdmissionFairSharing" else None
        strict = config.strategy == "StrictFIFO"
        hashing = not strict and settings.gates.get("SchedulingEquivalenceHashing", True)
        usage_of = self.fair_usage or self.demand
        self.pending.configure(strict=strict, hashing=hashing, usage_of=usage_of)
        policy = config.preemption
        self.preempts_while_borrowing = policy.borrow_within_cohort != "Never" or (
            settings.fair_sharing is not None and policy.reclaim_within_cohort != "Never"
        )
        self.merges_labels = settings.merges_labels
        self.fixes = settings.fixes.get("*", frozenset()) | settings.fixes.get(config.name, frozenset()) | config.fixes

    def _set_order(self, config: ClusterQueue, estimates: Estimates | None) -> None:
        """Replace the pending queue where the policy now sets an order or backfill, or no longer does; waiting workloads move
        over.
        """
        if config.ordering is None or not config.ordering.changes:
            self.order = None
        first = self.order.first if self.order is not None else ()
        ordering, backfill = self._present(config.ordering), config.backfill
        wanted = (ordering, backfill, first) if estimates is not None else (None, None, ())
        if wanted == self._order:
            return
        self._order, old = wanted, self.pending
        self.demand = None
        if estimates is None or wanted == (None, None, ()):
            self.pending = PendingQueue()
        else:
            ranking = Ranking(ordering, backfill, estimates, frozenset(first))
            self.pending = TimedQueue(ranking)
            if isinstance(old, TimedQueue):
                self.pending.go_on_from(old)
            if ranking.demand_weight is not None:
                self.demand = self.pending.demand = Demand(
                    lambda: self.lendable, self.holders.values, ranking.demand_weight
                )
                self.pending.usage_of = self.demand
        self.timed = isinstance(self.pending, TimedQueue)
        for gang in old.everyone():
            inadmissible = gang.inadmissible_alone
            old.take_out(gang)
            self.pending.set_alone_inadmissible(gang) if inadmissible else self.pending.arrive(gang)
        self.pending.preemptor, self.pending.held = old.preemptor, old.held
        self.pending.returning = old.returning

    def _present(self, ordering: Ordering | None) -> Ordering | None:
        """The only order of the queue, or that of its orders that is in force."""
        if ordering is None or not ordering.changes:
            return ordering
        key = self.order.key if self.order is not None else ordering.key
        return replace(ordering, key=key, steps=(), when_full=None)

    @property
    def ordered_by(self) -> str:
        """The key by which its workloads are in order now; "" where its policy sets none."""
        ordering = self._order[0]
        return ordering.key if ordering is not None else ""

    def bind(self, flavors: Mapping[str, Flavor]) -> None:
        """Connect resource groups and holders with the cells of the settled tree."""
        self.group_of = {}
        self.asked.clear()
        names = [quotas.name for group in self.config.groups for quotas in group.flavors]
        policy = None if self.multikueue else self.config.placement
        dry = policy is not None and policy.dry_run
        self.placement, self.preview = (None, policy) if dry else (policy, None)
        placed = all(name in flavors and flavors[name].topology for name in names)
        self.only_topologies = bool(names) and (placed or self.placement is not None)
        for group in self.config.groups:
            bound = ResourceGroupFlavors(
                frozenset(group.covered), [self._option(group, i, flavors) for i in range(len(group.flavors))]
            )
            for resource in group.covered:
                self.group_of[resource] = bound

    def _option(self, group: ResourceGroup, index: int, flavors: Mapping[str, Flavor]) -> FlavorOption:
        name = group.flavors[index].name
        flavor = flavors.get(name)
        cells = {resource: self.cell((name, resource)) for resource in group.covered}
        selective = flavor is not None and bool(flavor.node_labels or flavor.taints or flavor.topology)
        grounded = flavor is not None and bool(flavor.node_labels) and not (flavor.topology or flavor.autoscaled)
        return FlavorOption(name, flavor, cells, selective, grounded)

    # --- holders ------------------------------------------------------------------------------------------------------

    def hold(
        self, gang: WorkloadState, admission: Admission, usage: dict[FlavorResource, int], reserved_at: Millis
    ) -> None:
        """`gang` holds quota, since a whole second."""
        gang.queue, gang.quota.admission, gang.quota.reserved_at = self, admission, reserved_at
        gang.quota.usage = usage
        gang.quota.cells = [(self.cell(fr), amount) for fr, amount in usage.items()]
        for cell, amount in gang.quota.cells:
            cell.add(amount)
        if self.moved is not None:
            self.moved[gang.uid] = gang
        gang.order_as_victim()
        self.holders[gang.uid] = gang
        self._count_holders_again()
        insort(self.by_priority, gang, key=_victim_key)

    def release(self, gang: WorkloadState) -> None:
        """`gang` holds nothing any more."""
        self.unrank(gang)
        del self.holders[gang.uid]
        for cell, amount in gang.quota.cells:
            cell.remove(amount)
        if self.moved is not None:
            self.moved[gang.uid] = gang
        gang.quota.admission, gang.queue = None, None
        gang.quota.usage, gang.quota.cells = NO_USAGE, NO_CELLS
        self.generation += 1
        self.freed[self.name] = None
        self._count_holders_again()

    def _count_holders_again(self) -> None:
        if self.demand is not None:
            self.demand.holders_changed()

    def change_usage(self, gang: WorkloadState, usage: dict[FlavorResource, int]) -> None:
        if any(amount > usage.get(fr, 0) for fr, amount in gang.quota.usage.items()):
            self.freed[self.name] = None
        if self.moved is not None:
            self.moved[gang.uid] = gang
        for cell, amount in gang.quota.cells:
            cell.remove(amount)
        gang.quota.usage = usage
        gang.quota.cells = [(self.cell(fr), amount) for fr, amount in usage.items()]
        for cell, amount in gang.quota.cells:
            cell.add(amount)
        self._count_holders_again()

    def unrank(self, gang: WorkloadState) -> None:
        """Take a holder out of the order of preemption, before its rank changes."""
        place = bisect_left(self.by_priority, gang.victim_key, key=_victim_key)
        while self.by_priority[place] is not gang:
            place += 1
        del self.by_priority[place]

    def rank(self, gang: WorkloadState) -> None:
        gang.order_as_victim()
        insort(self.by_priority, gang, key=_victim_key)

    def rehold(self) -> None:
        """Count all holders again, in a tree that was just settled."""
        for gang in self.holders.values():
            gang.quota.cells = [(self.cell(fr), amount) for fr, amount in gang.quota.usage.items()]
            for cell, amount in gang.quota.cells:
                cell.add(amount)


#: The ClusterQueue that a workload waits in or holds quota of; None if it is in none. A workload knows its queue as a node of
#: the quota ledger, and every node that a workload is given is a ClusterQueueState.
queue_of: Final[Callable[[WorkloadState], ClusterQueueState | None]] = attrgetter("queue")
#: All ClusterQueues below a cohort; for a ClusterQueue, itself.
cluster_queues_of: Final[Callable[[QuotaNode], Iterator[ClusterQueueState]]] = methodcaller("leaves")


def backfill_level(gang: WorkloadState) -> float:
    """The quantile of its forecast by which a workload is expected to end, where others count on that."""
    queue = queue_of(gang)
    policy = queue.config.backfill if queue is not None else None
    return 1.0 if gang.workload.overran else (policy or Backfill()).candidate


def _victim_key(gang: WorkloadState) -> tuple[int, int, str]:
    return gang.victim_key


def quotas_of(groups: tuple[ResourceGroup, ...]) -> dict[FlavorResource, Quota]:
    return {
        (flavor.name, resource): flavor.resources.get(resource, Quota())
        for group in groups
        for flavor in group.flavors
        for resource in group.covered
    }


# --- slices -----------------------------------------------------------------------------------------------------------
# Slices of elastic workloads: a job that grows gets a new slice, which replaces the one that runs.
#
# The new slice asks for the difference only, of the flavors that the old one has. From the moment it holds quota, the old one is
# *superseded*: what it held is part of what the new one holds, and counts once.


#: why a slice waits whatever is free
OLD_IS_STOPPED = "The workload slice that it replaces is being stopped"

OLD_IS_OF_ANOTHER = "The workload slice that it replaces holds quota, and is not of its job"

#: pod set -> resource -> amount
Amounts = Mapping[str, Mapping[str, int]]


def replaced_slice(gang: WorkloadState, queue: ClusterQueueState) -> WorkloadState | None:
    """The slice that holds quota of this queue and that `gang` replaces."""
    if not gang.replaces:
        return None
    return next((held for held in queue.holders.values() if held.key == gang.replaces and succeeds(gang, held)), None)


def names_another_job(gang: WorkloadState, queue: ClusterQueueState) -> bool:
    """Whether the workload would replace a slice that runs, and nobody says that both are of one job, as while it has just been
    sent here. With all that it asks for it might have that slice preempted.
    """
    if not gang.replaces:
        return False
    holders = (held.workload for held in queue.holders.values() if held.key == gang.replaces)
    return any(held.job_uid != gang.workload.job_uid for held in holders)


def succeeds(new: WorkloadState, old: WorkloadState) -> bool:
    """Whether `new` may replace `old`: both belong to one job, and it came later."""
    mine, its = new.workload, old.workload
    return mine.job_uid == its.job_uid and mine.created >= its.created and old.replaces != new.key


def held_parts(gang: WorkloadState, admission: Admission) -> Iterator[tuple[PodSetAssignment, str, str, int]]:
    """What an admission uses now, pod set by pod set: resource, flavor and amount. Pods that are finished, or that an elastic
    job has given up, use nothing.
    """
    counts = {demand.name: demand.count for demand in gang.demands}
    for pod_set in admission.pod_sets:
        count = counts.get(pod_set.name, pod_set.count)
        for resource, flavor in pod_set.flavors.items():
            yield pod_set, resource, flavor, _scaled(pod_set, pod_set.usage.get(resource, 0), count)


def amounts_of(gang: WorkloadState) -> Amounts:
    """What a holder uses now."""
    found: dict[str, dict[str, int]] = {}
    for pod_set, resource, _, amount in (
        held_parts(gang, gang.quota.admission) if gang.quota.admission is not None else ()
    ):
        found.setdefault(pod_set.name, {})[resource] = amount
    return found


def pods_of(gang: WorkloadState) -> dict[str, int]:
    """Pod set -> the pods for which a holder has quota now."""
    counts = {demand.name: demand.count for demand in gang.demands}
    admission = gang.quota.admission
    return (
        {each.name: min(each.count, counts.get(each.name, each.count)) for each in admission.pod_sets}
        if admission is not None
        else {}
    )


def pods_asked(gang: WorkloadState, queue: ClusterQueueState) -> list[int]:
    """The pods for which a waiting gang needs quota and room, pod set by pod set."""
    old = replaced_slice(gang, queue)
    if old is None:
        return [demand.count for demand in gang.demands]
    held = pods_of(old)
    return [max(0, demand.count - held.get(demand.name, 0)) for demand in gang.demands]


def _scaled(pod_set: PodSetAssignment, amount: int, count: int) -> int:
    if count >= pod_set.count or pod_set.count == 0:
        return amount
    return amount // pod_set.count * count
