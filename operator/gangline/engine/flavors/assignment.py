"""The outcome of flavor assignment: how each amount of a gang could be had, or what prevents it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import IntEnum
from typing import NamedTuple

from gangline.engine.model import (
    Admission,
    Affinity,
    Flavor,
    Millis,
    PodSet,
    PodSetAssignment,
    TopologyAssignment,
    expression_matches,
    tolerates,
)
from gangline.engine.nodes.capacity_request import CapacityRequest
from gangline.engine.queues.cluster_queue import (
    Amounts,
    ClusterQueueState,
    FlavorOption,
    GroupNeeds,
    PodSetRequests,
    ResourceGroupFlavors,
    Way,
    amounts_of,
)
from gangline.engine.queues.workload_parts import ScanProgress
from gangline.engine.queues.workload_state import WorkloadState
from gangline.engine.quota.quota_ledger import Cell, FlavorResource
from gangline.engine.topology.placement import Placing, mismatch
from gangline.engine.topology.placement_request import NodeNeeds, node_needs
from gangline.engine.topology.topologies import Topologies

# --- flavor needs -----------------------------------------------------------------------------------------------------
# A gang's requests of the flavors of a queue. They follow from configuration alone, so they are computed once per shape.


# --- flavor match -----------------------------------------------------------------------------------------------------
# Which flavors a pod set may run on: taints and tolerations, node selector, required affinity, and flavors beside each other.
#
# Only label keys that the flavor itself names count; other keys of a selector or an expression, and names of nodes, are left to
# the nodes: in Kueue in any case, here where a node of the flavor has what the pods select.


_BINDING_EFFECTS = ("NoSchedule", "NoExecute")


def obstacle(pod_set: PodSet, flavor: Flavor) -> str:
    """Why the pod set cannot use the flavor, in Kueue's words; "" = it can."""
    for taint in flavor.taints:
        if taint.effect in _BINDING_EFFECTS and not any(
            tolerates(toleration, taint) for toleration in (*pod_set.tolerations, *flavor.tolerations)
        ):
            text = f"{taint.key}={taint.value}" if taint.value else taint.key
            return f"untolerated taint {text}:{taint.effect} in flavor {flavor.name}"
    if not _selected(pod_set, flavor.node_labels):
        return f"flavor {flavor.name} doesn't match node affinity"
    return ""


def contradiction(flavor: Flavor, others: Iterable[Flavor]) -> str:
    """Why a pod cannot be on a node of this flavor and of these others, "" = it can: they give a label different values."""
    for other in others:
        for key, value in flavor.node_labels.items():
            if other.node_labels.get(key, value) != value:
                says = f'label {key} is "{value}" in one and "{other.node_labels[key]}" in the other'
                return f"flavor {flavor.name} contradicts flavor {other.name}: {says}"
    return ""


def unnamed(pod_set: PodSet, flavor: Flavor | None, group: Sequence[Flavor | None]) -> tuple[tuple[str, str, str], ...]:
    """What the pod set selects by labels that other flavors of the group name, and this one does not: label, value, flavor."""
    if flavor is None or flavor.autoscaled or not pod_set.node_selector:
        return ()
    naming = {key: each.name for each in reversed(group) if each is not None for key in each.node_labels}
    selected = sorted(pod_set.node_selector.items())
    return tuple(
        (key, value, naming[key]) for key, value in selected if key in naming and key not in flavor.node_labels
    )


def _selected(pod_set: PodSet, labels: Mapping[str, str]) -> bool:
    for key, value in pod_set.node_selector.items():
        if key in labels and labels[key] != value:
            return False
    return _affinity_matches(pod_set.affinity, labels)


def _affinity_matches(affinity: Affinity, labels: Mapping[str, str]) -> bool:
    """Terms are ORed. A term without keys of the flavor matches everything."""
    if not affinity:
        return True
    return any(
        all(
            expression_matches(expression, labels)
            for expression in term
            if expression.key in labels and not expression.field
        )
        for term in affinity
    )


# --- flavor needs -----------------------------------------------------------------------------------------------------


PODS = "pods"

#: shapes cached per queue
MOST_KNOWN = 1024


def asked_of(
    gang: WorkloadState,
    queue: ClusterQueueState,
    topologies: Topologies,
    counts: Sequence[int] | None,
    *,
    ignore_missing: bool,
    old: WorkloadState | None = None,
) -> tuple[PodSetRequests, ...]:
    """One `PodSetRequests` for each group of the gang's pod sets. `counts` replaces their counts.

    `old` is the slice that it replaces: it asks for the difference.
    """
    if old is not None:
        return tuple(_asked(gang, members, queue, topologies, counts, ignore_missing, old) for members in gang.groups)
    known = queue.asked.get(gang.shape) if counts is None else None
    if known is None:
        known = tuple(_asked(gang, members, queue, topologies, counts, ignore_missing) for members in gang.groups)
        if counts is None:
            if len(queue.asked) >= MOST_KNOWN:
                queue.asked.clear()
            queue.asked[gang.shape] = known
    return known


def _asked(
    gang: WorkloadState,
    members: Sequence[int],
    queue: ClusterQueueState,
    topologies: Topologies,
    counts: Sequence[int] | None,
    ignore_missing: bool,
    old: WorkloadState | None = None,
) -> PodSetRequests:
    held: Amounts = amounts_of(old) if old is not None else {}
    requests = tuple(_requests(gang, index, queue, counts, held) for index in members)
    # sorted as Kueue's resource vectors: the first failure ends the search, so the order shows in the reason
    total = dict(sorted(_summed(requests).items(), reverse=True))
    needs: list[GroupNeeds] = []
    seen: set[str] = set()
    for resource, amount in total.items():
        if resource in seen:
            continue
        group = queue.group_of.get(resource)
        if group is not None:
            amounts = tuple((name, amount) for name, amount in total.items() if name in group.resources)
            ways = _ways(gang, members[0], queue, topologies, group, amounts)
            if old is not None:
                ways = tuple(_only_of_old(way, gang, members, old, amounts) for way in ways)
            needs.append(GroupNeeds(amounts, ways))
            seen.update(name for name, _ in amounts)
        elif amount and not ignore_missing:
            return PodSetRequests(requests, _compatible(needs, queue), resource)
    return PodSetRequests(requests, _compatible(needs, queue))


def _compatible(needs: list[GroupNeeds], queue: ClusterQueueState) -> tuple[GroupNeeds, ...]:
    """The needs without the flavors beside which another resource group has none: no node has two values of one label."""
    if len(needs) < 2 or queue.merges_labels:
        return tuple(needs)
    return tuple(
        replace(each, ways=tuple(_beside(way, [other for other in needs if other is not each]) for way in each.ways))
        for each in needs
    )


def _beside(way: Way, others: Sequence[GroupNeeds]) -> Way:
    flavor = way.option.flavor
    if way.refused or flavor is None or not flavor.node_labels:
        return way
    for other in others:
        flavors = [each.option.flavor for each in other.ways if not each.refused and each.option.flavor is not None]
        why = [contradiction(flavor, (each,)) for each in flavors]
        if why and all(why):
            return replace(way, refused=why[0])
    return way


def _requests(
    gang: WorkloadState, index: int, queue: ClusterQueueState, counts: Sequence[int] | None, held: Amounts
) -> dict[str, int]:
    """`held`: what the slice that it replaces has already."""
    demand = gang.demands[index]
    count = demand.count if counts is None else counts[index]
    requests = {resource: max(0, amount) * count for resource, amount in demand.pod_set.counted.items()}
    if demand.pod_set.charges:
        for resource, amount in demand.pod_set.charges.items():
            if resource in queue.group_of:
                requests[resource] = requests.get(resource, 0) + amount * count
    if PODS in queue.group_of:
        requests[PODS] = count
    has = held.get(demand.name)
    return {resource: amount - has.get(resource, 0) for resource, amount in requests.items()} if has else requests


def _only_of_old(
    way: Way, gang: WorkloadState, members: Sequence[int], old: WorkloadState, amounts: Sequence[tuple[str, int]]
) -> Way:
    """A slice gets the flavors of the one that it replaces: the pods that run stay where they are."""
    if way.refused or old.quota.admission is None:
        return way
    flavors = {each.name: each.flavors for each in old.quota.admission.pod_sets}
    for index in members:
        name = gang.demands[index].name
        for resource, amount in amounts:
            had = flavors.get(name, {}).get(resource, "")
            if had != way.option.name and (had or amount):
                why = f"could not assign {way.option.name} flavor since the original workload is assigned: {had}"
                return Way(way.option, why, way.cells)
    return way


def _summed(requests: Sequence[Mapping[str, int]]) -> dict[str, int]:
    total: dict[str, int] = {}
    for request in requests:
        for resource, amount in request.items():
            total[resource] = total.get(resource, 0) + amount
    return total


def _ways(
    gang: WorkloadState,
    index: int,
    queue: ClusterQueueState,
    topologies: Topologies,
    group: ResourceGroupFlavors,
    amounts: Sequence[tuple[str, int]],
) -> tuple[Way, ...]:
    return tuple(
        Way(
            option,
            _refusal(gang, index, queue, topologies, group, option),
            tuple(option.cells[name] for name, _ in amounts),
            unnamed(gang.demands[index].pod_set, option.flavor, [other.flavor for other in group.options]),
        )
        for option in group.options
        if option.name not in gang.left_out
    )


def _refusal(
    gang: WorkloadState,
    index: int,
    queue: ClusterQueueState,
    topologies: Topologies,
    group: ResourceGroupFlavors,
    option: FlavorOption,
) -> str:
    allowed = gang.allowed_flavors
    if allowed is not None and option.name not in allowed:
        return f"skipping flavor {option.name} due to WorkloadAllowedResourceFlavorAnnotation annotation"
    if option.flavor is None:
        return f"flavor {option.name} not found"
    if not (option.selective or gang.wants_topology):
        return ""
    pod_set = gang.demands[index].pod_set
    return mismatch(pod_set, option.flavor, topologies, group.resources, implied=queue.only_topologies) or obstacle(
        pod_set, option.flavor
    )


# --- assignment -------------------------------------------------------------------------------------------------------


class Mode(IntEnum):
    """How an amount could be had, worst first."""

    NO_FIT = 0
    NO_CANDIDATES = 1
    PREEMPT = 2  # victims in the own queue are among those needed
    RECLAIM = 3  # all victims are in other queues
    FIT = 4


class Grade(NamedTuple):
    mode: Mode
    borrow: int


class FlavorObstacle(NamedTuple):
    """One reason against a flavor. `kind` orders by severity; the numbers are there for quota reasons."""

    kind: int
    flavor: str
    resource: str = ""
    before: int = 0  # requested by earlier pod sets
    amount: int = 0  # requested by this one
    limit: int = 0  # what can be had: ever (EXCEEDS_MAX) or now (WAITING)
    text: str = ""  # for the other kinds; of a quota reason what it says instead, as quotas change


#: kinds of obstacles, mildest first
TOPOLOGY, WAITING, CAPACITY, EXCEEDS_MAX, NO_MATCH = range(5)
NO_CAPACITY = "WaitingForCapacity"
REASONS = ("TopologyPlacementFailed", "WaitingForQuota", NO_CAPACITY, "ExceedsMaxQuota", "NoMatchingFlavor")


@dataclass(slots=True)
class FlavorChoice:
    """The flavor of one resource of a pod set."""

    cell: Cell
    amount: int
    grade: Grade
    tried: int = -1

    @property
    def flavor(self) -> str:
        return self.cell.fr[0]


@dataclass(slots=True)
class PodSetChoice:
    pod_set: PodSet
    count: int
    choices: dict[str, FlavorChoice]
    fits: bool
    obstacles: list[FlavorObstacle]
    failed: bool = False  # no flavor, or a resource that the queue does not have
    topology: TopologyAssignment | None = None
    delayed_topology: str = ""
    #: what the slice that it replaces holds already, by resource, and for how many pods
    held: Mapping[str, int] = field(default_factory=dict[str, int])
    held_pods: int = 0

    @property
    def name(self) -> str:
        return self.pod_set.name

    @property
    def flavor(self) -> str:
        return next((choice.flavor for choice in self.choices.values()), "")

    @property
    def flavors(self) -> dict[str, str]:
        """The chosen flavors by resource."""
        return {resource: choice.flavor for resource, choice in self.choices.items()}


class Assignment:
    """The outcome of an attempt, complete or up to the first pod set that failed."""

    __slots__ = (
        "borrowing",
        "capacity_request",
        "detail",
        "lacking",
        "mode",
        "placing",
        "pod_sets",
        "preview",
        "protected_until",
        "remark",
        "replaces",
        "searched",
        "severity",
        "usage",
    )

    def __init__(self) -> None:
        self.pod_sets: list[PodSetChoice] = []
        #: FIT, PREEMPT (with or without candidates) or NO_FIT
        self.mode = Mode.FIT
        self.borrowing = 0
        #: what it needs besides what the slice that it replaces holds
        self.usage: dict[Cell, int] = {}
        #: the slice that it replaces, None = none
        self.replaces: WorkloadState | None = None
        #: the topology placement that it needs, None if none
        self.placing: Placing | None = None
        #: the room on healthy nodes that it needs, None if nodes do not bound it
        self.capacity_request: CapacityRequest | None = None
        #: the room that it lacks on the nodes of a flavor that was ruled out for that
        self.lacking: CapacityRequest | None = None
        #: the worst kind of obstacle of the last pod set, -1 = none
        self.severity = -1
        #: what a placement policy that is tried out would do
        self.preview = ""
        #: how a search has found its places, "" = without one
        self.searched = ""
        #: victims exist but are protected: when the first protection ends
        self.protected_until: Millis | None = None
        #: what could be moved to make room for it, or what prevents that, "" = nothing; and its price, which changes with time
        self.remark = ""
        self.detail = ""

    @staticmethod
    def nothing() -> Assignment:
        """The assignment of a workload that gets nothing, whatever is free."""
        found = Assignment()
        found.mode, found.severity = Mode.NO_FIT, NO_MATCH
        return found

    def append(self, choice: PodSetChoice) -> None:
        self.pod_sets.append(choice)
        for taken in choice.choices.values():
            self.usage[taken.cell] = self.usage.get(taken.cell, 0) + taken.amount
            self.borrowing = max(self.borrowing, taken.grade.borrow)
        if choice.failed:
            self.mode = Mode.NO_FIT
        elif not choice.fits:
            worst = min(taken.grade.mode for taken in choice.choices.values())
            self.mode = min(self.mode, Mode.FIT if worst is Mode.FIT else Mode.PREEMPT)

    def places_everything(self) -> bool:
        """Whether every pod set has to be placed."""
        names = self.placing.names() if self.placing is not None else set[str]()
        return all(pod_set.name in names for pod_set in self.pod_sets)

    def take_places(self, placements: Mapping[str, TopologyAssignment], searched: str = "") -> None:
        """`searched`: how a search has found them, "" = without one."""
        self.searched = searched
        for pod_set in self.pod_sets:
            pod_set.topology = placements.get(pod_set.name, pod_set.topology)

    def placements(self) -> dict[str, TopologyAssignment]:
        return {pod_set.name: pod_set.topology for pod_set in self.pod_sets if pod_set.topology is not None}

    def admission(self, queue: str) -> Admission:
        """What is granted with it in the ClusterQueue of that name."""
        return Admission(
            queue,
            tuple(
                PodSetAssignment(
                    name=pod_set.name,
                    count=pod_set.count,
                    flavors=pod_set.flavors,
                    usage={
                        resource: choice.amount + pod_set.held.get(resource, 0)
                        for resource, choice in pod_set.choices.items()
                    },
                    topology=pod_set.topology,
                    delayed_topology=pod_set.delayed_topology,
                )
                for pod_set in self.pod_sets
            ),
        )

    def total(self) -> dict[FlavorResource, int]:
        """What the workload uses in all, with what the slice that it replaces holds."""
        total = {cell.fr: amount for cell, amount in self.usage.items()}
        if self.replaces is not None:
            for pod_set in self.pod_sets:
                for resource, choice in pod_set.choices.items():
                    total[choice.cell.fr] += pod_set.held.get(resource, 0)
        return total

    @property
    def lacks_room(self) -> bool:
        """Whether room on healthy nodes is missing, and quota is not."""
        kinds = {obstacle.kind for pod_set in self.pod_sets if not pod_set.fits for obstacle in pod_set.obstacles}
        return CAPACITY in kinds and WAITING not in kinds

    @property
    def reason(self) -> str:
        return REASONS[self.severity] if self.severity >= 0 else ""

    def progress(self) -> ScanProgress:
        return tuple(
            {resource: choice.tried for resource, choice in pod_set.choices.items()} for pod_set in self.pod_sets
        )

    def flavors_left(self) -> bool:
        """Whether the scan stopped before the last flavor of some resource."""
        for pod_set in self.pod_sets:
            for choice in pod_set.choices.values():
                if choice.tried != -1:
                    return True
        return False

    @property
    def asks_for_places(self) -> bool:
        """Whether the workload needs room on nodes besides quota."""
        return self.placing is not None or self.capacity_request is not None

    def node_needs(self, admission: Admission) -> NodeNeeds:
        """What its placed pods take of nodes, where quota counts them otherwise."""
        return node_needs((pod_set.pod_set for pod_set in self.pod_sets), admission)

    def has_room(self) -> bool:
        """Whether healthy nodes have room for its pods that are not placed, beside those that are."""
        if self.capacity_request is None or self.placing is None:
            return self.capacity_request is None or self.capacity_request.fits()
        with self.placing.beside(self.placements()):
            return self.capacity_request.fits()

    def needed(self) -> list[Cell]:
        """What can only be had by preemption."""
        cells = {
            choice.cell: None
            for pod_set in self.pod_sets
            for choice in pod_set.choices.values()
            if choice.grade.mode is not Mode.FIT
        }
        return list(cells)

    def requests(self, *, with_pods: bool) -> dict[Cell, int]:
        """What victims must make room for. In Kueue `pods` is left out."""
        return {cell: amount for cell, amount in self.usage.items() if amount and (with_pods or cell.fr[1] != PODS)}


def verdict_of(gang: WorkloadState) -> Assignment | None:
    """The outcome of the last attempt of a waiting workload; None if it was not tried since its facts changed."""
    verdict = gang.attempts.verdict
    return verdict if isinstance(verdict, Assignment) else None
